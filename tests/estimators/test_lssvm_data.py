"""LSSVC and LSSVR on the same data held otherwise: CSR, kernel matrices, float32."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR
from tests.estimators.exact_lssvm import BINARY, TARGET, THREE, WEIGHT, M, X, Z, every_kernel
from tests.loops import case


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian", "sigmoid"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
def test_csr_equals_dense(kernel, kind):
    rng = np.random.default_rng(0)
    data = np.where(rng.random((M, 8)) < 0.4, rng.normal(size=(M, 8)), 0.0)
    C = {"sigmoid": 1e-2}.get(kernel, 5.0)
    for model in (LSSVC(C, kernel), LSSVC("loo", kernel, calibrate=True), LSSVR(C, kernel)):
        if kernel == "sigmoid" and model.C == "loo":
            continue  # the grid reaches a C for which the sigmoid is not definite
        y = TARGET if isinstance(model, LSSVR) else THREE
        dense = clone(model).fit(data, y, WEIGHT)
        csr = clone(model).fit(kind(data), y, WEIGHT)
        assert sparse.issparse(csr.support_vectors_)
        for a, b in [(csr, data), (csr, kind(data)), (dense, kind(data))]:
            assert_allclose(a.predict(b), dense.predict(data), atol=1e-8)
        if not isinstance(model, LSSVR):
            assert_allclose(
                csr.decision_function(kind(data)), dense.decision_function(data), atol=1e-8
            )
        assert_allclose(csr.gamma_, dense.gamma_, rtol=1e-12)


def test_csr_that_is_not_canonical_equals_dense():
    data = np.round(2 * np.random.default_rng(0).random((M, 4)))
    data[5], data[9] = data[6], data[6]
    labels = BINARY.copy()
    labels[5] = labels[9] = labels[6]
    csr = sparse.csr_array(data)
    # row 5 with every entry in two parts, row 9 with a stored zero at its end
    rows = [csr[[i]] for i in range(M)]
    parts = [
        (np.r_[r.data / 4, 3 * r.data / 4], np.r_[r.indices, r.indices])
        if i == 5
        else (np.r_[r.data, 0.0], np.r_[r.indices, 0])
        if i == 9
        else (r.data, r.indices)
        for i, r in enumerate(rows)
    ]
    pointer = np.cumsum([0] + [len(values) for values, _ in parts])
    values, columns = (np.concatenate(side) for side in zip(*parts, strict=True))
    odd = sparse.csr_array((values, columns, pointer), shape=data.shape)
    assert not odd.has_canonical_format
    assert_array_equal(odd.toarray(), data)
    dense = LSSVC("loo", gamma=0.5).fit(data, labels)
    held = LSSVC("loo", gamma=0.5).fit(odd, labels)
    assert held.C_ == dense.C_
    assert_allclose(held.loo_residuals_, dense.loo_residuals_, atol=1e-8)


@every_kernel
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_precomputed_equals_kernel(kernel, solver):
    parameters, function = kernel
    K = function(X, X)
    before = K.copy()
    K.flags.writeable = False
    by_matrix = LSSVC(5.0, "precomputed", solver=solver).fit(K, THREE, WEIGHT)
    by_rows = LSSVC(5.0, solver=solver, **parameters).fit(X, THREE, WEIGHT)
    assert_allclose(
        by_matrix.decision_function(function(Z, X)), by_rows.decision_function(Z), atol=1e-7
    )
    assert_array_equal(K, before)
    assert by_matrix.support_vectors_.size == 0
    assert by_matrix.n_features_in_ == M


@pytest.mark.parametrize("C", ["gcv", "loo", 2.0])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_precomputed_matrix_is_left_unchanged(C, order, dtype):
    K = np.array(rbf_kernel(X, gamma=0.4), dtype=dtype, order=order)
    before = K.copy()
    model = LSSVC(C, "precomputed", calibrate=True).fit(K, THREE)
    assert_array_equal(K, before)
    K.flags.writeable = False
    again = LSSVC(C, "precomputed", calibrate=True).fit(K, THREE)
    assert_array_equal(again.dual_coef_, model.dual_coef_)
    wide = LSSVC(C, "precomputed", calibrate=True).fit(K.astype(np.float64), THREE)
    values = model.decision_function(rbf_kernel(Z, X, gamma=0.4).astype(dtype))
    assert values.dtype == dtype
    assert model.C_ == wide.C_
    expected = wide.decision_function(rbf_kernel(Z, X, gamma=0.4).astype(dtype).astype(float))
    assert_allclose(values, expected, rtol=1e-3, atol=1e-3)


def test_choice_of_C_for_a_float32_kernel_matrix():
    # rounding makes the matrix indefinite by more than the smallest 1 / C of the grid
    rows = np.linspace(-1, 1, 200)[:, None]
    y = np.sin(3 * rows[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    K = rbf_kernel(rows, gamma=1.0).astype(np.float32)
    assert np.linalg.eigvalsh(K.astype(np.float64)).min() < -1e-7
    for C in ("gcv", "loo"):
        model = LSSVR(C, "precomputed").fit(K, y)
        exact = LSSVR(C, gamma=1.0).fit(rows, y)
        assert_allclose(model.predict(K), exact.predict(rows), atol=0.05)
        assert 1e-2 < model.C_ < 1e6


def test_rows_are_left_unchanged():
    data, labels, weight = X.copy(), THREE.copy(), WEIGHT.copy()
    for C, solver in [(1.0, "cholesky"), (1.0, "cg"), ("loo", "auto"), ("gcv", "auto")]:
        LSSVC(C, solver=solver, class_weight="balanced").fit(data, labels, weight)
        assert_array_equal(data, X)
        assert_array_equal(labels, THREE)
        assert_array_equal(weight, WEIGHT)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
@pytest.mark.parametrize("place", [(0.0, 1.0), (300.0, 1.0), (0.0, 100.0)], ids=str)
def test_float32_agrees_with_float64(kernel, place):
    mean, spread = place
    narrow = (spread * X + mean).astype(np.float32)
    wide = narrow.astype(np.float64)
    for C, machine in product([1e-3, 1.0, 1e3, 1e6], [LSSVC, LSSVR]):
        y, values = (THREE, "decision_function") if machine is LSSVC else (TARGET, "predict")
        with case(C=C, machine=machine):
            small, large = machine(C, kernel).fit(narrow, y), machine(C, kernel).fit(wide, y)
            result = getattr(small, values)(narrow)
            assert result.dtype == np.float32
            assert small.support_vectors_.dtype == np.float32
            assert getattr(large, values)(wide).dtype == np.float64
            assert_allclose(result, getattr(large, values)(wide), rtol=1e-3, atol=1e-3)


def test_float32_where_coefficients_are_large():
    # a smooth kernel fits noise with coefficients of 1e5: float32 kernel values would not do
    narrow = X.astype(np.float32)
    wide = narrow.astype(np.float64)
    for model in (LSSVR(1e6, gamma=0.01), LSSVR(1e5, "poly", gamma=0.3, coef0=1.0)):
        small, large = clone(model).fit(narrow, TARGET), clone(model).fit(wide, TARGET)
        assert np.abs(large.dual_coef_).max() > 1e4
        assert_allclose(small.predict(narrow), large.predict(wide), rtol=1e-3, atol=1e-3)


def test_float32_probabilities_and_residuals():
    narrow = X.astype(np.float32)
    small = LSSVC("loo", calibrate=True, gamma=0.4).fit(narrow, THREE)
    large = LSSVC("loo", calibrate=True, gamma=0.4).fit(narrow.astype(np.float64), THREE)
    assert small.predict_proba(narrow).dtype == np.float32
    assert small.C_ == large.C_
    assert_allclose(small.loo_residuals_, large.loo_residuals_, atol=1e-3)
    assert_allclose(small.predict_proba(narrow), large.predict_proba(narrow), atol=1e-3)
