"""Targets: numbers on the scale that a regressor learns, codes of labels, and their errors.

A regressor may learn log y, or normal scores of the quantiles of y. Predictions are mapped back to
units of y. This maps quantiles to quantiles, so `predict` returns the median of y if errors are
symmetric on the learned scale, as in `TransformedTargetRegressor`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.utils import assert_all_finite, check_array, check_consistent_length
from sklearn.utils.multiclass import type_of_target

from leansvm._array_api import (
    as_float64,
    dispatched_namespace,
    foreign_namespace,
    like_rows,
    namespace,
    to_host,
)
from leansvm.rows import few_values, one_vs_rest
from leansvm.tables.fitting import count_missing

Array = NDArray[np.float64]
Scale = tuple[Array, ...]  # for every output two rows, quantiles of y and their scores; empty: log
_LARGEST_TARGET = 1e140  # sums of squares of larger ones are not finite
_SCALE_KNOTS, LARGEST_LOG = 1000, 700.0  # quantiles that a scale has; largest argument of exp


def read_numbers(estimator: Any, y: Any, weight: Array, reset: bool) -> Any:
    """Return numbers to predict, rows x outputs, on the scale that the estimator learns."""
    Y = as_float64(y)
    if foreign_namespace(Y) is None:  # objects such as None have become NaN
        assert_all_finite(Y, input_name="y")
        if np.abs(Y).max(initial=0.0) > _LARGEST_TARGET:
            raise ValueError(f"y has values beyond {_LARGEST_TARGET:g}: scale it.")
    check_single_output(estimator, Y.ndim == 1, reset)
    Y = namespace(Y).reshape(Y, (Y.shape[0], -1))
    if reset:
        name = estimator.target
        estimator._scale = None if name is None else _learned_scale(name, Y, weight)
    return Y if estimator._scale is None else to_scale(estimator._scale, Y)


def explain_targets(estimator: Any, y: Any) -> None:
    """Raise an error that says what is wrong with the targets; if they are usable, do nothing."""
    if y is None or dispatched_namespace(y) is not None or sparse.issparse(y):
        return
    count, total = count_missing(y)
    if count:
        what, own = "targets", ""
        if estimator._classifies:
            what, own = "labels", ", or make them a class of their own"
        raise ValueError(
            f"Input y contains NaN or None: {count:,} of {total:,} {what} are missing. Leave "
            f"these rows out (with pandas: known = y.notna(); fit(X[known], y[known])){own}."
        ) from None
    texts = [value for value in np.ravel(np.asarray(y, dtype=object)) if isinstance(value, str)]
    if texts and not estimator._classifies:
        name = type(estimator).__name__
        raise ValueError(
            f"y contains text, such as {texts[0]!r}, but {name} predicts numbers: convert y to "
            f"numbers, or use a classifier such as {name.replace('SVR', 'SVC')}."
        ) from None


def any_targets(X: Any, y: Any) -> Array:
    """Return labels as columns +-1, and numbers as they are."""
    y = y if dispatched_namespace(y) is None else to_host(y)
    y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(X, y)
    kind = type_of_target(y)
    if kind in ("binary", "multiclass") and (y.dtype.kind not in "iuf" or few_values(y)):
        classes, labels = np.unique(y, return_inverse=True)
        return one_vs_rest(labels, len(classes))
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    assert_all_finite(Y, input_name="y")
    return Y


def check_single_output(estimator: Any, single: bool, reset: bool) -> None:
    """Remember whether there is one number for each row; later batches must have the same."""
    if not reset and estimator._single_output != single:
        raise ValueError("y must have as many target columns as in earlier calls.")
    estimator._single_output = single


def _learned_scale(name: str, Y: Any, weight: Any) -> Scale:
    """Return the scale to learn on, from targets (rows x outputs) and weights."""
    Y, weight = np.asarray(to_host(Y)), np.asarray(to_host(weight))
    Y, weight = Y[weight > 0], weight[weight > 0]
    if name == "log":
        if Y.min() <= 0:
            raise ValueError(
                f"target='log' needs positive targets, but the smallest value of y is "
                f"{Y.min():g}: add a constant to y, or set target='quantile'."
            )
        return ()
    return tuple(_scores(column, weight) for column in Y.T)


def _scores(y: Array, weight: Array) -> Array:
    """Return the values of y and their normal scores, from the share of weight below each."""
    values, place = np.unique(y, return_inverse=True)
    total = np.bincount(place, weights=weight).astype(np.float64)
    shares = (np.cumsum(total) - total / 2) / total.sum()
    if len(values) > _SCALE_KNOTS:  # evenly in weight, with both ends
        wanted = np.searchsorted(shares, np.linspace(shares[0], shares[-1], _SCALE_KNOTS))
        values, shares = values[np.unique(wanted)], shares[np.unique(wanted)]
    return np.stack([values, ndtri(shares)])


def to_scale(scale: Scale, Y: Any) -> Any:
    """Return targets on the learned scale, rows x outputs, where they are."""
    given = np.asarray(to_host(Y))
    if not scale:
        if given.min() <= 0:
            raise ValueError(f"target='log' needs positive targets, got {given.min():g} in y.")
        return like_rows(np.log(given), Y)
    columns = [np.interp(y, *knots) for y, knots in zip(given.T, scale, strict=True)]
    return like_rows(np.stack(columns, axis=1), Y)


def to_units(scale: Scale | None, values: Any) -> Any:
    """Return values on the learned scale, rows x outputs (x anything), in units of y."""
    if scale is None:
        return values
    given = np.asarray(to_host(values))
    if not scale:
        found = np.exp(np.minimum(given, LARGEST_LOG))
    else:
        found = np.empty_like(given)
        for output, (units, scores) in enumerate(scale):
            found[:, output] = np.interp(given[:, output], scores, units)
    return like_rows(found.astype(given.dtype), values)
