"""Probabilities of LSSVC: one scale, the winner of `predict`, honest on data that is left out."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from leansvm import LSSVC, SparseLSSVC
from leansvm.probabilities import fit_slopes, probabilities


def noisy_problem(n_classes, m=60):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, 3))
    edges = np.quantile(X[:, 0], np.arange(1, n_classes) / n_classes)
    return X, np.digitize(X[:, 0] + 0.5 * rng.normal(size=m), edges)


def cross_entropy(a, values, labels, weight):
    """Weighted cross-entropy of p ~ sigma(a f) with Platt's targets, written out."""
    if values.shape[1] == 1:
        values = np.hstack([-values, values])
    logs = -np.logaddexp(0.0, -a * values)  # of the shares, which may be smaller than any number
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    n_classes = values.shape[1]
    own = np.bincount(labels, weight)[labels][:, None]  # weight of all rows of a row's class
    hit = labels[:, None] == np.arange(n_classes)
    target = np.where(hit, (own + 1) / (own + 2), 1 / (own + 2) / (n_classes - 1))
    return -np.sum(weight[:, None] * target * logs)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_scale_against_a_search_by_brute_force(n_classes, C):
    X, y = noisy_problem(n_classes)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    model = LSSVC(C, gamma=0.5, calibrate=True).fit(X, y, weight)
    # left-out decision values by refitting without each row
    values = []
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        left_out = LSSVC(C, gamma=0.5).fit(X[rest], y[rest], weight[rest])
        values.append(np.atleast_1d(left_out.decision_function(X[[i]])[0]))
    values = np.array(values)
    scales = np.exp(np.linspace(-3, 5, 2001))
    costs = [cross_entropy(a, values, y, weight) for a in scales]
    best = int(np.argmin(costs))
    assert 0 < best < 2000
    assert scales[best - 1] <= model.calibration_scale_ <= scales[best + 1]
    assert cross_entropy(model.calibration_scale_, values, y, weight) <= costs[best] * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    arrays(
        float, st.tuples(st.integers(2, 8), st.sampled_from([1, 3, 4])), elements=st.floats(-5, 5)
    ),
    st.randoms(use_true_random=False),
)
def test_no_other_scale_is_better(values, random):
    n_classes = max(2, values.shape[1])
    labels = np.array([random.randrange(n_classes) for _ in values])
    weight = np.ones(len(values))
    found = fit_slopes(values, labels, weight)[0]
    assert found > 0
    cost = cross_entropy(found, values, labels, weight)
    for a in np.exp(np.linspace(-11, 6, 200)):
        assert cost <= cross_entropy(a, values, labels, weight) + 1e-4 * (1 + abs(cost))


def test_scale_when_the_cross_entropy_has_two_valleys():
    # one row knows that it is none of the classes with 0, the other ties: minima near 0.4 and 8
    values, labels, weight = (
        np.array([[4.0, 3.0, 0.0], [0.0, 0.0, 0.0]]),
        np.zeros(2, int),
        np.ones(2),
    )
    scales = np.exp(np.linspace(-11, 6, 2001))
    best = min(cross_entropy(a, values, labels, weight) for a in scales)
    found = cross_entropy(fit_slopes(values, labels, weight)[0], values, labels, weight)
    assert found <= best * (1 + 1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_probabilities_are_probabilities(n_classes, dtype):
    X, y = noisy_problem(n_classes)
    X = X.astype(dtype)
    model = LSSVC("loo", calibrate=True).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (len(y), n_classes)
    assert p.dtype == dtype
    assert np.all((p >= 0) & (p <= 1))
    assert_allclose(p.sum(axis=1), 1.0, atol=4 * np.finfo(dtype).eps)
    assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    assert_allclose(np.exp(model.predict_log_proba(X)), p, rtol=1e-5)
    assert model.predict_log_proba(X).dtype == dtype


def test_binary_probabilities_are_a_sigmoid_of_the_decision():
    X, y = noisy_problem(2)
    model = LSSVC(calibrate=True).fit(X, y)
    f, z = model.decision_function(X), 0.0
    ends = [-np.inf, -0.9, -0.5, 0.0, 0.5, 0.9, np.inf]
    for slope, low, high in zip(model.calibration_slopes_, ends, ends[1:], strict=False):
        z += slope * (np.clip(f, low, high) - np.clip(0.0, low, high))
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_slopes_against_a_search_without_derivatives(n_classes):
    rng = np.random.default_rng(1)
    values = rng.uniform(-1.2, 1.2, size=(300, 1 if n_classes == 2 else n_classes))
    noisy = values + 0.3 * rng.normal(size=values.shape)
    labels = (noisy[:, 0] > 0).astype(int) if n_classes == 2 else noisy.argmax(axis=1)
    weight = rng.uniform(0.5, 2.0, size=300)
    scale, slopes = fit_slopes(values, labels, weight)

    def cost(logs):
        ends, z = [-np.inf, -0.9, -0.5, 0.0, 0.5, 0.9, np.inf], 0.0
        for log, low, high in zip(logs, ends, ends[1:], strict=False):
            z = z + scale * np.exp(log) * (np.clip(values, low, high) - np.clip(0.0, low, high))
        return cross_entropy(1.0, z, labels, weight) + logs @ logs

    best = cost(np.log(slopes / scale))
    found = minimize(cost, np.zeros(6), method="Powell", bounds=[(-5, 5)] * 6)
    assert best <= found.fun * (1 + 1e-6)
    for _ in range(50):
        assert best <= cost(np.log(slopes / scale) + 0.01 * rng.normal(size=6)) + 1e-9


def test_calibration_does_not_change_the_model():
    X, y = noisy_problem(3)
    for C in (2.0, "loo", "gcv", [1.0, 5.0]):
        plain, calibrated = LSSVC(C).fit(X, y), LSSVC(C, calibrate=True).fit(X, y)
        assert_allclose(
            calibrated.decision_function(X), plain.decision_function(X), rtol=1e-9, atol=1e-9
        )
        assert hasattr(calibrated, "loo_residuals_") == (C == "loo")


@pytest.mark.parametrize(
    "load", [load_breast_cancer, load_iris, lambda **kw: load_digits(n_class=4, **kw)]
)
def test_probabilities_of_real_data_beat_a_constant_and_a_hard_vote(load):
    X, y = load(return_X_y=True)
    X, y = X[:400], y[:400]
    train, test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    scale = StandardScaler().fit(train)
    model = LSSVC("loo", calibrate=True).fit(scale.transform(train), y_train)
    p = model.predict_proba(scale.transform(test))
    shares = np.bincount(y_train) / len(y_train)
    constant = log_loss(y_test, np.tile(shares, (len(y_test), 1)))
    assert log_loss(y_test, p) < 0.5 * constant
    hard = np.eye(len(model.classes_))[model.predict(scale.transform(test))]
    assert log_loss(y_test, p) < log_loss(y_test, 0.98 * hard + 0.02 / len(shares)) + 0.05


def test_labels_without_information_get_nearly_equal_probabilities():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.arange(200) % 2
    model = LSSVC(1.0, gamma=0.5, calibrate=True).fit(X, y)
    assert np.abs(model.predict_proba(rng.normal(size=(100, 2))) - 0.5).max() < 0.2


# ---------------------------------------------------------------------------- the winner

decisions = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e-17, 1e-9, 36.0, 37.0, 40.0, 50.0, 750.0, 1e5]),
)


def winners(values):
    return (values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)


@settings(max_examples=200, deadline=None)
@given(st.lists(decisions, min_size=1, max_size=6), st.floats(-12, 12))
@example([1e-18], 0.0)
@example([-1e-18], 0.0)
@example([0.0], 0.0)
def test_most_probable_of_two_classes(values, log_scale):
    values = np.array(values)
    p = probabilities(values, float(np.exp(log_scale)))
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert_array_equal(p.argmax(axis=1), winners(values))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(decisions, decisions, decisions), min_size=1, max_size=6),
    st.floats(-12, 12),
)
@example([(40.0, 50.0, 1.0)], 0.0)
@example([(-1e5, -1e5 + 1, -1e5)], 12.0)
@example([(0.0, 1e-17, 0.0)], 0.0)
def test_most_probable_of_three_classes(values, log_scale):
    values = np.array(values)
    p = probabilities(values, float(np.exp(log_scale)))
    assert np.isfinite(p).all()
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert_array_equal(p.argmax(axis=1), winners(values))


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(4, 10), st.just(2)), elements=st.floats(-3, 3)),
    st.lists(st.integers(0, 2), min_size=10, max_size=10),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.sampled_from([np.float64, np.float32]),
)
def test_most_probable_class_is_the_predicted_one(X, labels, C, dtype):
    y = np.array(labels[: len(X)])
    assume(len(np.unique(y)) > 1)
    X = X.astype(dtype)
    model = LSSVC(C, gamma=0.5, calibrate=True).fit(X, y)
    grid = np.random.default_rng(0).uniform(-3, 3, size=(50, 2)).astype(dtype)
    for rows in (X, grid):
        p = model.predict_proba(rows)
        assert np.isfinite(p).all()
        assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(rows))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_most_probable_class_near_the_boundary(dtype, n_classes):
    # far from all rows the decision is the bias, at rounding distance from a tie
    X = np.array([[-1.0], [1.0], [0.0]] if n_classes == 3 else [[-1.0], [1.0]], dtype=dtype)
    model = LSSVC(1.0, gamma=1.0, calibrate=True).fit(X, np.arange(n_classes))
    rows = np.linspace(-8, 8, 4001, dtype=dtype)[:, None]
    p = model.predict_proba(rows)
    assert_array_equal(p.argmax(axis=1), model.predict(rows))


def test_logarithms_of_vanishing_probabilities_warn_of_nothing():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-40, 1, size=(40, 2)), rng.normal(40, 1, size=(40, 2))])
    y = np.repeat([0, 1], 40)
    for dtype in (np.float64, np.float32):
        model = LSSVC(1e4, kernel="linear", calibrate=True).fit(X.astype(dtype), y)
        far = (1e4 * X).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            logs = model.predict_log_proba(far)
        assert np.isfinite(logs).all()
        assert_array_equal(logs.argmax(axis=1), model.predict(far))


def test_equal_rows_have_probabilities_with_folds():
    """Few rows differ, and all may be in one fold."""
    X, y = np.ones((30, 2)), np.arange(30) % 2
    model = SparseLSSVC(C="kfold", calibrate=True).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X[:1]), 0.5)


def test_scale_when_two_valleys_lie_between_neighbours_of_the_grid():
    low, high = -0.46875, 0.296875
    values = np.full((4, 4), high)
    values[[0, 0, 2], [0, 2, 0]], values[1, 0] = 1.0, low
    labels, weight = np.array([1, 1, 2, 1]), np.ones(4)
    found = fit_slopes(values, labels, weight)[0]
    costs = [cross_entropy(a, values, labels, weight) for a in np.exp(np.linspace(-11, 6, 500))]
    assert cross_entropy(found, values, labels, weight) <= min(costs) + 1e-9
