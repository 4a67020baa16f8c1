"""The diagonal; kernels that the user brings as functions or matrices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

from leansvm.kernels import Kernel

FLOATS = (np.float32, np.float64)


# ------------------------------------------------------------------ diagonal


def test_diag_is_the_diagonal_of_the_block(name, points, make):
    kernel, _ = make(5)
    for dtype, convert in product(FLOATS, [np.asarray, sparse.csr_array]):
        X = convert(points(70, 5, mean=1, dtype=dtype))
        K = kernel.block(X, X, dtype=np.float64)
        diagonal = kernel.diag(X)
        message = f"{dtype}, {convert}"
        assert diagonal.shape == (70,), message
        tol = 1e-12 if dtype == np.float64 else 1e-5
        assert_allclose(diagonal, K.diagonal(), rtol=tol, atol=tol, err_msg=message)


def test_diag_of_a_callable(dtype, points):
    X = points(100, 5, dtype=dtype)  # not a multiple of any tile
    kernel = Kernel(lambda A, B: np.exp(-cdist(A, B)) + A @ B.T)
    assert_allclose(kernel.diag(X), kernel.block(X, X).diagonal(), rtol=1e-5)
    assert kernel.diag(X[:0]).shape == (0,)


def test_diag_of_a_callable_on_integers():
    X = np.arange(10).reshape(5, 2)
    kernel = Kernel(lambda A, B: np.exp(-0.1 * cdist(A, B)) / 3)
    assert_allclose(kernel.diag(X), kernel.block(X, X).diagonal())


def test_diag_of_a_precomputed_matrix_by_blocks(points):
    K = points(30, 30)
    K = K @ K.T
    kernel = Kernel("precomputed")
    parts = [kernel.diag(K[start : start + 7], start) for start in range(0, 30, 7)]
    assert_array_equal(np.concatenate(parts), K.diagonal())


# ------------------------------------------------------------------ precomputed and callables


@pytest.mark.parametrize("wanted", FLOATS)
@pytest.mark.parametrize("given_dtype", FLOATS)
def test_precomputed_takes_columns(given_dtype, wanted, points):
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


def test_points_of_a_kernel(points):
    X = points(5, 2)
    indices = np.array([3, 1])
    assert Kernel("rbf").points(X[indices], indices) is not indices
    assert_array_equal(Kernel("precomputed").points(X[indices], indices), indices)


def test_callable_gets_the_data_as_it_is(storage, points):
    X, Z = points(11, 3), points(7, 3, seed=1)
    left, right = storage
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
def test_callable_of_the_wrong_shape(function, points):
    with pytest.raises(ValueError, match=r"all pairs.*\(11, 7\)"):
        Kernel(function).block(points(11, 3), points(7, 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_callable_that_returns_no_numbers(bad, points):
    def function(X, Z):
        K = X @ Z.T
        K[-1, -1] = bad
        return K

    with pytest.raises(ValueError, match="NaN or infinity"):
        Kernel(function).block(points(11, 3), points(7, 3))
    with pytest.raises(ValueError, match="NaN or infinity"):
        Kernel(function).diag(points(11, 3))


def test_callable_whose_diag_has_the_wrong_shape(points):
    with pytest.raises(ValueError, match="all pairs"):
        Kernel(lambda X, Z: 1.0).diag(points(11, 3))


@pytest.mark.parametrize("name", ["gaussian", "RBF", "", None, 3, np.str_("matern")])
def test_unknown_kernel(name):
    with pytest.raises(ValueError, match=r"kernel must be one of linear, rbf.*or a callable"):
        Kernel(name)
