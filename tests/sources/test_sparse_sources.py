"""SparseLSSVC and SparseLSSVR give the same model wherever the rows are."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_moons

from leansvm.basis.cholesky import greedy
from tests.loops import case
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

X, y = make_moons(300, noise=0.2, random_state=0)
Y3 = (y + (X[:, 0] > 1)).astype(np.int64)
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
BASES = ["random", "pivoted-cholesky", "random-pivoted-cholesky", "backfitting", "rows"]


def in_memory(model, X, y, weight=None):
    """Fit on NumPy arrays, in one block; return basis, decision values and predictions."""
    method = "predict" if isinstance(model, PlainSparseLSSVR) else "decision_function"
    with config_context(array_api_dispatch=False, working_memory=1024):  # scikit-learn's own
        expected = clone(model).fit(X, y, sample_weight=weight)
        return expected.support_, getattr(expected, method)(X), expected.predict(X)


def check_same(source, model, X, y, weight=None, atol=1e-8, expected=None):
    """Fit on NumPy arrays and on the source; decision values and basis agree."""
    method = "predict" if isinstance(model, PlainSparseLSSVR) else "decision_function"
    support, values, labels = expected or in_memory(model, X, y, weight)
    source.fit(model, X, y, weight)
    assert_array_equal(model.support_, support)
    assert_allclose(source.apply(model, method, X), values, atol=atol)
    if method == "decision_function":
        clear = np.abs(values) > 1e-7 if values.ndim == 1 else slice(None)
        assert_array_equal(source.apply(model, "predict", X)[clear], labels[clear])


def machine(basis, C):
    basis = np.arange(40) if basis == "rows" else basis
    return PlainSparseLSSVC(C, gamma=1.0, basis=basis, n_basis=40, random_state=0)


@cache
def machine_in_memory(basis, C):
    return in_memory(machine(basis, C), X, y, WEIGHT)


@pytest.mark.parametrize("basis", BASES)
def test_same_model(source, basis):
    # where a pass is slow: those of any C and "gcv" are among those of "loo"
    for C in ["loo"] if source.slow else [10.0, 1e3, "gcv", "loo"]:
        with case(C=C):
            expected = machine_in_memory(basis, C)
            check_same(source, machine(basis, C), X, y, WEIGHT, expected=expected)


def test_several_classes(source):
    check_same(
        source, PlainSparseLSSVC("gcv", gamma=1.0, n_basis=40, random_state=0), X, Y3, WEIGHT
    )


@pytest.mark.parametrize("basis", ["random", "random-pivoted-cholesky"])
def test_class_weights(source, basis):
    model = PlainSparseLSSVC(
        "loo", gamma=1.0, basis=basis, n_basis=40, class_weight={1: 30.0}, random_state=0
    )
    check_same(source, model, X, Y3, WEIGHT)


def test_several_targets(source):
    targets = np.column_stack([X[:, 0] ** 2, np.sin(X[:, 1])])
    check_same(source, PlainSparseLSSVR(100.0, n_basis=40, random_state=0), X, targets)


def test_scale_and_automatic_size(source):
    check_same(source, PlainSparseLSSVC(C=10.0, gamma="scale", n_basis=50, random_state=0), X, y)
    check_same(source, PlainSparseLSSVC(C="gcv", n_basis="auto", random_state=0), X, y, atol=1e-6)


def test_many_candidates_give_the_same_pivots(array_source, monkeypatch):
    """On a device, rounds have many candidates where rows crowd together."""
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 60)]), axis=-1).reshape(-1, 2)
    labels = (np.sin(9 * grid[:, 0]) > np.cos(7 * grid[:, 1])).astype(int)
    model = PlainSparseLSSVC(10.0, gamma=40.0, basis="pivoted-cholesky", n_basis=120)
    expected = model.fit(grid, labels)
    support, rounds = expected.support_, expected.fit_report_["selection"]["rounds"]
    monkeypatch.setattr(greedy, "free_memory", lambda place: 2**30)
    monkeypatch.setattr(greedy, "_FEWEST_WIDE", 1500)
    array_source.fit(model, grid, labels)
    assert_array_equal(model.support_, support)
    assert model.fit_report_["selection"]["rounds"] < rounds
