"""LDL' factor of K_SS + diag(1 / (C s)) that follows the support set S (peng2016, §5.1-5.3).

Between two iterations few rows leave S and few enter. Leaving rows are taken out by adjacent swaps
(eq. (64), level 1) or by factoring anew from the first of them (level 3), whichever is cheaper by
counted flops; entering rows are appended as one block, eq. (61).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from leansvm.linalg import (
    cholesky_in_place,
    corner_inverses,
    right_divide_in_place,
    right_solve_in_place,
)

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# A level-1 flop takes as long as this many flops of a matrix product.
SWAP_WEIGHT = 25.0
_PANEL = 64
APPEND_PANEL = 256


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
        """Make it the factor of ``rows``; those of low ``priority`` come last: they leave first.

        Raises LinAlgError where the matrix is not positive definite.
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
        """Remove these rows: the first ones by swaps, the factor behind them is made anew.

        Rows that came last also leave first.
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
