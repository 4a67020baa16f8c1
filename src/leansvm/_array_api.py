"""Which array library an array belongs to and where it lives, decided in one place.

NumPy arrays, memory maps and scipy matrices are on the host; code for them writes in place. Any
other array (CuPy, torch, array-api-strict) is *foreign*: its own library computes with it where it
is, through the array API standard; `leansvm._accelerated` has a few faster forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn._config import get_config

from leansvm._sklearn import array_api_compat

# By type: asked for at every step of small loops.
_namespaces: dict[type, Any] = {}


def foreign_namespace(X: Any) -> Any | None:
    """Return the array-API namespace of ``X``, or None when ``X`` lives on the NumPy path."""
    kind = type(X)
    if kind not in _namespaces:
        host = np.ndarray | np.generic | float | int | list | None
        if isinstance(X, host) or sparse.issparse(X):
            _namespaces[kind] = None
        else:
            _namespaces[kind] = array_api_compat().array_namespace(X)
    return _namespaces[kind]


def namespace(X: Any) -> Any:
    """Return the namespace of ``X``: NumPy itself for what lives on the host."""
    return np if isinstance(X, np.ndarray) else foreign_namespace(X) or np


def library_of(X: Any) -> str:
    """Return "numpy", "torch", "cupy" or, for any other library, "other"."""
    if foreign_namespace(X) is None:
        return "numpy"
    name = type(X).__module__.partition(".")[0]
    return name if name in ("torch", "cupy") else "other"


def dispatched_namespace(X: Any) -> Any | None:
    """Return the namespace in which to work on a user's ``X``; None unless they asked for it.

    As in scikit-learn, arrays of other libraries become NumPy arrays unless
    ``sklearn.set_config(array_api_dispatch=True)``.
    """
    if not get_config()["array_api_dispatch"] or not hasattr(X, "dtype"):
        return None
    if hasattr(X, "iloc") or hasattr(X, "to_pandas"):  # data frames and series
        return None
    try:
        return foreign_namespace(X)
    except TypeError:  # has a dtype, but is no array: NumPy may know what to do with it
        return None


def like_rows(array: Any, X: Any, *, dtype: Any = None) -> Any:
    """Return a host array as an array of the library, and on the device, of ``X``.

    There it has its own type unless told otherwise.
    """
    xp = foreign_namespace(X)
    if xp is None:
        return array
    if isinstance(array, np.ndarray):  # torch takes neither negative strides nor read-only memory
        backward = min(array.strides, default=0) < 0
        array = array if array.flags.writeable and not backward else array.copy(order="C")
    return xp.asarray(array, dtype=dtype, device=device_of(X))


def in_float64(array: Any) -> Any:
    """Return floating-point numbers of another library in float64; leave row numbers alone."""
    xp = foreign_namespace(array)
    if xp is None or not xp.isdtype(array.dtype, "real floating"):
        return array
    return xp.astype(array, xp.float64, copy=False)


def as_float64(array: Any) -> Any:
    """Return numbers in float64, where they are."""
    xp = foreign_namespace(array)
    if xp is None:
        return np.asarray(array, dtype=np.float64)
    return xp.astype(array, xp.float64, copy=False)


def empty(shape: tuple[int, ...], X: Any, dtype: Any = None) -> Any:
    """Return an array without values, of float64 unless told otherwise, where ``X`` is."""
    xp = foreign_namespace(X)
    if xp is None:
        return np.empty(shape, np.float64 if dtype is None else dtype)
    return xp.empty(shape, dtype=xp.float64 if dtype is None else dtype, device=device_of(X))


def zeros(shape: tuple[int, ...], X: Any, dtype: Any = None) -> Any:
    """Return zeros, of float64 unless told otherwise, where ``X`` is."""
    xp = foreign_namespace(X)
    if xp is None:
        return np.zeros(shape, np.float64 if dtype is None else dtype)
    return xp.zeros(shape, dtype=xp.float64 if dtype is None else dtype, device=device_of(X))


def identity(size: int, X: Any) -> Any:
    """Return the identity matrix, where ``X`` is and in its type."""
    xp = foreign_namespace(X)
    if xp is None:
        return np.eye(size, dtype=X.dtype)
    return xp.eye(size, dtype=X.dtype, device=device_of(X))


def rows_at(array: Any, rows: Any) -> Any:
    """Return the rows with these numbers (on the host), in this order, where ``array`` is."""
    xp = foreign_namespace(array)
    if xp is None:
        return array[rows]
    return xp.take(array, like_rows(rows, array, dtype=xp.int64), axis=0)


def same_place(array: Any, X: Any) -> bool:
    """Whether two arrays are of one library and on one device."""
    xp = foreign_namespace(X)
    if foreign_namespace(array) is not xp:
        return False
    return xp is None or bool(device_of(array) == device_of(X))


def moved(array: Any, X: Any) -> Any:
    """Return ``array``, whatever its library, where ``X`` is."""
    return array if same_place(array, X) else like_rows(to_host(array), X)


def device_of(X: Any) -> Any:
    """Return the device of a foreign array."""
    return array_api_compat().device(X)


def to_host(array: Any) -> Any:
    """Return a NumPy array with the values of ``array`` (NumPy and sparse pass through).

    Tuples are brought over item by item.
    """
    if isinstance(array, tuple):
        return tuple(map(to_host, array))
    if not hasattr(array, "dtype"):
        return array
    xp = foreign_namespace(array)
    if xp is None:
        return array
    from sklearn.utils._array_api import _convert_to_numpy

    return _convert_to_numpy(array, xp)


def matmul_into(A: Any, B: Any, out: Any) -> None:
    """Write A @ B into ``out``, which may be a view."""
    if isinstance(out, np.ndarray):
        np.matmul(A, B, out=out)
    elif library_of(out) == "torch":
        import torch

        torch.matmul(A, B, out=out)
    else:
        out[...] = A @ B
