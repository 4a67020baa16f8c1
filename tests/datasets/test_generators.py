"""Synthetic data: sizes, labels, the papers' constructions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.datasets import (
    checkerboard_blocks,
    checkerboard_rows,
    make_checkerboard,
    make_customers,
    make_four_points,
    make_linear_toy,
    make_ripley,
)


def test_checkerboard_of_zhou2013():
    X, y = make_checkerboard()
    assert_array_equal(np.unique(X), np.arange(200))
    assert len(np.unique(X, axis=0)) == len(X) == 40_000
    assert_array_equal(y, np.where((X // 50).sum(axis=1) % 2 == 0, 1, -1))


def test_any_rows_are_those_of_the_whole_board():
    X, y = make_checkerboard(30, n_cells=3, extent=2.0)
    rows = np.random.default_rng(0).integers(900, size=50)
    X_some, y_some = checkerboard_rows(rows, 30, n_cells=3, extent=2.0)
    assert_array_equal(X_some, X[rows])
    assert_array_equal(y_some, y[rows])
    assert X.min() == 0.0 and X.max() == 2.0


def test_streamed_parts_are_a_partition_of_the_board():
    options = {"n_side": 40, "block_size": 333}
    streams = {p: checkerboard_blocks(p, **options) for p in ("all", "train", "test")}
    parts = {
        part: [np.concatenate(arrays) for arrays in zip(*stream, strict=True)]
        for part, stream in streams.items()
    }
    assert_array_equal(parts["all"][0], make_checkerboard(40, extent=1.0)[0])
    assert len(parts["train"][1]) == 1200
    both = [np.concatenate(pair) for pair in zip(parts["train"], parts["test"], strict=True)]
    order = np.lexsort(both[0].T)
    assert_array_equal(both[0][order], parts["all"][0])
    assert_array_equal(both[1][order], parts["all"][1])


def test_four_million_points_come_in_small_blocks():
    first = next(checkerboard_blocks())
    assert first[0].shape == (65_536, 2)
    step = first[0][1, 0]
    assert_allclose(step, 1 / 1999)


def test_streaming_refuses_an_unknown_part():
    with pytest.raises(ValueError, match='part=\'valid\' must be "all", "train" or "test"'):
        next(checkerboard_blocks("valid"))


def test_a_board_needs_a_point_in_every_cell():
    with pytest.raises(ValueError, match="n_side=3 points are too few for n_cells=4 cells"):
        make_checkerboard(3)


def test_four_points_are_separated_by_the_papers_line():
    X, y = make_four_points()
    assert_allclose(y * (X.sum(axis=1) - 1.0), [1.1, 1.0, 1.0, 1.1])


def test_best_error_of_the_linear_toy_is_that_of_the_paper():
    X, y = make_linear_toy(200_000, random_state=0)
    assert np.mean(np.sign(X.sum(axis=1)) != y) == pytest.approx(0.054, abs=0.002)


def test_best_error_of_ripleys_mixture():
    X, y = make_ripley(200_000, random_state=0)
    centres = np.array([[-0.7, 0.3], [0.3, 0.3], [-0.3, 0.7], [0.4, 0.7]])
    densities = np.exp(-((X[:, None] - centres) ** 2).sum(axis=2) / 0.06)
    best = np.where(densities[:, 2:].sum(axis=1) > densities[:, :2].sum(axis=1), 1, -1)
    assert np.mean(best != y) == pytest.approx(0.0895, abs=0.002)  # by quadrature


@pytest.mark.parametrize("make", [make_linear_toy, make_ripley])
def test_draws_depend_on_the_seed_alone(make):
    assert_array_equal(make(10, random_state=3)[0], make(10, random_state=3)[0])
    assert np.any(make(10, random_state=3)[0] != make(10, random_state=4)[0])


def test_customers_leave_as_their_log_odds_say():
    pd = pytest.importorskip("pandas")
    table = make_customers(20_000, random_state=0)
    known = table[table["age"].notna()]
    slope = np.where(known["plan"] == "basic", 0.36, 0.03)
    odds = 9 * np.exp(-known["months"] / 8) + 2 * known["calls"] - 8
    odds = odds + 3 * ((known["age"] - 45) / 18) ** 2 + slope * (known["fee"] - 35)
    p = 1 / (1 + np.exp(-odds))
    left = known["leaves"] == "yes"
    for group in pd.cut(p, [0, 0.1, 0.3, 0.7, 0.9, 1]).cat.categories:
        rows = (p > group.left) & (p <= group.right)
        assert left[rows].mean() == pytest.approx(p[rows].mean(), abs=0.04)
    missing = table.isna().mean()
    assert missing[["age", "gigabytes", "region"]].to_numpy() == pytest.approx(
        [0.1, 0.05, 0.05], abs=0.01
    )
    assert missing.drop(["age", "gigabytes", "region"]).max() == 0
    assert make_customers(50, random_state=3).equals(make_customers(50, random_state=3))
    assert not make_customers(50, random_state=3).equals(make_customers(50, random_state=4))
