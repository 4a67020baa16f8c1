"""SUMT, substitution and the penalty flow all end where equation (5) of zhou2016 does."""

from contextlib import nullcontext

import numpy as np
import pytest

from leansvm.dual import DualProblem, sequential
from leansvm.dual.kernel_matrix import StoredMatrix
from leansvm.dual.sequential import solve_penalty_flow, sumt
from leansvm.dual.smo import Quadratic, minimise, minimise_by_substitution
from leansvm.kernels import Kernel

TOL = 1e-9
# ten small problems: rows, gamma, C
TEN = [
    (40, 1.0, 1.0),
    (120, 1.0, 1.0),
    (120, 10.0, 1.0),
    (120, 0.3, 10.0),
    (120, 0.1, 100.0),
    (200, 0.5, 1.0),
    (200, 100.0, 1e4),
    (60, 1e-8, 1e-3),
    (60, 0.3, 1e-6),
    (3, 1.0, 1.0),
]


def problem_of(m, gamma, C, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=m) > 0.5, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    weight = rng.uniform(0.5, 2.0, m)
    K = Kernel("rbf", gamma=gamma).block(X, X)
    # eq. (5), bordered
    G = K + np.diag(1 / (C * weight))
    bordered = np.block([[G, np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
    exact = np.linalg.solve(bordered, np.append(y, 0.0))
    return K, y, weight, exact[:-1], exact[-1]


def assert_solution(beta, b, expected, bias, slack=1e-5):
    np.testing.assert_allclose(beta, expected, atol=slack * np.abs(expected).max())
    assert abs(b - bias) <= slack * max(1.0, abs(bias))


def penalty_flow(K, Y, weight, C, tol):
    problem = DualProblem(
        K, Kernel("precomputed"), Y, weight, 0.0, 10**9, lambda name: nullcontext()
    )
    return solve_penalty_flow(problem, C, tol=tol, max_iter=200_000)


@pytest.mark.parametrize("m, gamma, C", TEN)
def test_sumt(m, gamma, C):
    K, y, weight, expected, bias = problem_of(m, gamma, C)
    quadratic = Quadratic(y, 1 / (C * weight), weight)
    state, b, path = sumt(StoredMatrix(K), quadratic, tol=TOL, max_sweeps=20_000)
    assert state.status == "done"
    assert abs(state.beta.sum()) <= TOL * np.abs(state.beta).sum()
    assert_solution(state.beta, b, expected, bias)
    assert path[-1]["imbalance"] == abs(state.beta.sum())


@pytest.mark.parametrize("m, gamma, C", TEN)
def test_substitution(m, gamma, C):
    K, y, weight, expected, bias = problem_of(m, gamma, C)
    quadratic = Quadratic(y, 1 / (C * weight), weight)
    state, b = minimise_by_substitution(
        StoredMatrix(K), quadratic, K.sum(axis=1), tol=TOL, max_sweeps=20_000
    )
    assert state.status == "done"
    assert abs(state.beta.sum()) <= 1e-12 * np.abs(state.beta).sum()
    assert_solution(state.beta, b, expected, bias)


@pytest.mark.parametrize("m, gamma, C", TEN)
def test_penalty_flow(m, gamma, C):
    K, y, weight, expected, bias = problem_of(m, gamma, C)
    flow = penalty_flow(K, np.stack([y, 3 * y + 1], axis=1), weight, C, tol=TOL)
    assert flow.converged
    assert np.all(np.abs(flow.coef.sum(axis=0)) <= 1e-12 * np.abs(flow.coef).sum(axis=0))
    assert_solution(flow.coef[:, 0], flow.b[0], expected, bias)
    assert_solution(flow.coef[:, 1], flow.b[1], 3 * expected, 3 * bias + 1)


def test_penalty_flow_finds_a_bias_beyond_its_first_penalty():
    # b = 40 while max |y| is 10: with a linear trend through far away points
    x = np.linspace(10, 11, 30)[:, None]
    y = 40 - 4 * x[:, 0] + np.random.default_rng(0).normal(size=30) * 0.01
    y, K = y / 1.0, x @ x.T
    C = 100.0
    G = K + np.eye(30) / C
    bordered = np.block([[G, np.ones((30, 1))], [np.ones((1, 30)), np.zeros((1, 1))]])
    exact = np.linalg.solve(bordered, np.append(y, 0.0))
    assert abs(exact[-1]) > 3 * np.abs(y).max()
    flow = penalty_flow(K, y[:, None], np.ones(30), C, tol=1e-10)
    assert flow.converged
    assert abs(flow.b[0] - exact[-1]) < 1e-5 * abs(exact[-1])


def test_penalty_flow_does_not_chatter(monkeypatch):
    """Once on 1'beta = 0 it stays there: every iterate sums to zero to rounding."""
    K, y, weight, *_ = problem_of(120, 1.0, 1.0)
    sums = []

    def product(matrix, V):
        sums.append(abs(V.sum()) / max(np.abs(V).sum(), 1e-300))
        return matrix.values @ V

    monkeypatch.setattr(StoredMatrix, "product", product)
    assert penalty_flow(K, y[:, None], weight, 1.0, tol=TOL).converged
    assert max(sums[3:]) < 1e-12


def test_penalty_flow_refuses_a_matrix_without_a_minimum():
    K = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    y = np.array([[1.0], [-1.0], [1.0]])
    with pytest.raises(np.linalg.LinAlgError, match="diverged"):
        penalty_flow(K, y, np.ones(3), 1e3, tol=TOL)
    with pytest.raises(np.linalg.LinAlgError, match="row 1"):
        penalty_flow(np.diag([1.0, -1.0, 1.0]), y, np.ones(3), 1e3, tol=TOL)


def test_imbalance_and_distance_fall_along_sumt(monkeypatch):
    """The paper's Figs. 4 and 5: |sum(lambda y)| falls, lambda goes to the classical solution."""
    K, y, weight, expected, _ = problem_of(150, 1.0, 1.0)
    quadratic = Quadratic(y, 1 / weight, weight)
    distances = []

    def watch(*args, **options):
        state = minimise(*args, **options)
        distances.append(np.linalg.norm(state.beta - expected))
        return state

    monkeypatch.setattr(sequential, "minimise", watch)
    *_, path = sumt(StoredMatrix(K), quadratic, tol=1e-8, max_sweeps=100_000, rho=0.3)
    imbalances = [step["imbalance"] for step in path]
    assert len(path) > 10
    assert np.all(np.diff(imbalances) < 0)
    # while A is huge nothing changes; from then on the distance falls at every step
    assert np.all(np.diff(distances) < 1e-6)
    assert distances[-1] < 1e-6 * distances[0]


def test_the_substituted_matrix_is_that_of_the_appendix():
    """W = G - (11'G + G11') / m + d 11', positive definite for d > 1'G1 / m^2 (alpha = 0)."""
    K, y, weight, expected, _ = problem_of(50, 0.5, 2.0)
    m, one = 50, np.ones((50, 1))
    G = K + np.diag(1 / (2.0 * weight))
    d = 2 * G.sum() / m**2
    W = G - (one @ one.T @ G + G @ one @ one.T) / m + d * one @ one.T
    assert np.linalg.eigvalsh(W)[0] > 0
    np.testing.assert_allclose(np.linalg.solve(W, y - y.mean()), expected, atol=1e-10)
    # the paper's alpha-term has a gradient at the solution
    gradient = one @ (one.T @ G @ expected[:, None])
    assert np.abs(gradient).max() > 1e-3
