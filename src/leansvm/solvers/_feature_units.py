"""Spread and range of every feature, in one pass over the rows: the units that steps use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import to_host
from leansvm.blocks import Block, RowBlocks
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
    first = dense64(blocks.take(np.array([0])))[0]
    parts = blocks.map(_measure, first)
    weight, total, squares = (sum(part[k] for part in parts) for k in range(3))
    low = np.min([part[3] for part in parts], axis=0)
    high = np.max([part[4] for part in parts], axis=0)
    variance = squares / weight - np.square(total / weight)
    spread = np.sqrt(np.maximum(variance, 0.0))
    # below rounding of the largest deviation there is nothing but noise
    constant = spread <= 1e-7 * np.maximum(np.abs(high - first), np.abs(low - first))
    return FeatureUnits(np.where(constant | (spread == 0.0), 1.0, spread), low, high)


def _measure(block: Block, first: Array) -> tuple[float, Array, Array, Array, Array]:
    X = dense64(block.X)
    weight = np.ones(len(X)) if block.weight is None else np.asarray(to_host(block.weight))
    used = X if block.weight is None else X[weight > 0]
    deviation = X - first
    low = used.min(axis=0, initial=np.inf)
    high = used.max(axis=0, initial=-np.inf)
    return float(weight.sum()), weight @ deviation, weight @ np.square(deviation), low, high
