"""Rows that stand for all rows: estimates of sums, rare classes, weights as repetitions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.rows import MemoryBlocks, draw_for_all

rng = np.random.default_rng(0)
N = 3000
X = rng.normal(size=(N, 2))
CODES = np.where(rng.random(N) < 0.01, 1.0, -1.0)[:, None]
NUMBERS = rng.normal(size=(N, 1))
WEIGHT = rng.uniform(0.0, 3.0, N) * (rng.random(N) < 0.9)


def drawn_from(Y=CODES, weight=None, count=400, seed=0, without=None, **options):
    blocks = MemoryBlocks(X, Y, weight, **options)
    return draw_for_all(blocks, count, np.random.RandomState(seed), without)


@pytest.mark.parametrize("Y", [CODES, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_sums_over_the_rows_are_estimated_without_bias(Y, weight):
    values = np.exp(X[:, 0]) * (1 + (Y[:, 0] > 0))
    truth = values.sum() if weight is None else weight @ values
    found = [drawn_from(Y, weight, seed=seed) for seed in range(60)]
    sums = np.array([drawn.weight @ values[drawn.rows] for drawn in found])
    assert abs(sums.mean() - truth) < 3 * sums.std() / np.sqrt(len(sums))
    assert sums.std() < 0.1 * truth


def test_a_rare_class_comes_with_nearly_all_of_its_rows():
    drawn, rare = drawn_from(), int((CODES > 0).sum())
    assert rare < 40
    assert (CODES[drawn.rows, 0] > 0).sum() > 0.6 * rare


def test_class_weights_do_not_steer_the_draw():
    by_class = np.array([1.0, 50.0])
    costs = by_class[(CODES[:, 0] > 0).astype(int)]
    plain, weighted = drawn_from(), drawn_from(weight=costs, class_weight=by_class)
    assert_array_equal(plain.rows, weighted.rows)
    assert_allclose(plain.weight * costs[plain.rows], weighted.weight)


def test_a_heavy_row_stands_for_all_of_its_weight():
    weight = np.ones(N)
    weight[7] = 1000.0
    drawn = drawn_from(NUMBERS, weight)
    assert_allclose(drawn.weight[drawn.rows == 7], 1000.0, rtol=0.05)


def test_blocks_change_nothing_and_some_rows_never_come():
    without = np.arange(0, N, 2)
    whole, tiles = (drawn_from(weight=WEIGHT, without=without, tile_rows=rows) for rows in (N, 171))
    assert_array_equal(whole.rows, tiles.rows)
    assert_allclose(whole.weight, tiles.weight)
    assert np.all(whole.rows % 2 == 1) and np.all(WEIGHT[whole.rows] > 0)


def test_few_rows_are_all_taken_with_their_weights():
    drawn = drawn_from(weight=WEIGHT, count=N)
    assert_array_equal(drawn.rows, np.flatnonzero(WEIGHT))
    assert_array_equal(drawn.weight, WEIGHT[WEIGHT > 0])
