"""The Matérn kernels of D = sum_f gamma_f (x_f - z_f)^2.

matern12 e^-r with r^2 = D; matern32 (1 + r) e^-r with r^2 = 3 D; matern52 (1 + r + r^2 / 3) e^-r
with r^2 = 5 D.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from leansvm._accelerated import apply_in_place
from leansvm._array_api import namespace
from leansvm._compile import compiles
from leansvm.kernels._function import Array, smallest_exponent
from leansvm.kernels._radial import Radial

_POLE = 1e-12  # added to D under the root of the slope of matern12, which has a pole at 0


class Matern(Radial):
    """(1 + a r + b r^2) e^-r with r^2 = c D; a, b and c are the ``root_terms``."""

    root_terms: ClassVar[tuple[float, float, float]]

    def in_place(self, values: Any, reach: float = 0.0) -> Any:
        """Turn r^2 into the value of the kernel.

        Rounding below 0 is cut off, and what is so far away that e^-r would be no normal number.
        """
        furthest = -smallest_exponent(values)
        if isinstance(values, np.ndarray) and compiles.get():
            from leansvm.kernels._compiled import matern

            whole = values.flags.c_contiguous or values.flags.f_contiguous
            target = values if whole else values.copy(order="K")
            matern(target.ravel(order="K"), *self.root_terms[:2], furthest)
            if not whole:
                values[...] = target
            return values
        r = apply_in_place("sqrt", apply_in_place("clip", values, 0.0, furthest**2))
        polynomial = self._polynomial(r)
        r *= -1.0
        values = apply_in_place("exp", r)
        values *= polynomial
        return values

    def from_row(self, minus: Array) -> Array:
        np.minimum(minus, 0.0, out=minus)
        r = np.sqrt(np.negative(minus, out=minus), out=minus)
        polynomial = self._polynomial(r)
        values = np.exp(np.negative(r, out=r), out=r)
        values *= polynomial
        return values

    def _polynomial(self, r: Any) -> Any:
        """Return 1 + a r + b r^2."""
        linear, quadratic, _ = self.root_terms
        values = r * quadratic
        values += linear
        values *= r
        values += 1.0
        return values

    def value_and_slope(self, D: Any) -> tuple[Any, Any]:
        """Return k and dk/dD = -(c / 2) (1 - 2 b + b r) e^-r, where a = 1."""
        xp, (_, b, c) = namespace(D), self.root_terms
        r = xp.sqrt(c * D)
        decay = xp.exp(-r)
        return self._polynomial(r) * decay, -0.5 * c * (1.0 - 2.0 * b + b * r) * decay

    def curvature(self, sums: Array) -> Array:
        """Return (c^2 / 4) ((1 - 3 b) / r + b) e^-r, without the pole at 0, where slopes are 0."""
        _, b, c = self.root_terms
        r = np.sqrt(c * sums)
        pole = np.divide(1.0 - 3.0 * b, r, out=np.zeros_like(r), where=r > 0)
        return np.asarray(0.25 * c * c * (pole + b) * np.exp(-r))


class Matern12(Matern):
    """e^-r, r^2 = D: rough, with a kink at D = 0."""

    name = "matern12"
    multiple, root_terms = 1.0, (0.0, 0.0, 1.0)
    magnifies = True

    def value_and_slope(self, D: Any) -> tuple[Any, Any]:
        """Return k and dk/dD = -e^-r / (2 r), at 0 as if D were 1e-12."""
        xp = namespace(D)
        decay = xp.exp(-xp.sqrt(D))
        return decay, -0.5 * decay / xp.sqrt(D + _POLE)

    def curvature(self, sums: Array) -> Array:
        """Return e^-r (1 + r) / (4 r^3); 0 at r = 0, where slopes are 0."""
        r = np.sqrt(sums)
        pole = np.divide(1.0 + r, 4.0 * r**3, out=np.zeros_like(r), where=r > 0)
        return np.asarray(pole * np.exp(-r))


class Matern32(Matern):
    """(1 + r) e^-r, r^2 = 3 D."""

    name = "matern32"
    multiple, root_terms = 3.0, (1.0, 0.0, 3.0)
    fused_root = 3


class Matern52(Matern):
    """(1 + r + r^2 / 3) e^-r, r^2 = 5 D."""

    name = "matern52"
    multiple, root_terms = 5.0, (1.0, 1.0 / 3.0, 5.0)
    fused_root = 5
