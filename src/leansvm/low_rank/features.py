"""The map x -> phi(x) of learned functions (fang2019), and the units that their steps use."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, like_rows, namespace, to_host
from leansvm.basis.features import FeatureMap
from leansvm.linalg import dense64
from leansvm.low_rank.functions import BasisFunction, SeparableFunction
from leansvm.rows import Block, RowBlocks, declare, row_weights

Array = NDArray[np.float64]
Measures = tuple[float, Array, Array, Array, Array]


@dataclass
class LearnedValues:
    """What a block keeps: the values of one map at its rows."""

    features: LearnedFeatures
    values: Any  # rows x functions


@dataclass(frozen=True, eq=False)
class LearnedFeatures(FeatureMap):
    """Functions phi_j with their centres and shapes; blocks remember the values of one map."""

    function: BasisFunction
    centers: Array  # functions x features
    shapes: Array
    constant: float | None = None
    order: ClassVar[Literal["C", "F"]] = "F"

    @cached_property
    def size(self) -> int:
        """Number of functions."""
        return len(self.centers)

    @cached_property
    def width(self) -> int:
        """Number of columns: the functions and, if there is one, that of the bias."""
        return len(self.centers) + (self.constant is not None)

    def phi(self, X: Any, out: Any = None) -> Any:
        """Return phi_j(x_n); functions of a user's own know NumPy alone."""
        X = dense64(X)
        if isinstance(self.function, SeparableFunction):
            values = self.function.values(X, self.centers, self.shapes)
        else:
            values = like_rows(self.function.values(to_host(X), self.centers, self.shapes), X)
        if out is None:
            return values
        out[...] = values
        return out

    def values(self, block: Block) -> Any:
        """Return phi_j(x_n) of a block's rows, which the block keeps (`LearnedValues`).

        Where it knows them for a map that differs in one function, that one alone is computed.
        """
        known, changed = block.state.get(LearnedValues), np.arange(self.size)
        if known is not None and known.features is self:
            return known.values
        if known is not None and known.features.size == self.size:
            before = known.features
            moved = (before.centers != self.centers) | (before.shapes != self.shapes)
            changed = np.flatnonzero(moved.any(axis=1))
        if known is None or len(changed) != 1:
            values = self.phi(block.X)
        else:
            values, one = known.values + 0.0, slice(changed[0], changed[0] + 1)
            alone = replace(self, centers=self.centers[one], shapes=self.shapes[one])
            values[:, one] = alone.phi(block.X)
        block.keep(LearnedValues(self, values))
        return values

    def of(self, block: Block, out: Any = None) -> Any:
        """Return all columns of a block's rows."""
        values = self.values(block)
        if out is None:
            if self.constant is None:
                return values
            out = self._empty(values)
        out[:, : self.size] = values
        if self.constant is not None:
            out[:, self.size] = self.constant
        return out

    def coefficients(self, theta: Array) -> Array:
        """Return the weights of the functions alone."""
        return np.ascontiguousarray(theta[: self.size])


# ---------------------------------------------------------------------------- units of the rows


@dataclass(frozen=True)
class FeatureUnits:
    """Units of every feature, and how far centres may go."""

    spread: Array  # standard deviation; 1 where a feature is constant
    bounds: tuple[Array, Array]  # the range of the data, widened by its width on both sides


def feature_units(blocks: RowBlocks) -> FeatureUnits:
    """Measure the rows of positive weight: one pass over the rows."""
    # others may be far away
    origin = blocks.fold(min, _first_that_counts) if blocks.weighted else 0
    first = to_host(dense64(blocks.take(np.array([origin]))))[0]
    n, total, squares, low, high = blocks.fold(_merged, _measure, first)
    if not np.isfinite(squares).all():
        raise ValueError("The squares of the features overflow: scale X.")
    if ((squares == 0.0) & (high > low)).any():
        raise ValueError("The squares of the features are too small, they vanish: scale X.")
    spread = np.sqrt(np.maximum(squares / n - np.square(total / n), 0.0))
    # below rounding of the largest deviation there is nothing but noise
    constant = spread <= 1e-7 * np.maximum(np.abs(high - first), np.abs(low - first))
    spread = np.where(constant | (spread == 0.0), 1.0, spread)
    width = np.maximum(high - low, spread)
    return FeatureUnits(spread, (low - width, high + width))


@declare("weight")
def _first_that_counts(block: Block) -> int:
    """Return the number of the first row of positive weight, or a number beyond all."""
    rows = np.flatnonzero(to_host(row_weights(block)) > 0)
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
