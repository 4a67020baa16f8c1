"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf                           kappa = e^-D,                   D = sum_f gamma_f (x_f - z_f)^2
    matern12, matern32, matern52  kappa = (1 + a r + b r^2) e^-r, r^2 = c D, D as above
    laplacian                     kappa = e^-D,                   D = sum_f gamma_f |x_f - z_f|
    linear                        kappa = D,                      D = sum_f gamma_f x_f z_f

Blocks have the type of the points: float64, or float32 where rounding does not matter.
Imported at the first use: numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._compile import compiled
from leansvm.kernels import FUNCTIONS
from leansvm.kernels._compiled import absolute, absolute_moments

Array = NDArray[np.float64]

_FURTHEST = 80.0  # e^-t of a larger t is next to nothing, and slow where it is no normal number
_POLE = 1e-12  # added to D under the root in the slope of e^-sqrt(D), which is infinite at 0


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
    """A mixture with its numbers, for fixed points; columns of scale 0 cost nothing.

    Every part has its row of ``gamma``; their weights are softmax(omega), by default equal.
    ``values`` and ``slopes`` below are kappa and its derivative by D, one part after the other.
    """

    def __init__(
        self, kernels: Sequence[str], Z: Array, gamma: Array, omega: Array | None = None
    ) -> None:
        shares = np.ones(len(kernels)) if omega is None else np.exp(omega - omega.max())
        self.kernels, self.weights = kernels, (shares / shares.sum()).astype(Z.dtype)
        self.parts: list[tuple[Any, ...]] = []  # columns, points, gamma and the right factor of D
        for kernel, scales in zip(kernels, gamma, strict=True):
            used = np.flatnonzero(scales)
            points, scale = Z[:, used], scales[used].astype(Z.dtype)
            if kernel == "laplacian":
                right = np.ascontiguousarray(points.T)
            elif kernel == "linear":
                right = (points * scale).T
            else:  # D = [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'
                norms, ones = (points * points) @ scale, np.ones(len(Z), Z.dtype)
                right = np.vstack([(points * (-2 * scale)).T, norms, ones])
            self.parts.append((used, points, scale, right))

    def block(self, X: Array, values: Array, slopes: Array, same: bool = False) -> Array:
        """Return k(X, Z) and write what `derivatives` needs; ``same``: the rows are the points."""
        for p, (used, _, gamma, right) in enumerate(self.parts):
            rows, value, D = X[:, used], values[p], slopes[p]  # D becomes the slope
            if self.kernels[p] == "linear":
                np.matmul(rows, right, out=value)
                D[...] = 1.0
                continue
            if self.kernels[p] == "laplacian":
                absolute_distances(np.ascontiguousarray(rows), right, gamma, D)
            else:
                norms, ones = (rows * rows) @ gamma, np.ones(len(rows), rows.dtype)
                with np.errstate(invalid="ignore", over="ignore"):  # callers look at the results
                    np.matmul(np.column_stack([rows, ones, norms]), right, out=D)
                if self.kernels[p] == "matern12":  # a function of the root magnifies rounding
                    digits = (4.0 + len(gamma) ** 0.5) * float(np.finfo(D.dtype).eps)
                    D[digits * (norms[:, None] + right[-2].max()) >= D] = 0.0
            _values_and_slopes(self.kernels[p], value, D)
            if same:  # the distance of a point to itself is 0 without rounding
                np.fill_diagonal(value, 1.0)
                np.fill_diagonal(D, 0.0)
        total = values[0] * self.weights[0]
        for weight, value in zip(self.weights[1:], values[1:], strict=True):
            total += weight * value
        return total

    def derivatives(self, G: Array, X: Array, values: Array, slopes: Array) -> tuple[Array, Array]:
        """Return dS / dgamma and dS / domega through k(X, Z), given G = dS / dk(X, Z)."""
        by_gamma, inner = np.zeros((len(self.parts), X.shape[1])), np.zeros(len(self.parts))
        for p, (used, points, _, right) in enumerate(self.parts):
            V, rows = G * slopes[p], X[:, used]
            if self.kernels[p] == "laplacian":
                sums = np.empty(len(used))
                absolute_sums(V, np.ascontiguousarray(rows), right, sums)
            else:
                sums = np.einsum("jf,jf->f", V.T @ rows, points)
                if self.kernels[p] != "linear":  # sum_ij V_ij (x_i^2 - 2 x_i z_j + z_j^2)
                    squares = V.sum(axis=1) @ (rows * rows) + V.sum(axis=0) @ (points * points)
                    sums = squares - 2.0 * sums
            by_gamma[p, used] = self.weights[p] * sums
            inner[p] = np.vdot(G, values[p])
        return by_gamma, self.weights * (inner - self.weights @ inner)


def _values_and_slopes(kernel: str, value: Array, D: Array) -> None:
    """Write kappa of D, and its derivative in place of D."""
    root_terms = getattr(FUNCTIONS[kernel], "root_terms", None)
    if root_terms is None:
        np.clip(D, 0.0, _FURTHEST, out=D)
        np.exp(np.negative(D, out=D), out=value)
        np.negative(value, out=D)
        return
    a, b, c = root_terms
    r = np.sqrt(np.multiply(D, c, out=value).clip(0.0, _FURTHEST**2, out=value))
    decay = np.exp(-r)
    if a == 0.0:  # at distance 0 the product with (x_f - z_f)^2 is 0
        np.divide(-0.5 * c * decay * (D > 0.0), np.sqrt(D.clip(0.0) + _POLE), out=D)
    else:
        np.multiply(decay, 0.5 * c * (2.0 * b - 1.0 - b * r if b else -1.0), out=D)
    np.multiply(1.0 + r * (a + b * r if b else a), decay, out=value)
