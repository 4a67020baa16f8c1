"""The polynomial kernel (gamma x'z + coef0)^degree."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np

from leansvm.kernels._dot import ScaledDot
from leansvm.kernels._function import Array

_HIGHEST_DEGREE = 8  # of a polynomial that is expanded in powers of one feature


class Poly(ScaledDot):
    """(gamma x'z + coef0)^degree."""

    name = "poly"
    aliases = ("polynomial",)
    outer = "power"

    def in_place(self, dot: Any) -> Any:
        """Turn x'z into values of k; powers that do not exist are not finite."""
        dot *= self.gamma
        dot += self.coef0
        with np.errstate(over="ignore", invalid="ignore"):
            dot **= self.degree
        return dot

    def slope(self, dot: Array) -> Array:
        if self.degree == 0:
            return np.zeros_like(dot)
        return np.asarray(self.degree * self.gamma * self.inner(dot) ** (self.degree - 1))

    def curvature(self, sums: Array) -> Array:
        if self.degree in (0, 1):
            return np.zeros_like(sums)
        factor = self.degree * (self.degree - 1) * self.gamma**2
        return np.asarray(factor * self.inner(sums) ** (self.degree - 2))

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array | None:
        """Return sum_ij c_j (u_ij + gamma z_j v)^p by powers of v."""
        if float(self.degree) not in range(1, _HIGHEST_DEGREE + 1):
            return None
        z = Z[:, f]
        u = self.inner(base - np.outer(X[:, f], z))
        degree, power = int(self.degree), np.ones_like(u)
        sums = [power.sum(axis=0)]
        for _ in range(degree):
            power = power * u
            sums.append(power.sum(axis=0))
        result = np.zeros((len(grid), coef.shape[1]))
        for q in range(degree + 1):
            factor = comb(degree, q) * sums[degree - q] * (self.gamma * z) ** q
            result += np.outer(grid**q, factor @ coef)
        return result
