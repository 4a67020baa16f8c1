"""LAPACK's routines for symmetric matrices, in place and without Python's lock.

SciPy's `eigh` keeps the lock while LAPACK works, minutes for ten thousand rows: no other thread
runs, and Ctrl-C is not answered. The same routines of the same library are called here by ctypes,
which gives the lock away.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_ROUTINES = {np.dtype(np.float64): "dsyevd", np.dtype(np.float32): "ssyevd"}
_PANEL = 64  # columns of work space: LAPACK takes panels of at most so many


def eigh_in_place(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, smallest first, and eigenvectors of a symmetric matrix.

    Parameters
    ----------
    K : ndarray of shape (n, n), float64 or float32, C-contiguous
        It is overwritten: the eigenvectors, one a column, are in its memory.
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


def tridiagonal_in_place(K: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, the diagonal and what is beside it of T, with K = Q T Q' and T tridiagonal.

    Parameters
    ----------
    K : ndarray of shape (n, n), float64, C-contiguous, n > 0
        It is overwritten: Q is in its memory.
    """
    n = len(K)
    diagonal, off, factors = np.empty(n), np.empty(max(n - 1, 1)), np.empty(max(n - 1, 1))
    work = np.empty(_PANEL * n)
    _call("dsytrd", b"L", n, K, n, diagonal, off, factors, work, len(work))
    _call("dorgtr", b"L", n, K, n, factors, work, len(work))
    return K.T, diagonal, off


def _call(name: str, *arguments: Any) -> None:
    """Call a routine of SciPy's LAPACK with letters, integers and arrays, and check its info."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    assert address is not None
    info = ctypes.c_int(0)
    pointers: list[Any] = []
    for argument in arguments:
        if isinstance(argument, bytes):
            pointers.append(ctypes.byref(ctypes.c_char(argument)))
        elif isinstance(argument, int):
            pointers.append(ctypes.byref(ctypes.c_int(argument)))
        else:
            pointers.append(argument.ctypes.data_as(ctypes.c_void_p))
    # all arguments are pointers, the last one is the info
    routine = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(pointers) + 1))(address)
    routine(*pointers, ctypes.byref(info))
    if info.value != 0:
        raise np.linalg.LinAlgError(f"LAPACK's {name} failed (info {info.value})")
