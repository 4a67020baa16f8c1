"""The simplex basis function (fang2019, eq. (7))."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._array_api import as_float64, namespace
from leansvm.low_rank._base import Array
from leansvm.low_rank._separable import SeparableFunction


class Simplex(SeparableFunction):
    """phi(x) = max(0, 1 - sum_i mu_i |x_i - c_i|): a pyramid; models are piecewise linear.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.low_rank import Simplex
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

    def local_linear(
        self, X: Array, centers: Array, shapes: Array, coef: Array
    ) -> tuple[Array, Array]:
        """Return slopes and intercepts of f = sum_j coef_j phi_j around rows; fang2019, (9).

        Parameters
        ----------
        X, centers, shapes : ndarray
            Rows and the functions.
        coef : ndarray of shape (n_outputs, n_functions)
            Weights.

        Returns
        -------
        slopes : ndarray of shape (n_rows, n_outputs, n_features)
            How f changes with each feature; zero contribution from a kink that x sits on.
        intercepts : ndarray of shape (n_rows, n_outputs)
            f less slopes @ x.
        """
        inside = self.values(X, centers, shapes) > 0
        tilt = shapes * np.sign(centers - X[:, None, :])  # mu sign(c - x)
        weights = coef * inside[:, None, :]  # rows x outputs x functions
        slopes = np.einsum("noj,nji->noi", weights, tilt)
        heights = 1.0 - np.einsum("nji,ji->nj", tilt, centers)
        return slopes, np.einsum("noj,nj->no", weights, heights)
