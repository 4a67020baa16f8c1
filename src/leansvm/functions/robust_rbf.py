"""The robust radial basis function (fang2019, eq. (12))."""

from __future__ import annotations

import numpy as np

from leansvm.functions._base import Array
from leansvm.functions._separable import SeparableFunction


class RobustRBF(SeparableFunction):
    """phi(x) = exp(-sum_i mu_i |x_i - c_i|): a peak that falls off exponentially.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.functions import RobustRBF
    >>> X, centers, shapes = np.array([[0.0], [1.0], [3.0]]), np.zeros((1, 1)), np.full((1, 1), 0.5)
    >>> RobustRBF().values(X, centers, shapes).ravel().round(3)
    array([1.   , 0.607, 0.223])
    """

    name = "robust-rbf"

    def _profile(self, z: Array) -> None:
        np.exp(np.negative(z, out=z), out=z)

    def _slope(self, values: Array) -> Array:
        return -values
