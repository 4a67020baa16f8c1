"""Newton's method ends soon where there is nothing left to gain, and says so only if it matters."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from leansvm import ReducedSVR
from tests.plain import PlainReducedSVC


def smooth_rows(m, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=m)


@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_targets_far_from_zero_give_the_same_model_in_as_many_steps(loss):
    X, y = smooth_rows(200)
    y = np.round(y * 2**10) / 2**10  # y + far is exact
    far = 2.0**23
    near = ReducedSVR(loss=loss, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        moved = ReducedSVR(loss=loss, random_state=0).fit(X, y + far)
    assert moved.C_ == near.C_ and moved.n_support_ == near.n_support_
    assert moved.n_iter_ <= near.n_iter_ + 3
    np.testing.assert_allclose(moved.predict(X) - far, near.predict(X), atol=1e-6)
    np.testing.assert_allclose(moved.loo_residuals_, near.loo_residuals_, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared_hinge", "huber", "logistic", "squared"])
def test_rows_that_all_have_both_labels_take_no_steps_and_no_warning(loss):
    X, _ = smooth_rows(60)
    model = PlainReducedSVC(loss=loss, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(np.r_[X, X], np.repeat([0, 1], 60))
    assert model.n_iter_ <= 50
    assert np.abs(model.decision_function(X)).max() < 1e-6


@pytest.mark.parametrize("decades", [0, 12])
def test_equal_targets_are_predicted_in_a_few_steps(decades):
    X, _ = smooth_rows(60)
    weight = 10.0 ** np.random.default_rng(0).integers(-decades, decades + 1, 60)
    model = ReducedSVR(random_state=0).fit(X, np.full(60, 7.0), sample_weight=weight)
    assert model.n_iter_ <= 50
    np.testing.assert_allclose(model.predict(X), 7.0, rtol=1e-9)


def test_a_zigzag_between_rows_ends_with_a_warning():
    rng = np.random.default_rng(69)
    X = np.r_[1e6 * rng.normal(size=(6, 1)), [[1e12]]]
    y = rng.normal(size=7)
    weight = rng.uniform(size=7)
    model = ReducedSVR(kernel="linear", delta=1e-8, random_state=0)
    with pytest.warns(ConvergenceWarning, match="Newton's method ended"):
        model.fit(X, y, sample_weight=weight)
    assert model.n_iter_ <= 400


def test_a_bias_reaches_targets_that_are_many_deltas_away():
    rng = np.random.default_rng(0)
    y = 1e30 * rng.normal(size=21)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ReducedSVR(C=1.0, random_state=0).fit(np.zeros((21, 1)), y)
    assert model.n_iter_ <= 50
    assert model.intercept_[0] == pytest.approx(np.median(y), rel=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_most_probable_class_of_a_sharp_logistic_loss_is_the_prediction(n_classes):
    X, y = smooth_rows(120)
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = PlainReducedSVC(C=0.1, loss="logistic", p=1e8, n_basis=10, random_state=0)
    model.fit(X, labels)
    p = model.predict_proba(X)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


def test_huge_weights_are_reached_from_smaller_ones():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = PlainReducedSVC(C=1.0, gamma=0.3, loss="squared_hinge", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # many classes
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(X, np.arange(60), sample_weight=np.full(60, 1e12))
    assert model.n_iter_ <= 45  # from zero at once, one row after the other: 85
