"""The equations of a support set S, in the two forms of peng2016, §5.

`KernelForm`, eqs. (58), (59): (K_SS + diag(1 / (C s))) [u v] = [1 y], b = sum v / (A + sum u),
beta = v - b u, with the factor kept from one S to the next. `LinearForm`: the n x n matrix of the
linear kernel, I + C X_S' S X_S less its part along the bias; smaller when S has more rows than X
columns. Both return the same point; both refine it once or twice where costs are large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._parallel import blas_for
from leansvm.dual._hinge import Hinge, Point, constant_point
from leansvm.dual._ldl import SupportFactor
from leansvm.dual._support_cg import changed_gram
from leansvm.dual.cholesky import bias_and_coefficients, bias_from, bordered_inverse_diagonal
from leansvm.dual.kernel_matrix import GrowingRows, StoredMatrix
from leansvm.linalg import cholesky_in_place, cholesky_solve, inverse_diagonal

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_REFINE = 1e-12  # residual, relative to the errors of S, that asks for a step of refinement
_REFINE_LINEAR = 1e-15  # the same for the gradient, relative to w
_REFINEMENTS = 2
_GRAM_UPDATES = 20  # added and subtracted this often, a Gram matrix is built anew
_SERIAL_PRODUCT = 10**9  # multiplications of a Gram matrix that one thread makes in no time


class KernelForm:
    """The k x k system of a support set, factored as LDL'."""

    def __init__(self, matrix: GrowingRows | StoredMatrix) -> None:
        self.matrix, self.C = matrix, np.nan
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
        """Return y - f at the support without each row: beta_i / T_ii, S less that row fixed."""
        S, k = self.factor.order, len(self.factor.order)
        result = hinge.y - point.f
        if k and self.C == C:  # else no step was left for this C
            root = np.sqrt(self.factor.D[:k])
            diagonal = inverse_diagonal(np.ascontiguousarray(self.factor.L[:k, :k]) * root)
            u = self.factor.solve(np.ones((k, 1)))[:, 0]
            result[S] = point.beta[S] / bordered_inverse_diagonal(diagonal, u, hinge.bias_penalty)
        return result


class LinearRows:
    """Rows of the linear kernel in float64, ``centred`` (for a free bias) where X is dense."""

    def __init__(self, X: Any, weight: Array, *, centred: bool) -> None:
        self.shift = np.zeros(X.shape[1])
        if centred and not sparse.issparse(X):  # such a shift only moves the bias
            self.shift = weight @ X / weight.sum()
        self.take(X, weight)

    def take(self, X: Any, weight: Array) -> None:
        """Go on with these rows."""
        X = X.astype(np.float64, copy=False)
        self.X, self.weight = X - self.shift if self.shift.any() else X, weight


class LinearForm:
    """The n x n system of a support set, for the linear kernel."""

    def __init__(self, rows: LinearRows) -> None:
        self.rows = rows
        n = rows.X.shape[1]
        self.gram = np.zeros((n, n))  # of the rows in S, without C
        self.support: Rows = np.empty(0, np.intp)
        self.w = np.zeros(n)
        self._updates = 0

    def solve(self, hinge: Hinge, C: float, support: Rows, priority: Array, b: float) -> Point:
        """Return the point that solves the equations of ``support``; ``b`` if it is empty."""
        X = self.rows.X
        self._follow(support)
        if not len(support):
            self.w[:] = 0.0
            return constant_point(hinge, b)
        cost, total, mean, M = self._factored(hinge, C)
        w, b = np.zeros(X.shape[1]), 0.0
        beta, f = cost * hinge.y, np.zeros(len(cost))
        size = np.inf
        for step in range(1 + _REFINEMENTS):
            # residuals of w = X'beta and A b = sum beta, beta = C s (y - f) on S
            g = X.T @ beta - w
            rest = 0.0 if np.isinf(total) else float(beta.sum()) - hinge.bias_penalty * b
            off = float(np.abs(g - mean * rest).max()) if len(g) else 0.0
            done = off <= _REFINE_LINEAR * float(np.abs(w).max(initial=0.0)) or off > 0.5 * size
            if step and done:  # the first step finds the bias even where w stays 0
                break
            size = off
            dw = cholesky_solve(M, g - mean * rest)
            w = w + dw
            b += 0.0 if np.isinf(total) else rest / total - float(mean @ dw)
            f = X @ w + b
            beta = cost * (hinge.y - f)
        self.w = w
        return Point(beta, b - float(self.rows.shift @ w), f)

    def _follow(self, support: Rows) -> None:
        """Bring the Gram matrix to this support: add what entered, subtract what left."""
        X, weight = self.rows.X, self.rows.weight
        was, now = np.zeros(len(weight), np.bool_), np.zeros(len(weight), np.bool_)
        now[support] = True
        was[self.support] = self._updates < _GRAM_UPDATES  # else it is built anew
        self._updates = self._updates + 1 if self._updates < _GRAM_UPDATES else 0
        with blas_for(len(support), _SERIAL_PRODUCT // max(X.shape[1], 1) ** 2):
            self.gram = changed_gram(self.gram, X, weight, was, now)
        self.support = support

    def _factored(self, hinge: Hinge, C: float) -> tuple[Array, float, Array, Array]:
        """Return C s (0 outside S), t = A + sum C s, p / t, and a factor of the matrix of w.

        p = X'C s couples w and b; the matrix is I + X_S' C S X_S - p p' / t.
        """
        cost = np.zeros(len(hinge.y))
        cost[self.support] = hinge.cost[self.support]
        total, M = hinge.bias_penalty + float(cost.sum()), C * self.gram
        mean = np.zeros(len(M))
        if not np.isinf(total):
            mean = np.asarray(self.rows.X.T @ cost) / total
            M -= np.outer(mean * total, mean)
        M.flat[:: len(M) + 1] += 1.0
        return cost, total, mean, cholesky_in_place(M)

    def left_out(self, hinge: Hinge, C: float, point: Point) -> Array:
        """Return y - f at the support without each row: (y - f) / (1 - h), S less it fixed."""
        X, S = self.rows.X, self.support
        result = hinge.y - point.f
        if not len(S):
            return result
        _, total, mean, M = self._factored(hinge, C)
        rows = X[S].toarray() if sparse.issparse(X) else X[S]
        rows = rows - mean
        leverage = np.einsum("ij,ji->i", rows, cholesky_solve(M, np.ascontiguousarray(rows.T)))
        h = hinge.cost[S] * (leverage + (0.0 if np.isinf(total) else 1.0 / total))
        result[S] /= np.maximum(1.0 - h, np.finfo(np.float64).eps)
        return result
