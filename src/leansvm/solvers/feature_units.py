"""Spread and range of every feature, in one pass over the rows: the units that steps use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import like_rows, namespace, to_host
from leansvm.blocks import Block, RowBlocks, declare, row_weights
from leansvm.linalg import dense64

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureUnits:
    """Standard deviation (1 where a feature is constant) and range of every feature."""

    spread: Array
    low: Array
    high: Array

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Where centres may go: as far outside the data as these are wide."""
        width = np.maximum(self.high - self.low, self.spread)
        return self.low - width, self.high + width


def feature_units(blocks: RowBlocks) -> FeatureUnits:
    """Measure the rows of positive weight."""
    first = to_host(dense64(blocks.take(np.array([0]))))[0]
    parts = blocks.map(_measure, first)
    weight, total, squares = (sum(part[k] for part in parts) for k in range(3))
    low = np.min([part[3] for part in parts], axis=0)
    high = np.max([part[4] for part in parts], axis=0)
    variance = squares / weight - np.square(total / weight)
    spread = np.sqrt(np.maximum(variance, 0.0))
    # below rounding of the largest deviation there is nothing but noise
    constant = spread <= 1e-7 * np.maximum(np.abs(high - first), np.abs(low - first))
    return FeatureUnits(np.where(constant | (spread == 0.0), 1.0, spread), low, high)


@declare("X", "weight")
def _measure(block: Block, first: Array) -> tuple[float, Array, Array, Array, Array]:
    X, weight = dense64(block.X), row_weights(block)
    xp, used = namespace(X), weight[:, None] > 0
    deviation = X - like_rows(first, X)
    if X.shape[0] == 0:
        return 0.0, 0 * first, 0 * first, first + np.inf, first - np.inf
    low = xp.min(xp.where(used, X, np.inf), axis=0)
    high = xp.max(xp.where(used, X, -np.inf), axis=0)
    sums = weight @ deviation, weight @ (deviation * deviation), low, high
    return float(xp.sum(weight)), *to_host(sums)
