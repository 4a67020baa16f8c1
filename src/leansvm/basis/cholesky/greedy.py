"""Greedy pivoted Cholesky of a kernel matrix at GEMM speed (zhou2016, Algorithm 1).

K ~ P P' with one column per pivot, the pivot being the row with the largest residual diagonal D.
D only falls, so stale values are upper bounds: the best rows are factored among themselves and
accepted while they beat every other row's stale value. Same pivots as one at a time. Rows in
several parts, as on a cluster, are looked at on two levels: every part offers its best rows and the
value of the next one, and the best of all offers are the candidates. Any set of candidates gives
the same pivots, as long as the best row that is not among them is known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import free_memory
from leansvm._array_api import foreign_namespace, to_host
from leansvm.basis._base import Basis
from leansvm.basis.cholesky.growing import GrowingBasis, PartialCholesky, WideCholesky
from leansvm.basis.cholesky.rows import FactorRows, NewPivots, extend, factor_rows
from leansvm.kernels import Kernel
from leansvm.rows import (
    Block,
    MemoryBlocks,
    RowBlocks,
    declare,
)

# Ties (a Gaussian kernel starts with an m-way one) are broken by row number, so residuals are
# compared after rounding to 36 bits of the largest diagonal: rounding errors stay below that.
_QUANTA = 2.0**36
KeyedRows = tuple[Any, Any]  # keys and numbers of rows, by row
# Where a round of few candidates takes fewer pivots than this, the next has many, if they are
# on a device.
_FEW_PIVOTS = 8
_FEWEST_WIDE, _MOST_WIDE = 4096, 2**16
_WIDE_PIVOTS = 128  # most pivots of such a round
_SPARE = 32  # rows that a part offers beyond twice its share


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
) -> Basis:
    """Choose up to ``n_pivots`` rows; blocks keep `FactorRows`.

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
    Basis
        The pivots and L of K_BB = L L'. The report has the number of ``rounds`` and the
        ``trace`` that is left after each pivot.
    """
    basis = GrowingBasis(blocks, kernel, min(n_pivots, blocks.n_rows))
    trace_tol = max(trace_tol, tol * basis.residual_trace)
    rounds, wide = 0, False
    many_are_cheap = _many_are_cheap(blocks, kernel)
    many = max(_FEWEST_WIDE, min(blocks.n_rows // 16, _MOST_WIDE))
    found = _next_candidates(blocks, kernel, basis, None, 1)
    while basis.size < basis.capacity and basis.residual_trace > trace_tol:
        if len(found.rows) == 0:
            break  # numerical rank exhausted
        few = min(batch, blocks.n_rows) if rounds else 1
        local, by_few = _eliminate(basis, found, theta, few, wide)
        if not local.picked:
            break  # what was left was rounding
        new = basis.take(local)
        rounds += 1
        # where rows crowd together the best few are neighbours and give a pivot or two
        wide = many_are_cheap and by_few < _FEW_PIVOTS and basis.size > 1
        width = min(many if wide else batch, blocks.n_rows)
        found = _next_candidates(blocks, kernel, basis, new, width)
        if on_step is not None and on_step(basis.size):
            break
    indices, L, trace = basis.cut(trace_tol)
    return Basis(indices, L=L, report={"rounds": rounds, "trace": trace})


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
    keys = _keys(block.kept(FactorRows).D, largest, floor)
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


# ---------------------------------------------------------------------------- parts of the rows


class PartCandidates(NamedTuple):
    """The best rows of a part in row order, and what it takes to factor them elsewhere."""

    keys: Any  # None on a device, where there is one part
    rows: NDArray[np.intp]
    X: Any
    P: Any  # their rows of the factor
    outside: tuple[float, int]  # key and row of the next one
    norms: Any  # of the columns that were appended before; zero without any


def _next_candidates(
    blocks: RowBlocks, kernel: Kernel, basis: GrowingBasis, new: NewPivots | None, width: int
) -> PartCandidates:
    """Append the columns of new pivots, and find the ``width`` best rows after it: one pass."""
    if basis.size == basis.capacity:
        width = 0  # there will be no other round
    n_parts = blocks.n_parts
    each = width if n_parts == 1 else min(width, 2 * -(-width // n_parts) + _SPARE)
    scale = (basis.largest, basis.floor)
    args = (kernel, new, basis.size, each, *scale)
    found = blocks.fold_parts(partial(_best_of_both, width=width), _candidates_of_part, *args)
    if new is not None:
        basis.has_grown(found.norms)
    return found


@declare("X", "weight", keeps=FactorRows, changes=("D",), appends=("P",))
def _candidates_of_part(
    part: RowBlocks,
    kernel: Kernel,
    new: NewPivots | None,
    size: int,
    width: int,
    largest: float,
    floor: float,
) -> PartCandidates:
    norms: Any = 0.0 if new is None else part.sum(extend, kernel, *new)
    if width == 0:
        nothing = np.empty(0, np.intp)
        return PartCandidates(np.empty(0), nothing, None, None, (-1.0, 0), norms)
    keys, rows, outside = _best_rows(part, width, largest, floor)
    return PartCandidates(
        keys, rows, part.take(rows), factor_rows(part, rows, size), outside, norms
    )


def _best_of_both(a: PartCandidates, b: PartCandidates, width: int) -> PartCandidates:
    """Return the best rows of two parts, the second of which comes after the first."""
    norms = a.norms + b.norms
    if width == 0:
        return a._replace(norms=norms)
    keys, rows = np.concatenate([a.keys, b.keys]), np.concatenate([a.rows, b.rows])
    best = _largest(keys, width)
    left = np.delete(np.arange(len(keys)), best)
    outside = max(a.outside, b.outside, key=_rank)
    if len(left):
        first = left[np.argmax(keys[left])]  # of equal keys the lowest row
        outside = max(outside, (float(keys[first]), int(rows[first])), key=_rank)
    X, P = (np.concatenate(pair)[best] for pair in ((a.X, b.X), (a.P, b.P)))
    return PartCandidates(keys[best], rows[best], X, P, outside, norms)


def _rank(outside: tuple[float, int]) -> tuple[float, int]:
    """Larger keys come first, of equal ones the lowest row."""
    return outside[0], -outside[1]


def _best_rows(
    blocks: RowBlocks, width: int, largest: float, floor: float
) -> tuple[Any, NDArray[np.intp], tuple[float, int]]:
    """Return the ``width`` best rows in order, their keys, and the key (value, row) of the next."""
    better = partial(_better, count=width + 1)
    keys, rows = blocks.fold(better, _best_in_block, width + 1, largest, floor)
    xp = foreign_namespace(keys)
    if xp is not None:
        return None, *_best_of_foreign(xp, keys, rows, width, blocks.n_rows)
    if len(rows) <= width:
        return keys, rows, (-1.0, blocks.n_rows)
    last = len(keys) - 1 - int(np.argmin(keys[::-1]))  # of the smallest keys the last row
    outside = (float(keys[last]), int(rows[last]))
    return np.delete(keys, last), np.delete(rows, last), outside


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


# ---------------------------------------------------------------------------- among candidates


def _eliminate(
    basis: GrowingBasis, found: PartCandidates, theta: float, few: int, wide: bool
) -> tuple[PartialCholesky | WideCholesky, int]:
    """Take local pivots while they beat the best row outside; the first always does.

    Also returns how many of the pivots ``few`` candidates would have given.
    """
    most = basis.capacity - basis.size
    outside = (float(np.floor(theta * found.outside[0])), found.outside[1])
    if wide:
        return _eliminate_many(basis, found, outside, most, few)
    from leansvm.basis.cholesky._compiled import greedy

    candidates = found.rows
    local = PartialCholesky(basis.try_out_rows(candidates, found.X, found.P), most)
    columns, picked = np.empty((local.most, len(candidates))), np.empty(local.most, np.intp)
    H = local.H if local.H.flags.c_contiguous else local.H.T  # symmetric
    scale = (basis.largest, _QUANTA, basis.floor)
    count = greedy(np.ascontiguousarray(H), local.D, columns, picked, candidates, *outside, *scale)
    local.picked = picked[:count].tolist()
    local.columns[:, :count] = columns[:count].T
    return local, count


def _eliminate_many(
    basis: GrowingBasis, found: PartCandidates, outside: tuple[float, int], most: int, few: int
) -> tuple[WideCholesky, int]:
    """Do this for so many candidates that their matrix would be too large."""
    candidates = found.rows
    most = min(most, _WIDE_PIVOTS)
    local = basis.try_out_many(candidates, found.X, found.P, most, _QUANTA)
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
