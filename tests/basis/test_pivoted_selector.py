"""The pivoted-Cholesky selector: its options, its state, weights and kinds of rows."""

import pickle
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from leansvm.basis.cholesky import FactorRows, pivot_order, pivoted_cholesky
from leansvm.basis.pivoted import PivotedCholesky
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

RBF = Kernel("rbf", gamma=0.5)


class TravellingBlocks(MemoryBlocks):
    """Blocks to which functions and arguments come as bytes."""

    def each(self, function, *args):
        function, args = pickle.loads(pickle.dumps((function, args)))
        return super().each(function, *args)


def choose(X, n_basis, *, kernel=RBF, weight=None, tile=None, blocks=MemoryBlocks, **options):
    rows = blocks(X, weight=weight, tile_rows=tile)
    selection = PivotedCholesky(**options).select(rows, kernel, n_basis)
    return selection, rows


def whitened(blocks, k):
    return blocks.concatenate(lambda block: block.kept(FactorRows).P[:, :k])


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(300, 3))


# ------------------------------------------------------------------ what it returns


@pytest.mark.parametrize("tile", [300, 100, 6])
@pytest.mark.parametrize("batch", [1, 16, 512])
def test_the_state_is_the_whitened_basis(X, tile, batch):
    selection, blocks = choose(X, 50, tile=tile, batch=batch)
    B, L = selection.indices, selection.L
    P, K = whitened(blocks, 50), RBF.block(X, X)
    assert_allclose(P @ P[B].T, K[:, B], atol=1e-13)
    assert_allclose(P[B], L, atol=1e-11)
    assert_allclose(L @ L.T, K[np.ix_(B, B)], atol=1e-13)
    assert_array_equal(L, np.tril(L))
    D = blocks.concatenate(lambda block: block.kept(FactorRows).D)
    assert_allclose(D, 1 - np.square(P).sum(axis=1), atol=1e-13)
    assert_allclose(selection.report["trace"][-1], D.sum())


def test_it_is_the_function(X):
    selection, _ = choose(X, 40)
    factor = pivoted_cholesky(MemoryBlocks(X), RBF, 40)
    assert_array_equal(selection.indices, factor.indices)
    assert_array_equal(selection.L, factor.L)
    assert selection.report["rounds"] == factor.report["rounds"]


def test_prefixes_batches_and_blocks_do_not_matter(X):
    many, _ = choose(X, 120)
    for n_basis, tile, batch, kind in [
        (40, 100, 512, MemoryBlocks),
        (120, 6, 7, MemoryBlocks),
        (77, 50, 64, TravellingBlocks),
    ]:
        few, _ = choose(X, n_basis, tile=tile, batch=batch, blocks=kind)
        assert_array_equal(few.indices, many.indices[:n_basis])
        assert_allclose(few.L, many.L[:n_basis, :n_basis], atol=1e-9)


# ------------------------------------------------------------------ where it stops


@pytest.mark.parametrize("tol", [0.5, 0.1, 1e-3])
@pytest.mark.parametrize("weighted", [False, True])
def test_tol_is_a_part_of_the_trace(X, tol, weighted):
    weight = np.random.default_rng(1).integers(0, 4, size=300) if weighted else None
    s = np.ones(300) if weight is None else weight
    selection, blocks = choose(X, 300, tol=tol, weight=weight, tile=70)
    k = len(selection.indices)
    missed = s @ (1 - np.cumsum(np.square(whitened(blocks, k)), axis=1))
    assert missed[k - 1] <= tol * s.sum()
    assert missed[k - 2] > tol * s.sum()
    assert_allclose(selection.report["trace"], missed, rtol=1e-9)
    assert selection.L.shape == (k, k)


def test_the_numerical_rank_ends_it(X):
    for kernel, rank in [(Kernel("linear"), 3), (Kernel("poly", degree=2, coef0=1.0), 10)]:
        selection, blocks = choose(X, 100, kernel=kernel)
        assert len(selection.indices) == rank
        P = whitened(blocks, rank)
        assert_allclose(P @ P.T, kernel.block(X, X), rtol=1e-9, atol=1e-9)


def test_copies_are_not_chosen():
    rng = np.random.default_rng(0)
    for gamma in (0.01, 1.0, 100.0):
        points = rng.normal(size=(30, 4))
        X = points[rng.integers(30, size=400)]
        selection, _ = choose(X, 100, kernel=Kernel("rbf", gamma=gamma))
        assert len(selection.indices) == len(np.unique(X, axis=0))


@pytest.mark.parametrize("stop_at", [1, 20])
def test_a_step_can_stop_it(X, stop_at):
    told = []

    def on_step(k):
        told.append(k)
        return k >= stop_at

    selection = PivotedCholesky(batch=8).select(MemoryBlocks(X), RBF, 100, on_step=on_step)
    assert told == sorted(set(told))
    assert told[-1] == len(selection.indices) >= stop_at
    assert all(k < stop_at for k in told[:-1])
    assert selection.L.shape == (told[-1], told[-1])


# ------------------------------------------------------------------ weights


def test_zero_weight_is_no_row(X):
    weight = np.random.default_rng(2).integers(0, 3, size=300)
    kept = np.flatnonzero(weight)
    selection, _ = choose(X, 60, weight=weight, tile=41)
    expected, _ = choose(X[kept], 60)
    assert_array_equal(selection.indices, kept[expected.indices])


def test_weight_is_repetition(X):
    weight = np.random.default_rng(2).integers(0, 4, size=300)
    repeated = np.repeat(np.arange(300), weight)
    selection, _ = choose(X, 60, weight=weight, tol=1e-3)
    expected, _ = choose(X[repeated], 60, tol=1e-3)
    assert_array_equal(selection.indices, repeated[expected.indices])
    assert_allclose(selection.report["trace"], expected.report["trace"], rtol=1e-8)


# ------------------------------------------------------------------ theta


def test_theta_saves_rounds_and_costs_little():
    X = np.random.default_rng(0).normal(size=(3000, 5))
    kernel = Kernel("rbf", gamma=0.1)
    exact, _ = choose(X, 200, kernel=kernel, batch=100)
    loose, blocks = choose(X, 200, kernel=kernel, batch=100, theta=0.5)
    assert loose.report["rounds"] < exact.report["rounds"]
    assert loose.report["trace"][-1] < 1.2 * exact.report["trace"][-1]
    assert len(np.unique(loose.indices)) == 200
    P = whitened(blocks, 200)
    assert_allclose(P @ P[loose.indices].T, kernel.block(X, X[loose.indices]), atol=1e-12)


def test_theta_keeps_prefixes_and_ignores_blocks(X):
    many, _ = choose(X, 100, theta=0.3, batch=40)
    few, _ = choose(X, 30, theta=0.3, batch=40, tile=50)
    assert_array_equal(few.indices, many.indices[:30])


# ------------------------------------------------------------------ kinds of rows and parameters


def test_float32_sparse_and_precomputed(X):
    single = X.astype(np.float32)
    expected, _ = choose(single.astype(np.float64), 40)
    K = RBF.block(single.astype(np.float64), single.astype(np.float64))
    for rows, kernel in [(single, RBF), (K, Kernel("precomputed"))]:
        selection, _ = choose(rows, 40, kernel=kernel, tile=77)
        assert_array_equal(selection.indices, expected.indices)
    double, _ = choose(X, 40)
    selection, _ = choose(sparse.csr_array(X), 40, tile=77)
    assert_array_equal(selection.indices, double.indices)
    for kernel in (Kernel("linear"), Kernel("poly", degree=2, coef0=1.0)):
        selection, _ = choose(single, 40, kernel=kernel)
        exact, _ = choose(single.astype(np.float64), 40, kernel=kernel)
        assert_array_equal(selection.indices, exact.indices)


@pytest.mark.parametrize("kernel", [RBF, Kernel("linear"), Kernel("laplacian", gamma=0.3)])
@pytest.mark.parametrize("tile", [300, 40])
def test_array_api_rows(X, kernel, tile):
    xp = pytest.importorskip("array_api_strict")
    weight = np.random.default_rng(2).integers(0, 3, size=300).astype(float)
    expected, rows = choose(X, 40, kernel=kernel, weight=weight)
    selection, blocks = choose(
        xp.asarray(X), 40, kernel=kernel, weight=xp.asarray(weight), tile=tile
    )
    k = len(expected.indices)
    assert_array_equal(selection.indices, expected.indices)
    assert_allclose(whitened(blocks, k), whitened(rows, k), atol=1e-9)


def test_pivot_order_leaves_out_what_depends(X):
    K = RBF.block(X[:40], X[:40])
    B = np.array([3, 5, 3, 9, 30, 5])
    order = pivot_order(Kernel("precomputed"), K[B], B)
    assert_array_equal(np.sort(B[order]), [3, 5, 9, 30])


@pytest.mark.parametrize(
    "wrong", [{"tol": -1.0}, {"tol": 1.0}, {"batch": 0}, {"theta": 0.0}, {"theta": 1.5}]
)
def test_parameters_are_checked(X, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        choose(X, 5, **wrong)


def test_interface(X):
    selector = clone(PivotedCholesky(tol=0.1, batch=64))
    assert selector.get_params() == {"tol": 0.1, "batch": 64, "theta": 1.0}
    assert selector.nested and not selector.uses_targets
    _, blocks = choose(X, 25)
    kept = sum(a.nbytes for b in blocks._blocks for a in vars(b.kept(FactorRows)).values())
    assert kept == 8 * len(X) * PivotedCholesky().state_columns(25)


# ------------------------------------------------------------------ speed


def one_at_a_time(X, kernel, n_pivots):
    """The loop that users write: one column of the kernel and one GEMV a pivot."""
    D, P, pivots = np.ones(len(X)), np.empty((len(X), n_pivots), order="F"), []
    for k in range(n_pivots):
        t = int(np.argmax(np.rint(D * 2.0**36)))
        p = kernel.block(X, X[t : t + 1])[:, 0]
        p -= P[:, :k] @ P[t, :k]
        p /= np.sqrt(D[t])
        P[:, k] = p
        D = np.maximum(D - p * p, 0.0)
        pivots.append(t)
        D[pivots] = 0.0
    return np.array(pivots)


@pytest.mark.slow
def test_three_times_faster_than_one_at_a_time():
    X, kernel = np.random.default_rng(0).normal(size=(100_000, 10)), Kernel("rbf", gamma=0.1)
    ours = np.inf
    with threadpool_limits(1):  # seconds of the processor: others may be busy
        start = time.process_time()
        expected = one_at_a_time(X, kernel, 500)
        naive = time.process_time() - start
        for _ in range(2):
            start = time.process_time()
            selection, _ = choose(X, 500, kernel=kernel)
            ours = min(ours, time.process_time() - start)
    assert_array_equal(selection.indices, expected)
    assert naive > 3 * ours
