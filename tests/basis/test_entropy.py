"""Quadratic Renyi entropy by exchanges, against trials one at a time with V recomputed."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from leansvm.basis.entropy import Exchange, RenyiEntropy
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

RBF = Kernel("rbf", gamma=0.5)
FOREVER = 10**9


class TravellingBlocks(MemoryBlocks):
    """Blocks to which functions and arguments come as bytes."""

    def each(self, function, *args):
        function, args = pickle.loads(pickle.dumps((function, args)))
        return super().each(function, *args)


def choose(X, n, *, kernel=RBF, weight=None, tile=None, blocks=MemoryBlocks, seed=0, **options):
    rows = blocks(X, weight=weight, tile_rows=tile)
    return RenyiEntropy(random_state=seed, **options).select(rows, kernel, n)


def entropy(K, B):
    return -np.log(K[np.ix_(B, B)].sum() / len(B) ** 2)


def one_trial_at_a_time(X, K, B, rows, leaving, patience):
    """Accept an exchange when the sum of K_BB falls; copies of members are no candidates."""
    B, rejected, swaps = B.copy(), 0, 0
    for c, a in zip(rows, leaving, strict=True):
        new = B.copy()
        new[a] = c
        copy = (X[B] == X[c]).all(axis=1).any()
        V, V_new = K[np.ix_(B, B)].sum(), K[np.ix_(new, new)].sum()
        if not copy and V_new < V * (1 - 1e-13):
            B, rejected, swaps = new, 0, swaps + 1
        else:
            rejected += 1
            if rejected == patience:
                break
    return B, rejected, swaps


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(300, 3))


# ------------------------------------------------------------------ the exchanges


@pytest.mark.parametrize("kernel", [RBF, Kernel("rbf", gamma=0.01), Kernel("laplacian", gamma=1)])
@pytest.mark.parametrize("patience", [FOREVER, 15])
@pytest.mark.parametrize("copies", [False, True])
def test_exchanges_are_those_of_one_at_a_time(X, kernel, patience, copies):
    if copies:
        X = X[np.random.default_rng(1).integers(40, size=300)]
    rng = np.random.default_rng(2)
    B, rows, leaving = (
        rng.permutation(300)[:20],
        rng.integers(300, size=700),
        rng.integers(20, size=700),
    )
    K = kernel.block(X, X)
    expected, rejected, swaps = one_trial_at_a_time(X, K, B, rows, leaving, patience)
    state = Exchange(kernel, X[B], B)
    assert state.try_all(rows, X[rows], leaving, 0, patience) == rejected
    assert_array_equal(state.rows, expected)
    assert state.swaps == swaps >= 5


def test_batches_of_trials_do_not_matter(X):
    rng = np.random.default_rng(2)
    B, rows, leaving = np.arange(30), rng.integers(300, size=600), rng.integers(30, size=600)
    whole, parts = (Exchange(RBF, X[B], B) for _ in range(2))
    end, rejected = whole.try_all(rows, X[rows], leaving, 0, FOREVER), 0
    for at in range(0, 600, 37):
        part = slice(at, at + 37)
        rejected = parts.try_all(rows[part], X[rows[part]], leaving[part], rejected, FOREVER)
    assert_array_equal(parts.rows, whole.rows)
    assert rejected == end


def test_sums_after_many_swaps_are_those_recomputed(X):
    rng = np.random.default_rng(3)
    state = Exchange(RBF, X[:40], np.arange(40))
    before = state.entropy
    for _ in range(10):
        rows = rng.integers(300, size=500)
        state.try_all(rows, X[rows], rng.integers(40, size=500), 0, FOREVER)
        assert state.entropy >= before
        before = state.entropy
    assert state.swaps > 60
    K = RBF.block(X, X)[np.ix_(state.rows, state.rows)]
    assert_allclose(state.K, K, atol=1e-13)
    assert_allclose(state.rho, K.sum(axis=1), rtol=1e-13)
    assert_allclose(state.V, K.sum(), rtol=1e-13)
    assert len(np.unique(state.rows)) == 40


# ------------------------------------------------------------------ the selector


def test_entropy_grows_and_never_falls(X):
    selection = choose(X, 20, n_trials=3000)
    H = selection.report["entropy"]
    assert np.all(np.diff(H) >= 0)
    K = RBF.block(X, X)
    assert_allclose(entropy(K, selection.indices), H[-1])
    rng = np.random.default_rng(0)
    assert all(entropy(K, rng.permutation(300)[:20]) < H[-1] for _ in range(50))


def test_patience_ends_it(X):
    few, many = choose(X, 20, n_trials=100_000), choose(X, 20, n_trials=1_000_000)
    assert_array_equal(few.indices, many.indices)
    assert few.report["trials"] == many.report["trials"] < 100_000


def test_no_trials_is_a_random_basis(X):
    selection = choose(X, 20, n_trials=0)
    assert selection.report["swaps"] == 0
    assert len(np.unique(selection.indices)) == 20


def test_the_order_is_that_of_pivoted_cholesky(X):
    B = choose(X, 30).indices
    L = np.linalg.cholesky(RBF.block(X[B], X[B]))
    for k in range(1, 30):  # every pivot is the worst approximated of the rest
        missed = 1 - np.square(L[k:, :k]).sum(axis=1)
        assert missed[0] >= missed.max() - 1e-10


@pytest.mark.parametrize("kind", [MemoryBlocks, TravellingBlocks])
def test_the_same_whatever_the_blocks(X, kind):
    weight = np.random.default_rng(1).random(300)
    one = choose(X, 25, weight=weight)
    for tile in (100, 6):
        other = choose(X, 25, weight=weight, tile=tile, blocks=kind)
        assert_array_equal(other.indices, one.indices)


def test_seeds(X):
    assert_array_equal(choose(X, 20).indices, choose(X, 20).indices)
    assert not np.array_equal(choose(X, 20).indices, choose(X, 20, seed=1).indices)


def test_copies_and_rows_of_zero_weight_are_not_chosen(X):
    copies = X[np.random.default_rng(1).integers(25, size=300)]
    distinct = len(np.unique(copies, axis=0))
    for gamma in (1e-3, 0.5, 50.0):
        B = choose(copies, 40, kernel=Kernel("rbf", gamma=gamma)).indices
        assert len(np.unique(copies[B], axis=0)) == len(B) <= distinct
    weight = np.random.default_rng(1).integers(0, 2, size=300)
    assert weight[choose(X, 60, weight=weight).indices].all()


def test_all_rows(X):
    assert_array_equal(np.sort(choose(X[:30], 30).indices), np.arange(30))
    assert len(choose(X[:1], 1).indices) == 1


def test_weight_is_repetition(X):
    """The draws are the very same, unless copies of a row start together."""
    weight = np.random.default_rng(2).integers(0, 4, size=300)
    repeated = np.repeat(np.arange(300), weight)
    start = choose(X[repeated], 10, n_trials=0).indices
    assert len(np.unique(repeated[start])) == 10
    selection = choose(X, 10, weight=weight, n_trials=400)
    expected = choose(X[repeated], 10, n_trials=400)
    assert_array_equal(selection.indices, repeated[expected.indices])
    assert selection.report["swaps"] == expected.report["swaps"] > 5


@pytest.mark.parametrize("bandwidth", ["model", "density"])
def test_rows_of_no_weight_might_not_be_there(X, bandwidth):
    used = np.arange(0, 300, 3)
    weight = np.isin(np.arange(300), used).astype(float)
    selection = choose(X, 10, weight=weight, bandwidth=bandwidth)
    expected = choose(X[used], 10, bandwidth=bandwidth)
    assert_array_equal(selection.indices, used[expected.indices])
    assert selection.report["trials"] == expected.report["trials"]


def test_bandwidth_of_a_density(X):
    model, density = choose(X, 20), choose(X, 20, bandwidth="density")
    assert not np.array_equal(np.sort(model.indices), np.sort(density.indices))
    bandwidth = X.std() * 300 ** (-1 / 7)
    K = Kernel("rbf", gamma=1 / (2 * bandwidth**2)).block(X, X)
    assert_allclose(entropy(K, density.indices), density.report["entropy"][-1])
    with pytest.raises(ValueError, match="bandwidth"):
        choose(RBF.block(X, X), 5, kernel=Kernel("precomputed"), bandwidth="density")


def test_float32_sparse_precomputed_and_array_api(X):
    expected = np.sort(choose(X, 20).indices)
    for rows, kernel in [(sparse.csr_array(X), RBF), (RBF.block(X, X), Kernel("precomputed"))]:
        assert_array_equal(np.sort(choose(rows, 20, kernel=kernel, tile=70).indices), expected)
    xp = pytest.importorskip("array_api_strict")
    assert_array_equal(np.sort(choose(xp.asarray(X), 20, tile=70).indices), expected)
    assert len(choose(X.astype(np.float32), 20).indices) == 20


def test_a_step_can_stop_it(X):
    told = []

    def on_step(k):
        told.append(k)
        return True

    RenyiEntropy(random_state=0).select(MemoryBlocks(X), RBF, 20, on_step=on_step)
    assert told == [20]


@pytest.mark.parametrize("wrong", [{"n_trials": -1}, {"bandwidth": "wide"}])
def test_parameters_are_checked(X, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        choose(X, 5, **wrong)


def test_interface():
    selector = clone(RenyiEntropy(n_trials=7))
    assert selector.get_params() == {"n_trials": 7, "bandwidth": "model", "random_state": None}
    assert not selector.nested and selector.state_columns(25) == 0
