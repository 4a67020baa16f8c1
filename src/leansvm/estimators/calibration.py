"""Probabilities from leave-one-out decision values: p proportional to sigma(a f), one a > 0.

No offset and one scale for all classes, so that the most probable class is always the one that
`predict` returns. Targets are smoothed as Platt does, (N + 1) / (N + 2) for the own class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_expit

from leansvm.rows import column_per_class

Array = NDArray[np.float64]
_LOG_SCALES = np.linspace(-12.0, 12.0, 97)
_GRID_ROWS = 1000  # on which the grid is looked at


def fit_scale(values: Array, labels: NDArray[np.intp], weight: Array) -> float:
    """Return a that minimises the weighted cross-entropy of p ~ sigma(a f).

    Parameters
    ----------
    values : ndarray of shape (n_rows, 1) or (n_rows, n_classes)
        Leave-one-out decision values; one column means two classes.
    labels : ndarray of shape (n_rows,)
        Class numbers.
    weight : ndarray of shape (n_rows,)
        Sample weights.
    """
    n_classes = max(values.shape[1], 2)
    counts = np.bincount(labels, weights=weight, minlength=n_classes)
    # soft targets: (N_k + 1) / (N_k + 2) for the own class, the rest shared by the others
    other = 1.0 / (counts[labels] + 2.0)
    targets = np.repeat((other / (n_classes - 1))[:, None], n_classes, axis=1)
    targets[np.arange(len(labels)), labels] = 1.0 - other
    if n_classes == 2:
        return _scale_of_two(values[:, 0], targets[:, 1], weight)
    return _scale_of_several(values, targets, weight)


def _scale_of_two(values: Array, targets: Array, weight: Array) -> float:
    """Return the zero of the slope of the cross-entropy, which is convex in a."""
    weighted = weight * values

    def slope(log_a: float) -> float:
        return float(weighted @ (expit(np.exp(log_a) * values) - targets))

    least, most = _LOG_SCALES[[0, -1]]
    if slope(least) >= 0.0:
        return float(np.exp(least))
    if slope(most) <= 0.0:
        return float(np.exp(most))
    return float(np.exp(brentq(slope, least, most, xtol=1e-9)))


def _scale_of_several(values: Array, targets: Array, weight: Array) -> float:
    """Refine around the best of a grid: there may be more than one valley."""

    def cross_entropy(log_a: float, rows: slice = slice(None)) -> float:
        logs = log_shares(np.exp(log_a) * values[rows])
        return -float(weight[rows] @ np.einsum("ij,ij->i", targets[rows], logs))

    few = slice(None, None, -(-len(values) // _GRID_ROWS))
    best = int(np.argmin([cross_entropy(log_a, few) for log_a in _LOG_SCALES]))
    bounds = (_LOG_SCALES[max(best - 1, 0)], _LOG_SCALES[min(best + 1, len(_LOG_SCALES) - 1)])
    found = minimize_scalar(cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-5})
    known = _LOG_SCALES[best]
    return float(np.exp(found.x if found.fun <= cross_entropy(known) else known))


def log_shares(scaled: Array) -> Array:
    """Return log p for p ~ sigma(scaled), rows adding up to one."""
    logs = log_expit(scaled)
    top = logs.max(axis=1, keepdims=True)
    return np.asarray(logs - top - np.log(np.sum(np.exp(logs - top), axis=1, keepdims=True)))


def log_probabilities(values: NDArray[Any], scale: float) -> Array:
    """Return log p of every class; one value a row means two classes."""
    columns = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    return log_shares(scale * column_per_class(columns))


def probabilities(
    log_odds: NDArray[Any], scale: float, values: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return p of every class; the class that the decision values predict has the largest.

    Where rounding makes it a tie, as of a sharp logistic loss between its margins, the predicted
    class is one rounding step ahead. Without ``values`` the log odds are the decision values.
    """
    values = log_odds if values is None else values
    p = np.exp(log_probabilities(log_odds, scale)).astype(values.dtype)
    predicted = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
    rows = np.arange(len(p))
    largest = p.max(axis=1)
    first = p.argmax(axis=1)
    behind = (first != predicted) | (np.sum(p == largest[:, None], axis=1) > 1)
    p[rows[behind], predicted[behind]] = np.nextafter(largest[behind], p.dtype.type(2))
    return np.asarray(p)
