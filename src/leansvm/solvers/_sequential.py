"""Sequential roads to the dual LS-SVM: rows within the budget, every output, a certificate.

`try_smo` is for solver="auto": it starts 2SMO where a sample of rows says that the kernel is
close to diagonal, and gives up as soon as its progress says that it will not be the fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._dual import DualSolution, certify
from leansvm.solvers._problem import DualProblem, _times
from leansvm.solvers._rows import CachedRows, KernelRows, MatrixRows
from leansvm.solvers.penalty_flow import penalty_flow
from leansvm.solvers.smo import BLOCK, Quadratic, State, minimise
from leansvm.solvers.substitution import substitution
from leansvm.solvers.sumt import sumt

Array = NDArray[np.float64]

FREE_BIAS_ONLY = ("sumt", "substitution", "penalty-flow")
_SAMPLE = 64
_MOST_OVERLAP = 8.0  # beyond, conjugate gradients or a factorisation win
_SWEEP_FLOPS = 43  # time of a kernel entry in a sweep, in flops of a factorisation (measured)
_FEWEST_SWEEPS = 10
_MOST_SWEEPS = 40
_VECTORS = 24  # of length m that a solver works with


class SequentialRows:
    """Kernel rows of a problem: its matrix if that fits, else a cache of what is left."""

    def __init__(self, problem: DualProblem, *, matrix: NDArray[Any] | None = None) -> None:
        self.problem = problem
        m = problem.m
        vectors = _vector_bytes(problem)
        if matrix is not None:
            self.rows: KernelRows = MatrixRows(matrix)
        elif problem.kernel.precomputed:
            problem.reserve(vectors, "A sequential solver", or_cg=False)
            self.rows = MatrixRows(problem.X)
        elif problem.fits(8 * m * m + vectors):
            problem.reserve(8 * m * m + vectors, "The kernel matrix")
            self.rows = MatrixRows(problem.gram())
        else:
            problem.reserve(_least_bytes(problem), "A cache of kernel rows", or_cg=False)
            left = problem.budget - problem.bytes
            problem.bytes = problem.budget
            self.rows = CachedRows(problem.X, problem.kernel, 8 * m * BLOCK + left)

    def product(self, V: Array) -> Array:
        """Return K V."""
        if isinstance(self.rows, MatrixRows):
            return _times(self.rows.matrix, V)
        return self.problem.product(V)


def _vector_bytes(problem: DualProblem) -> int:
    return 8 * problem.m * (_VECTORS + 4 * problem.Y.shape[1])


def _least_bytes(problem: DualProblem) -> int:
    """Bytes without which rows cannot be computed: a batch, its slots, and a copy of X."""
    work = 8 * problem.m * (2 * BLOCK + problem.X.shape[1] + 2)
    return _vector_bytes(problem) + work + problem.product_bytes()


def solve_sequential(
    problem: DualProblem, C: float, method: str, *, tol: float, max_iter: int
) -> DualSolution:
    """Solve by "smo", "sumt", "substitution" or "penalty-flow"."""
    source = SequentialRows(problem)
    solution = run_sequential(source, C, method, tol=tol, max_iter=max_iter)
    assert solution is not None  # nothing to give up for
    return solution


def run_sequential(
    source: SequentialRows,
    C: float,
    method: str,
    *,
    tol: float,
    max_iter: int,
    give_up_after: float | None = None,
) -> DualSolution | None:
    """Solve every output and certify; None where an output was given up."""
    problem, details = source.problem, dict[str, Any]()
    with problem.phases("solve"):
        if method == "penalty-flow":
            flow = penalty_flow(
                source.product,
                source.rows.diag,
                problem.Y,
                1.0 / (C * problem.weight),
                problem.weight,
                tol=tol,
                max_iter=max_iter,
                on_iteration=problem.on_iteration,
            )
            beta, b, product = flow.beta, flow.b, flow.product
            sweeps, done = flow.iterations, flow.converged
        else:
            states = _each_output(source, C, method, tol, max_iter, give_up_after, details)
            if states is None:
                return None
            beta = np.stack([state.beta for state, _ in states], axis=1)
            b = np.array([bias for _, bias in states])
            sweeps = max(state.sweeps for state, _ in states)
            done = all(state.status == "done" for state, _ in states)
            product = source.product(beta)
    found = certify(product, beta, b, problem.Y, problem.weight, C, problem.bias_penalty)
    details["violation"] = float(np.abs(found.r).max())
    if isinstance(source.rows, CachedRows):
        details["cached_rows"] = source.rows.n_slots
        details["computed_rows"] = source.rows.misses
    return DualSolution(
        beta,
        b,
        found.objective,
        found.residual,
        found.gap,
        n_iter=sweeps,
        converged=done and found.residual <= tol,
        details=details,
    )


def _each_output(
    source: SequentialRows,
    C: float,
    method: str,
    tol: float,
    max_iter: int,
    give_up_after: float | None,
    details: dict[str, Any],
) -> list[tuple[State, float]] | None:
    problem, rows = source.problem, source.rows
    ridge = 1.0 / (C * problem.weight)
    free = problem.bias_penalty == 0
    row_sums = None
    if free and method in ("smo", "substitution"):
        row_sums = source.product(np.ones((problem.m, 1)))[:, 0]
    options: dict[str, Any] = {
        "tol": tol / 2,  # the certificate adds rounding
        "max_sweeps": max_iter,
        "on_sweep": problem.on_iteration,
    }
    if give_up_after is not None:
        options["give_up_after"] = give_up_after
    states = []
    for y in np.ascontiguousarray(problem.Y.T):
        quadratic = Quadratic(y, ridge, problem.weight)
        if method == "sumt":
            state, b, path = sumt(rows, quadratic, **options)
            details.setdefault("path", []).append([vars(step) for step in path])
        elif row_sums is not None:
            state, b = substitution(rows, quadratic, row_sums, **options)
        else:
            quadratic.c = 1.0 / problem.bias_penalty
            state = minimise(rows, quadratic, **options)
            b = quadratic.c * float(state.beta.sum())
        if state.status == "slow":
            return None
        states.append((state, b))
    return states


def try_smo(
    problem: DualProblem, C: float, matrix: Array | None, *, tol: float, max_iter: int
) -> DualSolution | None:
    """Solve by 2SMO if that promises to be the fastest way, else return None.

    ``matrix`` is the kernel matrix, None where it does not fit.
    """
    m, n_outputs = problem.Y.shape
    affordable = m / _SWEEP_FLOPS / 3 / n_outputs  # sweeps in the time of a factorisation
    if affordable < _FEWEST_SWEEPS or _overlap(problem, C, matrix) > _MOST_OVERLAP:
        return None
    if matrix is None and not problem.fits(_least_bytes(problem)):
        return None
    source = SequentialRows(problem, matrix=matrix)
    give_up = min(affordable, _MOST_SWEEPS)
    return run_sequential(source, C, "smo", tol=tol, max_iter=max_iter, give_up_after=give_up)


def _overlap(problem: DualProblem, C: float, matrix: Array | None) -> float:
    """Return the mean over sampled rows of sum_j |K_ij| / (K_ii + 1 / (C s_i)).

    1 or less for a diagonal matrix; about the largest eigenvalue of the scaled system, and so
    the number of rows that an update of one multiplier disturbs.
    """
    sample = np.linspace(0, problem.m - 1, min(_SAMPLE, problem.m)).astype(np.intp)
    if matrix is not None:
        rows = matrix[sample]
    elif problem.kernel.precomputed:
        rows = problem.X[sample] if problem.rows is None else np.full((1, 1), np.inf)
    else:
        X = problem.X if problem.rows is None else problem.X[problem.rows]
        rows = problem.kernel.block(X[sample], X, dtype=np.float64)
    diag = rows[np.arange(len(sample)), sample]
    return float(np.mean(np.abs(rows).sum(axis=1) / (diag + 1.0 / (C * problem.weight[sample]))))
