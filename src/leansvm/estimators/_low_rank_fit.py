"""The steps of a low-rank fit: where the functions start, how they are learned, which are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from leansvm._array_api import rows_at, to_host
from leansvm.blocks import (
    MemoryBlocks,
    MergedRows,
    RowBlocks,
    WeightedSample,
    canonical_order,
    merge_equal_rows,
)
from leansvm.estimators._rows import without_ones
from leansvm.estimators._sparse_fit import PrimalSolution, solve_on_basis
from leansvm.functions import BasisFunction
from leansvm.functions._medoids import pam
from leansvm.linalg import dense64
from leansvm.solvers._feature_units import FeatureUnits
from leansvm.solvers._learned import LearnedBasis, LowRankProblem
from leansvm.solvers.low_rank import Path, Steps, learn_by_steps
from leansvm.solvers.variable_projection import learn_by_projection

Array = NDArray[np.float64]

ORDERED_ROWS = 2**16  # up to so many rows are copied into an order of their own
_MEDOID_ROWS, _ROWS_A_MEDOID = 1000, 4  # rows that are clustered: a sample of more
SHAPE_SCALES = (1.0, 0.3, 3.0, 0.1)  # multiples of initial_shapes that shape_init="auto" tries
AUTO_RATE = 0.15  # learning_rate="auto", in units of the features' spread and the first shapes


@dataclass
class TrainingRows:
    """The rows to learn from: equal ones merged where a row is to be left out."""

    X: Any
    Y: Array
    weight: Array
    merged: MergedRows | None
    taken: NDArray[np.intp] | None  # which of the original rows these are; None: all
    n_rows: int

    @classmethod
    def of(cls, X: Any, Y: Array, weight: Array, *, leave_out: bool) -> TrainingRows:
        """Merge equal rows; few rows are also put in an order that their values alone decide.

        Iterations over kinks amplify rounding, which depends on the order: so weights and
        repetitions, or rows in another order, give the same model to rounding.
        """
        n_rows = X.shape[0]
        if n_rows > ORDERED_ROWS and not leave_out:
            return cls(X, Y, weight, None, None, n_rows)
        merged = merge_equal_rows(X, Y, weight)
        if n_rows > ORDERED_ROWS:  # in place: the first of equal rows stands for all
            weight = np.zeros(n_rows)
            weight[merged.first] = merged.weight
            return cls(X, Y, weight, merged, None, n_rows)
        first = merged.first
        order = canonical_order(to_host(rows_at(X, first)), to_host(rows_at(Y, first)))
        taken = first[order]
        weight = merged.weight[order]
        return cls(rows_at(X, taken), rows_at(Y, taken), weight, merged, taken, n_rows)

    def blocks(self, tile_rows: int) -> MemoryBlocks:
        """Return the rows in blocks."""
        return MemoryBlocks(self.X, self.Y, without_ones(self.weight), tile_rows=tile_rows)

    def in_place(self, values: Array | None) -> Array | None:
        """Return numbers of the rows, at the places of the original rows."""
        if values is None or self.taken is None:
            return values
        result = np.full((self.n_rows, values.shape[1]), np.nan)
        result[self.taken] = values
        return result


def medoid_rows(n_basis: int) -> int:
    """Return how many rows are clustered at most."""
    return max(_MEDOID_ROWS, _ROWS_A_MEDOID * n_basis)


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


@dataclass
class Start:
    """Functions to start from, the C that suits them and the error estimated for both."""

    basis: LearnedBasis
    C: float
    error: float


@dataclass
class Learned:
    """Functions at the end of one start."""

    start: Start
    path: Path

    @property
    def score(self) -> float:
        """What starts are compared by: the left-out error if known, else the objective."""
        return min(self.path.loo) if self.path.loo else self.path.objective[-1]


@dataclass
class Learner:
    """Everything that stays the same while starts are tried."""

    blocks: RowBlocks
    function: BasisFunction
    units: FeatureUnits
    bias_penalty: float
    C: float | Array  # candidates, or one number
    criterion: str
    count: float | None
    keep_best: bool
    max_iter: int
    tol: float
    patience: int
    anchor: float
    on_iteration: Callable[[int, float], bool] | None

    def start(self, centers: Array, shape_init: float | str) -> Start:
        """Set the shapes; "auto" takes the multiple of the usual ones with the least error."""
        if shape_init == "auto":
            usual = self.function.initial_shapes(self.units.spread)
            shapes = [scale * usual for scale in SHAPE_SCALES]
        else:
            shapes = [np.full(centers.shape[1], float(shape_init))]
        column = 1 / np.sqrt(self.bias_penalty) if 0 < self.bias_penalty < np.inf else None
        starts = []
        for shape in shapes:
            basis = LearnedBasis(self.function, centers, np.tile(shape, (len(centers), 1)), column)
            solution = self.solve(basis, C=np.atleast_1d(self.C))
            starts.append(Start(basis, solution.C, solution.error))
        return min(starts, key=lambda start: start.error)

    def solve(self, basis: LearnedBasis, *, C: float | Array, loo: bool = False) -> PrimalSolution:
        """Solve for the weights of given functions, at the best of several C."""
        problem = LowRankProblem(self.blocks, 1.0, self.bias_penalty, self.count)
        return solve_on_basis(
            self.blocks,
            basis,
            problem.sums(basis),
            free_bias=problem.free_bias,
            C=C,
            criterion=self.criterion,
            loo=loo,
        )

    def by_projection(self, start: Start) -> Learned:
        """Minimise the regularised squared error itself."""
        error = start.error if np.isfinite(start.error) else 1.0
        path = learn_by_projection(
            self._problem(start),
            start.basis,
            center_unit=self.units.spread,
            center_range=self.units.bounds,
            shape_unit=start.basis.shapes[0],
            max_iter=self.max_iter,
            tol=self.tol,
            patience=self.patience,
            anchor=self.anchor * start.C * error,
            keep_best=self.keep_best,
            on_iteration=self.on_iteration,
        )
        return Learned(start, path)

    def by_steps(
        self,
        start: Start,
        objective: str,
        learning_rate: float | str,
        *,
        sequential: bool,
        backtracking: bool,
    ) -> Learned:
        """Run Algorithm 1 of fang2019."""
        ones = np.ones(self.blocks.n_features)
        if learning_rate == "auto":
            rate, units = AUTO_RATE, (self.units.spread, start.basis.shapes[0])
        else:
            rate, units = float(learning_rate), (ones, ones)
        path = learn_by_steps(
            self._problem(start),
            start.basis,
            Steps(objective, rate, *units, sequential, backtracking),
            max_iter=self.max_iter,
            keep_best=self.keep_best,
            on_iteration=self.on_iteration,
        )
        return Learned(start, path)

    def _problem(self, start: Start) -> LowRankProblem:
        return LowRankProblem(self.blocks, start.C, self.bias_penalty, self.count)
