"""The classical LS-SVM through a sequence of relaxed ones (joshi, §VI.I: SUMT).

Solve the relaxed problem for A, then for rho A, rho^2 A, ..., each from the last solution, until
sum(beta) = sum(lambda y) = A b is below tolerance: the penalty 1/A enforces the constraint (40).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leansvm.solvers._rows import KernelRows
from leansvm.solvers.smo import Quadratic, State, minimise

FIRST_A = 1e4
RHO = 0.1
_MOST_STEPS = 400


@dataclass
class Step:
    """One relaxed problem of the sequence."""

    bias_penalty: float
    imbalance: float  # |sum(beta)|
    sweeps: int


def sumt(
    rows: KernelRows,
    quadratic: Quadratic,
    *,
    tol: float,
    max_sweeps: int,
    first: float = FIRST_A,
    rho: float = RHO,
    on_step: Any = None,
    **options: Any,
) -> tuple[State, float, list[Step]]:
    """Return the state, the bias and the path of A.

    Parameters
    ----------
    rows, quadratic
        As in `smo.minimise`; the term c of the quadratic is this function's own.
    tol : float
        Relative violation of the optimality conditions, and of sum(beta) = 0 to sum |beta|.
    max_sweeps : int
        Most sweeps over all steps.
    first, rho : float
        First value of A, and the factor < 1 from one to the next.
    on_step : callable, optional
        Called with the state after every step.
    **options
        Of `smo.minimise`.
    """
    state, path, A = State.zeros(len(quadratic.y)), list[Step](), first
    # multipliers of a diagonal kernel: a scale where all of beta goes to zero with A
    least = float(np.sum(np.abs(quadratic.y) / (rows.diag + quadratic.ridge)))
    while True:
        before = state.sweeps
        relaxed = replace(quadratic, c=1.0 / A)
        left = max(max_sweeps - before, 1)
        state = minimise(rows, relaxed, state, tol=tol, max_sweeps=left, **options)
        total = float(state.beta.sum())
        path.append(Step(A, abs(total), state.sweeps - before))
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
