"""The dense dual problem: its kernel matrix within a byte budget, and which solver takes it.

`solve_auto` prefers the Cholesky factorisation (m^3 / 3 flops at GEMM speed) unless sequential
updates (where the kernel is close to diagonal) or conjugate gradients, watched for a few
iterations, are on the way to be cheaper (32 m^2 an iteration: a kernel product with few
columns is bound by memory, 32 flops' worth of time an entry).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import (
    empty,
    foreign_namespace,
    in_float64,
    like_rows,
    namespace,
    rows_at,
    to_host,
)
from leansvm._parallel import blas_threads
from leansvm.blocks import Block, MemoryBlocks, check_budget, declare
from leansvm.blocks._memory import tile_rows_for
from leansvm.cholesky import pivoted_cholesky
from leansvm.kernels import Kernel
from leansvm.linalg import CHOLESKY_TILE, LAPACK_SAFE_ROWS, tile_rows
from leansvm.solvers._cg import Preconditioner, conjugate_gradients
from leansvm.solvers._dual import DIRECT_TOL, DualSolution, certify, solve_cholesky
from leansvm.solvers._spectral import solve_for_every_C

Array = NDArray[np.float64]

FEW_ROWS = 4000  # below, a factorisation takes a fraction of a second
_MANY_ROWS = 12_000  # above, a second iterative solver may be tried too
_ENTRY_FLOPS = 32
_GOOD_CONDITION = 10.0  # a larger factor would cost more than the iterations it saves
_WAY_OUT = (
    "Use SparseLSSVC / SparseLSSVR (a small basis, no m x m matrix), fewer rows, or a larger "
    "cache_size."
)
_OR_CG = (
    " With a fixed C, solver='cg' recomputes kernel rows instead of keeping them: slow, but small."
)
_PIVOT_BATCH = 128
_PRODUCT_ROWS = 256  # tile of a kernel matrix that is not kept


@dataclass
class DualProblem:
    """Rows, kernel, targets and weights of one fit, with its byte budget and clock."""

    X: Any
    kernel: Kernel
    Y: Array
    weight: Array  # positive
    bias_penalty: float
    budget: int
    phases: Callable[[str], AbstractContextManager[None]]
    on_iteration: Callable[[int, float], bool] | None = None
    rows: NDArray[np.intp] | None = None  # rows of X that count; None for all
    count: float | None = None  # samples that GCV counts; None for the sum of weights
    bytes: int = 0  # what was planned, the report's figure

    @property
    def m(self) -> int:
        """Number of rows."""
        return len(self.weight)

    @property
    def kernel_eps(self) -> float:
        """Relative rounding of the kernel values: a given matrix may be float32."""
        dtype = self.X.dtype if self.kernel.precomputed else np.float64
        return float(np.finfo(dtype).eps)

    def reserve(self, needed: int, what: str, *, or_cg: bool = True) -> None:
        """Refuse what does not fit the budget, before anything is allocated; take the rows."""
        needed += self._copied_bytes()
        way_out = _WAY_OUT + _OR_CG * or_cg
        check_budget(needed, self.budget, f"{what} of {self.m:,} rows", way_out)
        self.bytes = max(self.bytes, needed)
        if self.rows is not None:
            pairwise = self.kernel.precomputed
            rows = self.rows
            self.X = self.X[np.ix_(rows, rows)] if pairwise else rows_at(self.X, rows)
            self.rows = None

    def fits(self, needed: int) -> bool:
        """Whether that many bytes are within the budget."""
        return needed + self._copied_bytes() <= self.budget

    def _copied_bytes(self) -> int:
        """Bytes of the rows that a fit copies: those that count, and the support vectors."""
        if self.kernel.precomputed:
            return 0 if self.rows is None else self.m**2 * self.X.dtype.itemsize
        if self.on_device:
            return 8 * self.X.shape[0] * self.X.shape[1] * (1 if self.rows is None else 2)
        parts = [self.X]
        if sparse.issparse(self.X):
            parts = [self.X.data, self.X.indices, self.X.indptr]
        return sum(part.nbytes for part in parts) * (1 if self.rows is None else 2)

    @property
    def on_device(self) -> bool:
        """Whether rows, and so the kernel matrix, belong to another array library."""
        return foreign_namespace(self.X) is not None

    def gram(self) -> Any:
        """Return a fresh kernel matrix of all rows in float64, where they are."""
        with self.phases("gram"):
            if self.on_device:
                return self._gram_on_device()
            K = np.empty((self.m, self.m))
            if self.kernel.precomputed:
                np.copyto(K, self.X)
                return K
            self.kernel.block(self.X, self.X, out=K)
            check_kernel_values(K, self.kernel)
            return K

    def _gram_on_device(self) -> Any:
        X = in_float64(self.X)
        K = empty((self.m, self.m), X)
        tile = tile_rows_for(8 * 4 * self.m, X)
        for start in range(0, self.m, tile):
            stop = min(start + tile, self.m)
            K[start:stop, :] = self.kernel.block(X[start:stop, :], X)
        check_kernel_values(K, self.kernel)
        return K

    def product(self, V: Array) -> Array:
        """Return K V with kernel values computed by tiles of rows and thrown away."""
        if self.kernel.precomputed:
            return _times(self.X, V)
        blocks = MemoryBlocks(self.X, tile_rows=self._product_rows())
        return blocks.concatenate(_kernel_times, self.kernel, self.X, V)

    def product_bytes(self) -> int:
        """Bytes of the tiles that `product` works on at a time."""
        if self.kernel.precomputed:
            return 0
        threads = 1 if self.on_device else blas_threads()
        return 8 * threads * self._product_rows() * (self.m + self.X.shape[1])

    def _product_rows(self) -> int:
        if self.on_device:
            return min(self.m, tile_rows_for(8 * 2 * (self.m + self.X.shape[1]), self.X))
        most = min(_PRODUCT_ROWS, tile_rows_for(8 * (self.m + self.X.shape[1])))
        return max(1, min(most, self.m // 16))

    def certified(self, solution: DualSolution, C: float) -> DualSolution:
        """Fill in the residual and gap of a solution whose kernel matrix is gone."""
        with self.phases("certificate"):
            product = self.product(solution.beta)
            found = certify(
                product, solution.beta, solution.b, self.Y, self.weight, C, self.bias_penalty
            )
        solution.objective, solution.residual, solution.gap = (
            found.objective,
            found.residual,
            found.gap,
        )
        solution.converged = solution.residual <= DIRECT_TOL
        return solution


def check_kernel_values(K: Any, kernel: Kernel, rows: NDArray[np.intp] | None = None) -> None:
    """Refuse kernel values that are not finite, or not symmetric where a user wrote them.

    K holds the given rows of the kernel matrix, None for all of them.
    """
    if callable(kernel.name):
        check_symmetric(to_host(K) if rows is None else K[:, rows], "the callable kernel")
    elif kernel.name in ("linear", "poly", "sigmoid") and not np.isfinite(
        float(namespace(K).sum(K))
    ):
        raise ValueError(
            f"kernel={kernel.name!r} gives values that are not finite: scale X, or change gamma, "
            f"degree or coef0."
        )


def check_symmetric(K: NDArray[Any], what: str) -> None:
    """Refuse a kernel matrix that is not symmetric beyond rounding."""
    tile = tile_rows(len(K))
    largest = float(np.abs(K.diagonal()).max(initial=0.0))
    for start in range(0, K.shape[0], tile):
        rows = slice(start, start + tile)
        worst = float(np.abs(K[rows] - K[:, rows].T).max(initial=0.0))
        if worst > 1e-6 * max(largest, float(np.abs(K[rows]).max(initial=0.0))):
            raise ValueError(
                f"{what} is not symmetric: entries (i, j) and (j, i) differ by {worst:.2g}."
            )


@declare("X")
def _kernel_times(block: Block, kernel: Kernel, points: Any, V: Array) -> Array:
    values = kernel.block(in_float64(block.X), in_float64(points), dtype=np.float64)
    return np.asarray(to_host(values @ like_rows(V, values)))


def _times(K: Any, V: Array) -> Array:
    """Multiply symmetric K by V as (V'K)', where BLAS reads K's rows once."""
    if foreign_namespace(K) is not None:
        return np.asarray(to_host(K @ like_rows(V, K)))
    Vt = np.ascontiguousarray(V.T)
    if K.dtype == np.float64:
        return np.ascontiguousarray((Vt @ K).T)
    total = np.zeros(Vt.shape)
    for start in range(0, len(K), _PRODUCT_ROWS):  # a float32 matrix, by tiles in float64
        rows = slice(start, start + _PRODUCT_ROWS)
        total += Vt[:, rows] @ K[rows].astype(np.float64)
    return np.ascontiguousarray(total.T)


def factor_bytes(m: int, n_outputs: int, *, loo: bool = False, on_device: bool = False) -> int:
    """Bytes of the kernel matrix, factored in place, with its work space.

    On a device the factor has memory of its own.
    """
    if on_device:
        return 8 * (2 * m * m + 6 * m * (n_outputs + 1) + 3 * loo * m * min(2048, m))
    panels = int(m > LAPACK_SAFE_ROWS) + 3 * int(loo)
    return 8 * (m * m + panels * m * min(CHOLESKY_TILE, m) + 6 * m * (n_outputs + 1))


def solve_exact(problem: DualProblem, C: float, *, loo: bool = False) -> DualSolution:
    """Solve by a Cholesky factorisation in place."""
    needed = factor_bytes(problem.m, problem.Y.shape[1], loo=loo, on_device=problem.on_device)
    problem.reserve(needed, "The kernel matrix")
    return _factor(problem, problem.gram(), C, loo=loo)


def _factor(problem: DualProblem, K: Any, C: float, *, loo: bool = False) -> DualSolution:
    with problem.phases("solve"):
        return solve_cholesky(K, problem.Y, problem.weight, C, problem.bias_penalty, loo=loo)


def solve_every(
    problem: DualProblem, candidates: Array, criterion: str
) -> tuple[float, Array, DualSolution]:
    """Choose C among the candidates by one eigen-decomposition; return C, curve, solution."""
    m, n_outputs = problem.Y.shape
    work = 8 * m * (len(candidates) * (n_outputs + 3) + 8 * n_outputs + 2 * 512)
    needed = 3 * 8 * m * m + max(work, problem.product_bytes())
    problem.reserve(needed, "The eigen-decomposition of the kernel matrix")
    K = problem.gram()
    with problem.phases("solve"):
        every = solve_for_every_C(
            K,
            problem.Y,
            problem.weight,
            candidates,
            problem.bias_penalty,
            criterion,
            count=problem.count,
            eps=problem.kernel_eps,
        )
    C = float(candidates[every.best])
    return C, every.curve, problem.certified(every.solution, C)


def solve_cg(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> DualSolution:
    """Solve by preconditioned conjugate gradients; store the kernel matrix if it fits."""
    n_outputs = problem.Y.shape[1]
    k = _preconditioner_columns(problem.m)
    stored = factor_bytes(problem.m, n_outputs) + _preconditioner_bytes(problem.m, n_outputs, k)
    if problem.kernel.precomputed or not problem.fits(stored):
        while True:  # as good a preconditioner as fits
            needed = _preconditioner_bytes(problem.m, n_outputs, k) + problem.product_bytes()
            if problem.fits(needed) or k == 1:
                break
            k = max(1, k // 2)
        problem.reserve(needed, "The CG preconditioner", or_cg=False)
        solution = _iterate(problem, None, C, k, tol=tol, max_iter=max_iter)
    else:
        problem.reserve(stored, "The kernel matrix")
        solution = _iterate(problem, problem.gram(), C, k, tol=tol, max_iter=max_iter)
    assert solution is not None  # nothing to give up for
    return solution


def solve_auto(
    problem: DualProblem, C: float, *, tol: float, max_iter: int
) -> tuple[str, DualSolution]:
    """Solve by whichever is expected to be the fastest; return its name too."""
    from leansvm.solvers._sequential import try_smo

    m, n_outputs = problem.Y.shape
    if m < FEW_ROWS:
        return "cholesky", solve_exact(problem, C)
    needed = factor_bytes(m, n_outputs, on_device=problem.on_device)
    k = _preconditioner_columns(m)
    with_cg = needed + _preconditioner_bytes(m, n_outputs, k)
    fits = problem.fits(needed)
    if fits:
        problem.reserve(with_cg if problem.fits(with_cg) else needed, "The kernel matrix")
    K = problem.gram() if fits else None
    tried, solution = False, None
    if not problem.on_device:  # sequential updates are for the host
        tried, solution = try_smo(problem, C, K, tol=tol, max_iter=max_iter)
    if solution is not None:
        return "smo", solution
    if K is None:
        return "cholesky", solve_exact(problem, C)  # which says how much memory it needs
    # where sequential updates are slow so is CG, and trying it takes a share of a factorisation
    if not problem.fits(with_cg) or (tried and m < _MANY_ROWS):
        return "cholesky", _factor(problem, K, C)
    affordable = int(m / 3 / max(2 * (n_outputs + 1), _ENTRY_FLOPS))
    solution = _iterate(problem, K, C, k, tol=tol, max_iter=max_iter, give_up_after=affordable)
    if solution is not None:
        return "cg", solution
    return "cholesky", _factor(problem, K, C)


def _preconditioner_columns(m: int) -> int:
    return min(m, int(10 * np.sqrt(m)))


def _preconditioner_bytes(m: int, n_outputs: int, k: int) -> int:
    # the factor, a scaled copy of a tile of it, the new columns and rows of a round, CG's vectors
    rows = min(_PIVOT_BATCH, k, m)
    return 8 * (3 * m * k + 3 * k * k + rows * (m + 2 * rows) + 12 * m * (n_outputs + 1))


def _iterate(
    problem: DualProblem,
    K: Any,
    C: float,
    k: int,
    *,
    tol: float,
    max_iter: int,
    give_up_after: int | None = None,
) -> DualSolution | None:
    with problem.phases("precondition"):
        if K is None:
            kernel, blocks = problem.kernel, MemoryBlocks(problem.X, columns=3 * k)
        else:  # columns come from the stored matrix
            kernel, blocks = Kernel("precomputed"), MemoryBlocks(K, columns=3 * k)
        # the preconditioned system's condition is at most 1 + C max(s) * (trace left over)
        enough = _GOOD_CONDITION / (C * float(problem.weight.max()))
        factor = pivoted_cholesky(blocks, kernel, k, trace_tol=enough, batch=min(_PIVOT_BATCH, k))
        precondition = Preconditioner(blocks, factor, problem.weight, C)
    with problem.phases("solve"):
        return conjugate_gradients(
            problem.product if K is None else lambda V: _times(K, V),
            precondition,
            problem.Y,
            problem.weight,
            C,
            problem.bias_penalty,
            tol=tol,
            max_iter=max_iter,
            give_up_after=give_up_after,
            on_iteration=problem.on_iteration,
        )
