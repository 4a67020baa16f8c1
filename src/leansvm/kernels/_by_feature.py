"""The base of product kernels e^-D whose D is a sum over features that no matrix product gives.

Rows go through a compiled loop over features, tile by tile. Gradients are k times one slope for
each feature; where k has a kink, the slope is that of the middle, 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import for_tiles
from leansvm.kernels._distances import smallest_exponent
from leansvm.kernels._function import Array, DistanceKernel
from leansvm.linalg import tile_rows


class ByFeature(DistanceKernel):
    """e^-D; subclasses say what a feature adds to D."""

    def exponents(self, X: Any, Z: Any, out: Any) -> Callable[[Any, Any], NDArray[Any]]:
        """Prepare the points; return (rows of X, rows of out) -> array of -D, maybe those rows."""
        raise NotImplementedError

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        """Set out_if = sum_j V_ij s(x_if, z_fj), gamma_f s the slope of D by x_f."""
        raise NotImplementedError

    def slope_along(self, x: Array, z: Array) -> Array:
        """Return s(x_f, z_f) of all pairs of values of a feature."""
        raise NotImplementedError

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        exponents = self.exponents(X, Z, out)

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop]
            values = exponents(X[start:stop], rows)
            np.clip(values, smallest_exponent(values), 0.0, out=values)
            np.exp(values, out=values)
            if values is not rows:
                rows[...] = values

        for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)

    def _values(self, X: Array, Z: Array) -> Array:
        out = np.empty((len(X), len(Z)))
        self.block(X, Z, out)
        return out

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return -gamma_f sum_j c_j k_j s(x_f, z_jf) of every row and feature."""
        values, parts = self._values(X, Z), []
        X, Zt = np.ascontiguousarray(X), np.ascontiguousarray(Z.T)
        for c in coef.T:
            sums = np.empty(X.shape)
            self.slope_sums(values * c, X, Zt, sums)
            parts.append(-np.asarray(self.gamma) * sums)
        return np.stack(parts, axis=2)

    def mixed_derivatives(self, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]) -> Array:
        """Return sum_j c_j k_j times the slopes of log k along both features."""
        values = self._values(X, Z)
        slopes = {
            f: -self.gamma_of(f) * self.slope_along(X[:, f, None], Z[:, f])
            for f in np.unique(pairs)
        }
        products = [values * slopes[i] * slopes[j] for i, j in pairs]
        return np.stack([product @ coef for product in products], axis=1)


def working_type(out: NDArray[Any]) -> Any:
    """Return float32 where the result has it, else float64."""
    return np.float32 if out.dtype == np.float32 else np.float64


def contiguous(rows: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return rows of the result themselves, or memory beside them, in the form to compute in."""
    if rows.dtype == dtype and rows.flags.c_contiguous:
        return rows
    return np.empty(rows.shape, dtype)
