"""Greedy pivoted Cholesky of a kernel matrix at GEMM speed (zhou2016, Algorithm 1).

K ~ P P' with one column per pivot, the pivot being the row with the largest residual diagonal D.
D only falls, so stale values are upper bounds: the best rows are factored among themselves and
accepted while they beat every other row's stale value. Same pivots as one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import free_memory
from leansvm._array_api import foreign_namespace, to_host
from leansvm.blocks import Block, MemoryBlocks, RowBlocks, declare
from leansvm.cholesky.growing import GrowingBasis, PartialCholesky, WideCholesky
from leansvm.kernels import Kernel

# Ties (a Gaussian kernel starts with an m-way one) are broken by row number, so residuals are
# compared after rounding to 36 bits of the largest diagonal: rounding errors stay below that.
_QUANTA = 2.0**36
KeyedRows = tuple[Any, Any]  # keys and numbers of rows, by row
# Where a round of few candidates takes fewer pivots than this, the next has many, if they are
# on a device.
_FEW_PIVOTS = 8
_FEWEST_WIDE, _MOST_WIDE = 4096, 2**16
_WIDE_PIVOTS = 128  # most pivots of such a round


@dataclass
class PivotedFactor:
    """Pivots in order, L of K_BB = L L' and the trace that is left after each pivot."""

    indices: NDArray[np.intp]
    L: NDArray[np.float64]
    trace: NDArray[np.float64]
    rounds: int


def pivoted_cholesky(
    blocks: RowBlocks,
    kernel: Kernel,
    n_pivots: int,
    *,
    trace_tol: float = 0.0,
    tol: float = 0.0,
    batch: int = 512,
    theta: float = 1.0,
    on_step: Callable[[int], bool] | None = None,
) -> PivotedFactor:
    """Choose up to ``n_pivots`` rows; blocks keep ``state["P"]`` (rows x n_pivots) and "D".

    Parameters
    ----------
    blocks : RowBlocks
        The rows; those of zero weight are not chosen.
    kernel : Kernel
        A positive semidefinite kernel.
    n_pivots : int
        Most pivots to take; fewer when the numerical rank is exhausted.
    trace_tol : float
        Stop when the residual trace, weighted by the rows' weights, is at most this.
    tol : float
        The same, as a fraction of the trace of the kernel matrix.
    batch : int
        Rows factored among themselves in a round.
    theta : float
        Accept local pivots while they reach this part of the largest value elsewhere: 1 gives
        the pivots of one at a time, less gives fewer rounds.
    on_step : callable, optional
        Called with the number of pivots after each round; returns True to stop.

    Returns
    -------
    PivotedFactor
        ``state["P"][:, :len(indices)]`` is then P, with P P_B' = K_MB.
    """
    basis = GrowingBasis(blocks, kernel, min(n_pivots, blocks.n_rows))
    trace_tol = max(trace_tol, tol * basis.residual_trace)
    rounds, width = 0, 1
    many_are_cheap, wide = _many_are_cheap(blocks, kernel), False
    while basis.size < basis.capacity and basis.residual_trace > trace_tol:
        most_rows = min(blocks.n_rows, max(_FEWEST_WIDE, min(blocks.n_rows // 16, _MOST_WIDE)))
        candidates, (value, row) = _best_rows(
            blocks, most_rows if wide else width, basis.largest, basis.floor
        )
        if len(candidates) == 0:
            break  # numerical rank exhausted
        most = basis.capacity - basis.size
        outside = (float(np.floor(theta * value)), row)
        local: PartialCholesky | WideCholesky
        if wide:
            local, by_few = _eliminate_many(basis, candidates, outside, most, width)
        else:
            local = _eliminate(basis, candidates, outside, most)
            by_few = len(local.picked)
        if not local.picked:
            break  # what was left was rounding
        basis.accept(local)
        rounds, width = rounds + 1, min(batch, blocks.n_rows)
        # where rows crowd together the best few are neighbours and give a pivot or two
        wide = many_are_cheap and by_few < _FEW_PIVOTS and basis.size > 1
        if on_step is not None and on_step(basis.size):
            break
    return PivotedFactor(*basis.cut(trace_tol), rounds)


def _many_are_cheap(blocks: RowBlocks, kernel: Kernel) -> bool:
    """Whether rows are on a device with memory of its own, which is fast at much at once."""
    return not kernel.precomputed and free_memory(blocks.place) is not None


def pivot_order(K: NDArray[np.float64]) -> NDArray[np.intp]:
    """Order the points of a small kernel matrix greedily; dependent ones are left out."""
    return pivoted_cholesky(MemoryBlocks(K), Kernel("precomputed"), len(K)).indices


def _keys(D: Any, largest: float, floor: float) -> Any:
    xp = foreign_namespace(D)
    if xp is not None:
        return xp.where(floor < D, xp.round(D / largest * _QUANTA), -1.0)
    above = floor < D
    keys = np.full(len(D), -1.0)
    keys[above] = np.rint(D[above] / largest * _QUANTA)
    return keys


@declare()
def _best_in_block(block: Block, count: int, largest: float, floor: float) -> KeyedRows:
    """Return keys and numbers of the best rows, in row order; where rows are foreign, by key."""
    keys = _keys(block.state["D"], largest, floor)
    xp = foreign_namespace(keys)
    if xp is not None:
        rows = _first_by_key(xp, keys, count)
        return xp.take(keys, rows), rows + block.start
    rows = _largest(keys, count)
    rows = rows[keys[rows] >= 0]
    return keys[rows], rows + block.start


def _better(a: KeyedRows, b: KeyedRows, count: int) -> KeyedRows:
    """Return the best of two sets of rows, the second of which comes after the first."""
    xp = foreign_namespace(a[0])
    if xp is not None:
        keys, rows = xp.concat([a[0], b[0]]), xp.concat([a[1], b[1]])
        first = _first_by_key(xp, keys, count)
        return xp.take(keys, first), xp.take(rows, first)
    keys, rows = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    places = _largest(keys, count)
    return keys[places], rows[places]


def _first_by_key(xp: Any, keys: Any, count: int) -> Any:
    """Return the places of the largest keys, of equal ones the first, as a stable sort does."""
    order = xp.argsort(keys, descending=True, stable=True)
    return order[: min(count, keys.shape[0])]


def _largest(keys: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the places of the ``count`` largest keys, in order; of equal ones the first."""
    if len(keys) <= count:
        return np.arange(len(keys))
    threshold = np.partition(keys, len(keys) - count)[len(keys) - count]
    above = np.flatnonzero(keys > threshold)
    ties = np.flatnonzero(keys == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, ties]))


def _best_rows(
    blocks: RowBlocks, width: int, largest: float, floor: float
) -> tuple[NDArray[np.intp], tuple[float, int]]:
    """Return the ``width`` best rows in order and the key (value, row) of the next one."""
    better = partial(_better, count=width + 1)
    keys, rows = blocks.fold(better, _best_in_block, width + 1, largest, floor)
    xp = foreign_namespace(keys)
    if xp is not None:
        return _best_of_foreign(xp, keys, rows, width, blocks.n_rows)
    if len(rows) <= width:
        return rows, (-1.0, blocks.n_rows)
    last = len(keys) - 1 - int(np.argmin(keys[::-1]))  # of the smallest keys the last row
    return np.delete(rows, last), (float(keys[last]), int(rows[last]))


def _best_of_foreign(
    xp: Any, keys: Any, rows: Any, width: int, n_rows: int
) -> tuple[NDArray[np.intp], tuple[float, int]]:
    """Return the same of rows by key; only the rows in order and one key come to the host."""
    if width <= _FEWEST_WIDE:
        xp, (keys, rows) = np, to_host((keys, rows))
    found = int(xp.count_nonzero(keys >= 0))
    outside = (-1.0, n_rows)
    if found > width:
        found, outside = width, (float(keys[width]), int(rows[width]))
    return np.asarray(to_host(xp.sort(rows[:found])), dtype=np.intp), outside


def _eliminate(
    basis: GrowingBasis, candidates: NDArray[np.intp], outside: tuple[float, int], most: int
) -> PartialCholesky:
    """Take local pivots while they beat ``outside``; the first always does."""
    from leansvm.cholesky._compiled import greedy

    local = PartialCholesky(basis.try_out(candidates), most)
    columns, picked = np.empty((local.most, len(candidates))), np.empty(local.most, np.intp)
    H = local.H if local.H.flags.c_contiguous else local.H.T  # symmetric
    scale = (basis.largest, _QUANTA, basis.floor)
    count = greedy(np.ascontiguousarray(H), local.D, columns, picked, candidates, *outside, *scale)
    local.picked = picked[:count].tolist()
    local.columns[:, :count] = columns[:count].T
    return local


def _eliminate_many(
    basis: GrowingBasis,
    candidates: NDArray[np.intp],
    outside: tuple[float, int],
    most: int,
    few: int,
) -> tuple[WideCholesky, int]:
    """As `_eliminate`, for so many candidates that their matrix would be too large.

    Also returns how many of the pivots ``few`` candidates would have given.
    """
    local = basis.try_out_many(candidates, min(most, _WIDE_PIVOTS), _QUANTA)
    beyond_few = local.key_of(few) if few < len(candidates) else -1.0
    by_few = 0
    while len(local.picked) < local.most:
        value, t = local.best()
        key = (value, -int(candidates[t]))
        if value < 0 or (local.picked and key < (outside[0], -outside[1])):
            break
        local.take(t)
        by_few += value >= beyond_few
    return local, by_few
