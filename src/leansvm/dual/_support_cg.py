"""The equations of a support set S by conjugate gradients, without a factor of K_SS.

    (K_SS + diag(1 / (C s))) beta + b 1 = y_S,   1'beta = A b

are preconditioned by the same with Z_S Z_S' for K_SS: one product with the kernel matrix a step,
and few steps. Every step keeps the second equation, so that on it the first one is the gradient
of a convex function, for every A from 0 (a free bias) to inf (none).

Z = K_MB L^-T for a few random rows B, K_BB = L L' (Nystroem). With K = Z Z' the squared-hinge SVM
f = Z theta + b minimises 1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, 1 - y_i f_i)^2: Newton
steps in few unknowns, all outputs at once, tell nearly which rows belong to S.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from leansvm._array_api import foreign_namespace, like_rows, rows_at, to_host
from leansvm._parallel import blas_threads, for_tiles
from leansvm.dual._hinge import Hinge, Point
from leansvm.dual.cholesky import bias_and_coefficients, bias_from, bordered_inverse_diagonal
from leansvm.dual.kernel_matrix import KernelMatrix
from leansvm.dual.problem import check_symmetric
from leansvm.linalg import cholesky_in_place, cholesky_solve
from leansvm.ridge._lapack import symmetric_product
from leansvm.ridge.kernel_factor import factored

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Inverse = Callable[[Array], Array]

_FEWEST, _MOST, _SHARE = 64, 300, 16  # random rows: a share of all, within these (measured)
_INDEPENDENT = 1e-10  # rows whose pivot is below this share of the largest add nothing
_STEPS = 8  # Newton steps at most: it is a start, no solution
_SETTLED = 0.02  # share of the support whose change ends them
_TILE = 512
_FEW, _MANY = 500, 1500  # rows of a matrix: half of it is worth a call, all of it is worth threads
_PRODUCT_TILE = 256


def rank_for(m: int) -> int:
    """Return how many random rows stand for all m."""
    return min(m, max(_FEWEST, min(_MOST, m // _SHARE)))


class Nystrom:
    """Features Z of all rows, with a last column for the bias.

    Raises LinAlgError where no kernel value of a row with itself is positive.
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

    def start(self, Y: Array, cost: Array) -> tuple[Array, list[Array], Mask]:
        """Solve the problem of low rank for every row of Y, the targets of an output.

        Return the errors 1 - y f, Gram matrices, and the rows that each of these is made of.
        """
        everything = gram_of(self.Z, cost, np.arange(Y.shape[1]))
        grams, was = [everything] * len(Y), np.ones(Y.shape, np.bool_)
        factor = cholesky_of(everything.copy(), self.penalty)
        theta = cholesky_solve(factor, ((cost * Y) @ self.Z).T).T
        E = 1.0 - Y * (np.ascontiguousarray(theta) @ self.Z.T)
        for _ in range(_STEPS):
            now = E > 0
            count = np.count_nonzero(now != was, axis=1)
            moving = np.flatnonzero(count > _SETTLED * np.count_nonzero(now, axis=1))
            if not len(moving):
                break
            right = (cost * Y[moving] * now[moving]) @ self.Z
            for i, j in enumerate(moving):
                grams[j] = changed_gram(grams[j], self.Z, cost, was[j], now[j])
                right[i] = cholesky_solve(cholesky_of(grams[j].copy(), self.penalty), right[i])
            was[moving] = now[moving]
            E[moving] = 1.0 - Y[moving] * (right @ self.Z.T)
        return E, grams, was


def cholesky_of(M: Array, ridge: Array | float) -> Array:
    """Add a ridge to the diagonal of M and factor it, in its memory."""
    M.flat[:: len(M) + 1] += ridge
    return cholesky_in_place(M)


def gram_of(Z: Any, cost: Array, rows: NDArray[np.intp]) -> Array:
    """Return Z_r' diag(C s) Z_r, dense also where Z is sparse."""
    scaled, root = Z[rows], np.sqrt(cost[rows])
    if sparse.issparse(Z):
        scaled.data *= np.repeat(root, np.diff(scaled.indptr))
        return np.asarray((scaled.T @ scaled).toarray(order="C"))
    scaled *= root[:, None]
    return np.asarray(scaled.T @ scaled)


def changed_gram(gram: Array, Z: Any, cost: Array, was: Mask, now: Mask) -> Array:
    """Return the Gram matrix of the rows ``now``, given that of the rows ``was``."""
    left, entered = np.flatnonzero(was & ~now), np.flatnonzero(now & ~was)
    if len(left) + len(entered) >= np.count_nonzero(now):
        return gram_of(Z, cost, np.flatnonzero(now))
    if len(left):
        gram = gram - gram_of(Z, cost, left)
    return gram + gram_of(Z, cost, entered) if len(entered) else gram


def low_rank_inverse(Z: Array, gram: Array, S: Rows, cost: Array) -> Inverse:
    """Return r -> (Z_S Z_S' + diag(1 / (C s)))^-1 r in Woodbury's form, given Z_S' C s Z_S.

    Z and the costs C s belong to all rows of a working set, of which S is a part.
    """
    factor, cost = cholesky_of(gram.copy(), 1.0), cost[S]

    def apply(r: Array) -> Array:
        full = np.zeros(len(Z))
        full[S] = cost * r
        return np.asarray(cost * (r - (Z @ cholesky_solve(factor, full @ Z))[S]))

    return apply


def times(K: Any, v: Array) -> Array:
    """Return K v for the symmetric K, on the host or a device.

    Reading K is all it takes: two threads that read all of it are not faster than one that reads
    one half, more of them are.
    """
    if foreign_namespace(K) is not None:
        return np.asarray(to_host(K @ like_rows(v, K)))
    if len(K) < _FEW:
        return np.asarray(K @ v)
    if len(K) < _MANY or blas_threads() <= 2:
        return symmetric_product(K, v)
    out = np.empty(len(K))

    def fill(start: int, stop: int) -> None:
        np.dot(K[start:stop], v, out=out[start:stop])

    for_tiles(len(K), _PRODUCT_TILE, fill)
    return out


def solve_by_cg(
    K: Array, hinge: Hinge, S: Rows, point: Point, low_rank: Inverse, *, tol: float, most: int
) -> tuple[Point, int, bool]:
    """Solve the equations of S from ``point``, whose beta is zero outside S.

    K, ``hinge`` and the points belong to a working set of rows, S is a part of it; ``low_rank`` is
    the preconditioner. Stops where the largest C s |residual| is ``tol`` times the largest |beta|,
    or after ``most`` steps. Returns the point, the steps, and whether it meets ``tol``. Raises
    LinAlgError where K_SS + diag(1 / (C s)) is not positive definite.
    """
    A, cost, ridge = hinge.bias_penalty, hinge.cost[S], 1.0 / hinge.cost[S]
    u = low_rank(np.ones(len(S)))
    beta, b, f = point.beta[S], point.b, point.f.copy()
    r = hinge.y[S] - f[S] - ridge * beta
    off = 0.0 if np.isinf(A) else A * b - float(beta.sum())  # what 1'beta = A b lacks
    before, p, pb, full = np.nan, np.zeros(len(S)), 0.0, np.zeros(len(K))
    restart, done = True, False
    steps = 0
    while steps < most:
        steps += 1
        x = low_rank(r)
        zb = float(bias_from(float(u.sum()), x.sum() - off, A))
        z = x - zb * u
        now = float(r @ z)
        ahead = 0.0 if restart else now / before
        p, pb = z + ahead * p, zb + ahead * pb
        full[S] = p
        q = times(K, full)
        h = q[S] + ridge * p + pb
        curvature = float(p @ h)
        if not curvature > 0.0:
            if np.any(p):
                raise np.linalg.LinAlgError("not positive definite")
            break  # nothing is left to gain
        t = 1.0 if off else now / curvature  # length 1 makes 1'beta = A b
        beta, b = beta + t * p, b + t * pb
        f += t * (q + pb)
        r -= t * h
        before, restart, off = now, bool(off), 0.0
        if float(np.max(cost * np.abs(r))) <= tol * float(np.abs(beta).max()):
            done = True
            break
    values = np.zeros(len(K))
    values[S] = beta
    return Point(values, b, f), steps, done


def solve_by_factor(K: Any, hinge: Hinge, S: Rows) -> Point:
    """Solve the equations of few rows S by a Cholesky factor of K_SS + diag(1 / (C s))."""
    on_host = foreign_namespace(K) is None
    K_SS = K[np.ix_(S, S)] if on_host else rows_at(rows_at(K, S).T, S)
    right = np.column_stack([np.ones(len(S)), hinge.y[S]])
    solved = factored(K_SS, 1.0 / hinge.cost[S]).solve(right)
    b, coef = bias_and_coefficients(solved, hinge.bias_penalty)
    beta = np.zeros(len(hinge.y))
    beta[S] = coef[:, 0]
    return Point(beta, float(b[0]), times(K, beta) + float(b[0]))


def left_out_residuals(K: Array, hinge: Hinge, S: Rows, point: Point) -> Array:
    """Return y - f of models without each row: beta_i / T_ii on S, the rest of S kept.

    T is the inverse of K_SS + diag(1 / (C s)), bordered by the bias; K = K_SS is overwritten.
    """
    result = np.asarray(hinge.y - point.f)
    if len(S):
        factor = factored(K, 1.0 / hinge.cost[S])
        diagonal, u = factor.inverse_diagonal(), factor.solve(np.ones(len(S)))
        result[S] = point.beta[S] / bordered_inverse_diagonal(diagonal, u, hinge.bias_penalty)
    return result
