"""Functions of one weighted distance: phi = g(z), z = sum_i mu_i |x_i - c_i|^p, p = 1 or 2."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from leansvm.functions._base import Array, BasisFunction


class SeparableFunction(BasisFunction):
    """What `Simplex`, `RobustRBF` and `RBF` share: compiled loops over the distance."""

    power: ClassVar[int] = 1

    @abstractmethod
    def _profile(self, z: Array) -> None:
        """Replace z by g(z)."""

    @abstractmethod
    def _slope(self, values: Array) -> Array:
        """Return g'(z) where g(z) = values."""

    def values(self, X: Array, centers: Array, shapes: Array) -> Array:
        """Return phi_j(x_n), of shape (n_rows, n_functions), in Fortran order."""
        from leansvm.functions import _compiled

        z = np.empty((len(centers), len(X)))
        distances = (_compiled.absolute, _compiled.squared)[self.power - 1]
        distances(np.ascontiguousarray(X.T), centers, shapes, z)
        self._profile(z)
        return z.T

    def gradients(
        self, X: Array, centers: Array, shapes: Array, values: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Return the weighted sums of d phi / d c and d phi / d mu."""
        from leansvm.functions import _compiled

        slopes = np.ascontiguousarray((self._slope(values) * weights).T)
        by_center, by_shape = np.empty(centers.shape), np.empty(centers.shape)
        sums = (_compiled.absolute_sums, _compiled.squared_sums)[self.power - 1]
        sums(np.ascontiguousarray(X.T), centers, slopes, by_center, by_shape)
        # dz/dc = -mu d'(x - c), dz/dmu = d(x - c)
        return -shapes * by_center, by_shape
