"""Kernels of x'z: a matrix product, then a function of its entries in place.

linear x'z; polynomial (gamma x'z + coef0)^degree; sigmoid tanh(gamma x'z + coef0), which is not
positive definite; cosine x'z / (|x| |z|), where rows of zeros give 0.
"""

from __future__ import annotations

from functools import partial
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._accelerated import apply_in_place
from leansvm._array_api import foreign_namespace
from leansvm._parallel import for_tiles
from leansvm.kernels._function import Array, Expression, KernelFunction, Outer, RowForm, float_type
from leansvm.linalg import dot_factor, dot_into, row_norms_squared, tile_rows

_HIGHEST_DEGREE = 8  # of a polynomial that is expanded in powers of one feature
_MODERATE_POWER = 400  # powers of two whose squares, in float64, neither overflow nor vanish
_LARGEST_EXPONENT = 300.0  # of each of two factors whose product must not overflow


class DotKernel(KernelFunction):
    """A kernel of x'z; as it stands, x'z itself."""

    def in_place(self, dot: Any) -> Any:
        """Turn x'z of any array library into values of k, in its memory if possible."""
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

        for_tiles(len(out), tile_rows(out.shape[1]), fill)

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
        # what is not finite stays so
        return partial(self._of_row, points)

    def _of_row(self, points: Array, x: Array) -> Array:
        return self.in_place(points.dot(x))

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


# ---------------------------------------------------------------------------- cosine


class Cosine(DotKernel):
    """The product of rows of norm 1."""

    name = "cosine"

    def factor(self, X: Any) -> Any:
        """Return rows of norm 1; rows of zeros stay so."""
        xp = foreign_namespace(X)
        if xp is None:
            return _units(X)[0]
        largest = xp.max(xp.abs(X), axis=1, keepdims=True)
        X = X / xp.where(largest == 0, xp.ones_like(largest), largest)
        norms = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
        return X / xp.where(norms == 0, xp.ones_like(norms), norms)

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return 1, or 0 for a row of zeros."""
        xp = foreign_namespace(X)
        if xp is None:
            return (_largest(X) > 0).astype(float_type(X))
        return xp.astype(xp.any(X != 0, axis=1), X.dtype)

    def row_form(self, points: Array) -> None:
        """Return None: a block of one row is as fast."""

    def expression(self, points: Array, coef: Array) -> Expression:
        """Return the product of u / |u| with points of norm 1."""
        return Expression("unit-dot", "identity", _units(points)[0], coef)

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return (w - u u'w) / |x| with u = x / |x| and w = sum_j c_j z_j / |z_j|."""
        units, length = _units(X)
        W = coef.T @ _units(Z)[0]
        return np.stack([(w - (units @ w)[:, None] * units) / length for w in W], axis=2)

    def mixed_derivatives(self, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]) -> Array:
        """Return (3 u_a u_b u'w - u_b w_a - u_a w_b) / |x|^2."""
        a, b = pairs.T
        units, length = _units(X)
        both, parts = units[:, a] * units[:, b], []
        for w in coef.T @ _units(Z)[0]:
            value = 3.0 * both * (units @ w)[:, None] - units[:, b] * w[a] - units[:, a] * w[b]
            parts.append(value / length**2)
        return np.stack(parts, axis=2)

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array:
        """Return sums over rows of x'w / |x|, whose norm changes with the feature."""
        w = _units(Z)[0].T @ coef
        without = np.delete(X, f, axis=1)
        rest = without @ np.delete(w, f, axis=0)
        norms = np.sqrt(np.square(without).sum(axis=1)[:, None] + grid**2)
        inverse = np.where(norms > 0, 1.0 / np.where(norms > 0, norms, 1.0), 0.0)
        return np.asarray(inverse.T @ rest + np.outer(grid * inverse.sum(axis=0), w[f]))


def _units(X: Any) -> tuple[Any, Array]:
    """Return rows of norm 1 and their lengths as a column; rows of zeros stay, with length 1."""
    X, exponent = _moderate(X)
    length = np.sqrt(row_norms_squared(X))[:, None]
    length[length == 0] = 1.0
    if sparse.issparse(X):
        return sparse.diags_array(1.0 / length[:, 0], format="csr") @ X, length
    return X / length, np.ldexp(length, exponent[:, None])


def _largest(X: Any) -> NDArray[Any]:
    """Return the largest |x_f| of every row."""
    if sparse.issparse(X):
        return np.asarray(abs(X).max(axis=1).toarray()).ravel()
    return np.asarray(np.abs(X).max(axis=1, initial=0.0))


def _moderate(X: Any) -> tuple[Any, NDArray[np.intc]]:
    """Return rows over powers of two, and these: 0 but where squares would overflow or vanish."""
    exponent = np.frexp(_largest(X))[1]
    exponent[np.abs(exponent) < _MODERATE_POWER] = 0
    if not exponent.any():
        return X, exponent
    if not sparse.issparse(X):
        return np.ldexp(X, -exponent[:, None]), exponent
    X = X.tocsr(copy=True)
    X.data = np.ldexp(X.data, -np.repeat(exponent, np.diff(X.indptr)))
    return X, exponent
