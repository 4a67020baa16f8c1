"""Models move between libraries; fast forms agree with the array API's; float32 stays accurate."""

import pickle
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.datasets import make_moons

import leansvm
from leansvm import LSSVC, KernelBasis
from leansvm import _accelerated as fast
from leansvm.rows import MemoryBlocks, tile_rows_for
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

X, y = make_moons(300, noise=0.2, random_state=0)
MODELS = [
    PlainSparseLSSVC(10.0, gamma=1.0, n_basis=30, random_state=0),
    PlainReducedSVC(10.0, gamma=1.0, n_basis=30, random_state=0),
    LSSVC(10.0, gamma=1.0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_there_and_back(array_source, model):
    values = model.fit(X, y).decision_function(X)
    there = leansvm.to_device(model, array_source.rows(X))
    assert type(there.support_vectors_) is type(array_source.rows(X))
    assert isinstance(model.support_vectors_, np.ndarray)  # a copy was moved
    assert_allclose(array_source.apply(there, "decision_function", X), values, atol=1e-9)
    array_source.fit(model, X, y)
    back = pickle.loads(pickle.dumps(leansvm.to_numpy(model)))
    assert isinstance(back.support_vectors_, np.ndarray)
    with config_context(array_api_dispatch=False):
        assert_allclose(back.decision_function(X), values, atol=1e-8)


def test_to_device_by_name(array_source):
    if array_source.library != "torch":
        pytest.skip("devices of other libraries are given by an array")
    model = leansvm.to_device(PlainSparseLSSVC(10.0, n_basis=9).fit(X, y), array_source.device)
    assert model.support_vectors_.device.type == array_source.device
    features = leansvm.to_device(KernelBasis(9, random_state=0).fit(X), array_source.device)
    assert array_source.apply(features, "transform", X).shape == (300, 9)


def test_batches_from_two_libraries(array_source):
    whole = PlainSparseLSSVC(10.0, gamma=1.0, basis=X[:30]).fit(X, y)
    model = PlainSparseLSSVC(10.0, gamma=1.0, basis=X[:30])
    model.partial_fit(array_source.rows(X[:150]), array_source.rows(y[:150]))
    model.partial_fit(X[150:], y[150:])
    assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("basis", ["random", "pivoted-cholesky"])
def test_float32_rows(array_source, basis):
    target = X[:, 0] ** 2 + np.sin(3 * X[:, 1])
    model = PlainSparseLSSVR(100.0, gamma=1.0, basis=basis, n_basis=40, random_state=0)
    values = model.fit(X, target).predict(X)
    rows = X.astype(np.float32)
    array_source.fit(model, rows, target)
    found = array_source.apply(model, "predict", rows)
    assert found.dtype == np.float32
    assert_allclose(found, values, atol=1e-3 * target.std())


def test_float32_sums_do_not_lose_with_the_number_of_rows(array_source):
    """Parts are added up in float64: the error is that of a part, not that of all rows."""
    rows = np.full((200_000, 2), 1 + 2.0**-12, dtype=np.float32)
    exact = np.full((2, 2), 200_000 * (1 + 2.0**-12) ** 2)
    found = array_source.host(fast.gram(array_source.rows(rows)))
    assert found.dtype == np.float64
    assert_allclose(found, exact, rtol=3e-6)


def test_fast_gram(array_source):
    shapes = (9000, 7), (300, 800), (20_000, 30), (5, 3)
    for shape, dtype in product(shapes, [np.float64, np.float32]):
        host = np.random.default_rng(0).normal(size=shape).astype(dtype)
        Z, expected = array_source.rows(host), host.T.astype(np.float64) @ host
        atol = (1e-11 if dtype == np.float64 else 1e-4) * shape[0]
        message = f"{shape}, {dtype}"
        assert_allclose(array_source.host(fast.gram(Z)), expected, atol=atol, err_msg=message)


def test_fast_forms(array_source):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(6, 6)), rng.normal(size=(6, 3))
    L = np.tril(A) + 6 * np.eye(6)
    rows, host = array_source.rows, array_source.host
    for transposed, T in ((False, L), (True, L.T)):
        found = host(fast.solve_lower(rows(L), rows(B), transposed=transposed))
        assert_allclose(T @ found, B, atol=1e-12)
    out = rows(np.zeros((6, 9)))
    fast.matmul_into(rows(A), rows(B), out[:, 2:5])
    assert_allclose(host(out)[:, 2:5], A @ B, atol=1e-12)
    assert not host(out)[:, 5:].any()
    assert_allclose(host(fast.apply_in_place("exp", rows(A.copy()))), np.exp(A))
    assert_allclose(host(fast.add_to_diagonal(rows(A.copy()), rows(np.ones(6)))), A + np.eye(6))
    vector = rows(np.ones(6))
    fast.put(vector, np.array([1, 4]), 0.0)
    assert_array_equal(host(vector), [1, 0, 1, 1, 0, 1])
    matrix = rows(np.zeros((4, 3)))
    fast.put(matrix, np.array([2, 0]), rows(B[:2]))
    assert_array_equal(host(matrix)[[2, 0]], B[:2])
    assert not host(matrix)[[1, 3]].any()


def test_tf32_is_noticed(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rows = torch.zeros((2, 2))
    assert fast.product_eps(rows) == np.finfo(np.float32).eps
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert fast.product_eps(rows) > 1e-4


def test_tiles_follow_the_memory_of_the_device(array_source, monkeypatch):
    from leansvm.rows import _budget

    rows = array_source.rows(X)
    monkeypatch.setattr(_budget, "free_memory", lambda X: 4 * 8 * 1000)
    assert tile_rows_for(8 * 10, rows) == 100
    assert len(MemoryBlocks(rows, columns=8)) == 3  # 300 rows of 10 numbers
