"""LowRankLSSVC's problem: where the functions start, how they are learned, which are kept.

f(x) = sum_j theta_j phi(x; c_j, mu_j) + b. For given functions theta and b are a small ridge system
(fang2019, (10), `closed_form`); centres and shapes are moved by L-BFGS on the regularised squared
error itself (`variable_projection`) or by the paper's Algorithm 1 (`ascent`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array

from leansvm._array_api import foreign_namespace, to_host
from leansvm._phases import Phases
from leansvm.blocks import RowBlocks, WeightedSample, check_budget, tile_rows_for
from leansvm.functions import BasisFunction, pam
from leansvm.linalg import dense64
from leansvm.solvers import primal
from leansvm.solvers.ascent import Ascent, learn_by_steps
from leansvm.solvers.closed_form import SHIFT_ROWS, LearningPath, LowRankProblem
from leansvm.solvers.feature_units import FeatureUnits, feature_units
from leansvm.solvers.features import LearnedFeatures
from leansvm.solvers.primal import Criterion
from leansvm.solvers.solution import Solution
from leansvm.solvers.sums import add_up, first_shift
from leansvm.solvers.variable_projection import learn_by_projection

Array = NDArray[np.float64]

ORDERED_ROWS = 2**16  # up to so many rows are copied into an order of their own
_MEDOID_ROWS, _ROWS_PER_MEDOID = 1000, 4  # rows that are clustered: a sample of more
SHAPE_SCALES = (1.0, 0.3, 3.0, 0.1)  # multiples of initial_shapes that shape_init="auto" tries
_TILE_VALUES = 2**17  # numbers of X in a tile: one megabyte, within a core's cache
_TILE_BYTES = 2**24  # most that a tile and what is computed from it take
AUTO_RATE = 0.15  # learning_rate="auto", in units of the features' spread and the first shapes


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


def reserve(what: str, X: Any, per_row: int, clustered: int, budget: int) -> int:
    """Refuse a fit that does not fit in the budget; return its bytes.

    ``per_row`` numbers are kept for every row, ``clustered`` rows at most are compared in pairs.
    """
    n_rows, n_features = X.shape
    needed = 8 * n_rows * per_row
    if n_rows <= ORDERED_ROWS:  # a copy of the rows
        needed += 2 * X.data.nbytes if sparse.issparse(X) else 8 * n_rows * n_features
    needed += 4 * 8 * min(n_rows, clustered) ** 2  # distances and changes
    check_budget(
        needed,
        budget,
        f"{what} on {n_rows:,} rows",
        "Use fewer functions (n_basis), fewer rows, or a larger cache_size.",
    )
    return needed


def given_centers(points: Any, n_features: int) -> Array:
    """Return points that a user gave as centres, checked."""
    points = check_array(points, dtype=np.float64, input_name="init")
    if points.shape[1] != n_features:
        raise ValueError(f"init: points have {points.shape[1]} features, X has {n_features}.")
    return np.ascontiguousarray(points)


def medoid_rows(n_basis: int) -> int:
    """Return how many rows are clustered at most."""
    return max(_MEDOID_ROWS, _ROWS_PER_MEDOID * n_basis)


def initial_centers(blocks: RowBlocks, init: str, n_basis: int, rng: Any) -> Array:
    """Return rows to start from: the medoids of (a sample of) the rows, or random ones."""
    limit = medoid_rows(n_basis)
    rows = WeightedSample(blocks, rng).first(n_basis if init == "random" else limit + 1)
    if init == "random":
        return np.ascontiguousarray(to_host(dense64(blocks.take(rows))))
    weight = None
    if len(rows) <= limit:  # all of them: their weights count
        rows = np.sort(rows)
        _, weight = blocks.targets_of(rows)
    X = to_host(dense64(blocks.take(rows[:limit])))
    medoids = pam(np.asarray(euclidean_distances(X)), n_basis, weight)
    return np.ascontiguousarray(X[medoids])


class Start(NamedTuple):
    """Functions to start from, the C that suits them and the error estimated for both."""

    basis: LearnedFeatures
    C: float
    error: float


class AscentOptions(NamedTuple):
    """The paper's steps: what is raised, how long a step is, one function at a time or all."""

    objective: str
    learning_rate: float | str
    sequential: bool
    backtracking: bool


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
    ascent: AscentOptions | None  # None: minimise the regularised squared error itself
    on_iteration: Callable[[int, float], bool] | None
    phases: Phases = field(default_factory=Phases)

    def learn(
        self, centers: Array | None, init: str, n_basis: int, n_init: int, rng: Any
    ) -> tuple[LearnedFeatures, Solution]:
        """Learn from every start; solve for the weights of the best functions."""
        with self.phases("scan"):
            units = feature_units(self.blocks)
        best: LearningPath | None = None
        for number in range(n_init if centers is None else 1):
            with self.phases("start"):
                rows = centers
                if rows is None:
                    how = init if number == 0 else "random"
                    rows = initial_centers(self.blocks, how, n_basis, rng)
                start = self._start(rows, units)
            with self.phases("learn"):
                path = self._learn_from(start, units)
            if best is None or path.score < best.score:
                best = path
        assert best is not None
        with self.phases("solve"):
            solution = self._solve(best.basis, self.criterion)
        solution.solver = "variable-projection" if self.ascent is None else "steps"
        solution.iterations, solution.converged = best.n_iter, best.converged
        solution.advice = (
            f"the functions still improve after {self.max_iter} iterations. Increase max_iter, "
            f"tol or anchor."
        )
        curve = {"objective": np.array(best.objective)}
        if best.loo:
            curve["loo"] = np.array(best.loo)
        if best.criterion:
            curve["criterion"] = np.array(best.criterion)
        solution.details = {
            "best_iteration": best.best_iter,
            "message": best.message,
            "curve": curve,
        }
        return best.basis, solution

    def _start(self, centers: Array, units: FeatureUnits) -> Start:
        """Set the shapes; "auto" takes the multiple of the usual ones with the least error."""
        scales: tuple[float, ...] = (1.0,)
        if self.shape_init == "auto":
            usual, scales = self.function.initial_shapes(units.spread), SHAPE_SCALES
        else:
            usual = np.full(centers.shape[1], float(self.shape_init))
        constant = 1 / np.sqrt(self.bias_penalty) if 0 < self.bias_penalty < np.inf else None
        scored = Criterion(np.atleast_1d(self.criterion.C), self.criterion.name)
        best: Start | None = None
        for scale in scales:
            shapes = np.tile(scale * usual, (len(centers), 1))
            basis = LearnedFeatures(self.function, centers, shapes, constant)
            solution = self._solve(basis, scored)
            if best is None or solution.error < best.error:
                best = Start(basis, solution.C, solution.error)
        assert best is not None
        return best

    def _solve(self, basis: LearnedFeatures, criterion: Criterion) -> Solution:
        """Solve for the weights of given functions, at the best of several C."""
        free_bias = self.bias_penalty == 0
        shift = first_shift(self.blocks, basis, free_bias, SHIFT_ROWS)
        sums = add_up(self.blocks, basis, shift, self.count)
        return primal.solve(self.blocks, basis, sums, free_bias, criterion)

    def _learn_from(self, start: Start, units: FeatureUnits) -> LearningPath:
        """Move the functions of one start."""
        problem = LowRankProblem(self.blocks, start.C, self.bias_penalty == 0, self.count)
        if self.ascent is not None:
            return learn_by_steps(
                problem,
                start.basis,
                self._steps(self.ascent, start, units),
                max_iter=self.max_iter,
                keep_best=self.keep_best,
                on_iteration=self.on_iteration,
            )
        error = start.error if np.isfinite(start.error) else 1.0
        return learn_by_projection(
            problem,
            start.basis,
            center_unit=units.spread,
            center_range=units.bounds,
            shape_unit=start.basis.shapes[0],
            max_iter=self.max_iter,
            tol=self.tol,
            patience=self.patience,
            anchor=self.anchor * start.C * error,
            keep_best=self.keep_best,
            on_iteration=self.on_iteration,
        )

    def _steps(self, options: AscentOptions, start: Start, units: FeatureUnits) -> Ascent:
        ones = np.ones(self.blocks.n_features)
        if options.learning_rate == "auto":
            rate, by = AUTO_RATE, (units.spread, start.basis.shapes[0])
        else:
            rate, by = float(options.learning_rate), (ones, ones)
        return Ascent(options.objective, rate, *by, options.sequential, options.backtracking)
