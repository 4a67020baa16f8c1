"""The classical LS-SVM, whose bias is free, by the other methods of joshi.

- SUMT (§VI.I): solve the relaxed problem for A, then for rho A, rho^2 A, ..., each from the last
  solution, until sum(beta) = A b is below tolerance: 1/A enforces the constraint (40).
- Substitution (Appendix): what `solver="smo"` does with a free bias.
- Penalty flow (Appendix, (44)-(46)): the gradient system of an exact penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from leansvm.dual.kernel_matrix import SweepMatrix, sweep_matrix
from leansvm.dual.problem import DualProblem
from leansvm.dual.smo import (
    CERTIFIED,
    Quadratic,
    SweepState,
    SweptOutput,
    minimise,
    solve_smo,
    sweep_solution,
)
from leansvm.solution import Solution

Array = NDArray[np.float64]

FIRST_A = 1e4
RHO = 0.1
_MOST_STEPS = 400
_DIVERGED = 1e10  # relative residual that only a matrix without a minimum leads to
_PATIENCE = 5  # saturated steps of the flow after which rho is doubled


def solve_substitution(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve as "smo" does, under the name of the paper's appendix."""
    solution = solve_smo(problem, C, tol=tol, max_iter=max_iter)
    assert solution is not None  # nothing to give up for
    return replace(solution, solver="substitution")


@dataclass(frozen=True)
class SumtStep:
    """One relaxed problem of the sequence."""

    bias_penalty: float
    imbalance: float  # |sum(beta)|
    sweeps: int


def solve_sumt(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve every output; the report has the ``path`` of A for each of them."""
    problem, matrix = sweep_matrix(problem)
    ridge, found, paths = 1.0 / (C * problem.weight), list[SweptOutput](), []
    with problem.phases("solve"):
        for y in np.ascontiguousarray(problem.Y.T):
            quadratic, hook = Quadratic(y, ridge, problem.weight), problem.on_iteration
            state, b, path = sumt(
                matrix, quadratic, tol=CERTIFIED * tol, max_sweeps=max_iter, on_sweep=hook
            )
            found.append((state, b))
            paths.append([asdict(step) for step in path])
    return sweep_solution(problem, matrix, C, found, tol=tol, solver="sumt", path=paths)


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
    """Return the state, the bias and the path of A, which falls by the factor ``rho`` < 1.

    ``tol`` bounds the relative violation of the optimality conditions and sum(beta) relative to
    sum |beta|; ``max_sweeps`` bounds the sweeps of all steps together. ``on_step`` is called with
    the state after every step, ``on_sweep`` as in `smo.minimise`.
    """
    state, path, A = SweepState.zeros(len(quadratic.y)), list[SumtStep](), FIRST_A
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


def solve_penalty_flow(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Follow the flow of every output to a relative residual of ``tol``.

    That is (sum s r^2 / sum s y^2)^1/2 with r = y - b - G beta; an iteration is a product with K.
    """
    problem, matrix = sweep_matrix(problem)
    flow, status = _Flow(matrix, problem, C), "stalled"
    with problem.phases("solve"):
        for it in range(1, max_iter + 1):
            settled = flow.step()
            worst = flow.residual()
            if not worst <= _DIVERGED:
                raise np.linalg.LinAlgError("the iteration diverged")
            if problem.on_iteration is not None and problem.on_iteration(it, worst):
                status = "stopped"
                break
            if worst <= tol and settled:
                status = "done"
                break
    found = [
        (SweepState(flow.x[:, j], flow.Kx[:, j], it * len(flow.x), status=status), float(b))
        for j, b in enumerate(flow.b)
    ]
    return sweep_solution(problem, matrix, C, found, tol=tol, solver="penalty-flow")


class _Flow:
    """Where the flow is, one column per output.

    beta' = y - G beta - rho 1 sgn(1'beta) descends 1/2 beta'G beta - y'beta + rho |1'beta|, whose
    minimum is the constrained one for rho >= |b|. An explicit step chatters about 1'beta = 0. The
    penalty is taken implicitly instead: with z an explicit step of the smooth part in the metric M,

        beta = z - M^-1 1 b,   b = clip(1'z / 1'M^-1 1, -rho, rho),

    that is, sgn takes the value in [-1, 1] that keeps 1'beta = 0 once it is reached, and b is the
    bias. M = L diag(G), L found by trial; momentum with restarts: O(condition^1/2) steps.
    """

    def __init__(self, matrix: SweepMatrix, problem: DualProblem, C: float) -> None:
        self.matrix, self.Y, self.s = matrix, problem.Y, problem.weight[:, None]
        self.ridge = 1.0 / (C * self.s)
        diag = matrix.diag[:, None] + self.ridge
        if not np.all(diag > 0):
            raise np.linalg.LinAlgError(f"not positive definite at row {int(np.argmin(diag))}")
        self.inverse = 1.0 / diag  # M^-1 up to L
        n_outputs = self.Y.shape[1]
        self.rho = 2.0 * np.abs(self.Y).max(axis=0)
        self.length = np.ones(n_outputs)  # 1 / L
        self.x, self.b = np.zeros_like(self.Y), np.zeros(n_outputs)
        self.Kx, self.Gx = np.zeros_like(self.Y), np.zeros_like(self.Y)
        self.ahead, self.G_ahead = self.x, self.Gx
        self.momentum, self.saturated = np.ones(n_outputs), np.zeros(n_outputs, dtype=int)

    def step(self) -> bool:
        """Take a step; return whether it was short enough and no bias is at its bound."""
        metric = self.length * self.inverse
        z = self.ahead + metric * (self.Y - self.G_ahead)
        wanted = z.sum(axis=0) / metric.sum(axis=0)
        self.b = np.clip(wanted, -self.rho, self.rho)
        new = z - metric * self.b
        K_new = self.matrix.product(new)
        G_new = K_new + self.ridge * new
        ok = self._short_enough(new - self.ahead, G_new - self.G_ahead, metric)
        self.saturated = np.where(np.abs(wanted) > self.rho, self.saturated + 1, 0)
        self.rho[self.saturated > _PATIENCE] *= 2.0
        # momentum, restarted where it points uphill
        restart = np.sum((self.ahead - new) * (new - self.x) / self.inverse, axis=0) > 0
        t = np.where(restart, 1.0, self.momentum)
        t_new = 0.5 * (1 + np.sqrt(1 + 4 * t**2))
        factor = np.where(restart, 0.0, (t - 1) / t_new)
        self.ahead = np.where(ok, new + factor * (new - self.x), self.x)
        self.G_ahead = np.where(ok, G_new + factor * (G_new - self.Gx), self.Gx)
        self.momentum = np.where(ok, t_new, 1.0)
        self.x, self.Gx = np.where(ok, new, self.x), np.where(ok, G_new, self.Gx)
        self.Kx = np.where(ok, K_new, self.Kx)
        return bool(ok.all()) and not self.saturated.any()

    def _short_enough(self, change: Array, G_change: Array, metric: Array) -> NDArray[np.bool_]:
        """Return where change' G change <= L change' M change; shorten the other steps."""
        curvature = np.sum(change * G_change, axis=0)
        allowed = np.sum(change**2 / metric, axis=0)
        long = curvature > allowed * (1 + 1e-12)
        self.length[long] *= np.minimum(0.5, allowed[long] / curvature[long])
        return np.asarray(~long)

    def residual(self) -> float:
        """Return the largest relative residual of the outputs."""
        scale = np.maximum(np.sum(self.s * self.Y**2, axis=0), np.finfo(np.float64).tiny)
        squares = np.sum(self.s * (self.Y - self.b - self.Gx) ** 2, axis=0)
        return float(np.sqrt(squares / scale).max())
