"""The other methods of joshi: SesquiSMO for the squared hinge, and three ways to a free bias.

- SesquiSMO (§IV): theta = y beta >= 0 maximises the dual
  sum(theta) - 1/2 beta'K beta - 1/2 sum(theta^2 / (C s)) - (sum beta)^2 / (2 A); the primal
  objective at f = K beta + b bounds it from above. `minimise_with_bias` finds the bias.
- SUMT (§VI.I): solve the relaxed LS-SVM for A, then for rho A, rho^2 A, ..., each from the last
  solution, until sum(beta) = A b is below tolerance: 1/A enforces the constraint (40).
- Penalty flow (Appendix, (44)-(46)): the gradient system of an exact penalty.
- Substitution (Appendix) is what `smo.solve_smo` does with a free bias.
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
from leansvm.dual.smo import CERTIFIED, TOO_SMOOTH, Quadratic, SweepState, minimise, sweep_solution
from leansvm.solution import Solution

Array = NDArray[np.float64]

_CERTIFIED_FREE = 0.25  # share of tol to aim at, as `feasible_dual` changes multipliers (free bias)
_MOST_BIASES = 50
_FIRST_SHARE = 0.5  # of all sweeps, that the first digits take
_DOUBT = 3.0  # error of the bias that a violation may cause, in units of it
_LOOSE = 1e-2  # violation at which the support is nearly known
_SAMPLE = 64  # rows whose kernel values stand for all
FIRST_A = 1e4
RHO = 0.1
_MOST_STEPS = 400
_DIVERGED = 1e10  # relative residual that only a matrix without a minimum leads to
_PATIENCE = 5  # saturated steps of the flow after which rho is doubled


# ---------------------------------------------------------------------------- SesquiSMO


def solve_sesqui(
    problem: DualProblem, C: float, *, tol: float, max_iter: int, give_up_after: float = np.inf
) -> Solution | None:
    """Solve for all outputs (targets +-1); None if more sweeps are expected than allowed."""
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
    advice = TOO_SMOOTH.format(
        solver="smo",
        sweeps=max(found.iterations for found in outputs),
        reached=f"a violation of {violation:.1e}",
        tol=tol,
        others="'active-set'",
    )
    more: Any = {"violation": violation, "done": done, "advice": advice}
    return joined_solution("smo", problem, C, outputs, tol, **more)


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
    A small A couples all rows through c = 1 / A, and updates of few multipliers stall. So the
    minimisation uses a moderate c, and an outer loop finds the shift b of the targets that makes up
    for it: sum(beta) - b / (1 / A - c) at the minimum decreases with b. Secant steps find its zero;
    each starts at the last minimum, with a tolerance that follows the error of b.
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


# ---------------------------------------------------------------------------- a free bias


def solve_sumt(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve every output; the report has the ``path`` of A for each of them."""
    problem, matrix = sweep_matrix(problem)
    found, paths = [], []
    with problem.phases("solve"):
        for y in np.ascontiguousarray(problem.Y.T):
            quadratic = Quadratic(y, 1.0 / (C * problem.weight), problem.weight)
            stop: Any = {"max_sweeps": max_iter, "on_sweep": problem.on_iteration}
            state, b, path = sumt(matrix, quadratic, tol=CERTIFIED * tol, **stop)
            found.append((state, b))
            paths.append(path)
    return sweep_solution(problem, matrix, C, found, tol=tol, solver="sumt", path=paths)


def sumt(
    matrix: SweepMatrix,
    quadratic: Quadratic,
    *,
    tol: float,
    max_sweeps: int,
    rho: float = RHO,
    on_sweep: Callable[[int, float], bool] | None = None,
) -> tuple[SweepState, float, list[dict[str, Any]]]:
    """Return the state, the bias and the path of A, which falls by the factor ``rho`` < 1.

    ``tol`` bounds the relative violation of the optimality conditions and sum(beta) relative to
    sum |beta|; ``max_sweeps`` bounds the sweeps of all steps together.
    """
    m, path, A = len(quadratic.y), list[dict[str, Any]](), FIRST_A
    state = SweepState(np.zeros(m), np.zeros(m))
    # multipliers of a diagonal kernel: a scale where all of beta goes to zero with A
    least = float(np.sum(np.abs(quadratic.y) / (matrix.diag + quadratic.ridge)))
    while True:
        before = state.sweeps
        left = max(max_sweeps - before, 1)
        relaxed = replace(quadratic, c=1.0 / A)
        state = minimise(matrix, relaxed, state, tol=tol, max_sweeps=left, on_sweep=on_sweep)
        total = abs(float(state.beta.sum()))
        path.append({"bias_penalty": A, "imbalance": total, "sweeps": state.sweeps - before})
        if state.status != "done" or total <= tol * max(float(np.abs(state.beta).sum()), least):
            break
        if len(path) == _MOST_STEPS:
            state.status = "stalled"
            break
        A *= rho
    # b = sum(beta) / A to the tolerance, but for the rounding of the sum
    residual = quadratic.y - state.f - quadratic.ridge * state.beta
    return state, float(np.average(residual, weights=quadratic.weight)), path


def solve_penalty_flow(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Follow the flow of every output, a column each, to a relative residual of ``tol``.

    That is (sum s r^2 / sum s y^2)^1/2 with r = y - b - G beta; an iteration is a product with K.

    beta' = y - G beta - rho 1 sgn(1'beta) descends 1/2 beta'G beta - y'beta + rho |1'beta|, whose
    minimum is the constrained one for rho >= |b|. An explicit step chatters about 1'beta = 0. The
    penalty is taken implicitly instead: with z an explicit step of the smooth part in the metric M,

        beta = z - M^-1 1 b,   b = clip(1'z / 1'M^-1 1, -rho, rho),

    that is, sgn takes the value in [-1, 1] that keeps 1'beta = 0 once it is reached, and b is the
    bias. M = L diag(G), L found by trial; momentum with restarts: O(condition^1/2) steps.
    """
    problem, matrix = sweep_matrix(problem)
    Y, s, status = problem.Y, problem.weight[:, None], "stalled"
    ridge, scale = 1.0 / (C * s), np.maximum(np.sum(s * Y**2, axis=0), np.finfo(np.float64).tiny)
    diag = matrix.diag[:, None] + ridge
    if not np.all(diag > 0):
        raise np.linalg.LinAlgError(f"not positive definite at row {int(np.argmin(diag))}")
    ones = np.ones(Y.shape[1])
    rho, length, momentum, saturated = 2.0 * np.abs(Y).max(axis=0), ones.copy(), ones, 0 * ones
    x = Kx = Gx = ahead = G_ahead = np.zeros_like(Y)
    with problem.phases("solve"):
        for it in range(1, max_iter + 1):
            metric = length / diag  # M^-1
            z = ahead + metric * (Y - G_ahead)
            wanted = z.sum(axis=0) / metric.sum(axis=0)
            b = np.clip(wanted, -rho, rho)
            new = z - metric * b
            K_new = matrix.product(new)
            G_new = K_new + ridge * new
            # a step is short enough where change' G change <= L change' M change
            curvature = np.sum((new - ahead) * (G_new - G_ahead), axis=0)
            allowed = np.sum((new - ahead) ** 2 / metric, axis=0)
            ok = curvature <= allowed * (1 + 1e-12)
            length[~ok] *= np.minimum(0.5, allowed[~ok] / curvature[~ok])
            saturated = np.where(np.abs(wanted) > rho, saturated + 1, 0)
            rho[saturated > _PATIENCE] *= 2.0
            # momentum, restarted where it points uphill
            restart = np.sum((ahead - new) * (new - x) * diag, axis=0) > 0
            t = np.where(restart, 1.0, momentum)
            momentum = 0.5 * (1 + np.sqrt(1 + 4 * t**2))
            factor = np.where(restart, 0.0, (t - 1) / momentum)
            ahead = np.where(ok, new + factor * (new - x), x)
            G_ahead = np.where(ok, G_new + factor * (G_new - Gx), Gx)
            momentum = np.where(ok, momentum, 1.0)
            x, Kx, Gx = np.where(ok, new, x), np.where(ok, K_new, Kx), np.where(ok, G_new, Gx)
            residual = np.sqrt(np.sum(s * (Y - b - Gx) ** 2, axis=0) / scale)
            worst = float(residual.max())
            if not worst <= _DIVERGED:
                raise np.linalg.LinAlgError("the iteration diverged")
            if problem.on_iteration is not None and problem.on_iteration(it, worst):
                status = "stopped"
                break
            if worst <= tol and ok.all() and not saturated.any():
                status = "done"
                break
    states = [
        SweepState(*column, it * len(x), 0.0, status) for column in zip(x.T, Kx.T, strict=True)
    ]
    found = list(zip(states, b.tolist(), strict=True))
    return sweep_solution(problem, matrix, C, found, tol=tol, solver="penalty-flow")
