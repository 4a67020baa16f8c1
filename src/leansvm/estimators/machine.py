"""What every estimator shares: the fit in five lines, its parameters, and decision values.

data = read(...)             rows, targets and weights, wherever they are
kernel = _learn_kernel(...)  a kernel with its numbers, given or learned on a sample
basis = _grow(...)           points in order, and what was summed over the rows for them
solution = _solve(...)       coefficients, bias, C, left-out residuals, certificate
publish(...)                 fitted attributes, report, warnings, calibration
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from leansvm._packed import packed
from leansvm._parallel import serial_blas
from leansvm._phases import Watch, out_of_time, step, watched_by
from leansvm._sklearn import CallbackSupport, Documented
from leansvm.basis import BasisSelector
from leansvm.basis.features import FeatureMap, evaluate
from leansvm.estimators.publish import publish, warn_of_time
from leansvm.estimators.read import check_features, read, validate
from leansvm.estimators.training_data import TrainingData
from leansvm.ridge.kfold import KFoldSums
from leansvm.ridge.primal import Criterion
from leansvm.rows import source_of, tiles_within
from leansvm.solution import Solution

if TYPE_CHECKING:
    from leansvm.estimators.kernel_machine import FittedKernel

Array = NDArray[np.float64]
_IN_MEMORY = frozenset({"_rows", "_answers"})  # of no pickle and no file

_STEP = 1 / 15  # weight of a step in its phase
C_GRID = np.logspace(-6, 7, 50)

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


class Tasks:
    """What scikit-learn's callbacks hear of a fit: steps by their names and, planned, percents."""

    def __init__(self, estimator: Any, planned: bool) -> None:
        self.estimator, self.percent = estimator, 0
        self.heard = bool(getattr(estimator, "_skl_callbacks", None))
        most = 0 if estimator._is_direct else None
        self.fit = estimator._init_callback_context(max_subtasks=101 if planned else most)
        self._steps = None if planned else self.fit  # a task of its own, beside the percents

    def step(self, name: str) -> bool:
        """Tell of a step; return whether a callback asks to stop."""
        if not self.heard:
            return False
        if self._steps is None:
            self._steps = self.fit.subcontext(task_name="steps", max_subtasks=None)
            self._steps.call_on_fit_task_begin(estimator=self.estimator)
        return self._one(self._steps, name)

    def tell(self, share: float) -> None:
        """Tell how much of the fit is done: a task for every percent."""
        while self.percent < int(100 * share):
            self.percent += 1
            self._one(self.fit, "percent")

    def end(self) -> None:
        """End the task of the steps."""
        if self._steps is not None and self._steps is not self.fit:
            self._steps.call_on_fit_task_end(estimator=self.estimator)

    def _one(self, parent: Any, name: str) -> bool:
        task = parent.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=self.estimator)
        return bool(task.call_on_fit_task_end(estimator=self.estimator))


@dataclass(frozen=True)
class Run:
    """One call of `fit`, `partial_fit` or a path: how C is found, and who is told of progress."""

    estimator: Any
    tasks: Tasks  # of scikit-learn's callbacks
    watch: Watch
    criterion: Criterion
    is_path: bool = False  # a model for every C, instead of the best one

    def hook(
        self, name: str, share: float | None = None, last: float = np.inf
    ) -> Callable[..., bool] | None:
        """Return a function to call after every step, None where nobody hears of steps.

        It returns True when a callback asks to stop or, of steps that may end before the ``last``
        one, when they have taken their ``share`` of the time limit.
        """
        if not self.tasks.heard and (share is None or self.watch.limit == np.inf):
            return None

        def one(iteration: int, residual: float = 0.0) -> bool:
            step(_STEP)
            ends = share is not None and iteration < last and out_of_time(share)
            return self.tasks.step(name) or ends

        return one


class Machine(CallbackSupport, Documented):
    """Base of all estimators: f(x) = sum_j coef_j phi_j(x) + intercept."""

    _fits_where_rows_are: bool | property = False  # else arrays of other libraries become NumPy's
    kernel: Any = None  # machines of learned functions have none
    _fits_sources = False  # data sets in files, Dask collections
    _classifies: ClassVar[bool] = False
    _keeps_rows: ClassVar[bool] = False  # for questions after the fit, see `answers`
    _spread: Any = 1.0  # of the targets; those of classes are +-1
    _scores_lists_by: ClassVar[str] = "gcv"  # what compares a list of C
    keep_state: bool | None = None
    verbose: int = 0
    time_limit: float | None = None
    _has_batches: bool = False  # True in a model that `partial_fit` made
    _saved_small: ClassVar[bool] = False  # True in a model whose file lacks `_training_only`
    # what prediction can do without: pickles and files have it with ``keep_state`` alone
    _training_only: ClassVar[frozenset[str]] = frozenset({"loo_residuals_", "_left_out"})
    _candidates: ClassVar[Array] = C_GRID  # values of C behind a string
    _calibrates: bool | property = False  # whether left-out values become probabilities
    _is_direct: bool | property = False  # a solver without steps that callbacks are told of
    _has_one_scale: bool | property = True  # for all features: numbers of a table are standardised

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"gcv", "loo"}), "array-like"],
        "fit_intercept": ["boolean"],
        "bias_penalty": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, 1e300, closed="neither")],
        "verbose": ["verbose"],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
    }
    fit_report_: dict[str, Any]
    _answers: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        takes_tables = self.kernel != "precomputed" and not callable(self.kernel)
        tags.input_tags.allow_nan = tags.input_tags.categorical = takes_tables
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {data frame, array-like, sparse matrix} of shape (n_samples, n_features), or data set
            Training rows; frames may have text, categories, dates and missing values, arrays NaN
            (`leansvm.tables.TableEncoder` makes numbers of them and is kept as ``table_``); for
            ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix. `SparseLSSVC`,
            `SparseLSSVR`, `ReducedSVC` and `ReducedSVR` also take a data set in files
            (`leansvm.open_dataset`), or a Dask array or data frame.
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
        with self._fitting(X, y) as run:
            self._fit_on(read(self, X, y, sample_weight), run)
        return self

    def _fit_on(self, data: TrainingData, run: Run) -> None:
        """Fit the model on rows that were read; nothing is set before the last line."""
        data = self._counted(data, run)
        run.watch.plan = self._planned(data.X.shape[0], data.n_features)
        kernel = self._learn_kernel(data, run)
        basis = self._grow(data, kernel, run)
        solution = self._solve(data, basis, run)
        publish(self, data, kernel, basis, solution)

    @contextmanager
    def _fitting(
        self,
        X: Any = None,
        y: Any = None,
        criterion: Criterion | None = None,
        is_path: bool = False,
    ) -> Iterator[Run]:
        """Yield the `Run` of a fit, a batch or a path.

        Inside, tiles of rows keep to ``cache_size`` and BLAS to one thread, and an error says what
        to do where numbers are too large. Any error or interrupt leaves the estimator as it was:
        no attribute of a fit that did not come to its end is seen.
        """
        tasks, before = Tasks(self, bool(self._planned(1, 1))), self.__dict__.copy()
        watch = Watch(tell=tasks.tell if tasks.heard else None)
        if self.time_limit is not None:
            watch.limit = float(self.time_limit)
        if self.verbose:
            watch.say = lambda line: print(f"{type(self).__name__}: {line}", flush=True)
        try:
            tasks.fit.call_on_fit_task_begin(estimator=self, X=X, y=y)
            within = nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size)
            with within, serial_blas(), watched_by(watch):
                yield Run(self, tasks, watch, criterion or self._criterion(), is_path)
        except BaseException as error:
            self.__dict__ = before
            if not isinstance(error, np.linalg.LinAlgError | OverflowError):
                raise
            raise ValueError(
                f"{type(self).__name__} is too ill-conditioned for float64: lower C, scale X, y or "
                f"sample_weight, or use a positive semidefinite kernel."
            ) from error
        if watch.cut:
            warn_of_time(self, watch)
        tasks.end()
        tasks.fit.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        """Return the expected work of each phase, relative to the others; none where unknown."""
        return {}

    def _counted(self, data: TrainingData, run: Run) -> TrainingData:
        """Return the rows as this family counts them: which stand for their copies, in blocks."""
        return data

    def _learn_kernel(self, data: Any, run: Run) -> FittedKernel | None:
        """Return the kernel with its numbers; None for machines without one."""
        return None

    def _grow(self, data: Any, kernel: Any, run: Run) -> Any:
        """Return what carries the coefficients: chosen points, all rows, or functions."""
        raise NotImplementedError

    def _solve(self, data: Any, basis: Any, run: Run) -> Solution:
        """Return the solution on a basis."""
        raise NotImplementedError

    def _basis_attributes(
        self, data: TrainingData, basis: Any, solution: Solution
    ) -> dict[str, Any]:
        """Return the fitted attributes that describe the basis; `publish` sets them."""
        raise NotImplementedError

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the fitted model to a file without pickle; `leansvm.load` reads it.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.
        **options
            Of `leansvm.persistence.save`: ``metadata`` and ``trusted``.
        """
        from leansvm.persistence import save

        save(self, path, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and model files hold: what prediction needs, or all of the state."""
        state: dict[str, Any] = super().__getstate__()
        left_out = frozenset() if self._keeps_state else self._training_only
        found = {name: value for name, value in state.items() if name not in left_out | _IN_MEMORY}
        return found if left_out.isdisjoint(state) else found | {"_saved_small": True}

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what pickle writes; arrays of a model without its state are compressed."""
        make, arguments, state, *rest = super().__reduce_ex__(protocol)
        return make, arguments, state if self._keeps_state else packed(state), *rest

    @property
    def _keeps_state(self) -> bool:
        """Whether files hold what `partial_fit` and merging need."""
        return bool(self._has_batches if self.keep_state is None else self.keep_state)

    def __copy__(self) -> Any:
        """Return a copy in memory, which has everything."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    # ------------------------------------------------------------------ parameters

    def _criterion(self) -> Criterion:
        """Return the C to use, or the candidates and what scores them."""
        calibrate = self._calibrates
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
        if (
            not plain
            or "intercept_" not in fitted
            or {"feature_names_in_", "table_"} & fitted.keys()
        ):
            return False
        if not (X.size and X.flags.c_contiguous and X.shape[1:] == (self.n_features_in_,)):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(X.sum()))

    def _in_shape(self, values: Any) -> Any:
        """Return values of all outputs in the shape of the targets."""
        raise NotImplementedError
