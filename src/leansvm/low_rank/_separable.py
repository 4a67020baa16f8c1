"""Functions of one weighted distance: phi = g(z), z = sum_i mu_i |x_i - c_i|^p, p = 1 or 2."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host, zeros
from leansvm.low_rank._base import Array, BasisFunction


class SeparableFunction(BasisFunction):
    """What `Simplex`, `RobustRBF` and `RBF` share: compiled loops over the distance."""

    power: ClassVar[int] = 1

    @abstractmethod
    def _profile(self, z: Any) -> Any:
        """Return g(z), in the memory of z where that is on the host."""

    @abstractmethod
    def _slope(self, values: Any) -> Any:
        """Return g'(z) where g(z) = values."""

    def values(self, X: Array, centers: Array, shapes: Array) -> Array:
        """Return phi_j(x_n), of shape (n_rows, n_functions), in Fortran order."""
        if foreign_namespace(X) is not None:
            return self._profile(self._distances(X, centers, shapes)).T
        from leansvm.low_rank import _compiled

        if not centers.shape == shapes.shape == (len(centers), X.shape[1]):  # loops trust them
            raise ValueError(
                f"X has {X.shape[1]} features, the functions have centers of shape "
                f"{centers.shape} and shapes of shape {shapes.shape}."
            )
        z = np.empty((len(centers), len(X)))
        distances = (_compiled.absolute, _compiled.squared)[self.power - 1]
        distances(np.ascontiguousarray(X.T), centers, shapes, z)
        return self._profile(z).T

    def _distances(self, X: Any, centers: Array, shapes: Array) -> Any:
        """Return z, functions x rows, by the array library of the rows."""
        c, mu = like_rows(centers, X), like_rows(shapes, X)
        z = zeros((centers.shape[0], X.shape[0]), X)
        for i in range(X.shape[1]):
            d = X[:, i][None, :] - c[:, i][:, None]
            z += mu[:, i][:, None] * (abs(d) if self.power == 1 else d * d)
        return z

    def _sums(self, X: Any, centers: Array, slopes: Any) -> tuple[Array, Array]:
        """Return the sums over rows of slope d'(x - c) and slope d(x - c), on the host."""
        xp, c = namespace(X), like_rows(centers, X)
        by_center, by_shape = [], []
        for i in range(X.shape[1]):
            d = X[:, i][None, :] - c[:, i][:, None]
            signed, size = (xp.sign(d), abs(d)) if self.power == 1 else (2.0 * d, d * d)
            by_center.append(xp.sum(slopes * signed, axis=1))
            by_shape.append(xp.sum(slopes * size, axis=1))
        return to_host((xp.stack(by_center, axis=1), xp.stack(by_shape, axis=1)))

    def gradients(
        self, X: Array, centers: Array, shapes: Array, values: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Return the weighted sums of d phi / d c and d phi / d mu."""
        if foreign_namespace(X) is not None:
            signed, sizes = self._sums(X, centers, (self._slope(values) * weights).T)
            return -shapes * signed, sizes
        from leansvm.low_rank import _compiled

        slopes = np.ascontiguousarray((self._slope(values) * weights).T)
        if slopes.shape != (len(centers), len(X)) or centers.shape[1] != X.shape[1]:
            raise ValueError(
                f"X of shape {X.shape}, values of shape {values.shape} and centers of shape "
                f"{centers.shape} do not fit."
            )
        by_center, by_shape = np.empty(centers.shape), np.empty(centers.shape)
        sums = (_compiled.absolute_sums, _compiled.squared_sums)[self.power - 1]
        sums(np.ascontiguousarray(X.T), centers, slopes, by_center, by_shape)
        # dz/dc = -mu d'(x - c), dz/dmu = d(x - c)
        return -shapes * by_center, by_shape
