"""The whitened basis P = K_MB L^-T, kept in the blocks and grown column by column.

Adding point t appends p = (K_Mt - P P_t') / sqrt(D_t) and lowers D by p^2 (zhou2016, Theorem
3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._accelerated import matmul_into, put
from leansvm._array_api import (
    as_float64,
    empty,
    foreign_namespace,
    in_float64,
    like_rows,
    namespace,
    rows_at,
    to_host,
)
from leansvm._parallel import for_tiles
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]


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


def factor_rows(blocks: RowBlocks, indices: NDArray[np.intp], k: int) -> Any:
    """Collect the rows of P (first k columns) with these numbers, where P is."""
    places, values = blocks.collect(_rows_of_factor, indices, k)
    in_order = bool(np.all(places[1:] > places[:-1]))
    return values if in_order else rows_at(values, np.argsort(places))


@declare()
def _rows_of_factor(block: Block, indices: NDArray[np.intp], k: int) -> tuple[Any, Any]:
    mine, rows = block.positions(indices)
    return mine, rows_at(block.kept(FactorRows).P[:, :k], rows)


def residual_of(kernel: Kernel, X_c: Any, P_c: Any, indices: NDArray[np.intp]) -> Array:
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
    indices: NDArray[np.intp]  # of the rows A


@declare("X", "weight", keeps=FactorRows, changes=("D",), appends=("P",))
def extend(
    block: Block, kernel: Kernel, points: Any, rows: Array, k: int, indices: NDArray[np.intp]
) -> Any:
    """Append the columns P_new = (K_bA - P P_A') L_A^-T; return their weighted squared norms.

    The last four are those of `NewPivots`.
    """
    if foreign_namespace(block.X) is None:
        new = block.kept(FactorRows).P[:, k : k + rows.shape[0]]
        kernel.block(block.X, points, out=new)
        return append(block, new.T, rows, k, indices)
    K_A = kernel.block(in_float64(block.X), in_float64(points)).T
    return append(block, K_A, rows, k, indices)


def append(block: Block, K_A: Any, rows: Array, k: int, indices: NDArray[np.intp]) -> Any:
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
