"""Probabilities of classes, and the map of three classes or more, from left-out decision values.

p is proportional to sigma(g(f)). All classes share g, which rises and has g(0) = 0: the most
probable class is always the one that `predict` returns. g has one slope in each of six zones of f:
a squared loss makes f the mean of targets +-1, whose log odds are steep only near +-1. If a zone
has few rows, its slope stays close to one scale for all zones. Targets are smoothed as Platt does:
(N + 1) / (N + 2) for the own class.

The squared loss fits one function per class, against all others. A class between two others may
then be the largest nowhere (Hastie, Tibshirani and Friedman, "The Elements of Statistical
Learning", 4.2). `class_map` finds B so that the decision values [f, 1] B of left-out rows give the
best probabilities. Each number that B adds to the identity has a normal prior, in units that change
the log odds of typical rows by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax

from leansvm.rows import column_per_class

Array = NDArray[np.float64]
Slopes = float | Array
_LOG_SCALES = np.linspace(-12.0, 12.0, 49)
_WHOLE = (-12.0, 12.0)  # range of the logarithm of the scale
_EXACT = 1e-9  # how far from the best this logarithm may be
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
_MAP_PRIOR = 2.0  # weight of the squared changes that `class_map` makes, in rows
_MAP_NUMBERS = 200_000  # decision values that `class_map` looks at
_MAP_STEPS = 300  # most steps of its minimisation
_MAP_DIGITS = 4  # of the changes of log odds
_MAP_SPREAD = 1e-2  # of an f that has a part in others: least deviation, of its root mean square
_VARIANCE = 0.1  # of p, typically: the second derivative of the log-loss by log odds


def fit_slopes(
    values: Array, labels: NDArray[np.intp], weight: Array
) -> tuple[float, NDArray[np.float64]]:
    """Return the best scale for all of f, and the slope of g in every zone, pulled towards it.

    ``values`` are left-out decision values, one column per class; one column means two classes.
    """
    n_classes = max(values.shape[1], 2)
    targets = _smoothed(labels, weight, n_classes)
    if values.size > _NUMBERS:  # a sample is enough; rare classes stay in it
        rows, times = _some_of_each(labels, _NUMBERS // (values.shape[1] * n_classes))
        values, targets, weight = values[rows], targets[rows], weight[rows] * times
    known = np.searchsorted(KNOTS, values), values, targets, weight
    even = np.zeros(6)  # one slope for all zones
    found = []
    for low, high in _valleys(*known) if values.shape[1] > 1 else [_WHOLE]:
        while high - low > _EXACT:
            middle = (low + high) / 2
            rises = _cross_entropy(even, np.exp(middle), *known)[1].sum() > 0
            low, high = (low, middle) if rises else (middle, high)
        scale = float(np.exp((low + high) / 2))
        found.append((_cross_entropy(even, scale, *known)[0], scale))
    scale = min(found)[1]
    options: Any = {"gtol": 1e-10, "ftol": 1e-15}
    best = minimize(
        _cross_entropy, even, (scale, *known), jac=True, bounds=[(-5.0, 5.0)] * 6, options=options
    )
    return scale, np.asarray(scale * np.exp(best.x))


def class_map(
    values: Array, labels: NDArray[np.intp], weight: Array, has_offset: bool = True
) -> Array:
    """Return B (K + 1, K): the decision values of K >= 3 classes are [f, 1] B.

    ``values`` are left-out f, one column per class. Without an offset the last row of B is zero.
    """
    n_classes = values.shape[1]
    scale = fit_slopes(values, labels, weight)[0]
    targets = _smoothed(labels, weight, n_classes)
    if values.size > _MAP_NUMBERS:  # rare classes stay in the sample
        rows, times = _some_of_each(labels, _MAP_NUMBERS // n_classes**2)
        values, targets, weight = values[rows], targets[rows], weight[rows] * times
    F = np.column_stack([values, np.full(len(values), float(has_offset))])
    mean, square = weight @ F / weight.sum(), weight @ np.square(F) / weight.sum()
    spread = np.append(np.sqrt(weight @ np.square(values - mean[:-1]) / weight.sum()), 1.0)
    # what a change of B by one does to the log odds; an f that hardly varies has no part in others
    unit = np.where(spread > _MAP_SPREAD * np.sqrt(square), scale * spread, np.inf)
    per_unit = 1.0 / unit
    F *= scale * per_unit
    # changes are U = T V: in V, the second derivatives are about the same in all directions
    curvature, vectors = np.linalg.eigh(_VARIANCE * F.T @ (weight[:, None] * F))
    T = vectors / np.sqrt(np.maximum(curvature, 0.0) + 2 * _MAP_PRIOR)
    F, prior, n = F @ T, _MAP_PRIOR * T.T @ T, float(weight.sum())

    def cost(numbers: Array) -> tuple[float, Array]:
        V = numbers.reshape(-1, n_classes)
        z = scale * values + F @ V
        shares, by_prior = log_shares(z), prior @ V
        by_z = weight[:, None] * (np.exp(shares) - targets) * expit(-z)
        total = float(np.vdot(V, by_prior)) - float(weight @ np.einsum("ij,ij->i", targets, shares))
        return total / n, (F.T @ by_z + 2 * by_prior).ravel() / n

    options: Any = {"gtol": 1e-9, "ftol": 1e-15, "maxiter": _MAP_STEPS}
    start = np.zeros(len(unit) * n_classes)
    best = minimize(cost, start, jac=True, method="L-BFGS-B", options=options)
    # to steps that no probability shows, so that rounding errors of other machines change nothing
    changes = (T @ best.x.reshape(-1, n_classes)).round(_MAP_DIGITS)
    return np.asarray(np.eye(n_classes + 1, n_classes) + per_unit[:, None] * changes)


def mapped(values: Array, B: Array | None) -> Array:
    """Return [f, 1] B; f itself without a map."""
    return values if B is None else values @ B[:-1] + B[-1]


def _smoothed(labels: NDArray[np.intp], weight: Array, n_classes: int) -> Array:
    """Return the targets of p: (N_k + 1) / (N_k + 2) for the own class, the rest for the others."""
    other = 1.0 / (np.bincount(labels, weights=weight, minlength=n_classes)[labels] + 2.0)
    targets = np.repeat((other / (n_classes - 1))[:, None], n_classes, axis=1)
    targets[np.arange(len(labels)), labels] = 1.0 - other
    return np.asarray(targets)


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


def _valleys(*known: NDArray[Any]) -> list[tuple[float, float]]:
    """Return ranges of log a that may have the least cross-entropy: around the lows of a grid."""
    step = -(-len(known[0]) // _GRID_ROWS)
    few = [part[::step] for part in known]
    costs = [_cross_entropy(np.zeros(6), a, *few)[0] for a in np.exp(_LOG_SCALES)]
    around = np.concatenate([[np.inf], costs, [np.inf]])
    lows = np.flatnonzero((around[1:-1] <= around[:-2]) & (around[1:-1] <= around[2:]))
    lows = lows[np.argsort(around[1 + lows], kind="stable")[:_VALLEYS]]
    padded = np.pad(_LOG_SCALES, 1, mode="edge")
    return list(zip(padded[lows].tolist(), padded[lows + 2].tolist(), strict=True))


def _cross_entropy(
    logs: Array, scale: float, zone: NDArray[np.intp], values: Array, targets: Array, weight: Array
) -> tuple[float, Array]:
    """Return the mean cross-entropy of p ~ sigma(g(f)) with the pull, and its derivatives.

    The slopes of g are ``scale`` times the exponentials of ``logs``.
    """
    slopes = scale * np.exp(logs)
    z = slopes[zone] * values + (_OFFSETS @ slopes)[zone]
    if z.shape[1] == 1:  # log sigma(z) = z + log sigma(-z)
        total = -float(weight @ (targets[:, 1] * z[:, 0] + log_expit(-z[:, 0])))
        by_z = weight[:, None] * (expit(z) - targets[:, 1:])
    else:
        shares = log_shares(z)
        total = -float(weight @ np.einsum("ij,ij->i", targets, shares))
        by_z = weight[:, None] * (np.exp(shares) - targets) * expit(-z)
    sums: Any = np.bincount(zone.ravel(), (by_z * values).ravel(), minlength=6)
    sums = sums + np.bincount(zone.ravel(), by_z.ravel(), minlength=6) @ _OFFSETS
    total, by_logs = total + _PRIOR * float(logs @ logs), sums * slopes + 2 * _PRIOR * logs
    return total / float(weight.sum()), by_logs / weight.sum()


def log_shares(scaled: Array) -> Array:
    """Return log p for p ~ sigma(scaled), rows adding up to one."""
    return np.asarray(log_softmax(log_expit(scaled), axis=1))


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
