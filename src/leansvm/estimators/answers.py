"""Prediction intervals and sets of the squared-loss estimators, which keep their rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm.estimators.kernel_machine import KernelMachine
from leansvm.estimators.publish import calibrate
from leansvm.estimators.read import TrainingData, read, validate
from leansvm.estimators.targets import Scale, to_units
from leansvm.ridge.answers import Answers, Fitted
from leansvm.rows import resolve_cache_size, tiles_within


class KeepsRows(KernelMachine):
    """An estimator that keeps a reference to its training rows; files do not contain them."""

    _keeps_rows = True
    _answers: Answers | None  # made when it is first needed

    @cached_property
    def loo_residuals_(self) -> Any:
        """Leave-one-out residuals; computed here after a large fit or loading."""
        by_loo, name = isinstance(self.C, str) and self.C == "loo", type(self).__name__
        large = "left_out_on" in vars(self).get("fit_report_", ())
        if not by_loo or not (large or self._saved_small):
            raise AttributeError(f"{name!r} object has no attribute 'loo_residuals_'")
        if vars(self).get("_rows") is None:
            raise AttributeError(
                f"This {name} was loaded from a file or copied without loo_residuals_: call "
                f"keep_rows(X, y) with its training rows first."
            )
        with tiles_within(self.cache_size):
            return self._in_shape(self._ask().residuals(self._values))

    def keep_rows(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Give the training rows back to a model that came from a file, a pickle or batches.

        Intervals, prediction sets and `leansvm.inspection.inspect_rows` need them.

        Parameters
        ----------
        X, y, sample_weight
            The data that were passed to `fit`; other rows are refused.

        Returns
        -------
        estimator
            The estimator; its coefficients stay as they are.
        """
        check_is_fitted(self)
        classes = self.classes_ if self._classifies else None
        data = read(self, X, y, sample_weight, reset=False, classes=classes)
        answers, seen = self.__dict__.get("_answers"), vars(self).get("n_rows_seen_")
        if seen not in (None, data.X.shape[0]):
            raise ValueError(
                f"These are not the rows that the model was fitted on: here are "
                f"{data.X.shape[0]:,} rows, and the fit had {seen:,}. Pass the X, y and "
                f"sample_weight of the fit."
            )
        if answers is None or not answers.are_of(data):
            answers = self._answers_from(data)
        with tiles_within(self.cache_size):
            answers.refuse_other_rows()
        self._rows, self._answers = data, answers
        if self.calibrate and "calibration_scale_" not in vars(self):  # a model made of sums
            found, by_class = answers.left_out, answers.data.class_weight
            calibrate(self, found.target, found.residual, found.weight, by_class)
        return self

    def _ask(self) -> Answers:
        """Return the `Answers` of the model, with its training rows if they are known."""
        check_is_fitted(self)
        if vars(self).get("_answers") is None:
            self._answers = self._answers_from(vars(self).get("_rows"))
        assert self._answers is not None
        return self._answers

    def _answers_from(self, rows: TrainingData | None) -> Answers:
        seen = vars(self).get("n_rows_seen_")
        if rows is not None and seen not in (None, rows.X.shape[0]):
            rows = None  # these are the last batch, or other rows
        small = self._small_matrix(rows)
        terms = self.C_, self._bias_penalty(), self.objective_, resolve_cache_size(self.cache_size)
        folds, kernel = self._criterion().folds, self._model()[0].kernel
        others = folds, self.support_, vars(self).get("class_map_")
        return Answers(Fitted(kernel, *terms, *small, *others), rows)

    def _rows_and_values(self, X: Any) -> tuple[Any, Any]:
        X = to_host(validate(self, X, reset=False))
        return X, np.asarray(to_host(self._values(X)), dtype=np.float64)


class PredictsIntervals(KeepsRows):
    """Adds prediction intervals to a regressor."""

    _scale: Scale | None

    def predict_interval(
        self, X: Any, alpha: float = 0.1, method: str = "jackknife+", adaptive: bool = False
    ) -> Any:
        """Return a prediction interval for the target of every row.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, in memory.
        alpha : float, default=0.1
            Share of the targets that may lie outside; 0.1 gives 90 % intervals.
        method : {"jackknife+", "cv+", "normal"}, default="jackknife+"
            "jackknife+" leaves out one training row at a time and uses the predictions and errors
            of these models. "cv+" leaves out one fold at a time (five folds, or those of
            ``C=KFoldSums(...)``, whose groups stay together). "normal" assumes normal errors of
            the same size everywhere; on a small basis it needs no training rows.
        adaptive : bool, default=False
            With "jackknife+": whether intervals are wider where training rows are few.

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper end.

        Notes
        -----
        "jackknife+" and "cv+" intervals contain a new target with probability at least
        1 - 2 alpha (in practice 1 - alpha), for any distribution. This holds if new rows come from
        the same distribution as the training rows, and if basis, gamma and C do not depend on the
        targets. By default gamma and C do; the coverage is then still close to 1 - alpha, but
        there is no proof.
        """
        answers = self._ask()
        with tiles_within(self.cache_size):
            ends = answers.intervals(*self._rows_and_values(X), alpha, method, adaptive)
        return self._in_shape(to_units(self._scale, ends))

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Any:
        """Return quantiles of the target of every row.

        They are f(x) plus quantiles of the leave-one-out errors of the training rows, scaled by a
        spread that is learned from these errors. So they are farther apart where training rows are
        few and where errors are larger.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, in memory.
        quantiles : float or sequence of float, default=(0.05, 0.5, 0.95)
            Numbers between 0 and 1: the share of targets below each quantile.

        Returns
        -------
        ndarray of shape (n_samples, n_quantiles) or (n_samples, n_outputs, n_quantiles)
            In the order of ``quantiles``. A higher quantile is never below a lower one.
        """
        answers = self._ask()
        with tiles_within(self.cache_size):
            found = answers.quantiles(*self._rows_and_values(X), quantiles)
        return self._in_shape(to_units(self._scale, found))


class PredictsSets(KeepsRows):
    """Adds prediction sets to a classifier."""

    def predict_set(self, X: Any, alpha: float = 0.1, by_class: bool | str = "auto") -> Any:
        """Return the classes that every row may belong to.

        The margin of a class is its decision value minus the largest decision value of the other
        classes. A class is in the set unless nearly all training rows have a larger margin for
        their own class, each in the model without this row.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, in memory.
        alpha : float, default=0.1
            Share of the sets that may miss the true class.
        by_class : bool or "auto", default="auto"
            True: alpha holds within every class (Mondrian sets). False: it holds only for all rows
            together, so most rows of a rare class may get sets without this class. "auto" is True
            unless the smallest class has at least half as many rows as the largest. A class with
            fewer than 1 / alpha - 1 training rows is in every set.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            True if the class, in the order of ``classes_``, is in the set. A set is empty if the
            row fits no class well. The set contains the true class with probability at least
            1 - 2 alpha (in practice 1 - alpha); see `SparseLSSVR.predict_interval`.
        """
        with tiles_within(self.cache_size):
            return self._ask().sets(*self._rows_and_values(X), alpha, by_class)
