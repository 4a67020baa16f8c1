"""A linear kernel that is learned alone goes on beyond the training rows."""

from __future__ import annotations

import numpy as np
import pytest

from leansvm import SparseLSSVR


def line(n):
    X = np.random.default_rng(0).normal(size=(n, 3))
    model = SparseLSSVR(random_state=0).fit(X, X.sum(axis=1))
    assert model.fit_report_["learning"]["weights"] == {"linear": 1.0}
    return model, X


def test_a_line_never_ends():
    """Rows of heavy tails lie far beyond all training rows, on the same line."""
    model, _ = line(200)
    far = np.array([[1e4, 2e3, -5e3]])
    assert model.predict(far) == pytest.approx(far.sum(), rel=1e-3)


def test_few_rows_hardly_show_a_range():
    """One feature of them may be nearly constant: the line ends ten ranges beyond."""
    model, X = line(60)
    end = X.max(axis=0) + 10.0 * np.ptp(X, axis=0)
    assert model.predict(end[None] * 100) == pytest.approx(model.predict(end[None]))
    assert model.predict(end[None]) == pytest.approx(end.sum(), rel=1e-3)
