"""The Laplacian kernel e^-D, D = sum_f gamma_f |x_f - z_f|."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from leansvm._accelerated import apply_in_place, manhattan
from leansvm._array_api import from_host
from leansvm._compile import compiles
from leansvm.kernels._function import Array, ByFeature, RowForm, capped
from leansvm.linalg import canonical_csr, scaled_rows


class Laplacian(ByFeature):
    """The product of one e^-gamma_f |x_f - z_f| for each feature."""

    name = "laplacian"
    gamma_is = "one or per feature"
    sum = "absolute"
    of_differences = True

    def prepared(self, X: Any, dtype: Any) -> Any:
        """Return the features that count, contiguous, or scaled CSR rows."""
        gamma = self.gamma if isinstance(self.gamma, np.ndarray) else None
        if sparse.issparse(X):
            return _canonical64(scaled_rows(X, gamma))
        used = slice(None) if gamma is None or gamma.all() else np.flatnonzero(gamma)
        return np.asarray(X[:, used], dtype, order="C")

    def minus_distances(self, rows: Any, points: Any, out: NDArray[Any]) -> None:
        """Write -D by a compiled loop; CSR rows by scikit-learn's, which keeps them sparse."""
        if sparse.issparse(rows):
            factor = -1.0 if isinstance(self.gamma, np.ndarray) else -self.gamma
            np.multiply(manhattan_distances(rows, points), factor, out=out)
            return
        gamma = np.asarray(self.gamma)
        gamma = gamma[gamma > 0] if gamma.ndim else np.full(rows.shape[1], gamma)
        weights = gamma.astype(out.dtype)
        if compiles.get():
            from leansvm.kernels._compiled import absolute

            absolute(rows, points, weights, out)
        else:
            np.negative(cdist(rows * weights, points.T * weights, "cityblock"), out=out)

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        gamma = capped(xp, X, self.gamma)
        if isinstance(gamma, np.ndarray):
            centre = xp.mean(Z, axis=0, keepdims=True)
            scales = from_host(gamma, X, dtype=X.dtype)[None, :]
            X, Z, gamma = (X - centre) * scales, (Z - centre) * scales, 1.0
        exponents = manhattan(X, Z)
        exponents *= -gamma
        return apply_in_place("exp", exponents)

    def row_form(self, points: Array) -> RowForm:
        return LaplacianRow(self.feature_scales(points.shape[1]), points)

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


class LaplacianRow:
    """Values between a row and all points."""

    def __init__(self, gamma: Array, points: Array) -> None:
        self.used = np.flatnonzero(gamma)
        self.points, self.minus = np.ascontiguousarray(points[:, self.used]), -gamma[self.used]

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        difference = self.points - x[self.used]
        np.abs(difference, out=difference)
        values = difference.dot(self.minus)
        return np.exp(values, out=values)


def _canonical64(X: Any) -> Any:
    """Return CSR as scikit-learn's compiled code takes it: float64, int32, no duplicates."""
    result = canonical_csr(sparse.csr_matrix(X, dtype=np.float64, copy=True))
    if result.nnz < np.iinfo(np.int32).max:
        result.indices = result.indices.astype(np.int32)
        result.indptr = result.indptr.astype(np.int32)
    return result
