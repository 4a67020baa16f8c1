"""The base of product kernels e^-D whose D is a sum over features that no matrix product gives.

Rows go through a compiled loop over features, tile by tile. Gradients are k times one slope for
each feature; where k has a kink, the slope is that of the middle, 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._parallel import for_tiles
from leansvm.kernels._function import Array, DistanceKernel, smallest_exponent
from leansvm.linalg import tile_rows


class ByFeature(DistanceKernel):
    """e^-D; subclasses say what a feature adds to D."""

    def prepared(self, X: Any, dtype: Any) -> Any:
        """Return rows, or points, as the loop over features takes them."""
        raise NotImplementedError

    def minus_distances(self, rows: Any, points: Any, out: NDArray[Any]) -> None:
        """Write -D of prepared rows and points; dense points have one row for each feature."""
        raise NotImplementedError

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        """Set out_if = sum_j V_ij s(x_if, z_fj), gamma_f s the slope of D by x_f."""
        raise NotImplementedError

    def suits_float32(self, X: Any) -> bool:
        """Whether float32 rows, points and results are worked on in float32."""
        return True

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        single = X.dtype == Z.dtype == out.dtype == np.float32 and self.suits_float32(X)
        dtype = np.float32 if single else np.float64
        points = self.prepared(Z, dtype)
        points = points if sparse.issparse(points) else np.ascontiguousarray(points.T)

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop]
            fits = rows.dtype == dtype and rows.flags.c_contiguous
            values = rows if fits else np.empty(rows.shape, dtype)
            with np.errstate(over="ignore"):
                self.minus_distances(self.prepared(X[start:stop], dtype), points, values)
            np.clip(values, smallest_exponent(values), 0.0, out=values)
            np.exp(values, out=values)
            if not fits:
                rows[...] = values

        for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)

    def curvature(self, sums: Array) -> Array:
        return np.exp(-sums)

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
