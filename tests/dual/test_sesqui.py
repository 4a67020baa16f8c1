"""SesquiSMO against scipy's quadratic programmes, from a matrix and from a cache of rows."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy.optimize import minimize

from leansvm.dual import DualProblem
from leansvm.dual.cholesky import solve_cholesky
from leansvm.dual.kernel_matrix import StoredMatrix
from leansvm.dual.sequential import minimise_with_bias, solve_sesqui
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
    assert found.converged and (y * found.coef[:, 0] >= 0).all()
    assert abs(found.objective - optimum) <= 1e-6 * optimum
    assert abs(found.gap) <= 1e-6 * optimum
    np.testing.assert_allclose(found.coef[:, 0], expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("m, gamma, C", [(40, 1.0, 1.0), (60, 0.3, 10.0), (50, 5.0, 100.0)])
def test_sesquismo_with_a_free_bias(m, gamma, C):
    X, y, weight = problem_of(m)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    expected, optimum = hinge_qp(K, y, weight, C, 0.0)
    found = solve_hinge(X, y, weight, C, 0.0, gamma)
    assert found.converged
    assert abs(found.coef.sum()) <= 1e-10 * np.abs(found.coef).sum()
    assert abs(found.objective - optimum) <= 1e-6 * optimum and abs(found.gap) <= 1e-6 * optimum
    np.testing.assert_allclose(found.coef[:, 0], expected, atol=1e-3 * np.abs(expected).max())


def test_sesquismo_without_a_bias_and_from_a_cache():
    X, y, weight = problem_of(400)
    whole = solve_hinge(X, y, weight, 1.0, np.inf, 1.0)
    assert whole.b[0] == 0
    small = solve_hinge(X, y, weight, 1.0, np.inf, 1.0, budget=700_000)
    np.testing.assert_allclose(small.coef, whole.coef, atol=1e-7)


def test_where_every_row_is_a_support_vector_both_algorithms_agree():
    X, y, weight = problem_of(100)
    K = Kernel("rbf", gamma=50.0).block(X, X)
    both = [
        minimise(
            StoredMatrix(K),
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
    given = Kernel("precomputed")
    task = DualProblem(K, given, y[:, None], weight, 0.0, 10**9, lambda name: nullcontext())
    expected = solve_cholesky(task, 2.0)
    state, b = minimise_with_bias(
        StoredMatrix(K), Quadratic(y, 1 / (2.0 * weight), weight), 0.0, tol=TOL, max_sweeps=5000
    )
    np.testing.assert_allclose(state.beta, expected.coef[:, 0], atol=1e-6)
    assert abs(b - expected.b[0]) < 1e-6
