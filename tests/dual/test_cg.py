"""Preconditioned conjugate gradients against dense solves, stored and by blocks."""

from contextlib import nullcontext

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from leansvm.basis.cholesky import FactorRows, pivoted_cholesky
from leansvm.dual import DualProblem, cg
from leansvm.dual.cg import Preconditioner, conjugate_gradients, solve_cg
from leansvm.dual.cholesky import solve_cholesky
from leansvm.dual.kernel_matrix import StoredMatrix
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

rng = np.random.default_rng(6)
M = 150
X = rng.normal(size=(M, 3))
KERNEL = Kernel("rbf", gamma=0.3)
K = KERNEL.block(X, X)
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2 + 10, rng.normal(size=M)])
WEIGHT = rng.uniform(0.1, 5.0, size=M)
every_penalty = pytest.mark.parametrize("A", [0.0, 0.5, np.inf])


def bordered(K, Y, weight, C, A):
    m = len(K)
    G = K + np.diag(1 / (C * weight))
    if np.isinf(A):
        return np.linalg.solve(G, Y), np.zeros(Y.shape[1])
    system = np.block([[G, np.ones((m, 1))], [np.ones((1, m)), np.full((1, 1), -A)]])
    solved = np.linalg.solve(system, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return solved[:-1], solved[-1]


def problem(A=0.0, budget=10**9, X=X, kernel=KERNEL, Y=Y, weight=WEIGHT, **options):
    return DualProblem(X, kernel, Y, weight, A, budget, lambda name: nullcontext(), **options)


@pytest.fixture
def tight_budget():
    """One byte less than a stored kernel matrix takes (one thread: each has tiles of its own)."""
    with threadpool_limits(1):
        yield solve_cg(problem(), 1.0, tol=1e-2, max_iter=1).bytes - 1


def primal(beta, b, C, A):
    loss = 0.5 * C * np.sum(WEIGHT[:, None] * (Y - K @ beta - b) ** 2)
    return 0.5 * np.sum(beta * (K @ beta)) + (0 if np.isinf(A) else 0.5 * A * np.sum(b**2)) + loss


@every_penalty
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("weight", [np.ones(M), WEIGHT], ids=["equal", "weighted"])
def test_against_the_bordered_system(A, C, weight):
    solution = solve_cg(problem(A, weight=weight), C, tol=1e-11, max_iter=500)
    beta, b = bordered(K, Y, weight, C, A)
    assert_allclose(solution.coef, beta, rtol=1e-5, atol=1e-7 * np.abs(beta).max())
    assert_allclose(solution.b, b, rtol=1e-7, atol=1e-8)
    assert solution.converged
    assert solution.residual < 1e-9


@every_penalty
@pytest.mark.parametrize("C", [0.5, 100.0])
def test_recomputed_by_blocks_equals_stored(A, C, tight_budget, monkeypatch):
    stored = solve_cg(problem(A), C, tol=1e-10, max_iter=300)
    calls = []
    monkeypatch.setattr(cg, "gram", calls.append)
    with sklearn.config_context(working_memory=0.05):  # tiles of some rows
        recomputed = solve_cg(problem(A, tight_budget), C, tol=1e-10, max_iter=300)
    assert not calls  # no kernel matrix
    scale = np.abs(stored.coef).max()
    assert_allclose(recomputed.coef, stored.coef, atol=1e-7 * scale)
    assert_allclose(recomputed.b, stored.b, atol=1e-8)
    assert recomputed.iterations == stored.iterations


def test_precomputed_rows():
    by_rows = solve_cg(problem(), 10.0, tol=1e-10, max_iter=300)
    matrix = K.copy()
    matrix.flags.writeable = False
    given_matrix = solve_cg(
        problem(X=matrix, kernel=Kernel("precomputed")), 10.0, tol=1e-10, max_iter=300
    )
    assert_allclose(given_matrix.coef, by_rows.coef, atol=1e-7 * np.abs(by_rows.coef).max())


@every_penalty
@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_gap_bounds_the_distance_of_an_unfinished_run(A, max_iter):
    C = 1e3
    solution = solve_cg(problem(A), C, tol=1e-14, max_iter=max_iter)
    assert not solution.converged
    assert solution.iterations == max_iter
    beta, b = bordered(K, Y, WEIGHT, C, A)
    distance = primal(solution.coef, solution.b, C, A) - primal(beta, b, C, A)
    assert 0 < distance <= solution.gap * (1 + 1e-6)
    r = Y - solution.b - K @ solution.coef - solution.coef / (C * WEIGHT)[:, None]
    root = np.sqrt(WEIGHT)[:, None]
    relative = np.linalg.norm(root * r) / np.linalg.norm(root * Y)
    assert_allclose(solution.residual, relative, rtol=1e-6)


def test_free_bias_leaves_coefficients_that_sum_to_zero():
    solution = solve_cg(problem(0.0), 1e3, tol=1e-8, max_iter=500)
    assert np.all(np.abs(solution.coef.sum(axis=0)) < 1e-9 * np.abs(solution.coef).sum(axis=0))
    unfinished = solve_cg(problem(0.0), 1e3, tol=1e-8, max_iter=1)
    assert np.all(np.abs(unfinished.coef.sum(axis=0)) < 1e-9 * np.abs(unfinished.coef).sum(axis=0))


@pytest.mark.parametrize("C", [1e-2, 10.0, 1e5])
def test_preconditioner_is_the_inverse_of_the_factored_matrix(C):
    blocks = MemoryBlocks(X, tile_rows=37)
    factor = pivoted_cholesky(blocks, KERNEL, 40)
    k = len(factor.indices)
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P)[:, :k]
    matrix = P @ P.T + np.diag(1 / (C * WEIGHT))
    apply = Preconditioner(P, WEIGHT, C)
    v = rng.normal(size=(M, 2))
    assert_allclose(matrix @ apply(v), v, rtol=1e-7, atol=1e-7)


def test_preconditioner_of_no_columns_is_the_diagonal():
    factor = pivoted_cholesky(MemoryBlocks(X), KERNEL, 40, trace_tol=1e9)
    assert len(factor.indices) == 0
    v = rng.normal(size=(M, 2))
    applied = Preconditioner(np.empty((M, 0)), WEIGHT, 3.0)(v)
    assert_allclose(applied, 3.0 * WEIGHT[:, None] * v)


def test_preconditioner_saves_iterations():
    smooth = Kernel("rbf", gamma=0.02)
    task = problem(kernel=smooth, weight=np.ones(M))
    matrix = StoredMatrix(smooth.block(X, X))
    plain = conjugate_gradients(task, matrix, lambda v: v, 1e4, tol=1e-6, max_iter=500)
    helped = solve_cg(task, 1e4, tol=1e-6, max_iter=500)
    assert helped.converged
    assert 4 * helped.iterations < plain.iterations


# ---------------------------------------------------------------------------- when it stops


def test_hook_sees_every_iteration_and_can_stop():
    seen = []

    def hook(iteration, residual):
        seen.append((iteration, residual))
        return iteration == 4

    solution = solve_cg(problem(on_iteration=hook), 1e3, tol=1e-14, max_iter=300)
    assert [iteration for iteration, _ in seen] == [1, 2, 3, 4]
    assert solution.iterations == 4
    assert not solution.converged
    assert all(residual > 0 for _, residual in seen)


def test_stalled_iteration_ends():
    # a tolerance that rounding does not allow
    solution = solve_cg(problem(), 1e6, tol=1e-30, max_iter=100_000)
    assert not solution.converged
    assert solution.iterations < 2000
    assert solution.residual < 1e-6


@pytest.mark.parametrize("tol", [1e-4, 1e-8, 1e-11, 1e-13])
def test_convergence_is_claimed_only_for_a_residual_that_is_small(tol):
    solution = solve_cg(problem(), 1e6, tol=tol, max_iter=500)
    assert not solution.converged or solution.residual <= 10 * tol


@pytest.mark.parametrize("stored", [True, False])
def test_indefinite_matrix_is_refused(stored, tight_budget):
    kernel = Kernel(lambda A, B: -A @ B.T)
    budget = 10**9 if stored else tight_budget
    with pytest.raises(np.linalg.LinAlgError):
        solve_cg(problem(kernel=kernel, budget=budget), 1e3, tol=1e-8, max_iter=100)


@every_penalty
def test_targets_that_are_zero(A):
    targets = Y * [1.0, 0.0, 1.0]
    solution = solve_cg(problem(A, Y=targets), 10.0, tol=1e-10, max_iter=300)
    assert_array_equal(solution.coef[:, 1], 0.0)
    assert solution.b[1] == 0.0
    beta, _ = bordered(K, targets, WEIGHT, 10.0, A)
    assert_allclose(solution.coef, beta, atol=1e-7 * np.abs(beta).max())
    nothing = solve_cg(problem(A, Y=0 * Y), 10.0, tol=1e-10, max_iter=300)
    assert_array_equal(nothing.coef, 0.0)
    assert nothing.converged


def test_kernel_matrix_of_zeros():
    zero = Kernel("linear")
    solution = solve_cg(problem(X=0 * X, kernel=zero), 10.0, tol=1e-10, max_iter=10)
    assert_allclose(solution.b, WEIGHT @ Y / WEIGHT.sum())
    assert solution.converged


def test_equal_rows():
    again = np.arange(M) // 5
    beta, b = bordered(K[np.ix_(again, again)], Y, WEIGHT, 1e5, 0.0)
    solution = solve_cg(problem(X=X[again]), 1e5, tol=1e-10, max_iter=500)
    assert solution.converged
    assert_allclose(solution.coef, beta, atol=1e-6 * np.abs(beta).max())
    assert_allclose(solution.b, b, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.floats(-3, 5),
    st.floats(-3, 2),
    st.sampled_from([0.0, 0.5, np.inf]),
)
def test_any_problem_against_the_factorisation(m, log_C, log_gamma, A):
    C, kernel = 10.0**log_C, Kernel("rbf", gamma=10.0**log_gamma)
    options = {"X": X[:m], "Y": Y[:m], "weight": WEIGHT[:m], "kernel": kernel}
    found = solve_cg(problem(A, **options), C, tol=1e-11, max_iter=1000)
    exact = solve_cholesky(problem(A, **options), C)
    matrix = kernel.block(X[:m], X[:m])
    f, g = matrix @ found.coef + found.b, matrix @ exact.coef + exact.b
    assert_allclose(f, g, atol=1e-6 * (1 + np.abs(g).max()))
