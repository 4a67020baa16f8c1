"""Find rows with equal (x, y), exactly and without sorting the data.

A row's 64-bit patterns are multiplied by random odd numbers and added modulo 2^64 (a universal
hash: equal rows get equal sums whatever the order of addition); candidates are then compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._accelerated import hashed_rows
from leansvm._array_api import foreign_namespace, namespace, rows_at, to_host
from leansvm._parallel import for_tiles
from leansvm.linalg import canonical_csr
from leansvm.rows._blocks import Block, RowBlocks, declare


@dataclass(frozen=True)
class MergedRows:
    """Distinct rows of positive weight and how the original rows map onto them."""

    first: NDArray[np.intp]  # original row that stands for each group
    group: NDArray[np.intp]  # group of each original row; -1 where the weight is zero
    weight: NDArray[np.float64]  # summed weight of each group


def merge_equal_rows(X: Any, Y: Any, weight: Any) -> MergedRows:
    """Group rows that are equal in X and Y; rows of zero weight belong to no group.

    The array API has no bit patterns. If the library of the rows does not have them either, the
    rows are compared on the host.
    """
    X = canonical_csr(X) if sparse.issparse(X) else X
    Y, weight = to_host(Y), to_host(weight)
    kept = np.flatnonzero(weight > 0)
    keys = _row_hashes(X, seed=1) + _row_hashes(np.asarray(Y, dtype=np.float64), seed=2)
    group = np.full(len(weight), -1, dtype=np.intp)
    in_order = np.sort(keys[kept])
    if (in_order[1:] != in_order[:-1]).all():  # no two are equal: nothing to number
        group[kept] = np.arange(len(kept))
        return MergedRows(kept, group, np.asarray(weight[kept], dtype=np.float64))
    merged = _grouped(weight, keys)
    lone = kept[~_rows_equal(X, Y, kept, merged.first[merged.group[kept]])]
    if len(lone):  # a hash collision, one in 2^64: leave those rows alone
        apart = np.zeros_like(keys)
        apart[lone] = np.arange(1, len(lone) + 1)
        merged = _grouped(weight, keys, apart)
    return merged


def row_hashes(block: Block) -> NDArray[np.uint64]:
    """Return a hash of (x, y) of every row: equal rows have equal ones, wherever they are."""
    return _row_hashes(block.X, seed=1) + _row_hashes(to_host(block.y), seed=2)


def rows_alike(a: Any, b: Any) -> NDArray[np.bool_]:
    """Return, for every row, whether both arrays have the same row, by a hash of 64 bits."""
    return np.asarray(_row_hashes(a, seed=1) == _row_hashes(b, seed=1))


def points_among(blocks: RowBlocks, points: Any) -> NDArray[np.bool_]:
    """Return, for every point, whether a row of positive weight equals it (64-bit hash)."""
    keys = _row_hashes(points, seed=1)
    return np.asarray(blocks.fold(np.logical_or, _keys_among, keys, points.dtype))


@declare("X", "weight")
def _keys_among(block: Block, keys: NDArray[np.uint64], dtype: Any) -> NDArray[np.bool_]:
    own = _row_hashes(to_host(block.X).astype(dtype, copy=False), seed=1)
    own = own if block.weight is None else own[to_host(block.weight) > 0]
    return np.isin(keys, own, kind="sort")  # NumPy 2.0 fails at large numbers if it may choose


@declare("X", "y", "weight")
def row_keys(block: Block) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Any]:
    """Return two hashes of (x, y) of every row, which together tell rows apart, and the weights."""
    keys = [
        _row_hashes(block.X, seed=seed) + _row_hashes(block.y, seed=seed + 1) for seed in (1, 3)
    ]
    return keys[0], keys[1], block.weight


def merge_rows_of(blocks: RowBlocks) -> MergedRows:
    """Like `merge_equal_rows`, for rows that are elsewhere: 16 bytes per row are sent here.

    Two hashes of 64 bits are compared instead of the rows.
    """
    first_key, second_key, weight = blocks.collect(row_keys)
    return _grouped(np.ones(len(first_key)) if weight is None else weight, first_key, second_key)


def _grouped(weight: Any, *keys: NDArray[np.uint64]) -> MergedRows:
    """Group rows of positive weight whose keys are all equal, in the order of their first rows."""
    kept = np.flatnonzero(weight > 0)
    order = kept[np.lexsort([key[kept] for key in keys])]  # stable: within a group by row
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    first, rank = np.unique(order[new], return_inverse=True)
    group = np.full(len(weight), -1, dtype=np.intp)
    group[order] = rank[np.cumsum(new) - 1]
    merged = np.bincount(group[kept], weights=weight[kept], minlength=len(first))
    return MergedRows(first, group, merged.astype(np.float64))


def _row_hashes(X: Any, seed: int) -> NDArray[np.uint64]:
    rng = np.random.default_rng(seed)
    odd = rng.integers(0, 2**63, size=X.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    if foreign_namespace(X) is not None:
        found = hashed_rows(X, odd)
        if found is not None:
            return found
        X = to_host(X)
    is_sparse = sparse.issparse(X)
    X = canonical_csr(X) if is_sparse else X
    values = X.data[:, None] if is_sparse else X
    sums = np.empty(len(values), np.uint64)

    def fill(start: int, stop: int) -> None:
        # scrambled bit patterns: the hash is not linear in them; +0.0 and -0.0 agree
        bits = (np.asarray(values[start:stop], dtype=np.float64) + 0.0).view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        bits ^= bits >> np.uint64(29)
        sums[start:stop] = bits[:, 0] if is_sparse else np.einsum("ij,j->i", bits, odd)

    for_tiles(len(values), max(1, 2**18 // max(values.shape[1], 1)), fill)
    if not is_sparse:
        return sums
    totals = np.append(np.uint64(0), np.cumsum(sums * odd[X.indices], dtype=np.uint64))
    return np.asarray(totals[X.indptr[1:]] - totals[X.indptr[:-1]])


def _rows_equal(
    X: Any, Y: NDArray[Any], a: NDArray[np.intp], b: NDArray[np.intp]
) -> NDArray[np.bool_]:
    same = np.ones(len(a), dtype=bool)
    check = np.flatnonzero(a != b)
    tile = max(1, 2**22 // max(X.shape[1], 1))
    for start in range(0, len(check), tile):
        rows = check[start : start + tile]
        if sparse.issparse(X):
            same_x = np.asarray((X[a[rows]] != X[b[rows]]).sum(axis=1)).ravel() == 0
        elif foreign_namespace(X) is not None:
            pairs = rows_at(X, a[rows]) == rows_at(X, b[rows])
            same_x = to_host(namespace(X).all(pairs, axis=1))
        else:
            same_x = (X[a[rows]] == X[b[rows]]).all(axis=1)
        same[rows] = same_x & (Y[a[rows]] == Y[b[rows]]).all(axis=1)
    return same
