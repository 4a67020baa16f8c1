"""L2SVC(solver="smo"), SesquiSMO: the solution of the active set, in another way."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from leansvm import L2SVC
from leansvm.dual import solvers as choice

rng = np.random.default_rng(3)
X = rng.normal(size=(120, 4))
X[100:] = X[:20]  # duplicated rows
Y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=120) > 0.3, "yes", "no")
THREE = np.where(X[:, 2] > 0.8, "maybe", Y)


def both(y=Y, rows=X, sample_weight=None, **options):
    sequential = L2SVC(solver="smo", tol=1e-10, max_iter=20_000, **options)
    exact = L2SVC(solver="active-set", tol=1e-12, **options)
    return [model.fit(rows, y, sample_weight) for model in (sequential, exact)]


@pytest.mark.parametrize(
    "options",
    [
        {"gamma": 1.0},
        {"gamma": 0.2, "C": 10.0},
        {"gamma": 5.0, "C": 1e3, "bias_penalty": 1e4},
        {"gamma": 0.5, "fit_intercept": False},
        {"kernel": "linear", "C": 0.1},
        {"kernel": "linear", "bias_penalty": 1.0},
        {"kernel": "laplacian", "gamma": 1.0, "class_weight": "balanced"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
def test_the_solution_is_that_of_the_active_set(options, y):
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    sequential, exact = both(y, sample_weight=weight, **options)
    values = exact.decision_function(X)
    assert_allclose(sequential.decision_function(X), values, atol=1e-6 * np.abs(values).max())
    assert abs(sequential.objective_ - exact.objective_) <= 1e-8 * exact.objective_
    assert sequential.fit_report_["gap"] <= 1e-6 * exact.objective_
    assert sequential.fit_report_["solver"] == "smo" and sequential.fit_report_["converged"]


def test_sparse_rows_and_a_small_cache():
    whole, exact = both(gamma=1.0)
    X_csr = sparse.csr_array(X)
    cached = L2SVC(gamma=1.0, solver="smo", tol=1e-10, cache_size=0.09).fit(X_csr, Y)
    assert cached.fit_report_["bytes"] < 8 * len(X) ** 2
    assert_allclose(cached.decision_function(X_csr), whole.decision_function(X), atol=1e-7)
    linear, exact = both(kernel="linear", rows=X_csr, C=0.1)
    assert_allclose(linear.coef_, exact.coef_, atol=1e-7)


def test_a_vanishing_bias_penalty_leads_to_the_free_bias():
    free = L2SVC(C=10.0, gamma=0.5, solver="active-set").fit(X, Y).decision_function(X)
    distances = []
    for A in (1.0, 1e-2, 1e-4, 1e-6):
        model = L2SVC(10.0, gamma=0.5, solver="smo", bias_penalty=A, tol=1e-10, max_iter=20_000)
        distances.append(np.abs(model.fit(X, Y).decision_function(X) - free).max())
    assert distances == sorted(distances, reverse=True) and distances[-1] < 1e-6


def test_balanced_classes_of_equal_rows():
    rows = np.repeat([[1.0, 3.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]], 4, axis=0)
    labels = np.repeat([1, 2, 1, 2], 4)  # the first bias tried is the last
    sequential, exact = both(labels, rows)
    assert_allclose(sequential.decision_function(rows), exact.decision_function(rows), atol=1e-8)


def test_kernel_values_that_vanish_without_a_bias():
    model = L2SVC(solver="smo", kernel="linear", fit_intercept=False).fit(1e-200 * X, Y)
    assert_allclose(model.decision_function(X), 0.0, atol=1e-100)


def test_a_precomputed_kernel():
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    given = L2SVC(kernel="precomputed", solver="smo", tol=1e-10).fit(K, Y)
    own = L2SVC(gamma=1.0, solver="smo", tol=1e-10).fit(X, Y)
    assert_allclose(given.decision_function(K), own.decision_function(X), atol=1e-8)


def test_a_smooth_kernel_ends_with_advice():
    with pytest.warns(ConvergenceWarning, match=r"too smooth for updates.*active-set"):
        L2SVC(C=1e6, gamma=1e-3, solver="smo", max_iter=3).fit(X, Y)


@pytest.mark.parametrize("options", [{"C": [1, 2]}, {"max_support": 9}])
def test_what_smo_cannot_do_is_said(options):
    with pytest.raises(ValueError, match=r"solver='smo' is for one C.*active-set"):
        L2SVC(solver="smo", **options).fit(X, Y)


@pytest.fixture
def few_are_many(monkeypatch):
    """Let "auto" think of this handful of rows as of thousands, whose working sets do not fit."""
    monkeypatch.setattr(choice.WorkingSets, "solve", lambda *args, **options: None)
    monkeypatch.setattr(choice, "_ROWS_TO_FACTOR", 100)
    monkeypatch.setattr(choice, "_SWEEP_ROWS", 1)


@pytest.mark.parametrize("gamma, C, used", [(50.0, 1.0, "smo"), (0.05, 100.0, "active-set")])
def test_auto_takes_smo_only_where_many_rows_are_support_vectors(few_are_many, gamma, C, used):
    separable = np.where(X[:, 0] > 0, 1, 0)
    auto = L2SVC(C=C, gamma=gamma).fit(X, separable)
    assert auto.fit_report_["solver"] == used
    exact = L2SVC(C=C, gamma=gamma, solver="active-set").fit(X, separable)
    assert (len(exact.support_) > 0.4 * len(X)) == (used == "smo")
    assert_allclose(auto.decision_function(X), exact.decision_function(X), atol=1e-6)


def test_auto_goes_on_with_the_active_set_where_smo_is_slow(few_are_many, monkeypatch):
    monkeypatch.setattr(choice, "_SWEEP_ROWS", 40)  # three sweeps
    monkeypatch.setattr(choice, "_MANY_SUPPORT", 0.0)
    auto = L2SVC(C=1e5, gamma=0.05).fit(X, Y)
    assert auto.fit_report_["solver"] == "active-set" and auto.fit_report_["converged"]


@pytest.mark.parametrize("A", [0.0, 10.0])
def test_most_rows_without_a_multiplier(A):
    """The support's own matrix takes over, and all rows have the last word."""
    rows = np.random.default_rng(0).normal(size=(600, 2))
    labels = np.where(rows[:, 0] + 0.1 * rows[:, 1] > 0, 1, 0)
    sequential, exact = both(labels, rows, C=10.0, gamma=1.0, bias_penalty=A)
    assert len(exact.support_) < 300
    np.testing.assert_array_equal(sequential.support_, exact.support_)
    assert_allclose(sequential.decision_function(rows), exact.decision_function(rows), atol=1e-7)
