"""Exact K-fold cross-validation for every C from sums: no row is looked at twice.

With G_f = Z_f'Z_f of every fold, Z = S^1/2 [Phi, Y, 1], the model without fold f solves the normal
equations of sum G - G_f, and its squared error on the fold is v'G_f v, v = (-theta, 1, -b): K
eigen-decompositions of the size of the basis, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from leansvm._accelerated import gram
from leansvm._array_api import namespace, rows_at
from leansvm.blocks import Block, RowBlocks, declare, row_hashes
from leansvm.solvers.features import FeatureMap
from leansvm.solvers.primal import decompose
from leansvm.solvers.sums import Sums, normal_equations, rows_of_Z

Array = NDArray[np.float64]


class KFoldSums(BaseEstimator):
    """Cross-validation in K folds, computed from sums over the rows in one pass.

    For the parameter ``C`` of `SparseLSSVC` and `SparseLSSVR`: ``C=KFoldSums(10)`` scores the
    candidates by ten folds, ``C="kfold"`` by five. The errors are those of refitting without each
    fold on the same basis, to rounding. Rows go into folds by a hash of (x, y), so that copies of
    a row stay together, wherever the rows are and in whatever batches they come.

    Parameters
    ----------
    n_splits : int or None, default=5
        Number of folds; None leaves one group out at a time and needs ``groups``.
    groups : array-like of shape (n_samples,), default=None
        Rows of a group stay in one fold: patients, machines, days. Only for rows in memory.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.model_selection import KFoldSums
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SparseLSSVC(C=KFoldSums(10), gamma="scale", n_basis=50, random_state=0)
    >>> model.fit(X, y).cv_curve_.shape
    (50,)
    """

    def __init__(self, n_splits: int | None = 5, groups: Any = None) -> None:
        self.n_splits = n_splits
        self.groups = groups

    def count(self, n_rows: int) -> int:
        """Return the number of folds that so many rows fall into."""
        given = self.folds_of_groups(n_rows)
        return int(self.n_splits or 0) if given is None else int(given.max()) + 1

    def folds_of_groups(self, n_rows: int) -> NDArray[np.intp] | None:
        """Return the fold of every row; None where a hash decides.

        Groups are spread by size, the largest first, each into the fold with the fewest rows.
        """
        if self.groups is None:
            if not isinstance(self.n_splits, Integral) or self.n_splits < 2:
                raise ValueError(
                    f"KFoldSums: n_splits must be an integer >= 2 without groups, got "
                    f"{self.n_splits!r}."
                )
            return None
        groups = np.asarray(self.groups)
        if groups.shape != (n_rows,):
            raise ValueError(
                f"KFoldSums: groups must hold one entry per row, {n_rows}, got shape "
                f"{groups.shape}."
            )
        _, member, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        n_splits = len(sizes) if self.n_splits is None else int(self.n_splits)
        if not 2 <= n_splits <= len(sizes):
            raise ValueError(
                f"KFoldSums: n_splits={self.n_splits!r} needs at least as many groups and two of "
                f"them, got {len(sizes)}."
            )
        fold_of_group, filled = np.empty(len(sizes), np.intp), np.zeros(n_splits)
        for group in np.argsort(-sizes, kind="stable"):
            fold_of_group[group] = int(np.argmin(filled))
            filled[fold_of_group[group]] += sizes[group]
        return fold_of_group[member]


@dataclass
class FoldSums:
    """Z'Z of every fold, and of rows that are in no fold; grows by addition."""

    shift: Array
    grams: Array  # folds x columns x columns
    base: Array  # of rows that every model is fitted on
    n_outputs: int
    count: float

    def __add__(self, other: FoldSums) -> FoldSums:
        return FoldSums(
            self.shift,
            self.grams + other.grams,
            self.base + other.base,
            self.n_outputs,
            self.count + other.count,
        )

    def total(self) -> Sums:
        """Return the sums over all rows."""
        return Sums(self.shift, self.base + self.grams.sum(axis=0), self.n_outputs, self.count)

    @classmethod
    def after(cls, sums: Sums, n_folds: int) -> FoldSums:
        """Begin folds behind rows whose sums alone are known: these are in no fold."""
        empty = np.zeros((n_folds, *sums.gram.shape))
        return cls(sums.shift, empty, sums.gram, sums.n_outputs, sums.count)


def add_up_folds(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    count: float | None,
    folds: KFoldSums,
) -> FoldSums:
    """Run over all rows once, with one Gram matrix per fold."""
    given = folds.folds_of_groups(blocks.n_rows)
    n_folds = folds.count(blocks.n_rows)
    grams = blocks.sum(_grams_of_block, features, shift, n_folds, given)
    total = float(grams[:, -1, -1].sum()) if count is None else count
    base = np.zeros(grams.shape[1:])
    return FoldSums(shift, grams, base, len(shift) - features.width, total)


@declare("X", "y", "weight")
def _grams_of_block(
    block: Block,
    features: FeatureMap,
    shift: Array,
    n_folds: int,
    given: NDArray[np.intp] | None,
) -> Any:
    Z = rows_of_Z(block, features, shift)
    if given is None:
        fold = (row_hashes(block) % np.uint64(n_folds)).astype(np.intp)
    else:
        fold = given[block.rows]
    parts = [gram(rows_at(Z, np.flatnonzero(fold == f))) for f in range(n_folds)]
    return namespace(parts[0]).stack(parts)


def fold_errors(sums: FoldSums, features: FeatureMap, free_bias: bool, candidates: Array) -> Array:
    """Return the mean squared error on left-out folds, summed over outputs, for every C."""
    total, r = sums.total(), features.width
    errors, weight = np.zeros(len(candidates)), 0.0
    used = [G for G in sums.grams if G[-1, -1] > 0]
    if len(used) + bool(sums.base[-1, -1] > 0) < 2:
        raise ValueError(
            "C='kfold': all rows fall into one fold, so that nothing is left to fit on. Use more "
            "rows, C='loo', or give C as a number."
        )
    for G in used:
        rest = Sums(sums.shift, total.gram - G, sums.n_outputs, total.count)
        equations = normal_equations(rest, features, free_bias)
        spectrum = decompose(equations)
        shrunk = 1.0 / (spectrum.values[:, None] + 1.0 / candidates)
        for o in range(sums.n_outputs):
            theta = spectrum.vectors @ (spectrum.z[:, o, None] * shrunk)
            v = np.zeros((len(G), len(candidates)))  # residual = Z v
            v[:r], v[r + o] = -theta, 1.0
            if free_bias:  # of the shifted columns
                mean_phi, mean_y = equations.mean_phi - sums.shift[:r], equations.mean_y[o]
                v[-1] = mean_phi @ theta - (mean_y - sums.shift[r + o])
            errors += np.sum(v * (G @ v), axis=0)
        weight += float(G[-1, -1])
    return np.asarray(np.maximum(errors, 0.0) / weight)
