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
from leansvm.kernels._distances import smallest_exponent
from leansvm.kernels._function import Array
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
        if isinstance(values, np.ndarray) and compiles():
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
        xp = namespace(D)
        r = xp.sqrt(self.multiple * D)
        decay = xp.exp(-r)
        return self._polynomial(r) * decay, self._slope(r, decay)

    def _slope(self, r: Any, decay: Any) -> Any:
        """Return dk/dD, given r and e^-r."""
        raise NotImplementedError

    def curvature(self, D: Array) -> Array:
        """Return d^2k/dD^2; 0 at a pole, whose product with (x_a - z_a)(x_b - z_b) is 0."""
        r = np.sqrt(self.multiple * D)
        with np.errstate(divide="ignore", invalid="ignore"):
            curve = self._curvature(r, np.exp(-r))
        return curve if self.root_terms[1] else np.where(r > 0, curve, 0.0)

    def _curvature(self, r: Array, decay: Array) -> Array:
        """Return d^2k/dD^2, given r and e^-r."""
        raise NotImplementedError


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

    def _curvature(self, r: Array, decay: Array) -> Array:
        return decay * (1.0 + r) / (4.0 * r**3)


class Matern32(Matern):
    """(1 + r) e^-r, r^2 = 3 D."""

    name = "matern32"
    multiple, root_terms = 3.0, (1.0, 0.0, 3.0)
    fused_root = 3

    def _slope(self, r: Any, decay: Any) -> Any:
        return -1.5 * decay

    def _curvature(self, r: Array, decay: Array) -> Array:
        return 2.25 * decay / r


class Matern52(Matern):
    """(1 + r + r^2 / 3) e^-r, r^2 = 5 D."""

    name = "matern52"
    multiple, root_terms = 5.0, (1.0, 1.0 / 3.0, 5.0)
    fused_root = 5

    def _slope(self, r: Any, decay: Any) -> Any:
        return (-5.0 / 6.0) * (1.0 + r) * decay

    def _curvature(self, r: Array, decay: Array) -> Array:
        return (25.0 / 12.0) * decay
