"""A mixture of kernels with a scale for every feature: values, and derivatives by the scales.

k(x, z) = sum_p w_p kappa_p(D_p), where every part has its own scales:

    rbf, matern12, matern32, matern52   kappa falls with D = sum_f gamma_f (x_f - z_f)^2
    laplacian                           kappa = e^-D,       D = sum_f gamma_f |x_f - z_f|
    linear                              kappa = D,          D = sum_f gamma_f x_f z_f

Blocks have the type of the points and are in the same place: on the host or on a device. Compiled
loops over absolute differences are called from Python only, because calls between compiled loops
would change the order of rounding. Imported at the first use: numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import apply_in_place, manhattan
from leansvm._array_api import like_rows, to_host, zeros
from leansvm._compile import compiled
from leansvm.kernels import FUNCTIONS

Array = NDArray[np.float64]
Terms = list[tuple[Any, Any]]  # of every part: kappa, and its derivative by D

_LARGEST_EXPONENT = 80.0  # e^-t of a larger t is next to nothing, and slow if it is subnormal
_POINTS = 512  # whose sums stay in the fastest cache
_LOOP = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}  # runs in vectors
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
        self.weights, self.xp = shares / shares.sum(), xp
        # of each: its columns; the points, their scales, and the right factor of D, of these alone
        self.parts: list[tuple[str, Any, Any, Any, Any]] = []
        for kernel, scales in zip(kernels, gamma, strict=True):
            if xp is np:
                used: Any = slice(None) if scales.all() else np.flatnonzero(scales)
                scale = scales[used].astype(Z.dtype)
            else:
                used, scale = slice(None), like_rows(scales, Z, dtype=Z.dtype)
            points = Z[:, used]
            if kernel == "laplacian":
                right = np.ascontiguousarray(points.T) if xp is np else points * scale
            elif kernel == "linear":
                right = (points * scale).T
            else:  # D = [x, 1, gamma'x^2] [-2 gamma z, gamma'z^2, 1]'
                with np.errstate(invalid="ignore"):  # BLAS also computes with unused memory
                    norms = (points * points) @ scale[:, None]
                right = xp.concat([points * (-2 * scale), norms, xp.ones_like(norms)], axis=1).T
            self.parts.append((kernel, used, points, scale, right))

    def block(self, X: Any, eye: Any = None) -> tuple[Any, Terms]:
        """Return k(X, Z) and what `derivatives` needs; ``eye``: the rows are the points."""
        xp, weights, terms, total = self.xp, self.weights.tolist(), Terms(), None
        for (kernel, used, Z, gamma, right), weight in zip(self.parts, weights, strict=True):
            rows, value, slope = X[:, used], None, 1.0
            root_terms = getattr(FUNCTIONS[kernel], "root_terms", None)
            if kernel == "linear":
                value = rows @ right
            elif kernel == "laplacian" and xp is np:
                exponents = np.empty((len(rows), len(Z)), rows.dtype)
                minus_absolute(np.ascontiguousarray(rows), right, gamma, exponents)
                value = np.exp(exponents, out=exponents)
            elif kernel == "laplacian":
                D = manhattan(rows * gamma, right)
            else:
                with np.errstate(invalid="ignore", over="ignore"):  # callers look at the results
                    norms = (rows * rows) @ gamma[:, None]
                    D = xp.concat([rows, xp.ones_like(norms), norms], axis=1) @ right
            if kernel == "matern12":  # a root magnifies rounding
                digits = (4.0 + rows.shape[1] ** 0.5) * float(xp.finfo(D.dtype).eps)
                near = digits * (norms + xp.max(right[-2, :])) >= D
                D = xp.where(near, xp.zeros_like(D), D)
                value = xp.exp(-xp.sqrt(xp.clip(D, 0.0, _LARGEST_EXPONENT**2)))
                slope = -0.5 * value / xp.sqrt(xp.clip(D, 0.0, None) + _POLE)
                # at distance 0 the product with (x_f - z_f)^2 is 0
                slope = xp.where(D > 0.0, slope, xp.zeros_like(D))
            elif root_terms is not None:  # kappa = (1 + r + b r^2) e^-r, r^2 = c D
                _, b, c = root_terms
                r = xp.sqrt(xp.clip(c * D, 0.0, _LARGEST_EXPONENT**2))
                decay = xp.exp(-r)
                value = (1.0 + r * (1.0 + b * r if b else 1.0)) * decay
                slope = decay * (0.5 * c * (2.0 * b - 1.0 - b * r if b else -1.0))
            elif kernel != "linear":
                value = xp.exp(-xp.clip(D, 0.0, _LARGEST_EXPONENT)) if value is None else value
                slope = -value
            if eye is not None and kernel != "linear":  # a point's distance to itself is 0
                value, slope = value * (1.0 - eye) + eye, slope * (1.0 - eye)
            terms.append((value, slope))
            total = value * weight if total is None else total + value * weight
        return total, terms

    def derivatives(self, G: Any, X: Any, terms: Terms) -> tuple[Array, Array]:
        """Return dS / dgamma and dS / domega through k(X, Z), given G = dS / dk(X, Z)."""
        xp, inner = self.xp, np.zeros(len(self.parts))
        by_gamma = np.zeros((len(self.parts), X.shape[1]))
        for p, (kernel, used, Z, _, right) in enumerate(self.parts):
            value, slope = terms[p]
            V, rows = G * slope, X[:, used]
            if kernel != "laplacian":
                sums = xp.sum((V.T @ rows) * Z, axis=0)
                if kernel != "linear":  # sum_ij V_ij (x_i^2 - 2 x_i z_j + z_j^2)
                    squares = xp.sum(V, axis=1) @ (rows * rows) + xp.sum(V, axis=0) @ (Z * Z)
                    sums = squares - 2.0 * sums
            elif xp is np:
                sums = np.zeros(rows.shape[1])
                absolute_moments(V, np.ascontiguousarray(rows), right, sums)
            else:
                sums = zeros((rows.shape[1],), rows, rows.dtype)
                for f in range(rows.shape[1]):
                    apart = apply_in_place("abs", rows[:, f][:, None] - Z[:, f][None, :])
                    sums[f] = xp.sum(V * apart)
            by_gamma[p, used] = self.weights[p] * (sums if xp is np else to_host(sums))
            inner[p] = float(xp.sum(xp.vecdot(G, value)))
        return by_gamma, self.weights * (inner - self.weights @ inner)


# ---------------------------------------------------------------------------- compiled loops


@compiled(**_LOOP)
def minus_absolute(rows: Any, Zt: Any, gamma: Any, out: Any) -> None:
    """Set out_ij = -sum_f gamma_f |x_if - z_fj|, four features at a time, or the least exponent."""
    n_features, fours = rows.shape[1], rows.shape[1] - rows.shape[1] % 4
    for a in range(0, Zt.shape[1], _POINTS):
        b = min(a + _POINTS, Zt.shape[1])
        for i in range(rows.shape[0]):
            sums = out[i, a:b]
            sums[:] = 0.0
            for f in range(0, fours, 4):
                x0, x1, x2, x3 = rows[i, f], rows[i, f + 1], rows[i, f + 2], rows[i, f + 3]
                g0, g1, g2, g3 = gamma[f], gamma[f + 1], gamma[f + 2], gamma[f + 3]
                # slices of one row: their values lie side by side
                z0, z1, z2, z3 = Zt[f, a:b], Zt[f + 1, a:b], Zt[f + 2, a:b], Zt[f + 3, a:b]
                for j in range(b - a):
                    sums[j] -= (
                        g0 * abs(x0 - z0[j])
                        + g1 * abs(x1 - z1[j])
                        + g2 * abs(x2 - z2[j])
                        + g3 * abs(x3 - z3[j])
                    )
            for f in range(fours, n_features):
                x0, g0, z0 = rows[i, f], gamma[f], Zt[f, a:b]
                for j in range(b - a):
                    sums[j] -= g0 * abs(x0 - z0[j])
            for j in range(b - a):
                sums[j] = -_LARGEST_EXPONENT if sums[j] < -_LARGEST_EXPONENT else sums[j]


@compiled(**_LOOP)
def absolute_moments(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Add sum_ij V_ij |x_if - z_fj| to out_f, two features at a time."""
    n_features, twos = rows.shape[1], rows.shape[1] - rows.shape[1] % 2
    for i in range(rows.shape[0]):
        v = V[i]
        for f in range(0, twos, 2):
            x0, x1, z0, z1 = rows[i, f], rows[i, f + 1], Zt[f], Zt[f + 1]
            sum0 = sum1 = v[0] - v[0]  # 0 of the type of V
            for j in range(v.shape[0]):
                sum0 += v[j] * abs(x0 - z0[j])
                sum1 += v[j] * abs(x1 - z1[j])
            out[f] += sum0
            out[f + 1] += sum1
        for f in range(twos, n_features):
            x0, z0, sum0 = rows[i, f], Zt[f], v[0] - v[0]
            for j in range(v.shape[0]):
                sum0 += v[j] * abs(x0 - z0[j])
            out[f] += sum0
