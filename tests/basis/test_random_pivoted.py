"""Randomly pivoted Cholesky: the exact law of the pivots, weights, rank, prefixes, blocks."""

import pickle
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from leansvm.basis import random_pivoted
from leansvm.basis.cholesky import FactorRows
from leansvm.basis.random_pivoted import RandomPivotedCholesky
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

RBF = Kernel("rbf", gamma=0.5)
BOTH = pytest.mark.parametrize("accelerated", [True, False])


class TravellingBlocks(MemoryBlocks):
    """Blocks to which functions and arguments come as bytes."""

    def each(self, function, *args):
        function, args = pickle.loads(pickle.dumps((function, args)))
        return super().each(function, *args)


def choose(X, n, *, kernel=RBF, weight=None, tile=None, blocks=MemoryBlocks, seed=0, **options):
    rows = blocks(X, weight=weight, tile_rows=tile)
    selector = RandomPivotedCholesky(random_state=seed, **options)
    return selector.select(rows, kernel, n), rows


def whitened(blocks, k):
    return blocks.concatenate(lambda block: block.kept(FactorRows).P[:, :k])


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(300, 3))


# ------------------------------------------------------------------ the law


def law_of_sequences(K, weight, length):
    """Probability of every sequence of pivots: the product of s_t D_t / sum s D."""
    law = {}
    for order in permutations(np.flatnonzero(weight).tolist(), length):
        residual, p = K.copy(), 1.0
        for t in order:
            mass = weight * residual.diagonal()
            p *= mass[t] / mass.sum()
            residual = residual - np.outer(residual[t], residual[t]) / residual[t, t]
        law[order] = p
    return law


def distance_and_noise(draws, law):
    """Total variation of the draws to the law, and what it is on average for exact draws."""
    counts = dict.fromkeys(law, 0)
    for sequence in draws:
        counts[tuple(sequence.tolist())] += 1
    p = np.array(list(law.values()))
    seen = np.array(list(counts.values())) / len(draws)
    noise = np.sqrt(2 * p * (1 - p) / (np.pi * len(draws))).sum() / 2
    return np.abs(seen - p).sum() / 2, noise


def pairs():
    """Three pairs of points that are nearly copies: a pivot makes its partner improbable."""
    X = np.array([[0.0], [0.4], [2.0], [2.3], [5.0], [5.5]])
    return (
        Kernel("rbf", gamma=0.5).block(X, X)
        * np.array([1, 1.5, 1, 1, 2, 1]) ** 0.5
        * (np.array([[1, 1.5, 1, 1, 2, 1]]).T ** 0.5)
    )


@pytest.mark.parametrize(
    ("batch", "weight"),
    [(8, np.ones(6)), *((batch, np.array([1.0, 0, 2, 3, 1, 2])) for batch in ("simple", 1, 3, 8))],
    ids=["8", "simple-weights", "1-weights", "3-weights", "8-weights"],
)
def test_all_sequences_have_their_probability(batch, weight, monkeypatch):
    if batch != "simple":
        monkeypatch.setattr(random_pivoted, "_FEWEST_DRAWS", batch)
        monkeypatch.setattr(random_pivoted, "_MOST_DRAWS", batch)
    K = pairs()
    law = law_of_sequences(K, weight, 3)
    assert np.isclose(sum(law.values()), 1.0)
    blocks = MemoryBlocks(K, weight=weight)
    selector = RandomPivotedCholesky(accelerated=batch != "simple")
    rng, kernel = np.random.RandomState(0), Kernel("precomputed")
    draws = [selector.select(blocks, kernel, 3, random_state=rng).indices for _ in range(1000)]
    distance, noise = distance_and_noise(draws, law)
    assert distance < 1.4 * noise
    # the test would see draws from a diagonal that is never updated
    stale = law_of_sequences(np.diag(K.diagonal()), weight, 3)
    assert sum(abs(law[s] - stale[s]) for s in law) / 2 > 3 * noise


def test_the_trace_beats_that_of_random_rows():
    rng = np.random.default_rng(0)
    X = np.vstack([0.1 * rng.normal(size=(900, 2)), 3 * rng.normal(size=(100, 2))])
    selection, _ = choose(X, 40)
    K = RBF.block(X, X)
    for seed in range(3):
        B = np.random.default_rng(seed).choice(1000, 40, replace=False)
        missed = np.trace(K - K[:, B] @ np.linalg.pinv(K[np.ix_(B, B)]) @ K[B])
        assert selection.report["trace"][-1] < 0.5 * missed


# ------------------------------------------------------------------ what it returns


@BOTH
@pytest.mark.parametrize("tile", [300, 100, 6])
def test_the_state_is_the_whitened_basis(X, tile, accelerated):
    selection, blocks = choose(X, 50, tile=tile, accelerated=accelerated)
    B, L = selection.indices, selection.L
    P, K = whitened(blocks, 50), RBF.block(X, X)
    assert len(np.unique(B)) == 50
    assert_allclose(P @ P[B].T, K[:, B], atol=1e-13)
    assert_allclose(P[B], L, atol=1e-11)
    assert_allclose(L @ L.T, K[np.ix_(B, B)], atol=1e-13)
    D = blocks.concatenate(lambda block: block.kept(FactorRows).D)
    assert_allclose(D, 1 - np.square(P).sum(axis=1), atol=1e-13)
    assert_allclose(selection.report["trace"], 300 - np.cumsum(np.square(P).sum(axis=0)))


@BOTH
def test_the_same_whatever_the_blocks(X, accelerated):
    weight = np.random.default_rng(1).random(300)
    one, _ = choose(X, 120, weight=weight, accelerated=accelerated)
    for tile, kind in [(100, MemoryBlocks), (6, MemoryBlocks), (100, TravellingBlocks)]:
        other, _ = choose(X, 120, weight=weight, tile=tile, blocks=kind, accelerated=accelerated)
        assert_array_equal(other.indices, one.indices)


@BOTH
def test_prefixes(X, accelerated):
    many, _ = choose(X, 150, accelerated=accelerated)
    for n_basis in (1, 20, 33, 100):
        few, _ = choose(X, n_basis, accelerated=accelerated)
        assert_array_equal(few.indices, many.indices[:n_basis])
        assert_allclose(few.L, many.L[:n_basis, :n_basis], atol=1e-9)


def test_rounds_are_few():
    X = np.random.default_rng(0).normal(size=(4000, 5))
    fast, _ = choose(X, 200, kernel=Kernel("rbf", gamma=0.1))
    assert fast.report["rounds"] <= 10
    assert fast.report["draws"] < 10 * 200
    simple, _ = choose(X, 20, kernel=Kernel("rbf", gamma=0.1), accelerated=False)
    assert simple.report["rounds"] == simple.report["draws"] == 20


def test_seeds(X):
    first, _ = choose(X, 20, seed=0)
    again, _ = choose(X, 20, seed=0)
    other, _ = choose(X, 20, seed=1)
    assert_array_equal(first.indices, again.indices)
    assert not np.array_equal(first.indices, other.indices)
    ours = RandomPivotedCholesky().select(MemoryBlocks(X), RBF, 20, random_state=1)
    assert_array_equal(ours.indices, other.indices)


# ------------------------------------------------------------------ where it stops


@BOTH
def test_the_numerical_rank_ends_it(X, accelerated):
    for kernel, rank in [(Kernel("linear"), 3), (Kernel("poly", degree=2, coef0=1.0), 10)]:
        for seed in range(5):
            selection, blocks = choose(
                X, 100, kernel=kernel, accelerated=accelerated, seed=seed, tile=77
            )
            assert len(selection.indices) == rank
            P = whitened(blocks, rank)
            assert_allclose(P @ P.T, kernel.block(X, X), rtol=1e-8, atol=1e-8)


@BOTH
def test_it_ends_when_the_kernel_is_flat(X, accelerated):
    selection, blocks = choose(X, 300, kernel=Kernel("rbf", gamma=1e-4), accelerated=accelerated)
    k = len(selection.indices)
    assert 10 < k < 300
    assert np.isfinite(whitened(blocks, k)).all()
    nothing, _ = choose(np.zeros((30, 2)), 10, kernel=Kernel("linear"), accelerated=accelerated)
    assert len(nothing.indices) == 0
    assert nothing.L.shape == (0, 0)


@BOTH
def test_copies_are_not_chosen(accelerated):
    rng = np.random.default_rng(0)
    for gamma in (0.01, 1.0, 100.0):
        X = rng.normal(size=(30, 4))[rng.integers(30, size=400)]
        kernel = Kernel("rbf", gamma=gamma)
        selection, _ = choose(X, 100, kernel=kernel, accelerated=accelerated)
        assert len(selection.indices) == len(np.unique(X, axis=0))


@BOTH
@pytest.mark.parametrize("tol", [0.5, 0.1, 1e-3])
def test_tol_is_a_part_of_the_trace(X, tol, accelerated):
    weight = np.random.default_rng(1).integers(0, 4, size=300)
    selection, blocks = choose(X, 300, tol=tol, weight=weight, accelerated=accelerated)
    k = len(selection.indices)
    missed = weight @ (1 - np.cumsum(np.square(whitened(blocks, k)), axis=1))
    assert missed[k - 1] <= tol * weight.sum()
    assert missed[k - 2] > tol * weight.sum()
    assert_allclose(selection.report["trace"], missed, rtol=1e-9)
    without, _ = choose(X, k, weight=weight, accelerated=accelerated)
    assert_array_equal(selection.indices, without.indices)


def test_a_step_can_stop_it(X):
    told = []

    def on_step(k):
        told.append(k)
        return k >= 30

    selection = RandomPivotedCholesky(accelerated=False, random_state=0).select(
        MemoryBlocks(X), RBF, 100, on_step=on_step
    )
    assert told == list(range(1, 31))
    assert len(selection.indices) == 30


# ------------------------------------------------------------------ weights and kinds of rows


def test_zero_weight_is_no_row(X):
    weight = np.random.default_rng(2).integers(0, 3, size=300)
    kept = np.flatnonzero(weight)
    selection, _ = choose(X, 60, weight=weight, tile=41)
    expected, _ = choose(X[kept], 60, weight=weight[kept])
    assert_array_equal(selection.indices, kept[expected.indices])


def test_weight_is_repetition(X):
    weight = np.random.default_rng(2).integers(0, 4, size=300)
    repeated = np.repeat(np.arange(300), weight)
    selection, _ = choose(X, 60, weight=weight)
    expected, _ = choose(X[repeated], 60)
    assert_array_equal(selection.indices, repeated[expected.indices])  # the very same draws
    assert_allclose(selection.report["trace"], expected.report["trace"])


def test_float32_sparse_and_precomputed(X):
    expected, _ = choose(X, 40)
    for rows, kernel in [(sparse.csr_array(X), RBF), (RBF.block(X, X), Kernel("precomputed"))]:
        selection, _ = choose(rows, 40, kernel=kernel, tile=77)
        assert_array_equal(selection.indices, expected.indices)
    single, _ = choose(X.astype(np.float32), 40)
    assert_array_equal(single.indices, expected.indices)


@pytest.mark.parametrize("kernel", [RBF, Kernel("linear")])
def test_array_api_rows(X, kernel):
    xp = pytest.importorskip("array_api_strict")
    weight = np.random.default_rng(2).integers(0, 3, size=300).astype(float)
    expected, rows = choose(X, 40, kernel=kernel, weight=weight)
    selection, blocks = choose(xp.asarray(X), 40, kernel=kernel, weight=xp.asarray(weight), tile=50)
    k = len(expected.indices)
    assert_array_equal(selection.indices, expected.indices)
    assert_allclose(whitened(blocks, k), whitened(rows, k), atol=1e-9)


@pytest.mark.parametrize("wrong", [{"tol": -1.0}, {"tol": 1.0}, {"accelerated": "yes"}])
def test_parameters_are_checked(X, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        choose(X, 5, **wrong)


def test_interface():
    selector = clone(RandomPivotedCholesky(accelerated=False))
    assert selector.get_params() == {"accelerated": False, "tol": 0.0, "random_state": None}
    assert selector.nested and not selector.uses_targets
    assert selector.state_columns(25) == 26
