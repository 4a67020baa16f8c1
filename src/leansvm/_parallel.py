"""Threads: tiles of rows in our own, BLAS with one thread unless a matrix is large.

Elementwise work (exp) after a threaded GEMM competes with BLAS threads that still spin, and
the tile leaves the cache. One thread per tile that does GEMM and exp back to back avoids both.

One policy for every fit:

- BLAS has one thread from the beginning of a fit to its end (`limited_blas`). Its threads spin
  while they wait, for milliseconds after each call, and NumPy and SciPy each have their own. For
  small products they cost more than they gain; if another program uses a core, they wait for each
  other.
- Rows are cut into tiles for our own threads, which sleep when there is nothing to do. A light pass
  over few rows stays in one thread, because it would end before other threads wake up.
- The factorisation of a large matrix, which has no tiles, gets as many of BLAS's threads as there
  are cores that nobody uses at that moment (`limited_blas`).
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any

from sklearn._config import config_context, get_config
from threadpoolctl import OpenBLASController, ThreadpoolController

SMALL_MATRIX = 512  # rows up to which one thread factors a matrix in no time
_RUNNING = "/proc/loadavg"  # its fourth field: threads that run now / all threads
_LOOKS, _PAUSE = 3, 0.001  # at the number of running threads, and seconds between them
_REMEMBERED = 0.1  # seconds: after a call, spinning threads of BLAS would be counted, too


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


# Who may set limits: threadpoolctl >= 3.8 allows it only to the first thread that did.
_release: Callable[[], Any] = int
if hasattr(OpenBLASController, "clear_controlling_thread"):
    _release = partial(OpenBLASController.clear_controlling_thread, force=True)

_lock = threading.Lock()
_entries: dict[object, tuple[int, int]] = {}  # thread and limit of every `limited_blas`, in order
_before: list[int] = []  # threads that each BLAS library had before the first of them
_free = [0.0, 1]  # until when it is remembered how many threads find a core, and how many
_here = threading.local()  # .working: this thread works on a tile


def blas_threads() -> int:
    """Return the number of threads to work with: those that BLAS has outside of any limit."""
    with _lock:
        if not _entries:
            return max(map(attrgetter("num_threads"), _controller().lib_controllers), default=1)
        return 1 if getattr(_here, "working", False) else max(_before, default=1)


@contextmanager
def limited_blas(rows: int = 0, small: int = SMALL_MATRIX) -> Iterator[int]:
    """Hold BLAS to one thread and yield the number of threads to use instead.

    This number is what BLAS had before, or 1 inside a tile. Work on a matrix of more than ``small``
    rows gets as many threads as there are free cores: BLAS's threads wait for each other in every
    step of a factorisation; with one of two cores busy, two threads take ten times as long as one.

    All entries are kept in order: the first one remembers what BLAS had, and the last one to leave
    restores it. The latest entry decides; if several threads have entered, all get the limit 1.
    """
    limit = 1 if rows <= small else _free_threads()
    entry, working = object(), getattr(_here, "working", False)
    with _lock:
        if not _entries:
            _before[:] = map(attrgetter("num_threads"), _controller().lib_controllers)
        threads = 1 if working else max(_before, default=1)
        _entries[entry] = threading.get_ident(), min(limit, threads)
        _set_limits()
    try:
        yield threads
    finally:
        with _lock:
            del _entries[entry]
            _set_limits()
            if limit > 1:
                _free[0] = time.monotonic() + _REMEMBERED


def _set_limits() -> None:
    """Give BLAS the latest limit: 1 if several threads have one, its own number if none has."""
    limits = list(_entries.values())
    alone = len(set(map(itemgetter(0), limits))) == 1
    limit = (limits[-1][1] if alone else 1) if limits else sys.maxsize
    _release()
    for library, most in zip(_controller().lib_controllers, _before, strict=True):
        library.set_num_threads(min(limit, most))
    if not limits:
        _release()


def _free_threads() -> int:
    """Return how many threads find a free core now; all threads if the system does not say."""
    if time.monotonic() >= _free[0]:
        cores, others = os.cpu_count() or 1, sys.maxsize
        for look in range(_LOOKS):
            if look:
                time.sleep(_PAUSE)  # what runs for a moment only does not count
            try:
                with open(_RUNNING, encoding="ascii") as file:
                    running = int(file.read().split()[3].split("/")[0])
            except (OSError, ValueError, IndexError):
                running = 1
            others = min(others, max(running - 1, 0))  # without this thread
            if not others:
                break
        _free[:] = time.monotonic() + _REMEMBERED, max(cores - others, 1)
    return int(_free[1])


_pools: dict[int, ThreadPoolExecutor] = {}


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return the process's pool of this many threads, which is kept between fits.

    Starting new threads takes memory from the system, which costs a quarter of the time of a
    short fit. Work in the pool never waits for other work in it.
    """
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="leansvm")
        return _pools[threads]


def _forget_pools() -> None:
    """After a fork the threads are gone, and the lock may be held by one of them."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()
    for entry, (thread, _) in list(_entries.items()):
        if thread != threading.get_ident():
            del _entries[entry]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def in_this_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` bound to the caller's configuration, to be run by another thread."""
    context, config = copy_context(), get_config()

    def bound(*args: Any) -> Any:
        before, _here.working = getattr(_here, "working", False), True
        try:
            with config_context(**config):
                return function(*args)
        finally:
            _here.working = before

    return lambda *args: context.copy().run(bound, *args)


def in_order(function: Callable[..., Any], items: Iterable[Any], *args: Any) -> Iterator[Any]:
    """Yield ``function(item, *args)`` in order, as many at once as BLAS has threads."""
    with limited_blas() as threads:
        if threads == 1:
            for item in items:
                yield function(item, *args)
            return
        pool = thread_pool(threads)
        ahead: deque[Future[Any]] = deque()
        bound = in_this_context(function)
        try:
            for item in items:
                ahead.append(pool.submit(bound, item, *args))
                if len(ahead) > threads:  # keep few finished results waiting: they are large
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:  # after an error or an early end, nothing goes on in the background
            for future in ahead:
                future.cancel()
            wait(ahead)


def read_ahead(items: Iterator[Any]) -> Generator[Any, None, None]:
    """Yield items that another thread produces, up to two of them in advance."""
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(2)
    stopped = threading.Event()

    def read() -> None:
        try:
            for item in items:
                ready.put((True, item))
                if stopped.is_set():
                    return
            ready.put((False, None))
        except BaseException as error:  # raised again by the thread that waits for the item
            ready.put((False, error))

    thread = threading.Thread(target=in_this_context(read), name="leansvm-reader", daemon=True)
    thread.start()
    try:
        while True:
            more, item = ready.get()
            if not more:
                if item is not None:
                    raise item
                return
            yield item
    finally:
        stopped.set()
        while thread.is_alive():  # it may wait for a free place in the queue
            with suppress(queue.Empty):
                ready.get_nowait()
            thread.join(0.01)


def for_tiles(n_rows: int, tile: int, function: Callable[[int, int], object]) -> None:
    """Call ``function(start, stop)`` for every tile of rows, as many at once as BLAS has threads.

    Tiles are handed out in order; each writes its own rows, so the result does not depend on
    the number of threads. After an error or an interrupt no further tile begins.
    """
    starts = range(0, n_rows, tile)
    if len(starts) <= 1:
        function(0, n_rows)
        return
    with limited_blas() as threads:
        queue = iter(starts)

        def work() -> None:
            try:
                for start in queue:  # next() on a range iterator is atomic under the GIL
                    function(start, min(start + tile, n_rows))
            except BaseException:
                deque(queue, maxlen=0)  # nothing is left for the others
                raise

        bound, helpers = in_this_context(work), range(min(threads, len(starts)) - 1)
        futures = [thread_pool(threads).submit(bound) for _ in helpers]
        try:
            bound()
        finally:  # the helpers end with the queue
            wait(futures)
        for future in futures:  # their error, if any, is raised here
            future.result()
