"""C by a bracketing search, if an eigen-decomposition and a pass over all rows take too long.

A value of C costs a Cholesky factor of M + 1/C, with M the sums over all rows, and the leverages of
some rows: r^3 / 3 + v r^2 flops for r points and v rows. These rows are drawn from all rows that
count, rare classes more often; each has a weight, the number of rows that it represents, so that
the mean of their left-out errors is an unbiased estimate for all rows. The search begins at the C
that comparing sizes has found, or at the best C for the first few hundred columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.ridge.criteria import (
    ChosenC,
    Criterion,
    draw_evaluation_rows,
    first_of_the_best,
    left_out_errors,
    pop_left_out,
    standard_error,
)
from leansvm.ridge.equations import (
    NormalEquations,
    RidgeModels,
    keep_rows_of_Z,
    model_at,
    models_of_C,
)
from leansvm.rows import RowBlocks
from leansvm.solution import Solution

Array = NDArray[np.float64]
Errors = Callable[[RidgeModels], Array]  # left-out errors of models, on the rows that are left out
_FIRST, _MIDDLE = 500, 2048  # columns of models on the way to a large one
_STRIDE = 2  # candidates between the first values that are tried


def solve_by_some_rows(
    blocks: RowBlocks,
    equations: NormalEquations,
    criterion: Criterion,
    model: RidgeModels | None = None,
) -> Solution:
    """Choose C by the left-out errors of rows that represent all; keep the errors at this C.

    If there is only one C, which may come with its ``model``, the rows only calibrate.
    """
    known, several, curve = criterion.known, np.ndim(criterion.C) == 1, None
    evaluation = None if known is None else known.evaluation
    if evaluation is None:
        given = len(equations.shift), criterion.basis_rows, criterion.seed, model is not None
        evaluation = draw_evaluation_rows(blocks, *given)
        if several:  # a single model reads them once
            evaluation.blocks.map(keep_rows_of_Z, equations.features, equations.shift)
    errors = partial(left_out_errors, evaluation.blocks, equations, loss=criterion.loss)
    if several:
        if known is not None and criterion.loss != "squared":  # by which sizes were compared
            known = replace(known, model=None)
        found = search(equations, criterion.candidates, errors, known)
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
    return equations.solution(
        theta,
        C,
        left_out=left_out,
        drawn=drawn,
        curve=curve,
        error=error,
        details={"left_out_on": len(drawn.rows), "notes": [note]},
    )


def search(
    equations: NormalEquations, candidates: Array, errors: Errors, known: ChosenC | None = None
) -> ChosenC:
    """Return the best C, its model, and the errors at the candidates that were tried.

    The search begins at the ``known`` C, whose model, if there is one, is not made again. In a
    large basis, the first columns alone compare values of C, and the errors are theirs; the model
    on all columns comes last. If it is known, its C was found on half of the points and stays.
    """
    order = np.argsort(candidates, kind="stable")
    values, width = candidates[order], len(equations.c)
    if known is not None and known.model is not None and width > _MIDDLE:
        curve = np.where(candidates == known.C, known.error, np.nan)
        return replace(known, curve=curve)
    if known is None:
        part, columns = _first_columns(equations, _FIRST)
        start = first_of_the_best(errors(_widened(models_of_C(part, values), columns, width)))
    else:
        start = int(np.abs(np.log(values / known.C)).argmin())
    every = _CEvaluator(equations, np.arange(width), width, values, errors)
    if known is not None and known.model is not None:
        every.best = (known.error, start), known.model
    some = every
    if len(values) > 1 and width > _MIDDLE:
        some = _CEvaluator(*_first_columns(equations, _MIDDLE), width, values, errors)
    tried = bracket(some.error_at, start, len(order), 1 if known is not None else _STRIDE)
    error = every.error_at(_best(tried))
    curve = np.full(len(candidates), np.nan)
    curve[order[list(tried)]] = list(tried.values())
    return ChosenC(error, float(values[_best(tried)]), curve, every.best[1])


@dataclass
class _CEvaluator:
    """Evaluates values of C on some columns, and keeps only the best model: each is large."""

    equations: NormalEquations
    columns: NDArray[np.intp]
    width: int
    values: Array  # of C
    errors: Errors
    best: Any = ((np.nan, -1), None)  # error and position, and the model

    def error_at(self, position: int) -> float:
        """Return the left-out error at one C."""
        if position == self.best[0][1]:
            return float(self.best[0][0])
        model = model_at(self.equations, float(self.values[position]))
        model = _widened(model, self.columns, self.width)
        error = float(self.errors(model)[0])
        if not (error, position) >= self.best[0]:
            self.best = (error, position), model
        return error


def bracket(
    error_at: Callable[[int], float], start: int, count: int, step: int = _STRIDE
) -> dict[int, float]:
    """Return the errors at the positions tried, until both neighbours of the best are no better.

    Steps double from the second on until the best lies between two others; then gaps are halved.
    """
    tried, best, moved = {start: error_at(start)}, start, False
    while True:
        lower, upper = [i for i in tried if i < best], [i for i in tried if i > best]
        below, above = best - max(lower, default=best), min(upper, default=best) - best
        if best > 0 and not lower:
            other = max(best - step, 0)
        elif best < count - 1 and not upper:
            other = min(best + step, count - 1)
        elif max(below, above) > 1:
            other = best - below // 2 if below > above else best + above // 2
        else:
            return tried
        tried[other] = error_at(other)
        if _best(tried) != best:
            best, step, moved = _best(tried), 2 * step if moved else step, True


def _best(tried: dict[int, float]) -> int:
    return min(tried, key=lambda position: (tried[position], position))


def _first_columns(
    equations: NormalEquations, size: int
) -> tuple[NormalEquations, NDArray[np.intp]]:
    """Return the equations of the first functions and of a penalised bias, and their columns."""
    bias = int(equations.features.constant is not None)
    n_functions = len(equations.c) - bias
    if size >= n_functions:
        return equations, np.arange(len(equations.c))
    columns = np.append(np.arange(size), np.arange(n_functions, n_functions + bias))
    return equations.first(columns), columns


def _widened(models: RidgeModels, columns: NDArray[np.intp], width: int) -> RidgeModels:
    """Return models of some columns as models of all."""
    if len(columns) == width:
        return models
    turn = np.zeros((width, models.turn.shape[1]))
    turn[columns] = models.turn
    return replace(models, turn=turn)
