"""The squared-hinge SVM by SesquiSMO (joshi, §IV): every output, and a certificate.

`try_sesqui` is for solver="auto": it starts where a sample says that many rows are support vectors,
and gives up as soon as its progress says that the active set will be faster.

theta = y beta >= 0 maximises the dual
sum(theta) - 1/2 beta'K beta - 1/2 sum(theta^2 / (C s)) - (sum beta)^2 / (2 A);
the primal objective at f = K beta + b bounds it from above.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._hinge import (
    Hinge,
    HingeSolution,
    Point,
    dual_objective,
    errors,
    feasible_dual,
    objective,
)
from leansvm.solvers._problem import FEW_ROWS, DualProblem
from leansvm.solvers._rows import KernelRows, MatrixRows
from leansvm.solvers._sequential import affordable_sweeps, kernel_between, open_rows
from leansvm.solvers.sesqui import minimise_with_bias
from leansvm.solvers.smo import Quadratic, State

Array = NDArray[np.float64]

_SWEEP_ROWS = 85  # rows for which a sweep more is affordable beside the active set (measured)
_MANY_SUPPORT = 0.4
_SAMPLE, _SAMPLE_TOL, _SAMPLE_SWEEPS = 500, 1e-2, 50


def solve_sesqui(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> HingeSolution:
    """Solve for all outputs (targets +-1)."""
    solution = _run(problem, open_rows(problem), C, tol=tol, max_iter=max_iter)
    assert solution is not None  # nothing to give up for
    return solution


def try_sesqui(
    problem: DualProblem, C: float, *, tol: float, max_iter: int
) -> HingeSolution | None:
    """Solve where that promises to be the fastest way; None where it does not, or did not.

    An active set of k rows takes some k^3 flops and k kernel rows, sweeps need all kernel rows:
    so many rows have to be support vectors, which a sample tells.
    """
    m = problem.m
    if m < FEW_ROWS or problem.kernel.name == "linear":
        return None
    sweeps: float | None = m / _SWEEP_ROWS
    if not (problem.kernel.precomputed or problem.fits(8 * m * m)):
        sweeps = affordable_sweeps(problem, C, stored=False)
    if sweeps is None or _support_share(problem, C) < _MANY_SUPPORT:
        return None
    reserved = problem.bytes
    rows = open_rows(problem)
    solution = _run(problem, rows, C, tol=tol, max_iter=max_iter, give_up_after=sweeps)
    if solution is None:
        problem.bytes = reserved
    return solution


def _support_share(problem: DualProblem, C: float) -> float:
    """Return the share of support vectors in a sample, the most of any output."""
    sample = np.random.default_rng(0).permutation(problem.m)[:_SAMPLE]
    rows = MatrixRows(kernel_between(problem, sample, sample))
    weight, shares = problem.weight[sample], []
    for y in np.ascontiguousarray(problem.Y[sample].T):
        quadratic = Quadratic(y, 1.0 / (C * weight), weight, bounded=True)
        state, _ = minimise_with_bias(
            rows, quadratic, problem.bias_penalty, tol=_SAMPLE_TOL, max_sweeps=_SAMPLE_SWEEPS
        )
        shares.append(np.count_nonzero(state.beta) / len(sample))
    return max(shares)


def _run(
    problem: DualProblem, rows: KernelRows, C: float, *, tol: float, max_iter: int, **more: Any
) -> HingeSolution | None:
    """Solve every output and certify; None where an output was given up."""
    states, b, beta = list[State](), [], np.empty(problem.Y.shape)
    hinges = [Hinge(y, C * problem.weight, problem.bias_penalty) for y in problem.Y.T.copy()]
    # the certificate adds rounding, and with a free bias what `feasible_dual` changes
    share = 0.25 if problem.bias_penalty == 0 else 0.9
    options: dict[str, Any] = {
        "tol": share * tol,
        "max_sweeps": max_iter,
        "on_sweep": problem.on_iteration,
        **more,
    }
    with problem.phases("solve"):
        for j, hinge in enumerate(hinges):
            quadratic = Quadratic(hinge.y, 1.0 / hinge.cost, problem.weight, bounded=True)
            state, bias = minimise_with_bias(rows, quadratic, problem.bias_penalty, **options)
            if state.status == "slow":
                return None
            beta[:, j] = feasible_dual(hinge, state.beta)
            states.append(state)
            b.append(bias)
    with problem.phases("certificate"):
        solution = _certify(hinges, rows.product(beta), beta, np.array(b), problem.weight)
    solution.n_iter = max(state.sweeps for state in states)
    done = all(state.status == "done" for state in states)
    solution.converged = done and solution.violation <= tol
    if problem.kernel.name == "linear":
        solution.weights = np.asarray((problem.X.T @ beta).T)
    return solution


def _certify(
    hinges: list[Hinge], product: Array, beta: Array, b: Array, weight: Array
) -> HingeSolution:
    """Evaluate objective, violation and duality gap, given K beta.

    The violation is that of every row, root mean square: (sum s v^2 / sum s)^1/2.
    """
    value = gap = squares = 0.0
    for hinge, f, beta_j, b_j in zip(hinges, product.T, beta.T, b, strict=True):
        point = Point(beta_j, float(b_j), f + b_j)
        primal, theta = objective(hinge, point), hinge.y * beta_j
        value += primal
        gap += primal - dual_objective(hinge, beta_j, f)
        v = errors(hinge, point) - theta / hinge.cost
        v[(theta == 0) & (v < 0)] = 0.0  # (34): no violation
        squares += float(weight @ v**2)
    return HingeSolution(
        beta,
        b,
        objective=value,
        violation=float(np.sqrt(squares / (len(hinges) * weight.sum()))),
        gap=max(gap, 0.0),
        n_iter=0,
        converged=False,
    )
