"""Kernels of x'z: a matrix product, then a function of its entries in place.

linear x'z; polynomial (gamma x'z + coef0)^degree; sigmoid tanh(gamma x'z + coef0), which is not
positive definite.
"""

from __future__ import annotations

from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import apply_in_place
from leansvm._array_api import foreign_namespace
from leansvm.kernels._function import (
    Array,
    Expression,
    KernelFunction,
    Outer,
    RowForm,
    fill_tiles,
    float_type,
)
from leansvm.linalg import dot_factor, dot_into, row_norms_squared

_HIGHEST_DEGREE = 8  # of a polynomial that is expanded in powers of one feature
_LARGEST_EXPONENT = 300.0  # of each of two factors whose product must not overflow


class DotKernel(KernelFunction):
    """A kernel of x'z; as it stands, x'z itself."""

    def in_place(self, dot: Any) -> Any:
        """Turn x'z of any array library into values of k, in its memory where that can be."""
        return dot

    def slope(self, dot: Array) -> Array:
        """Return dk/d(x'z)."""
        return np.ones_like(dot)

    def curvature(self, sums: Array) -> Array:
        return np.zeros_like(sums)

    def slope_along(self, x: Array, z: Array, f: int) -> Array:
        return z

    def factor(self, X: Any) -> Any:
        """Return the rows whose products the kernel takes."""
        return X

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        right = dot_factor(self.factor(Z), out.dtype)

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop]
            with np.errstate(over="ignore", invalid="ignore"):
                dot_into(self.factor(X[start:stop]), right, rows)
                self._check_finite(np, self.in_place(rows))

        fill_tiles(fill, *out.shape)

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        values = self.in_place(self.factor(X) @ self.factor(Z).T)
        self._check_finite(xp, values)
        return values

    def diag(self, X: Any, start: int = 0) -> Any:
        foreign = foreign_namespace(X)
        xp, dtype = (np, float_type(X)) if foreign is None else (foreign, X.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = row_norms_squared(X) if foreign is None else xp.sum(X * X, axis=1)
            values = xp.astype(self.in_place(squares), dtype, copy=False)
            self._check_finite(xp, values)
        return values

    def row_form(self, points: Array) -> RowForm | None:
        return DotRow(self, points)

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return V Z with V_ij = c_j dk/d(x_i'z_j)."""
        slope = self.slope(X @ Z.T)
        return np.stack([(slope * c) @ Z for c in coef.T], axis=2)

    def _check_finite(self, xp: Any, values: Any) -> None:
        """Refuse products that overflow and powers that do not exist; one look at a sum first."""
        if not np.isfinite(float(xp.sum(values))) and not bool(xp.all(xp.isfinite(values))):
            raise ValueError(
                f"kernel={self.name!r} gives values that are not finite: scale X, or change gamma, "
                f"degree or coef0."
            )


class DotRow:
    """Values between a row and all points; what is not finite stays so."""

    def __init__(self, function: DotKernel, points: Array) -> None:
        self.function, self.points = function, points

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        return self.function.in_place(self.points.dot(x))


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


class ScaledDot(DotKernel):
    """A function of gamma x'z + coef0."""

    gamma_is = "one number"
    outer: ClassVar[Outer]  # of an Expression

    def inner(self, dot: Any) -> Any:
        """Return gamma x'z + coef0."""
        return self.gamma * dot + self.coef0

    def expression(self, points: Array, coef: Array) -> Expression:
        """Return a function of a product; the root of gamma scales rows and points."""
        scales = np.sqrt(np.full(points.shape[1], float(self.gamma)))
        return Expression("dot", self.outer, points, coef, scales)


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
