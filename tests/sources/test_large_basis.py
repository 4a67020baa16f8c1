"""Large bases stay where the rows are: same models as on the host, and a way back."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_triangular

import leansvm
from leansvm import L2SVC, KernelBasis
from leansvm import _accelerated as fast
from leansvm.basis import on_device
from leansvm.basis.features import KernelFeatures
from leansvm.kernels import Kernel
from leansvm.rows import Block, MemoryBlocks, merge_equal_rows, row_hashes
from tests.loops import case
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 4))
y = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=240) > 0).astype(np.int64)
WEIGHT = rng.uniform(0.5, 2.0, len(X))
MODELS = [
    PlainSparseLSSVC(10.0, gamma=0.5, n_basis=60, random_state=0),
    PlainSparseLSSVC("gcv", gamma=0.5, n_basis=60, random_state=0),
    PlainSparseLSSVC("loo", gamma=0.5, n_basis=60, bias_penalty=1.0, random_state=0),
    PlainSparseLSSVC("kfold", "laplacian", gamma=0.5, n_basis=60, random_state=0),
    PlainReducedSVC(10.0, gamma=0.5, n_basis=60, tol=1e-9, random_state=0),
    PlainReducedSVC(1.0, gamma=0.5, n_basis=60, tol=1e-9, loss="logistic", random_state=0),
]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    """Treat all bases as large, and factor them in several panels."""
    monkeypatch.setattr(on_device, "LARGE", 8)
    monkeypatch.setattr(on_device, "_PANEL", 16)


def test_same_model_as_on_the_host(array_source):
    for model in MODELS:
        with case(model=model):
            values = model.fit(X, y, sample_weight=WEIGHT).decision_function(X)
            support = model.support_
            array_source.fit(model, X, y, sample_weight=WEIGHT)
            assert_array_equal(model.support_, support)
            found = array_source.apply(model, "decision_function", X)
            assert_allclose(found, values, atol=1e-8)


def test_every_kind_of_kernel(array_source):
    for kernel in ("matern12", "matern52", "laplacian", "linear", "cosine"):
        model = PlainSparseLSSVC(10.0, kernel, gamma=0.5, n_basis=60, random_state=0)
        values = model.fit(X, y).decision_function(X)
        array_source.fit(model, X, y)
        found = array_source.apply(model, "decision_function", X)
        assert_allclose(found, values, atol=1e-8, err_msg=kernel)


def test_values_of_a_callable_are_left_alone(array_source):
    given = []

    def kernel(A, B):
        values = (A @ B.T + 1.0) ** 2
        given.append((values, values + 0.0))
        return values

    array_source.fit(PlainSparseLSSVC(10.0, kernel, n_basis=60, random_state=0), X, y)
    assert given
    for values, copy in given:
        assert_array_equal(array_source.host(values), array_source.host(copy))


def test_selectors_that_choose_on_the_host(array_source):
    for basis in ("forward", "sparse-greedy", "entropy", "csi"):
        with case(basis=basis):
            model = PlainSparseLSSVC(10.0, gamma=0.5, basis=basis, n_basis=20, random_state=0)
            values = model.fit(X, y).decision_function(X)
            support = model.support_
            array_source.fit(model, X, y)
            assert_array_equal(np.sort(model.support_), np.sort(support))
            found = array_source.apply(model, "decision_function", X)
            assert_allclose(found, values, atol=1e-8)


def test_learned_scales(array_source):
    model = leansvm.SparseLSSVC(10.0, "rbf", gamma="learn", n_basis=20, random_state=0)
    values = model.fit(X, y).decision_function(X)
    scales = model.feature_scales_
    array_source.fit(model, X, y)
    assert_array_equal(model.feature_scales_, scales)  # from the same sample, on the host
    assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-8)


def test_values_without_a_row_as_on_the_host(array_source):
    model = PlainReducedSVC(1.0, gamma=0.5, n_basis=60, tol=1e-9, calibrate=True, random_state=0)
    expected = model.fit(X, y).predict_proba(X)  # made from these values
    array_source.fit(model, X, y)
    assert_allclose(array_source.apply(model, "predict_proba", X), expected, atol=1e-7)


def test_matrices_stay_and_come_back(array_source):
    """Batches, states, intervals and pickles of a model whose matrices are elsewhere."""
    target = X[:, 0] ** 2 + np.sin(3 * X[:, 1])
    model = PlainSparseLSSVR(10.0, gamma=0.5, basis=X[:40], keep_state=True)
    whole = PlainSparseLSSVR(10.0, gamma=0.5, basis=X[:40]).fit(X, target)
    half = slice(0, 120), slice(120, 240)
    array_source.fit(model, X[half[0]], target[half[0]])
    kind = type(array_source.rows(X))
    assert type(model._sums.gram) is kind and type(model._features.L) is kind
    there = model.state()
    assert isinstance(there.sums.gram, np.ndarray) and isinstance(there.features.L, np.ndarray)
    on_host = leansvm.to_numpy(model)
    back = pickle.loads(pickle.dumps(on_host))
    assert isinstance(back._sums.gram, np.ndarray) and isinstance(back._features.L, np.ndarray)
    back.partial_fit(X[half[1]], target[half[1]])
    assert_allclose(back.predict(X), whole.predict(X), atol=1e-8)
    model.partial_fit(array_source.rows(X[half[1]]), array_source.rows(target[half[1]]))
    assert_allclose(array_source.apply(model, "predict", X), whole.predict(X), atol=1e-8)


def test_points_that_depend_on_others_are_dropped(array_source):
    points = np.concatenate([X[:20], X[5:10], X[20:30]])  # five of them twice
    L, kept = on_device.factor_points(Kernel("rbf", gamma=0.5), *(array_source.rows(points),) * 2)
    L = array_source.host(L)
    assert len(kept) == 30 and len(np.unique(points[kept], axis=0)) == 30
    K = Kernel("rbf", gamma=0.5).block(points[kept], points[kept])
    assert_allclose(L @ L.T, K, atol=1e-12)
    assert not np.triu(L, 1).any()
    model = PlainSparseLSSVC(10.0, gamma=0.5, basis=points)
    values = model.fit(X, y).decision_function(X)
    array_source.fit(model, X, y)
    assert model.n_support_ == 30
    assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-8)


def test_whitening_by_panels(array_source):
    for size in (5, 16, 41):
        with case(size=size):
            check_whitening(array_source, size)


def check_whitening(array_source, size):
    rng = np.random.default_rng(size)
    L = np.tril(rng.normal(size=(size, size))) + 3 * size * np.eye(size)
    values = rng.normal(size=(7, size))
    expected = solve_triangular(L, values.T, lower=True).T
    there = array_source.rows
    whitener = on_device.placed(L, there(values))
    found = whitener.apply(there(values.copy()))
    assert_allclose(array_source.host(found), expected, atol=1e-13)
    out = there(np.zeros((7, expected.shape[1] + 2)))
    whitener.apply(there(values.copy()), out[:, : expected.shape[1]])
    assert_allclose(array_source.host(out)[:, : expected.shape[1]], expected, atol=1e-13)
    assert not array_source.host(out)[:, expected.shape[1] :].any()


def test_the_factor_is_made_once_for_all_blocks(array_source, monkeypatch):
    features = KernelFeatures(Kernel("rbf", gamma=0.5), array_source.rows(X[:30]), np.eye(30))
    first = on_device.whitener_of(features, array_source.rows(X[:, :1] @ np.ones((1, 30))))
    again = on_device.whitener_of(features, array_source.rows(np.zeros((2, 30))))
    assert again is first
    single = on_device.whitener_of(features, array_source.rows(np.zeros((2, 30), np.float32)))
    assert single is not first and single.L.dtype != first.L.dtype


def test_kernel_basis(array_source):
    features = KernelBasis(40, gamma=0.5, basis="random", random_state=0)
    expected = features.fit(X).transform(X)
    features.fit(array_source.rows(X))
    found = array_source.apply(features, "transform", X)
    assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9)  # up to a rotation
    assert isinstance(features.normalization_, np.ndarray)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_newton_for_the_squared_hinge(array_source, kernel):
    model = L2SVC(10.0, kernel, gamma=0.5, solver="newton")
    values = model.fit(X, y, sample_weight=WEIGHT).decision_function(X)
    support = model.support_
    array_source.fit(model, X, y, sample_weight=WEIGHT)
    assert_array_equal(model.support_, support)
    assert_allclose(array_source.apply(model, "decision_function", X), values, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_rows_are_found_where_they_are(array_source, dtype):
    rng = np.random.default_rng(1)
    rows = rng.integers(-2, 2, size=(200, 3)).astype(dtype)
    rows[rows == 0] *= rng.choice([-1.0, 1.0], size=np.count_nonzero(rows == 0))  # -0.0 is 0.0
    Y, weight = (rows[:, :1] > 0).astype(np.float64), rng.integers(0, 2, 200).astype(np.float64)
    expected = merge_equal_rows(MemoryBlocks(rows, Y, weight))
    found = merge_equal_rows(MemoryBlocks(*map(array_source.rows, (rows, Y, weight))))
    for name in ("first", "group", "weight"):
        assert_array_equal(getattr(found, name), getattr(expected, name))
    assert len(expected.first) < 100  # there are equal ones
    here, there = (
        Block(0, 200, put(rows), put(Y), None) for put in (np.asarray, array_source.rows)
    )
    assert_array_equal(row_hashes(there), row_hashes(here))


def test_wide_gram_matrices_by_panels(array_source, monkeypatch):
    monkeypatch.setattr(fast, "_WIDE", 4)
    monkeypatch.setattr(fast, "_PANEL", 5)
    Z = np.random.default_rng(2).normal(size=(30, 23))
    assert_allclose(array_source.host(fast.gram(array_source.rows(Z))), Z.T @ Z, atol=1e-12)


def test_matrices_that_have_no_factor(array_source):
    with pytest.raises(np.linalg.LinAlgError):
        fast.cholesky_lower(array_source.rows(np.diag([1.0, -1.0, 1.0])))


@pytest.mark.parametrize("version, fast_there", [("80", 1), ("90", 1), ("70", 0), ("86", 0)])
def test_which_devices_are_fast_in_float64(monkeypatch, version, fast_there):
    monkeypatch.setattr(fast, "library_of", lambda X: "cupy")
    rows = SimpleNamespace(device=SimpleNamespace(compute_capability=version))
    assert fast.doubles_are_fast(rows) == bool(fast_there)
    rows.device.compute_capability = "120"
    assert not fast.doubles_are_fast(rows)
