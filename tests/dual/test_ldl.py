"""The factor that follows the support set, against a fresh factorisation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leansvm.dual import _support_system
from leansvm.dual._ldl_swap import drop_by_swaps
from leansvm.dual._support_system import SupportFactor

M = 400


def kernel_matrix(seed=0, m=M):
    X = np.random.default_rng(seed).normal(size=(m, 4))
    return np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=-1))


K = kernel_matrix()


def factor_of(K, ridge=1e-2):
    return SupportFactor(lambda a, b: K[np.ix_(a, b)], np.full(len(K), ridge))


def assert_factor_of(factor, rows, K, ridge=1e-2):
    S, k = factor.order, len(factor.order)
    np.testing.assert_array_equal(np.sort(S), np.sort(rows))
    G = K[np.ix_(S, S)] + ridge * np.eye(k)
    L = factor.L[:k, :k]
    assert np.all(np.triu(L, 1) == 0)
    assert np.all(L.diagonal() == 1)
    np.testing.assert_allclose((L * factor.D[:k]) @ L.T, G, atol=1e-12)
    B = np.random.default_rng(1).normal(size=(k, 2))
    np.testing.assert_allclose(G @ factor.solve(B), B, atol=1e-9)


@pytest.mark.parametrize("way", ["swapped", "refactored", "any"])
def test_the_factor_follows_any_sequence_of_sets(way, monkeypatch):
    weights = {"swapped": 0, "refactored": 1e9}
    if way != "any":
        monkeypatch.setattr(_support_system, "SWAP_WEIGHT", weights[way])
    rng = np.random.default_rng(3)
    factor, rows = factor_of(K), np.arange(M)
    for _ in range(12):
        factor.change_to(rows, rng.random(M))
        assert_factor_of(factor, rows, K)
        rows = np.setdiff1d(rows, rng.choice(rows, rng.integers(1, 80), replace=False))
        others = np.setdiff1d(np.arange(M), rows)
        rows = np.union1d(rows, rng.choice(others, rng.integers(0, len(others)), replace=False))
    assert way == "any" or factor.counts[way] > 0


@given(st.integers(2, 25), st.data())
@settings(max_examples=40, deadline=None)
def test_swapping_a_row_out_is_factoring_without_it(k, data):
    p = data.draw(st.integers(0, k - 1))
    G = kernel_matrix(seed=k, m=k) + 0.1 * np.eye(k)
    C = np.linalg.cholesky(G)
    L, D = C / C.diagonal(), C.diagonal() ** 2
    drop_by_swaps(L, D, k, p)
    rest = np.delete(np.arange(k), p)
    L, D = np.tril(L[: k - 1, : k - 1]), D[: k - 1]
    np.testing.assert_allclose((L * D) @ L.T, G[np.ix_(rest, rest)], atol=1e-13)


def test_four_hundred_changes_lose_no_digits():
    rng = np.random.default_rng(5)
    factor, inside = factor_of(K, ridge=1e-4), np.ones(M, dtype=bool)
    for _ in range(400):
        inside[rng.integers(M)] ^= True
        factor.change_to(np.flatnonzero(inside), rng.random(M))
    assert factor.counts["swapped"] > 50
    S, k = factor.order, len(factor.order)
    G = K[np.ix_(S, S)] + 1e-4 * np.eye(k)
    np.testing.assert_allclose(
        (factor.L[:k, :k] * factor.D[:k]) @ factor.L[:k, :k].T, G, atol=1e-12
    )


def test_rows_of_low_priority_come_last():
    factor = factor_of(K)
    priority = np.random.default_rng(0).random(M)
    factor.change_to(np.arange(50), priority)
    np.testing.assert_array_equal(factor.order, np.argsort(-priority[:50], kind="stable"))


def test_a_matrix_that_is_not_positive_definite_is_refused():
    factor = factor_of(-K)
    with pytest.raises(np.linalg.LinAlgError):
        factor.change_to(np.arange(10), np.zeros(M))
