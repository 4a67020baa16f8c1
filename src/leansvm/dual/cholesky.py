"""The LS-SVM by one factorisation of G = K + diag(1 / (C s)) (zhou2016, (5), (6)).

Leaving row i out changes its residual to beta_i / T_ii with T = G^-1 - uu' / (A + 1'u),
u = G^-1 1. Several values of C share one eigen-decomposition instead (`ridge.eigen`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, namespace
from leansvm._parallel import limited_blas
from leansvm.dual.kernel_matrix import gram, product_bytes, unstored
from leansvm.dual.problem import (
    DualProblem,
    bias_and_coefficients,
    bias_from,
    bordered_inverse_diagonal,
    certified,
)
from leansvm.ridge.eigen import TILE, solve_for_every_C
from leansvm.ridge.kernel_factor import factor_bytes, factored
from leansvm.solution import Solution

Array = NDArray[np.float64]
_TOL = 1e-6  # relative residual that a factorisation must reach


def solve_cholesky(
    problem: DualProblem, C: float | Array, *, left_out: bool = False, criterion: str = "loo"
) -> Solution:
    """Factor the kernel matrix in place; ``left_out`` asks for the left-out residuals too.

    Of several C the best by ``criterion``, "gcv" or "loo", is taken.
    """
    if isinstance(C, np.ndarray):
        return _solve_eigen(problem, C, criterion)
    on_device = foreign_namespace(problem.X) is not None
    needed = factor_bytes(*problem.Y.shape, left_out=left_out, on_device=on_device)
    problem = problem.reserve(needed, "The fit", left_out=left_out)
    return closed_form(problem, gram(problem), C, left_out=left_out)


def closed_form(problem: DualProblem, K: Any, C: float, *, left_out: bool = False) -> Solution:
    """Solve for all outputs with one factorisation of the kernel matrix, which is overwritten.

    ``left_out`` asks for the left-out residuals too, which takes twice the flops. Raises
    LinAlgError where G is not positive definite.
    """
    Y, A, ridge = problem.Y, problem.bias_penalty, 1.0 / (C * problem.weight)
    with problem.phases("solve"), limited_blas(len(Y)):
        factor = factored(K, ridge)
        solved = factor.solve(np.hstack([np.ones((len(Y), 1)), Y]))
        u = solved[:, :1]
        b, beta = bias_and_coefficients(solved, A)
        product = factor.times(beta)
        found = certified(problem, C, "cholesky", beta, b, product, _TOL, _ill_conditioned(C))
        if found.residual > 1e-14:  # one step of refinement: with the factor it costs two solves
            correction = factor.solve(Y - b - product - ridge[:, None] * beta)
            db = bias_from(float(u.sum()), correction.sum(axis=0), A)
            better = beta + correction - u * db, b + db
            product = factor.times(better[0])
            refined = certified(problem, C, "cholesky", *better, product, _TOL, _ill_conditioned(C))
            found = refined if refined.residual < found.residual else found
        if left_out:
            T = bordered_inverse_diagonal(factor.inverse_diagonal(), u[:, 0], A)
            found = replace(found, left_out=found.coef / T[:, None])
    return found


def _solve_eigen(problem: DualProblem, candidates: Array, criterion: str) -> Solution:
    """Choose C among the candidates by the criterion and solve at the best one."""
    m, n_outputs = problem.Y.shape
    work = 8 * m * (len(candidates) * (n_outputs + 3) + 8 * n_outputs + 2 * TILE)
    needed = 3 * 8 * m * m + max(work, product_bytes(problem))
    problem = problem.reserve(needed, "The search for C in a fit")
    xp, terms = namespace(problem.X), (problem.Y, problem.weight, candidates, problem.bias_penalty)
    dtype = problem.X.dtype if problem.kernel.precomputed else xp.float64
    K, eps = gram(problem), float(xp.finfo(dtype).eps)
    with problem.phases("solve"), limited_blas(m):
        chosen = solve_for_every_C(K, *terms, criterion, count=problem.count, eps=eps)
    del K  # overwritten: kernel values are computed again
    C, beta, b, advice = chosen.C, chosen.coef, chosen.b, _ill_conditioned(chosen.C)
    with problem.phases("certificate"):
        product = unstored(problem).product(beta)
        found = certified(problem, C, chosen.solver, beta, b, product, _TOL, advice)
    return replace(found, left_out=chosen.left_out, curve=chosen.curve, error=chosen.error)


def _ill_conditioned(C: float) -> str:
    return (
        f"the kernel matrix is too ill-conditioned for C={C:.3g}: the solution has a relative "
        f"residual of {{residual}}. Scale X, or lower C."
    )
