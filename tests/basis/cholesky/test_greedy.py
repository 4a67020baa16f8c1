"""Greedy pivoted Cholesky against the textbook's one pivot at a time."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal, assert_array_less
from scipy import sparse
from scipy.spatial.distance import cdist

from leansvm.basis.cholesky import FactorRows
from leansvm.basis.cholesky.greedy import pivoted_cholesky
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks
from leansvm.rows._cluster_work import Part
from tests.loops import case

BATCHES = (1, 7, 23, 512)
TILES = (10_000, 43)


class ImpatientBlocks(MemoryBlocks):
    """Blocks that fail instead of serving a loop that does not end."""

    patience = 2000

    def each(self, function, *args):
        self.patience -= 1
        assert self.patience > 0, "passes over the rows without end"
        return super().each(function, *args)


class BlocksInParts(ImpatientBlocks):
    """Blocks of which each part offers its best rows, as the workers of a cluster do."""

    def __init__(self, X, n_parts, tile_rows):
        super().__init__(X, tile_rows=tile_rows)
        groups = np.array_split(np.arange(len(self)), n_parts)
        self.parts = [Part([self._blocks[i] for i in group]) for group in groups if len(group)]
        self.n_parts = len(self.parts)

    def fold_parts(self, combine, function, *args):
        return reduce(combine, (function(part, *args) for part in self.parts))


def one_at_a_time(K, n_pivots):
    """Pivots by the largest residual in units of 2^-36 max K_ii, ties to the lowest row."""
    K = np.asarray(K, dtype=np.float64)
    D = K.diagonal().copy()
    largest = D.max(initial=0.0)
    P = np.zeros((len(K), n_pivots))
    pivots, trace = [], []
    while len(pivots) < n_pivots:
        keys = np.rint(D * (2.0**36 / largest)) if largest > 0 else np.zeros(len(D))
        keys[10 * np.finfo(float).eps * largest >= D] = -1
        t = int(np.argmax(keys))
        if keys[t] < 0:
            break
        k = len(pivots)
        P[:, k] = (K[:, t] - P[:, :k] @ P[t, :k]) / np.sqrt(D[t])
        D = np.maximum(D - P[:, k] ** 2, 0.0)
        pivots.append(t)
        D[pivots] = 0.0
        trace.append(D.sum())
    return np.array(pivots, dtype=int), P[:, : len(pivots)], np.array(trace)


def gaussian(n=300, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def integers(n=300, seed=0):
    return np.random.default_rng(seed).integers(0, 5, size=(n, 3)).astype(float)


def duplicates(n=300, seed=0):
    X = gaussian(n // 3, seed=seed)
    return X[np.random.default_rng(seed).integers(0, len(X), size=n)]


def grid(n=17):
    return np.stack(np.meshgrid(np.arange(float(n)), np.arange(float(n))), -1).reshape(-1, 2)


DATA = {"gaussian": gaussian(), "integers": integers(), "duplicates": duplicates(), "grid": grid()}
KERNELS = {
    "rbf": Kernel("rbf", gamma=0.5),
    "narrow rbf": Kernel("rbf", gamma=5.0),
    "laplacian": Kernel("laplacian", gamma=0.3),
    "poly": Kernel("poly", gamma=0.1, coef0=1.0, degree=4),
}


def factor(X, kernel, n_pivots, *, tile=10_000, **options):
    blocks = ImpatientBlocks(X, tile_rows=tile)
    result = pivoted_cholesky(blocks, kernel, n_pivots, **options)
    k = len(result.indices)
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P)[:, :k]
    return result, P, blocks


# ------------------------------------------------------------------ the pivots


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("data", DATA)
def test_same_pivots_as_one_at_a_time(data, kernel):
    X, k = DATA[data], KERNELS[kernel]
    K = k.block(X, X)
    n_pivots = 20 if kernel == "poly" else 81
    expected, P_expected, trace = one_at_a_time(K, n_pivots)
    for tile, batch in product(TILES, BATCHES):
        message = f"tile {tile}, batch {batch}"
        result, P, _ = factor(X, k, n_pivots, tile=tile, batch=batch)
        assert_array_equal(result.indices, expected, err_msg=message)
        assert_allclose(P, P_expected, atol=1e-6 * np.sqrt(K.max()), err_msg=message)
        atol = 1e-12 * K.trace()
        assert_allclose(result.report["trace"], trace, rtol=1e-8, atol=atol, err_msg=message)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("data", DATA)
def test_same_pivots_in_parts(data, kernel, monkeypatch):
    monkeypatch.setattr("leansvm.basis.cholesky.greedy._SPARE", 0)  # no part offers all candidates
    X, k = DATA[data], KERNELS[kernel]
    X = X[np.lexsort(X.T)]  # the parts are unlike
    n_pivots = 20 if kernel == "poly" else 60
    expected, P_expected, trace = one_at_a_time(k.block(X, X), n_pivots)
    for n_parts in (2, 7):
        message = f"{n_parts} parts"
        blocks = BlocksInParts(X, n_parts, 19)
        result = pivoted_cholesky(blocks, k, n_pivots, batch=11)
        assert_array_equal(result.indices, expected, err_msg=message)
        P = blocks.concatenate(lambda block: block.kept(FactorRows).P)[:, : len(expected)]
        assert_allclose(P, P_expected, atol=1e-6 * np.abs(P_expected).max(), err_msg=message)
        atol = 1e-12 * len(X) * P_expected.max() ** 2
        assert_allclose(result.report["trace"], trace, rtol=1e-8, atol=atol, err_msg=message)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    d=st.integers(1, 2),
    levels=st.integers(1, 6),
    tile=st.integers(1, 45),
    batch=st.integers(1, 45),
    n_pivots=st.integers(1, 45),
)
def test_same_pivots_with_many_ties(seed, n, d, levels, tile, batch, n_pivots):
    X = np.random.default_rng(seed).integers(0, levels, size=(n, d)).astype(float)
    kernel = Kernel("rbf", gamma=1.0)
    expected, P, _ = one_at_a_time(kernel.block(X, X), n_pivots)
    result, _, _ = factor(X, kernel, n_pivots, tile=tile, batch=batch)
    # as far as the pivots are not rounding errors of kernel values
    real = int(np.sum(np.square(P[expected, np.arange(len(expected))]) > 1e-12))
    assert_array_equal(result.indices[:real], expected[:real])
    assert_array_less(np.square(result.L.diagonal()[real:]), 1e-11)
    assert len(set(map(tuple, X[result.indices[:real]]))) == real


def test_an_m_way_tie_goes_to_the_first_row():
    result, _, _ = factor(gaussian(), KERNELS["rbf"], 1, tile=7)
    assert_array_equal(result.indices, [0])


def test_ties_go_to_the_lowest_row_in_any_block():
    X = np.eye(12)  # linear kernel: all residuals stay equal
    for tile in (1, 5, 12):
        for batch in BATCHES:
            result, _, _ = factor(X, Kernel("linear"), 12, tile=tile, batch=batch)
            assert_array_equal(result.indices, np.arange(12))


def test_fewer_pivots_are_a_prefix_of_more():
    many, P_many, _ = factor(gaussian(), KERNELS["rbf"], 80, batch=23)
    few, P_few, _ = factor(gaussian(), KERNELS["rbf"], 30, batch=512)
    assert_array_equal(few.indices, many.indices[:30])
    assert_allclose(few.L, many.L[:30, :30], atol=1e-8)
    assert_allclose(few.report["trace"], many.report["trace"][:30])
    assert_allclose(P_few, P_many[:, :30], atol=1e-8)


def test_rows_in_another_order_are_the_same_points():
    X = gaussian()
    kernel = KERNELS["poly"]  # no ties: the diagonal has all values
    order = np.random.default_rng(1).permutation(len(X))
    result, _, _ = factor(X, kernel, 20)
    shuffled, _, _ = factor(X[order], kernel, 20)
    assert_array_equal(order[shuffled.indices], result.indices)


def test_a_batch_saves_rounds():
    X = gaussian(1000)
    one, _, _ = factor(X, KERNELS["rbf"], 100, batch=1)
    many, _, _ = factor(X, KERNELS["rbf"], 100, batch=256)
    assert one.report["rounds"] == 100
    assert many.report["rounds"] <= 25
    assert_array_equal(one.indices, many.indices)


# ------------------------------------------------------------------ the factor


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("data", DATA)
def test_what_the_factor_is(data, kernel):
    X, k = DATA[data], KERNELS[kernel]
    K = k.block(X, X)
    for tile, batch in product(TILES, BATCHES):
        with case(tile=tile, batch=batch):
            check_factor(K, *factor(X, k, 40, tile=tile, batch=batch))


def check_factor(K, result, P, blocks):
    B, L = result.indices, result.L
    tol = 1e-10 * K.max()
    assert len(np.unique(B)) == len(B)
    assert L.shape == (len(B), len(B))
    assert_array_equal(np.triu(L, 1), 0)
    assert (L.diagonal() > 0).all()
    assert_allclose(L @ L.T, K[np.ix_(B, B)], atol=tol)
    assert_allclose(P @ P[B].T, K[:, B], atol=tol)
    assert_allclose(P[B], L, atol=1e-5 * np.sqrt(K.max()))
    # the trace that is left after every pivot, and the residual diagonal
    left = [K.trace() - np.square(P[:, :j]).sum() for j in range(1, len(B) + 1)]
    assert_allclose(result.report["trace"], left, rtol=1e-9, atol=1e-11 * K.trace())
    assert (np.diff(result.report["trace"]) <= 0).all()
    D = blocks.concatenate(lambda block: block.kept(FactorRows).D)
    assert_allclose(D, K.diagonal() - np.square(P).sum(axis=1), atol=tol)
    assert (D >= 0).all()
    assert_array_equal(D[B], 0)


def test_the_trace_is_that_of_the_nystroem_residual():
    X, kernel = gaussian(), KERNELS["rbf"]
    result, _, _ = factor(X, kernel, 30, batch=7)
    K = kernel.block(X, X)
    for j in (1, 10, 30):
        B = result.indices[:j]
        residual = K - K[:, B] @ np.linalg.solve(K[np.ix_(B, B)], K[B])
        assert result.report["trace"][j - 1] == pytest.approx(np.trace(residual), rel=1e-8)


# ------------------------------------------------------------------ when to stop


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_linear_kernel_of_rank_three_has_three_pivots(dtype):
    for seed in range(4):
        X = gaussian(200, 3, seed=seed).astype(dtype)
        K = X.astype(np.float64) @ X.T.astype(np.float64)
        for tile, batch in product(TILES, BATCHES):
            message = f"seed {seed}, tile {tile}, batch {batch}"
            result, P, _ = factor(X, Kernel("linear"), 50, tile=tile, batch=batch)
            assert len(result.indices) == 3, message
            assert_allclose(P @ P.T, K, atol=1e-12 * K.max(), err_msg=message)


def test_rank_does_not_depend_on_the_scale():
    for scale, batch in product([1e-150, 1e-6, 1e6, 1e150], BATCHES):
        result, _, _ = factor(gaussian(200, 3) * scale, Kernel("linear"), 50, batch=batch)
        assert len(result.indices) == 3, f"scale {scale}, batch {batch}"


@pytest.mark.parametrize(
    "kernel",
    [
        Kernel("linear"),
        Kernel("poly", degree=2, gamma=1.0, coef0=1.0),
        Kernel("rbf", gamma=0.01),
        Kernel("laplacian", gamma=1e-4),
        Kernel("sigmoid", gamma=1e-3, coef0=0.0),
    ],
    ids=lambda kernel: kernel.name,
)
def test_it_ends_for_every_kernel_and_type(kernel):
    types, storage = (np.float64, np.float32), (np.asarray, sparse.csr_array)
    for seed, dtype, convert in product(range(3), types, storage):
        message = f"seed {seed}, {dtype}, {convert}"
        X = gaussian(150, 2, seed=seed).astype(dtype)
        result, P, _ = factor(convert(X), kernel, 150, tile=40, batch=16)
        assert 0 < len(result.indices) <= 150, message
        X = X.astype(np.float64)
        K = kernel.block(X, X)
        # the residual is rounding of the largest diagonal, and no pivot came from it
        if kernel.name != "sigmoid":  # not positive semidefinite
            assert_allclose(P @ P.T, K, atol=1e-12 * K.max(), err_msg=message)
            smallest = np.square(result.L.diagonal()).min()
            assert smallest > 2e-15 * K.diagonal().max(), message


def test_it_ends_for_a_callable_on_float32():
    def product(A, B):
        return np.asarray(A, np.float64) @ np.asarray(B, np.float64).T

    result, _, _ = factor(gaussian(200, 3).astype(np.float32), Kernel(product), 50)
    assert len(result.indices) == 3


@pytest.mark.parametrize("kernel", [Kernel("laplacian", gamma=1.0), Kernel("rbf", gamma=1.0)])
def test_equal_rows_are_taken_once(kernel):
    X = np.repeat(np.random.default_rng(0).uniform(size=(10, 3)), 7, axis=0)
    for batch in BATCHES:
        result, _, _ = factor(X, kernel, 70, tile=9, batch=batch)
        assert_array_equal(np.sort(result.indices), np.arange(0, 70, 7))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_float32_rows_give_the_pivots_of_the_numbers_they_hold(convert):
    # the third feature is below the rounding of a float32 diagonal, not below that of float64
    X = (gaussian(200, 3) * [1.0, 1.0, 1e-5]).astype(np.float32)
    exact = X.astype(np.float64)
    expected, _, trace = one_at_a_time(exact @ exact.T, 50)
    for batch in BATCHES:
        result, _, _ = factor(convert(X), Kernel("linear"), 50, tile=43, batch=batch)
        assert_array_equal(result.indices, expected)
        assert_allclose(result.report["trace"], trace, atol=1e-13 * np.square(exact).sum())


def test_all_rows():
    X = gaussian(50)
    result, _, _ = factor(X, KERNELS["narrow rbf"], 1000, batch=7)
    assert_array_equal(np.sort(result.indices), np.arange(50))
    assert result.report["trace"][-1] == pytest.approx(0, abs=1e-12)


def test_nothing_to_choose():
    result, _, _ = factor(np.zeros((20, 2)), Kernel("linear"), 5)
    assert len(result.indices) == len(result.report["trace"]) == 0
    assert result.L.shape == (0, 0)
    result, _, _ = factor(gaussian(), KERNELS["rbf"], 0)
    assert len(result.indices) == 0
    result, _, _ = factor(gaussian(0), KERNELS["rbf"], 5)
    assert len(result.indices) == 0


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("tile", [10_000, 43])
def test_trace_tol_stops_at_the_shortest_prefix(tile, batch):
    X, kernel = gaussian(), KERNELS["rbf"]
    full, P_full, _ = factor(X, kernel, 100)
    for wanted in (1, 2, 3, 17, 50, 99):
        # between two pivots: the wanted one is the first that gets below
        tol = (
            (full.report["trace"][wanted - 1] + full.report["trace"][wanted - 2]) / 2
            if wanted > 1
            else 299.5
        )
        result, P, _ = factor(X, kernel, 100, trace_tol=tol, batch=batch, tile=tile)
        assert full.report["trace"][wanted - 1] <= tol
        assert_array_equal(result.indices, full.indices[:wanted])
        assert_allclose(result.L, full.L[:wanted, :wanted], atol=1e-8)
        assert result.report["trace"][-1] <= tol
        assert len(result.report["trace"]) == wanted
        assert_allclose(P, P_full[:, :wanted], atol=1e-8)


def test_trace_tol_that_needs_no_pivot_or_is_never_met():
    X, kernel = gaussian(), KERNELS["rbf"]
    result, _, _ = factor(X, kernel, 20, trace_tol=300.0)
    assert len(result.indices) == 0
    result, _, _ = factor(X, kernel, 20, trace_tol=1e-3)
    assert len(result.indices) == 20
    assert result.report["trace"][-1] > 1e-3


@pytest.mark.parametrize("batch", BATCHES)
def test_tol_is_a_fraction_of_the_trace(batch):
    X, kernel = gaussian(), KERNELS["poly"]
    total = kernel.diag(X).sum()
    by_fraction, _, _ = factor(X, kernel, 60, tol=1e-3, batch=batch)
    by_value, _, _ = factor(X, kernel, 60, trace_tol=1e-3 * total, batch=batch)
    assert_array_equal(by_fraction.indices, by_value.indices)
    assert 0 < len(by_value.indices) < 60
    assert by_value.report["trace"][-1] <= 1e-3 * total < by_value.report["trace"][-2]


def test_a_callback_can_stop_it():
    sizes = []

    def on_step(size):
        sizes.append(size)
        return len(sizes) == 4

    full, _, _ = factor(gaussian(), KERNELS["rbf"], 60, batch=7)
    result, _, _ = factor(gaussian(), KERNELS["rbf"], 60, batch=7, on_step=on_step)
    assert result.report["rounds"] == 4
    assert sizes == sorted(set(sizes))
    assert len(result.indices) == sizes[-1] < 60
    assert_array_equal(result.indices, full.indices[: sizes[-1]])


def test_a_smaller_theta_takes_fewer_rounds():
    X, kernel = gaussian(1000), KERNELS["rbf"]
    exact, _, _ = factor(X, kernel, 100, batch=64)
    loose, P, _ = factor(X, kernel, 100, batch=64, theta=0.5)
    assert loose.report["rounds"] < exact.report["rounds"]
    assert len(loose.indices) == 100
    assert loose.report["trace"][-1] <= 1.5 * exact.report["trace"][-1]
    assert_allclose(P @ P[loose.indices].T, kernel.block(X, X[loose.indices]), atol=1e-10)


# ------------------------------------------------------------------ weights


def weighted(X, kernel, n_pivots, weight, **options):
    return pivoted_cholesky(
        ImpatientBlocks(X, weight=weight, tile_rows=43), kernel, n_pivots, **options
    )


def test_rows_of_no_weight_are_not_there():
    X, kernel = gaussian(), KERNELS["rbf"]
    weight = np.ones(len(X))
    weight[::3] = 0.0
    kept = np.flatnonzero(weight)
    for batch in BATCHES:
        result = weighted(X, kernel, 60, weight, batch=batch)
        without, _, _ = factor(X[kept], kernel, 60, batch=batch)
        assert_array_equal(result.indices, kept[without.indices])
        assert_allclose(result.report["trace"], without.report["trace"], rtol=1e-9)
    assert len(weighted(X, kernel, 60, np.zeros(len(X))).indices) == 0


def test_weights_weigh_the_trace_and_leave_the_pivots():
    X, kernel = gaussian(), KERNELS["rbf"]
    times = np.random.default_rng(0).integers(1, 4, size=len(X))
    result = weighted(X, kernel, 30, times.astype(float))
    plain, _, _ = factor(X, kernel, 30)
    assert_array_equal(result.indices, plain.indices)
    repeated, _, _ = factor(np.repeat(X, times, axis=0), kernel, 30)
    assert_allclose(result.report["trace"], repeated.report["trace"], rtol=1e-9)


# ------------------------------------------------------------------ where the rows are


@pytest.mark.parametrize("tile", [10_000, 43])
@pytest.mark.parametrize("batch", BATCHES)
def test_precomputed_is_as_good_as_the_kernel(batch, tile):
    X, kernel = gaussian(), KERNELS["rbf"]
    K = kernel.block(X, X)
    before = K.copy()
    expected, P_expected, _ = factor(X, kernel, 60, tile=tile, batch=batch)
    result, P, _ = factor(K, Kernel("precomputed"), 60, tile=tile, batch=batch)
    assert_array_equal(result.indices, expected.indices)
    assert_allclose(result.L, expected.L, atol=1e-9)
    assert_allclose(P, P_expected, atol=1e-9)
    assert_array_equal(K, before)


def test_callable_is_as_good_as_the_kernel():
    X = gaussian()
    result, _, _ = factor(X, Kernel(lambda A, B: np.exp(-0.3 * cdist(A, B, "cityblock"))), 60)
    expected, _, _ = factor(X, KERNELS["laplacian"], 60)
    assert_array_equal(result.indices, expected.indices)
    assert_allclose(result.L, expected.L, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", KERNELS)
def test_sparse_rows_are_as_good_as_dense_ones(kernel, dtype):
    X = gaussian()
    X[np.abs(X) < 0.5] = 0.0
    X = X.astype(dtype)
    k, n_pivots = KERNELS[kernel], 20
    expected, P_expected, _ = factor(X.astype(np.float64), k, n_pivots)
    for data in (X, sparse.csr_array(X)):
        result, P, _ = factor(data, k, n_pivots, tile=43, batch=23)
        assert_array_equal(result.indices, expected.indices)
        assert P.dtype == np.float64
        assert_allclose(P, P_expected, atol=1e-7 * np.abs(P_expected).max())


def test_memory_mapped_rows(tmp_path):
    X = gaussian()
    mapped = np.memmap(tmp_path / "X", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[...] = X
    result, P, _ = factor(mapped, KERNELS["rbf"], 40, tile=43)
    expected, P_expected, _ = factor(X, KERNELS["rbf"], 40)
    assert_array_equal(result.indices, expected.indices)
    assert_allclose(P, P_expected, atol=1e-9)
