"""Greedy pivoted Cholesky of a kernel matrix at GEMM speed (zhou2016, Algorithm 1).

K ~ P P' with one column per pivot, the pivot being the row with the largest residual diagonal D.
D only falls, so stale values are upper bounds: the best rows are factored among themselves and
accepted while they beat every other row's stale value. The pivots are the same as one at a time.
If the rows are in several parts, as on a cluster, every part offers its best rows and the value of
its next one, and the best of all offers are the candidates. Any set of candidates gives the same
pivots, as long as the best row that is not among them is known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import free_memory
from leansvm._array_api import foreign_namespace, namespace, to_host
from leansvm.basis.cholesky.growing import (
    FactorRows,
    GrowingBasis,
    NewPivots,
    PartialCholesky,
    WideCholesky,
    extend,
    factor_rows,
)
from leansvm.basis.selector import Basis
from leansvm.kernels import Kernel
from leansvm.rows import Block, MemoryBlocks, RowBlocks, declare

# Ties (a Gaussian kernel starts with an m-way one) are broken by row number, so residuals are
# compared after rounding to 36 bits of the largest diagonal: rounding errors stay below that.
_QUANTA = 2.0**36
# If a round with few candidates accepts fewer pivots than this, the next one has many candidates
# (only on a device).
_FEW_PIVOTS = 8
_FEWEST_WIDE, _MOST_WIDE = 4096, 2**16
_WIDE_PIVOTS = 128  # most pivots of such a round
_SPARE = 32  # rows that a part offers beyond twice its share
KeyedRows = tuple[Any, Any]  # keys and numbers of rows, by row
Next = tuple[float, int]  # key of the best row that is no candidate, and minus its number


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
    """Choose up to ``n_pivots`` rows of positive weight; blocks keep `FactorRows`.

    Stops early when the rank is exhausted, when the weighted residual trace is at most
    ``trace_tol`` or the part ``tol`` of that of the kernel matrix, and when ``on_step``, called
    with the number of pivots after each round, returns True. ``batch`` rows are factored among
    themselves in a round. Local pivots are accepted while they are at least ``theta`` times the
    largest value elsewhere: 1 gives the same pivots as one at a time, a smaller value fewer rounds.
    The report has the number of ``rounds`` and the ``trace`` that is left after each pivot.
    """
    basis = GrowingBasis(blocks, kernel, min(n_pivots, blocks.n_rows))
    trace_tol = max(trace_tol, tol * basis.residual_trace)
    rounds, wide = 0, False
    # rows on a device with memory of its own, which is fast at much at once
    many_are_cheap = not kernel.precomputed and free_memory(blocks.place) is not None
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
        # if rows crowd together, the best few are neighbours and only one or two become pivots
        wide = many_are_cheap and by_few < _FEW_PIVOTS and basis.size > 1
        width = min(many if wide else batch, blocks.n_rows)
        found = _next_candidates(blocks, kernel, basis, new, width)
        if on_step is not None and on_step(basis.size):
            break
    indices, L, trace = basis.cut(trace_tol)
    return Basis(indices, L=L, report={"rounds": rounds, "trace": trace})


def pivot_order(kernel: Kernel, X: Any, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Order a few points, ``rows`` of the data, greedily; dependent ones are left out."""
    K = to_host(kernel.block(X, kernel.points(X, rows), dtype=np.float64))
    K = np.ascontiguousarray(K, dtype=np.float64)
    return pivoted_cholesky(MemoryBlocks(K), Kernel("precomputed"), len(K)).indices


@declare()
def _best_in_block(block: Block, count: int, largest: float, floor: float) -> KeyedRows:
    """Return keys and numbers of the best rows, in row order; the key is -1 up to the floor."""
    D = block.kept(FactorRows).D
    xp = namespace(D)
    keys = xp.where(floor < D, xp.round(D / largest * _QUANTA), -1.0)
    rows = _largest(keys, count)
    return xp.take(keys, rows), rows + block.start


def _better(a: KeyedRows, b: KeyedRows, count: int) -> KeyedRows:
    """Return the best of two sets of rows, the second of which comes after the first."""
    xp = namespace(a[0])
    keys, rows = xp.concat([a[0], b[0]]), xp.concat([a[1], b[1]])
    places = _largest(keys, count)
    return xp.take(keys, places), xp.take(rows, places)


def _largest(keys: Any, count: int) -> Any:
    """Return the places of the ``count`` largest keys, in order; of equal ones the first."""
    xp = foreign_namespace(keys)
    if xp is not None:
        order = xp.argsort(keys, descending=True, stable=True)
        return xp.sort(order[: min(count, keys.shape[0])])
    if len(keys) <= count:
        return np.arange(len(keys))
    threshold = np.partition(keys, len(keys) - count)[len(keys) - count]
    above = np.flatnonzero(keys > threshold)
    ties = np.flatnonzero(keys == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, ties]))


# ---------------------------------------------------------------------------- parts of the rows


class PartCandidates(NamedTuple):
    """The best rows of a part in row order, and what it takes to factor them elsewhere."""

    keys: NDArray[np.float64]
    rows: NDArray[np.intp]
    X: Any
    P: Any  # their rows of the factor
    outside: Next
    norms: Any  # of the columns that were appended before; zero without any


def _next_candidates(
    blocks: RowBlocks, kernel: Kernel, basis: GrowingBasis, new: NewPivots | None, width: int
) -> PartCandidates:
    """Append the columns of new pivots, and find the ``width`` best rows after it: one pass."""
    if basis.size == basis.capacity:
        width = 0  # there will be no other round
    n_parts = blocks.n_parts
    each = width if n_parts == 1 else min(width, 2 * -(-width // n_parts) + _SPARE)
    args = (kernel, new, basis.size, each, basis.largest or 1.0, basis.floor)
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
    """Append the new columns in a part; return its ``width`` best rows, and the next one."""
    norms: Any = 0.0 if new is None else part.sum(extend, kernel, *new)
    if width == 0:
        nothing = np.empty(0, np.intp)
        return PartCandidates(np.empty(0), nothing, None, None, (-1.0, -part.n_rows), norms)
    better = partial(_better, count=width + 1)
    keys, rows = to_host(part.fold(better, _best_in_block, width + 1, largest, floor))
    keys, rows = keys[keys >= 0], rows[keys >= 0]
    outside = -1.0, -part.n_rows
    if len(rows) > width:
        last = len(keys) - 1 - int(np.argmin(keys[::-1]))  # of the smallest keys the last row
        outside = float(keys[last]), -int(rows[last])
        keys, rows = np.delete(keys, last), np.delete(rows, last)
    X, P = part.take(rows), factor_rows(part, rows, size)
    return PartCandidates(keys, rows, X, P, outside, norms)


def _best_of_both(a: PartCandidates, b: PartCandidates, width: int) -> PartCandidates:
    """Return the best rows of two parts, the second of which comes after the first."""
    norms = a.norms + b.norms
    if width == 0:
        return a._replace(norms=norms)
    keys, rows = np.concatenate([a.keys, b.keys]), np.concatenate([a.rows, b.rows])
    best = _largest(keys, width)
    left = np.delete(np.arange(len(keys)), best)
    outside = max(a.outside, b.outside)
    if len(left):
        first = left[np.argmax(keys[left])]  # of equal keys the lowest row
        outside = max(outside, (float(keys[first]), -int(rows[first])))
    X, P = (np.concatenate(pair)[best] for pair in ((a.X, b.X), (a.P, b.P)))
    return PartCandidates(keys[best], rows[best], X, P, outside, norms)


# ---------------------------------------------------------------------------- among candidates


def _eliminate(
    basis: GrowingBasis, found: PartCandidates, theta: float, few: int, wide: bool
) -> tuple[PartialCholesky | WideCholesky, int]:
    """Take local pivots while they beat the best row outside; the first always does.

    Also returns how many of the pivots ``few`` candidates would have given.
    """
    most = basis.capacity - basis.size
    outside = float(np.floor(theta * found.outside[0])), found.outside[1]
    if wide:
        return _eliminate_many(basis, found, outside, most, few)
    from leansvm.basis.cholesky._compiled import greedy

    candidates = found.rows
    local = PartialCholesky(basis.try_out(candidates, found.X, found.P), most)
    columns, picked = np.empty((local.most, len(candidates))), np.empty(local.most, np.intp)
    H = local.H if local.H.flags.c_contiguous else local.H.T  # symmetric
    scale = (outside[0], -outside[1], basis.largest, _QUANTA, basis.floor)
    count = greedy(np.ascontiguousarray(H), local.D, columns, picked, candidates, *scale)
    local.picked = picked[:count].tolist()
    local.columns[:, :count] = columns[:count].T
    return local, count


def _eliminate_many(
    basis: GrowingBasis, found: PartCandidates, outside: Next, most: int, few: int
) -> tuple[WideCholesky, int]:
    """Like `_eliminate`, for so many candidates that their matrix would be too large."""
    candidates = found.rows
    most = min(most, _WIDE_PIVOTS)
    local = basis.try_out_many(candidates, found.X, found.P, most, _QUANTA)
    beyond_few = local.key_of(few) if few < len(candidates) else -1.0
    by_few = 0
    while len(local.picked) < local.most:
        value, t = local.best()
        key = (value, -int(candidates[t]))
        if value < 0 or (local.picked and key < outside):
            break
        local.take(t)
        by_few += value >= beyond_few
    return local, by_few
