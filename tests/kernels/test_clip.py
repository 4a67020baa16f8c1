"""Bounds between which the features are moved before a kernel is computed."""

from __future__ import annotations

import pickle

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from leansvm import linalg
from leansvm.kernels import Kernel, Mixture

EVERY_KERNEL = [
    "linear",
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "laplacian",
    "poly",
    "sigmoid",
    "chi2",
    "cosine",
]
LOWER, UPPER = np.array([-0.5, 0.0, -np.inf]), np.array([1.0, 0.4, 0.7])


def both(name, *, lower=LOWER, upper=UPPER):
    """The kernel with bounds and the one without."""
    options = {"gamma": 0.7, "degree": 2, "coef0": 0.5}
    return Kernel(name, clip=(lower, upper), **options), Kernel(name, **options)


def rows_of(name, n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return np.abs(X) if name == "chi2" else X


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_block_is_that_of_clipped_rows(name, dtype, monkeypatch):
    monkeypatch.setattr(linalg, "TILE_ELEMENTS", 64)  # several tiles
    X, Z = rows_of(name, 300).astype(dtype), rows_of(name, 20, seed=1).astype(dtype)
    kernel, plain = both(name)
    if name == "chi2":
        kernel, plain = both(name, lower=np.zeros(3))
    before = X.copy()
    expected = plain.block(*(np.clip(A, *kernel.clip).astype(dtype) for A in (X, Z)))
    tol = 1e-13 if dtype == np.float64 else 1e-6
    assert_allclose(kernel.block(X, Z), expected, rtol=tol, atol=tol)
    assert not np.allclose(expected, plain.block(X, Z))
    assert kernel.block(X, Z).dtype == dtype
    assert_array_equal(X, before)


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_diag_is_that_of_the_block(name):
    X = rows_of(name, 40)
    kernel, _ = both(name, lower=np.zeros(3))
    assert_allclose(kernel.diag(X), kernel.block(X, X).diagonal(), rtol=1e-12)


@pytest.mark.parametrize("lower", [LOWER, LOWER + 0.2], ids=["0-inside", "0-outside"])
@pytest.mark.parametrize("name", ["rbf", "matern32", "laplacian", "linear"])
def test_csr_rows_give_the_same_as_dense_ones(name, lower, every_storage):
    X, Z = rows_of(name, 60), rows_of(name, 20, seed=1)
    X[X < 0.1], Z[Z < -1] = 0.0, 0.0
    before = X.copy()
    kernel, _ = both(name, lower=lower)
    expected = kernel.block(X, Z)
    for kind, (left, right) in every_storage.items():
        rows, points = left(X), right(Z)
        K = kernel.block(rows, points)
        assert_allclose(K, expected, rtol=1e-10, atol=1e-10, err_msg=kind)
        after = rows.toarray() if sparse.issparse(rows) else rows
        assert_array_equal(after, before, err_msg=kind)


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_array_api(name, dtype):
    X, Z = rows_of(name, 50).astype(dtype), rows_of(name, 9, seed=1).astype(dtype)
    kernel, _ = both(name, lower=np.zeros(3))
    A, B = array_api_strict.asarray(X), array_api_strict.asarray(Z)
    tol = 1e-10 if dtype == np.float64 else 1e-5
    assert_allclose(np.asarray(kernel.block(A, B)), kernel.block(X, Z), rtol=tol, atol=tol)
    assert_allclose(np.asarray(kernel.columns(A)(3)), kernel.block(X, X[3:4])[:, 0], atol=tol)
    assert_allclose(np.asarray(kernel.diag(A)), kernel.diag(X), rtol=1e-5)


def test_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, Z = rows_of("rbf", 50), rows_of("rbf", 9, seed=1)
    kernel, _ = both("matern32")
    K = kernel.block(torch.asarray(X), torch.asarray(Z))
    assert_allclose(K.numpy(), kernel.block(X, Z), atol=1e-12)


def test_pickle():
    kernel, _ = both("rbf")
    X = rows_of("rbf", 10)
    assert_array_equal(pickle.loads(pickle.dumps(kernel)).block(X, X), kernel.block(X, X))


@pytest.mark.parametrize("name", ["precomputed", lambda X, Z: X @ Z.T])
def test_kernels_that_cannot_clip(name):
    with pytest.raises(ValueError, match="clip needs a kernel"):
        Kernel(name, clip=(LOWER, UPPER))


@pytest.mark.parametrize(
    "clip", [(UPPER, LOWER), (LOWER[:2], UPPER), (0.0, 1.0), (LOWER * np.nan, UPPER)]
)
def test_bad_bounds(clip):
    with pytest.raises(ValueError, match="clip must be two arrays"):
        Kernel("rbf", clip=clip)


def test_wrong_number_of_features():
    kernel, _ = both("rbf")
    with pytest.raises(ValueError, match="clip has bounds of 3 features, X has 4"):
        kernel.block(np.zeros((2, 4)), np.zeros((2, 4)))


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_change_to_the_bounds_is_the_variance_of_a_difference(name):
    bounded, free = both(name)
    X = 2 * rows_of(name, 40)
    inside = np.clip(X, LOWER, UPPER)
    pairs = [free.block(np.stack([x, z]), np.stack([x, z])) for x, z in zip(X, inside, strict=True)]
    expected = [K[0, 0] - 2 * K[0, 1] + K[1, 1] for K in pairs]
    assert_allclose(bounded.change_to_bounds(X), expected, atol=1e-7)
    assert_allclose(bounded.change_to_bounds(sparse.csr_matrix(X)), expected, atol=1e-7)
    assert_array_equal(bounded.change_to_bounds(inside), np.zeros(40))
    assert_array_equal(free.change_to_bounds(X), np.zeros(40))


def test_change_to_the_bounds_of_a_mixture_leaves_out_the_linear_part():
    parts = [(0.6, "rbf", [1.0, 0.2, 0.0]), (0.4, "linear", [1.0, 1.0, 1.0])]
    X = 2 * rows_of("rbf", 30)
    alone = Kernel("rbf", gamma=np.array(parts[0][2]), clip=(LOWER, UPPER))
    mixture = Kernel(Mixture(parts, clip=(LOWER, UPPER)))
    assert_allclose(mixture.change_to_bounds(X), 0.6 * alone.change_to_bounds(X))
    assert_array_equal(Kernel(Mixture(parts)).change_to_bounds(X), np.zeros(30))
