"""LDL' factor of K_SS + diag(1 / (C s)) that follows the support set S (peng2016, §5.1-5.3).

Between two iterations few rows leave S and few enter. Leaving rows are taken out by adjacent swaps
(eq. (64), level 1), by a blocked update of rank r (level 3), or by factoring anew from the first
of them, whichever is cheapest by counted flops; entering rows are appended as one block, eq. (61).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from leansvm.linalg import cholesky_in_place, right_solve_in_place

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# A level-1 flop takes as long as this many flops of a matrix product.
SWAP_WEIGHT = 30.0
UPDATE_WEIGHT = 2.5  # products of narrow panels
_PANEL = 64


class SupportFactor:
    """Factor of the regularised kernel matrix of a changing set of rows.

    Parameters
    ----------
    block : callable
        ``block(a, b)`` returns the kernel values between rows a and rows b, a fresh array.
    ridge : ndarray of shape (m,)
        What is added to the diagonal, 1 / (C s_i).
    reuse : bool
        False factors anew at every change (for comparison).
    """

    def __init__(
        self, block: Callable[[Rows, Rows], Array], ridge: Array, *, reuse: bool = True
    ) -> None:
        self.block, self.ridge, self.reuse = block, ridge, reuse
        self.order: Rows = np.empty(0, np.intp)  # rows in the order of the factor
        self.L: Array = np.zeros((0, 0))  # unit lower triangular, zeros above
        self.D: Array = np.empty(0)
        self.counts = {"swapped": 0, "updated": 0, "refactored": 0, "appended": 0}

    def change_to(self, rows: Rows, priority: Array) -> None:
        """Make it the factor of ``rows``; those of low ``priority`` come last: they leave first.

        Raises
        ------
        numpy.linalg.LinAlgError
            When the matrix is not positive definite.
        """
        stays = np.isin(self.order, rows, assume_unique=True)
        leaving = np.flatnonzero(~stays)
        entering = rows[~np.isin(rows, self.order, assume_unique=True)]
        if len(leaving):
            again = self._drop(leaving)
            entering = np.concatenate([again, entering])
        if len(entering):
            entering = entering[np.argsort(-priority[entering], kind="stable")]
            self._append(entering)

    def forget(self) -> None:
        """Start from nothing at the next change."""
        self.order = self.order[:0]

    def solve(self, B: Array) -> Array:
        """Solve (K_SS + ridge) X = B, rows in the order of the factor."""
        X = B.copy()
        k, L = len(self.order), self.L
        corners = {}
        for start in range(0, k, _PANEL):  # L X = B
            stop = min(start + _PANEL, k)
            corners[start] = _unit_lower_inverse(L[start:stop, start:stop])
            X[start:stop] -= L[start:stop, :start] @ X[:start]
            X[start:stop] = corners[start] @ X[start:stop]
        X /= self.D[:k, None]
        for start in reversed(corners):  # L' X = B
            stop = min(start + _PANEL, k)
            X[start:stop] = corners[start].T @ X[start:stop]
            X[:start] -= L[start:stop, :start].T @ X[start:stop]
        return X

    # ------------------------------------------------------------------ leaving

    def _drop(self, leaving: Rows) -> Rows:
        """Remove these places; return rows that lost theirs and have to be appended again."""
        k, first = len(self.order), int(leaving[0])
        tail = k - first
        by_swaps = SWAP_WEIGHT * 2.0 * float(np.sum((k - leaving) ** 2.0))
        by_update = UPDATE_WEIGHT * self._update_flops(leaving)
        anew = tail**3 / 3 + first * tail**2
        survivors = np.delete(self.order, leaving)
        if not self.reuse or anew <= min(by_swaps, by_update):
            kept = first if self.reuse else 0
            self.order = self.order[:kept]
            self.counts["refactored"] += 1
            return survivors[kept:]
        if by_swaps <= by_update:
            from leansvm.solvers._ldl_swap import drop_by_swaps

            for size, place in zip(range(k, 0, -1), leaving[::-1], strict=False):
                drop_by_swaps(self.L, self.D, size, int(place))
            self.counts["swapped"] += len(leaving)
        else:
            self._update(leaving)
            self.counts["updated"] += len(leaving)
        self.order = survivors
        return self.order[:0]

    def _update_flops(self, leaving: Rows) -> float:
        k = len(self.order)
        starts = np.arange(int(leaving[0]), k, _PANEL)
        rank = np.searchsorted(leaving, np.minimum(starts + _PANEL, k))
        return float(np.sum(2.0 * (k - starts) * (_PANEL + rank) ** 2))

    def _update(self, leaving: Rows) -> None:
        """Absorb the columns that leave: L_t D_t L_t' + V V' for the rows behind the first.

        With Q orthogonal and [L_J sqrt(D_J), V_J] Q = [R, 0] for a panel J, the rows below get
        [L_IJ sqrt(D_J), V_I] Q = [their new columns, what is left of V_I].
        """
        k, first = len(self.order), int(leaving[0])
        kept = np.delete(np.arange(first, k), leaving - first)
        L, n = self.L, len(kept)
        T = L[np.ix_(kept, kept)]
        V = L[np.ix_(kept, leaving)] * np.sqrt(self.D[leaving])
        root = np.sqrt(self.D[kept])
        for start in range(0, n, _PANEL):
            stop = min(start + _PANEL, n)
            rank = int(np.searchsorted(leaving, kept[stop - 1]))
            width = stop - start
            joined = np.empty((n - start, width + rank))
            np.multiply(T[start:, start:stop], root[start:stop], out=joined[:, :width])
            joined[:, width:] = V[start:, :rank]
            Q, R = np.linalg.qr(joined[:width].T, mode="complete")
            sign = np.where(R.diagonal() < 0, -1.0, 1.0)
            Q[:, :width] *= sign
            joined[width:] = joined[width:] @ Q
            joined[:width, :width] = np.tril(R[:width].T * sign)
            pivot = joined[:width, :width].diagonal().copy()
            np.divide(joined[:, :width], pivot, out=T[start:, start:stop])
            root[start:stop] = pivot
            V[stop:, :rank] = joined[width:, width:]
        L[first : first + n, :first] = L[kept, :first]
        L[first : first + n, first : first + n] = T
        self.D[first : first + n] = root**2

    # ------------------------------------------------------------------ entering

    def _append(self, rows: Rows) -> None:
        """Append rows: L21 = (A21 L11^-T) D1^-1, L22 D2 L22' = A22 - L21 D1 L21'."""
        k, q = len(self.order), len(rows)
        A22 = np.ascontiguousarray(self.block(rows, rows))
        A22.flat[:: q + 1] += self.ridge[rows]
        self._make_room(k + q)
        L, D = self.L, self.D
        if k:
            Z = self.block(rows, self.order)
            right_solve_in_place(Z, L[:k, :k])
            L21 = L[k : k + q, :k]
            np.divide(Z, D[:k], out=L21)
            A22 -= Z @ L21.T
        cholesky_in_place(A22)
        pivot = A22.diagonal().copy()
        if not np.all(pivot * pivot > 0):  # underflow
            raise np.linalg.LinAlgError("not positive definite")
        D[k : k + q] = pivot * pivot
        for start in range(0, q, 256):  # lower triangle only: zeros stay above it
            stop = min(start + 256, q)
            tile = A22[start:stop, :stop] / pivot[:stop]
            tile[:, start:] = np.tril(tile[:, start:])
            L[k + start : k + stop, k : k + stop] = tile
            L[k + start : k + stop, k + stop : k + q] = 0.0
        self.order = np.concatenate([self.order, rows])
        self.counts["appended"] += q

    def _make_room(self, size: int) -> None:
        if size <= len(self.D):
            return
        k = len(self.order)
        room = size if not len(self.D) else max(size, int(1.1 * len(self.D)))
        L, D = np.zeros((room, room)), np.empty(room)
        L[:k, :k], D[:k] = self.L[:k, :k], self.D[:k]
        self.L, self.D = L, D


def _unit_lower_inverse(L: Array) -> Array:
    """Invert a small unit lower triangular matrix."""
    (trtri,) = get_lapack_funcs(("trtri",), (L,))
    return np.asarray(trtri(np.asfortranarray(L), lower=True)[0])
