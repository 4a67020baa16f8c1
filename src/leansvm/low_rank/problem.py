"""LowRankLSSVC's problem: where the functions start, how they are learned, which are kept.

f(x) = sum_j theta_j phi(x; c_j, mu_j) + b. For given functions theta and b are a small ridge system
(fang2019, (10), `closed_form`); centres and shapes are moved by L-BFGS on the regularised squared
error itself (`variable_projection`) or by the paper's Algorithm 1 (`ascent`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import foreign_namespace
from leansvm._phases import Phases
from leansvm.low_rank import BasisFunction
from leansvm.low_rank.ascent import Ascent, learn_by_steps
from leansvm.low_rank.closed_form import LearningPath, LowRankProblem, best_weights
from leansvm.low_rank.feature_units import FeatureUnits, feature_units
from leansvm.low_rank.features import LearnedFeatures
from leansvm.low_rank.start import (
    StartRows,
    add_functions,
    class_medoids,
    initial_centers,
    start_limits,
    tried_functions,
)
from leansvm.low_rank.variable_projection import VariableProjection
from leansvm.ridge.primal import Criterion
from leansvm.rows import RowBlocks, check_budget, tile_rows_for
from leansvm.solution import Solution

Array = NDArray[np.float64]

ORDERED_ROWS = 2**16  # up to so many rows are copied into an order of their own
SHAPE_SCALES = (1.0, 0.3, 3.0, 0.1)  # multiples of initial_shapes that shape_init="auto" tries
_TILE_VALUES = 2**17  # numbers of X in a tile: one megabyte, within a core's cache
_TILE_BYTES = 2**24  # most that a tile and what is computed from it take
FIRST_SIZE = 5  # functions that a model starts with, or one for each class
EARLY_ITERATIONS = 30  # of L-BFGS, before a model grows


def tile_rows(X: Any, columns: int) -> int:
    """Rows of a tile: few enough for the cache, enough to be worth a call.

    On the host they depend on the shapes alone, not on ``working_memory``: the order of a sum
    decides its rounding, which L-BFGS magnifies.
    """
    n_features = X.shape[1]
    row_bytes = 8 * (3 * n_features + columns)
    if foreign_namespace(X) is not None:
        return tile_rows_for(row_bytes, X)
    rows = max(1024, min(2**14, _TILE_VALUES // n_features))
    return max(1, min(rows, _TILE_BYTES // row_bytes))


def reserve(
    what: str, X: Any, n_outputs: int, sizes: list[int], init: str, per_function: int, budget: int
) -> tuple[list[int], int]:
    """Return the sizes that fit in the budget, and the bytes of the largest.

    ``per_function`` numbers are kept for every row and function. A fit is refused where not even
    the smallest size fits.
    """
    (n_rows, n_features), fitting, planned = X.shape, sizes[:1], 0
    fixed = 8 * n_rows * 3 * n_outputs
    if n_rows <= ORDERED_ROWS:  # a copy of the rows
        fixed += 2 * X.data.nbytes if sparse.issparse(X) else 8 * n_rows * n_features
    for size in sizes:
        clustered, sampled = start_limits(size, n_features)
        needed = fixed + 8 * n_rows * size * per_function
        if init in ("auto", "medoids"):  # distances and changes
            needed += 4 * 8 * min(n_rows, clustered) ** 2
        if init == "auto" or len(sizes) > 1:  # the rows that functions start on, parts of them
            needed += 8 * min(n_rows, sampled) * 3 * (n_features + n_outputs)
        if init == "auto" and size >= 2 * FIRST_SIZE:  # columns that are compared
            needed += 2 * 8 * min(n_rows, sampled) * tried_functions(size // 2)
        if size == sizes[0]:
            check_budget(
                needed,
                budget,
                f"{what} with {size} functions on {n_rows:,} rows",
                "Use fewer functions (n_basis), fewer rows, or a larger cache_size.",
            )
        elif needed > budget:
            break
        else:
            fitting.append(size)
        planned = needed
    return fitting, planned


class Start(NamedTuple):
    """Functions to start from, the C that suits them and the error estimated for both."""

    basis: LearnedFeatures
    C: float
    error: float
    shape_unit: Array  # shapes of a usual function: steps are measured by them


@dataclass(frozen=True)
class LowRankLearner:
    """Everything that stays the same while starts are tried."""

    blocks: RowBlocks
    function: BasisFunction
    bias_penalty: float
    criterion: Criterion
    count: float | None  # samples that GCV counts
    shape_init: float | str
    keep_best: bool
    max_iter: int
    tol: float
    patience: int
    anchor: float
    ascent: Ascent | None  # None: minimise the regularised squared error itself
    on_iteration: Callable[[int, float], bool] | None
    phases: Phases = field(default_factory=Phases)

    def learn(
        self,
        centers: Array | None,
        init: str,
        n_basis: int,
        n_init: int,
        sample: StartRows | None,
        rng: np.random.RandomState,
    ) -> tuple[LearnedFeatures, Solution]:
        """Learn from every start; solve for the weights of the best functions.

        With a ``sample`` of rows the functions grow: each stage doubles their number.
        """
        with self.phases("scan"):
            units = feature_units(self.blocks)
        stages = [n_basis]
        if sample is not None and centers is None:
            while stages[0] >= 2 * max(FIRST_SIZE, sample.Y.shape[1]):
                stages.insert(0, (stages[0] + 1) // 2)
        early = replace(self, max_iter=min(self.max_iter, EARLY_ITERATIONS), on_iteration=None)
        best: LearningPath | None = None
        for number in range(n_init if centers is None else 1):
            with self.phases("start"):
                rows = centers
                if rows is None and sample is not None and number == 0:
                    rows = class_medoids(sample, stages[0])
                elif rows is None:
                    how = init if number == 0 else "random"
                    rows = initial_centers(self.blocks, how, stages[0], rng)
                start = self.start_at(rows, units)
                for size in stages[1:]:
                    assert sample is not None
                    learned = early.learn_from(start, units).basis
                    start = self.grown(start._replace(basis=learned), units, sample, size)
            with self.phases("learn"):
                path = self.learn_from(start, units)
            if best is None or path.score < best.score:
                best = path
        assert best is not None
        with self.phases("solve"):
            solution = self.solve(best.basis, final=True)
        details: dict[str, Any] = {
            "feature_spread": units.spread,
            "best_iteration": best.best_iter,
            "message": best.message,
            "curve": best.curve(),
        }
        return best.basis, replace(
            solution,
            solver="variable-projection" if self.ascent is None else "steps",
            iterations=best.n_iter,
            converged=best.converged,
            advice=f"the functions still improve after {self.max_iter} iterations. Increase "
            f"max_iter, tol or anchor.",
            details=details,
        )

    def grown(self, learned: Start, units: FeatureUnits, sample: StartRows, size: int) -> Start:
        """Add functions to learned ones, where their error is; or start anew, if that is better.

        Few wide functions do not lead to many narrow ones, which oscillating targets need.
        """
        before = self.solve(learned.basis)
        basis = add_functions(sample, learned.basis, before, size - learned.basis.size)
        solution = self.solve(basis)
        larger = Start(basis, solution.C, solution.error, learned.shape_unit)
        anew = self.start_at(class_medoids(sample, size), units)
        return anew if anew.error < larger.error else larger

    def start_at(self, centers: Array, units: FeatureUnits) -> Start:
        """Set the shapes; "auto" takes the multiple of the usual ones with the least error."""
        scales: tuple[float, ...] = (1.0,)
        if self.shape_init == "auto":
            usual, scales = self.function.initial_shapes(units.spread), SHAPE_SCALES
        else:
            usual = np.full(centers.shape[1], float(self.shape_init))
        constant = 1 / np.sqrt(self.bias_penalty) if 0 < self.bias_penalty < np.inf else None
        best: Start | None = None
        for scale in scales:
            shapes = np.tile(scale * usual, (len(centers), 1))
            basis = LearnedFeatures(self.function, centers, shapes, constant)
            solution = self.solve(basis)
            if best is None or solution.error < best.error:
                best = Start(basis, solution.C, solution.error, shapes[0])
        assert best is not None
        return best

    def solve(self, basis: LearnedFeatures, *, final: bool = False) -> Solution:
        """Solve for the weights of given functions; see `best_weights`."""
        free_bias = self.bias_penalty == 0
        return best_weights(self.blocks, basis, free_bias, self.criterion, self.count, final=final)

    def learn_from(self, start: Start, units: FeatureUnits) -> LearningPath:
        """Move the functions of one start."""
        problem = LowRankProblem(self.blocks, start.C, self.bias_penalty == 0, self.count)
        if self.ascent is not None:
            return learn_by_steps(
                problem,
                start.basis,
                self.ascent.in_units(units.spread, start.shape_unit),
                max_iter=self.max_iter,
                keep_best=self.keep_best,
                on_iteration=self.on_iteration,
            )
        error = start.error if np.isfinite(start.error) else 1.0
        projection = VariableProjection(
            problem,
            units.spread,
            units.bounds,
            start.shape_unit,
            self.max_iter,
            self.tol,
            self.patience,
            self.anchor * start.C * error,
            self.keep_best,
            self.on_iteration,
        )
        return projection.learn(start.basis)
