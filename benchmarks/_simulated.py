"""A cluster that exists in this process alone, with a clock, a network and losses of its own.

The tasks are those that Dask's workers run (`leansvm.rows._cluster_work`), one after the other in
one thread. A machine spends the CPU seconds that its tasks took, a message the latency, and bytes
travel at the bandwidth of the machine that receives them. So the clock shows what as many machines
would need, however busy this one is.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import cloudpickle
import numpy as np

from leansvm.rows import RowBlocks, Targets
from leansvm.rows._blocks import declared, join
from leansvm.rows._budget import host_tile_rows
from leansvm.rows._cluster import _FAN_IN
from leansvm.rows._cluster_work import assemble, work
from leansvm.rows._moments import merged_moments, variance_of
from leansvm.rows._stream import Batch

# Messages one after the other: client, scheduler, machine, scheduler, client, machine, client; a
# task that takes the result out of what changed the state adds one to the machine and one back.
HOPS, HOPS_OF_STATE, HOPS_OF_A_LEVEL = 6, 2, 3


@dataclass(frozen=True)
class Network:
    """Seconds that a message takes, and bytes a second into a machine."""

    latency: float
    bandwidth: float


class SimulatedCluster(RowBlocks):
    """Rows on simulated machines of one thread each.

    Parameters
    ----------
    X, Y : ndarray
        Rows and targets (two-dimensional), which are shared out evenly.
    n_machines : int
        Number of machines.
    network : Network
        Between them.
    columns : int
        Columns that a solver computes for each row of a block.
    """

    def __init__(self, X: Any, Y: Any, n_machines: int, network: Network, columns: int = 0) -> None:
        self.n_rows, self.n_features = X.shape
        self.dtype, self.n_parts, self.weighted = X.dtype, n_machines, False
        self._network = network
        tile = host_tile_rows(self.n_rows, self.n_features, columns)
        edges = np.linspace(0, self.n_rows, n_machines + 1).astype(int)
        self._load = [partial(_load, X[a:b], Y[a:b], int(a), tile) for a, b in pairwise(edges)]
        self.clock, self.sent, self.received, self.passes = 0.0, 0, 0, 0
        self._by_pass: list[tuple[str, float]] = []  # function and seconds of the slowest machine
        self._client: list[float] = []  # seconds of the client before every pass, and after all
        self.computed = 0.0  # seconds of the slowest machine, in all passes together
        self._homes = list(range(n_machines))
        self._states: list[Any] = [None] * n_machines
        self._history: list[list[bytes]] = [[] for _ in range(n_machines)]
        self._groups: list[Any] = [None] * n_machines
        busy = [0.0] * n_machines
        for g in range(n_machines):
            with _Stopwatch() as spent:
                self._groups[g] = self._load[g]()
            busy[g] = spent.seconds
        self._spend(max(busy))
        self._redo = dict[int, float]()  # seconds that machines owe after a loss
        self._mark = time.thread_time()

    def lose(self, machine: int) -> None:
        """Take a machine away: others load its groups and repeat what was done with them."""
        survivors = [m for m in set(self._homes) if m != machine]
        for g in [g for g, home in enumerate(self._homes) if home == machine]:
            heir = min(survivors, key=self._homes.count)
            self._homes[g] = heir
            with _Stopwatch() as spent:
                self._groups[g], self._states[g] = self._load[g](), None
                for packed in self._history[g]:
                    self._states[g] = work(packed, self._groups[g], self._states[g])
            self._redo[heir] = self._redo.get(heir, 0.0) + spent.seconds
        self._mark = time.thread_time()

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield ``function(block, *args)`` for every block, in row order."""
        for results in self._run(("map",), function, args):
            yield from results

    def fold(self, combine: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Combine results in every group, then those of the groups."""
        return self._combined(combine, self._run(("fold", combine), function, args))

    def fold_parts(self, combine: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Combine ``function(part, *args)`` of the groups."""
        return self._combined(combine, self._run(("fold_parts", combine), function, args))

    def collect(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Join the tuples of arrays of the groups."""
        return join(self._run(("collect",), function, args))

    def variance(self) -> float:
        """Weighted variance of all entries of X, known since the rows were loaded."""
        self.clock += HOPS * self._network.latency
        return variance_of(reduce(merged_moments, (group.moments for group in self._groups)))

    def _run(self, verb: tuple[Any, ...], function: Callable[..., Any], args: Any) -> list[Any]:
        """Run one task per group; let the clock go on as it would for so many machines."""
        self._client_worked()
        changes = bool(declared(function).keeps)
        packed = cloudpickle.dumps((verb, function, args))
        busy, results = dict(self._redo), []
        for g, home in enumerate(self._homes):
            with _Stopwatch() as spent:
                found = work(packed, self._groups[g], self._states[g])
            busy[home] = busy.get(home, 0.0) + spent.seconds
            if changes:
                self._states[g], found = found, found[0]
                self._history[g].append(packed)
            results.append(found)
        self._redo = {}
        self.passes += 1
        self._by_pass.append((function.__name__, max(busy.values())))
        self._spend(max(busy.values()))
        self._send(len(packed) * self.n_parts, HOPS + HOPS_OF_STATE * changes)
        self._mark = time.thread_time()
        return results

    def _combined(self, combine: Any, parts: list[Any]) -> Any:
        """Combine results of groups: many of them on the machines first, then on the client."""
        while len(parts) > _FAN_IN:
            some = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
            spent = []
            parts = []
            for group in some:
                with _Stopwatch() as watch:
                    parts.append(reduce(combine, group))
                spent.append(watch.seconds)
            self._spend(max(spent))
            into_one = sum(_size(result) for result in some[0][1:])
            self._send(into_one, HOPS_OF_A_LEVEL)
        self.received += (total := sum(map(_size, parts)))
        self.clock += total / self._network.bandwidth
        self._mark = time.thread_time()
        return reduce(combine, parts)

    def spent_on(self, name: str) -> float:
        """Return the seconds of the slowest machine in passes of that function."""
        return sum(seconds for function, seconds in self._by_pass if function == name)

    def client_after(self, name: str) -> float:
        """Return the seconds of the client from the last pass of that function on."""
        last = max(i for i, (function, _) in enumerate(self._by_pass) if function == name)
        self.finish()
        return sum(self._client[last + 1 :])

    def _client_worked(self) -> None:
        self._client.append(time.thread_time() - self._mark)
        self.clock += self._client[-1]

    def _spend(self, seconds: float) -> None:
        self.clock += seconds
        self.computed += seconds

    def _send(self, n_bytes: int, hops: int) -> None:
        self.sent += n_bytes
        self.clock += n_bytes / self._network.bandwidth + hops * self._network.latency

    def finish(self) -> float:
        """Return the time on the clock, after what the client did last."""
        self._client_worked()
        self._mark = time.thread_time()
        return self.clock


def _load(X: Any, Y: Any, first: int, tile: int) -> Any:
    return assemble([Batch(X, Y, None)], np.array([first]), Targets(None), None, tile)


class _Stopwatch:
    """CPU seconds of this thread inside the block."""

    def __enter__(self) -> "_Stopwatch":
        self._start = time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.thread_time() - self._start


def _size(result: Any) -> int:
    """Return the bytes of a result on the network."""
    buffers: list[Any] = []
    head = pickle.dumps(result, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)
