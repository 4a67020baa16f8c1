"""Run a function over tiles of rows in threads, while BLAS uses one thread.

Elementwise work (exp) after a threaded GEMM competes with BLAS threads that still spin, and
the tile leaves the cache. One thread per tile that does GEMM and exp back to back avoids both.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from operator import itemgetter
from typing import Any

from sklearn._config import config_context, get_config
from threadpoolctl import OpenBLASController, ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Return the number of threads that BLAS uses now."""
    return max(map(itemgetter("num_threads"), _controller().info()), default=1)


_lock = threading.Lock()
_inside = 0
_limiter: Any = None
_outside_threads = 1  # what BLAS had before the limit
_here = threading.local()  # .working: this thread works on a tile


@contextmanager
def serial_blas() -> Iterator[int]:
    """Hold BLAS to one thread and yield the number of threads to use instead.

    That is what BLAS had before, or 1 inside a tile. A step that alternates between small
    products and tiles holds it throughout: BLAS threads that wake for a small product would
    spin into the tiles.

    Entries are counted: the first one lowers the limit, the last one restores it, so that
    overlapping calls from several threads cannot restore each other's limit.
    """
    global _inside, _limiter, _outside_threads
    with _lock:
        if _inside == 0:
            _outside_threads = blas_threads()
            _release()
            _limiter = _controller().limit(limits=1)
        _inside += 1
        threads = 1 if getattr(_here, "working", False) else _outside_threads
    try:
        yield threads
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _release()
                _limiter.restore_original_limits()
                _release()
                _limiter = None


def _release() -> None:
    """Let this thread set limits: threadpoolctl allows it only to the first thread that did."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


@contextmanager
def _at_work() -> Iterator[None]:
    before = getattr(_here, "working", False)
    _here.working = True
    try:
        yield
    finally:
        _here.working = before


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def in_this_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` bound to the caller's configuration, to be run by another thread."""
    context, config = copy_context(), get_config()

    def bound(*args: Any) -> Any:
        with config_context(**config), _at_work():
            return function(*args)

    return lambda *args: context.copy().run(bound, *args)


def in_order(function: Callable[..., Any], items: Iterable[Any], *args: Any) -> Iterator[Any]:
    """Yield ``function(item, *args)`` in order, as many at once as BLAS has threads."""
    with serial_blas() as threads:
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
                if len(ahead) > threads:  # few finished results wait for their turn: they are large
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:  # after an error or an early end, nothing goes on in the background
            for future in ahead:
                future.cancel()
            wait(ahead)


def read_ahead(items: Iterator[Any], depth: int = 2) -> Generator[Any, None, None]:
    """Yield items that another thread produces, up to ``depth`` of them in advance."""
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(entry: tuple[bool, Any]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
            put((False, None))
        except BaseException as error:  # raised again by the thread that waits for the item
            put((False, error))

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
        thread.join()


def for_tiles(n_rows: int, tile: int, function: Callable[[int, int], object]) -> None:
    """Call ``function(start, stop)`` for every tile of rows, as many at once as BLAS has threads.

    Tiles are handed out in order; each writes its own rows, so the result does not depend on
    the number of threads.
    """
    starts = range(0, n_rows, tile)
    if len(starts) <= 1:
        function(0, n_rows)
        return
    with serial_blas() as threads:
        queue = iter(starts)

        def work() -> None:
            for start in queue:  # next() on a range iterator is atomic under the GIL
                function(start, min(start + tile, n_rows))

        helpers = min(threads, len(starts)) - 1
        bound = in_this_context(work)
        if helpers == 0:
            bound()
            return
        pool = thread_pool(threads)
        futures = [pool.submit(bound) for _ in range(helpers)]
        try:
            bound()
        finally:  # the helpers end with the queue; their error, if any, is raised here
            for future in futures:
                future.result()
