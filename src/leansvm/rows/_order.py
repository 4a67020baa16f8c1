"""Order and equality of rows, which depend on their values and not on their places.

Rows are put in order by

    t(x, y) = sum_j b_j (x_j - min_j) / (max_j - min_j)  +  a little of the same of y,

where b_j depends on how feature j is distributed. Rows in another order have the same t to the last
bit; other units, float32 and another order of the features change it only by rounding. The host
gets 20 bytes per row, wherever the rows are. Random draws choose places in this order.

Equal rows are found without sorting the data. A row's 64-bit patterns are multiplied by random odd
numbers and added modulo 2^64 (a universal hash: equal rows get equal sums whatever the order of
addition). Two such sums, 16 bytes a row, are compared instead of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._accelerated import hashed_rows
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
from leansvm.rows._blocks import Block, RowBlocks, class_numbers, declare

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_FIRST_DRAWS = 512  # draws in the first round
_GRID = 1e6 * np.pi  # cells to which the mean of a feature, from 0 to 1, is rounded
_TARGETS = 1e-7  # of the targets in t: for rows that are equal in X
_TWINS = 1e-9  # size of the term that distinguishes features with the same distribution


class RowOrder(NamedTuple):
    """Rows of positive weight in the order in which they are drawn from, and their weights."""

    rows: Rows
    weight: Array  # sample weights: without those of the classes, which are costs of errors
    ends: tuple[Array, Array] | None  # least and largest value of every feature; by values alone


def order_of(blocks: RowBlocks, by_values: bool = False) -> RowOrder:
    """Return the order that the rows are drawn from, found once for each `RowBlocks`.

    With ``by_values``, here or in ``blocks``, it is the order of their values, which takes two
    passes. Otherwise the rows stay in their places; without weights, that takes no pass.
    """
    by_values = by_values or blocks.by_values
    blocks.orders = {} if blocks.orders is None else blocks.orders
    if by_values in blocks.orders:
        return blocks.orders[by_values]
    order, weight, ends = np.arange(blocks.n_rows), None, None
    if by_values:
        total, low, high, sums = blocks.fold(_joined_ranges, _ranges_of_block, blocks.class_weight)
        # t = sum_j factor_j (x_j - low_j); features that are distributed alike are told apart by
        # their numbers, a little
        own, d = np.random.default_rng(0).uniform(0.5, 1.5, len(low)), blocks.n_features
        ends = low[:d], high[:d]
        with np.errstate(all="ignore"):
            width = high - low
            mean = np.floor(_GRID * ((sums / total - low) / width)) / _GRID
            factor = 0.5 + mean + _TWINS * own
            factor[d:] = _TARGETS * own[d:]
            factor /= width
        varies = (width > 0) & np.isfinite(width) & np.isfinite(factor)
        line = np.where(varies, low, 0.0), np.where(varies, factor, 0.0)
        t, weight = blocks.collect(_values_of_block, *line, blocks.class_weight)
        order = np.argsort(t, kind="stable")
    elif blocks.weighted:
        (weight,) = blocks.collect(_weights_of_block, blocks.class_weight)
    weight = np.ones(len(order)) if weight is None else weight[order]
    blocks.orders[by_values] = RowOrder(order[weight > 0], weight[weight > 0], ends)
    return blocks.orders[by_values]


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
    block: Block, low: Array, factor: Array, class_weight: Array | None
) -> tuple[Array, Array | None]:
    """Return t and the sample weight of every row; t does not depend on where the row is."""
    t, d = np.zeros(block.stop - block.start), block.X.shape[1]
    for part, own in ((block.X, slice(0, d)), (block.y, slice(d, None))):
        with np.errstate(over="ignore", invalid="ignore"):
            if part is None:
                continue
            if sparse.issparse(part):
                t += canonical_csr(part) @ factor[own]
            elif foreign_namespace(part) is None:
                t += np.einsum("ij,j->i", as_float64(part) - low[own], factor[own])
            else:
                shifted = as_float64(part) - like_rows(low[own], part)
                t += to_host(shifted @ like_rows(factor[own], part))
    return t, None if block.weight is None else to_host(sample_weights(block, class_weight))


@declare("y", "weight")
def _weights_of_block(block: Block, class_weight: Array | None) -> tuple[Array]:
    return (to_host(sample_weights(block, class_weight)),)


def row_weights(block: Block) -> Any:
    """Return a copy of the block's weights, where the rows are; ones if there are none."""
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


@dataclass
class WeightedSample:
    """Rows one after the other, each new one with probability proportional to its sample weight.

    As if every row were repeated as often as its weight says, and rows were drawn at random: the
    order is that in which distinct rows first appear. Rows of zero weight are never drawn. Class
    weights do not count: they are costs of errors, and would draw all rows of a rare class.
    """

    blocks: RowBlocks
    rng: np.random.RandomState
    by_values: bool = False
    rows: Any = field(default_factory=partial(np.empty, 0, np.intp))  # drawn so far, in order
    left: Array | None = None  # weights; 0 for rows that are drawn

    def first(self, count: int) -> Rows:
        """Return the first ``count`` rows, or all there are."""
        order = order_of(self.blocks, self.by_values)
        left = self.left = order.weight.copy() if self.left is None else self.left
        while len(self.rows) < count:
            edges = np.cumsum(left)
            if not len(edges) or not edges[-1] > 0:
                break
            # as many as past draws tell, so that short samples are prefixes of long ones
            draws = max(_FIRST_DRAWS, len(self.rows))
            places = places_at(edges, self.rng.random_sample(draws))
            places = places[np.sort(np.unique(places, return_index=True)[1])]
            left[places] = 0.0
            self.rows = np.concatenate([self.rows, order.rows[places]])
        return self.rows[:count]


def places_at(edges: Array, shares: Array) -> Rows:
    """Return the places at shares from 0 to 1 of a mass that adds up to ``edges``."""
    last = np.searchsorted(edges, edges[-1])  # the last place with any mass
    return np.minimum(np.searchsorted(edges, shares * edges[-1], side="right"), last)


# ---------------------------------------------------------------------------- equal rows


@dataclass(frozen=True)
class MergedRows:
    """Distinct rows of positive weight and how the original rows map onto them."""

    first: NDArray[np.intp]  # original row that stands for each group
    group: NDArray[np.intp]  # group of each original row; -1 if the weight is zero
    weight: NDArray[np.float64]  # summed weight of each group


def merge_equal_rows(blocks: RowBlocks) -> MergedRows:
    """Group rows that are equal in X and y, in the order of their first rows, wherever they are.

    Rows of zero weight belong to no group.
    """
    *keys, weight = blocks.collect(row_keys)
    weight = np.ones(len(keys[0])) if weight is None else np.asarray(weight, dtype=np.float64)
    kept, group = np.flatnonzero(weight > 0), np.full(len(weight), -1, dtype=np.intp)
    in_order = np.sort(keys[0][kept])
    if (in_order[1:] != in_order[:-1]).all():  # no two are equal: nothing to number
        group[kept] = np.arange(len(kept))
        return MergedRows(kept, group, weight[kept])
    order = kept[np.lexsort((keys[1][kept], keys[0][kept]))]  # stable: within a group by row
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(keys[0][order]) != 0) | (np.diff(keys[1][order]) != 0)
    first, rank = np.unique(order[new], return_inverse=True)
    group[order] = rank[np.cumsum(new) - 1]
    total: Any = np.bincount(group[kept], weight[kept], len(first))
    return MergedRows(first, group, total.astype(np.float64))


@declare("X", "y", "weight")
def row_keys(block: Block, n_keys: int = 2) -> tuple[Any, ...]:
    """Return hashes of (x, y) of every row, two of which tell rows apart, and the weights.

    The array API has no bit patterns: if the library of the rows does not have them either, their
    hashes are worked out on the host.
    """
    keys = np.zeros((n_keys, block.stop - block.start), np.uint64)
    for part, seed in ((block.X, 1), (block.y, 2)):
        if part is None:
            continue
        odd = np.ones((n_keys, part.shape[1]), np.uint64)
        for k, own in enumerate(odd):
            random = np.random.default_rng(seed + 2 * k)
            own += np.uint64(2) * random.integers(0, 2**63, size=len(own), dtype=np.uint64)
        if foreign_namespace(part) is not None:
            there: Any = [hashed_rows(part, own) for own in odd]
            if there[0] is not None:
                keys += np.stack(there)
                continue
            part = to_host(part)
        part = canonical_csr(part) if sparse.issparse(part) else part
        tile = max(1, 2**18 // max(part.shape[1], 1))  # stays in the cache
        for start in range(0, part.shape[0], tile):
            rows = part[start : start + tile]
            values = rows.data if sparse.issparse(rows) else rows
            # scrambled bit patterns: the hash is not linear in them; +0.0 and -0.0 agree
            bits: Any = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
            bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            bits ^= bits >> np.uint64(29)
            if sparse.issparse(rows):
                bits = sparse.csr_array((bits, rows.indices, rows.indptr), shape=rows.shape)
            for key, own in zip(keys, odd, strict=True):
                key[start : start + tile] += bits @ own
    return (*keys, None if block.weight is None else to_host(block.weight))


def row_hashes(block: Block) -> NDArray[np.uint64]:
    """Return a hash of (x, y) of every row: equal rows have equal ones, wherever they are."""
    return np.asarray(row_keys(block, 1)[0])


def rows_alike(a: Any, b: Any) -> NDArray[np.bool_]:
    """Return, for every row, whether both arrays have the same row, by a hash of 64 bits."""
    keys = [row_hashes(Block(0, rows.shape[0], rows, None, None)) for rows in (a, b)]
    return np.asarray(keys[0] == keys[1])


def points_among(blocks: RowBlocks, points: Any) -> NDArray[np.bool_]:
    """Return, for every point, whether a row of positive weight equals it (64-bit hash)."""
    keys = row_hashes(Block(0, points.shape[0], points, None, None))
    return np.asarray(blocks.fold(np.logical_or, _keys_among, keys, points.dtype))


@declare("X", "weight")
def _keys_among(block: Block, keys: NDArray[np.uint64], dtype: Any) -> NDArray[np.bool_]:
    X = to_host(block.X).astype(dtype, copy=False)
    own = row_hashes(Block(block.start, block.stop, X, None, None))
    own = own if block.weight is None else own[to_host(block.weight) > 0]
    return np.isin(keys, own, kind="sort")  # NumPy 2.0 fails at large numbers if it may choose
