"""The equations of a support set S, in the two forms of peng2016, §5.

`KernelForm`, eqs. (58), (59): (K_SS + diag(1 / (C s))) [u v] = [1 y], b = sum v / (A + sum u),
beta = v - b u, with the factor kept from one S to the next. `LinearForm`: the system of (w, b) of
the linear kernel, smaller when S has more rows than X columns. Both return the same point; both
refine it once or twice where costs are large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._parallel import blas_for
from leansvm.dual._hinge import Hinge, Point, constant_point
from leansvm.dual._ldl import SupportFactor
from leansvm.dual._support_cg import changed_gram, cholesky_of, left_out_residuals
from leansvm.dual.cholesky import bias_and_coefficients, bias_from
from leansvm.dual.kernel_matrix import GrowingRows, StoredMatrix
from leansvm.linalg import cholesky_solve

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_REFINE = 1e-12  # residual, relative to the errors of S, that asks for a step of refinement
_REFINE_LINEAR = 1e-15  # the same for the gradient, relative to w
_REFINEMENTS = 2
_GRAM_UPDATES = 20  # added and subtracted this often, a Gram matrix is built anew
_SERIAL_PRODUCT = 10**9  # multiplications of a Gram matrix that one thread makes in no time


class KernelForm:
    """The k x k system of a support set, factored as LDL'."""

    def __init__(self, matrix: GrowingRows | StoredMatrix, *, keep: bool) -> None:
        self.matrix, self.keep, self.C = matrix, keep, np.nan
        self.factor = SupportFactor(matrix.block, np.empty(0))

    def solve(self, hinge: Hinge, C: float, support: Rows, priority: Array, b: float) -> Point:
        """Return the point that solves the equations of ``support``; ``b`` if it is empty.

        The factor of the last support set is changed to this one; another C starts it anew.
        """
        if self.C != C:
            self.factor.forget()
        self.C, self.factor.ridge = C, 1.0 / hinge.cost
        if not len(support):
            return constant_point(hinge, b)
        self.factor.change_to(support, priority)
        S = self.factor.order
        solved = self.factor.solve(np.column_stack([np.ones(len(S)), hinge.y[S]]))
        bias, columns = bias_and_coefficients(solved, hinge.bias_penalty)
        b, coef, u, size = float(bias[0]), columns[:, 0], solved[:, 0], np.inf
        for refined in range(1 + _REFINEMENTS):
            beta = np.zeros(self.matrix.m)
            beta[S] = coef
            point = Point(beta, b, self.matrix.product(beta) + b)
            ridge = coef / hinge.cost[S]
            r = hinge.y[S] - point.f[S] - ridge
            off = float(np.abs(r).max())
            enough = off <= _REFINE * float(np.abs(ridge).max()) or off > 0.5 * size
            if enough or refined == _REFINEMENTS:
                break
            size = off
            v = self.factor.solve(r[:, None])[:, 0]
            # the bias equation sum beta = A b has a residual too
            rest = 0.0 if np.isinf(hinge.bias_penalty) else hinge.bias_penalty * b
            rest -= float(beta.sum())
            db = float(bias_from(float(u.sum()), v.sum() - rest, hinge.bias_penalty))
            coef, b = coef + v - db * u, b + db
        return point

    def left_out(self, hinge: Hinge, C: float, point: Point) -> Array:
        """Return y - f at the support without each row, S less that row fixed."""
        S = self.factor.order if self.C == C else self.factor.order[:0]  # else no step was left
        if not self.keep:  # its memory serves for K_SS
            self.factor.forget(release=True)
        return left_out_residuals(self.matrix.block(S, S), hinge, S, point)


class LinearRows:
    """Rows Z = [X 1] of the linear kernel in float64; no column of ones without a bias.

    A free bias lets dense X be centred, which only moves the bias.
    """

    def __init__(self, X: Any, weight: Array, bias_penalty: float) -> None:
        self.shift = np.zeros(X.shape[1])
        if bias_penalty == 0 and not sparse.issparse(X):
            self.shift = weight @ X / weight.sum()
        self.bias = bool(np.isfinite(bias_penalty))
        self.penalty = np.append(np.ones(X.shape[1]), [bias_penalty] * self.bias)
        self.take(X, weight)

    def take(self, X: Any, weight: Array) -> None:
        """Go on with these rows."""
        ones = np.ones((X.shape[0], int(self.bias)))
        if sparse.issparse(X):
            self.Z: Any = sparse.hstack([X.astype(np.float64, copy=False), ones]).tocsr()
        else:
            self.Z = np.hstack([X - self.shift, ones])
        self.weight = weight


class LinearForm:
    """The system (Z_S' C s Z_S + diag(1, .., 1, A)) [w b] = Z_S' C s y of the linear kernel."""

    def __init__(self, rows: LinearRows) -> None:
        self.rows = rows
        n = len(rows.penalty)
        self.gram = np.zeros((n, n))  # of the rows in S, without C
        self.support: Rows = np.empty(0, np.intp)
        self.w = np.zeros(len(rows.shift))
        self._updates = 0

    def solve(self, hinge: Hinge, C: float, support: Rows, priority: Array, b: float) -> Point:
        """Return the point that solves the equations of ``support``; ``b`` if it is empty."""
        Z, penalty, shift = self.rows.Z, self.rows.penalty, self.rows.shift
        self._follow(support)
        if not len(support):
            self.w = np.zeros(len(shift))
            return constant_point(hinge, b)
        cost = np.zeros(len(hinge.y))
        cost[support] = hinge.cost[support]
        M, theta, f, size = self._factored(C), np.zeros(len(penalty)), 0.0, np.inf
        for _ in range(1 + _REFINEMENTS):
            beta = cost * (hinge.y - f)
            g = Z.T @ beta - penalty * theta
            off = float(np.abs(g).max(initial=0.0))
            if off <= _REFINE_LINEAR * float(np.abs(theta).max(initial=0.0)) or off > 0.5 * size:
                break
            size, theta = off, theta + cholesky_solve(M, g)
            f = Z @ theta
        self.w = theta[: len(shift)]
        b = float(theta[-1] - shift @ self.w) if self.rows.bias else 0.0
        return Point(cost * (hinge.y - f), b, f)

    def _follow(self, support: Rows) -> None:
        """Bring the Gram matrix to this support: add what entered, subtract what left."""
        Z, weight = self.rows.Z, self.rows.weight
        was, now = np.zeros(len(weight), np.bool_), np.zeros(len(weight), np.bool_)
        now[support] = True
        was[self.support] = self._updates < _GRAM_UPDATES  # else it is built anew
        self._updates = self._updates + 1 if self._updates < _GRAM_UPDATES else 0
        with blas_for(len(support), _SERIAL_PRODUCT // max(Z.shape[1], 1) ** 2):
            self.gram = changed_gram(self.gram, Z, weight, was, now)
        self.support = support

    def _factored(self, C: float) -> Array:
        return cholesky_of(C * self.gram, self.rows.penalty)

    def left_out(self, hinge: Hinge, C: float, point: Point) -> Array:
        """Return y - f at the support without each row: (y - f) / (1 - h), S less it fixed."""
        Z, S = self.rows.Z, self.support
        result = hinge.y - point.f
        if len(S):
            rows = Z[S].toarray() if sparse.issparse(Z) else Z[S]
            solved = cholesky_solve(self._factored(C), np.ascontiguousarray(rows.T))
            h = hinge.cost[S] * np.einsum("ij,ji->i", rows, solved)
            result[S] /= np.maximum(1.0 - h, np.finfo(np.float64).eps)
        return result
