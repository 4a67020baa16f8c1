"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf, matern12, matern32, matern52   D = sum_f gamma_f (x_f - z_f)^2
    laplacian                           D = sum_f gamma_f |x_f - z_f|, kappa = e^-D
    linear                              D = sum_f gamma_f x_f z_f, kappa = D

Imported at the first use: numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._compile import compiled
from leansvm.kernels import FUNCTIONS
from leansvm.kernels._compiled import absolute, absolute_moments, decay

Array = NDArray[np.float64]

_OPTIONS = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}  # rounding as written
_FURTHEST = 700.0  # r beyond which e^-r is no normal number, and slow
_POLE = 1e-12  # added to D under the root in the slope of e^-sqrt(D), which is infinite at 0


class Mixture:
    """A mixture with its numbers, for fixed points.

    Every part has its row of ``gamma``; their weights are softmax(omega), by default equal.
    ``values`` and ``slopes`` below are the parts' kappa and its derivative by D, one after the
    other; ``values`` is not used where there is a single part.
    """

    def __init__(
        self, kernels: Sequence[str], Z: Array, gamma: Array, omega: Array | None = None
    ) -> None:
        shares = np.ones(len(kernels)) if omega is None else np.exp(omega - omega.max())
        self.Z, self.weights = Z, shares / shares.sum()
        self.parts = list(map(partial(_ScaledKernel, Z), kernels, gamma))

    def block(self, X: Array, values: Array, slopes: Array) -> Array:
        """Return k(X, Z) and write what `derivatives` needs."""
        if len(self.parts) == 1:
            return self.parts[0].block(X, slopes[0])
        for part, value, slope in zip(self.parts, values, slopes, strict=True):
            value[...] = part.block(X, slope)
        return np.asarray(np.einsum("p,pij->ij", self.weights, values))

    def point_block(self) -> tuple[Array, Array, Array]:
        """Return k(Z, Z), values and slopes; the distance of a point to itself is always 0."""
        r = len(self.Z)
        values, slopes = np.empty((2, len(self.parts), r, r))
        for part, value, slope in zip(self.parts, values, slopes, strict=True):
            value[...] = part.block(self.Z, slope)
            if part.kernel != "linear":
                np.fill_diagonal(value, 1.0)
                np.fill_diagonal(slope, 0.0)
        return np.einsum("p,pij->ij", self.weights, values), values, slopes

    def derivatives(self, G: Array, X: Array, values: Array, slopes: Array) -> tuple[Array, Array]:
        """Return dS / dgamma and dS / domega through k(X, Z), given G = dS / dk(X, Z)."""
        by_gamma, inner = np.zeros((len(self.parts), X.shape[1])), np.zeros(len(self.parts))
        for p, part in enumerate(self.parts):
            V = G * slopes[p]
            V *= self.weights[p]
            by_gamma[p] = part.by_gamma(V, X)
            if len(self.parts) > 1:
                inner[p] = np.vdot(G, values[p])
        return by_gamma, self.weights * (inner - self.weights @ inner)


class _ScaledKernel:
    """One kernel with its scales, for fixed points; columns of scale 0 cost nothing.

    Squared distances are one product, [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'. Their
    rounding near 0 becomes 0 for Matérn-1/2, which is a function of the root.
    """

    def __init__(self, Z: Array, kernel: str, gamma: Array) -> None:
        self.columns = _used(gamma)
        Z, gamma = Z[:, self.columns], gamma[self.columns]
        self.kernel, self.Z, self.gamma = kernel, Z, gamma
        if kernel not in ("laplacian", "linear"):
            self.norms = (Z * Z) @ gamma
            self.right = np.vstack([(Z * (-2.0 * gamma)).T, self.norms, np.ones(len(Z))])
            digits = np.finfo(np.float64).eps if kernel == "matern12" else 0.0
            self.rounding = (4.0 + len(gamma) ** 0.5) * digits
        else:
            self.right = np.ascontiguousarray((Z * gamma if kernel == "linear" else Z).T)

    def block(self, X: Array, slope: Array) -> Array:
        """Return kappa of rows and points, and write its derivative by D."""
        X = self._seen(X)
        if self.kernel == "linear":
            slope[...] = 1.0
            return np.asarray(X @ self.right)
        if self.kernel == "laplacian":
            values = np.empty(slope.shape)
            laplacian(X, self.right, self.gamma, values, slope)
            return values
        norms = (X * X) @ self.gamma
        D: Array = np.column_stack([X, np.ones(len(X)), norms]) @ self.right
        if self.kernel == "rbf":
            exponential(D, slope)
        else:
            least = self.rounding * (norms + self.norms.max())
            kind: Any = FUNCTIONS[self.kernel]
            matern(D, least, *kind.root_terms, slope)
        return D

    def by_gamma(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij dD_ij / dgamma_f of every feature f; 0 where its scale is 0."""
        result = np.zeros(X.shape[1])
        result[self.columns] = self._by_used(V, self._seen(X))
        return result

    def _seen(self, X: Array) -> Array:
        """Return the columns that count, side by side for the compiled loops."""
        X = X[:, self.columns]
        return np.ascontiguousarray(X) if self.kernel == "laplacian" else X

    def _by_used(self, V: Array, X: Array) -> Array:
        if self.kernel == "laplacian":
            sums = np.zeros(X.shape[1])
            laplacian_by_gamma(V, X, self.right, sums)
            return sums
        products = np.asarray(np.einsum("jf,jf->f", V.T @ X, self.Z))
        if self.kernel == "linear":
            return products
        squares = V.sum(axis=1) @ (X * X) + V.sum(axis=0) @ (self.Z * self.Z)
        return np.asarray(squares - 2.0 * products)


def _used(gamma: Array) -> Any:
    """Return the index of the columns with a scale above 0; a slice where they are neighbours."""
    used = np.flatnonzero(gamma)
    if len(used) and used[-1] - used[0] + 1 == len(used):
        return slice(int(used[0]), int(used[-1]) + 1)
    return used


# ------------------------------------------------------------------ compiled loops


@compiled(**_OPTIONS)
def exponential(D: Any, slope: Any) -> None:
    """Replace D by e^-D and set the slope to -e^-D; D below 0 is rounding."""
    for i in range(D.shape[0]):
        distances, slopes = D[i], slope[i]
        for j in range(distances.shape[0]):
            value = decay(distances[j] if distances[j] > 0.0 else 0.0)
            distances[j] = value
            slopes[j] = -value


@compiled(**_OPTIONS)
def laplacian(rows: Any, Zt: Any, gamma: Any, out: Any, slope: Any) -> None:
    """Set e^-D of D_ij = sum_f gamma_f |x_if - z_fj|, and its slope."""
    absolute(rows, Zt, -gamma, out)
    exponential(out, slope)


@compiled(**_OPTIONS)
def laplacian_by_gamma(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Add sum_ij V_ij |x_if - z_fj| to out_f."""
    absolute_moments(V, rows, Zt, out)


@compiled(**_OPTIONS)
def matern(D: Any, least: Any, linear: float, quadratic: float, factor: float, slope: Any) -> None:
    """Replace D by (1 + linear r + quadratic r^2) e^-r with r^2 = factor D, and set dk/dD.

    ``linear`` is 0 (Matérn-1/2) or 1. What is not above ``least_i`` in row i counts as 0.
    """
    constant, rising = 0.5 * factor * (2.0 * quadratic - 1.0), -0.5 * factor * quadratic
    for i in range(D.shape[0]):
        distances, slopes, bound = D[i], slope[i], least[i]
        for j in range(distances.shape[0]):
            distance = distances[j] if distances[j] > bound else 0.0
            squared = factor * distance
            r = sqrt(squared if squared < _FURTHEST * _FURTHEST else _FURTHEST * _FURTHEST)
            e = decay(r)
            distances[j] = (1.0 + r * (linear + r * quadratic)) * e
            slopes[j] = (constant + rising * r) * e
            if linear == 0.0:  # at distance 0 the product with (x_f - z_f)^2 is 0
                slopes[j] *= (1.0 if distance > 0.0 else 0.0) / sqrt(distance + _POLE)
