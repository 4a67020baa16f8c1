"""The linear kernel x'z."""

from __future__ import annotations

import numpy as np

from leansvm.kernels._dot import DotKernel
from leansvm.kernels._function import Array, Expression


class Linear(DotKernel):
    """x'z."""

    name = "linear"

    def expression(self, points: Array, coef: Array) -> Expression:
        """Return x'w, w = sum_j coef_j z_j."""
        return Expression("dot", "identity", coef.T @ points, None)

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array:
        """Return sums over rows of x'w."""
        w = Z.T @ coef
        rest = X.sum(axis=0) @ w - X[:, f].sum() * w[f]
        return rest + np.outer(len(X) * grid, w[f])
