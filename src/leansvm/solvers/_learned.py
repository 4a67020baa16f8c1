"""The LS-SVM on learned functions with the functions held fixed: fang2019, eqs. (14)-(22).

minimise  1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_i s_i e_i^2,  e = y - Phi theta - b.  The
paper's dual solution (10) is the same as this ridge system of M equations, whose matrix is
added up over row blocks; the dual variables are a o t = C S e, and theta = Phi'(a o t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, empty, like_rows, to_host
from leansvm.blocks import Block, RowBlocks
from leansvm.functions import BasisFunction
from leansvm.functions._separable import SeparableFunction
from leansvm.linalg import dense64
from leansvm.solvers import primal

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LearnedBasis:
    """Functions phi_j with their centres and shapes; blocks remember the values of one basis."""

    function: BasisFunction
    centers: Array  # functions x features
    shapes: Array
    bias_column: float | None = None  # 1 / sqrt(A) for a penalised bias
    order: ClassVar[Literal["C", "F"]] = "F"

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.centers)

    @property
    def width(self) -> int:
        """Columns of Phi: the functions and, when the bias is penalised, one for it."""
        return self.size + (self.bias_column is not None)

    def moved(self, centers: Array, shapes: Array) -> LearnedBasis:
        """Return the basis with other parameters."""
        return LearnedBasis(self.function, centers, shapes, self.bias_column)

    def values(self, block: Block) -> Any:
        """Return phi_j(x_n) of a block's rows, from its state where they are known."""
        known: Any = block.state.get("learned")
        if known is None or known[0] is not self:
            known = (self, self._phi(block.X))
            block.state["learned"] = known
        return known[1]

    def features(self, block: Block, out: Any = None) -> Any:
        """Return Phi of a block's rows; in ``out`` where that is given."""
        Phi = self._with_bias(self.values(block))
        if out is None:
            return Phi
        out[...] = Phi
        return out

    def transform(self, X: Any) -> Any:
        """Return Phi of any rows."""
        return self._with_bias(self._phi(X))

    def _phi(self, X: Any) -> Any:
        X = dense64(X)
        if isinstance(self.function, SeparableFunction):
            return self.function.values(X, self.centers, self.shapes)
        # functions of a user's own know NumPy
        return like_rows(self.function.values(to_host(X), self.centers, self.shapes), X)

    def _with_bias(self, values: Any) -> Any:
        if self.bias_column is None:
            return values
        Phi = empty((self.width, values.shape[0]), values).T
        Phi[:, :-1], Phi[:, -1] = values, self.bias_column
        return Phi

    def coefficients(self, theta: Array) -> Array:
        """Return the weights of the functions alone."""
        return np.ascontiguousarray(theta[: self.size])


@dataclass(frozen=True)
class Fitted:
    """The closed-form solution on one basis."""

    basis: LearnedBasis
    spectrum: primal.Spectrum
    theta: Array  # with the row of a penalised bias
    b: Array
    C: float

    @property
    def shift(self) -> Array:
        """Means of Phi and Y, a good shift for the sums of the next basis."""
        equations = self.spectrum.equations
        return np.concatenate([equations.mean_phi, equations.mean_y])

    def outputs(self, block: Block) -> Any:
        """Return f(x) of a block's rows, one column an output."""
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

    def sums(self, basis: LearnedBasis, shift: Array | None = None) -> primal.Sums:
        """Add up all rows; without a ``shift`` that of the first ones is taken."""
        if shift is None:
            first = np.arange(min(self.blocks.n_rows, _SHIFT_ROWS))
            Y, weight = self.blocks.targets_of(first)
            if weight is not None and weight.any():
                first, Y = first[weight > 0], Y[weight > 0]
            shift = primal.choose_shift(basis, self.blocks.take(first), Y, self.free_bias)
        n_outputs = len(shift) - basis.width
        return primal.add_up(self.blocks, basis, shift, n_outputs, self.count)

    def solve(self, basis: LearnedBasis, before: Fitted | None = None) -> Fitted:
        """Solve for theta and b: one pass over the rows and an M x M decomposition."""
        shift = before.shift if before is not None and self.free_bias else None
        equations = primal.normal_equations(self.sums(basis, shift), basis, self.free_bias)
        spectrum = primal.decompose(equations)
        theta = spectrum.theta(self.C)
        return Fitted(basis, spectrum, theta, equations.bias(theta), self.C)

    def left_out_error(self, fitted: Fitted) -> float:
        """Mean squared error of every row under the weights fitted without (one copy of) it."""
        candidates = np.array([self.C])
        shift = fitted.shift if self.free_bias else np.zeros_like(fitted.shift)
        total = primal.left_out_residuals(
            self.blocks, fitted.basis, shift, fitted.spectrum, candidates, False, one_copy=True
        )
        return float(total[0]) / fitted.spectrum.equations.n


_SHIFT_ROWS = 1024  # rows whose means shift the first sums


def targets_and_weights(block: Block) -> tuple[Any, Any]:
    """Return targets and weights of a block (a column; None: all one), where the rows are."""
    Y = as_float64(block.y)
    return Y, None if block.weight is None else as_float64(block.weight)[:, None]


def weighted(values: Any, weight: Any) -> Any:
    """Return values times the rows' weights."""
    return values if weight is None else values * weight
