"""Sequential roads to the dual LS-SVM: rows within the budget, every output, a certificate.

`try_smo` is for solver="auto": it starts 2SMO unless a sample of rows says that the kernel is
smooth, and gives up as soon as its progress says that a factorisation will be faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._dual import DualSolution, certify
from leansvm.solvers._problem import DualProblem
from leansvm.solvers._rows import BLOCK, CachedRows, KernelRows, MatrixRows
from leansvm.solvers.penalty_flow import penalty_flow
from leansvm.solvers.smo import Quadratic, State, minimise
from leansvm.solvers.substitution import substitution
from leansvm.solvers.sumt import sumt

Array = NDArray[np.float64]

FREE_BIAS_ONLY = ("sumt", "substitution", "penalty-flow")
_SAMPLE_ROWS, _SAMPLE_COLUMNS = 64, 2048
# rows that a row overlaps with, beyond which conjugate gradients are tried first (measured): a
# share of all, and a number where rows are computed anew in every sweep
_MOST_OVERLAP, _MOST_OVERLAP_UNSTORED = 0.05, 50.0
_SWEEP_FLOPS = 60  # time of a kernel entry in a sweep, in flops of a factorisation (measured)
_FEWEST_SWEEPS, _MOST_SWEEPS = 10, 100
_MOST_ROWS_UNSTORED = 200_000  # a sweep that computes its rows takes minutes there
_VECTORS = 36  # of length m that a solver works with, and 16 an output (penalty flow)


def open_rows(problem: DualProblem) -> KernelRows:
    """Return the kernel matrix of a problem if it fits, else a cache of its rows."""
    m, vectors = problem.m, _vector_bytes(problem)
    if problem.kernel.precomputed:
        problem.reserve(vectors, "A sequential solver", or_cg=False)
        return MatrixRows(problem.X)
    if problem.fits(8 * m * m + vectors):
        problem.reserve(8 * m * m + vectors, "The kernel matrix")
        return MatrixRows(problem.gram())
    problem.reserve(_least_bytes(problem), "A cache of kernel rows", or_cg=False)
    room = 16 * m * min(BLOCK, m) + problem.budget - problem.bytes
    problem.bytes = problem.budget
    return CachedRows(problem.X, problem.kernel, room)


def _vector_bytes(problem: DualProblem) -> int:
    return 8 * problem.m * (_VECTORS + 16 * problem.Y.shape[1])


def _least_bytes(problem: DualProblem) -> int:
    """Bytes without which rows cannot be computed: a batch, its slots, and a copy of X."""
    work = 8 * problem.m * (2 * min(BLOCK, problem.m) + problem.X.shape[1] + 2)
    return _vector_bytes(problem) + work


def solve_sequential(
    problem: DualProblem, C: float, method: str, *, tol: float, max_iter: int
) -> DualSolution:
    """Solve by "smo", "sumt", "substitution" or "penalty-flow"."""
    solution = run_sequential(problem, open_rows(problem), C, method, tol=tol, max_iter=max_iter)
    assert solution is not None  # nothing to give up for
    return solution


def run_sequential(
    problem: DualProblem,
    rows: KernelRows,
    C: float,
    method: str,
    *,
    tol: float,
    max_iter: int,
    give_up_after: float | None = None,
) -> DualSolution | None:
    """Solve every output and certify; None where an output was given up."""
    details = dict[str, Any]()
    with problem.phases("solve"):
        if method == "penalty-flow":
            flow = penalty_flow(
                rows.product,
                rows.diag,
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
            states = _each_output(problem, rows, C, method, tol, max_iter, give_up_after, details)
            if states is None:
                return None
            beta = np.stack([state.beta for state, _ in states], axis=1)
            b = np.array([bias for _, bias in states])
            sweeps = max(state.sweeps for state, _ in states)
            done = all(state.status == "done" for state, _ in states)
            product = rows.product(beta)
    found = certify(product, beta, b, problem.Y, problem.weight, C, problem.bias_penalty)
    details["violation"] = float(np.abs(found.r).max())
    if isinstance(rows, CachedRows):
        details["cached_rows"] = rows.n_slots
        details["computed_rows"] = rows.misses
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
    problem: DualProblem,
    rows: KernelRows,
    C: float,
    method: str,
    tol: float,
    max_iter: int,
    give_up_after: float | None,
    details: dict[str, Any],
) -> list[tuple[State, float]] | None:
    ridge = 1.0 / (C * problem.weight)
    free = problem.bias_penalty == 0
    row_sums = None
    if free and method in ("smo", "substitution"):
        row_sums = rows.product(np.ones((problem.m, 1)))[:, 0]
    options: dict[str, Any] = {
        "tol": 0.9 * tol,  # the certificate adds rounding
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
) -> tuple[bool, DualSolution | None]:
    """Solve by 2SMO where that promises to be the fastest way.

    ``matrix`` is the kernel matrix, None where it does not fit. Return whether it was tried,
    and the solution unless it was given up.
    """
    give_up = affordable_sweeps(problem, C, stored=matrix is not None, matrix=matrix)
    if give_up is None:
        return False, None
    rows = open_rows(problem) if matrix is None else MatrixRows(matrix)
    return True, run_sequential(
        problem, rows, C, "smo", tol=tol, max_iter=max_iter, give_up_after=give_up
    )


def affordable_sweeps(
    problem: DualProblem, C: float, *, stored: bool, matrix: Array | None = None
) -> float | None:
    """Return the sweeps in the time of a factorisation; None where updates had best not start."""
    m, n_outputs = problem.Y.shape
    if not stored and (m > _MOST_ROWS_UNSTORED or not problem.fits(_least_bytes(problem))):
        return None
    affordable = m / _SWEEP_FLOPS / 3 / n_outputs
    most = _MOST_OVERLAP * m if stored else _MOST_OVERLAP_UNSTORED
    if affordable < _FEWEST_SWEEPS or _overlap(problem, C, matrix) > most:
        return None
    return min(affordable, _MOST_SWEEPS)


def _overlap(problem: DualProblem, C: float, matrix: Array | None) -> float:
    """Estimate the mean over rows of sum_j |K_ij| / (K_ii + 1 / (C s_i)) from a sample.

    1 or less for a diagonal matrix; about the largest eigenvalue of the scaled system, and so
    the number of rows that an update of one multiplier disturbs.
    """
    m = problem.m
    columns = np.random.default_rng(0).permutation(m)[:_SAMPLE_COLUMNS]
    n = min(_SAMPLE_ROWS, m)
    if matrix is None:
        K = kernel_between(problem, columns[:n], columns)
    else:
        K = matrix[np.ix_(columns[:n], columns)]
    diag = K.diagonal()
    others = np.abs(K).sum(axis=1) - np.abs(diag)
    others *= (m - 1) / max(len(columns) - 1, 1)
    scale = diag + 1.0 / (C * problem.weight[columns[:n]])
    return float(np.mean((np.abs(diag) + others) / scale))


def kernel_between(problem: DualProblem, a: NDArray[np.intp], b: NDArray[np.intp]) -> Array:
    """Return the kernel values between rows of a problem."""
    if problem.rows is not None:
        a, b = problem.rows[a], problem.rows[b]
    if problem.kernel.precomputed:
        return np.asarray(problem.X[np.ix_(a, b)], dtype=np.float64)
    return np.asarray(problem.kernel.block(problem.X[a], problem.X[b], dtype=np.float64))
