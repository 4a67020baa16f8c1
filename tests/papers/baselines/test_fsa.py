"""FSA- and PFSA-LSSVM against brute force on the dual."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons

from leansvm import LSSVC
from leansvm.datasets import make_linear_toy
from leansvm.kernels import Kernel
from leansvm.papers.baselines import FSALSSVC
from leansvm.papers.baselines._growing_dual import AllRows, GrowingDual, SomeRows

KERNEL = Kernel("poly", gamma=0.5, coef0=1.0, degree=2)


def data(m=70, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    Y = np.sign(rng.normal(size=(m, outputs)) + 2 * X[:, :1] * X[:, 1:2])
    return X, Y, rng.uniform(0.3, 3.0, m)


def solve(K, Y, s, B, C):
    """Eq. (13) directly: the bordered system of the rows B."""
    k = len(B)
    system = np.zeros((k + 1, k + 1))
    system[:k, :k] = K[np.ix_(B, B)] + np.diag(1 / (C * s[B]))
    system[:k, k] = system[k, :k] = 1.0
    solution = np.linalg.solve(system, np.vstack([Y[B], np.zeros((1, Y.shape[1]))]))
    return solution[:k], solution[k]


def dual(K, Y, s, B, beta, C):
    """The function that the dual minimises, eq. (4), at beta."""
    G = K[np.ix_(B, B)] + np.diag(1 / (C * s[B]))
    return 0.5 * np.sum(beta * (G @ beta)) - np.sum(beta * Y[B])


def grow(search, steps, outputs):
    """Run some steps; return the model and the gain that was announced for each."""
    model = GrowingDual(steps, outputs)
    gains = []
    for _ in range(steps):
        row = search.best(model)
        gains.append(model.gain(row))
        model.append(row)
    return model, gains


@pytest.mark.parametrize("C", [0.01, 1.0, 1e3])
def test_rows_and_coefficients_are_those_of_brute_force(C):
    X, Y, s = data()
    K = KERNEL.block(X, X)
    search = AllRows(X, Y, s, KERNEL, C, 25)
    model, _ = grow(search, 25, Y.shape[1])
    B, f = [], np.zeros_like(Y)
    for step in range(25):
        scores = np.sum((f - Y) ** 2, axis=1) / (2 * (K.diagonal() + 1 / (C * s)))
        scores[B] = -1
        B.append(int(np.argmax(scores)))
        assert model.rows[step] == B[step]
        beta, b = solve(K, Y, s, B, C)
        f = K[:, B] @ beta + b
    assert_allclose(model.beta, beta, rtol=1e-8, atol=1e-9 * np.abs(beta).max())
    assert_allclose(model.b, b, rtol=1e-9)


@pytest.mark.parametrize("C", [0.01, 1.0, 1e3])
def test_announced_gain_is_the_drop_of_the_dual(C):
    X, Y, s = data()
    K = KERNEL.block(X, X)
    search = AllRows(X, Y, s, KERNEL, C, 30)
    model, gains = grow(search, 30, Y.shape[1])
    values = [0.0]
    for k in range(1, 31):
        beta, _ = solve(K, Y, s, model.rows[:k], C)
        values.append(dual(K, Y, s, model.rows[:k], beta, C))
        assert_allclose(values[-1], -0.5 * np.sum(beta * Y[model.rows[:k]]), rtol=1e-9, atol=1e-12)
    assert_allclose(gains, -np.diff(values), rtol=1e-7, atol=1e-10 * abs(values[-1]))
    assert_allclose(model.objectives, -np.array(values[1:]), rtol=1e-9, atol=1e-12)


def test_coefficients_sum_to_zero_at_every_size():
    X, Y, s = data()
    search = AllRows(X, Y, s, KERNEL, 10.0, 40)
    model = GrowingDual(40, 2)
    for _ in range(40):
        model.append(search.best(model))
        scale = np.abs(model.beta).sum() + 1
        assert_allclose(model.beta.sum(axis=0), 0.0, atol=1e-13 * scale)


def test_all_candidates_are_all_rows():
    X, Y, s = data()
    everyone, _ = grow(AllRows(X, Y, s, KERNEL, 1.0, 25), 25, 2)
    rng = np.random.RandomState(0)
    drawn, _ = grow(SomeRows(X, Y, s, KERNEL, 1.0, 70, rng), 25, 2)
    assert drawn.rows == everyone.rows
    assert_allclose(drawn.beta, everyone.beta, rtol=1e-9)


def test_candidates_are_different_rows_outside_the_basis():
    X, Y, s = data()
    s[::4] = 0.0
    search = SomeRows(X, Y, s, KERNEL, 1.0, 12, np.random.RandomState(0))
    model, _ = grow(search, 40, 2)
    assert len(set(model.rows)) == 40
    assert np.all(s[model.rows] > 0)
    for size in (12, 11, 3, 0):  # fewer where fewer are left
        left = np.setdiff1d(np.flatnonzero(s), model.rows)[:size]
        outside = GrowingDual(1, 2)
        outside.rows = sorted(set(range(70)) - set(left.tolist()))
        assert_array_equal(search._draw(outside), left)


def test_first_row_is_the_lowest_and_the_second_of_the_other_class():
    X, y = make_moons(100, noise=0.2, random_state=0)
    model = FSALSSVC(n_basis=10).fit(X, y)
    assert model.support_[0] == 0
    assert y[model.support_[1]] != y[0]


def test_prefixes_are_the_models_of_smaller_runs():
    X, y = make_moons(150, noise=0.3, random_state=0)
    large = FSALSSVC(n_basis=60, n_candidates=30, random_state=3).fit(X, y)
    small = FSALSSVC(n_basis=25, n_candidates=30, random_state=3).fit(X, y)
    assert_array_equal(large.support_[:25], small.support_)
    assert_allclose(large.fit_report_["objectives"][24], small.objective_)


def test_objective_rises_towards_that_of_the_dense_model():
    X, y = make_moons(150, noise=0.3, random_state=0)
    dense = LSSVC(C=5.0, gamma=1.0).fit(X, y)
    model = FSALSSVC(C=5.0, gamma=1.0, n_basis=150, tol=0.0).fit(X, y)
    objectives = model.fit_report_["objectives"]
    assert np.all(np.diff(objectives) > -1e-10)
    assert objectives[-1] <= dense.objective_ * (1 + 1e-10)
    assert_allclose(objectives[-1], dense.objective_)
    assert_allclose(model.dual_coef_[0, np.argsort(model.support_)], dense.dual_coef_[0], atol=1e-9)


@pytest.mark.parametrize("n_candidates", [None, 200])
def test_stops_when_all_errors_are_small(n_candidates):
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = X[:, 0] > 0
    X[:, 0] += np.where(y, 2.0, -2.0)
    model = FSALSSVC(100.0, n_basis=150, tol=0.3, n_candidates=n_candidates, random_state=0)
    model.fit(X, y)
    errors = np.abs(model.decision_function(X) - np.where(y, 1.0, -1.0))
    outside = np.setdiff1d(np.arange(200), model.support_)
    assert len(model.support_) < 60
    assert errors[outside].max() <= 0.3
    assert_allclose(model.fit_report_["largest_error"], errors[outside].max(), rtol=1e-6)


def test_few_candidates_of_one_class_do_not_end_the_search():
    X, y = make_moons(300, noise=0.2, random_state=0)
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:5]])
    model = FSALSSVC(n_basis=155, n_candidates=2, random_state=0).fit(X[keep], y[keep])
    assert set(y[keep][model.support_]) == {0, 1}


def test_fraction_of_the_rows():
    X, y = make_moons(200, noise=0.3, random_state=0)
    assert len(FSALSSVC(n_basis=0.1).fit(X, y).support_) == 20


def test_copies_of_a_chosen_row_do_no_harm():
    X, y = make_moons(40, noise=0.3, random_state=0)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    model = FSALSSVC(C=1e6, gamma=1.0, n_basis=120, tol=0.0).fit(X, y)
    dense = LSSVC(C=1e6, gamma=1.0).fit(X, y)
    assert_allclose(model.decision_function(X), dense.decision_function(X), atol=1e-5)


def test_linear_toy_needs_many_rows():
    """zhou2016, Fig. 3: two points represent the dense model's line, FSA-LSSVM keeps 152 of 400."""
    X, y = make_linear_toy(random_state=0)
    train, test = slice(400), slice(400, None)
    dense = LSSVC(kernel="linear").fit(X[train], y[train])
    normal = dense.dual_coef_ @ dense.support_vectors_
    two = X[:2]
    alpha = np.linalg.solve(two.T, normal[0])
    assert_allclose(X @ two.T @ alpha + dense.intercept_, dense.decision_function(X), atol=1e-10)
    model = FSALSSVC(kernel="linear", n_basis=400, tol=0.8).fit(X[train], y[train])
    assert 100 < len(model.support_) < 400
    assert model.score(X[test], y[test]) > dense.score(X[test], y[test]) - 0.01
