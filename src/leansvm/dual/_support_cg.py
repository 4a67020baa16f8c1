"""The equations of a support set S by conjugate gradients, without a factor of K_SS.

    (K_SS + diag(1 / (C s))) beta + b 1 = y_S,   1'beta = A b

are preconditioned by the same with Z_S Z_S' for K_SS (see `_nystrom`): one product with the
kernel matrix a step, and few steps. Every step keeps the second equation, so that on it the
first one is the gradient of a convex function, for every A from 0 (a free bias) to inf (none).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import blas_threads, for_tiles
from leansvm.dual._hinge import Hinge, Point
from leansvm.dual._least_squares import bias_from
from leansvm.linalg import cholesky_in_place, cholesky_solve, inverse_diagonal
from leansvm.ridge._lapack import symmetric_product

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_FEW, _MANY = 500, 1500  # rows of a matrix: half of it is worth a call, all of it is worth threads
_TILE = 256


class Cheap(NamedTuple):
    """Woodbury's form of the cheap system, for the rows S of a working set."""

    Z: Array  # of all rows of the working set
    factor: Array  # Cholesky factor of I + Z_S' diag(C s) Z_S
    S: Rows
    cost: Array  # C s of S

    @classmethod
    def of(cls, Z: Array, gram: Array, S: Rows, cost: Array) -> Cheap:
        """Factor it, given Z_S' diag(C s) Z_S."""
        M = gram.copy()
        M.flat[:: len(M) + 1] += 1.0
        return cls(Z, cholesky_in_place(M), S, cost[S])

    def solve(self, r: Array) -> Array:
        """Solve (Z_S Z_S' + diag(1 / (C s))) x = r."""
        full = np.zeros(len(self.Z))
        full[self.S] = self.cost * r
        inner = cholesky_solve(self.factor, full @ self.Z)
        return np.asarray(self.cost * (r - (self.Z @ inner)[self.S]))


def times(K: Array, v: Array) -> Array:
    """Return K v for the symmetric K.

    Reading K is all it takes: two threads that read all of it are not faster than one that reads
    one half, more of them are.
    """
    if len(K) < _FEW:
        return np.asarray(K @ v)
    if len(K) < _MANY or blas_threads() <= 2:
        return symmetric_product(K, v)
    out = np.empty(len(K))

    def fill(start: int, stop: int) -> None:
        np.dot(K[start:stop], v, out=out[start:stop])

    for_tiles(len(K), _TILE, fill)
    return out


def solve_by_cg(
    K: Array, hinge: Hinge, S: Rows, point: Point, cheap: Cheap, *, tol: float, most: int
) -> tuple[Point, int, bool]:
    """Solve the equations of S from ``point``, whose beta is zero outside S.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Kernel values of the working set.
    hinge : Hinge
        Targets, costs and bias of the working set.
    S : ndarray of int
        Support, rows of the working set.
    point : Point
        Where to start.
    cheap : Cheap
        The preconditioner.
    tol : float
        Largest C s |residual|, relative to the largest |beta|, at which to stop.
    most : int
        Most steps.

    Returns
    -------
    Point, int, bool
        What was found, with f of all rows of the working set; steps; whether it meets tol.

    Raises
    ------
    numpy.linalg.LinAlgError
        When K_SS + diag(1 / (C s)) is not positive definite.
    """
    A, cost, ridge = hinge.bias_penalty, hinge.cost[S], 1.0 / hinge.cost[S]
    u = cheap.solve(np.ones(len(S)))
    beta, b, f = point.beta[S], point.b, point.f.copy()
    r = hinge.y[S] - f[S] - ridge * beta
    off = 0.0 if np.isinf(A) else A * b - float(beta.sum())  # what 1'beta = A b lacks
    before, p, pb, full = np.nan, np.zeros(len(S)), 0.0, np.zeros(len(K))
    restart, done = True, False
    steps = 0
    while steps < most:
        steps += 1
        x = cheap.solve(r)
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


def solve_by_factor(K: Array, hinge: Hinge, S: Rows) -> Point:
    """Solve the equations of few rows S by a Cholesky factor of K_SS + diag(1 / (C s))."""
    M = K[np.ix_(S, S)]
    M.flat[:: len(S) + 1] += 1.0 / hinge.cost[S]
    u, v = cholesky_solve(cholesky_in_place(M), np.column_stack([np.ones(len(S)), hinge.y[S]])).T
    b = float(bias_from(float(u.sum()), v.sum(), hinge.bias_penalty))
    beta = np.zeros(len(K))
    beta[S] = v - b * u
    return Point(beta, b, times(K, beta) + b)


def left_out_of(K: Array, hinge: Hinge, S: Rows, point: Point) -> Array:
    """Return y - f of models without each row: beta_i / T_ii on S, the rest of S kept.

    T is the inverse of K_SS + diag(1 / (C s)), bordered by the bias; K = K_SS is overwritten.
    """
    result = np.asarray(hinge.y - point.f)
    if len(S):
        K.flat[:: len(S) + 1] += 1.0 / hinge.cost[S]
        T = inverse_diagonal(cholesky_in_place(K))
        if not np.isinf(hinge.bias_penalty):
            u = cholesky_solve(K, np.ones(len(S)))
            T = T - u**2 / (hinge.bias_penalty + u.sum())
        result[S] = point.beta[S] / T
    return result
