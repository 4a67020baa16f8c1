"""Turn what a user gives as ``gamma`` into a number or one checked value for each feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import to_host
from leansvm.kernels._function import Gamma
from leansvm.kernels._kernel import PER_FEATURE, WITH_GAMMA, refuse_length


def resolve_gamma(
    gamma: Any,
    kernel: str | Callable[..., Any],
    n_features: int,
    variance: Callable[[], float],
) -> Gamma:
    """Return ``gamma`` as a number or as an array with one value for each feature.

    "scale" is 1 / (d * variance), "auto" is 1 / d.

    Parameters
    ----------
    gamma : {"scale", "auto"}, float or array-like of shape (n_features,)
        As in `sklearn.svm.SVC`; one value for each feature for "rbf", "laplacian" and the Matérn
        kernels.
    kernel : str or callable
        Kernels without a gamma get 1.0 and do not look at the data.
    n_features : int
        Number of columns d of the data.
    variance : callable
        Returns the (weighted) variance of all entries of the data; called for "scale" only.

    Examples
    --------
    >>> from leansvm.kernels import resolve_gamma
    >>> resolve_gamma("scale", "rbf", 4, lambda: 0.5)
    0.5
    >>> resolve_gamma([1, 0.5], "matern32", 2, lambda: 0.5)
    array([1. , 0.5])
    """
    if callable(kernel) or kernel not in WITH_GAMMA:
        return 1.0
    if isinstance(gamma, str):
        if gamma == "auto":
            return 1.0 / n_features
        if gamma != "scale":
            raise ValueError(
                f"gamma must be 'scale', 'auto', a number >= 0 or one for each feature, got "
                f"{gamma!r}."
            )
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                spread = variance()
        except OverflowError:
            spread = np.inf
        scale = 1.0 / (n_features * spread) if spread > 0 else 1.0
        if not (np.isfinite(spread) and np.isfinite(scale)):
            raise ValueError(
                "gamma='scale': the variance of X is too large or too small to divide by. Scale X, "
                "or give gamma as a number."
            )
        return scale
    if isinstance(gamma, float | int) and 0 <= gamma < np.inf:
        return float(gamma)
    values = _numbers(gamma)
    if values.ndim == 0:
        return float(values)
    if kernel not in PER_FEATURE:
        raise ValueError(
            f"kernel={kernel!r} takes one number as gamma, got {len(values)} values; "
            f"{', '.join(PER_FEATURE)} take one value for each feature."
        )
    if len(values) != n_features:
        refuse_length(values, n_features)
    return values


def _numbers(gamma: Any) -> NDArray[np.float64]:
    try:
        values = np.array(to_host(gamma), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"gamma must be a number or an array of numbers, got {gamma!r}."
        ) from error
    if values.ndim > 1:
        raise ValueError(
            f"gamma must be a number or one number for each feature, got an array of shape "
            f"{values.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        first = int(wrong[0])
        where = f" for feature {first}" if values.ndim else ""
        raise ValueError(
            f"gamma must be finite and >= 0, got {float(values.ravel()[first])!r}{where}."
        )
    return values
