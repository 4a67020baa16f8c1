"""What solvers of the LS-SVM's dual share: its bias and the certificate of a solution.

beta solves G beta + b = y with G = K + diag(1 / (C s)) and sum(beta) = A b
(zhou2016, eq. (5)); A = 0 is a free bias, A = inf is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solution import Solution

Array = NDArray[np.float64]


def bias_from(sum_u: float, sum_V: Any, bias_penalty: float) -> Any:
    """Return b = 1'V / (A + 1'u), u = G^-1 1 and V = G^-1 Y; zero without a bias (A = inf)."""
    return np.zeros_like(sum_V) if np.isinf(bias_penalty) else sum_V / (bias_penalty + sum_u)


def bias_and_coefficients(solved: Array, bias_penalty: float) -> tuple[Any, Array]:
    """Return b and beta = V - u b, given the columns [u, V] = G^-1 [1, Y]."""
    u, V = solved[:, :1], solved[:, 1:]
    b = bias_from(float(u.sum()), V.sum(axis=0), bias_penalty)
    return b, V - u * b


def bordered_inverse_diagonal(diagonal: Array, u: Array, bias_penalty: float) -> Array:
    """Return the diagonal of T = G^-1 - uu' / (A + 1'u), given that of G^-1 and u = G^-1 1.

    Leaving row i out changes its residual to beta_i / T_ii.
    """
    if np.isinf(bias_penalty):
        return diagonal
    return np.asarray(diagonal - u**2 / (bias_penalty + u.sum()))


@dataclass(frozen=True)
class Certificate:
    """Objective at a (beta, b), the residual of its optimality system, and the duality gap."""

    beta: Array
    b: Array
    C: float
    objective: float
    residual: float
    gap: float
    r: Array

    def solution(
        self, solver: str, tol: float, advice: str, *, done: bool = True, **more: Any
    ) -> Solution:
        """Return the certified solution, with ``advice`` unless it is ``done`` to ``tol``."""
        converged = done and self.residual <= tol
        return Solution(
            solver,
            self.beta,
            self.b,
            self.C,
            objective=self.objective,
            residual=self.residual,
            gap=self.gap,
            converged=converged,
            advice="" if converged else advice,
            **more,
        )

    def direct_solution(self, solver: str, **more: Any) -> Solution:
        """Return the certified solution of a solver without iterations."""
        advice = (
            f"the kernel matrix is too ill-conditioned for C={self.C:.3g}: the solution has a "
            f"relative residual of {self.residual:.1e}. Scale X, or lower C."
        )
        return self.solution(solver, 1e-6, advice, **more)


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
    residual = float(np.sqrt(weighted / scale))
    return Certificate(beta, b, C, objective, residual, 0.5 * C * weighted, r)
