"""Rows of the kernel matrix, each computed once and kept within a byte budget."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.blocks import Block, MemoryBlocks, declare
from leansvm.kernels import Kernel
from leansvm.solvers._problem import check_kernel_values

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


_GATHER_ROWS = 32  # a few rows of the kernel matrix stay in cache


class KernelRows:
    """Kernel values between chosen rows and all rows.

    Rows come in chunks, one for each call of `ensure`. What exceeds the budget is recomputed
    whenever it is needed.

    Parameters
    ----------
    X : array or CSR matrix of shape (m, d)
        All rows; the kernel matrix itself for ``kernel="precomputed"``.
    kernel : Kernel
        Kernel.
    budget : int
        Bytes that kept rows may take.
    """

    def __init__(self, X: Any, kernel: Kernel, budget: int) -> None:
        self.X, self.kernel, self.budget = X, kernel, budget
        self._empty()

    def _empty(self) -> None:
        self.m = self.X.shape[0]
        self.chunks: list[tuple[Rows, Array]] = []
        self._chunk = np.full(self.m, -1, np.intp)  # chunk that holds a row, and its place there
        self._place = np.zeros(self.m, np.intp)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the values: they can be computed again."""
        light = KernelRows(self.X, self.kernel, self.budget)
        return light.__dict__

    def extend(self, X: Any) -> None:
        """Go on with more rows: ``X`` holds those there were and new ones behind them."""
        old, chunks = self.m, self.chunks
        self.X = X
        self._empty()
        for rows, values in chunks:
            if (self.bytes + 8 * len(rows) * self.m) > self.budget:
                break
            new = self.kernel.block(X[rows], X[old:], dtype=np.float64)
            self._keep(rows, np.hstack([values, new]))

    def _keep(self, rows: Rows, values: Array) -> None:
        self._chunk[rows] = len(self.chunks)
        self._place[rows] = np.arange(len(rows))
        self.chunks.append((rows, values))

    @property
    def bytes(self) -> int:
        """Bytes of the rows that are kept."""
        return sum(values.nbytes for _, values in self.chunks)

    def ensure(self, rows: Rows) -> None:
        """Compute and keep the rows that are not here yet, as far as the budget goes."""
        if self.kernel.precomputed:
            return
        room = (self.budget - self.bytes) // (8 * self.m)
        missing = rows[self._chunk[rows] < 0][: max(room, 0)]
        if len(missing):
            values = self.kernel.block(self.X[missing], self.X, dtype=np.float64)
            check_kernel_values(values, self.kernel, missing)
            self._keep(missing, values)

    def block(self, a: Rows, b: Rows) -> Array:
        """Return the kernel values between rows a and rows b, a fresh array."""
        out = np.empty((len(a), len(b)))
        if self.kernel.precomputed:
            _gather(self.X, a, b, out, np.arange(len(a)))
            return out
        chunk = self._chunk[a]
        for number in np.unique(chunk):
            mine = np.flatnonzero(chunk == number)
            if number < 0:
                out[mine] = self.kernel.block(self.X[a[mine]], self.X[b], dtype=np.float64)
            else:
                _gather(self.chunks[number][1], self._place[a[mine]], b, out, mine)
        return out

    def product(self, beta: Array) -> Array:
        """Return K beta for a vector of all rows that is zero where a row does not count."""
        if self.kernel.precomputed:
            return np.asarray(beta @ np.asarray(self.X, dtype=np.float64))
        total = np.zeros(self.m)
        for rows, values in self.chunks:
            coef = beta[rows]
            if coef.any():
                total += coef @ values
        lost = np.flatnonzero((beta != 0) & (self._chunk < 0))
        if len(lost):
            blocks = MemoryBlocks(self.X, columns=len(lost))
            total += blocks.concatenate(_times, self.kernel, self.X[lost], beta[lost])
        return total


def _gather(values: Any, a: Rows, b: Rows, out: Array, where: Rows) -> None:
    """Write values[a][:, b] into out[where], a few rows at a time."""
    for start in range(0, len(a), _GATHER_ROWS):
        rows = slice(start, start + _GATHER_ROWS)
        out[where[rows]] = values[a[rows]].take(b, axis=1, mode="clip")


@declare("X")
def _times(block: Block, kernel: Kernel, points: Any, coef: Array) -> Array:
    return np.asarray(kernel.block(block.X, points, dtype=np.float64) @ coef)
