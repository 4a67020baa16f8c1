"""Variable projection: gradients, descent, stops."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm.low_rank import get_function
from leansvm.low_rank.functions import LearnedFeatures
from leansvm.low_rank.start import feature_units
from leansvm.low_rank.variable_projection import (
    LowRankProblem,
    Start,
    VariableProjection,
    objective_and_gradient,
)
from leansvm.ridge.criteria import Criterion
from leansvm.rows import MemoryBlocks


def setting(name="robust-rbf", bias_penalty=0.0, outputs=2, n=60, C=5.0):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1)[:, :outputs]
    weight = rng.uniform(0.3, 2.0, size=n)
    column = 1 / np.sqrt(bias_penalty) if 0 < bias_penalty < np.inf else None
    basis = LearnedFeatures(
        get_function(name), X[:4] + 0.013, rng.uniform(0.1, 0.3, size=(4, 3)), column
    )
    blocks = MemoryBlocks(X, Y, weight, tile_rows=13)
    return LowRankProblem(blocks, basis.function, Criterion(C), bias_penalty), basis, X


def solve(problem, basis):
    return problem.solve(basis, problem.criterion.C, None)


@pytest.mark.parametrize("name", ["robust-rbf", "simplex", "rbf"])
@pytest.mark.parametrize("bias_penalty", [0.0, 0.7, np.inf])
def test_gradient_by_finite_differences(name, bias_penalty):
    problem, basis, _ = setting(name, bias_penalty)

    def value(centers, shapes):
        return objective_and_gradient(
            problem, solve(problem, replace(basis, centers=centers, shapes=shapes))
        )[0]

    _, *found = objective_and_gradient(problem, solve(problem, basis))
    h = 1e-6
    for which, gradient in enumerate(found):
        expected = np.empty_like(gradient)
        for j, i in np.ndindex(gradient.shape):
            step = np.zeros_like(gradient)
            step[j, i] = h
            up, down = (
                value(
                    basis.centers + s * step * (which == 0), basis.shapes + s * step * (which == 1)
                )
                for s in (1, -1)
            )
            expected[j, i] = (up - down) / (2 * h)
        assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_objective_is_that_of_the_normal_equations():
    problem, basis, _ = setting(bias_penalty=0.7)
    fitted = solve(problem, basis)
    value = objective_and_gradient(problem, fitted)[0]
    equations, theta = fitted.equations, fitted.theta
    explained = 2 * np.sum(theta * equations.c) - np.sum(theta * (equations.matrix() @ theta))
    expected = np.sum(theta**2) / 2 + fitted.C / 2 * (equations.yy.sum() - explained)
    assert_allclose(value, expected, rtol=1e-10)


def learn(problem, basis, *, anchor=0.0, **options):
    C = problem.criterion.C
    options = {"max_iter": 60, "tol": 1e-9, "patience": 1000, "anchor": anchor / C} | options
    start = Start(basis, C, 1.0, basis.shapes[0])
    units = feature_units(problem.blocks)
    return VariableProjection(replace(problem, **options), start, units).learn()


@pytest.mark.parametrize("name", ["robust-rbf", "simplex", "rbf"])
def test_objective_falls_at_every_iteration(name):
    problem, basis, _ = setting(name)
    path = learn(problem, basis)
    assert np.all(np.diff(path.objective) <= 1e-12 * path.objective[0])
    assert path.objective[-1] < 0.6 * path.objective[0]
    reached = objective_and_gradient(problem, solve(problem, path.basis))[0]
    assert_allclose(reached, path.objective[-1], rtol=1e-10)


def test_smooth_functions_reach_a_stationary_point():
    problem, basis, _ = setting("rbf", n=200)
    path = learn(problem, basis, max_iter=3000, tol=1e-15, anchor=1.0)
    assert path.converged
    fitted = solve(problem, path.basis)
    _, by_center, by_shape = objective_and_gradient(problem, fitted)
    units = feature_units(problem.blocks)
    by_center = by_center * units.spread + (path.basis.centers - basis.centers) / units.spread
    by_shape = by_shape * path.basis.shapes + np.log(path.basis.shapes / basis.shapes)
    assert max(np.abs(by_center).max(), np.abs(by_shape).max()) < 1e-3 * path.objective[0]


def test_an_anchor_holds_the_functions_to_their_start():
    problem, basis, _ = setting()
    away = [
        np.abs(learn(problem, basis, anchor=anchor).basis.centers - basis.centers).max()
        for anchor in (0.0, 10.0, 1e9)
    ]
    assert away[0] > away[1] > away[2] and away[2] < 1e-6


def test_stops_by_patience_and_by_callback():
    problem, basis, _ = setting()
    path = learn(problem, basis, keep_best=True, patience=3, max_iter=500, tol=0.0)
    assert path.n_iter - path.best_iter == 3 and "not fallen" in path.message
    assert path.best_iter == int(np.argmin(path.loo))
    calls = []
    path = learn(problem, basis, on_iteration=lambda k, value: calls.append(value) or k == 4)
    assert path.n_iter == 4 and len(calls) == 4 and "callback" in path.message


def test_feature_units_are_weighted_and_ignore_rows_of_no_weight():
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(50, 3)) * [1.0, 1e-3, 0.0] + [0, 1e3, 7.0], rng.integers(0, 3, 50)
    units = feature_units(MemoryBlocks(X, weight=weight.astype(float), tile_rows=11))
    repeated = np.repeat(X, weight, axis=0)
    assert_allclose(units.spread[:2], repeated.std(axis=0)[:2], rtol=1e-6)
    assert units.spread[2] == 1.0
    low, high = repeated.min(axis=0), repeated.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    assert_allclose(units.bounds, (low - width, high + width))
    X[0], weight[0] = 1e9, 0  # far away, and in no sum
    far = feature_units(MemoryBlocks(X, weight=weight.astype(float), tile_rows=11))
    repeated = np.repeat(X, weight, axis=0)
    assert_allclose(far.spread[:2], repeated.std(axis=0)[:2], rtol=1e-6)
