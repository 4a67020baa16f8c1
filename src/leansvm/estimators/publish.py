"""`publish`, the last line of `fit`: sets the fitted attributes and warns.

Batches, `keep_rows` and `KernelBasis` set a few more themselves. `publish` also fits probabilities,
and the map of three classes or more (`leansvm.probabilities`).
"""

from __future__ import annotations

import warnings
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from leansvm._array_api import to_host
from leansvm._phases import watching
from leansvm._sklearn import level_of_user
from leansvm.estimators.read import ROW_ATTRIBUTES, TrainingData
from leansvm.estimators.targets import to_units
from leansvm.learning.learn import FittedKernel
from leansvm.probabilities import class_map, fit_slopes, mapped
from leansvm.rows import DrawnRows, class_numbers
from leansvm.solution import Solution

Array = NDArray[np.float64]
_TOO_SMOOTH = (
    "the {} without noise, or the kernel is too smooth for these data (try a "
    "larger gamma), or a few rows with large weights dominate"
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
_NOT_ALWAYS |= {"class_map_", "_left_out", "_sequence", "_saved_small", "_has_batches"}


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
    watch = watching.get()
    assert watch is not None  # `running` surrounds every fit
    report |= {"bytes": solution.bytes}
    report["ended_early"] = list(dict.fromkeys(watch.cut + watch.stopped))  # each phase once
    report |= solution.details
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
    """Fit probabilities, map classes and set ``loo_residuals_`` from left-out residuals.

    ``left_out`` has one line per drawn row, per distinct row (`merged`) or, in a batch, per row. If
    rows were drawn, `KeepsRows` computes ``loo_residuals_`` on first access.
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
    if estimator.calibrate:
        by_row, before = given if weight is None else weight, before if merged is None else None
        calibrate(estimator, Y, left_out, by_row, data.class_weight, before, maps=True)
        left_out = Y - mapped(Y - left_out, vars(estimator).get("class_map_"))
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


def calibrate(
    estimator: Any,
    Y: Array,
    left_out: Array,
    weight: Array | None,
    class_weight: Array | None,
    before: Array | None = None,
    maps: bool = False,
) -> None:
    """Fit probabilities to left-out decision values, and keep these as ``_left_out``.

    ``left_out`` are targets Y minus these values. A row of ``_left_out`` has the values, the class,
    the weight, and the weight without the class weight. A batch adds its rows to the rows
    ``before`` it; the last 100,000 are kept. With ``maps`` the coefficients of three classes or
    more are mapped first, if the estimator does that (`leansvm.probabilities.class_map`); the kept
    values are those before the map.
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
    if maps and values.shape[1] > 1 and estimator._maps_classes:
        estimator.class_map_ = B = class_map(values, labels, weight, estimator.fit_intercept)
        values = mapped(values, B)
        estimator.dual_coef_ = np.ascontiguousarray(B[:-1].T @ estimator.dual_coef_)
        estimator.intercept_ = mapped(estimator.intercept_, B)
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
            targets = "classes are separated" if estimator._classifies else "targets are"
            why = _TOO_SMOOTH.format(targets) if solution.C > 1.0 else _TOO_LARGE
            what = "criterion" if estimator.C == "gcv" else "error of left-out rows"
            warn(
                estimator,
                f": C_={solution.C:.3g} is the last value that C={estimator.C!r} tries, and the "
                f"{what} still falls there: {why}. To try further values, pass a "
                f"list as C.",
            )
