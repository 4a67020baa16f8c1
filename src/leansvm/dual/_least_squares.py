"""What solvers of the LS-SVM's dual share: its bias and the certificate of a solution.

beta solves G beta + b = y with G = K + diag(1 / (C s)) and sum(beta) = A b
(zhou2016, eq. (5)); A = 0 is a free bias, A = inf is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DIRECT_TOL = 1e-6  # a direct solution with a larger relative residual is reported


@dataclass
class Certificate:
    """Objective at a (beta, b), the residual of its optimality system, and the duality gap."""

    objective: float
    residual: float
    gap: float
    r: Array


def bias_from(sum_u: float, sum_V: Array, bias_penalty: float) -> Array:
    """Return b = 1'V / (A + 1'u), u = G^-1 1 and V = G^-1 Y; zero without a bias (A = inf)."""
    return np.zeros_like(sum_V) if np.isinf(bias_penalty) else sum_V / (bias_penalty + sum_u)


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


def direct_advice(C: float, residual: float) -> str:
    """Say what to do about a direct solution that is not accurate; nothing where it is."""
    if residual <= DIRECT_TOL:
        return ""
    return (
        f"the kernel matrix is too ill-conditioned for C={C:.3g}: the solution has a relative "
        f"residual of {residual:.1e}. Scale X, or lower C."
    )
