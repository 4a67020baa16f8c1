"""The Gaussian kernel e^-D, D = sum_f gamma_f (x_f - z_f)^2."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._accelerated import apply_in_place
from leansvm.kernels._function import Array, smallest_exponent
from leansvm.kernels._radial import Radial


class Gaussian(Radial):
    """e^-D."""

    name = "rbf"
    multiple = -1.0
    fused_root = 0

    def in_place(self, values: Any, reach: float = 0.0) -> Any:
        """Turn -D into e^-D; where D may be so large that exp is slow, it is cut off."""
        if reach > 80.0 and reach > -(floor := smallest_exponent(values)):
            values = apply_in_place("clip", values, floor, 0.0)
        return apply_in_place("exp", values)

    def from_row(self, minus: Array) -> Array:
        return np.exp(minus, out=minus)

    def curvature(self, sums: Array) -> Array:
        return np.exp(-sums)
