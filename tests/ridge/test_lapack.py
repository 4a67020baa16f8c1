"""Routines by ctypes: NumPy's numbers, and other threads run meanwhile."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm.ridge._lapack import eigh_in_place, symmetric_product


def _symmetric(n, dtype=np.float64):
    A = np.random.default_rng(0).normal(size=(n, n))
    return np.ascontiguousarray((A @ A.T).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_the_decomposition_is_that_of_numpy(n, dtype):
    A = _symmetric(n, dtype)
    K = A.copy()
    values, vectors = eigh_in_place(K)
    assert values.dtype == vectors.dtype == dtype
    assert n == 0 or np.shares_memory(vectors, K)
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    expected = np.linalg.eigvalsh(A.astype(np.float64)) if n else []
    assert_allclose(values, expected, atol=tolerance * n * n)
    assert_allclose(vectors @ np.diag(values) @ vectors.T, A, atol=tolerance * n * n)
    assert_allclose(vectors.T @ vectors, np.eye(n), atol=tolerance * n)


def test_only_the_lower_triangle_counts():
    """That of the transposed matrix, as LAPACK reads columns: the upper one in C order."""
    A = _symmetric(5)
    expected = np.linalg.eigvalsh(A)
    A[np.tril_indices(5, -1)] = 7.0
    assert_allclose(eigh_in_place(A)[0], expected)


def test_products_read_one_half_of_the_matrix():
    rng = np.random.default_rng(1)
    for n in (0, 1, 2, 7, 130):
        A = rng.normal(size=(n + 3, n + 3))
        A += A.T
        K, v = A[:n, :n], rng.normal(size=n)  # rows of a larger matrix
        expected = K @ v
        K[np.triu_indices(n, 1)] = np.nan
        assert_allclose(symmetric_product(K, v), expected, atol=1e-12, err_msg=f"n = {n}")


def test_other_threads_run_meanwhile():
    K, turns = _symmetric(700), 0
    worker = threading.Thread(target=eigh_in_place, args=(K,))
    worker.start()
    while worker.is_alive():
        worker.join(0.001)
        turns += 1
    assert turns > 10  # one or two where the lock is kept
