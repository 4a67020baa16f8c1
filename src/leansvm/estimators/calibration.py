"""Probabilities from leave-one-out decision values: p proportional to sigma(a f), one a > 0.

No offset and one scale for all classes, so that the most probable class is always the one that
`predict` returns. Targets are smoothed as Platt does, (N + 1) / (N + 2) for the own class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_expit

from leansvm.rows import column_per_class

Array = NDArray[np.float64]
_LOG_SCALES = np.linspace(-12.0, 12.0, 97)


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
    values = column_per_class(values)
    n_classes = values.shape[1]
    counts = np.bincount(labels, weights=weight, minlength=n_classes)
    # soft targets: (N_k + 1) / (N_k + 2) for the own class, the rest shared by the others
    other = 1.0 / (counts[labels] + 2.0)
    targets = np.repeat((other / (n_classes - 1))[:, None], n_classes, axis=1)
    targets[np.arange(len(labels)), labels] = 1.0 - other

    def cross_entropy(log_a: float) -> float:
        return -float(weight @ np.sum(targets * log_shares(np.exp(log_a) * values), axis=1))

    # with several classes there may be more than one valley: refine around the best of a grid
    losses = [cross_entropy(log_a) for log_a in _LOG_SCALES]
    best = int(np.argmin(losses))
    bounds = (_LOG_SCALES[max(best - 1, 0)], _LOG_SCALES[min(best + 1, len(_LOG_SCALES) - 1)])
    found = minimize_scalar(cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return float(np.exp(found.x if found.fun <= losses[best] else _LOG_SCALES[best]))


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
    p = np.maximum(p, np.finfo(p.dtype).tiny)  # no class is impossible
    predicted = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
    rows = np.arange(len(p))
    largest = p.max(axis=1)
    first = p.argmax(axis=1)
    behind = (first != predicted) | (np.sum(p == largest[:, None], axis=1) > 1)
    p[rows[behind], predicted[behind]] = np.nextafter(largest[behind], p.dtype.type(2))
    return np.asarray(p)
