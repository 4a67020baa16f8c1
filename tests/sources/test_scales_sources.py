"""Scales of features are the same wherever the rows are."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context

from leansvm import SparseLSSVR
from leansvm.estimators.read import read
from leansvm.learning import learn as scales
from leansvm.learning.learn import learn_kernel
from leansvm.learning.search import SECOND


class Learner(SparseLSSVR):
    """Reads the rows as an estimator does, and learns the scales only."""

    def fit(self, X, y=None, sample_weight=None):
        data = read(self, X, y, sample_weight)
        self.learned_ = learn_kernel(
            data.blocks(), ["matern32"], bias_penalty=0.0, budget=2**30, random_state=0
        )
        return self


def make_data(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=260)
    weight = rng.integers(0, 3, 260).astype(float) if kind == "weights" else None
    return X, y, weight


@cache
def in_memory(kind, rows):
    """What is learned from NumPy arrays, for every source; `rows` is what SECOND has now."""
    with config_context(array_api_dispatch=False, working_memory=1024):  # scikit-learn's own
        return Learner().fit(*make_data(kind)).learned_


@pytest.mark.parametrize(
    ("kind", "rows"), [("ones", 4000), ("weights", 150)], ids=["all-rows", "drawn-by-weight"]
)
@pytest.mark.usefixtures("short_search")
def test_the_same_scales(source, kind, rows, monkeypatch):
    monkeypatch.setattr(scales, "SECOND", SECOND._replace(rows=rows))
    expected = in_memory(kind, rows)
    found = source.fit(Learner(), *make_data(kind)).learned_
    assert isinstance(found.kernel.scales, np.ndarray)
    assert_allclose(found.kernel.scales, expected.kernel.scales, rtol=1e-6)
    assert_allclose(found.report["log_loo"]["matern32"], expected.report["log_loo"]["matern32"])
    assert found.scales[[0, 2]].min() > 0.02
