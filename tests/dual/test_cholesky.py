"""The closed-form dual against dense solves of the bordered system and refitting."""

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.dual import DualProblem, cholesky
from leansvm.dual.problem import bias_from, certified
from leansvm.kernels import Kernel

rng = np.random.default_rng(2)
M = 30
FACTOR = rng.normal(size=(M, 12))
K = FACTOR @ FACTOR.T  # semidefinite, of rank 12
Y = rng.normal(size=(M, 3)) + np.array([0.0, 5.0, -100.0])
WEIGHT = rng.uniform(0.1, 4.0, size=M)
every_penalty = pytest.mark.parametrize("A", [0.0, 1e-12, 0.3, 1e6, np.inf])


def problem(Y, weight, A):
    given = Kernel("precomputed")
    return DualProblem(np.empty((0, 0)), given, Y, weight, A, 10**9, lambda name: nullcontext())


def closed_form(K, Y, weight, C, A, **options):
    return cholesky.closed_form(problem(Y, weight, A), K, C, **options)


def bordered(K, Y, weight, C, A):
    m = len(K)
    G = K + np.diag(1 / (C * weight))
    if np.isinf(A):
        return np.linalg.solve(G, Y), np.zeros(Y.shape[1])
    system = np.block([[G, np.ones((m, 1))], [np.ones((1, m)), np.full((1, 1), -A)]])
    solved = np.linalg.solve(system, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return solved[:-1], solved[-1]


def primal(K, beta, b, Y, weight, C, A):
    loss = 0.5 * C * np.sum(weight[:, None] * (Y - K @ beta - b) ** 2)
    return 0.5 * np.sum(beta * (K @ beta)) + (0 if np.isinf(A) else 0.5 * A * np.sum(b**2)) + loss


@every_penalty
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
def test_solution_against_the_bordered_system(A, C):
    solution = closed_form(K.copy(), Y, WEIGHT, C, A)
    beta, b = bordered(K, Y, WEIGHT, C, A)
    assert_allclose(solution.coef, beta, rtol=1e-8, atol=1e-9 * np.abs(beta).max())
    assert_allclose(solution.b, b, rtol=1e-8, atol=1e-9)
    assert solution.residual < 1e-10
    assert solution.converged
    assert solution.iterations == 1
    assert solution.left_out is None


@every_penalty
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
def test_left_out_residuals_against_refitting(A, C):
    solution = closed_form(K.copy(), Y, WEIGHT, C, A, left_out=True)
    for i in range(M):
        rest = np.delete(np.arange(M), i)
        beta, b = bordered(K[np.ix_(rest, rest)], Y[rest], WEIGHT[rest], C, A)
        expected = Y[i] - K[i, rest] @ beta - b
        assert_allclose(solution.left_out[i], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("A", [0.0, 1.0, np.inf])
def test_left_out_residual_of_a_row_that_outweighs_all_others(A):
    weight = np.ones(M)
    weight[4] = 1e8
    solution = closed_form(K.copy(), Y, weight, 1.0, A, left_out=True)
    rest = np.delete(np.arange(M), 4)
    beta, b = bordered(K[np.ix_(rest, rest)], Y[rest], weight[rest], 1.0, A)
    assert_allclose(solution.left_out[4], Y[4] - K[4, rest] @ beta - b, rtol=1e-5)


def test_only_the_lower_triangle_and_the_diagonal_are_overwritten():
    work = K.copy()
    closed_form(work, Y, WEIGHT, 1.0, 0.0)
    upper = np.triu_indices(M, 1)
    assert_array_equal(work[upper], K[upper])


def test_targets_and_weights_are_left_unchanged():
    targets, weight = Y.copy(), WEIGHT.copy()
    closed_form(K.copy(), targets, weight, 1.0, 0.0, left_out=True)
    assert_array_equal(targets, Y)
    assert_array_equal(weight, WEIGHT)


@pytest.mark.parametrize("left_out", [False, True])
def test_an_indefinite_matrix_is_refused(left_out):
    with pytest.raises(np.linalg.LinAlgError, match="row"):
        closed_form(K - 20 * np.eye(M), Y, WEIGHT, 1.0, 0.0, left_out=left_out)


def test_refinement_reaches_rounding_where_the_system_is_ill_conditioned():
    smooth = np.exp(-1e-4 * np.subtract.outer(np.arange(M), np.arange(M)) ** 2 / 10)
    solution = closed_form(smooth.copy(), Y, np.ones(M), 1e7, 0.0)
    r = Y - solution.b - smooth @ solution.coef - solution.coef / 1e7
    assert np.linalg.norm(r) < 1e-9 * np.linalg.norm(Y)
    assert_allclose(solution.residual, np.linalg.norm(r) / np.linalg.norm(Y), rtol=0.5, atol=1e-14)


@every_penalty
def test_gap_bounds_the_distance_to_the_minimum(A):
    C = 3.0
    best = closed_form(K.copy(), Y, WEIGHT, C, A)
    minimum = primal(K, best.coef, best.b, Y, WEIGHT, C, A)
    for size in (1e-6, 1e-3, 1.0):
        beta = best.coef + size * rng.normal(size=best.coef.shape)
        # keep what the bias fixes: sum(beta) = A b
        if A == 0:
            beta -= beta.mean(axis=0)
        b = best.b if A == 0 else bias_of(beta, A)
        found = certified(problem(Y, WEIGHT, A), C, "", beta, b, K @ beta, 1e-9, "at {residual}")
        r = Y - b - K @ beta - beta / (C * WEIGHT)[:, None]
        root = np.sqrt(WEIGHT)[:, None]
        assert_allclose(found.residual, np.linalg.norm(root * r) / np.linalg.norm(root * Y))
        assert found.advice == "" if found.converged else f"at {found.residual:.1e}"
        assert_allclose(found.objective, primal(K, beta, b, Y, WEIGHT, C, A), rtol=1e-12)
        distance = found.objective - minimum
        assert -1e-12 * minimum <= distance <= found.gap * (1 + 1e-6) + 1e-12 * minimum


def bias_of(beta, A):
    return np.zeros(beta.shape[1]) if np.isinf(A) else beta.sum(axis=0) / A


def test_bias_from_sums():
    assert_allclose(bias_from(4.0, np.array([2.0, -8.0]), 0.0), [0.5, -2.0])
    assert_allclose(bias_from(4.0, np.array([2.0, -8.0]), 1.0), [0.4, -1.6])
    assert_array_equal(bias_from(4.0, np.array([2.0, -8.0]), np.inf), [0.0, 0.0])


def test_targets_that_are_all_zero():
    solution = closed_form(K.copy(), np.zeros((M, 2)), WEIGHT, 1.0, 0.0, left_out=True)
    assert_array_equal(solution.coef, 0.0)
    assert_array_equal(solution.b, 0.0)
    assert_array_equal(solution.left_out, 0.0)
    assert solution.residual == 0.0
    assert solution.gap == 0.0


def test_one_row():
    solution = closed_form(np.array([[2.0]]), np.array([[6.0]]), np.ones(1), 1.0, np.inf)
    assert_allclose(solution.coef, 2.0)  # 6 / (2 + 1)
    free = closed_form(np.array([[2.0]]), np.array([[6.0]]), np.ones(1), 1.0, 0.0)
    assert_allclose(free.b, 6.0)
    assert_allclose(free.coef, 0.0, atol=1e-15)
