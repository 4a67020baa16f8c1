"""The equations of a support set S, in the two forms of peng2016, §5.

`KernelForm`, eqs. (58), (59): (K_SS + diag(1 / (C s))) [u v] = [1 y], b = sum v / (A + sum u),
beta = v - b u, with the factor kept from one S to the next. `LinearForm`: the system of (w, b) of
the linear kernel, smaller when S has more rows than X columns. Both return the same point; both
refine it once or twice where costs are large.

`SupportFactor` is the LDL' factor of K_SS + diag(1 / (C s)) that follows S (§5.1-5.3). Between two
iterations few rows leave and few enter. Leaving rows are taken out by adjacent swaps (eq. (64),
level 1) or by factoring anew from the first of them (level 3), whichever is cheaper by counted
flops; entering rows are appended as one block, eq. (61).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from leansvm._parallel import limited_blas
from leansvm.dual._hinge import (
    Array,
    Hinge,
    Point,
    Rows,
    changed_gram,
    cholesky_of,
    left_out_residuals,
)
from leansvm.dual.kernel_matrix import GrowingRows, StoredMatrix
from leansvm.dual.problem import bias_and_coefficients, bias_from
from leansvm.linalg import (
    cholesky_in_place,
    cholesky_solve,
    corner_inverses,
    right_divide_in_place,
    right_solve_in_place,
)

_REFINE = 1e-12  # residual, relative to the errors of S, that asks for a step of refinement
_REFINE_LINEAR = 1e-15  # the same for the gradient, relative to w
_REFINEMENTS = 2
_GRAM_UPDATES = 20  # added and subtracted this often, a Gram matrix is built anew
_SERIAL_PRODUCT = 10**9  # multiplications of a Gram matrix that one thread makes in no time
# A level-1 flop takes as long as this many flops of a matrix product.
SWAP_WEIGHT = 25.0
_PANEL = 64
APPEND_PANEL = 256


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
            return hinge.constant_point(b)
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
        """Return y - f at the support rows, each in the model without it, the rest of S fixed."""
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
            return hinge.constant_point(b)
        cost = np.zeros(len(hinge.y))
        cost[support] = hinge.cost[support]
        M = cholesky_of(C * self.gram, penalty)
        theta, f, size = np.zeros(len(penalty)), 0.0 * cost, np.inf
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
        with limited_blas(len(support), _SERIAL_PRODUCT // max(Z.shape[1], 1) ** 2):
            self.gram = changed_gram(self.gram, Z, weight, was, now)
        self.support = support

    def left_out(self, hinge: Hinge, C: float, point: Point) -> Array:
        """Return y - f at the support rows, each left out from S: (y - f) / (1 - h)."""
        Z, S = self.rows.Z, self.support
        result = hinge.y - point.f
        if len(S):
            rows = Z[S].toarray() if sparse.issparse(Z) else Z[S]
            M = cholesky_of(C * self.gram, self.rows.penalty)
            solved = cholesky_solve(M, np.ascontiguousarray(rows.T))
            h = hinge.cost[S] * np.einsum("ij,ji->i", rows, solved)
            result[S] /= np.maximum(1.0 - h, np.finfo(np.float64).eps)
        return result


class SupportFactor:
    """Factor of the regularised kernel matrix of a changing set of rows.

    ``block(a, b)`` returns the kernel values between rows a and rows b, a fresh array; ``ridge`` is
    what is added to the diagonal of all rows, 1 / (C s).
    """

    def __init__(self, block: Callable[[Rows, Rows], Array], ridge: Array) -> None:
        self.block, self.ridge = block, ridge
        self.order: Rows = np.empty(0, np.intp)  # rows in the order of the factor
        self.L: Array = np.zeros((0, 0))  # unit lower triangular, zeros above
        self.D: Array = np.empty(0)
        self.largest = 0  # rows that its memory has been written for
        self.counts = {"swapped": 0, "refactored": 0, "appended": 0}

    def change_to(self, rows: Rows, priority: Array) -> None:
        """Change it to the factor of ``rows``; rows of low ``priority`` come last and leave first.

        Raises LinAlgError if the matrix is not positive definite.
        """
        leaving = np.flatnonzero(~np.isin(self.order, rows, assume_unique=True))
        if len(leaving):
            self._drop(leaving)
        entering = rows[~np.isin(rows, self.order, assume_unique=True)]
        entering = entering[np.argsort(-priority[entering], kind="stable")]
        self.counts["appended"] += len(entering)
        if len(entering) >= max(len(self.order), 1):  # little would be saved
            self._factor_all(np.concatenate([self.order, entering]))
        elif len(entering):
            self._append(entering)
        self.largest = max(self.largest, len(rows))

    def forget(self, *, release: bool = False) -> None:
        """Start from nothing at the next change; ``release`` the memory too."""
        self.order = self.order[:0]
        if release:
            self.L, self.D, self.largest = np.zeros((0, 0)), np.empty(0), 0

    def solve(self, B: Array) -> Array:
        """Solve (K_SS + ridge) X = B, rows in the order of the factor."""
        k = len(self.order)
        L, X = self.L[:k, :k], B.copy()
        corners = corner_inverses(L)
        right_solve_in_place(X.T, L, corners=corners)  # (L^-1 B)' = B' L^-T
        X /= self.D[:k, None]
        right_divide_in_place(X.T, L, corners)  # (L^-T X)' = X' L^-1
        return X

    def _drop(self, leaving: Rows) -> None:
        """Remove these rows: the first of them by swaps, the others by factoring anew behind them.

        Rows that were added last also leave first.
        """
        taken = self._swaps_worth(leaving)
        if taken:
            from leansvm.dual._ldl_swap import drop_by_swaps

            first = leaving[:taken]
            for size, position in zip(range(len(self.order), 0, -1), first[::-1], strict=False):
                drop_by_swaps(self.L, self.D, size, int(position))
            self.counts["swapped"] += taken
            self.order = np.delete(self.order, first)
        if taken < len(leaving):
            self._refactor(leaving[taken:] - taken)
            self.counts["refactored"] += 1

    def _swaps_worth(self, leaving: Rows) -> int:
        """Return how many of the rows that leave to swap out: least counted flops."""
        k, r = len(self.order), len(leaving)
        best, cheapest = 0, np.inf
        for taken in np.unique(np.linspace(0, r, 17).astype(int)).tolist():
            cut = int(leaving[taken]) if taken < r else k
            tail = k - cut - (r - taken)  # survivors behind the cut
            flops = tail**3 / 3 + (cut - taken) * tail**2
            flops += SWAP_WEIGHT * float(np.sum(2.0 * (k - leaving[:taken]) ** 2.0))
            if flops < cheapest:
                best, cheapest = taken, flops
        return best

    def _refactor(self, leaving: Rows) -> None:
        """Factor anew from the first row that leaves; columns before it stay as they are."""
        cut = int(leaving[0])
        kept = np.delete(np.arange(cut, len(self.order)), leaving - cut)
        for start in range(0, len(kept), _PANEL):  # rows move up only
            rows = kept[start : start + _PANEL]
            self.L[cut + start : cut + start + len(rows), :cut] = self.L[rows, :cut]
        rows = self.order[kept]
        self.order = self.order[:cut]
        self._factor(rows)

    def _append(self, rows: Rows) -> None:
        """Append rows, eq. (61): L21 = (A21 L11^-T) D1^-1, then the new columns."""
        k, end = len(self.order), len(self.order) + len(rows)
        self._make_room(end)
        L21t = np.ascontiguousarray(self.block(rows, self.order).T)
        right_solve_in_place(L21t.T, self.L[:k, :k])
        np.divide(L21t.T, self.D[:k], out=self.L[k:end, :k])
        self._factor(rows)

    def _factor_all(self, rows: Rows) -> None:
        """Factor the whole matrix where it lies."""
        self.forget(release=True)
        A = self.block(rows, rows)
        A.flat[:: len(A) + 1] += self.ridge[rows]
        cholesky_in_place(A)
        pivot = A.diagonal().copy()
        for start in range(0, len(A), APPEND_PANEL):
            tile = A[start : start + APPEND_PANEL]
            tile[:, start:] = np.tril(tile[:, start:])
            tile /= pivot
        self.L, self.D, self.order = A, pivot * pivot, rows
        if not np.all((self.D > 0) & np.isfinite(self.D)):
            raise np.linalg.LinAlgError("not positive definite")

    def _factor(self, rows: Rows) -> None:
        """Compute the columns of these rows, whose earlier columns are there, panel by panel.

        A_JI - L_J D L_I' over the columns before J leaves L_JJ D_J L_IJ': one product a panel.
        Panels are rows of the symmetric matrix, which lie together in memory.
        """
        k, end = len(self.order), len(self.order) + len(rows)
        L, D = self.L, self.D
        for top in range(k, end, APPEND_PANEL):
            bottom = min(top + APPEND_PANEL, end)
            width, new = bottom - top, rows[top - k : bottom - k]
            panel = self.block(new, rows[top - k :])
            panel[np.arange(width), np.arange(width)] += self.ridge[new]
            if top:
                panel -= (L[top:bottom, :top] * D[:top]) @ L[top:end, :top].T
            corner: Array = np.linalg.cholesky(panel[:, :width]).astype(np.float64, copy=False)
            pivot = corner.diagonal().copy()
            D[top:bottom] = pivot * pivot
            if not np.all((D[top:bottom] > 0) & np.isfinite(pivot)):
                raise np.linalg.LinAlgError("not positive definite")
            np.divide(corner, pivot, out=L[top:bottom, top:bottom])
            L[top:bottom, bottom:end] = 0.0
            if bottom < end:
                below = panel[:, width:]
                right_solve_in_place(below.T, corner)
                np.divide(below.T, pivot, out=L[bottom:end, top:bottom])
        self.order = np.concatenate([self.order, rows])

    def _make_room(self, size: int) -> None:
        """Hold a factor of this size, and a little more."""
        if size <= len(self.L):
            return
        k, room = len(self.order), min(len(self.ridge), size + size // 8)
        L, D = np.zeros((room, room)), np.empty(room)
        for start in range(0, k, _PANEL):
            rows = slice(start, min(start + _PANEL, k))
            L[rows, : rows.stop] = self.L[rows, : rows.stop]
        D[:k] = self.D[:k]
        self.L, self.D = L, D
