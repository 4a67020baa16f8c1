"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf, matern12, matern32, matern52   D = sum_f gamma_f (x_f - z_f)^2
    laplacian                           D = sum_f gamma_f |x_f - z_f|, kappa = e^-D
    linear                              D = sum_f gamma_f x_f z_f, kappa = D

Imported at the first use, with the compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels import MATERN, RADIAL
from leansvm.learning._loops import exponential, laplacian, laplacian_by_gamma, matern

Array = NDArray[np.float64]


class _Part:
    """One kernel with its scales, for fixed points.

    Squared distances are one product, [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'. Their
    rounding near 0 becomes 0 for Matérn-1/2, which is a function of the root.
    """

    def __init__(self, Z: Array, kernel: str, gamma: Array) -> None:
        self.kernel, self.Z, self.gamma = kernel, Z, gamma
        if kernel in RADIAL:
            self.norms = (Z * Z) @ gamma
            self.right = np.vstack([(Z * (-2.0 * gamma)).T, self.norms, np.ones(len(Z))])
            digits = np.finfo(np.float64).eps if kernel == "matern12" else 0.0
            self.rounding = (4.0 + len(gamma) ** 0.5) * digits
        else:
            self.right = np.ascontiguousarray((Z * gamma if kernel == "linear" else Z).T)

    def block(self, X: Array, slope: Array) -> Array:
        """Return kappa of rows and points, and write its derivative by D."""
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
            matern(D, least, RADIAL[self.kernel], *MATERN[self.kernel], slope)
        return D

    def by_gamma(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij dD_ij / dgamma_f of every feature f."""
        if self.kernel == "laplacian":
            sums = np.zeros(X.shape[1])
            laplacian_by_gamma(V, X, self.right, sums)
            return sums
        products = np.asarray(np.einsum("jf,jf->f", V.T @ X, self.Z))
        if self.kernel == "linear":
            return products
        squares = V.sum(axis=1) @ (X * X) + V.sum(axis=0) @ (self.Z * self.Z)
        return np.asarray(squares - 2.0 * products)


class Mixture:
    """A mixture with its numbers, for fixed points.

    ``values`` and ``slopes`` below are the parts' kappa and its derivative by D, one after the
    other; ``values`` is not used where there is a single part.

    Parameters
    ----------
    kernels : sequence of str
        Names of the parts.
    Z : ndarray of shape (r, d)
        Points.
    gamma : ndarray of shape (n_parts, d)
        Scales, not negative.
    omega : ndarray of shape (n_parts,), optional
        The weights of the parts are softmax(omega); equal by default.
    """

    def __init__(
        self, kernels: Sequence[str], Z: Array, gamma: Array, omega: Array | None = None
    ) -> None:
        shares = np.ones(len(kernels)) if omega is None else np.exp(omega - omega.max())
        self.Z, self.weights = Z, shares / shares.sum()
        self.parts = list(map(partial(_Part, Z), kernels, gamma))

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
