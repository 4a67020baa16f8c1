"""The kept training rows that are nearest to a row, and their weights in its prediction."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from leansvm._array_api import to_host
from leansvm.estimators.answers import KeepsRows
from leansvm.inspection._view import Array, Indices, checked_view
from leansvm.rows import tiles_within


@dataclass
class Neighbours:
    """Training rows that a model keeps as points and that are most like some rows.

    Attributes
    ----------
    row : ndarray of shape (n_rows, count)
        Their numbers among the training rows, the nearest first; -1 for points that the user gave.
    similarity : ndarray of shape (n_rows, count)
        The kernel value: 1 for equal rows, near 0 for rows that are not similar.
    pull : ndarray of shape (n_rows, count) or None
        The weight of the neighbour's target in the prediction: how much the prediction, or decision
        value, grows if this target grows by one. With a free bias, the weights of all training rows
        add up to 1. None for estimators without a squared loss, and for models that do not know
        their training rows (see the method ``keep_rows``).
    target : ndarray of shape (n_rows, count) or None
        Their targets, if y was given.
    """

    row: Indices
    similarity: Array
    pull: Array | None
    target: Any


def neighbours(model: Any, rows: Any, y: Any = None, *, count: int = 5) -> Neighbours:
    """Return the kept training rows that are most like each row, their targets and their pull.

    Parameters
    ----------
    model : estimator
        A fitted kernel machine, or a pipeline that ends with one.
    rows : array-like, sparse matrix or data frame of shape (n_rows, n_columns)
        Rows, with the columns that ``model.predict`` takes.
    y : array-like of shape (n_samples,), default=None
        Targets of the training rows, to look up those of the neighbours.
    count : int, default=5
        Largest number of neighbours of each row.

    Returns
    -------
    Neighbours
        One line per row.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> from leansvm.inspection import neighbours
    >>> X = np.arange(6.0)[:, None]
    >>> y = [0, 1, 4, 9, 16, 25]
    >>> found = neighbours(LSSVR(C=100, kernel="rbf", gamma=1.0).fit(X, y), [[2.1]], y, count=2)
    >>> found.row, found.target, found.pull.round(1)
    (array([[2, 3]]), array([[4, 9]]), array([[1. , 0.1]]))
    """
    if not isinstance(count, Integral) or count < 1:
        raise ValueError(f"count must be a whole number >= 1, got {count!r}.")
    view = checked_view(model, rows, "neighbours()")
    if not view.is_kernel_machine:
        raise TypeError(f"{type(view.machine).__name__} keeps no training rows.")
    kernel_features = view.machine._model()[0]
    kernel, points = kernel_features.kernel, kernel_features.points
    X = view.features(view.X)
    K = kernel.block(X, points if kernel.precomputed else to_host(points))
    nearest = np.argsort(-K, axis=1, kind="stable")[:, : int(count)]
    row = np.asarray(view.machine.support_)[nearest]
    if y is not None and (row.min() < 0 or row.max() >= len(y)):
        raise ValueError(
            f"y must have the targets of all training rows: it has {len(y)}, but a neighbour is "
            f"row {row.max()}. (Basis points that you gave as an array are row -1 and have none.)"
        )
    similarity = np.take_along_axis(K, nearest, axis=1)
    return Neighbours(
        row, similarity, _pull(view.machine, X, row), None if y is None else np.asarray(y)[row]
    )


def _pull(machine: Any, X: Array, row: Indices) -> Array | None:
    """Return the share that the targets of training rows have in f at rows X."""
    if not isinstance(machine, KeepsRows) or row.min() < 0:
        return None
    try:
        answers = machine._ask()
        with tiles_within(machine.cache_size):
            found, merged = answers.left_out, answers.distinct.merged
            # copies of a row stand where the first of them does
            used, place = np.unique(row, return_inverse=True)
            distinct = np.searchsorted(found.rows, merged.first)[merged.group[used]]
            shares = found.shares(found.place(X), found.chosen(distinct))
    except ValueError:  # its training rows are not known
        return None
    return np.take_along_axis(shares, place.reshape(row.shape), axis=1)
