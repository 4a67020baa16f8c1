"""Move a fitted estimator between array libraries and devices."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

from scipy import sparse
from sklearn.base import BaseEstimator

from leansvm._array_api import like_rows, to_host
from leansvm._extras import needs
from leansvm.basis.features import KernelFeatures
from leansvm.ridge.sums import Sums

Estimator = TypeVar("Estimator", bound=BaseEstimator)


def to_numpy(estimator: Estimator) -> Estimator:
    """Return a copy of a fitted estimator whose arrays are NumPy arrays.

    Parameters
    ----------
    estimator : estimator
        Fitted on arrays of any library, on any device.

    Returns
    -------
    estimator
        A copy that can be pickled and used where there is no GPU and no torch or CuPy.

    Examples
    --------
    >>> import numpy as np
    >>> import leansvm
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = leansvm.SparseLSSVR(C=10.0, n_basis=5, random_state=0).fit(X, X[:, 0])
    >>> type(leansvm.to_numpy(model).support_vectors_)
    <class 'numpy.ndarray'>
    """
    return _converted(estimator, to_host)


def to_device(estimator: Estimator, device: Any) -> Estimator:
    """Return a copy of a fitted estimator whose basis points are on a device.

    Prediction moves the basis points to where the rows are every time; this moves them once.

    Parameters
    ----------
    estimator : estimator
        Fitted on arrays of any library, on any device.
    device : str, device or array
        What torch calls it ("cuda", "cuda:1", "cpu", a `torch.device`), a `cupy.cuda.Device`, or
        an array of any library: the model goes where that is.

    Returns
    -------
    estimator
        A copy.

    Examples
    --------
    >>> import numpy as np
    >>> import leansvm
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = leansvm.SparseLSSVR(C=10.0, n_basis=5, random_state=0).fit(X, X[:, 0])
    >>> on_gpu = leansvm.to_device(model, "cuda")  # doctest: +SKIP
    """
    target = _array_on(device)

    def convert(points: Any) -> Any:
        dense = points.toarray() if sparse.issparse(points) else to_host(points)
        return like_rows(dense, target)

    return _converted(estimator, convert)


def _array_on(device: Any) -> Any:
    if hasattr(device, "dtype"):
        return device
    if type(device).__module__.partition(".")[0] == "cupy":
        import cupy

        with device:
            return cupy.empty(0)
    try:
        import torch
    except ImportError as error:
        raise ImportError(needs("to_device", "torch", "torch")) from error

    return torch.empty(0, device=device)


def _converted(estimator: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the basis points, wherever the estimator keeps them; the rest is on the host."""
    result = copy(estimator)
    for name, value in vars(estimator).items():
        if name == "support_vectors_" and value.shape[0]:
            setattr(result, name, convert(value))
        elif isinstance(value, KernelFeatures) and not value.kernel.precomputed:
            setattr(result, name, replace(value, points=convert(value.points), L=to_host(value.L)))
        elif isinstance(value, Sums):
            setattr(result, name, value.on_host())
    return result
