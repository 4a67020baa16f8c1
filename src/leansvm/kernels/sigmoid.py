"""The sigmoid kernel tanh(gamma x'z + coef0), which is not positive definite."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._accelerated import apply_in_place
from leansvm.kernels._dot import ScaledDot
from leansvm.kernels._function import Array

_LARGEST_EXPONENT = 300.0  # of each of two factors whose product must not overflow


class Sigmoid(ScaledDot):
    """tanh(gamma x'z + coef0)."""

    name = "sigmoid"
    outer = "tanh"

    def in_place(self, dot: Any) -> Any:
        dot *= self.gamma
        dot += self.coef0
        return apply_in_place("tanh", dot)

    def slope(self, dot: Array) -> Array:
        return np.asarray(self.gamma * (1.0 - np.tanh(self.inner(dot)) ** 2))

    def curvature(self, sums: Array) -> Array:
        value = np.tanh(self.inner(sums))
        return np.asarray(-2.0 * self.gamma**2 * value * (1.0 - value**2))

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array | None:
        """Return sums over rows of tanh = (E - 1) / (E + 1), with E = e^a e^b a product."""
        a = 2 * self.inner(base - np.outer(X[:, f], Z[:, f]))
        b = 2 * self.gamma * np.outer(Z[:, f], grid)
        if max(np.abs(a).max(), np.abs(b).max()) >= _LARGEST_EXPONENT:
            return None
        from leansvm.kernels._compiled import add_sigmoids

        sums = np.zeros(b.shape)
        add_sigmoids(np.exp(a), np.exp(b), sums)
        return sums.T @ coef
