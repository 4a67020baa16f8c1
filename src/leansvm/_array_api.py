"""Which array namespace an array belongs to, decided in one place.

NumPy arrays, memory maps and scipy matrices answer ``None``: they take the fast path that
writes in place. Any other array (CuPy, torch, array-api-strict) answers its namespace and
takes the generic path, which uses the array API standard only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def foreign_namespace(X: Any) -> Any | None:
    """Return the array-API namespace of ``X``, or None when ``X`` lives on the NumPy path."""
    if isinstance(X, np.ndarray | np.generic | float | int | list) or sparse.issparse(X):
        return None
    from sklearn.externals.array_api_compat import array_namespace

    return array_namespace(X)


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
