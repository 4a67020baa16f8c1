"""An order of rows that their values decide: not their places, nor the units of the features.

Rows are put in order by

    t(x, y) = sum_j b_j (x_j - min_j) / (max_j - min_j)  +  a little of the same of y,

where b_j depends on how feature j is distributed. Rows in another order have the same t to the last
bit; other units, float32 and another order of the features change it by rounding. What is drawn at
random is a place in that order. Per row 20 bytes come to the host, from wherever the rows are.
"""

from __future__ import annotations

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
from leansvm.rows._base import Block, RowBlocks, declare
from leansvm.rows._memory import MemoryBlocks
from leansvm.rows._targets import class_numbers

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_GRID = 1e6 * np.pi  # cells to which the mean of a feature, from 0 to 1, is rounded
_TARGETS = 1e-7  # of the targets in t: for rows that are equal in X
_TWINS = 1e-9  # of what tells features apart that are distributed alike


class RowOrder(NamedTuple):
    """Rows of positive weight in the order in which they are drawn from, and their weights."""

    rows: Rows
    weight: Array  # sample weights: without those of the classes, which are costs of errors


def order_of(blocks: RowBlocks, by_values: bool = False) -> RowOrder:
    """Return the order that the rows are drawn from, found once for each `RowBlocks`.

    The order of their values, which takes two passes, where that is asked for here or by
    ``blocks.by_values``; otherwise they stay in their places, which takes none without weights.
    """
    by_values = by_values or blocks.by_values
    if by_values not in blocks.orders:
        t, weight = np.zeros(blocks.n_rows), None
        if by_values:
            ranges = blocks.fold(_joined_ranges, _ranges_of_block, blocks.class_weight)
            line = _line(ranges, blocks.n_features)
            t, weight = blocks.collect(_values_of_block, line, blocks.class_weight)
        elif blocks.class_weight is not None:
            (weight,) = blocks.collect(_weights_by_class, blocks.class_weight)
        elif blocks.weighted:
            (weight,) = blocks.collect(_weights_of_block)
        order = np.argsort(t, kind="stable") if by_values else np.arange(blocks.n_rows)
        weight = np.ones(len(order)) if weight is None else weight[order]
        blocks.orders[by_values] = RowOrder(order[weight > 0], weight[weight > 0])
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
    parts, weight = [block.X] if block.y is None else [block.X, block.y], None
    total = float(block.stop - block.start)
    if block.weight is not None:
        weight = sample_weights(block, class_weight)
        used = np.flatnonzero(to_host(weight) > 0)
        if len(used) < total:
            weight, *parts = (rows_at(part, used) for part in (weight, *parts))
        total = float(namespace(weight).sum(weight))
    found = [
        (_ranges_of_csr if sparse.issparse(part) else _ranges_of_rows)(part, weight)
        for part in parts
    ]
    return total, *(np.concatenate(items) for items in zip(*found, strict=True))


def _ranges_of_rows(X: Any, weight: Any) -> tuple[Array, Array, Array]:
    if X.shape[0] == 0:
        return np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf), np.zeros(X.shape[1])
    xp, X = namespace(X), as_float64(X)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = xp.sum(X, axis=0) if weight is None else weight @ X
    return to_host((xp.min(X, axis=0), xp.max(X, axis=0), sums))


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
