"""The Laplacian kernel e^-D, D = sum_f gamma_f |x_f - z_f|."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from leansvm._accelerated import apply_in_place, manhattan
from leansvm._array_api import from_host
from leansvm._compile import compiles
from leansvm.kernels._by_feature import ByFeature, contiguous, working_type
from leansvm.kernels._distances import capped
from leansvm.kernels._function import Array, RowForm
from leansvm.linalg import canonical_csr, scaled_rows, used_features


class Laplacian(ByFeature):
    """The product of one e^-gamma_f |x_f - z_f| for each feature."""

    name = "laplacian"
    gamma_is = "one or per feature"
    sum = "absolute"

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        if np.any(self.gamma):
            super().block(X, Z, out)
        else:
            out[...] = 1.0

    def exponents(self, X: Any, Z: Any, out: Any) -> Callable[[Any, Any], NDArray[Any]]:
        """Return what gives -D: a compiled loop, or scikit-learn's for CSR rows."""
        if sparse.issparse(X) or sparse.issparse(Z):
            return self._sparse_exponents(Z)
        weights = np.broadcast_to(np.asarray(self.gamma, np.float64), X.shape[1])
        used = used_features(weights)
        weights = weights[used].copy()
        dtype = working_type(out)
        if weights.min(initial=1.0) < 1e-30 or weights.max(initial=1.0) > 1e30:
            dtype = np.float64
        weights, Z = weights.astype(dtype), Z[:, used]
        # float64 rows are centred before they are rounded to float32
        rounds = dtype == np.float32 and X.dtype != dtype
        centre = Z.mean(axis=0, dtype=np.float64) if rounds else np.zeros((), X.dtype)
        points = np.array((Z - centre).T, dtype, order="C")

        def negative(rows: Any, target: Any) -> NDArray[Any]:
            target = contiguous(target, dtype)
            rows = np.array(rows[:, used] - centre, dtype, order="C")
            _minus_absolute(rows, points, weights, target)
            return target

        return negative

    def _sparse_exponents(self, Z: Any) -> Callable[[Any, Any], NDArray[Any]]:
        scales = self.gamma if isinstance(self.gamma, np.ndarray) else None
        points = _canonical64(scaled_rows(Z, scales))

        def negative(rows: Any, target: Any) -> NDArray[Any]:
            rows = _canonical64(scaled_rows(rows, scales))
            distance: Array = manhattan_distances(rows, points)  # does not make them dense
            with np.errstate(over="ignore"):
                distance *= -self.gamma if scales is None else -1.0
            return distance

        return negative

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
        gamma = self.feature_scales(X.shape[1]).copy()
        return absolute_distances(np.ascontiguousarray(X), np.ascontiguousarray(Z.T), gamma)

    def distance(self, x: Array, z: Array) -> Array:
        return np.abs(x - z)

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        from leansvm.kernels._compiled import sign_sums

        sign_sums(V, X, Zt, out)

    def slope_along(self, x: Array, z: Array) -> Array:
        return np.sign(x - z)


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


def _minus_absolute(rows: Any, Zt: Any, weights: Any, out: NDArray[Any]) -> None:
    """Set out_ij = -sum_f weights_f |x_if - z_fj|."""
    if compiles():
        from leansvm.kernels._compiled import absolute

        absolute(rows, Zt, weights, out)
    else:
        np.negative(cdist(rows * weights, (Zt * weights[:, None]).T, "cityblock"), out=out)


def absolute_distances(X: Array, Zt: Array, gamma: Array) -> Array:
    """Return sum_f gamma_f |x_if - z_fj| of contiguous rows and points (one a column)."""
    from leansvm.kernels._compiled import absolute

    out = np.empty((len(X), Zt.shape[1]))
    absolute(X, Zt, gamma, out)
    return np.negative(out, out=out)


def _canonical64(X: Any) -> Any:
    """Return CSR as scikit-learn's compiled code takes it: float64, int32, no duplicates."""
    result = canonical_csr(sparse.csr_matrix(X, dtype=np.float64, copy=True))
    if result.nnz < np.iinfo(np.int32).max:
        result.indices = result.indices.astype(np.int32)
        result.indptr = result.indptr.astype(np.int32)
    return result
