"""The smooth radial basis function with one width for every feature."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from leansvm._accelerated import apply_in_place
from leansvm.low_rank._base import Array
from leansvm.low_rank._separable import SeparableFunction


class RBF(SeparableFunction):
    """phi(x) = exp(-sum_i mu_i (x_i - c_i)^2): a Gaussian bell.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.low_rank import RBF
    >>> X, centers, shapes = np.array([[0.0], [1.0], [3.0]]), np.zeros((1, 1)), np.full((1, 1), 0.5)
    >>> RBF().values(X, centers, shapes).ravel().round(3)
    array([1.   , 0.607, 0.011])
    """

    name = "rbf"
    power: ClassVar[int] = 2

    def _profile(self, z: Any) -> Any:
        z *= -1.0
        return apply_in_place("exp", z)

    def _slope(self, values: Any) -> Any:
        return -values

    def initial_shapes(self, spread: Array) -> Array:
        """Return 1 / (2 n_features spread^2), as ``gamma="scale"`` would for scaled features."""
        return 0.5 / (len(spread) * spread**2)

    def widths(self, shapes: Array) -> Array:
        """Return the standard deviations 1 / sqrt(2 mu)."""
        with np.errstate(divide="ignore"):
            return 1.0 / np.sqrt(2.0 * shapes)
