"""The simplex basis function (fang2019, eq. (7))."""

from __future__ import annotations

import numpy as np

from leansvm.functions._base import Array
from leansvm.functions._separable import SeparableFunction


class Simplex(SeparableFunction):
    """phi(x) = max(0, 1 - sum_i mu_i |x_i - c_i|): a pyramid; models are piecewise linear.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.functions import Simplex
    >>> X, centers, shapes = np.array([[0.0], [1.0], [3.0]]), np.zeros((1, 1)), np.full((1, 1), 0.5)
    >>> Simplex().values(X, centers, shapes).ravel()
    array([1. , 0.5, 0. ])
    """

    name = "simplex"

    def _profile(self, z: Array) -> None:
        np.subtract(1.0, z, out=z)
        np.maximum(z, 0.0, out=z)

    def _slope(self, values: Array) -> Array:
        return np.where(values > 0.0, -1.0, 0.0)

    def initial_shapes(self, spread: Array) -> Array:
        """Return shapes so wide that the pyramid covers most of the rows."""
        return 0.5 * super().initial_shapes(spread)
