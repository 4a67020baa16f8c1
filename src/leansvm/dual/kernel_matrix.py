"""Kernel values among the training rows: computed when asked for, kept as far as memory allows.

`KernelMatrix` keeps nothing. `StoredMatrix` holds all values. `RecentRows` keeps the rows that were
used last, for sweeps over all rows. `GrowingRows` keeps every row that was asked for until its
budget is full, for an active set.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn._config import get_config

from leansvm._accelerated import free_memory
from leansvm._array_api import (
    as_float64,
    empty,
    foreign_namespace,
    in_float64,
    like_rows,
    namespace,
    rows_at,
    to_host,
    zeros,
)
from leansvm._parallel import blas_threads, for_tiles
from leansvm.dual.problem import DualProblem, check_symmetric
from leansvm.kernels import Kernel
from leansvm.rows import Block, MemoryBlocks, tile_rows_for

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

BLOCK = 16  # by benchmark: larger blocks spend more on choosing, smaller ones more on scanning
CACHED_BLOCK = 128  # computing rows costs less per row when there are many
_POOL_ROWS = 128  # rows that a block is picked from; `_POOL_BLOCKS` if kernel rows are computed
_POOL_BLOCKS = 4
_PRODUCT_ROWS = 256  # tile of a kernel matrix that is not kept
_SQUARE_ROWS = 16384  # of a tile on a device: a gigabyte in float32
_COLUMNS = 1024  # of a kernel matrix that a thread multiplies at a time
_GATHER_ROWS = 32  # a few rows of the kernel matrix stay in the processor's cache
_GIVEN = Kernel("precomputed")
_VECTORS = 36  # of length m that a sweeping solver works with, and 16 per output (penalty flow)


class KernelMatrix:
    """Kernel values among the rows of X, each computed when it is asked for and thrown away."""

    def __init__(self, X: Any, kernel: Kernel) -> None:
        self.X, self.kernel, self.m = X, kernel, X.shape[0]

    @cached_property
    def diag(self) -> Array:
        """Kernel values of every row with itself."""
        return np.asarray(to_host(self.kernel.diag(self.X)), dtype=np.float64)

    def block(self, a: Rows, b: Rows) -> Array:
        """Return the kernel values between rows a and rows b, a fresh array; rows on the host."""
        return np.asarray(self.kernel.block(self.X[a], self.X[b], dtype=np.float64))

    def product(self, V: Array) -> Array:
        """Return K V for a vector, or a matrix of columns; zero rows of V need no kernel values."""
        if foreign_namespace(self.X) is not None:
            return _symmetric_product(in_float64(self.X), self.kernel, V)
        blocks, X = MemoryBlocks(self.X, tile_rows=_product_rows(self.X, self.m)), self.X
        used = V.any(axis=1) if V.ndim == 2 else V != 0
        if not used.all():
            X, V = X[np.flatnonzero(used)], V[used]
        return blocks.concatenate(_kernel_times, self.kernel, X, V)

    def quick_product(self, V: Array) -> Array:
        """Return K V, on a device with values in the precision of the rows: for CG's steps."""
        if self.kernel.precomputed or foreign_namespace(self.X) is None:
            return self.product(V)
        found = self.kernel.fused_times(self.X, like_rows(V, self.X))
        if found is not None:
            return np.asarray(to_host(found))
        return _symmetric_product(self.X, self.kernel, V)


class StoredMatrix(KernelMatrix):
    """All kernel values: float64 or float32, on the host or on a device."""

    def __init__(self, K: Any) -> None:
        self.values = self.X = K
        self.kernel, self.m, on_host = _GIVEN, K.shape[0], isinstance(K, np.ndarray)
        diag = K.diagonal() if on_host else to_host(namespace(K).linalg.diagonal(K))
        self.diag = np.array(diag, dtype=np.float64)
        self.step_rows = BLOCK  # multipliers that a step of a sweep updates
        self.pool_rows = _POOL_ROWS  # rows that they are picked from

    def block(self, a: Rows, b: Rows) -> Array:
        """Return the kernel values between rows a and rows b, a fresh array."""
        out = np.empty((len(a), len(b)))
        _gather(self.values, a, b, out, np.arange(len(a)))
        return out

    def ensure(self, rows: Rows, budget: int) -> None:
        """Do nothing: all rows are here."""

    def product(self, V: Array) -> Array:
        """Return K V as (V'K)', where BLAS reads the rows of the symmetric K once."""
        K = self.values
        if not isinstance(K, np.ndarray):
            return np.asarray(to_host(K @ like_rows(V, K)))
        Vt = np.ascontiguousarray(V.T)
        product = np.zeros(Vt.shape)
        if K.dtype == np.float64:

            def multiply(a: int, b: int) -> None:
                np.matmul(Vt, K[:, a:b], out=product[..., a:b])

            for_tiles(len(K), _COLUMNS, multiply)
        else:  # a float32 matrix, by tiles in float64
            for start in range(0, len(K), _PRODUCT_ROWS):
                rows = slice(start, start + _PRODUCT_ROWS)
                product += Vt[..., rows] @ K[rows].astype(np.float64)
        return np.ascontiguousarray(product.T)


class RecentRows(KernelMatrix):
    """Kernel rows computed when asked for; the most recent ones are kept, within ``max_bytes``.

    Missing rows are computed in batches, so that a matrix product does the work, and take the
    place of the rows that were not used for longest. At least one row is kept.
    """

    def __init__(self, X: Any, kernel: Kernel, max_bytes: int) -> None:
        super().__init__(X, kernel)
        m, row = self.m, 8 * self.m
        widest = np.sqrt(max_bytes / 4 / 8) / _POOL_BLOCKS  # a quarter of the bytes for `square`
        self.step_rows = int(np.clip(min(max_bytes // row // 2, widest), 1, min(CACHED_BLOCK, m)))
        self.pool_rows = _POOL_BLOCKS * self.step_rows
        room = max_bytes - 8 * self.pool_rows**2
        self.n_slots = int(np.clip(room // row - self.step_rows, 1, m))
        self._values = np.empty((self.n_slots, m))
        self._slot_of = np.full(m, -1, dtype=np.int64)
        self._row_in = np.full(self.n_slots, -1, dtype=np.int64)
        self._last_use = np.zeros(self.n_slots, dtype=np.int64)
        self._scratch, self._square = np.empty((0, m)), np.empty(0)
        self._clock = 0
        self.computed = 0  # rows

    def square(self, rows: Rows) -> NDArray[Any]:
        """Return the kernel values among these rows, in memory that is kept."""
        points, n = self.X[rows], len(rows)
        if len(self._square) < n * n:
            self._square = np.empty(n * n)
        out = self._square[: n * n].reshape(n, n)
        return np.asarray(self.kernel.block(points, points, out=out))

    def subtract(self, rows: Rows, delta: Array, r: Array) -> None:
        """Subtract sum_a delta_a K[rows_a] from r, as many rows at a time as there are slots."""
        from leansvm.dual._smo_kernels import subtract_rows

        for start in range(0, len(rows), self.n_slots):
            part = slice(start, start + self.n_slots)
            slots = self._fetch(rows[part])
            subtract_rows(self._values, slots, delta[part], r)

    def product(self, V: Array) -> Array:
        """Return K V, computing all rows, as many at a time as a step does."""
        result = np.empty(V.shape)
        for start in range(0, len(V), self.step_rows):
            part = slice(start, min(start + self.step_rows, len(V)))
            result[part] = self._scratch_block(self.X[part]) @ V
        return result

    def _fetch(self, rows: Rows) -> NDArray[np.int64]:
        """Return the slots of distinct rows, after computing in one block those not kept."""
        self._clock += 1
        slots = self._slot_of[rows]
        self._last_use[slots[slots >= 0]] = self._clock
        missing = rows[slots < 0]
        if len(missing):
            self.computed += len(missing)
            oldest = np.sort(np.argsort(self._last_use, kind="stable")[: len(missing)])
            evicted = self._row_in[oldest]
            self._slot_of[evicted[evicted >= 0]] = -1
            points, first, stop = self.X[missing], oldest[0], oldest[-1] + 1
            if stop - first == len(oldest):  # adjacent slots need no copy
                self.kernel.block(points, self.X, out=self._values[first:stop])
            else:
                self._values[oldest] = self._scratch_block(points)
            self._slot_of[missing], self._row_in[oldest] = oldest, missing
            self._last_use[oldest] = self._clock
        return self._slot_of[rows]

    def _scratch_block(self, points: Any) -> Array:
        """Return kernel rows in memory that is kept: fresh pages cost as much as the values."""
        n = points.shape[0]
        if len(self._scratch) < n:
            self._scratch = np.empty((n, self.m))
        return np.asarray(self.kernel.block(points, self.X, out=self._scratch[:n]))


class GrowingRows(KernelMatrix):
    """Kernel rows computed once and kept until the budget is full; the others are recomputed.

    Rows come in chunks, one for each call of `ensure`.
    """

    def __init__(self, X: Any, kernel: Kernel) -> None:
        super().__init__(X, kernel)
        self.bytes = 0  # of the rows that are kept
        self._chunks: list[tuple[Rows, Array]] = []
        self._chunk = np.full(self.m, -1, np.intp)  # chunk that holds a row, and its position there
        self._position = np.zeros(self.m, np.intp)

    def extend(self, X: Any, budget: int) -> None:
        """Go on with more rows: ``X`` holds the earlier rows, then the new ones."""
        old, chunks = self.m, self._chunks
        GrowingRows.__init__(self, X, self.kernel)
        for rows, values in chunks:
            if self.bytes + 8 * len(rows) * self.m > budget:
                break
            new = self.kernel.block(X[rows], X[old:], dtype=np.float64)
            self._keep(rows, np.hstack([values, new]))

    def ensure(self, rows: Rows, budget: int) -> None:
        """Compute and keep the rows that are not here yet, as far as the bytes allow.

        If fewer bytes are allowed than before, the latest chunks are dropped.
        """
        while self.bytes > max(budget, 0):
            lost, values = self._chunks.pop()
            self._chunk[lost] = -1
            self.bytes -= values.nbytes
        room = (budget - self.bytes) // (8 * self.m)
        missing = rows[self._chunk[rows] < 0][: max(room, 0)]
        if len(missing):
            values = self.kernel.block(self.X[missing], self.X, dtype=np.float64)
            if callable(self.kernel.name):
                check_symmetric(values[:, missing], "the callable kernel")
            self._keep(missing, values)

    def _keep(self, rows: Rows, values: Array) -> None:
        self._chunk[rows], self._position[rows] = len(self._chunks), np.arange(len(rows))
        self._chunks.append((rows, values))
        self.bytes += values.nbytes

    def block(self, a: Rows, b: Rows) -> Array:
        """Return the kernel values between rows a and rows b, a fresh array."""
        out = np.empty((len(a), len(b)))
        chunk = self._chunk[a]
        for number in np.unique(chunk):
            mine = np.flatnonzero(chunk == number)
            if number < 0:
                points = self.X[b]
                for start in range(0, len(mine), _PRODUCT_ROWS):
                    some = mine[start : start + _PRODUCT_ROWS]
                    out[some] = self.kernel.block(self.X[a[some]], points, dtype=np.float64)
            else:
                _gather(self._chunks[number][1], self._position[a[mine]], b, out, mine)
        return out

    def product(self, V: Array) -> Array:
        """Return K V for a vector of all rows that is zero at rows that do not count."""
        total = np.zeros(self.m)
        for rows, values in self._chunks:
            coef = V[rows]
            if coef.any():
                total += coef @ values
        lost = np.where(self._chunk < 0, V, 0.0)
        return total + super().product(lost) if lost.any() else total


SweepMatrix = StoredMatrix | RecentRows


def gram(problem: DualProblem) -> Any:
    """Return a fresh kernel matrix of all rows in float64, where they are."""
    kernel, m = problem.kernel, len(problem.weight)
    with problem.phases("gram"):
        if foreign_namespace(problem.X) is None:
            K = np.empty((m, m))
            if kernel.precomputed:
                np.copyto(K, problem.X)
                return K
            kernel.block(problem.X, problem.X, out=K)
        else:
            X = in_float64(problem.X)
            K, tile = empty((m, m), X), tile_rows_for(8 * 4 * m, X)
            for start in range(0, m, tile):
                stop = min(start + tile, m)
                K[start:stop, :] = kernel.block(X[start:stop, :], X)
        if callable(kernel.name):
            check_symmetric(to_host(K), "the callable kernel")
        return K


def unstored(problem: DualProblem) -> KernelMatrix:
    """Return the kernel matrix of a problem without memory for its values."""
    X, kernel = problem.X, problem.kernel
    return StoredMatrix(X) if kernel.precomputed else KernelMatrix(X, kernel)


def product_bytes(problem: DualProblem) -> int:
    """Bytes of the tiles that a product with the `unstored` matrix works on at a time."""
    if problem.kernel.precomputed:
        return 0
    m, d = len(problem.weight), problem.X.shape[1]
    if foreign_namespace(problem.X) is not None:
        return 8 * (3 * _square_tile(problem.X) ** 2 + m * d)
    return 8 * blas_threads() * _product_rows(problem.X, m) * (m + d)


def sweep_matrix(problem: DualProblem) -> tuple[DualProblem, SweepMatrix]:
    """Reserve and return the kernel matrix if it fits the budget, else a cache of its rows."""
    m, n_outputs = problem.Y.shape
    vectors = 8 * m * (_VECTORS + 16 * n_outputs)
    if problem.kernel.precomputed:
        problem = problem.reserve(vectors, "A sequential solver", or_cg=False)
        return problem, StoredMatrix(np.ascontiguousarray(problem.X))
    if problem.fits(8 * m * m + vectors):
        problem = problem.reserve(8 * m * m + vectors, "The fit")
        return problem, StoredMatrix(gram(problem))
    problem = problem.reserve(least_sweep_bytes(problem), "A cache of kernel rows", or_cg=False)
    max_bytes = 16 * m * min(BLOCK, m) + problem.budget - problem.bytes
    rows = RecentRows(problem.X, problem.kernel, max_bytes)
    return replace(problem, bytes=problem.budget), rows


def least_sweep_bytes(problem: DualProblem) -> int:
    """Fewest bytes that computing rows needs: vectors, a batch, its slots, a copy of X."""
    m, n_outputs = problem.Y.shape
    return 8 * m * (_VECTORS + 16 * n_outputs + 2 * min(BLOCK, m) + problem.X.shape[1] + 2)


def values_between(problem: DualProblem, a: Rows, b: Rows) -> Array:
    """Return kernel values between a few rows of a problem that has not reserved memory yet."""
    if problem.rows is not None:
        a, b = problem.rows[a], problem.rows[b]
    if problem.kernel.precomputed:
        return np.asarray(problem.X[np.ix_(a, b)], dtype=np.float64)
    points, others = rows_at(problem.X, a), rows_at(problem.X, b)
    dtype = np.float64 if foreign_namespace(problem.X) is None else None
    return np.asarray(to_host(problem.kernel.block(points, others, dtype=dtype)), np.float64)


def _product_rows(X: Any, m: int) -> int:
    """Rows of the tiles in which m kernel rows are computed and thrown away."""
    return max(1, min(_PRODUCT_ROWS, tile_rows_for(8 * (m + X.shape[1])), m // 16))


def _symmetric_product(X: Any, kernel: Kernel, V: Array) -> Array:
    """Return k(X, X) V, on the device of X; every tile serves twice, as K_ij and as K_ji.

    Products of float32 tiles are added up in float64.
    """
    xp, m, tile = namespace(X), X.shape[0], _square_tile(X)
    columns, total = xp.astype(like_rows(V, X), X.dtype, copy=False), zeros(V.shape, X)
    parts = [slice(start, min(start + tile, m)) for start in range(0, m, tile)]
    for i, rows in enumerate(parts):
        for others in parts[i:]:
            K = kernel.block(X[rows, :], X[others, :])
            total[rows, ...] += as_float64(K @ columns[others, ...])
            if others is not rows:
                total[others, ...] += as_float64(K.T @ columns[rows, ...])
    return np.asarray(to_host(total))


def _square_tile(X: Any) -> int:
    """Rows of the square tiles of a product on a device: an eighth of what is free for one."""
    room = free_memory(X) or 2**20 * get_config()["working_memory"]
    return int(np.clip((room / 64) ** 0.5, 1, min(_SQUARE_ROWS, X.shape[0])))


def _kernel_times(block: Block, kernel: Kernel, points: Any, V: Array) -> Array:
    values = kernel.block(block.X, points, dtype=np.float64)
    return np.asarray(to_host(values @ like_rows(V, values)))


def _gather(values: Any, a: Rows, b: Rows, out: Array, where: Rows) -> None:
    """Write values[a][:, b] into out[where], a few rows at a time."""
    for start in range(0, len(a), _GATHER_ROWS):
        rows = slice(start, start + _GATHER_ROWS)
        out[where[rows]] = values[a[rows]].take(b, axis=1, mode="clip")
