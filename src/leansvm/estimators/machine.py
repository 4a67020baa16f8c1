"""What every estimator shares: the fit in four lines, what it publishes, and predictions.

data = read(...)                      rows, targets and weights, wherever they are
data, basis, solution = _solve(...)   a basis and a `Solution` on it: one method per family
_publish(data, basis, solution)       fitted attributes, report, warnings, calibration
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm._parallel import serial_blas
from leansvm._sklearn import CallbackSupport, Documented
from leansvm.basis import BasisSelector
from leansvm.basis.features import FeatureMap, KernelFeatures, evaluate
from leansvm.estimators.calibration import fit_scale
from leansvm.estimators.data import TrainingData, check_features, read, validate
from leansvm.kernels import KERNELS, Kernel, resolve_gamma
from leansvm.learning.learn import LEARNABLE, learn_scales
from leansvm.ridge.kfold import KFoldSums
from leansvm.ridge.primal import Criterion
from leansvm.rows import (
    class_numbers,
    resolve_cache_size,
    source_of,
    tiles_within,
)
from leansvm.solution import Solution, Support

Array = NDArray[np.float64]
# What `partial_fit` must find as it was in the first batch: sums and factors depend on it.
_BATCH_PARAMETERS = (
    "kernel",
    "gamma",
    "degree",
    "coef0",
    "fit_intercept",
    "bias_penalty",
    "class_weight",
)

# What prediction can do without, and model files leave out.
TRAINING_ONLY = frozenset({"_features", "_sums", "_selected", "_sequence", "loo_residuals_"})

C_GRID = np.logspace(-6, 7, 50)
# That kernel="auto" compares; each one more costs as much as a plain fit.
AUTO_KERNELS = ("matern32", "laplacian")


BASIS_CONSTRAINTS: dict[str, Any] = {
    "basis": [str, BasisSelector, "array-like"],
    "n_basis": [
        Interval(Integral, 1, None, closed="left"),
        Interval(Real, 0, 1, closed="neither"),
        StrOptions({"auto"}),
    ],
    "select_on": [
        StrOptions({"auto", "all"}),
        Interval(Integral, 1, None, closed="left"),
        Interval(Real, 0, 1, closed="neither"),
    ],
    "random_state": ["random_state"],
}


class Machine(CallbackSupport, Documented):
    """Base of all estimators: f(x) = sum_j coef_j phi_j(x) + intercept."""

    _fits_where_rows_are: bool | property = False  # else arrays of other libraries become NumPy's
    _fits_sources = False  # data sets in files, Dask collections
    _classifies: ClassVar[bool] = False
    _keeps_rows: ClassVar[bool] = False  # for questions after the fit, see `answers`
    _spread: Any = 1.0  # of the targets; those of classes are +-1
    _scores_lists_by: ClassVar[str] = "gcv"  # what compares a list of C
    _saved_small: ClassVar[bool] = False  # True in a model whose file lacks `TRAINING_ONLY`
    _candidates: ClassVar[Array] = C_GRID  # values of C behind a string
    _max_subtasks: int | property | None = None  # steps that callbacks are told of; None: unknown

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"gcv", "loo"}), "array-like"],
        "fit_intercept": ["boolean"],
        "bias_penalty": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, 1e300, closed="neither")],
    }
    fit_report_: dict[str, Any]
    _answers: Any

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), data set or collection
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
            `SparseLSSVC`, `SparseLSSVR`, `ReducedSVC` and `ReducedSVR` also take a data set in
            files (`leansvm.open_dataset`), or a Dask array or data frame.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels (classifiers; one per row) or targets; None for a data set in files, which has
            them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of k counts like k copies of the row.

        Returns
        -------
        estimator
            The fitted estimator.
        """
        with self._fitting(X, y) as context:
            data = read(self, X, y, sample_weight)
            used, basis, solution = self._solve(data, context)
            self._publish(used, basis, solution)
        return self

    @contextmanager
    def _fitting(self, X: Any = None, y: Any = None) -> Iterator[Any]:
        """Yield the context of a fit, a batch or a path: what callbacks are told of.

        Inside, tiles of rows keep to ``cache_size`` and BLAS to one thread, and an error says what
        to do where numbers are too large. Any error or interrupt leaves the estimator as it was:
        no attribute of a fit that did not come to its end is seen.
        """
        direct = getattr(self, "solver", None) == "cholesky"  # no steps to tell callbacks of
        context = self._init_callback_context(max_subtasks=0 if direct else None)
        before = self.__dict__.copy()
        try:
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            within = nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size)
            with within, serial_blas():
                yield context
        except BaseException as error:
            self.__dict__ = before
            if not isinstance(error, np.linalg.LinAlgError | OverflowError):
                raise
            raise ValueError(
                f"{type(self).__name__} cannot be solved with 16 digits: lower C, scale X, y or "
                f"sample_weight, or use a positive semidefinite kernel."
            ) from error
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})

    def _solve(
        self, data: TrainingData, context: Any, *more: Any
    ) -> tuple[TrainingData, Any, Solution]:
        """Choose a basis and solve on it; return the rows as they were used, too."""
        raise NotImplementedError

    # ------------------------------------------------------------------ parameters

    def _criterion(self) -> Criterion:
        """Return the C to use, or the candidates and what scores them."""
        calibrate = getattr(self, "calibrate", False)
        if isinstance(self.C, str):
            folds = KFoldSums() if self.C == "kfold" else None
            return Criterion(self._candidates, self.C, calibrate or self.C == "loo", folds)
        if isinstance(self.C, KFoldSums):
            return Criterion(self._candidates, "kfold", calibrate, self.C)
        if isinstance(self.C, Real):
            if not 1e-300 <= float(self.C) <= 1e300:
                raise ValueError(
                    f"C={self.C!r}: it must be finite and at most 1e300, and so must 1 / C."
                )
            return Criterion(float(self.C), left_out=calibrate)
        try:
            candidates = np.asarray(self.C, dtype=np.float64)
        except (TypeError, ValueError):
            candidates = np.empty(0)
        if candidates.ndim != 1 or not candidates.size or not np.all(candidates > 0):
            raise ValueError(
                f"C must be a number > 0, a list of them, 'loo', 'kfold' or 'gcv', got {self.C!r}."
            )
        if candidates.min() < 1e-300 or candidates.max() > 1e300:
            raise ValueError(
                f"C: every candidate must be finite and from 1e-300 to 1e300, got {self.C!r}."
            )
        by_loo = self._scores_lists_by == "loo"
        return Criterion(candidates, self._scores_lists_by, calibrate or by_loo)

    def _refuse_one_row(self, data: TrainingData) -> None:
        """Say that values of C cannot be compared, and no row left out, with a single row."""
        raise ValueError(
            f"C={self.C!r} needs two distinct rows of positive weight, got "
            f"n_samples={data.n_positive}; give C as a number."
        )

    def _bias_penalty(self) -> float:
        """Return A of the objective: 0 is a free bias, inf is none."""
        return float(self.bias_penalty) if self.fit_intercept else np.inf

    # ------------------------------------------------------------------ fitted attributes

    def _publish(self, data: TrainingData, basis: Any, solution: Solution) -> None:
        """Set the fitted attributes and the report; calibrate; warn."""
        finite = np.isfinite(solution.coef).all() and np.isfinite(solution.b).all()
        if not (finite and np.isfinite(solution.objective)):
            raise ValueError(
                f"The solution at C={solution.C:.3g} has numbers that are not finite: lower C, or "
                f"scale X, y or sample_weight."
            )
        optional = ("cv_curve_", "loo_residuals_", "calibration_scale_", "coef_", "_sequence")
        for name in (*optional, "_saved_small"):
            self.__dict__.pop(name, None)
        self._set_basis(data, basis, solution)
        if self._keeps_rows:
            self._rows, self._answers = data, None
        if not self._classifies:
            self._spread = data.spread()
        self.intercept_ = np.asarray(solution.b)
        self.C_ = solution.C
        self.objective_ = solution.objective
        self.n_iter_ = solution.iterations
        if solution.curve is not None and not isinstance(self.C, Real):
            self.cv_curve_ = solution.curve
        self.fit_report_ = {
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
            **solution.details,
            "seconds": solution.seconds,
        }
        if solution.left_out is not None and data.merged is not None:
            self._use_left_out(data, solution.left_out)
        if not solution.converged:
            text = f"{type(self).__name__}: {solution.advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)

    def _set_basis(self, data: TrainingData, basis: Any, solution: Solution) -> None:
        """Set what belongs to the basis: support vectors, or learned functions."""
        raise NotImplementedError

    def _use_left_out(self, data: TrainingData, left_out: Array) -> None:
        """Calibrate and set ``loo_residuals_`` from the left-out residuals of distinct rows."""
        merged, whole = data.merged, data if data.whole is None else data.whole
        assert merged is not None
        if data.taken is not None:  # back to the places of the original rows
            given = np.full((whole.X.shape[0], left_out.shape[1]), np.nan)
            given[data.taken] = left_out
            left_out = given
        left_out, Y = left_out[merged.first], whole.targets()
        if getattr(self, "calibrate", False):
            targets = Y[merged.first]
            scale = fit_scale(targets - left_out, class_numbers(targets), merged.weight)
            self.calibration_scale_ = scale
        if isinstance(self.C, str) and self.C == "loo":
            residuals = left_out[merged.group]
            unused = np.flatnonzero(merged.group < 0)  # of zero weight: they change no model
            if len(unused):
                rows = whole.blocks().take(unused)
                residuals[unused] = Y[unused] - to_host(self._values(rows))
            self.loo_residuals_ = self._in_shape(residuals)

    # ------------------------------------------------------------------ decision values

    def _model(self) -> tuple[FeatureMap, Array]:
        """Return the fitted functions and their coefficients, functions x outputs."""
        raise NotImplementedError

    def _values(self, X: Any) -> Any:
        """Return f(x) of validated rows, one column per output."""
        return evaluate(*self._model(), self.intercept_, X, self._spread)

    def _decision_values(self, X: Any) -> Any:
        if self._is_ready_for(X):  # as one row at a time: validation takes longer than the model
            model, source = self._model(), X
        else:
            check_is_fitted(self)
            model, source = self._model(), source_of(X) if self._fits_sources else None
            if source is None:
                source = validate(self, X, reset=False)
            else:
                check_features(self, source.n_features, source.feature_names)
        with nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size):
            return evaluate(*model, self.intercept_, source, self._spread)

    def _is_ready_for(self, X: Any) -> bool:
        """Whether rows have all that validation could ask for: kind, shape and finite numbers."""
        fitted, plain = vars(self), type(X) is np.ndarray and X.dtype == np.float64
        if not plain or "intercept_" not in fitted or "feature_names_in_" in fitted:
            return False
        if not (X.size and X.flags.c_contiguous and X.shape[1:] == (self.n_features_in_,)):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(X.sum()))

    def _in_shape(self, values: Any) -> Any:
        """Return values of all outputs in the shape of the targets."""
        raise NotImplementedError


class KernelMachine(Machine):
    """Adds the kernel: f(x) = sum_j dual_coef_j k(x_j, x) + intercept."""

    kernel_: Any
    gamma_: Any
    clip_: tuple[Array, Array] | None
    _batch_parameters: dict[str, Any]  # as they were in `fit`, or in the first batch

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Machine._parameter_constraints,
        "kernel": [StrOptions({*KERNELS, "auto", "additive_chi2"}), callable],
        "gamma": [
            StrOptions({"scale", "auto", "learn"}),
            Interval(Real, 0, None, closed="left"),
            "array-like",
        ],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    def _resolve_kernel(
        self, rows: Any, context: Any = None, most_points: int | None = None
    ) -> Kernel:
        """Find gamma, or learn it; ``rows`` are blocks or training data."""
        for name in ("feature_scales_", "_learning"):
            self.__dict__.pop(name, None)
        self._batch_parameters = {}
        for name in _BATCH_PARAMETERS:
            self._batch_parameters[name] = getattr(self, name, None)
        if isinstance(self.gamma, str) and self.gamma == "learn":
            self._learn_scales(rows, context, most_points)
            return Kernel(self.kernel_, gamma=self.gamma_, clip=self.clip_)
        # "auto" without anything to compare kernels by: the Gaussian one
        self.kernel_, self.clip_ = "rbf" if self.kernel == "auto" else self.kernel, None
        self.gamma_ = resolve_gamma(self.gamma, self.kernel_, rows.n_features, rows.variance)
        return Kernel(self.kernel_, gamma=self.gamma_, degree=self.degree, coef0=self.coef0)

    def _learn_scales(self, rows: Any, context: Any, most_points: int | None) -> None:
        """Set what `learn_scales` finds on a sample of the rows."""
        names = AUTO_KERNELS if self.kernel == "auto" else (self.kernel,)
        if callable(self.kernel) or names[0] not in LEARNABLE:
            raise ValueError(
                f"kernel={self.kernel!r} has no scales to learn: set gamma='scale' or a number, or "
                f"use one of the kernels {', '.join(LEARNABLE)}."
            )
        given = hasattr(self, "fit_intercept") and not isinstance(self.C, str | KFoldSums)
        C = np.atleast_1d(self._criterion().C) if given else None
        learned = learn_scales(
            rows.blocks() if isinstance(rows, TrainingData) else rows,
            names,
            bias_penalty=self._bias_penalty() if hasattr(self, "fit_intercept") else 0.0,
            budget=3 * resolve_cache_size(self.cache_size) // 4,  # the rest is for tiles
            random_state=getattr(self, "random_state", 0),
            on_iteration=iteration_hook(self, context, "learning-step"),
            most_points=most_points,
            C=None if C is None else (float(C.min()), float(C.max())),
        )
        self.kernel_, self.gamma_, self.clip_ = learned.kernel, learned.gamma, learned.clip
        self.feature_scales_ = learned.importance
        self._learning = learned.report

    def _refuse_changed(self) -> None:
        """Say what keeps `partial_fit` from going on: no sums, or a parameter that was changed."""
        if self._saved_small:
            raise ValueError(
                f"This needs what {type(self).__name__} added up over earlier rows, and the file "
                f"that the model comes from has only what prediction needs. Save it with "
                f"leansvm.persistence.save(model, path, keep_sums=True), or call fit."
            )
        for name, before in getattr(self, "_batch_parameters", {}).items():
            now: Any = getattr(self, name, None)
            same = np.shape(now) == np.shape(before) and np.all(np.asarray(now == before))
            if now is not before and not same:
                raise ValueError(
                    f"partial_fit: {name}={now!r} was {before!r} in the first batch, and the rows "
                    f"since then were added up with that. Set it back, or call fit."
                )

    def _set_basis(self, data: TrainingData, basis: Support, solution: Solution) -> None:
        self.support_ = basis.indices
        pairwise = self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0), data.X.dtype) if pairwise else basis.points
        self.dual_coef_ = np.ascontiguousarray(solution.coef[basis.order].T)
        self.n_support_ = len(basis.indices)
        if solution.weights is not None:
            self.coef_ = solution.weights
        learning = self.__dict__.pop("_learning", None)
        if learning is not None:
            solution.details["learning"] = learning
            seconds = float(sum(learning["seconds"].values()))
            solution.seconds = {"learn": seconds, **solution.seconds}

    def _model(self) -> tuple[FeatureMap, Array]:
        kernel = Kernel(
            self.kernel_,
            gamma=self.gamma_,
            degree=self.degree,
            coef0=self.coef0,
            clip=self.clip_,
        )
        points = self.support_ if kernel.precomputed else self.support_vectors_
        return KernelFeatures(kernel, points), self.dual_coef_.T


def iteration_hook(estimator: Any, context: Any, name: str) -> Callable[..., bool] | None:
    """Return a function that runs scikit-learn's callbacks once per iteration, None without any.

    It returns True when a callback asks to stop.
    """
    if not getattr(estimator, "_skl_callbacks", None):
        return None

    def hook(iteration: int, residual: float = 0.0) -> bool:
        task = context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    return hook
