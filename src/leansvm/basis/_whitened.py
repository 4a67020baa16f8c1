"""The whitened basis P = K_MB L^-T, kept in the blocks and grown column by column.

State of a block: ``P`` (rows x capacity, column by column) and ``D`` = k(x, x) - |P_x|^2, what
the basis misses; 0 in rows of zero weight.
Adding point t appends p = (K_Mt - P P_t') / sqrt(D_t) and lowers D by p^2 (zhou2016, Theorem
3.1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._array_api import foreign_namespace, to_host
from leansvm._parallel import for_tiles
from leansvm.blocks import Block, RowBlocks, declare
from leansvm.kernels import Kernel

Array = NDArray[np.float64]
_DIAGONAL_IS_AT_HAND = ("rbf", "laplacian", "precomputed")


@declare("X", "weight", sets=("D", "P"))
def start(block: Block, kernel: Kernel, capacity: int) -> tuple[float, float]:
    """Give a block an empty basis; return the weighted sum and the maximum of its diagonal."""
    D = host_diag(kernel, block.X, block.start)
    total = D.sum()
    if block.weight is not None:  # rows that count for nothing are never chosen
        weight = np.asarray(block.weight, dtype=np.float64)
        D[weight == 0] = 0.0
        total = weight @ D
    block.state["D"] = D
    block.state["P"] = np.empty((len(D), capacity), order="F")  # so that columns are contiguous
    return float(total), float(D.max(initial=0.0))


def host_diag(kernel: Kernel, X: Any, first: int = 0) -> Array:
    """Return k(x, x) of rows from number ``first`` on, in float64 also of float32 rows."""
    if foreign_namespace(X) is None and kernel.name not in _DIAGONAL_IS_AT_HAND:
        X = X.astype(np.float64, copy=False)
    return np.array(kernel.diag(X, first), dtype=np.float64)


def rank_floor(largest: float) -> float:
    """Residuals at or below this are rounding: such a row adds nothing to the basis."""
    return 10 * float(np.finfo(np.float64).eps) * largest


def factor_rows(blocks: RowBlocks, indices: NDArray[np.intp], k: int) -> Array:
    """Collect the rows of P (first k columns) with these numbers."""
    mine, values = blocks.collect(_rows_of_factor, indices, k)
    result = np.empty((len(indices), k))
    result[mine] = values
    return result


@declare()
def _rows_of_factor(block: Block, indices: NDArray[np.intp], k: int) -> tuple[Any, Array]:
    mine, rows = block.positions(indices)
    return mine, block.state["P"][rows, :k]


def residual_among(
    blocks: RowBlocks, kernel: Kernel, indices: NDArray[np.intp], k: int
) -> tuple[Array, Array, Any]:
    """Return H = K_cc - P_c P_c', the rows P_c and the rows' points."""
    P_c = factor_rows(blocks, indices, k)
    X_c = blocks.take(indices)
    points = kernel.points(X_c, indices)
    if foreign_namespace(X_c) is not None:
        H = np.array(to_host(kernel.block(X_c, points)), dtype=np.float64)
        H -= P_c @ P_c.T
        return H, P_c, points
    H = np.empty((len(indices), len(indices)))

    def fill(start: int, stop: int) -> None:
        kernel.block(X_c[start:stop], points, out=H[start:stop])
        H[start:stop] -= P_c[start:stop] @ P_c.T

    for_tiles(len(indices), 128, fill)
    return H, P_c, points


@declare("X", "weight", changes=("D",), appends=("P",))
def extend(
    block: Block, kernel: Kernel, points: Any, rows: Array, k: int, indices: NDArray[np.intp]
) -> Array:
    """Append the columns P_new = (K_bA - P P_A') L_A^-T; return their weighted squared norms.

    ``rows`` are the rows A of L, [P_A, L_A], with k columns in P_A.
    """
    new = block.state["P"][:, k : k + rows.shape[0]]
    if foreign_namespace(block.X) is None:
        kernel.block(block.X, points, out=new)
    else:
        new[...] = np.asarray(kernel.block(block.X, points))
    return append(block, new.T, rows, k, indices)


def append(block: Block, K_A: Array, rows: Array, k: int, indices: NDArray[np.intp]) -> Array:
    """As `extend`, with the kernel columns of A at hand, as rows of ``K_A``."""
    P, D = block.state["P"], block.state["D"]
    new = P[:, k : k + rows.shape[0]]
    # products, transposed as BLAS sees them: SciPy's triangular solve keeps other threads waiting
    residual = rows[:, :k] @ P[:, :k].T
    np.subtract(K_A, residual, out=residual)
    np.matmul(np.tril(dtrtri(rows[:, k:], lower=1)[0]), residual, out=new.T)
    squares = np.square(new)
    D -= squares.sum(axis=1)
    np.maximum(D, 0.0, out=D)
    _, mine = block.positions(indices)
    D[mine] = 0.0
    if block.weight is None:
        return np.asarray(squares.sum(axis=0))
    return np.asarray(np.asarray(block.weight, dtype=np.float64) @ squares)
