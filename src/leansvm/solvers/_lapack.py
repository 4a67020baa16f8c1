"""LAPACK's symmetric eigen-decomposition, in place and without Python's lock.

SciPy's `eigh` keeps the lock while LAPACK works, minutes for ten thousand rows: no other thread
runs, and Ctrl-C is not answered. The same routine of the same library is called here by ctypes,
which gives the lock away.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_ROUTINES = {np.dtype(np.float64): "dsyevd", np.dtype(np.float32): "ssyevd"}


def eigh_in_place(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, smallest first, and eigenvectors of a symmetric matrix.

    Parameters
    ----------
    K : ndarray of shape (n, n), float64 or float32, C-contiguous
        It is overwritten: the eigenvectors, one a column, are in its memory.
    """
    routine = _routine(_ROUTINES[K.dtype])
    n = len(K)
    values = np.empty(n, K.dtype)
    if n == 0:
        return values, K.T
    work, iwork = np.empty(1, K.dtype), np.empty(1, np.intc)
    _call(routine, K, values, work, iwork, query=True)
    work, iwork = np.empty(int(work[0]), K.dtype), np.empty(int(iwork[0]), np.intc)
    info = _call(routine, K, values, work, iwork)
    if info != 0:
        raise np.linalg.LinAlgError(f"the eigen-decomposition of {n} rows failed (info {info})")
    return values, K.T


def _routine(name: str) -> Any:
    """Return a routine of SciPy's LAPACK as a C function: eleven pointers, no result."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    assert address is not None
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(address)


def _call(
    routine: Any,
    K: np.ndarray,
    values: np.ndarray,
    work: np.ndarray,
    iwork: np.ndarray,
    query: bool = False,
) -> int:
    """Decompose, or with `query` ask for the sizes of the work arrays; return LAPACK's info."""
    lengths = (-1, -1) if query else (len(work), len(iwork))
    n, lwork, liwork, info = (ctypes.c_int(number) for number in (len(K), *lengths, 0))
    jobz, uplo = ctypes.c_char(b"V"), ctypes.c_char(b"L")
    arguments = (
        ctypes.byref(jobz),
        ctypes.byref(uplo),
        ctypes.byref(n),
        K.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(n),
        values.ctypes.data_as(ctypes.c_void_p),
        work.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(lwork),
        iwork.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(liwork),
        ctypes.byref(info),
    )
    routine(*arguments)
    return info.value
