"""What solvers of the squared-hinge SVM share: the problem, a point, line search, certificate.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, e_i)^2,  e = 1 - y f,  f = K beta + b.

At the solution theta_i = y_i beta_i = C s_i max(0, e_i) (peng2016, eq. (53)), so the objective
is half the sum of theta, eq. (56), and with a free bias sum_i y_i theta_i = 0, eq. (51).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, foreign_namespace, like_rows, to_host
from leansvm.dual.problem import DualProblem
from leansvm.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
EPS = float(np.finfo(np.float64).eps)


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
        """Return w = 0, with the bias b where no penalty makes it 0."""
        b = b if self.bias_penalty == 0 else 0.0
        return Point(np.zeros(len(self.y)), b, np.full(len(self.y), b))

    def errors(self, point: Point) -> Array:
        """Return e = 1 - y f."""
        return np.asarray(1.0 - self.y * point.f)

    def exact_step(self, point: Point, target: Point, rows: Rows | None = None) -> float:
        """Minimise the objective on point + t (target - point), t > 0, over the loss of ``rows``.

        The slope is piecewise linear and increasing: slope(t) = a + c t + sum over the rows with
        e + t d > 0 of C s d (e + t d), d = -y times the change of f. Its kinks are passed in order.
        ``rows`` are all rows where they are None.
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
            if not 0 < better < np.inf or abs(better - t) <= 4 * EPS * t:
                break
            t = better
        return max(t, 0.0)

    def minimum_towards(
        self, point: Point, target: Point, rows: Rows | None = None
    ) -> Point | None:
        """Return the minimum on the line to ``target``; None: only rounding is left."""
        t = self.exact_step(point, target, rows)
        return point.towards(target, t) if t else None

    def distance(
        self,
        point: Point,
        solved: Rows | None = None,
        among: NDArray[np.bool_] | None = None,
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
    converged: bool | None = None,
    advice: str = "",
    rows_kept_out: int = 0,
    counts: dict[str, int] | None = None,
    weights: Array | None = None,
) -> Solution:
    """Put the outputs together; the violation is the largest of theirs unless it is given."""
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
    converged = violation <= tol if converged is None else converged
    stopped = (
        f"stopped after {iterations} iterations at a relative violation of {violation:.1e} "
        f"(tol={tol:g}). Increase max_iter or tol, scale X, or lower C."
    )
    return Solution(
        solver,
        coef,
        b,
        C,
        objective=value,
        residual=violation,
        gap=gap,
        iterations=iterations,
        converged=converged,
        advice="" if converged else advice or stopped,
        left_out=np.column_stack(residuals) if residuals else None,
        details={"violation": violation, "rows_kept_out": rows_kept_out, "factor": counts or {}},
        weights=linear_weights(problem, coef) if weights is None else weights,
        bytes=problem.bytes,
    )


def linear_weights(problem: DualProblem, beta: Array) -> Array | None:
    """Return w = X'beta, outputs x features; None unless the kernel is linear."""
    if problem.kernel.name != "linear":
        return None
    if foreign_namespace(problem.X) is not None:
        X = as_float64(problem.X)
        return np.asarray(to_host(X.T @ like_rows(beta, X))).T
    return np.asarray((problem.X.T @ beta).T)
