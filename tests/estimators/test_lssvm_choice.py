"""C chosen by LSSVC and LSSVR, against refitting without each row and the hat matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR, SparseLSSVR
from tests.estimators.exact_lssvm import (
    BINARY,
    TARGET,
    TARGETS,
    THREE,
    WEIGHT,
    M,
    X,
    Z,
    bordered,
    every_bias,
    one_vs_rest,
    penalty_of,
)


def left_out_residuals(K, Y, C, weight, A):
    """Refit once for every row, without it."""
    residuals = np.empty_like(Y)
    for i in range(len(K)):
        rest = np.delete(np.arange(len(K)), i)
        beta, b = bordered(K[np.ix_(rest, rest)], Y[rest], C, weight[rest], A)
        residuals[i] = Y[i] - K[i, rest] @ beta - b
    return residuals


@every_bias
@pytest.mark.parametrize("weight", [np.ones(M), WEIGHT], ids=["equal", "weighted"])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_leave_one_out_equals_refitting(bias, weight, C, monkeypatch):
    K, Y = rbf_kernel(X, gamma=0.4), one_vs_rest(THREE)
    expected = left_out_residuals(K, Y, C, weight, penalty_of(bias))
    # a grid of one value: C="loo" must take it
    monkeypatch.setattr("leansvm.estimators.machine.Machine._candidates", np.array([C]))
    model = LSSVC("loo", gamma=0.4, **bias).fit(X, THREE, weight)
    assert_allclose(model.loo_residuals_, expected, rtol=1e-7, atol=1e-8)
    assert_allclose(model.cv_curve_, np.sum(weight @ expected**2) / weight.sum(), rtol=1e-7)
    single = LSSVR("loo", gamma=0.4, **bias).fit(X, Y[:, 0], weight)
    assert_allclose(single.loo_residuals_, expected[:, 0], rtol=1e-7, atol=1e-8)
    assert single.loo_residuals_.shape == (M,)
    assert LSSVR("loo", gamma=0.4).fit(X, Y[:, :1]).loo_residuals_.shape == (M, 1)


@every_bias
def test_loo_curve_and_choice_against_refitting(bias):
    K, Y = rbf_kernel(X, gamma=0.4), TARGETS / np.abs(TARGETS).max(axis=0)
    model = LSSVR("loo", gamma=0.4, **bias).fit(X, Y, WEIGHT)
    grid = np.logspace(-6, 7, 50)
    assert model.cv_curve_.shape == (50,)
    for i in (0, 13, 25, 38, 49):
        residuals = left_out_residuals(K, Y, grid[i], WEIGHT, penalty_of(bias))
        assert_allclose(model.cv_curve_[i], np.sum(WEIGHT @ residuals**2) / WEIGHT.sum(), rtol=1e-6)
    assert grid[np.argmin(model.cv_curve_)] == model.C_
    again = LSSVR(model.C_, gamma=0.4, **bias).fit(X, Y, WEIGHT)
    assert_allclose(model.predict(Z), again.predict(Z), rtol=1e-8, atol=1e-9)


@every_bias
@pytest.mark.parametrize("weight", [np.ones(M), WEIGHT * 3], ids=["equal", "weighted"])
def test_gcv_curve_against_the_hat_matrix(bias, weight):
    K, Y, candidates = rbf_kernel(X, gamma=0.4), TARGETS, [1e-4, 0.03, 1.0, 50.0, 1e5]
    model = LSSVR(candidates, gamma=0.4, **bias).fit(X, Y, weight)
    expected = []
    for C in candidates:
        beta, b = bordered(K, np.eye(M), C, weight, penalty_of(bias))
        hat = K @ beta + b  # fitted values of the unit vectors
        n = weight.sum()
        rss = np.sum(weight @ (Y - hat @ Y) ** 2)
        expected.append(n * rss / (n - np.trace(hat)) ** 2)
    assert_allclose(model.cv_curve_, expected, rtol=1e-7)
    assert candidates[int(np.argmin(expected))] == model.C_
    again = LSSVR(model.C_, gamma=0.4, **bias).fit(X, Y, weight)
    assert_allclose(model.predict(Z), again.predict(Z), rtol=1e-8, atol=1e-8)


def test_strings_choose_from_the_documented_grid():
    for C in ("gcv", "loo"):
        model = LSSVC(C).fit(X, BINARY)
        assert model.C_ in np.logspace(-6, 7, 50)
        assert len(model.cv_curve_) == 50
    by_list = LSSVC(np.logspace(-6, 7, 50)).fit(X, BINARY)
    by_name = LSSVC("gcv").fit(X, BINARY)
    assert_allclose(by_list.cv_curve_, by_name.cv_curve_)
    assert by_list.C_ == by_name.C_


def test_copies_are_left_out_together():
    doubled, labels = np.repeat(X, 2, axis=0), np.repeat(BINARY, 2)
    model = LSSVC("loo", gamma=0.4).fit(doubled, labels)
    K = rbf_kernel(doubled, gamma=0.4)
    for i in (0, 1, 10):
        rest = np.delete(np.arange(2 * M), [2 * (i // 2), 2 * (i // 2) + 1])
        beta, b = bordered(K[np.ix_(rest, rest)], labels[rest], model.C_)
        expected = labels[i] - K[i, rest] @ beta - b
        assert_allclose(model.loo_residuals_[i], expected, rtol=1e-6, atol=1e-8)


def test_equal_x_with_different_y_are_left_out_one_at_a_time():
    doubled = np.repeat(X, 2, axis=0)
    labels = np.column_stack([BINARY, np.roll(BINARY, 1)]).ravel()
    model = LSSVC("loo", gamma=0.4).fit(doubled, labels)
    K = rbf_kernel(doubled, gamma=0.4)
    alone = np.flatnonzero(labels[::2] != labels[1::2])[0] * 2
    rest = np.delete(np.arange(2 * M), alone)
    beta, b = bordered(K[np.ix_(rest, rest)], labels[rest], model.C_)
    expected = labels[alone] - K[alone, rest] @ beta - b
    assert_allclose(model.loo_residuals_[alone], expected, rtol=1e-6, atol=1e-8)


def test_a_nearly_free_bias_is_nearly_the_free_one():
    for C in (10.0, [10.0]):
        free = LSSVR(C, gamma=0.4).fit(X, TARGET + 3)
        for penalty in (1e-6, 1e-10):
            nearly = LSSVR(C, gamma=0.4, bias_penalty=penalty).fit(X, TARGET + 3)
            assert_allclose(nearly.predict(Z), free.predict(Z), atol=1e-7 + 10 * penalty)


def test_refitting_forgets_what_the_last_fit_chose():
    model = LSSVC("loo", calibrate=True).fit(X, BINARY)
    model.set_params(C=1.0, calibrate=False).fit(X, BINARY)
    assert not hasattr(model, "cv_curve_")
    assert not hasattr(model, "loo_residuals_")
    assert model.C_ == 1.0


@pytest.mark.parametrize("swap", [1, -1])
@pytest.mark.parametrize(
    "model", [LSSVR(), SparseLSSVR(gamma=0.5, kernel="rbf", n_basis=20)], ids=["dual", "primal"]
)
def test_rounding_does_not_choose_among_values_that_are_as_good(model, swap):
    # on another processor the last digits of the errors are others
    values = [2.0, 2.0 * (1 + 1e-9)][::swap]
    assert values[0] == clone(model).set_params(C=values).fit(X, TARGET).C_
