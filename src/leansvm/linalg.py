"""The few dense kernels everything stands on, each once.

- `distance_product`: |x - z|^2 of all pairs as one augmented GEMM, tile by tile;
- `cholesky_in_place`: tiled above the size at which threaded LAPACK is safe;
- `cholesky_solve`, `inverse_diagonal`, `symmetric_matmul` on the matrix it leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from leansvm._array_api import as_float64, foreign_namespace, like_rows

# Threaded OpenBLAS potrf crashes the interpreter from m ~ 17,000 on some machines.
LAPACK_SAFE_ROWS = 12_000
CHOLESKY_TILE = 512
_CORNER = 64  # columns that are divided by a triangle at a time
# Elements of one tile of a kernel block: about 2 MB, so that exp finds the GEMM's result in cache.
TILE_ELEMENTS = 1 << 18
Tile = Callable[[int, int, NDArray[Any]], float]
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]  # the least and the largest of features


# ---------------------------------------------------------------------------- squared distances


def distance_product(
    X: Any, Z: Any, dtype: Any, factor: float, scales: NDArray[np.float64] | None = None
) -> tuple[Tile, float]:
    """Return a function that writes -factor |x_i - z_j|^2 by tiles, and the spread, max |z|^2.

    A tile (start, stop, rows of the result) is one matrix product, [x, |x|^2, 1] times
    factor [2 z, -1, -|z|^2]', with rows centred at the mean of the points, then scaled: the error
    of a distance is about 4 eps * spread. CSR rows are scaled, not centred. A tile returns its
    largest |x|^2; after an overflow, this number or the spread is not finite.
    """
    if sparse.issparse(X) or sparse.issparse(Z):
        return _sparse_product(X, Z, dtype, factor, scales)
    used = slice(None) if scales is None else used_features(scales)
    Z = Z[:, used]
    d = Z.shape[1]
    right = np.empty((d + 2, Z.shape[0]), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        typed = None if scales is None else scales[used].astype(dtype)
        # rows are centred in their own precision, then rounded to that of the product
        centre = Z.mean(axis=0, dtype=np.float64).astype(np.result_type(X.dtype, dtype))
        np.subtract(Z.T, centre[:, None], out=right[:d], casting="same_kind")
        if typed is not None:
            right[:d] *= typed[:, None]
        norms = np.einsum("ij,ij->j", right[:d], right[:d])
        right[d], right[d + 1] = -1.0, -norms
        right *= right.dtype.type(factor)
        right[:d] *= right.dtype.type(2)

    def tile(start: int, stop: int, rows: NDArray[Any]) -> float:
        left = np.empty((stop - start, d + 2), dtype)
        np.subtract(X[start:stop, used], centre, out=left[:, :d], casting="same_kind")
        if typed is not None:
            left[:, :d] *= typed
        np.einsum("ij,ij->i", left[:, :d], left[:, :d], out=left[:, d])
        left[:, d + 1] = 1.0
        np.matmul(left, right, out=rows)
        return float(left[:, d].max())

    return tile, float(norms.max())


def _sparse_product(
    X: Any, Z: Any, dtype: Any, factor: float, scales: NDArray[np.float64] | None
) -> tuple[Tile, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        Z = scaled_rows(Z, scales)
        right, right_norms = dot_factor(Z, np.dtype(dtype)), row_norms_squared(Z)

    def tile(start: int, stop: int, rows: NDArray[Any]) -> float:
        left = scaled_rows(X[start:stop], scales)
        norms = row_norms_squared(left)
        dot_into(left, right, rows)
        rows *= 2.0
        rows -= norms[:, None]
        rows -= right_norms
        rows *= factor
        return float(norms.max())

    return tile, float(right_norms.max())


def used_features(weights: NDArray[np.float64]) -> Any:
    """Return the index of the columns whose weight is not 0: a slice when that is all of them."""
    return slice(None) if weights.all() else np.flatnonzero(weights)


def scaled_rows(X: Any, scales: NDArray[np.float64] | None) -> Any:
    """Return rows with every feature multiplied by its scale; CSR rows stay CSR."""
    if scales is None:
        return X
    if not sparse.issparse(X):
        return X * scales
    X = X.astype(np.float64)
    X.data *= scales[X.indices]
    return X


def check_bounds(clip: Any) -> Bounds:
    """Return lower and upper bounds as arrays of numbers, one of each for every feature."""
    lower, upper = clip
    lower, upper = np.array(lower, np.float64), np.array(upper, np.float64)
    if lower.ndim != 1 or lower.shape != upper.shape or not (lower <= upper).all():
        raise ValueError(
            "clip must be two arrays with one lower and one upper bound for each feature, "
            "lower <= upper."
        )
    return lower, upper


def clipped(X: Any, bounds: Bounds) -> Any:
    """Return a copy of rows with every feature between its bounds, of the type of the rows.

    CSR rows stay CSR where 0 is between all bounds; otherwise they become dense.
    """
    if X.shape[1] != len(bounds[0]):
        raise ValueError(f"clip has bounds of {len(bounds[0])} features, X has {X.shape[1]}.")
    xp = None if isinstance(X, np.ndarray) else foreign_namespace(X)
    if xp is not None:
        lower, upper = (like_rows(side, X, dtype=X.dtype)[None, :] for side in bounds)
        return xp.clip(X, lower, upper)
    lower, upper = np.asarray(bounds, X.dtype if X.dtype.kind == "f" else np.float64)
    if not sparse.issparse(X):
        return np.clip(X, lower, upper)
    if (lower > 0).any() or (upper < 0).any():
        return np.clip(X.toarray(), lower, upper)
    result = X.astype(lower.dtype, copy=True)
    np.clip(X.data, lower[X.indices], upper[X.indices], out=result.data)
    return result


def tile_rows(n_columns: int) -> int:
    """Rows of a tile of a kernel block that stays in cache."""
    return max(16, TILE_ELEMENTS // max(n_columns, 1))


def dense_rows64(X: Any) -> NDArray[np.float64]:
    """Return host rows as a dense array in float64."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def dense64(X: Any) -> Any:
    """Return dense float64 rows in Fortran order; rows of another array library stay there."""
    if foreign_namespace(X) is not None:
        return as_float64(X)
    return np.asfortranarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def canonical_csr(X: Any) -> Any:
    """Return CSR rows with every entry stored once, on a copy if that changes them."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def row_norms_squared(X: Any) -> NDArray[np.float64]:
    """Return |x_i|^2 of every row, in float64."""
    if sparse.issparse(X):
        X = canonical_csr(X)
        squares = X.data.astype(np.float64)
        squares *= squares
        rows = sparse.csr_array((squares, X.indices, X.indptr), shape=X.shape)
        return np.asarray(rows.sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def dot_factor(Z: Any, dtype: np.dtype[Any]) -> Any:
    """Return Z' in the form in which `dot_into` multiplies fastest."""
    if not sparse.issparse(Z):
        return np.ascontiguousarray(Z.T, dtype=dtype)
    Zt = Z.T.astype(dtype)
    # a dense right factor is faster while it stays small
    return Zt.toarray() if Zt.shape[0] * Zt.shape[1] <= 16 * TILE_ELEMENTS else Zt.tocsr()


def dot_into(rows: Any, right: Any, out: NDArray[Any]) -> None:
    """Write ``rows @ right`` into ``out``; either side may be sparse."""
    if sparse.issparse(rows):
        product = rows @ right
        out[...] = product.toarray() if sparse.issparse(product) else product
    elif sparse.issparse(right):
        out[...] = rows @ right
    else:
        np.matmul(np.asarray(rows, dtype=out.dtype), right, out=out)


# ---------------------------------------------------------------------------- Cholesky


def right_solve_in_place(
    B: NDArray[Any], L: NDArray[Any], corners: list[NDArray[Any]] | None = None
) -> None:
    """Replace B by B L^-T, L lower triangular: the first half of the columns, then the rest.

    NumPy's products release the interpreter lock, SciPy's triangular solve does not: tiles in
    threads need this one. ``corners`` are `corner_inverses`, for callers that solve often. A factor
    in another precision is rounded to that of B a part at a time.
    """
    corners = corner_inverses(L) if corners is None else corners
    by_column = B.strides[0] < B.strides[1]  # products then keep this order of memory
    if len(corners) > 1:
        half = len(corners) // 2
        first, rest = slice(0, half * _CORNER), slice(half * _CORNER, None)
        right_solve_in_place(B[:, first], L[first, first], corners[:half])
        left = np.asarray(L[rest, first], B.dtype)
        B[:, rest] -= (left @ B[:, first].T).T if by_column else B[:, first] @ left.T
        right_solve_in_place(B[:, rest], L[rest, rest], corners[half:])
    elif corners:
        corner = np.asarray(corners[0], B.dtype)
        B[...] = (corner @ B.T).T if by_column else B @ corner.T


def right_divide_in_place(B: NDArray[Any], L: NDArray[Any], corners: list[NDArray[Any]]) -> None:
    """Replace B by B L^-1, L lower triangular, by panels of columns from the last one on."""
    for k, corner in reversed(list(enumerate(corners))):
        start, stop = k * _CORNER, k * _CORNER + len(corner)
        columns = B[:, start:stop]
        if stop < len(L):
            columns = columns - B[:, stop:] @ L[stop:, start:stop]
        B[:, start:stop] = columns @ corner


def corner_inverses(L: NDArray[Any], size: int = _CORNER) -> list[NDArray[Any]]:
    """Return the inverses of the diagonal blocks of a lower triangular matrix."""
    (trtri,) = get_lapack_funcs(("trtri",), (L,))
    corners = []
    for start in range(0, len(L), size):
        rows = slice(start, start + size)
        corners.append(trtri(np.asfortranarray(L[rows, rows]), lower=True)[0])
    return corners


def cholesky_in_place(
    A: NDArray[Any], *, tile: int = CHOLESKY_TILE, lapack_rows: int = LAPACK_SAFE_ROWS
) -> NDArray[Any]:
    """Replace the lower triangle of symmetric ``A`` by L with A = L L'.

    The strict upper triangle is left as it was, so that products with A remain possible
    (`symmetric_matmul`). ``A`` must be C-contiguous; only its lower triangle is read.

    Raises
    ------
    numpy.linalg.LinAlgError
        When A is not positive definite; the message names the row.
    """
    if not A.flags.c_contiguous:
        raise ValueError("cholesky_in_place needs a C-contiguous matrix.")
    (potrf,) = get_lapack_funcs(("potrf",), (A,))
    (trsm,) = get_blas_funcs(("trsm",), (A,))
    m, tiled = A.shape[0], A.shape[0] > lapack_rows
    tile = tile if tiled else max(m, 1)
    work = np.empty(m * tile if tiled else 0, A.dtype)
    for start in range(0, m, tile):
        stop = min(start + tile, m)
        panel = A
        if tiled:
            panel = work[: (m - start) * (stop - start)].reshape(m - start, stop - start)
            # left-looking: A[start:, J] - L[start:, :start] L[J, :start]', one GEMM a panel
            with np.errstate(over="ignore", invalid="ignore"):  # the check below reports it
                np.matmul(A[start:, :start], A[start:stop, :start].T, out=panel)
                np.subtract(A[start:, start:stop], panel, out=panel)
        corner, below = panel[: stop - start], panel[stop - start :]
        # A in C order is A' in Fortran order: its lower triangle is LAPACK's upper one
        _, info = potrf(corner.T, lower=False, clean=False, overwrite_a=True)
        if info == 0:  # LAPACK does not always notice what is not finite
            bad = np.flatnonzero(~np.isfinite(corner.diagonal()))
            info = int(bad[0]) + 1 if len(bad) else 0
        if info > 0:
            raise np.linalg.LinAlgError(f"not positive definite at row {start + info - 1}")
        if tiled:
            np.copyto(A[start:stop, start:stop], corner, where=np.tri(stop - start, dtype=bool))
        if stop < m:
            # X L_JJ' = below, that is L_JJ X' = below'
            trsm(1.0, corner.T, below.T, lower=False, trans_a=True, overwrite_b=True)
            A[stop:, start:stop] = below
    return A


def cholesky_solve(A: NDArray[Any], B: NDArray[Any]) -> NDArray[Any]:
    """Solve L L' X = B with the lower triangle L that `cholesky_in_place` left in ``A``."""
    (trsm,) = get_blas_funcs(("trsm",), (A,))
    forward = trsm(1.0, A.T, B.reshape(len(B), -1), lower=False, trans_a=True)
    solved = trsm(1.0, A.T, forward, lower=False, overwrite_b=True)
    return np.ascontiguousarray(solved).reshape(B.shape)


def symmetric_matmul(A: NDArray[Any], diagonal: NDArray[Any], V: NDArray[Any]) -> NDArray[Any]:
    """Multiply the symmetric matrix (strict upper triangle of ``A``, ``diagonal``) by V."""
    (symm,) = get_blas_funcs(("symm",), (A,))
    columns = V.reshape(len(V), -1)
    product = symm(1.0, A.T, columns, lower=True)  # reads A's upper triangle, and its diagonal
    product += (diagonal - A.diagonal())[:, None] * columns
    return np.asarray(product).reshape(V.shape)


def inverse_diagonal(A: NDArray[Any], *, tile: int = CHOLESKY_TILE) -> NDArray[Any]:
    """Diagonal of (L L')^-1: the squared column norms of L^-1, by panels (m^3 / 3 flops)."""
    m = A.shape[0]
    starts = range(0, m, tile)
    corners = [np.ascontiguousarray(np.tril(corner)) for corner in corner_inverses(A, tile)]
    result = np.empty(m, A.dtype)
    panel = np.empty((m, min(tile, m)), A.dtype)
    for j, start in enumerate(starts):
        width = corners[j].shape[0]
        columns = panel[start:, :width]
        columns[:width] = corners[j]
        # forward substitution below: X_i = -L_ii^-1 L_{i,J..i} X_{J..i}
        for i in range(j + 1, len(starts)):
            top = starts[i]
            bottom = min(top + tile, m)
            known = A[top:bottom, start:top] @ columns[: top - start]
            columns[top - start : bottom - start] = -corners[i] @ known
        result[start : start + width] = np.einsum("ij,ij->j", columns, columns)
    return result
