"""Functions phi(x; c, mu) with a centre c and shapes mu, and the map x -> phi(x) of several.

A model is f(x) = sum_j theta_j phi(x; c_j, mu_j) + b (fang2019, eqs. (11), (22)). Those given here
are functions of one weighted distance: phi = g(z), z = sum_i mu_i |x_i - c_i|^p, p = 1 or 2, among
them the simplex (7) and the robust radial basis function (12). To add a function, subclass
`BasisFunction` and write two methods; the user guide has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import apply_in_place
from leansvm._array_api import as_float64, like_rows, namespace, to_host, zeros
from leansvm.basis.features import FeatureMap
from leansvm.linalg import dense64
from leansvm.rows import Block

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


class SeparableFunction(BasisFunction):
    """What `Simplex`, `RobustRBF` and `RBF` share: compiled loops over the distance."""

    power: ClassVar[int] = 1

    @abstractmethod
    def _profile(self, z: Any) -> Any:
        """Return g(z), in the memory of z if z is on the host."""

    @abstractmethod
    def _slope(self, values: Any) -> Any:
        """Return g'(z) where g(z) = values."""

    def values(self, X: Array, centers: Array, shapes: Array) -> Array:
        """Return phi_j(x_n), of shape (n_rows, n_functions), in Fortran order."""
        if not isinstance(X, np.ndarray):
            c, mu = like_rows(centers, X), like_rows(shapes, X)
            z = zeros((centers.shape[0], X.shape[0]), X)
            for i in range(X.shape[1]):
                d = X[:, i][None, :] - c[:, i][:, None]
                z += mu[:, i][:, None] * (abs(d) if self.power == 1 else d * d)
            return self._profile(z).T
        from leansvm.low_rank import _compiled

        if not centers.shape == shapes.shape == (len(centers), X.shape[1]):  # loops trust them
            raise ValueError(
                f"X has {X.shape[1]} features, the functions have centers of shape "
                f"{centers.shape} and shapes of shape {shapes.shape}."
            )
        z = np.empty((len(centers), len(X)))
        _compiled.distances(np.ascontiguousarray(X.T), centers, shapes, self.power, z)
        return self._profile(z).T

    def gradients(
        self, X: Array, centers: Array, shapes: Array, values: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Return the weighted sums of d phi / d c and d phi / d mu."""
        slopes = (self._slope(values) * weights).T
        if not isinstance(X, np.ndarray):
            xp, c = namespace(X), like_rows(centers, X)
            by_features = []
            for i in range(X.shape[1]):
                d = X[:, i][None, :] - c[:, i][:, None]
                signed, size = (xp.sign(d), abs(d)) if self.power == 1 else (2.0 * d, d * d)
                by_features.append(
                    xp.stack([xp.sum(slopes * signed, axis=1), xp.sum(slopes * size, axis=1)])
                )
            by_center, by_shape = to_host(xp.stack(by_features, axis=2))
            return -shapes * by_center, by_shape
        from leansvm.low_rank import _compiled

        slopes = np.ascontiguousarray(slopes)
        if slopes.shape != (len(centers), len(X)) or centers.shape[1] != X.shape[1]:
            raise ValueError(
                f"X of shape {X.shape}, values of shape {values.shape} and centers of shape "
                f"{centers.shape} do not fit."
            )
        by_center, by_shape = np.empty(centers.shape), np.empty(centers.shape)
        Xt = np.ascontiguousarray(X.T)
        _compiled.slope_sums(Xt, centers, slopes, self.power, by_center, by_shape)
        # dz/dc = -mu d'(x - c), dz/dmu = d(x - c)
        return -shapes * by_center, by_shape


class _Exponential(SeparableFunction):
    """phi = exp(-z)."""

    def _profile(self, z: Any) -> Any:
        z *= -1.0
        return np.exp(z, out=z) if isinstance(z, np.ndarray) else apply_in_place("exp", z)

    def _slope(self, values: Any) -> Any:
        return -values


class RobustRBF(_Exponential):
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


class RBF(_Exponential):
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

    def initial_shapes(self, spread: Array) -> Array:
        """Return 1 / (2 n_features spread^2), as ``gamma="scale"`` would for scaled features."""
        return 0.5 / (len(spread) * spread**2)

    def widths(self, shapes: Array) -> Array:
        """Return the standard deviations 1 / sqrt(2 mu)."""
        with np.errstate(divide="ignore"):
            return 1.0 / np.sqrt(2.0 * shapes)


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

        Slopes are rows x outputs x features, with no contribution from a kink that x sits on;
        intercepts, rows x outputs, are f minus slopes @ x. ``coef`` is outputs x functions.
        """
        inside = self.values(X, centers, shapes) > 0
        tilt = shapes * np.sign(centers - X[:, None, :])  # mu sign(c - x)
        weights = coef * inside[:, None, :]  # rows x outputs x functions
        slopes = np.einsum("noj,nji->noi", weights, tilt)
        heights = 1.0 - np.einsum("nji,ji->nj", tilt, centers)
        return slopes, np.einsum("noj,nj->no", weights, heights)


FUNCTIONS: dict[str, type[BasisFunction]] = {kind.name: kind for kind in (RBF, RobustRBF, Simplex)}


def get_function(function: Any) -> BasisFunction:
    """Return the basis function of that name, or the instance itself.

    >>> get_function("simplex")
    Simplex()
    """
    return FUNCTIONS[function]() if isinstance(function, str) else function


# ---------------------------------------------------------------------------- the map


@dataclass
class LearnedValues:
    """What a block keeps: the values of one map at its rows."""

    features: LearnedFeatures
    values: Any  # rows x functions


@dataclass(frozen=True, eq=False)
class LearnedFeatures(FeatureMap):
    """Functions phi_j with their centres and shapes; blocks remember the values of one map."""

    function: BasisFunction
    centers: Array  # functions x features
    shapes: Array
    constant: float | None = None
    order: ClassVar[Literal["C", "F"]] = "F"

    @cached_property
    def size(self) -> int:
        """Number of functions."""
        return len(self.centers)

    def phi(self, X: Any, out: Any = None) -> Any:
        """Return phi_j(x_n); user-defined functions support only NumPy."""
        X = dense64(X)
        if isinstance(self.function, SeparableFunction):
            values = self.function.values(X, self.centers, self.shapes)
        else:
            values = like_rows(self.function.values(to_host(X), self.centers, self.shapes), X)
        if out is None:
            return values
        out[...] = values
        return out

    def values(self, block: Block) -> Any:
        """Return phi_j(x_n) of a block's rows, which the block keeps (`LearnedValues`).

        If it has the values of a map that differs in one function, only that function is computed.
        """
        known, changed = block.state.get(LearnedValues), np.arange(self.size)
        if known is not None and known.features is self:
            return known.values
        if known is not None and known.features.size == self.size:
            before = known.features
            moved = (before.centers != self.centers) | (before.shapes != self.shapes)
            changed = np.flatnonzero(moved.any(axis=1))
        if known is None or len(changed) != 1:
            values = self.phi(block.X)
        else:
            values, one = known.values + 0.0, slice(changed[0], changed[0] + 1)
            alone = replace(self, centers=self.centers[one], shapes=self.shapes[one])
            values[:, one] = alone.phi(block.X)
        block.keep(LearnedValues(self, values))
        return values

    def of(self, block: Block, out: Any = None) -> Any:
        """Return all columns of a block's rows."""
        values = self.values(block)
        if out is None:
            if self.constant is None:
                return values
            out = self._empty(values)
        out[:, : self.size] = values
        if self.constant is not None:
            out[:, self.size] = self.constant
        return out

    def coefficients(self, theta: Array) -> Array:
        """Return the weights of the functions alone."""
        return np.ascontiguousarray(theta[: self.size])
