"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf, matern12, matern32, matern52   D = sum_f gamma_f (x_f - z_f)^2
    laplacian                           D = sum_f gamma_f |x_f - z_f|, kappa = e^-D
    linear                              D = sum_f gamma_f x_f z_f, kappa = D

Blocks have the type of the points: float64, or float32 where rounding does not matter.
Imported at the first use: numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels import FUNCTIONS
from leansvm.kernels._compiled import absolute, absolute_moments

Array = NDArray[np.float64]

_FURTHEST = 80.0  # e^-t of a larger t is next to nothing, and slow where it is no normal number
_POLE = 1e-12  # added to D under the root in the slope of e^-sqrt(D), which is infinite at 0


class ScaledMixture:
    """A mixture with its numbers, for fixed points.

    Every part has its row of ``gamma``; their weights are softmax(omega), by default equal.
    ``values`` and ``slopes`` below are the parts' kappa and its derivative by D, one after the
    other; ``values`` is not used where there is a single part.
    """

    def __init__(
        self, kernels: Sequence[str], Z: Array, gamma: Array, omega: Array | None = None
    ) -> None:
        shares = np.ones(len(kernels)) if omega is None else np.exp(omega - omega.max())
        self.Z, self.weights = Z, (shares / shares.sum()).astype(Z.dtype)
        self.parts = list(map(partial(_ScaledKernel, Z), kernels, gamma))

    def block(self, X: Array, values: Array, slopes: Array) -> Array:
        """Return k(X, Z) and write what `derivatives` needs."""
        if len(self.parts) == 1:
            return self.parts[0].block(X, slopes[0])
        for part, value, slope in zip(self.parts, values, slopes, strict=True):
            value[...] = part.block(X, slope)
        return self._sum(values)

    def point_block(self) -> tuple[Array, Array, Array]:
        """Return k(Z, Z), values and slopes; the distance of a point to itself is always 0."""
        r = len(self.Z)
        values, slopes = np.empty((2, len(self.parts), r, r))
        for part, value, slope in zip(self.parts, values, slopes, strict=True):
            value[...] = part.block(self.Z, slope)
            if part.kernel != "linear":
                np.fill_diagonal(value, 1.0)
                np.fill_diagonal(slope, 0.0)
        return self._sum(values), values, slopes

    def _sum(self, values: Array) -> Array:
        total = values[0] * self.weights[0]
        for weight, value in zip(self.weights[1:], values[1:], strict=True):
            total += weight * value
        return total

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
        Z, gamma = Z[:, self.columns], gamma[self.columns].astype(Z.dtype)
        self.kernel, self.Z, self.gamma = kernel, Z, gamma
        self.root_terms = getattr(FUNCTIONS[kernel], "root_terms", None)
        if kernel not in ("laplacian", "linear"):
            self.norms = (Z * Z) @ gamma
            ones = np.ones(len(Z), Z.dtype)
            self.right = np.vstack([(Z * (-2 * gamma)).T, self.norms, ones])
            digits = float(np.finfo(Z.dtype).eps) if kernel == "matern12" else 0.0
            self.rounding = (4.0 + len(gamma) ** 0.5) * digits
        else:
            self.right = np.ascontiguousarray((Z * gamma if kernel == "linear" else Z).T)

    def block(self, X: Array, slope: Array) -> Array:
        """Return kappa of rows and points, and write its derivative by D."""
        X = self._seen(X)
        if self.kernel == "linear":
            slope[...] = 1.0
            return np.asarray(X @ self.right)
        D = np.empty(slope.shape, slope.dtype)
        if self.kernel == "laplacian":
            absolute(X, self.right, -self.gamma, D)
        else:
            norms = (X * X) @ self.gamma
            with np.errstate(invalid="ignore", over="ignore"):  # results are looked at by callers
                np.matmul(np.column_stack([X, np.ones(len(X), X.dtype), norms]), self.right, out=D)
            least = self.rounding * (norms[:, None] + self.norms.max())
            D[least >= D] = 0.0  # rounding
        return self._of_distances(D, slope)

    def _of_distances(self, D: Array, slope: Array) -> Array:
        """Return kappa of D, whose memory is used, and write its derivative.

        That is e^-D, or (1 + a r + b r^2) e^-r with r^2 = c D (`DistanceKernel.root_terms`).
        """
        if self.root_terms is None:
            value = np.exp(-np.minimum(D, _FURTHEST, out=D))
            np.negative(value, out=slope)
            return value
        a, b, c = self.root_terms
        r = np.minimum(np.sqrt(c * D), _FURTHEST)
        decay = np.exp(-r)
        np.multiply(decay, 0.5 * c * (2.0 * b - 1.0 - b * r), out=slope)
        if a == 0.0:  # at distance 0 the product with (x_f - z_f)^2 is 0
            slope *= (D > 0.0) / np.sqrt(D + _POLE)
        return (1.0 + r * (a + b * r)) * decay

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
            absolute_moments(V, X, self.right, sums)
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
