"""Draw row numbers at random.

By sample weights: places in an order that the rows' values decide (`leansvm.rows._order`), so that
the same rows are drawn wherever they stand. `draw_rows` draws by probabilities that live in the
blocks, and nothing of the size of the data travels; there the order of the rows counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host
from leansvm.rows._base import Block, RowBlocks, declare
from leansvm.rows._memory import MemoryBlocks
from leansvm.rows._order import Array, Rows, order_of, row_weights
from leansvm.rows._targets import class_numbers

Mass = Callable[..., Any]
_BATCH = 512  # draws in the first round


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
        self.rows = np.empty(0, np.intp)

    def grow(self) -> bool:
        """Draw some more rows; False when there are none left."""
        # a count that depends on past draws alone, so that short samples are prefixes of long ones
        count = max(_BATCH, len(self.rows))
        places = _places_at(self._left, partial(self._rng.random_sample, count))
        places = places[np.sort(np.unique(places, return_index=True)[1])]
        self._left[places] = 0.0
        self.rows = np.concatenate([self.rows, self._order.rows[places]])
        return len(places) > 0

    def first(self, count: int) -> Rows:
        """Return the first ``count`` rows, or all there are."""
        while len(self.rows) < count and self.grow():
            pass
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


# ---------------------------------------------------------------------------- by what blocks hold


def draw_rows(
    blocks: RowBlocks, rng: np.random.RandomState, count: int, mass: Mass, *args: Any
) -> Rows:
    """Draw ``count`` rows with replacement, with probabilities ``mass(block, *args)``.

    Two-level inverse CDF: the blocks send the sums of their masses, the host draws and says which
    block a draw falls into, the block finds the row. A seed gives the same rows whatever the
    blocks. No rows when there is no mass. ``mass`` must be a module-level function of the blocks'
    weights (and targets where these are weighted by class) and state.
    """
    by_class = blocks.class_weight is not None
    total: Callable[..., Any] = _total_by_class if by_class else _total
    locate: Callable[..., Any] = _locate_by_class if by_class else _locate
    starts, totals = blocks.collect(total, mass, args)
    edges = np.cumsum(np.append(0.0, totals))
    if not edges[-1] > 0:
        return np.empty(0, np.intp)
    targets = rng.random_sample(count) * edges[-1]
    # the last block that begins at or before the target; blocks without mass begin and end there
    home = np.searchsorted(edges, targets, side="right") - 1
    home = np.minimum(home, np.flatnonzero(np.diff(edges))[-1])
    mine, rows = blocks.collect(locate, mass, args, starts[home], targets - edges[home])
    result = np.empty(len(targets), np.intp)
    result[mine] = rows
    return result


@declare("weight")
def _total(block: Block, mass: Mass, args: tuple[Any, ...]) -> tuple[Rows, Array]:
    edges = _running_sum(mass(block, *args))
    return np.array([block.start]), np.array([float(edges[-1]) if edges.shape[0] else 0.0])


@declare("weight")
def _locate(
    block: Block, mass: Mass, args: tuple[Any, ...], home: Rows, targets: Array
) -> tuple[Rows, Rows]:
    mine = np.flatnonzero(home == block.start)
    if len(mine) == 0:
        return mine, mine
    edges = _running_sum(mass(block, *args))
    rows = _first_beyond(edges, targets[mine], "right")
    last = int(_first_beyond(edges, to_host(edges[-1:]), "left")[0])  # the last row with any mass
    return mine, np.minimum(rows, last) + block.start


@declare("y", "weight")
def _total_by_class(block: Block, *args: Any) -> tuple[Rows, Array]:
    return _total(block, *args)


@declare("y", "weight")
def _locate_by_class(block: Block, *args: Any) -> tuple[Rows, Rows]:
    return _locate(block, *args)


def _running_sum(mass: Any) -> Any:
    xp = foreign_namespace(mass)
    return np.cumsum(mass) if xp is None else xp.cumulative_sum(mass)


def _first_beyond(edges: Any, targets: Array, side: Any) -> Rows:
    xp = foreign_namespace(edges)
    if xp is None:
        return np.searchsorted(edges, targets, side=side)
    found = xp.searchsorted(edges, like_rows(targets, edges), side=side)
    return np.asarray(to_host(found), dtype=np.intp)
