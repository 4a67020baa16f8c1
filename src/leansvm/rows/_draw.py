"""Draw row numbers with probabilities that live in the blocks.

Two-level inverse CDF: the blocks send the sums of their masses, the host draws and says which block
a draw falls into, the block finds the row. Nothing of the size of the data travels, and a seed
gives the same rows whatever the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import put
from leansvm._array_api import as_float64, foreign_namespace, like_rows, namespace, to_host, zeros
from leansvm.rows._base import Block, RowBlocks, declare
from leansvm.rows._memory import MemoryBlocks
from leansvm.rows._targets import class_numbers

Rows = NDArray[np.intp]
Mass = Callable[..., Any]
Places = Callable[[], NDArray[np.float64]]
_BATCH = 512  # draws in the first round


def draw_rows(
    blocks: RowBlocks, rng: np.random.RandomState, count: int, mass: Mass, *args: Any
) -> Rows:
    """Draw ``count`` rows with replacement, with probabilities ``mass(block, *args)``.

    No rows when there is no mass. ``mass`` must be a module-level function of the blocks' weights
    (and targets where these are weighted by class) and state.
    """
    places: Places = partial(rng.random_sample, count)  # type: ignore[assignment]
    return _rows_at(blocks, places, mass, args, blocks.class_weight is not None)


def _rows_at(
    blocks: RowBlocks, places: Places, mass: Mass, args: tuple[Any, ...], by_class: bool
) -> Rows:
    """Return the rows at places from 0 to 1 along the mass; without mass none, nor any draw."""
    total: Callable[..., Any] = _total_by_class if by_class else _total
    locate: Callable[..., Any] = _locate_by_class if by_class else _locate
    starts, totals = blocks.collect(total, mass, args)
    edges = np.cumsum(np.append(0.0, totals))
    if not edges[-1] > 0:
        return np.empty(0, np.intp)
    targets = places() * edges[-1]
    # the last block that begins at or before the target; blocks without mass begin and end there
    home = np.searchsorted(edges, targets, side="right") - 1
    home = np.minimum(home, np.flatnonzero(np.diff(edges))[-1])
    mine, rows = blocks.collect(locate, mass, args, starts[home], targets - edges[home])
    result = np.empty(len(targets), np.intp)
    result[mine] = rows
    return result


@declare("weight")
def _total(block: Block, mass: Mass, args: tuple[Any, ...]) -> tuple[Rows, NDArray[np.float64]]:
    edges = _running_sum(mass(block, *args))
    return np.array([block.start]), np.array([float(edges[-1]) if edges.shape[0] else 0.0])


@declare("weight")
def _locate(
    block: Block, mass: Mass, args: tuple[Any, ...], home: Rows, targets: NDArray[np.float64]
) -> tuple[Rows, Rows]:
    mine = np.flatnonzero(home == block.start)
    if len(mine) == 0:
        return mine, mine
    edges = _running_sum(mass(block, *args))
    rows = _first_beyond(edges, targets[mine], "right")
    last = int(_first_beyond(edges, to_host(edges[-1:]), "left")[0])  # the last row with any mass
    return mine, np.minimum(rows, last) + block.start


@declare("y", "weight")
def _total_by_class(block: Block, *args: Any) -> tuple[Rows, NDArray[np.float64]]:
    return _total(block, *args)


@declare("y", "weight")
def _locate_by_class(block: Block, *args: Any) -> tuple[Rows, Rows]:
    return _locate(block, *args)


def _running_sum(mass: Any) -> Any:
    xp = foreign_namespace(mass)
    return np.cumsum(mass) if xp is None else xp.cumulative_sum(mass)


def _first_beyond(edges: Any, targets: NDArray[np.float64], side: Any) -> Rows:
    xp = foreign_namespace(edges)
    if xp is None:
        return np.searchsorted(edges, targets, side=side)
    found = xp.searchsorted(edges, like_rows(targets, edges), side=side)
    return np.asarray(to_host(found), dtype=np.intp)


def draw_by_weight(
    blocks: RowBlocks, rng: np.random.RandomState, count: int, taken: Rows | None = None
) -> Rows:
    """Draw rows with replacement by their sample weights, none of ``taken`` (which increase)."""
    taken = np.empty(0, np.intp) if taken is None else taken
    if blocks.weighted:
        return draw_rows(blocks, rng, count, _open_weight, taken, blocks.class_weight)
    # the same without a pass: all weights are one, so the number drawn is a rank
    left = blocks.n_rows - len(taken)
    if left == 0:
        return np.empty(0, np.intp)
    rank = np.minimum((rng.random_sample(count) * left).astype(np.intp), left - 1)
    # the number of taken rows before the open row of that rank
    return rank + np.searchsorted(taken - np.arange(len(taken)), rank, side="right")


@dataclass
class WeightedSample:
    """Rows one after the other, each new one with probability proportional to its sample weight.

    The order in which distinct points would appear if every row stood there as often as its
    weight says and were drawn at random; rows of zero weight never come. Class weights are costs
    of errors, not repetitions: they would draw all rows of a rare class.
    """

    blocks: RowBlocks
    rng: np.random.RandomState
    rows: Rows = field(default_factory=partial(np.empty, 0, np.intp))  # type: ignore[arg-type]

    def grow(self) -> bool:
        """Draw some more rows; False when there are none left."""
        # a count that depends on past draws alone, so that short samples are prefixes of long ones
        count = max(_BATCH, len(self.rows))
        drawn = draw_by_weight(self.blocks, self.rng, count, np.sort(self.rows))
        _, first = np.unique(drawn, return_index=True)
        self.rows = np.concatenate([self.rows, drawn[np.sort(first)]])
        return len(drawn) > 0

    def first(self, count: int) -> Rows:
        """Return the first ``count`` rows, or all there are."""
        while len(self.rows) < count and self.grow():
            pass
        return self.rows[:count]


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


def weights_of_drawn(
    blocks: RowBlocks, Y: NDArray[Any], weight: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return what rows drawn by their sample weights count: one number times class weights.

    The number is the mean sample weight of all rows, as far as the drawn ones tell.
    """
    costs = _costs(blocks, Y)
    return len(weight) / float(np.sum(costs / weight)), costs


def _costs(blocks: RowBlocks, Y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the class weight of every row."""
    if blocks.class_weight is None:
        return np.ones(len(Y))
    return blocks.class_weight[class_numbers(np.asarray(Y))]


# ---------------------------------------------------------------------------- for all rows


@dataclass(frozen=True)
class DrawnRows:
    """Rows that stand for all rows: sums over them, times ``weight``, estimate sums over all."""

    rows: Rows  # their numbers, increasing
    weight: NDArray[np.float64]  # that each stands for
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
    those ``without``, never come.
    """
    without = np.empty(0, np.intp) if without is None else np.sort(without)
    by = without, blocks.class_weight
    sizes, weights = blocks.fold(_joined_strata, _strata_of_block, *by)
    n_rows = int(sizes.sum())
    if n_rows <= count:
        rows, weight = blocks.collect(_rows_of_block, without)
        return DrawnRows(rows, weight, n_rows)
    fair = np.minimum(sizes, count / (2 * len(sizes)))
    wanted = np.maximum(count * weights / weights.sum(), fair)
    rate = np.divide(wanted, weights, out=np.zeros(len(weights)), where=weights > 0)
    number = round(float(wanted.sum()))

    def places() -> NDArray[np.float64]:
        return (np.arange(number) + rng.random_sample(number)) / number

    found = _rows_at(blocks, places, _mass_of_strata, (rate, *by), True)
    rows, times = np.unique(found, return_counts=True)
    weight = times * float(wanted.sum()) / number
    if len(rate) == 1:
        return DrawnRows(rows, weight / rate, n_rows)
    Y, _ = blocks.targets_of(rows)
    return DrawnRows(rows, weight / rate[class_numbers(Y)] * _costs(blocks, Y), n_rows)


@dataclass
class StandsFor:
    """How many rows like it each row of a block stands for."""

    rows: NDArray[np.float64]


@declare(keeps=StandsFor)
def _keep_shares(block: Block, share: NDArray[np.float64]) -> None:
    block.keep(StandsFor(share[block.rows]))


@declare("y", "weight")
def _strata_of_block(
    block: Block, without: Rows, class_weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return number and sample weight of the rows of each class; numbers are one class."""
    weight = to_host(_open_weight(block, without, class_weight))
    Y = None if block.y is None else np.asarray(to_host(block.y))
    if Y is None or not np.all(np.abs(Y) == 1.0):
        return np.array([np.count_nonzero(weight)]), np.array([weight.sum()])
    stratum, most = class_numbers(Y), max(Y.shape[1], 2)
    sizes = np.bincount(stratum, weight > 0, minlength=most).astype(np.intp)
    return sizes, np.bincount(stratum, weight, minlength=most).astype(np.float64)


@declare("weight")
def _rows_of_block(block: Block, without: Rows) -> tuple[Rows, NDArray[np.float64]]:
    weight = to_host(_open_weight(block, without, None))
    used = np.flatnonzero(weight > 0)
    return block.start + used, weight[used]


def _joined_strata(a: Any, b: Any) -> Any:
    if len(a[0]) != len(b[0]):  # some targets are no codes of classes
        a, b = ((part[0].sum(keepdims=True), part[1].sum(keepdims=True)) for part in (a, b))
    return a[0] + b[0], a[1] + b[1]


def _mass_of_strata(
    block: Block, rate: NDArray[np.float64], without: Rows, class_weight: Any
) -> Any:
    mass = _open_weight(block, without, class_weight)
    if len(rate) == 1:
        return mass * float(rate[0])
    return mass * like_rows(rate[class_numbers(np.asarray(to_host(block.y)))], mass)


def _open_weight(block: Block, taken: Rows, class_weight: NDArray[np.float64] | None) -> Any:
    """Return the sample weights of rows that are not taken yet."""
    weight = sample_weights(block, class_weight)
    low, high = np.searchsorted(taken, [block.start, block.stop])
    put(weight, taken[low:high] - block.start, 0.0)
    return weight


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
