"""A basis that grows in rounds: pivots B, the factor L of K_BB = L L' and the residual trace.

The host keeps what is of the size of the basis; the blocks keep P = K_MB L^-T and the residual
diagonal D. Adding point t appends p = (K_Mt - P P_t') / sqrt(D_t) to P and lowers D by p^2
(zhou2016, Theorem 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._accelerated import put
from leansvm._array_api import (
    as_float64,
    empty,
    foreign_namespace,
    in_float64,
    like_rows,
    matmul_into,
    namespace,
    rows_at,
    to_host,
)
from leansvm._parallel import for_tiles
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_PLACE = 2.0**-16


# ---------------------------------------------------------------------------- in the blocks


@dataclass
class FactorRows:
    """What a block keeps of the whitened basis, where its rows are."""

    P: Any  # rows x capacity, columns contiguous; those of the basis so far are filled
    D: Any  # k(x, x) - |P_x|^2, what the basis misses; 0 in rows of zero weight


@declare("X", "weight", keeps=FactorRows)
def start(block: Block, kernel: Kernel, capacity: int) -> tuple[float, float]:
    """Give a block an empty basis; return the weighted sum and the maximum of its diagonal."""
    xp, n = namespace(block.X), block.stop - block.start
    D = diagonal(kernel, block.X, block.start)
    total = xp.sum(D)
    if block.weight is not None:  # rows that count for nothing are never chosen
        weight = as_float64(block.weight)
        D = xp.where(weight == 0, 0.0, D)
        total = xp.sum(weight * D)
    block.keep(FactorRows(empty((capacity, n), block.X).T, D))
    return float(total), float(xp.max(D)) if n else 0.0


def total_and_largest(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Combine what `start` returns of two blocks."""
    return a[0] + b[0], max(a[1], b[1])


def diagonal(kernel: Kernel, X: Any, first: int = 0) -> Any:
    """Return k(x, x) of rows from number ``first`` on, in float64, where they are."""
    if foreign_namespace(X) is not None:
        return as_float64(kernel.diag(in_float64(X), first)) + 0.0  # not a view of a given matrix
    if not (kernel.has_unit_diagonal or kernel.precomputed):
        X = X.astype(np.float64, copy=False)
    return np.array(kernel.diag(X, first), dtype=np.float64)


def rank_floor(largest: float) -> float:
    """Residuals at or below this are rounding: such a row adds nothing to the basis."""
    return 10 * float(np.finfo(np.float64).eps) * largest


def factor_rows(blocks: RowBlocks, indices: Rows, k: int) -> Any:
    """Collect the rows of P (first k columns) with these numbers, where P is."""
    places, values = blocks.collect(_rows_of_factor, indices, k)
    in_order = bool(np.all(places[1:] > places[:-1]))
    return values if in_order else rows_at(values, np.argsort(places))


@declare()
def _rows_of_factor(block: Block, indices: Rows, k: int) -> tuple[Any, Any]:
    mine, rows = block.positions(indices)
    return mine, rows_at(block.kept(FactorRows).P[:, :k], rows)


def residual_of(kernel: Kernel, X_c: Any, P_c: Any, indices: Rows) -> Array:
    """Return H = K_cc - P_c P_c' on the host, from rows and their rows of P."""
    points = kernel.points(X_c, indices)
    if foreign_namespace(X_c) is not None:
        values = kernel.block(in_float64(X_c), in_float64(points))
        return np.asarray(to_host(values - P_c @ P_c.T))
    H = np.empty((len(indices), len(indices)))

    def fill(start: int, stop: int) -> None:
        kernel.block(X_c[start:stop], points, out=H[start:stop])
        H[start:stop] -= P_c[start:stop] @ P_c.T

    for_tiles(len(indices), 128, fill)
    return H


class NewPivots(NamedTuple):
    """What blocks need to append the columns of new pivots."""

    points: Any  # as `Kernel.block` takes them
    rows: Array  # of L: [P_A, L_A]
    k: int  # columns of P_A
    indices: Rows  # of the rows A


@declare("X", "weight", keeps=FactorRows, changes=("D",), appends=("P",))
def extend(block: Block, kernel: Kernel, points: Any, rows: Array, k: int, indices: Rows) -> Any:
    """Append the columns P_new = (K_bA - P P_A') L_A^-T; return their weighted squared norms.

    The last four are those of `NewPivots`.
    """
    if foreign_namespace(block.X) is None:
        new = block.kept(FactorRows).P[:, k : k + rows.shape[0]]
        kernel.block(block.X, points, out=new)
        return append(block, new.T, rows, k, indices)
    K_A = kernel.block(in_float64(block.X), in_float64(points)).T
    return append(block, K_A, rows, k, indices)


def append(block: Block, K_A: Any, rows: Array, k: int, indices: Rows) -> Any:
    """As `extend`, with the kernel columns of A given, as rows of ``K_A``."""
    known, xp = block.kept(FactorRows), namespace(block.X)
    P, D = known.P, known.D
    new = P[:, k : k + rows.shape[0]].T
    # products, transposed as BLAS sees them: SciPy's triangular solve keeps other threads waiting
    negative_inverse = like_rows(-np.tril(dtrtri(rows[:, k:], lower=1)[0]), block.X)
    residual = like_rows(rows[:, :k], block.X) @ P[:, :k].T
    residual -= K_A
    matmul_into(negative_inverse, residual, new)
    squares = new * new
    D -= xp.sum(squares, axis=0)
    D = known.D = xp.clip(D, 0.0, None)
    _, mine = block.positions(indices)
    put(D, mine, 0.0)
    if block.weight is None:
        return xp.sum(squares, axis=1)
    return squares @ as_float64(block.weight)


# ---------------------------------------------------------------------------- on the host


class PartialCholesky:
    """Cholesky factor of a small residual matrix H, pivot by pivot as the caller picks them."""

    def __init__(self, H: Array, most: int) -> None:
        self.H = H
        self.most = min(most, len(H))
        self.D = H.diagonal().copy()  # what the pivots so far leave of the diagonal
        self.columns = np.empty((len(H), self.most))
        self.picked: list[int] = []

    def take(self, t: int) -> None:
        """Make candidate ``t`` the next pivot: l = (H_t - columns l_t') / sqrt(D_t), D -= l^2."""
        a = len(self.picked)
        column = self.H[:, t] - self.columns[:, :a] @ self.columns[t, :a]
        column /= np.sqrt(self.D[t])
        column[self.picked] = 0.0
        self.columns[:, a] = column
        self.D -= column**2
        self.D[t] = 0.0
        self.picked.append(t)

    def corner(self) -> Array:
        """Return the pivots' rows of the columns: lower triangular."""
        return np.tril(self.columns[self.picked, : len(self.picked)])


class WideCholesky:
    """The same for many candidates, where the rows are: H is never made, only its columns.

    For rows that crowd together, as on a fine grid: the best few hundred are all next to one
    another, and only one becomes a pivot. A step has few operations, because each is a separate
    launch on the GPU. There are at most 2^16 candidates, in float64. Residuals are compared in
    units of ``unit``, and those up to ``floor`` do not count.
    """

    def __init__(
        self, kernel: Kernel, points: Any, P: Any, most: int, unit: float, floor: float
    ) -> None:
        n, self._k = P.shape
        self.most, self.picked = min(most, n), list[int]()
        self._xp, self._floor, self._unit = namespace(P), floor, unit
        self._column = kernel.columns(points)
        self._D = diagonal(kernel, points) - self._xp.sum(P * P, axis=1)
        self._factor = empty((self._k + self.most, n), P).T  # P, then the new columns
        self._factor[:, : self._k] = P
        # so that the largest score is the first of equal keys: 37 bits of key, 16 of place
        self._places = like_rows(_PLACE * np.arange(n, 0, -1), P)

    def best(self) -> tuple[float, int]:
        """Return the largest key rint(D / unit) and its place, the first of equal ones.

        Both travel in one number. The key is -1 if all D are at most ``floor``.
        """
        xp = self._xp
        scores = xp.round(self._D / self._unit) + self._places
        score = float(xp.max(scores))
        if score <= 1.0:  # key 0: what is not above the floor does not count
            score = float(xp.max(xp.where(self._floor < self._D, scores, -1.0)))
            if score < 0:
                return -1.0, 0
        key = np.ceil(score) - 1.0
        return key, round(self._places.shape[0] - (score - key) / _PLACE)

    def key_of(self, rank: int) -> float:
        """Return the key of the candidate with that rank, 0 being the best."""
        keys = self._xp.round(self._D / self._unit)
        return float(self._xp.sort(keys, descending=True)[rank])

    def take(self, t: int) -> None:
        """Make candidate ``t`` the next pivot."""
        end = self._k + len(self.picked)
        known = self._factor[:, :end]
        column = self._column(t)
        column -= known @ known[t, :]
        column /= self._xp.sqrt(self._D[t])
        self._factor[:, end] = column
        column *= column
        self._D -= column
        self._D[t] = -self._unit
        self.picked.append(t)

    def corner(self) -> Array:
        """Return the pivots' rows of the new columns: lower triangular."""
        new = self._factor[:, self._k : self._k + len(self.picked)]
        return np.tril(to_host(rows_at(new, np.asarray(self.picked))))


class GrowingBasis:
    """Pivots in order, ``capacity`` at most, and their factor; several are added in a round.

    Rows of zero weight have the residual 0 and are never chosen.
    """

    def __init__(self, blocks: RowBlocks, kernel: Kernel, capacity: int) -> None:
        self._blocks, self._kernel = blocks, kernel
        trace, self.largest = blocks.fold(total_and_largest, start, kernel, capacity)
        self.capacity = capacity
        self.floor = max(rank_floor(self.largest), 16 * kernel_rounding(blocks, kernel))
        self.size = 0
        self._trace = [float(trace)]
        self._indices = np.empty(capacity, np.intp)
        self._L = np.zeros((capacity, capacity))

    @property
    def residual_trace(self) -> float:
        """Weighted trace of K - P P' at present."""
        return self._trace[-1]

    def try_out(self, candidates: Rows, X_c: Any = None, P_c: Any = None) -> Array:
        """Return H = K_cc - P_c P_c' of candidate rows; `accept` takes some of them."""
        if X_c is None:
            X_c = self._blocks.take(candidates)
            P_c = factor_rows(self._blocks, candidates, self.size)
        self._candidates, self._rows, self._factor_rows = candidates, X_c, P_c
        return residual_of(self._kernel, X_c, P_c, candidates)

    def try_out_many(
        self, candidates: Rows, X_c: Any, P_c: Any, most: int, quanta: float
    ) -> WideCholesky:
        """Like `try_out` for many candidates, without a matrix of all their pairs."""
        self._candidates, self._rows, self._factor_rows = candidates, X_c, P_c
        points, unit = in_float64(X_c), self.largest / quanta
        return WideCholesky(self._kernel, points, P_c, most, unit, self.floor)

    def accept(self, local: PartialCholesky | WideCholesky) -> None:
        """Append the candidates that were taken as pivots of H, in order."""
        new = self.take(local)
        self.has_grown(self._blocks.sum(extend, self._kernel, *new))

    def take(self, local: PartialCholesky | WideCholesky) -> NewPivots:
        """Store these pivots; return the argument of `extend`; call `has_grown` after that."""
        picked = np.asarray(local.picked, dtype=np.intp)
        k, a = self.size, len(picked)
        new = slice(k, k + a)
        A = self._candidates[picked]
        self._indices[new] = A
        # rows B of P: L = [L 0; P_A L_A]
        self._L[new, :k] = to_host(rows_at(self._factor_rows, picked))
        self._L[new, new] = local.corner()
        points = self._kernel.points(rows_at(self._rows, picked), A)
        self.size = k + a
        return NewPivots(points, np.asfortranarray(self._L[new, : k + a]), k, A)

    def has_grown(self, norms: Array) -> None:
        """Subtract the weighted squared norms of the new columns from the trace."""
        self._trace.extend((self.residual_trace - np.cumsum(norms)).tolist())

    def cut(self, trace_tol: float) -> tuple[Rows, Array, Array]:
        """Return pivots, L and the trace after each, up to the first within ``trace_tol``."""
        k = self.size
        trace = np.maximum(self._trace[1 : k + 1], 0.0)
        if trace_tol > 0 and (trace <= trace_tol).any():
            k = int(np.argmax(trace <= trace_tol)) + 1
        return self._indices[:k].copy(), self._L[:k, :k].copy(), trace[:k]


def kernel_rounding(blocks: RowBlocks, kernel: Kernel) -> float:
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
    error = np.abs(K.diagonal() - to_host(diagonal(kernel, X))).max()
    return float(max(error, np.abs(K[:, some] - again).max()))
