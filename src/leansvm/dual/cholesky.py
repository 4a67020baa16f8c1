"""The LS-SVM in its dual by one factorisation (zhou2016, eqs. (5), (6)).

With G = K + diag(1 / (C s)) = L L', u = G^-1 1, V = G^-1 Y:

    b = 1'V / (A + 1'u),   beta = V - u b         A = 0: free bias, A = inf: none.

Leaving row i out changes its residual to beta_i / T_ii with T = G^-1 - uu' / (A + 1'u).
Several values of C share one eigen-decomposition instead (`ridge.eigen`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, namespace
from leansvm._parallel import blas_for
from leansvm.dual._least_squares import (
    bias_and_coefficients,
    bias_from,
    bordered_inverse_diagonal,
    certify,
)
from leansvm.dual.kernel_matrix import gram, product_bytes, unstored
from leansvm.dual.problem import DualProblem
from leansvm.ridge.eigen import TILE, solve_for_every_C
from leansvm.ridge.kernel_factor import factor_bytes, factored
from leansvm.solution import Solution

Array = NDArray[np.float64]


def solve_cholesky(problem: DualProblem, C: float, *, left_out: bool = False) -> Solution:
    """Factor the kernel matrix in place; ``left_out`` asks for the left-out residuals too."""
    on_device = foreign_namespace(problem.X) is not None
    needed = factor_bytes(*problem.Y.shape, left_out=left_out, on_device=on_device)
    problem = problem.reserve(needed, "The kernel matrix")
    return factor_and_solve(problem, gram(problem), C, left_out=left_out)


def factor_and_solve(problem: DualProblem, K: Any, C: float, *, left_out: bool = False) -> Solution:
    """Solve a problem whose kernel matrix is there; ``K`` is overwritten."""
    terms = problem.Y, problem.weight, C, problem.bias_penalty
    with problem.phases("solve"), blas_for(len(problem.Y)):
        return replace(closed_form(K, *terms, left_out=left_out), bytes=problem.bytes)


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
    factor, terms = factored(K, 1.0 / (C * weight)), (Y, weight, C, bias_penalty)
    solved = factor.solve(np.hstack([np.ones((len(Y), 1)), Y]))
    u = solved[:, :1]
    b, beta = bias_and_coefficients(solved, bias_penalty)
    found = certify(factor.times(beta), beta, b, *terms)
    if found.residual > 1e-14:  # one step of refinement: the factor is there, it costs two solves
        correction = factor.solve(found.r)
        db = bias_from(float(u.sum()), correction.sum(axis=0), bias_penalty)
        better = beta + correction - u * db
        refined = certify(factor.times(better), better, b + db, *terms)
        if refined.residual < found.residual:
            found = refined
    residuals = None
    if left_out:
        T = bordered_inverse_diagonal(factor.inverse_diagonal(), u[:, 0], bias_penalty)
        residuals = found.beta / T[:, None]
    return found.direct_solution("cholesky", left_out=residuals)


def solve_eigen(problem: DualProblem, candidates: Array, criterion: str) -> Solution:
    """Choose C among the candidates by "gcv" or "loo" and solve at the best one."""
    m, n_outputs = problem.Y.shape
    work = 8 * m * (len(candidates) * (n_outputs + 3) + 8 * n_outputs + 2 * TILE)
    needed = 3 * 8 * m * m + max(work, product_bytes(problem))
    problem = problem.reserve(needed, "The eigen-decomposition of the kernel matrix")
    xp, A = namespace(problem.X), problem.bias_penalty
    dtype = problem.X.dtype if problem.kernel.precomputed else xp.float64
    K, terms, eps = gram(problem), (problem.Y, problem.weight), float(xp.finfo(dtype).eps)
    with problem.phases("solve"), blas_for(m):
        chosen = solve_for_every_C(
            K, *terms, candidates, A, criterion, count=problem.count, eps=eps
        )
    del K  # overwritten: kernel values are computed again
    with problem.phases("certificate"):
        product = unstored(problem).product(chosen.coef)
        found = certify(product, chosen.coef, chosen.b, *terms, chosen.C, A)
    scores = {"left_out": chosen.left_out, "curve": chosen.curve, "error": chosen.error}
    return found.direct_solution(chosen.solver, bytes=problem.bytes, **scores)
