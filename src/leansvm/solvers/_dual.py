"""The LS-SVM in its dual, in closed form (zhou2016, eqs. (5), (6)).

With G = K + diag(1 / (C s)) = L L', u = G^-1 1, V = G^-1 Y:

    b = 1'V / (A + 1'u),   beta = V - u b         A = 0: free bias, A = inf: none.

Leaving row i out changes its residual to beta_i / T_ii with T = G^-1 - uu' / (A + 1'u).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._factor import factored

Array = NDArray[np.float64]
DIRECT_TOL = 1e-6  # a direct solution with a larger relative residual is reported


class NotPositiveDefinite(np.linalg.LinAlgError):
    """The regularised kernel matrix has no Cholesky factor."""


@dataclass
class DualSolution:
    """Coefficients of f(x) = sum_i beta_i k(x_i, x) + b and what certifies them."""

    beta: Array  # rows x outputs
    b: Array  # outputs
    objective: float
    residual: float  # of the optimality system, weighted, relative to the targets
    gap: float  # bound on the distance of the objective to its minimum
    loo: Array | None = None  # leave-one-out residuals, rows x outputs
    n_iter: int = 1
    converged: bool = True
    details: dict[str, Any] = field(default_factory=dict)  # what else a solver reports


def bias_from(sum_u: float, sum_V: Array, bias_penalty: float) -> Array:
    """Return b = 1'V / (A + 1'u); zero without a bias (A = inf)."""
    return np.zeros_like(sum_V) if np.isinf(bias_penalty) else sum_V / (bias_penalty + sum_u)


@dataclass
class Certificate:
    """Objective at a (beta, b), the residual of its optimality system, and the duality gap."""

    objective: float
    residual: float
    gap: float
    r: Array


def certify(
    product: Array, beta: Array, b: Array, Y: Array, weight: Array, C: float, bias_penalty: float
) -> Certificate:
    """Evaluate the objective and r = Y - b - K beta - beta / (C s), given K beta."""
    errors = Y - b - product
    r = errors - beta / (C * weight)[:, None]
    s = weight[:, None]
    objective = 0.5 * float(np.sum(beta * product)) + 0.5 * C * float(np.sum(s * errors**2))
    if not np.isinf(bias_penalty):
        objective += 0.5 * bias_penalty * float(np.sum(b**2))
    scale = max(float(np.sum(s * Y**2)), np.finfo(np.float64).tiny)
    weighted = float(np.sum(s * r**2))
    return Certificate(objective, float(np.sqrt(weighted / scale)), 0.5 * C * weighted, r)


def solve_cholesky(
    K: Any, Y: Array, weight: Array, C: float, bias_penalty: float, *, loo: bool = False
) -> DualSolution:
    """Solve for all outputs with one factorisation; ``K`` is overwritten.

    Parameters
    ----------
    K : array of shape (m, m)
        Kernel matrix, C-contiguous, on the host or on a device.
    Y : ndarray of shape (m, n_outputs)
        Targets.
    weight : ndarray of shape (m,)
        Positive sample weights s.
    C, bias_penalty : float
        Regularisation; penalty A of the bias, 0 for a free one and inf for none.
    loo : bool
        Also compute the leave-one-out residuals (twice the flops).
    """
    try:
        factor = factored(K, 1.0 / (C * weight))
    except np.linalg.LinAlgError as error:
        raise NotPositiveDefinite(str(error)) from None
    ones = np.ones((len(Y), 1))
    solved = factor.solve(np.hstack([ones, Y]))
    u, V = solved[:, :1], solved[:, 1:]
    b = bias_from(float(u.sum()), V.sum(axis=0), bias_penalty)
    beta = V - u * b

    def certificate(beta: Array, b: Array) -> Certificate:
        return certify(factor.times(beta), beta, b, Y, weight, C, bias_penalty)

    found = certificate(beta, b)
    if found.residual > 1e-14:  # one step of refinement: the factor is there, it costs two solves
        correction = factor.solve(found.r)
        db = bias_from(float(u.sum()), correction.sum(axis=0), bias_penalty)
        refined = certificate(beta + correction - u * db, b + db)
        if refined.residual < found.residual:
            beta, b, found = beta + correction - u * db, b + db, refined
    left_out = None
    if loo:
        T = factor.inverse_diagonal()[:, None]
        if not np.isinf(bias_penalty):
            T = T - u**2 / (bias_penalty + u.sum())
        left_out = beta / T
    return DualSolution(
        beta,
        b,
        found.objective,
        found.residual,
        found.gap,
        left_out,
        converged=found.residual <= DIRECT_TOL,
    )
