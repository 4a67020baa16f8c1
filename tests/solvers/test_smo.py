"""2SMO and SesquiSMO against direct solves and scipy's QP, from a matrix and from a row cache."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from leansvm.kernels import Kernel
from leansvm.solvers import DualProblem, NotPositiveDefinite, solve_sesqui
from leansvm.solvers._dual import solve_cholesky
from leansvm.solvers._rows import CachedRows, MatrixRows
from leansvm.solvers.sesqui import minimise_with_bias
from leansvm.solvers.smo import WORKING_SETS, Quadratic, minimise

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


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


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
@pytest.mark.parametrize("working_set, block", [("gain", 32), ("gain", 1), ("violation", 8)])
def test_2smo_solves_the_relaxed_system(m, gamma, C, A, working_set, block):
    X, y, weight = problem_of(m)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    system = K + 1 / A + np.diag(1 / (C * weight))
    expected = np.linalg.solve(system, y)
    state = minimise(
        MatrixRows(K),
        quadratic_of(y, weight, C, A),
        tol=TOL,
        max_sweeps=20_000,
        working_set=working_set,
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
    quadratic = quadratic_of(y, np.ones(30), C, A)
    rows, beta = MatrixRows(K), np.zeros(30)
    # budgets are checked after a sweep of as many updates as there are rows
    state = minimise(rows, quadratic, tol=1e-15, max_sweeps=1, block=1, working_set="violation")
    for _ in range(30):
        f = (K + 1 / A) @ beta
        violation = 1 - y * f - y * beta / C
        k = int(np.argmax(np.abs(violation)))
        beta[k] += y[k] * violation[k] / (K[k, k] + 1 / A + 1 / C)
    np.testing.assert_allclose(state.beta, beta, atol=1e-12)


def test_cyclic_single_updates_converge_to_the_same_point():
    X, y, weight = problem_of(80)
    K = Kernel("rbf", gamma=2.0).block(X, X)
    quadratic = quadratic_of(y, weight, 1.0, 1e4)
    states = [
        minimise(MatrixRows(K), quadratic, tol=TOL, max_sweeps=500, working_set=w, block=b)
        for w in WORKING_SETS
        for b in (1, 7)
    ]
    assert all(state.status == "done" for state in states)
    for state in states[1:]:
        np.testing.assert_allclose(state.beta, states[0].beta, atol=1e-7)


@pytest.mark.parametrize("slots", [1, 5, 40, 1000])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_from_a_cache_give_the_solution_of_the_matrix(slots, sparse):
    X, y, weight = problem_of(100)
    kernel = Kernel("rbf", gamma=0.5)
    quadratic = quadratic_of(y, weight, 3.0, 1e4)
    rows = CachedRows(csr_array(X) if sparse else X, kernel, slots * 100 * 8)
    assert 1 <= rows.n_slots + rows.block <= max(slots, 2) + 100 * (slots > 100)
    state = minimise(rows, quadratic, tol=TOL, max_sweeps=500)
    whole = minimise(MatrixRows(kernel.block(X, X)), quadratic, tol=TOL, max_sweeps=500)
    assert state.status == "done"
    np.testing.assert_allclose(state.beta, whole.beta, atol=1e-7)


def test_the_cache_evicts_the_least_recently_used_rows():
    X, *_ = problem_of(10)
    kernel = Kernel("rbf", gamma=0.5)
    K = kernel.block(X, X)
    pool = 8 * (8 * 1) ** 2
    rows = CachedRows(X, kernel, pool + 4 * 10 * 8)
    assert (rows.n_slots, rows.block) == (3, 1)
    f = np.zeros(10)

    def add(*which):
        before = rows.misses
        rows.subtract(np.array(which), -np.ones(len(which)), f)
        return rows.misses - before

    assert add(0, 1, 2) == 3
    assert add(0) == 0
    assert add(3) == 1  # in the place of 1 or 2, the oldest
    assert add(0, 3) == 0
    assert add(4, 5) == 2
    assert add(3) == 0 or add(0) == 0
    assert add(6, 7, 8, 9) == 4  # more than there are slots
    counted = np.zeros(10)
    for which in [(0, 1, 2), (0,), (3,), (0, 3), (4, 5), (3,), (6, 7, 8, 9)]:
        counted[list(which)] += 1
    np.testing.assert_allclose(f, counted @ K)
    with_float32 = CachedRows(X, kernel, pool + 4 * 10 * 8, dtype=np.float32)
    assert (with_float32.n_slots, with_float32.block) == (7, 1)


def test_a_float32_matrix_is_solved_as_it_is():
    X, y, weight = problem_of(150)
    K = Kernel("rbf", gamma=1.0).block(X, X).astype(np.float32)
    quadratic = quadratic_of(y, weight, 1.0, 1e4)
    state = minimise(MatrixRows(K), quadratic, tol=TOL, max_sweeps=500)
    exact = np.linalg.solve(K.astype(np.float64) + 1e-4 + np.diag(1 / weight), y)
    assert state.status == "done"
    np.testing.assert_allclose(state.beta, exact, atol=1e-7)


def test_warm_start_from_the_solution_ends_at_once():
    X, y, weight = problem_of(90)
    rows = MatrixRows(Kernel("rbf", gamma=1.0).block(X, X))
    quadratic = quadratic_of(y, weight, 1.0, 1.0)
    state = minimise(rows, quadratic, tol=TOL, max_sweeps=100)
    beta, updates = state.beta.copy(), state.updates
    again = minimise(rows, quadratic, state, tol=TOL, max_sweeps=100)
    assert again.updates <= updates + 1
    np.testing.assert_array_equal(again.beta, beta)


def test_giving_up_and_stopping():
    X, y, weight = problem_of(200)
    smooth = MatrixRows(Kernel("rbf", gamma=1e-3).block(X, X))
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
    with pytest.raises(NotPositiveDefinite, match="positive definite"):
        minimise(
            MatrixRows(K),
            quadratic_of(np.array([1.0, -1.0, 1.0]), np.ones(3), 1e3, 1e4),
            tol=TOL,
            max_sweeps=100,
        )


def test_unknown_working_set_is_named():
    _, y, weight = problem_of(5)
    with pytest.raises(ValueError, match="working_set must be one of"):
        minimise(
            MatrixRows(np.eye(5)),
            quadratic_of(y, weight, 1.0, 1.0),
            tol=TOL,
            max_sweeps=1,
            working_set="newest",
        )


# ---------------------------------------------------------------------------- SesquiSMO


def hinge_qp(K, y, weight, C, A):
    """theta >= 0 by scipy's L-BFGS-B, or SLSQP with sum(theta y) = 0 for A = 0."""
    Q = np.outer(y, y) * (K + (1 / A if A else 0.0)) + np.diag(1 / (C * weight))
    value = lambda t: 0.5 * t @ Q @ t - t.sum()  # noqa: E731
    gradient = lambda t: Q @ t - 1  # noqa: E731
    start = np.zeros(len(y))
    bounds = [(0, None)] * len(y)
    if A:
        options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 100_000, "maxfun": 100_000}
        found = minimize(value, start, jac=gradient, bounds=bounds, options=options)
    else:
        balance = {"type": "eq", "fun": lambda t: t @ y, "jac": lambda t: y}
        found = minimize(
            value,
            start,
            jac=gradient,
            bounds=bounds,
            constraints=balance,
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
    return y * found.x, -found.fun


def solve_hinge(X, y, weight, C, A, gamma, budget=10**9, tol=TOL):
    from contextlib import nullcontext

    problem = DualProblem(
        X,
        Kernel("rbf", gamma=gamma),
        y[:, None],
        weight,
        A,
        budget,
        lambda name: nullcontext(),
    )
    return solve_sesqui(problem, C, tol=tol, max_iter=20_000)


@pytest.mark.parametrize("m, gamma, C, A", TEN)
def test_sesquismo_solves_the_quadratic_programme(m, gamma, C, A):
    X, y, weight = problem_of(m)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    expected, optimum = hinge_qp(K, y, weight, C, A)
    found = solve_hinge(X, y, weight, C, A, gamma)
    assert found.converged and (y * found.beta[:, 0] >= 0).all()
    assert abs(found.objective - optimum) <= 1e-6 * optimum
    assert abs(found.gap) <= 1e-6 * optimum
    np.testing.assert_allclose(found.beta[:, 0], expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("m, gamma, C", [(40, 1.0, 1.0), (60, 0.3, 10.0), (50, 5.0, 100.0)])
def test_sesquismo_with_a_free_bias(m, gamma, C):
    X, y, weight = problem_of(m)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    expected, optimum = hinge_qp(K, y, weight, C, 0.0)
    found = solve_hinge(X, y, weight, C, 0.0, gamma)
    assert found.converged
    assert abs(found.beta.sum()) <= 1e-10 * np.abs(found.beta).sum()
    assert abs(found.objective - optimum) <= 1e-6 * optimum and abs(found.gap) <= 1e-6 * optimum
    np.testing.assert_allclose(found.beta[:, 0], expected, atol=1e-3 * np.abs(expected).max())


def test_sesquismo_without_a_bias_and_from_a_cache():
    X, y, weight = problem_of(400)
    whole = solve_hinge(X, y, weight, 1.0, np.inf, 1.0)
    assert whole.b[0] == 0
    small = solve_hinge(X, y, weight, 1.0, np.inf, 1.0, budget=700_000)
    np.testing.assert_allclose(small.beta, whole.beta, atol=1e-7)


def test_where_every_row_is_a_support_vector_both_algorithms_agree():
    X, y, weight = problem_of(100)
    K = Kernel("rbf", gamma=50.0).block(X, X)
    both = [
        minimise(
            MatrixRows(K),
            quadratic_of(y, weight, 1.0, 1e4, bounded=bounded),
            tol=TOL,
            max_sweeps=100,
        )
        for bounded in (False, True)
    ]
    np.testing.assert_allclose(both[0].beta, both[1].beta, atol=1e-8)


def test_free_bias_of_free_multipliers_by_secant_steps():
    X, y, weight = problem_of(100)
    K = Kernel("rbf", gamma=0.5).block(X, X)
    expected = solve_cholesky(K.copy(), y[:, None], weight, 2.0, 0.0)
    state, b = minimise_with_bias(
        MatrixRows(K), Quadratic(y, 1 / (2.0 * weight), weight), 0.0, tol=TOL, max_sweeps=5000
    )
    np.testing.assert_allclose(state.beta, expected.beta[:, 0], atol=1e-6)
    assert abs(b - expected.b[0]) < 1e-6


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
    rows = MatrixRows(K)
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
    one = minimise(MatrixRows(K), quadratic_of(y, weight, 1.0, 10.0), tol=1e-10, max_sweeps=2000)
    other = minimise(
        MatrixRows(K[np.ix_(order, order)]),
        quadratic_of(y[order], weight[order], 1.0, 10.0),
        tol=1e-10,
        max_sweeps=2000,
    )
    np.testing.assert_allclose(other.beta, one.beta[order], atol=1e-7)
