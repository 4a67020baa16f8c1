"""What a task does on a worker of a cluster: check rows, and run a function over their blocks.

A group of consecutive blocks and its state go into a task; the result and the new state come out.
`leansvm.rows._cluster` submits these tasks.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from leansvm._parallel import limited_blas
from leansvm.rows._blocks import Block, RowBlocks, declared
from leansvm.rows._moments import Moments, merged_moments, moments
from leansvm.rows._stream import Batch, placed_errors
from leansvm.rows._targets import Survey, Targets, survey

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt

States = list[dict[Any, Any]]


def survey_of(batch: Batch, numeric: bool) -> Survey | None:
    return survey(batch.y, batch.sample_weight, numeric) if batch.n_rows else None


def has_gaps(batch: Batch) -> bool:
    return bool(np.isnan(batch.X).any())


def encoded_batch(batch: Batch, encode: Callable[..., Any], n_features: int) -> Batch:
    X = encode(batch.X, batch.y) if batch.n_rows else np.empty((0, n_features))
    return batch._replace(X=X)


class Group(NamedTuple):
    """Consecutive blocks on one worker, and the moments of their entries."""

    blocks: list[Block]
    moments: Moments


def assemble(
    batches: list[Batch],
    starts: NDArray[np.intp],
    targets: Targets,
    weight: NDArray[np.float64] | None,
    tile: int,
) -> Group:
    """Cut encoded partitions into blocks, which are views; look at every entry once."""
    blocks: list[Block] = []
    total: Moments = (0.0, 0.0, 0.0)
    for batch, start in zip(batches, starts.tolist(), strict=True):
        if not batch.n_rows:
            continue
        with placed_errors(batch, range(start, start + batch.n_rows)):
            y, own = targets(batch.y, batch.sample_weight)
            if weight is not None:
                own = weight[start - int(starts[0]) :][: batch.n_rows]
            for first in range(0, batch.n_rows, tile):
                part = Batch(batch.X, y, own).rows(slice(first, first + tile))
                block = Block(start + first, start + first + part.n_rows, *part)
                total = merged_moments(total, _looked_at(block))
                blocks.append(block)
    return Group(blocks, total)


def _looked_at(block: Block) -> Moments:
    """Return the moments of a block; refuse NaN and infinity, which would show in them."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            found = moments(block)
    except OverflowError:
        found = (1.0, 0.0, np.inf)
    if block.weight is not None or not np.isfinite(found).all():  # moments skip rows without weight
        assert_all_finite(block.X, input_name="X")
    return found


class Part(RowBlocks):
    """The blocks of one group where they are: one after the other, in this thread.

    Rows keep the numbers that they have among all rows; `take` is asked for rows of this part.
    """

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self.n_rows = blocks[-1].stop - blocks[0].start
        self.n_features, self.dtype = blocks[0].X.shape[1], blocks[0].X.dtype

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        for block in self._blocks:
            yield function(block, *args)


def work(packed: bytes, group: Group, step: tuple[Any, States] | None) -> Any:
    """Run a function on the blocks of a group; return the result, and the states if changed."""
    _reuse_freed_memory()
    (verb, *given), function, args = pickle.loads(packed)
    states: States = [{} for _ in group.blocks] if step is None else step[1]
    part = [
        Block(b.start, b.stop, b.X, b.y, b.weight, _guarded(state, function))
        for b, state in zip(group.blocks, states, strict=True)
    ]
    with limited_blas():
        result = getattr(Part(part), verb)(*given, function, *args)
    return (result, [b.state for b in part]) if declared(function).keeps else result


@cache
def _reuse_freed_memory() -> None:
    """Let this worker's malloc keep what a tile frees for the next one.

    Dask makes its workers return every freed page to the system. Clearing these pages again takes
    half of the time of a pass. With this setting, some tens of megabytes may stay with the process.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
    except (OSError, AttributeError):  # another C library
        pass


def _guarded(state: dict[Any, Any], function: Callable[..., Any]) -> dict[Any, Any]:
    """Return a state that can be changed without changing the original."""
    does, own = declared(function), {kind: copy(kept) for kind, kept in state.items()}
    for kind, kept in own.items():
        changes, appends = (does.changes, does.appends) if kind in does.keeps else ((), ())
        for name in (item.name for item in fields(kept)):
            array = getattr(kept, name)
            if not isinstance(array, np.ndarray):
                continue
            foreign = name in appends and not array.flags.writeable  # of another worker or a disk
            if name in changes or foreign:
                array = array.copy(order="K")
            elif name not in appends:
                array = array.view()
                array.flags.writeable = False
            object.__setattr__(kept, name, array)
    return own
