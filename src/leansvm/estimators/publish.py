"""`publish`, the last line of a fit: the only place that sets fitted attributes, and warns.

It also fits probabilities to left-out decision values: p proportional to sigma(g(f)). All classes
share g, which rises and has g(0) = 0: the most probable class is always the one that `predict`
returns. g has one slope in each of six zones of f: a squared loss makes f the mean of targets +-1,
whose log odds are steep only near +-1. If a zone has few rows, its slope stays close to one scale
for all zones. Targets are smoothed as Platt does: (N + 1) / (N + 2) for the own class.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax
from sklearn.exceptions import ConvergenceWarning

from leansvm._array_api import to_host
from leansvm._sklearn import level_of_user
from leansvm.estimators.read import ROW_ATTRIBUTES, TrainingData
from leansvm.estimators.targets import to_units
from leansvm.kernels import Kernel
from leansvm.rows import DrawnRows, class_numbers, column_per_class
from leansvm.solution import Solution

Array = NDArray[np.float64]
_TOO_SMOOTH = (
    "the kernel is too smooth for these data (try a larger gamma), or a few rows with large "
    "weights dominate"
)
_TOO_LARGE = "kernel values or weights are very large (scale the features or the weights)"
_FALLS, _NO_NOISE = 0.99, 1e-4  # ratio of errors at neighbouring C; share of the largest error
# `partial_fit` refuses later batches with other values: sums and factors depend on these parameters
_OF_KERNEL = ("kernel", "gamma", "degree", "coef0")
_OF_BATCHES = (*_OF_KERNEL, "fit_intercept", "bias_penalty", "class_weight", "target")
_KEPT_ROWS = 100_000  # rows whose left-out decision values a classifier keeps
_RARE_SHARE, _ROWS_TO_WARN = 0.1, 200  # share of a rare class; fewer rows give no warning about it
_CERTIFIES = ("solver", "objective", "residual", "gap", "iterations", "converged")
# attributes that a fit does not always set: `publish` removes those of the fit before
_NOT_ALWAYS = {"cv_curve_", "loo_residuals_", "calibration_scale_", "calibration_slopes_", "coef_"}
_NOT_ALWAYS |= {"_left_out", "_sequence", "_saved_small", "_has_batches"}
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


@dataclass(frozen=True)
class FittedKernel:
    """A kernel with its numbers, and how they were learned."""

    kernel: Kernel
    name: Any  # ``kernel_``: the name that was given, a mixture, or the user's function
    scales: Array | None = None  # ``feature_scales_``
    seen: Array | None = None  # least and largest values of the features that it looks at
    report: dict[str, Any] | None = None


def publish(
    estimator: Any, data: TrainingData, kernel: FittedKernel | None, solution: Solution
) -> None:
    """Set the fitted attributes and the report, fit probabilities, warn.

    All attributes of an earlier fit are replaced. ``kernel`` is None for machines without one, and
    for later batches.
    """
    finite = np.isfinite(solution.coef).all() and np.isfinite(solution.b).all()
    if not (finite and np.isfinite(solution.objective)):
        raise ValueError(
            f"The coefficients at C={solution.C:.3g} are not finite: lower C, or "
            f"scale X, y or sample_weight."
        )
    fitted = vars(estimator)
    before = fitted.get("_left_out")
    for name in (*_NOT_ALWAYS, *(ROW_ATTRIBUTES if data.attributes else ())):
        fitted.pop(name, None)
    fitted.update(data.attributes)
    seconds, learned = solution.seconds, None
    if kernel is not None:
        publish_kernel(estimator, kernel)
        learned = kernel.report
    fitted.update(estimator._basis_attributes(data, solution))
    if estimator._keeps_rows:
        estimator._rows, estimator._answers = data, None
    if not (estimator._classifies or "_spread" in data.attributes):
        estimator._spread = data.spread()
    estimator.intercept_, estimator.C_ = np.asarray(solution.b), solution.C
    estimator.objective_, estimator.n_iter_ = solution.objective, solution.iterations
    if solution.curve is not None and not isinstance(estimator.C, Real):
        estimator.cv_curve_ = solution.curve
    report = dict(zip(_CERTIFIES, attrgetter(*_CERTIFIES)(solution), strict=True))
    report |= {"rows": data.n_positive, "basis": len(solution.coef), "outputs": data.n_outputs}
    report |= {"bytes": solution.bytes, **solution.details}
    if learned is not None:
        report["learning"] = learned
        seconds = {"learn": float(sum(learned["seconds"].values())), **seconds}
    estimator.fit_report_ = report | {"seconds": dict(seconds)}
    if solution.left_out is not None:
        _use_left_out(estimator, data, solution.left_out, solution.drawn, before)
    if not solution.converged:
        warn(estimator, f": {solution.advice}", ConvergenceWarning)
    if isinstance(estimator.C, str) and solution.C in estimator._candidates[[0, -1]]:
        _warn_of_last_C(estimator, solution)


def warn(estimator: Any, text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the user's line."""
    warnings.warn(f"{type(estimator).__name__}{text}", kind, stacklevel=level_of_user())


def publish_kernel(estimator: Any, fitted: FittedKernel) -> None:
    """Set the attributes of a kernel, and the parameters that later batches must repeat."""
    for name, value in (("feature_scales_", fitted.scales), ("_seen", fitted.seen)):
        vars(estimator).pop(name, None)
        if value is not None:
            setattr(estimator, name, value)
    estimator.kernel_, estimator.gamma_ = fitted.name, fitted.kernel.scales
    estimator.clip_ = fitted.kernel.clip
    estimator._batch_parameters = {}
    for name in _OF_BATCHES:
        estimator._batch_parameters[name] = getattr(estimator, name, None)


def _use_left_out(
    estimator: Any,
    data: TrainingData,
    left_out: Array,
    drawn: DrawnRows | None,
    before: Array | None,
) -> None:
    """Fit probabilities and set ``loo_residuals_`` from left-out residuals.

    The residuals belong to the ``drawn`` rows, to the first of equal rows or, in a batch, to all
    rows. If they belong to drawn rows, `KeepsRows` computes ``loo_residuals_`` on first access.
    """
    merged, whole = data.merged, data if data.whole is None else data.whole
    blocks = whole.blocks() if data.rows is None else data.rows
    rows, weight = np.arange(blocks.n_rows), None  # all of a batch
    if drawn is not None:
        rows, weight = drawn.rows, drawn.weight
    elif merged is not None:
        rows, weight = merged.first, merged.weight
        left_out = left_out[rows if data.taken is None else np.argsort(data.taken)]
    Y, given = blocks.targets_of(rows)
    if isinstance(estimator.C, str) and estimator.C == "loo" and merged and drawn is None:
        residuals = left_out[merged.group]
        unused = np.flatnonzero(merged.group < 0)  # rows of zero weight: in no model
        if len(unused):
            values = to_host(estimator._values(blocks.take(unused)))
            residuals[unused] = blocks.targets_of(unused)[0] - values
        scale = vars(estimator).get("_scale")
        if scale is not None:  # both in units of y
            targets = np.asarray(to_host(whole.Y))
            residuals = to_units(scale, targets) - to_units(scale, targets - residuals)
        estimator.loo_residuals_ = estimator._in_shape(residuals)
    if estimator.calibrate:
        weight, before = given if weight is None else weight, before if merged is None else None
        calibrate(estimator, Y, left_out, weight, data.class_weight, before)


def calibrate(
    estimator: Any,
    Y: Array,
    left_out: Array,
    weight: Array | None,
    class_weight: Array | None,
    before: Array | None = None,
) -> None:
    """Fit probabilities to left-out decision values, and keep these as ``_left_out``.

    ``left_out`` are targets Y minus these values. A row of ``_left_out`` has the values, the class,
    the weight, and the weight without the class weight. A batch adds its rows to the rows
    ``before`` it; the last 100,000 are kept.
    """
    values, labels = Y - left_out, class_numbers(Y)
    weight = np.ones(len(values)) if weight is None else weight
    own = weight if class_weight is None else weight / class_weight[labels]
    known = np.column_stack([values, labels, weight, own])
    known = known[np.isfinite(values).all(axis=1) & (weight > 0)]
    if before is not None:
        known = np.concatenate([before, known])
    if not len(known):
        return
    values, labels, weight = known[:, :-3], known[:, -3].astype(np.intp), known[:, -2]
    estimator.calibration_scale_, estimator.calibration_slopes_ = fit_slopes(values, labels, weight)
    estimator._left_out = known[-_KEPT_ROWS:]
    shares: Any = np.bincount(labels, weight) / weight.sum()
    shares, predicted = shares[shares > 0], np.unique(class_numbers(values))
    rare = len(shares) > 1 and shares.min() < _RARE_SHARE and len(labels) >= _ROWS_TO_WARN
    if rare and len(predicted) == 1:
        label = estimator.classes_.tolist()[predicted[0]]
        warn(
            estimator,
            f" predicts {label!r} for every training row, because no other class is ever more "
            f"probable (the rarest has {shares.min():.2g} of the rows). To find rows of a rare "
            f"class, choose a threshold with leansvm.model_selection.tune_threshold, or fit with "
            f"class_weight='balanced'. To rank rows, use predict_proba.",
        )


def _warn_of_last_C(estimator: Any, solution: Solution) -> None:
    """Warn if a C beyond all candidates would be better."""
    curve, candidates = solution.curve, estimator._candidates
    if curve is None or len(curve) != len(candidates):
        return
    for end, inner in ((0, 1), (-1, -2)) if len(curve) > 1 else ():
        falls = _NO_NOISE * curve.max() < curve[end] < _FALLS * curve[inner]  # False if NaN
        if candidates[end] == solution.C and falls:
            why = _TOO_SMOOTH if solution.C > 1.0 else _TOO_LARGE
            warn(
                estimator,
                f": C_={solution.C:.3g} is the last value that C={estimator.C!r} tries, and the "
                f"error of left-out rows still falls there: {why}. To try further values, pass a "
                f"list as C.",
            )


# ---------------------------------------------------------------------------- probabilities


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
