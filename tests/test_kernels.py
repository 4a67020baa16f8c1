"""Kernels against scikit-learn's and against brute force, over every kind of input."""

from __future__ import annotations

import tracemalloc

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from leansvm import kernels, linalg
from leansvm.blocks import MemoryBlocks
from leansvm.kernels import Kernel, resolve_gamma

THEIRS = {
    "linear": lambda X, Z, p: pairwise.linear_kernel(X, Z),
    "rbf": lambda X, Z, p: pairwise.rbf_kernel(X, Z, gamma=p["gamma"]),
    "poly": lambda X, Z, p: pairwise.polynomial_kernel(X, Z, **p),
    "sigmoid": lambda X, Z, p: pairwise.sigmoid_kernel(X, Z, gamma=p["gamma"], coef0=p["coef0"]),
    "laplacian": lambda X, Z, p: pairwise.laplacian_kernel(X, Z, gamma=p["gamma"]),
}
NAMES = tuple(THEIRS)
FLOATS = (np.float32, np.float64)
STORAGE = {
    "dense-dense": (np.asarray, np.asarray),
    "dense-csr": (np.asarray, sparse.csr_array),
    "csr-dense": (sparse.csr_array, np.asarray),
    "csr-csr": (sparse.csr_array, sparse.csr_array),
}
every_kernel = pytest.mark.parametrize("name", NAMES)
every_float = pytest.mark.parametrize("dtype", FLOATS)
every_storage = pytest.mark.parametrize("storage", STORAGE)


def points(n, d, *, mean=0.0, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(mean, 1.0, size=(n, d)).astype(dtype)


def make(name, d, **params):
    params = {"gamma": 0.7 / d, "degree": 3, "coef0": 0.5} | params
    return Kernel(name, **params), params


def direct(name, X, Z, gamma):
    """exp(-gamma distance) in extended precision, from differences of coordinates."""
    X, Z = np.asarray(X, np.longdouble), np.asarray(Z, np.longdouble)
    difference = np.abs(X[:, None, :] - Z[None, :, :])
    distance = (difference**2 if name == "rbf" else difference).sum(axis=2)
    return np.exp(-np.longdouble(gamma) * distance).astype(np.float64)


# ------------------------------------------------------------------ values


@every_storage
@every_float
@every_kernel
def test_block_equals_scikit_learn(name, dtype, storage):
    X, Z = points(83, 7, dtype=dtype), points(29, 7, seed=1, dtype=dtype)
    X[np.abs(X) < 0.5] = 0.0
    kernel, params = make(name, 7)
    left, right = STORAGE[storage]
    K = kernel.block(left(X), right(Z))
    expected = THEIRS[name](X.astype(np.float64), Z.astype(np.float64), params)
    assert isinstance(K, np.ndarray)
    assert K.dtype == dtype
    tol = 1e-12 if dtype == np.float64 else 1e-5
    assert_allclose(K, expected, rtol=0, atol=tol * np.abs(expected).max())


@every_storage
@pytest.mark.parametrize("degree", [1, 2, 3, 2.5])
def test_poly_degrees(degree, storage):
    X, Z = np.abs(points(20, 4)), np.abs(points(9, 4, seed=1))
    kernel, params = make("poly", 4, degree=degree, coef0=1.0)
    left, right = STORAGE[storage]
    assert_allclose(kernel.block(left(X), right(Z)), THEIRS["poly"](X, Z, params), rtol=1e-12)


@every_storage
@pytest.mark.parametrize("gamma", [1e-6, 1e-4, 0.1, 1.0])
@pytest.mark.parametrize("d", [1, 10, 100])
def test_float32_gaussian_survives_a_feature_mean_of_300(d, gamma, storage):
    # without centring the error here is 2e-2
    X = points(200, d, mean=300, dtype=np.float32)
    Z = np.concatenate([X[:10], points(30, d, mean=300, seed=1, dtype=np.float32)])
    left, right = STORAGE[storage]
    K = Kernel("rbf", gamma=gamma).block(left(X), right(Z))
    assert K.dtype == np.float32
    assert_allclose(K, direct("rbf", X, Z, gamma), rtol=0, atol=1e-5)


@every_storage
@every_float
@every_kernel
def test_feature_means_of_300(name, dtype, storage):
    d = 12
    X, Z = points(60, d, mean=300, dtype=dtype), points(31, d, mean=300, seed=1, dtype=dtype)
    kernel, params = make(name, d, **({"gamma": 1e-6} if name == "sigmoid" else {}))
    left, right = STORAGE[storage]
    expected = THEIRS[name](X.astype(np.float64), Z.astype(np.float64), params)
    tol = 1e-9 if dtype == np.float64 else 1e-5
    assert_allclose(
        kernel.block(left(X), right(Z)), expected, rtol=0, atol=tol * np.abs(expected).max()
    )


@every_storage
def test_sparse_float32_keeps_its_promise_with_many_features(storage):
    # many summands: rounding of the float32 norms grows with their number
    X = points(60, 784, mean=300, dtype=np.float32)
    left, right = STORAGE[storage]
    K = Kernel("rbf", gamma=1e-6).block(left(X), right(X[:20]))
    assert_allclose(K, direct("rbf", X, X[:20], 1e-6), rtol=0, atol=5e-5)


@every_storage
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_high_dimensional_sparse_points(name, storage):
    # wide enough that the right factor stays sparse
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 30_000), density=0.001, format="csr", rng=rng)
    Z = sparse.random_array((200, 30_000), density=0.001, format="csr", rng=rng)
    left, right = (
        (lambda A: A) if kind is sparse.csr_array else (lambda A: A.toarray())
        for kind in STORAGE[storage]
    )
    K = Kernel(name, gamma=0.05).block(left(X), right(Z))
    assert_allclose(K, THEIRS[name](X.toarray(), Z.toarray(), {"gamma": 0.05}), atol=1e-12)


@every_storage
@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid"])
def test_high_dimensional_sparse_products(name, storage):
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 30_000), density=0.001, format="csr", rng=rng)
    Z = sparse.random_array((200, 30_000), density=0.001, format="csr", rng=rng)
    left, right = (
        (lambda A: A) if kind is sparse.csr_array else (lambda A: A.toarray())
        for kind in STORAGE[storage]
    )
    kernel, params = make(name, 10)
    K = kernel.block(left(X), right(Z))
    assert_allclose(K, THEIRS[name](X.toarray(), Z.toarray(), params), atol=1e-12)


def test_csr_matrix_is_as_good_as_csr_array():
    X = points(40, 5)
    X[X < 0] = 0
    for name in NAMES:
        kernel, _ = make(name, 5)
        K = kernel.block(sparse.csr_matrix(X), sparse.csr_matrix(X[:7]))
        assert type(K) is np.ndarray
        assert_allclose(K, kernel.block(X, X[:7]), atol=1e-12)


@every_kernel
def test_csr_in_any_form_means_the_same_matrix(name):
    # explicit zeros, unsorted indices and an entry stored in two parts
    data = np.array([2.0, 1.0, 0.0, 0.25, 0.75, 3.0])
    indices = np.array([2, 0, 1, 1, 1, 0])
    A = sparse.csr_array((data, indices, np.array([0, 3, 5, 6])), shape=(3, 4))
    kernel, _ = make(name, 4)
    expected = kernel.block(A.toarray(), A.toarray())
    assert_allclose(kernel.block(A, A), expected, atol=1e-12)
    assert_allclose(kernel.diag(A), expected.diagonal(), atol=1e-12)


# ------------------------------------------------------------------ extremes


@pytest.mark.filterwarnings("error")
@every_storage
@every_float
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1e6, 1e12, 1e300])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_extreme_gamma(mean, name, gamma, dtype, storage):
    X = points(40, 3, mean=mean, dtype=dtype)
    Z = np.concatenate([X[:10], points(5, 3, mean=mean, seed=1, dtype=dtype)])
    left, right = STORAGE[storage]
    K = Kernel(name, gamma=gamma).block(left(X), right(Z))
    tol = 1e-5 if dtype == np.float32 else 1e-9
    assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=tol)
    assert_allclose(K[:10, :10].diagonal(), 1.0, atol=tol)


@pytest.mark.filterwarnings("error")
@every_storage
@every_float
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1.0, 1e12, 1e300])
@pytest.mark.parametrize("n_points", [1, 3])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_extreme_gamma_with_equal_points(name, n_points, gamma, dtype, storage):
    # equal points have no spread, which must not hide that gamma overflows float32
    X = points(20, 3, mean=0.1, dtype=dtype)
    Z = np.repeat(X[:1], n_points, axis=0)
    left, right = STORAGE[storage]
    K = Kernel(name, gamma=gamma).block(left(X), right(Z))
    tol = 1e-5 if dtype == np.float32 else 1e-9
    assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=tol)


@pytest.mark.filterwarnings("error")
@every_storage
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1e-40, 1e-20, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("scale", [1e20, 1e30])
@pytest.mark.parametrize("which", ["rows", "points", "both"])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_float32_rows_whose_squares_overflow(name, which, scale, gamma, storage):
    X, Z = points(20, 3, dtype=np.float32), points(6, 3, dtype=np.float32)
    if which != "points":
        X[::2] *= np.float32(scale)
    if which != "rows":
        Z[::2] *= np.float32(scale)
    left, right = STORAGE[storage]
    K = Kernel(name, gamma=gamma).block(left(X), right(Z))
    assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=1e-5)


@every_storage
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1.0])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_float64_rows_whose_squares_overflow(name, gamma, storage):
    X, Z = points(20, 3), points(6, 3)
    X[::2] *= 1e200
    Z[::3] *= 1e200
    left, right = STORAGE[storage]
    K = Kernel(name, gamma=gamma).block(left(X), right(Z))
    assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=1e-9)


@every_storage
@every_float
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_equal_rows_are_one_apart_from_rounding(name, dtype, storage):
    X = np.repeat(points(30, 6, mean=5, dtype=dtype), 2, axis=0)
    left, right = STORAGE[storage]
    K = Kernel(name, gamma=0.3).block(left(X), right(X))
    eps = np.finfo(dtype).eps
    twins = K[np.arange(60), np.arange(60) ^ 1]
    assert_allclose(twins, 1.0, atol=200 * eps if name == "rbf" else 0)
    assert_allclose(K.diagonal(), 1.0, atol=200 * eps if name == "rbf" else 0)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_gaussian_of_any_finite_numbers(data):
    width = data.draw(st.sampled_from([32, 64]))
    limit = 1e30 if width == 32 else 1e140
    dtype = np.dtype(f"f{width // 8}")
    numbers = st.floats(-float(dtype.type(limit)), float(dtype.type(limit)), width=width)
    d = data.draw(st.integers(1, 3))
    X = data.draw(hnp.arrays(dtype, (data.draw(st.integers(1, 5)), d), elements=numbers))
    Z = data.draw(hnp.arrays(dtype, (data.draw(st.integers(1, 4)), d), elements=numbers))
    Z = np.concatenate([Z, X[:1]])
    gamma = data.draw(st.sampled_from([0.0, 1e-300, 1e-6, 1.0, 1e3, 1e9, 1e30]))
    storage = data.draw(st.sampled_from(sorted(STORAGE)))
    left, right = STORAGE[storage]
    K = Kernel("rbf", gamma=gamma).block(left(X), right(Z))
    assert_allclose(
        K, direct("rbf", X, Z, gamma), rtol=0, atol=1e-4 if width == 32 else 1e-8, err_msg=storage
    )


# ------------------------------------------------------------------ shapes and layouts


@pytest.mark.filterwarnings("error")
@every_storage
@every_float
@every_kernel
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_no_rows_or_no_points(shape, name, dtype, storage):
    X, Z = points(shape[0], 3, dtype=dtype), points(shape[1], 3, dtype=dtype)
    left, right = STORAGE[storage]
    kernel, _ = make(name, 3)
    K = kernel.block(left(X), right(Z))
    assert K.shape == shape
    assert K.dtype == dtype
    assert kernel.diag(left(X)).shape == shape[:1]


@every_storage
@every_kernel
def test_one_row_one_point_one_feature(name, storage):
    left, right = STORAGE[storage]
    for n, r, d in [(1, 1, 1), (1, 9, 4), (9, 1, 4), (9, 5, 1)]:
        X, Z = points(n, d), points(r, d, seed=1)
        kernel, params = make(name, d)
        assert_allclose(kernel.block(left(X), right(Z)), THEIRS[name](X, Z, params), atol=1e-12)


def layouts(A):
    wide = np.empty((A.shape[0], 2 * A.shape[1]), A.dtype)
    wide[:, ::2] = A
    frozen = A.copy()
    frozen.flags.writeable = False
    return {
        "fortran": np.asfortranarray(A),
        "every other column": wide[:, ::2],
        "reversed": A[::-1].copy()[::-1],
        "read-only": frozen,
    }


@every_kernel
def test_memory_layout_does_not_matter(name):
    X, Z = points(50, 6), points(20, 6, seed=1)
    kernel, _ = make(name, 6)
    expected = kernel.block(X, Z)
    for kind, A in layouts(X).items():
        for other, B in layouts(Z).items():
            message = f"{kind} rows, {other} points"
            assert_allclose(kernel.block(A, B), expected, atol=1e-13, err_msg=message)
        assert_allclose(kernel.diag(A), kernel.diag(X), rtol=1e-14, err_msg=kind)


@every_kernel
def test_memory_map(name, tmp_path):
    X = points(50, 6, dtype=np.float32)
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=X.shape)
    mapped[...] = X
    mapped.flush()
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="r", shape=X.shape)
    kernel, _ = make(name, 6)
    K = kernel.block(mapped, mapped[:9])
    assert not isinstance(K, np.memmap)
    assert_array_equal(K, kernel.block(X, X[:9]))


@every_storage
@every_kernel
def test_writes_into_out(name, storage):
    X, Z = points(50, 6), points(20, 6, seed=1)
    left, right = STORAGE[storage]
    kernel, _ = make(name, 6)
    expected = kernel.block(left(X), right(Z))
    spacious = np.full((60, 50), np.nan)
    for out in (
        np.full((50, 20), np.nan),
        np.full((50, 20), np.nan, order="F"),
        spacious[5:55, 3:43:2],
    ):
        assert kernel.block(left(X), right(Z), out=out) is out
        assert_allclose(out, expected, atol=1e-13)
    inside = np.zeros(spacious.shape, bool)
    inside[5:55, 3:43:2] = True
    assert np.isnan(spacious[~inside]).all()
    narrow = np.empty((50, 20), np.float32)
    kernel.block(left(X), right(Z), out=narrow)
    assert_allclose(narrow, expected, atol=1e-5 * np.abs(expected).max())


@every_storage
@every_kernel
@pytest.mark.parametrize("given_dtype", FLOATS)
@pytest.mark.parametrize("wanted", FLOATS)
def test_dtype_of_the_result(wanted, given_dtype, name, storage):
    X, Z = points(50, 6, dtype=given_dtype), points(20, 6, seed=1, dtype=given_dtype)
    left, right = STORAGE[storage]
    kernel, params = make(name, 6)
    K = kernel.block(left(X), right(Z), dtype=wanted)
    assert K.dtype == wanted
    expected = THEIRS[name](X.astype(np.float64), Z.astype(np.float64), params)
    # float32 rows in float64 are exact numbers: only the result's type limits the accuracy
    tol = 1e-12 if wanted == np.float64 else 1e-5
    assert_allclose(K, expected, rtol=0, atol=tol * np.abs(expected).max())


@every_storage
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_float32_result_of_float64_rows_is_rounded_last(name, storage):
    # these rows differ by less than float32 can tell
    X = points(50, 6, mean=1e6)
    left, right = STORAGE[storage]
    K = Kernel(name, gamma=0.1).block(left(X), right(X[:20]), dtype=np.float32)
    assert_allclose(K, direct(name, X, X[:20], 0.1), rtol=0, atol=1e-5)


def test_mixed_types_of_rows_and_points():
    X, Z = points(50, 6, dtype=np.float32), points(20, 6, seed=1)
    for name in NAMES:
        kernel, params = make(name, 6)
        expected = THEIRS[name](X.astype(np.float64), Z, params)
        assert_allclose(kernel.block(X, Z, dtype=np.float64), expected, atol=1e-12)
        assert_allclose(kernel.block(X, Z), expected, atol=1e-5 * np.abs(expected).max())


@every_kernel
def test_integer_rows_are_numbers(name):
    X = np.random.default_rng(0).integers(-100, 100, size=(40, 30)).astype(np.int8)
    kernel, params = make(name, 1, gamma=1e-5)
    expected = THEIRS[name](X.astype(float), X.astype(float), params)
    assert_allclose(kernel.block(X, X), expected, rtol=1e-10)
    assert_allclose(kernel.diag(X), expected.diagonal(), rtol=1e-10)


@every_kernel
def test_input_is_left_alone(name):
    X, Z = points(50, 6, mean=3), points(20, 6, mean=3)
    before = X.copy(), Z.copy()
    kernel, _ = make(name, 6)
    kernel.block(X, Z)
    kernel.diag(X)
    assert_array_equal(X, before[0])
    assert_array_equal(Z, before[1])


# ------------------------------------------------------------------ gamma


def scale_of(X, weight=None, **options):
    blocks = MemoryBlocks(X, weight=weight, **options)
    return resolve_gamma("scale", "rbf", blocks.n_features, blocks.variance)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["rbf", "poly", "sigmoid", "laplacian"])
def test_gamma_is_resolved_as_in_svc(name):
    X = points(60, 5, mean=2) * np.arange(1, 6)
    y = np.arange(60) % 2
    variance = MemoryBlocks(X).variance
    for gamma in ("scale", "auto", 0.3):
        svc_kernel = name if name in ("rbf", "poly", "sigmoid") else "rbf"
        expected = SVC(kernel=svc_kernel, gamma=gamma, max_iter=1).fit(X, y)._gamma
        assert resolve_gamma(gamma, name, 5, variance) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "precomputed", lambda X, Z: X @ Z.T])
def test_kernels_without_gamma_do_not_look_at_the_data(name):
    def never():
        raise AssertionError("the variance was asked for")

    for gamma in ("scale", "auto", 0.3):
        assert resolve_gamma(gamma, name, 5, never) == 1.0
    assert resolve_gamma("auto", "rbf", 5, never) == 0.2


@pytest.mark.parametrize("gamma", ["Scale", "", -1.0, np.nan, np.inf, -np.inf])
def test_bad_gamma(gamma):
    with pytest.raises(ValueError, match="gamma"):
        resolve_gamma(gamma, "rbf", 5, lambda: 1.0)


def test_gamma_zero_is_a_constant_kernel():
    assert resolve_gamma(0, "rbf", 5, lambda: 1.0) == 0.0
    assert_array_equal(Kernel("rbf", gamma=0.0).block(points(5, 2), points(3, 2)), np.ones((5, 3)))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, -7.7, 300.1, 1e-5])
@every_float
def test_constant_data_give_gamma_one(dtype, value, convert):
    # rounding of the mean must not pass for a variance
    X = np.full((1000, 3), value, dtype)
    for options in ({}, {"tile_rows": 7}):
        assert scale_of(convert(X), **options) == 1.0
        assert scale_of(convert(X), np.random.default_rng(0).random(1000), **options) == 1.0


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@every_float
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_scale_with_weights_is_scale_of_repeated_rows(mean, dtype, convert):
    X = points(50, 4, mean=mean, dtype=dtype)
    times = np.random.default_rng(1).integers(0, 4, size=50)
    repeated = np.repeat(X, times, axis=0)
    expected = 1 / (4 * repeated.astype(np.float64).var())
    weighted = scale_of(convert(X), times.astype(np.float64), tile_rows=7)
    assert weighted == pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)
    assert weighted == pytest.approx(
        scale_of(convert(repeated)), rel=1e-9 if dtype == np.float64 else 1e-4
    )


@pytest.mark.parametrize("mean, spread", [(300.0, 1e-2), (1e4, 1.0)])
def test_scale_of_sparse_float32_with_a_large_mean(mean, spread):
    X = (mean + spread * points(2000, 5)).astype(np.float32)
    expected = 1 / (5 * X.astype(np.float64).var())
    assert scale_of(X) == pytest.approx(expected, rel=1e-6)
    assert scale_of(sparse.csr_array(X)) == pytest.approx(expected, rel=1e-3)


# ------------------------------------------------------------------ diagonal


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@every_float
@every_kernel
def test_diag_is_the_diagonal_of_the_block(name, dtype, convert):
    X = points(70, 5, mean=1, dtype=dtype)
    kernel, _ = make(name, 5)
    K = kernel.block(convert(X), convert(X), dtype=np.float64)
    diagonal = kernel.diag(convert(X))
    assert diagonal.shape == (70,)
    tol = 1e-12 if dtype == np.float64 else 1e-5
    assert_allclose(diagonal, K.diagonal(), rtol=tol, atol=tol)


@every_float
def test_diag_of_a_callable(dtype):
    X = points(100, 5, dtype=dtype)  # not a multiple of any tile
    kernel = Kernel(lambda A, B: np.exp(-cdist(A, B)) + A @ B.T)
    assert_allclose(kernel.diag(X), kernel.block(X, X).diagonal(), rtol=1e-5)
    assert kernel.diag(X[:0]).shape == (0,)


def test_diag_of_a_callable_on_integers():
    X = np.arange(10).reshape(5, 2)
    kernel = Kernel(lambda A, B: np.exp(-0.1 * cdist(A, B)) / 3)
    assert_allclose(kernel.diag(X), kernel.block(X, X).diagonal())


def test_diag_of_a_precomputed_matrix_by_blocks():
    K = points(30, 30)
    K = K @ K.T
    kernel = Kernel("precomputed")
    parts = [kernel.diag(K[start : start + 7], start) for start in range(0, 30, 7)]
    assert_array_equal(np.concatenate(parts), K.diagonal())


# ------------------------------------------------------------------ precomputed and callables


@pytest.mark.parametrize("wanted", FLOATS)
@pytest.mark.parametrize("given_dtype", FLOATS)
def test_precomputed_takes_columns(given_dtype, wanted):
    K = points(30, 40, dtype=given_dtype)
    columns = np.array([7, 0, 39, 7])
    kernel = Kernel("precomputed")
    assert kernel.precomputed
    taken = kernel.block(K, columns, dtype=wanted)
    assert taken.dtype == wanted
    assert_allclose(taken, K[:, columns], rtol=1e-6)
    out = np.empty((30, 4), wanted, order="F")
    assert kernel.block(K, columns, out=out) is out
    assert_allclose(out, K[:, columns], rtol=1e-6)
    assert kernel.block(K, np.empty(0, np.intp)).shape == (30, 0)
    with pytest.raises(IndexError):
        kernel.block(K, np.array([40]))


def test_points_of_a_kernel():
    X = points(5, 2)
    indices = np.array([3, 1])
    assert Kernel("rbf").points(X[indices], indices) is not indices
    assert_array_equal(Kernel("precomputed").points(X[indices], indices), indices)


@every_storage
def test_callable_gets_the_data_as_it_is(storage):
    X, Z = points(11, 3), points(7, 3, seed=1)
    left, right = STORAGE[storage]
    A, B = left(X), right(Z)
    seen = []

    def function(P, Q):
        seen.append((P, Q))
        return (P @ Q.T).toarray() if sparse.issparse(P) and sparse.issparse(Q) else P @ Q.T

    assert_allclose(Kernel(function).block(A, B), X @ Z.T, atol=1e-13)
    assert len(seen) == 1
    assert type(seen[0][0]) is type(A)
    assert seen[0][0].shape == A.shape
    assert seen[0][1] is B


@pytest.mark.parametrize(
    "function",
    [
        lambda X, Z: float(X[0] @ Z[0]),
        lambda X, Z: X @ X.T,
        lambda X, Z: (X @ Z.T).ravel(),
        lambda X, Z: (X @ Z.T).T,
        lambda X, Z: X[:, :1] @ Z[:1, :1].T,  # broadcasting must not hide it
    ],
)
def test_callable_of_the_wrong_shape(function):
    with pytest.raises(ValueError, match=r"vectorised.*\(11, 7\)"):
        Kernel(function).block(points(11, 3), points(7, 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_callable_that_returns_no_numbers(bad):
    def function(X, Z):
        K = X @ Z.T
        K[-1, -1] = bad
        return K

    with pytest.raises(ValueError, match="NaN or infinity"):
        Kernel(function).block(points(11, 3), points(7, 3))
    with pytest.raises(ValueError, match="NaN or infinity"):
        Kernel(function).diag(points(11, 3))


def test_callable_whose_diag_has_the_wrong_shape():
    with pytest.raises(ValueError, match="vectorised"):
        Kernel(lambda X, Z: 1.0).diag(points(11, 3))


@pytest.mark.parametrize("name", ["gaussian", "RBF", "", None, 3, np.str_("chi2")])
def test_unknown_kernel(name):
    with pytest.raises(ValueError, match=r"kernel must be one of linear, rbf.*or a callable"):
        Kernel(name)


# ------------------------------------------------------------------ array API


def to_numpy(array):
    host = array_api_strict.Device("CPU_DEVICE")
    return np.asarray(array_api_strict.asarray(array.to_device(host)))


DEVICES = ("CPU_DEVICE", "device1")
every_device = pytest.mark.parametrize("device", DEVICES)


def strict(A, device="CPU_DEVICE"):
    return array_api_strict.asarray(A, device=array_api_strict.Device(device))


@every_device
@every_float
@every_kernel
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_array_api_equals_numpy(mean, name, dtype, device):
    X, Z = points(50, 6, mean=mean, dtype=dtype), points(20, 6, mean=mean, seed=1, dtype=dtype)
    kernel, _ = make(name, 6, gamma=1e-6 if name == "sigmoid" else 0.1)
    K = kernel.block(strict(X, device), strict(Z, device))
    assert K.device == array_api_strict.Device(device)
    assert K.dtype == strict(X).dtype
    expected = kernel.block(X, Z)
    tol = (1e-10 if dtype == np.float64 else 1e-5) * np.abs(expected).max()
    assert_allclose(to_numpy(K), expected, rtol=0, atol=tol)


@every_device
@every_float
@every_kernel
def test_array_api_diag(name, dtype, device):
    X = points(50, 6, dtype=dtype)
    kernel, _ = make(name, 6)
    diagonal = kernel.diag(strict(X, device))
    assert_allclose(to_numpy(diagonal), kernel.diag(X), rtol=1e-5)
    assert diagonal.device == array_api_strict.Device(device)


@pytest.mark.filterwarnings("error")
@every_float
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1e6, 1e12, 1e300])
def test_array_api_extreme_gamma(gamma, dtype):
    X = points(100, 3, mean=1, dtype=dtype)
    Z = np.concatenate([X[:50], points(4, 3, seed=1, dtype=dtype)])
    K = to_numpy(Kernel("rbf", gamma=gamma).block(strict(X), strict(Z)))
    tol = 1e-4 if dtype == np.float32 else 1e-8
    assert_allclose(K, direct("rbf", X, Z, gamma), rtol=0, atol=tol)


@pytest.mark.filterwarnings("error")
@every_kernel
@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_array_api_empty(shape, name):
    kernel, _ = make(name, 3)
    assert kernel.block(strict(points(shape[0], 3)), strict(points(shape[1], 3))).shape == shape


@every_device
def test_array_api_precomputed(device):
    K = points(20, 20)
    kernel = Kernel("precomputed")
    columns = np.array([3, 1, 19])
    taken = kernel.block(strict(K, device), kernel.points(None, columns))
    assert_array_equal(to_numpy(taken), K[:, columns])
    assert_array_equal(to_numpy(kernel.diag(strict(K[4:9], device), 4)), K.diagonal()[4:9])


@every_device
def test_array_api_callable(device):
    X, Z = points(40, 3), points(9, 3, seed=1)
    kernel = Kernel(lambda A, B: (A @ B.T + 1.0) ** 2)
    A, B = strict(X, device), strict(Z, device)
    assert_allclose(to_numpy(kernel.block(A, B)), (X @ Z.T + 1) ** 2)
    assert_allclose(to_numpy(kernel.diag(A)), ((X**2).sum(axis=1) + 1) ** 2)
    with pytest.raises(ValueError, match="vectorised"):
        Kernel(lambda A, B: A @ A.T).block(A, B)
    with pytest.raises(ValueError, match="NaN or infinity"):
        Kernel(lambda A, B: A @ B.T * float("nan")).block(A, B)


# ------------------------------------------------------------------ tiles, threads, memory


@every_storage
@every_kernel
def test_same_result_for_every_number_of_threads(name, storage):
    X, Z = points(3000, 5), points(300, 5, seed=1)
    left, right = STORAGE[storage]
    kernel, _ = make(name, 5)
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            results.append(kernel.block(left(X), right(Z)))
    assert_allclose(results[0], results[1], rtol=1e-13, atol=1e-13)


@every_storage
@every_kernel
@pytest.mark.parametrize("elements", [1, 1000, 1 << 30])
def test_same_result_for_every_tile_size(elements, name, storage, monkeypatch):
    X, Z = points(403, 5), points(37, 5, seed=1)
    left, right = STORAGE[storage]
    kernel, _ = make(name, 5)
    expected = kernel.block(left(X), right(Z))
    monkeypatch.setattr(linalg, "TILE_ELEMENTS", elements)
    monkeypatch.setattr(kernels, "TILE_ELEMENTS", elements, raising=False)
    assert_allclose(kernel.block(left(X), right(Z)), expected, rtol=1e-13, atol=1e-13)


@every_kernel
@every_float
def test_a_block_of_some_rows_is_those_rows_of_the_block(dtype, name):
    X, Z = points(301, 5, dtype=dtype), points(37, 5, seed=1, dtype=dtype)
    kernel, _ = make(name, 5)
    whole = kernel.block(X, Z)
    parts = np.concatenate([kernel.block(X[i : i + 50], Z) for i in range(0, 301, 50)])
    eps = np.finfo(dtype).eps
    assert_allclose(parts, whole, rtol=1e2 * eps, atol=1e2 * eps)


def peak_bytes(function):
    function()  # warm up: imports, thread pools
    tracemalloc.start()
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "storage, name, gamma",
    [("dense-dense", name, 0.05) for name in NAMES]
    + [(storage, "rbf", gamma) for storage in STORAGE for gamma in (0.05, 1e9)]
    + [("csr-csr", "linear", 1.0), ("csr-dense", "sigmoid", 0.05)],
)
def test_no_temporaries_of_the_size_of_the_block(storage, name, gamma):
    n, r, d = 20_000, 500, 20
    X, Z = points(n, d), points(r, d, seed=1)
    left, right = (convert(A) for convert, A in zip(STORAGE[storage], (X, Z), strict=True))
    kernel = Kernel(name, gamma=gamma, degree=2)
    peak, K = peak_bytes(lambda: kernel.block(left, right))
    assert peak <= 1.15 * K.nbytes + X.nbytes
    peak, _ = peak_bytes(lambda: kernel.block(left, right, out=K))
    assert peak <= 0.15 * K.nbytes + X.nbytes


@pytest.mark.parametrize("gamma", [0.05, 1e3, 1e9])
def test_no_temporaries_in_float32(gamma):
    # also where float32 is redone in float64, or from differences
    X, Z = points(20_000, 20, dtype=np.float32), points(500, 20, seed=1, dtype=np.float32)
    peak, K = peak_bytes(lambda: Kernel("rbf", gamma=gamma).block(X, Z))
    assert K.dtype == np.float32
    assert peak <= 1.3 * K.nbytes + 2 * X.nbytes


@pytest.mark.parametrize("wanted", FLOATS)
def test_no_temporaries_for_columns_of_a_precomputed_matrix(wanted):
    K = points(20_000, 300)
    columns = np.random.default_rng(0).permutation(300)
    peak, taken = peak_bytes(lambda: Kernel("precomputed").block(K, columns, dtype=wanted))
    assert peak <= 1.3 * taken.nbytes
