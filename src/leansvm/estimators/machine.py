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
from typing import Any, ClassVar

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
from leansvm.basis.features import evaluate
from leansvm.estimators.beyond import warn_beyond
from leansvm.estimators.parameters import complete
from leansvm.estimators.publish import publish, warn_of_time
from leansvm.estimators.read import check_features, read, validate
from leansvm.estimators.tasks import Tasks
from leansvm.estimators.training_data import TrainingData
from leansvm.ridge.kfold import KFoldSums
from leansvm.ridge.primal import Criterion
from leansvm.rows import source_of, tiles_within
from leansvm.tables.fitting import encoded_source

Array = NDArray[np.float64]
C_GRID = np.logspace(-6, 7, 50)
_IN_MEMORY = frozenset({"_rows", "_answers"})  # of no pickle and no file
_STEP = 1 / 15  # weight of a step in its phase


@dataclass(frozen=True)
class Run:
    """One call of `fit`, `partial_fit` or a path: how C is found, and who is told of progress."""

    criterion: Criterion
    watch: Watch
    tasks: Tasks | None  # None where there are no callbacks
    is_path: bool  # a model for every C, instead of the best one

    def hook(
        self, name: str, share: float | None = None, last: float = np.inf
    ) -> Callable[..., bool] | None:
        """Return a function to call after every step, None where nobody hears of steps.

        It returns True when a callback asks to stop or, of steps that may end before the ``last``
        one, when they have taken their ``share`` of the time limit.
        """
        tasks = self.tasks
        if tasks is None and (share is None or self.watch.limit == np.inf):
            return None

        def one(iteration: int, residual: float = 0.0) -> bool:
            step(_STEP)
            ends = share is not None and iteration < last and out_of_time(share)
            return (tasks is not None and tasks.step(tasks.steps, name)) or ends

        return one


class Machine(CallbackSupport, Documented):
    """Base of all estimators: f(x) = sum_j coef_j phi_j(x) + intercept.

    A family of machines has these methods; each returns a value and leaves the machine as it is:

    - ``_rows_that_count(data, run)``: equal rows are merged where rows are left out
    - ``_learn_kernel(data, run)``: the kernel with its numbers; None for machines without one
    - ``_grow(data, kernel, run)``: what carries the coefficients: points, all rows, or functions
    - ``_solve(data, basis, run)``: the `Solution` on it
    - ``_basis_attributes(data, solution)``: the fitted attributes that describe the basis
    - ``_model()``: the fitted functions and their coefficients, functions x outputs

    Parameters
    ----------
    fit_intercept : bool
        Whether to have a bias b.
    bias_penalty : float
        A of the term A b^2 / 2; 0 leaves the bias free.
    cache_size : float or "auto"
        Megabytes that a fit may take for kernel values, factors and what it keeps between passes;
        "auto" is 80 % of the memory that is available. Kernel values that do not fit are computed
        anew; a matrix that does not fit raises MemoryError before it is made.
    random_state : int, RandomState instance or None
        Seed of what is drawn at random: basis points, samples of the rows, starts.
    verbose : int
        1 prints a line for every phase: its seconds and, where that can be told, those to go.
    time_limit : float or None
        Seconds after which learning the kernel (after half of them), growing the basis and learning
        functions end with the best so far, a warning and a note in ``fit_report_``; the rest takes
        its time.

    Attributes
    ----------
    intercept_ : ndarray of shape (n_outputs,)
        Bias b of every output: one for two classes, else one for each class or target.
    C_ : float
        Value used.
    cv_curve_ : ndarray of shape (n_candidates,)
        Criterion at every candidate of ``C``, nan where it was not tried; only when there are
        several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target (of classes +-1) less the prediction of the model fitted without the row and its
        exact copies; only with ``C="loo"``.
    objective_ : float
        Value of the objective, summed over the outputs.
    n_iter_ : int
        Iterations, the most of any output; 1 for direct solvers.
    fit_report_ : dict
        Solver used, objective, residual and gap, iterations, rows, basis size, bytes, seconds by
        phase, and what else there is to say of a solver or of choices made on a sample.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.
    """

    # what kind of machine it is
    _classifies: ClassVar[bool] = False
    _fits_sources: ClassVar[bool] = False  # data sets in files, Dask collections
    _fits_where_rows_are: bool | property = False  # else arrays of other libraries become NumPy's
    _is_direct: bool | property = False  # a solver without steps that callbacks are told of
    _has_one_scale: bool | property = True  # for all features: numbers of a table are standardised
    _keeps_rows: ClassVar[bool] = False  # for questions after the fit, see `answers`
    _scores_lists_by: ClassVar[str] = "gcv"  # what compares a list of C
    _candidates: ClassVar[Array] = C_GRID  # values of C behind a string
    # what prediction can do without: pickles and files have it with ``keep_state`` alone
    _training_only: ClassVar[frozenset[str]] = frozenset({"loo_residuals_", "_left_out"})
    # parameters of machines that do not take them
    kernel: Any = None
    calibrate: bool = False
    target: str | None = None
    criterion: str = "squared"
    keep_state: bool | None = None
    fit_intercept: bool = True
    bias_penalty: float = 0.0
    verbose: int = 0
    time_limit: float | None = None
    # of models that were not fitted, or in another way
    _spread: Any = 1.0  # of the targets; those of classes are +-1
    _seen: Any = None  # least and largest values of features (2, d) where a kernel was learned
    _has_batches: bool = False  # True in a model that `partial_fit` made
    _saved_small: ClassVar[bool] = False  # True in a model whose file lacks `_training_only`
    _single_output: bool
    fit_report_: dict[str, Any]
    _answers: Any

    # sections of its docstring that an estimator shares with its bases
    _shared_sections: ClassVar[tuple[str, ...]] = ("Parameters", "Attributes")
    # of a class itself; those of its bases are added where it has a constructor
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"gcv", "loo"}), "array-like"],
        "fit_intercept": ["boolean"],
        "bias_penalty": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, 1e300, closed="neither")],
        "random_state": ["random_state"],
        "keep_state": ["boolean", None],
        "verbose": ["verbose"],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give an estimator what its bases say of its parameters: rules and documentation."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            complete(cls, [base for base in cls.__mro__[1:] if issubclass(base, Machine)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        pairwise = self.kernel == "precomputed"
        tags.input_tags.pairwise, tags.input_tags.sparse = pairwise, not pairwise
        takes_tables = not pairwise and not callable(self.kernel)
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
        with self._fitting(X, y) as run:  # nothing is set before the last line
            data = self._counted(read(self, X, y, sample_weight), run)
            kernel = self._learn_kernel(data, run)
            basis = self._grow(data, kernel, run)
            solution = self._solve(data, basis, run)
            publish(self, data, kernel, solution)
        return self

    def _counted(self, data: TrainingData, run: Run) -> TrainingData:
        """Return the rows as the family counts them, if there are enough; plan the phases."""
        data = self._rows_that_count(data, run)
        if data.n_positive < 2 and (np.ndim(run.criterion.C) or run.criterion.left_out):
            raise ValueError(
                f"C={self.C!r} needs two distinct rows of positive weight, got "
                f"n_samples={data.n_positive}; give C as a number."
            )
        if run.tasks is not None or self.verbose:
            run.watch.plan = self._planned(*data.X.shape)
        return data

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
        tasks, watch = Tasks(self, X, y) if vars(self).get("_skl_callbacks") else None, Watch()
        before = self.__dict__.copy()
        if self.time_limit is not None:
            watch.limit = float(self.time_limit)
        if tasks is not None:
            watch.tell = tasks.tell
        if self.verbose:
            watch.say = lambda line: print(f"{type(self).__name__}: {line}", flush=True)
        try:
            within = nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size)
            with within, serial_blas(), watched_by(watch):
                yield Run(criterion or self._criterion(), watch, tasks, is_path)
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
        if tasks is not None:
            tasks.end()

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        """Return the expected work of each phase, relative to the others; none where unknown."""
        return {}

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
        left_out, folds = self.calibrate, None
        if isinstance(self.C, str | KFoldSums):
            candidates, name = self._candidates, str(self.C)
            if not isinstance(self.C, str) or name == "kfold":
                name, folds = "kfold", KFoldSums() if isinstance(self.C, str) else self.C
        else:
            try:
                candidates, name = np.asarray(self.C, dtype=np.float64), self._scores_lists_by
            except (TypeError, ValueError):
                candidates = np.empty(0)
            if candidates.ndim > 1 or not candidates.size or not np.all(candidates > 0):
                raise ValueError(
                    f"C must be a number > 0, a list of them, 'loo', 'kfold' or 'gcv', got "
                    f"{self.C!r}."
                )
            if candidates.min() < 1e-300 or candidates.max() > 1e300:
                raise ValueError(
                    f"C={self.C!r}: it must be finite and at most 1e300, and so must 1 / C."
                )
            if not candidates.ndim:
                return Criterion(float(candidates), left_out=left_out, judge=self.criterion)
        if self.criterion != "squared" and name != "loo":
            raise ValueError(f"criterion={self.criterion!r} needs C='loo' or a list of C.")
        return Criterion(candidates, name, left_out or name == "loo", folds, judge=self.criterion)

    def _bias_penalty(self) -> float:
        """Return A of the objective: 0 is a free bias, inf is none."""
        return float(self.bias_penalty) if self.fit_intercept else np.inf

    # ------------------------------------------------------------------ decision values

    def _values(self, X: Any) -> Any:
        """Return f(x) of validated rows, one column per output."""
        features, coef = self._model()
        return evaluate(features, coef, self.intercept_, X, self._spread)

    def _decision_values(self, X: Any) -> Any:
        """Return f(x) of any rows, one column per output."""
        if not self._is_ready_for(X):
            check_is_fitted(self)
            source = source_of(X) if self._fits_sources else None
            if source is not None:
                check_features(self, source.n_features, source.feature_names)
                source = encoded_source(self, source, reset=False)
            X = validate(self, X, reset=False) if source is None else source
        warn_beyond(self, X)
        features, coef = self._model()
        with nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size):
            return evaluate(features, coef, self.intercept_, X, self._spread)

    def _is_ready_for(self, X: Any) -> bool:
        """Whether rows have all that validation could ask for: kind, shape and finite numbers.

        So one row at a time is fast: validation takes longer than the model.
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

    def _in_shape(self, values: Any) -> Any:
        """Return values of all outputs in the shape of the targets."""
        one = len(self.classes_) == 2 if self._classifies else self._single_output
        return values[:, 0] if one else values
