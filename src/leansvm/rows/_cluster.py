"""Rows on the workers of a `distributed` cluster: blocks and their state stay there.

Consecutive partitions form as many groups as the workers have threads. A pass is one task per
group. It goes over the blocks of the group in row order and combines their results, so that only
one result per group is sent, whatever the number of rows. State goes into a task and comes out of
it, and a task copies what it changes. So if a worker is lost, the scheduler can compute its part
again from the collection, with the same result.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from copy import copy
from functools import partial, reduce
from operator import add, attrgetter, itemgetter, methodcaller
from typing import Any, Self

import cloudpickle
import dask
import numpy as np
from numpy.typing import NDArray

from leansvm.rows._blocks import RowBlocks, declared
from leansvm.rows._budget import host_tile_rows, resolve_cache_size
from leansvm.rows._cluster_work import assemble, encoded_batch, has_gaps, survey_of, work
from leansvm.rows._dask import Partitions, starts_of, to_batch
from leansvm.rows._moments import merged_moments, variance_of
from leansvm.rows._stream import Batch, RowSource, joined
from leansvm.rows._targets import Survey, Targets

_STATE_SHARE = 0.6  # of the workers' memory that state may take
_FAN_IN = 8  # results that are combined at once
_MOST_SENT = 4 << 20  # bytes of arguments that go to every group by way of the scheduler
_LOOK_AGAIN = 1.0  # seconds between two looks at a cluster that is being waited for
_PATIENCE = "leansvm.cluster-timeout"  # in Dask's configuration: seconds without any progress
_DEFAULT_PATIENCE = 300.0


class ClusterRows(RowSource):
    """The partitions of a Dask collection, loaded on the workers of a `distributed.Client`."""

    def __init__(self, partitions: Partitions, client: Any) -> None:
        self._client, self._partitions = client, partitions
        partitions.describe(self)
        threads = _threads(client)
        workers = [w for w in sorted(threads) for _ in range(threads[w])]
        self._groups = _groups(partitions, len(workers))
        self._homes = _homes(client, partitions, self._groups, workers)
        self._loaded = self._load()
        sizes = partitions.sizes
        if sizes is None:
            sizes = gather(
                client, _submit_each(client, "leansvm-length", attrgetter("n_rows"), self._loaded)
            )
        self.n_rows, self._starts = starts_of(sizes)

    def _load(self) -> list[Any]:
        """Start loading all partitions; neighbours go to the same worker."""
        partitions, name = self._partitions, f"leansvm-load-{uuid.uuid4().hex}"
        nothing = [None] * len(partitions)
        load = dask.delayed(to_batch, pure=False)
        y, weight = partitions.y or nothing, partitions.weight or nothing
        parts = zip(partitions.X, y, weight, strict=True)
        tasks = [
            load(X, y, weight, None if self.is_table else self.dtype, dask_key_name=f"{name}-{i}")
            for i, (X, y, weight) in enumerate(parts)
        ]
        loaded: list[Any] = []
        for group, home in zip(self._groups, self._homes, strict=True):
            loaded += self._client.compute([tasks[i] for i in group], **_preferably(home))
        return loaded

    def as_table(self) -> Self:
        twin = super().as_table()
        twin._loaded = self._loaded if self.is_table else twin._load()
        return twin

    def has_gaps(self) -> bool:
        looks = self._partitions.may_have_gaps
        given = "leansvm-gaps", has_gaps, self._loaded
        return looks and any(gather(self._client, _submit_each(self._client, *given)))

    def pieces(self, indices: NDArray[np.intp]) -> list[Batch]:
        edges, name = np.searchsorted(indices, self._starts), f"leansvm-take-{uuid.uuid4().hex}"
        found = []
        for i in np.flatnonzero(np.diff(edges)).tolist():
            batch, rows = self._loaded[i], indices[edges[i] : edges[i + 1]] - self._starts[i]
            found.append(self._client.submit(Batch.take, batch, rows, key=f"{name}-{i}"))
        return gather(self._client, found)

    def encoded(
        self, encode: Callable[..., Any], n_features: int, from_targets: bool
    ) -> ClusterRows:
        twin = copy(self)
        twin.is_table, twin.n_features, twin.dtype = False, n_features, np.dtype(np.float64)
        given = encoded_batch, self._loaded, encode, n_features
        twin._loaded = _submit_each(self._client, "leansvm-encode", *given)
        return twin

    def survey(self, numeric: bool) -> Survey:
        if numeric and not self.has_weight:
            return Survey.of_ones(self.n_rows)
        parts = _submit_each(self._client, "leansvm-survey", survey_of, self._loaded, numeric)
        return reduce(add, (part for part in gather(self._client, parts) if part is not None))

    def targets(self) -> tuple[Any, Any]:
        without_X = methodcaller("_replace", X=None)
        parts = _submit_each(self._client, "leansvm-targets", without_X, self._loaded)
        return joined(gather(self._client, parts))[1:]

    def blocks(
        self,
        targets: Targets,
        *,
        columns: int = 0,
        budget: int = 0,
        weight: NDArray[np.float64] | None = None,
    ) -> RowBlocks:
        tile = host_tile_rows(self.n_rows, self.n_features, columns)
        groups, homes, name = [], [], f"leansvm-rows-{uuid.uuid4().hex}"
        for g, (mine, home) in enumerate(zip(self._groups, self._homes, strict=True)):
            first, last = self._starts[mine[0]], self._starts[mine[-1] + 1]
            if first < last:
                own = None if weight is None else weight[first:last]
                parts = [self._loaded[i] for i in mine], self._starts[mine], targets, own, tile
                where = {"key": f"{name}-{g}", "pure": False, **_preferably(home)}
                groups.append(self._client.submit(assemble, *parts, **where))
                homes.append(home)
        blocks = ClusterBlocks(self._client, groups, homes, self.shape, self.dtype)
        blocks.weighted = weight is not None or targets.weighted
        blocks.class_weight = targets.class_weight
        return blocks


class ClusterBlocks(RowBlocks):
    """Consecutive groups of blocks, each on its home, and the tasks that hold their state."""

    def __init__(
        self, client: Any, groups: list[Any], homes: list[str], shape: tuple[int, int], dtype: Any
    ) -> None:
        self._client, self._groups, self._homes = client, groups, homes
        self._states: list[Any] = [None] * len(groups)  # tasks that return (result, states)
        self.n_rows, self.n_features = shape
        self.dtype, self.n_parts = dtype, len(groups)

    def state_budget(self, cache_size: float | str) -> int:
        """Return the bytes of state that blocks may keep: "auto" is for the workers' memory."""
        if cache_size == "auto":
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            limits = [worker["memory_limit"] for worker in workers]
            if limits and all(limits):
                return int(_STATE_SHARE * sum(limits))
        return resolve_cache_size(cache_size)

    def variance(self) -> float:
        """Weighted variance of all entries of X: known since the rows were checked."""
        parts = _submit_each(self._client, "leansvm-moments", attrgetter("moments"), self._groups)
        return variance_of(self._combined(merged_moments, parts))

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        for results in gather(self._client, self._run(("map",), function, args)):
            yield from results

    def fold(
        self, combine: Callable[[Any, Any], Any], function: Callable[..., Any], *args: Any
    ) -> Any:
        """Combine results in every group, then those of the groups, some at a time."""
        return self._combined(combine, self._run(("fold", combine), function, args))

    def fold_parts(
        self, combine: Callable[[Any, Any], Any], function: Callable[..., Any], *args: Any
    ) -> Any:
        """Call ``function(part, *args)`` for every group, a `Part`; combine as `fold` does."""
        return self._combined(combine, self._run(("fold_parts", combine), function, args))

    def _combined(self, combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
        """Combine the groups' results: many of them on the workers first."""
        while len(parts) > _FAN_IN:
            some = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
            parts = _submit_each(self._client, "leansvm-combine", partial(reduce, combine), some)
        return reduce(combine, gather(self._client, parts))

    def _run(self, verb: tuple[Any, ...], function: Callable[..., Any], args: Any) -> list[Any]:
        """Submit one task per group; return their results to come, and take over their states.

        ``verb`` is the name of a method of `Part`, and what it takes before the function.
        """
        client, keeps = self._client, declared(function).keeps
        name = f"leansvm-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        packed: Any = cloudpickle.dumps((verb, function, args))
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            if len(packed) * len(self._groups) > _MOST_SENT:
                # one task for the arguments, computed where it is needed first: unlike scattered
                # data it can be computed again
                packed = client.submit(bytes, packed, key=f"{name}-arguments")
            tasks = []
            for g, home in enumerate(self._homes):
                where = {"key": f"{name}-{g}", "pure": False, **_preferably(home)}
                tasks.append(client.submit(work, packed, self._groups[g], self._states[g], **where))
        if not keeps:
            return tasks
        self._states = tasks
        return _submit_each(client, f"{name}-result", itemgetter(0), tasks)


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

    If the collection is on the workers already, a group gets one that has much of it.
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


# ---------------------------------------------------------------------------- waiting
# If the preferred worker of a task is lost, the task runs on another worker. If there is no other
# worker at that moment, the scheduler keeps the task for the lost worker, even if the same machine
# starts a new one. So the functions below let such tasks run anywhere while they wait. If there are
# no workers, or no scheduler, they end with an error that says so.


def gather(client: Any, futures: list[Any]) -> list[Any]:
    """Return the results of tasks, in order."""
    try:
        _wait(client, futures)
        return list(client.gather(futures))
    except (CancelledError, OSError) as error:
        if client.status == "running" and not isinstance(error, CancelledError):
            raise  # a task's own, such as a file that is not there, or a standstill
        address = getattr(client.scheduler, "address", "")
        raise ConnectionError(
            f"The connection to the Dask scheduler {address} was lost, and with it the rows and "
            f"the state of this fit: connect again and call fit again."
        ) from error


def _threads(client: Any) -> dict[str, int]:
    """Return the number of threads of every worker; wait for the first one."""
    patience = float(dask.config.get(_PATIENCE, _DEFAULT_PATIENCE))
    try:
        client.wait_for_workers(1, timeout=max(patience, 1e-3))  # 0 would wait for ever
    except TimeoutError as error:
        raise TimeoutError(_standstill(client, patience)) from error
    return dict(client.nthreads())


def _wait(client: Any, futures: list[Any]) -> None:
    """Wait until all tasks are done or have failed; look after the cluster meanwhile."""
    from distributed import wait

    patience = float(dask.config.get(_PATIENCE, _DEFAULT_PATIENCE))
    last_progress = time.monotonic()
    while True:
        try:
            with client.as_current():
                wait(futures, timeout=_LOOK_AGAIN)
            return
        except TimeoutError:
            if client.status != "running":
                raise
        if client.run_on_scheduler(_release_pins):
            last_progress = time.monotonic()
        elif time.monotonic() - last_progress > patience:
            raise TimeoutError(_standstill(client, patience))


def _standstill(client: Any, patience: float) -> str:
    n_workers = len(client.nthreads())
    what = f"none of its {n_workers} workers is working" if n_workers else "it has no workers"
    return (
        f"The Dask cluster has made no progress for {patience:g} seconds: {what}. Look at its "
        f"dashboard, or allow more with dask.config.set({{{_PATIENCE!r}: seconds}})."
    )


def _release_pins(dask_scheduler: Any) -> bool:
    """Let tasks whose worker is gone run anywhere; return whether any worker is busy."""
    workers = dask_scheduler.workers
    for task in dask_scheduler.tasks.values():
        pins = task.worker_restrictions
        if pins and task.loose_restrictions and not any(pin in workers for pin in pins):
            task.worker_restrictions = None
    if dask_scheduler.unrunnable:
        for worker in list(dask_scheduler.running):
            ready = dask_scheduler.bulk_schedule_unrunnable_after_adding_worker(worker)
            dask_scheduler.transitions(ready, f"leansvm-release-{time.time()}")
    return any(worker.processing for worker in workers.values())
