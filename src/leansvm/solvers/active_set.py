"""The squared-hinge SVM by an active set of support vectors (peng2016, §5, Steps 1-5).

S holds the rows with an error e = 1 - y f > 0; the equations of S give the next (w, b); repeat
until S stays. That is Newton's method on a piecewise quadratic, and full steps may cycle: here
the step ends at the minimum of the objective on the line (the paper has no globalisation), so
that it ends, exactly, after finitely many.

`max_support` bounds S: the problem is then solved on a working set of rows, from which rows
without error leave and which the rows of largest error enter, until no row outside has an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm.blocks import check_budget
from leansvm.solvers._hinge import (
    Hinge,
    HingeSolution,
    Point,
    dual_objective,
    errors,
    exact_step,
    feasible_dual,
    objective,
    origin,
    violation,
)
from leansvm.solvers._kernel_rows import KernelRows
from leansvm.solvers._ldl import APPEND_PANEL
from leansvm.solvers._problem import DualProblem
from leansvm.solvers._support_system import KernelForm, LinearForm, LinearRows

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

SAMPLE_ROWS = 1000  # with more rows than this the first support set is a sample
_SAMPLE_SHARE = 4
_SAMPLE_TOL = 1e-2  # violation at which a sample has served
_PATIENCE = 16  # steps after which smaller values of C are solved first
_CONTINUATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_WAY_OUT = (
    "Use max_support (fewer support vectors, a warning if they do not suffice), fewer rows, a "
    "larger cache_size, or SparseLSSVC."
)


class ActiveSet:
    """Solver of one problem for any C and a growing number of rows.

    Kernel rows are shared by outputs and by values of C; every solve starts from the last
    solution.

    Parameters
    ----------
    problem : DualProblem
        Rows, kernel, targets +-1, weights, bias, budget.
    max_support : int or None
        Most support vectors; None: as many as it takes.
    keep : bool
        Keep the factors after a solve, for `extend`.
    reuse : bool
        False factors anew in every iteration (for comparison).
    """

    def __init__(
        self,
        problem: DualProblem,
        *,
        max_support: int | None = None,
        keep: bool = False,
        reuse: bool = True,
    ) -> None:
        self.problem, self.reuse, self.keep = problem, reuse, keep
        self.max_support = max_support
        problem.reserve(self._bytes(0), "The support set")
        self.check_memory(max_support or 0)
        self.kernel_rows = KernelRows(problem.X, problem.kernel, self._left(max_support or 0))
        self.linear_rows: LinearRows | None = None
        if problem.kernel.name == "linear":
            self.linear_rows = LinearRows(problem.X, problem.weight, problem.bias_penalty)
        self.outputs = [_Output(self, j) for j in range(problem.Y.shape[1])]

    def solve(self, C: float, *, tol: float, max_iter: int, loo: bool = False) -> HingeSolution:
        """Solve for all outputs, from the last solution if there is one."""
        results = []
        with self.problem.phases("solve"):
            for output in self.outputs:
                results.append(output.run(C, tol=tol, max_iter=max_iter, loo=loo))
                if not self.keep:
                    output.kernel_form.factor.forget(release=True)
        return self._joined(results)

    def extend(self, X: Any, Y: Array, weight: Array) -> None:
        """Add rows behind those there are; the next solve repairs the support sets."""
        problem = self.problem
        old = problem.m
        stack = sparse.vstack if sparse.issparse(problem.X) else np.vstack
        problem.X = stack([problem.X, X])
        if sparse.issparse(problem.X):
            problem.X = problem.X.tocsr()
        problem.Y = np.vstack([problem.Y, Y])
        problem.weight = np.concatenate([problem.weight, weight])
        self.kernel_rows.extend(problem.X)
        if self.linear_rows is not None:
            self.linear_rows.extend(X, weight)
        for output in self.outputs:
            output.extend(problem.X[old:])

    def best_of(
        self, candidates: Array, *, tol: float, max_iter: int
    ) -> tuple[float, Array, HingeSolution]:
        """Solve for every C, smallest first; return the best by left-out loss, losses, solution."""
        problem = self.problem
        losses = np.empty(len(candidates))
        best: tuple[float, HingeSolution] | None = None
        for i in np.argsort(candidates, kind="stable"):
            C = float(candidates[i])
            solution = self.solve(C, tol=tol, max_iter=max_iter, loo=True)
            assert solution.loo is not None  # asked for
            slack = np.maximum(problem.Y * solution.loo, 0.0)  # y (y - f) = 1 - y f
            losses[i] = float(np.sum(problem.weight @ slack**2)) / float(problem.weight.sum())
            if best is None or losses[i] < losses[candidates == best[0]][0]:
                best = C, solution
        assert best is not None
        return best[0], losses, best[1]

    def _joined(self, outputs: list[_Result]) -> HingeSolution:
        weights = None
        if self.linear_rows is not None:
            weights = np.array([output.w for output in outputs])
        loo = None
        if outputs[0].loo is not None:
            loo = np.column_stack([output.loo for output in outputs if output.loo is not None])
        counts: dict[str, int] = {}
        for output in outputs:
            for key, value in output.counts.items():
                counts[key] = counts.get(key, 0) + value
        return HingeSolution(
            np.column_stack([output.point.beta for output in outputs]),
            np.array([output.point.b for output in outputs]),
            objective=sum(output.objective for output in outputs),
            violation=max(output.violation for output in outputs),
            gap=sum(output.gap for output in outputs),
            n_iter=max(output.n_iter for output in outputs),
            converged=all(output.converged for output in outputs),
            missing=max(output.missing for output in outputs),
            weights=weights,
            loo=loo,
            counts=counts,
        )

    def check_memory(self, k: int) -> None:
        """Refuse a support set whose factor does not fit, before it is made."""
        needed = self._bytes(k)
        self.problem.bytes = max(self.problem.bytes, needed)
        check_budget(needed, self.problem.budget, f"The factor of {k:,} support vectors", _WAY_OUT)

    def make_room(self, k: int) -> None:
        """Check the memory for k support vectors; kernel rows may take what is left."""
        self.check_memory(k)
        self.kernel_rows.budget = self._left(k)

    def _left(self, k: int) -> int:
        return self.problem.budget - self._bytes(k)

    def _bytes(self, k: int) -> int:
        m, n_outputs = self.problem.Y.shape
        factors = n_outputs if self.keep else 1
        return 8 * (factors * k * k + 2 * APPEND_PANEL * k + (12 + 4 * n_outputs) * m)


@dataclass
class _Result:
    point: Point
    w: Array | None
    objective: float
    gap: float
    violation: float
    n_iter: int
    converged: bool
    missing: int
    loo: Array | None
    counts: dict[str, int] = field(default_factory=dict)


class _Output:
    """One output: the loop over support sets."""

    def __init__(self, solver: ActiveSet, number: int) -> None:
        self.solver, self.number = solver, number
        self.problem = solver.problem
        self.hinge = self._hinge(1.0)
        self.C = 1.0
        self.kernel_form = KernelForm(solver.kernel_rows, self.hinge, reuse=solver.reuse)
        self.linear_form: LinearForm | None = None
        if solver.linear_rows is not None:
            self.linear_form = LinearForm(solver.linear_rows, self.hinge, 1.0)
        self.form: Any = self.kernel_form
        self.point: Point | None = None  # the last solution
        self.n_iter = 0
        self.stopped = False  # by a callback

    def _hinge(self, C: float) -> Hinge:
        problem = self.problem
        return Hinge(problem.Y[:, self.number], C * problem.weight, problem.bias_penalty)

    def _set_C(self, C: float) -> None:
        """Go on with this C; the factor stays if it is the same."""
        self.hinge = self._hinge(C)
        self.kernel_form.set_hinge(self.hinge, same_costs=C == self.C)
        if self.linear_form is not None:
            self.linear_form.hinge, self.linear_form.C = self.hinge, C
        self.C = C

    def extend(self, X: Any) -> None:
        """Continue the last solution to rows that came."""
        if self.point is None:
            return
        beta, b = self.point.beta, self.point.b
        support = np.flatnonzero(beta)
        values = self.problem.kernel.block(X, self.problem.X[support], dtype=np.float64)
        f = np.concatenate([self.point.f, values @ beta[support] + b])
        self.point = Point(np.concatenate([beta, np.zeros(X.shape[0])]), b, f)

    def run(self, C: float, *, tol: float, max_iter: int, loo: bool) -> _Result:
        """Solve on working sets of rows until no row outside has an error."""
        self._set_C(C)
        self.n_iter, self.stopped = 0, False
        m = self.problem.m
        limit = min(self.solver.max_support or m, m)
        point, warm = self.point or origin(m), self.point is not None
        working = self._first_rows(limit, point, warm)
        while True:
            sample = working is not None and limit >= m
            loose = max(tol, _SAMPLE_TOL) if sample else tol
            point, converged, worst = self._solve_on(working, point, loose, max_iter)
            missing = np.empty(0, np.intp)
            if working is not None:
                missing = self._outside(working, point, tol)
            if not sample and (not len(missing) or not converged):
                break
            if limit < m and np.count_nonzero(point.beta) >= limit:
                converged = False
                break
            if self.n_iter >= max_iter or self.stopped:
                converged = False
                break
            working = self._next_rows(limit, point, missing)
        return self._finish(point, worst, converged, len(missing), loo)

    def _first_rows(self, limit: int, point: Point, warm: bool) -> Rows | None:
        """Return the first working set: all rows (None), or a stratified sample of many."""
        m = self.problem.m
        small_primal = self.linear_form is not None and len(self.linear_form.w) < m
        if limit >= m and (warm or small_primal or m <= SAMPLE_ROWS):
            return None
        if warm:
            order = np.argsort(-errors(self.hinge, point), kind="stable")
            return np.sort(order[:limit])
        return self._sample(limit if limit < m else max(SAMPLE_ROWS // 2, m // _SAMPLE_SHARE))

    def _sample(self, size: int) -> Rows:
        """Draw rows of both classes in proportion."""
        rng = np.random.default_rng(0)
        chosen = []
        for label in (-1.0, 1.0):
            rows = np.flatnonzero(self.hinge.y == label)
            share = min(len(rows), max(1, round(size * len(rows) / self.problem.m)))
            chosen.append(rng.choice(rows, share, replace=False))
        return np.sort(np.concatenate(chosen))[: max(size, 2)]

    def _next_rows(self, limit: int, point: Point, missing: Rows) -> Rows | None:
        """Return the working set after one that left out rows with errors."""
        if limit >= self.problem.m:
            return None
        support = np.flatnonzero(point.beta)
        order = np.argsort(-errors(self.hinge, point)[missing], kind="stable")
        return np.union1d(support, missing[order[: limit - len(support)]])

    def _outside(self, working: Rows, point: Point, tol: float) -> Rows:
        """Return the rows outside the working set that want to be support vectors."""
        wanted = self.hinge.cost * errors(self.hinge, point)
        wanted[working] = 0.0
        largest = float(np.max(self.hinge.y * point.beta, initial=0.0))
        return np.flatnonzero(wanted > tol * largest)

    def _solve_on(
        self, working: Rows | None, point: Point, tol: float, max_iter: int
    ) -> tuple[Point, bool, float]:
        """Minimise the loss of the working rows; return the point, success and violation.

        A few steps suffice unless C is large and the classes nearly separable; then smaller
        values of C, each solved from the one before, lead to the solution in fewer steps.
        """
        soon = min(max_iter, self.n_iter + _PATIENCE)
        point, converged, worst = self._iterate(working, point, tol, soon)
        if converged or self.n_iter >= max_iter or self.stopped:
            return point, converged, worst
        target = self.C
        for share in _CONTINUATION:
            self._set_C(share * target)
            point, converged, worst = self._iterate(working, point, tol, max_iter)
        return point, converged, worst

    def _iterate(
        self, working: Rows | None, point: Point, tol: float, max_iter: int
    ) -> tuple[Point, bool, float]:
        """Steps 2-5: solve the equations of S, go to the minimum on the way, update S."""
        hinge, worst = self.hinge, np.inf
        mask = np.full(len(hinge.y), working is None)
        mask[working] = True
        e = errors(hinge, point)
        while self.n_iter < max_iter and not self.stopped:
            support = np.flatnonzero((e > 0) & mask)
            self.n_iter += 1
            self._choose_form(len(support))
            found = self.form.solve(support, e, point.b)
            worst = violation(hinge, found, support, mask)
            if self.problem.on_iteration is not None:
                self.stopped = self.problem.on_iteration(self.n_iter, worst)
            if worst <= tol:
                return found, True, worst
            step = found - point
            t = exact_step(hinge, point, step, working)
            if t == 0.0:  # only rounding is left
                break
            point = found if t == 1.0 else point + step * t
            e = errors(hinge, point)
        return point, False, worst

    def _choose_form(self, k: int) -> None:
        """Take the smaller system."""
        if self.linear_form is not None and len(self.linear_form.w) < k:
            self.form = self.linear_form
            return
        self.solver.make_room(k)
        self.form = self.kernel_form

    def _finish(
        self, point: Point, worst: float, converged: bool, missing: int, loo: bool
    ) -> _Result:
        hinge = self.hinge
        w = None
        if self.linear_form is not None:
            X = self.problem.X
            w = self.linear_form.w if self.form is self.linear_form else X.T @ point.beta
        left_out = self.form.left_out(point) if loo else None
        beta = point.beta
        if converged:  # coefficients of the wrong sign are rounding there
            beta = np.where(hinge.y * beta > 0, beta, 0.0)
        value = objective(hinge, point)
        feasible = feasible_dual(hinge, beta)
        if w is not None:
            product = self.problem.X @ (self.problem.X.T @ feasible)
        else:
            product = self.solver.kernel_rows.product(feasible)
        gap = value - dual_objective(hinge, feasible, np.asarray(product))
        self.point = Point(beta, point.b, point.f)
        return _Result(
            self.point,
            w,
            value,
            max(gap, 0.0),
            worst,
            self.n_iter,
            converged,
            missing,
            left_out,
            dict(self.kernel_form.factor.counts),
        )
