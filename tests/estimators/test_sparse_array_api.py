"""SparseLSSVC, SparseLSSVR and KernelBasis on arrays of other libraries."""

import array_api_strict as xp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.datasets import make_moons

from leansvm import L2SVC, LSSVC, KernelBasis
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

X, y = make_moons(300, noise=0.2, random_state=0)
Y3 = (y + (X[:, 0] > 1)).astype(np.int64)
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))


@pytest.fixture(autouse=True)
def dispatch(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it
    with config_context(array_api_dispatch=True):
        yield


def host(array):
    assert type(array) is type(xp.asarray(0.0))
    return np.from_dlpack(array)


SELECTORS = ["random", "pivoted-cholesky", "random-pivoted-cholesky", "backfitting", np.arange(40)]


@pytest.mark.parametrize("basis", SELECTORS, ids=lambda b: b if isinstance(b, str) else "rows")
@pytest.mark.parametrize("C", [10.0, "gcv", "loo"])
def test_same_model_as_on_numpy(basis, C):
    model = PlainSparseLSSVC(C, gamma=1.0, basis=basis, n_basis=40, random_state=0)
    expected = model.fit(X, y, sample_weight=WEIGHT)
    values, support = expected.decision_function(X), expected.support_
    found = model.fit(xp.asarray(X), xp.asarray(y), sample_weight=xp.asarray(WEIGHT))
    assert_array_equal(found.support_, support)
    assert_allclose(host(found.decision_function(xp.asarray(X))), values, atol=1e-8)
    assert_array_equal(host(found.predict(xp.asarray(X))), expected.predict(X))
    # rows of one library, model from another
    assert_allclose(found.decision_function(X), values, atol=1e-8)


def test_points_auto_size_classes_and_scale():
    for options in ({"basis": X[:30] + 0.01}, {"n_basis": "auto"}, {"kernel": "laplacian"}):
        model = PlainSparseLSSVC(random_state=0, calibrate=True, **options)
        values = model.fit(X, Y3).decision_function(X)
        probabilities = model.predict_proba(X)
        model.fit(xp.asarray(X), xp.asarray(Y3))
        assert_allclose(host(model.decision_function(xp.asarray(X))), values, atol=1e-6)
        assert_allclose(host(model.predict_proba(xp.asarray(X))), probabilities, atol=1e-5)


def test_float32_rows_give_float32():
    model = PlainSparseLSSVR(100.0, n_basis=50, random_state=0)
    expected = model.fit(X.astype(np.float32), X[:, 0] ** 2).predict(X.astype(np.float32))
    rows = xp.asarray(X.astype(np.float32))
    predicted = model.fit(rows, xp.asarray(X[:, 0] ** 2)).predict(rows)
    assert predicted.dtype == xp.float32
    assert_allclose(host(predicted), expected, atol=1e-3)


def test_batches():
    whole = PlainSparseLSSVC(10.0, gamma=1.0, basis=X[:30], random_state=0).fit(X, y)
    model = PlainSparseLSSVC(10.0, gamma=1.0, basis=X[:30], random_state=0)
    for part in (slice(0, 100), slice(100, 300)):
        model.partial_fit(xp.asarray(X[part]), xp.asarray(y[part]), classes=[0, 1])
    rows = xp.asarray(X)
    assert_allclose(host(model.decision_function(rows)), whole.decision_function(X), atol=1e-8)


def test_features():
    features = KernelBasis(20, gamma=1.0, random_state=0)
    expected = features.fit_transform(X)
    assert_allclose(host(features.fit_transform(xp.asarray(X))), expected, atol=1e-10)


def test_the_dual_is_solved_on_the_host():
    expected = LSSVC(10.0, gamma=1.0).fit(X, y).decision_function(X)
    model = LSSVC(10.0, gamma=1.0).fit(xp.asarray(X), xp.asarray(y))
    assert_allclose(host(model.decision_function(xp.asarray(X))), expected, atol=1e-10)


def test_without_dispatch_arrays_become_numpy():
    with config_context(array_api_dispatch=False):
        model = PlainSparseLSSVC(10.0, random_state=0).fit(xp.asarray(X), y)
        assert isinstance(model.decision_function(xp.asarray(X)), np.ndarray)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("labels", [y, Y3], ids=["two", "three"])
def test_weights_of_a_linear_kernel_predict_where_the_rows_are(labels, dtype):
    rows, model = X.astype(dtype), L2SVC(kernel="linear").fit(X, labels)
    values = host(model.decision_function(xp.asarray(rows)))
    assert values.dtype == dtype
    assert_allclose(values, model.decision_function(rows), rtol=0, atol=1e-5)
    assert_array_equal(host(model.predict(xp.asarray(rows))), model.predict(rows))
