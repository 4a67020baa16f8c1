"""Kernels of sums over features that no matrix product gives.

laplacian exp(-sum_f gamma_f |x_f - z_f|), the product of one exponential for each feature, and
chi2 exp(-gamma sum_f (x_f - z_f)^2 / (x_f + z_f)) for features >= 0. Dense rows go through a
compiled loop, tile by tile; CSR rows through scikit-learn's (laplacian) or dense tiles (chi2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from leansvm._compile import compiles
from leansvm._parallel import for_tiles
from leansvm.kernels._gamma import Gamma
from leansvm.kernels._radial import smallest_exponent
from leansvm.linalg import canonical_csr, scaled_rows, tile_rows, used_features

NEGATIVE = (
    "kernel='chi2' needs features that are all >= 0, such as counts or histograms: shift or "
    "rescale X (for instance with MinMaxScaler(clip=True)), or take another kernel."
)


def laplacian_block(X: Any, Z: Any, gamma: Gamma, out: NDArray[Any]) -> None:
    """Write the kernel of all pairs into ``out``; equal rows give exactly 1."""
    if not np.any(gamma):
        out[...] = 1.0
    elif sparse.issparse(X) or sparse.issparse(Z):
        _sparse_laplacian(X, Z, gamma, out)
    else:
        _dense_laplacian(X, Z, gamma, out)


def _dense_laplacian(X: Any, Z: Any, gamma: Gamma, out: NDArray[Any]) -> None:
    weights = np.broadcast_to(np.asarray(gamma, np.float64), X.shape[1])
    used = used_features(weights)
    weights = weights[used].copy()
    dtype = _working_type(X, Z, out)
    if weights.min(initial=1.0) < 1e-30 or weights.max(initial=1.0) > 1e30:
        dtype = np.float64
    weights, points = weights.astype(dtype), np.array(Z[:, used].T, dtype, order="C")

    def fill(start: int, stop: int) -> None:
        rows, target = out[start:stop], _contiguous(out[start:stop], dtype)
        _minus_absolute(np.array(X[start:stop, used], dtype, order="C"), points, weights, target)
        _exponentiate(target, rows)

    for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)


def _minus_absolute(rows: Any, Zt: Any, weights: Any, out: NDArray[Any]) -> None:
    """Set out_ij = -sum_f weights_f |x_if - z_fj|."""
    if compiles():
        from leansvm.kernels._compiled import absolute

        absolute(rows, Zt, weights, out)
    else:
        np.negative(cdist(rows * weights, (Zt * weights[:, None]).T, "cityblock"), out=out)


def absolute_distances(
    X: NDArray[np.float64], Zt: NDArray[np.float64], gamma: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return sum_f gamma_f |x_if - z_fj| of contiguous rows and points (one a column)."""
    from leansvm.kernels._compiled import absolute

    out = np.empty((len(X), Zt.shape[1]))
    absolute(X, Zt, gamma, out)
    return np.negative(out, out=out)


def absolute_moments(
    V: NDArray[np.float64], X: NDArray[np.float64], Zt: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return sum_ij V_ij |x_if - z_fj| of every feature: the gradient through the distances."""
    from leansvm.kernels import _compiled

    out = np.zeros(X.shape[1])
    _compiled.absolute_moments(V, X, Zt, out)
    return out


def _sparse_laplacian(X: Any, Z: Any, gamma: Gamma, out: NDArray[Any]) -> None:
    scales = gamma if isinstance(gamma, np.ndarray) else None
    points = _canonical64(scaled_rows(Z, scales))

    def fill(start: int, stop: int) -> None:
        rows = _canonical64(scaled_rows(X[start:stop], scales))
        distance = manhattan_distances(rows, points)  # does not make them dense
        with np.errstate(over="ignore"):
            distance *= -gamma if scales is None else -1.0
        _exponentiate(distance, out[start:stop])

    for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)


def chi2_block(X: Any, Z: Any, gamma: float, out: NDArray[Any]) -> None:
    """Write the kernel of all pairs into ``out``; features must be >= 0."""
    from leansvm.kernels._compiled import chi2

    dtype = _working_type(X, Z, out)
    points = np.ascontiguousarray(_non_negative(Z, dtype).T)

    def fill(start: int, stop: int) -> None:
        target = _contiguous(out[start:stop], dtype)
        chi2(_non_negative(X[start:stop], dtype), points, np.finfo(dtype).smallest_normal, target)
        with np.errstate(over="ignore"):
            target *= dtype(gamma)
        _exponentiate(target, out[start:stop])

    for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)


def _working_type(X: Any, Z: Any, out: NDArray[Any]) -> Any:
    return np.float32 if X.dtype == Z.dtype == out.dtype == np.float32 else np.float64


def _contiguous(rows: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return rows of the result themselves, or memory beside them, in the form to compute in."""
    if rows.dtype == dtype and rows.flags.c_contiguous:
        return rows
    return np.empty(rows.shape, dtype)


def _exponentiate(exponents: NDArray[Any], rows: NDArray[Any]) -> None:
    np.clip(exponents, smallest_exponent(exponents), 0.0, out=exponents)
    np.exp(exponents, out=exponents)
    if exponents is not rows:
        rows[...] = exponents


def _non_negative(X: Any, dtype: Any) -> NDArray[Any]:
    rows = np.array(X.toarray() if sparse.issparse(X) else X, dtype, order="C")
    if rows.min(initial=0.0) < 0:
        raise ValueError(NEGATIVE)
    return rows


def _canonical64(X: Any) -> Any:
    """Return CSR as scikit-learn's compiled code takes it: float64, int32, no duplicates."""
    result = canonical_csr(sparse.csr_matrix(X, dtype=np.float64, copy=True))
    if result.nnz < np.iinfo(np.int32).max:
        result.indices = result.indices.astype(np.int32)
        result.indptr = result.indptr.astype(np.int32)
    return result
