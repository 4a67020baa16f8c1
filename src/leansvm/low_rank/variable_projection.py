"""Few learned functions: their weights in closed form, the functions by variable projection.

minimise  1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_n s_n e_n^2,  e = y - Phi theta - b.  With the
functions held (fang2019, eqs. (14)-(22)) the paper's dual solution (10) is the same as this ridge
system of M equations, whose matrix is added up over row blocks; the dual variables are
a o t = C S e, and theta = Phi'(a o t).

J(c, mu) is the minimum over theta and b. There the derivative of theta drops out (envelope
theorem), dJ = -C sum_n s_n e_n theta_j dphi_nj, so one evaluation is a closed-form solve and one
more pass. L-BFGS moves c (in units of the features' spread) and log mu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from leansvm._array_api import as_float64, like_rows, namespace
from leansvm.linalg import dense64
from leansvm.low_rank.functions import BasisFunction, LearnedFeatures, LearnedValues
from leansvm.ridge.criteria import Criterion, left_out_errors
from leansvm.ridge.equations import NormalEquations, RidgeModels, models_of_C, normal_equations
from leansvm.ridge.primal import solve_sums
from leansvm.ridge.sums import add_up, first_shift
from leansvm.rows import Block, RowBlocks, declare
from leansvm.solution import Solution

Array = NDArray[np.float64]
_SHIFT_ROWS = 1024  # rows whose means shift the first sums
_LOG_SHAPE = (-12.0, 6.0)  # log mu relative to the start: widths 400 times smaller, 160,000 larger


class FeatureUnits(NamedTuple):
    """Units of every feature, and how far centres may go."""

    spread: Array  # standard deviation; 1 if a feature is constant
    bounds: tuple[Array, Array]  # the range of the data, widened by its width on both sides


class Ascent(NamedTuple):
    """How the paper's algorithm moves the functions (`leansvm.low_rank.ascent`)."""

    objective: str  # a name of `leansvm.low_rank.ascent.OBJECTIVES`
    learning_rate: float | str  # a number, or "auto": in units of the data
    sequential: bool = False  # one function at a time instead of all together
    backtracking: bool = False


class Start(NamedTuple):
    """Functions to start from, the C that suits them and the error estimated for both."""

    basis: LearnedFeatures
    C: float
    error: float
    shape_unit: Array  # shapes of a usual function: steps are measured by them


@dataclass(frozen=True)
class ClosedForm:
    """The closed-form solution on one basis."""

    basis: LearnedFeatures
    equations: NormalEquations
    models: RidgeModels  # the one at C
    theta: Array  # with the row of a penalised bias
    b: Array
    C: float
    objective: float
    shift: Array  # means of Phi and Y: a good shift for the sums of the next basis

    def outputs(self, values: Any) -> Any:
        """Return f(x) of rows, one column per output, given phi(x)."""
        coef = like_rows(self.theta[: self.basis.size].T, values)
        return (coef @ values.T).T + like_rows(self.b, values)


@dataclass(frozen=True)
class LowRankProblem:
    """Rows, C and bias of a fit, and how its functions are learned."""

    blocks: RowBlocks
    function: BasisFunction
    criterion: Criterion
    bias_penalty: float = 0.0  # 0: a free bias; a penalised one is a column of the basis
    count: float | None = None  # samples that GCV counts
    shape_init: float | str = "auto"
    keep_best: bool = False  # functions of least left-out error, instead of the last ones
    max_iter: int = 200
    tol: float = 1e-5
    patience: int = 20
    anchor: float = 1.0
    ascent: Ascent | None = None  # None: minimise the regularised squared error itself
    on_iteration: Callable[[int, float], bool] | None = None

    def solve(self, basis: LearnedFeatures, C: float, before: ClosedForm | None) -> ClosedForm:
        """Solve for theta and b: one pass over the rows and an M x M decomposition."""
        free_bias = self.bias_penalty == 0
        if before is not None and free_bias:
            shift = before.shift
        else:
            shift = first_shift(self.blocks, basis, free_bias, _SHIFT_ROWS)
        sums = add_up(self.blocks, basis, shift, self.count)
        equations = normal_equations(sums, basis, free_bias)
        models = models_of_C(equations, np.array([C]))
        theta = models.theta()
        found = equations.solution(theta, C)
        means = np.concatenate([equations.mean_phi, equations.mean_y])
        return ClosedForm(basis, equations, models, theta, found.b, C, found.objective, means)

    def left_out_error(self, found: ClosedForm) -> float:
        """Mean squared error of every row under the weights fitted without (one copy of) it."""
        given = self.blocks, found.equations, found.models
        return float(left_out_errors(*given, one_copy=True)[0])

    def weights(self, basis: LearnedFeatures, *, final: bool = False) -> Solution:
        """Solve for the weights of given functions, at the best of several C.

        Before the functions are ``final``, only the error is needed, even if C is one number.
        """
        criterion, free_bias = self.criterion, self.bias_penalty == 0
        shift = first_shift(self.blocks, basis, free_bias, _SHIFT_ROWS)
        sums = add_up(self.blocks, basis, shift, self.count)
        if final and not np.ndim(criterion.C):
            return solve_sums(self.blocks, basis, sums, free_bias, criterion)
        candidates = Criterion(criterion.candidates, criterion.name)
        scored = solve_sums(self.blocks, basis, sums, free_bias, candidates)
        if not (final and criterion.left_out):
            return scored
        # at the best C alone: blocks need not keep the left-out residuals of every candidate
        one = replace(criterion, C=scored.C)
        solution = solve_sums(self.blocks, basis, sums, free_bias, one)
        return replace(solution, curve=scored.curve, error=scored.error)


@dataclass
class LearningPath:
    """What an optimiser went through: one number per iteration, and the best or last basis."""

    basis: LearnedFeatures
    objective: list[float] = field(default_factory=list)
    loo: list[float] = field(default_factory=list)
    criterion: list[float] = field(default_factory=list)
    n_iter: int = -1  # 0 is the start
    best_iter: int = 0
    converged: bool = True
    message: str = ""

    def note(self, problem: LowRankProblem, found: ClosedForm, objective: float) -> None:
        """Add an iteration; keep its basis unless an earlier one has a lower left-out error."""
        self.n_iter += 1
        self.objective.append(objective)
        if problem.keep_best:
            self.loo.append(problem.left_out_error(found))
        if not problem.keep_best or self.loo[-1] <= min(self.loo):
            self.basis, self.best_iter = found.basis, self.n_iter

    @property
    def score(self) -> float:
        """What starts are compared by: the left-out error if known, else the objective."""
        return min(self.loo) if self.loo else self.objective[-1]


def targets_and_weights(block: Block) -> tuple[Any, Any]:
    """Return targets and weights (a column, or the number one) of a block, where the rows are."""
    Y = as_float64(block.y)
    return Y, 1.0 if block.weight is None else as_float64(block.weight)[:, None]


# ---------------------------------------------------------------------------- L-BFGS


class VariableProjection:
    """Minimises J with L-BFGS, as a function of x = (c / center_unit, log(mu / shape_unit)).

    Stops when J falls by less than ``tol`` times itself, when the left-out error has not fallen
    for ``patience`` iterations (``keep_best``), or when ``on_iteration`` says so. The anchor holds
    x where it starts.
    """

    def __init__(self, problem: LowRankProblem, start: Start, units: FeatureUnits) -> None:
        self.problem, self.C = problem, start.C
        self.center_unit, self.shape_unit = units.spread, start.shape_unit
        self.anchor = problem.anchor * start.C * (start.error if np.isfinite(start.error) else 1.0)
        limits = np.stack(units.bounds, axis=1) / self.center_unit[:, None]
        limits = np.tile(limits, (start.basis.size, 1))
        self.bounds = np.concatenate([limits, np.tile(_LOG_SHAPE, (len(limits), 1))])
        with np.errstate(divide="ignore"):
            logs = np.log(start.basis.shapes / self.shape_unit)
        x = np.concatenate([(start.basis.centers / self.center_unit).ravel(), logs.ravel()])
        self.start = np.clip(x, self.bounds[:, 0], self.bounds[:, 1])
        self.path = LearningPath(start.basis)
        self.fitted: ClosedForm | None = None  # the last solution; blocks keep its values
        self.x = self.start  # where it is

    def learn(self) -> LearningPath:
        """Minimise J from the start."""
        problem, path = self.problem, self.path
        value, _ = self.evaluate(self.start)
        self.note(OptimizeResult(x=self.start, fun=value))
        found = minimize(
            self.evaluate,
            self.start,
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds,
            callback=self.note,
            options={"maxiter": problem.max_iter, "ftol": problem.tol, "gtol": 0.0, "maxcor": 20},
        )
        path.message = path.message or str(found.message)
        path.converged = bool(path.n_iter < problem.max_iter)
        return path

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return J with the anchor's term, and its gradient."""
        centers, logs = x.reshape(2, *self.path.basis.centers.shape)
        shapes = self.shape_unit * np.exp(logs)
        basis = replace(self.path.basis, centers=centers * self.center_unit, shapes=shapes)
        self.fitted = self.problem.solve(basis, self.C, self.fitted)
        self.x = x.copy()
        value, by_center, by_shape = objective_and_gradient(self.problem, self.fitted)
        # dJ/d(c / unit) = unit dJ/dc, dJ/d(log mu) = mu dJ/dmu
        gradient = np.concatenate(
            [(by_center * self.center_unit).ravel(), (by_shape * shapes).ravel()]
        )
        away = x - self.start
        return value + 0.5 * self.anchor * float(away @ away), gradient + self.anchor * away

    def note(self, intermediate_result: OptimizeResult) -> None:
        """Note the start or an accepted iterate; stop L-BFGS if asked to."""
        problem, path, value = self.problem, self.path, float(intermediate_result.fun)
        if not np.array_equal(intermediate_result.x, self.x):
            self.evaluate(intermediate_result.x)
        assert self.fitted is not None
        path.note(problem, self.fitted, value)
        if path.n_iter - path.best_iter >= problem.patience:
            path.message = f"left-out error has not fallen for {problem.patience} iterations"
        tell = problem.on_iteration if path.n_iter > 0 else None
        if tell is not None and tell(path.n_iter, value):
            path.message = "stopped by a callback"
        if path.message:
            raise StopIteration


def objective_and_gradient(
    problem: LowRankProblem, fitted: ClosedForm
) -> tuple[float, Array, Array]:
    """Return J and its derivatives by the centres and the shapes."""
    squares, by_center, by_shape = problem.blocks.sum(_residuals_of_block, fitted)
    value = 0.5 * float(np.sum(fitted.theta**2)) + 0.5 * fitted.C * squares
    return value, np.nan_to_num(by_center), np.nan_to_num(by_shape)


@declare("X", "y", "weight", keeps=LearnedValues)
def _residuals_of_block(block: Block, fitted: ClosedForm) -> tuple[float, Array, Array]:
    """Return sum_n s_n e_n^2, and the part of the derivatives by the centres and the shapes."""
    (T, weight), basis = targets_and_weights(block), fitted.basis
    values = basis.values(block)
    e = T - fitted.outputs(values)
    se = e * weight
    weights = (like_rows(-fitted.C * fitted.theta[: basis.size], se) @ se.T).T
    terms = basis.centers, basis.shapes, values, weights
    by_center, by_shape = basis.function.gradients(dense64(block.X), *terms)
    return float(namespace(e).sum(se * e)), by_center, by_shape
