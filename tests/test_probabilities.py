"""The map that combines the functions of three classes or more."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax

from leansvm.probabilities import class_map, fit_slopes, mapped


def line_of_classes(n=150, seed=0):
    """Decision values of three classes in a row: the middle one is the largest nowhere."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    x = labels - 1.0 + 0.3 * rng.normal(size=n)
    F = np.column_stack([np.ones(n), x])
    return F @ np.linalg.lstsq(F, 2.0 * np.eye(3)[labels] - 1.0)[0], labels


def test_a_class_between_two_others_is_found():
    values, labels = line_of_classes()
    found = mapped(values, class_map(values, labels, np.ones(len(values))))
    assert np.mean(values.argmax(axis=1) == labels) < 0.75
    assert np.mean(found.argmax(axis=1) == labels) > 0.85


@pytest.mark.parametrize("has_offset", [True, False])
def test_the_map_has_the_least_log_loss_with_its_prior(has_offset):
    values, labels = line_of_classes()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(values))
    scale = fit_slopes(values, labels, weight)[0]
    totals = np.bincount(labels, weight)
    targets = np.where(
        labels[:, None] == np.arange(3), 1.0, 1.0 / (totals[labels, None] + 2.0) / 2.0
    )
    targets[np.arange(len(labels)), labels] = (totals[labels] + 1.0) / (totals[labels] + 2.0)
    mean = np.average(values, axis=0, weights=weight)
    spread = np.sqrt(np.average(np.square(values - mean), axis=0, weights=weight))
    unit = scale * np.append(spread, 1.0)[:, None]

    def cost(B):
        changes = unit * (B.reshape(4, 3) - np.eye(4, 3))
        if not has_offset:
            changes[-1] = 0.0
        z = scale * mapped(values, np.eye(4, 3) + changes / unit)
        log_p = log_softmax(log_expit(z), axis=1)
        return -weight @ (targets * log_p).sum(axis=1) + 2.0 * np.square(changes).sum()

    expected = minimize(cost, np.eye(4, 3).ravel(), method="BFGS")
    B = class_map(values, labels, weight, has_offset)
    assert cost(B.ravel()) <= expected.fun + 1e-4 * weight.sum()
    assert (B[-1] == 0).all() or has_offset
    assert_allclose(unit * B, unit * expected.x.reshape(4, 3), atol=0.02)


def test_weights_are_repetitions_and_the_order_of_classes_does_not_matter():
    values, labels = line_of_classes()
    times = 1 + np.arange(len(values)) % 3
    B = class_map(values, labels, times.astype(float))
    again = class_map(values.repeat(times, 0), labels.repeat(times), np.ones(times.sum()))
    assert_allclose(B, again, rtol=0, atol=1e-8)
    turned = class_map(values[:, [1, 2, 0]], (labels - 1) % 3, times.astype(float))
    assert_allclose(turned, B[[1, 2, 0, 3]][:, [1, 2, 0]], rtol=0, atol=1e-8)


def test_constant_functions_and_missing_classes_change_nothing_else():
    values, labels = line_of_classes(30)
    values[:, 0] = -1.0
    B = class_map(values, labels, np.ones(30))
    assert_array_equal(B[0], [1.0, 0.0, 0.0])
    some = labels != 2
    assert np.isfinite(class_map(values[some], labels[some], np.ones(some.sum()))).all()


def test_functions_that_hardly_vary_keep_their_values():
    values, labels = line_of_classes()
    weight = np.array([1000.0, 1e-4, 1e-4])[labels]
    values = np.array([1.0, -1.0, -1.0]) + 1e-8 * values
    B = class_map(values, labels, weight)
    assert_array_equal(B[:3], np.eye(3))
    assert np.abs(B[3]).max() < 1.0
