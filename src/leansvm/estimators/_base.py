"""What every kernel machine shares: parameters, input checks, targets and decision values."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.callback import CallbackSupportMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, column_or_1d, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from leansvm._array_api import (
    as_float64,
    dispatched_namespace,
    foreign_namespace,
    in_float64,
    like_rows,
    moved,
    namespace,
    same_place,
    to_host,
    zeros,
)
from leansvm._phases import Phases as Phases
from leansvm.blocks import (
    Block,
    MemoryBlocks,
    MergedRows,
    RowBlocks,
    RowSource,
    Targets,
    declare,
    one_vs_rest,
    source_of,
)
from leansvm.estimators._calibration import fit_scale, log_probabilities, probabilities
from leansvm.estimators._lazy import blockwise
from leansvm.estimators._rows import ArrayRows, Rows, SourceRows
from leansvm.kernels import KERNELS, Kernel, resolve_gamma
from leansvm.linalg import canonical_csr

Array = NDArray[np.float64]

C_GRID = np.logspace(-6, 7, 50)
_FLOAT32_LOSS = 1e-4  # decision values may lose this much before float32 rows use float64 tiles


class KernelMachine(CallbackSupportMixin, BaseEstimator):
    """Base of all estimators: f(x) = sum_j dual_coef_j k(x_j, x) + intercept."""

    _fits_where_rows_are = False  # arrays of other libraries are fitted as NumPy arrays
    _fits_sources = False  # data sets in files, Dask collections

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"gcv", "loo"}), "array-like"],
        "kernel": [StrOptions(set(KERNELS)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "bias_penalty": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    # ------------------------------------------------------------------ input

    def _validate_rows(
        self, X: Any, y: Any = "no_validation", *, reset: bool, **kwargs: Any
    ) -> Any:
        if isinstance(X, RowSource):
            raise TypeError(
                f"{type(self).__name__} needs rows in memory; SparseLSSVC, SparseLSSVR, ReducedSVC "
                f"and ReducedSVR fit data sets in files."
            )
        if reset and (self.kernel == "precomputed" or not self._fits_where_rows_are):
            X = to_host(X) if dispatched_namespace(X) else X
        xp = dispatched_namespace(X)
        if dispatched_namespace(y) is not None and not (xp and same_place(y, X)):
            y = to_host(y)
        checked = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse=False if self.kernel == "precomputed" else "csr",
            dtype=[np.float64, np.float32] if xp is None else [xp.float64, xp.float32],
            order="C" if xp is None else None,
            **kwargs,
        )
        return (
            (_canonical(checked[0]), checked[1])
            if isinstance(checked, tuple)
            else _canonical(checked)
        )

    def _source(self, X: Any, y: Any = None, sample_weight: Any = None) -> RowSource | None:
        """Return rows that are in files or on a cluster as a source, None for arrays."""
        source = source_of(X, y, sample_weight) if self._fits_sources else None
        if source is not None and self.kernel == "precomputed":
            raise ValueError("kernel='precomputed' needs the kernel matrix as an array in memory.")
        return source

    def _check_source(self, source: RowSource, *, reset: bool) -> None:
        """Set or compare the number and the names of the features."""
        names = source.feature_names
        if reset:
            if not source.n_targets:
                raise ValueError(
                    f"This {type(self).__name__} estimator requires y to be passed, but the target "
                    f"y is None: name it in open_dataset(..., target=...)."
                )
            self._forget("feature_names_in_")
            self.n_features_in_ = source.n_features
            if names is not None:
                self.feature_names_in_ = np.asarray(names, dtype=object)
            return
        self._check_features(source.n_features, names)

    def _check_features(self, n_features: int, names: list[str] | None) -> None:
        """Compare number and names of the features with those of the fit."""
        if n_features != self.n_features_in_:
            raise ValueError(
                f"X has {n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(known) != list(names):
            raise ValueError(
                f"The feature names should match those that were passed during fit: {list(known)}, "
                f"got {list(names)}."
            )

    def _candidates_of_C(self) -> tuple[NDArray[np.float64] | None, str]:
        """Return the candidates (None for a single C) and the criterion that scores them."""
        if isinstance(self.C, str):
            return C_GRID, self.C
        if isinstance(self.C, Real):
            if self.C < 1e-300:
                raise ValueError(f"C={self.C!r} is too small: 1 / C must be finite.")
            return None, "gcv"
        try:
            candidates = np.asarray(self.C, dtype=np.float64)
        except (TypeError, ValueError):
            candidates = np.empty(0)
        if candidates.ndim != 1 or not candidates.size or not np.all(candidates > 0):
            raise ValueError(
                f"C must be a number > 0, a list of them, 'gcv' or 'loo', got {self.C!r}."
            )
        if not np.isfinite(candidates).all():
            raise ValueError(f"C: every candidate must be finite, got {self.C!r}.")
        return candidates, "gcv"

    def _forget(self, *names: str) -> None:
        """Delete attributes of an earlier fit that this one may not set."""
        for name in names:
            self.__dict__.pop(name, None)

    def _bias_penalty(self) -> float:
        """Return A of the objective: 0 is a free bias, inf is none."""
        if not self.fit_intercept:
            return np.inf
        return float(self.bias_penalty)

    def _resolve_kernel(self, blocks: RowBlocks) -> Kernel:
        self.gamma_ = resolve_gamma(self.gamma, self.kernel, blocks.n_features, blocks.variance)
        return self._kernel()

    def _kernel(self) -> Kernel:
        return Kernel(self.kernel, gamma=self.gamma_, degree=self.degree, coef0=self.coef0)

    # ------------------------------------------------------------------ output

    def _decision_values(self, X: Any) -> Any:
        """Return f(x) for every row and output, computed in tiles; an array of X's kind."""
        check_is_fitted(self)
        source = self._source(X)
        if source is not None:
            self._check_source(source, reset=False)
            return self._values(source)
        X = self._validate_rows(X, reset=False)
        return self._values(X)

    def _values(self, X: Any) -> Any:
        kernel = self._kernel()
        source = isinstance(X, RowSource)
        support = to_host(self.support_vectors_) if source else self.support_vectors_
        if not source and any(foreign_namespace(array) is not None for array in (X, support)):
            return self._values_where_rows_are(X, kernel)
        points = kernel.points(support, self.support_)
        coef = self.dual_coef_.T
        dtype = X.dtype
        # rounding kernel values to float32 costs a decision value about eps * |beta| * max k
        if dtype == np.float32 and not kernel.precomputed:
            largest = float(np.abs(kernel.diag(points)).max(initial=0.0))
            lost = 4 * float(np.finfo(np.float32).eps) * float(np.linalg.norm(coef)) * largest
            dtype = np.dtype(np.float64) if lost > _FLOAT32_LOSS else dtype
        coef = coef.astype(dtype)
        blocks = (
            X.blocks(Targets(None), columns=len(coef))
            if source
            else MemoryBlocks(X, columns=len(coef))
        )
        values = blocks.concatenate(_tile_decision, kernel, points, coef, dtype)
        return np.asarray(values + self.intercept_, dtype=X.dtype)

    def _values_where_rows_are(self, X: Any, kernel: Kernel) -> Any:
        """Decision values of rows of any library, by that library, with a model from any other."""
        points = kernel.points(self.support_vectors_, self.support_)
        if not kernel.precomputed:
            points = in_float64(moved(points, X))
        coef = moved(self.dual_coef_, X).T
        blocks = MemoryBlocks(X, columns=2 * coef.shape[0])
        values = blocks.stack(_tile_decision, kernel, points, coef, np.float64)
        return namespace(X).asarray(values + moved(self.intercept_, X), dtype=X.dtype)

    def _loo_of_all_rows(
        self, X: Any, Y: Any, rows: MergedRows, loo: Array, blocks: RowBlocks | None = None
    ) -> Array:
        """Left-out residuals of the original rows; a row of zero weight changes no model."""
        result, Y = loo[rows.group], to_host(Y)
        unused = np.flatnonzero(rows.group < 0)
        if len(unused):
            blocks = MemoryBlocks(X) if blocks is None else blocks
            result[unused] = Y[unused] - to_host(self._values(blocks.take(unused)))
        return np.asarray(result)


def _canonical(X: Any) -> Any:
    return canonical_csr(X) if sparse.issparse(X) else X


@declare("X")
def _tile_decision(block: Block, kernel: Kernel, points: Any, coef: Any, dtype: Any) -> Any:
    return kernel.block(in_float64(block.X), points, dtype=dtype) @ coef


def _calibrated(estimator: Any) -> bool:
    if not estimator.calibrate:
        raise AttributeError(
            f"{type(estimator).__name__} gives probabilities with calibrate=True; or wrap it in "
            f"sklearn.calibration.CalibratedClassifierCV."
        )
    return True


class KernelClassifier(ClassifierMixin, KernelMachine):
    """Adds labels, class weights and one-vs-rest decisions."""

    def _encode(self, y: Any, classes: Any = None) -> tuple[Any, Any]:
        """Return targets +-1, one column a class (binary: one column), and class numbers.

        Both are where y is.
        """
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        xp = foreign_namespace(y)
        if xp is not None and classes is None:
            return self._encode_where_rows_are(xp, y)
        y = to_host(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if classes is not None:
            present, self.classes_ = self.classes_, np.unique(classes)
            unknown = np.setdiff1d(present, self.classes_)
            if len(unknown):
                raise ValueError(f"y has labels that are not in classes: {unknown.tolist()}.")
            labels = np.searchsorted(self.classes_, present)[labels]
        self._check_classes()
        return one_vs_rest(labels, len(self.classes_)), labels

    def _encode_source(
        self, source: RowSource, *, classes: Any = None, batch: bool = False
    ) -> SourceRows:
        """Find classes and weights in a pass over the targets; no look at X."""
        seen = source.survey(numeric=False)
        assert seen.classes is not None
        # the checks of arrays, on one row a class
        _, present = self._encode(seen.classes, classes=classes)
        by_class = np.zeros(len(self.classes_))
        by_class[present] = seen.weights
        if not by_class.any():
            raise ValueError("sample_weight must be positive for at least one row.")
        class_weight = None
        if self.class_weight is not None:
            class_weight = self._weight_of_classes(by_class)
        used = seen.rows * (1 if class_weight is None else class_weight[present] > 0)
        if not batch and np.count_nonzero(used) < 2:
            raise ValueError(
                "sample_weight and class_weight leave fewer than two classes with positive weight."
            )
        weighted = class_weight is not None or not seen.all_ones
        encode = Targets(self.classes_, class_weight, 1e-100 * seen.largest_weight, weighted)
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        return SourceRows(source, encode, outputs, int(used.sum()), float(seen.weights.sum()))

    def _encode_where_rows_are(self, xp: Any, y: Any) -> tuple[Any, Any]:
        classes, labels = xp.unique_inverse(y)
        self.classes_ = to_host(classes)
        self._check_classes()
        numbers = like_rows(np.arange(len(self.classes_)), labels)
        if len(self.classes_) == 2:
            numbers = numbers[1:]
        return 2.0 * as_float64(labels[:, None] == numbers) - 1.0, labels

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {len(self.classes_)} "
                f"class: y must hold at least two classes for {type(self).__name__}."
            )

    def _weights(
        self, sample_weight: Any, X: Any, y: Any, labels: Any, *, batch: bool = False
    ) -> tuple[Any, float]:
        """Return sample weights times class weights, and the sum of the former alone.

        Class weights are costs, not samples: generalised cross-validation counts without them.
        A ``batch`` may lack classes.
        """
        weight = _sample_weights(sample_weight, X)
        count = float(namespace(weight).sum(weight))
        totals = weight_of_labels(weight, labels, len(self.classes_))
        if self.class_weight is not None:
            by_class = self._weight_of_classes(totals)
            of_rows = namespace(labels).take(like_rows(by_class, labels), labels)
            weight = weight * moved(of_rows, weight)
            totals = totals * by_class
        if not batch and np.count_nonzero(totals) < 2:
            raise ValueError(
                "sample_weight and class_weight leave fewer than two classes with positive weight."
            )
        return weight, count

    def _weight_of_classes(self, counts: Array) -> Array:
        if self.class_weight == "balanced":  # over classes that have any weight
            present = counts > 0
            balanced = np.zeros(len(counts))
            balanced[present] = counts.sum() / (present.sum() * counts[present])
            return balanced
        by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if not np.all(np.isfinite(by_class) & (by_class >= 0)):
            raise ValueError(
                f"class_weight must hold finite numbers >= 0, got {self.class_weight!r}."
            )
        return np.asarray(by_class, dtype=np.float64)

    @blockwise
    def decision_function(self, X: Any) -> Any:
        """Evaluate f(x): one value a row for two classes, else one column a class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive means the second class (binary) or that class (multiclass).
        """
        values = self._decision_values(X)
        return values[:, 0] if len(self.classes_) == 2 else values

    @blockwise
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
        scores = self.decision_function(X)
        xp = foreign_namespace(scores)
        if xp is None or self.classes_.dtype.kind in "OUS":
            scores = to_host(scores)
            winners = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
            return np.asarray(self.classes_[winners])
        winners = xp.astype(scores > 0, xp.int64) if scores.ndim == 1 else xp.argmax(scores, axis=1)
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
        source = self._source(X, y, sample_weight)
        if source is None:
            return float(super().score(X, y, sample_weight))
        y, weight = _targets_to_score(source)
        return float(accuracy_score(y, np.asarray(self.predict(X)), sample_weight=weight))

    def _calibrate(self, left_out: Array, labels: NDArray[np.intp], weight: Array) -> None:
        """Fit probabilities to leave-one-out decision values."""
        self.calibration_scale_ = fit_scale(left_out, labels, weight)

    @available_if(_calibrated)
    @blockwise
    def predict_proba(self, X: Any) -> Any:
        """Probability of every class; exists with ``calibrate=True``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``; the largest belongs to `predict`.
        """
        check_is_fitted(self, "calibration_scale_")
        values = self.decision_function(X)
        return like_rows(probabilities(to_host(values), self.calibration_scale_), values)

    @available_if(_calibrated)
    @blockwise
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
        check_is_fitted(self, "calibration_scale_")
        values = self.decision_function(X)
        result = log_probabilities(to_host(values), self.calibration_scale_)
        return like_rows(result.astype(to_host(values).dtype), values)


class KernelRegressor(RegressorMixin, KernelMachine):
    """Adds numeric targets, one or many."""

    _single_output: bool

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @blockwise
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
        values = self._decision_values(X)
        return values[:, 0] if self._single_output else values

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
        source = self._source(X, y, sample_weight)
        if source is None:
            return float(super().score(X, y, sample_weight))
        y, weight = _targets_to_score(source)
        return float(r2_score(y, np.asarray(self.predict(X)), sample_weight=weight))

    def _numeric_targets(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any, Any]:
        """Validate; return X, y and the targets with one column an output."""
        if sparse.issparse(y):
            raise TypeError("y must be dense, got a sparse matrix: use y.toarray().")
        X, y = self._validate_rows(X, y, reset=reset, multi_output=True, y_numeric=True)
        Y = as_float64(y)
        if not reset and self._single_output != (Y.ndim == 1):
            raise ValueError("y must have as many target columns as in earlier calls.")
        self._single_output = Y.ndim == 1
        return X, y, namespace(Y).reshape(Y, (Y.shape[0], -1))

    def _numeric_rows(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Rows:
        """Validate arrays, or a source; return rows with numeric targets and weights."""
        source = self._source(X, y, sample_weight)
        if source is not None:
            self._check_source(source, reset=reset)
            return self._encode_source(source, reset=reset)
        X, y, Y = self._numeric_targets(X, y, reset=reset)
        return ArrayRows(X, Y, _sample_weights(sample_weight, X))

    def _encode_source(self, source: RowSource, *, reset: bool = True) -> SourceRows:
        """Look at the weights; targets are numbers."""
        if not reset and self._single_output != source.single_target:
            raise ValueError("y must have as many target columns as in earlier calls.")
        self._single_output = source.single_target
        seen = source.survey(numeric=True)
        if not seen.weights.any():
            raise ValueError("sample_weight must be positive for at least one row.")
        encode = Targets(None, None, 1e-100 * seen.largest_weight, not seen.all_ones)
        return SourceRows(source, encode, source.n_targets, int(seen.rows[0]))


def _targets_to_score(source: RowSource) -> tuple[Any, Any]:
    if not source.n_targets:
        raise ValueError("score needs the targets: pass y, or name it in open_dataset(target=...).")
    return source.targets()


def weight_of_labels(weight: Any, labels: Any, n_classes: int) -> Array:
    """Return the weight of every class, on the host."""
    if foreign_namespace(weight) is None:
        counts = np.bincount(to_host(labels), weights=weight, minlength=n_classes)
        return np.asarray(counts, dtype=np.float64)
    xp, labels = namespace(weight), moved(labels, weight)
    sums = [xp.sum(xp.where(labels == c, weight, 0.0)) for c in range(n_classes)]
    return np.asarray(to_host(xp.stack(sums)))


def _sample_weights(sample_weight: Any, X: Any) -> Any:
    """Return checked weights where the rows are; ones where none are given."""
    xp = foreign_namespace(X)
    if xp is not None:
        weight = zeros((X.shape[0],), X)
        weight += 1.0
        if sample_weight is not None:
            given = to_host(sample_weight) if hasattr(sample_weight, "dtype") else sample_weight
            weight = like_rows(_checked_weights(given, np.empty((X.shape[0], 0))), X)
        return weight
    if dispatched_namespace(sample_weight) is not None:
        sample_weight = to_host(sample_weight)
    return _checked_weights(sample_weight, X)


def _checked_weights(sample_weight: Any, host: Any) -> Array:
    weight = _check_sample_weight(
        sample_weight, host, dtype=np.float64, ensure_non_negative=True, copy=True
    )
    if not weight.any():
        raise ValueError("sample_weight must be positive for at least one row.")
    weight[weight < 1e-100 * weight.max()] = 0.0  # too small to count, too small to divide by
    return np.asarray(weight)


def iteration_hook(estimator: Any, context: Any, name: str) -> Callable[[int, float], bool] | None:
    """Return a function that runs scikit-learn's callbacks once an iteration, None without any.

    It returns True when a callback asks to stop.
    """
    if not getattr(estimator, "_skl_callbacks", None):
        return None

    def hook(iteration: int, residual: float) -> bool:
        task = context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    return hook
