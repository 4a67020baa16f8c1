"""What solvers of the squared-hinge SVM share: problem, line search, equations, certificate.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, e_i)^2,  e = 1 - y f,  f = K beta + b.

At the solution theta_i = y_i beta_i = C s_i max(0, e_i) (peng2016, eq. (53)), so the objective
is half the sum of theta, eq. (56), and with a free bias sum_i y_i theta_i = 0, eq. (51).
For a given support set S, the rows with e > 0, these are linear equations:

    (K_SS + diag(1 / (C s))) beta + b 1 = y_S,   1'beta = A b.

`solve_by_factor` factors them. `solve_by_cg` uses one product with K per step, preconditioned by
the same equations with Z_S Z_S' in place of K_SS. Every step satisfies the second equation; under
it, the first one says that the gradient of a convex function is 0, for every A from 0 (a free bias)
to inf (no bias).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import as_float64, foreign_namespace, like_rows, rows_at, to_host
from leansvm._parallel import blas_threads, for_tiles
from leansvm.dual.problem import (
    DualProblem,
    bias_and_coefficients,
    bias_from,
    bordered_inverse_diagonal,
)
from leansvm.linalg import cholesky_in_place, cholesky_solve
from leansvm.ridge._lapack import symmetric_product
from leansvm.ridge.kernel_factor import factored
from leansvm.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Inverse = Callable[[Array], Array]

_EPS = float(np.finfo(np.float64).eps)
# rows of a matrix: half of it is worth a call, all of it is worth threads
_HALF_ROWS, _WHOLE_ROWS = 500, 1500
_PRODUCT_TILE = 256


@dataclass(frozen=True)
class Hinge:
    """The problem of one output (one class against the rest): targets and costs."""

    y: Array  # +-1
    cost: Array  # C s_i > 0
    bias_penalty: float  # A: 0 is a free bias, inf is none, whose b is 0

    @property
    def penalty(self) -> float:
        """A of the terms A b b'; 0 without a bias."""
        return 0.0 if np.isinf(self.bias_penalty) else self.bias_penalty

    def constant_point(self, b: float = 0.0) -> Point:
        """Return the constant model f = b; b is 0 unless the bias is free."""
        b = b if self.bias_penalty == 0 else 0.0
        return Point(np.zeros(len(self.y)), b, np.full(len(self.y), b))

    def errors(self, point: Point) -> Array:
        """Return e = 1 - y f."""
        return np.asarray(1.0 - self.y * point.f)

    def exact_step(self, point: Point, target: Point, rows: Rows | None = None) -> float:
        """Minimise the objective on point + t (target - point), t > 0, over the loss of ``rows``.

        The slope is piecewise linear and increasing: slope(t) = a + c t + sum over the rows with
        e + t d > 0 of C s d (e + t d), d = -y times the change of f. Its kinks are passed in order.
        None means all rows.
        """
        take = slice(None) if rows is None else rows
        y, cost = self.y[take], self.cost[take]
        step_f, step_b = target.f - point.f, target.b - point.b
        e, d = 1.0 - y * point.f[take], -y * step_f[take]
        a = float(point.beta @ (step_f - step_b)) + self.penalty * point.b * step_b
        c = float((target.beta - point.beta) @ (step_f - step_b)) + self.penalty * step_b**2

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            kinks = -e / d
        ahead = np.flatnonzero((kinks > 0) & np.isfinite(kinks))
        ahead = ahead[np.argsort(kinks[ahead])]
        # level and curvature of the slope behind every kink: rows with d > 0 enter, others leave
        sign = np.where(d[ahead] > 0, 1.0, -1.0)
        weighted = sign * cost[ahead] * d[ahead]
        at_start = (e > 0) | ((e == 0) & (d > 0))
        start = cost[at_start] * d[at_start]
        level = a + float(start @ e[at_start]) + np.cumsum(np.append(0.0, weighted * e[ahead]))
        curve = c + float(start @ d[at_start]) + np.cumsum(np.append(0.0, weighted * d[ahead]))
        ends = kinks[ahead]
        piece = int(np.argmax(np.append(level[:-1] + curve[:-1] * ends >= 0, True)))
        t = -level[piece] / curve[piece] if curve[piece] > 0 else 0.0
        low = ends[piece - 1] if piece else 0.0
        high = ends[piece] if piece < len(ends) else np.inf
        t = float(min(max(t, low), high))
        for _ in range(3):  # the sums above lose digits where costs are huge
            now = e + t * d
            active = now > 0
            weighted = cost[active] * d[active]
            curvature = c + float(weighted @ d[active])
            if curvature <= 0:
                break
            better = t - (a + c * t + float(weighted @ now[active])) / curvature
            if not 0 < better < np.inf or abs(better - t) <= 4 * _EPS * t:
                break
            t = better
        return max(t, 0.0)

    def minimum_towards(
        self, point: Point, target: Point, rows: Rows | None = None
    ) -> Point | None:
        """Return the minimum on the line to ``target``; None if the step is lost in rounding."""
        t = self.exact_step(point, target, rows)
        return point.towards(target, t) if t else None

    def distance(
        self, point: Point, solved: Rows | None = None, among: Mask | None = None
    ) -> float:
        """Return the largest |theta - C s max(0, e)|, relative to the largest of both.

        Where the point solves the equations of the rows ``solved``, theta is C s e there, but may
        be negative. Only the rows ``among`` count (None: all).
        """
        theta = self.y * point.beta
        wanted = self.cost * np.maximum(self.errors(point), 0.0)
        if solved is not None:
            wanted[solved] = np.maximum(theta[solved], 0.0)
        if among is not None:
            wanted *= among
        largest = max(float(np.abs(theta).max()), float(wanted.max()))
        return float(np.abs(theta - wanted).max()) / largest if largest > 0 else 0.0

    def objective(self, point: Point) -> float:
        """Return the primal objective."""
        loss = float(self.cost @ np.maximum(self.errors(point), 0.0) ** 2)
        return 0.5 * (float(point.beta @ (point.f - point.b)) + self.penalty * point.b**2 + loss)

    def feasible_dual(self, beta: Array) -> Array:
        """Return the nearest theta y with theta >= 0 and, for a free bias, sum y theta = 0."""
        theta = np.maximum(self.y * beta, 0.0)
        if self.bias_penalty == 0:
            positive = self.y > 0
            sums = float(theta[positive].sum()), float(theta[~positive].sum())
            if min(sums) > 0:  # scale the heavier class
                theta[positive] *= min(1.0, sums[1] / sums[0])
                theta[~positive] *= min(1.0, sums[0] / sums[1])
            else:
                theta[:] = 0.0
        return np.asarray(theta * self.y)

    def dual_objective(self, beta: Array, product: Array) -> float:
        """Return sum theta - 1/2 beta'K beta - 1/2 sum theta^2 / (C s) - (sum beta)^2 / (2 A)."""
        value = float(np.abs(beta).sum()) - 0.5 * float(beta @ product)
        value -= 0.5 * float(np.sum(beta**2 / self.cost))
        if 0 < self.bias_penalty < np.inf:
            value -= float(beta.sum()) ** 2 / (2 * self.bias_penalty)
        return value


@dataclass(frozen=True)
class Point:
    """A model (w, b) by its coefficients and its values at all rows."""

    beta: Array
    b: float
    f: Array  # K beta + b

    def towards(self, target: Point, t: float) -> Point:
        """Return the point at t on the line from this one (0) to the target (1)."""
        if t == 1.0:
            return target
        beta = self.beta + t * (target.beta - self.beta)
        return Point(beta, self.b + t * (target.b - self.b), self.f + t * (target.f - self.f))


def left_out_loss(problem: DualProblem, solution: Solution) -> float:
    """Return the weighted mean of the squared hinge loss of left-out rows, summed over outputs."""
    assert solution.left_out is not None  # asked for
    slack = np.maximum(problem.Y * solution.left_out, 0.0)  # y (y - f) = 1 - y f
    return float(np.sum(problem.weight @ slack**2)) / float(problem.weight.sum())


class HingeOutput(NamedTuple):
    """What a solver found for one output, and what certifies it."""

    hinge: Hinge
    point: Point
    feasible: Array  # multipliers of the dual, and K times them
    product: Array
    violation: float
    iterations: int
    left_out: Array | None = None  # y - f without each row


def joined_solution(
    solver: str,
    problem: DualProblem,
    C: float,
    outputs: list[HingeOutput],
    tol: float,
    *,
    violation: float | None = None,
    done: bool = True,
    advice: str = "",
    rows_kept_out: int = 0,
    counts: dict[str, int] | None = None,
    weights: Array | None = None,
) -> Solution:
    """Put the outputs together; the violation is the largest of theirs unless it is given.

    The solution has converged if it is ``done`` and the violation is within ``tol``.
    """
    value = gap = worst = 0.0
    coef, b, iterations, residuals = np.empty(problem.Y.shape), np.empty(len(outputs)), 0, []
    for j, found in enumerate(outputs):
        coef[:, j], b[j] = found.point.beta, found.point.b
        primal = found.hinge.objective(found.point)
        value += primal
        gap += max(primal - found.hinge.dual_objective(found.feasible, found.product), 0.0)
        worst, iterations = max(worst, found.violation), max(iterations, found.iterations)
        if found.left_out is not None:
            residuals.append(found.left_out)
    violation = worst if violation is None else violation
    converged = done and violation <= tol
    stopped = (
        f"stopped after {iterations} iterations at a relative violation of {violation:.1e} "
        f"(tol={tol:g}). Increase max_iter or tol, scale X, or lower C."
    )
    if weights is None and problem.kernel.name == "linear":
        weights = linear_weights(problem, coef)
    return Solution(
        solver,
        coef,
        b,
        C,
        value,
        violation,
        gap,
        iterations,
        converged,
        "" if converged else advice or stopped,
        weights,
        np.column_stack(residuals) if len(residuals) == len(outputs) else None,
        details={"violation": violation, "rows_kept_out": rows_kept_out, "factor": counts or {}},
        bytes=problem.bytes,
    )


def linear_weights(problem: DualProblem, beta: Array) -> Array:
    """Return w = X'beta of the linear kernel, outputs x features."""
    if foreign_namespace(problem.X) is not None:
        X = as_float64(problem.X)
        return np.asarray(to_host(X.T @ like_rows(beta, X))).T
    return np.asarray((problem.X.T @ beta).T)


# ---------------------------------------------------------------------------- equations of S


def cholesky_of(M: Array, ridge: Array | float) -> Array:
    """Add a ridge to the diagonal of M and factor it, in its memory."""
    M.flat[:: len(M) + 1] += ridge
    return cholesky_in_place(M)


def gram_of(Z: Any, cost: Array, rows: Rows) -> Array:
    """Return Z_r' diag(C s) Z_r, dense also where Z is sparse."""
    scaled, root = Z[rows], np.sqrt(cost[rows])
    if sparse.issparse(Z):
        scaled.data *= np.repeat(root, np.diff(scaled.indptr))
        return np.asarray((scaled.T @ scaled).toarray(order="C"))
    scaled *= root[:, None]
    return np.asarray(scaled.T @ scaled)


def changed_gram(gram: Array, Z: Any, cost: Array, was: Mask, now: Mask) -> Array:
    """Return the Gram matrix of the rows ``now``, given that of the rows ``was``."""
    left, entered = np.flatnonzero(was & ~now), np.flatnonzero(now & ~was)
    if len(left) + len(entered) >= np.count_nonzero(now):
        return gram_of(Z, cost, np.flatnonzero(now))
    if len(left):
        gram = gram - gram_of(Z, cost, left)
    return gram + gram_of(Z, cost, entered) if len(entered) else gram


def low_rank_inverse(Z: Array, gram: Array, S: Rows, cost: Array) -> Inverse:
    """Return r -> (Z_S Z_S' + diag(1 / (C s)))^-1 r in Woodbury's form, given Z_S' C s Z_S.

    Z and the costs C s belong to all rows of a working set, of which S is a part.
    """
    factor, cost = cholesky_of(gram.copy(), 1.0), cost[S]

    def apply(r: Array) -> Array:
        full = np.zeros(len(Z))
        full[S] = cost * r
        return np.asarray(cost * (r - (Z @ cholesky_solve(factor, full @ Z))[S]))

    return apply


def times(K: Any, v: Array) -> Array:
    """Return K v for the symmetric K, on the host or a device.

    The time is that of reading K: two threads that read all of K are not faster than one that reads
    one half of it; more threads are.
    """
    if not isinstance(K, np.ndarray):
        return np.asarray(to_host(K @ like_rows(v, K)))
    if len(K) < _HALF_ROWS:
        return np.asarray(K @ v)
    if len(K) < _WHOLE_ROWS or blas_threads() <= 2:
        return symmetric_product(K, v)
    out = np.empty(len(K))

    def fill(start: int, stop: int) -> None:
        np.dot(K[start:stop], v, out=out[start:stop])

    for_tiles(len(K), _PRODUCT_TILE, fill)
    return out


def solve_by_cg(
    K: Array, hinge: Hinge, S: Rows, point: Point, low_rank: Inverse, *, tol: float, most: int
) -> tuple[Point, int, bool]:
    """Solve the equations of S from ``point``, whose beta is zero outside S.

    K, ``hinge`` and the points belong to a working set of rows, S is a part of it; ``low_rank`` is
    the preconditioner. Stops when the largest C s |residual| is ``tol`` times the largest |beta|,
    or after ``most`` steps. Returns the point, the steps, and whether it meets ``tol``. Raises
    LinAlgError where K_SS + diag(1 / (C s)) is not positive definite.
    """
    A, cost, ridge = hinge.bias_penalty, hinge.cost[S], 1.0 / hinge.cost[S]
    u = low_rank(np.ones(len(S)))
    beta, b, f = point.beta[S], point.b, point.f.copy()
    r = hinge.y[S] - f[S] - ridge * beta
    off = 0.0 if np.isinf(A) else A * b - float(beta.sum())  # what 1'beta = A b lacks
    before, p, pb, full = np.nan, np.zeros(len(S)), 0.0, np.zeros(len(K))
    restart, done = True, False
    steps = 0
    while steps < most:
        steps += 1
        x = low_rank(r)
        zb = float(bias_from(float(u.sum()), x.sum() - off, A))
        z = x - zb * u
        now = float(r @ z)
        ahead = 0.0 if restart else now / before
        p, pb = z + ahead * p, zb + ahead * pb
        full[S] = p
        q = times(K, full)
        h = q[S] + ridge * p + pb
        curvature = float(p @ h)
        if not curvature > 0.0:
            if np.any(p):
                raise np.linalg.LinAlgError("not positive definite")
            break  # nothing is left to gain
        t = 1.0 if off else now / curvature  # length 1 makes 1'beta = A b
        beta, b = beta + t * p, b + t * pb
        f += t * (q + pb)
        r -= t * h
        before, restart, off = now, bool(off), 0.0
        if float(np.max(cost * np.abs(r))) <= tol * float(np.abs(beta).max()):
            done = True
            break
    values = np.zeros(len(K))
    values[S] = beta
    return Point(values, b, f), steps, done


def solve_by_factor(K: Any, hinge: Hinge, S: Rows) -> Point:
    """Solve the equations of few rows S by a Cholesky factor of K_SS + diag(1 / (C s))."""
    on_host = isinstance(K, np.ndarray)
    K_SS = K[np.ix_(S, S)] if on_host else rows_at(rows_at(K, S).T, S)
    right = np.column_stack([np.ones(len(S)), hinge.y[S]])
    solved = factored(K_SS, 1.0 / hinge.cost[S]).solve(right)
    b, coef = bias_and_coefficients(solved, hinge.bias_penalty)
    beta = np.zeros(len(hinge.y))
    beta[S] = coef[:, 0]
    return Point(beta, float(b[0]), times(K, beta) + float(b[0]))


def left_out_residuals(K: Array, hinge: Hinge, S: Rows, point: Point) -> Array:
    """Return y - f of models without each row: beta_i / T_ii on S, with the rest of S fixed.

    T is the inverse of K_SS + diag(1 / (C s)), bordered by the bias; K = K_SS is overwritten.
    """
    result = np.asarray(hinge.y - point.f)
    if len(S):
        factor = factored(K, 1.0 / hinge.cost[S])
        diagonal, u = factor.inverse_diagonal(), factor.solve(np.ones(len(S)))
        result[S] = point.beta[S] / bordered_inverse_diagonal(diagonal, u, hinge.bias_penalty)
    return result
