"""The squared-hinge SVM by Newton's method in the primal (Chapelle 2007): the second reference.

The whole kernel matrix, where the rows are; the equations of the rows S with an error are solved
anew for every S, each step ends at the minimum on its line, and the gradient says when to stop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._parallel import blas_for
from leansvm.dual._hinge import (
    Hinge,
    Point,
    certified_output,
    constant_point,
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
            point, residual, n_iter = _newton(problem, K, hinge, tol, max_iter)
            feasible = feasible_dual(hinge, point.beta)
            product = times(K, feasible)
            outputs.append(certified_output(hinge, point, feasible, product, residual, n_iter))
    return joined_solution("newton", problem, C, outputs, tol)


def _newton(
    problem: DualProblem, K: Any, hinge: Hinge, tol: float, max_iter: int
) -> tuple[Point, float, int]:
    """Return the point, the relative norm of its gradient and the iterations."""
    point, residual = constant_point(hinge), np.inf
    for n_iter in range(1, max_iter + 1):
        S = np.flatnonzero(errors(hinge, point) > 0)
        found = solve_by_factor(K, hinge, S) if len(S) else constant_point(hinge, point.b)
        better = found if _gradient(hinge, found) <= tol else minimum_towards(hinge, point, found)
        point = better or point
        residual = _gradient(hinge, point)
        stop = problem.on_iteration is not None and problem.on_iteration(n_iter, residual)
        if residual <= tol or stop or better is None:
            break
    return point, residual, n_iter


def _gradient(hinge: Hinge, point: Point) -> float:
    """Largest |beta - C s y max(0, e)| and |A b - sum beta|, relative to the largest |beta|.

    That is the gradient in the functions k(x_i, .): with K in front it would vanish too where K
    is singular.
    """
    wanted = hinge.cost * hinge.y * np.maximum(errors(hinge, point), 0.0)
    off = float(np.abs(point.beta - wanted).max())
    if not np.isinf(hinge.bias_penalty):
        off = max(off, abs(hinge.bias_penalty * point.b - float(wanted.sum())))
    return off / max(float(np.abs(wanted).max()), np.finfo(np.float64).tiny) if off else 0.0
