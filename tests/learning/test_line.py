"""Data of a straight line get the linear kernel, also where rows are few or new ones far away."""

from __future__ import annotations

import numpy as np
import pytest

from leansvm import SparseLSSVR


@pytest.mark.parametrize("n", [7, 8, 9])
def test_a_handful_of_rows_on_a_line(n):
    scores = []
    for seed in range(10):
        rng = np.random.default_rng([n, seed])
        X = rng.normal(size=(n + 300, 2))
        y = X @ np.array([1.0, -2.0]) + 0.1 * rng.normal(size=len(X))
        model = SparseLSSVR(random_state=0).fit(X[:n], y[:n])
        scores.append(model.score(X[n:], y[n:]))
    assert np.mean(scores) > 0.98  # a mixture has 0.97


def test_a_handful_of_rows_on_a_curve():
    x = np.linspace(-2, 2, 9)[:, None]
    model = SparseLSSVR(random_state=0).fit(x, np.sin(2 * x[:, 0]))
    assert model.fit_report_["learning"]["weights"] == {"matern32": 0.5, "linear": 0.5}
    new = np.linspace(-1.9, 1.9, 50)[:, None]
    assert model.score(new, np.sin(2 * new[:, 0])) > 0.9


def test_a_line_never_ends():
    """Rows of heavy tails lie far beyond all training rows, on the same line."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X.sum(axis=1)
    model = SparseLSSVR(random_state=0).fit(X, y)
    assert model.fit_report_["learning"]["weights"] == {"linear": 1.0}
    far = np.array([[1e4, 2e3, -5e3]])
    assert model.predict(far) == pytest.approx(far.sum(), rel=1e-3)
