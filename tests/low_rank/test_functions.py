"""Basis functions: values by definition, gradients by finite differences, lookup."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from leansvm.low_rank import (
    FUNCTIONS,
    RBF,
    RobustRBF,
    Simplex,
    get_function,
)

DEFINITIONS = {
    "simplex": lambda d, mu: np.maximum(0.0, 1.0 - np.sum(mu * np.abs(d), axis=-1)),
    "robust-rbf": lambda d, mu: np.exp(-np.sum(mu * np.abs(d), axis=-1)),
    "rbf": lambda d, mu: np.exp(-np.sum(mu * d**2, axis=-1)),
}


def problem(seed, n=40, n_features=3, n_functions=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    centers = rng.normal(size=(n_functions, n_features))
    shapes = rng.uniform(0.05, 0.4, size=(n_functions, n_features))
    return X, centers, shapes, rng.normal(size=(n, n_functions))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_values_are_the_definition(name, order):
    X, centers, shapes, _ = problem(0)
    values = get_function(name).values(np.array(X, order=order), centers, shapes)
    assert_allclose(values, DEFINITIONS[name](X[:, None] - centers, shapes), atol=1e-14)


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(sorted(FUNCTIONS)), seed=st.integers(0, 2**31))
def test_gradients_are_those_of_finite_differences(name, seed):
    X, centers, shapes, weights = problem(seed)
    function, h = get_function(name), 1e-6
    kinks = np.abs(X[:, None] - centers).min(axis=(1, 2)) < 10 * h
    kinks |= (np.abs(1.0 - np.sum(shapes * np.abs(X[:, None] - centers), axis=2)) < 1e-4).any(
        axis=1
    )
    weights[kinks] = 0.0

    def total(c, mu):
        return float(np.sum(weights * function.values(X, c, mu)))

    values = function.values(X, centers, shapes)
    found = function.gradients(X, centers, shapes, values, weights)
    for which, gradient in enumerate(found):
        for j, i in np.ndindex(centers.shape):
            step = np.zeros_like(centers)
            step[j, i] = h
            sides = [
                total(centers + (which == 0) * s * step, shapes + (which == 1) * s * step)
                for s in (1, -1)
            ]
            assert_allclose(gradient[j, i], (sides[0] - sides[1]) / (2 * h), atol=2e-7)


def test_a_row_on_the_centre_has_no_slope_there():
    X = np.zeros((1, 2))
    for function in (RobustRBF(), Simplex(), RBF()):
        values = function.values(X, X, np.ones((1, 2)))
        by_center, _ = function.gradients(X, X, np.ones((1, 2)), values, np.ones((1, 1)))
        assert_allclose(by_center, 0.0)


def test_zero_shapes_switch_a_feature_off():
    X, centers, shapes, _ = problem(1)
    shapes[:, 1] = 0.0
    X[:, 1] = 1e300
    for name, definition in DEFINITIONS.items():
        values = get_function(name).values(X, centers, shapes)
        others = [0, 2]
        expected = definition(X[:, None, others] - centers[:, others], shapes[:, others])
        assert_allclose(values, expected, atol=1e-14)


def test_widths_are_infinite_for_features_switched_off():
    for name in FUNCTIONS:
        widths = get_function(name).widths(np.array([[1.0, 0.0]]))
        assert np.isfinite(widths[0, 0]) and np.isinf(widths[0, 1])


def test_lookup():
    instance = Simplex()
    assert get_function(instance) is instance
    assert isinstance(get_function("rbf"), RBF)


def test_compiled_loops_see_no_arrays_that_do_not_fit():
    X, centers = np.zeros((5, 3)), np.zeros((2, 3))
    for function in (RBF(), RobustRBF(), Simplex()):
        values = function.values(X, centers, centers + 1.0)
        for other in (np.zeros((2, 4)), np.zeros((2, 2)), np.zeros((3, 3))):
            with pytest.raises(ValueError, match="shape"):
                function.values(X, centers, other)
            with pytest.raises(ValueError, match="shape"):
                function.gradients(X, other, other, values, values)
        with pytest.raises(ValueError, match="shape"):
            function.values(X, np.zeros((2, 4)), np.zeros((2, 4)))
