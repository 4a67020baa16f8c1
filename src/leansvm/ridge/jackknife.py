"""Intervals and sets from left-out predictions (Barber, Candes, Ramdas and Tibshirani, 2021).

Jackknife+ at level 1 - alpha: with k = floor(alpha (n + 1)), the interval at x ends at the k-th
smallest of f_-i(x) - R_i and the k-th largest of f_-i(x) + R_i, R_i = |r_i|. As
f_-i(x) = f(x) - S_i(x) r_i, both ends are f(x) and the k-th largest of R_i +- S_i(x) r_i.

As |S_i(x)| <= sqrt(h(x)) sqrt(s_i h_i), most rows have an R_i that is too small to be among the k
largest for any x of a tile. They are skipped: the result is exact, and little is computed.

CV+ leaves out each of K folds instead. On a small basis f - f_-k comes from the sums of every fold
(`kfold`). If all rows are basis points, it comes from f_-g(x) = f(x) - S_g(x)'r_g, where
r_g = T_gg^-1 beta_g are the residuals of group g in the model without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.basis.features import FeatureMap
from leansvm.ridge.equations import normal_equations, theta_at
from leansvm.ridge.kfold import KFoldSums, add_up_folds, folds_by_hash, refuse_one_fold
from leansvm.ridge.sums import Sums
from leansvm.ridge.without_row import DualLeftOut, LeftOut
from leansvm.rows import Block, RowBlocks, check_budget, declare

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_TILE_BYTES = 2**25  # of a tile of new rows x training rows, with its copies
_GROUP = 4096  # new rows whose training rows that matter are found together
_TIE = 1e-6  # of the spread of left-out errors


# ---------------------------------------------------------------------------- without a fold


@dataclass
class FoldModels:
    """The functions f - f_-k of all folds, by coefficients, and the rows' left-out residuals."""

    features: FeatureMap | DualLeftOut  # what makes columns of rows
    shift: Array  # columns x outputs x folds
    constant: Array  # outputs x folds
    rows: Rows  # numbers of the rows that count
    fold: Rows  # of each of them
    residual: Array  # y - f without the row's fold, rows x outputs
    weight: Array

    @property
    def bytes_a_row(self) -> int:
        """Bytes that `place` takes for a new row."""
        return 16 * (len(self.shift) + self.constant.size)

    def place(self, X: Any) -> Array:
        """Return f(x) - f_-k(x), rows x outputs x folds."""
        if isinstance(self.features, DualLeftOut):
            columns = self.features.place(X)[:, :-2]
        else:
            columns = self.features.transform(X)
        return np.einsum("nc,cok->nok", columns, self.shift, optimize=True) + self.constant


def fold_models_of_sums(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    free_bias: bool,
    C: float,
    folds: KFoldSums,
) -> FoldModels:
    """Solve K + 1 small systems from one pass over the rows; a second one finds residuals."""
    sums = add_up_folds(blocks, features, shift, None, folds)
    refuse_one_fold(sums.grams[:, -1, -1])
    total, thetas, biases = sums.total(), [], []
    for G in [*sums.grams, np.zeros_like(total.gram)]:  # without each fold; last, all rows
        rest = Sums(shift, total.gram - G, sums.n_outputs, total.count)
        equations = normal_equations(rest, features, free_bias)
        thetas.append(theta_at(equations, C))
        mean = equations.mean_y - equations.mean_phi @ thetas[-1]
        biases.append(mean if free_bias else np.zeros(sums.n_outputs))
    theta, b = np.stack(thetas, axis=2), np.stack(biases, axis=1)
    moved = theta[:, :, -1:] - theta[:, :, :-1], b[:, -1:] - b[:, :-1]
    given = folds.folds_of_groups(blocks.n_rows)
    found = blocks.collect(_fold_residuals, features, theta[:, :, :-1], b[:, :-1], given)
    return FoldModels(features, *moved, *found)


@declare("X", "y", "weight")
def _fold_residuals(
    block: Block, features: FeatureMap, theta: Array, b: Array, given: Rows | None
) -> tuple[Any, Any, Array, Any]:
    """Return number, fold, residual without the fold, and weight of rows that count."""
    fold = given[block.rows] if given is not None else folds_by_hash(block, theta.shape[2])
    weight = np.ones(len(fold)) if block.weight is None else np.asarray(block.weight)
    used = np.flatnonzero(weight > 0)
    values = np.einsum("nc,cok->nok", features.transform(block.X[used]), theta, optimize=True) + b
    own = values[np.arange(len(used)), :, fold[used]]
    return block.start + used, fold[used], np.asarray(block.y)[used] - own, weight[used]


def fold_models_of_rows(model: DualLeftOut, fold: Rows, n_folds: int) -> FoldModels:
    """Leave out whole folds of a machine whose basis is all rows."""
    refuse_one_fold(np.bincount(fold))
    residual = model.without_groups(fold)
    R = np.zeros((*residual.shape, n_folds))
    R[np.arange(len(fold)), :, fold] = residual
    shift, constant = model.shift_coefficients(R.reshape(len(fold), -1))
    moved = shift.reshape(R.shape), constant.reshape(R.shape[1:])
    return FoldModels(model, *moved, model.rows, fold, residual, model.weight)


# ---------------------------------------------------------------------------- intervals


def rank_of(alpha: float, weight: Array) -> float:
    """Return k = floor(alpha (n + 1)); weights count as copies."""
    n = float(weight.sum())
    k = np.floor(alpha * (n + 1) * (1 + 1e-12))
    if k < 1:
        raise ValueError(
            f"alpha={alpha:g} needs at least {int(np.ceil(1 / alpha)) - 1} training rows (weights "
            f"count as copies), got {n:g}: raise alpha, or use method='normal'."
        )
    return float(k)


def jackknife_margins(
    model: LeftOut, counted: Rows, X: Any, alpha: float, adaptive: bool, budget: int
) -> tuple[Array, Array]:
    """Return how far the interval reaches below and above f(x), rows x outputs.

    ``counted`` are the training rows whose errors are used. With ``adaptive``, R_i and the width at
    x are in units of sqrt(1 + the variance of f_-i at x_i, or at x). The variance of f_-i at x is
    that of f(x) + S_i(x)^2 / (s_i (1 - h_i)).
    """
    weights = model.weight[counted]
    k = rank_of(alpha, weights)
    below, above = (np.empty((X.shape[0], model.residual.shape[1])) for _ in range(2))
    leverage, variance = spreads_at(model, X, budget)
    # squares of widths at x, of what f_-i adds to them over S_i(x)^2, and of those at x_i
    wide, more, own = np.ones(X.shape[0]), np.zeros(len(counted)), np.ones(len(counted))
    if adaptive:
        refuse_unknown(variance, "adaptive=True")
        wide, own = 1.0 + variance, 1.0 + model.left_out_variance()[counted]
        more = 1.0 / model.room()[counted]
    # rows that are alike together
    order = np.argsort(variance if adaptive else leverage)
    for group in _groups(model, len(order), budget):
        rows = order[group]
        places = model.place(X[rows])
        furthest = np.sqrt(leverage[rows].max() * weights * model.leverage[counted])  # of |S_i(x)|
        for o in range(below.shape[1]):
            r = model.residual[counted, o]
            R, shift = np.abs(r), furthest * np.abs(r)
            least = R * np.sqrt(wide[rows].min() / own)
            most = R * np.sqrt((wide[rows].max() + more * furthest**2) / own)
            near = _may_matter(least - shift, most + shift, weights, k)
            chosen, weight = model.chosen(counted[near]), weights[near]
            for part in _tiles(len(rows), len(near), budget):
                shares = model.shares(places[part], chosen)
                squares = wide[rows[part], None] + more[near] * shares**2
                base, moved = R[near] * np.sqrt(squares / own[near]), shares * r[near]
                below[rows[part], o] = _kth_largest(base + moved, weight, k)
                above[rows[part], o] = _kth_largest(base - moved, weight, k)
    return below, above


def fold_margins(
    model: FoldModels, counted: Rows, X: Any, alpha: float, budget: int
) -> tuple[Array, Array]:
    """Return `jackknife_margins` for CV+: f without the row's fold, not f without the row."""
    weights, folds = model.weight[counted], model.fold[counted]
    k = rank_of(alpha, weights)
    below, above = (np.empty((X.shape[0], model.residual.shape[1])) for _ in range(2))
    for group in _groups(model, X.shape[0], budget):
        moved = model.place(X[group])  # rows x outputs x folds
        for o in range(below.shape[1]):
            R, furthest = np.abs(model.residual[counted, o]), np.abs(moved[:, o]).max(axis=0)[folds]
            near = _may_matter(R - furthest, R + furthest, weights, k)
            weight = weights[near]
            for part in _tiles(len(moved), len(near), budget):
                rows = slice(group.start + part.start, group.start + part.stop)
                shift = moved[part, o][:, folds[near]]
                below[rows, o] = _kth_largest(R[near] + shift, weight, k)
                above[rows, o] = _kth_largest(R[near] - shift, weight, k)
    return below, above


def tie_margin(residual: Array, weight: Array, values: Array) -> Array:
    """Return by how much to move both ends outwards, so that targets equal to an end are inside.

    If many targets are equal (0/1, rounded numbers) and f is nearly constant, an end of the
    interval equals such a target, up to rounding.
    """
    spread = np.sqrt(np.average(residual**2, axis=0, weights=weight))
    return np.asarray(_TIE * spread + 8 * np.finfo(np.float64).eps * np.abs(values))


def spreads_at(model: LeftOut, X: Any, budget: int) -> tuple[Array, Array]:
    """Return h(x) and the variance of f(x) over that of the noise, a group of rows at a time."""
    leverage, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
    for rows in _groups(model, X.shape[0], budget):
        places = model.place(X[rows])
        leverage[rows], variance[rows] = model.leverage_at(places), model.variance_at(places)
    return leverage, variance


def refuse_unknown(variance: Array, what: str) -> None:
    """Say that a precomputed kernel matrix lacks k(x, x) of new rows."""
    if np.isnan(variance).any():
        raise ValueError(
            f"{what} needs k(x, x) of new rows, which kernel='precomputed' does not provide."
        )


def _groups(model: LeftOut | FoldModels, n_rows: int, budget: int) -> list[slice]:
    """Cut new rows into groups that are looked at together."""
    size = int(np.clip(budget // 8 // model.bytes_a_row, 1, _GROUP))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def _tiles(n_rows: int, n_near: int, budget: int) -> list[slice]:
    """Cut rows so that a tile of them times training rows, and its copies, is small."""
    needed = 48 * max(n_near, 1)
    what = f"The left-out predictions of one row by {n_near:,} training rows"
    check_budget(needed, budget, what, "Raise cache_size.")
    step = max(1, min(_TILE_BYTES, budget // 8) // needed)
    return [slice(a, min(a + step, n_rows)) for a in range(0, n_rows, step)]


def _may_matter(least: Array, most: Array, weight: Array, k: float) -> Rows:
    """Return rows that may be among the k largest, given bounds of every row's value."""
    if not np.isfinite(most).all():
        return np.arange(len(most))
    return np.flatnonzero(most >= _kth_largest(least[None, :], weight, k)[0])


def _kth_largest(values: Array, weight: Array, k: float) -> Array:
    """Return the k-th largest of every row; a value of weight s counts s times."""
    n = values.shape[1]
    if (weight == 1.0).all():
        place = n - int(k)
        return np.partition(values, place, axis=1)[:, place]
    order = np.argsort(-values, axis=1)
    sums = np.cumsum(weight[order], axis=1)
    place = np.minimum(np.sum(sums < k * (1 - 1e-12), axis=1), n - 1)
    return np.take_along_axis(values, order, axis=1)[np.arange(len(values)), place]


def prediction_sets(
    model: LeftOut,
    counted: Rows,
    X: Any,
    values: Array,
    residual: Array,
    margins: Array,
    alpha: float,
    budget: int,
) -> NDArray[np.bool_]:
    """Return which classes belong to the set of every row (Romano, Sesia and Candes, 2020).

    Class k does unless (1 - alpha) (n + 1) training rows have a larger margin than k at x, both
    in the model without the training row. ``values`` are f(x) with a column for every class;
    ``residual`` and ``margins`` are those of the training rows in the models without them, margins
    of their own classes.
    """
    from leansvm.ridge._jackknife_kernels import count_better

    n = float(model.weight[counted].sum())
    counts, groups = np.zeros(values.shape), _groups(model, X.shape[0], budget)
    step = max(1, min(_TILE_BYTES, budget // 8) // (8 * groups[0].stop))
    for first in range(0, len(counted), step):
        some = counted[first : first + step]
        chosen = model.chosen(some)
        for rows in groups:
            shares = np.ascontiguousarray(model.shares(model.place(X[rows]), chosen))
            better = margins[some], model.weight[some]
            count_better(values[rows], shares, residual[some], *better, counts[rows])
    return counts < (1 - alpha) * (n + 1) * (1 - 1e-12)
