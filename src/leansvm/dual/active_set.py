"""The squared-hinge SVM by an active set of support vectors (peng2016, §5, Steps 1-5).

S holds the rows with an error e = 1 - y f > 0; the equations of S give the next (w, b); repeat
until S stays. That is Newton's method on a piecewise quadratic, and full steps may cycle: here
the step ends at the minimum of the objective on the line (the paper has no globalisation), so
that it ends, exactly, after finitely many.

`max_support` bounds S: the problem is then solved on a working set of rows, from which rows
without error leave and which the rows of largest error enter, until no row outside has an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._parallel import blas_for
from leansvm._phases import Phases
from leansvm.dual._hinge import (
    Hinge,
    Point,
    distance,
    dual_objective,
    errors,
    exact_step,
    feasible_dual,
    objective,
    stopped_advice,
    violation,
)
from leansvm.dual._ldl import APPEND_PANEL
from leansvm.dual._support_system import KernelForm, LinearForm, LinearRows
from leansvm.dual.kernel_matrix import GrowingRows, StoredMatrix
from leansvm.dual.problem import DualProblem
from leansvm.rows import check_budget
from leansvm.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_VECTORS, _PER_OUTPUT = 12, 4  # of length m: what an iteration works with and an output keeps
SAMPLE_ROWS = 1000  # with more rows than this the first support set is a sample
_SAMPLE_SHARE = 4
_SAMPLE_TOL = 1e-2  # violation at which a sample has served
_SERIAL_ROWS = 2000  # threads of BLAS wait longer for each other than they work, up to here
_PATIENCE = 16  # steps after which smaller values of C are solved first
_CONTINUATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_WAY_OUT = (
    "Use max_support (fewer support vectors, a warning if they do not suffice), fewer rows, a "
    "larger cache_size, or SparseLSSVC."
)


class ActiveSet:
    """Solver of one problem for any C and a growing number of rows.

    `solve` it for one C after the other; each solve starts from the last solution. `extend` it
    by rows and solve again. Kernel rows are shared by outputs and by values of C.

    Parameters
    ----------
    problem : DualProblem
        Rows, kernel, targets +-1, weights, bias, budget.
    max_support : int or None
        Most support vectors; None: as many as it takes.
    keep : bool
        Keep the factors after a solve, for `extend`.
    """

    def __init__(
        self, problem: DualProblem, *, max_support: int | None = None, keep: bool = False
    ) -> None:
        self.problem, self.max_support, self._keep = problem, max_support, keep
        m, n_outputs = problem.Y.shape
        problem.reserve(8 * m * (_VECTORS + _PER_OUTPUT * n_outputs), "The support set")
        self.room_beside(max_support or 0)
        X, kernel = problem.X, problem.kernel
        self.matrix = StoredMatrix(X) if kernel.precomputed else GrowingRows(X, kernel)
        self.linear_rows: LinearRows | None = None
        if kernel.name == "linear":
            self.linear_rows = LinearRows(X, problem.weight, problem.bias_penalty)
        self._outputs: list[_OneOutput] = []
        for j in range(problem.Y.shape[1]):
            self._outputs.append(_OneOutput(self, j))

    def __getstate__(self) -> dict[str, Any]:
        """Keep the rows; factors and support sets are found again by the next solve."""
        problem = self.problem
        kept = ("X", "kernel", "Y", "weight", "bias_penalty", "budget")
        state = {name: getattr(problem, name) for name in kept}
        return state | {"max_support": self.max_support, "keep": self._keep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = {name: state[name] for name in state if name not in ("max_support", "keep")}
        problem = DualProblem(**rows, phases=Phases())
        ActiveSet.__init__(self, problem, max_support=state["max_support"], keep=state["keep"])

    def solve(self, C: float, *, tol: float, max_iter: int, left_out: bool = False) -> Solution:
        """Solve for all outputs, from the last solution if there is one.

        ``left_out`` asks for the residuals of a model without each row, at fixed support sets.
        """
        rows = len(self.problem.weight)
        size = rows if self.linear_rows is None else min(rows, self.problem.X.shape[1])
        with self.problem.phases("solve"), blas_for(size, _SERIAL_ROWS):
            for output in self._outputs:
                output.run(C, tol=tol, max_iter=max_iter, left_out=left_out)
                if not self._keep:
                    output.kernel_form.factor.forget(release=True)
        return self._solution(C, tol, left_out)

    @contextmanager
    def extended(self, X: Any, Y: Array, weight: Array) -> Iterator[None]:
        """Add rows and let the caller solve; an error inside takes the rows back."""
        before = self.__getstate__()
        try:
            self.extend(X, Y, weight)
            yield
        except BaseException:  # an interrupt, too
            self.__setstate__(before)
            raise

    def extend(self, X: Any, Y: Array, weight: Array) -> None:
        """Add rows behind those there are; the next solve repairs the support sets."""
        problem = self.problem
        if isinstance(self.matrix, StoredMatrix):
            raise ValueError("kernel='precomputed': rows cannot be added to a kernel matrix.")
        old = len(problem.weight)
        if sparse.issparse(X) != sparse.issparse(problem.X):  # kept as the first rows are
            X = type(problem.X)(X) if sparse.issparse(problem.X) else X.toarray()
        stack = sparse.vstack if sparse.issparse(problem.X) else np.vstack
        problem.X = stack([problem.X, X])
        if sparse.issparse(problem.X):
            problem.X = problem.X.tocsr()
        problem.Y = np.vstack([problem.Y, Y])
        problem.weight = np.concatenate([problem.weight, weight])
        self.matrix.extend(problem.X, self._room)
        if self.linear_rows is not None:
            self.linear_rows.extend(X, weight)
        for output in self._outputs:
            output.extend(problem.X[old:])

    def room_beside(self, k: int) -> int:
        """Refuse a factor of k rows that does not fit; return the bytes left for kernel rows."""
        problem, (m, n_outputs) = self.problem, self.problem.Y.shape
        factors = n_outputs if self._keep else 1
        # a factor is copied when it grows, beside the kernel values of the rows it is made of
        needed = 8 * ((factors + 1) * k * k + 2 * APPEND_PANEL * k)
        needed += 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs)
        problem.bytes = max(problem.bytes, needed)
        check_budget(needed, problem.budget, f"The factor of {k:,} support vectors", _WAY_OUT)
        self._room = problem.budget - needed
        return self._room

    def _solution(self, C: float, tol: float, left_out: bool) -> Solution:
        """Put together what the outputs found."""
        m, n_outputs = self.problem.Y.shape
        found = Solution("active-set", np.empty((m, n_outputs)), np.empty(n_outputs), C)
        found.objective = found.gap = found.residual = 0.0
        counts, missing = dict[str, int](), 0
        if self.linear_rows is not None:
            found.weights = np.empty((n_outputs, self.linear_rows.X.shape[1]))
        if left_out:
            found.left_out = np.empty((m, n_outputs))
        for j, output in enumerate(self._outputs):
            found.coef[:, j], found.b[j] = output.point.beta, output.point.b
            found.objective += output.objective
            found.gap += output.gap
            found.residual = max(output.violation, found.residual)
            found.iterations = max(found.iterations, output.n_iter)
            found.converged = found.converged and output.converged
            missing = max(missing, output.missing)
            if found.weights is not None:
                found.weights[j] = output.w
            if found.left_out is not None:
                found.left_out[:, j] = output.left_out
            for key, value in output.kernel_form.factor.counts.items():
                counts[key] = counts.get(key, 0) + value
        found.bytes = self.problem.bytes
        found.details = {"violation": found.residual, "rows_kept_out": missing, "factor": counts}
        if not found.converged:
            found.advice = self._advice(found, missing, tol)
        return found

    def _advice(self, found: Solution, missing: int, tol: float) -> str:
        """Say what to do where an output did not converge."""
        if not missing or self.max_support is None:
            return stopped_advice(found.iterations, found.residual, tol)
        return (
            f"max_support={self.max_support} is not enough: {missing:,} more rows have "
            f"y f(x) < 1, so this is the solution for a part of the rows only. Increase "
            f"max_support or use max_support='auto'."
        )


class _OneOutput:
    """One output (a class against the rest): the loop over support sets, and what it found."""

    hinge: Hinge  # of the C that is being solved
    point: Point  # the last solution
    w: Array  # weights of the linear kernel
    left_out: Array  # y - f without each row, if asked for

    def __init__(self, solver: ActiveSet, number: int) -> None:
        self.solver, self.problem, self.number = solver, solver.problem, number
        self.kernel_form = KernelForm(solver.matrix)
        self.linear_form: LinearForm | None = None
        if solver.linear_rows is not None:
            self.linear_form = LinearForm(solver.linear_rows)
        self.form: KernelForm | LinearForm = self.kernel_form
        self.C, self.objective, self.gap, self.violation = np.nan, np.nan, np.nan, np.inf
        self.n_iter, self.missing, self.converged = 0, 0, False
        self.solved = False  # whether there is a point to start from
        self.stopped = False  # by a callback

    def _set_C(self, C: float) -> None:
        """Go on with this C."""
        self.C, problem = C, self.problem
        self.hinge = Hinge(problem.Y[:, self.number], C * problem.weight, problem.bias_penalty)

    def extend(self, X: Any) -> None:
        """Continue the last solution to rows that came."""
        if not self.solved:
            return
        beta, b = self.point.beta, self.point.b
        support = np.flatnonzero(beta)
        values = self.problem.kernel.block(X, self.problem.X[support], dtype=np.float64)
        f = np.concatenate([self.point.f, values @ beta[support] + b])
        self.point = Point(np.concatenate([beta, np.zeros(X.shape[0])]), b, f)

    def run(self, C: float, *, tol: float, max_iter: int, left_out: bool) -> None:
        """Solve on working sets of rows until no row outside has an error."""
        self._set_C(C)
        self.n_iter, self.stopped, m = 0, False, len(self.hinge.y)
        limit = min(self.solver.max_support or m, m)
        # f = 0, where every row has the error 1
        point = self.point if self.solved else Point(np.zeros(m), 0.0, np.zeros(m))
        working = self._first_rows(limit, point)
        while True:
            sample = working is not None and limit >= m
            loose = max(tol, _SAMPLE_TOL) if sample else tol
            point, converged, worst = self._solve_on(working, point, loose, max_iter)
            missing = np.empty(0, np.intp)
            if working is not None:
                missing = self._outside(working, point, tol)
            if not sample and (not len(missing) or not converged):
                break
            full = limit < m and np.count_nonzero(point.beta) >= limit
            if full or self.n_iter >= max_iter or self.stopped:
                converged = False
                break
            working = self._next_rows(limit, point, missing)
        self.violation, self.converged, self.missing = worst, converged, len(missing)
        self._finish(point, left_out)

    def _first_rows(self, limit: int, point: Point) -> Rows | None:
        """Return the first working set: all rows (None), or a stratified sample of many."""
        m = len(self.hinge.y)
        small_primal = self.linear_form is not None and len(self.linear_form.w) < m
        if limit >= m and (self.solved or small_primal or m <= SAMPLE_ROWS):
            return None
        if self.solved:
            order = np.argsort(-errors(self.hinge, point), kind="stable")
            return np.sort(order[:limit])
        return self._sample(limit if limit < m else max(SAMPLE_ROWS // 2, m // _SAMPLE_SHARE))

    def _sample(self, size: int) -> Rows:
        """Draw rows of both classes in proportion."""
        rng = np.random.default_rng(0)
        chosen = []
        for label in (-1.0, 1.0):
            rows = np.flatnonzero(self.hinge.y == label)
            share = min(len(rows), max(1, round(size * len(rows) / len(self.hinge.y))))
            chosen.append(rng.choice(rows, share, replace=False))
        return np.sort(np.concatenate(chosen))[: max(size, 2)]

    def _next_rows(self, limit: int, point: Point, missing: Rows) -> Rows | None:
        """Return the working set after one that left out rows with errors."""
        if limit >= len(self.hinge.y):
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
            if self.linear_form is not None and len(self.linear_form.w) < len(support):
                self.form = self.linear_form  # the smaller system
            else:
                self.solver.matrix.ensure(support, self.solver.room_beside(len(support)))
                self.form = self.kernel_form
            found = self.form.solve(hinge, self.C, support, e, point.b)
            worst = violation(hinge, found, support, mask)
            if self.problem.on_iteration is not None:
                self.stopped = self.problem.on_iteration(self.n_iter, worst)
            if worst <= tol:
                return found, True, worst
            step = found - point
            t = exact_step(hinge, point, step, working)
            if t == 0.0:  # only rounding is left
                break
            point = found if t == 1.0 else point.moved(step, t)
            e = errors(hinge, point)
        if np.isinf(worst):  # not one step was left
            worst = distance(hinge, point)
        return point, False, worst

    def _finish(self, point: Point, left_out: bool) -> None:
        """Keep the solution and certify it."""
        hinge, X, linear = self.hinge, self.problem.X, self.linear_form
        if linear is not None:
            self.w = linear.w if self.form is linear else X.T @ point.beta
        if left_out:
            self.left_out = self.form.left_out(hinge, self.C, point)
        beta = point.beta
        if self.converged:  # coefficients of the wrong sign are rounding there
            beta = np.where(hinge.y * beta > 0, beta, 0.0)
        feasible = feasible_dual(hinge, beta)
        product = self.solver.matrix.product(feasible) if linear is None else X @ (X.T @ feasible)
        self.objective = objective(hinge, point)
        self.gap = max(self.objective - dual_objective(hinge, feasible, np.asarray(product)), 0.0)
        self.point, self.solved = Point(beta, point.b, point.f), True
