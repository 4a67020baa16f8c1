"""Rows drawn at random by their sample weights, and how many rows each of them represents.

Places are drawn in an order of the rows that depends on their values (`leansvm.rows._order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import namespace, to_host
from leansvm.rows._blocks import Block, MemoryBlocks, RowBlocks, class_numbers, declare
from leansvm.rows._order import Array, Rows, order_of, places_at, row_weights


def draw_by_weight(blocks: RowBlocks, rng: np.random.RandomState, count: int) -> Rows:
    """Draw rows with replacement by their sample weights."""
    order = order_of(blocks)
    if not len(order.rows):
        return order.rows
    return order.rows[places_at(np.cumsum(order.weight), rng.random_sample(count))]


def weights_of_drawn(blocks: RowBlocks, Y: NDArray[Any], weight: Array) -> tuple[float, Array]:
    """Return the weights of rows drawn by their sample weights: one number times class weights.

    The number is the mean sample weight of all rows, estimated from the drawn ones.
    """
    costs = _costs(blocks, Y)
    return len(weight) / float(np.sum(costs / weight)), costs


def _costs(blocks: RowBlocks, Y: NDArray[Any]) -> Array:
    """Return the class weight of every row."""
    if blocks.class_weight is None:
        return np.ones(len(Y))
    return blocks.class_weight[class_numbers(np.asarray(Y))]


@dataclass(frozen=True)
class DrawnRows:
    """Rows that represent all rows: sums over them, times ``weight``, estimate sums over all."""

    rows: Rows  # their numbers, which increase
    weight: Array  # that each stands for
    n_rows: int  # that were drawn from

    def as_data(self, blocks: RowBlocks, columns: int = 0) -> MemoryBlocks:
        """Return them as a smaller data set; the mean weight is that of all rows."""
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

    One row is drawn in each of many intervals of equal mass, so a heavy row may be drawn several
    times and then represents more rows. A class has at least half of an equal share of the draws,
    or all of its rows. If there are at most ``count`` rows, all are used. Rows of zero weight, and
    the rows ``without``, are never drawn. Row numbers increase, as in blocks.
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
    shares = (np.arange(number) + rng.random_sample(number)) / number
    places = places_at(np.cumsum(own * rate), shares)
    found, times = np.unique(places, return_counts=True)
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
    """Return the class of every row, -1 if targets are no codes +-1."""
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
