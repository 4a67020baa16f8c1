"""Predictions: labels and probabilities of classifiers, numbers of regressors."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions

from leansvm._array_api import foreign_namespace, like_rows, moved, to_host
from leansvm.estimators.calibration import Array, Slopes, log_probabilities, probabilities
from leansvm.estimators.dask_prediction import predict_later
from leansvm.estimators.machine import Machine
from leansvm.estimators.read import to_score
from leansvm.estimators.target import Scale, to_units
from leansvm.losses import Logistic
from leansvm.rows import is_dask


class _WithCalibration:
    """A method that exists unless ``calibrate=False``; else an error.

    A loss of probabilities has it in any case. Its own line says how to get the method:
    scikit-learn's `available_if` would end with "has no attribute", the reason far above it.
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
                f"{owner.__name__}: {self._method.__name__} needs left-out decision values, and "
                f"this model has none: it came from a state, had one row, or calibrate=True was "
                f"set after fit. Call fit or, where there is one, keep_rows(X, y)."
            )
        return MethodType(self._method, estimator)


class Classifier(ClassifierMixin, Machine):
    """Adds labels, class weights and one-vs-rest decisions.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied into ``sample_weight``: costs of errors, by which no
        rows are drawn.
    calibrate : bool
        Fit probabilities to leave-one-out decision values, for `predict_proba`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    """

    _classifies = True
    calibration_scale_: float
    calibration_slopes_: Array
    _is_probabilistic: bool | property = False  # gives probabilities without calibration
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "calibrate": ["boolean"],
    }

    def _same_classes(self, classes: Any) -> Any:
        """Return the classes of the first batch; later batches may only repeat them."""
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"partial_fit: classes={classes!r} were {self.classes_.tolist()} in earlier calls. "
                f"Leave it out, or call fit."
            )
        return self.classes_

    def decision_function(self, X: Any) -> Any:
        """Evaluate f(x): one value per row for two classes, else one column per class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
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
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
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

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), data set or collection
            Rows.
        y : array-like of shape (n_samples,)
            Their labels; None for a data set in files, which has them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Share of the rows that are predicted correctly.
        """
        y, predicted, weight = to_score(self, X, y, sample_weight)
        return float(accuracy_score(y, predicted, sample_weight=weight))

    @_WithCalibration
    def predict_proba(self, X: Any) -> Any:
        """Probability of every class; exists unless ``calibrate=False``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``; the largest belongs to `predict`.
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
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
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
        result[np.exp(result) == 1.0] = 0.0  # as rounded as the probability is
        return like_rows(result, values)

    def _log_odds(self, values: Any) -> tuple[Any, Slopes]:
        """Return the values that log odds are made of, and their slopes."""
        loss, scale = self._link()
        return values if loss is None else loss.log_odds(values), scale

    def _link(self) -> tuple[Logistic | None, Slopes]:
        """Return the loss that turns values into log odds (None: none does), and the slopes."""
        return None, getattr(self, "calibration_slopes_", self.calibration_scale_)

    def _known_link(self) -> tuple[Logistic | None, Slopes] | None:
        """Return `_link` of a model that gives probabilities, None of others."""
        known = hasattr(self, "calibration_scale_") if self.calibrate else self._is_probabilistic
        return self._link() if known else None


class Regressor(RegressorMixin, Machine):
    """Adds numeric targets, one or many.

    Parameters
    ----------
    target : {"log", "quantile"} or None
        Scale to learn on: log y, or normal scores of its quantiles, for targets with heavy tails.
        `predict`, intervals and quantiles are mapped back to units of y; `predict` is a median.
    """

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
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predicted values, in the shape of the training targets.
        """
        if is_dask(X):
            return predict_later(self, "predict", X)
        return self._in_shape(to_units(self._scale, self._decision_values(X)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R^2 of `predict`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), data set or collection
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets; None for a data set in files, which has them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            R^2, the mean of all outputs.
        """
        y, predicted, weight = to_score(self, X, y, sample_weight)
        return float(r2_score(y, predicted, sample_weight=weight))
