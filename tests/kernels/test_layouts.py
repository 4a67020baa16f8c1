"""Shapes, types, memory layouts, tiles and threads change nothing but rounding."""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from leansvm import linalg
from leansvm.kernels import Kernel

FLOATS = (np.float32, np.float64)


# ------------------------------------------------------------------ shapes and layouts


@pytest.mark.filterwarnings("error")
def test_no_rows_or_no_points(name, every_storage, points, make):
    kernel, _ = make(3)
    for shape, dtype in product([(0, 4), (4, 0), (0, 0)], FLOATS):
        X, Z = points(shape[0], 3, dtype=dtype), points(shape[1], 3, dtype=dtype)
        for kind, (left, right) in every_storage.items():
            K = kernel.block(left(X), right(Z))
            assert K.shape == shape, (kind, dtype)
            assert K.dtype == dtype, (kind, shape)
            assert kernel.diag(left(X)).shape == shape[:1], (kind, dtype)


def test_one_row_one_point_one_feature(name, every_storage, points, make, theirs):
    for n, r, d in [(1, 1, 1), (1, 9, 4), (9, 1, 4), (9, 5, 1)]:
        X, Z = points(n, d), points(r, d, seed=1)
        kernel, params = make(d)
        expected = theirs(X, Z, params)
        for kind, (left, right) in every_storage.items():
            K = kernel.block(left(X), right(Z))
            assert_allclose(K, expected, atol=1e-12, err_msg=f"{kind}, {n} x {r} of {d}")


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


def test_memory_layout_does_not_matter(name, points, make):
    X, Z = points(50, 6), points(20, 6, seed=1)
    kernel, _ = make(6)
    expected = kernel.block(X, Z)
    for kind, A in layouts(X).items():
        for other, B in layouts(Z).items():
            message = f"{kind} rows, {other} points"
            assert_allclose(kernel.block(A, B), expected, atol=1e-13, err_msg=message)
        assert_allclose(kernel.diag(A), kernel.diag(X), rtol=1e-14, err_msg=kind)


def test_memory_map(name, tmp_path, points, make):
    X = points(50, 6, dtype=np.float32)
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=X.shape)
    mapped[...] = X
    mapped.flush()
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="r", shape=X.shape)
    kernel, _ = make(6)
    K = kernel.block(mapped, mapped[:9])
    assert not isinstance(K, np.memmap)
    assert_array_equal(K, kernel.block(X, X[:9]))


def test_writes_into_out(name, every_storage, points, make):
    kernel, _ = make(6)
    for kind, (left, right) in every_storage.items():
        X, Z = left(points(50, 6)), right(points(20, 6, seed=1))
        expected = kernel.block(X, Z)
        spacious = np.full((60, 50), np.nan)
        for out in (
            np.full((50, 20), np.nan),
            np.full((50, 20), np.nan, order="F"),
            spacious[5:55, 3:43:2],
        ):
            assert kernel.block(X, Z, out=out) is out
            assert_allclose(out, expected, atol=1e-13, err_msg=kind)
        inside = np.zeros(spacious.shape, bool)
        inside[5:55, 3:43:2] = True
        assert np.isnan(spacious[~inside]).all(), kind
        narrow = np.empty((50, 20), np.float32)
        kernel.block(X, Z, out=narrow)
        assert_allclose(narrow, expected, atol=1e-5 * np.abs(expected).max(), err_msg=kind)


def test_dtype_of_the_result(name, every_storage, points, make, theirs):
    kernel, params = make(6)
    for given_dtype in FLOATS:
        X, Z = points(50, 6, dtype=given_dtype), points(20, 6, seed=1, dtype=given_dtype)
        expected = theirs(X.astype(np.float64), Z.astype(np.float64), params)
        for wanted, (kind, (left, right)) in product(FLOATS, every_storage.items()):
            K = kernel.block(left(X), right(Z), dtype=wanted)
            assert K.dtype == wanted, (kind, given_dtype)
            # float32 rows in float64 are exact numbers: only the result's type limits the accuracy
            atol = (1e-12 if wanted == np.float64 else 1e-5) * np.abs(expected).max()
            message = f"{kind}, {given_dtype} to {wanted}"
            assert_allclose(K, expected, rtol=0, atol=atol, err_msg=message)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_float32_result_of_float64_rows_is_rounded_last(name, every_storage, points, direct):
    # these rows differ by less than float32 can tell
    X = points(50, 6, mean=1e6)
    expected = direct(name, X, X[:20], 0.1)
    for kind, (left, right) in every_storage.items():
        K = Kernel(name, gamma=0.1).block(left(X), right(X[:20]), dtype=np.float32)
        assert_allclose(K, expected, rtol=0, atol=1e-5, err_msg=kind)


def test_mixed_types_of_rows_and_points(points, make, theirs):
    X, Z = points(50, 6, dtype=np.float32), points(20, 6, seed=1)
    kernel, params = make(6)
    expected = theirs(X.astype(np.float64), Z, params)
    assert_allclose(kernel.block(X, Z, dtype=np.float64), expected, atol=1e-12)
    assert_allclose(kernel.block(X, Z), expected, atol=1e-5 * np.abs(expected).max())


def test_integer_rows_are_numbers(name, make, theirs):
    lowest = 0 if name == "chi2" else -100
    X = np.random.default_rng(0).integers(lowest, 100, size=(40, 30)).astype(np.int8)
    kernel, params = make(1, gamma=1e-5)
    expected = theirs(X.astype(float), X.astype(float), params)
    assert_allclose(kernel.block(X, X), expected, rtol=1e-10)
    assert_allclose(kernel.diag(X), expected.diagonal(), rtol=1e-10)


def test_input_is_left_alone(name, points, make):
    X, Z = points(50, 6, mean=3), points(20, 6, mean=3)
    before = X.copy(), Z.copy()
    kernel, _ = make(6)
    kernel.block(X, Z)
    kernel.diag(X)
    assert_array_equal(X, before[0])
    assert_array_equal(Z, before[1])


# ------------------------------------------------------------------ tiles, threads, memory


def test_same_result_for_every_number_of_threads(name, every_storage, points, make):
    kernel, _ = make(5)
    for kind, (left, right) in every_storage.items():
        X, Z = left(points(3000, 5)), right(points(300, 5, seed=1))
        results = []
        for threads in (1, 2):
            with threadpool_limits(threads, user_api="blas"):
                results.append(kernel.block(X, Z))
        assert_allclose(results[0], results[1], rtol=1e-13, atol=1e-13, err_msg=kind)


def test_same_result_for_every_tile_size(name, every_storage, monkeypatch, points, make):
    kernel, _ = make(5)
    for kind, (left, right) in every_storage.items():
        X, Z = left(points(403, 5)), right(points(37, 5, seed=1))
        expected = kernel.block(X, Z)
        for elements in (1, 1000, 1 << 30):
            with monkeypatch.context() as patch:
                patch.setattr(linalg, "TILE_ELEMENTS", elements)
                K = kernel.block(X, Z)
            message = f"{kind}, {elements} elements"
            assert_allclose(K, expected, rtol=1e-13, atol=1e-13, err_msg=message)


def test_a_block_of_some_rows_is_those_rows_of_the_block(name, points, make):
    kernel, _ = make(5)
    for dtype in FLOATS:
        X, Z = points(301, 5, dtype=dtype), points(37, 5, seed=1, dtype=dtype)
        whole = kernel.block(X, Z)
        parts = np.concatenate([kernel.block(X[i : i + 50], Z) for i in range(0, 301, 50)])
        tol = 1e2 * np.finfo(dtype).eps
        assert_allclose(parts, whole, rtol=tol, atol=tol, err_msg=str(dtype))


def peak_bytes(function):
    tracemalloc.start()
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def assert_no_temporaries(name, gamma, storage, points):
    n, r, d = 10_000, 500, 20
    X, Z = points(n, d), points(r, d, seed=1)
    left, right = (convert(A) for convert, A in zip(storage, (X, Z), strict=True))
    kernel = Kernel(name, gamma=gamma, degree=2)
    kernel.block(left[:2000], right)  # warm up: imports, thread pools
    peak, K = peak_bytes(lambda: kernel.block(left, right))
    assert peak <= 1.15 * K.nbytes + X.nbytes
    peak, _ = peak_bytes(lambda: kernel.block(left, right, out=K))
    assert peak <= 0.15 * K.nbytes + X.nbytes


def test_no_temporaries_of_the_size_of_the_block(name, every_storage, points):
    assert_no_temporaries(name, 0.05, every_storage["dense-dense"], points)


@pytest.mark.parametrize(
    ("name", "gamma"),
    [
        ("rbf", 0.05),
        ("rbf", 1e9),
        ("rbf", np.linspace(0.0, 0.1, 20)),
        ("matern12", 1e9),
        ("matern32", np.linspace(0.0, 0.1, 20)),
    ],
    ids=["rbf-one", "rbf-huge", "rbf-each", "matern12-huge", "matern32-each"],
)
def test_no_temporaries_from_distances(name, gamma, storage, points):
    assert_no_temporaries(name, gamma, storage, points)


@pytest.mark.parametrize(
    "name, stored", [("linear", "csr-csr"), ("sigmoid", "csr-dense"), ("cosine", "csr-csr")]
)
def test_no_temporaries_from_sparse_products(name, stored, every_storage, points):
    assert_no_temporaries(name, 0.05, every_storage[stored], points)


def test_no_temporaries_for_one_gamma_a_feature_and_absolute_values(every_storage, points):
    gamma = np.linspace(0.0, 0.1, 20)
    assert_no_temporaries("laplacian", gamma, every_storage["dense-dense"], points)


@pytest.mark.parametrize("gamma", [0.05, 1e3, 1e9])
@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "laplacian"])
def test_no_temporaries_in_float32(name, gamma, points):
    # also where float32 is redone in float64, or from differences
    X, Z = points(20_000, 20, dtype=np.float32), points(500, 20, seed=1, dtype=np.float32)
    kernel = Kernel(name, gamma=gamma)
    kernel.block(X[:2000], Z)  # warm up
    peak, K = peak_bytes(lambda: kernel.block(X, Z))
    assert K.dtype == np.float32
    assert peak <= 1.3 * K.nbytes + 2 * X.nbytes


@pytest.mark.parametrize("wanted", FLOATS)
def test_no_temporaries_for_columns_of_a_precomputed_matrix(wanted, points):
    K = points(20_000, 300)
    columns = np.random.default_rng(0).permutation(300)
    kernel = Kernel("precomputed")
    kernel.block(K[:2000], columns, dtype=wanted)  # warm up
    peak, taken = peak_bytes(lambda: kernel.block(K, columns, dtype=wanted))
    assert peak <= 1.3 * taken.nbytes


@pytest.mark.parametrize("name", ["rbf", "matern12", "laplacian", "poly"])
def test_columns_of_rows_on_the_host(name):
    X = np.random.default_rng(0).normal(size=(9, 3))
    kernel = Kernel(name, gamma=0.3)
    np.testing.assert_array_equal(kernel.columns(X)(4), kernel.block(X, X[4:5])[:, 0])
