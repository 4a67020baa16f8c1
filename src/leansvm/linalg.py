"""The dense routines that all other parts use.

- `gaussian_block`: exp(-gamma |x - z|^2) as one augmented GEMM and one exp in place;
- `cholesky_in_place`: tiled above the size at which threaded LAPACK is safe;
- `cholesky_solve`, `inverse_diagonal`, `symmetric_matmul` on the matrix it leaves behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from scipy.spatial.distance import cdist

from leansvm._array_api import as_float64, foreign_namespace
from leansvm._parallel import for_tiles

# Threaded OpenBLAS potrf crashes the interpreter from m ~ 17,000 on some machines.
LAPACK_SAFE_ROWS = 12_000
CHOLESKY_TILE = 512
# Elements of one tile of a kernel block: about 2 MB, so that exp finds the GEMM's result in cache.
TILE_ELEMENTS = 1 << 18


def cancellation_is_small(scaled_spread: float, eps: float) -> bool:
    """Whether a Gaussian kernel value may come from a product.

    Cancellation makes an error of eps * gamma * max |z|^2; allowed are 5e-5 in float32 and 1e-9 in
    float64.
    """
    return 4 * float(eps) * scaled_spread <= (5e-5 if eps > 1e-10 else 1e-9)


# ---------------------------------------------------------------------------- Gaussian block


def gaussian_block(X: Any, Z: Any, gamma: float, out: NDArray[Any]) -> NDArray[Any]:
    """Write exp(-gamma |x_i - z_j|^2) into ``out``, without temporaries of its size.

    With rows centred at the mean of Z, the exponent is one matrix product,
    [x, |x|^2, 1] . [2 gamma z, -gamma, -gamma |z|^2]'. Centring keeps |z|^2 small: what is lost
    by cancellation is eps * gamma * |z|^2. Where that is too much (a huge gamma), float32 rows are
    converted to float64, and float64 rows are compared by differences of coordinates.
    """
    if out.size == 0:
        return out
    if gamma == 0:
        out[...] = 1.0
        return out
    is_sparse = sparse.issparse(X) or sparse.issparse(Z)
    all_single = X.dtype == Z.dtype == out.dtype == np.float32
    for work in (np.float32, np.float64) if all_single and not is_sparse else (np.float64,):
        dtype: np.dtype[Any] = np.dtype(work)
        with np.errstate(over="ignore", invalid="ignore"):
            product = _SparseExponent(X, Z, dtype) if is_sparse else _DenseExponent(X, Z, dtype)
        if gamma < 1e30 and cancellation_is_small(
            gamma * product.spread, float(np.finfo(dtype).eps)
        ):
            product.scale(gamma)
            _exponentiate(product, X, Z, gamma, out)
            return out
    _gaussian_by_differences(X, Z, gamma, out)
    return out


def negative_distances(X: Any, Z: Any, gamma: float) -> NDArray[np.float64] | None:
    """Return -|x_i - z_j|^2 in Fortran order, for kernels of every width up to ``gamma``.

    None where the product would lose too much to cancellation.
    """
    dtype = np.dtype(np.float64)
    is_sparse = sparse.issparse(X) or sparse.issparse(Z)
    with np.errstate(over="ignore", invalid="ignore"):
        product = _SparseExponent(X, Z, dtype) if is_sparse else _DenseExponent(X, Z, dtype)
        if not cancellation_is_small(gamma * product.spread, float(np.finfo(dtype).eps)):
            return None
        product.scale(1.0)
        out = np.empty((Z.shape[0], X.shape[0])).T
        furthest = product.tile(0, X.shape[0], out) if X.shape[0] else 0.0
    if not np.isfinite(furthest):
        return None
    return np.minimum(out, 0.0, out=out)


def tile_rows(n_columns: int) -> int:
    """Return how many rows a tile of a kernel block may have to stay in the cache."""
    return max(16, TILE_ELEMENTS // max(n_columns, 1))


class _DenseExponent:
    """Tiles of [x, |x|^2, 1] @ right, centred at the mean of the points."""

    def __init__(self, X: Any, Z: Any, dtype: np.dtype[Any]) -> None:
        self.X, self.dtype = X, dtype
        self.centre = Z.mean(axis=0, dtype=np.float64).astype(dtype)
        d = Z.shape[1]
        self.right = np.empty((d + 2, Z.shape[0]), dtype)
        np.subtract(Z.T, self.centre[:, None], out=self.right[:d], dtype=dtype)
        norms = np.einsum("ij,ij->j", self.right[:d], self.right[:d])
        self.right[d], self.right[d + 1] = -1.0, -norms
        self.spread = float(norms.max())

    def scale(self, gamma: float) -> None:
        """Turn the right factor into [2 gamma z, -gamma, -gamma |z|^2]."""
        self.right *= self.dtype.type(gamma)
        self.right[:-2] *= self.dtype.type(2)

    def tile(self, start: int, stop: int, rows: NDArray[Any]) -> float:
        """Write the exponents of rows start:stop; return their largest |x|^2."""
        d = self.right.shape[0] - 2
        left = np.empty((stop - start, d + 2), self.dtype)
        np.subtract(self.X[start:stop], self.centre, out=left[:, :d], dtype=self.dtype)
        np.einsum("ij,ij->i", left[:, :d], left[:, :d], out=left[:, d])
        left[:, d + 1] = 1.0
        np.matmul(left, self.right, out=rows)
        return float(left[:, d].max())


class _SparseExponent:
    """The same for CSR rows: not centred, norms added after the product."""

    def __init__(self, X: Any, Z: Any, dtype: np.dtype[Any]) -> None:
        self.X, self.gamma = X, 1.0
        self.right = dot_factor(Z, dtype)
        self.norms_x, self.norms_z = row_norms_squared(X), row_norms_squared(Z)
        self.spread = float(self.norms_z.max())
        self.dtype = dtype

    def scale(self, gamma: float) -> None:
        """Keep gamma for the tiles."""
        self.gamma = gamma

    def tile(self, start: int, stop: int, rows: NDArray[Any]) -> float:
        """Write the exponents of rows start:stop; return their largest |x|^2."""
        dot_into(self.X[start:stop], self.right, rows)
        rows *= 2.0
        rows -= self.norms_x[start:stop, None]
        rows -= self.norms_z
        rows *= self.gamma
        return float(self.norms_x[start:stop].max())


def _exponentiate(product: Any, X: Any, Z: Any, gamma: float, out: NDArray[Any]) -> None:
    """Fill ``out`` tile by tile: product, exp in place."""
    dtype = product.dtype
    floor = float(np.log(np.finfo(dtype).smallest_normal)) + 1  # below it exp is slow and tiny

    def fill(start: int, stop: int) -> None:
        same = out.dtype == dtype
        rows = out[start:stop] if same else np.empty((stop - start, out.shape[1]), dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            furthest = product.tile(start, stop, rows)
        if not np.isfinite(furthest):  # |x|^2 overflowed
            _gaussian_by_differences(X[start:stop], Z, gamma, out[start:stop])
            return
        # exponents stay above -gamma (|x| + |z|)^2: clip only when some may underflow
        if gamma * (np.sqrt(furthest) + np.sqrt(product.spread)) ** 2 > -floor:
            np.clip(rows, floor, 0.0, out=rows)
        np.exp(rows, out=rows)
        if not same:
            out[start:stop] = rows

    for_tiles(out.shape[0], tile_rows(out.shape[1]), fill)


def _gaussian_by_differences(X: Any, Z: Any, gamma: float, out: NDArray[Any]) -> None:
    """Fill the block from differences of coordinates: exact near equal points, but slower."""
    Zd = _dense64(Z)

    def fill(start: int, stop: int) -> None:
        exponent = cdist(_dense64(X[start:stop]), Zd, "sqeuclidean")
        with np.errstate(over="ignore", under="ignore"):
            exponent *= -gamma
            np.exp(exponent, out=exponent)
            out[start:stop] = exponent

    for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)


def _dense64(X: Any) -> NDArray[np.float64]:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def dense64(X: Any) -> Any:
    """Return dense rows in float64 and Fortran order, one feature after the other.

    Rows of another array library stay there.
    """
    if foreign_namespace(X) is not None:
        return as_float64(X)
    return np.asfortranarray(_dense64(X))


def canonical_csr(X: Any) -> Any:
    """Return CSR rows with every entry stored once, on a copy where that changes them."""
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


def right_solve_in_place(B: NDArray[Any], L: NDArray[Any], panel: int = 64) -> None:
    """Replace B by B L^-T, L lower triangular, by panels of columns.

    NumPy's products release the interpreter lock, SciPy's triangular solve does not: tiles in
    threads need this one. Inverses are taken of the small diagonal blocks only.
    """
    (trtri,) = get_lapack_funcs(("trtri",), (L,))
    by_column = B.flags.f_contiguous and not B.flags.c_contiguous
    for start in range(0, len(L), panel):
        stop = min(start + panel, len(L))
        corner = trtri(np.asfortranarray(L[start:stop, start:stop]), lower=True)[0]
        columns, left = B[:, start:stop], L[start:stop, :start]
        if by_column:  # the same, transposed, so that no product changes the order of memory
            rows = columns.T - left @ B[:, :start].T if start else columns.T
            B.T[start:stop] = corner @ rows
        else:
            columns = columns - B[:, :start] @ left.T if start else columns
            B[:, start:stop] = columns @ corner.T


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
    m = A.shape[0]
    if m <= lapack_rows:
        # A in C order is A' in Fortran order: its lower triangle is LAPACK's upper one
        _, info = potrf(A.T, lower=False, clean=False, overwrite_a=True)
        _check_positive(info, A, 0)
        return A
    work = np.empty(m * tile, A.dtype)
    for start in range(0, m, tile):
        stop = min(start + tile, m)
        panel = work[: (m - start) * (stop - start)].reshape(m - start, stop - start)
        # left-looking: A[start:, J] - L[start:, :start] L[J, :start]', one GEMM per panel
        if start:
            with np.errstate(over="ignore", invalid="ignore"):  # _check_positive reports it
                np.matmul(A[start:, :start], A[start:stop, :start].T, out=panel)
                np.subtract(A[start:, start:stop], panel, out=panel)
        else:
            panel[...] = A[:, :stop]
        corner, below = panel[: stop - start], panel[stop - start :]
        _, info = potrf(corner.T, lower=False, clean=False, overwrite_a=True)
        _check_positive(info, corner, start)
        lower = np.tri(stop - start, dtype=bool)
        np.copyto(A[start:stop, start:stop], corner, where=lower)
        if stop < m:
            # X L_JJ' = below, that is L_JJ X' = below'
            trsm(1.0, corner.T, below.T, lower=False, trans_a=True, overwrite_b=True)
            A[stop:, start:stop] = below
    return A


def _check_positive(info: int, factor: NDArray[Any], start: int) -> None:
    if info == 0:  # LAPACK does not always notice what is not finite
        bad = np.flatnonzero(~np.isfinite(factor.diagonal()))
        info = int(bad[0]) + 1 if len(bad) else 0
    if info > 0:
        raise np.linalg.LinAlgError(f"not positive definite at row {start + info - 1}")


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
    (trtri,) = get_lapack_funcs(("trtri",), (A,))
    m = A.shape[0]
    starts = range(0, m, tile)
    corners = []
    for start in starts:
        corner = np.tril(A[start : start + tile, start : start + tile])
        corners.append(np.ascontiguousarray(trtri(corner, lower=True)[0]))
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
