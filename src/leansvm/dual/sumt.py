"""The classical LS-SVM through a sequence of relaxed ones (joshi, §VI.I: SUMT).

Solve the relaxed problem for A, then for rho A, rho^2 A, ..., each from the last solution, until
sum(beta) = sum(lambda y) = A b is below tolerance: the penalty 1/A enforces the constraint (40).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from leansvm.dual.kernel_matrix import SweepMatrix, sweep_matrix
from leansvm.dual.problem import DualProblem
from leansvm.dual.smo import CERTIFIED, Quadratic, SweepState, minimise, sweep_solution
from leansvm.solution import Solution

FIRST_A = 1e4
RHO = 0.1
_MOST_STEPS = 400


@dataclass
class SumtStep:
    """One relaxed problem of the sequence."""

    bias_penalty: float
    imbalance: float  # |sum(beta)|
    sweeps: int


def solve_sumt(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve every output; the report has the ``path`` of A for each of them."""
    matrix, ridge = sweep_matrix(problem), 1.0 / (C * problem.weight)
    found, paths = [], []
    with problem.phases("solve"):
        for y in np.ascontiguousarray(problem.Y.T):
            state, b, path = sumt(
                matrix,
                Quadratic(y, ridge, problem.weight),
                tol=CERTIFIED * tol,
                max_sweeps=max_iter,
                on_sweep=problem.on_iteration,
            )
            found.append((state, b))
            paths.append([vars(step) for step in path])
    solution = sweep_solution(problem, matrix, C, found, tol=tol, solver="sumt")
    solution.details["path"] = paths
    return solution


def sumt(
    matrix: SweepMatrix,
    quadratic: Quadratic,
    *,
    tol: float,
    max_sweeps: int,
    rho: float = RHO,
    on_step: Callable[[SweepState], object] | None = None,
    on_sweep: Callable[[int, float], bool] | None = None,
) -> tuple[SweepState, float, list[SumtStep]]:
    """Return the state, the bias and the path of A.

    Parameters
    ----------
    matrix, quadratic
        As in `smo.minimise`; the term c of the quadratic is this function's own.
    tol : float
        Relative violation of the optimality conditions, and of sum(beta) = 0 to sum |beta|.
    max_sweeps : int
        Most sweeps over all steps.
    rho : float
        Factor < 1 from one value of A to the next.
    on_step : callable, optional
        Called with the state after every step.
    on_sweep : callable, optional
        As in `smo.minimise`.
    """
    state = SweepState(np.zeros(len(quadratic.y)), np.zeros(len(quadratic.y)))
    path, A = list[SumtStep](), FIRST_A
    # multipliers of a diagonal kernel: a scale where all of beta goes to zero with A
    least = float(np.sum(np.abs(quadratic.y) / (matrix.diag + quadratic.ridge)))
    while True:
        before = state.sweeps
        left = max(max_sweeps - before, 1)
        relaxed = replace(quadratic, c=1.0 / A)
        state = minimise(matrix, relaxed, state, tol=tol, max_sweeps=left, on_sweep=on_sweep)
        total = float(state.beta.sum())
        path.append(SumtStep(A, abs(total), state.sweeps - before))
        if on_step is not None:
            on_step(state)
        scale = max(float(np.abs(state.beta).sum()), least)
        if state.status != "done" or abs(total) <= tol * scale:
            break
        if len(path) == _MOST_STEPS:
            state.status = "stalled"
            break
        A *= rho
    # b = sum(beta) / A to the tolerance, but for the rounding of the sum
    residual = quadratic.y - state.f - quadratic.ridge * state.beta
    return state, float(np.average(residual, weights=quadratic.weight)), path
