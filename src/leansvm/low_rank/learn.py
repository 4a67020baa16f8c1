"""How LowRankLSSVC learns its functions: where they start, how many there are, which are kept.

f(x) = sum_j theta_j phi(x; c_j, mu_j) + b. For given functions theta and b are a small ridge system
(fang2019, (10)); centres and shapes are moved by L-BFGS on the regularised squared error itself
(`variable_projection`) or by the paper's Algorithm 1 (`ascent`).

A leave-one-out error with fixed functions does not show that the functions follow the noise. So
folds choose their number: without each fold, functions are learned from the start, and their number
doubles as long as that lowers the squared error on the left-out fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import foreign_namespace
from leansvm._phases import Phases
from leansvm.low_rank.ascent import learn_by_steps
from leansvm.low_rank.functions import LearnedFeatures
from leansvm.low_rank.start import (
    StartRows,
    add_functions,
    class_medoids,
    draw_start_rows,
    feature_units,
    initial_centers,
    start_limits,
    tried_functions,
)
from leansvm.low_rank.variable_projection import (
    FeatureUnits,
    LearningPath,
    LowRankProblem,
    Start,
    VariableProjection,
)
from leansvm.rows import MemoryBlocks, check_budget, tile_rows_for, total_weight
from leansvm.solution import Solution

Array = NDArray[np.float64]

ORDERED_ROWS = 2**16  # up to so many rows are copied into an order of their own
SHAPE_SCALES = (1.0, 0.3, 3.0, 0.1)  # multiples of initial_shapes that shape_init="auto" tries
_TILE_VALUES = 2**17  # numbers of X in a tile: one megabyte, within a core's cache
_TILE_BYTES = 2**24  # most that a tile and what is computed from it take
FIRST_FUNCTIONS = 5  # functions that a model starts with, or one for each class
EARLY_ITERATIONS = 30  # of L-BFGS, before a model grows
_MOST_FUNCTIONS, _PER_OUTPUT = 40, 4  # functions at most: 40, or four for each class
_ROWS_PER_FUNCTION = 10  # larger sizes than this allows are not tried
_SIZE_FOLDS, _ROWS_FOR_ONE_FOLD = 3, 2000  # with more rows, the first fold alone is enough
_FLAT_GAIN = 0.05  # twice as many functions have to lower the error by this share,
_LEAST_GAIN = 0.005  # and by this share of the targets' variance
_PATIENCE = 2  # sizes in a row that may fail to do so


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

    ``per_function`` numbers are kept for every row and function. A fit is refused if not even
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
        if init == "auto" and size >= 2 * FIRST_FUNCTIONS:  # columns that are compared
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


def sizes_to_try(n_rows: int, n_outputs: int) -> list[int]:
    """Return the numbers of functions that ``n_basis="auto"`` compares, by doubling."""
    sizes = [min(max(FIRST_FUNCTIONS, n_outputs), n_rows)]
    most = min(max(_MOST_FUNCTIONS, _PER_OUTPUT * n_outputs), n_rows // _ROWS_PER_FUNCTION)
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return sizes


def learn_functions(
    problem: LowRankProblem,
    given: Array | None,
    init: str,
    sizes: list[int],
    n_init: int,
    rng: np.random.RandomState,
) -> tuple[LearnedFeatures, Solution]:
    """Learn functions from every start, and the weights of the best.

    ``given`` are centres. Folds choose the size if there are several. With ``init="auto"`` the
    functions grow: each stage doubles their number.
    """
    phases, blocks, size, sample = Phases(), problem.blocks, sizes[0], None
    report: dict[str, Any] = {}
    if init == "auto" or len(sizes) > 1:
        with phases("start"):
            sample = draw_start_rows(blocks, sizes[-1], rng)
    if sample is not None and len(sizes) > 1:
        with phases("size"):
            size, report = choose_size(problem, sample, sizes, init)
    with phases("scan"):
        units = feature_units(blocks)
    best: LearningPath | None = None
    for number in range(n_init if given is None else 1):
        with phases("start"):
            if sample is not None and init == "auto":
                start = _grown_start(problem, sample, size, units, rng if number else None)
            else:
                how = init if number == 0 else "random"
                centers = initial_centers(blocks, how, size, rng) if given is None else given
                start = start_at(problem, centers, units)
        with phases("learn"):
            path = learn_from(problem, start, units)
        if best is None or path.score < best.score:
            best = path
    assert best is not None
    with phases("solve"):
        solution = problem.weights(best.basis, final=True)
    curve = {"objective": best.objective, "loo": best.loo, "criterion": best.criterion}
    return best.basis, replace(
        solution,
        solver="variable-projection" if problem.ascent is None else "steps",
        iterations=best.n_iter,
        converged=best.converged,
        advice=f"the functions still improve after {problem.max_iter} iterations. Increase "
        f"max_iter, tol or anchor.",
        seconds=phases.seconds,
        details={
            "feature_spread": units.spread,
            "best_iteration": best.best_iter,
            "message": best.message,
            "curve": {name: np.array(values) for name, values in curve.items() if values},
        }
        | report,
    )


def _grown_start(
    problem: LowRankProblem,
    sample: StartRows,
    size: int,
    units: FeatureUnits,
    rng: np.random.RandomState | None,
) -> Start:
    """Start with few functions, learn them and add others; with ``rng``, start at random rows."""
    stages = [size]
    while stages[0] >= 2 * max(FIRST_FUNCTIONS, sample.Y.shape[1]):
        stages.insert(0, (stages[0] + 1) // 2)
    if rng is None:
        centers = class_medoids(sample, stages[0])
    else:
        centers = initial_centers(problem.blocks, "random", stages[0], rng)
    start = start_at(problem, centers, units)
    for size in stages[1:]:
        learned = learn_from(_early(problem), start, units).basis
        start = grown(problem, start._replace(basis=learned), units, sample, size)
    return start


def _early(problem: LowRankProblem) -> LowRankProblem:
    """Return the problem with few iterations and without callbacks."""
    few = min(problem.max_iter, EARLY_ITERATIONS)
    return replace(problem, max_iter=few, on_iteration=None)


def grown(
    problem: LowRankProblem, learned: Start, units: FeatureUnits, sample: StartRows, size: int
) -> Start:
    """Add functions to learned ones, where their error is; or start anew, if that is better.

    Few wide functions do not lead to many narrow ones, which oscillating targets need.
    """
    before = problem.weights(learned.basis)
    basis = add_functions(sample, learned.basis, before, size - learned.basis.size)
    solution = problem.weights(basis)
    larger = Start(basis, solution.C, solution.error, learned.shape_unit)
    anew = start_at(problem, class_medoids(sample, size), units)
    return anew if anew.error < larger.error else larger


def start_at(problem: LowRankProblem, centers: Array, units: FeatureUnits) -> Start:
    """Set the shapes; "auto" takes the multiple of the usual ones with the least error."""
    scales: tuple[float, ...] = (1.0,)
    if problem.shape_init == "auto":
        usual, scales = problem.function.initial_shapes(units.spread), SHAPE_SCALES
    else:
        usual = np.full(centers.shape[1], float(problem.shape_init))
    penalty, starts = problem.bias_penalty, []
    constant = 1 / np.sqrt(penalty) if 0 < penalty < np.inf else None
    for scale in scales:
        shapes = np.tile(scale * usual, (len(centers), 1))
        basis = LearnedFeatures(problem.function, centers, shapes, constant)
        solution = problem.weights(basis)
        starts.append(Start(basis, solution.C, solution.error, shapes[0]))
    return min(starts, key=attrgetter("error"))  # the first, where errors are no numbers


def learn_from(problem: LowRankProblem, start: Start, units: FeatureUnits) -> LearningPath:
    """Move the functions of one start."""
    if problem.ascent is not None:
        return learn_by_steps(problem, problem.ascent, start, units)
    return VariableProjection(problem, start, units).learn()


# ---------------------------------------------------------------------------- how many functions


@dataclass
class _HeldOut:
    """The problem of the rows outside a fold, and the rows in it."""

    problem: LowRankProblem
    sample: StartRows  # outside
    held_out: StartRows
    units: FeatureUnits
    start: Start | None = None  # of the size tried last

    def errors(self, size: int, init: str) -> Array:
        """Learn ``size`` functions; return the squared error of every row held out."""
        problem = self.problem
        if init != "auto":
            rng = np.random.RandomState(0)  # sizes are compared from the same starts
            centers = initial_centers(problem.blocks, init, size, rng)
            start = start_at(problem, centers, self.units)
        elif self.start is None:
            start = start_at(problem, class_medoids(self.sample, size), self.units)
        else:
            start = grown(problem, self.start, self.units, self.sample, size)
        basis = learn_from(problem, start, self.units).basis
        solution = problem.weights(basis)
        self.start = start._replace(basis=basis)
        residuals = self.held_out.Y - basis.phi(self.held_out.X) @ solution.coef - solution.b
        return np.square(residuals).sum(axis=1)


def choose_size(
    problem: LowRankProblem, sample: StartRows, sizes: list[int], init: str
) -> tuple[int, dict[str, Any]]:
    """Return the number of functions, and the error of every size that was tried.

    A size is chosen if it lowers the error of the size chosen before by 5 % for each doubling, by
    more than the standard error of the difference, and by more than 0.5 % of the targets' variance.
    The search ends after two sizes that do not.
    """
    folds = _folds(problem, sample, sizes[-1])
    weight = np.concatenate([fold.held_out.weight for fold in folds])
    share = weight / weight.sum()
    Y = np.concatenate([fold.held_out.Y for fold in folds])
    least = _LEAST_GAIN * float(share @ np.square(Y - share @ Y).sum(axis=1))
    taken, errors, means = 0, [], []
    for place, size in enumerate(sizes):
        errors.append(np.concatenate([fold.errors(size, init) for fold in folds]))
        means.append(float(share @ errors[-1]))
        if place == 0:
            continue
        lower = means[taken] - means[place]
        change = errors[taken] - errors[place] - lower
        deviation = float(np.sqrt(share @ np.square(change) / len(change)))
        flat = 1.0 - (1.0 - _FLAT_GAIN) ** (place - taken)
        if lower > max(deviation, flat * means[taken], least):
            taken = place
        elif place - taken == _PATIENCE:
            break
    report = {"sizes": np.array(sizes[: len(means)]), "size_errors": np.array(means)}
    return sizes[taken], report


def _folds(problem: LowRankProblem, sample: StartRows, largest: int) -> list[_HeldOut]:
    """Cut the rows of every class evenly into folds; of many rows only the first is made."""
    classes, number = sample.classes, np.empty(len(sample.Y), dtype=np.intp)
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        number[rows] = np.arange(len(rows)) % _SIZE_FOLDS
    folds = []
    for k in range(_SIZE_FOLDS if len(number) <= _ROWS_FOR_ONE_FOLD else 1):
        inside, outside = sample.part(number == k), sample.part(number != k)
        tile = tile_rows(outside.X, 4 * (largest + outside.Y.shape[1]))
        given, by_class = (outside.X, outside.Y, outside.weight), problem.blocks.class_weight
        blocks = MemoryBlocks(*given, class_weight=by_class, tile_rows=tile)
        count = problem.count
        if count is not None:  # in proportion
            count *= float(outside.weight.sum()) / total_weight(problem.blocks)
        part = replace(_early(problem), blocks=blocks, count=count)
        folds.append(_HeldOut(part, outside, inside, feature_units(blocks)))
    return folds
