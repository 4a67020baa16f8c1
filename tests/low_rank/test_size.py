"""How many functions: held-out errors are those of models learned without the rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm import LowRankLSSVR
from leansvm.low_rank import get_function
from leansvm.low_rank import learn as module
from leansvm.low_rank import start as low_rank_start
from leansvm.low_rank.learn import choose_size, sizes_to_try
from leansvm.low_rank.start import draw_start_rows
from leansvm.low_rank.variable_projection import LowRankProblem
from leansvm.ridge.criteria import Criterion
from leansvm.rows import MemoryBlocks


def problem_of(X, Y, weight=None, count=None):
    blocks, function = MemoryBlocks(X, Y, weight), get_function("rbf")
    options = {"count": count, "keep_best": True, "max_iter": 30}
    return LowRankProblem(blocks, function, Criterion(10.0), **options)


def waves(n=240):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(4 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))


def test_sizes_double_from_the_classes_up_to_four_times_as_many():
    assert sizes_to_try(10_000, 1) == [5, 10, 20, 40]
    assert sizes_to_try(10_000, 26) == [26, 52, 104]
    assert sizes_to_try(10_000, 10) == [10, 20, 40]
    assert sizes_to_try(150, 1) == [5, 10]
    assert sizes_to_try(3, 1) == [3]
    assert sizes_to_try(20, 26) == [20]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("init", ["auto", "medoids"])
def test_errors_are_those_of_models_that_have_not_seen_the_rows(init):
    X, Y = waves()
    problem = problem_of(X, Y)
    sample = draw_start_rows(problem.blocks, 10, np.random.RandomState(0))
    _, report = choose_size(problem, sample, [5, 10], init)
    for size, error in zip(report["sizes"], report["size_errors"], strict=True):
        squares = np.empty(len(X))
        for k in range(3):
            out = np.arange(len(X)) % 3 == k
            model = LowRankLSSVR(10.0, int(size), function="rbf", init=init, max_iter=30)
            squares[out] = (Y[out, 0] - model.fit(X[~out], Y[~out, 0]).predict(X[out])) ** 2
        # the estimator puts rows in an order of their own: the same but for rounding
        assert_allclose(error, squares.mean(), rtol=0.05)


def test_a_size_is_taken_only_if_it_clearly_lowers_the_error(monkeypatch):
    X, Y = waves()
    problem = problem_of(X, Y)
    sample = draw_start_rows(problem.blocks, 20, np.random.RandomState(0))
    taken, report = choose_size(problem, sample, [5, 10, 20], "auto")
    assert taken > 5 and report["size_errors"][1] < 0.95 * report["size_errors"][0]
    monkeypatch.setattr(module, "_FLAT_GAIN", 0.999)
    assert choose_size(problem, sample, [5, 10, 20], "auto")[0] == 5


def test_many_rows_are_held_out_once(monkeypatch):
    X, Y = waves()
    problem = problem_of(X, Y)
    sample = draw_start_rows(problem.blocks, 5, np.random.RandomState(0))
    assert len(module._folds(problem, sample, 5)) == 3
    monkeypatch.setattr(module, "_ROWS_FOR_ONE_FOLD", 100)
    (only,) = module._folds(problem, sample, 5)
    assert len(only.held_out.X) == 80 and len(only.sample.X) == 160


@pytest.mark.parametrize("limit", [4000, 50], ids=["all", "drawn"])
def test_a_fold_counts_the_weight_outside(monkeypatch, limit):
    monkeypatch.setattr(low_rank_start, "_SAMPLE_ROWS", limit)
    monkeypatch.setattr(low_rank_start, "_MEDOID_ROWS", limit)
    X, Y = waves()
    weight = np.where(np.arange(len(X)) < 80, 3.0, 0.0)
    problem = problem_of(X, Y, weight, count=240.0)
    sample = draw_start_rows(problem.blocks, 5, np.random.RandomState(0))
    assert len(sample.Y) == min(80, limit)
    for fold in module._folds(problem, sample, 5):
        assert_allclose(fold.problem.count, 3.0 * len(fold.sample.Y))
