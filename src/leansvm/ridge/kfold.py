"""Exact K-fold cross-validation for every C, from sums over the rows in one pass.

With G_f = Z_f'Z_f of every fold, Z = S^1/2 [Phi, Y, 1], the model without fold f solves the normal
equations of sum G - G_f, and its squared error on the fold is v'G_f v, v = (-theta, 1, -b): K
eigen-decompositions of the size of the basis, whatever the number of rows. Learning curves are the
same with sums of the first parts of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import gram
from leansvm._array_api import foreign_namespace, rows_at, zeros
from leansvm._sklearn import Documented
from leansvm.basis.features import FeatureMap
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.equations import models_of_C, normal_equations, rows_of_Z
from leansvm.ridge.sums import Sums, add_up, check_memory, shifted
from leansvm.rows import Block, RowBlocks, declare, row_hashes

Array = NDArray[np.float64]


class KFoldSums(Documented):
    """Cross-validation in K folds, computed from sums over the rows in one pass.

    For the parameter ``C`` of `SparseLSSVC` and `SparseLSSVR`: ``C=KFoldSums(10)`` scores the
    candidates by ten folds, ``C="kfold"`` by five. Up to rounding, the errors equal those of a new
    fit without each fold on the same basis. Rows go into folds by a hash of (x, y), so that copies
    of a row stay together, wherever the rows are and in whatever batches they come.

    Parameters
    ----------
    n_splits : int or None, default=5
        Number of folds; None leaves one group out at a time and needs ``groups``.
    groups : array-like of shape (n_samples,), default=None
        Rows of a group stay in one fold: patients, machines, days. An array in memory with one
        entry per row, in the order of the rows, also if the rows are in files or in a Dask
        collection.

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

    _documented_in = "leansvm.model_selection"

    def __init__(self, n_splits: int | None = 5, groups: Any = None) -> None:
        self.n_splits = n_splits
        self.groups = groups

    def count(self, n_rows: int) -> int:
        """Return the number of folds that so many rows fall into."""
        given = self.folds_of_groups(n_rows)
        return int(self.n_splits or 0) if given is None else int(given.max()) + 1

    def folds_of_groups(self, n_rows: int) -> NDArray[np.intp] | None:
        """Return the fold of every row; None if a hash decides.

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
                f"KFoldSums: n_splits must be between 2 and the number of groups, {len(sizes)}, "
                f"got {self.n_splits!r}."
            )
        if self.n_splits is None:  # in the order of their names
            return member
        fold_of_group, filled = np.empty(len(sizes), np.intp), np.zeros(n_splits)
        for group in np.argsort(-sizes, kind="stable"):
            fold_of_group[group] = int(np.argmin(filled))
            filled[fold_of_group[group]] += sizes[group]
        return fold_of_group[member]

    def names(self, n_rows: int) -> list[str]:
        """Return the name of every fold: that of its groups, or its number."""
        given = self.folds_of_groups(n_rows)
        if given is None:
            return [str(fold) for fold in range(int(self.n_splits or 0))]
        groups = np.asarray(self.groups)
        inside = [np.unique(groups[given == fold]) for fold in range(int(given.max()) + 1)]
        return [", ".join(map(str, names)) for names in inside]


@dataclass
class FoldSums:
    """Z'Z of every fold, and of rows that are in no fold; grows by addition."""

    shift: Array
    grams: Array  # folds x columns x columns
    base: Array  # of rows that every model is fitted on
    n_outputs: int
    count: float
    by_groups: bool = False  # groups were told apart, not hashes of rows

    def __add__(self, other: FoldSums | Sums) -> FoldSums:
        """Add rows; rows of sums without folds belong to no fold."""
        count = self.count + other.count
        if isinstance(other, Sums):
            return replace(self, base=self.base + other.gram, count=count)
        grams, base = self.grams + other.grams, self.base + other.base
        return replace(self, grams=grams, base=base, count=count)

    def about(self, shift: Array) -> FoldSums:
        """Return the sums of the same rows about another shift."""
        if np.array_equal(shift, self.shift):
            return self
        grams, base = (shifted(self, part, shift) for part in (self.grams, self.base))
        return replace(self, shift=shift, grams=grams, base=base)

    def on_host(self) -> FoldSums:
        """Return self: sums of folds are on the host."""
        return self

    def total(self) -> Sums:
        """Return the sums over all rows."""
        return Sums(self.shift, self.base + self.grams.sum(axis=0), self.n_outputs, self.count)

    @classmethod
    def after(cls, sums: Sums, n_folds: int) -> FoldSums:
        """Begin folds after rows of which only sums are known; these belong to no fold."""
        empty = np.zeros((n_folds, *sums.gram.shape))
        return cls(sums.shift, empty, sums.gram, sums.n_outputs, sums.count)


def add_up_folds(
    blocks: RowBlocks, features: FeatureMap, shift: Array, count: float | None, folds: KFoldSums
) -> FoldSums:
    """Run over all rows once, with one Gram matrix per fold."""
    grams = _add_up_cells(blocks, features, shift, folds, np.ones(1))[:, 0]
    total = float(grams[:, -1, -1].sum()) if count is None else count
    terms = np.zeros(grams.shape[1:]), len(shift) - features.width, total
    return FoldSums(shift, grams, *terms, folds.groups is not None)


def _add_up_cells(
    blocks: RowBlocks, features: FeatureMap, shift: Array, folds: KFoldSums, shares: Array
) -> Array:
    """Return the Gram matrices of folds x parts of the rows; ``shares`` are where parts end."""
    given, n_folds = folds.folds_of_groups(blocks.n_rows), folds.count(blocks.n_rows)
    if given is not None:  # every worker gets the folds
        given = given.astype(np.min_scalar_type(n_folds))
    grams = blocks.sum(_grams_of_block, features, shift, n_folds, given, shares)
    return np.asarray(grams.reshape(n_folds, len(shares), *grams.shape[1:]))


def add_batch(
    blocks: RowBlocks,
    features: FeatureMap,
    before: Sums | FoldSums,
    count: float | None,
    criterion: Criterion,
    budget: int,
) -> Sums | FoldSums:
    """Add more rows to sums; if folds begin later, the rows so far are in none of them.

    Folds of groups cannot go on: an error says so if they choose C, otherwise they are forgotten.
    """
    before, by_folds = before.on_host(), criterion.name == "kfold"
    if not by_folds and (isinstance(before, Sums) or before.by_groups):
        check_memory(features.width, budget, 1)
        return before.total() + add_up(blocks, features, before.shift, count)
    folds = _more_folds(before, criterion.folds)
    number = folds.count(blocks.n_rows)
    check_memory(features.width, budget, number)
    if isinstance(before, Sums):
        before = FoldSums.after(before, number)
    return before + add_up_folds(blocks, features, before.shift, count, folds)


def _more_folds(before: Sums | FoldSums, asked: KFoldSums | None) -> KFoldSums:
    """Return the folds for more rows: as many as before, by a hash of the rows."""
    there, of_groups = None, asked is not None and asked.groups is not None
    if isinstance(before, FoldSums):
        there, of_groups = len(before.grams), of_groups or before.by_groups
    if of_groups:
        raise ValueError(
            "partial_fit: folds of groups cannot be continued, because the groups of earlier rows "
            "are not kept. Call fit on all rows with their groups, or set C to a number or 'gcv'."
        )
    if asked is None:
        return KFoldSums() if there is None else KFoldSums(there)
    if there is not None and asked.n_splits != there:
        raise ValueError(
            f"partial_fit: C asks for n_splits={asked.n_splits!r} folds, but earlier batches have "
            f"{there}. Set C=KFoldSums({there}), or call fit on all rows."
        )
    return asked


@declare("X", "y")
def folds_by_hash(block: Block, n_folds: int) -> NDArray[np.intp]:
    """Return the fold of every row of a block: equal rows are in one fold."""
    return (row_hashes(block) % np.uint64(n_folds)).astype(np.intp)


@declare("X", "y", "weight")
def _grams_of_block(
    block: Block,
    features: FeatureMap,
    shift: Array,
    n_folds: int,
    given: NDArray[Any] | None,
    shares: Array,
) -> Any:
    Z = rows_of_Z(block, features, shift)
    cell = folds_by_hash(block, n_folds) if given is None else given[block.rows].astype(np.intp)
    if len(shares) > 1:  # the hash as a number from 0 to 1: equal rows are in the same part
        place = (row_hashes(block) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        cell = cell * len(shares) + np.searchsorted(shares[:-1], place, side="right")
    n_cells = n_folds * len(shares)
    grams = zeros((n_cells, Z.shape[1], Z.shape[1]), Z)
    for c in range(n_cells):
        grams[c, ...] = gram(rows_at(Z, np.flatnonzero(cell == c)))
    return grams


# ---------------------------------------------------------------------------- errors


def errors_of_folds(
    sums: FoldSums, features: FeatureMap, free_bias: bool, candidates: Array
) -> tuple[Array, Array]:
    """Return squared errors, folds x outputs x candidates, and the sum of weights of each fold.

    Every fold is judged by the model fitted on all other rows. A fold without rows has zeros.
    """
    total, weight = sums.total(), np.maximum(sums.grams[:, -1, -1], 0.0)
    refuse_one_fold(np.append(weight, sums.base[-1, -1]))
    errors = np.zeros((len(weight), sums.n_outputs, len(candidates)))
    for f in np.flatnonzero(weight):
        G = sums.grams[f]
        rest = Sums(sums.shift, total.gram - G, sums.n_outputs, total.count)
        errors[f] = squared_errors(rest, G[None], features, free_bias, candidates)[0]
    return errors, weight


def refuse_one_fold(weight: Any) -> None:
    """Refuse folds if one has all the weight: the model without it would have no rows."""
    if np.count_nonzero(weight > 0) < 2:
        raise ValueError(
            "All rows fall into one fold, so no rows are left to fit on. Use more rows; or use "
            "C='loo' or a number instead of C='kfold', and method='jackknife+' instead of 'cv+'."
        )


def squared_errors(
    train: Sums, grams: Array, features: FeatureMap, free_bias: bool, candidates: Array
) -> Array:
    """Fit on some rows for every C; return the squared errors on others, given by their Z'Z.

    Shape (len(grams), outputs, candidates).
    """
    r = features.width
    equations = normal_equations(train, features, free_bias)
    place = getattr(features, "points", None)
    place = None if foreign_namespace(place) is None else place
    models = models_of_C(equations, candidates, place)
    errors = np.zeros((len(grams), train.n_outputs, len(candidates)))
    for o in range(train.n_outputs):
        theta = models.turn @ (models.z[:, o, None] * models.weights)
        v = np.zeros((r + train.n_outputs + 1, len(candidates)))  # residual = Z v
        v[:r], v[r + o] = -theta, 1.0
        if free_bias:  # of the shifted columns
            mean_phi, mean_y = equations.mean_phi - train.shift[:r], equations.mean_y[o]
            v[-1] = mean_phi @ theta - (mean_y - train.shift[r + o])
        for k, G in enumerate(grams):
            errors[k, o] = np.maximum(np.sum(v * (G @ v), axis=0), 0.0)
    return errors


class CurveSums(NamedTuple):
    """Squared errors of models on growing parts of the rows, each without one fold."""

    train: Array  # sizes x folds x candidates, summed over outputs
    test: Array
    train_weight: Array  # sizes x folds: sums of weights
    test_weight: Array  # folds


def learning_errors(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    free_bias: bool,
    folds: KFoldSums,
    shares: Array,
    candidates: Array,
) -> CurveSums:
    """Fit on the first shares of the rows outside of each fold; one pass over all rows.

    A hash of (x, y) decides which rows come first; equal rows stay together.
    """
    parts = np.union1d(shares, 1.0)  # rows beyond the last share are only tested
    cells = _add_up_cells(blocks, features, shift, folds, parts)
    n_outputs, tests = len(shift) - features.width, cells.sum(axis=1)
    shape = (len(shares), len(cells), len(candidates))
    train, test, train_weight = np.zeros(shape), np.zeros(shape), np.zeros(shape[:2])
    for k in range(len(shares)):
        inside = cells[:, : k + 1].sum(axis=1)
        for f, G in enumerate(tests):
            fitted = inside.sum(axis=0) - inside[f]
            n = train_weight[k, f] = float(inside[:, -1, -1].sum() - inside[f, -1, -1])
            if n <= 0:
                raise ValueError(
                    f"fractions: with {shares[k]:g} of the rows, none are left to fit on without "
                    f"fold {f}. Use larger fractions, fewer folds or more rows."
                )
            of, grams = Sums(shift, fitted, n_outputs, n), np.stack([fitted, G])
            errors = squared_errors(of, grams, features, free_bias, candidates)
            train[k, f], test[k, f] = errors.sum(axis=1)
    return CurveSums(train, test, train_weight, tests[:, -1, -1])
