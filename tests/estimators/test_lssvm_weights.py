"""Weights and copies of LSSVC and LSSVR: a weight of k is k copies, of 0 none; order is nothing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR
from tests.estimators.exact_lssvm import (
    BIASES,
    TARGET,
    TARGETS,
    THREE,
    WEIGHT,
    M,
    X,
    Z,
    every_bias,
    one_vs_rest,
)
from tests.loops import case

COPIES = np.random.default_rng(1).integers(1, 4, size=M)
every_criterion = pytest.mark.parametrize("C", ["gcv", "loo", [0.1, 1.0, 30.0], 2.0], ids=str)


def assert_same_model(a, b, Z=Z, rtol=1e-8):
    assert_allclose(a.gamma_, b.gamma_, rtol=1e-12)
    assert_allclose(a.C_, b.C_, rtol=1e-12)
    values = "decision_function" if hasattr(a, "decision_function") else "predict"
    assert_allclose(getattr(a, values)(Z), getattr(b, values)(Z), rtol=rtol, atol=rtol)
    assert_allclose(a.intercept_, b.intercept_, rtol=rtol, atol=rtol)
    assert_allclose(a.objective_, b.objective_, rtol=rtol)
    if hasattr(a, "cv_curve_"):
        assert_allclose(a.cv_curve_, b.cv_curve_, rtol=1e-6)
    if hasattr(a, "predict_proba"):
        assert_allclose(a.predict_proba(Z), b.predict_proba(Z), rtol=1e-5, atol=1e-6)


@every_criterion
@every_bias
def test_weight_k_equals_k_copies_classifier(C, bias):
    for weights, calibrate in product([None, "balanced", {0: 2.0, 2: 0.5}], [False, True]):
        with case(class_weight=weights, calibrate=calibrate):
            model = LSSVC(C, class_weight=weights, calibrate=calibrate, **bias)
            weighted = clone(model).fit(X, THREE, sample_weight=COPIES)
            repeated = clone(model).fit(np.repeat(X, COPIES, axis=0), np.repeat(THREE, COPIES))
            assert_same_model(weighted, repeated)
            if hasattr(weighted, "loo_residuals_"):
                expected = np.repeat(weighted.loo_residuals_, COPIES, axis=0)
                assert_allclose(repeated.loo_residuals_, expected, atol=1e-8)


@every_criterion
@every_bias
def test_weight_k_equals_k_copies_regressor(C, bias):
    rows = np.repeat(X, COPIES, axis=0)
    for y in (TARGET, TARGETS):
        with case(shape=y.shape):
            weighted = LSSVR(C, **bias).fit(X, y, sample_weight=COPIES)
            repeated = LSSVR(C, **bias).fit(rows, np.repeat(y, COPIES, axis=0))
            assert_same_model(weighted, repeated)


@pytest.mark.parametrize("kind", ["dense", "csr", "precomputed", "float32"])
def test_weight_k_equals_k_copies_whatever_holds_the_rows(kind):
    again = np.repeat(np.arange(M), COPIES)
    K, test = rbf_kernel(X, gamma=0.4), rbf_kernel(Z, X, gamma=0.4)
    one, many, at, at_many, parameters = {
        "dense": (X, X[again], Z, Z, {}),
        "csr": (sparse.csr_array(X), sparse.csr_array(X[again]), sparse.csr_array(Z), Z, {}),
        "precomputed": (
            K,
            K[np.ix_(again, again)],
            test,
            test[:, again],
            {"kernel": "precomputed"},
        ),
        "float32": (np.float32(X), np.float32(X[again]), np.float32(Z), np.float32(Z), {}),
    }[kind]
    weighted = LSSVC("loo", calibrate=True, **parameters).fit(one, THREE, COPIES)
    repeated = LSSVC("loo", calibrate=True, **parameters).fit(many, THREE[again])
    tolerance = 1e-5 if kind == "float32" else 1e-8
    assert weighted.C_ == repeated.C_
    assert_allclose(
        weighted.decision_function(at), repeated.decision_function(at_many), atol=tolerance
    )
    assert_allclose(
        weighted.predict_proba(at), repeated.predict_proba(at_many), atol=10 * tolerance
    )


@every_criterion
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_zero_weight_equals_removed(C, class_weight):
    weight = WEIGHT.copy()
    weight[::3] = 0.0
    kept = weight > 0
    model = LSSVC(C, class_weight=class_weight, calibrate=True)
    with_zeros = clone(model).fit(X, THREE, weight)
    removed = clone(model).fit(X[kept], THREE[kept], weight[kept])
    assert_same_model(with_zeros, removed)
    assert_array_equal(with_zeros.support_, np.flatnonzero(kept))
    assert with_zeros.n_support_ == len(THREE[kept])
    assert_allclose(with_zeros.support_vectors_, X[kept])
    if C == "loo":  # a row that changes no model is left out of every one
        residuals = with_zeros.loo_residuals_
        expected = one_vs_rest(THREE) - with_zeros.decision_function(X)
        assert_allclose(residuals[~kept], expected[~kept], atol=1e-10)
        assert_allclose(residuals[kept], removed.loo_residuals_, atol=1e-8)


def test_zero_weight_equals_removed_for_a_precomputed_kernel():
    weight = WEIGHT.copy()
    weight[::3] = 0.0
    kept = weight > 0
    K, test = rbf_kernel(X, gamma=0.4), rbf_kernel(Z, X, gamma=0.4)
    for C in (3.0, "loo", "gcv"):
        model = LSSVR(C, kernel="precomputed").fit(K, TARGET, weight)
        removed = LSSVR(C, gamma=0.4).fit(X[kept], TARGET[kept], weight[kept])
        assert_allclose(model.predict(test), removed.predict(Z), atol=1e-8)


def test_class_weight_multiplies_sample_weight():
    by_class = {0: 2.0, 1: 0.5, 2: 3.0}
    weighted = LSSVC(class_weight=by_class, gamma=0.4).fit(X, THREE, WEIGHT)
    by_hand = LSSVC(gamma=0.4).fit(X, THREE, WEIGHT * np.array([2.0, 0.5, 3.0])[THREE])
    assert_same_model(weighted, by_hand)
    counts = np.bincount(THREE, weights=WEIGHT)
    balanced = LSSVC(class_weight="balanced", gamma=0.4).fit(X, THREE, WEIGHT)
    by_hand.fit(X, THREE, WEIGHT * (WEIGHT.sum() / (3 * counts))[THREE])
    assert_same_model(balanced, by_hand)


@every_criterion
def test_order_of_rows_does_not_matter(C):
    order = np.random.default_rng(0).permutation(M)
    for model, y in [(LSSVC(C, calibrate=True), THREE), (LSSVR(C), TARGET)]:
        there = clone(model).fit(X, y, WEIGHT)
        back = clone(model).fit(X[order], y[order], WEIGHT[order])
        assert_same_model(there, back)
        assert_allclose(there.dual_coef_[:, order], back.dual_coef_, rtol=1e-7, atol=1e-7)


coordinates = st.integers(-3, 3).map(float)
rows = st.lists(
    st.tuples(coordinates, coordinates, st.integers(0, 2), st.integers(0, 3)),
    min_size=3,
    max_size=12,
)


def unpack(table):
    table = np.array(table, dtype=float)
    return table[:, :2], table[:, 2].astype(int), table[:, 3].astype(int)


@settings(max_examples=40, deadline=None)
@given(
    rows,
    st.sampled_from([1e-3, 1.0, 1e3, "loo"]),
    st.sampled_from(list(BIASES)),
    st.sampled_from(["rbf", "linear", "laplacian"]),
)
def test_any_weights_equal_copies(table, C, bias, kernel):
    data, y, copies = unpack(table)
    again = np.repeat(np.arange(len(y)), copies)
    if len(np.unique(np.column_stack([data, y])[copies > 0], axis=0)) < 2:
        return
    parameters = {"C": C, "kernel": kernel, "gamma": 0.5, **BIASES[bias]}
    weighted = LSSVR(**parameters).fit(data, y, copies)
    repeated = LSSVR(**parameters).fit(data[again], y[again])
    grid = np.array([[0.0, 0.0], [1.5, -2.0], [3.0, 3.0]])
    if C == "loo":
        assert_allclose(weighted.cv_curve_, repeated.cv_curve_, rtol=1e-4, atol=1e-9)
        repeated = LSSVR(**{**parameters, "C": weighted.C_}).fit(data[again], y[again])
    assert_allclose(weighted.predict(grid), repeated.predict(grid), rtol=1e-6, atol=1e-6)
