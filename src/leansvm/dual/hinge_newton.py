"""The squared-hinge SVM by Newton's method in the primal (Chapelle 2007): the second reference.

The whole kernel matrix, where the rows are; the equations of the rows S with an error are solved
anew for every S, and each step ends at the minimum on its line.
"""

from __future__ import annotations

import numpy as np

from leansvm._parallel import blas_for
from leansvm.dual._hinge import (
    Hinge,
    HingeOutput,
    constant_point,
    distance,
    errors,
    feasible_dual,
    joined_solution,
    minimum_towards,
)
from leansvm.dual._support_cg import solve_by_factor, times
from leansvm.dual.kernel_matrix import gram
from leansvm.dual.problem import DualProblem
from leansvm.solution import Solution


def solve_newton(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve for all outputs where the rows are; dense, 32 m^2 bytes."""
    needed = 4 * 8 * len(problem.weight) ** 2
    problem = problem.reserve(needed, "Newton's method on the kernel matrix", or_cg=False)
    K, outputs = gram(problem), []
    with problem.phases("solve"), blas_for(K.shape[0]):
        for y in problem.Y.T:
            hinge = Hinge(y, C * problem.weight, problem.bias_penalty)
            point, worst = constant_point(hinge), np.inf
            for n_iter in range(1, max_iter + 1):
                S = np.flatnonzero(errors(hinge, point) > 0)
                found = solve_by_factor(K, hinge, S) if len(S) else constant_point(hinge, point.b)
                solved = distance(hinge, found) <= tol
                better = found if solved else minimum_towards(hinge, point, found)
                point = better or point
                worst = distance(hinge, point)
                stop = problem.on_iteration is not None and problem.on_iteration(n_iter, worst)
                if worst <= tol or stop or better is None:
                    break
            feasible = feasible_dual(hinge, point.beta)
            product = times(K, feasible)
            outputs.append(HingeOutput(hinge, point, feasible, product, worst, n_iter))
    return joined_solution("newton", problem, C, outputs, tol)
