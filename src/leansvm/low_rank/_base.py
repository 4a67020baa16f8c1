"""What a solver may ask of a basis function phi(x; c, mu): values, and sums of gradients.

A model is f(x) = sum_j theta_j phi(x; c_j, mu_j) + b (fang2019, eqs. (11), (22)). To add a
function, subclass `BasisFunction` and write two methods; the user guide has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class BasisFunction(ABC):
    """A family of functions, each with a centre c and one non-negative shape mu per feature.

    ``X`` is always a dense float64 array of shape (n_rows, n_features), ``centers`` and
    ``shapes`` have one row per function, ``values`` and ``weights`` one column per function.
    """

    name: str = ""  #: As `get_function` knows it.

    @abstractmethod
    def values(self, X: Array, centers: Array, shapes: Array) -> Array:
        """Return phi_j(x_n), of shape (n_rows, n_functions)."""

    @abstractmethod
    def gradients(
        self, X: Array, centers: Array, shapes: Array, values: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Return sum_n weights_nj d phi_j(x_n) / d c_ji, and the same for mu_ji.

        Both have the shape of ``centers``; ``values`` is what `values` returned.
        """

    def initial_shapes(self, spread: Array) -> Array:
        """Return the shapes to start from, given the standard deviation of every feature."""
        return 1.0 / (len(spread) * spread)

    def widths(self, shapes: Array) -> Array:
        """Return how far the function reaches along each feature, in the feature's unit."""
        with np.errstate(divide="ignore"):
            return 1.0 / shapes

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
