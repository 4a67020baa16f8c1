"""A fitted model made ready to predict one row at a time, in microseconds.

In every call, `predict` of an estimator checks its input as scikit-learn does and prepares the
basis points; for one row that takes most of the time. A `Predictor` does this once, when it is
made, and then computes f(x) = sum_j coef_j k(x, z_j) + b and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import foreign_namespace
from leansvm._sklearn import split_threshold
from leansvm.basis.features import KernelFeatures, evaluate
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.targets import to_units
from leansvm.kernels._function import Array, RowForm
from leansvm.probabilities import probabilities
from leansvm.tables import TableEncoder
from leansvm.tables._columns import refuse_infinite
from leansvm.tables._values import number_of
from leansvm.tables.fitting import features_by_name

_FAR = 1e100  # distances of larger numbers may overflow


class Predictor:
    """Fast predictions of single rows, in microseconds.

    A row is a dict of columns and values, or a sequence of values in the order of the columns of
    `fit`; several rows are a list of these, an array or a frame. If the model was fitted on a
    table, rows may have text, dates and missing values. Columns of dicts and frames are found by
    name; unknown ones are refused. A model of a table checks every value. A model of numbers alone
    checks only the length of a row and that its numbers are finite. A Predictor is a copy: a later
    `fit` of the model does not change it. Threads may share it, and it can be pickled.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted classifier or regressor of this package, with its arrays in NumPy; or a pipeline
        that ends with one, after `TableEncoder`, `StandardScaler`, `RobustScaler`, or
        `MinMaxScaler` or `MaxAbsScaler` without ``clip``; or what `tune_threshold` returned for
        one of these.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels; only of classifiers.
    n_features_in_ : int
        Length of a row.

    See Also
    --------
    leansvm.persistence.save : Model files of some kilobytes.

    Notes
    -----
    A row takes about 10 microseconds for a model with 200 points and 20 features. With callable
    kernels, "precomputed", "cosine" and "chi2", with sparse points and with learned functions, only
    the validation is saved. Many rows at once take as long as with the model itself.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import LSSVC, Predictor
    >>> X, y = load_iris(return_X_y=True)
    >>> predictor = Predictor(LSSVC(gamma=0.5).fit(X, y))
    >>> int(predictor.predict(X[0]))
    0
    >>> predictor.predict([[6.3, 3.3, 6.0, 2.5], [4.9, 3.0, 1.4, 0.2]])
    array([2, 0])
    """

    def __init__(self, model: Any) -> None:
        model, self._threshold = split_threshold(model)
        check_is_fitted(model)
        steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
        *before, machine = steps
        scalers = [step for step in before if step is not None and step != "passthrough"]
        first = [*scalers, machine][0]
        table = vars(machine).get("table_")
        if table is None and scalers and isinstance(scalers[0], TableEncoder):
            table = scalers.pop(0)
        self._table = table
        if not isinstance(machine, Classifier | Regressor):
            raise TypeError(
                f"Predictor needs a classifier or a regressor of leansvm, a pipeline that ends "
                f"with one, or what tune_threshold returns for it, got "
                f"{type(machine).__name__}. If it is a search, pass best_estimator_."
            )
        self._scale = getattr(machine, "_scale", None)
        self._features, coef = machine._model()
        self._form: RowForm | None = None
        if isinstance(self._features, KernelFeatures):
            if foreign_namespace(self._features.points) is not None:
                raise TypeError(
                    f"This {type(machine).__name__} has arrays that are not NumPy arrays: use "
                    f"Predictor(leansvm.to_numpy(model))."
                )
            self._form = self._features.kernel.row_form(self._features.points)
        self._coef = np.ascontiguousarray(coef, dtype=np.float64)
        self._intercept = np.array(machine.intercept_, dtype=np.float64)
        self._spread = machine._spread
        scaling = [_shift_and_scale(step) for step in scalers]
        # numbers with missing values are scaled before the machine fills them in
        fills = "table_" in vars(machine)
        self._before, self._scaling = (scaling, []) if fills else ([], scaling)
        self.n_features_in_ = int(first.n_features_in_)
        names = getattr(first, "feature_names_in_", None)
        self._names = None if names is None else list(names)
        self._known = set(self._names or ())
        self._encode = None if table is None else table.row_encoder()
        self._shape = (self.n_features_in_ if table is None else len(table.groups_),)
        self._name = type(machine).__name__
        self._link, self._labels = None, None
        self._single = getattr(machine, "_single_output", False)
        if isinstance(machine, Classifier):
            self.classes_ = self._labels = np.array(machine.classes_)
            self._single = len(self.classes_) == 2
            self._link = machine._known_link()
        if self._single:  # one number for each row
            self._weights: Any = self._coef[:, 0].copy()
            self._bias: Any = float(self._intercept[0])
        else:
            self._weights, self._bias = self._coef, self._intercept

    def decision_function(self, X: Any) -> Any:
        """Return the decision values of a classifier; for a regressor, what `predict` returns.

        Parameters
        ----------
        X : dict or array-like of shape (n_features,) or (n_samples, n_features)
            A row, or several.

        Returns
        -------
        float or ndarray
            For one row: one number, or one for each class or output. For several rows: an array
            with one entry or row for each.
        """
        values = self._values(self._numbers(X))
        if self._scale is None:
            return values
        rows = np.reshape(values, (-1, len(self._intercept)))
        found = np.reshape(to_units(self._scale, rows), np.shape(values))
        return found if found.ndim else found[()]

    def _values(self, x: Array) -> Any:
        """Return f of a row or of several, on the scale that the model learned."""
        if x.shape != self._shape:
            return self._many(x)
        if not np.abs(x).max() < _FAR:
            return self._many(x[None, :])[0]
        for shift, scale in self._scaling:
            x = x - shift
            x /= scale
        values = self._features.phi(x[None, :])[0] if self._form is None else self._form(x)
        result = values.dot(self._weights) + self._bias
        if self._single and abs(result) < np.inf:
            return result
        return result if np.isfinite(result).all() else self._many(x[None, :], scaled=True)[0]

    def predict(self, X: Any) -> Any:
        """Predict the class of a row or of several, or the number.

        Parameters
        ----------
        X : dict or array-like of shape (n_features,) or (n_samples, n_features)
            A row, or several.

        Returns
        -------
        scalar or ndarray
            For one row: its label, its number, or one number for each output. For several rows: an
            array with one entry or row for each.
        """
        values = self.decision_function(X)
        if self._labels is None:
            return values
        if self._threshold is not None:
            return self._labels[(values >= self._threshold) * 1]
        if self._single:
            return self._labels[(values > 0) * 1]
        return self._labels[values.argmax(axis=-1)]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probability of every class, for a model with ``calibrate=True`` or a logistic loss.

        Parameters
        ----------
        X : dict or array-like of shape (n_features,) or (n_samples, n_features)
            A row, or several.

        Returns
        -------
        ndarray of shape (n_classes,) or (n_samples, n_classes)
            In the order of ``classes_``.
        """
        if self._link is None:
            raise AttributeError(
                f"The {self._name} gives no probabilities: fit a classifier with calibrate=True."
            )
        values, (loss, scale) = np.asarray(self.decision_function(X)), self._link
        several = values.ndim == (1 if self._single else 2)
        odds = values if loss is None else loss.log_odds(values)
        if not several:
            values, odds = values[None], odds[None]
        found = probabilities(odds, scale, values)
        return found if several else found[0]

    def _numbers(self, X: Any) -> Array:
        """Return a row or several as the numbers that the machine sees."""
        if hasattr(X, "to_dict") and not hasattr(X, "columns"):  # a row of a pandas frame
            X = X.to_dict() if self._names is not None else X
        if isinstance(X, str) or not (hasattr(X, "__len__") or hasattr(X, "columns")):
            raise TypeError(
                f"A row is a dict of columns and values, or a list of values, got "
                f"{type(X).__name__}."
            )
        if self._encode is None:
            return self._array(X)
        if self._before:
            X = _scaled(self._array(X), self._before)
        if isinstance(X, Mapping) or not (hasattr(X, "columns") or _is_several(X)):
            return self._encode(X)
        if isinstance(X, list | tuple):
            return np.array([self._encode(row) for row in X])
        return features_by_name(self._table, X)

    def _array(self, X: Any) -> Array:
        """Return a row or several of numbers alone."""
        several = not isinstance(X, Mapping)
        if not several:
            X = self._in_order(X)
        elif hasattr(X, "columns") and self._names is not None:
            X = np.column_stack(self._in_order({name: X[name] for name in X.columns}))
        elif isinstance(X, list) and X and isinstance(X[0], Mapping):
            X = [self._in_order(row) for row in X]
        try:
            return np.asarray(X, dtype=np.float64)
        except (OverflowError, TypeError, ValueError) as error:
            if not isinstance(X, list | tuple | np.ndarray):
                raise TypeError(
                    f"Predictor takes dense numbers, got {type(X).__name__}."
                ) from error
        rows = X if several and _is_several(X) else [X]
        for row in rows:
            if not isinstance(row, list | tuple | np.ndarray) or len(row) != self.n_features_in_:
                raise ValueError(
                    f"A row has {self.n_features_in_} values, not those of {row!r:.60}."
                )
        found = np.array([list(map(number_of, row, self._columns())) for row in rows])
        return found if rows is X else found[0]

    def _columns(self) -> list[str]:
        """Return names of the columns, for errors."""
        return self._names or [f"x{i}" for i in range(self.n_features_in_)]

    def _in_order(self, row: Mapping[str, Any]) -> list[Any]:
        """Return the values of all columns, by their names, in the order of `fit`."""
        if self._names is None:
            raise ValueError(
                "The model was fitted on arrays without names of columns: pass a list of numbers, "
                "not a dict."
            )
        if row.keys() != self._known:
            missing, unknown = list(self._known - row.keys()), list(row.keys() - self._known)
            raise ValueError(
                f"A dict or a frame needs the columns of fit, {self._names}. Missing: "
                f"{missing[:20]}; unknown: {unknown[:20]}."
            )
        return [row[name] for name in self._names]

    def _many(self, X: Array, scaled: bool = False) -> Any:
        """Return f(x) of several rows, or of one that needs care, after all checks."""
        if X.ndim != 2 or X.shape[1:] != self._shape:
            raise ValueError(
                f"X has shape {X.shape}: Predictor takes one row of {self.n_features_in_} features "
                f"or an array of such rows."
            )
        if not np.isfinite(X).all():
            self._refuse(X)
        X = np.ascontiguousarray(X if scaled else _scaled(X, self._scaling))
        if not len(X):
            return np.empty((0, *np.shape(self._bias)))
        values = evaluate(self._features, self._coef, self._intercept, X, self._spread)
        return values[:, 0] if self._single else values

    def _refuse(self, X: Array) -> None:
        """Name a column that is missing or infinite."""
        names = self._columns() if self._table is None else self._table.get_feature_names_out()
        column = np.flatnonzero(~np.isfinite(X).all(axis=0))[0]
        refuse_infinite(X[:, column], names[column])
        raise ValueError(
            f"Column {names[column]!r} is missing, but training had no missing values: give a "
            f"number."
        )


def _scaled(X: Array, scaling: list[tuple[Any, Any]]) -> Array:
    for shift, scale in scaling:
        X = (X - shift) / scale
    return X


def _is_several(X: Any) -> bool:
    """Whether X has several rows, and not the values of one."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2
    return len(X) > 0 and isinstance(X[0], Mapping | list | tuple | np.ndarray)


def _shift_and_scale(step: Any) -> tuple[Any, Any]:
    """Return a and s of a scaler x -> (x - a) / s."""
    shift: Any = None
    scale: Any = getattr(step, "scale_", None)
    if type(step) is StandardScaler:
        shift = step.mean_ if step.with_mean else None
        scale = scale if step.with_std else None
    elif type(step) is RobustScaler:
        shift = step.center_ if step.with_centering else None
        scale = scale if step.with_scaling else None
    elif type(step) is MinMaxScaler and not step.clip:
        shift, scale = -step.min_ / step.scale_, 1.0 / step.scale_
    elif type(step) is not MaxAbsScaler or getattr(step, "clip", False):  # clip: 1.9
        raise TypeError(
            f"Predictor does not support the step {type(step).__name__}. It supports TableEncoder, "
            f"StandardScaler, RobustScaler, and MinMaxScaler and MaxAbsScaler without clip. Pass "
            f"the table to leansvm without the step, or use leansvm.tables.TableEncoder instead "
            f"of it; or apply it yourself, and pass only the last step: Predictor(pipeline[-1])."
        )
    return (0.0 if shift is None else shift, 1.0 if scale is None else scale)
