"""The classical LS-SVM, whose bias is free, by the other methods of joshi.

- SUMT (§VI.I): solve the relaxed problem for A, then for rho A, rho^2 A, ..., each from the last
  solution, until sum(beta) = A b is below tolerance: 1/A enforces the constraint (40).
- Substitution (Appendix): what `solver="smo"` does with a free bias.
- Penalty flow (Appendix, (44)-(46)): the gradient system of an exact penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.dual.kernel_matrix import SweepMatrix, sweep_matrix
from leansvm.dual.problem import DualProblem
from leansvm.dual.smo import CERTIFIED, Quadratic, SweepState, minimise, solve_smo, sweep_solution
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
