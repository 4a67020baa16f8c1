"""Class numbers and columns of targets +-1, which many modules share."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from leansvm.rows import class_numbers, column_per_class, one_vs_rest


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_class_numbers_undo_one_vs_rest(n_classes):
    labels = np.random.default_rng(0).integers(n_classes, size=40)
    Y = one_vs_rest(labels, n_classes)
    assert Y.shape[1] == (1 if n_classes == 2 else n_classes)
    assert_array_equal(class_numbers(Y), labels)
    assert_array_equal(column_per_class(Y).argmax(axis=1), labels)
    assert column_per_class(Y).shape == (40, n_classes)


def test_zero_and_ties_are_of_the_first_class():
    assert_array_equal(class_numbers(np.array([[0.0], [1e-300], [-0.0]])), [0, 1, 0])
    assert_array_equal(class_numbers(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]])), [0, 1])
