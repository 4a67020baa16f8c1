"""The squared-hinge SVM by SesquiSMO (joshi, §IV): bounded multipliers, zeros left aside.

theta = y beta >= 0 maximises the dual
sum(theta) - 1/2 beta'K beta - 1/2 sum(theta^2 / (C s)) - (sum beta)^2 / (2 A);
the primal objective at f = K beta + b bounds it from above.
`minimise_with_bias` finds the bias, free or weakly penalised, by secant steps around
`smo.minimise`; `SupportRows` gives the rows with a multiplier a matrix of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.dual._hinge import (
    Hinge,
    Point,
    certified_output,
    errors,
    feasible_dual,
    joined_solution,
)
from leansvm.dual.kernel_matrix import StoredMatrix, SweepMatrix, sweep_matrix
from leansvm.dual.problem import DualProblem
from leansvm.dual.smo import CERTIFIED, Quadratic, SweepState, SweptOutput, minimise, too_smooth
from leansvm.solution import Solution

Array = NDArray[np.float64]

_CERTIFIED_FREE = 0.25  # share of tol to aim at: `feasible_dual` changes a free bias's multipliers
_MOST_BIASES = 50
_FIRST_SHARE = 0.5  # of all sweeps, that the first digits take
_DOUBT = 3.0  # error of the bias that a violation may cause, in units of it
_LOOSE = 1e-2  # violation at which the support is nearly known
_MARGIN = 0.1  # rows this close to an error stay with the support
_MISSING = 0.02  # share of the support that may be new before its matrix is made anew
_FEW_CHANGED = 0.1  # share of all rows, up to which their kernel rows are added one by one
_SAMPLE = 64  # rows whose kernel values stand for all
_FEW = 0.8  # share of rows, up to which the support's own matrix is worth its copy


def solve_sesqui(
    problem: DualProblem,
    C: float,
    *,
    tol: float,
    max_iter: int,
    give_up_after: float = np.inf,
) -> Solution | None:
    """Solve for all outputs (targets +-1); None where more sweeps are expected than allowed."""
    problem, matrix = sweep_matrix(problem)
    beta, states = np.empty(problem.Y.shape), list[SweptOutput]()
    hinges = [Hinge(y, C * problem.weight, problem.bias_penalty) for y in problem.Y.T.copy()]
    with problem.phases("solve"):
        for j, hinge in enumerate(hinges):
            quadratic = Quadratic(hinge.y, 1.0 / hinge.cost, problem.weight, bounded=True)
            state, b = minimise_with_bias(
                matrix,
                quadratic,
                problem.bias_penalty,
                tol=tol * (_CERTIFIED_FREE if problem.bias_penalty == 0 else CERTIFIED),
                max_sweeps=max_iter,
                give_up_after=give_up_after,
                on_sweep=problem.on_iteration,
            )
            if state.status == "slow":
                return None
            beta[:, j] = feasible_dual(hinge, state.beta)
            states.append((state, b))
    with problem.phases("certificate"):
        product, outputs = matrix.product(beta), []
        for hinge, f, column, (state, b) in zip(hinges, product.T, beta.T, states, strict=True):
            point = Point(column, b, f + b)
            worst = _mean_violation(hinge, point, problem.weight)
            outputs.append(certified_output(hinge, point, column, f, worst, state.sweeps))
    violation = float(np.sqrt(np.mean([output.violation**2 for output in outputs])))
    done = all(state.status == "done" for state, _ in states)
    sweeps = max(state.sweeps for state, _ in states)
    advice = too_smooth("smo", sweeps, f"a violation of {violation:.1e}", tol, "'active-set'")
    return joined_solution(
        "smo",
        problem,
        C,
        outputs,
        tol,
        violation=violation,
        converged=done and violation <= tol,
        advice=advice,
    )


def _mean_violation(hinge: Hinge, point: Point, weight: Array) -> float:
    """Return the violation v of the conditions (34), (35) as (sum s v^2 / sum s)^1/2."""
    theta = hinge.y * point.beta
    v = errors(hinge, point) - theta / hinge.cost
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
) -> SweptOutput:
    """Minimise with the bias sum(beta) / A, or with sum(beta) = 0 for A = 0; return the bias too.

    For bounded multipliers; free ones need one minimisation, see `smo.minimise_by_substitution`.
    A small A couples all rows through c = 1 / A, and updates of few multipliers stall. So only a
    moderate c stays inside; what it lacks is a shift b of the targets, found from outside:
    sum(beta) - b / (1 / A - c) at the minimum decreases with b. Secant steps, each from the
    last minimum and to a tolerance that follows the error of b, find where it is zero.
    """
    m = len(quadratic.y)
    typical = np.sqrt(quadratic.squared_norm() / float(quadratic.weight.sum()))  # target
    # removing what is left of the sum changes f by at most that times the largest k
    most = tol * typical / max(float(matrix.diag.max()), 1.0)
    c = float(np.mean(matrix.diag + quadratic.ridge)) / np.sqrt(m)
    outside = bias_penalty * c < 0.5
    c = c if outside else 1.0 / bias_penalty
    per_bias = bias_penalty / (1.0 - bias_penalty * c) if outside else 0.0
    # a shift of all targets moves the sum of the multipliers by about this
    sample = np.random.default_rng(0).permutation(m)[:_SAMPLE]
    mean = max(float(np.mean(matrix.square(sample))), 0.0)
    slope = 1.0 / max(c + mean, np.finfo(np.float64).tiny)  # 0: no bias, and no kernel value
    # residuals that are all alike move the sum as much
    least = tol / max(1.0, slope * float(matrix.diag.max())) if outside else tol
    support, search = SupportRows(matrix), _Root(slope)
    state = SweepState.zeros(m)
    b, following, reached, allowed = 0.0, 0.0, _LOOSE, _FIRST_SHARE * give_up_after
    for _ in range(_MOST_BIASES):
        b, reached = following, max(least, reached)
        state = support.minimise(
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
            was = reached
            reached = min(reached, abs(c * excess) / typical)
            following = search.next(b, excess, _DOUBT * typical * was)
        reached, allowed = 0.01 * reached if outside else tol, give_up_after
    return state, b + c * float(state.beta.sum())


class SupportRows:
    """Bounded minimisation that, once most zeros are known, works on the other rows alone.

    Kernel rows then are as long as there are nonzero multipliers. All rows have the last word:
    a minimisation over all of them follows, which most often finds nothing left to do.
    """

    def __init__(self, matrix: SweepMatrix) -> None:
        self.matrix = matrix
        self.chosen: NDArray[np.intp] | None = None
        self.submatrix: StoredMatrix | None = None

    def minimise(self, quadratic: Quadratic, state: SweepState, **options: Any) -> SweepState:
        """Minimise over all rows; from a rough state, over its support first."""
        if state.status == "done" and isinstance(self.matrix, StoredMatrix):
            self._choose(quadratic, state, self.matrix)
        if self.chosen is not None and self.submatrix is not None:
            S, m = self.chosen, len(state.beta)
            part = SweepState(state.beta[S], state.f[S])
            y, ridge, weight = quadratic.y[S], quadratic.ridge[S], quadratic.weight[S]
            inner = replace(quadratic, y=y, ridge=ridge, weight=weight)
            part = minimise(self.submatrix, inner, part, **options)
            changed = np.flatnonzero(part.beta != state.beta[S])
            step = state.beta[S[changed]] - part.beta[changed]
            state.beta[S] = part.beta
            if len(changed) < _FEW_CHANGED * m:
                self.matrix.subtract(S[changed], step, state.f)
            else:
                state.f = self.matrix.product(state.beta)
            state.updates += part.updates * len(S) // m  # a sweep of the part costs less
            if part.status != "done":
                state.status = part.status
                return state
        return minimise(self.matrix, quadratic, state, **options)

    def _choose(self, quadratic: Quadratic, state: SweepState, matrix: StoredMatrix) -> None:
        """Take the rows that may have nonzero multipliers, if they are few."""
        shift = quadratic.b + quadratic.c * float(state.beta.sum())
        violation = quadratic.y * (quadratic.y - state.f - shift)
        wanted = (state.beta != 0) | (violation > -_MARGIN)
        if self.chosen is not None:
            known = np.zeros(len(wanted), np.bool_)
            known[self.chosen] = True
            if np.count_nonzero(wanted & ~known) <= _MISSING * len(self.chosen):
                wanted |= known
                if not np.any(state.beta[~known]):
                    return
        S = np.flatnonzero(wanted)
        few = len(S) <= _FEW * len(wanted)
        self.chosen = S if few else None
        self.submatrix = StoredMatrix(matrix.values[np.ix_(S, S)]) if few else None


class _Root:
    """Secant steps to the root of a decreasing function, within what brackets it."""

    def __init__(self, slope: float) -> None:
        self.slope = slope
        self.last: tuple[float, float] | None = None
        self.low, self.high = -np.inf, np.inf

    def next(self, x: float, value: float, doubt: float = 0.0) -> float:
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
