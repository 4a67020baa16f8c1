"""LowRankLSSVC and LowRankLSSVR give the same model whatever the array library."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_moons

from leansvm import LowRankLSSVC, LowRankLSSVR
from tests.loops import case

X, y = make_moons(150, noise=0.25, random_state=0)
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))


def check(source, model, *data):
    expected = model.fit(*data)
    method = "predict" if isinstance(model, LowRankLSSVR) else "decision_function"
    values, objective = getattr(expected, method)(X), expected.objective_
    source.fit(model, *data)
    assert_allclose(model.objective_, objective, rtol=1e-6)
    assert_allclose(source.apply(model, method, X), values, atol=1e-5)


@pytest.mark.parametrize("function", ["simplex", "robust-rbf", "rbf"])
def test_every_function(array_source, function):
    model = LowRankLSSVC(10.0, 3, function=function, max_iter=5, tol=0.0, random_state=0)
    with pytest.warns(match="still improve"):
        check(array_source, model, X, y, WEIGHT)


def test_every_objective(array_source):
    for objective, update in product(["abs", "target", "squared"], ["simultaneous", "sequential"]):
        options = {"objective": objective, "update": update}
        with case(**options):
            model = LowRankLSSVC(10.0, 3, max_iter=4, random_state=0, **options)
            check(array_source, model, X, y)


def test_regression_with_choice_of_C(array_source):
    # smooth functions: a simplex has a kink at its centre, where rounding decides the slope
    model = LowRankLSSVR("gcv", 3, function="rbf", max_iter=4, tol=0.0, random_state=0)
    with pytest.warns(match="still improve"):
        noise = np.random.default_rng(1).normal(size=(len(X), 2))
        check(array_source, model, X, np.column_stack([X[:, 0] ** 2, X[:, 1]]) + noise)


def test_number_of_functions(array_source):
    model = LowRankLSSVC(10.0, function="rbf", max_iter=4, tol=0.0, random_state=0)
    with pytest.warns(match="still improve"):
        check(array_source, model, X, y)
    assert list(model.fit_report_["sizes"]) == [5, 10]


def test_probabilities(array_source):
    model = LowRankLSSVC(1.0, 2, function="rbf", max_iter=3, tol=0.0, random_state=0)
    model.set_params(calibrate=True)
    with pytest.warns(match="still improve"):
        probabilities = model.fit(X, y).predict_proba(X)
        array_source.fit(model, X, y)
    assert_allclose(array_source.apply(model, "predict_proba", X), probabilities, atol=1e-5)
