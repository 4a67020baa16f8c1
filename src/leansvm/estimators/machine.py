"""What every estimator shares: the fit in five lines, its parameters, and decision values.

data = read(...)             rows, targets and weights, wherever they are
kernel = _learn_kernel(...)  a kernel with its numbers, given or learned on a sample
basis = _grow(...)           points in order, and what was summed over the rows for them
solution = _solve(...)       coefficients, bias, C, left-out residuals, certificate
publish(...)                 fitted attributes, report, warnings, calibration

A constructor has a signature and nothing else (`stored`). Each parameter, with its rule and its
description, is written down once, in the class that uses it, and so are fitted attributes.
`_complete` adds those of the base classes to an estimator: `help` and the API pages show them all.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from leansvm._packed import packed
from leansvm._sklearn import CallbackSupport, Documented
from leansvm.basis.features import evaluate
from leansvm.estimators.publish import publish, warn_beyond
from leansvm.estimators.read import check_features, read, validate
from leansvm.estimators.run import Run, TrainingData, running
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.kfold import KFoldSums
from leansvm.rows import source_of, tiles_within
from leansvm.tables.fitting import encoded_source

Array = NDArray[np.float64]
C_GRID = np.logspace(-6, 7, 50)
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARE = Interval(Real, 0, 1, closed="neither")
COUNT = Interval(Integral, 1, None, closed="left")
_IN_MEMORY = frozenset({"_rows", "_answers"})  # pickles and files never hold these


def stored(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor set every parameter as an attribute, as scikit-learn asks for."""
    signature = inspect.signature(init)

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        vars(self).update(list(bound.arguments.items())[1:])

    return __init__


class Machine(CallbackSupport, Documented):
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
        phase, and notes about the solver and about choices made on a sample.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.
    """

    # what kind of machine it is
    _classifies: ClassVar[bool] = False
    _fits_sources: ClassVar[bool] = False  # data sets in files, Dask collections
    _fits_where_rows_are: bool | property = False  # else arrays of other libraries become NumPy's
    _is_direct: bool | property = False  # its solver has no steps to report to callbacks
    _has_one_scale: bool | property = True  # for all features: numbers of a table are standardised
    _keeps_rows: ClassVar[bool] = False  # for questions after the fit, see `answers`
    _scores_lists_by: ClassVar[str] = "gcv"  # criterion for a list of C
    _candidates: ClassVar[Array] = C_GRID  # values of C that a string tries
    # attributes that prediction does not need: files and pickles hold them if ``keep_state``
    _training_only: ClassVar[frozenset[str]] = frozenset({"loo_residuals_", "_left_out"})
    # values of the parameters that a machine does not have
    kernel: Any = None
    calibrate: bool = False
    target: str | None = None
    criterion: str = "squared"
    keep_state: bool | None = None
    fit_intercept: bool = True
    bias_penalty: float = 0.0
    verbose: int = 0
    time_limit: float | None = None
    # values of the attributes that a model does not have
    _spread: Any = 1.0  # of the targets; those of classes are +-1
    _seen: Any = None  # least and largest values of features (2, d) where a kernel was learned
    _has_batches: bool = False  # True in a model that `partial_fit` made
    _saved_small: ClassVar[bool] = False  # True in a model whose file lacks `_training_only`
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
            _complete(cls, [base for base in cls.__mro__[1:] if issubclass(base, Machine)])

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

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the fitted model to a file without pickle; `leansvm.load` reads it.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.
        **options
            ``metadata`` and ``trusted``, as in `leansvm.persistence.save`.
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
        """Return a copy in memory, with all attributes."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    # ------------------------------------------------------------------ parameters

    def _criterion(self) -> Criterion:
        """Return the C to use, or the candidates and what scores them."""
        C, folds = self.C, None
        # a generator has other numbers in every fit, and None is no seed: the same rows judge
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else 0
        judging: dict[str, Any] = {"judge": self.criterion, "seed": seed}
        if isinstance(C, KFoldSums):
            C, folds = "kfold", C
        elif isinstance(C, str):
            folds = KFoldSums() if C == "kfold" else None
        else:
            C = self._numbers(C)
            if not C.ndim:
                return Criterion(float(C), left_out=self.calibrate, **judging)
        name, C = (C, self._candidates) if isinstance(C, str) else (self._scores_lists_by, C)
        if self.criterion != "squared" and name != "loo":
            raise ValueError(f"criterion={self.criterion!r} needs C='loo' or a list of C.")
        return Criterion(C, name, self.calibrate or name == "loo", folds, **judging)

    def _numbers(self, C: Any) -> Array:
        """Return the given value, or values, of C."""
        try:
            found = np.asarray(C, dtype=np.float64)
        except (TypeError, ValueError):
            found = np.empty(0)
        if found.ndim > 1 or not found.size or not np.all(found > 0):
            raise ValueError(
                f"C must be a number > 0, a list of them, 'loo', 'kfold' or 'gcv', got {C!r}."
            )
        if found.min() < 1e-300 or found.max() > 1e300:
            raise ValueError(f"C={C!r}: it must be finite and at most 1e300, and so must 1 / C.")
        return found

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
            if source is None:
                X = validate(self, X, reset=False)
            else:
                check_features(self, source.n_features, source.feature_names)
                X = encoded_source(self, source, reset=False)
        warn_beyond(self, X)
        features, coef = self._model()
        with nullcontext() if self.cache_size == "auto" else tiles_within(self.cache_size):
            return evaluate(features, coef, self.intercept_, X, self._spread)

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

    def _in_shape(self, values: Any) -> Any:
        """Return values of all outputs in the shape of the targets."""
        one = len(self.classes_) == 2 if self._classifies else self._single_output
        return values[:, 0] if one else values


# ---------------------------------------------------------------------------- documentation


def _complete(cls: Any, bases: list[type]) -> None:
    """Add the rules and descriptions of the bases, the nearest first, to those of an estimator.

    Parameters are in the order of the constructor, with its defaults if the description names none.
    Attributes of the class itself come first.
    """
    names = dict(inspect.signature(cls.__init__).parameters)
    names.pop("self")
    rules: dict[str, Any] = {}
    for base in (*reversed(bases), cls):
        rules |= vars(base).get("_parameter_constraints", {})
    cls._parameter_constraints = {name: rules[name] for name in names if name in rules}
    summary, own = _sections(cls)
    found = {}
    for section in cls._shared_sections:
        entries: dict[str, str] = {}  # an entry of several names is there under each of them
        for base in (cls, *bases):
            for entry in re.split(r"^(?=\S)", _sections(base)[1].get(section, ""), flags=re.M):
                for name in entry.partition("\n")[0].partition(" : ")[0].split(", "):
                    entries.setdefault(name, entry.rstrip())
        entries.pop("", None)
        if section == "Parameters":
            entries = {n: _with_default(entries[n], names[n]) for n in names if n in entries}
        found[section] = "\n".join(dict.fromkeys(entries.values())) + "\n\n"
    for section, body in (found | {name: own[name] for name in own if name not in found}).items():
        summary += f"{section}\n{'-' * len(section)}\n{body}"
    cls.__doc__ = summary.rstrip() + "\n"


def _sections(cls: type) -> tuple[str, dict[str, str]]:
    """Return the part of a docstring before its sections, and the sections by name."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "") + "\n\n"
    summary, *rest = re.split(r"^(\w[\w ]*)\n-+\n", text, flags=re.M)
    return summary, dict(zip(rest[::2], rest[1::2], strict=True))


def _with_default(entry: str, parameter: inspect.Parameter) -> str:
    head, line, text = entry.partition("\n")
    if "default=" in head or " : " not in head or parameter.default is parameter.empty:
        return entry
    shown = f'"{parameter.default}"' if isinstance(parameter.default, str) else parameter.default
    return f"{head}, default={shown}{line}{text}"
