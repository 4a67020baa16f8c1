"""Kernels e^-D of a sum over features, for which a compiled loop is the fastest way.

laplacian D = sum_f gamma_f |x_f - z_f|; chi2 D = gamma sum_f (x_f - z_f)^2 / (x_f + z_f), of
features >= 0.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from leansvm._accelerated import apply_in_place, manhattan
from leansvm._array_api import like_rows, zeros
from leansvm._compile import compiles
from leansvm._parallel import for_tiles
from leansvm.kernels._function import Array, DistanceKernel, RowForm, capped, smallest_exponent
from leansvm.linalg import canonical_csr, dense_rows64, scaled_rows, tile_rows, used_features

_MODERATE = 1e-30, 1e30  # gammas that float32 holds well
_LEAST_EXPONENT = {kind: smallest_exponent(np.empty(0, kind)) for kind in (np.float32, np.float64)}
_NEGATIVE = (
    "kernel='chi2' needs features that are all >= 0, such as counts or histograms: shift or "
    "rescale X (for instance with MinMaxScaler(clip=True)), or use another kernel."
)


class ByFeature(DistanceKernel):
    """e^-D, where a compiled loop over features gives D; subclasses say what a feature adds to it.

    Gradients are k times one slope for each feature; at a kink of k, the slope counts as 0, the
    middle of both sides.
    """

    of_differences: ClassVar[bool] = False  # D is one of x - z: rows may be moved to the origin

    def minus_distances(self, rows: Any, Zt: Any, out: NDArray[Any]) -> None:
        """Write -D by the features whose gamma is not 0; ``Zt`` has one row for each of them."""
        raise NotImplementedError

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        """Set out_if = sum_j V_ij s(x_if, z_fj), gamma_f s the slope of D by x_f."""
        raise NotImplementedError

    def sparse_block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write the kernel of CSR rows and points: that of dense copies, tile by tile."""
        points = dense_rows64(Z)

        def fill(start: int, stop: int) -> None:
            self.block(dense_rows64(X[start:stop]), points, out[start:stop])

        for_tiles(len(out), tile_rows(max(out.shape[1], X.shape[1])), fill)

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write e^-D tile by tile, in float32 if all arrays are float32 and gamma is moderate."""
        if sparse.issparse(X):
            self.sparse_block(X, sparse.csr_matrix(Z), out)
            return
        Z = Z.toarray() if sparse.issparse(Z) else Z
        if self.of_differences and out.dtype == np.float32 != X.dtype:
            centre = Z.mean(axis=0, dtype=np.float64)  # before rows are rounded
            X, Z = (X - centre).astype(np.float32), (Z - centre).astype(np.float32)
        single = X.dtype == Z.dtype == out.dtype == np.float32
        if single:
            gamma, (low, high) = np.asarray(self.gamma), _MODERATE
            single = bool(np.all((gamma == 0) | ((gamma >= low) & (gamma <= high))))
        dtype = np.float32 if single else np.float64
        used = used_features(self.gamma) if isinstance(self.gamma, np.ndarray) else slice(None)
        Zt = np.ascontiguousarray(Z[:, used].T, dtype)

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop]
            fits = rows.dtype == dtype and rows.flags.c_contiguous
            values = rows if fits else np.empty(rows.shape, dtype)
            with np.errstate(over="ignore"):
                self.minus_distances(np.ascontiguousarray(X[start:stop, used], dtype), Zt, values)
            np.clip(values, _LEAST_EXPONENT[dtype], 0.0, out=values)
            np.exp(values, out=values)
            if not fits:
                rows[...] = values

        for_tiles(len(out), tile_rows(max(out.shape[1], X.shape[1])), fill)

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return -gamma_f sum_j c_j k_j s(x_f, z_jf) of every row and feature."""
        values, parts = np.empty((len(X), len(Z))), []
        self.block(X, Z, values)
        X, Zt = np.ascontiguousarray(X), np.ascontiguousarray(Z.T)
        for c in coef.T:
            sums = np.empty(X.shape)
            self.slope_sums(values * c, X, Zt, sums)
            parts.append(-np.asarray(self.gamma) * sums)
        return np.stack(parts, axis=2)


class Laplacian(ByFeature):
    """The product of one e^-gamma_f |x_f - z_f| for each feature."""

    name = "laplacian"
    gamma_is = "one or per feature"
    sum = "absolute"
    of_differences = True

    def minus_distances(self, rows: Any, Zt: Any, out: NDArray[Any]) -> None:
        gamma = np.asarray(self.gamma)
        gamma = gamma[gamma > 0] if gamma.ndim else np.full(rows.shape[1], gamma)
        weights = gamma.astype(out.dtype)
        if compiles.get():
            from leansvm.kernels._compiled import absolute

            absolute(rows, Zt, weights, out)
        else:
            np.negative(cdist(rows * weights, Zt.T * weights, "cityblock"), out=out)

    def sparse_block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write e^-D by scikit-learn's loop, which keeps rows sparse."""
        one_each = isinstance(self.gamma, np.ndarray)
        scales, factor = (self.gamma, -1.0) if one_each else (None, -self.gamma)
        points, least = _canonical(scaled_rows(Z, scales)), _LEAST_EXPONENT[np.float64]

        def fill(start: int, stop: int) -> None:
            D = manhattan_distances(_canonical(scaled_rows(X[start:stop], scales)), points)
            with np.errstate(over="ignore"):
                D *= factor
            out[start:stop] = np.exp(np.clip(D, least, 0.0, out=D), out=D)

        for_tiles(len(out), tile_rows(max(out.shape[1], X.shape[1])), fill)

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        gamma = capped(xp, X, self.gamma)
        if isinstance(gamma, np.ndarray):
            centre = xp.mean(Z, axis=0, keepdims=True)
            scales = like_rows(gamma, X, dtype=X.dtype)[None, :]
            X, Z, gamma = (X - centre) * scales, (Z - centre) * scales, 1.0
        exponents = manhattan(X, Z)
        exponents *= -gamma
        return apply_in_place("exp", exponents)

    def row_form(self, points: Array) -> RowForm:
        gamma = self.feature_scales(points.shape[1])
        used = np.flatnonzero(gamma)
        return partial(_laplacian_of_row, np.ascontiguousarray(points[:, used]), -gamma[used], used)

    def pair_sums(self, X: Array, Z: Array) -> Array:
        from leansvm.kernels._compiled import absolute

        D, gamma = np.empty((len(X), len(Z))), self.feature_scales(X.shape[1]).copy()
        absolute(np.ascontiguousarray(X), np.ascontiguousarray(Z.T), gamma, D)
        return np.negative(D, out=D)

    def distance(self, x: Array, z: Array) -> Array:
        return np.abs(x - z)

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        from leansvm.kernels._compiled import sign_sums

        sign_sums(V, X, Zt, out)

    def slope_along(self, x: Array, z: Array, f: int) -> Array:
        return self.gamma_of(f) * np.sign(x - z)


def _canonical(X: Any) -> Any:
    """Return CSR rows as scikit-learn's compiled code takes them: float64, int32, no duplicates."""
    result = canonical_csr(sparse.csr_matrix(X, dtype=np.float64, copy=True))
    if result.nnz < np.iinfo(np.int32).max:
        result.indices = result.indices.astype(np.int32)
        result.indptr = result.indptr.astype(np.int32)
    return result


def _laplacian_of_row(points: Array, minus_gamma: Array, used: Any, x: Array) -> Array:
    """Return k(x, z_j) of every point, by the ``used`` features."""
    difference = points - x[used]
    np.abs(difference, out=difference)
    values = difference.dot(minus_gamma)
    return np.exp(values, out=values)


class Chi2(ByFeature):
    """A kernel of histograms. Terms with x_f = z_f = 0 are 0."""

    name = "chi2"
    gamma_is = "one number"
    sum = "chi2"  # with gamma, it is that of gamma x and gamma z

    def minus_distances(self, rows: Any, Zt: Any, out: NDArray[Any]) -> None:
        from leansvm.kernels._compiled import chi2

        if min(rows.min(initial=0.0), Zt.min(initial=0.0)) < 0:
            raise ValueError(_NEGATIVE)
        chi2(rows, Zt, np.finfo(out.dtype).smallest_normal, out)
        out *= out.dtype.type(self.gamma)

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        if bool(xp.any(X < 0)) or bool(xp.any(Z < 0)):
            raise ValueError(_NEGATIVE)
        exponents = zeros((X.shape[0], Z.shape[0]), X, X.dtype)
        tiny = float(xp.finfo(X.dtype).smallest_normal)
        for f in range(X.shape[1]):
            x, z = X[:, f][:, None], Z[:, f][None, :]
            difference = x - z
            difference *= difference
            difference /= xp.clip(x + z, tiny, None)
            exponents += difference
        exponents *= -capped(xp, X, self.gamma)
        return apply_in_place("exp", exponents)

    def distance(self, x: Array, z: Array) -> Array:
        return (x - z) ** 2 / np.maximum(x + z, np.finfo(np.float64).smallest_normal)

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        from leansvm.kernels._compiled import chi2_sums

        chi2_sums(V, X, Zt, out)

    def slope_along(self, x: Array, z: Array, f: int) -> Array:
        """Return gamma (x - z)(x + 3 z) / (x + z)^2, the ratio 1 at x = z = 0."""
        total = x + z
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (x - z) * (x + 3 * z) / total**2
        return self.gamma_of(f) * np.where(total > 0, slope, 1.0)
