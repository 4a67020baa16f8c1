"""Rows in another order, other units: the same model, since drawn rows depend on values alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm import ReducedSVC, SparseLSSVC, SparseLSSVR
from leansvm.estimators import kernel_machine

rng = np.random.default_rng(0)
X = rng.normal(size=(320, 3))
SIGNAL = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=320)
ROWS, NEW = slice(0, 260), slice(260, None)
SAME = 1e-7  # sums in another order leave differences of 1e-15 to 1e-10 of the spread


def values(machine, X, y, new):
    model = machine(random_state=0).fit(X, y)
    return model.predict(new) if machine is SparseLSSVR else model.decision_function(new)


@pytest.mark.parametrize("machine", [SparseLSSVC, SparseLSSVR, ReducedSVC])
def test_the_order_of_rows_changes_nothing(machine):
    y = SIGNAL if machine is SparseLSSVR else SIGNAL > 0
    rows = np.repeat(np.arange(260), np.where(np.arange(260) < 40, 2, 1))  # some of them copies
    moved = np.random.default_rng(1).permutation(rows)
    found = values(machine, X[rows], y[rows], X[NEW])
    other = values(machine, X[moved], y[moved], X[NEW])
    assert_allclose(other, found, rtol=0, atol=SAME * found.std())


@pytest.mark.parametrize("machine", [SparseLSSVC, ReducedSVC])
def test_units_change_nothing(machine):
    y, unit = SIGNAL > 0, np.array([0.3, 1.0, 700.0])
    found = values(machine, X[ROWS], y[ROWS], X[NEW])
    other = values(machine, X[ROWS] * unit, y[ROWS], X[NEW] * unit)
    assert_allclose(other, found, rtol=0, atol=1e-6 * found.std())


def test_many_rows_with_a_given_kernel_and_size_are_drawn_by_place(monkeypatch):
    """Such a fit goes over its rows once, and draws no row that it would have to look for."""
    monkeypatch.setattr(kernel_machine, "_ROWS_DRAWN_BY_VALUES", 100)
    moved = np.random.default_rng(1).permutation(260)
    given = {"C": 1.0, "kernel": "rbf", "gamma": 0.5, "n_basis": 20, "random_state": 0}
    first = SparseLSSVR(**given).fit(X[ROWS], SIGNAL[ROWS]).support_
    assert np.array_equal(SparseLSSVR(**given).fit(X[moved], SIGNAL[moved]).support_, first)


def test_few_rows_with_a_given_kernel_and_size_are_drawn_by_their_values():
    moved = np.random.default_rng(1).permutation(260)
    given = {"C": 1.0, "kernel": "rbf", "gamma": 0.5, "n_basis": 20, "random_state": 0}
    first, other = (SparseLSSVR(**given).fit(X[rows], SIGNAL[rows]) for rows in (ROWS, moved))
    assert np.array_equal(np.sort(moved[other.support_]), np.sort(first.support_))
    assert_allclose(other.predict(X[NEW]), first.predict(X[NEW]), rtol=0, atol=1e-9)
