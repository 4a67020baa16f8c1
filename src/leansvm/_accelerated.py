"""Faster forms of a few operations in torch and CuPy, chosen by the library of the arrays.

The array API standard has no ``out=``, no triangular solve and no product that knows its result
to be symmetric. Each function here has a form in the standard alone for all other libraries.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import (
    empty,
    foreign_namespace,
    library_of,
    like_rows,
    matmul_into,
    namespace,
    to_host,
    zeros,
)

_WIDE = 768  # from so many columns on, a Gram matrix is computed in parts
_PANEL = 2048  # columns of a part of a Gram matrix that is wider than two of them
_GRAM_ROWS = 8192  # rows of a part: many parts keep the whole device busy
_GRAM_ROWS32 = 1024  # rows that are added up in float32 before the sum goes on in float64


def apply_in_place(function: str, E: Any, *limits: float) -> Any:
    """Return "exp", "sqrt", "tanh" or "clip" of E, in the memory of E if the library can."""
    if isinstance(E, np.ndarray) or library_of(E) == "cupy":  # CuPy answers NumPy's functions
        return getattr(np, function)(E, *limits, out=E)
    if library_of(E) == "torch":
        return getattr(E, f"{function}_")(*limits)
    return getattr(foreign_namespace(E), function)(E, *limits)


def manhattan(X: Any, Z: Any) -> Any:
    """Return sum_f |x_if - z_jf| of all pairs of rows of another library."""
    if library_of(X) == "torch":
        import torch

        return torch.cdist(X, Z, p=1.0)
    xp, total = namespace(X), zeros((X.shape[0], Z.shape[0]), X, X.dtype)
    for f in range(X.shape[1]):
        total += xp.abs(X[:, f][:, None] - Z[:, f][None, :])
    return total


def gram(Z: Any) -> Any:
    """Return Z'Z in float64.

    Parts of the rows are multiplied at once and added up in float64, also those of float32 rows:
    rounding does not grow with the number of rows.
    """
    if isinstance(Z, np.ndarray):
        return np.asarray(Z.T @ Z, dtype=np.float64)  # NumPy calls SYRK
    wide = Z.shape[1] >= _WIDE and Z.dtype == namespace(Z).float64
    return _gram_by_panels(Z) if wide and library_of(Z) != "other" else _gram_batched(Z)


def _gram_batched(Z: Any) -> Any:
    """Multiply many narrow parts at once: a single product would leave most of a GPU idle."""
    xp, (n, width) = namespace(Z), Z.shape
    part = _GRAM_ROWS if Z.dtype == xp.float64 else _GRAM_ROWS32
    parts = n // part
    rest = Z[parts * part :, :]
    total = xp.astype(rest.T @ rest, xp.float64, copy=False)
    most = max(1, 2**28 // (8 * width**2))  # their results take memory, too
    for first in range(0, parts, most):
        count = min(most, parts - first)
        rows = xp.reshape(Z[first * part : (first + count) * part, :], (count, part, width))
        products = xp.matmul(xp.permute_dims(rows, (0, 2, 1)), rows)
        total = total + xp.sum(products, axis=0, dtype=xp.float64)
    return total


def _gram_by_panels(Z: Any) -> Any:
    """Multiply each part of the columns by itself and those after it; the rest is transposed.

    Eight parts make 56 % of the operations, two three quarters.
    """
    width = Z.shape[1]
    step = -(-width // max(2, width // _PANEL))
    result = empty((width, width), Z)
    for start in range(0, width, step):
        stop = min(start + step, width)
        matmul_into(Z[:, start:stop].T, Z[:, start:], result[start:stop, start:])
        result[stop:, start:stop] = result[start:stop, stop:].T
    return result


def put(array: Any, rows: Any, values: Any, columns: Any = None) -> None:
    """Set entries of a vector, rows of a matrix or, with ``columns``, entries of a matrix.

    ``values`` are as many, or one number; numbers of rows and columns are on the host.
    """
    if library_of(array) == "other":
        for i, row in enumerate(rows):
            place = (int(row), ...) if columns is None else (int(row), int(columns[i]))
            array[place] = values if isinstance(values, float) else values[i, ...]
    elif len(rows):
        integers = namespace(array).int64
        place = like_rows(rows, array, dtype=integers)
        if columns is not None:
            place = place, like_rows(columns, array, dtype=integers)
        array[place] = values


def add_to_diagonal(A: Any, values: Any) -> Any:
    """Return A + diag(values), in the memory of A if the library can."""
    library = library_of(A)
    if library == "torch":
        A.diagonal().add_(values)
        return A
    if library == "cupy":
        import cupy

        diagonal = cupy.arange(A.shape[0])
        A[diagonal, diagonal] += values  # in whatever order of memory
        return A
    for i in range(A.shape[0]):
        A[i, i] += values[i]
    return A


def solve_lower(L: Any, B: Any, *, transposed: bool = False) -> Any:
    """Solve L X = B or, ``transposed``, L'X = B, with L lower triangular."""
    library = library_of(L)
    if library == "torch":
        import torch

        return torch.linalg.solve_triangular(L.T if transposed else L, B, upper=transposed)
    if library == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(L, B, lower=True, trans="T" if transposed else "N")
    return namespace(L).linalg.solve(L.T if transposed else L, B)


def hashed_rows(X: Any, odd: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
    """Return sum_f odd_f mix(x_f) modulo 2^64 of every row, on the host.

    The same numbers as those of NumPy arrays (`leansvm.rows.row_hashes`); None if a library
    does not show bit patterns.
    """
    if library_of(X) not in ("torch", "cupy"):
        return None
    result = np.empty(X.shape[0], np.uint64)
    xp, tile = namespace(X), max(1, 2**26 // max(X.shape[1], 1))
    # integers with a sign: the same bits, as long as shifts bring in zeros
    multiplier = int(np.uint64(0x9E3779B97F4A7C15).astype(np.int64))
    factors = like_rows(odd.view(np.int64), X, dtype=xp.int64)
    for start in range(0, X.shape[0], tile):
        rows = xp.astype(X[start : start + tile, :], xp.float64) + 0.0
        bits = rows.view(xp.int64)
        bits = (bits ^ ((bits >> 32) & (2**32 - 1))) * multiplier
        bits = bits ^ ((bits >> 29) & (2**35 - 1))
        sums = to_host(xp.sum(bits * factors, axis=1))
        result[start : start + tile] = sums.view(np.uint64)
    return result


def cholesky_lower(A: Any) -> Any:
    """Return L with A = L L' where A is; only its lower triangle is read.

    A that is not positive definite raises NumPy's LinAlgError, whatever the library.
    """
    xp = namespace(A)
    try:
        L = xp.linalg.cholesky(A)
    except RuntimeError as error:  # torch's own LinAlgError is one
        raise np.linalg.LinAlgError(str(error)) from None
    if A.shape[0] and not bool(xp.all(xp.isfinite(L[-1, :]))):  # CuPy raises no error
        raise np.linalg.LinAlgError("not positive definite")
    return L


def doubles_are_fast(X: Any) -> bool:
    """Whether the device of ``X`` multiplies in float64 about as fast as in float32.

    NVIDIA's A100, H100 and H200 (8.0 and 9.0) do. Most other GPUs are 32 or 64 times slower in
    float64, and hosts half as fast.
    """
    library = library_of(X)
    if library == "torch" and X.device.type == "cuda":
        import torch

        major, minor = torch.cuda.get_device_capability(X.device)
    elif library == "cupy":
        version = str(X.device.compute_capability)
        major, minor = int(version[:-1]), int(version[-1])
    else:
        return False
    return major in (8, 9) and minor == 0


def free_memory(X: Any) -> int | None:
    """Return the bytes still free on the device of ``X``; None if that is the host."""
    library = library_of(X)
    if library == "torch" and X.device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(X.device)
        kept = torch.cuda.memory_reserved(X.device) - torch.cuda.memory_allocated(X.device)
        return int(free + kept)
    if library == "cupy":
        import cupy

        with X.device:
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free + cupy.get_default_memory_pool().free_bytes())
    return None


def product_eps(X: Any) -> float:
    """Return the rounding unit of products of float32 arrays of this library.

    Coarser than that of float32 if the user has asked for TF32.
    """
    library, single = library_of(X), float(np.finfo(np.float32).eps)
    if library == "torch":
        import torch

        return single if torch.get_float32_matmul_precision() == "highest" else 2.0**-10
    if library == "cupy":
        return 2.0**-10 if os.environ.get("CUPY_TF32") == "1" else single
    return single
