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

from leansvm.solvers._hinge import HingeSolution
from leansvm.solvers._problem import FEW_ROWS, DualProblem
from leansvm.solvers._rows import KernelRows, MatrixRows
from leansvm.solvers._sequential import affordable_sweeps, kernel_between, open_rows
from leansvm.solvers.smo import Quadratic, State, minimise_with_bias

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
    ridge, states, b = 1.0 / (C * problem.weight), list[State](), []
    # the certificate adds rounding, and with a free bias what `_balance` changes
    share = 0.25 if problem.bias_penalty == 0 else 0.9
    options: dict[str, Any] = {
        "tol": share * tol,
        "max_sweeps": max_iter,
        "on_sweep": problem.on_iteration,
        **more,
    }
    with problem.phases("solve"):
        for y in np.ascontiguousarray(problem.Y.T):
            quadratic = Quadratic(y, ridge, problem.weight, bounded=True)
            state, bias = minimise_with_bias(rows, quadratic, problem.bias_penalty, **options)
            if problem.bias_penalty == 0:
                _balance(state.beta)
            if state.status == "slow":
                return None
            states.append(state)
            b.append(bias)
    beta = np.stack([state.beta for state in states], axis=1)
    with problem.phases("certificate"):
        solution = certify_hinge(
            rows.product(beta),
            beta,
            np.array(b),
            problem.Y,
            problem.weight,
            C,
            problem.bias_penalty,
        )
    solution.n_iter = max(state.sweeps for state in states)
    done = all(state.status == "done" for state in states)
    solution.converged = done and solution.violation <= tol
    if problem.kernel.name == "linear":
        solution.weights = np.asarray((problem.X.T @ beta).T)
    return solution


def _balance(beta: Array) -> None:
    """Make the sum zero, as the free bias wants, by scaling the heavier side within tolerance."""
    sides = [np.flatnonzero(beta > 0), np.flatnonzero(beta < 0)]
    totals = [abs(float(beta[side].sum())) for side in sides]
    heavier = int(np.argmax(totals))
    if min(totals) > 0:
        beta[sides[heavier]] *= totals[1 - heavier] / totals[heavier]


def certify_hinge(
    product: Array, beta: Array, b: Array, Y: Array, weight: Array, C: float, bias_penalty: float
) -> HingeSolution:
    """Evaluate objective, violation and duality gap, given K beta.

    The violation is that of every row, root mean square: (sum s v^2 / sum s)^1/2.
    """
    s, theta = weight[:, None], Y * beta
    errors = 1.0 - Y * (product + b)
    penalty = 0.0 if np.isinf(bias_penalty) else bias_penalty * float(np.sum(b**2))
    quadratic = float(np.sum(beta * product))
    hinge = float(np.sum(s * np.maximum(errors, 0.0) ** 2))
    objective = 0.5 * (quadratic + penalty + C * hinge)
    dual = float(theta.sum()) - 0.5 * quadratic - 0.5 * float(np.sum(theta**2 / (C * s)))
    if 0 < bias_penalty < np.inf:
        dual -= float(np.sum(beta.sum(axis=0) ** 2)) / (2 * bias_penalty)
    v = errors - theta / (C * s)
    v[(theta == 0) & (v < 0)] = 0.0  # (34): no violation
    scale = float(np.sum(s * Y**2))
    return HingeSolution(
        beta,
        b,
        objective=objective,
        violation=float(np.sqrt(np.sum(s * v**2) / scale)),
        gap=max(objective - dual, 0.0),
        n_iter=0,
        converged=False,
    )
