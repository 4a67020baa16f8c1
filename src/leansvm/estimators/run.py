"""The frame of every fit: a clock, callbacks and a way back before it, `publish` after it.

`running` surrounds the numbers of `fit`, `partial_fit` and paths. `publish` is the only place that
sets fitted attributes; it also fits probabilities and warns.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from leansvm._array_api import to_host
from leansvm._parallel import serial_blas
from leansvm._phases import Watch, out_of_time, step, watched_by
from leansvm.estimators.calibration import fit_slopes
from leansvm.estimators.values import ROW_ATTRIBUTES, FittedKernel, TrainingData, to_units
from leansvm.ridge.primal import Criterion
from leansvm.rows import DrawnRows, class_numbers, tiles_within
from leansvm.solution import Solution
from leansvm.tables import feature_names

Array = NDArray[np.float64]
_STEP_WEIGHT = 1 / 15  # weight of a step in its phase
_OURS = ("leansvm", "sklearn", "contextlib")
_TOO_SMOOTH = (
    "the kernel is too smooth for these data (try a larger gamma), or a few rows with large "
    "weights dominate"
)
_TOO_LARGE = "kernel values or weights are very large (scale the features or the weights)"
_FALLS, _NO_NOISE = 0.99, 1e-4  # from one C to the next; share of the largest error
# `partial_fit` refuses later batches with other values: sums and factors depend on these parameters
_OF_KERNEL = ("kernel", "gamma", "degree", "coef0")
_OF_BATCHES = (*_OF_KERNEL, "fit_intercept", "bias_penalty", "class_weight", "target")
_KEPT_ROWS = 100_000  # rows whose left-out decision values a classifier keeps
# `predict` warns if it gets so many rows, and such a share of them lies beyond a feature's range;
# a model of few rows has seen little of the range, so that others may lie beyond by chance
_ROWS_TO_JUDGE, _SHARE_BEYOND, _BY_CHANCE = 20, 0.1, 20.0
_RARE_SHARE, _ROWS_TO_WARN = 0.1, 200  # share of a rare class; fewer rows give no warning about it
# attributes that a fit does not always set: `publish` removes those of the fit before
_NOT_ALWAYS = {"cv_curve_", "loo_residuals_", "calibration_scale_", "calibration_slopes_", "coef_"}
_NOT_ALWAYS |= {"_left_out", "_sequence", "_saved_small", "_has_batches"}


# ---------------------------------------------------------------------------- before and around


class Tasks:
    """Tells scikit-learn's callbacks about steps and, where work is planned, about percents."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self.facts = {"estimator": estimator, "X": X, "y": y}
        self.percent, planned = 0, bool(estimator._planned(1, 1))
        most = 101 if planned else 0 if estimator._is_direct else None
        self.fit = self.steps = estimator._init_callback_context(max_subtasks=most)
        self.fit.call_on_fit_task_begin(**self.facts)
        if planned:  # the steps are one task, beside one task for every percent
            self.steps = self.fit.subcontext(task_name="steps", max_subtasks=None)
            self.steps.call_on_fit_task_begin(estimator=estimator)

    def step(self, parent: Any, name: str) -> bool:
        """Report a step; return whether a callback asks to stop."""
        task, estimator = parent.subcontext(task_name=name), self.facts["estimator"]
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    def tell(self, share: float) -> None:
        """Report how much of the fit is done: one task for every percent."""
        while self.percent < int(100 * share):
            self.percent += 1
            self.step(self.fit, "percent")

    def end(self) -> None:
        """Report that the fit is over."""
        if self.steps is not self.fit:
            self.steps.call_on_fit_task_end(estimator=self.facts["estimator"])
        self.fit.call_on_fit_task_end(**self.facts, reconstruction_attributes={})


@dataclass(frozen=True)
class Run:
    """One call of `fit`, `partial_fit` or a path: how C is found, and who hears about progress."""

    criterion: Criterion
    watch: Watch
    tasks: Tasks | None  # None: there are no callbacks
    is_path: bool  # a model for every C, instead of the best one

    def hook(
        self, name: str, share: float | None = None, last: float = np.inf
    ) -> Callable[..., bool] | None:
        """Return a function to call after every step; None if nobody needs it.

        It returns True if the steps shall end: a callback asks for it, or the steps before the
        ``last`` one have used their ``share`` of the time limit.
        """
        tasks = self.tasks
        if tasks is None and (share is None or self.watch.limit == np.inf):
            return None

        def one(iteration: int, residual: float = 0.0) -> bool:
            step(_STEP_WEIGHT)
            ends = share is not None and iteration < last and out_of_time(share)
            return (tasks is not None and tasks.step(tasks.steps, name)) or ends

        return one


@contextmanager
def running(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    criterion: Criterion | None = None,
    is_path: bool = False,
) -> Iterator[Run]:
    """Yield the `Run` of a fit, a batch or a path.

    Inside, tiles of rows keep to ``cache_size``, and BLAS uses one thread. After an error or an
    interrupt the estimator is what it was before. Errors of overflow and of ill-conditioned
    matrices say what to do.
    """
    watch, tasks = Watch(), None
    if estimator.time_limit is not None:
        watch.limit = float(estimator.time_limit)
    if vars(estimator).get("_skl_callbacks"):
        tasks = Tasks(estimator, X, y)
        watch.tell = tasks.tell
    if estimator.verbose:
        watch.say = lambda line: print(f"{type(estimator).__name__}: {line}", flush=True)
    before = vars(estimator).copy()
    try:
        run = Run(criterion or estimator._criterion(), watch, tasks, is_path)
        size = estimator.cache_size
        within = nullcontext() if size == "auto" else tiles_within(size)
        with within, serial_blas(), watched_by(watch):
            yield run
    except BaseException as error:
        estimator.__dict__ = before
        if not isinstance(error, np.linalg.LinAlgError | OverflowError):
            raise
        raise ValueError(
            f"{type(estimator).__name__}: the equations are too ill-conditioned for float64: lower "
            f"C, scale X, y or sample_weight, or use a positive semidefinite kernel."
        ) from error
    if watch.cut:
        estimator.fit_report_["ended_early"] = list(watch.cut)
        warn(
            estimator,
            f": time_limit={estimator.time_limit:g} s ended {' and '.join(watch.cut)} early. The "
            f"model uses the best result so far; the fit took {watch.elapsed:.1f} s.",
        )
    if tasks is not None:
        tasks.end()


# ---------------------------------------------------------------------------- publish


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
    fitted, report = vars(estimator), _report(data, kernel, solution)
    before = fitted.get("_left_out")
    for name in (*_NOT_ALWAYS, *(ROW_ATTRIBUTES if data.attributes else ())):
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
    estimator.fit_report_ = report
    if solution.left_out is not None and data.merged is not None:
        _use_left_out(estimator, data, solution.left_out, solution.drawn)
    elif solution.left_out is not None and estimator.calibrate:  # a batch
        drawn = solution.drawn
        rows = np.arange(data.X.shape[0]) if drawn is None else drawn.rows
        Y, weight = data.blocks().targets_of(rows)
        weight, values = weight if drawn is None else drawn.weight, Y - solution.left_out
        calibrate(estimator, values, class_numbers(Y), weight, data.class_weight, before)
    if not solution.converged:
        warn(estimator, f": {solution.advice}", ConvergenceWarning)
    _warn_of_last_C(estimator, solution)


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


def _report(data: TrainingData, kernel: FittedKernel | None, solution: Solution) -> dict[str, Any]:
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


def _use_left_out(
    estimator: Any, data: TrainingData, left_out: Array, drawn: DrawnRows | None
) -> None:
    """Fit probabilities and set ``loo_residuals_`` from the left-out residuals of distinct rows.

    If these are ``drawn`` rows only, `KeepsRows` works out ``loo_residuals_`` when it is asked for.
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
    values, labels = Y[rows] - left_out, class_numbers(Y[rows]) if estimator.calibrate else None
    if isinstance(estimator.C, str) and estimator.C == "loo" and drawn is None:
        residuals = left_out[merged.group]
        unused = np.flatnonzero(merged.group < 0)  # rows of zero weight: no model changes without
        if len(unused):
            residuals[unused] = Y[unused] - to_host(estimator._values(whole.blocks().take(unused)))
        scale = vars(estimator).get("_scale")
        if scale is not None:  # both in units of y
            residuals = to_units(scale, Y) - to_units(scale, Y - residuals)
        estimator.loo_residuals_ = estimator._in_shape(residuals)
    if labels is not None:
        calibrate(estimator, values, labels, weight, data.class_weight)


def calibrate(
    estimator: Any,
    values: Array,
    labels: NDArray[np.intp],
    weight: Array | None,
    class_weight: Array | None,
    before: Array | None = None,
) -> None:
    """Fit probabilities to left-out decision values, and keep these as ``_left_out``.

    A row of ``_left_out`` has the decision values, the class, the weight, and the weight without
    that of the class. Batches add to the rows ``before`` them; the last 100,000 are kept.
    """
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
            f"probable (the rarest class has {shares.min():.2g} of the rows). Use predict_proba to "
            f"rank rows, leansvm.model_selection.tune_threshold to choose a threshold, or "
            f"class_weight='balanced' to give all classes the same weight.",
        )


# ---------------------------------------------------------------------------- warnings


def _warn_of_last_C(estimator: Any, solution: Solution) -> None:
    """Warn if a C beyond all candidates would be better."""
    curve, candidates = solution.curve, estimator._candidates
    if curve is None or not isinstance(estimator.C, str) or len(curve) != len(candidates):
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


def warn_beyond(estimator: Any, X: Any) -> None:
    """Warn if many rows to predict lie beyond all training rows in one feature.

    ``estimator._seen`` has the least and the largest value of every feature that the kernel looks
    at, in the rows it was learned on; None: nothing was learned.
    """
    if estimator._seen is None or type(X) is not np.ndarray or len(X) < _ROWS_TO_JUDGE:
        return
    least, most = estimator._seen
    shares = np.mean((least > X) | (most < X), axis=0)
    feature = int(shares.argmax())
    if shares[feature] <= min(_SHARE_BEYOND + _BY_CHANCE / estimator.fit_report_["rows"], 0.5):
        return
    names = feature_names(estimator)
    name = f"feature {feature}" if names is None else f"{names[feature]!r}"
    warn(
        estimator,
        f": {shares[feature]:.0%} of these rows lie outside the range of the training rows in "
        f"{name}. Kernel models do not extrapolate: predictions stay what they are at the edge of "
        f"the range. Do not trust them.",
    )


def warn(estimator: Any, text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the user's line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(f"{type(estimator).__name__}{text}", kind, stacklevel=level)
