"""A squared-hinge SVM of low rank, from which the exact one starts: K is close to Z Z'.

Z = K_MB L^-T for a few random rows B, K_BB = L L' (Nystroem). f = Z theta + b minimises
1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, 1 - y_i f_i)^2: Newton steps in few unknowns,
all outputs at once, from the least-squares solution that they share. The same Z makes
Z_S Z_S' + diag(1 / (C s)), close to the equations of a support set S and cheap to solve.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from leansvm.dual.kernel_matrix import KernelMatrix, check_symmetric
from leansvm.linalg import cholesky_in_place, cholesky_solve

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FEWEST, _MOST, _SHARE = 64, 300, 16  # random rows: a share of all, within these (measured)
_INDEPENDENT = 1e-10  # rows whose pivot is below this share of the largest add nothing
_STEPS = 8  # Newton steps at most: it is a start, no solution
_SETTLED = 0.02  # share of the support whose change ends them
_TILE = 512


def rank_for(m: int) -> int:
    """Return how many random rows stand for all m."""
    return min(m, max(_FEWEST, min(_MOST, m // _SHARE)))


class Nystrom:
    """Features Z of all rows, with a last column for the bias.

    Parameters
    ----------
    matrix : KernelMatrix
        Kernel values among the rows.
    bias_penalty : float
        A: 0 is a free bias, inf is none.

    Raises
    ------
    numpy.linalg.LinAlgError
        When no kernel value of a row with itself is positive.
    """

    def __init__(self, matrix: KernelMatrix, bias_penalty: float) -> None:
        m = matrix.m
        basis = np.random.default_rng(0).permutation(m)[: rank_for(m)]  # no randomness in a fit
        K = matrix.block(basis, basis)
        if callable(matrix.kernel.name):
            check_symmetric(K, "the callable kernel")
        largest = float(K.diagonal().max())
        factor, order, rank, _ = dpstrf(K.T, lower=1, tol=_INDEPENDENT * largest)
        if not 0 < largest < np.inf or rank == 0:
            raise np.linalg.LinAlgError("no positive kernel value on the diagonal")
        chosen, L = basis[order[:rank] - 1], np.tril(factor[:rank, :rank])
        self.Z = np.empty((m, rank + 1))
        for start in range(0, m, _TILE):
            rows = np.arange(start, min(start + _TILE, m))
            values = matrix.block(rows, chosen)
            self.Z[rows, :rank] = solve_triangular(L, values.T, lower=True, check_finite=False).T
        self.Z[:, rank] = 0.0 if np.isinf(bias_penalty) else 1.0
        self.penalty = np.ones(rank + 1)
        self.penalty[rank] = 1.0 if np.isinf(bias_penalty) else bias_penalty

    def start(self, Y: Array, cost: Array) -> tuple[Array, list[Array], NDArray[np.bool_]]:
        """Solve the problem of low rank for every row of Y, the targets of an output.

        Return the errors 1 - y f, Gram matrices, and the rows that each of these is made of.
        """
        everything = gram_of(self.Z, cost, np.arange(Y.shape[1]))
        grams, was = [everything] * len(Y), np.ones(Y.shape, np.bool_)
        theta = self._solved(everything, (cost * Y) @ self.Z)
        E = 1.0 - Y * (theta @ self.Z.T)
        for _ in range(_STEPS):
            now = E > 0
            count = np.count_nonzero(now != was, axis=1)
            moving = np.flatnonzero(count > _SETTLED * np.count_nonzero(now, axis=1))
            if not len(moving):
                break
            right = (cost * Y[moving] * now[moving]) @ self.Z
            for place, j in enumerate(moving):
                grams[j] = changed_gram(grams[j], self.Z, cost, was[j], now[j])
                right[place] = self._solved(grams[j], right[place])
            was[moving] = now[moving]
            E[moving] = 1.0 - Y[moving] * (right @ self.Z.T)
        return E, grams, was

    def _solved(self, gram: Array, right: Array) -> Array:
        """Solve (Gram matrix + penalties) theta = right, one row for each output."""
        M = gram.copy()
        M.flat[:: len(M) + 1] += self.penalty
        return np.ascontiguousarray(cholesky_solve(cholesky_in_place(M), right.T).T)


def gram_of(Z: Array, cost: Array, rows: NDArray[np.intp]) -> Array:
    """Return Z_r' diag(C s) Z_r."""
    scaled = Z[rows]
    scaled *= np.sqrt(cost[rows])[:, None]
    return np.asarray(scaled.T @ scaled)


def changed_gram(gram: Array, Z: Array, cost: Array, was: Mask, now: Mask) -> Array:
    """Return the Gram matrix of the rows ``now``, given that of the rows ``was``."""
    left, entered = np.flatnonzero(was & ~now), np.flatnonzero(now & ~was)
    if len(left) + len(entered) >= np.count_nonzero(now):
        return gram_of(Z, cost, np.flatnonzero(now))
    if len(left):
        gram = gram - gram_of(Z, cost, left)
    return gram + gram_of(Z, cost, entered) if len(entered) else gram
