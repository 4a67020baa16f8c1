"""The simplex basis function (fang2019, eq. (7))."""

from __future__ import annotations

from typing import Any

from leansvm._array_api import as_float64, namespace
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

    def _profile(self, z: Any) -> Any:
        z *= -1.0
        z += 1.0
        return namespace(z).clip(z, 0.0, None)

    def _slope(self, values: Any) -> Any:
        return -1.0 * as_float64(values > 0.0)

    def initial_shapes(self, spread: Array) -> Array:
        """Return shapes so wide that the pyramid covers most of the rows."""
        return 0.5 * super().initial_shapes(spread)
