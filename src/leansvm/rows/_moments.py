"""The weighted variance of all entries of X, block by block: what ``gamma="scale"`` uses."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from leansvm._array_api import as_float64, namespace, rows_at, to_host
from leansvm.linalg import canonical_csr
from leansvm.rows._blocks import Block, declare

_VANISHES = 1e-150  # entries whose squares may
Moments = tuple[float, float, float]  # sum of weights, mean, weighted sum of squares about it


@declare("X", "weight")
def moments(block: Block) -> Moments:
    """Return the moments of all entries of the block's rows that count."""
    X, weight = block.X, block.weight
    if weight is not None:
        used = np.flatnonzero(to_host(weight > 0))
        if len(used) < X.shape[0]:
            X, weight = rows_at(X, used), rows_at(weight, used)
    if X.shape[0] == 0 or X.shape[1] == 0:
        return 0.0, 0.0, 0.0
    # deviations from one entry of X: exactly zero where all entries are equal
    missing: Any = 0  # entries of each row that are not stored: zeros
    if sparse.issparse(X):
        X = canonical_csr(X)
        missing = X.shape[1] - np.diff(X.indptr)
        shift, stored = float(X[[0], :].toarray()[0, 0]), X.data
    else:
        shift, stored = float(X[0, 0]), X
    deviations = as_float64(stored) - shift
    count = X.shape[1] * (_dot(weight, 1.0) if weight is not None else float(X.shape[0]))
    mean = _dot(weight, _row_sums(X, deviations) - missing * shift) / count
    deviations -= mean
    deviations *= deviations
    squares = _dot(weight, _row_sums(X, deviations) + missing * (shift + mean) ** 2)
    return count, shift + mean, squares


def _row_sums(X: Any, entries: Any) -> Any:
    """Add up entries row by row; of a CSR matrix ``entries`` stand for its stored ones."""
    if not sparse.issparse(X):
        return namespace(entries).sum(entries, axis=1)
    sums = sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape).sum(axis=1)
    return np.asarray(sums).ravel()


def _dot(weight: Any, values: Any) -> float:
    """Return the weighted sum of values (weight None: ones)."""
    total = values if weight is None else as_float64(weight) * values
    return float(namespace(total).sum(total))


def merged_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of two sets of entries together (Chan, Golub and LeVeque)."""
    weight = a[0] + b[0]
    if not weight > 0:
        return a
    apart, share = b[1] - a[1], b[0] / weight
    return weight, a[1] + share * apart, a[2] + b[2] + a[0] * share * (apart * apart)


def variance_of(found: Moments) -> float:
    """Return the variance that belongs to the moments; 0 if there are no entries.

    If entries are so small that their squares are 0, it is the smallest positive number.
    """
    weight, mean, squares = found
    if squares == 0 and 0 < abs(mean) < _VANISHES:
        return float(np.nextafter(0.0, 1.0))
    return squares / weight if weight > 0 else 0.0
