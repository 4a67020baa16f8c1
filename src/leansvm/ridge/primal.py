"""The LS-SVM on given features, from sums over the rows (zhou2016, eqs. (9), (11)).

One factor of M = Phi_c' S Phi_c (`factor`) gives the solution, generalised cross-validation and, in
a second pass over the rows, the exact leave-one-out residuals (`criteria`) of many models, for
every output. Folds (`kfold`) and the search for C in large fits (`bracket`) need no second pass
over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn._config import get_config

from leansvm._array_api import as_float64
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.ridge.bracket import ChosenC, search
from leansvm.ridge.criteria import (
    draw_evaluation_rows,
    draws_rows,
    first_of_the_best,
    left_out_errors,
    pop_left_out,
    standard_error,
)
from leansvm.ridge.eigen import solve_for_every_C
from leansvm.ridge.factor import RidgeModels, model_at, models_of_C, theta_at
from leansvm.ridge.kfold import FoldSums, fold_errors
from leansvm.ridge.sums import NormalEquations, Sums, keep_rows_of_Z, normal_equations
from leansvm.rows import Block, RowBlocks, declare, total_weight
from leansvm.solution import Solution

Array = NDArray[np.float64]
_KEEP_LOO_BYTES = 2**28
_ROWS_FOR_DUAL = 2000  # beyond, an eigen-decomposition of all rows is slow
_NO_ROOM = (
    "C='gcv' needs sample weights that sum to more than the degrees of freedom, but they sum to "
    "{:.3g}: scale sample_weight up, use fewer basis points, or set C to a number."
)


@dataclass(frozen=True)
class Criterion:
    """How C is found: one number ``C``, or candidates and the error that compares them."""

    C: float | Array
    name: str = "gcv"  # "gcv", "loo" or "kfold"
    left_out: bool = False  # whether the solution needs left-out residuals at the chosen C
    folds: Any = None  # `leansvm.ridge.kfold.KFoldSums`, for "kfold"
    basis_rows: NDArray[np.intp] | None = None  # rows that are basis points (`criteria`)
    judge: str = "squared"  # loss of left-out rows that "loo" averages
    known: ChosenC | None = None  # what comparing sizes has found out about this one
    seed: int = 0  # of the rows that are drawn to judge: the same ones in all comparisons of a fit


def solve_sums(
    blocks: RowBlocks,
    features: FeatureMap,
    sums: Sums | FoldSums,
    free_bias: bool,
    criterion: Criterion,
) -> Solution:
    """Solve at one C, or at the best of several by folds, GCV (from the sums) or leave-one-out.

    Leave-one-out runs over the blocks again: they must hold all rows of the sums. So does GCV
    where the basis is nearly all rows; batches, of which the sums alone are left, do without.

    - folds choose C: `_solve_by_folds`
    - one C, no left-out residuals: here, by Cholesky
    - left-out errors of all rows would take too long: `_solve_by_some_rows`; for GCV, after it has
      chosen C
    - nearly all rows are points: `_solve_in_dual`
    - otherwise: here, by eigenvalues for several C, by Cholesky for one
    """
    if isinstance(sums, FoldSums):
        if criterion.name == "kfold":
            return _solve_by_folds(blocks, features, sums, free_bias, criterion)
        sums = sums.total()
    equations, several = normal_equations(sums, features, free_bias), np.ndim(criterion.C) == 1
    if not (several or criterion.left_out):
        C = float(np.asarray(criterion.C))
        theta = theta_at(equations, C)
        return Solution("primal", features.coefficients(theta), **equations.describe(theta, C))
    by_loo, some_rows = several and criterion.name == "loo", draws_rows(blocks, features.width)
    rows = blocks, features, sums.shift, equations
    if (by_loo or not several) and some_rows:
        return _solve_by_some_rows(*rows, criterion)
    # nearly all rows are basis points: 1 - leverage and the squared residuals lose their digits
    share = 0.5 if blocks.n_rows <= _ROWS_FOR_DUAL else 0.95
    if (
        features.width > share * blocks.n_rows
        and abs(total_weight(blocks) - equations.n) <= 1e-9 * equations.n  # not a batch of them
    ):
        return _solve_in_dual(blocks, features, equations, criterion)
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    if several or not len(equations.c):  # no function but the bias has no triangular factor
        models = models_of_C(equations, candidates, blocks.place)
    else:
        models = model_at(equations, float(candidates[0]))
    # as much as tiles may take, which follows the budget
    room = min(_KEEP_LOO_BYTES, get_config()["working_memory"] * 2**20)
    kept = 8 * blocks.n_rows * len(candidates) * sums.n_outputs <= room and criterion.left_out
    curve = None
    if by_loo:
        asked: Any = {"basis_rows": criterion.basis_rows, "judge": criterion.judge}
        curve = left_out_errors(*rows, models, keep=kept, **asked)
    elif several:
        curve = models.gcv(equations)
        if len(curve) > 1 and not np.isfinite(curve).any():
            raise ValueError(_NO_ROOM.format(equations.count))
    best = 0 if curve is None else first_of_the_best(curve)
    C, left_out = float(candidates[best]), None
    if curve is not None and criterion.left_out and some_rows:  # GCV looked at no row
        model = replace(models, weights=models.weights[:, [best]])
        found = _solve_by_some_rows(*rows, replace(criterion, C=C, known=None), model)
        return replace(found, curve=curve, error=float(curve[best]))
    # at one C by triangular solves, which lose fewer digits than the inverse in the models
    theta = models.theta(best) if several else theta_at(equations, C)
    if criterion.left_out:
        if not (by_loo and kept):
            left_out_errors(*rows, replace(models, weights=models.weights[:, [best]]), keep=True)
        (left_out,) = blocks.collect(pop_left_out, best if by_loo and kept else 0)
    return Solution(
        "primal",
        features.coefficients(theta),
        **equations.describe(theta, C),
        left_out=left_out,
        curve=curve,
        error=np.nan if curve is None else float(curve[best]),
    )


def _solve_by_folds(
    blocks: RowBlocks, features: FeatureMap, sums: FoldSums, free_bias: bool, criterion: Criterion
) -> Solution:
    """Choose C by the errors on left-out folds, then solve from the sums over all rows."""
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    if np.count_nonzero(sums.grams[:, -1, -1]) + bool(sums.base[-1, -1]) < 2:
        # a batch of a row or two: nothing to leave out yet
        gcv = Criterion(candidates, "gcv", criterion.left_out, seed=criterion.seed)
        solution = solve_sums(blocks, features, sums.total(), free_bias, gcv)
        return replace(solution, details=solution.details | {"criterion": "gcv"})
    curve = fold_errors(sums, features, free_bias, candidates)
    best = first_of_the_best(curve)
    chosen = Criterion(float(candidates[best]), left_out=criterion.left_out, seed=criterion.seed)
    solution = solve_sums(blocks, features, sums.total(), free_bias, chosen)
    details = solution.details | {"criterion": "kfold"}
    return replace(solution, curve=curve, error=float(curve[best]), details=details)


def _solve_by_some_rows(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    equations: NormalEquations,
    criterion: Criterion,
    model: RidgeModels | None = None,
) -> Solution:
    """Choose C by the left-out errors of rows that stand for all; keep those at the C taken.

    At one C, which may have been chosen already with its ``model``, the rows only calibrate.
    """
    known, several, curve = criterion.known, np.ndim(criterion.C) == 1, None
    evaluation = None if known is None else known.evaluation
    if evaluation is None:
        given = len(shift), criterion.basis_rows, criterion.seed, model is not None
        evaluation = draw_evaluation_rows(blocks, *given)
        evaluation.blocks.map(keep_rows_of_Z, features, shift)
    rows = evaluation.blocks, features, shift, equations
    errors = partial(left_out_errors, *rows, judge=criterion.judge)
    if several:
        if known is not None and criterion.judge != "squared":  # by which sizes were compared
            known = replace(known, model=None)
        found = search(equations, np.asarray(criterion.C, dtype=np.float64), errors, known)
        C, model, curve = found.C, found.model, found.curve
    else:
        C = float(np.asarray(criterion.C))
        model = model_at(equations, C) if model is None else model
    assert model is not None
    error = float(errors(model, keep=True)[0])
    drawn, (left_out,) = evaluation.drawn, evaluation.blocks.collect(pop_left_out, 0)
    theta, spread = model.theta(), standard_error(np.square(left_out).sum(axis=1), drawn.weight)
    note = (
        f"{'C was chosen by' if several else 'Calibrated on'} the left-out errors of "
        f"{len(drawn.rows):,} of {blocks.n_rows:,} rows: their mean square is {error:.4g} "
        f"with a standard error of {spread:.2g}."
    )
    return Solution(
        "primal",
        features.coefficients(theta),
        **equations.describe(theta, C),
        left_out=left_out,
        drawn=drawn,
        curve=curve,
        error=error,
        details={"left_out_on": len(drawn.rows), "notes": [note]},
    )


def _solve_in_dual(
    blocks: RowBlocks, features: FeatureMap, equations: NormalEquations, criterion: Criterion
) -> Solution:
    """Leave-one-out and GCV where the basis is nearly all rows: both cancel in the primal.

    The same model is the dual LS-SVM with the kernel Phi Phi', where they do not.
    """
    wide = replace(features, single=False) if isinstance(features, KernelFeatures) else features
    Phi = blocks.concatenate(_all_features, wide)
    Y, weight = blocks.targets_of(np.arange(blocks.n_rows))
    weight = np.ones(len(Y)) if weight is None else weight
    used = np.flatnonzero(weight > 0)
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    basis_rows = criterion.basis_rows
    if basis_rows is not None:
        basis_rows = np.flatnonzero(np.isin(used, basis_rows))
    every = solve_for_every_C(
        Phi[used] @ Phi[used].T,
        Y[used],
        weight[used],
        candidates,
        0.0 if equations.free_bias else np.inf,  # a penalised bias is a column of Phi
        criterion.name,
        count=equations.count,
        basis_rows=basis_rows,
        judge=criterion.judge,
    )
    theta = Phi[used].T @ every.coef
    known = equations.describe(theta, every.C)
    if equations.free_bias:
        known["b"] = every.b
    left_out = np.full(Y.shape, np.nan)
    left_out[used] = every.left_out
    return Solution(
        "primal",
        features.coefficients(theta),
        **known,
        left_out=left_out,
        curve=every.curve if np.ndim(criterion.C) == 1 else None,
        error=every.error,
    )


@declare("X")
def _all_features(block: Block, features: FeatureMap) -> Any:
    return as_float64(features.of(block))
