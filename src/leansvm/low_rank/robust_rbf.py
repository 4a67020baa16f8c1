"""The robust radial basis function (fang2019, eq. (12))."""

from __future__ import annotations

from typing import Any

from leansvm._accelerated import apply_in_place
from leansvm.low_rank._separable import SeparableFunction


class RobustRBF(SeparableFunction):
    """phi(x) = exp(-sum_i mu_i |x_i - c_i|): a peak that falls off exponentially.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.low_rank import RobustRBF
    >>> X, centers, shapes = np.array([[0.0], [1.0], [3.0]]), np.zeros((1, 1)), np.full((1, 1), 0.5)
    >>> RobustRBF().values(X, centers, shapes).ravel().round(3)
    array([1.   , 0.607, 0.223])
    """

    name = "robust-rbf"

    def _profile(self, z: Any) -> Any:
        z *= -1.0
        return apply_in_place("exp", z)

    def _slope(self, values: Any) -> Any:
        return -values
