"""Spread and range of every feature, in one pass over the rows: the units that steps use."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, like_rows, namespace, to_host
from leansvm.linalg import dense64
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]
Measures = tuple[float, Array, Array, Array, Array]


@dataclass(frozen=True)
class FeatureUnits:
    """Units of every feature, and how far centres may go."""

    spread: Array  # standard deviation; 1 where a feature is constant
    bounds: tuple[Array, Array]  # the range of the data, widened by its width on both sides


def feature_units(blocks: RowBlocks) -> FeatureUnits:
    """Measure the rows of positive weight."""
    # others may be far away
    origin = blocks.fold(min, _first_that_counts) if blocks.weighted else 0
    first = to_host(dense64(blocks.take(np.array([origin]))))[0]
    n, total, squares, low, high = blocks.fold(_merged, _measure, first)
    if not np.isfinite(squares).all():
        raise ValueError("The squares of the features overflow: scale X.")
    if ((squares == 0.0) & (high > low)).any():
        raise ValueError("The squares of the features are too small, they vanish: scale X.")
    variance = squares / n - np.square(total / n)
    spread = np.sqrt(np.maximum(variance, 0.0))
    # below rounding of the largest deviation there is nothing but noise
    constant = spread <= 1e-7 * np.maximum(np.abs(high - first), np.abs(low - first))
    spread = np.where(constant | (spread == 0.0), 1.0, spread)
    width = np.maximum(high - low, spread)
    return FeatureUnits(spread, (low - width, high + width))


@declare("weight")
def _first_that_counts(block: Block) -> int:
    """Return the number of the first row of positive weight, or a number beyond all."""
    if block.weight is None:
        return block.start
    rows = np.flatnonzero(to_host(block.weight) > 0)
    return block.start + int(rows[0]) if len(rows) else sys.maxsize


@declare("X", "weight")
def _measure(block: Block, first: Array) -> Measures:
    """Return weight, sum and sum of squares of x - first, and the range of x."""
    X = dense64(block.X)
    if X.shape[0] == 0:
        return 0.0, 0 * first, 0 * first, first + np.inf, first - np.inf
    xp, deviation = namespace(X), X - like_rows(first, X)
    weight = xp.ones_like(X[:, 0]) if block.weight is None else as_float64(block.weight)
    used = weight[:, None] > 0
    low = xp.min(xp.where(used, X, np.inf), axis=0)
    high = xp.max(xp.where(used, X, -np.inf), axis=0)
    with np.errstate(over="ignore"):  # looked for in the sum
        sums = weight @ deviation, weight @ (deviation * deviation), low, high
    return float(xp.sum(weight)), *to_host(sums)


def _merged(a: Measures, b: Measures) -> Measures:
    """Return what `_measure` would of two blocks together."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], np.minimum(a[3], b[3]), np.maximum(a[4], b[4])
