"""Rows of the kernel matrix for sequential solvers: from a stored matrix or an LRU cache.

A step needs the kernel values among a small pool of rows (`square`) and takes the few rows it has
picked from the residual (`subtract`). Where the matrix does not fit, missing rows are computed in
batches, so that a matrix product does the work, and the least recently used ones make room.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels import Kernel
from leansvm.solvers._problem import _times as symmetric_times

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 16  # by benchmark: larger blocks spend more on choosing, smaller ones more on scanning
CACHED_BLOCK = 128  # computing rows costs less a row when there are many
POOL_BLOCKS = 8  # a block is picked from at most as many rows as this many blocks have


class KernelRows(Protocol):
    """What a sequential solver asks of the kernel matrix."""

    diag: Array
    block: int  # multipliers that a step had best take

    def square(self, rows: Indices) -> NDArray[Any]:
        """Return the kernel values among these rows."""
        ...

    def subtract(self, rows: Indices, delta: Array, r: Array) -> None:
        """Subtract sum_a delta_a K[rows_a] from r."""
        ...

    def product(self, V: Array) -> Array:
        """Return K V."""
        ...


class MatrixRows:
    """Rows of a matrix in memory, float64 or float32; solvers also read it directly."""

    block = BLOCK

    def __init__(self, K: NDArray[Any]) -> None:
        self.matrix = np.ascontiguousarray(K)
        self.diag = self.matrix.diagonal().astype(np.float64)

    def square(self, rows: Indices) -> NDArray[Any]:
        """Return the kernel values among these rows."""
        return np.asarray(self.matrix[np.ix_(rows, rows)])

    def subtract(self, rows: Indices, delta: Array, r: Array) -> None:
        """Subtract sum_a delta_a K[rows_a] from r."""
        from leansvm.solvers._smo_kernels import subtract_rows

        subtract_rows(self.matrix, rows, delta, r)

    def product(self, V: Array) -> Array:
        """Return K V."""
        return symmetric_times(self.matrix, V)


class CachedRows:
    """Kernel rows computed when asked for, the most recent ones kept within a byte budget.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Rows.
    kernel : Kernel
        Not "precomputed", which needs no cache.
    max_bytes : int
        Bytes of kernel values to keep and to compute at a time; at least one row is kept.
    dtype : dtype
        Type of the kept values; float32 keeps twice as many, rounded to seven digits.
    """

    def __init__(self, X: Any, kernel: Kernel, max_bytes: int, dtype: Any = np.float64) -> None:
        m = X.shape[0]
        self.X, self.kernel = X, kernel
        self.diag = np.asarray(kernel.diag(X), dtype=np.float64)
        row = m * np.dtype(dtype).itemsize
        widest = np.sqrt(max_bytes / 4 / 8) / POOL_BLOCKS  # a quarter of the bytes for `square`
        self.block = int(np.clip(min(max_bytes // row // 2, widest), 1, min(CACHED_BLOCK, m)))
        room = max_bytes - 8 * (POOL_BLOCKS * self.block) ** 2
        self.n_slots = int(np.clip(room // row - self.block, 1, m))
        self._values = np.empty((self.n_slots, m), dtype)
        self._slot_of = np.full(m, -1, dtype=np.int64)
        self._row_in = np.full(self.n_slots, -1, dtype=np.int64)
        self._last_use = np.zeros(self.n_slots, dtype=np.int64)
        self._scratch, self._square = np.empty((0, m)), np.empty(0)
        self._clock = 0
        self.hits = self.misses = 0

    def square(self, rows: Indices) -> NDArray[Any]:
        """Return the kernel values among these rows."""
        points, n = self.X[rows], len(rows)
        if len(self._square) < n * n:
            self._square = np.empty(n * n)
        return np.asarray(
            self.kernel.block(points, points, out=self._square[: n * n].reshape(n, n))
        )

    def subtract(self, rows: Indices, delta: Array, r: Array) -> None:
        """Subtract sum_a delta_a K[rows_a] from r, as many rows at a time as there are slots."""
        from leansvm.solvers._smo_kernels import subtract_rows

        for start in range(0, len(rows), self.n_slots):
            part = slice(start, start + self.n_slots)
            slots = self._fetch(rows[part])
            subtract_rows(self._values, slots, delta[part], r)

    def product(self, V: Array) -> Array:
        """Return K V, computing all rows, as many at a time as a step does."""
        result = np.empty(V.shape)
        for start in range(0, len(V), self.block):
            part = slice(start, min(start + self.block, len(V)))
            result[part] = self._scratch_block(self.X[part]) @ V
        return result

    def _fetch(self, rows: Indices) -> Indices:
        """Return the slots of distinct rows, after computing in one block those not kept."""
        self._clock += 1
        slots = self._slot_of[rows]
        self._last_use[slots[slots >= 0]] = self._clock
        missing = rows[slots < 0]
        self.hits += len(rows) - len(missing)
        self.misses += len(missing)
        if len(missing):
            oldest = np.sort(np.argsort(self._last_use, kind="stable")[: len(missing)])
            evicted = self._row_in[oldest]
            self._slot_of[evicted[evicted >= 0]] = -1
            self._compute(missing, oldest)
            self._slot_of[missing], self._row_in[oldest] = oldest, missing
            self._last_use[oldest] = self._clock
            slots = self._slot_of[rows]
        return slots

    def _compute(self, rows: Indices, slots: Indices) -> None:
        """Write kernel rows to slots in one block; without a copy where the slots are adjacent."""
        adjacent = slots[-1] - slots[0] + 1 == len(slots)
        if adjacent and self._values.dtype == np.float64:
            self.kernel.block(self.X[rows], self.X, out=self._values[slots[0] : slots[-1] + 1])
            return
        self._values[slots] = self._scratch_block(self.X[rows])

    def _scratch_block(self, points: Any) -> Array:
        """Return kernel rows in memory that is kept: fresh pages cost as much as the values."""
        n = points.shape[0]
        if len(self._scratch) < n:
            self._scratch = np.empty((n, self._values.shape[1]))
        return np.asarray(self.kernel.block(points, self.X, out=self._scratch[:n]))
