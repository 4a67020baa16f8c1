"""A basis that grows in rounds: pivots B, the factor L of K_BB = L L' and the residual trace.

The host keeps what is of the size of the basis; the blocks keep P = K_MB L^-T and the residual
diagonal D (`leansvm.basis._whitened`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import in_float64, rows_at, to_host
from leansvm.basis._whitened import (
    extend,
    host_diag,
    rank_floor,
    residual_among,
    start,
    total_and_largest,
)
from leansvm.blocks import RowBlocks
from leansvm.kernels import Kernel

Array = NDArray[np.float64]


class PartialCholesky:
    """Cholesky factor of a small residual matrix H, pivot by pivot as the caller picks them."""

    def __init__(self, H: Array, most: int) -> None:
        self._H = H
        self.most = min(most, len(H))
        self.D = H.diagonal().copy()  # what the pivots so far leave of the diagonal
        self.columns = np.empty((len(H), self.most))
        self.picked: list[int] = []

    def take(self, t: int) -> None:
        """Make candidate ``t`` the next pivot: l = (H_t - columns l_t') / sqrt(D_t), D -= l^2."""
        a = len(self.picked)
        column = self._H[:, t] - self.columns[:, :a] @ self.columns[t, :a]
        column /= np.sqrt(self.D[t])
        column[self.picked] = 0.0
        self.columns[:, a] = column
        self.D -= column**2
        self.D[t] = 0.0
        self.picked.append(t)


class GrowingBasis:
    """Pivots in order and their factor, for selectors that add several pivots a round.

    Parameters
    ----------
    blocks : RowBlocks
        The rows; those of zero weight are never missed, so never chosen.
    kernel : Kernel
        A positive semidefinite kernel.
    capacity : int
        Most pivots there will be.
    """

    def __init__(self, blocks: RowBlocks, kernel: Kernel, capacity: int) -> None:
        self._blocks, self._kernel = blocks, kernel
        trace, self.largest = blocks.fold(total_and_largest, start, kernel, capacity)
        self.capacity = capacity
        self.floor = max(rank_floor(self.largest), 16 * _rounding_of(blocks, kernel))
        self.size = 0
        self._trace = [float(trace)]
        self._indices = np.empty(capacity, np.intp)
        self._L = np.zeros((capacity, capacity))

    @property
    def residual_trace(self) -> float:
        """Weighted trace of K - P P' at present."""
        return self._trace[-1]

    def try_out(self, candidates: NDArray[np.intp]) -> Array:
        """Return H = K_cc - P_c P_c' of candidate rows; `accept` takes some of them."""
        H, P_c, points = residual_among(self._blocks, self._kernel, candidates, self.size)
        self._candidates, self._factor_rows, self._points = candidates, P_c, points
        return H

    def accept(self, local: PartialCholesky) -> None:
        """Append the candidates that were taken as pivots of H, in order."""
        picked = np.asarray(local.picked, dtype=np.intp)
        k, a = self.size, len(picked)
        new = slice(k, k + a)
        A = self._candidates[picked]
        self._indices[new] = A
        # rows B of P: L = [L 0; P_A L_A]
        self._L[new, :k] = to_host(rows_at(self._factor_rows, picked))
        self._L[new, new] = np.tril(local.columns[picked, :a])
        points = self._kernel.points(rows_at(self._points, picked), A)
        rows = np.asfortranarray(self._L[new, : k + a])
        norms = self._blocks.sum(extend, self._kernel, points, rows, k, A)
        self._trace.extend((self.residual_trace - np.cumsum(norms)).tolist())
        self.size = k + a

    def cut(self, trace_tol: float) -> tuple[NDArray[np.intp], Array, Array]:
        """Return pivots, L and the trace after each, up to the first within ``trace_tol``."""
        k = self.size
        trace = np.maximum(self._trace[1 : k + 1], 0.0)
        if trace_tol > 0 and (trace <= trace_tol).any():
            k = int(np.argmax(trace <= trace_tol)) + 1
        return self._indices[:k].copy(), self._L[:k, :k].copy(), trace[:k]


def _rounding_of(blocks: RowBlocks, kernel: Kernel) -> float:
    """Return the error of kernel values as `block` computes them, seen on a few rows.

    The residual of a copy of a pivot is a few times this, not zero.
    """
    if kernel.precomputed or blocks.n_rows == 0:
        return 0.0
    rows = np.linspace(0, blocks.n_rows - 1, min(64, blocks.n_rows)).astype(np.intp)
    some = np.arange(0, len(rows), 3)
    X = in_float64(blocks.take(rows))
    K = np.asarray(to_host(kernel.block(X, X, dtype=np.float64)))
    again = to_host(kernel.block(X, rows_at(X, some), dtype=np.float64))  # other rounding
    error = np.abs(K.diagonal() - host_diag(kernel, X)).max()
    return float(max(error, np.abs(K[:, some] - again).max()))
