"""The LS-SVM in its dual, in closed form (zhou2016, eqs. (5), (6)).

With G = K + diag(1 / (C s)) = L L', u = G^-1 1, V = G^-1 Y:

    b = 1'V / (A + 1'u),   beta = V - u b         A = 0: free bias, A = inf: none.

Leaving row i out changes its residual to beta_i / T_ii with T = G^-1 - uu' / (A + 1'u).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import add_to_diagonal, cholesky_lower, solve_lower
from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host, zeros
from leansvm._parallel import blas_for
from leansvm.linalg import (
    CHOLESKY_TILE,
    LAPACK_SAFE_ROWS,
    cholesky_in_place,
    cholesky_solve,
    inverse_diagonal,
    symmetric_matmul,
)
from leansvm.solvers._least_squares import DIRECT_TOL, bias_from, certify, direct_advice
from leansvm.solvers.kernel_matrix import gram
from leansvm.solvers.problem import DualProblem
from leansvm.solvers.solution import Solution

Array = NDArray[np.float64]
_PANEL = 2048  # columns of G^-1 at a time


def solve_cholesky(problem: DualProblem, C: float, *, left_out: bool = False) -> Solution:
    """Factor the kernel matrix in place; ``left_out`` asks for the left-out residuals too."""
    on_device = foreign_namespace(problem.X) is not None
    needed = factor_bytes(*problem.Y.shape, left_out=left_out, on_device=on_device)
    problem.reserve(needed, "The kernel matrix")
    return factor_and_solve(problem, gram(problem), C, left_out=left_out)


def factor_and_solve(problem: DualProblem, K: Any, C: float, *, left_out: bool = False) -> Solution:
    """Solve a problem whose kernel matrix is there; ``K`` is overwritten."""
    with problem.phases("solve"), blas_for(len(problem.Y)):
        return closed_form(K, problem.Y, problem.weight, C, problem.bias_penalty, left_out=left_out)


def factor_bytes(m: int, n_outputs: int, *, left_out: bool = False, on_device: bool = False) -> int:
    """Bytes of the kernel matrix, factored in place, with its work space.

    On a device the factor has memory of its own.
    """
    if on_device:
        return 8 * (2 * m * m + 6 * m * (n_outputs + 1) + 3 * left_out * m * min(_PANEL, m))
    panels = int(m > LAPACK_SAFE_ROWS) + 3 * int(left_out)
    return 8 * (m * m + panels * m * min(CHOLESKY_TILE, m) + 6 * m * (n_outputs + 1))


def closed_form(
    K: Any, Y: Array, weight: Array, C: float, bias_penalty: float, *, left_out: bool = False
) -> Solution:
    """Solve for all outputs with one factorisation; ``K`` is overwritten.

    Parameters
    ----------
    K : array of shape (m, m)
        Kernel matrix, C-contiguous, on the host or on a device.
    Y : ndarray of shape (m, n_outputs)
        Targets.
    weight : ndarray of shape (m,)
        Positive sample weights s.
    C, bias_penalty : float
        Regularisation; penalty A of the bias, 0 for a free one and inf for none.
    left_out : bool
        Also compute the left-out residuals (twice the flops).

    Raises
    ------
    numpy.linalg.LinAlgError
        When G is not positive definite.
    """
    factor = factored(K, 1.0 / (C * weight))
    solved = factor.solve(np.hstack([np.ones((len(Y), 1)), Y]))
    u, V = solved[:, :1], solved[:, 1:]
    b = bias_from(float(u.sum()), V.sum(axis=0), bias_penalty)
    beta = V - u * b
    terms = Y, weight, C, bias_penalty
    found = certify(factor.times(beta), beta, b, *terms)
    if found.residual > 1e-14:  # one step of refinement: the factor is there, it costs two solves
        correction = factor.solve(found.r)
        db = bias_from(float(u.sum()), correction.sum(axis=0), bias_penalty)
        better, b_better = beta + correction - u * db, b + db
        refined = certify(factor.times(better), better, b_better, *terms)
        if refined.residual < found.residual:
            beta, b, found = better, b_better, refined
    residuals = None
    if left_out:
        T = factor.inverse_diagonal()[:, None]
        if not np.isinf(bias_penalty):
            T = T - u**2 / (bias_penalty + u.sum())
        residuals = beta / T
    return Solution(
        "cholesky",
        beta,
        b,
        C,
        objective=found.objective,
        residual=found.residual,
        gap=found.gap,
        converged=found.residual <= DIRECT_TOL,
        advice=direct_advice(C, found.residual),
        left_out=residuals,
    )


class Factor(Protocol):
    """What a solver asks of the factored matrix; vectors are on the host."""

    def solve(self, B: Array) -> Array:
        """Return G^-1 B."""

    def times(self, V: Array) -> Array:
        """Return K V."""

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of G^-1."""


def factored(K: Any, ridge: Array) -> Factor:
    """Factor K + diag(ridge); ``K`` is overwritten.

    Raises
    ------
    numpy.linalg.LinAlgError
        When the matrix is not positive definite.
    """
    return _HostFactor(K, ridge) if foreign_namespace(K) is None else _DeviceFactor(K, ridge)


class _HostFactor:
    """L in the lower triangle of K, K itself in the upper one."""

    def __init__(self, K: Array, ridge: Array) -> None:
        self._diagonal = K.diagonal().copy()
        K.flat[:: K.shape[0] + 1] += ridge
        self._L = cholesky_in_place(K)

    def solve(self, B: Array) -> Array:
        return cholesky_solve(self._L, B)

    def times(self, V: Array) -> Array:
        return symmetric_matmul(self._L, self._diagonal, V)

    def inverse_diagonal(self) -> Array:
        return inverse_diagonal(self._L)


class _DeviceFactor:
    """G and its factor, both on the device."""

    def __init__(self, K: Any, ridge: Array) -> None:
        self._ridge = ridge
        self._G = add_to_diagonal(K, like_rows(ridge, K))
        self._L = cholesky_lower(self._G)

    def solve(self, B: Array) -> Array:
        forward = solve_lower(self._L, like_rows(B, self._L))
        return np.asarray(to_host(solve_lower(self._L, forward, transposed=True)))

    def times(self, V: Array) -> Array:
        return np.asarray(to_host(self._G @ like_rows(V, self._G))) - self._ridge[:, None] * V

    def inverse_diagonal(self) -> Array:
        m, xp = self._L.shape[0], namespace(self._L)
        parts = []
        for start in range(0, m, _PANEL):  # squared column norms of L^-1
            stop = min(start + _PANEL, m)
            columns = zeros((m, stop - start), self._L)
            columns[start:stop, :] = xp.eye(stop - start, dtype=xp.float64, device=self._L.device)
            columns = solve_lower(self._L, columns)
            parts.append(to_host(xp.sum(columns * columns, axis=0)))
        return np.concatenate(parts)
