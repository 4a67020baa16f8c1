"""Where functions start: medoids of classes, and the columns that lower leave-one-out most."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.low_rank import get_function
from leansvm.low_rank import start as module
from leansvm.low_rank.functions import LearnedFeatures
from leansvm.low_rank.start import (
    add_functions,
    class_medoids,
    draw_start_rows,
    pick_columns,
)
from leansvm.rows import MemoryBlocks
from leansvm.solution import Solution


def rows_of(X, Y, weight=None, n_basis=5):
    return draw_start_rows(MemoryBlocks(X, Y, weight), n_basis, np.random.RandomState(0))


def classed(seed=0, n=90):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size=n)
    X = rng.normal(size=(n, 2)) + 10.0 * labels[:, None]
    return X, np.where(labels[:, None] == np.arange(3), 1.0, -1.0), labels


def test_every_class_has_its_medoids():
    X, Y, labels = classed()
    sample = rows_of(X, Y)
    assert_array_equal(sample.classes, labels)
    for count in (3, 7, 9):
        centers = class_medoids(sample, count)
        near = [int(np.flatnonzero((center == X).all(axis=1))[0]) for center in centers]
        shares = np.bincount(labels[near], minlength=3)
        assert shares.sum() == count and np.ptp(shares) <= 1
    assert len(class_medoids(sample, 2)) == 2  # fewer than classes: of all rows


def test_a_class_of_two_rows_gives_what_it_has():
    X, Y, _ = classed()
    Y[:] = [-1.0, 1.0, -1.0]
    Y[:2] = [1.0, -1.0, -1.0]
    centers = class_medoids(rows_of(X, Y), 8)
    assert len(np.unique(centers, axis=0)) == 8
    assert sum((centers == row).all(axis=1).any() for row in X[:2]) == 2


def test_numbers_have_no_classes_and_signs_have_two():
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert not rows_of(X, X[:, :1]).classes.any()
    assert_array_equal(rows_of(X, np.sign(X[:, :1])).classes, X[:, 0] > 0)


def test_a_sample_counts_as_much_as_the_rows_it_stands_for(monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE_ROWS", 100)
    monkeypatch.setattr(module, "_MEDOID_ROWS", 50)
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(2000, 2)), rng.uniform(0.5, 2.0, size=2000)
    sample = rows_of(X, np.ones((2000, 1)), weight)
    assert len(sample.X) == 100
    assert_allclose(sample.weight, weight.mean(), rtol=0.1)


def left_out_by_refitting(columns, Y):
    total = 0.0
    for i in range(len(Y)):
        others = np.arange(len(Y)) != i
        coef = np.linalg.lstsq(columns[others], Y[others], rcond=None)[0]
        total += np.sum((Y[i] - columns[i] @ coef) ** 2)
    return total


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_the_column_picked_has_the_least_left_out_error_of_refitted_models(seed):
    rng = np.random.default_rng(seed)
    known = np.column_stack([np.ones(25), rng.normal(size=(25, 2))])
    P, Y = rng.normal(size=(25, 6)), rng.normal(size=(25, 2))
    Q = np.linalg.qr(known)[0]
    order = pick_columns(P.copy(), Q, Y, 3, 0.0)
    assert len(set(order)) == 3
    for place, j in enumerate(order):
        errors = {
            k: left_out_by_refitting(np.column_stack([known, P[:, order[:place]], P[:, k]]), Y)
            for k in set(range(6)) - set(order[:place])
        }
        assert_allclose(errors[j], min(errors.values()), rtol=1e-9)


def test_columns_that_are_known_already_come_last():
    rng = np.random.default_rng(0)
    known = rng.normal(size=(30, 3))
    P = np.column_stack([known @ rng.normal(size=(3, 4)), rng.normal(size=(30, 2))])
    order = pick_columns(P, np.linalg.qr(known)[0], rng.normal(size=(30, 1)), 6, 1e-3)
    assert set(order[:2]) == {4, 5} and sorted(order) == list(range(6))


@pytest.mark.parametrize("weighted", [False, True])
def test_functions_are_added_where_the_error_is(weighted):
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, size=(400, 1))
    y = np.exp(-np.abs(X - 6.0)) + np.exp(-np.abs(X + 6.0))
    basis = LearnedFeatures(get_function("robust-rbf"), np.array([[-6.0]]), np.array([[1.0]]))
    weight = np.where(X[:, 0] > 0, 3.0, 0.5) if weighted else None
    sample = rows_of(X, y, weight)
    solution = Solution("primal", np.ones((1, 1)), np.zeros(1), 1e6)
    grown = add_functions(sample, basis, solution, 1)
    assert grown.size == 2 and abs(grown.centers[1, 0] - 6.0) < 0.2
    assert_array_equal(grown.centers[0], basis.centers[0])


def test_as_many_functions_are_added_as_asked_for_even_at_few_rows():
    X = np.arange(6.0)[:, None]
    basis = LearnedFeatures(get_function("simplex"), X[:3], np.full((3, 1), 0.5))
    solution = Solution("primal", np.zeros((3, 1)), np.zeros(1), 1.0)
    assert add_functions(rows_of(X, X**2), basis, solution, 3).size == 6
