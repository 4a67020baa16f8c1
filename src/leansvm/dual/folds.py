"""Left-out residuals for solvers that have none: models without a fold of the rows.

Every fifth row is left out, class by class; as many folds are solved as it takes for 1,000 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import rows_at
from leansvm._phases import Phases
from leansvm.dual.kernel_matrix import values_between
from leansvm.dual.problem import DualProblem
from leansvm.rows import Block, class_numbers, row_hashes, tile_rows_for
from leansvm.solution import Solution

Array = NDArray[np.float64]
_FOLDS, _ENOUGH = 5, 1000


def residuals_of_folds(problem: DualProblem, solve: Callable[[DualProblem], Solution]) -> Array:
    """Return y - f of rows in the model without their fold; NaN for rows in no such fold."""
    Y, m = problem.Y, len(problem.Y)
    fold, rows = np.empty(m, dtype=np.intp), np.arange(m) if problem.rows is None else problem.rows
    keys: Any = rows  # else by the values of a row, so that the order of rows decides nothing
    if not problem.kernel.precomputed:
        keys = row_hashes(Block(0, m, rows_at(problem.X, rows), Y, None))
    fold[np.lexsort([keys, class_numbers(Y)])] = np.arange(m) % _FOLDS
    residuals = np.full(Y.shape, np.nan)
    for number in range(_FOLDS):
        rest, out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        part = replace(problem, Y=Y[rest], weight=problem.weight[rest], rows=rows[rest])
        found = solve(replace(part, phases=Phases(), on_iteration=None))
        step = max(1, tile_rows_for(8 * len(rest)))
        for start in range(0, len(out), step):
            some = out[start : start + step]
            residuals[some] = Y[some] - values_between(problem, some, rest) @ found.coef - found.b
        if np.isfinite(residuals).sum() >= _ENOUGH * Y.shape[1]:
            break
    return residuals
