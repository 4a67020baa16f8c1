"""Draw row numbers at random, by sample weights, the same rows wherever they stand.

What is drawn is a place in an order of the rows that their values decide: not their places, nor the
units of the features. Rows are put in order by

    t(x, y) = sum_j b_j (x_j - min_j) / (max_j - min_j)  +  a little of the same of y,

where b_j depends on how feature j is distributed. Rows in another order have the same t to the last
bit; other units, float32 and another order of the features change it by rounding. Per row 20 bytes
come to the host, from wherever the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import (
    as_float64,
    foreign_namespace,
    like_rows,
    namespace,
    rows_at,
    to_host,
    zeros,
)
from leansvm.linalg import canonical_csr
from leansvm.rows._blocks import Block, MemoryBlocks, RowBlocks, declare
from leansvm.rows._targets import class_numbers

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_FIRST_DRAWS = 512  # draws in the first round
_GRID = 1e6 * np.pi  # cells to which the mean of a feature, from 0 to 1, is rounded
_TARGETS = 1e-7  # of the targets in t: for rows that are equal in X
_TWINS = 1e-9  # of what tells features apart that are distributed alike


# ---------------------------------------------------------------------------- the order of rows


class RowOrder(NamedTuple):
    """Rows of positive weight in the order in which they are drawn from, and their weights."""

    rows: Rows
    weight: Array  # sample weights: without those of the classes, which are costs of errors
    ends: tuple[Array, Array] | None  # least and largest value of every feature; by values alone


def order_of(blocks: RowBlocks, by_values: bool = False) -> RowOrder:
    """Return the order that the rows are drawn from, found once for each `RowBlocks`.

    The order of their values, which takes two passes, where that is asked for here or by
    ``blocks.by_values``; otherwise they stay in their places, which takes none without weights.
    """
    by_values = by_values or blocks.by_values
    blocks.orders = {} if blocks.orders is None else blocks.orders
    if by_values not in blocks.orders:
        order, weight, ends = np.arange(blocks.n_rows), None, None
        if by_values:
            ranges = blocks.fold(_joined_ranges, _ranges_of_block, blocks.class_weight)
            line = _line(ranges, blocks.n_features)
            ends = ranges[1][: blocks.n_features], ranges[2][: blocks.n_features]
            t, weight = blocks.collect(_values_of_block, line, blocks.class_weight)
            order = np.argsort(t, kind="stable")
        elif blocks.class_weight is not None:
            (weight,) = blocks.collect(_weights_by_class, blocks.class_weight)
        elif blocks.weighted:
            (weight,) = blocks.collect(_weights_of_block)
        weight = np.ones(len(order)) if weight is None else weight[order]
        blocks.orders[by_values] = RowOrder(order[weight > 0], weight[weight > 0], ends)
    return blocks.orders[by_values]


def canonical_order(X: Any, Y: NDArray[Any]) -> Rows:
    """Return an order of rows that depends on their values alone, not on their places or units."""
    return order_of(MemoryBlocks(X, Y), by_values=True).rows


def _line(ranges: tuple[Any, ...], n_features: int) -> tuple[Array, Array]:
    """Return the least value of every column of X and y, and what the difference is multiplied by.

    Features that are distributed alike are told apart by their numbers, a little.
    """
    total, low, high, sums = ranges
    own = np.random.default_rng(0).uniform(0.5, 1.5, len(low))
    with np.errstate(all="ignore"):
        width = high - low
        mean = np.floor(_GRID * ((sums / total - low) / width)) / _GRID
        factor = 0.5 + mean + _TWINS * own
        factor[n_features:] = _TARGETS * own[n_features:]
        factor /= width
    varies = (width > 0) & np.isfinite(width) & np.isfinite(factor)
    return np.where(varies, low, 0.0), np.where(varies, factor, 0.0)


@declare("X", "y", "weight")
def _ranges_of_block(block: Block, class_weight: Array | None) -> tuple[Any, ...]:
    """Return the sum of weights, and of all columns of X and y minimum, maximum and sum."""
    total, weight, used = float(block.stop - block.start), None, None
    if block.weight is not None:
        weight = sample_weights(block, class_weight)
        used = np.flatnonzero(to_host(weight) > 0)
        weight = rows_at(weight, used)
        total = float(namespace(weight).sum(weight))
    low, high, sums = [], [], []
    for part in (block.X, block.y):
        if part is None:
            continue
        part = part if used is None else rows_at(part, used)
        if sparse.issparse(part):
            found: Any = _ranges_of_csr(part, weight)
        elif part.shape[0] == 0:
            found = np.array([np.inf, -np.inf, 0.0])[:, None] * np.ones(part.shape[1])
        else:
            xp, part = namespace(part), as_float64(part)
            with np.errstate(over="ignore", invalid="ignore"):
                added = xp.sum(part, axis=0) if weight is None else weight @ part
            found = to_host((xp.min(part, axis=0), xp.max(part, axis=0), added))
        low.append(found[0])
        high.append(found[1])
        sums.append(found[2])
    return total, np.concatenate(low), np.concatenate(high), np.concatenate(sums)


def _ranges_of_csr(X: Any, weight: Any) -> tuple[Array, Array, Array]:
    X = canonical_csr(X)
    low, high = np.full((2, X.shape[1]), [[np.inf], [-np.inf]])
    np.minimum.at(low, X.indices, X.data)
    np.maximum.at(high, X.indices, X.data)
    holes = np.bincount(X.indices, minlength=X.shape[1]) < X.shape[0]
    low[holes], high[holes] = np.minimum(low[holes], 0.0), np.maximum(high[holes], 0.0)
    ones = np.ones(X.shape[0]) if weight is None else weight
    return low, high, np.asarray(X.T @ ones, dtype=np.float64)


def _joined_ranges(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return a[0] + b[0], np.minimum(a[1], b[1]), np.maximum(a[2], b[2]), a[3] + b[3]


@declare("X", "y", "weight")
def _values_of_block(
    block: Block, line: tuple[Array, Array], class_weight: Array | None
) -> tuple[Array, Array | None]:
    """Return t and the sample weight of every row."""
    d = block.X.shape[1]
    t = _along(block.X, line[0][:d], line[1][:d])
    if block.y is not None:
        t += _along(block.y, line[0][d:], line[1][d:])
    return t, None if block.weight is None else to_host(sample_weights(block, class_weight))


@declare("weight")
def _weights_of_block(block: Block) -> tuple[Array]:
    return (to_host(row_weights(block)),)


@declare("y", "weight")
def _weights_by_class(block: Block, class_weight: Array) -> tuple[Array]:
    return (to_host(sample_weights(block, class_weight)),)


def row_weights(block: Block) -> Any:
    """Return a copy of the block's weights, where the rows are; ones where there are none."""
    ones = zeros((block.stop - block.start,), block.X)
    ones += 1.0
    return ones if block.weight is None else ones * as_float64(block.weight)


def sample_weights(block: Block, class_weight: NDArray[np.float64] | None) -> Any:
    """Return a copy of the block's weights without those of the classes (None: there are none)."""
    weight = row_weights(block)
    if class_weight is None:
        return weight
    by = np.divide(1.0, class_weight, out=np.zeros(len(class_weight)), where=class_weight > 0)
    return weight * like_rows(by[class_numbers(to_host(block.y))], weight)


def _along(X: Any, low: Array, factor: Array) -> Array:
    """Return sum_j factor_j (x_j - low_j); a row's does not depend on where the row is."""
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(X):
            return np.asarray(canonical_csr(X) @ factor, dtype=np.float64)
        if foreign_namespace(X) is None:
            return np.asarray(np.einsum("ij,j->i", as_float64(X) - low, factor))
        return np.array(to_host((as_float64(X) - like_rows(low, X)) @ like_rows(factor, X)))


# ---------------------------------------------------------------------------- drawing


def _places_at(mass: Array, shares: Callable[[], Any]) -> Rows:
    """Return the places at shares from 0 to 1 of the mass; without mass none, nor any share."""
    edges = np.cumsum(mass)
    if not len(edges) or not edges[-1] > 0:
        return np.empty(0, np.intp)
    last = np.searchsorted(edges, edges[-1])  # the last place with any mass
    return np.minimum(np.searchsorted(edges, shares() * edges[-1], side="right"), last)


def draw_by_weight(blocks: RowBlocks, rng: np.random.RandomState, count: int) -> Rows:
    """Draw rows with replacement by their sample weights."""
    order = order_of(blocks)
    return order.rows[_places_at(order.weight, partial(rng.random_sample, count))]


class WeightedSample:
    """Rows one after the other, each new one with probability proportional to its sample weight.

    The order in which distinct points would appear if every row stood there as often as its
    weight says and were drawn at random; rows of zero weight never come. Class weights are costs
    of errors, not repetitions: they would draw all rows of a rare class.
    """

    def __init__(
        self, blocks: RowBlocks, rng: np.random.RandomState, by_values: bool = False
    ) -> None:
        self._order, self._rng = order_of(blocks, by_values), rng
        self._left = self._order.weight.copy()  # of rows that are not drawn yet
        self.rows = np.empty(0, np.intp)  # drawn so far, in order

    def first(self, count: int) -> Rows:
        """Return the first ``count`` rows, or all there are."""
        while len(self.rows) < count:
            # as many as past draws tell, so that short samples are prefixes of long ones
            draws = max(_FIRST_DRAWS, len(self.rows))
            places = _places_at(self._left, partial(self._rng.random_sample, draws))
            if not len(places):
                break
            places = places[np.sort(np.unique(places, return_index=True)[1])]
            self._left[places] = 0.0
            self.rows = np.concatenate([self.rows, self._order.rows[places]])
        return self.rows[:count]


def weights_of_drawn(blocks: RowBlocks, Y: NDArray[Any], weight: Array) -> tuple[float, Array]:
    """Return what rows drawn by their sample weights count: one number times class weights.

    The number is the mean sample weight of all rows, as far as the drawn ones tell.
    """
    costs = _costs(blocks, Y)
    return len(weight) / float(np.sum(costs / weight)), costs


def _costs(blocks: RowBlocks, Y: NDArray[Any]) -> Array:
    """Return the class weight of every row."""
    if blocks.class_weight is None:
        return np.ones(len(Y))
    return blocks.class_weight[class_numbers(np.asarray(Y))]


# ---------------------------------------------------------------------------- for all rows


@dataclass(frozen=True)
class DrawnRows:
    """Rows that stand for all rows: sums over them, times ``weight``, estimate sums over all."""

    rows: Rows  # their numbers, which increase
    weight: Array  # that each stands for
    n_rows: int  # that were drawn from

    def as_data(self, blocks: RowBlocks, columns: int = 0) -> MemoryBlocks:
        """Return them as a smaller data set: weights are as large, on average, as those of all."""
        X, (Y, _) = blocks.take(self.rows), blocks.targets_of(self.rows)
        weight, by_class = self.weight * len(self.rows) / self.n_rows, blocks.class_weight
        return MemoryBlocks(X, Y, weight, class_weight=by_class, columns=columns)

    def as_rows(self, blocks: RowBlocks, columns: int = 0) -> MemoryBlocks:
        """Return them with the weights they have; blocks keep what each `StandsFor`."""
        Y, weight = blocks.targets_of(self.rows)
        part = MemoryBlocks(blocks.take(self.rows), Y, weight, columns=columns)
        part.map(_keep_shares, self.weight if weight is None else self.weight / weight)
        return part


def draw_for_all(
    blocks: RowBlocks, count: int, rng: np.random.RandomState, without: Rows | None = None
) -> DrawnRows:
    """Draw about ``count`` rows by their sample weights, rare classes more often than others.

    One row is drawn in each of many intervals of equal mass, so a heavy row may come several times
    and then stands for more. A class has at least half of an equal share of the draws, or all of
    its rows. Where there are no more rows than ``count``, all are taken. Rows of zero weight, and
    those ``without``, never come. Row numbers increase, as those of blocks do.
    """
    order = order_of(blocks)
    open_rows = np.ones(len(order.rows), bool)
    if without is not None:
        open_rows = ~np.isin(order.rows, without)
    rows, own = order.rows[open_rows], order.weight[open_rows]
    if len(rows) <= count:
        rows = np.sort(rows)
        weight = blocks.targets_of(rows)[1]
        return DrawnRows(rows, np.ones(len(rows)) if weight is None else weight, len(rows))
    (stratum,) = blocks.collect(_classes_of_block)
    stratum, fewest = stratum[rows], 2
    if (stratum < 0).any():  # some targets are no codes of classes
        stratum, fewest = np.zeros(len(rows), np.intp), 1
    sizes = np.bincount(stratum, minlength=fewest)
    weights = np.bincount(stratum, own, minlength=fewest)
    fair = np.minimum(sizes, count / (2 * len(sizes)))
    wanted = np.maximum(count * weights / weights.sum(), fair)
    rate = np.divide(wanted, weights, out=np.zeros(len(weights)), where=weights > 0)[stratum]
    number = round(float(wanted.sum()))

    def shares() -> Array:
        return (np.arange(number) + rng.random_sample(number)) / number

    found, times = np.unique(_places_at(own * rate, shares), return_counts=True)
    weight = times * float(wanted.sum()) / number / rate[found]
    rows = rows[found]
    places = np.argsort(rows)
    rows, weight = rows[places], weight[places]
    if blocks.class_weight is not None:
        weight *= _costs(blocks, blocks.targets_of(rows)[0])
    return DrawnRows(rows, weight, len(own))


@dataclass
class StandsFor:
    """How many rows like it each row of a block stands for."""

    rows: Array


@declare(keeps=StandsFor)
def _keep_shares(block: Block, share: Array) -> None:
    block.keep(StandsFor(share[block.rows]))


@declare("y")
def _classes_of_block(block: Block) -> tuple[Rows]:
    """Return the class of every row, -1 where targets are no codes +-1."""
    Y = None if block.y is None else np.asarray(to_host(block.y))
    if Y is None or not np.all(np.abs(Y) == 1.0):
        return (np.full(block.stop - block.start, -1),)
    return (class_numbers(Y),)


def total_weight(blocks: RowBlocks) -> float:
    """Return the sum of the weights of all rows; without weights their number, without a pass."""
    return float(blocks.sum(_count_of_block)[1]) if blocks.weighted else float(blocks.n_rows)


def positive_rows(blocks: RowBlocks) -> int:
    """Return the number of rows of positive weight; without weights all, without a pass."""
    return int(blocks.sum(_count_of_block)[0]) if blocks.weighted else blocks.n_rows


@declare("weight")
def _count_of_block(block: Block) -> tuple[int, float]:
    """Return the number of rows of positive weight, and the sum of weights."""
    weight = row_weights(block)
    return int(np.count_nonzero(to_host(weight) > 0)), float(namespace(weight).sum(weight))
