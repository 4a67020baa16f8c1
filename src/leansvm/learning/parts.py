"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf, matern12, matern32, matern52   D = sum_f gamma_f (x_f - z_f)^2
    laplacian                           D = sum_f gamma_f |x_f - z_f|, kappa = e^-D
    linear                              D = sum_f gamma_f x_f z_f, kappa = D

Imported at the first use, with the compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels import MATERN, RADIAL
from leansvm.kernels._compiled import absolute, absolute_moments
from leansvm.learning._loops import exponential, matern

Array = NDArray[np.float64]


class _Squared:
    """Gaussian and Matérn kernels: D is one product, [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'.

    Rounding of D near 0 becomes 0 for Matérn-1/2, which is a function of its root.
    """

    fixed_diagonal = True

    def __init__(self, kernel: str, Z: Array, gamma: Array) -> None:
        self.kernel, self.Z, self.gamma = kernel, Z, gamma
        self.norms = (Z * Z) @ gamma
        self.right = np.vstack([(Z * (-2.0 * gamma)).T, self.norms, np.ones(len(Z))])
        self.rounding = (4.0 + len(gamma) ** 0.5) * np.finfo(np.float64).eps

    def block(self, X: Array, slope: Array) -> Array:
        """Return kappa of rows and points, and write its derivative by D."""
        norms = (X * X) @ self.gamma
        D: Array = np.column_stack([X, np.ones(len(X)), norms]) @ self.right
        if self.kernel == "rbf":
            exponential(D, slope)
        else:
            exact_zeros = self.rounding if self.kernel == "matern12" else 0.0
            least = exact_zeros * (norms + self.norms.max())
            matern(D, least, RADIAL[self.kernel], *MATERN[self.kernel], slope)
        return D

    def by_gamma(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij (x_if - z_jf)^2 of every feature f."""
        products = np.einsum("jf,jf->f", V.T @ X, self.Z)
        squares = V.sum(axis=1) @ (X * X) + V.sum(axis=0) @ (self.Z * self.Z)
        return np.asarray(squares - 2.0 * products)


class _Absolute:
    """The laplacian kernel: D is a compiled loop."""

    fixed_diagonal = True

    def __init__(self, kernel: str, Z: Array, gamma: Array) -> None:
        self.Zt, self.gamma = np.ascontiguousarray(Z.T), gamma

    def block(self, X: Array, slope: Array) -> Array:
        """Return kappa of rows and points, and write its derivative by D."""
        D = np.empty(slope.shape)
        absolute(X, self.Zt, -self.gamma, D)
        exponential(D, slope)
        return D

    def by_gamma(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij |x_if - z_jf| of every feature f."""
        sums = np.zeros(X.shape[1])
        absolute_moments(V, X, self.Zt, sums)
        return sums


class _Linear:
    """The linear kernel."""

    fixed_diagonal = False

    def __init__(self, kernel: str, Z: Array, gamma: Array) -> None:
        self.Z, self.right = Z, (Z * gamma).T

    def block(self, X: Array, slope: Array) -> Array:
        """Return D of rows and points; its slope is 1."""
        slope[...] = 1.0
        return np.asarray(X @ self.right)

    def by_gamma(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij x_if z_jf of every feature f."""
        return np.asarray(np.einsum("jf,jf->f", V.T @ X, self.Z))


_KINDS = {name: _Squared for name in RADIAL} | {"laplacian": _Absolute, "linear": _Linear}


class Mixture:
    """A mixture with its numbers, for fixed points.

    ``values`` and ``slopes`` below have the parts' kappa and its derivative by D, one after the
    other; ``values`` is not used where there is a single part.

    Parameters
    ----------
    kernels : sequence of str
        Names of the parts.
    Z : ndarray of shape (r, d)
        Points.
    gamma : ndarray of shape (n_parts, d)
        Scales, not negative.
    omega : ndarray of shape (n_parts,)
        The weights of the parts are softmax(omega).
    """

    def __init__(self, kernels: Sequence[str], Z: Array, gamma: Array, omega: Array) -> None:
        shares = np.exp(omega - omega.max())
        self.Z, self.weights = Z, shares / shares.sum()
        named = zip(kernels, gamma, strict=True)
        self.parts = [_KINDS[name](name, Z, scales) for name, scales in named]

    def block(self, X: Array, values: Array, slopes: Array) -> Array:
        """Return k(X, Z) and write what `derivatives` needs."""
        if len(self.parts) == 1:
            return self.parts[0].block(X, slopes[0])
        for part, value, slope in zip(self.parts, values, slopes, strict=True):
            value[...] = part.block(X, slope)
        return np.einsum("p,pij->ij", self.weights, values)

    def point_block(self) -> tuple[Array, Array, Array]:
        """Return k(Z, Z), values and slopes; the distance of a point to itself is always 0."""
        r = len(self.Z)
        values, slopes = np.empty((2, len(self.parts), r, r))
        for part, value, slope in zip(self.parts, values, slopes, strict=True):
            value[...] = part.block(self.Z, slope)
            if part.fixed_diagonal:
                np.fill_diagonal(value, 1.0)
                np.fill_diagonal(slope, 0.0)
        return np.einsum("p,pij->ij", self.weights, values), values, slopes

    def derivatives(self, G: Array, X: Array, values: Array, slopes: Array) -> tuple[Array, Array]:
        """Given G = dS / dk(X, Z), return dS / dgamma and <G, kappa_p(D_p)> of every part."""
        by_gamma, inner = np.zeros((len(self.parts), X.shape[1])), np.zeros(len(self.parts))
        for p, part in enumerate(self.parts):
            V = G * slopes[p]
            V *= self.weights[p]
            by_gamma[p] = part.by_gamma(V, X)
            if len(self.parts) > 1:
                inner[p] = np.vdot(G, values[p])
        return by_gamma, inner

    def by_omega(self, inner: Array) -> Array:
        """Return dS / domega, given the sums of `derivatives` over all rows and the points."""
        return np.asarray(self.weights * (inner - self.weights @ inner))
