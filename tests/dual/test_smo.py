"""2SMO against direct solves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leansvm.dual.kernel_matrix import StoredMatrix
from leansvm.dual.smo import Quadratic, minimise
from leansvm.kernels import Kernel

TOL = 1e-9


def problem_of(m, d=4, seed=0, *, copies=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    X[:copies] = X[copies : 2 * copies]
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=m) > 0.2, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y, rng.uniform(0.5, 2.0, m)


def quadratic_of(y, weight, C, A, **more):
    return Quadratic(y, 1 / (C * weight), weight, c=1 / A, **more)


# ten small problems: rows, gamma, C, A
TEN = [
    (40, 1.0, 1.0, 1e4),
    (120, 1.0, 1.0, 1.0),
    (120, 10.0, 1.0, 1e4),
    (120, 0.1, 10.0, 1e4),
    (120, 0.1, 100.0, 0.5),
    (200, 0.5, 1.0, 1e-3),
    (200, 100.0, 1e4, 10.0),
    (60, 1e-8, 1e-3, 1.0),
    (60, 0.3, 1e-6, 1e4),
    (2, 1.0, 1.0, 1.0),
]


@pytest.mark.parametrize("m, gamma, C, A", TEN)
@pytest.mark.parametrize("block", [1, 8, 32])
def test_2smo_solves_the_relaxed_system(m, gamma, C, A, block):
    X, y, weight = problem_of(m)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    system = K + 1 / A + np.diag(1 / (C * weight))
    expected = np.linalg.solve(system, y)
    state = minimise(
        StoredMatrix(K),
        quadratic_of(y, weight, C, A),
        tol=TOL,
        max_sweeps=20_000,
        block=block,
    )
    assert state.status == "done"
    assert np.linalg.norm(y - system @ state.beta) <= 10 * TOL * np.linalg.norm(y)
    # the distance of the solutions is at most the residual over the least eigenvalue
    bound = 10 * TOL * np.linalg.norm(y) / np.linalg.eigvalsh(system)[0]
    assert np.linalg.norm(state.beta - expected) <= bound
    np.testing.assert_allclose(state.f, K @ state.beta, atol=1e-9 * np.abs(state.beta).sum())


def test_one_update_is_the_corrected_rule_31():
    X, y, _ = problem_of(30)
    C, A = 2.0, 5.0
    K = Kernel("rbf", gamma=1.0).block(X, X)
    np.fill_diagonal(K, 1.0)  # so that the largest gain is the paper's largest violation
    quadratic = quadratic_of(y, np.ones(30), C, A)
    rows, beta = StoredMatrix(K), np.zeros(30)
    # budgets are checked after a sweep of as many updates as there are rows
    state = minimise(rows, quadratic, tol=1e-15, max_sweeps=1, block=1)
    for _ in range(30):
        f = (K + 1 / A) @ beta
        violation = 1 - y * f - y * beta / C
        k = int(np.argmax(np.abs(violation)))
        beta[k] += y[k] * violation[k] / (K[k, k] + 1 / A + 1 / C)
    np.testing.assert_allclose(state.beta, beta, atol=1e-12)


def test_blocks_of_every_size_converge_to_the_same_point():
    X, y, weight = problem_of(80)
    K = Kernel("rbf", gamma=2.0).block(X, X)
    quadratic = quadratic_of(y, weight, 1.0, 1e4)
    states = [
        minimise(StoredMatrix(K), quadratic, tol=TOL, max_sweeps=500, block=block)
        for block in (1, 7, 16, 80)
    ]
    assert all(state.status == "done" for state in states)
    for state in states[1:]:
        np.testing.assert_allclose(state.beta, states[0].beta, atol=1e-7)


def test_a_float32_matrix_is_solved_as_it_is():
    X, y, weight = problem_of(150)
    K = Kernel("rbf", gamma=1.0).block(X, X).astype(np.float32)
    quadratic = quadratic_of(y, weight, 1.0, 1e4)
    state = minimise(StoredMatrix(K), quadratic, tol=TOL, max_sweeps=500)
    exact = np.linalg.solve(K.astype(np.float64) + 1e-4 + np.diag(1 / weight), y)
    assert state.status == "done"
    np.testing.assert_allclose(state.beta, exact, atol=1e-7)


def test_warm_start_from_the_solution_ends_at_once():
    X, y, weight = problem_of(90)
    rows = StoredMatrix(Kernel("rbf", gamma=1.0).block(X, X))
    quadratic = quadratic_of(y, weight, 1.0, 1.0)
    state = minimise(rows, quadratic, tol=TOL, max_sweeps=100)
    beta, updates = state.beta.copy(), state.updates
    again = minimise(rows, quadratic, state, tol=TOL, max_sweeps=100)
    assert again.updates <= updates + 1
    np.testing.assert_array_equal(again.beta, beta)


def test_giving_up_and_stopping():
    X, y, weight = problem_of(200)
    smooth = StoredMatrix(Kernel("rbf", gamma=1e-3).block(X, X))
    quadratic = quadratic_of(y, weight, 1e6, 1.0)
    state = minimise(smooth, quadratic, tol=1e-12, max_sweeps=1000, give_up_after=8)
    assert state.status == "slow" and state.sweeps <= 12
    state = minimise(smooth, quadratic, tol=1e-12, max_sweeps=3)
    assert state.status == "stalled" and state.sweeps <= 5
    state = minimise(
        smooth, quadratic, tol=1e-12, max_sweeps=1000, on_sweep=lambda sweep, _: sweep >= 2
    )
    assert state.status == "stopped"


def test_an_indefinite_kernel_is_refused():
    K = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        minimise(
            StoredMatrix(K),
            quadratic_of(np.array([1.0, -1.0, 1.0]), np.ones(3), 1e3, 1e4),
            tol=TOL,
            max_sweeps=100,
        )


# ---------------------------------------------------------------------------- invariants


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(2, 60),
    log_gamma=st.floats(-3, 3),
    log_C=st.floats(-3, 3),
    log_A=st.floats(-2, 4),
    copies=st.integers(0, 20),
    bounded=st.booleans(),
    block=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_every_minimum_satisfies_the_conditions(
    m, log_gamma, log_C, log_A, copies, bounded, block, seed
):
    X, y, weight = problem_of(m, seed=seed, copies=min(copies, m // 2))
    C, A = 10.0**log_C, 10.0**log_A
    K = Kernel("rbf", gamma=10.0**log_gamma).block(X, X)
    quadratic = quadratic_of(y, weight, C, A, bounded=bounded)
    rows = StoredMatrix(K)
    state = minimise(rows, quadratic, tol=1e-6, max_sweeps=400, block=block)
    Q = K + 1 / A + np.diag(1 / (C * weight))
    v = y - Q @ state.beta
    if bounded:
        assert (y * state.beta >= 0).all()
        v[(state.beta == 0) & (v * y < 0)] = 0.0
    residual = np.sqrt(np.sum(weight * v**2) / np.sum(weight))
    assert residual <= 1.1e-6 or state.status == "stalled"
    # the objective never rises, so it is at most that of zero
    assert 0.5 * state.beta @ Q @ state.beta - y @ state.beta <= 1e-12


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), gamma=st.floats(0.3, 5.0))
def test_permuting_rows_permutes_the_solution(seed, gamma):
    X, y, weight = problem_of(70, seed=seed)
    order = np.random.default_rng(seed).permutation(70)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    one = minimise(StoredMatrix(K), quadratic_of(y, weight, 1.0, 10.0), tol=1e-10, max_sweeps=2000)
    other = minimise(
        StoredMatrix(K[np.ix_(order, order)]),
        quadratic_of(y[order], weight[order], 1.0, 10.0),
        tol=1e-10,
        max_sweeps=2000,
    )
    np.testing.assert_allclose(other.beta, one.beta[order], atol=1e-7)
