"""The LS-SVM on given features, from sums over the rows (zhou2016, eqs. (9), (11)).

One factor of M = Phi_c' S Phi_c (`factor`) gives the solution, generalised cross-validation and, in
a second pass over the rows, the exact leave-one-out residuals e / (1 - h) of many models, for every
output; h = s (1/n + the leverage of the centred row).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn._config import get_config

from leansvm._accelerated import matmul_into
from leansvm._array_api import as_float64, empty, like_rows, namespace, to_host, zeros
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.ridge.bracket import Judged, Judges, draw_judges, draws_rows, search
from leansvm.ridge.criteria import (
    add_up_squares,
    best_of_scales,
    leave_out,
    losses_of_classes,
    mean_errors,
    standard_error,
)
from leansvm.ridge.eigen import solve_for_every_C
from leansvm.ridge.factor import RidgeModels, decompose, like_numbers, model_at, theta_at
from leansvm.ridge.sums import (
    NormalEquations,
    Sums,
    keep_rows_of_Z,
    normal_equations,
    rows_of_Z,
)
from leansvm.rows import Block, RowBlocks, declare, total_weight
from leansvm.solution import Solution, first_of_the_best

Array = NDArray[np.float64]
_KEEP_LOO_BYTES = 2**28
_FEW_ROWS = 2000
_MUCH_WORK = 5e8  # rows x coordinates^2, from which on single precision is worth while
_IN_SINGLE = 1e-5  # share of the largest eigenvalue above which the least ridge has to be for it
_RIDGE_IN_SINGLE = 1e-6  # the same for a Cholesky factor, beside the mean of |z|^2
_NO_ROOM = (
    "C='gcv' needs sample weights that sum to more than the degrees of freedom, but they sum to "
    "{:.3g}: scale sample_weight up, use fewer basis points, or give a number."
)


@dataclass(frozen=True)
class Criterion:
    """How C is found: candidates and what scores them, or one value."""

    C: float | Array
    name: str = "gcv"  # "gcv", "loo" or "kfold"
    left_out: bool = False  # whether left-out residuals are asked for at the C that is taken
    folds: Any = None  # `leansvm.ridge.kfold.KFoldSums`, for "kfold"
    basis_rows: NDArray[np.intp] | None = None  # rows that are basis points (`criteria`)
    judge: str = "squared"  # loss of left-out rows that "loo" averages
    known: Judged | None = None  # what comparing sizes has found out about this one


def solve(
    blocks: RowBlocks, features: FeatureMap, sums: Sums, free_bias: bool, criterion: Criterion
) -> Solution:
    """Solve at one C, or at the best of several by GCV (from the sums) or leave-one-out.

    Leave-one-out runs over the blocks again: they must hold all rows of the sums. So does GCV
    where the basis is nearly all rows; batches, of which the sums alone are left, do without.
    """
    equations, several = normal_equations(sums, features, free_bias), np.ndim(criterion.C) == 1
    if not (several or criterion.left_out):
        C = float(np.asarray(criterion.C))
        theta = theta_at(equations, C)
        return Solution("primal", features.coefficients(theta), **equations.describe(theta, C))
    by_loo = several and criterion.name == "loo"
    if (by_loo or not several) and draws_rows(blocks, features.width):
        return _solve_by_some_rows(blocks, features, sums.shift, equations, criterion)
    # nearly all rows are basis points: 1 - leverage and the squared residuals lose their digits
    share = 0.5 if blocks.n_rows <= _FEW_ROWS else 0.95  # an eigen-decomposition of all is slow
    if features.width > share * blocks.n_rows and _all_there(blocks, equations):
        return _solve_in_dual(blocks, features, equations, criterion)
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    factor = decompose(equations, blocks.place)
    models = factor.models(candidates)
    # as much as tiles may take, which follows the budget
    room = min(_KEEP_LOO_BYTES, get_config()["working_memory"] * 2**20)
    kept = 8 * blocks.n_rows * len(candidates) * sums.n_outputs <= room and criterion.left_out
    rows, curve = (blocks, features, sums.shift, equations), None
    if by_loo:
        asked: Any = {"basis_rows": criterion.basis_rows, "judge": criterion.judge}
        curve = left_out_errors(*rows, models, keep=kept, **asked)
    elif several:
        curve = models.gcv(equations)
        if len(curve) > 1 and not np.isfinite(curve).any():
            raise ValueError(_NO_ROOM.format(equations.count))
    best = 0 if curve is None else first_of_the_best(curve)
    C, theta, left_out = float(candidates[best]), models.theta(best), None
    if criterion.left_out:
        if not (by_loo and kept):
            left_out_errors(*rows, factor.models(np.array([C])), keep=True)
        left_out = blocks.concatenate(pop_left_out, best if by_loo and kept else 0)
    return Solution(
        "primal",
        features.coefficients(theta),
        **equations.describe(theta, C),
        left_out=left_out,
        curve=curve,
        error=np.nan if curve is None else float(curve[best]),
    )


def _solve_by_some_rows(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    equations: NormalEquations,
    criterion: Criterion,
) -> Solution:
    """Choose C by the left-out errors of rows that stand for all; keep those at the C taken."""
    known, several = criterion.known, np.ndim(criterion.C) == 1
    if known is not None and known.judges is not None:
        judges = known.judges
    else:
        judges = draw_judges(blocks, len(shift), criterion.basis_rows)
        judges.blocks.map(keep_rows_of_Z, features, shift)
    known = _judge(judges, features, shift, equations, criterion)
    drawn, C, model, left_out = judges.drawn, known.C, known.model, known.left_out
    assert model is not None and left_out is not None
    theta = model.theta()
    spread = standard_error(np.square(left_out).sum(axis=1), drawn.weight)
    note = (
        f"{'C was chosen by' if several else 'Calibrated on'} the left-out errors of "
        f"{len(drawn.rows):,} of {blocks.n_rows:,} rows: their mean square is {known.error:.4g} "
        f"with a standard error of {spread:.2g}."
    )
    return Solution(
        "primal",
        features.coefficients(theta),
        **equations.describe(theta, C),
        left_out=left_out,
        drawn=drawn,
        curve=known.curve if several else None,
        error=known.error,
        details={"left_out_on": len(drawn.rows), "notes": [note]},
    )


def _judge(
    judges: Judges,
    features: FeatureMap,
    shift: Array,
    equations: NormalEquations,
    criterion: Criterion,
) -> Judged:
    """Find the best C by a search, or take the one that is given, with residuals of the judges."""
    rows = judges.blocks, features, shift, equations
    errors = partial(left_out_errors, *rows, judge=criterion.judge)
    if np.ndim(criterion.C):
        known = criterion.known
        if known is not None and criterion.judge != "squared":  # by which sizes were compared
            known = replace(known, model=None)
        found = search(equations, np.asarray(criterion.C, dtype=np.float64), errors, known)
    else:
        C = float(np.asarray(criterion.C))
        found = Judged(np.nan, C, model=model_at(equations, C))
    assert found.model is not None
    error = float(errors(found.model, keep=True)[0])
    return replace(found, error=error, left_out=judges.blocks.concatenate(pop_left_out, 0))


def _all_there(blocks: RowBlocks, equations: NormalEquations) -> bool:
    """Whether the blocks hold all rows of the sums, by their weights: a batch does not."""
    return abs(total_weight(blocks) - equations.n) <= 1e-9 * equations.n


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


@dataclass
class LeftOutResiduals:
    """Residuals of a block's rows in the models without them, outputs x rows x models."""

    residuals: Any


@declare(keeps=LeftOutResiduals)
def pop_left_out(block: Block, model: int) -> Array:
    """Return the residuals in one of the models, and let go of them all."""
    residuals = block.kept(LeftOutResiduals).residuals[:, :, model]
    block.drop(LeftOutResiduals)
    return np.ascontiguousarray(to_host(residuals).T)


def left_out_errors(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    equations: NormalEquations,
    models: RidgeModels,
    *,
    keep: bool = False,
    one_copy: bool = False,
    basis_rows: NDArray[np.intp] | None = None,
    judge: str = "squared",
) -> Array:
    """Return the mean square (or loss) of the left-out residuals of every model; one pass.

    With ``keep`` blocks also keep the residuals (`LeftOutResiduals`). With ``one_copy`` a row of
    weight s > 1 is taken for s equal rows, of which one is left out. ``basis_rows`` do not count
    where the others are enough (`criteria`).
    """
    eq, width = equations, features.width
    on_host, work = blocks.place is None, blocks.n_rows * models.weights.shape[0] ** 2
    single = on_host and work > _MUCH_WORK and _clear_in_single(eq, models)
    moves = np.zeros(models.weights.shape[0]), np.zeros(len(shift) - width)
    if eq.free_bias:  # Z is about the shift, not about the means
        moves = (shift[:width] - eq.mean_phi) @ models.turn, shift[width:] - eq.mean_y
    if not on_host:
        models = replace(models, turn=like_rows(models.turn, blocks.place))  # not for every block
    per_row = eq.free_bias / eq.n
    how = single, keep, one_copy, basis_rows, judge
    totals = blocks.sum(_left_out_of_block, features, shift, models, moves, per_row, *how)
    return best_of_scales(judge, mean_errors(totals))


def _clear_in_single(equations: NormalEquations, models: RidgeModels) -> bool:
    """Whether coordinates may be rounded to float32 without a trace in the left-out errors.

    Rounding moves the coordinates z R^-1 of a row by eps |z| / sqrt(lam) at most; those of an
    eigen-decomposition are divided by the ridge afterwards.
    """
    if models.upper:
        return bool(np.min(models.lam) > _RIDGE_IN_SINGLE * equations.mean_square())
    return bool(np.min(models.lam) > _IN_SINGLE * np.linalg.norm(equations.M))


@declare("X", "y", "weight", keeps=LeftOutResiduals)
def _left_out_of_block(
    block: Block,
    features: FeatureMap,
    shift: Array,
    models: RidgeModels,
    moves: tuple[Array, Array],
    per_row: float,
    single: bool,
    keep: bool,
    one_copy: bool,
    basis_rows: NDArray[np.intp] | None,
    judge: str,
) -> Any:
    xp, width = namespace(block.X), features.width
    Z = rows_of_Z(block, features, shift)
    root = as_float64(Z[:, -1:])  # sqrt(s): what follows are rows times it
    if isinstance(Z, np.ndarray):
        Z = np.asarray(Z, np.float32 if single else np.float64)
    else:
        Z = as_float64(Z)
    E = models.coordinates(Z[:, :width], features.size)
    E += Z[:, -1:] * like_numbers(moves[0], Z)
    Y = Z[:, width:-1] + Z[:, -1:] * like_numbers(moves[1], Z)
    leverage = as_float64(models.leverages(E))
    leverage += root * root * per_row  # of a free bias
    if one_copy:
        leverage /= xp.clip(root * root, 1.0, None)
    n_outputs, squares = Y.shape[1], zeros(leverage.shape, Z)
    every = keep or judge != "squared"
    residuals = empty((n_outputs if every else 1, *leverage.shape), Z)
    fitted = E @ like_numbers(models.z * models.weights, E) if leverage.shape[1] == 1 else None
    for o in range(n_outputs):
        residual = residuals[o if every else 0, ...]
        if fitted is None:
            matmul_into(E, like_numbers(-models.coefs(o), E), residual)
            residual += Y[:, o : o + 1]
        else:
            residual[...] = Y[:, o : o + 1] - fitted[:, o : o + 1]
        leave_out(residual, leverage)
        squares += residual * residual
    if keep:
        with np.errstate(invalid="ignore"):  # rows of zero weight have none
            block.keep(LeftOutResiduals(residuals / root))
    if judge != "squared":
        tiny = float(np.finfo(np.float64).tiny)  # rows of zero weight have no residual
        values = block.y.T[:, :, None] - residuals / xp.clip(root, tiny, None)
        squares = losses_of_classes(judge, values, block.y, root[:, 0] ** 2)
    return add_up_squares(block, squares, root[:, 0], basis_rows)
