"""The order that rows are drawn from: their values decide it, not their places or units."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from leansvm.basis import RandomBasis
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks, WeightedSample, draw_for_all, order_of

rng = np.random.default_rng(0)
N = 2000
X = np.column_stack([rng.normal(size=(N, 3)), np.exp(3 * rng.normal(size=N)), rng.random(N) < 0.2])
X[:, 0] += 1e6
NUMBERS, CODES = rng.normal(size=(N, 1)), np.where(rng.random(N) < 0.1, 1.0, -1.0)[:, None]
WEIGHT = rng.integers(0, 4, N).astype(float)
UNITS = np.array([0.3, 7.1, 1e-5, 3e4, 11.0])


def order(X, Y=NUMBERS, weight=None, **options):
    return order_of(MemoryBlocks(X, Y, weight, **options), by_values=True).rows


@pytest.mark.parametrize("Y", [NUMBERS, CODES, None], ids=["numbers", "classes", "none"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_the_places_of_rows_do_not_matter(Y, weight):
    found = order(X, Y, weight)
    for seed in range(3):
        moved = np.random.default_rng(seed).permutation(N)
        parts = [None if part is None else part[moved] for part in (Y, weight)]
        assert_array_equal(moved[order(X[moved], *parts)], found)
    assert_array_equal(np.sort(found), np.arange(N) if weight is None else np.flatnonzero(weight))


def test_rows_that_differ_in_their_target_alone():
    few = np.repeat(np.arange(4.0), 50)[:, None]
    moved = np.random.default_rng(1).permutation(200)
    Y = NUMBERS[:200]
    assert_array_equal(moved[order(few[moved], Y[moved])], order(few, Y))


def test_rows_of_a_full_design():
    """Features that are distributed alike: only their numbers tell them apart."""
    design = np.array(np.meshgrid(*[[0.0, 1.0]] * 8)).reshape(8, -1).T
    Y, moved = np.zeros((256, 1)), np.random.default_rng(1).permutation(256)
    assert_array_equal(moved[order(design[moved], Y)], order(design, Y))


@pytest.mark.parametrize(
    "other",
    [X * UNITS, X * UNITS + 5 * UNITS, sparse.csr_array(X)],
    ids=["units", "origin", "CSR"],
)
def test_units_and_storage_do_not_matter(other):
    assert_array_equal(order(other), order(X))
    assert_array_equal(
        order_of(MemoryBlocks(other, 3.0 * NUMBERS + 1.0), by_values=True).rows, order(X)
    )


def test_the_order_of_features_does_not_matter():
    assert_array_equal(order(X[:, [3, 1, 4, 0, 2]]), order(X))


def test_float32_moves_few_rows():
    close = X - [1e6, 0, 0, 0, 0]
    assert np.mean(order(close.astype(np.float32)) == order(close)) > 0.99


def test_array_api_rows():
    xp = pytest.importorskip("array_api_strict")
    moved = [xp.asarray(part) for part in (X, NUMBERS, WEIGHT)]
    assert_array_equal(order(*moved, tile_rows=300), order(X, NUMBERS, WEIGHT))


def test_copies_are_as_good_as_weights():
    counts = WEIGHT.astype(int)
    copies = np.repeat(np.arange(N), counts)
    found = order(X[copies], NUMBERS[copies])
    assert_array_equal(np.unique(copies[found][::-1], return_index=True)[0], np.flatnonzero(counts))
    distinct = copies[found][np.append(True, np.diff(copies[found]) != 0)]
    assert_array_equal(distinct, order(X, NUMBERS, WEIGHT))


def test_class_weights_change_nothing():
    by_class = np.array([1.0, 7.0])
    costs = by_class[(CODES[:, 0] > 0).astype(int)]
    assert_array_equal(order(X, CODES, costs, class_weight=by_class), order(X, CODES))


def test_rows_that_do_not_differ_stay_in_their_places():
    assert_array_equal(order(np.ones((7, 2)), np.ones((7, 1))), np.arange(7))
    assert len(order(np.ones((3, 2)), np.ones((3, 1)), np.zeros(3))) == 0


def test_huge_numbers_do_not_warn():
    huge = np.array([[1e308, 1.0], [-1e308, 2.0], [0.0, 3.0]])
    assert_array_equal(order(huge, np.zeros((3, 1))), [0, 1, 2])


def test_drawn_rows_are_the_same_in_another_order():
    moved = np.random.default_rng(1).permutation(N)
    blocks, others = (
        MemoryBlocks(X, CODES, WEIGHT),
        MemoryBlocks(X[moved], CODES[moved], WEIGHT[moved], tile_rows=170),
    )
    blocks.by_values = others.by_values = True
    for draw in (
        lambda rows, seed: WeightedSample(rows, np.random.RandomState(seed)).first(600),
        lambda rows, seed: draw_for_all(rows, 600, np.random.RandomState(seed)).rows,
        lambda rows, seed: RandomBasis(random_state=seed).select(rows, Kernel("rbf"), 60).indices,
    ):
        first, second = draw(blocks, 0), draw(blocks, 1)
        found = moved[draw(others, 0)]
        assert_array_equal(np.sort(found), np.sort(first))
        in_place = np.array_equal(first, np.sort(first))  # rows that stand for all
        assert in_place or np.array_equal(found, first)
        assert not np.array_equal(np.sort(first), np.sort(second))


def test_by_place_unless_told_otherwise():
    blocks = MemoryBlocks(X, NUMBERS)
    assert_array_equal(order_of(blocks).rows, np.arange(N))
    assert not np.array_equal(order_of(blocks, by_values=True).rows, np.arange(N))
