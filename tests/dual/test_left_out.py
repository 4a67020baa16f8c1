"""Exact leave-one-out of the squared-hinge SVM, against fits without each row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import make_moons

from leansvm import L2SVC

M = 24


def refitted(model, X, y, weight):
    """Return 1 - y f of every row, by a model fitted without it."""
    rest = ~np.eye(len(y), dtype=bool)
    without = L2SVC(**model.get_params()).set_params(C=model.C_, calibrate=False)
    values = [
        without.fit(X[k], y[k], weight[k]).decision_function(X[[i]])[0] for i, k in enumerate(rest)
    ]
    return 1.0 - y * np.array(values)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    C=st.floats(-2.0, 4.0).map(lambda power: 10**power),
    gamma=st.floats(-2.0, 1.0).map(lambda power: 10**power),
    bias=st.sampled_from([{}, {"bias_penalty": 0.5}, {"fit_intercept": False}]),
    kernel=st.sampled_from(["rbf", "linear"]),
)
def test_left_out_rows_are_those_of_refitting(seed, C, gamma, bias, kernel):
    rng = np.random.default_rng(seed)
    X, y = make_moons(M, noise=0.4, random_state=seed)
    y, weight = 2 * y - 1, rng.uniform(0.3, 3.0, M)
    model = L2SVC([C], kernel=kernel, gamma=gamma, tol=1e-10, **bias).fit(X, y, weight)
    expected = refitted(model, X, y, weight)
    allowed = 1e-6 * max(np.abs(expected).max(), 1.0)
    found = np.maximum(expected, 0.0) ** 2
    assert model.cv_curve_[0] == pytest.approx(weight @ found / weight.sum(), rel=1e-4, abs=allowed)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loo_chooses_the_C_that_refitting_chooses(seed):
    X, y = make_moons(60, noise=0.25, random_state=seed)
    y, weight = 2 * y - 1, np.ones(60)
    model = L2SVC(np.logspace(-1, 4, 6), gamma=0.9).fit(X, y)
    losses = []
    for C in np.logspace(-1, 4, 6):
        slack = refitted(L2SVC([C], gamma=0.9).fit(X, y), X, y, weight)
        losses.append(np.mean(np.maximum(slack, 0.0) ** 2))
    assert_allclose(model.cv_curve_, losses, rtol=1e-5)
    assert np.logspace(-1, 4, 6)[np.argmin(losses)] == model.C_


def test_left_out_residuals_of_the_chosen_C_are_public():
    X, y = make_moons(60, noise=0.25, random_state=0)
    y = 2 * y - 1
    model = L2SVC("loo", gamma=0.9).fit(X, y)
    expected = refitted(model, X, y, np.ones(60))
    assert_allclose(y * model.loo_residuals_, expected, atol=1e-7)


def test_an_indefinite_kernel_keeps_the_residuals_at_fixed_support_vectors():
    X, y = make_moons(60, noise=0.25, random_state=0)
    K = X @ X.T - 0.05 * np.eye(60)
    model = L2SVC([0.1, 1.0], kernel="precomputed").fit(K, y)
    assert np.isfinite(model.cv_curve_).all()
