"""Draw row numbers with probabilities that live in the blocks.

Two-level inverse CDF: the blocks send the sums of their masses, the host draws and says which block
a draw falls into, the block finds the row. Nothing of the size of the data travels, and a seed
gives the same rows whatever the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import put
from leansvm._array_api import (
    as_float64,
    foreign_namespace,
    like_rows,
    namespace,
    to_host,
    zeros,
)
from leansvm.rows._base import Block, RowBlocks, declare
from leansvm.rows._targets import class_numbers

Rows = NDArray[np.intp]
Mass = Callable[..., Any]
_BATCH = 512  # draws in the first round


def draw_rows(
    blocks: RowBlocks, rng: np.random.RandomState, count: int, mass: Mass, *args: Any
) -> Rows:
    """Draw ``count`` rows with replacement, with probabilities ``mass(block, *args)``.

    No rows when there is no mass. ``mass`` must be a module-level function of the blocks' weights
    (and targets where these are weighted by class) and state.
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
    result = np.empty(count, np.intp)
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
    rows: Rows = field(default_factory=cast("Callable[[], Rows]", partial(np.empty, 0, np.intp)))

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
    return weight * like_rows(_inverse(class_weight)[class_numbers(to_host(block.y))], weight)


def weights_of_drawn(
    blocks: RowBlocks, Y: NDArray[Any], weight: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return what rows drawn by their sample weights count: one number times class weights.

    The number is the mean sample weight of all rows, as far as the drawn ones tell.
    """
    costs = np.ones(len(weight))
    if blocks.class_weight is not None:
        costs = blocks.class_weight[class_numbers(Y)]
    return len(weight) / float(np.sum(costs / weight)), costs


def _inverse(class_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1.0, class_weight, out=np.zeros(len(class_weight)), where=class_weight > 0)


def _open_weight(block: Block, taken: Rows, class_weight: NDArray[np.float64] | None) -> Any:
    """Return the sample weights of rows that are not taken yet."""
    weight = sample_weights(block, class_weight)
    low, high = np.searchsorted(taken, [block.start, block.stop])
    put(weight, taken[low:high] - block.start, 0.0)
    return weight


def total_weight(blocks: RowBlocks) -> float:
    """Return the sum of the weights of all rows; without weights their number, without a pass."""
    return float(blocks.sum(_weight_of_block)) if blocks.weighted else float(blocks.n_rows)


def positive_rows(blocks: RowBlocks) -> int:
    """Return the number of rows of positive weight; without weights all, without a pass."""
    return int(blocks.sum(_positive_of_block)) if blocks.weighted else blocks.n_rows


@declare("weight")
def _positive_of_block(block: Block) -> int:
    return int(np.count_nonzero(to_host(row_weights(block)) > 0))


@declare("weight")
def _weight_of_block(block: Block) -> float:
    weight = row_weights(block)
    return float(namespace(weight).sum(weight))
