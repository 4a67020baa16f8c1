"""Sets and doubtful labels where one class is rare: every class is measured by its own rows."""

import numpy as np
import pytest
from sklearn.base import clone

from leansvm import LSSVC
from leansvm.inspection import inspect_rows
from leansvm.probabilities import log_probabilities
from tests.plain import PlainSparseLSSVC


def rare(n, share, seed):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    X = rng.normal(size=(n, 4))
    X[:, :2] += 1.5 * y[:, None]
    return X, y


def margins(model, X):
    f = model.decision_function(X)
    f = np.column_stack([-f, f]) if f.ndim == 1 else f
    others = [np.delete(f, k, axis=1).max(axis=1) for k in range(f.shape[1])]
    return f - np.column_stack(others)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sets_by_class_are_refitting_without_every_row_of_the_class(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.digitize(X[:, 0] + 0.4 * rng.normal(size=60), [0.7] if n_classes == 2 else [0.0, 0.9])
    X_new = rng.normal(size=(25, 2))
    model = LSSVC(2.0, gamma=0.5, calibrate=False).fit(X, y)
    expected = np.zeros((25, n_classes))
    for i in range(60):
        rest = np.arange(60) != i
        other = clone(model).fit(X[rest], y[rest])
        expected[:, y[i]] += margins(other, X[[i]])[0, y[i]] > margins(other, X_new)[:, y[i]]
    expected = expected < 0.8 * (np.bincount(y) + 1)
    np.testing.assert_array_equal(model.predict_set(X_new, 0.2, by_class=True), expected)
    assert np.bincount(y).min() < 0.5 * np.bincount(y).max()
    np.testing.assert_array_equal(model.predict_set(X_new, 0.2), expected)
    assert (model.predict_set(X_new, 0.2, by_class=False) != expected).any()


def test_every_class_is_covered():
    coverage = []
    for seed in range(3):
        X, y = rare(4000, 0.02, seed)
        X_new, y_new = rare(20_000, 0.02, 100 + seed)
        take = np.concatenate([np.flatnonzero(y_new == 1)[:300], np.flatnonzero(y_new == 0)[:300]])
        model = PlainSparseLSSVC(1.0, n_basis=60, random_state=0, calibrate=False).fit(X, y)
        sets = model.predict_set(X_new[take], 0.1)
        coverage.append([sets[y_new[take] == k, k].mean() for k in (0, 1)])
    assert np.abs(np.mean(coverage, axis=0) - 0.9).max() < 0.05


def test_equal_classes_share_their_rows():
    X, y = rare(400, 0.5, 0)
    model = LSSVC(calibrate=False).fit(X, y)
    same = model.predict_set(X, 0.1, by_class=False)
    np.testing.assert_array_equal(model.predict_set(X, 0.1), same)


def test_a_class_of_one_row_is_in_every_set():
    X, y = rare(100, 0.3, 0)
    y[3] = 2
    sets = LSSVC().fit(X, y).predict_set(X, 0.1)
    assert sets[:, 2].all() and not sets[:, :2].all()


def test_by_class_is_checked():
    X, y = rare(100, 0.3, 0)
    with pytest.raises(ValueError, match="by_class must be True, False or 'auto', got 'yes'"):
        LSSVC().fit(X, y).predict_set(X, by_class="yes")


def test_suspicion_is_measured_against_what_is_usual_for_the_class():
    X, y = rare(600, 0.05, 3)
    rng, side = np.random.default_rng(3), X[:, 0] + X[:, 1]
    hidden = rng.choice(np.flatnonzero((side > 2.5) & (y == 1)), 4, replace=False)
    y[hidden] = 0
    model = LSSVC(1.0, gamma=0.1).fit(X, y)
    found = inspect_rows(model, X, y)
    values = model._left_out[:, :1]  # in the order of the rows, which all differ
    p = np.exp(log_probabilities(values, model.calibration_slopes_))
    usual = [p[y == k, k].mean() for k in (0, 1)]
    q = p / usual
    expected = 1 - q[np.arange(600), y] / q.sum(axis=1)
    np.testing.assert_allclose(found.suspicion, expected, rtol=1e-6)
    # rare rows that are called common come before most of those that are called rare
    plain = 1 - p[np.arange(600), y]
    for row in hidden:
        assert np.sum(found.suspicion > found.suspicion[row]) < np.sum(plain > plain[row])
