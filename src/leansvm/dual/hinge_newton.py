"""The squared-hinge SVM by Newton's method in the primal (Chapelle 2007): the second reference.

The whole kernel matrix, where the rows are; the equations of the rows S with an error are solved
anew for every S, each step ends at the minimum on its line, and the gradient says when to stop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, like_rows, rows_at, to_host
from leansvm._parallel import blas_for
from leansvm.basis import on_device
from leansvm.dual._hinge import (
    Hinge,
    Point,
    certified_output,
    constant_point,
    errors,
    exact_step,
    feasible_dual,
    joined_solution,
)
from leansvm.dual._least_squares import bias_and_coefficients
from leansvm.dual._support_cg import solve_by_factor
from leansvm.dual.kernel_matrix import gram
from leansvm.dual.problem import DualProblem
from leansvm.solution import Solution

Array = NDArray[np.float64]


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
            product = np.asarray(to_host(K @ like_rows(feasible, K)))
            outputs.append(certified_output(hinge, point, feasible, product, residual, n_iter))
    return joined_solution("newton", problem, C, outputs, tol)


def _newton(
    problem: DualProblem, K: Any, hinge: Hinge, tol: float, max_iter: int
) -> tuple[Point, float, int]:
    """Return the point, the relative norm of its gradient and the iterations."""
    point, residual = constant_point(hinge), np.inf
    for n_iter in range(1, max_iter + 1):
        found = _newton_point(K, hinge, point)
        residual, t = _gradient(hinge, found), 1.0
        if residual > tol:
            step = found - point
            t = exact_step(hinge, point, step, None)
            found = found if t == 1.0 else point.moved(step, t)
            residual = _gradient(hinge, found)
        point = found
        stop = problem.on_iteration is not None and problem.on_iteration(n_iter, residual)
        if residual <= tol or stop or t == 0.0:  # 0: only rounding is left
            break
    return point, residual, n_iter


def _newton_point(K: Any, hinge: Hinge, point: Point) -> Point:
    """Minimise the quadratic that the objective is near ``point``."""
    S = np.flatnonzero(errors(hinge, point) > 0)
    if not len(S):
        return constant_point(hinge, point.b)
    if foreign_namespace(K) is None:
        return solve_by_factor(K, hinge, S)
    K_SS = rows_at(rows_at(K, S).T, S)
    right = np.column_stack([np.ones(len(S)), hinge.y[S]])
    solved = on_device.solve_definite(K_SS, 1.0 / hinge.cost[S], right)
    b, coef = bias_and_coefficients(solved, hinge.bias_penalty)
    beta = np.zeros(len(hinge.y))
    beta[S] = coef[:, 0]
    return Point(beta, float(b[0]), np.asarray(to_host(K @ like_rows(beta, K))) + float(b[0]))


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
