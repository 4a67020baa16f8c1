"""All C from one eigen-decomposition, against a solve and a refit for every C."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from leansvm._phases import Phases
from leansvm.dual import DualProblem, cholesky
from leansvm.kernels import Kernel
from leansvm.ridge import eigen
from leansvm.ridge.eigen import solve_for_every_C

rng = np.random.default_rng(4)
M = 25
X = rng.normal(size=(M, 2))
K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
Y = np.column_stack([np.sin(X[:, 0]) + 3, rng.normal(size=M)])
WEIGHT = rng.uniform(0.5, 3.0, size=M)
CANDIDATES = np.logspace(-5, 6, 12)
every_penalty = pytest.mark.parametrize("A", [0.0, 1e-8, 0.5, 1e5, np.inf])
every_weight = pytest.mark.parametrize("weight", [np.ones(M), WEIGHT], ids=["equal", "weighted"])


def closed_form(K, Y, weight, C, A, **options):
    """Solve for one C by the factor of the kernel matrix."""
    problem = DualProblem(K, Kernel("precomputed"), Y, weight, A, 10**9, Phases())
    return cholesky.closed_form(problem, K, C, **options)


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
    best = np.argmin(found.curve)
    assert CANDIDATES[best] == found.C
    assert found.curve[best] == found.error


@every_penalty
@every_weight
def test_loo_curve_against_the_dual(A, weight):
    found = solve_for_every_C(K.copy(), Y, weight, CANDIDATES, A, "loo")
    for C, value in zip(CANDIDATES, found.curve, strict=True):
        left_out = closed_form(K.copy(), Y, weight, C, A, left_out=True).left_out
        assert_allclose(value, np.sum(weight[:, None] * left_out**2) / weight.sum(), rtol=1e-5)
    best = np.argmin(found.curve)
    assert CANDIDATES[best] == found.C
    assert found.curve[best] == found.error


@every_penalty
@every_weight
@pytest.mark.parametrize("criterion", ["gcv", "loo"])
def test_solution_at_the_best_candidate(A, weight, criterion):
    found = solve_for_every_C(K.copy(), Y, weight, CANDIDATES, A, criterion)
    exact = closed_form(K.copy(), Y, weight, found.C, A, left_out=True)
    scale = np.abs(exact.coef).max()
    assert_allclose(found.coef, exact.coef, rtol=1e-6, atol=1e-7 * scale)
    assert_allclose(found.b, exact.b, rtol=1e-6, atol=1e-7)
    assert_allclose(found.left_out, exact.left_out, rtol=1e-6, atol=1e-7)


@every_penalty
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e7])
def test_extreme_candidates(A, C):
    found = solve_for_every_C(K.copy(), Y, WEIGHT, np.array([C]), A, "loo")
    exact = closed_form(K.copy(), Y, WEIGHT, C, A)
    f = K @ found.coef + found.b
    assert_allclose(f, K @ exact.coef + exact.b, rtol=1e-6, atol=1e-6)


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
    exact = closed_form(pairs.copy(), Y, WEIGHT, found.C, A)
    assert_allclose(pairs @ found.coef + found.b, pairs @ exact.coef + exact.b)


def test_indefinite_matrix_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="eigenvalue"):
        solve_for_every_C(K - 2 * np.eye(M), Y, WEIGHT, CANDIDATES, 0.0, "gcv")
    # candidates that make it definite are fine
    solve_for_every_C(K - 2 * np.eye(M), Y, np.ones(M), np.array([0.1, 0.2]), 0.0, "gcv")


def test_zero_matrix_fits_the_mean():
    found = solve_for_every_C(np.zeros((M, M)), Y, WEIGHT, CANDIDATES, 0.0, "loo")
    assert_allclose(found.b, WEIGHT @ Y / WEIGHT.sum())
    without_row = (WEIGHT @ Y - WEIGHT[:, None] * Y) / (WEIGHT.sum() - WEIGHT)[:, None]
    assert_allclose(found.left_out, Y - without_row)


def test_weights_that_leave_no_degrees_of_freedom():
    with pytest.raises(ValueError, match="sample_weight"):
        solve_for_every_C(K.copy(), Y, WEIGHT / 1e3, CANDIDATES, 0.0, "gcv")
    # some candidates are flexible enough to be ruled out, stiff ones are not
    found = solve_for_every_C(K.copy(), Y, np.full(M, 0.2), CANDIDATES, 0.0, "gcv")
    assert np.isinf(found.curve[-1])
    assert np.isfinite(found.error)


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


def test_a_criterion_that_is_not_a_number_is_never_the_best(monkeypatch):
    curve = np.full(len(CANDIDATES), 2.0)
    curve[0], curve[3] = np.nan, 1.0
    monkeypatch.setattr(eigen, "_press", lambda *_: curve)
    found = solve_for_every_C(K.copy(), Y, WEIGHT, CANDIDATES, 0.0, "loo")
    assert CANDIDATES[3] == found.C
    assert found.error == 1.0
