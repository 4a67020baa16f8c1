"""Values of the kernels against scikit-learn's and against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from leansvm.kernels import Kernel
from tests.versions import random_csr

MATERN = ["matern12", "matern32", "matern52"]
DISTANCES = ["rbf", *MATERN, "laplacian"]


def tolerance(name, dtype):
    """Error that the block may have: the root of Matérn-1/2 magnifies that of the distance."""
    if dtype == np.float32:
        return 1e-5 if name in ("rbf", "laplacian") else 5e-5
    return 1e-7 if name == "matern12" else 1e-9


# ------------------------------------------------------------------ values


def test_block_equals_scikit_learn(name, dtype, every_storage, points, make, theirs):
    X, Z = points(83, 7, dtype=dtype), points(29, 7, seed=1, dtype=dtype)
    X[np.abs(X) < 0.5] = 0.0
    kernel, params = make(7)
    expected = theirs(X.astype(np.float64), Z.astype(np.float64), params)
    tol = (1e-12 if dtype == np.float64 else 1e-5) * np.abs(expected).max()
    for kind, (left, right) in every_storage.items():
        K = kernel.block(left(X), right(Z))
        assert isinstance(K, np.ndarray), kind
        assert K.dtype == dtype, kind
        assert_allclose(K, expected, rtol=0, atol=tol, err_msg=kind)


@pytest.mark.parametrize("name", ["poly"])
def test_poly_degrees(every_storage, points, make, theirs):
    X, Z = np.abs(points(20, 4)), np.abs(points(9, 4, seed=1))
    for degree in (1, 2, 3, 2.5):
        kernel, params = make(4, degree=degree, coef0=1.0)
        expected = theirs(X, Z, params)
        for kind, (left, right) in every_storage.items():
            K = kernel.block(left(X), right(Z))
            assert_allclose(K, expected, rtol=1e-12, err_msg=f"degree {degree}, {kind}")


@pytest.mark.parametrize("d", [1, 10, 100])
def test_float32_gaussian_survives_a_feature_mean_of_300(d, every_storage, points, direct):
    # without centring the error here is 2e-2
    X = points(200, d, mean=300, dtype=np.float32)
    Z = np.concatenate([X[:10], points(30, d, mean=300, seed=1, dtype=np.float32)])
    for gamma in (1e-6, 1e-4, 0.1, 1.0):
        expected = direct("rbf", X, Z, gamma)
        for kind, (left, right) in every_storage.items():
            K = Kernel("rbf", gamma=gamma).block(left(X), right(Z))
            assert K.dtype == np.float32, kind
            assert_allclose(K, expected, rtol=0, atol=1e-5, err_msg=f"gamma = {gamma}, {kind}")


def test_feature_means_of_300(name, dtype, every_storage, points, make, theirs):
    d = 12
    X, Z = points(60, d, mean=300, dtype=dtype), points(31, d, mean=300, seed=1, dtype=dtype)
    kernel, params = make(d, **({"gamma": 1e-6} if name == "sigmoid" else {}))
    expected = theirs(X.astype(np.float64), Z.astype(np.float64), params)
    tol = (1e-9 if dtype == np.float64 else 1e-5) * np.abs(expected).max()
    for kind, (left, right) in every_storage.items():
        K = kernel.block(left(X), right(Z))
        assert_allclose(K, expected, rtol=0, atol=tol, err_msg=kind)


def test_sparse_float32_keeps_its_promise_with_many_features(every_storage, points, direct):
    # many summands: rounding of the float32 norms grows with their number
    X = points(60, 784, mean=300, dtype=np.float32)
    expected = direct("rbf", X, X[:20], 1e-6)
    for kind, (left, right) in every_storage.items():
        K = Kernel("rbf", gamma=1e-6).block(left(X), right(X[:20]))
        assert_allclose(K, expected, rtol=0, atol=5e-5, err_msg=kind)


def check_high_dimensional(kernel, expected_values):
    """Rows and points wide enough that the right factor stays sparse."""
    rng = np.random.default_rng(0)
    sparse_rows = [random_csr((n, 30_000), 0.001, rng) for n in (60, 200)]
    dense_rows = [A.toarray() for A in sparse_rows]
    expected = expected_values(*dense_rows)
    for X, Z in product(*zip(dense_rows, sparse_rows, strict=True)):
        kind = f"{type(X).__name__}, {type(Z).__name__}"
        assert_allclose(kernel.block(X, Z), expected, atol=1e-12, err_msg=kind)


@pytest.mark.parametrize("name", DISTANCES)
def test_high_dimensional_sparse_points(name, theirs):
    kernel = Kernel(name, gamma=0.05)
    check_high_dimensional(kernel, lambda X, Z: theirs(X, Z, {"gamma": 0.05}))


@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid", "cosine"])
def test_high_dimensional_sparse_products(name, make, theirs):
    kernel, params = make(10)
    check_high_dimensional(kernel, lambda X, Z: theirs(X, Z, params))


def test_csr_matrix_is_as_good_as_csr_array(points, make):
    X = points(40, 5)
    X[X < 0] = 0
    kernel, _ = make(5)
    K = kernel.block(sparse.csr_matrix(X), sparse.csr_matrix(X[:7]))
    assert type(K) is np.ndarray
    assert_allclose(K, kernel.block(X, X[:7]), atol=1e-7 if kernel.name == "matern12" else 1e-12)


def test_csr_in_any_form_means_the_same_matrix(name, make):
    # explicit zeros, unsorted indices and an entry stored in two parts
    data = np.array([2.0, 1.0, 0.0, 0.25, 0.75, 3.0])
    indices = np.array([2, 0, 1, 1, 1, 0])
    A = sparse.csr_array((data, indices, np.array([0, 3, 5, 6])), shape=(3, 4))
    kernel, _ = make(4)
    expected = kernel.block(A.toarray(), A.toarray())
    assert_allclose(kernel.block(A, A), expected, atol=1e-12)
    assert_allclose(kernel.diag(A), expected.diagonal(), atol=1e-12)


# ------------------------------------------------------------------ extremes


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_extreme_gamma(mean, name, dtype, every_storage, points, direct):
    X = points(40, 3, mean=mean, dtype=dtype)
    Z = np.concatenate([X[:10], points(5, 3, mean=mean, seed=1, dtype=dtype)])
    for gamma in (0.0, 1e-300, 1e6, 1e12, 1e300):
        expected = direct(name, X, Z, gamma)
        for kind, (left, right) in every_storage.items():
            K = Kernel(name, gamma=gamma).block(left(X), right(Z))
            near = {"rtol": 0, "atol": tolerance(name, dtype), "err_msg": f"{gamma}, {kind}"}
            assert_allclose(K, expected, **near)
            assert_allclose(K[:10, :10].diagonal(), 1.0, **near)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_points", [1, 3])
@pytest.mark.parametrize("name", DISTANCES)
def test_extreme_gamma_with_equal_points(name, n_points, dtype, every_storage, points, direct):
    # equal points have no spread, which must not hide that gamma overflows float32
    X = points(20, 3, mean=0.1, dtype=dtype)
    Z, tol = np.repeat(X[:1], n_points, axis=0), tolerance(name, dtype)
    for gamma in (0.0, 1e-300, 1.0, 1e12, 1e300):
        expected = direct(name, X, Z, gamma)
        for kind, (left, right) in every_storage.items():
            K = Kernel(name, gamma=gamma).block(left(X), right(Z))
            assert_allclose(K, expected, rtol=0, atol=tol, err_msg=f"gamma = {gamma}, {kind}")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e20, 1e30])
@pytest.mark.parametrize("which", ["rows", "points", "both"])
@pytest.mark.parametrize("name", DISTANCES)
def test_float32_rows_whose_squares_overflow(name, which, scale, every_storage, points, direct):
    X, Z = points(20, 3, dtype=np.float32), points(6, 3, dtype=np.float32)
    if which != "points":
        X[::2] *= np.float32(scale)
    if which != "rows":
        Z[::2] *= np.float32(scale)
    for gamma in (0.0, 1e-300, 1e-40, 1e-20, 1.0, 1e6, 1e12):
        expected = direct(name, X, Z, gamma)
        for kind, (left, right) in every_storage.items():
            K = Kernel(name, gamma=gamma).block(left(X), right(Z))
            tol = tolerance(name, np.float32)
            assert_allclose(K, expected, rtol=0, atol=tol, err_msg=f"gamma = {gamma}, {kind}")


@pytest.mark.parametrize("name", DISTANCES)
def test_float64_rows_whose_squares_overflow(name, every_storage, points, direct):
    X, Z = points(20, 3), points(6, 3)
    X[::2] *= 1e200
    Z[::3] *= 1e200
    for gamma in (0.0, 1e-300, 1.0):
        expected = direct(name, X, Z, gamma)
        for kind, (left, right) in every_storage.items():
            K = Kernel(name, gamma=gamma).block(left(X), right(Z))
            tol = tolerance(name, np.float64)
            assert_allclose(K, expected, rtol=0, atol=tol, err_msg=f"gamma = {gamma}, {kind}")


@pytest.mark.parametrize("name", DISTANCES)
def test_equal_rows_are_one_apart_from_rounding(name, dtype, every_storage, points):
    X = np.repeat(points(30, 6, mean=5, dtype=dtype), 2, axis=0)
    tol = 0 if name in ("laplacian", "matern12") else 300 * np.finfo(dtype).eps
    for kind, (left, right) in every_storage.items():
        K = Kernel(name, gamma=0.3).block(left(X), right(X))
        twins = K[np.arange(60), np.arange(60) ^ 1]
        assert_allclose(twins, 1.0, atol=tol, err_msg=kind)
        assert_allclose(K.diagonal(), 1.0, atol=tol, err_msg=kind)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_distances_of_any_finite_numbers(every_storage, direct, data):
    width = data.draw(st.sampled_from([32, 64]))
    limit = 1e30 if width == 32 else 1e140
    dtype = np.dtype(f"f{width // 8}")
    numbers = st.floats(-float(dtype.type(limit)), float(dtype.type(limit)), width=width)
    d = data.draw(st.integers(1, 3))
    X = data.draw(hnp.arrays(dtype, (data.draw(st.integers(1, 5)), d), elements=numbers))
    Z = data.draw(hnp.arrays(dtype, (data.draw(st.integers(1, 4)), d), elements=numbers))
    Z = np.concatenate([Z, X[:1]])
    gamma = data.draw(st.sampled_from([0.0, 1e-300, 1e-6, 1.0, 1e3, 1e9, 1e30]))
    if data.draw(st.booleans()):  # one gamma for each feature
        gamma = gamma * data.draw(hnp.arrays(float, d, elements=st.sampled_from([0.0, 0.1, 3.0])))
    name = data.draw(st.sampled_from(DISTANCES))
    left, right = every_storage[data.draw(st.sampled_from(list(every_storage)))]
    K = Kernel(name, gamma=gamma).block(left(X), right(Z))
    tol = 1e-4 if width == 32 else 2e-7 if name == "matern12" else 1e-8
    assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=tol)


def test_a_state_has_numbers_and_no_formulas_of_its_own():
    kernel = Kernel("rbf", gamma=0.5)
    assert "function" in vars(kernel)
    assert "function" not in kernel.__getstate__()
    twin = Kernel.__new__(Kernel)
    twin.__setstate__(kernel.__getstate__() | {"function": Kernel("linear").function})
    assert_array_equal(twin.block(np.eye(2), np.eye(2)), kernel.block(np.eye(2), np.eye(2)))
    with pytest.raises(ValueError, match="kernel must be one of"):
        twin.__setstate__(kernel.__getstate__() | {"name": "gauss"})
