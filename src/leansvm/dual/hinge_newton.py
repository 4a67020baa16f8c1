"""The squared-hinge SVM by Newton's method in the primal (Chapelle 2007): the second reference.

Shares nothing with the active set but the equations: the whole kernel matrix, the bordered
indefinite system [K_SS + diag(1 / (C s)), 1; 1', -A] solved anew for every S, a bisection on
the slope as line search, and the norm of the gradient as stopping rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve as dense_solve

from leansvm._array_api import foreign_namespace, like_rows, rows_at, to_host
from leansvm._parallel import blas_for
from leansvm.basis import on_device
from leansvm.dual._hinge import (
    Hinge,
    Point,
    dual_objective,
    errors,
    feasible_dual,
    linear_weights,
    objective,
    stopped_advice,
)
from leansvm.dual._least_squares import bias_from
from leansvm.dual.kernel_matrix import gram
from leansvm.dual.problem import DualProblem
from leansvm.solution import Solution

Array = NDArray[np.float64]
_HALVINGS = 200
_ROUNDING = 1e-9  # share of the slope that counts as none


def solve_newton(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve for all outputs where the rows are; dense, 32 m^2 bytes."""
    problem.reserve(
        4 * 8 * len(problem.weight) ** 2, "Newton's method on the kernel matrix", or_cg=False
    )
    K = gram(problem)
    beta, b = np.empty(problem.Y.shape), np.empty(problem.Y.shape[1])
    value = gap = violation = 0.0
    iterations = 0
    with problem.phases("solve"), blas_for(K.shape[0]):
        for j, y in enumerate(problem.Y.T):
            hinge = Hinge(y, C * problem.weight, problem.bias_penalty)
            point, residual, n_iter = _newton(problem, K, hinge, tol, max_iter)
            beta[:, j], b[j] = point.beta, point.b
            primal, feasible = objective(hinge, point), feasible_dual(hinge, point.beta)
            value += primal
            product = np.asarray(to_host(K @ like_rows(feasible, K)))
            gap += max(primal - dual_objective(hinge, feasible, product), 0.0)
            violation, iterations = max(violation, residual), max(iterations, n_iter)
    converged = violation <= tol
    return Solution(
        "newton",
        beta,
        b,
        C,
        objective=value,
        residual=violation,
        gap=gap,
        iterations=iterations,
        converged=converged,
        advice="" if converged else stopped_advice(iterations, violation, tol),
        weights=linear_weights(problem, beta),
        details={"violation": violation, "rows_kept_out": 0, "factor": {}},
    )


def _newton(
    problem: DualProblem, K: Any, hinge: Hinge, tol: float, max_iter: int
) -> tuple[Point, float, int]:
    """Return the point, the relative norm of its gradient and the iterations."""
    point, residual = Point(np.zeros(len(hinge.y)), 0.0, np.zeros(len(hinge.y))), np.inf
    for n_iter in range(1, max_iter + 1):
        target = _newton_point(K, hinge, point)
        direction = target - point
        still = _ROUNDING * abs(_slope(hinge, point, direction, 0.0))  # where S stays, it is 0
        full = _slope(hinge, point, direction, 1.0) <= still
        t = 1.0 if full else _bisect(hinge, point, direction)
        stuck = t == 0.0
        point = target if t == 1.0 else point.moved(direction, t)
        residual = _gradient(hinge, point)
        stop = problem.on_iteration is not None and problem.on_iteration(n_iter, residual)
        if residual <= tol or stop or stuck:
            break
    return point, residual, n_iter


def _newton_point(K: Any, hinge: Hinge, point: Point) -> Point:
    """Minimise the quadratic that the objective is near ``point``."""
    S = np.flatnonzero(errors(hinge, point) > 0)
    k, with_bias = len(S), int(not np.isinf(hinge.bias_penalty))
    if k == 0:
        b = point.b if hinge.bias_penalty == 0 else 0.0
        return Point(np.zeros(len(hinge.y)), b, np.full(len(hinge.y), b))
    if foreign_namespace(K) is not None:
        return _newton_point_there(K, hinge, S)
    system = np.ones((k + with_bias, k + with_bias))
    system[:k, :k] = K[np.ix_(S, S)]
    system[np.arange(k), np.arange(k)] += 1.0 / hinge.cost[S]
    right = np.append(hinge.y[S], np.zeros(with_bias))
    if with_bias:
        system[k, k] = -hinge.bias_penalty
    solved = dense_solve(system, right, assume_a="sym")
    beta = np.zeros(len(K))
    beta[S] = solved[:k]
    b = float(solved[k]) if with_bias else 0.0
    return Point(beta, b, K @ beta + b)


def _newton_point_there(K: Any, hinge: Hinge, S: NDArray[np.intp]) -> Point:
    """Solve the same system by a Cholesky factor of K_SS + diag(1 / (C s)), where K is."""
    K_SS = rows_at(rows_at(K, S).T, S)
    right = np.column_stack([np.ones(len(S)), hinge.y[S]])
    u, v = on_device.solve_definite(K_SS, 1.0 / hinge.cost[S], right).T
    b = float(bias_from(float(u.sum()), v.sum(), hinge.bias_penalty))
    beta = np.zeros(len(hinge.y))
    beta[S] = v - b * u
    return Point(beta, b, np.asarray(to_host(K @ like_rows(beta, K))) + b)


def _slope(hinge: Hinge, point: Point, direction: Point, t: float) -> float:
    """Derivative of the objective at point + t direction, along direction."""
    now = point.moved(direction, t)
    pull = hinge.cost * hinge.y * np.maximum(errors(hinge, now), 0.0)
    values = direction.f - direction.b
    return float(now.beta @ values + hinge.penalty(now.b, direction.b) - pull @ direction.f)


def _bisect(hinge: Hinge, point: Point, direction: Point) -> float:
    """Find the zero of the increasing slope between 0 and 1."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if _slope(hinge, point, direction, middle) > 0:
            high = middle
        else:
            low = middle
    return high if low == 0.0 and high < 1e-15 else low


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
