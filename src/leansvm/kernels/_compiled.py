"""Loops that NumPy has no single pass for, written so that they run in vector registers.

Imported at the first use: numba takes a while to load. In the sums over features ``rows`` has one
row for each x, ``Zt`` one row for each feature, and the points are innermost. Sums may be
reassociated, in an order that the shapes alone fix.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from leansvm._compile import compiled

_OPTIONS = {
    "error_model": "numpy",  # a division that may raise does not run in vectors
    "fastmath": {"reassoc", "contract", "nsz"},
}
_IN_ORDER = _OPTIONS | {"fastmath": {"contract", "nsz"}}  # rounding as written
_POINTS = 512  # whose sums stay in the fastest cache
_LOG2_E = 1.4426950408889634
# ln 2 = high + low: a whole number below 2^20 times the high part is exact
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_FURTHEST = 700.0  # largest r of e^-r: avoids subnormal numbers
_ROUND = 6755399441055744.0  # 1.5 * 2^52: a sum with it is a whole number, in its lowest bits


@compiled(**_OPTIONS)
def absolute(rows: Any, Zt: Any, weights: Any, out: Any) -> None:
    """Set out_ij = -sum_f weights_f |x_if - z_fj|, four features at a time."""
    n_features, fours = rows.shape[1], rows.shape[1] - rows.shape[1] % 4
    for a in range(0, Zt.shape[1], _POINTS):
        b = min(a + _POINTS, Zt.shape[1])
        for i in range(rows.shape[0]):
            sums = out[i, a:b]
            sums[:] = 0.0
            for f in range(0, fours, 4):
                x0, x1, x2, x3 = rows[i, f], rows[i, f + 1], rows[i, f + 2], rows[i, f + 3]
                w0, w1, w2, w3 = weights[f], weights[f + 1], weights[f + 2], weights[f + 3]
                # slices of one row: their values lie side by side
                z0, z1, z2, z3 = Zt[f, a:b], Zt[f + 1, a:b], Zt[f + 2, a:b], Zt[f + 3, a:b]
                for j in range(b - a):
                    sums[j] -= (
                        w0 * abs(x0 - z0[j])
                        + w1 * abs(x1 - z1[j])
                        + w2 * abs(x2 - z2[j])
                        + w3 * abs(x3 - z3[j])
                    )
            for f in range(fours, n_features):
                x0, w0, z0 = rows[i, f], weights[f], Zt[f, a:b]
                for j in range(b - a):
                    sums[j] -= w0 * abs(x0 - z0[j])


@compiled(**_OPTIONS)
def chi2(rows: Any, Zt: Any, tiny: Any, out: Any) -> None:
    """Set out_ij = -sum_f (x_if - z_fj)^2 / (x_if + z_fj); sums below tiny count as tiny."""
    for a in range(0, Zt.shape[1], _POINTS):
        b = min(a + _POINTS, Zt.shape[1])
        for i in range(rows.shape[0]):
            sums = out[i, a:b]
            sums[:] = 0.0
            for f in range(rows.shape[1]):
                x, z = rows[i, f], Zt[f, a:b]
                for j in range(b - a):
                    difference, total = x - z[j], x + z[j]
                    sums[j] -= difference * difference / (total if total > tiny else tiny)


@compiled(**_IN_ORDER)
def decay(r: float) -> float:
    """Return e^-r for r >= 0; beyond 700 it is e^-700, next to nothing.

    e^-r = 2^n e^x with a whole number n and |x| <= ln(2) / 2; e^x is its Taylor polynomial, whose
    error is 1e-17, and n is added to the exponent of the result. n is above -1022.
    """
    r = r if r < _FURTHEST else _FURTHEST
    shifted = _ROUND - r * _LOG2_E
    n = shifted - _ROUND
    x = (-r - n * _LN2_HIGH) - n * _LN2_LOW
    e = 1.0 / 6227020800.0
    e = e * x + 1.0 / 479001600.0
    e = e * x + 1.0 / 39916800.0
    e = e * x + 1.0 / 3628800.0
    e = e * x + 1.0 / 362880.0
    e = e * x + 1.0 / 40320.0
    e = e * x + 1.0 / 5040.0
    e = e * x + 1.0 / 720.0
    e = e * x + 1.0 / 120.0
    e = e * x + 1.0 / 24.0
    e = e * x + 1.0 / 6.0
    e = e * x + 0.5
    e = e * x + 1.0
    e = e * x + 1.0
    exponent = np.float64(shifted).view(np.int64) << 52
    return np.int64(np.float64(e).view(np.int64) + exponent).view(np.float64)


@compiled(**_IN_ORDER)
def matern(values: Any, linear: float, quadratic: float, furthest: float) -> None:
    """Replace r^2 by (1 + linear r + quadratic r^2) e^-r, with r between 0 and ``furthest``."""
    largest = furthest * furthest
    for i in range(values.shape[0]):
        squared = np.float64(values[i])
        above = squared if squared > 0.0 else 0.0
        r = sqrt(above if above < largest else largest)
        values[i] = (1.0 + r * (linear + r * quadratic)) * decay(r)


# ------------------------------------------------------------------ gradients


@compiled(**_OPTIONS)
def sign_sums(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Set out_if = sum_j V_ij sign(x_if - z_fj)."""
    for i in range(rows.shape[0]):
        v = V[i]
        for f in range(rows.shape[1]):
            x, z, total = rows[i, f], Zt[f], 0.0
            for j in range(v.shape[0]):
                total += v[j] * (np.float64(x > z[j]) - np.float64(x < z[j]))
            out[i, f] = total


@compiled(**_OPTIONS)
def chi2_sums(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Set out_if = sum_j V_ij (x - z)(x + 3 z) / (x + z)^2, the ratio 1 at x = z = 0."""
    for i in range(rows.shape[0]):
        v = V[i]
        for f in range(rows.shape[1]):
            x, z, total = rows[i, f], Zt[f], 0.0
            for j in range(v.shape[0]):
                sum_ = x + z[j]
                slope = (x - z[j]) * (x + 3.0 * z[j]) / (sum_ * sum_)
                total += v[j] * (slope if sum_ > 0.0 else 1.0)
            out[i, f] = total


# ------------------------------------------------------------------ partial dependence


@compiled(**_IN_ORDER)
def add_decays(base: Any, own: Any, out: Any) -> None:
    """Add e^-(base - own) of every row to ``out``, one number for each point."""
    for i in range(base.shape[0]):
        b, o = base[i], own[i]
        for j in range(base.shape[1]):
            rest = b[j] - o[j]
            out[j] += decay(rest if rest > 0.0 else 0.0)


@compiled(**_IN_ORDER)
def add_sigmoids(A: Any, B: Any, out: Any) -> None:
    """Add tanh(a_ij + b_jv) of every row to out_jv, given A = e^2a and B = e^2b."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            a, values, factors = A[i, j], out[j], B[j]
            for v in range(factors.shape[0]):
                values[v] += 1.0 - 2.0 / (a * factors[v] + 1.0)
