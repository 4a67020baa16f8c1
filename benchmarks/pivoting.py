"""Greedy pivoted Cholesky by blocks against one pivot at a time: same pivots, GEMM speed."""

from typing import Any

import numpy as np

from ._harness import Options, Report, ratio, time_interleaved

GAMMA = 0.1


def run(options: Options) -> Report:
    """Time both on random rows and compare the pivots."""
    n_rows, n_basis = options.pick((100_000, 500), (3_000, 50))
    X = np.random.default_rng(0).normal(size=(n_rows, 10))
    report = Report("pivoting", f"{n_rows} x 10, {n_basis} pivots", options)
    candidates = {"naive": lambda: _naive(X, n_basis), "blocked": lambda: _blocked(X, n_basis)}
    seconds = time_interleaved(candidates, repeats=options.pick(3, 1), warmup=0, keep=np.array)
    report.add_timings("select", seconds)
    for name, timing in seconds.items():
        relative = ratio(seconds["naive"], timing)
        report.rows.append(
            {"algorithm": name, "seconds": f"{timing:.2f}", "naive / this": f"{relative:.1f}"}
        )
    report.at_least("naive / blocked", ratio(seconds["naive"], seconds["blocked"]).median, 3.0)
    same = np.array_equal(seconds["naive"].kept[0], seconds["blocked"].kept[0])
    report.equals("same pivots", str(same), "True")
    return report


def _blocked(X: np.ndarray, n_basis: int) -> np.ndarray:
    from leansvm.basis import PivotedCholesky
    from leansvm.kernels import Kernel
    from leansvm.rows import MemoryBlocks

    selector = PivotedCholesky()
    blocks = MemoryBlocks(X, columns=selector.state_columns(n_basis))
    return selector.select(blocks, Kernel("rbf", gamma=GAMMA), n_basis).indices


def _naive(X: np.ndarray, n_basis: int) -> np.ndarray:
    """zhou2016, Algorithm 1: one pivot, one kernel column, one matrix-vector product per step.

    Residuals are compared as the blocked form does: rounded, ties to the lowest row.
    """
    from leansvm.kernels import Kernel

    kernel: Any = Kernel("rbf", gamma=GAMMA)
    D = np.ones(len(X))
    P = np.empty((len(X), n_basis), order="F")
    pivots = np.empty(n_basis, np.intp)
    for k in range(n_basis):
        t = int(np.argmax(np.rint(D * 2.0**36)))
        column = kernel.block(X, X[t : t + 1])[:, 0]
        column -= P[:, :k] @ P[t, :k]
        column /= np.sqrt(D[t])
        P[:, k] = column
        D = np.maximum(D - column**2, 0.0)
        pivots[k] = t
        D[pivots[: k + 1]] = 0.0
    return pivots
