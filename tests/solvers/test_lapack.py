"""The eigen-decomposition in place: NumPy's numbers, and other threads run meanwhile."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm.solvers._lapack import eigh_in_place


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


def test_other_threads_run_meanwhile():
    K, turns = _symmetric(700), 0
    worker = threading.Thread(target=eigh_in_place, args=(K,))
    worker.start()
    while worker.is_alive():
        worker.join(0.001)
        turns += 1
    assert turns > 10  # one or two where the lock is kept
