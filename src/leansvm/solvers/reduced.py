"""ReducedSVC's problem: a smooth loss on a small basis, all outputs, along a path of C.

The outputs of a group go in step and share every pass over the rows; groups are as large as their
Gram matrices allow. The features of all rows are kept if they fit, else computed in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import blas_threads
from leansvm._phases import Phases
from leansvm.blocks import RowBlocks, check_points, points_within
from leansvm.kernels import Kernel
from leansvm.losses import Loss
from leansvm.solvers import _newton_blocks as rows_of
from leansvm.solvers.features import FeatureMap, KernelFeatures, whiten
from leansvm.solvers.newton import NewtonSolver
from leansvm.solvers.solution import Solution

Array = NDArray[np.float64]
_MATRICES = 6  # r x r at a time, beside those of tiles on their way


class ReducedFit(NamedTuple):
    """A basis with its features, and the solution at every C of the path."""

    basis: Any  # `leansvm.basis.Basis`
    features: KernelFeatures
    path: list[Solution]
    solution: Solution  # at the last C


@dataclass(frozen=True)
class ReducedProblem:
    """Everything that stays the same while basis sizes and values of C are tried."""

    blocks: RowBlocks
    kernel: Kernel
    loss: Loss
    regularizer: str
    bias_penalty: float  # inf: no bias
    margin: bool  # classification
    outputs: int
    tol: float
    max_iter: int
    budget: int  # bytes
    left_out: bool
    on_iteration: Callable[[int, float], bool] | None = None
    phases: Phases = field(default_factory=Phases)

    def most_points(self) -> int:
        """Return the largest basis whose matrices fit the budget, for one output at a time."""
        return max(points_within(self.budget, _MATRICES), 1)

    def solve(self, choose: Callable[[int], Any], size: int, path: Array) -> ReducedFit:
        """Choose ``size`` points and solve on them, at every C of the path in turn."""
        check_points(size, self.budget, _MATRICES)
        with self.phases("select"):
            basis = choose(size)
        constant = 1.0 if np.isfinite(self.bias_penalty) else None
        points = basis.points(self.kernel)
        with self.phases("factor"):
            if self.regularizer == "coef":
                features = KernelFeatures(self.kernel, points, constant=constant)
            else:
                known = basis.L is not None
                features = whiten(
                    self.kernel, basis.rows, points, basis.L, constant=constant, in_state=known
                )
        with self.phases("solve"):
            solutions = self._solve_outputs(features, path)
        for solution in solutions:
            solution.seconds = self.phases.seconds
            solution.details["dropped"] = basis.rows.shape[0] - features.size
            solution.details["selection"] = basis.report
        return ReducedFit(basis, features, solutions, solutions[-1])

    def _solve_outputs(self, features: KernelFeatures, path: Array) -> list[Solution]:
        """Solve for all outputs at every C, each from the solution at the one before."""
        matrix, kept = 8 * features.width**2, 8 * self.blocks.n_rows * features.width
        # of every output: a Gram matrix, its sum so far and those of tiles on their way
        each, room = (4 + blas_threads()) * matrix, 3 * self.budget // 4 - 2 * matrix
        features = replace(features, keep=each + kept <= room)
        kept *= features.keep
        group = max(1, min(self.outputs, (room - kept) // max(each, 1)))
        parts: list[list[Solution]] = []
        for start in range(0, self.outputs, group):
            columns = range(start, min(start + group, self.outputs))
            parts.append(self._solve_group(features, columns, path))
        self.blocks.map(rows_of.end)
        solutions = parts[0]
        if len(parts) > 1:
            solutions = [_joined(same_C) for same_C in zip(*parts, strict=True)]
        if self.left_out:
            solutions[-1].error = self._left_out_loss(solutions[-1].left_out)
        for solution in solutions:
            solution.bytes = kept + group * each + 2 * matrix
            solution.details["kernel_kept"] = features.keep
        return solutions

    def _solve_group(self, features: FeatureMap, columns: range, path: Array) -> list[Solution]:
        solver = NewtonSolver(
            self.blocks,
            features,
            bias_penalty=self.bias_penalty,
            margin=self.margin,
            outputs=columns,
            tol=self.tol,
            max_iter=self.max_iter,
            on_iteration=self.on_iteration,
        )
        solutions = []
        for C in path.tolist():
            solutions.append(solver.solve(self.loss, C))
        if self.left_out:
            solutions[-1].left_out = solver.left_out()
        return solutions

    def _left_out_loss(self, left_out: Array | None) -> float:
        """Mean loss of the left-out decision values."""
        assert left_out is not None
        Y, weight = self.blocks.targets_of(np.arange(self.blocks.n_rows))
        weight = np.ones(len(Y)) if weight is None else weight
        slack = Y * left_out if self.margin else left_out
        return float(weight @ self.loss.value(slack).sum(axis=1) / weight.sum())


def _joined(parts: tuple[Solution, ...]) -> Solution:
    """Put the outputs of all groups side by side."""
    left_out = [part.left_out for part in parts if part.left_out is not None]
    worst = max(parts, key=lambda part: part.residual)
    return replace(
        worst,
        coef=np.concatenate([part.coef for part in parts], axis=1),
        b=np.concatenate([part.b for part in parts]),
        objective=sum(part.objective for part in parts),
        gap=max(part.gap for part in parts),
        iterations=max(part.iterations for part in parts),
        converged=all(part.converged for part in parts),
        left_out=np.concatenate(left_out, axis=1) if left_out else None,
        details={"history": [history for part in parts for history in part.details["history"]]},
    )
