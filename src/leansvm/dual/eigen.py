"""The LS-SVM for every C from one eigen-decomposition of the kernel matrix (`ridge.eigen`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import namespace
from leansvm._parallel import blas_for
from leansvm.dual._least_squares import DIRECT_TOL, certify, direct_advice
from leansvm.dual.kernel_matrix import gram, product_bytes, unstored
from leansvm.dual.problem import DualProblem
from leansvm.ridge.eigen import TILE, solve_for_every_C
from leansvm.solution import Solution

Array = NDArray[np.float64]


def solve_eigen(problem: DualProblem, candidates: Array, criterion: str) -> Solution:
    """Choose C among the candidates by "gcv" or "loo" and solve at the best one."""
    m, n_outputs = problem.Y.shape
    work = 8 * m * (len(candidates) * (n_outputs + 3) + 8 * n_outputs + 2 * TILE)
    needed = 3 * 8 * m * m + max(work, product_bytes(problem))
    problem.reserve(needed, "The eigen-decomposition of the kernel matrix")
    xp = namespace(problem.X)
    dtype = problem.X.dtype if problem.kernel.precomputed else xp.float64
    K, terms = gram(problem), (problem.Y, problem.weight)
    with problem.phases("solve"), blas_for(m):
        solution = solve_for_every_C(
            K,
            *terms,
            candidates,
            problem.bias_penalty,
            criterion,
            count=problem.count,
            eps=float(xp.finfo(dtype).eps),
        )
    del K  # overwritten: kernel values are computed again
    with problem.phases("certificate"):
        product = unstored(problem).product(solution.coef)
        found = certify(
            product, solution.coef, solution.b, *terms, solution.C, problem.bias_penalty
        )
    solution.objective, solution.gap = found.objective, found.gap
    solution.residual, solution.converged = found.residual, found.residual <= DIRECT_TOL
    solution.advice = direct_advice(solution.C, found.residual)
    return solution
