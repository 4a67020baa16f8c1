"""Values and slopes of kernels in one pass over distances; imported at the first use."""

from __future__ import annotations

from math import sqrt
from typing import Any

from leansvm._compile import compiled
from leansvm.kernels._compiled import absolute, absolute_moments, decay

_OPTIONS = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}  # rounding as written
_FURTHEST = 700.0  # r beyond which e^-r is no normal number, and slow
_POLE = 1e-12  # added to D under the root in the slope of e^-sqrt(D), which is infinite at 0


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
def matern(D: Any, least: Any, factor: float, linear: float, quadratic: float, slope: Any) -> None:
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
