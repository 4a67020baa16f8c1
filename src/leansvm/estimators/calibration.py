"""Probabilities from left-out decision values: p proportional to sigma(g(f)).

All classes share g, which rises and has g(0) = 0: the most probable class is always the one that
`predict` returns. g has one slope in each of six zones of f: a squared loss makes f the mean of
targets +-1, whose log odds are steep only near +-1. If a zone has few rows, its slope stays close
to one scale for all zones. Targets are smoothed as Platt does: (N + 1) / (N + 2) for the own class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_expit

from leansvm.rows import column_per_class

Array = NDArray[np.float64]
Slopes = float | Array
_LOG_SCALES = np.linspace(-12.0, 12.0, 49)
_VALLEYS = 3  # minima of the cross-entropy that are compared
_GRID_ROWS = 1000  # on which the grid is evaluated
_NUMBERS = 40_000  # decision values to which slopes are fitted
KNOTS = np.array([-0.9, -0.5, 0.0, 0.5, 0.9])  # between the zones of f
_PRIOR = 1.0  # weight of the squared log ratios of slopes to the one scale, in rows
# offsets c = _OFFSETS s make s f + c continuous, with 0 in the two zones beside f = 0
_OFFSETS = np.zeros((6, 6))
_OFFSETS[0, [0, 1, 2]] = 0.9, -0.4, -0.5
_OFFSETS[1, [1, 2]] = 0.5, -0.5
_OFFSETS[4, [3, 4]] = 0.5, -0.5
_OFFSETS[5, [3, 4, 5]] = 0.5, 0.4, -0.9


def fit_slopes(
    values: Array, labels: NDArray[np.intp], weight: Array
) -> tuple[float, NDArray[np.float64]]:
    """Return the best scale for all of f, and the slope of g in every zone, pulled towards it.

    ``values`` are left-out decision values, one column per class; one column means two classes.
    """
    # (N_k + 1) / (N_k + 2) for the own class, the rest shared by the others
    n_classes = max(values.shape[1], 2)
    other = 1.0 / (np.bincount(labels, weights=weight, minlength=n_classes)[labels] + 2.0)
    targets = np.repeat((other / (n_classes - 1))[:, None], n_classes, axis=1)
    targets[np.arange(len(labels)), labels] = 1.0 - other
    if values.size > _NUMBERS:  # a sample is enough; rare classes stay in it
        rows, times = _some_of_each(labels, _NUMBERS // (values.shape[1] * n_classes))
        values, targets, weight = values[rows], targets[rows], weight[rows] * times
    scale = _scale(values, targets, weight)
    zone, total = np.searchsorted(KNOTS, values), float(weight.sum())
    places, numbers = zone.ravel(), values.ravel()

    def cost(logs: Array) -> tuple[float, Array]:
        slopes = scale * np.exp(logs)
        z = slopes[zone] * values + (_OFFSETS @ slopes)[zone]
        entropy, pull = _cross_entropy(z, targets, weight)
        sums: Any = np.bincount(places, pull.ravel() * numbers, minlength=6)
        sums = sums + np.bincount(places, pull.ravel(), minlength=6) @ _OFFSETS
        entropy += _PRIOR * float(logs @ logs)
        return entropy / total, (2 * _PRIOR * logs + sums * slopes) / total

    options: Any = {"gtol": 1e-10, "ftol": 1e-15}
    found = minimize(cost, np.zeros(6), jac=True, bounds=[(-5.0, 5.0)] * 6, options=options)
    return scale, np.asarray(scale * np.exp(found.x))


def _some_of_each(labels: NDArray[np.intp], most: int) -> tuple[NDArray[np.intp], Array]:
    """Return about ``most`` rows of each class, or all, and how many rows each represents."""
    counts = np.bincount(labels)
    step = np.maximum(-(-counts // max(most, 1)), 1)
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(labels), np.intp)  # of a row among those of its class
    place[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.flatnonzero(place % step[labels] == 0)
    taken = np.bincount(labels[rows], minlength=len(counts))
    return rows, counts[labels[rows]] / taken[labels[rows]]


def _scale(values: Array, targets: Array, weight: Array) -> float:
    """Return a that minimises the weighted cross-entropy of p ~ sigma(a f)."""

    def slope(log_a: float) -> float:
        z = np.exp(log_a) * values
        return float(np.sum(_cross_entropy(z, targets, weight)[1] * z))

    def cost(log_a: float) -> float:
        return _cross_entropy(np.exp(log_a) * values, targets, weight)[0]

    valleys = [(float(_LOG_SCALES[0]), float(_LOG_SCALES[-1]))]
    if values.shape[1] > 1:  # there may be several minima: each is near a low of the grid
        few = slice(None, None, -(-len(values) // _GRID_ROWS))
        known = values[few], targets[few], weight[few]
        costs = [_cross_entropy(a * known[0], *known[1:])[0] for a in np.exp(_LOG_SCALES)]
        around = np.concatenate([[np.inf], costs, [np.inf]])
        lows = np.flatnonzero((around[1:-1] <= around[:-2]) & (around[1:-1] <= around[2:]))
        lows = lows[np.argsort(around[1 + lows], kind="stable")[:_VALLEYS]]
        padded = np.pad(_LOG_SCALES, 1, mode="edge")
        valleys = list(zip(padded[lows].tolist(), padded[lows + 2].tolist(), strict=True))
    found = []
    for low, high in valleys:
        if slope(low) >= 0.0:
            found.append(low)
        elif slope(high) <= 0.0:
            found.append(high)
        else:
            found.append(float(brentq(slope, low, high, xtol=1e-12)))
    return float(np.exp(min(found, key=cost) if len(found) > 1 else found[0]))


def _cross_entropy(z: Array, targets: Array, weight: Array) -> tuple[float, Array]:
    """Return the weighted cross-entropy and its derivative by the log odds z."""
    if z.shape[1] == 1:  # log sigma(z) = z + log sigma(-z)
        total = -float(weight @ (targets[:, 1] * z[:, 0] + log_expit(-z[:, 0])))
        return total, np.asarray(weight[:, None] * (expit(z) - targets[:, 1:]))
    logs = log_shares(z)
    total = -float(weight @ np.einsum("ij,ij->i", targets, logs))
    return total, np.asarray(weight[:, None] * (np.exp(logs) - targets) * expit(-z))


def log_shares(scaled: Array) -> Array:
    """Return log p for p ~ sigma(scaled), rows adding up to one."""
    logs = log_expit(scaled)
    top = logs.max(axis=1, keepdims=True)
    return np.asarray(logs - top - np.log(np.sum(np.exp(logs - top), axis=1, keepdims=True)))


def offsets_of(slopes: Array) -> Array:
    """Return c of g(f) = s f + c in every zone."""
    return np.asarray(_OFFSETS @ slopes)


def log_probabilities(values: NDArray[Any], slopes: Slopes) -> Array:
    """Return log p of every class; one value a row means two classes.

    ``slopes`` are those of the zones, or one for all.
    """
    columns = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    if np.ndim(slopes) == 0:
        return log_shares(column_per_class(slopes * columns))
    zone, of_zone = np.searchsorted(KNOTS, columns), np.asarray(slopes)
    return log_shares(column_per_class(of_zone[zone] * columns + offsets_of(of_zone)[zone]))


def probabilities(
    log_odds: NDArray[Any], slopes: Slopes, values: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return p of every class; the class that the decision values predict has the largest.

    If rounding makes it a tie, as between the margins of a sharp logistic loss, the predicted class
    gets one rounding step more. Without ``values`` the log odds are the decision values.
    """
    values = log_odds if values is None else values
    p = np.exp(log_probabilities(log_odds, slopes)).astype(values.dtype)
    p = np.maximum(p, np.finfo(p.dtype).tiny)  # no class is impossible
    predicted = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
    rows = np.arange(len(p))
    largest = p.max(axis=1)
    first = p.argmax(axis=1)
    behind = (first != predicted) | (np.sum(p == largest[:, None], axis=1) > 1)
    p[rows[behind], predicted[behind]] = np.nextafter(largest[behind], p.dtype.type(2))
    return np.asarray(p)
