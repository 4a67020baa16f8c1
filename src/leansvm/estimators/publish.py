"""The last line of every fit: the only place that sets fitted attributes, calibrates and warns."""

from __future__ import annotations

import sys
import warnings
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from leansvm._array_api import to_host
from leansvm._phases import Watch
from leansvm.estimators.calibration import fit_slopes
from leansvm.estimators.read import ROW_ATTRIBUTES
from leansvm.estimators.target import to_units
from leansvm.estimators.training_data import TrainingData
from leansvm.rows import class_numbers
from leansvm.solution import Solution

Array = NDArray[np.float64]
_OURS = ("leansvm", "sklearn", "contextlib")
_TOO_SMOOTH = (
    "the kernel is too smooth for these data (try a larger gamma), or a few rows of large weight "
    "decide"
)
_TOO_LARGE = "kernel values or weights are very large (scale the features or the weights)"
_FALLS, _NO_NOISE = 0.99, 1e-4  # from one C to the next; share of the largest error
# what `partial_fit` must find as it was in the first batch: sums and factors depend on it
_OF_KERNEL = ("kernel", "gamma", "degree", "coef0")
_OF_BATCHES = (*_OF_KERNEL, "fit_intercept", "bias_penalty", "class_weight", "target")
_KEPT_ROWS = 100_000  # whose left-out decision values a classifier keeps
_RARE, _MANY_ROWS = 0.1, 200  # share of a rare class; rows from which on its absence is told
_ONCE = {"cv_curve_", "loo_residuals_", "calibration_scale_", "calibration_slopes_", "coef_"}
_ONCE |= {"_left_out", "_sequence", "_saved_small", "_has_batches"}  # of one fit


def publish(estimator: Any, data: TrainingData, kernel: Any, solution: Solution) -> None:
    """Set the fitted attributes and the report; calibrate; warn.

    All attributes of an earlier fit are replaced. ``kernel`` is None for machines without one, and
    for later batches.
    """
    finite = np.isfinite(solution.coef).all() and np.isfinite(solution.b).all()
    if not (finite and np.isfinite(solution.objective)):
        raise ValueError(
            f"The solution at C={solution.C:.3g} has numbers that are not finite: lower C, or "
            f"scale X, y or sample_weight."
        )
    fitted = estimator.__dict__
    before = fitted.get("_left_out")
    for name in (*_ONCE, *(ROW_ATTRIBUTES if data.attributes else ())):
        fitted.pop(name, None)
    fitted.update(data.attributes)
    if kernel is not None:
        publish_kernel(estimator, kernel)
    fitted.update(estimator._basis_attributes(data, solution))
    if estimator._keeps_rows:
        estimator._rows, estimator._answers = data, None
    if not (estimator._classifies or "_spread" in data.attributes):
        estimator._spread = data.spread()
    estimator.intercept_ = np.asarray(solution.b)
    estimator.C_ = solution.C
    estimator.objective_ = solution.objective
    estimator.n_iter_ = solution.iterations
    if solution.curve is not None and not isinstance(estimator.C, Real):
        estimator.cv_curve_ = solution.curve
    estimator.fit_report_ = _report(data, kernel, solution)
    if solution.left_out is not None and data.merged is not None:
        _use_left_out(estimator, data, solution.left_out, solution.drawn)
    elif solution.left_out is not None and estimator.calibrate:  # of a batch
        targets, weight = data.targets(), data.blocks().targets_of(np.arange(data.X.shape[0]))[1]
        terms = targets - solution.left_out, targets, weight, data.class_weight
        calibrate(estimator, *terms, before)
    _warn(estimator, solution)


def publish_kernel(estimator: Any, fitted: Any) -> None:
    """Set the attributes of a `FittedKernel`, and what later batches must find as it was."""
    for name, value in (("feature_scales_", fitted.scales), ("_seen", fitted.seen)):
        estimator.__dict__.pop(name, None)
        if value is not None:
            setattr(estimator, name, value)
    estimator.kernel_, estimator.gamma_ = fitted.name, fitted.kernel.scales
    estimator.clip_ = fitted.kernel.clip
    estimator._batch_parameters = {}
    for name in _OF_BATCHES:
        estimator._batch_parameters[name] = getattr(estimator, name, None)


def warn_of_time(estimator: Any, watch: Watch) -> None:
    """Say which phases ended early because of ``time_limit``."""
    phases = " and ".join(watch.cut)
    estimator.fit_report_["ended_early"] = list(watch.cut)
    warnings.warn(
        f"{type(estimator).__name__}: time_limit={estimator.time_limit:g} s ended {phases} early, "
        f"with the best so far; the fit took {watch.elapsed:.1f} s.",
        UserWarning,
        stacklevel=frames_to_caller(),
    )


def _warn(estimator: Any, solution: Solution) -> None:
    """Say where a solver did not converge, and where a C beyond all candidates would be better."""
    if not solution.converged:
        text = f"{type(estimator).__name__}: {solution.advice}"
        warnings.warn(text, ConvergenceWarning, stacklevel=frames_to_caller())
    curve, candidates = solution.curve, estimator._candidates
    if curve is None or not isinstance(estimator.C, str) or len(curve) != len(candidates):
        return
    for end, inner in ((0, 1), (-1, -2)) if len(curve) > 1 else ():
        falls = _NO_NOISE * curve.max() < curve[end] < _FALLS * curve[inner]  # False of NaN
        if candidates[end] == solution.C and falls:
            why = _TOO_SMOOTH if solution.C > 1.0 else _TOO_LARGE
            warnings.warn(
                f"{type(estimator).__name__}: C_={solution.C:.3g} is the last value that "
                f"C={estimator.C!r} tries, and the error of left-out rows still falls there: "
                f"{why}. A list for C can go further.",
                UserWarning,
                stacklevel=frames_to_caller(),
            )


def frames_to_caller() -> int:
    """Return how many frames up from `publish` the user's line is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


def _report(data: TrainingData, kernel: Any, solution: Solution) -> dict[str, Any]:
    """Return ``fit_report_``."""
    report, seconds = dict(solution.details), dict(solution.seconds)
    if kernel is not None and kernel.report is not None:
        report["learning"] = kernel.report
        seconds = {"learn": float(sum(kernel.report["seconds"].values())), **seconds}
    return {
        "solver": solution.solver,
        "objective": solution.objective,
        "residual": solution.residual,
        "gap": solution.gap,
        "iterations": solution.iterations,
        "converged": solution.converged,
        "rows": data.n_positive,
        "basis": len(solution.coef),
        "outputs": data.n_outputs,
        "bytes": solution.bytes,
        **report,
        "seconds": seconds,
    }


def _use_left_out(estimator: Any, data: TrainingData, left_out: Array, drawn: Any) -> None:
    """Calibrate and set ``loo_residuals_`` from the left-out residuals of distinct rows.

    Those of ``drawn`` rows are enough to calibrate; ``loo_residuals_`` is then left to `KeepsRows`.
    """
    merged, whole = data.merged, data if data.whole is None else data.whole
    assert merged is not None
    Y = whole.targets()
    if data.taken is not None:  # back to the places of the original rows
        given = np.full(Y.shape, np.nan)
        given[data.taken] = left_out
        left_out = given
    if drawn is None:
        left_out, rows, weight = left_out[merged.first], merged.first, merged.weight
    else:
        rows, weight = drawn.rows, drawn.weight
    if estimator.calibrate:
        targets = Y[rows]
        calibrate(estimator, targets - left_out, targets, weight, data.class_weight)
    if isinstance(estimator.C, str) and estimator.C == "loo" and drawn is None:
        residuals = left_out[merged.group]
        unused = np.flatnonzero(merged.group < 0)  # of zero weight: they change no model
        if len(unused):
            rows = whole.blocks().take(unused)
            residuals[unused] = Y[unused] - to_host(estimator._values(rows))
        scale = vars(estimator).get("_scale")
        if scale is not None:  # both in units of y
            residuals = to_units(scale, Y) - to_units(scale, Y - residuals)
        estimator.loo_residuals_ = estimator._in_shape(residuals)


def calibrate(
    estimator: Any,
    values: Array,
    targets: Array,
    weight: Array | None,
    class_weight: Array | None,
    before: Array | None = None,
) -> None:
    """Fit probabilities to left-out decision values.

    Rows of ``_left_out`` are their values, class, weight, and weight without that of the class.
    Batches go on with those ``before`` them; of many rows the last are kept.
    """
    labels = class_numbers(targets)
    weight = np.ones(len(values)) if weight is None else weight
    own = weight if class_weight is None else weight / class_weight[labels]
    known = np.column_stack([values, labels, weight, own])
    known = known[np.isfinite(values).all(axis=1) & (weight > 0)]
    if before is not None:
        known = np.concatenate([before, known])
    if len(known):
        found = known[:, :-3], known[:, -3].astype(np.intp), known[:, -2]
        estimator.calibration_scale_, estimator.calibration_slopes_ = fit_slopes(*found)
        estimator._left_out = known[-_KEPT_ROWS:]
        _warn_of_one_class(estimator, *found)


def _warn_of_one_class(
    estimator: Any, values: Array, labels: NDArray[np.intp], weight: Array
) -> None:
    """Say that a rare class is never predicted, as far as left-out rows tell."""
    predicted, shares = np.unique(class_numbers(values)), np.bincount(labels, weight)
    shares = shares[shares > 0] / weight.sum()
    rare = len(shares) > 1 and shares.min() < _RARE and len(labels) >= _MANY_ROWS
    if rare and len(predicted) == 1:
        name, label = type(estimator).__name__, estimator.classes_.tolist()[predicted[0]]
        warnings.warn(
            f"{name} predicts {label!r} for every row: no other class is ever more probable "
            f"(the rarest has {shares.min():.2g} of the rows). "
            f"predict_proba still ranks rows; leansvm.model_selection.tune_threshold chooses a "
            f"threshold, class_weight='balanced' weighs the classes alike.",
            UserWarning,
            stacklevel=frames_to_caller(),
        )
