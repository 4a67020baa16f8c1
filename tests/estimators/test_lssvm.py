"""LSSVC and LSSVR against kernel ridge and the bordered system; outputs, classes, reports."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR
from tests.estimators.exact_lssvm import (
    BIASES,
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
    every_kernel,
    one_vs_rest,
    penalty_of,
)
from tests.loops import case


def objective(model, K, Y, weight=None):
    """½ w'w + ½ A b² + C/2 Σ s (y - f)², term by term."""
    beta, b = model.dual_coef_.T, model.intercept_
    Y = np.asarray(Y, dtype=float).reshape(len(K), -1)
    weight = np.ones(len(K)) if weight is None else weight
    residual = Y - K @ beta - b
    value = 0.5 * np.sum(beta * (K @ beta))
    value += 0.5 * model.bias_penalty * np.sum(b**2)
    return value + 0.5 * model.C_ * np.sum(weight[:, None] * residual**2)


# ---------------------------------------------------------------------------- kernel ridge, eq. (5)


@every_kernel
def test_without_bias_equals_kernel_ridge(kernel):
    parameters, function = kernel
    for C, y in product([1e-3, 1.0, 1e3], [TARGET, TARGETS]):
        with case(C=C, shape=y.shape):
            model = LSSVR(C=C, fit_intercept=False, **parameters).fit(X, y)
            ridge = KernelRidge(alpha=1 / C, kernel="precomputed").fit(function(X, X), y)
            expected = ridge.predict(function(Z, X))
            assert_allclose(model.predict(Z), expected, rtol=1e-10, atol=1e-10 * np.abs(y).max())


@pytest.mark.parametrize("name", ["linear", "rbf", "laplacian", "poly"])
def test_kernel_parameters_mean_what_they_mean_in_kernel_ridge(name):
    same = {"gamma": 0.3, "coef0": 1.5, "degree": 3}
    model = LSSVR(C=20.0, kernel=name, fit_intercept=False, **same).fit(X, TARGET)
    ridge = KernelRidge(alpha=1 / 20, kernel=name, **same).fit(X, TARGET)
    assert_allclose(model.predict(Z), ridge.predict(Z), rtol=1e-10, atol=1e-10)


def check_bordered(model, K, Y, weight, A):
    beta, b = model.dual_coef_.T, model.intercept_
    scale = np.abs(Y).max()
    upper = (K + np.diag(1 / (model.C * weight))) @ beta + b
    assert_allclose(upper, Y, rtol=0, atol=1e-9 * scale)
    if np.isinf(A):
        assert_array_equal(b, 0.0)
    else:
        size = np.abs(beta).sum(axis=0)
        assert np.all(np.abs(beta.sum(axis=0) - A * b) <= 1e-9 * np.maximum(size, scale))


@every_bias
@every_kernel
def test_solution_satisfies_the_bordered_system(kernel, bias):
    parameters, function = kernel
    K, A = function(X, X), penalty_of(bias)
    for weight, C, solver in product([None, WEIGHT], [1e-3, 1.0, 1e3], ["cholesky", "auto"]):
        s = np.ones(M) if weight is None else weight
        options = {"C": C, "solver": solver, **parameters, **bias}
        with case(weighted=weight is not None, C=C, solver=solver):
            two = LSSVC(**options).fit(X, BINARY, weight)
            check_bordered(two, K, BINARY[:, None], s, A)
            three = LSSVC(**options).fit(X, THREE, weight)
            check_bordered(three, K, one_vs_rest(THREE), s, A)
            check_bordered(LSSVR(**options).fit(X, TARGETS, weight), K, TARGETS, s, A)


@every_bias
@pytest.mark.parametrize("C", [0.5, 50.0])
def test_objective_is_the_objective(bias, C):
    K = rbf_kernel(X, gamma=0.4)
    for candidates in (C, [C]):
        for weight in (None, WEIGHT):
            model = LSSVC(candidates, gamma=0.4, **bias).fit(X, THREE, weight)
            expected = objective(model, K, one_vs_rest(THREE), weight)
            assert_allclose(model.objective_, expected, rtol=1e-9)
            assert model.fit_report_["objective"] == model.objective_
            # and it is a minimum: any other point is higher
            for step in (1e-3, -1e-3):
                model.dual_coef_ = model.dual_coef_ * (1 + step)
                assert objective(model, K, one_vs_rest(THREE), weight) > expected


def test_objective_survives_a_large_offset_of_the_targets():
    for offset in (1e6, 1e8):
        model = LSSVR(C=10.0, gamma=0.4).fit(X, TARGET + offset)
        expected = objective(model, rbf_kernel(X, gamma=0.4), TARGET + offset)
        assert_allclose(model.objective_, expected, rtol=1e-6)


# ---------------------------------------------------------------------------- outputs and classes


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@every_bias
def test_several_targets_equal_separate_fits(bias, solver):
    together = LSSVR(5.0, gamma=0.4, solver=solver, **bias).fit(X, TARGETS, WEIGHT)
    assert together.predict(Z).shape == (15, 3)
    for j in range(3):
        alone = LSSVR(5.0, gamma=0.4, solver=solver, **bias).fit(X, TARGETS[:, j], WEIGHT)
        scale = np.abs(TARGETS[:, j]).max()
        assert_allclose(together.predict(Z)[:, j], alone.predict(Z), atol=1e-7 * scale)
        assert alone.predict(Z).shape == (15,)
    column = LSSVR(5.0, gamma=0.4, solver=solver, **bias).fit(X, TARGETS[:, :1])
    assert column.predict(Z).shape == (15, 1)


@every_bias
@pytest.mark.parametrize("calibrate", [False, True])
def test_several_classes_equal_one_against_the_rest(bias, calibrate):
    names = np.array(["sea", "air", "land"])[THREE]
    together = LSSVC(5.0, gamma=0.4, calibrate=calibrate, **bias).fit(X, names, WEIGHT)
    assert_array_equal(together.classes_, ["air", "land", "sea"])
    values = together.decision_function(Z)
    assert values.shape == (15, 3)
    for j, name in enumerate(together.classes_):
        alone = LSSVC(5.0, gamma=0.4, **bias).fit(X, names == name, WEIGHT)
        assert_allclose(values[:, j], alone.decision_function(Z), atol=1e-9)
    assert_array_equal(together.predict(Z), together.classes_[values.argmax(axis=1)])


def test_binary_shapes_and_signs():
    model = LSSVC(gamma=0.4).fit(X, np.where(BINARY > 0, "yes", "no"))
    values = model.decision_function(Z)
    assert values.shape == (15,)
    assert_array_equal(model.predict(Z), np.where(values > 0, "yes", "no"))
    assert model.dual_coef_.shape == (1, M)
    assert model.intercept_.shape == (1,)
    by_hand = rbf_kernel(Z, model.support_vectors_, gamma=0.4) @ model.dual_coef_[0]
    assert_allclose(values, by_hand + model.intercept_[0], atol=1e-10)
    regressor = LSSVR(gamma=0.4).fit(X, BINARY)
    assert_allclose(regressor.predict(Z), values, atol=1e-10)
    assert regressor.n_support_ == M


def test_shapes_of_fitted_attributes_with_classes():
    model = LSSVC(gamma=0.4).fit(X, THREE)
    assert model.dual_coef_.shape == (3, M)
    assert model.intercept_.shape == (3,)
    assert_array_equal(model.support_, np.arange(M))
    assert model.n_support_ == M
    assert model.n_iter_ == 1
    assert isinstance(model.C_, float)


def test_swapping_the_labels_mirrors_the_decision():
    there = LSSVC(gamma=0.4).fit(X, BINARY).decision_function(Z)
    assert_allclose(LSSVC(gamma=0.4).fit(X, -BINARY).decision_function(Z), -there, atol=1e-12)


def test_fits_are_deterministic():
    for options in ({}, {"solver": "cg"}, {"C": "loo"}, {"calibrate": True}):
        first, second = (LSSVC(**options).fit(X, THREE) for _ in range(2))
        assert_array_equal(first.dual_coef_, second.dual_coef_)


def test_gamma_is_resolved_as_in_svc():
    iris, labels = load_iris(return_X_y=True)
    assert_allclose(LSSVC().fit(iris, labels).gamma_, 1 / (4 * iris.var()))
    assert LSSVC(gamma="auto").fit(iris, labels).gamma_ == 0.25
    mean = np.average(iris, axis=0, weights=labels + 1).mean()
    variance = np.average((iris - mean) ** 2, axis=0, weights=labels + 1).mean()
    assert_allclose(LSSVC().fit(iris, labels, labels + 1).gamma_, 1 / (4 * variance))


def test_report_has_the_certificate():
    for options in ({}, {"solver": "cg"}, {"C": "loo"}, {"C": [1.0, 2.0]}):
        report = LSSVC(**options).fit(X, THREE).fit_report_
        assert {"solver", "objective", "residual", "gap", "iterations"} <= set(report)
        assert (report["rows"], report["basis"], report["outputs"]) == (M, M, 3)
        assert report["residual"] < 1e-7
        assert 0 <= report["gap"] <= 1e-6 * report["objective"]
        assert report["bytes"] > 8 * M * M
        assert report["seconds"]
        assert all(spent >= 0 for spent in report["seconds"].values())


# ---------------------------------------------------------------------------- properties

coordinates = st.integers(-3, 3).map(float)
rows = st.lists(
    st.tuples(coordinates, coordinates, st.integers(0, 2), st.integers(0, 3)),
    min_size=3,
    max_size=12,
)


def unpack(table):
    table = np.array(table, dtype=float)
    return table[:, :2], table[:, 2].astype(int), table[:, 3].astype(int)


@settings(max_examples=30, deadline=None)
@given(rows, st.sampled_from([1e-2, 1.0, 100.0]), st.sampled_from(list(BIASES)), st.randoms())
def test_any_fit_solves_the_bordered_system_in_any_order(table, C, bias, random):
    data, y, copies = unpack(table)
    weight = copies + 0.5
    order = list(range(len(y)))
    random.shuffle(order)
    K = rbf_kernel(data, gamma=0.5)
    beta, b = bordered(K, y, C, weight, penalty_of(BIASES[bias]))
    for solver in ("cholesky", "cg"):
        model = LSSVR(C, gamma=0.5, solver=solver, **BIASES[bias])
        model.fit(data[order], y[order], weight[order])
        assert_allclose(model.dual_coef_[0], beta[order], atol=1e-6 * (1 + np.abs(beta).max()))
        assert_allclose(model.intercept_[0], b, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(0.01, 100), st.floats(-50, 50))
def test_regression_follows_shifts_and_scales(shift, scale, move):
    base = LSSVR(3.0, gamma=0.4).fit(X, TARGET)
    other = LSSVR(3.0, gamma=0.4).fit(X + move, scale * TARGET + shift)
    expected = scale * base.predict(Z) + shift
    assert_allclose(other.predict(Z + move), expected, rtol=1e-7, atol=1e-7 * (1 + abs(shift)))
