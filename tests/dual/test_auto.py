"""solver="auto" of the LS-SVM: which solver takes a problem, and that the answer is the same."""

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm.dual import DualProblem, solvers
from leansvm.dual.cholesky import solve_cholesky
from leansvm.dual.solvers import solve_lssvm
from leansvm.kernels import Kernel

rng = np.random.default_rng(6)
M = 150
X = rng.normal(size=(M, 3))
KERNEL = Kernel("rbf", gamma=0.3)
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2 + 10, rng.normal(size=M)])
WEIGHT = rng.uniform(0.1, 5.0, size=M)


def bordered(K, Y, weight, C):
    m = len(K)
    G = K + np.diag(1 / (C * weight))
    system = np.block([[G, np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
    solved = np.linalg.solve(system, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return solved[:-1], solved[-1]


def problem(budget=10**9, X=X, kernel=KERNEL):
    return DualProblem(X, kernel, Y, WEIGHT, 0.0, budget, lambda name: nullcontext())


@pytest.fixture
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr(solvers, "_ROWS_TO_FACTOR", 10)


@pytest.mark.usefixtures("few_rows_are_many")
def test_auto_takes_cg_when_it_converges_and_cholesky_when_it_does_not(monkeypatch):
    monkeypatch.setattr(solvers, "_ENTRY_FLOPS", 1)
    easy = problem(kernel=Kernel("rbf", gamma=1e-3))
    solution = solve_lssvm(easy, 1.0, tol=1e-8, max_iter=300)
    assert solution.solver == "cg"
    exact = solve_cholesky(problem(kernel=Kernel("rbf", gamma=1e-3)), 1.0)
    assert_allclose(solution.coef, exact.coef, atol=1e-6 * np.abs(exact.coef).max())
    # no budget for iterations: give up at once, factor the same matrix
    monkeypatch.setattr(solvers, "_ENTRY_FLOPS", 10**9)
    hard_rows = rng.normal(size=(M, 40))
    hard = problem(X=hard_rows, kernel=Kernel("rbf", gamma=0.02))
    monkeypatch.setattr(solvers.cg, "preconditioner_columns", lambda m: 2)
    solution = solve_lssvm(hard, 1e6, tol=1e-10, max_iter=300)
    assert solution.solver == "cholesky"
    assert solution.iterations == 1
    matrix = Kernel("rbf", gamma=0.02).block(hard_rows, hard_rows)
    beta, _ = bordered(matrix, Y, WEIGHT, 1e6)
    assert_allclose(solution.coef, beta, atol=1e-6 * np.abs(beta).max())


@pytest.mark.usefixtures("few_rows_are_many")
def test_auto_factors_when_only_the_factor_fits():
    needed = solve_cholesky(problem(), 1.0).bytes
    tight = problem(budget=needed)
    assert solve_lssvm(tight, 1.0, tol=1e-8, max_iter=100).solver == "cholesky"
    with pytest.raises(MemoryError):
        solve_lssvm(problem(budget=needed - 1), 1.0, tol=1e-8, max_iter=100)


def test_auto_factors_few_rows():
    assert solve_lssvm(problem(), 1.0, tol=1e-8, max_iter=100).solver == "cholesky"
