"""All C from one eigen-decomposition, against a solve and a refit for every C."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from leansvm.solvers import NotPositiveDefinite
from leansvm.solvers._dual import solve_cholesky
from leansvm.solvers._spectral import solve_for_every_C

rng = np.random.default_rng(4)
M = 25
X = rng.normal(size=(M, 2))
K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
Y = np.column_stack([np.sin(X[:, 0]) + 3, rng.normal(size=M)])
WEIGHT = rng.uniform(0.5, 3.0, size=M)
CANDIDATES = np.logspace(-5, 6, 12)
every_penalty = pytest.mark.parametrize("A", [0.0, 1e-8, 0.5, 1e5, np.inf])
every_weight = pytest.mark.parametrize("weight", [np.ones(M), WEIGHT], ids=["equal", "weighted"])


def hat_matrix(K, weight, C, A):
    """Fitted values as a function of the targets."""
    m = len(K)
    G = K + np.diag(1 / (C * weight))
    if np.isinf(A):
        return K @ np.linalg.inv(G)
    system = np.block([[G, np.ones((m, 1))], [np.ones((1, m)), np.full((1, 1), -A)]])
    solved = np.linalg.inv(system)[:, :m]
    return K @ solved[:m] + solved[m]


@every_penalty
@every_weight
def test_gcv_curve_against_the_hat_matrix(A, weight):
    found = solve_for_every_C(K.copy(), Y, weight, CANDIDATES, A, "gcv")
    n = weight.sum()
    for C, value in zip(CANDIDATES, found.curve, strict=True):
        H = hat_matrix(K, weight, C, A)
        rss = np.sum(weight[:, None] * (Y - H @ Y) ** 2)
        assert_allclose(value, n * rss / (n - np.trace(H)) ** 2, rtol=1e-5)
    assert found.best == np.argmin(found.curve)


@every_penalty
@every_weight
def test_loo_curve_against_the_dual(A, weight):
    found = solve_for_every_C(K.copy(), Y, weight, CANDIDATES, A, "loo")
    for C, value in zip(CANDIDATES, found.curve, strict=True):
        left_out = solve_cholesky(K.copy(), Y, weight, C, A, loo=True).loo
        assert_allclose(value, np.sum(weight[:, None] * left_out**2) / weight.sum(), rtol=1e-5)
    assert found.best == np.argmin(found.curve)


@every_penalty
@every_weight
@pytest.mark.parametrize("criterion", ["gcv", "loo"])
def test_solution_at_the_best_candidate(A, weight, criterion):
    found = solve_for_every_C(K.copy(), Y, weight, CANDIDATES, A, criterion)
    exact = solve_cholesky(K.copy(), Y, weight, CANDIDATES[found.best], A, loo=True)
    scale = np.abs(exact.beta).max()
    assert_allclose(found.solution.beta, exact.beta, rtol=1e-6, atol=1e-7 * scale)
    assert_allclose(found.solution.b, exact.b, rtol=1e-6, atol=1e-7)
    assert_allclose(found.solution.loo, exact.loo, rtol=1e-6, atol=1e-7)


@every_penalty
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e7])
def test_extreme_candidates(A, C):
    found = solve_for_every_C(K.copy(), Y, WEIGHT, np.array([C]), A, "loo")
    exact = solve_cholesky(K.copy(), Y, WEIGHT, C, A)
    f = K @ found.solution.beta + found.solution.b
    assert_allclose(f, K @ exact.beta + exact.b, rtol=1e-6, atol=1e-6)


def test_criteria_are_summed_over_outputs():
    for criterion in ("gcv", "loo"):
        together = solve_for_every_C(K.copy(), Y, WEIGHT, CANDIDATES, 0.0, criterion).curve
        apart = [
            solve_for_every_C(K.copy(), Y[:, [j]], WEIGHT, CANDIDATES, 0.0, criterion).curve
            for j in (0, 1)
        ]
        assert_allclose(together, sum(apart), rtol=1e-9)


@pytest.mark.parametrize("A", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("criterion", ["gcv", "loo"])
def test_semidefinite_matrix_with_equal_rows(A, criterion):
    again = np.arange(M) // 2  # rows in pairs that differ in their targets only
    pairs = K[np.ix_(again, again)]
    found = solve_for_every_C(pairs.copy(), Y, WEIGHT, CANDIDATES, A, criterion)
    assert np.isfinite(found.curve).all()
    exact = solve_cholesky(pairs.copy(), Y, WEIGHT, CANDIDATES[found.best], A)
    assert_allclose(pairs @ found.solution.beta + found.solution.b, pairs @ exact.beta + exact.b)


def test_indefinite_matrix_is_refused():
    with pytest.raises(NotPositiveDefinite, match="eigenvalue"):
        solve_for_every_C(K - 2 * np.eye(M), Y, WEIGHT, CANDIDATES, 0.0, "gcv")
    # candidates that make it definite are fine
    solve_for_every_C(K - 2 * np.eye(M), Y, np.ones(M), np.array([0.1, 0.2]), 0.0, "gcv")


def test_zero_matrix_fits_the_mean():
    found = solve_for_every_C(np.zeros((M, M)), Y, WEIGHT, CANDIDATES, 0.0, "loo")
    assert_allclose(found.solution.b, WEIGHT @ Y / WEIGHT.sum())
    without_row = (WEIGHT @ Y - WEIGHT[:, None] * Y) / (WEIGHT.sum() - WEIGHT)[:, None]
    assert_allclose(found.solution.loo, Y - without_row)


def test_weights_that_leave_no_degrees_of_freedom():
    with pytest.raises(ValueError, match="sample_weight"):
        solve_for_every_C(K.copy(), Y, WEIGHT / 1e3, CANDIDATES, 0.0, "gcv")
    # some candidates are flexible enough to be ruled out, stiff ones are not
    found = solve_for_every_C(K.copy(), Y, np.full(M, 0.2), CANDIDATES, 0.0, "gcv")
    assert np.isinf(found.curve[-1])
    assert np.isfinite(found.curve[found.best])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=M, max_size=M),
    st.sampled_from([0.0, 0.5, np.inf]),
)
def test_gcv_does_not_distinguish_weights_from_copies(copies, A):
    again = np.repeat(np.arange(M), copies)
    weighted = solve_for_every_C(K.copy(), Y, np.array(copies, float), CANDIDATES, A, "gcv")
    repeated = solve_for_every_C(
        K[np.ix_(again, again)].copy(), Y[again], np.ones(len(again)), CANDIDATES, A, "gcv"
    )
    assert_allclose(weighted.curve, repeated.curve, rtol=1e-6)
