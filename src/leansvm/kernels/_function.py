"""The base classes of all kernels: the methods that the library calls.

A kernel is one class, made from its numbers (gamma, degree, coef0); `_kernel` lists
them. `leansvm.kernels.Kernel` prepares rows (types, clipping, memory) and asks these classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import device_of, foreign_namespace, namespace

Array = NDArray[np.float64]
Gamma = float | Array
RowForm = Callable[[Array], Array]
Sum = Literal["squared", "absolute", "chi2", "dot", "unit-dot"]
Outer = Literal["identity", "exp", "root", "power", "tanh", "simplex"]


@dataclass(frozen=True, eq=False)
class Expression:
    """f(x) = sum_j coef_j g(t_j(u)), u_f = scales_f x_f: a kernel model as exporters write it.

    ``sum`` says how t_j comes from u and point j. ``outer`` is g: "exp" e^-t, "power"
    (t + coef0)^degree, "tanh" tanh(t + coef0), and "root" (1 + a r + b r^2) e^-r with r^2 = t and
    (a, b) the ``polynomial``.
    """

    sum: Sum
    outer: Outer
    points: Array  # not scaled yet
    coef: Array | None  # None: every point gives one output, with coefficient 1
    scales: Array | None = None  # None: all are 1
    polynomial: tuple[float, float] = (0.0, 0.0)


@dataclass(eq=False)
class KernelFunction:
    """A kernel with its numbers (gamma, degree, coef0).

    A new kernel needs ``name`` and `block`; rows on the host are NumPy arrays or CSR matrices. It
    needs `device_block` for rows on a GPU, `expression` for exports, and `gradients`, `curvature`
    and `slope_along` for `leansvm.inspection.effects`.
    """

    gamma: Any = 1.0
    degree: float = 3
    coef0: float = 0.0

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    gamma_is: ClassVar[Literal["unused", "one number", "one or per feature"]] = "unused"
    has_unit_diagonal = False  # k(x, x) is exactly 1 for every x

    # ------------------------------------------------------------------ values

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write k of all rows and points on the host into ``out``, which is not empty."""
        raise NotImplementedError

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        """Return k of all rows and points of another array library, computed where they are."""
        raise NotImplementedError

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return k(x_i, x_i) of every row; ``start`` is the number of the first one."""
        xp = foreign_namespace(X)
        if xp is None:
            return np.ones(X.shape[0], float_type(X))
        return xp.ones(X.shape[0], dtype=X.dtype, device=device_of(X))

    def device_columns(self, xp: Any, X: Any) -> Callable[[int], Any]:
        """Return t -> k(X, x_t); parts that all columns share may be computed once."""
        return lambda t: self.device_block(xp, X, X[t : t + 1, :])[:, 0]

    def fused_times(self, X: Any, V: Any) -> Any | None:
        """Return k(X, X) V of rows on a device in one pass; None if the kernel cannot do it."""
        return None

    def row_form(self, points: Array) -> RowForm | None:
        """Return x -> k(x, z_j) of every point; None if that is no faster than a block."""
        return None

    def expression(self, points: Array, coef: Array) -> Expression:
        """Return sum_j coef_j k(x, z_j) in the form that exporters write."""
        raise NotImplementedError

    # ------------------------------------------------------------------ derivatives

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return df/dx of f = sum_j coef_j k(x, z_j), rows x features x outputs."""
        raise NotImplementedError

    def mixed_derivatives(self, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]) -> Array:
        """Return d^2 f / dx_a dx_b = sum_j c_j k''(t_j) dt_j/dx_a dt_j/dx_b, t as in `pair_sums`.

        The result has rows x pairs x outputs.
        """
        curve = self.curvature(self.pair_sums(X, Z))
        slopes = {f: self.slope_along(X[:, f, None], Z[:, f], f) for f in np.unique(pairs)}
        return np.stack([(curve * slopes[a] * slopes[b]) @ coef for a, b in pairs], axis=1)

    def curvature(self, sums: Array) -> Array:
        """Return the second derivative of k by the sum that `pair_sums` gives."""
        raise NotImplementedError

    def slope_along(self, x: Array, z: Array, f: int) -> Array:
        """Return the derivative of that sum by x_f, for all pairs of values of feature f."""
        raise NotImplementedError

    # ------------------------------------------------------------------ partial dependence

    def pair_sums(self, X: Array, Z: Array) -> Array:
        """Return the sum over features that k depends on: D, or x'z, of all pairs."""
        return X @ Z.T

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array | None:
        """Return sum_ij coef_j k(x_i with x_if = v, z_j), values v of the grid x outputs.

        ``base`` is the result of `pair_sums`. Returns None if blocks of values are as fast.
        """
        return None


class DistanceKernel(KernelFunction):
    """A kernel of D = sum_f gamma_f d(x_f, z_f): e^-D, or a Matérn kernel of the root of D."""

    has_unit_diagonal = True
    # (a, b, c) of kernels (1 + a r + b r^2) e^-r with r^2 = c D; None: e^-D
    root_terms: ClassVar[tuple[float, float, float] | None] = None
    magnifies: ClassVar[bool] = False  # whether k changes like sqrt(D) near D = 0
    sum: ClassVar[Sum]  # of an Expression

    def distance(self, x: Array, z: Array) -> Array:
        """Return d(x_f, z_f)."""
        raise NotImplementedError

    def feature_scales(self, n_features: int) -> Array:
        """Return what features are multiplied by, so that D is a sum with factors 1."""
        return np.broadcast_to(np.asarray(self.gamma, np.float64), n_features)

    def expression(self, points: Array, coef: Array) -> Expression:
        scales, terms = self.feature_scales(points.shape[1]), self.root_terms
        if terms is None:
            return Expression(self.sum, "exp", points, coef, scales)
        return Expression(self.sum, "root", points, coef, scales, terms[:2])

    def change(self, X: Array, Z: Array) -> Array:
        """Return k(x, x) - 2 k(x, z) + k(z, z) of each pair of rows: how far f may differ there.

        It is the variance of f(x) - f(z) of a random function with this covariance.
        """
        D = self.distance(X, Z) @ np.broadcast_to(self.gamma, X.shape[1])
        return np.asarray(2.0 * (1.0 - self.value_and_slope(D)[0]))

    def gamma_of(self, f: int) -> float:
        return float(self.gamma if np.ndim(self.gamma) == 0 else self.gamma[f])

    def distance_along(self, x: Array, z: Array, f: int) -> Array:
        """Return what feature f adds to D, for all pairs of its values."""
        return self.gamma_of(f) * self.distance(x[:, None], z)

    def pair_sums(self, X: Array, Z: Array) -> Array:
        terms = (self.distance_along(X[:, f], Z[:, f], f) for f in range(X.shape[1]))
        return sum(terms, np.zeros(()))

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array | None:
        """Return sums over rows of e^-D: k_f(v, z_jf) times sums without the feature."""
        if self.root_terms is not None:
            return None
        from leansvm.kernels._compiled import add_decays

        sums = np.zeros(len(Z))
        add_decays(base, self.distance_along(X[:, f], Z[:, f], f), sums)
        return np.exp(-self.distance_along(grid, Z[:, f], f)) @ (sums[:, None] * coef)

    def sums_over(self, rest: Array, along: Array) -> Array:
        """Return sum_i k(rest_ij + along_vj), values v x points j."""
        if self.root_terms is None:
            return np.exp(-along) * np.exp(-rest).sum(axis=0)
        return np.stack([self.value_and_slope(rest + step)[0].sum(axis=0) for step in along])

    def value_and_slope(self, D: Any) -> tuple[Any, Any]:
        """Return k and dk/dD of an array of any library."""
        value = namespace(D).exp(-D)
        return value, -value

    def curvature(self, sums: Array) -> Array:
        return np.exp(-sums)


def smallest_exponent(values: Any) -> float:
    """Return the exponent below which exp gives no normal number, and is slow."""
    xp = np if isinstance(values, np.ndarray) else namespace(values)
    return float(np.log(float(xp.finfo(values.dtype).smallest_normal))) + 1


def capped(xp: Any, X: Any, gamma: Gamma) -> Any:
    """Return gamma small enough that its products do not overflow in the type of X."""
    largest = float(xp.finfo(X.dtype).max) ** 0.5
    return np.minimum(gamma, largest) if isinstance(gamma, np.ndarray) else min(gamma, largest)


def float_type(X: Any) -> Any:
    """Return the type of values for rows on the host: float64 unless they are float32."""
    return np.float32 if X.dtype == np.float32 else np.float64
