"""Large sizes are added up in single precision where the model does not lose by it."""

import numpy as np
import pytest

from leansvm import SparseLSSVR
from leansvm.kernels import Kernel
from leansvm.ridge import nested, primal

N = 1500


def table(noise, n=N):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((n, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise * rng.standard_normal(n)


@pytest.fixture
def in_single(monkeypatch):
    """Let any amount of work be worth single precision; return the precision of all sums."""
    seen = []

    def looked_at(function):
        def look(block, features, *args):
            seen.append(bool(features.single))
            return function(block, features, *args)

        look.declared = function.declared
        return look

    monkeypatch.setattr(nested, "WORK_FOR_SINGLE", 0.0)
    monkeypatch.setattr(nested, "_new_moments", looked_at(nested._new_moments))
    return seen


@pytest.mark.parametrize("weighted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_model_is_that_of_double_precision(in_single, monkeypatch, weighted):
    X, y = table(0.3)
    weight = np.random.RandomState(1).uniform(0.2, 3.0, N) if weighted else None
    options = {"kernel": "matern32", "gamma": 0.2, "random_state": 0, "bias_penalty": 0.0}
    fast = SparseLSSVR(**options).fit(X, y + 100.0, weight)
    assert any(in_single) and not all(in_single)  # the first size is always in double precision
    lower, upper = fast.predict_interval(X, alpha=0.1).T  # knows the rows of the fit
    assert 0.8 < np.mean((lower <= y + 100.0) & (y + 100.0 <= upper)) < 0.99
    monkeypatch.setattr(nested, "WORK_FOR_SINGLE", np.inf)
    slow = SparseLSSVR(**options).fit(X, y + 100.0, weight)
    assert fast.C_ == slow.C_ and fast.n_support_ == slow.n_support_
    np.testing.assert_allclose(fast.predict(X), slow.predict(X), atol=3e-4)


def test_a_model_that_would_lose_returns_to_double_precision(in_single, monkeypatch):
    X, y = table(1e-6)
    options = {"kernel": "rbf", "gamma": 0.02, "random_state": 0}
    monkeypatch.setattr(nested, "MOST_LOST", 1e-6)
    monkeypatch.setattr(nested, "WORK_FOR_SINGLE", 0.0)
    exact, here = nested.NestedFit.extend, []

    def extend(self, size):
        self.in_single = self.in_single or (size > 60 and not here)
        if size > 60:
            here.append(self.in_single)
        exact(self, size)

    monkeypatch.setattr(nested.NestedFit, "extend", extend)
    fast = SparseLSSVR(**options).fit(X, y)
    assert here[:2] == [True, False]  # once in single precision, then again in double
    monkeypatch.undo()
    slow = SparseLSSVR(**options).fit(X, y)
    np.testing.assert_allclose(fast.predict(X), slow.predict(X), atol=1e-6)


def test_many_rows_are_added_up_in_single_precision(in_single, monkeypatch):
    monkeypatch.setattr(primal, "_ROWS_COMPARED_WHOLE", 500)
    monkeypatch.setattr(primal, "_ROWS_COMPARED", 600)
    X, y = table(0.3)
    options = {"kernel": "matern32", "gamma": 0.2, "random_state": 0}
    fast = SparseLSSVR(**options).fit(X, y)
    monkeypatch.setattr(nested, "WORK_FOR_SINGLE", np.inf)
    slow = SparseLSSVR(**options).fit(X, y)
    difference = np.abs(fast.predict(X) - slow.predict(X))
    assert difference.max() < 3e-4 and fast.n_support_ == slow.n_support_


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_rows_far_from_zero_are_centred_before_they_are_rounded(kernel):
    X = 1e6 + np.random.RandomState(0).standard_normal((60, 3))
    one = Kernel(kernel, gamma=np.array([0.5, 0.1, 0.2]))
    found = one.block(X, X[:20], dtype=np.float32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, one.block(X, X[:20]), atol=5e-6)
