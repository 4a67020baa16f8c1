"""The squared-hinge SVM by SesquiSMO (joshi, §IV): every output, and a certificate.

theta = y beta >= 0 maximises the dual
sum(theta) - 1/2 beta'K beta - 1/2 sum(theta^2 / (C s)) - (sum beta)^2 / (2 A);
the primal objective at f = K beta + b bounds it from above.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._dual import DualSolution
from leansvm.solvers._problem import DualProblem
from leansvm.solvers._sequential import open_rows
from leansvm.solvers.smo import Quadratic, State, minimise, minimise_free_bias

Array = NDArray[np.float64]


def solve_sesqui(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> DualSolution:
    """Solve for all outputs (targets +-1); ``residual`` is the violation of the conditions."""
    rows = open_rows(problem)
    ridge, states, b = 1.0 / (C * problem.weight), list[State](), []
    # the certificate adds rounding, and with a free bias what `_balance` changes
    share = 0.25 if problem.bias_penalty == 0 else 0.9
    options: dict[str, Any] = {
        "tol": share * tol,
        "max_sweeps": max_iter,
        "on_sweep": problem.on_iteration,
    }
    with problem.phases("solve"):
        for y in np.ascontiguousarray(problem.Y.T):
            quadratic = Quadratic(y, ridge, problem.weight, bounded=True)
            if problem.bias_penalty == 0:
                state, bias = minimise_free_bias(rows, quadratic, **options)
                _balance(state.beta)
            else:
                quadratic.c = 1.0 / problem.bias_penalty
                state = minimise(rows, quadratic, **options)
                bias = quadratic.c * float(state.beta.sum())
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
    solution.converged = done and solution.residual <= tol
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
) -> DualSolution:
    """Evaluate objective, violation and duality gap, given K beta."""
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
    return DualSolution(
        beta,
        b,
        objective,
        float(np.sqrt(np.sum(s * v**2) / scale)),
        objective - dual,
        details={"violation": float(np.abs(v).max())},
    )
