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
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._parallel import blas_for
from leansvm._phases import Phases
from leansvm.dual._hinge import (
    Hinge,
    HingeOutput,
    Point,
    certified_output,
    constant_point,
    distance,
    errors,
    feasible_dual,
    joined_solution,
    minimum_towards,
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
        self.max_support, self._keep = max_support, keep
        m, n_outputs = problem.Y.shape
        needed = 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs)
        self.problem = problem = problem.reserve(needed, "The support set")
        self.room_beside(max_support or 0)
        X, kernel = problem.X, problem.kernel
        self.matrix = StoredMatrix(X) if kernel.precomputed else GrowingRows(X, kernel)
        self.linear_rows: LinearRows | None = None
        if kernel.name == "linear":
            self.linear_rows = LinearRows(X, problem.weight, problem.bias_penalty)
        self._outputs = [_OneOutput(self, j) for j in range(n_outputs)]

    def __getstate__(self) -> dict[str, Any]:
        """Keep the rows; factors and support sets are found again by the next solve."""
        kept = ("X", "kernel", "Y", "weight", "bias_penalty", "budget")
        state = {name: getattr(self.problem, name) for name in kept}
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
            found = []
            for output in self._outputs:
                found.append(output.run(C, tol=tol, max_iter=max_iter, left_out=left_out))
                if not self._keep:
                    output.kernel_form.factor.forget(release=True)
        return self._solution(C, tol, found)

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
        before = self.problem
        if isinstance(self.matrix, StoredMatrix):
            raise ValueError("kernel='precomputed': rows cannot be added to a kernel matrix.")
        if sparse.issparse(before.X):  # rows are kept as the first ones are
            X = type(before.X)(X)
            together = sparse.vstack([before.X, X]).tocsr()
        else:
            X = X.toarray() if sparse.issparse(X) else X
            together = np.vstack([before.X, X])
        Y, weights = np.vstack([before.Y, Y]), np.concatenate([before.weight, weight])
        self.problem = replace(before, X=together, Y=Y, weight=weights)
        self.matrix.extend(together, self._bytes_left)
        if self.linear_rows is not None:
            self.linear_rows.extend(X, weight)
        for output in self._outputs:
            output.extend(together[len(before.weight) :])

    def room_beside(self, k: int) -> int:
        """Refuse a factor of k rows that does not fit; return the bytes left for kernel rows."""
        problem, (m, n_outputs) = self.problem, self.problem.Y.shape
        factors = n_outputs if self._keep else 1
        # a factor is copied when it grows, beside the kernel values of the rows it is made of
        needed = 8 * ((factors + 1) * k * k + 2 * APPEND_PANEL * k)
        needed += 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs)
        check_budget(needed, problem.budget, f"The factor of {k:,} support vectors", _WAY_OUT)
        self.problem = replace(problem, bytes=max(problem.bytes, needed))
        self._bytes_left = problem.budget - needed
        return self._bytes_left

    def _solution(self, C: float, tol: float, found: list[HingeOutput]) -> Solution:
        """Put together what the outputs found."""
        outputs, more = self._outputs, dict[str, Any]()
        counts = [output.kernel_form.factor.counts for output in outputs]
        missing = max(output.missing for output in outputs)
        if missing and self.max_support is not None:
            more["advice"] = (
                f"max_support={self.max_support} is not enough: {missing:,} more rows have "
                f"y f(x) < 1, so this is the solution for a part of the rows only. Increase "
                f"max_support or use max_support='auto'."
            )
        if self.linear_rows is not None:
            more["weights"] = np.stack([output.w for output in outputs])
        return joined_solution(
            "active-set",
            self.problem,
            C,
            found,
            tol,
            converged=all(output.converged for output in outputs),
            rows_kept_out=missing,
            counts={key: sum(count[key] for count in counts) for key in counts[0]},
            **more,
        )


class _OneOutput:
    """One output (a class against the rest): the loop over support sets, and what it found."""

    hinge: Hinge  # of the C that is being solved
    point: Point  # the last solution
    w: Array  # weights of the linear kernel

    def __init__(self, solver: ActiveSet, number: int) -> None:
        self.solver, self.number = solver, number
        self.kernel_form = KernelForm(solver.matrix)
        self.linear_form: LinearForm | None = None
        if solver.linear_rows is not None:
            self.linear_form = LinearForm(solver.linear_rows)
        self.form: KernelForm | LinearForm = self.kernel_form
        self.C, self.n_iter, self.missing, self.converged = np.nan, 0, 0, False
        self.solved = False  # whether there is a point to start from
        self.stopped = False  # by a callback

    def _set_C(self, C: float) -> None:
        """Go on with this C."""
        self.C, problem = C, self.solver.problem
        self.hinge = Hinge(problem.Y[:, self.number], C * problem.weight, problem.bias_penalty)

    def extend(self, X: Any) -> None:
        """Continue the last solution to rows that came."""
        if not self.solved:
            return
        beta, b = self.point.beta, self.point.b
        support, problem = np.flatnonzero(beta), self.solver.problem
        values = problem.kernel.block(X, problem.X[support], dtype=np.float64)
        f = np.concatenate([self.point.f, values @ beta[support] + b])
        self.point = Point(np.concatenate([beta, np.zeros(X.shape[0])]), b, f)

    def run(self, C: float, *, tol: float, max_iter: int, left_out: bool) -> HingeOutput:
        """Solve on working sets of rows until no row outside has an error."""
        self._set_C(C)
        self.n_iter, self.stopped, m = 0, False, len(self.hinge.y)
        limit = min(self.solver.max_support or m, m)
        # f = 0, where every row has the error 1
        point = self.point if self.solved else constant_point(self.hinge)
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
        self.converged, self.missing = converged, len(missing)
        return self._finish(point, worst, left_out)

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
            if self.solver.problem.on_iteration is not None:
                self.stopped = self.solver.problem.on_iteration(self.n_iter, worst)
            if worst <= tol:
                return found, True, worst
            better = minimum_towards(hinge, point, found, working)
            if better is None:
                break
            point, e = better, errors(hinge, better)
        if np.isinf(worst):  # not one step was left
            worst = distance(hinge, point)
        return point, False, worst

    def _finish(self, point: Point, worst: float, left_out: bool) -> HingeOutput:
        """Keep the solution and certify it."""
        hinge, X, linear = self.hinge, self.solver.problem.X, self.linear_form
        if linear is not None:
            self.w = linear.w if self.form is linear else X.T @ point.beta
        residuals = self.form.left_out(hinge, self.C, point) if left_out else None
        beta = point.beta
        if self.converged:  # coefficients of the wrong sign are rounding there
            beta = np.where(hinge.y * beta > 0, beta, 0.0)
        feasible = feasible_dual(hinge, beta)
        product = self.solver.matrix.product(feasible) if linear is None else X @ (X.T @ feasible)
        found = certified_output(hinge, point, feasible, product, worst, self.n_iter, residuals)
        self.point, self.solved = replace(point, beta=beta), True
        return replace(found, point=self.point)
