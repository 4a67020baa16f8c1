"""Predictions: labels and probabilities of classifiers, numbers of regressors.

Predictions for Dask collections are lazy: one task per partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from functools import update_wrapper
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import foreign_namespace, like_rows, moved, to_host
from leansvm.estimators.machine import Machine
from leansvm.estimators.publish import Array, warn
from leansvm.estimators.read import validate
from leansvm.estimators.targets import Scale, to_units
from leansvm.kernels import Mixture
from leansvm.losses import Logistic
from leansvm.probabilities import Slopes, log_probabilities, probabilities
from leansvm.rows import Partitions, is_dask, source_of, tiles_within
from leansvm.tables import feature_names
from leansvm.tables.fitting import check_features, encoded_source

# `predict` warns if it gets at least 20 rows and more than 10 % of them lie outside of a feature's
# range; the limit is 10 % + 20 / training rows, as other rows may lie outside by chance
_ROWS_TO_JUDGE, _SHARE_BEYOND, _BY_CHANCE = 20, 0.1, 20.0


def score(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
    """Return the accuracy of `predict`; for numeric targets its coefficient of determination R^2.

    Parameters
    ----------
    X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features), or data set
        Rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their labels or targets; None for a data set in files, which has them.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.

    Returns
    -------
    float
        Share of the rows that are predicted correctly; for numbers the mean R^2 of all outputs.
    """
    source = source_of(X, y, sample_weight) if self._fits_sources else None
    if source is not None and not source.n_targets:
        raise ValueError("score needs the targets: pass y, or name it in open_dataset(target=...).")
    predicted = self.predict(X)
    if source is not None:
        (y, sample_weight), predicted = source.targets(), np.asarray(predicted)
    metric = accuracy_score if self._classifies else r2_score
    return float(metric(y, predicted, sample_weight=sample_weight))


class PredictsValues(Machine):
    """Adds decision values."""

    def _decision_values(self, X: Any) -> Any:
        """Return f(x) of any rows, one column per output."""
        if not self._is_ready_for(X):
            check_is_fitted(self)
            source = source_of(X) if self._fits_sources else None
            if source is None:
                X = validate(self, X, reset=False)
            else:
                check_features(self, source.n_features, source.feature_names)
                X = encoded_source(self, source, reset=False)
        warn_beyond(self, X)
        with nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size):
            return self._values(X)

    def _is_ready_for(self, X: Any) -> bool:
        """Whether rows need no validation: a finite float64 array of the right shape.

        This makes predictions of one row fast: validation takes longer than the model.
        """
        fitted = vars(self)
        if type(X) is not np.ndarray or X.dtype != np.float64 or "intercept_" not in fitted:
            return False
        if "feature_names_in_" in fitted or "table_" in fitted:
            return False
        if not (X.size and X.flags.c_contiguous and X.shape[1:] == (self.n_features_in_,)):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(X.sum()))


def warn_beyond(estimator: Any, X: Any) -> None:
    """Warn if many rows to predict lie beyond all training rows in one feature.

    ``estimator._seen`` has the smallest and the largest value of every feature that the kernel
    uses, in the rows on which the kernel was learned; it is None if no kernel was learned.
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
        f"{name}. {_beyond(estimator.kernel_)}",
    )


def _beyond(kernel: Any) -> str:
    """Return what a learned kernel does outside the range of its rows."""
    parts = kernel.parts if isinstance(kernel, Mixture) else []
    lines = [part.kernel == "linear" for part in parts]
    if not any(lines):
        return (
            "Kernel models do not extrapolate: outside the range, predictions stay what they are "
            "at its edge. Do not trust them."
        )
    last = "" if kernel.linear_clip is None else ", up to ten times the range"
    if all(lines):
        return (
            f"The model is a straight line: outside the range, predictions continue it{last}. "
            f"Check these values, and whether the line holds there."
        )
    return (
        f"Outside the range, the linear part of the kernel continues a trend{last}, and the other "
        f"parts stay what they are at the edge. Do not trust these predictions."
    )


class _WithCalibration:
    """A method that exists unless ``calibrate=False``; with a logistic loss it always exists.

    The error says how to get the method. (With scikit-learn's `available_if`, the last line of the
    error would be "has no attribute", and the reason would be many lines above.)
    """

    def __init__(self, method: Callable[[Any, Any], Any]) -> None:
        self._method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, estimator: Any, owner: type) -> Callable[..., Any]:
        if estimator is None:
            return self._method
        if not (estimator.calibrate or estimator._is_probabilistic):
            raise AttributeError(
                f"{owner.__name__}: {self._method.__name__} needs calibrate=True. Set it before "
                f"fit, or wrap the estimator in sklearn.calibration.CalibratedClassifierCV."
            )
        fitted = vars(estimator)
        if estimator.calibrate and "intercept_" in fitted and "calibration_scale_" not in fitted:
            raise NotFittedError(  # an AttributeError, too
                f"{owner.__name__}: {self._method.__name__} is not available, because this model "
                f"has no leave-one-out values: it came from a state, had one row, or was fitted "
                f"with calibrate=False. Call fit, or keep_rows(X, y) if the estimator has it."
            )
        return MethodType(self._method, estimator)


class Classifier(ClassifierMixin, PredictsValues):
    """Adds labels, class weights and one-vs-rest decisions.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes, which multiply ``sample_weight``. They are costs of errors and do
        not influence which rows are drawn at random.
    calibrate : bool
        Whether to calibrate probabilities on leave-one-out decision values, for `predict_proba`.
        `SparseLSSVC` with a learned mixture then also combines the functions of three classes or
        more (``class_map_``), which changes predictions.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    """

    score = score
    _classifies = True
    calibration_scale_: float
    calibration_slopes_: Array
    _is_probabilistic: bool | property = False  # gives probabilities without calibration
    _maps_classes: bool | property = False  # combines the functions of three classes or more
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "calibrate": ["boolean"],
    }

    def _same_classes(self, classes: Any) -> Any:
        """Return the classes of the first batch; refuse others."""
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"partial_fit: classes={classes!r}, but earlier calls had "
                f"{self.classes_.tolist()}. Leave it out, or call fit."
            )
        return self.classes_

    def decision_function(self, X: Any) -> Any:
        """Evaluate f(x): one value per row for two classes, else one column per class.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive means the second class (binary) or that class (multiclass).
        """
        if is_dask(X):
            return predict_later(self, "decision_function", X)
        return self._in_shape(self._decision_values(X))

    def predict(self, X: Any) -> Any:
        """Predict the class of every row.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        if is_dask(X):
            return predict_later(self, "predict", X)
        scores = self._decision_values(X)
        xp, two = foreign_namespace(scores), scores.shape[1] == 1
        if xp is None or self.classes_.dtype.kind in "OUS":
            scores = scores if xp is None else to_host(scores)
            winners = (scores[:, 0] > 0).astype(np.intp) if two else scores.argmax(axis=1)
            return np.asarray(self.classes_[winners])
        winners = xp.astype(scores[:, 0] > 0, xp.int64) if two else xp.argmax(scores, axis=1)
        return xp.take(moved(self.classes_, scores), winners)

    @_WithCalibration
    def predict_proba(self, X: Any) -> Any:
        """Probability of every class; needs ``calibrate=True``, except with a logistic loss.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``. `predict` returns the most probable class.
        """
        if is_dask(X):
            return predict_later(self, "predict_proba", X)
        values = self.decision_function(X)
        given = to_host(values)
        return like_rows(probabilities(*self._log_odds(given), given), values)

    @_WithCalibration
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithm of `predict_proba`.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Log-probabilities in the order of ``classes_``.
        """
        if is_dask(X):
            return predict_later(self, "predict_log_proba", X)
        values = self.decision_function(X)
        given = to_host(values)
        result = log_probabilities(*self._log_odds(given)).astype(given.dtype)
        result[np.exp(result) == 1.0] = 0.0  # the probability rounds to 1
        return like_rows(result, values)

    def _log_odds(self, values: Any) -> tuple[Any, Slopes]:
        """Return the inputs of the log odds, and their slopes."""
        loss, scale = self._link()
        return values if loss is None else loss.log_odds(values), scale

    def _link(self) -> tuple[Logistic | None, Slopes]:
        """Return the loss that turns values into log odds (None: they are log odds), and slopes."""
        return None, vars(self).get("calibration_slopes_", self.calibration_scale_)

    def _known_link(self) -> tuple[Logistic | None, Slopes] | None:
        """Return `_link`, or None for a model without probabilities."""
        calibrated = "calibration_scale_" in vars(self)
        known = calibrated if self.calibrate else self._is_probabilistic
        return self._link() if known else None


class Regressor(RegressorMixin, PredictsValues):
    """Adds numeric targets, one or many.

    Parameters
    ----------
    target : {"log", "quantile"} or None
        Transformation of the target, for targets with heavy tails: log y, or normal scores of its
        quantiles. `predict`, intervals and quantiles are in units of y; `predict` estimates the
        median.
    """

    score = score
    _scale: Scale | None = None  # that the model learned on; None: units of y
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "target": [StrOptions({"log", "quantile"}), None]
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any) -> Any:
        """Predict the target of every row.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predicted values, in the shape of the training targets.
        """
        if is_dask(X):
            return predict_later(self, "predict", X)
        return self._in_shape(to_units(self._scale, self._decision_values(X)))


# ---------------------------------------------------------------------------- Dask


def predict_later(model: Any, name: str, X: Any) -> Any:
    """Return ``model.name(X)`` as a Dask array with the chunks of X."""
    import dask
    import dask.array as da

    check_is_fitted(model)
    rows = Partitions(X)
    check_features(model, rows.n_features, rows.feature_names)
    if rows.is_table and "table_" not in vars(model):
        raise ValueError(
            f"X has text, dates or categories, but {type(model).__name__} was fitted on numbers."
        )
    one: Any = np.zeros((1, rows.n_features), rows.dtype)
    if "table_" in vars(model):
        one = np.full(one.shape, None)  # all columns are missing
    if rows.feature_names is not None:
        import pandas as pd

        one = pd.DataFrame(one, columns=rows.feature_names)
    empty = getattr(model, name)(one)[:0]
    sizes = [np.nan] * len(rows) if rows.sizes is None else rows.sizes
    prefix, shared = f"leansvm-{name}-{uuid.uuid4().hex}", dask.delayed(model, pure=False)
    call = dask.delayed(_call, pure=False)
    parts = [
        da.from_delayed(
            call(shared, name, part, empty, dask_key_name=f"{prefix}-{i}"),
            shape=(size, *empty.shape[1:]),
            meta=empty,
        )
        for i, (part, size) in enumerate(zip(rows.X, sizes, strict=True))
    ]
    return da.concatenate(parts)


def _call(model: Any, name: str, X: Any, empty: Any) -> Any:
    """Return the predictions of a partition; scikit-learn refuses ``empty`` ones."""
    return getattr(model, name)(X) if len(X) else empty
