"""One row against points that stay the same: what depends on the points alone is computed once.

A block of one row spends its time on preparing the points. Here, for kernels of distances,
r_j^2 = |t|^2 + |s_j|^2 - 2 s_j't with t and s_j the row and the points, centred and scaled; the
rest is a handful of NumPy calls on one value for each point. Nothing changes after construction,
so that threads may share these objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm.kernels._clip import clipped
from leansvm.kernels._kernel import Kernel
from leansvm.kernels._radial import MATERN, RADIAL, product_suffices, split_gamma

Array = NDArray[np.float64]
_LARGEST_SCALE = 1e30  # beyond it squares may overflow


class RadialRow:
    """Values of "rbf" and the Matérn kernels between a row and all points."""

    def __init__(self, name: str, gamma: Any, points: Array) -> None:
        number, scales = split_gamma(gamma)
        scales = np.ones(points.shape[1]) if scales is None else scales
        self.scale = scales * np.sqrt(number * RADIAL[name])
        self.centre = points.mean(axis=0)
        self.points = (points - self.centre) * self.scale
        self.norms = np.square(self.points).sum(axis=1)
        self.twice = 2.0 * self.points
        self.coefficients = MATERN.get(name)  # None: the Gaussian kernel
        eps, spread = float(np.finfo(np.float64).eps), float(self.norms.max(initial=0.0))
        # the root of Matérn-1/2 magnifies what a product loses
        self.by_product = name != "matern12" and product_suffices(name, spread, eps, len(scales))

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        t = x - self.centre
        t *= self.scale
        if self.by_product:
            values = self.twice.dot(t)  # minus r^2
            values -= self.norms
            values -= t.dot(t)
        else:
            difference = self.points - t
            values = np.einsum("ij,ij->i", difference, difference)
            np.negative(values, out=values)
        if self.coefficients is None:
            return np.exp(values, out=values)
        linear, quadratic = self.coefficients
        np.minimum(values, 0.0, out=values)
        np.negative(values, out=values)
        np.sqrt(values, out=values)
        polynomial = values * quadratic
        polynomial += linear
        polynomial *= values
        polynomial += 1.0
        np.negative(values, out=values)
        np.exp(values, out=values)
        values *= polynomial
        return values


class LaplacianRow:
    """Values of "laplacian" between a row and all points."""

    def __init__(self, gamma: Any, points: Array) -> None:
        weights = np.broadcast_to(np.asarray(gamma, np.float64), points.shape[1])
        self.used = np.flatnonzero(weights)
        self.points, self.minus = np.ascontiguousarray(points[:, self.used]), -weights[self.used]

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        difference = self.points - x[self.used]
        np.abs(difference, out=difference)
        values = difference.dot(self.minus)
        return np.exp(values, out=values)


class DotRow:
    """Values of "linear", "poly" and "sigmoid" between a row and all points."""

    def __init__(self, kernel: Kernel, points: Array) -> None:
        self.name, self.points = kernel.name, points
        self.gamma, self.coef0, self.degree = kernel.gamma, kernel.coef0, kernel.degree

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point; what is not finite stays so."""
        values = self.points.dot(x)
        if self.name == "linear":
            return values
        values *= self.gamma
        values += self.coef0
        if self.name == "sigmoid":
            return np.tanh(values, out=values)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.power(values, self.degree, out=values)


class ClippedRow:
    """Another form, after every feature was moved between its bounds."""

    def __init__(self, clip: Any, form: Any) -> None:
        (self.lower, self.upper), self.form = clip, form

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        return self.form(np.minimum(np.maximum(x, self.lower), self.upper))


def row_form(kernel: Kernel, points: Any) -> Any:
    """Return the function x -> k(x, z_j) of every point; None for kernels that gain nothing.

    Parameters
    ----------
    kernel : Kernel
        Of any kind; callables, "precomputed", "cosine" and "chi2" gain nothing.
    points : ndarray of shape (n_points, n_features)
        Nothing is gained for CSR points, or for scales at which squares overflow.
    """
    if sparse.issparse(points) or callable(kernel.name) or kernel.precomputed:
        return None
    if np.max(kernel.gamma, initial=0.0) > _LARGEST_SCALE:
        return None
    points = np.asarray(points, dtype=np.float64)
    points = points if kernel.clip is None else clipped(points, kernel.clip)
    form: Any = None
    if kernel.name in RADIAL:
        form = RadialRow(kernel.name, kernel.gamma, points)
    elif kernel.name == "laplacian":
        form = LaplacianRow(kernel.gamma, points)
    elif kernel.name in ("linear", "poly", "sigmoid"):
        form = DotRow(kernel, points)
    return form if form is None or kernel.clip is None else ClippedRow(kernel.clip, form)
