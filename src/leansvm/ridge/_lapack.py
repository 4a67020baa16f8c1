"""Routines of LAPACK and BLAS for symmetric matrices, without Python's lock.

SciPy's `eigh` keeps the lock while LAPACK works, minutes for ten thousand rows: no other thread
runs, and Ctrl-C has no effect. Here ctypes calls the same routines of the same library and releases
the lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

_ROUTINES = {np.dtype(np.float64): "dsyevd", np.dtype(np.float32): "ssyevd"}


def eigh_in_place(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, smallest first, and eigenvectors of a symmetric matrix.

    K, C-contiguous, is overwritten: the eigenvectors, one a column, are in its memory.
    """
    name, n = _ROUTINES[K.dtype], len(K)
    values = np.empty(n, K.dtype)
    if n == 0:
        return values, K.T
    work, iwork = np.empty(1, K.dtype), np.empty(1, np.intc)
    _call(name, b"V", b"L", n, K, n, values, work, -1, iwork, -1)  # asks for the lengths
    work, iwork = np.empty(int(work[0]), K.dtype), np.empty(int(iwork[0]), np.intc)
    _call(name, b"V", b"L", n, K, n, values, work, len(work), iwork, len(iwork))
    return values, K.T


def symmetric_product(K: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return K v; one half of the symmetric K is read, which takes half the time of ``K @ v``.

    K may be the first rows and columns of a larger matrix: the numbers of a row lie together, as
    do those of v. Both are float64.
    """
    n, out = len(K), np.zeros(len(K))
    if n:
        apart = K.strides[0] // K.itemsize
        _routine("cython_blas", "dsymv")(*_pointers(b"U", n, 1.0, K, apart, v, 1, 0.0, out, 1))
    return out


def _call(name: str, *arguments: Any) -> None:
    """Call a routine of SciPy's LAPACK and check its info, the last argument."""
    info = ctypes.c_int(0)
    _routine("cython_lapack", name)(*_pointers(*arguments), ctypes.byref(info))
    if info.value != 0:
        raise np.linalg.LinAlgError(f"LAPACK's {name} failed (info {info.value})")


@cache
def _routine(module: str, name: str) -> Any:
    """Return a routine of ``scipy.linalg.<module>``; all of its arguments are pointers."""
    capsule = import_module(f"scipy.linalg.{module}").__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    assert address is not None
    return ctypes.CFUNCTYPE(None)(address)


def _pointers(*arguments: Any) -> Iterator[Any]:
    """Point to letters, integers, numbers and arrays."""
    kinds: dict[type, Any] = {bytes: ctypes.c_char, int: ctypes.c_int, float: ctypes.c_double}
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            yield argument.ctypes.data_as(ctypes.c_void_p)
        else:
            yield ctypes.byref(kinds[type(argument)](argument))
