"""ReducedSVC and ReducedSVR give the same model whatever the array library."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons

from leansvm import KernelBasis, ReducedSVC, ReducedSVR
from leansvm.newton import matrix
from tests.loops import case
from tests.plain import PlainReducedSVC

X, y = make_moons(200, noise=0.25, random_state=0)
Y3 = (y + (X[:, 0] > 1)).astype(np.int64)
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))


def test_every_loss(array_source):
    losses = "squared", "squared_hinge", "huber", "logistic"
    for loss, regularizer in product(losses, ["rkhs", "coef"]):
        with case(loss=loss, regularizer=regularizer):
            check_loss(array_source, loss, regularizer)


def check_loss(array_source, loss, regularizer):
    options = {"gamma": 1.0, "n_basis": 30, "random_state": 0, "tol": 1e-9}
    model = PlainReducedSVC(10.0, loss=loss, regularizer=regularizer, **options)
    if loss in ("huber", "logistic"):
        model.set_params(delta=0.1, p=10.0)
    values = model.fit(X, y, sample_weight=WEIGHT).decision_function(X)
    support, objective = model.support_, model.objective_
    array_source.fit(model, X, y, WEIGHT)
    assert_array_equal(model.support_, support)
    assert_allclose(model.objective_, objective, rtol=1e-8)
    assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-5)
    assert_array_equal(array_source.apply(model, "predict", X), model.classes_[(values > 0) * 1])


def test_conjugate_gradients(array_source, monkeypatch):
    monkeypatch.setattr(matrix, "_CG_FROM", 1)
    model = ReducedSVC(10.0, "rbf", gamma=1.0, n_basis=25, random_state=0, tol=1e-9)
    values = model.fit(X, Y3).decision_function(X)
    assert "conjugate gradients" in model.fit_report_["history"][0]["hessian"]
    array_source.fit(model, X, Y3)
    assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-6)


@pytest.mark.parametrize("basis", ["pivoted-cholesky", "random-pivoted-cholesky", "backfitting"])
def test_other_bases_and_several_classes(array_source, basis):
    model = PlainReducedSVC(10.0, gamma=1.0, basis=basis, n_basis=25, random_state=0, tol=1e-9)
    values = model.fit(X, Y3).decision_function(X)
    array_source.fit(model, X, Y3)
    assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-6)


def test_probabilities_and_automatic_size(array_source):
    model = PlainReducedSVC(1.0, gamma=1.0, random_state=0, calibrate=True, tol=1e-9)
    probabilities = model.fit(X, y).predict_proba(X)
    array_source.fit(model, X, y)
    assert_allclose(array_source.apply(model, "predict_proba", X), probabilities, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression(array_source, loss):
    targets = np.column_stack([X[:, 0] ** 2, np.sin(X[:, 1])])
    model = ReducedSVR(10.0, loss=loss, n_basis=30, random_state=0, tol=1e-9)
    values = model.fit(X, targets, sample_weight=WEIGHT).predict(X)
    array_source.fit(model, X, targets, WEIGHT)
    assert_allclose(array_source.apply(model, "predict", X), values, atol=1e-6)


def test_features(array_source):
    features = KernelBasis(20, gamma=1.0, random_state=0)
    expected = features.fit_transform(X)
    found = array_source.host(features.fit_transform(array_source.rows(X)))
    assert_allclose(found, expected, atol=1e-9)


@pytest.mark.slow  # a cluster takes its time for every pass
def test_many_classes_on_files_and_clusters(source):
    """C is chosen by left-out rows, wherever the rows are."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(26), 10)
    centres = rng.normal(scale=3.0, size=(26, 3))
    rows = centres[labels] + rng.normal(size=(260, 3))
    order = rng.permutation(260)
    rows, labels = rows[order], labels[order]
    model = PlainReducedSVC([1.0, 10.0], gamma=0.1, n_basis=40, random_state=0, tol=1e-7)
    values = model.fit(rows, labels).decision_function(rows)
    support, C = model.support_, model.C_
    source.fit(model, rows, labels)
    assert_array_equal(model.support_, support)
    assert_allclose(model.C_, C)
    assert_allclose(source.apply(model, "decision_function", rows), values, atol=1e-5)
