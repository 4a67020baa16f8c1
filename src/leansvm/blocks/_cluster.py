"""Rows on the workers of a `distributed` cluster: blocks and their state stay there.

Consecutive partitions form as many groups as the workers have threads. A pass is one task per
group, which goes over the group's blocks in row order and folds their results, so that what
travels is of the size of one result per group, whatever the number of rows. State goes into a task
and comes out of it; what a task changes it copies first. So when a worker is lost, the scheduler
computes its part again from the collection, with the same result.
"""

from __future__ import annotations

import ctypes
import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from operator import add
from typing import Any

import cloudpickle
import dask
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from leansvm._parallel import serial_blas
from leansvm.blocks._base import Block, RowBlocks, declare, declared, join
from leansvm.blocks._budget import resolve_cache_size
from leansvm.blocks._cluster_watch import gather
from leansvm.blocks._dask import Partitions, to_batch
from leansvm.blocks._memory import host_tile_rows
from leansvm.blocks._stream import Batch, RowSource, joined, with_place
from leansvm.blocks._targets import Survey, Targets, survey

_STATE_SHARE = 0.6  # of the workers' memory that state may take
_FAN_IN = 8  # results that are combined at once
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt

States = list[dict[str, Any]]


class ClusterRows(RowSource):
    """The partitions of a Dask collection, loaded on the workers.

    Parameters
    ----------
    partitions : Partitions
        Of X, y and the weights.
    client : distributed.Client
        Whose workers to use.
    """

    def __init__(self, partitions: Partitions, client: Any) -> None:
        self._client = client
        self.n_features, self.dtype = partitions.n_features, partitions.dtype
        self.feature_names = partitions.feature_names
        self.n_targets, self.single_target = partitions.n_targets, partitions.single_target
        self._has_weight = partitions.weight is not None
        client.wait_for_workers(1)
        threads = client.nthreads()
        workers = [w for w in sorted(threads) for _ in range(threads[w])]
        self._groups = _groups(partitions, len(workers))
        self._homes = _homes(client, partitions, self._groups, workers)
        self._loaded = self._load(partitions)
        sizes = partitions.sizes
        if sizes is None:
            sizes = gather(client, _submit_each(client, "leansvm-length", _length, self._loaded))
        self._starts = np.cumsum([0, *sizes])
        self.n_rows = int(self._starts[-1])
        if self.n_rows == 0:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")

    def _load(self, partitions: Partitions) -> list[Any]:
        """Begin to load all partitions, neighbours on the same worker."""
        n, name = len(partitions), f"leansvm-load-{uuid.uuid4().hex}"
        load = dask.delayed(to_batch, pure=False)
        nothing = [None] * n
        parts = zip(
            partitions.X, partitions.y or nothing, partitions.weight or nothing, strict=True
        )
        tasks = [
            load(X, y, weight, self.dtype, dask_key_name=f"{name}-{i}")
            for i, (X, y, weight) in enumerate(parts)
        ]
        loaded: list[Any] = []
        for group, home in zip(self._groups, self._homes, strict=True):
            loaded += self._client.compute([tasks[i] for i in group], **_preferably(home))
        return loaded

    def survey(self, numeric: bool) -> Survey:
        """Look at all targets (``numeric``: not at them) and weights, and not at X."""
        if numeric and not self._has_weight:
            n = self.n_rows
            return Survey(None, np.array([n]), np.array([float(n)]), 1.0, True)
        parts = _submit_each(self._client, "leansvm-survey", _survey, self._loaded, numeric)
        return reduce(add, (part for part in gather(self._client, parts) if part is not None))

    def targets(self) -> tuple[Any, Any]:
        """Return targets and weights (None for ones) of all rows."""
        parts = _submit_each(self._client, "leansvm-targets", _targets_of, self._loaded)
        return joined(gather(self._client, parts))[1:]

    def blocks(
        self,
        targets: Targets,
        *,
        columns: int = 0,
        budget: int = 0,
        weight: NDArray[np.float64] | None = None,
    ) -> RowBlocks:
        """Return the rows in blocks on the workers; see `RowSource.blocks`."""
        tile = host_tile_rows(self.n_rows, self.n_features, columns)
        groups, homes, name = [], [], f"leansvm-rows-{uuid.uuid4().hex}"
        for g, (mine, home) in enumerate(zip(self._groups, self._homes, strict=True)):
            first, last = self._starts[mine[0]], self._starts[mine[-1] + 1]
            if first == last:
                continue
            task = self._client.submit(
                _assemble,
                [self._loaded[i] for i in mine],
                self._starts[mine],
                targets,
                None if weight is None else weight[first:last],
                tile,
                key=f"{name}-{g}",
                pure=False,
                **_preferably(home),
            )
            groups.append(task)
            homes.append(home)
        blocks = ClusterBlocks(self._client, groups, homes, self.shape, self.dtype)
        blocks.weighted = weight is not None or targets.weighted
        return blocks


class ClusterBlocks(RowBlocks):
    """Groups of blocks on workers, and the tasks that hold their state.

    Parameters
    ----------
    client : distributed.Client
        Where tasks are submitted.
    groups : list of Future
        Lists of blocks, consecutive.
    homes : list of str
        The worker where each group is.
    shape, dtype
        Of all rows.
    """

    def __init__(
        self,
        client: Any,
        groups: list[Any],
        homes: list[str],
        shape: tuple[int, int],
        dtype: np.dtype[Any],
    ) -> None:
        self._client, self._groups, self._homes = client, groups, homes
        self._states: list[Any] = [None] * len(groups)  # tasks that return (result, states)
        self.n_rows, self.n_features = shape
        self.dtype = dtype

    def state_budget(self, cache_size: float | str) -> int:
        """Return the bytes of state that blocks may keep: "auto" is for the workers' memory."""
        if cache_size == "auto":
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            limits = [worker["memory_limit"] for worker in workers]
            if limits and all(limits):
                return int(_STATE_SHARE * sum(limits))
        return resolve_cache_size(cache_size)

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield ``function(block, *args)`` for every block, in row order."""
        for results in gather(self._client, self._run(_as_list, function, args)):
            yield from results

    def fold(
        self, combine: Callable[[Any, Any], Any], function: Callable[..., Any], *args: Any
    ) -> Any:
        """Combine results in every group, then those of the groups, some at a time."""
        folded = _Fold(combine)
        parts = self._run(folded, function, args)
        while len(parts) > _FAN_IN:
            some = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
            parts = _submit_each(self._client, "leansvm-combine", folded, some)
        return reduce(combine, gather(self._client, parts))

    def collect(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Join the tuples of arrays in every group, then those of the groups."""
        return join(gather(self._client, self._run(join, function, args)))

    def take(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows with these numbers, in this order."""
        mine, rows = self.collect(_rows_at, np.asarray(indices, dtype=np.intp))
        result = np.empty((len(indices), self.n_features), self.dtype)
        result[mine] = rows
        return result

    def _run(
        self, finish: Callable[[Any], Any], function: Callable[..., Any], args: Any
    ) -> list[Any]:
        """Submit one task per group; return their results to come, and take over their states."""
        client, keeps_state = self._client, declared(function).keeps_state
        name = f"leansvm-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            # one task for the arguments, computed where it is needed first: unlike scattered data
            # it can be computed again
            packed = client.submit(
                pickle.loads, cloudpickle.dumps((finish, function, args)), key=f"{name}-arguments"
            )
        tasks = [
            client.submit(
                _work,
                packed,
                self._groups[g],
                self._states[g],
                key=f"{name}-{g}",
                pure=False,
                **_preferably(home),
            )
            for g, home in enumerate(self._homes)
        ]
        if keeps_state:
            return tasks
        self._states = tasks
        return _submit_each(client, f"{name}-result", _result_of, tasks)


# ---------------------------------------------------------------------------- on the workers


def _targets_of(batch: Batch) -> Batch:
    return batch._replace(X=None)


def _length(batch: Batch) -> int:
    return batch.n_rows


def _survey(batch: Batch, numeric: bool) -> Survey | None:
    return survey(batch.y, batch.sample_weight, numeric) if batch.n_rows else None


def _assemble(
    batches: list[Batch],
    starts: NDArray[np.intp],
    targets: Targets,
    weight: NDArray[np.float64] | None,
    tile: int,
) -> list[Block]:
    """Cut encoded partitions into blocks, which are views."""
    blocks = []
    for batch, start in zip(batches, starts.tolist(), strict=True):
        if not batch.n_rows:
            continue
        try:
            assert_all_finite(batch.X, input_name="X")
            y, own = targets(batch.y, batch.sample_weight)
        except ValueError as error:
            raise with_place(error, batch, range(start, start + batch.n_rows)) from error
        if weight is not None:
            own = weight[start - int(starts[0]) :][: batch.n_rows]
        for first in range(0, batch.n_rows, tile):
            part = Batch(batch.X, y, own).rows(slice(first, first + tile))
            blocks.append(Block(start + first, start + first + part.n_rows, *part))
    return blocks


def _work(packed: Any, blocks: list[Block], step: tuple[Any, States] | None) -> Any:
    """Run a function over the blocks of a group; return the result, and the states if changed."""
    _reuse_freed_memory()
    finish, function, args = packed
    before: States = [{} for _ in blocks] if step is None else step[1]
    after: States = []

    def results() -> Iterator[Any]:
        for block, state in zip(blocks, before, strict=True):
            own = Block(block.start, block.stop, block.X, block.y, block.weight)
            own.state = _guarded(state, function)
            yield function(own, *args)
            after.append(own.state)

    with serial_blas():
        result = finish(results())
    return result if declared(function).keeps_state else (result, after)


@cache
def _reuse_freed_memory() -> None:
    """Let this worker's malloc keep what a tile frees for the next one.

    Dask has its workers return every freed page to the system, which then has to clear it again:
    half of the time of a pass. Some tens of megabytes may now stay with the process.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
    except (OSError, AttributeError):  # another C library
        pass


def _guarded(state: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Return a state whose change does not change the one it was made from."""
    does = declared(function)
    own = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            if name in does.changes:
                value = value.copy(order="K")
            elif name not in does.appends:
                value = value.view()
                value.flags.writeable = False
            elif not value.flags.writeable:  # came from another worker, or from disk
                value = value.copy(order="K")
        own[name] = value
    return own


def _result_of(step: tuple[Any, States]) -> Any:
    return step[0]


def _as_list(results: Iterator[Any]) -> list[Any]:
    return list(results)


class _Fold:
    """`functools.reduce` with a function, as something that can be sent."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self.combine = combine

    def __call__(self, results: Iterable[Any]) -> Any:
        return reduce(self.combine, results)


@declare("X")
def _rows_at(block: Block, indices: NDArray[np.intp]) -> tuple[NDArray[np.intp], Any]:
    mine, rows = block.positions(indices)
    return mine, block.X[rows]


# ---------------------------------------------------------------------------- placing


def _submit_each(
    client: Any, name: str, function: Callable[..., Any], futures: list[Any], *args: Any
) -> list[Any]:
    token = uuid.uuid4().hex
    return [
        client.submit(function, future, *args, key=f"{name}-{token}-{i}", pure=False)
        for i, future in enumerate(futures)
    ]


def _groups(partitions: Partitions, n_groups: int) -> list[list[int]]:
    """Put neighbouring partitions together: as many groups, of about as many rows."""
    n = len(partitions)
    before = np.arange(n) if partitions.sizes is None else np.cumsum([0, *partitions.sizes])[:-1]
    total = n if partitions.sizes is None else sum(partitions.sizes)
    share = np.minimum(before * n_groups // max(total, 1), n_groups - 1)
    return [np.flatnonzero(share == g).tolist() for g in np.unique(share)]


def _homes(
    client: Any, partitions: Partitions, groups: list[list[int]], workers: list[str]
) -> list[str]:
    """Return a worker for each group, one group per thread.

    Where the collection is on the workers already, one that has much of the group.
    """
    from distributed.client import futures_of

    held = futures_of(partitions.collection)
    where: dict[Any, Any] = client.who_has(held) if len(held) == len(partitions) else {}
    holders = [where.get(future.key, where.get(str(future.key), ())) for future in held]
    free, homes = list(workers), []
    for group in groups:
        votes = Counter(worker for i in group if where for worker in holders[i])
        best = max(free, key=lambda worker: votes[worker])  # of equal ones the first
        free.remove(best)
        homes.append(best)
    return homes


def _preferably(worker: str) -> dict[str, Any]:
    """Where to run a task while that worker is there."""
    return {"workers": [worker], "allow_other_workers": True}
