"""The LS-SVM in its dual, in closed form (zhou2016, eqs. (5), (6)).

With G = K + diag(1 / (C s)) = L L', u = G^-1 1, V = G^-1 Y:

    b = 1'V / (A + 1'u),   beta = V - u b         A = 0: free bias, A = inf: none.

Leaving row i out changes its residual to beta_i / T_ii with T = G^-1 - uu' / (A + 1'u).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace
from leansvm._parallel import blas_for
from leansvm.dual._least_squares import DIRECT_TOL, bias_from, certify, direct_advice
from leansvm.dual.kernel_matrix import gram
from leansvm.dual.problem import DualProblem
from leansvm.ridge.kernel_factor import factor_bytes, factored
from leansvm.solution import Solution

Array = NDArray[np.float64]


def solve_cholesky(problem: DualProblem, C: float, *, left_out: bool = False) -> Solution:
    """Factor the kernel matrix in place; ``left_out`` asks for the left-out residuals too."""
    on_device = foreign_namespace(problem.X) is not None
    needed = factor_bytes(*problem.Y.shape, left_out=left_out, on_device=on_device)
    problem.reserve(needed, "The kernel matrix")
    return factor_and_solve(problem, gram(problem), C, left_out=left_out)


def factor_and_solve(problem: DualProblem, K: Any, C: float, *, left_out: bool = False) -> Solution:
    """Solve a problem whose kernel matrix is there; ``K`` is overwritten."""
    with problem.phases("solve"), blas_for(len(problem.Y)):
        return closed_form(K, problem.Y, problem.weight, C, problem.bias_penalty, left_out=left_out)


def closed_form(
    K: Any, Y: Array, weight: Array, C: float, bias_penalty: float, *, left_out: bool = False
) -> Solution:
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
    left_out : bool
        Also compute the left-out residuals (twice the flops).

    Raises
    ------
    numpy.linalg.LinAlgError
        When G is not positive definite.
    """
    factor = factored(K, 1.0 / (C * weight))
    solved = factor.solve(np.hstack([np.ones((len(Y), 1)), Y]))
    u, V = solved[:, :1], solved[:, 1:]
    b = bias_from(float(u.sum()), V.sum(axis=0), bias_penalty)
    beta = V - u * b
    terms = Y, weight, C, bias_penalty
    found = certify(factor.times(beta), beta, b, *terms)
    if found.residual > 1e-14:  # one step of refinement: the factor is there, it costs two solves
        correction = factor.solve(found.r)
        db = bias_from(float(u.sum()), correction.sum(axis=0), bias_penalty)
        better, b_better = beta + correction - u * db, b + db
        refined = certify(factor.times(better), better, b_better, *terms)
        if refined.residual < found.residual:
            beta, b, found = better, b_better, refined
    residuals = None
    if left_out:
        T = factor.inverse_diagonal()[:, None]
        if not np.isinf(bias_penalty):
            T = T - u**2 / (bias_penalty + u.sum())
        residuals = beta / T
    return Solution(
        "cholesky",
        beta,
        b,
        C,
        objective=found.objective,
        residual=found.residual,
        gap=found.gap,
        converged=found.residual <= DIRECT_TOL,
        advice=direct_advice(C, found.residual),
        left_out=residuals,
    )
