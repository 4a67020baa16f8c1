"""Random basis: the law of the draws, weights, strata, prefixes, blocks."""

import pickle
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from leansvm.basis import RandomBasis
from leansvm.basis.cholesky.growing import GrowingBasis
from leansvm.basis.random_pivoted import draw_rows
from leansvm.kernels import Kernel
from leansvm.rows import (
    MemoryBlocks,
    WeightedSample,
    draw_by_weight,
    total_weight,
)

RBF = Kernel("rbf", gamma=0.5)


class TravellingBlocks(MemoryBlocks):
    """Blocks to which functions and arguments come as bytes."""

    def each(self, function, *args):
        function, args = pickle.loads(pickle.dumps((function, args)))
        return super().each(function, *args)


def choose(X, n_basis, *, y=None, weight=None, tile=None, blocks=MemoryBlocks, seed=0, **options):
    rows = blocks(X, y, weight, tile_rows=tile)
    return RandomBasis(random_state=seed, **options).select(rows, RBF, n_basis).indices


def total_variation(draws, law):
    counts = {sequence: 0 for sequence in law}
    for sequence in draws:
        counts[tuple(sequence)] += 1
    return sum(abs(counts[s] / len(draws) - p) for s, p in law.items()) / 2


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(200, 3))


# ------------------------------------------------------------------ the law


def test_draws_follow_the_masses():
    weight = np.array([0.0, 3.0, 1.0, 0.0, 0.0, 2.0, 0.0, 4.0, 0.0])
    for tile in (1, 2, 4, 9):
        blocks = MemoryBlocks(np.zeros((9, 1)), weight=weight, tile_rows=tile)
        GrowingBasis(blocks, RBF, 1)  # residuals are 1
        rows = draw_rows(blocks, np.random.RandomState(0), 40_000, 0.0)
        shares = np.bincount(rows, minlength=9) / len(rows)
        assert_allclose(shares, weight / weight.sum(), atol=0.01)
        assert_array_equal(shares > 0, weight > 0)


def test_draws_do_not_need_mass_everywhere():
    blocks = MemoryBlocks(np.zeros((5, 1)), weight=np.zeros(5), tile_rows=2)
    GrowingBasis(blocks, RBF, 1)
    assert len(draw_rows(blocks, np.random.RandomState(0), 10, 0.0)) == 0
    assert len(RandomBasis(random_state=0).select(blocks, RBF, 3).indices) == 0


def test_the_law_of_all_sequences():
    weight = np.array([1.0, 2.0, 4.0, 0.5])
    law = {}
    for order in permutations(range(4), 3):
        left, p = weight.sum(), 1.0
        for i in order:
            p *= weight[i] / left
            left -= weight[i]
        law[order] = p
    blocks = MemoryBlocks(np.zeros((4, 1)), weight=weight)
    rng = np.random.RandomState(0)
    draws = [WeightedSample(blocks, rng).first(3) for _ in range(5000)]
    assert total_variation(draws, law) < 0.04


def test_rows_without_weights_are_drawn_the_same_without_a_pass():
    class NoPasses(MemoryBlocks):
        def each(self, function, *args):
            raise AssertionError(f"{function} went over the rows")

    for n in (1, 2, 3, 7, 64, 511, 512, 513, 1500, 4999):
        for seed in range(5):
            plain = WeightedSample(NoPasses(np.zeros((n, 1))), np.random.RandomState(seed))
            for tile in (n, 3 * n // 4 + 1, max(n // 7, 1)):
                blocks = MemoryBlocks(np.zeros((n, 1)), weight=np.ones(n), tile_rows=tile)
                general = WeightedSample(blocks, np.random.RandomState(seed))
                assert_array_equal(plain.first(2 * n), general.first(2 * n))
            assert_array_equal(np.sort(plain.rows), np.arange(n))
    assert not len(WeightedSample(NoPasses(np.zeros((0, 1))), np.random.RandomState(0)).first(1))
    assert total_weight(NoPasses(np.zeros((7, 1)))) == 7.0


def test_weights_are_added_up_where_the_rows_are():
    weight = np.arange(20.0) / 4
    blocks = TravellingBlocks(np.zeros((20, 1)), weight=weight, tile_rows=6)
    assert total_weight(blocks) == weight.sum()


def test_draws_with_replacement_are_those_of_weights_of_one():
    for n in (1, 5, 40, 1000):
        rows = np.zeros((n, 1))
        plain, ones = MemoryBlocks(rows), MemoryBlocks(rows, weight=np.ones(n), tile_rows=7)
        drawn = draw_by_weight(plain, np.random.RandomState(1), 3000)
        assert_array_equal(drawn, draw_by_weight(ones, np.random.RandomState(1), 3000))
        assert n > 200 or set(drawn) == set(range(n))


def test_a_weight_is_as_good_as_copies():
    """The first distinct point has the same law under weights and under repetition."""
    weight = np.array([1, 3, 2, 0, 2])
    once, copies = np.arange(5.0)[:, None], np.repeat(np.arange(5.0), weight)[:, None]
    weighted, repeated = np.zeros(5), np.zeros(5)
    for seed in range(1000):
        weighted[int(once[choose(once, 1, weight=weight, seed=seed)[0], 0])] += 1
        repeated[int(copies[choose(copies, 1, seed=seed)[0], 0])] += 1
    assert weighted[3] == repeated[3] == 0
    assert_allclose(weighted / 1000, weight / 8, atol=0.05)
    assert_array_equal(weighted, repeated)  # the very same draws, even


# ------------------------------------------------------------------ what every selector must do


def test_distinct_rows_and_no_row_of_zero_weight(X):
    weight = np.random.default_rng(1).integers(0, 3, size=200)
    indices = choose(X, 200, weight=weight)
    assert_array_equal(np.sort(indices), np.flatnonzero(weight))
    assert_array_equal(np.sort(choose(X, 500)), np.arange(200))
    assert indices.dtype == np.intp


def test_weights_of_one_change_nothing(X):
    assert_array_equal(choose(X, 50, weight=np.ones(200)), choose(X, 50))


@pytest.mark.parametrize("stratify", [False, True])
def test_prefixes(stratify):
    X = np.random.default_rng(0).normal(size=(3000, 2))
    y = np.sign(X[:, :1])
    options = {"y": y, "stratify": stratify}
    many = choose(X, 2500, **options)
    for few in (1, 2, 511, 513, 1200):
        assert_array_equal(choose(X, few, **options), many[:few])


@pytest.mark.parametrize("stratify", [False, True])
def test_the_same_whatever_the_blocks(X, stratify):
    y, weight = np.sign(X[:, :1]), np.random.default_rng(1).random(200)
    options = {"y": y, "weight": weight, "stratify": stratify}
    one = choose(X, 60, tile=200, **options)
    for tile in (67, 4):
        assert_array_equal(choose(X, 60, tile=tile, **options), one)
        assert_array_equal(choose(X, 60, tile=tile, blocks=TravellingBlocks, **options), one)


def test_seeds(X):
    blocks = MemoryBlocks(X)
    assert not np.array_equal(choose(X, 20, seed=0), choose(X, 20, seed=1))
    ours = RandomBasis().select(blocks, RBF, 20, random_state=1).indices
    assert_array_equal(ours, choose(X, 20, seed=1))
    own = RandomBasis(random_state=0).select(blocks, RBF, 20, random_state=1).indices
    assert_array_equal(own, choose(X, 20, seed=0))


def test_any_kind_of_rows(X, tmp_path):
    mapped = np.memmap(tmp_path / "X", dtype=X.dtype, mode="w+", shape=X.shape)
    for rows in (X.astype(np.float32), sparse.csr_array(X), mapped):
        assert_array_equal(choose(rows, 20, tile=30), choose(X, 20))


def test_array_api_rows(X):
    xp = pytest.importorskip("array_api_strict")
    y, weight = np.sign(X[:, :1]), np.random.default_rng(1).random(200)
    for stratify in (False, True):
        indices = choose(
            xp.asarray(X),
            30,
            y=xp.asarray(y),
            weight=xp.asarray(weight),
            tile=30,
            stratify=stratify,
        )
        assert_array_equal(indices, choose(X, 30, y=y, weight=weight, stratify=stratify))


def test_parameters_are_checked(X):
    with pytest.raises(ValueError, match="stratify"):
        choose(X, 5, stratify="yes")
    assert clone(RandomBasis(stratify=True)).get_params()["stratify"] is True
    assert RandomBasis.nested
    assert RandomBasis().state_columns(100) == 0


def test_steps_are_told(X):
    told = []
    RandomBasis(random_state=0).select(MemoryBlocks(X), RBF, 7, on_step=told.append)
    assert told == [7]


# ------------------------------------------------------------------ strata


def classes_of(n, shares, seed=0):
    return np.random.default_rng(seed).choice(len(shares), size=n, p=shares)


@pytest.mark.parametrize("coding", ["column", "one-vs-rest"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_prefix_is_in_proportion(coding, weighted):
    label = classes_of(4000, [0.7, 0.25, 0.05])
    weight = np.where(label == 2, 5.0, 1.0) if weighted else np.ones(4000)
    y = label[:, None].astype(float) if coding == "column" else 2.0 * np.eye(3)[label] - 1
    chosen = choose(np.zeros((4000, 1)), 300, y=y, weight=weight, stratify=True, tile=700)
    assert len(np.unique(chosen)) == 300
    share = np.bincount(label, weight) / weight.sum()
    for k in range(1, 301):
        assert np.abs(np.bincount(label[chosen[:k]], minlength=3) - k * share).max() <= 1.0


def test_a_small_class_is_used_up():
    y = np.r_[np.ones(5), -np.ones(195)][:, None]
    weight = np.r_[np.full(5, 100.0), np.ones(195)]
    chosen = choose(np.zeros((200, 1)), 100, y=y, weight=weight, stratify=True)
    assert len(np.unique(chosen)) == 100
    assert (chosen < 5).sum() == 5


def test_rows_of_zero_weight_make_no_class():
    y = np.r_[np.zeros(10), np.ones(10), np.full(10, 2.0)][:, None]
    weight = np.r_[np.ones(20), np.zeros(10)]
    chosen = choose(np.zeros((30, 1)), 30, y=y, weight=weight, stratify=True)
    assert_array_equal(np.sort(chosen), np.arange(20))


def test_strata_need_classes(X):
    with pytest.raises(ValueError, match="stratify=True"):
        choose(X, 5, stratify=True)
    with pytest.raises(ValueError, match="2000 different values"):
        choose(np.zeros((2000, 1)), 5, y=np.arange(2000.0)[:, None], stratify=True)
