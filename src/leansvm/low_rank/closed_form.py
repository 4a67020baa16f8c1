"""The LS-SVM on learned functions with the functions held fixed: fang2019, eqs. (14)-(22).

minimise  1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_i s_i e_i^2,  e = y - Phi theta - b.  The
paper's dual solution (10) is the same as this ridge system of M equations, whose matrix is
added up over row blocks; the dual variables are a o t = C S e, and theta = Phi'(a o t).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, like_rows
from leansvm.low_rank.features import LearnedFeatures
from leansvm.low_rank.functions import BasisFunction
from leansvm.ridge.criteria import left_out_errors
from leansvm.ridge.factor import Spectrum, decompose
from leansvm.ridge.primal import Criterion, solve_sums
from leansvm.ridge.sums import add_up, first_shift, normal_equations
from leansvm.rows import Block, RowBlocks
from leansvm.solution import Solution

Array = NDArray[np.float64]
_SHIFT_ROWS = 1024  # rows whose means shift the first sums


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
    spectrum: Spectrum
    theta: Array  # with the row of a penalised bias
    b: Array
    C: float
    objective: float
    shift: Array  # means of Phi and Y: a good shift for the sums of the next basis

    def outputs(self, block: Block) -> Any:
        """Return f(x) of a block's rows, one column per output."""
        values = self.basis.values(block)
        coef = like_rows(self.basis.coefficients(self.theta).T, values)
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
        equations = normal_equations(
            add_up(self.blocks, basis, shift, self.count), basis, free_bias
        )
        spectrum = decompose(equations)
        theta = spectrum.theta(C)
        found = equations.describe(theta, C)
        means = np.concatenate([equations.mean_phi, equations.mean_y])
        return ClosedForm(basis, spectrum, theta, found["b"], C, found["objective"], means)

    def left_out_error(self, found: ClosedForm) -> float:
        """Mean squared error of every row under the weights fitted without (one copy of) it."""
        shift = found.shift if self.bias_penalty == 0 else np.zeros_like(found.shift)
        equations, models = found.spectrum.equations, found.spectrum.models(np.array([found.C]))
        errors = left_out_errors(self.blocks, found.basis, shift, equations, models, one_copy=True)
        return float(errors[0])

    def weights(self, basis: LearnedFeatures, *, final: bool = False) -> Solution:
        """Solve for the weights of given functions, at the best of several C.

        Before the functions are ``final`` only the error is asked for, even where C is one number.
        """
        criterion, free_bias = self.criterion, self.bias_penalty == 0
        shift = first_shift(self.blocks, basis, free_bias, _SHIFT_ROWS)
        sums = add_up(self.blocks, basis, shift, self.count)
        if final and not np.ndim(criterion.C):
            return solve_sums(self.blocks, basis, sums, free_bias, criterion)
        candidates = Criterion(np.atleast_1d(criterion.C), criterion.name)
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
