"""Targets and weights of a data source, in the form that a fit needs.

A `Survey` of the target column comes first (classes and their weights, without looking at X);
`Targets` then turns labels and weights of any rows into columns +-1 and weights, the same way
wherever the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from leansvm.rows._blocks import one_vs_rest

Array = NDArray[np.float64]
_MOST_LABELS = 100_000


@dataclass(frozen=True)
class Survey:
    """Classes (None: numbers), rows of positive weight and sum of weights of each."""

    classes: NDArray[Any] | None
    rows: NDArray[np.intp]
    weights: Array
    largest_weight: float
    all_ones: bool

    @classmethod
    def of_ones(cls, n_rows: int) -> Survey:
        """Return the survey of numbers without weights."""
        return cls(None, np.array([n_rows]), np.array([float(n_rows)]), 1.0, True)

    def __add__(self, other: Survey) -> Survey:
        largest = max(self.largest_weight, other.largest_weight)
        all_ones = self.all_ones and other.all_ones
        if self.classes is None or other.classes is None:
            rows, weights = self.rows + other.rows, self.weights + other.weights
            return Survey(None, rows, weights, largest, all_ones)
        if (self.classes.dtype.kind in "US") != (other.classes.dtype.kind in "US"):
            raise ValueError(
                f"Some labels in y are text and some are not, such as {self.classes[0]!r} and "
                f"{other.classes[0]!r}."
            )
        classes = np.union1d(self.classes, other.classes)
        if len(classes) > _MOST_LABELS:
            raise ValueError(
                f"The target has more than {_MOST_LABELS:,} different labels. If it is a number, "
                f"use a regressor."
            )
        rows, weights = np.zeros(len(classes), np.intp), np.zeros(len(classes))
        for part, known in ((self, self.classes), (other, other.classes)):
            place = np.searchsorted(classes, known)
            rows[place] += part.rows
            weights[place] += part.weights
        return Survey(classes, rows, weights, largest, all_ones)


def survey(y: Any, weight: Any, numeric: bool) -> Survey:
    """Look at the targets (None: not needed) and weights (None: ones) of some rows."""
    if weight is not None:
        weight = checked_weight(weight)
    if numeric:
        used = np.zeros(0) if weight is None else weight
        classes, rows = None, np.array([np.count_nonzero(used)])
        weights = np.array([used.sum()])
    else:
        classes, place = np.unique(checked_labels(y), return_inverse=True)
        used = np.ones(len(place)) if weight is None else weight
        rows = np.bincount(place, used > 0, minlength=len(classes)).astype(np.intp)
        weights = np.bincount(place, used, minlength=len(classes)).astype(np.float64)
    if weight is None or not len(weight):
        return Survey(classes, rows, weights, 1.0, True)
    return Survey(classes, rows, weights, float(weight.max()), bool(np.all(weight == 1.0)))


def checked_weight(weight: Any) -> Array:
    """Return weights in float64; they must be finite and not negative."""
    weight = np.asarray(weight, dtype=np.float64).reshape(-1)
    assert_all_finite(weight, input_name="sample_weight")
    if (weight < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`.")
    return np.asarray(weight)


def checked_labels(y: Any) -> NDArray[Any]:
    """Return labels, one for each row; there must be no missing one."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y must hold one label per row, got {y.shape[1]} columns.")
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    elif y.dtype.kind == "O":
        if any(label is None or label != label for label in y):
            raise ValueError("Input y contains missing labels.")
        if all(isinstance(label, str) for label in y):
            y = y.astype(str)
        elif any(isinstance(label, str) for label in y):
            raise ValueError("Some labels in y are text and some are not.")
    return y


@dataclass(frozen=True)
class Targets:
    """How targets and weights of rows become columns of numbers and the weights of a fit."""

    classes: NDArray[Any] | None  # None: numbers
    class_weight: Array | None = None
    least_weight: float = 0.0  # weights below it count as zero
    weighted: bool = False  # whether weights differ from 1

    def __call__(self, y: Any, weight: Any) -> tuple[Array | None, Array | None]:
        """Return targets (rows x outputs) and weights (None for ones) of some rows."""
        if y is None:
            return None, self._weight(weight, None)
        if self.classes is None:
            Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
            assert_all_finite(Y, input_name="y")
            return Y, self._weight(weight, None)
        y = checked_labels(y)
        labels = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        known = self.classes[labels] == y
        if not np.all(known):
            unknown = np.unique(y[~known]).tolist()
            raise ValueError(f"y has labels that are not in classes: {unknown}.")
        return one_vs_rest(labels, len(self.classes)), self._weight(weight, labels)

    def _weight(self, weight: Any, labels: NDArray[np.intp] | None) -> Array | None:
        if weight is not None:
            weight = checked_weight(weight)
            weight = np.where(weight < self.least_weight, 0.0, weight)
        if self.class_weight is not None and labels is not None:
            by_class = self.class_weight[labels]
            weight = by_class if weight is None else weight * by_class
        return weight if self.weighted else None
