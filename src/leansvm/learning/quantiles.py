"""Quantile features of a sample: q(x) = Phi^-1(F(x)) as a curve through some knots.

F is the share of rows below x, half of the equal ones counted. Features of few values need no such
copy, nor do those whose copy is almost the feature itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from leansvm.kernels._curves import Curve

Array = NDArray[np.float64]

_KNOTS, _FEWEST_VALUES = 64, 10
_END = 0.002  # shares of rows beyond which the curve is flat
_SAME = 0.99  # correlation from which on a copy says what the feature says


def quantile_curves(X: Array, weight: Array, features: NDArray[np.intp]) -> tuple[Curve, ...]:
    """Return a curve for each of these features that a copy may help."""
    found = (_curve(int(f), X[:, f], weight) for f in features)
    return tuple(curve for curve in found if curve is not None)


def _curve(feature: int, x: Array, weight: Array) -> Curve | None:
    values, place = np.unique(x, return_inverse=True)
    if len(values) < _FEWEST_VALUES:
        return None
    share = np.bincount(place, weight) / weight.sum()
    below = np.cumsum(share) - 0.5 * share
    wanted = np.linspace(_END, 1.0 - _END, _KNOTS)
    knots = np.unique(np.searchsorted(below, wanted).clip(0, len(values) - 1))
    y = ndtri(below[knots].clip(_END, 1.0 - _END))
    kept = np.append(True, np.diff(y) > 0)
    curve = Curve(feature, values[knots][kept], y[kept])
    if kept.sum() < 2 or _correlation(x, curve(x), weight) > _SAME:
        return None
    return curve


def _correlation(x: Array, y: Array, weight: Array) -> float:
    centred = [v - np.average(v, weights=weight) for v in (x / np.abs(x).max(), y)]
    products = np.array([[np.average(a * b, weights=weight) for a in centred] for b in centred])
    spread = float(products[0, 0] * products[1, 1])
    return float(products[0, 1]) / spread**0.5 if spread > 0 else 0.0
