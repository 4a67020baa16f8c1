"""LSSVC and LSSVR give the same model whatever the array library."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons

from leansvm import LSSVC, LSSVR
from tests.loops import case

X, y = make_moons(200, noise=0.25, random_state=0)
Y3 = (y + (X[:, 0] > 1)).astype(np.int64)
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
WEIGHT[::7] = 0.0


@pytest.mark.parametrize("solver", ["cholesky", "cg", "auto", "smo"])
def test_every_solver(array_source, solver):
    for bias in ({}, {"bias_penalty": 2.0}, {"fit_intercept": False}):
        with case(bias=bias):
            model = LSSVC(10.0, gamma=1.0, solver=solver, tol=1e-11, **bias)
            values = model.fit(X, Y3, sample_weight=WEIGHT).decision_function(X)
            array_source.fit(model, X, Y3, WEIGHT)
            assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-8)
            assert_array_equal(array_source.apply(model, "predict", X), values.argmax(axis=1))
            assert model.n_support_ == np.count_nonzero(WEIGHT)


def test_every_kernel(array_source):
    for kernel in ("linear", "poly", "laplacian"):
        model = LSSVC(1.0, kernel=kernel, degree=2, coef0=1.0)
        values = model.fit(X, y).decision_function(X)
        array_source.fit(model, X, y)
        found = array_source.apply(model, "decision_function", X)
        assert_allclose(found, values, atol=1e-8, err_msg=kernel)


def test_choice_of_C(array_source):
    for C in ("gcv", "loo", [0.1, 1.0, 10.0]):
        model = LSSVC(C, gamma=1.0)
        values = model.fit(X, y, sample_weight=WEIGHT).decision_function(X)
        chosen = model.C_
        array_source.fit(model, X, y, WEIGHT)
        assert chosen == model.C_
        found = array_source.apply(model, "decision_function", X)
        assert_allclose(found, values, atol=1e-7, err_msg=str(C))


def test_probabilities(array_source):
    model = LSSVC(1.0, gamma=1.0, calibrate=True)
    probabilities = model.fit(X, y).predict_proba(X)
    array_source.fit(model, X, y)
    assert_allclose(array_source.apply(model, "predict_proba", X), probabilities, atol=1e-7)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_regression(array_source, solver):
    targets = np.column_stack([X[:, 0] ** 2, np.sin(X[:, 1])])
    model = LSSVR(10.0, solver=solver, tol=1e-11)
    values = model.fit(X, targets).predict(X)
    array_source.fit(model, X, targets)
    assert_allclose(array_source.apply(model, "predict", X), values, atol=1e-8)


def test_a_matrix_that_is_not_positive_definite(array_source):
    model = LSSVC(1e3, kernel="sigmoid", gamma=1.0, coef0=-1.0)
    with pytest.raises(ValueError, match="not positive definite"):
        array_source.fit(model, X, y)


def test_memory_is_a_budget(array_source):
    with pytest.raises(MemoryError, match=r"cache_size allows 10\.5 kB"):
        array_source.fit(LSSVC(cache_size=0.01), X, y)
