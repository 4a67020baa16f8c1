"""Which array namespace an array belongs to, decided in one place.

NumPy arrays, memory maps and scipy matrices answer ``None``: they take the fast path that
writes in place. Any other array (CuPy, torch, array-api-strict) answers its namespace and
takes the generic path, which uses the array API standard only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn._config import get_config


def foreign_namespace(X: Any) -> Any | None:
    """Return the array-API namespace of ``X``, or None when ``X`` lives on the NumPy path."""
    if isinstance(X, np.ndarray | np.generic | float | int | list) or sparse.issparse(X):
        return None
    from sklearn.externals.array_api_compat import array_namespace

    return array_namespace(X)


def dispatched_namespace(X: Any) -> Any | None:
    """Return the namespace in which to work on a user's ``X``: only where they asked for it.

    As in scikit-learn, arrays of other libraries become NumPy arrays unless
    ``sklearn.set_config(array_api_dispatch=True)``.
    """
    if not get_config()["array_api_dispatch"] or not hasattr(X, "dtype"):
        return None
    if hasattr(X, "iloc") or hasattr(X, "to_pandas"):  # data frames and series
        return None
    return foreign_namespace(X)


def like_rows(array: Any, X: Any) -> Any:
    """Return a host array as an array of the library, and on the device, of ``X``."""
    xp = foreign_namespace(X)
    return array if xp is None else xp.asarray(array, device=device_of(X))


def in_float64(array: Any) -> Any:
    """Return floating-point numbers of another library in float64; leave row numbers alone."""
    xp = foreign_namespace(array)
    if xp is None or not xp.isdtype(array.dtype, "real floating"):
        return array
    return xp.astype(array, xp.float64, copy=False)


def moved(array: Any, X: Any) -> Any:
    """Return ``array``, whatever its library, where ``X`` is."""
    if foreign_namespace(array) is foreign_namespace(X) and (
        foreign_namespace(X) is None or device_of(array) == device_of(X)
    ):
        return array
    return like_rows(to_host(array), X)


def device_of(X: Any) -> Any:
    """Return the device of a foreign array."""
    from sklearn.externals.array_api_compat import device

    return device(X)


def from_host(array: Any, like: Any, *, dtype: Any = None) -> Any:
    """Put a host array where ``like`` is, in its type unless told otherwise."""
    xp = foreign_namespace(like)
    if xp is None:
        return np.asarray(array)
    return xp.asarray(np.asarray(array), dtype=dtype, device=device_of(like))


def to_host(array: Any) -> Any:
    """Return a NumPy array with the values of ``array`` (NumPy and sparse pass through)."""
    xp = foreign_namespace(array)
    if xp is None:
        return array
    from sklearn.utils._array_api import _convert_to_numpy

    return _convert_to_numpy(array, xp)
