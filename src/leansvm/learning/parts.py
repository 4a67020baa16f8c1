"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf, matern12, matern32, matern52   kappa falls with D = sum_f gamma_f (x_f - z_f)^2
    laplacian                           kappa = e^-D,       D = sum_f gamma_f |x_f - z_f|
    linear                              kappa = D,          D = sum_f gamma_f x_f z_f

Blocks have the type of the points, and are where these are: on the host or on a device.
Imported at the first use: numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import apply_in_place
from leansvm._array_api import foreign_namespace, from_host, identity, namespace, to_host, zeros
from leansvm._compile import compiled
from leansvm.kernels import FUNCTIONS
from leansvm.kernels._compiled import absolute, absolute_moments

Array = NDArray[np.float64]
Terms = list[tuple[Any, Any]]  # of every part: kappa, and its derivative by D

_FURTHEST = 80.0  # e^-t of a larger t is next to nothing, and slow where it is no normal number


@compiled()
def absolute_distances(rows: Any, Zt: Any, gamma: Any, out: Any) -> None:
    """Set out_ij = sum_f gamma_f |x_if - z_fj|."""
    absolute(rows, Zt, -gamma, out)


@compiled()
def absolute_sums(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Set out_f = sum_ij V_ij |x_if - z_fj|."""
    out[:] = 0.0
    absolute_moments(V, rows, Zt, out)


class ScaledMixture:
    """A mixture with its numbers, for fixed points; on the host, columns of scale 0 cost nothing.

    Every part has its row of ``gamma``; their weights are softmax(omega), by default equal.
    """

    def __init__(
        self, kernels: Sequence[str], Z: Any, gamma: Array, omega: Array | None = None
    ) -> None:
        shares = np.ones(len(kernels)) if omega is None else np.exp(omega - omega.max())
        self.weights, self.xp = shares / shares.sum(), namespace(Z)
        self.parts = [_Part(*part, Z) for part in zip(kernels, gamma, strict=True)]

    def block(self, X: Any, same: bool = False) -> tuple[Any, Terms]:
        """Return k(X, Z) and what `derivatives` needs; ``same``: the rows are the points."""
        terms = [part.values(X, same) for part in self.parts]
        total = terms[0][0] * float(self.weights[0])
        for (value, _), weight in zip(terms[1:], self.weights[1:], strict=True):
            total += value * float(weight)
        return total, terms

    def derivatives(self, G: Any, X: Any, terms: Terms) -> tuple[Array, Array]:
        """Return dS / dgamma and dS / domega through k(X, Z), given G = dS / dk(X, Z)."""
        by_gamma, inner = np.zeros((len(self.parts), X.shape[1])), np.zeros(len(self.parts))
        for p, (part, (value, slope)) in enumerate(zip(self.parts, terms, strict=True)):
            by_gamma[p, part.used] = self.weights[p] * part.sums(G * slope, X)
            inner[p] = float(self.xp.sum(self.xp.vecdot(G, value)))
        return by_gamma, self.weights * (inner - self.weights @ inner)


class _Part:
    """One kernel, its scales, and the points as it needs them."""

    def __init__(self, kernel: str, gamma: Array, Z: Any) -> None:
        self.kernel, self.xp = kernel, namespace(Z)
        self.function: Any = FUNCTIONS[kernel]()
        self.on_host = foreign_namespace(Z) is None
        self.used: Any = slice(None)
        if self.on_host and not gamma.all():
            self.used = np.flatnonzero(gamma)
        gamma, self.Z = gamma[self.used], Z[:, self.used]
        self.gamma = from_host(gamma.astype(np.float64), Z, dtype=Z.dtype)
        if self.on_host:
            self.gamma = gamma.astype(Z.dtype)
        if kernel == "laplacian":
            self.right = np.ascontiguousarray(self.Z.T) if self.on_host else self.Z * self.gamma
        elif kernel == "linear":
            self.right = (self.Z * self.gamma).T
        else:  # D = [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'
            norms = (self.Z * self.Z) @ self.gamma[:, None]
            columns = [self.Z * (-2 * self.gamma), norms, self.xp.ones_like(norms)]
            self.right = self.xp.concat(columns, axis=1).T

    def values(self, X: Any, same: bool) -> tuple[Any, Any]:
        """Return kappa of all pairs, and its derivative by D."""
        rows = X[:, self.used]
        if self.kernel == "linear":
            return rows @ self.right, 1.0
        terms = self.function.root_terms
        furthest = _FURTHEST if terms is None else _FURTHEST**2 / terms[2]
        D = apply_in_place("clip", self._distances(rows), 0.0, furthest)
        value, slope = self.function.value_and_slope(D)
        if self.function.magnifies:  # the product with (x_f - z_f)^2 is 0 at distance 0
            slope = self.xp.where(D > 0, slope, self.xp.zeros_like(D))
        if same:  # the distance of a point to itself is 0 without rounding
            off = 1.0 - identity(rows.shape[0], X)
            value, slope = value * off + (1.0 - off), slope * off
        return value, slope

    def _distances(self, rows: Any) -> Any:
        xp = self.xp
        if self.kernel != "laplacian":
            with np.errstate(invalid="ignore", over="ignore"):  # callers look at the results
                norms = (rows * rows) @ self.gamma[:, None]
                D = xp.concat([rows, xp.ones_like(norms), norms], axis=1) @ self.right
            if self.function.magnifies:  # a function of the root magnifies rounding
                digits = (4.0 + rows.shape[1] ** 0.5) * float(xp.finfo(D.dtype).eps)
                near = digits * (norms + xp.max(self.right[-2, :])) >= D
                D = xp.where(near, xp.zeros_like(D), D)
            return D
        if self.on_host:
            D = np.empty((len(rows), len(self.Z)), rows.dtype)
            absolute_distances(np.ascontiguousarray(rows), self.right, self.gamma, D)
            return D
        rows, D = rows * self.gamma, zeros((rows.shape[0], self.Z.shape[0]), rows, rows.dtype)
        for f in range(rows.shape[1]):
            D += apply_in_place("abs", rows[:, f][:, None] - self.right[:, f][None, :])
        return D

    def sums(self, V: Any, X: Any) -> Array:
        """Return sum_ij V_ij dD_ij / dgamma_f of every column that is used."""
        rows, Z, xp = X[:, self.used], self.Z, self.xp
        if self.kernel != "laplacian":
            sums = xp.sum((V.T @ rows) * Z, axis=0)
            if self.kernel != "linear":  # sum_ij V_ij (x_i^2 - 2 x_i z_j + z_j^2)
                squares = xp.sum(V, axis=1) @ (rows * rows) + xp.sum(V, axis=0) @ (Z * Z)
                sums = squares - 2.0 * sums
        elif self.on_host:
            sums = np.empty(rows.shape[1])
            absolute_sums(V, np.ascontiguousarray(rows), self.right, sums)
        else:
            columns = range(rows.shape[1])
            apart = (apply_in_place("abs", rows[:, f][:, None] - Z[:, f][None, :]) for f in columns)
            sums = xp.stack([xp.sum(V * D) for D in apart])
        return np.asarray(to_host(sums), dtype=np.float64)
