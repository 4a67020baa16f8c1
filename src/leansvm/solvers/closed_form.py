"""The LS-SVM on learned functions with the functions held fixed: fang2019, eqs. (14)-(22).

minimise  1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_i s_i e_i^2,  e = y - Phi theta - b.  The
paper's dual solution (10) is the same as this ridge system of M equations, whose matrix is
added up over row blocks; the dual variables are a o t = C S e, and theta = Phi'(a o t).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, like_rows
from leansvm.blocks import Block, RowBlocks
from leansvm.solvers.features import LearnedFeatures
from leansvm.solvers.primal import Spectrum, decompose, left_out_residuals
from leansvm.solvers.sums import Sums, add_up, first_shift, normal_equations

Array = NDArray[np.float64]
_SHIFT_ROWS = 1024  # rows whose means shift the first sums


@dataclass(frozen=True)
class ClosedForm:
    """The closed-form solution on one basis."""

    basis: LearnedFeatures
    spectrum: Spectrum
    theta: Array  # with the row of a penalised bias
    b: Array
    C: float

    @property
    def shift(self) -> Array:
        """Means of Phi and Y, a good shift for the sums of the next basis."""
        equations = self.spectrum.equations
        return np.concatenate([equations.mean_phi, equations.mean_y])

    def outputs(self, block: Block) -> Any:
        """Return f(x) of a block's rows, one column per output."""
        values = self.basis.values(block)
        coef = like_rows(self.basis.coefficients(self.theta).T, values)
        return (coef @ values.T).T + like_rows(self.b, values)


@dataclass
class LowRankProblem:
    """Rows, targets, C and bias of one fit."""

    blocks: RowBlocks
    C: float
    bias_penalty: float  # 0 is a free bias, inf is none
    count: float | None = None  # samples that GCV counts

    @property
    def free_bias(self) -> bool:
        """Whether the bias is free."""
        return self.bias_penalty == 0

    def sums(self, basis: LearnedFeatures, shift: Array | None = None) -> Sums:
        """Add up all rows; without a ``shift`` that of the first ones is taken."""
        if shift is None:
            shift = first_shift(self.blocks, basis, self.free_bias, _SHIFT_ROWS)
        return add_up(self.blocks, basis, shift, self.count)

    def solve(self, basis: LearnedFeatures, before: ClosedForm | None = None) -> ClosedForm:
        """Solve for theta and b: one pass over the rows and an M x M decomposition."""
        shift = before.shift if before is not None and self.free_bias else None
        equations = normal_equations(self.sums(basis, shift), basis, self.free_bias)
        spectrum = decompose(equations)
        theta = spectrum.theta(self.C)
        return ClosedForm(basis, spectrum, theta, equations.describe(theta, self.C)[0], self.C)

    def left_out_error(self, found: ClosedForm) -> float:
        """Mean squared error of every row under the weights fitted without (one copy of) it."""
        shift = found.shift if self.free_bias else np.zeros_like(found.shift)
        total = left_out_residuals(
            self.blocks,
            found.basis,
            shift,
            found.spectrum,
            np.array([self.C]),
            False,
            one_copy=True,
        )
        return float(total[0]) / found.spectrum.equations.n


@dataclass
class LearningPath:
    """What an optimiser went through: a number per iteration, and the best or last basis."""

    basis: LearnedFeatures
    objective: list[float] = field(default_factory=list)
    loo: list[float] = field(default_factory=list)
    criterion: list[float] = field(default_factory=list)
    n_iter: int = 0
    best_iter: int = 0
    converged: bool = True
    message: str = ""

    @property
    def score(self) -> float:
        """What starts are compared by: the left-out error if known, else the objective."""
        return min(self.loo) if self.loo else self.objective[-1]


def targets_and_weights(block: Block) -> tuple[Any, Any]:
    """Return targets and weights of a block (a column; None: all one), where the rows are."""
    Y = as_float64(block.y)
    return Y, None if block.weight is None else as_float64(block.weight)[:, None]


def weighted(values: Any, weight: Any) -> Any:
    """Return values times the rows' weights."""
    return values if weight is None else values * weight
