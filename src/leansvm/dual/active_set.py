"""The squared-hinge SVM by an active set of support vectors (peng2016, §5, Steps 1-5).

S holds the rows with an error e = 1 - y f > 0; the equations of S give the next (w, b); repeat
until S stays. That is Newton's method on a piecewise quadratic, and full steps may cycle: here
the step ends at the minimum of the objective on the line (the paper has no globalisation), so
that it ends, exactly, after finitely many.

`max_support` bounds S: the problem is then solved on a working set of rows, from which rows
without error leave and which the rows of largest error enter, until no row outside has an error.

`solve_newton` is Newton's method in the primal (Chapelle 2007), a reference for small problems:
the whole kernel matrix, where the rows are, and a factor of K_SS for every S.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from leansvm._parallel import limited_blas
from leansvm._phases import Phases
from leansvm.dual._hinge import (
    Array,
    Hinge,
    HingeOutput,
    Point,
    Rows,
    joined_solution,
    solve_by_factor,
    times,
)
from leansvm.dual._support_system import APPEND_PANEL, KernelForm, LinearForm, LinearRows
from leansvm.dual.kernel_matrix import GrowingRows, StoredMatrix, gram
from leansvm.dual.problem import DualProblem
from leansvm.rows import check_budget
from leansvm.solution import Solution

_VECTORS, _PER_OUTPUT = 12, 4  # of length m: what an iteration works with and an output keeps
SAMPLE_ROWS = 1000  # with more rows than this the first support set is a sample
_SAMPLE_SHARE = 4
_SAMPLE_TOL = 1e-2  # violation at which the solution on a sample is good enough
_SERIAL_ROWS = 2000  # up to so many rows, threads of BLAS wait longer than they work
_PATIENCE = 16  # steps after which smaller values of C are solved first
_CONTINUATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_WAY_OUT = (
    "Set max_support to a smaller number (a warning says if it is too small), or use fewer rows, a "
    "larger cache_size, or SparseLSSVC."
)


class ActiveSet:
    """Solver of one problem for any C and a growing number of rows.

    `solve` it for one C after the other; each solve starts from the last solution. `extend` it
    by rows and solve again. Kernel rows are shared by outputs and by values of C.
    ``max_support`` bounds the support vectors (None: as many as it takes); ``keep`` keeps the
    factors after a solve, for `extend`.
    """

    def __init__(
        self, problem: DualProblem, *, max_support: int | None = None, keep: bool = False
    ) -> None:
        self.max_support, self._keep = max_support, keep
        m, n_outputs = problem.Y.shape
        needed = 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs)
        self.problem = problem = problem.reserve(needed, "The fit", or_cg=False)
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
        rows, found, missing, converged = len(self.problem.weight), [], 0, True
        size = rows if self.linear_rows is None else min(rows, self.problem.X.shape[1])
        counts: Counter[str] = Counter()
        with self.problem.phases("solve"), limited_blas(size, _SERIAL_ROWS):
            for output in self._outputs:
                found.append(output.run(C, tol=tol, max_iter=max_iter, left_out=left_out))
                missing, converged = max(missing, output.missing), converged and output.converged
                counts.update(output.kernel_form.factor.counts)
                if not self._keep:
                    output.kernel_form.factor.forget(release=True)
        more: dict[str, Any] = {"done": converged, "counts": dict(counts)}
        if missing:
            more["rows_kept_out"] = missing
            more["advice"] = (
                f"max_support={self.max_support} is not enough: {missing:,} more rows have "
                f"y f(x) < 1, so the model fits only a part of the rows. Increase max_support or "
                f"use max_support='auto'."
            )
        if self.linear_rows is not None:
            more["weights"] = np.stack([output.w for output in self._outputs])
        return joined_solution("active-set", self.problem, C, found, tol, **more)

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
        """Append rows; the next solve updates the support sets."""
        before = self.problem
        if isinstance(self.matrix, StoredMatrix):
            raise ValueError("kernel='precomputed': rows cannot be added to a kernel matrix.")
        if sparse.issparse(before.X):  # rows are kept as the first ones are
            together = sparse.vstack([before.X, type(before.X)(X)]).tocsr()
        else:
            together = np.vstack([before.X, X.toarray() if sparse.issparse(X) else X])
        Y, weight = np.vstack([before.Y, Y]), np.concatenate([before.weight, weight])
        self.problem = replace(before, X=together, Y=Y, weight=weight)
        self.matrix.extend(together, self._bytes_left)
        if self.linear_rows is not None:
            self.linear_rows.take(together, weight)
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


class _OneOutput:
    """One output (a class against the rest): the loop over support sets, and what it found."""

    hinge: Hinge  # of the C that is being solved
    w: Array  # weights of the linear kernel

    def __init__(self, solver: ActiveSet, number: int) -> None:
        self.solver, self.number = solver, number
        self.kernel_form, self.linear_form = KernelForm(solver.matrix, keep=solver._keep), None
        if solver.linear_rows is not None:
            self.linear_form = LinearForm(solver.linear_rows)
        self.form: KernelForm | LinearForm = self.kernel_form
        self.C, self.n_iter, self.missing, self.converged = np.nan, 0, 0, False
        self.point: Point | None = None  # the last solution
        self.stopped = False  # by a callback

    def _set_C(self, C: float) -> None:
        """Go on with this C."""
        self.C, problem = C, self.solver.problem
        self.hinge = Hinge(problem.Y[:, self.number], C * problem.weight, problem.bias_penalty)

    def extend(self, X: Any) -> None:
        """Continue the last solution to rows that came."""
        if self.point is None:
            return
        beta, b = self.point.beta, self.point.b
        support, problem = np.flatnonzero(beta), self.solver.problem
        values = problem.kernel.block(X, problem.X[support], dtype=np.float64)
        f = np.concatenate([self.point.f, values @ beta[support] + b])
        self.point = Point(np.concatenate([beta, np.zeros(X.shape[0])]), b, f)

    def run(self, C: float, *, tol: float, max_iter: int, left_out: bool) -> HingeOutput:
        """Solve on working sets of rows until no row outside has an error."""
        self._set_C(C)
        hinge, m = self.hinge, len(self.hinge.y)
        self.n_iter, self.stopped, limit = 0, False, min(self.solver.max_support or m, m)
        # f = 0, where every row has the error 1
        point, working = self.point or hinge.constant_point(), None
        if limit < m and self.point is not None:
            working = np.sort(np.argsort(-hinge.errors(point), kind="stable")[:limit])
        elif limit < m:
            working = self._sample(limit)
        elif self.point is None and m > SAMPLE_ROWS and not self._small_primal(m):
            sample = self._sample(max(SAMPLE_ROWS // 2, m // _SAMPLE_SHARE))
            point, *_ = self._solve_on(sample, point, max(tol, _SAMPLE_TOL), max_iter)
        while True:
            point, converged, worst = self._solve_on(working, point, tol, max_iter)
            missing = np.empty(0, np.intp)
            if working is not None:
                e = hinge.errors(point)
                e[working] = 0.0
                largest = float(np.max(hinge.y * point.beta, initial=0.0))
                missing = np.flatnonzero(hinge.cost * e > tol * largest)
            support = np.flatnonzero(point.beta)
            if not len(missing) or not converged:
                break
            if len(support) >= limit or self.n_iter >= max_iter or self.stopped:
                converged = False
                break
            missing = missing[np.argsort(-e[missing], kind="stable")]
            working = np.union1d(support, missing[: limit - len(support)])
        self.converged, self.missing = converged, len(missing)
        return self._finish(point, worst, left_out)

    def _small_primal(self, size: int) -> bool:
        """Whether the linear kernel has a smaller system than one of so many rows."""
        return self.linear_form is not None and len(self.linear_form.w) < size

    def _sample(self, size: int) -> Rows:
        """Draw rows of both classes in proportion."""
        rng = np.random.default_rng(0)
        chosen = []
        for label in (-1.0, 1.0):
            rows = np.flatnonzero(self.hinge.y == label)
            share = min(len(rows), max(1, round(size * len(rows) / len(self.hinge.y))))
            chosen.append(rng.choice(rows, share, replace=False))
        return np.sort(np.concatenate(chosen))[: max(size, 2)]

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
        hinge, solver, worst = self.hinge, self.solver, np.inf
        mask = np.full(len(hinge.y), working is None)
        mask[working] = True
        while self.n_iter < max_iter and not self.stopped:
            e = hinge.errors(point)
            support = np.flatnonzero((e > 0) & mask)
            self.n_iter += 1
            if self.linear_form is not None and self._small_primal(len(support)):
                self.form = self.linear_form
            else:
                self.form = self.kernel_form
                held = max(len(support), self.form.factor.largest)
                solver.matrix.ensure(support, solver.room_beside(held))
            found = self.form.solve(hinge, self.C, support, e, point.b)
            worst = hinge.distance(found, support, mask)
            if solver.problem.on_iteration is not None:
                self.stopped = solver.problem.on_iteration(self.n_iter, worst)
            if worst <= tol:
                return found, True, worst
            better = hinge.minimum_towards(point, found, working)
            if better is None:
                break
            point = better
        if np.isinf(worst):  # not one step was left
            worst = hinge.distance(point)
        return point, False, worst

    def _finish(self, point: Point, worst: float, left_out: bool) -> HingeOutput:
        """Keep the solution, with what certifies it."""
        hinge, X, linear = self.hinge, self.solver.problem.X, self.linear_form
        if linear is not None:
            self.w = linear.w if self.form is linear else X.T @ point.beta
        residuals = self.form.left_out(hinge, self.C, point) if left_out else None
        if self.converged:  # coefficients of the wrong sign are rounding there
            point = replace(point, beta=np.where(hinge.y * point.beta > 0, point.beta, 0.0))
        self.point, feasible = point, hinge.feasible_dual(point.beta)
        product = self.solver.matrix.product(feasible) if linear is None else X @ (X.T @ feasible)
        return HingeOutput(hinge, point, feasible, product, worst, self.n_iter, residuals)


# ---------------------------------------------------------------------------- a reference


def solve_newton(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve for all outputs where the rows are; dense, 32 m^2 bytes."""
    needed = 4 * 8 * len(problem.weight) ** 2
    problem = problem.reserve(needed, "Newton's method on the kernel matrix", or_cg=False)
    K, outputs = gram(problem), []
    with problem.phases("solve"), limited_blas(K.shape[0]):
        for y in problem.Y.T:
            hinge = Hinge(y, C * problem.weight, problem.bias_penalty)
            point, worst = hinge.constant_point(), np.inf
            for n_iter in range(1, max_iter + 1):
                S = np.flatnonzero(hinge.errors(point) > 0)
                found = solve_by_factor(K, hinge, S) if len(S) else hinge.constant_point(point.b)
                solved = hinge.distance(found) <= tol
                better = found if solved else hinge.minimum_towards(point, found)
                point = better or point
                worst = hinge.distance(point)
                stop = problem.on_iteration is not None and problem.on_iteration(n_iter, worst)
                if worst <= tol or stop or better is None:
                    break
            feasible = hinge.feasible_dual(point.beta)
            product = times(K, feasible)
            outputs.append(HingeOutput(hinge, point, feasible, product, worst, n_iter))
    return joined_solution("newton", problem, C, outputs, tol)
