"""The LS-SVM by conjugate gradients on G = K + diag(1 / (C s)), preconditioned by a factor of K.

All right-hand sides [1, y_1, ..] go together, one kernel product per iteration, each with its own
step lengths. With F F' ~ K and D = diag(C s)^1/2 the preconditioner is
(F F' + D^-2)^-1 v = D (w - F_s (I + F_s'F_s)^-1 F_s'w),  w = D v,  F_s = D F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import gram as inner_products
from leansvm._array_api import like_rows, to_host
from leansvm._parallel import limited_blas
from leansvm.basis.cholesky import FactorRows, pivoted_cholesky
from leansvm.dual.kernel_matrix import KernelMatrix, StoredMatrix, gram, product_bytes, unstored
from leansvm.dual.problem import DualProblem, bias_and_coefficients, certified
from leansvm.ridge.kernel_factor import factor_bytes, factored
from leansvm.rows import Block, MemoryBlocks
from leansvm.solution import Solution

Array = NDArray[np.float64]
_GOOD_CONDITION = 10.0  # below it, a larger preconditioner costs more than the iterations it saves
_PIVOT_BATCH = 128
_STALL = 50  # iterations without progress after which CG gives up
_RESTARTS = 4
_ROUNDING = 1e-15  # smallest relative residual that a recursion can reach


def solve_cg(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve by preconditioned conjugate gradients; store the kernel matrix if it fits."""
    m, n_outputs = problem.Y.shape
    k = preconditioner_columns(m)
    stored = factor_bytes(m, n_outputs) + preconditioner_bytes(m, n_outputs, k)
    if problem.kernel.precomputed or not problem.fits(stored):
        product = product_bytes(problem)
        while k > 1 and not problem.fits(preconditioner_bytes(m, n_outputs, k) + product):
            k //= 2  # as good a preconditioner as fits
        needed = preconditioner_bytes(m, n_outputs, k) + product
        problem = problem.reserve(needed, "The CG preconditioner", or_cg=False)
        matrix = unstored(problem)
    else:
        problem = problem.reserve(stored, "The fit")
        matrix = StoredMatrix(gram(problem))
    solution = precondition_and_iterate(problem, matrix, C, k, tol=tol, max_iter=max_iter)
    assert solution is not None  # it was not told when to give up
    return solution


def preconditioner_columns(m: int) -> int:
    """Columns of the pivoted-Cholesky factor."""
    return min(m, int(10 * np.sqrt(m)))


def preconditioner_bytes(m: int, n_outputs: int, k: int) -> int:
    """Bytes of a preconditioner of k columns and of the iteration."""
    # the factor, a scaled copy of it, the new columns and rows of a round, CG's vectors
    rows = min(_PIVOT_BATCH, k, m)
    return 8 * (3 * m * k + 3 * k * k + rows * (m + 2 * rows) + 12 * m * (n_outputs + 1))


def precondition_and_iterate(
    problem: DualProblem, matrix: KernelMatrix, C: float, k: int, **options: Any
) -> Solution | None:
    """Make a preconditioner of at most k columns and run `conjugate_gradients`."""
    with problem.phases("precondition"):
        blocks = MemoryBlocks(matrix.X, columns=3 * k)
        # the preconditioned system's condition is at most 1 + C max(s) * (trace left over)
        enough = _GOOD_CONDITION / (C * float(problem.weight.max()))
        factor = pivoted_cholesky(
            blocks, matrix.kernel, k, trace_tol=enough, batch=min(_PIVOT_BATCH, k)
        )
        F = blocks.stack(_columns, len(factor.indices))
        precondition = Preconditioner(F, problem.weight, C)
        del blocks, F  # the preconditioner has a copy
    with problem.phases("solve"):
        return conjugate_gradients(problem, matrix, precondition, C, **options)


class Preconditioner:
    """Apply (F F' + diag(1 / (C s)))^-1, F being on the host or a device."""

    def __init__(self, F: Any, weight: Array, C: float) -> None:
        self._root = np.sqrt(C * weight)[:, None]
        self._F = F * like_rows(self._root, F)  # F_s
        self._inner = factored(inner_products(self._F), np.ones(F.shape[1]))

    def __call__(self, v: Array) -> Array:
        """Return the product with v."""
        w, F = self._root * v, self._F
        if not F.shape[1]:
            return np.asarray(self._root * w)
        with limited_blas():  # bound by memory; threads of BLAS would spin into the tiles
            inner = self._inner.solve(np.asarray(to_host(F.T @ like_rows(w, F))))
            return np.asarray(self._root * (w - to_host(F @ like_rows(inner, F))))


def _columns(block: Block, k: int) -> Any:
    return block.kept(FactorRows).P[:, :k]


def conjugate_gradients(
    problem: DualProblem,
    matrix: KernelMatrix,
    precondition: Callable[[Array], Array],
    C: float,
    *,
    tol: float,
    max_iter: int,
    give_up_after: float = np.inf,
) -> Solution | None:
    """Solve G [u, V] = [1, Y] to a relative residual of ``tol`` and put the bias together.

    Columns are done at half of ``tol``, since the bias adds the residuals of u and V.
    ``precondition`` maps v to M^-1 v. Returns None as soon as the iteration is expected to need
    more than ``give_up_after`` iterations.
    """
    run = _Iteration(problem, matrix, precondition, C, max_iter, give_up_after)
    aim, x = max(tol / 2, _ROUNDING), np.zeros_like(run.rhs)
    for _ in range(_RESTARTS):  # from the true residual, if the recursion lost it
        state = run.improve(x, aim)
        if state == "slow":
            return None
        b, beta = bias_and_coefficients(x, problem.bias_penalty)
        advice = (
            f"conjugate gradients stopped after {run.iterations} iterations at a relative residual "
            f"of {{residual}} (tol={tol:g}). Increase max_iter or tol, lower C, or use "
            f"solver='cholesky'."
        )
        found = certified(problem, C, "cg", beta, b, matrix.product(beta), tol, advice)
        if state != "done" or found.converged:
            break
        aim = max(0.5 * aim * tol / found.residual, _ROUNDING)
    return replace(found, iterations=run.iterations)


@dataclass
class _Iteration:
    """Conjugate gradients on many right-hand sides, each with its own step lengths."""

    problem: DualProblem
    matrix: KernelMatrix
    precondition: Callable[[Array], Array]
    C: float
    max_iter: int
    give_up_after: float
    iterations: int = 0

    def __post_init__(self) -> None:
        problem = self.problem
        self.rhs = np.hstack([np.ones((len(problem.Y), 1)), problem.Y])
        self.ridge = 1.0 / (self.C * problem.weight)[:, None]
        self.root = np.sqrt(problem.weight)[:, None]  # residuals count by the rows' weights

    def improve(self, x: Array, tol: float) -> str:
        """Iterate on ``x`` in place; return "done", "slow" (given up), "stopped" or "stalled"."""
        hook, norms = self.problem.on_iteration, np.linalg.norm(self.root * self.rhs, axis=0)
        r = self.rhs.copy()
        if self.iterations:
            r -= self.matrix.product(x) + self.ridge * x
        z = self.precondition(r)
        p, rz = z.copy(), np.sum(r * z, axis=0)
        best, best_at, best_x = np.inf, self.iterations, x.copy()
        active = np.flatnonzero(np.linalg.norm(self.root * r, axis=0) > tol * norms)
        active = active[norms[active] > 0]
        while len(active):
            if self.iterations >= self.max_iter or self.iterations - best_at >= _STALL:
                x[...] = best_x
                return "stalled"
            self.iterations += 1
            P = p[:, active]
            Gp = self.matrix.quick_product(P) + self.ridge * P
            curvature = np.sum(P * Gp, axis=0)
            if not np.all(curvature > 0):
                raise np.linalg.LinAlgError(f"no positive curvature in iteration {self.iterations}")
            step = rz[active] / curvature
            x[:, active] += step * P
            r[:, active] -= step * Gp
            relative = np.linalg.norm(self.root * r[:, active], axis=0) / norms[active]
            worst = float(relative.max())
            if worst < best:
                best, best_at, best_x = worst, self.iterations, x.copy()
            if hook is not None and hook(self.iterations, worst):
                return "stopped"
            active = active[relative > tol]
            if len(active):
                # iterations to reach tol at the rate seen so far
                rate = np.log(tol) / np.log(best) if best < 1 else np.inf
                if self.iterations >= 8 and self.iterations * rate > self.give_up_after:
                    return "slow"
                z = self.precondition(r[:, active])
                new = np.sum(r[:, active] * z, axis=0)
                p[:, active] = z + (new / rz[active]) * p[:, active]
                rz[active] = new
        return "done"
