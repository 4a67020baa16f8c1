"""Tiles in threads: every row once, BLAS limits restored whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import numpy as np
import pytest
import threadpoolctl
from threadpoolctl import threadpool_info, threadpool_limits

from leansvm import LSSVC, LowRankLSSVC, ReducedSVC, SparseLSSVC, _parallel
from leansvm._parallel import for_tiles, limited_blas
from leansvm.estimators import machine
from leansvm.rows import MemoryBlocks


def blas_threads():
    return {
        lib["filepath"]: lib["num_threads"]
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def two_blas_threads():
    """Two BLAS threads, and a check that every test gives them back."""
    with threadpool_limits(2, user_api="blas"):
        anyone_may_set_limits()
        before = blas_threads()
        assert set(before.values()) == {2}
        yield
        assert blas_threads() == before
        anyone_may_set_limits()


def anyone_may_set_limits():
    """From threadpoolctl 3.8 on, the first thread that sets a limit keeps others from it."""
    controller = threadpoolctl.OpenBLASController
    if hasattr(controller, "clear_controlling_thread"):
        controller.clear_controlling_thread(force=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "n_rows, tile", [(0, 5), (1, 5), (5, 5), (6, 5), (10, 5), (11, 1), (1000, 7)]
)
def test_every_row_once_and_in_bounds(n_rows, tile, threads):
    visits = np.zeros(n_rows, int)
    lock = threading.Lock()

    def visit(start, stop):
        assert 0 <= start <= stop <= n_rows
        assert stop - start <= max(tile, n_rows if n_rows <= tile else 0)
        with lock:
            visits[start:stop] += 1

    with threadpool_limits(threads, user_api="blas"):
        for_tiles(n_rows, tile, visit)
    assert (visits == 1).all()


def test_tiles_run_at_the_same_time():
    together = threading.Barrier(2, timeout=20)
    for_tiles(2, 1, lambda start, stop: together.wait())  # breaks unless two threads meet


def test_one_blas_thread_means_one_thread():
    seen = set()
    with threadpool_limits(1, user_api="blas"):
        for_tiles(50, 1, lambda start, stop: seen.add(threading.get_ident()))
    assert seen == {threading.get_ident()}


def test_never_more_threads_than_blas_had():
    seen = set()
    for_tiles(200, 1, lambda start, stop: seen.add(threading.get_ident()))
    assert len(seen) <= 2


def test_blas_is_serial_inside():
    inside = []
    for_tiles(6, 1, lambda start, stop: inside.append(set(blas_threads().values())))
    assert inside == [{1}] * 6


def test_limited_blas_says_how_many_threads_there_were():
    with limited_blas() as threads:
        assert threads == 2
        assert set(blas_threads().values()) == {1}


def test_nested():
    with limited_blas():
        with limited_blas():
            assert set(blas_threads().values()) == {1}
        assert set(blas_threads().values()) == {1}
    assert set(blas_threads().values()) == {2}


def test_tiles_inside_tiles():
    total = np.zeros((6, 6))

    def outer(start, stop):
        def inner(first, last):
            total[start:stop, first:last] += 1

        for_tiles(6, 1, inner)

    for_tiles(6, 2, outer)
    assert (total == 1).all()


def test_restored_after_an_exception():
    with pytest.raises(KeyError), limited_blas():
        raise KeyError
    assert set(blas_threads().values()) == {2}


@pytest.mark.parametrize("where", ["caller", "helper"])
def test_an_exception_in_a_tile_reaches_the_caller(where):
    caller = threading.get_ident()
    together = threading.Barrier(2, timeout=20)

    def fail_in_one_thread(start, stop):
        if start < 2:
            together.wait()  # both threads take part
            if (threading.get_ident() == caller) == (where == "caller"):
                raise ZeroDivisionError(f"tile {start}")

    with pytest.raises(ZeroDivisionError, match="tile"):
        for_tiles(4, 1, fail_in_one_thread)
    assert set(blas_threads().values()) == {2}


@pytest.mark.parametrize("where", ["caller", "helper"])
def test_after_an_exception_no_further_tile_begins(where):
    caller, begun = threading.get_ident(), []
    together, failed = threading.Barrier(2, timeout=20), threading.Event()

    def fail_in_one_thread(start, stop):
        begun.append(start)
        if start < 2:
            together.wait()  # both threads take part
        if (threading.get_ident() == caller) == (where == "caller"):
            failed.set()
            raise ZeroDivisionError
        failed.wait(20)
        time.sleep(0.05)  # until the other thread has left

    with pytest.raises(ZeroDivisionError):
        for_tiles(100, 1, fail_in_one_thread)
    assert len(begun) == 2


def test_an_exception_in_the_only_tile():
    with pytest.raises(ZeroDivisionError):
        for_tiles(3, 5, lambda start, stop: 1 // 0)


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_overlapping_threads_do_not_restore_each_others_limit(first_leaves_first):
    entered, left = ({"first": threading.Event(), "second": threading.Event()} for _ in range(2))
    checked = threading.Event()
    inside = {}

    def work(me, other, leaves_first):
        if me == "second":
            assert entered[other].wait(20)
        with limited_blas():
            entered[me].set()
            assert entered[other].wait(20)
            if not leaves_first:
                assert left[other].wait(20)
            inside[me] = set(blas_threads().values())
        left[me].set()
        assert checked.wait(20)  # neither thread ends before the limits are looked at

    workers = [
        threading.Thread(target=work, args=("first", "second", first_leaves_first)),
        threading.Thread(target=work, args=("second", "first", not first_leaves_first)),
    ]
    for worker in workers:
        worker.start()
    try:
        assert left["first"].wait(20)
        assert left["second"].wait(20)
        after = set(blas_threads().values())
    finally:
        checked.set()
        for worker in workers:
            worker.join(30)
    assert inside == {"first": {1}, "second": {1}}
    assert after == {2}


def in_another_thread(function):
    """Run ``function`` in a thread; return its result and a function that ends the thread."""
    results, done = [], threading.Event()
    ready = threading.Event()

    def work():
        results.append(function())
        ready.set()
        done.wait(20)

    worker = threading.Thread(target=work)
    worker.start()
    assert ready.wait(20)

    def end():
        done.set()
        worker.join(30)

    return results[0], end


def limits_inside_tiles():
    inside = []
    for_tiles(4, 1, lambda start, stop: inside.append(set(blas_threads().values())))
    return inside


def test_tiles_of_every_thread_have_serial_blas():
    # whoever used tiles first must not keep the others from it
    assert limits_inside_tiles() == [{1}] * 4
    for _ in range(2):
        inside, end = in_another_thread(limits_inside_tiles)
        try:
            assert inside == [{1}] * 4
            assert limits_inside_tiles() == [{1}] * 4
        finally:
            end()


def test_tiles_have_serial_blas_while_another_thread_holds_a_limit():
    with threadpool_limits(2, user_api="blas"):
        inside, end = in_another_thread(limits_inside_tiles)
        end()
        assert inside == [{1}] * 4
        assert set(blas_threads().values()) == {2}


def test_others_can_set_limits_after_a_thread_used_tiles():
    _, end = in_another_thread(limits_inside_tiles)
    try:
        with threadpool_limits(1, user_api="blas"):
            assert set(blas_threads().values()) == {1}
        assert set(blas_threads().values()) == {2}
    finally:
        end()


def test_many_threads_at_once():
    failures = []

    def work():
        try:
            for i in range(20):
                try:
                    for_tiles(8, 1, lambda start, stop, i=i: 1 // (start - i))
                except ZeroDivisionError:
                    pass
                else:
                    assert i >= 8
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert not failures
    assert set(blas_threads().values()) == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_start_anew_after_a_fork():
    total = MemoryBlocks(np.ones((40, 2)), tile_rows=5)
    assert total.sum(lambda block: block.X.sum()) == 80  # the pool exists
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(total.sum(lambda b: float(b.X.sum()))))
    child.start()
    child.join(timeout=30)
    assert child.exitcode == 0
    assert queue.get() == 80


# ---------------------------------------------------------------------------- large matrices


@pytest.fixture
def cores(monkeypatch, tmp_path):
    """Return a function that sets the number of cores and of threads that run on them."""

    def set_cores(count, running):
        path = tmp_path / "loadavg"
        path.write_text(f"0.50 0.40 0.30 {running}/300 4711\n")
        monkeypatch.setattr(_parallel, "_RUNNING", str(path))
        monkeypatch.setattr(_parallel, "_free", [0.0, 1])
        monkeypatch.setattr(os, "cpu_count", lambda: count)

    return set_cores


def limits_of(rows, **options):
    with limited_blas(rows, **options):
        return set(blas_threads().values())


@pytest.mark.parametrize(
    "count, running, threads",
    [(2, 1, 2), (2, 0, 2), (2, 2, 1), (2, 9, 1), (64, 40, 2), (64, 64, 1)],
)
def test_a_large_matrix_gets_the_free_cores(cores, count, running, threads):
    cores(count, running)
    assert limits_of(2000) == {threads}
    assert set(blas_threads().values()) == {2}
    with limited_blas():
        assert limits_of(2000) == {threads}
        assert set(blas_threads().values()) == {1}


def test_a_small_matrix_gets_one_thread(cores):
    cores(2, 1)
    assert limits_of(_parallel.SMALL_MATRIX) == {1}
    assert limits_of(2000, small=2000) == {1}


def test_all_threads_where_the_system_does_not_say(cores, monkeypatch):
    cores(2, 2)
    monkeypatch.setattr(_parallel, "_RUNNING", "/no/such/file")
    assert limits_of(2000) == {2}


def test_threads_that_spin_after_a_large_matrix_are_not_counted(cores):
    cores(2, 1)
    assert limits_of(2000) == {2}
    with open(_parallel._RUNNING, "w", encoding="ascii") as file:
        file.write("0.50 0.40 0.30 2/300 4711")
    assert limits_of(2000) == {2}  # remembered
    _parallel._free[0] = 0.0
    assert limits_of(2000) == {1}


def test_tiles_within_a_large_matrix_have_serial_blas(cores):
    cores(2, 1)
    with limited_blas(2000):
        assert limits_inside_tiles() == [{1}] * 4
        assert set(blas_threads().values()) == {2}


def test_a_large_matrix_inside_a_tile_has_one_thread(cores):
    cores(2, 1)
    inside = []
    for_tiles(2, 1, lambda start, stop: inside.append(limits_of(2000)))
    assert inside == [{1}, {1}]


def test_a_large_matrix_beside_another_fit_has_one_thread(cores):
    cores(2, 1)
    release, entered = threading.Event(), threading.Event()

    def hold():
        with limited_blas():
            entered.set()
            release.wait(20)

    other = threading.Thread(target=hold)
    other.start()
    assert entered.wait(20)
    try:
        assert limits_of(2000) == {1}
    finally:
        release.set()
        other.join(20)
    assert limits_of(2000) == {2}


@pytest.mark.parametrize("estimator", [SparseLSSVC, ReducedSVC, LSSVC, LowRankLSSVC])
def test_a_fit_holds_blas_to_one_thread(estimator, monkeypatch):
    seen = []
    monkeypatch.setattr(machine, "publish", lambda *args: seen.append(set(blas_threads().values())))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    learns = estimator in (SparseLSSVC, ReducedSVC)
    estimator(**({"gamma": 1.0} if learns else {})).fit(X, X[:, 0] > 0)
    assert seen == [{1}]


def test_the_number_of_threads_to_work_with_is_known_inside():
    inside = []
    assert _parallel.blas_threads() == 2
    with limited_blas():
        assert _parallel.blas_threads() == 2
        for_tiles(2, 1, lambda start, stop: inside.append(_parallel.blas_threads()))
    assert inside == [1, 1]
