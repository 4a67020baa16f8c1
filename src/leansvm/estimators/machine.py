"""What every estimator shares: the fit in five lines, what surrounds them, and the parameters.

data = self._prepare(read(...), run)  rows, targets and weights, wherever they are
kernel = self._learn_kernel(...)      a kernel with its numbers, given or learned on a sample
basis = self._grow(...)               points in order, and their sums over the rows
solution = self._solve(...)           coefficients, bias, C, left-out residuals, certificate
publish(...)                          fitted attributes, report, warnings, calibration

`running` surrounds these lines with a clock, callbacks and a way back after an error.

A constructor has a signature and nothing else (`stored`). Each parameter, with its rule and its
description, is written down once, in the class that uses it, and so are fitted attributes.
`leansvm.estimators.described` adds those of the base classes to an estimator: `help` and the API
pages show them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._parallel import limited_blas
from leansvm._phases import Watch, out_of_time, step, watching
from leansvm._sklearn import CallbackSupport, Documented
from leansvm.basis.features import evaluate
from leansvm.estimators.described import complete, similar
from leansvm.estimators.publish import publish, warn
from leansvm.estimators.read import TrainingData, read
from leansvm.estimators.saved import Saved
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.kfold import KFoldSums
from leansvm.rows import tiles_within

Array = NDArray[np.float64]
_STEP_WEIGHT = 1 / 15  # weight of a step of a callback in its phase
C_GRID = np.logspace(-6, 7, 50)
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARE = Interval(Real, 0, 1, closed="neither")
COUNT = Interval(Integral, 1, None, closed="left")


def stored(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor set every parameter as an attribute, as scikit-learn asks for."""
    signature = inspect.signature(init)

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            hint = similar(kwargs, signature.parameters)
            raise TypeError(f"{type(self).__name__}: {error}{hint}") from None
        bound.apply_defaults()
        vars(self).update(list(bound.arguments.items())[1:])

    return __init__


class Machine(Saved, CallbackSupport, Documented):
    """Base of all estimators: f(x) = sum_j coef_j phi_j(x) + intercept.

    A family of machines has these methods; each returns a value and leaves the machine as it is:

    - ``_arrange_rows(data, run)``: merges equal rows if rows are left out; plans the basis
    - ``_learn_kernel(data, run)``: the kernel with its numbers; None for machines without one
    - ``_grow(data, kernel, run)``: what carries the coefficients: points, all rows, or functions
    - ``_solve(data, basis, run)``: the `Solution` on it
    - ``_basis_attributes(data, solution)``: the fitted attributes that describe the basis
    - ``_model()``: the fitted functions and their coefficients, functions x outputs

    Parameters
    ----------
    fit_intercept : bool
        Whether the model has a bias b.
    bias_penalty : float
        Penalty A of the bias: A b^2 / 2 is added to the objective. 0 means no penalty.
    cache_size : float or "auto"
        Memory limit of a fit, in megabytes; "auto" is 80 % of the available memory. Kernel values
        that do not fit are computed again when they are needed. If a matrix does not fit, a
        MemoryError is raised before the matrix is allocated.
    random_state : int, RandomState instance or None
        Seed for everything random: basis points, samples of the rows, starts.
    verbose : int
        1 prints a line after every phase of the fit: its seconds and, if known, the seconds left.
    time_limit : float or None
        Seconds after which growing the basis and learning functions stop; learning the kernel stops
        after half of this time. The fit continues with the best result so far, and a warning and
        ``fit_report_`` say so. Other phases have no limit, so a fit may take longer.

    Attributes
    ----------
    intercept_ : ndarray of shape (n_outputs,)
        Bias b: one for two classes, otherwise one for each class or target.
    C_ : float
        The C that was used.
    cv_curve_ : ndarray of shape (n_candidates,)
        Error at every value of ``C`` that was compared, NaN if it was not tried. Only if there are
        several values.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Leave-one-out residuals: target (+-1 for classes) minus the prediction of the model without
        the row and its exact copies. Only with ``C="loo"``.
    objective_ : float
        Value of the objective, summed over the outputs.
    n_iter_ : int
        Number of iterations, the largest over all outputs; 1 for direct solvers.
    fit_report_ : dict
        Solver used, objective, residual and gap, iterations, rows, basis size, bytes, seconds by
        phase, phases that a limit or a callback ended ("ended_early"), and notes about the solver
        and about choices made on a sample.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.
    """

    # what kind of machine it is
    _classifies: ClassVar[bool] = False
    _fits_sources: ClassVar[bool] = False  # data sets in files, Dask collections
    _fits_where_rows_are: bool | property = False  # if not, other libraries' arrays become NumPy's
    _is_direct: bool | property = False  # its solver has no steps to report to callbacks
    _has_one_scale: bool | property = True  # one gamma: numbers of a table get standardised
    _keeps_rows: ClassVar[bool] = False  # for intervals and sets after the fit, see `answers`
    _scores_lists_by: ClassVar[str] = "gcv"  # criterion for a list of C
    _candidates: ClassVar[Array] = C_GRID  # values of C that a string tries
    # values of the parameters that a machine does not have
    kernel: Any = None
    calibrate: bool = False
    target: str | None = None
    criterion: str = "squared"
    fit_intercept: bool = True
    bias_penalty: float = 0.0
    verbose: int = 0
    time_limit: float | None = None
    # values of the attributes that a model does not have
    _spread: Any = 1.0  # of the targets; those of classes are +-1
    _seen: Any = None  # least and largest values of features (2, d) if a kernel was learned
    _single_output: bool
    fit_report_: dict[str, Any]
    _answers: Any

    # sections of the docstring that an estimator shares with its bases
    _shared_sections: ClassVar[tuple[str, ...]] = ("Parameters", "Attributes")
    # rules for the parameters of this class; an estimator also gets those of its bases
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [POSITIVE, StrOptions({"gcv", "loo"}), "array-like"],
        "fit_intercept": ["boolean"],
        "bias_penalty": [NOT_NEGATIVE],
        "tol": [POSITIVE],
        "max_iter": [COUNT],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, 1e300, closed="neither")],
        "random_state": ["random_state"],
        "keep_state": ["boolean", None],
        "verbose": ["verbose"],
        "time_limit": [POSITIVE, None],
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give an estimator the rules and descriptions that its bases have for its parameters."""
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
            Training rows. Frames may have text, categories, dates and missing values, arrays may
            have NaN (`leansvm.tables.TableEncoder` turns them into numbers; it is kept as
            ``table_``). For ``kernel="precomputed"`` the kernel matrix of all rows. `SparseLSSVC`,
            `SparseLSSVR`, `ReducedSVC` and `ReducedSVR` also take a data set in files
            (`leansvm.open_dataset`), or a Dask array or data frame.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels (classifiers; one per row) or targets (regressors). None for a data set in
            files, which contains them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of k counts like k copies of the row.

        Returns
        -------
        estimator
            The fitted estimator.
        """
        with running(self, X, y) as run:  # no attribute is set before the last line
            data = self._prepare(read(self, X, y, sample_weight), run)
            kernel = self._learn_kernel(data, run)
            basis = self._grow(data, kernel, run)
            solution = self._solve(data, basis, run)
            publish(self, data, kernel, solution)
        return self

    def _prepare(self, data: TrainingData, run: Run) -> TrainingData:
        """Arrange the rows as the family needs them; refuse too few; plan the phases."""
        data = self._arrange_rows(data, run)
        if data.n_positive < 2 and (np.ndim(run.criterion.C) or run.criterion.left_out):
            raise ValueError(
                f"C={self.C!r} needs two distinct rows of positive weight, got "
                f"n_samples={data.n_positive}; give C as a number."
            )
        if run.tasks is not None or self.verbose:
            run.watch.plan = self._planned(*data.X.shape)
        return data

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        """Return the expected work of each phase, relative to the others; empty if unknown."""
        return {}

    # ------------------------------------------------------------------ parameters

    def _criterion(self) -> Criterion:
        """Return the C to use, or the candidates and what scores them."""
        C, folds = self.C, None
        # Without an integer seed, 0: otherwise every fit would compare C on other rows.
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else 0
        options: dict[str, Any] = {"loss": self.criterion, "seed": seed}
        if isinstance(C, KFoldSums):
            C, folds = "kfold", C
        elif isinstance(C, str):
            folds = KFoldSums() if C == "kfold" else None
        else:
            C = self._numbers(C)
            if not C.ndim:
                return Criterion(float(C), left_out=self.calibrate, **options)
        name, C = (C, self._candidates) if isinstance(C, str) else (self._scores_lists_by, C)
        if self.criterion != "squared" and name != "loo":
            raise ValueError(f"criterion={self.criterion!r} needs C='loo' or a list of C.")
        return Criterion(C, name, self.calibrate or name == "loo", folds, **options)

    def _numbers(self, C: Any) -> Array:
        """Return the given value, or values, of C."""
        try:
            found = np.asarray(C, dtype=np.float64)
        except (TypeError, ValueError):
            found = np.empty(0)
        if found.ndim > 1 or not found.size or not np.all(found > 0):
            kinds = self._parameter_constraints["C"]
            names = [kind.options for kind in kinds if isinstance(kind, StrOptions)]
            words = " or ".join(map(repr, sorted(set().union(*names))))
            raise ValueError(f"C must be a number > 0, a list of them or {words}, got {C!r}.")
        if found.min() < 1e-300 or found.max() > 1e300:
            raise ValueError(f"C={C!r}: it must be finite and at most 1e300, and so must 1 / C.")
        return found

    def _bias_penalty(self) -> float:
        """Return A of the objective: 0 means a free bias, inf means no bias."""
        return float(self.bias_penalty) if self.fit_intercept else np.inf

    # ------------------------------------------------------------------ decision values

    def _values(self, X: Any) -> Any:
        """Return f(x) of validated rows, one column per output."""
        features, coef = self._model()
        return evaluate(features, coef, self.intercept_, X, self._spread)

    def _in_shape(self, values: Any) -> Any:
        """Return values of all outputs in the shape of the targets."""
        one = len(self.classes_) == 2 if self._classifies else self._single_output
        return values[:, 0] if one else values


vars(Machine.fit)["__wrapped__"].__qualname__ = "fit"  # errors about arguments name no base class


# ---------------------------------------------------------------------------- the frame of a fit


class Tasks:
    """Tells scikit-learn's callbacks about steps and, if work is planned, the percentage done."""

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

        It returns True if the steps should end: if a callback asks for it, or if ``share`` of the
        time limit is used up before step ``last``.
        """
        tasks, watch = self.tasks, self.watch
        if tasks is None and (share is None or watch.limit == np.inf):
            return None

        def one(iteration: int, residual: float = 0.0) -> bool:
            step(_STEP_WEIGHT)
            ends = share is not None and iteration < last and out_of_time(share)
            asked = tasks is not None and tasks.step(tasks.steps, name)
            if asked:
                watch.stopped += watch.inside[:1]
            return asked or ends

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

    Inside, tiles of rows take at most ``cache_size``, and BLAS uses one thread. After an error or
    an interrupt the estimator is what it was before. Errors about overflow and ill-conditioned
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
    before, token = vars(estimator).copy(), watching.set(watch)
    try:
        run = Run(criterion or estimator._criterion(), watch, tasks, is_path)
        size = estimator.cache_size
        within = nullcontext() if size == "auto" else tiles_within(size)
        with within, limited_blas():
            yield run
    except BaseException as error:
        estimator.__dict__ = before
        if not isinstance(error, np.linalg.LinAlgError | OverflowError):
            raise
        raise ValueError(
            f"{type(estimator).__name__}: the equations are too ill-conditioned for float64: lower "
            f"C, scale X, y or sample_weight, or use a positive semidefinite kernel."
        ) from error
    finally:
        watching.reset(token)
    if watch.cut:
        warn(
            estimator,
            f": time_limit={estimator.time_limit:g} s ended {' and '.join(watch.cut)} early. The "
            f"model uses the best result so far; the fit took {watch.elapsed:.1f} s.",
        )
    if tasks is not None:
        tasks.end()
