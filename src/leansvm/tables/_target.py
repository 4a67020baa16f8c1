"""Means of the target by category, of rows that do not see their own target.

Rows are cut into folds. A row gets the mean of its category over the other folds, shrunk towards
the overall mean, as if ``a`` rows with the overall mean were added to each category, with
a = (variance within categories) / (variance between them).

A weight counts like copies of a row: equal rows are one unit, whose fold is a hash of its content.
A unit with a weight above 1 is spread over the folds, beginning with its own, as its copies would
be. Its mean comes from everything outside of its own fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
_TARGET_FOLDS = 5
_MOST_ROWS = 1e9  # largest ``a``, for categories that do not differ


@dataclass(frozen=True)
class Units:
    """Distinct rows: to which of them each row is equal, and the weight and fold of each."""

    first: Codes  # a row of each unit
    unit: Codes  # of every row
    weight: Array
    fold: Codes

    def shares(self) -> Array:
        """Return the weight of every unit in every fold."""
        rounds, rest = np.divmod(self.weight, _TARGET_FOLDS)
        after = (np.arange(_TARGET_FOLDS) - self.fold[:, None]) % _TARGET_FOLDS
        return rounds[:, None] + np.clip(rest[:, None] - after, 0.0, 1.0)


def units_of(marks: NDArray[np.uint64], weight: Array) -> Units:
    """Find equal rows by `row_marks`."""
    _, first, unit = np.unique(marks, return_index=True, return_inverse=True)
    unit = unit.ravel()
    total: Array = np.bincount(unit, weights=weight, minlength=len(first)).astype(np.float64)
    return Units(first, unit, total, folds_of(marks[first]))


def folds_of(marks: NDArray[np.uint64]) -> Codes:
    """Return the fold of rows, which their content alone decides."""
    return ((marks >> np.uint64(32)) % np.uint64(_TARGET_FOLDS)).astype(np.intp)


def row_marks(columns: list[Array | tuple[Codes, list[str]]]) -> NDArray[np.uint64]:
    """Hash rows by their columns: numbers, or numbers of texts and the texts."""
    found = np.zeros(1, dtype=np.uint64)
    for column in columns:
        if isinstance(column, tuple):
            codes, texts = column
            marks = [int.from_bytes(blake2b(t.encode(), digest_size=8).digest()) for t in texts]
            bits = np.array([*marks, 0], dtype=np.uint64)[codes]
        else:
            plain = np.where(np.isnan(column), np.nan, column + 0.0)  # one NaN, no -0
            bits = np.ascontiguousarray(plain).view(np.uint64)
        found = _mixed(found ^ bits)
    return found


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all of them (splitmix64)."""
    with np.errstate(over="ignore"):
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def target_means(codes: Codes, n_levels: int, Y: Array, units: Units) -> tuple[Array, Array]:
    """Return means of the target by level: over all rows, and over the rows of other folds.

    The first is levels x outputs, for new rows; the second levels x folds x outputs, for training
    rows of each fold. The last level of both stands for those that training did not see.
    """
    shares, level = units.shares(), codes[units.first]
    origin = Y[units.first].mean(axis=0)  # sums of large numbers lose digits
    targets = Y[units.first] - origin
    counts = _sums(level, n_levels, shares)  # levels x folds
    sums = np.stack([_sums(level, n_levels, shares * t[:, None]) for t in targets.T], axis=2)
    added = _added_rows(level, units.weight, targets, counts.sum(axis=1), sums.sum(axis=1))
    overall = sums.sum(axis=(0, 1)) / counts.sum()
    means = _shrunk(sums.sum(axis=1), counts.sum(axis=1)[:, None], overall, added)
    out_counts = counts.sum(axis=1, keepdims=True) - counts
    out_sums = sums.sum(axis=1, keepdims=True) - sums
    outside = out_sums.sum(axis=0) / np.maximum(out_counts.sum(axis=0), 1e-300)[:, None]
    left_out = _shrunk(out_sums, out_counts[:, :, None], outside, added)
    return np.vstack([means, overall]) + origin, np.concatenate([left_out, outside[None]]) + origin


def _sums(level: Codes, n_levels: int, columns: Array) -> Array:
    return np.column_stack([np.bincount(level, c, minlength=n_levels) for c in columns.T])


def _shrunk(sums: Array, counts: Array, overall: Array, added: Array) -> Array:
    return np.asarray((sums + added * overall) / (np.maximum(counts, 0.0) + added))


def _added_rows(level: Codes, weight: Array, targets: Array, counts: Array, sums: Array) -> Array:
    """Return ``a`` for every output, from moments of a one-way analysis of variance."""
    total, n_levels = weight.sum(), np.count_nonzero(counts)
    means = sums / np.maximum(counts, 1e-300)[:, None]
    overall = sums.sum(axis=0) / total
    within = weight @ np.square(targets - means[level]) / max(total - n_levels, 1.0)
    between = counts @ np.square(means - overall) - (n_levels - 1) * within
    between /= max(total - counts @ counts / total, 1e-300)
    least = 1e-12 * np.maximum(within, 1e-300)
    return np.clip(within / np.maximum(between, least), 1e-3, _MOST_ROWS)
