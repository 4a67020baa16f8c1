"""Features before a kernel is computed: moved between bounds, and bent by curves.

Rows far out in a heavy tail are near no basis point, so a model knows nothing about them. Clipping
each feature to [lower, upper] moves such rows to the edge of the data (`leansvm.linalg.clipped`;
here is the same for a single row).

A quantile feature is a curve of a feature, given by knots: piecewise linear, rising, and constant
beyond its first and last knot. Learned kernels use q(x) = Phi^-1(F(x)), where F is the distribution
of the feature in the training rows. The knots are quantiles, so that equally many rows lie between
two knots, and values in far tails move close to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from leansvm._array_api import foreign_namespace, like_rows
from leansvm.kernels._function import Array
from leansvm.linalg import Bounds


def inside_bounds(X: Array, bounds: Bounds | None) -> Array:
    """Return 1 if a feature of dense rows is between its bounds, else 0: its slope there."""
    if bounds is None:
        return np.ones(X.shape)
    return ((bounds[0] <= X) & (bounds[1] >= X)).astype(np.float64)


def clipped_row(x: Array, bounds: Bounds | None) -> Array:
    """Return one row moved between the bounds."""
    # faster than np.clip for one row
    return x if bounds is None else np.minimum(np.maximum(x, bounds[0]), bounds[1])


class Curve(NamedTuple):
    """A piecewise linear function of one feature."""

    feature: int
    x: Array  # knots, rising
    y: Array  # values there, rising

    def __call__(self, values: Any) -> Any:
        """Return the curve at values of the feature, an array of any library."""
        xp = foreign_namespace(values)
        if xp is None:
            return np.interp(values, self.x, self.y)
        x, y = (like_rows(side, values, dtype=values.dtype) for side in (self.x, self.y))
        values = xp.clip(values, x[0], x[-1])
        right = xp.clip(xp.searchsorted(x, values), 1, len(self.x) - 1)
        low, high = xp.take(x, right - 1), xp.take(x, right)
        start, stop = xp.take(y, right - 1), xp.take(y, right)
        return start + (values - low) / (high - low) * (stop - start)

    def slope(self, values: Array) -> Array:
        """Return the curve's slope; at a knot that to its right, 0 beyond the ends."""
        steps = np.diff(self.y) / np.diff(self.x)
        place = np.searchsorted(self.x, values, side="right")
        return np.concatenate([[0.0], steps, [0.0]])[place]


class CurvesOfRow:
    """All curves at the features of one row, in a few operations on small arrays."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self.features = np.array([curve.feature for curve in curves])
        self.ends = np.array([(curve.x[0], curve.x[-1]) for curve in curves]).T
        self.inner = np.full((len(curves), max(len(curve.x) for curve in curves) - 1), np.inf)
        for row, curve in zip(self.inner, curves, strict=True):
            row[: len(curve.x) - 2] = curve.x[1:-1]
        self.first = np.cumsum([0, *(len(curve.x) - 1 for curve in curves[:-1])])
        self.x = np.concatenate([curve.x[:-1] for curve in curves])
        self.y = np.concatenate([curve.y[:-1] for curve in curves])
        self.slope = np.concatenate([np.diff(c.y) / np.diff(c.x) for c in curves])

    def __call__(self, x: Array) -> Array:
        values = np.minimum(np.maximum(x[self.features], self.ends[0]), self.ends[1])
        piece = (self.inner <= values[:, None]).sum(axis=1)  # the knots that were passed
        piece += self.first
        values -= self.x[piece]
        values *= self.slope[piece]
        values += self.y[piece]
        return values


def check_curves(knots: Sequence[Any], n_features: int) -> tuple[Curve, ...]:
    """Return curves of features that exist, through two knots or more."""
    curves = []
    for feature, x, y in knots:
        whole = int(feature) if np.isfinite(feature) else -1
        curve = Curve(whole, np.array(x, np.float64), np.array(y, np.float64))
        rises = all(np.isfinite(side).all() and (np.diff(side) > 0).all() for side in curve[1:])
        if curve.x.ndim != 1 or curve.x.shape != curve.y.shape or len(curve.x) < 2 or not rises:
            raise ValueError(
                f"knots of feature {feature} must be two increasing arrays of the same length, "
                f"with two numbers or more."
            )
        if not float(feature).is_integer() or not 0 <= curve.feature < n_features:
            raise ValueError(f"knots: there is no feature {feature}.")
        curves.append(curve)
    return tuple(curves)
