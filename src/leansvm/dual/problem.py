"""The dual problem of one fit: its rows and byte budget, its equations, and what certifies it.

The LS-SVM's beta solves G beta + b = y with G = K + diag(1 / (C s)) and sum(beta) = A b; A = 0 is a
free bias, A = inf is none (zhou2016, (5), (6)). With u = G^-1 1 and V = G^-1 Y:

    b = 1'V / (A + 1'u),   beta = V - u b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import foreign_namespace, rows_at
from leansvm._phases import Phases
from leansvm.kernels import Kernel
from leansvm.linalg import tile_rows
from leansvm.rows import check_budget
from leansvm.solution import Solution

Array = NDArray[np.float64]

_WAY_OUT = (
    "Use SparseLSSVC / SparseLSSVR (a small basis, no m x m matrix), fewer rows, or a larger "
    "cache_size."
)
_OR_UNCALIBRATED = " calibrate=False (no probabilities) also needs less."
_OR_CG = (
    " With a fixed C you can also set solver='cg': it computes kernel values again when it needs "
    "them, which is slow, but takes little memory."
)


@dataclass(frozen=True)
class DualProblem:
    """Rows, kernel, targets and weights of one fit, with its byte budget and clock."""

    X: Any
    kernel: Kernel
    Y: Array  # one column per output
    weight: Array  # positive
    bias_penalty: float  # A: 0 is a free bias, inf is none
    budget: int
    phases: Phases
    on_iteration: Callable[[int, float], bool] | None = None
    rows: NDArray[np.intp] | None = None  # rows of X that count; None for all
    count: float | None = None  # samples that GCV counts; None for the sum of weights
    bytes: int = 0  # most that was reserved so far

    def fits(self, needed: int) -> bool:
        """Whether that many bytes are within the budget."""
        return needed + self._copied_bytes() <= self.budget

    def reserve(
        self, needed: int, what: str, *, or_cg: bool = True, left_out: bool = False
    ) -> DualProblem:
        """Return the problem on a copy of the rows that count, with these bytes reserved.

        Raises MemoryError when they exceed the budget; nothing has been allocated then.
        """
        needed += self._copied_bytes()
        way_out = _WAY_OUT + _OR_UNCALIBRATED * left_out + _OR_CG * or_cg
        check_budget(needed, self.budget, f"{what} of {len(self.weight):,} rows", way_out)
        X, rows = self.X, self.rows
        if rows is not None:
            X = X[np.ix_(rows, rows)] if self.kernel.precomputed else rows_at(X, rows)
        return replace(self, X=X, rows=None, bytes=max(self.bytes, needed))

    def _copied_bytes(self) -> int:
        """Bytes of the rows that a fit copies: those that count, and the support vectors."""
        X, copies = self.X, 1 if self.rows is None else 2
        if self.kernel.precomputed:
            return 0 if self.rows is None else len(self.weight) ** 2 * X.dtype.itemsize
        if foreign_namespace(X) is not None:
            return 8 * X.shape[0] * X.shape[1] * copies
        if sparse.issparse(X):
            return (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) * copies
        return X.nbytes * copies


def check_kernel_matrix(K: Any) -> None:
    """Refuse a precomputed kernel matrix that is not square or not symmetric."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"kernel='precomputed': fit needs a square kernel matrix between the training rows, "
            f"got shape {K.shape}."
        )
    check_symmetric(K, "kernel='precomputed': the kernel matrix")


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


# ---------------------------------------------------------------------------- equations


def bias_from(sum_u: float, sum_V: Any, bias_penalty: float) -> Any:
    """Return b = 1'V / (A + 1'u), u = G^-1 1 and V = G^-1 Y; zero without a bias (A = inf)."""
    return np.zeros_like(sum_V) if np.isinf(bias_penalty) else sum_V / (bias_penalty + sum_u)


def bias_and_coefficients(solved: Array, bias_penalty: float) -> tuple[Any, Array]:
    """Return b and beta = V - u b, given the columns [u, V] = G^-1 [1, Y]."""
    u, V = solved[:, :1], solved[:, 1:]
    b = bias_from(float(u.sum()), V.sum(axis=0), bias_penalty)
    return b, V - u * b


def bordered_inverse_diagonal(diagonal: Array, u: Array, bias_penalty: float) -> Array:
    """Return the diagonal of T = G^-1 - uu' / (A + 1'u), given that of G^-1 and u = G^-1 1."""
    if np.isinf(bias_penalty):
        return diagonal
    return np.asarray(diagonal - u**2 / (bias_penalty + u.sum()))


def certified(
    problem: DualProblem,
    C: float,
    solver: str,
    beta: Array,
    b: Array,
    product: Array,
    tol: float,
    advice: str,
    *,
    done: bool = True,
    **more: Any,
) -> Solution:
    """Return a solution with its objective, relative residual and gap, given K beta.

    The residual is that of r = Y - b - K beta - beta / (C s). Unless the solution is ``done`` to
    ``tol`` it bears the ``advice``, into which {residual} is put.
    """
    Y, A, s = problem.Y, problem.bias_penalty, problem.weight[:, None]
    errors = Y - b - product
    objective = 0.5 * float(np.sum(beta * product)) + 0.5 * C * float(np.sum(s * errors**2))
    if not np.isinf(A):
        objective += 0.5 * A * float(np.sum(b**2))
    scale = max(float(np.sum(s * Y**2)), np.finfo(np.float64).tiny)
    squares = float(np.sum(s * (errors - beta / (C * s)) ** 2))
    residual = float(np.sqrt(squares / scale))
    converged = done and residual <= tol
    more |= {"objective": objective, "residual": residual, "gap": 0.5 * C * squares}
    advice = "" if converged else advice.format(residual=f"{residual:.1e}")
    more |= {"converged": converged, "advice": advice, "bytes": problem.bytes}
    return Solution(solver, beta, b, C, **more)
