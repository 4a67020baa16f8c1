"""Rows in memory: every kind of array, any number of blocks, the same sums."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from dataclasses import dataclass
from itertools import product

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context, get_config
from threadpoolctl import threadpool_info, threadpool_limits

from leansvm.kernels import Kernel
from leansvm.rows import Block, MemoryBlocks, RowBlocks
from tests.loops import case

DEVICE = array_api_strict.Device("device1")


def memmap(X, folder):
    mapped = np.memmap(folder / "rows", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[...] = X
    mapped.flush()
    return np.memmap(folder / "rows", dtype=X.dtype, mode="r", shape=X.shape)


SOURCES = {
    "dense": lambda X, folder: X,
    "fortran": lambda X, folder: np.asfortranarray(X),
    "csr_array": lambda X, folder: sparse.csr_array(X),
    "csr_matrix": lambda X, folder: sparse.csr_matrix(X),
    "memmap": memmap,
    "array-api": lambda X, folder: array_api_strict.asarray(X),
    "array-api-device": lambda X, folder: array_api_strict.asarray(X, device=DEVICE),
}
every_source = pytest.mark.parametrize("source", SOURCES)
TILES = (1, 3, 7, 16, 17, 18, 1000)


def rows(n=17, d=4, dtype=np.float64, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)
    X[np.abs(X) < 0.3] = 0.0
    return X


def like(X, vector):
    """Return ``vector`` in the namespace and on the device of ``X``."""
    if hasattr(X, "to_device") and not isinstance(X, np.ndarray):
        return array_api_strict.asarray(vector, device=X.device)
    return vector


def to_numpy(values):
    if sparse.issparse(values):
        return values.toarray()
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    return np.asarray(values.to_device(array_api_strict.Device("CPU_DEVICE")))


# ------------------------------------------------------------------ blocks


@every_source
def test_blocks_are_the_rows_in_order(source, tmp_path):
    X = rows()
    data = SOURCES[source](X, tmp_path)
    y, weight = np.arange(17.0), np.linspace(1, 2, 17)
    for targets, tile in product([y, np.stack([y, -y], axis=1)], TILES):
        with case(outputs=targets.ndim, tile=tile):
            blocks = MemoryBlocks(data, like(data, targets), like(data, weight), tile_rows=tile)
            assert isinstance(blocks, RowBlocks)
            assert (blocks.n_rows, blocks.n_features) == (17, 4)
            assert blocks.dtype == data.dtype
            parts = blocks.map(lambda block: block)
            assert len(parts) == len(blocks) == -(-17 // tile)
            assert [part.start for part in parts] == list(range(0, 17, tile))
            for part in parts:
                assert part.stop - part.start == part.X.shape[0] <= tile
                assert_array_equal(to_numpy(part.X), X[part.rows])
                assert_array_equal(to_numpy(part.y), targets[part.rows])
                assert_array_equal(to_numpy(part.weight), weight[part.rows])
            assert parts[-1].stop == 17


@pytest.mark.parametrize("source", ["dense", "fortran", "csr_array", "csr_matrix", "memmap"])
def test_blocks_are_views(source, tmp_path):
    data = SOURCES[source](rows(), tmp_path)
    for block in MemoryBlocks(data, tile_rows=5).map(lambda block: block):
        if sparse.issparse(data):
            assert np.shares_memory(block.X.data, data.data)
            assert np.shares_memory(block.X.indices, data.indices)
        else:
            assert np.shares_memory(block.X, data)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_blocks_cost_no_copy_of_the_rows(convert):
    X = convert(np.ones((20_000, 50)))
    size = X.data.nbytes
    tracemalloc.start()
    try:
        blocks = MemoryBlocks(X, tile_rows=1000)
        blocks.sum(lambda block: 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.1 * size


def test_targets_and_weights_are_optional():
    for block in MemoryBlocks(rows(), tile_rows=5).map(lambda block: block):
        assert block.y is None
        assert block.weight is None


def test_positions():
    block = Block(10, 15, None, None, None)
    mine, local = block.positions(np.array([3, 14, 10, 15, 14, 9]))
    assert_array_equal(mine, [1, 2, 4])
    assert_array_equal(local, [4, 0, 4])
    mine, local = block.positions(np.empty(0, np.intp))
    assert len(mine) == len(local) == 0


# ------------------------------------------------------------------ map, sum, concatenate, take


@every_source
def test_map_and_each(source, tmp_path):
    data = SOURCES[source](rows(), tmp_path)

    def function(block, factor, offset):
        return block.start * factor + offset

    for tile in TILES:
        blocks = MemoryBlocks(data, tile_rows=tile)
        expected = [start * 3 + 1 for start in range(0, 17, tile)]
        assert blocks.map(function, 3, 1) == expected
        assert list(blocks.each(function, 3, 1)) == expected


def gram(block):
    return block.X.T @ block.X


def gram_and_count(block, factor):
    return factor * (block.X.T @ block.X), block.stop - block.start


@every_source
def test_sum(source, tmp_path):
    X = rows()
    data = SOURCES[source](X, tmp_path)
    for tile in TILES:
        with case(tile=tile):
            blocks = MemoryBlocks(data, tile_rows=tile)
            assert_allclose(to_numpy(blocks.sum(gram)), X.T @ X, atol=1e-12)
            matrix, count = blocks.sum(gram_and_count, 2)
            assert_allclose(to_numpy(matrix), 2 * X.T @ X, atol=1e-12)
            assert count == 17


def test_sum_of_tuples_of_different_lengths_is_refused():
    blocks = MemoryBlocks(rows(), tile_rows=10)
    with pytest.raises(ValueError):
        blocks.sum(lambda block: (1,) if block.start else (1, 2))


def test_sum_does_not_change_what_the_first_block_returned():
    blocks = MemoryBlocks(rows(), tile_rows=5)

    def keep(block):
        return block.state.setdefault("sums", block.X.sum(axis=0))

    first = blocks.sum(keep)
    assert_allclose(first, rows().sum(axis=0))
    assert_allclose(blocks.sum(keep), first, rtol=1e-14)


@every_source
def test_concatenate(source, tmp_path):
    X = rows()
    data = SOURCES[source](X, tmp_path)

    def values(block):
        return block.X @ like(block.X, np.arange(8.0).reshape(4, 2))

    for tile in TILES:
        result = MemoryBlocks(data, tile_rows=tile).concatenate(values)
        assert isinstance(result, np.ndarray)
        expected = X @ np.arange(8.0).reshape(4, 2)
        assert_allclose(result, expected, atol=1e-13, err_msg=f"tile {tile}")


@every_source
def test_take(source, tmp_path):
    X = rows()
    data = SOURCES[source](X, tmp_path)
    for chosen in ([16, 0, 3, 3], [5], list(range(17)), []):
        with case(chosen=chosen):
            indices = np.asarray(chosen, dtype=np.intp)
            taken = MemoryBlocks(data, tile_rows=5).take(indices)
            assert not isinstance(taken, np.memmap)
            assert taken.shape == (len(indices), 4)
            assert taken.dtype == data.dtype
            assert_array_equal(to_numpy(taken), X[indices])


@every_source
def test_targets_of_rows(source, tmp_path):
    data = SOURCES[source](rows(), tmp_path)
    Y, weight = np.random.default_rng(0).normal(size=(17, 2)), np.linspace(1, 2, 17)
    indices = np.array([16, 0, 3, 3])
    for tile in (1, 5, 17):
        blocks = MemoryBlocks(data, like(data, Y), like(data, weight), tile_rows=tile)
        y, w = blocks.targets_of(indices)
        assert_array_equal(to_numpy(y), Y[indices])
        assert_array_equal(to_numpy(w), weight[indices])
        assert MemoryBlocks(data, tile_rows=tile).targets_of(indices) == (None, None)


def test_take_gives_rows_of_its_own():
    X = rows()
    assert not np.shares_memory(MemoryBlocks(X).take(np.arange(17)), X)


# ------------------------------------------------------------------ state


@dataclass
class Number:
    value: int


@every_source
def test_state_stays_with_its_block(source, tmp_path):
    blocks = MemoryBlocks(SOURCES[source](rows(), tmp_path), tile_rows=4)

    def write(block, value):
        block.keep(Number(value + block.start))

    def read(block):
        return block.kept(Number).value

    blocks.map(write, 100)
    assert blocks.map(read) == [100, 104, 108, 112, 116]
    assert blocks.sum(read) == 540
    blocks.map(write, 200)
    assert blocks.map(read) == [200, 204, 208, 212, 216]


def test_state_is_not_shared():
    X = rows()
    one, two = MemoryBlocks(X, tile_rows=4), MemoryBlocks(X, tile_rows=4)
    one.map(lambda block: block.state.update(seen=True))
    assert two.map(lambda block: dict(block.state)) == [{}] * 5


# ------------------------------------------------------------------ tile size


def tile_sizes(X, **options):
    sizes = MemoryBlocks(X, **options).map(lambda block: block.stop - block.start)
    assert sum(sizes) == X.shape[0]
    assert set(sizes[:-1]) <= {sizes[0]}  # all but the last are equal
    return sizes


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("megabytes", [1, 8, 0.5])
def test_tiles_at_work_fit_in_the_working_memory(megabytes, threads):
    X, columns = np.zeros((5000, 20)), 500
    with config_context(working_memory=megabytes), threadpool_limits(threads, user_api="blas"):
        sizes = tile_sizes(X, columns=columns)
    assert threads * sizes[0] * 8 * (columns + 20) <= megabytes * 2**20


def test_tiles_grow_with_the_working_memory():
    X, columns = np.zeros((5000, 2)), 10_000
    tiles = []
    for megabytes in (1, 4, 16):
        with config_context(working_memory=4 * megabytes):
            tiles.append(tile_sizes(X, columns=columns)[0])
    assert tiles[0] < tiles[1] < tiles[2]
    assert tiles[2] == pytest.approx(16 * tiles[0], rel=0.5)


def test_wide_rows_make_short_tiles():
    with config_context(working_memory=8):
        narrow, wide = tile_sizes(np.zeros((900, 2)))[0], tile_sizes(np.zeros((900, 10_000)))[0]
    assert wide * 8 * 10_000 <= 8 * 2**20
    assert narrow > wide


def test_a_row_larger_than_the_working_memory_still_is_a_block():
    with config_context(working_memory=1):
        assert len(MemoryBlocks(np.zeros((3, 2)), columns=2**27)) == 3
    with config_context(working_memory=0):
        assert len(MemoryBlocks(np.zeros((3, 2)))) == 3


def test_tile_rows_beats_working_memory():
    with config_context(working_memory=1):
        assert len(MemoryBlocks(np.zeros((30, 2)), columns=2**27, tile_rows=10)) == 3


# ------------------------------------------------------------------ threads


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield
        assert blas_threads() == {2}


def blas_threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def test_blocks_are_worked_on_at_the_same_time(two_threads):
    together = threading.Barrier(2, timeout=20)
    MemoryBlocks(rows(), tile_rows=9).map(lambda block: together.wait())


def test_never_more_at_once_than_blas_had_threads(two_threads):
    lock, busy, most = threading.Lock(), [0], [0]

    def work(block):
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        time.sleep(0.001)
        with lock:
            busy[0] -= 1
        return blas_threads()

    assert MemoryBlocks(rows(), tile_rows=1).map(work) == [{1}] * 17
    assert most[0] <= 2


def test_results_come_in_row_order_whoever_is_first(two_threads):
    def work(block):
        time.sleep(0.01 if block.start % 2 == 0 else 0)
        return block.start

    blocks = MemoryBlocks(rows(), tile_rows=1)
    assert blocks.map(work) == list(range(17))
    assert_array_equal(blocks.concatenate(lambda block: [work(block)]), np.arange(17))


def test_results_do_not_pile_up(two_threads):
    started = []
    results = MemoryBlocks(np.zeros((1000, 1)), tile_rows=1).each(
        lambda block: started.append(block.start)
    )
    next(results)
    time.sleep(0.05)
    assert len(started) <= 10
    results.close()


def test_sums_are_the_same_to_the_last_bit_for_every_number_of_threads():
    X = np.random.default_rng(0).normal(size=(5000, 30))
    for data in (X, X.astype(np.float32), sparse.csr_array(X)):
        sums = []
        for threads in (1, 2, 3):
            with threadpool_limits(threads, user_api="blas"):
                sums.append(to_numpy(MemoryBlocks(data, tile_rows=700).sum(gram)))
        assert_array_equal(sums[0], sums[1])
        assert_array_equal(sums[0], sums[2])


def test_an_error_in_a_block_reaches_the_caller(two_threads):
    blocks = MemoryBlocks(rows(), tile_rows=1)
    for where in (0, 5, 16):
        with pytest.raises(ZeroDivisionError):
            blocks.map(lambda block, where=where: 1 // (block.start - where))
        with pytest.raises(ZeroDivisionError):
            blocks.sum(lambda block, where=where: 1 // (block.start - where))
    assert blocks.map(lambda block: 0) == [0] * 17


def test_results_that_cannot_be_added(two_threads):
    blocks = MemoryBlocks(rows(), tile_rows=1)
    with pytest.raises(ValueError):
        blocks.sum(lambda block: np.zeros(2 + block.start))
    gc.collect()


def test_stopping_early(two_threads):
    results = MemoryBlocks(rows(), tile_rows=1).each(lambda block: block.start)
    assert next(results) == 0
    results.close()
    assert blas_threads() == {2}


def test_blocks_inside_blocks(two_threads):
    outer, inner = MemoryBlocks(rows(), tile_rows=2), MemoryBlocks(rows(), tile_rows=3)
    total = outer.sum(lambda block: inner.sum(lambda part: part.stop - part.start))
    assert total == 9 * 17


def test_functions_see_the_callers_configuration(two_threads):
    # one block runs in the calling thread; several must not behave otherwise
    with config_context(assume_finite=True):
        for tile in (17, 3):
            blocks = MemoryBlocks(rows(), tile_rows=tile)
            assert set(blocks.map(lambda block: get_config()["assume_finite"])) == {True}


def test_callable_kernels_are_called_by_one_thread_at_a_time(two_threads):
    calling = threading.Lock()

    def function(A, B):
        assert calling.acquire(blocking=False), "called by two threads at once"
        time.sleep(0.001)
        calling.release()
        return A @ B.T

    kernel, X = Kernel(function), rows(100)
    blocks = MemoryBlocks(X, tile_rows=5)
    assert_allclose(blocks.concatenate(lambda block: kernel.block(block.X, X)), X @ X.T)
    assert_allclose(blocks.concatenate(lambda block: kernel.diag(block.X)), (X**2).sum(axis=1))


# ------------------------------------------------------------------ no rows


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "memmap"])
def test_no_rows(source, tmp_path):
    data = SOURCES[source](rows(0), tmp_path)
    blocks = MemoryBlocks(data)
    assert (blocks.n_rows, blocks.n_features) == (0, 4)
    assert_array_equal(to_numpy(blocks.sum(gram)), np.zeros((4, 4)))
    assert blocks.concatenate(lambda block: np.empty(block.X.shape[0])).shape == (0,)
    assert blocks.take(np.empty(0, np.intp)).shape == (0, 4)
    assert blocks.variance() == 0.0


# ------------------------------------------------------------------ variance


@every_source
def test_variance(source, tmp_path):
    for mean, dtype, tile in product([0.0, 300.0], [np.float32, np.float64], [1, 5, 1000]):
        with case(mean=mean, dtype=dtype, tile=tile):
            X = (rows(200) + mean).astype(dtype)
            expected = X.astype(np.float64).var()
            data = SOURCES[source](X, tmp_path)
            expected = pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)
            assert MemoryBlocks(data, tile_rows=tile).variance() == expected
            weight = like(data, np.full(200, 0.37))
            weighted = MemoryBlocks(data, weight=weight, tile_rows=tile).variance()
            assert isinstance(weighted, float)
            assert weighted == expected


@every_source
def test_weights_are_repetitions(source, tmp_path):
    X, times = rows(), np.arange(17) % 4
    weight = like(SOURCES[source](X, tmp_path), times.astype(float))
    weighted = MemoryBlocks(SOURCES[source](X, tmp_path), weight=weight, tile_rows=3).variance()
    repeated = np.repeat(X, times, axis=0).var()
    assert weighted == pytest.approx(repeated, rel=1e-12)


def test_rows_without_weight_do_not_count():
    X = rows()
    X[5] = 1e10
    weight = np.ones(17)
    weight[5] = 0
    assert MemoryBlocks(X, weight=weight).variance() == pytest.approx(np.delete(X, 5, 0).var())
    assert MemoryBlocks(X, weight=np.zeros(17)).variance() == 0.0


@every_source
def test_variance_of_constant_data_is_never_negative(source, tmp_path):
    # the mean's rounding may leave a trace, but of the size of rounding, squared
    for value in (0.1, 0.3, 300.1, -7.7):
        data = SOURCES[source](np.full((1000, 3), value), tmp_path)
        assert 0 <= MemoryBlocks(data).variance() <= (1e-12 * value) ** 2


@every_source
def test_variance_of_equal_entries_is_zero(source, tmp_path):
    X = np.full((50, 3), 0.1)
    weight = np.linspace(0.0, 2.3, 50)
    other = X.copy()
    other[0] = 7.0  # counts for nothing
    for tile in (7, 50):
        data = SOURCES[source](X, tmp_path)
        assert MemoryBlocks(data, tile_rows=tile).variance() == 0.0
        data = SOURCES[source](other, tmp_path)
        assert MemoryBlocks(data, weight=like(data, weight), tile_rows=tile).variance() == 0.0


@every_source
def test_variance_is_one_pass_and_survives_outliers(source, tmp_path):
    X = rows(60)
    X[0, 0] = 1e8  # the entry that deviations are taken from
    blocks = MemoryBlocks(SOURCES[source](X, tmp_path), tile_rows=13)
    passes, each = [], blocks.each
    blocks.each = lambda function, *args: passes.append(function) or each(function, *args)
    assert blocks.variance() == pytest.approx(X.var(), rel=1e-12)
    assert len(passes) == 1
    rest = X[13:]
    assert MemoryBlocks(SOURCES[source](rest, tmp_path)).variance() == pytest.approx(rest.var())


@every_source
def test_first_rows_and_targets_need_no_pass(source, tmp_path):
    X, y, weight = rows(40), np.arange(80.0).reshape(40, 2), np.linspace(0, 1, 40)
    data = SOURCES[source](X, tmp_path)
    blocks = MemoryBlocks(data, like(data, y), like(data, weight), tile_rows=9)
    blocks.each = None  # any pass would fail
    for count in (0, 5, 40, 99):
        first, targets, weights = blocks.head(count)
        assert_array_equal(to_numpy(first), X[:count])
        assert_array_equal(targets, y[:count])
        assert_array_equal(weights, weight[:count])
    order = np.array([39, 0, 0, 17])
    assert_array_equal(blocks.targets_of(order)[0], y[order])
    assert MemoryBlocks(data).targets_of(order) == (None, None)


def test_variance_of_csr_in_any_form():
    # explicit zeros, unsorted indices and an entry stored in two parts
    data = np.array([2.0, 1.0, 0.0, 0.25, 0.75, 3.0])
    indices = np.array([2, 0, 1, 1, 1, 0])
    A = sparse.csr_array((data, indices, np.array([0, 3, 5, 6])), shape=(3, 4))
    for tile in (1, 3):
        assert MemoryBlocks(A, tile_rows=tile).variance() == pytest.approx(A.toarray().var())


@settings(max_examples=50, deadline=None)
@given(data=st.data(), n=st.integers(1, 30), tile=st.integers(1, 40), seed=st.integers(0, 99))
def test_any_number_of_blocks_is_as_good_as_one(data, n, tile, seed):
    X = rows(n, 3, seed=seed)
    if data.draw(st.booleans()):
        X = sparse.csr_array(X)
    weight = np.random.default_rng(seed).uniform(size=n)
    one = MemoryBlocks(X, weight=weight, tile_rows=n)
    many = MemoryBlocks(X, weight=weight, tile_rows=tile)
    assert len(one) == 1
    assert many.variance() == pytest.approx(one.variance(), rel=1e-10, abs=1e-15)
    assert_allclose(to_numpy(many.sum(gram)), to_numpy(one.sum(gram)), atol=1e-12)
    assert_array_equal(
        many.concatenate(lambda block: to_numpy(block.X)), one.concatenate(lambda b: to_numpy(b.X))
    )
