"""Which gamma: strings, numbers, one value for each feature."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

from leansvm.kernels import Kernel, resolve_gamma
from leansvm.rows import MemoryBlocks

FLOATS = (np.float32, np.float64)


# ------------------------------------------------------------------ gamma


def scale_of(X, weight=None, **options):
    blocks = MemoryBlocks(X, weight=weight, **options)
    return resolve_gamma("scale", "rbf", blocks.n_features, blocks.variance)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["rbf", "poly", "sigmoid", "laplacian"])
def test_gamma_is_resolved_as_in_svc(name, points):
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


@pytest.mark.parametrize("gamma", ["Scale", "", -1.0, np.nan, np.inf, -np.inf, None, [[1.0] * 5]])
def test_bad_gamma(gamma):
    with pytest.raises(ValueError, match="gamma"):
        resolve_gamma(gamma, "rbf", 5, lambda: 1.0)


def test_gamma_zero_is_a_constant_kernel(points):
    assert resolve_gamma(0, "rbf", 5, lambda: 1.0) == 0.0
    assert_array_equal(Kernel("rbf", gamma=0.0).block(points(5, 2), points(3, 2)), np.ones((5, 3)))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_constant_data_give_gamma_one(dtype, convert):
    # rounding of the mean must not pass for a variance
    weight = np.random.default_rng(0).random(1000)
    for value in (0.0, 0.1, 0.3, -7.7, 300.1, 1e-5):
        X = convert(np.full((1000, 3), value, dtype))
        for options in ({}, {"tile_rows": 7}):
            assert scale_of(X, **options) == 1.0, (value, options)
            assert scale_of(X, weight, **options) == 1.0, (value, options)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_scale_with_weights_is_scale_of_repeated_rows(mean, dtype, convert, points):
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
def test_scale_of_sparse_float32_with_a_large_mean(mean, spread, points):
    X = (mean + spread * points(2000, 5)).astype(np.float32)
    expected = 1 / (5 * X.astype(np.float64).var())
    assert scale_of(X) == pytest.approx(expected, rel=1e-6)
    assert scale_of(sparse.csr_array(X)) == pytest.approx(expected, rel=1e-3)


# ------------------------------------------------------------------ one value for each feature

ARRAY_KERNELS = ["rbf", "matern12", "matern32", "matern52", "laplacian"]
every_array_kernel = pytest.mark.parametrize("name", ARRAY_KERNELS)


def never():
    raise AssertionError("the variance was asked for")


@every_array_kernel
def test_an_array_is_checked_and_copied(name):
    for convert in (list, tuple, np.array, np.float32):
        given = convert([0.5, 0.0, 2.0])
        found = resolve_gamma(given, name, 3, never)
        assert_array_equal(found, [0.5, 0.0, 2.0], err_msg=str(convert))
        assert found.dtype == np.float64, convert
        if isinstance(given, np.ndarray):
            assert not np.shares_memory(found, given), convert


@pytest.mark.parametrize(
    "gamma, message",
    [
        ([1.0, 1.0, 1.0], "gamma has 3 values, X has 5 features"),
        ([], "gamma has 0 values, X has 5 features"),
        ([1.0, 1.0, -0.5, 1.0, np.nan], "got -0.5 for feature 2"),
        ([1.0, 1.0, 1.0, 1.0, np.nan], "got nan for feature 4"),
        ([1.0, np.inf, 1.0, 1.0, 1.0], "got inf for feature 1"),
        (np.ones((5, 1)), r"shape \(5, 1\)"),
        (["a"] * 5, "a number or an array of numbers"),
    ],
)
def test_bad_arrays(gamma, message):
    with pytest.raises(ValueError, match=message):
        resolve_gamma(gamma, "rbf", 5, never)


@pytest.mark.parametrize("name", ["poly", "polynomial", "sigmoid", "chi2"])
def test_kernels_that_take_one_number_only(name):
    assert resolve_gamma(2, name, 3, never) == 2.0
    with pytest.raises(ValueError, match=f"kernel='{name}' takes one number as gamma"):
        resolve_gamma([1.0, 2.0, 3.0], name, 3, never)


def test_a_block_of_another_width_is_refused():
    kernel = Kernel("rbf", gamma=[1.0, 2.0])
    with pytest.raises(ValueError, match="gamma has 2 values, X has 3 features"):
        kernel.block(np.ones((4, 3)), np.ones((2, 3)))


GAMMAS = {
    "usual": [0.3, 0.1, 0.02, 0.5, 0.2, 0.7],
    "some 0": [0.3, 0.0, 0.02, 0.0, 0.2, 0.7],
    "all 0": [0.0] * 6,
    "tiny and huge": [1e-300, 1e300, 1e-6, 1e12, 1e-12, 1.0],
    "equal": [0.1] * 6,
}


@every_array_kernel
@pytest.mark.parametrize("mean", [0.0, 300.0])
@pytest.mark.filterwarnings("error")
def test_one_gamma_for_each_feature(name, mean, dtype, every_storage, points, direct):
    X = points(60, 6, mean=mean, dtype=dtype)
    Z = np.concatenate([X[:10], points(20, 6, mean=mean, seed=1, dtype=dtype)])
    tol = 5e-5 if dtype == np.float32 else 1e-7 if name == "matern12" else 1e-9
    for which, gamma in GAMMAS.items():
        expected = direct(name, X, Z, gamma)
        for kind, (left, right) in every_storage.items():
            K = Kernel(name, gamma=gamma).block(left(X), right(Z))
            assert K.dtype == dtype, (which, kind)
            assert_allclose(K, expected, rtol=0, atol=tol, err_msg=f"{which}, {kind}")


@every_array_kernel
def test_equal_values_are_one_number(name, dtype, every_storage, points):
    X, tol = points(50, 4, dtype=dtype), 5e-5 if dtype == np.float32 else 1e-7
    for kind, (left, right) in every_storage.items():
        by_array = Kernel(name, gamma=np.full(4, 0.3)).block(left(X), right(X[:20]))
        by_number = Kernel(name, gamma=0.3).block(left(X), right(X[:20]))
        assert_allclose(by_array, by_number, rtol=0, atol=tol, err_msg=kind)


@every_array_kernel
def test_a_feature_of_gamma_0_may_hold_anything(name, points):
    X, Z = points(30, 3), points(9, 3, seed=1)
    Z[2] = X[4]
    kernel = Kernel(name, gamma=[0.4, 0.0, 0.1])
    expected = kernel.block(X, Z)
    X[:, 1] = np.resize([1e300, -1e300, 0.0], 30)
    Z[:, 1] = -1e300
    assert_array_equal(kernel.block(X, Z), expected)


@every_array_kernel
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_permuting_features_with_their_gamma_changes_nothing(every_storage, name, data):
    d = data.draw(st.integers(1, 7))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    X, Z = rng.normal(size=(20, d)), rng.normal(size=(8, d))
    gamma = rng.gamma(0.5, size=d) * rng.integers(0, 2, size=d)
    order = np.array(data.draw(st.permutations(range(d))))
    left, right = every_storage[data.draw(st.sampled_from(list(every_storage)))]
    K = Kernel(name, gamma=gamma).block(left(X), right(Z))
    permuted = Kernel(name, gamma=gamma[order]).block(left(X[:, order]), right(Z[:, order]))
    assert_allclose(permuted, K, rtol=0, atol=1e-10)


@every_array_kernel
def test_rows_are_left_alone(name, every_storage, points):
    X = points(20, 4)
    before = X.copy()
    for kind, (left, right) in every_storage.items():
        A, B = left(X), right(X[:5])
        Kernel(name, gamma=[0.4, 0.0, 0.1, 2.0]).block(A, B)
        for stored, kept in ((A, before), (B, before[:5])):
            values = stored.toarray() if sparse.issparse(stored) else stored
            assert_array_equal(values, kept, err_msg=kind)


@every_array_kernel
def test_a_kernel_with_an_array_is_pickled_and_copied(name, points):
    X, gamma = points(9, 2), np.array([0.5, 2.0])
    kernel = Kernel(name, gamma=gamma)
    expected = kernel.block(X, X)
    gamma[:] = 0.0  # the kernel keeps its own
    for twin in (kernel, pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        assert_array_equal(twin.block(X, X), expected)
