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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import apply_in_place
from leansvm._array_api import from_host, to_host, zeros
from leansvm.kernels import FUNCTIONS
from leansvm.kernels._compiled import absolute, absolute_moments

Array = NDArray[np.float64]
Terms = list[tuple[Any, Any]]  # of every part: kappa, and its derivative by D

_LARGEST_EXPONENT = 80.0  # e^-t of a larger t is next to nothing, and slow where it is subnormal
_POLE = 1e-12  # added to D under the root in the slope of e^-sqrt(D), which is infinite at 0


class ScaledMixture:
    """A mixture with its numbers, for fixed points; on the host, columns of scale 0 cost nothing.

    Every part has its row of ``gamma``; their weights are softmax(omega), by default equal. ``xp``
    is the array library of rows and points; the host's is NumPy.
    """

    def __init__(
        self, kernels: Sequence[str], Z: Any, xp: Any, gamma: Array, omega: Array | None = None
    ) -> None:
        shares = np.ones(len(kernels)) if omega is None else np.exp(omega - omega.max())
        self.weights, self.xp, self.parts = shares / shares.sum(), xp, []
        for kernel, scales in zip(kernels, gamma, strict=True):
            if xp is np:
                used: Any = slice(None) if scales.all() else np.flatnonzero(scales)
                scale = scales[used].astype(Z.dtype)
            else:
                used, scale = slice(None), from_host(scales, Z, dtype=Z.dtype)
            points, root = Z[:, used], getattr(FUNCTIONS[kernel], "root_terms", None)
            if kernel == "laplacian":
                right = np.ascontiguousarray(points.T) if xp is np else points * scale
            elif kernel == "linear":
                right = (points * scale).T
            else:  # D = [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'
                norms = (points * points) @ scale[:, None]
                right = xp.concat([points * (-2 * scale), norms, xp.ones_like(norms)], axis=1).T
            self.parts.append(ScaledPart(kernel, root, used, points, scale, right))

    def block(self, X: Any, eye: Any = None) -> tuple[Any, Terms]:
        """Return k(X, Z) and what `derivatives` needs; ``eye``: the rows are the points."""
        terms: Terms = []
        total: Any = None
        for part, weight in zip(self.parts, self.weights.tolist(), strict=True):
            rows = X[:, part.used]
            if part.kernel == "linear":
                value, slope = rows @ part.right, 1.0
            else:
                value, slope = self._near(part, rows)
                if eye is not None:  # the distance of a point to itself is 0 without rounding
                    value, slope = value * (1.0 - eye) + eye, slope * (1.0 - eye)
            terms.append((value, slope))
            total = value * weight if total is None else total + value * weight
        return total, terms

    def _near(self, part: ScaledPart, rows: Any) -> tuple[Any, Any]:
        """Return kappa of the distances of all pairs, and its derivative by D."""
        xp = self.xp
        if part.kernel != "laplacian":
            with np.errstate(invalid="ignore", over="ignore"):  # callers look at the results
                norms = (rows * rows) @ part.gamma[:, None]
                D = xp.concat([rows, xp.ones_like(norms), norms], axis=1) @ part.right
            if part.kernel == "matern12":  # a function of the root magnifies rounding
                digits = (4.0 + rows.shape[1] ** 0.5) * float(xp.finfo(D.dtype).eps)
                near = digits * (norms + xp.max(part.right[-2, :])) >= D
                D = xp.where(near, xp.zeros_like(D), D)
        elif xp is np:
            D = np.empty((len(rows), len(part.Z)), rows.dtype)
            absolute(np.ascontiguousarray(rows), part.right, -part.gamma, D)
        else:
            D, rows = zeros((rows.shape[0], part.Z.shape[0]), rows, rows.dtype), rows * part.gamma
            for f in range(rows.shape[1]):
                D += apply_in_place("abs", rows[:, f][:, None] - part.right[:, f][None, :])
        if part.root_terms is None:
            value = xp.exp(-xp.clip(D, 0.0, _LARGEST_EXPONENT))
            return value, -value
        a, b, c = part.root_terms
        r = xp.sqrt(xp.clip(c * D, 0.0, _LARGEST_EXPONENT**2))
        decay = xp.exp(-r)
        if a == 0.0:  # at distance 0 the product with (x_f - z_f)^2 is 0
            slope = -0.5 * c * decay / xp.sqrt(xp.clip(D, 0.0, None) + _POLE)
            return decay, xp.where(D > 0.0, slope, xp.zeros_like(D))
        slope = decay * (0.5 * c * (2.0 * b - 1.0 - b * r if b else -1.0))
        return (1.0 + r * (a + b * r if b else a)) * decay, slope

    def derivatives(self, G: Any, X: Any, terms: Terms) -> tuple[Array, Array]:
        """Return dS / dgamma and dS / domega through k(X, Z), given G = dS / dk(X, Z)."""
        xp, inner = self.xp, np.zeros(len(self.parts))
        by_gamma = np.zeros((len(self.parts), X.shape[1]))
        for p, part in enumerate(self.parts):
            value, slope = terms[p]
            V, rows, Z = G * slope, X[:, part.used], part.Z
            if part.kernel != "laplacian":
                sums = xp.sum((V.T @ rows) * Z, axis=0)
                if part.kernel != "linear":  # sum_ij V_ij (x_i^2 - 2 x_i z_j + z_j^2)
                    squares = xp.sum(V, axis=1) @ (rows * rows) + xp.sum(V, axis=0) @ (Z * Z)
                    sums = squares - 2.0 * sums
            elif xp is np:
                sums = np.zeros(rows.shape[1])
                absolute_moments(V, np.ascontiguousarray(rows), part.right, sums)
            else:
                sums = zeros((rows.shape[1],), rows, rows.dtype)
                for f in range(rows.shape[1]):
                    apart = apply_in_place("abs", rows[:, f][:, None] - Z[:, f][None, :])
                    sums[f] = xp.sum(V * apart)
            by_gamma[p, part.used] = self.weights[p] * (sums if xp is np else to_host(sums))
            inner[p] = float(xp.sum(xp.vecdot(G, value)))
        return by_gamma, self.weights * (inner - self.weights @ inner)


class ScaledPart(NamedTuple):
    """One kernel of a mixture, and the points as it needs them."""

    kernel: str
    root_terms: tuple[float, float, float] | None  # of a Matérn kernel
    used: Any  # columns
    Z: Any
    gamma: Any
    right: Any  # the right factor of D
