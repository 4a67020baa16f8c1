"""The reduction to tridiagonal form gives what the eigen-decomposition gives, for every C."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm import SparseLSSVC, SparseLSSVR
from leansvm.ridge import factor
from leansvm.ridge._lapack import tridiagonal_in_place
from leansvm.ridge.factor import decompose, stays_definite, tridiagonal
from leansvm.ridge.sums import NormalEquations

CANDIDATES = np.logspace(-4, 5, 7)


def equations_of(r, n_outputs=2, rows=300, free_bias=True):
    rng = np.random.default_rng(r)
    Phi, Y = rng.normal(size=(rows, r)) * 0.9 ** np.arange(r), rng.normal(size=(rows, n_outputs))
    if free_bias:
        Phi, Y = Phi - Phi.mean(axis=0), Y - Y.mean(axis=0)
    zeros = np.zeros(r), np.zeros(n_outputs)
    squares = np.sum(Y**2, axis=0)
    return Phi, NormalEquations(
        rows, rows, Phi.T @ Phi, Phi.T @ Y, squares, *zeros, free_bias, None
    )


@pytest.mark.parametrize("n", [1, 2, 3, 60])
def test_lapack_reduces_in_place(n):
    _, equations = equations_of(n)
    M = equations.M.copy()
    Q, diagonal, off = tridiagonal_in_place(M)
    assert np.shares_memory(Q, M)
    T = np.diag(diagonal) + np.diag(off[: n - 1], 1) + np.diag(off[: n - 1], -1)
    assert_allclose(Q @ T @ Q.T, equations.M, atol=1e-12 * n * abs(equations.M).max())
    assert_allclose(Q.T @ Q, np.eye(n), atol=1e-13 * n)


@pytest.mark.parametrize("free_bias", [True, False])
@pytest.mark.parametrize("r", [1, 2, 31, 40])
def test_solutions_gcv_and_leverages_are_those_of_the_eigenvectors(r, free_bias):
    Phi, equations = equations_of(r, free_bias=free_bias)
    known, found = decompose(equations), tridiagonal(equations)
    assert_allclose(found.gcv(CANDIDATES), known.gcv(CANDIDATES), rtol=1e-10)
    leverages = found.models(CANDIDATES).leverages(Phi @ found.vectors)
    for j, C in enumerate(CANDIDATES):
        assert_allclose(found.theta(C), known.theta(C), rtol=1e-9, atol=1e-12)
        inverse = np.linalg.inv(equations.M + np.eye(r) / C)
        assert_allclose(leverages[:, j], np.sum((Phi @ inverse) * Phi, axis=1), rtol=1e-9)


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_leverages_of_few_rows(rows):
    Phi, equations = equations_of(5)
    found = tridiagonal(equations)
    E, models = Phi @ found.vectors, found.models(CANDIDATES)
    few = models.leverages(E[:rows])
    assert few.shape == (rows, len(CANDIDATES))
    assert_allclose(few, models.leverages(E)[:rows], rtol=1e-13)


def test_the_matrix_is_definite_unless_rounding_swallows_the_ridge():
    _, equations = equations_of(20)
    assert stays_definite(equations, CANDIDATES)
    assert not stays_definite(equations, np.array([1.0, 1e15]))


def test_an_indefinite_matrix_is_refused():
    _, equations = equations_of(6)
    equations.M -= 1e3 * np.eye(6)
    with pytest.raises(np.linalg.LinAlgError, match="pivot"):
        tridiagonal(equations).models(np.array([1.0, 10.0]))


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
@pytest.mark.parametrize("estimator", [SparseLSSVC, SparseLSSVR])
def test_a_fit_is_the_same_either_way(estimator, criterion, monkeypatch):
    rng = np.random.default_rng(1)
    X, weight = rng.normal(size=(400, 4)), rng.integers(0, 3, 400)
    y = np.digitize(X[:, 0] * X[:, 1], [-0.5, 0.5])  # three classes
    taken = []

    def fit(large):
        monkeypatch.setattr(factor, "SMALL_MATRIX", large)
        monkeypatch.setattr(
            factor, "tridiagonal", lambda eq: taken.append(large) or tridiagonal(eq)
        )
        model = estimator(C=criterion, n_basis=61, kernel="rbf", gamma=0.3, random_state=0)
        return model.fit(X, y, sample_weight=weight)

    known, found = fit(1000), fit(10)
    assert taken == [10]  # the eigen-decomposition for the first
    assert found.C_ == known.C_
    assert_allclose(found.cv_curve_, known.cv_curve_, rtol=1e-9)
    assert_allclose(found.dual_coef_, known.dual_coef_, rtol=1e-8, atol=1e-10)
    if criterion == "loo":
        assert_allclose(found.loo_residuals_, known.loo_residuals_, rtol=1e-8, atol=1e-10)
