"""Waiting for tasks on a cluster that may lose its workers or its scheduler meanwhile.

A task that prefers one worker runs on another when that one is gone, unless there was no other at
that moment: then the scheduler keeps it for a worker that never comes back, even if the same
machine starts a new one. Whoever waits here lets such tasks run anywhere. What cannot go on, for
want of workers or of the scheduler, ends with an error that says so.
"""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from typing import Any

import dask

_LOOK_AGAIN = 1.0  # seconds between two looks at a cluster that is being waited for
_PATIENCE = "leansvm.cluster-timeout"  # in Dask's configuration: seconds without any progress
_DEFAULT_PATIENCE = 300.0


def gather(client: Any, futures: list[Any]) -> list[Any]:
    """Return the results of tasks, in order.

    Parameters
    ----------
    client : distributed.Client
        Which submitted them.
    futures : list of Future
        The tasks.
    """
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
    what = f"none of its {n_workers} workers works on it" if n_workers else "it has no workers"
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
