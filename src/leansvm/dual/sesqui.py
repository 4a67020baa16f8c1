"""The squared-hinge SVM by SesquiSMO (joshi, §IV): bounded multipliers.

theta = y beta >= 0 maximises the dual
sum(theta) - 1/2 beta'K beta - 1/2 sum(theta^2 / (C s)) - (sum beta)^2 / (2 A);
the primal objective at f = K beta + b bounds it from above.
`minimise_with_bias` finds the bias, free or weakly penalised, by secant steps around
`smo.minimise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.dual._hinge import Hinge, HingeOutput, Point, joined_solution
from leansvm.dual.kernel_matrix import SweepMatrix, sweep_matrix
from leansvm.dual.problem import DualProblem
from leansvm.dual.smo import CERTIFIED, Quadratic, SweepState, minimise, too_smooth
from leansvm.solution import Solution

Array = NDArray[np.float64]

_CERTIFIED_FREE = 0.25  # share of tol to aim at: `feasible_dual` changes a free bias's multipliers
_MOST_BIASES = 50
_FIRST_SHARE = 0.5  # of all sweeps, that the first digits take
_DOUBT = 3.0  # error of the bias that a violation may cause, in units of it
_LOOSE = 1e-2  # violation at which the support is nearly known
_SAMPLE = 64  # rows whose kernel values stand for all


def solve_sesqui(
    problem: DualProblem, C: float, *, tol: float, max_iter: int, give_up_after: float = np.inf
) -> Solution | None:
    """Solve for all outputs (targets +-1); None where more sweeps are expected than allowed."""
    problem, matrix = sweep_matrix(problem)
    aim = tol * (_CERTIFIED_FREE if problem.bias_penalty == 0 else CERTIFIED)
    beta, found = np.empty(problem.Y.shape), list[tuple[Hinge, SweepState, float]]()
    with problem.phases("solve"):
        for j, y in enumerate(np.ascontiguousarray(problem.Y.T)):
            hinge = Hinge(y, C * problem.weight, problem.bias_penalty)
            state, b = minimise_with_bias(
                matrix,
                Quadratic(y, 1.0 / hinge.cost, problem.weight, bounded=True),
                problem.bias_penalty,
                tol=aim,
                max_sweeps=max_iter,
                give_up_after=give_up_after,
                on_sweep=problem.on_iteration,
            )
            if state.status == "slow":
                return None
            beta[:, j] = hinge.feasible_dual(state.beta)
            found.append((hinge, state, b))
    outputs, done, squares = list[HingeOutput](), True, 0.0
    with problem.phases("certificate"):
        for f, column, (hinge, state, b) in zip(matrix.product(beta).T, beta.T, found, strict=True):
            point = Point(column, b, f + b)
            worst = _mean_violation(hinge, point, problem.weight)
            outputs.append(HingeOutput(hinge, point, column, f, worst, state.sweeps))
            done, squares = done and state.status == "done", squares + worst**2
    violation = float(np.sqrt(squares / len(outputs)))
    sweeps, reached = max(found.iterations for found in outputs), f"a violation of {violation:.1e}"
    advice = too_smooth("smo", sweeps, reached, tol, "'active-set'")
    more: Any = {"violation": violation, "converged": done and violation <= tol}
    return joined_solution("smo", problem, C, outputs, tol, advice=advice, **more)


def _mean_violation(hinge: Hinge, point: Point, weight: Array) -> float:
    """Return the violation v of the conditions (34), (35) as (sum s v^2 / sum s)^1/2."""
    theta = hinge.y * point.beta
    v = hinge.errors(point) - theta / hinge.cost
    v[(theta == 0) & (v < 0)] = 0.0  # (34): no violation
    return float(np.sqrt(weight @ v**2 / weight.sum()))


def minimise_with_bias(
    matrix: SweepMatrix,
    quadratic: Quadratic,
    bias_penalty: float,
    *,
    tol: float,
    max_sweeps: int,
    give_up_after: float = np.inf,
    on_sweep: Callable[[int, float], bool] | None = None,
) -> tuple[SweepState, float]:
    """Minimise with the bias sum(beta) / A, or with sum(beta) = 0 for A = 0; return the bias too.

    For bounded multipliers; free ones need one minimisation, see `smo.minimise_by_substitution`.
    A small A couples all rows through c = 1 / A, and updates of few multipliers stall. So only a
    moderate c stays inside; what it lacks is a shift b of the targets, found from outside:
    sum(beta) - b / (1 / A - c) at the minimum decreases with b. Secant steps, each from the
    last minimum and to a tolerance that follows the error of b, find where it is zero.
    """
    m, weight = len(quadratic.y), quadratic.weight
    typical = np.sqrt(float(weight @ quadratic.y**2) / float(weight.sum()))  # target
    # removing what is left of the sum changes f by at most that times the largest k
    most = tol * typical / max(float(matrix.diag.max()), 1.0)
    c = float(np.mean(matrix.diag + quadratic.ridge)) / np.sqrt(m)
    outside = bias_penalty * c < 0.5
    c = c if outside else 1.0 / bias_penalty
    per_bias = bias_penalty / (1.0 - bias_penalty * c) if outside else 0.0
    # a shift of all targets moves the sum of the multipliers by about this
    sample = np.random.default_rng(0).permutation(m)[:_SAMPLE]
    mean = max(float(np.mean(matrix.block(sample, sample))), 0.0)
    slope = 1.0 / max(c + mean, np.finfo(np.float64).tiny)  # 0: no bias, and no kernel value
    # residuals that are all alike move the sum as much
    least = tol / max(1.0, slope * float(matrix.diag.max())) if outside else tol
    state, search = SweepState(np.zeros(m), np.zeros(m)), _Root(slope)
    b, following, reached, allowed = 0.0, 0.0, _LOOSE, _FIRST_SHARE * give_up_after
    for _ in range(_MOST_BIASES):
        b, reached = following, max(least, reached)
        state = minimise(
            matrix,
            replace(quadratic, b=b, c=c),
            state,
            tol=reached,
            max_sweeps=max(max_sweeps - state.sweeps, 1),
            give_up_after=max(allowed - state.sweeps, 0.0),
            on_sweep=on_sweep,
        )
        excess = float(state.beta.sum()) - per_bias * b if outside else 0.0
        if state.status != "done" or (abs(excess) <= most and reached <= tol):
            break
        if outside:  # the error of b as a residual of every row
            following = search.next(b, excess, _DOUBT * typical * reached)
            reached = min(reached, abs(c * excess) / typical)
        reached, allowed = 0.01 * reached if outside else tol, give_up_after
    return state, b + c * float(state.beta.sum())


class _Root:
    """Secant steps to the root of a decreasing function, within what brackets it."""

    def __init__(self, slope: float) -> None:
        self.slope = slope
        self.last: tuple[float, float] | None = None
        self.low, self.high = -np.inf, np.inf

    def next(self, x: float, value: float, doubt: float) -> float:
        """Return where to look next, having found ``value`` at ``x``, which is known +- doubt."""
        if value == 0:
            return x
        if value > 0:
            self.low = max(self.low, x - doubt)
        else:
            self.high = min(self.high, x + doubt)
        if self.last is not None and self.last[1] != value and self.last[0] != x:
            slope = -(value - self.last[1]) / (x - self.last[0])
            self.slope = slope if slope > 0 else self.slope
        self.last = (x, value)
        step = x + value / self.slope
        middle = 0.5 * (self.low + self.high)
        return middle if np.isfinite(middle) and not self.low < step < self.high else step
