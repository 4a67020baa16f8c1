"""Leave-one-out errors, which compare values of C, sizes, kernels and scales.

The residual of a row in the model without it is e / (1 - h), with its residual e and leverage h.
If the target of a basis row x_i is left out, its function k(., x_i) stays in the model, and nearby
rows decide its coefficient. The error of this row then grows with C and with the basis; that of new
rows does not. So rows outside of the basis compare the models, if they are enough. If all rows are
in the basis, left-out errors equal those of refitting without the row. If weights differ, few rows
(a rare class, say) may weigh as much as all others: a class with few rows outside counts with all
of its rows. If left-out errors of all rows would take too long, only some rows are left out, one
at a time: the `EvaluationRows`, which represent all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, like_rows, namespace, to_host
from leansvm.basis.features import ColumnRows, FeatureMap
from leansvm.ridge.equations import MomentRows, NormalEquations, RidgeModels, rows_of_Z
from leansvm.rows import (
    Block,
    DrawnRows,
    RowBlocks,
    StandsFor,
    class_numbers,
    declare,
    draw_for_all,
    row_weights,
)

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
ENOUGH = 500  # if so many rows (or half of all) are outside of the basis, only they count
_FEW_OUTSIDE = 0.25  # a class with fewer of its rows outside, and fewer than ENOUGH, counts in full
FLOOR = 1e-12  # smallest 1 - h: rounding may make it zero
ALIKE = 1.0 + 1e-6  # ratio of errors that differ only by rounding
LOO_LOSSES = ("squared", "accuracy", "log_loss")  # means over left-out rows that may choose C
_BLURRED = 0.5  # smaller margins count as mistakes in part, so that no single row decides
_SCALES = np.exp(np.arange(-1.0, 4.1, 0.5))  # factors of the log odds; the best one counts
_MANY_POINTS, _WORK_OF_ALL_ROWS = 1000, 1e10  # with more points, or rows x points^2, rows are drawn
_EVALUATION_ROWS = 2000  # rows that are drawn
_CALIBRATION_ROWS = 10_000  # most rows drawn for a single model; fewer if they cost more
_WORTH_SINGLE = 5e8  # rows x coordinates^2 from which single precision saves time
_IN_SINGLE = 1e-5  # smallest ridge, over the largest eigenvalue, that allows it
_RIDGE_IN_SINGLE = 1e-6  # the same for a Cholesky factor, beside the mean of |z|^2


# ---------------------------------------------------------------------------- how C is found


@dataclass(frozen=True)
class EvaluationRows:
    """Rows whose left-out errors, weighted by how many rows each represents, estimate all."""

    drawn: DrawnRows
    blocks: RowBlocks  # the same rows, with their weights; they keep their rows of Z
    # no basis row is among the drawn; False if basis rows count, because too few others are left
    outside: bool


@dataclass(frozen=True)
class ChosenC:
    """The best C of one basis and its error; also the model, if a triangular factor gave it."""

    error: float
    C: float
    curve: Array | None = None  # errors at the candidates, nan if one was not tried
    model: RidgeModels | None = None
    evaluation: EvaluationRows | None = None


@dataclass(frozen=True)
class Criterion:
    """How C is found: one number ``C``, or candidates and the error that compares them."""

    # what the user asked for
    C: float | Array
    name: str = "gcv"  # "gcv", "loo" or "kfold"
    left_out: bool = False  # whether the solution needs left-out residuals at the chosen C
    folds: Any = None  # `leansvm.ridge.kfold.KFoldSums`, for "kfold"
    loss: str = "squared"  # of left-out rows, averaged by "loo"
    seed: int = 0  # of the rows that are drawn to be left out: the same in all comparisons of a fit
    # what `SparseProblem.solve` fills in
    basis_rows: Rows | None = None  # rows that are basis points (`criteria`)
    known: ChosenC | None = None  # the best C, if comparing sizes has found it

    @property
    def candidates(self) -> Array:
        """The values of C: one, or those to compare."""
        return np.atleast_1d(np.asarray(self.C, dtype=np.float64))


# ---------------------------------------------------------------------------- which rows count


def rows_inside(blocks: RowBlocks, basis_rows: Rows) -> Rows:
    """Return the basis rows that do not count: those of classes with enough other rows.

    If all rows have the same weight, or targets are numbers, these are all basis rows; if too few
    other rows would be left, none. One pass over targets and weights, if there are any.
    """
    n, n_inside = blocks.n_rows, len(basis_rows)
    if blocks.weighted and len(basis_rows):
        n, sizes, least, most = blocks.fold(_joined_sizes, _sizes_of_classes)
        Y, weight = blocks.targets_of(basis_rows)
        weight = np.ones(len(basis_rows)) if weight is None else weight
        if sizes is not None and least < most:
            classes = class_numbers(np.asarray(Y, dtype=np.float64))
            inside = np.bincount(classes[weight > 0], minlength=len(sizes))
            few = sizes - inside < np.minimum(ENOUGH, _FEW_OUTSIDE * sizes)
            basis_rows, weight = basis_rows[~few[classes]], weight[~few[classes]]
        n_inside = int(np.count_nonzero(weight > 0))
    return basis_rows if n - n_inside >= min(ENOUGH, n / 2) else basis_rows[:0]


@declare("y", "weight")
def _sizes_of_classes(block: Block) -> tuple[int, Rows | None, float, float]:
    """Return the rows that count, those of every class, least and largest weight.

    None instead of the classes: targets are numbers.
    """
    Y, weight = np.asarray(to_host(block.y)), to_host(row_weights(block))
    Y, weight = Y[weight > 0], weight[weight > 0]
    least, most = float(weight.min(initial=np.inf)), float(weight.max(initial=0.0))
    if not np.all(np.abs(Y) == 1.0):
        return len(Y), None, least, most
    return len(Y), np.bincount(class_numbers(Y), minlength=max(Y.shape[1], 2)), least, most


def _joined_sizes(a: Any, b: Any) -> Any:
    sizes = None if a[1] is None or b[1] is None else a[1] + b[1]
    return a[0] + b[0], sizes, min(a[2], b[2]), max(a[3], b[3])


def draws_rows(blocks: RowBlocks, width: int) -> bool:
    """Whether left-out errors of all rows take so long that only some rows are used."""
    if blocks.place is not None or blocks.n_rows <= _EVALUATION_ROWS:
        return False
    return width > _MANY_POINTS or blocks.n_rows * width**2 > _WORK_OF_ALL_ROWS


def draw_evaluation_rows(
    blocks: RowBlocks,
    columns: int,
    basis_rows: Rows | None,
    seed: int = 0,
    one_model: bool = False,
) -> EvaluationRows:
    """Draw rows to evaluate models on, none of the ``basis_rows`` that do not count.

    For ``one_model`` more rows are drawn, which makes probabilities better. That is affordable,
    because no search over C repeats the work.
    """
    rng, count = np.random.RandomState(seed), _EVALUATION_ROWS
    if one_model:
        count = max(count, min(_CALIBRATION_ROWS, int(_WORK_OF_ALL_ROWS / columns**2)))
    drawn = draw_for_all(blocks, count, rng, basis_rows)
    outside = basis_rows is None or len(basis_rows) > 0
    return EvaluationRows(drawn, drawn.as_rows(blocks, 3 * (columns + 1)), outside)


# ---------------------------------------------------------------------------- the pass over rows


@dataclass
class LeftOutResiduals:
    """Residuals of a block's rows in the models without them, outputs x rows x models."""

    residuals: Any


@declare(keeps=(LeftOutResiduals, MomentRows, ColumnRows))
def pop_left_out(block: Block, *models: int) -> tuple[Array, ...]:
    """Return the residuals in some of the models; drop everything else kept for leaving out."""
    for kind in (MomentRows, ColumnRows):
        block.state.pop(kind, None)
    residuals, found = block.state.pop(LeftOutResiduals).residuals, []
    for model in models:
        found.append(np.ascontiguousarray(to_host(residuals[:, :, model]).T))
    return tuple(found)


def left_out_errors(
    blocks: RowBlocks,
    equations: NormalEquations,
    models: RidgeModels,
    *,
    keep: bool = False,
    one_copy: bool = False,
    basis_rows: Rows | None = None,
    loss: str = "squared",
) -> Array:
    """Return the mean square (or loss) of the left-out residuals of every model; one pass.

    With ``keep``, blocks also keep the residuals (`LeftOutResiduals`). ``one_copy``: weights are
    copies, and only one of them is left out (low-rank machines). ``basis_rows`` do not count (see
    `rows_inside`).
    """
    eq, features, shift = equations, equations.features, equations.shift
    width, n_coordinates = features.width, models.weights.shape[0]
    moves = np.zeros(n_coordinates), np.zeros(len(shift) - width)
    if eq.free_bias:  # Z is about the shift, not about the means
        moves = (shift[:width] - eq.mean_phi) @ models.turn, shift[width:] - eq.mean_y
    # outputs x coordinates x models
    minus_coefs = np.ascontiguousarray(-(models.z.T[:, :, None] * models.weights))
    arrays: list[Any] = [models.turn, models.weights, minus_coefs, *moves]
    if blocks.place is not None:
        arrays = [like_rows(array, blocks.place) for array in arrays]
    elif blocks.n_rows * n_coordinates**2 > _WORTH_SINGLE:
        # Rounding moves the coordinates z R^-1 of a row by eps |z| / sqrt(lam) at most; those of
        # an eigen-decomposition are divided by the ridge afterwards.
        if models.upper:
            least = _RIDGE_IN_SINGLE * eq.mean_square()
        else:
            least = _IN_SINGLE * float(np.linalg.norm(eq.matrix()))
        if np.min(models.lam) > least:  # float32 does not change the left-out errors
            arrays = [array.astype(np.float32) for array in arrays]
    models = replace(models, turn=arrays[0], weights=arrays[1])
    given = features, shift, models, *arrays[2:], eq.free_bias / eq.n
    sums = blocks.sum(_left_out_of_block, *given, keep, one_copy, basis_rows, loss)
    errors = np.asarray(sums[:-1] / sums[-1])
    return at_best_scale(errors) if loss == "log_loss" else errors


@declare("X", "y", "weight", keeps=LeftOutResiduals)
def _left_out_of_block(
    block: Block,
    features: FeatureMap,
    shift: Array,
    models: RidgeModels,
    minus_coefs: Any,
    phi_move: Any,
    y_move: Any,
    per_row: float,
    keep: bool,
    one_copy: bool,
    basis_rows: Rows | None,
    loss: str,
) -> Any:
    """Return sums over the rows that count: s (left-out residual)^2, or s L, by model; last, s.

    Arrays of the models are where the rows are, in the precision of the products.
    """
    width, Z = features.width, rows_of_Z(block, features, shift)
    xp, root = namespace(Z), as_float64(Z[:, -1:])  # sqrt(s): what follows are rows times it
    Z = xp.astype(Z, phi_move.dtype, copy=False)
    E = models.coordinates(Z[:, :width], features.size)
    E += Z[:, -1:] * phi_move
    Y = Z[:, width:-1] + Z[:, -1:] * y_move
    leverage = as_float64((E * E) @ models.weights)
    leverage += root * root * per_row  # of a free bias
    if one_copy:
        leverage /= xp.clip(root * root, 1.0, None)
    left = xp.clip(1.0 - leverage, FLOOR, None)
    one_model = E @ minus_coefs[:, :, 0].T if left.shape[1] == 1 else None
    residuals: list[Any] = []
    squares: Any = 0.0
    for o in range(Y.shape[1]):
        y = Y[:, o : o + 1]
        if one_model is None:
            residual = as_float64(E @ minus_coefs[o, ...])
            residual += y
        else:
            residual = as_float64(y + one_model[:, o : o + 1])
        residual /= left
        squares = squares + residual * residual
        if keep or loss != "squared":
            residuals.append(residual)
    if keep:
        with np.errstate(invalid="ignore"):  # rows of zero weight have none
            block.keep(LeftOutResiduals(xp.stack(residuals) / root))
    if loss != "squared":
        tiny = float(np.finfo(np.float64).tiny)  # rows of zero weight have no residual
        values = block.y.T[:, :, None] - xp.stack(residuals) / xp.clip(root, tiny, None)
        squares = losses_of_classes(loss, values, block.y, root[:, 0] ** 2)
    counted = np.ones(squares.shape[0])
    if basis_rows is not None:
        counted[block.positions(basis_rows)[1]] = 0.0
    drawn = block.state.get(StandsFor)
    if drawn is not None:
        counted *= drawn.rows
    return like_rows(counted, squares) @ xp.concat([squares, root * root], axis=1)


# ---------------------------------------------------------------------------- losses of classes


def losses_of_classes(loss: str, values: Any, Y: Any, weight: Any) -> Any:
    """Return s times the loss of left-out decision values of classes, rows x models.

    ``values`` are outputs x rows x models, targets +-1. "accuracy" counts mistakes; "log_loss" has
    as many columns for each model as there are scales a of p ~ sigma(a f), see `at_best_scale`.
    """
    xp, Y = namespace(values), like_rows(Y, values)
    if values.shape[0] == 1:
        values = values * Y.T[:, :, None]
        own, others = values[0, ...], -values
    else:
        is_own = (Y > 0).T[:, :, None]
        own = xp.sum(xp.where(is_own, values, 0.0), axis=0)
        others = xp.where(is_own, -xp.inf, values)
    if loss == "accuracy":
        margin = own - xp.max(others, axis=0)
        return weight[:, None] * xp.clip(0.5 - margin / (2.0 * _BLURRED), 0.0, 1.0)
    found = []
    for a in _SCALES.tolist():
        z = a * own
        mine = xp.clip(z, None, 0.0) - xp.log1p(xp.exp(-abs(z)))  # log sigma(a f)
        rest = xp.sum(1.0 / (1.0 + xp.exp(xp.clip(-a * others, None, 700.0))), axis=0)
        found.append(weight[:, None] * (xp.log(xp.exp(mine) + rest) - mine))
    return xp.concat(found, axis=1)


def at_best_scale(errors: Array) -> Array:
    """Return the log loss of every model at the best scale of its log odds."""
    return np.asarray(errors.reshape(len(_SCALES), -1).min(axis=0))


def standard_error(values: Array, weight: Array) -> float:
    """Return the standard error of the weighted mean of independent values."""
    apart = values - weight @ values / weight.sum()
    return float(np.linalg.norm(weight * apart) / weight.sum())


# ---------------------------------------------------------------------------- the best


def first_of_the_best(errors: Array) -> int:
    """Return the place of the first error that equals the smallest one up to rounding.

    Errors are nearly constant at large C, where another machine, which rounds differently, would
    find the smallest one at another place.
    """
    if not np.isfinite(errors).any():
        return 0
    return int(np.argmax(errors <= ALIKE * np.nanmin(errors)))
