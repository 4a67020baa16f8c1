"""L2SVC: the maximal-margin SVM with the squared hinge loss, solved exactly."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from leansvm.blocks import MemoryBlocks, MergedRows, merge_equal_rows, resolve_cache_size
from leansvm.estimators._base import Array, KernelClassifier, Phases, iteration_hook
from leansvm.estimators._dual import _positive_rows, check_kernel_matrix
from leansvm.solvers import DualProblem, Solution
from leansvm.solvers.active_set import ActiveSet
from leansvm.solvers.table import check, explained, names, solve


def _learns_from_batches(estimator: Any) -> bool:
    if not isinstance(estimator.C, Real) or estimator.calibrate:
        raise AttributeError("partial_fit: several C and calibrate=True need fit on all rows.")
    if estimator.class_weight == "balanced":
        raise AttributeError("partial_fit: class_weight='balanced' needs fit on all rows.")
    if estimator.kernel == "precomputed" or estimator.solver in ("newton", "smo"):
        raise AttributeError(
            "partial_fit: kernel='precomputed', solver='newton' and 'smo' need fit on all rows."
        )
    return True


@dataclass
class _Data:
    """What `fit` was given, validated."""

    X: Any
    y: Any
    Y: Array  # targets +-1, one column an output
    labels: NDArray[np.intp]
    weight: Array
    rows: MergedRows  # rows that are solved for


class L2SVC(KernelClassifier):
    """Support vector classifier with the squared hinge loss, solved exactly.

    Minimises 1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, 1 - y_i f(x_i))^2, one class against
    the rest. The solution needs the rows with y f(x) < 1 alone; on them it is that of a linear
    system, so a few linear solves with a factor kept between them end exactly, after a time that
    hardly depends on ``C``.

    Parameters
    ----------
    C : float or array-like, default=1.0
        Regularisation: weight of the squared errors. Among several candidates the one with the
        least leave-one-out loss (at fixed support sets) is taken, each solved from the last one's
        solution.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or callable, \
default="rbf"
        Kernel, or a vectorised function ``f(X, Z)``.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel coefficient of "rbf", "poly", "sigmoid" and "laplacian". "scale" is
        1 / (n_features * weighted variance of X), "auto" is 1 / n_features.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether to have a bias b.
    bias_penalty : float, default=0.0
        A of the term A b^2 / 2; 0 leaves the bias free.
    solver : {"auto", "active-set", "newton", "smo"}, default="auto"
        "active-set" follows the support set with a factor that is updated; the linear kernel
        takes a system of n_features where that is smaller. "newton" is Newton's method in the
        primal on the whole kernel matrix, a reference for small problems. "smo" minimises over a
        few multipliers at a time, with the kernel matrix or a cache of its rows: the fastest
        where thousands of rows are support vectors, and at home in little memory. "auto" watches
        "smo" in that case, and else takes "active-set".
    max_support : int or "auto", default="auto"
        Most support vectors, which bounds memory and time. A fit that needs more warns and says
        so in ``fit_report_``. "auto" takes as many as it needs.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``.
    calibrate : bool, default=False
        Fit probabilities to leave-one-out decision values (at fixed support sets), for
        `predict_proba`.
    tol : float, default=1e-8
        Largest violation of theta = C s max(0, 1 - y f), relative to the largest theta; for
        "smo" the root mean square of the violation in units of y.
    max_iter : int, default=1000
        Most linear solves for one class; most sweeps of "smo", as many updates as there are rows.
    cache_size : float or "auto", default="auto"
        Megabytes that kernel rows and factors may take; "auto" is 80 % of the memory that is
        available. Kernel rows that do not fit are recomputed; a factor that does not fit raises
        MemoryError before it is made.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Support vectors: rows with y f(x) < 1 for some class.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        Their values; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients y theta of the kernel functions, theta = C s (1 - y f(x)).
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights w; only for ``kernel="linear"``.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias b.
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_, gamma_ : float
        Values used.
    cv_curve_ : ndarray of shape (n_candidates,)
        Leave-one-out loss at every candidate of ``C``; only when there are several.
    objective_ : float
        Value of the objective, summed over the classes.
    n_iter_ : int
        Linear solves, the most of any class.
    fit_report_ : dict
        Solver used, objective, violation and gap, iterations, rows, support vectors, bytes,
        seconds by phase.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    LSSVC : Squared loss: one linear system, every row a support vector.
    sklearn.svm.SVC : Hinge loss.
    sklearn.svm.LinearSVC : The linear kernel with ``bias_penalty=1`` and half this ``C``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import L2SVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = L2SVC(C=10.0, gamma=0.5).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    >>> bool(len(model.support_) < len(X))
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelClassifier._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "solver": [StrOptions(set(names("hinge")))],
        "max_support": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "calibrate": ["boolean"],
    }

    def __init__(
        self,
        C: Any = 1.0,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        solver: str = "auto",
        max_support: Any = "auto",
        class_weight: Any = None,
        calibrate: bool = False,
        tol: float = 1e-8,
        max_iter: int = 1000,
        cache_size: Any = "auto",
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.solver = solver
        self.max_support = max_support
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> L2SVC:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of k counts like k copies of the row.

        Returns
        -------
        L2SVC
            The fitted estimator.
        """
        data = self._read(X, y, sample_weight)
        self._forget("cv_curve_", "calibration_scale_", "coef_", "_sequence")
        candidates, _ = self._candidates_of_C()
        loo = self.calibrate or candidates is not None
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=data.X, y=data.y)
        problem = self._problem(data, context, merge=loo)
        solution = solve(
            "hinge",
            self.solver,
            problem,
            float(self.C) if candidates is None else candidates,
            criterion="loo",
            left_out=loo,
            tol=self.tol,
            max_iter=self.max_iter,
            max_support=self._limit(),
        )
        if solution.curve is not None:
            self.cv_curve_ = solution.curve
        self._set_model(problem, data, solution)
        self._report(problem, solution)
        if self.calibrate and solution.left_out is not None:
            left_out = problem.Y - solution.left_out
            self._calibrate(left_out, data.labels[data.rows.first], data.rows.weight)
        context.call_on_fit_task_end(
            estimator=self, X=data.X, y=data.y, reconstruction_attributes={}
        )
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any) -> _Data:
        """Validate the input of `fit`."""
        X, y = self._validate_rows(X, y, reset=True)
        Y, labels = self._encode(y)
        weight, _ = self._weights(sample_weight, X, y, labels)
        if self.kernel == "precomputed":
            check_kernel_matrix(X)
        return _Data(X, y, Y, labels, weight, _positive_rows(weight))

    def _problem(self, data: _Data, context: Any, *, merge: bool = False) -> DualProblem:
        """Resolve the kernel and pose the problem; equal rows are merged for leave-one-out."""
        X = data.X
        kernel = self._resolve_kernel(MemoryBlocks(X, weight=data.weight))
        if merge:
            data.rows = merge_equal_rows(X, data.Y, data.weight)
        rows = data.rows
        return DualProblem(
            X,
            kernel,
            data.Y[rows.first],
            rows.weight,
            self._bias_penalty(),
            resolve_cache_size(self.cache_size),
            Phases(),
            iteration_hook(self, context, "iteration"),
            rows=None if len(rows.first) == X.shape[0] else rows.first,
        )

    def _set_model(self, problem: DualProblem, data: _Data, solution: Solution) -> None:
        rows, weight, labels = data.rows, data.weight, data.labels
        used = np.flatnonzero((solution.coef != 0).any(axis=1))
        place = np.full(len(rows.first), -1, np.intp)
        place[used] = np.arange(len(used))
        group = np.where(rows.group >= 0, place[rows.group], -1)
        self.support_ = np.flatnonzero(group >= 0)
        group = rows.group[self.support_]
        # copies of a row share its coefficient in proportion to their weights
        share = weight[self.support_] / rows.weight[group]
        self.dual_coef_ = np.ascontiguousarray((solution.coef[group] * share[:, None]).T)
        self.intercept_ = np.asarray(solution.b)
        X, pairwise = problem.X, self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0), X.dtype) if pairwise else X[group]
        self.n_support_ = np.bincount(labels[self.support_], minlength=len(self.classes_))
        self.n_iter_, self.C_ = solution.iterations, solution.C
        if solution.weights is not None:
            self.coef_ = solution.weights

    # ------------------------------------------------------------------ partial_fit

    @available_if(_learns_from_batches)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> L2SVC:
        """Add rows and repair the support set; the result equals `fit` on all rows.

        Exists for one C, without ``calibrate``, class_weight="balanced", kernel="precomputed" and
        solver="newton" or "smo". ``gamma`` comes from the first batch. Rows without error may
        become support vectors later, so all rows are kept, with kernel rows and factors (within
        ``cache_size``). `fit` keeps none: after it, partial_fit starts anew, with a warning.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of this batch.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels there will be; needed in the first call unless the batch holds them all.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        L2SVC
            The estimator; ``support_`` counts rows over all batches.
        """
        first = not hasattr(self, "_sequence")
        self._check_sequence(first)
        X, y = self._validate_rows(X, y, reset=first)
        Y, labels = self._encode(y, classes=classes if first else self.classes_)
        weight, _ = self._weights(sample_weight, X, y, labels, batch=True)
        batch = _Data(X, y, Y, labels, weight, _positive_rows(weight))
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        if first:
            self._forget("cv_curve_", "calibration_scale_", "coef_")
            active_set = ActiveSet(
                self._problem(batch, context), max_support=self._limit(), keep=True
            )
            self._sequence = active_set, labels, weight
        else:
            active_set, old_labels, old_weight = self._sequence
            used = batch.rows.first
            active_set.extend(X[used], Y[used], weight[used])
            labels, weight = np.append(old_labels, labels), np.append(old_weight, weight)
            self._sequence = active_set, labels, weight
        problem = active_set.problem
        problem.on_iteration = iteration_hook(self, context, "iteration")
        with explained(problem.kernel):
            solution = active_set.solve(float(self.C), tol=self.tol, max_iter=self.max_iter)
        problem.on_iteration = None  # belongs to this call
        batch.labels, batch.weight, batch.rows = labels, weight, _positive_rows(weight)
        self._set_model(problem, batch, solution)
        self._report(problem, solution)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self

    def _check_sequence(self, first: bool) -> None:
        if first and hasattr(self, "support_"):
            warnings.warn(
                "partial_fit starts anew: it needs the rows of earlier calls, which fit does not "
                "keep. Begin with partial_fit instead of fit.",
                UserWarning,
                stacklevel=5,
            )

    def _limit(self) -> int | None:
        return None if self.max_support == "auto" else int(self.max_support)

    def _values(self, X: Any) -> NDArray[Any]:
        if self.kernel != "linear":
            return super()._values(X)
        return np.asarray(X @ self.coef_.T + self.intercept_, dtype=X.dtype)

    def _report(self, problem: DualProblem, solution: Solution) -> None:
        self.objective_ = solution.objective
        self.fit_report_ = {
            "solver": solution.solver,
            "objective": self.objective_,
            "gap": solution.gap,
            "iterations": solution.iterations,
            "converged": solution.converged,
            "rows": problem.m,
            "basis": len(self.support_),
            "outputs": problem.Y.shape[1],
            **solution.details,
            "bytes": solution.bytes,
            "seconds": getattr(problem.phases, "seconds", {}),
        }
        if not solution.converged:
            text = f"{type(self).__name__}: {solution.advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=3)


def fit_path(
    estimator: L2SVC, X: Any, y: Any, candidates: Any, sample_weight: Any = None
) -> list[L2SVC]:
    """Fit clones for every C, smallest first, each from the solution of the one before."""
    models = [clone(estimator).set_params(C=float(C), calibrate=False) for C in candidates]
    order = np.argsort([model.C for model in models], kind="stable")
    active_set = None
    for i in order:
        model = models[i]
        model._validate_params()
        data = model._read(X, y, sample_weight)
        context = model._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=model, X=data.X, y=data.y)
        if active_set is None:
            problem, limit = model._problem(data, context), model._limit()
            check("hinge", model.solver, problem, bounded=limit is not None)
            active_set = ActiveSet(problem, max_support=limit)
        problem = active_set.problem
        problem.on_iteration = iteration_hook(model, context, "iteration")
        model.gamma_ = problem.kernel.gamma
        with explained(problem.kernel):
            solution = active_set.solve(model.C, tol=model.tol, max_iter=model.max_iter)
        model._set_model(problem, data, solution)
        model._report(problem, solution)
        context.call_on_fit_task_end(
            estimator=model, X=data.X, y=data.y, reconstruction_attributes={}
        )
    return models
