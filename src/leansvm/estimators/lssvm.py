"""LSSVC and LSSVR: the exact least-squares SVM for classification and regression.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2,  f(x) = <w, k(x, .)> + b
(zhou2016, eqs. (3)-(6)). All rows are support vectors; one factorisation serves all classes,
outputs and leave-one-out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from leansvm._phases import Phases
from leansvm.dual import table
from leansvm.dual.problem import DualProblem
from leansvm.estimators.answers import PredictsIntervals, PredictsSets
from leansvm.estimators.kernel_machine import FittedKernel, KernelMachine
from leansvm.estimators.machine import Run
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.training_data import TrainingData
from leansvm.rows import resolve_cache_size
from leansvm.solution import Solution, Support


class DualMachine(KernelMachine):
    """Solve the dual problem of all rows; the family of solvers is the estimator's."""

    _family: ClassVar[str] = "lssvm"
    _merges_for_choice: ClassVar[bool] = False  # whether values of C are compared by leaving out
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelMachine._parameter_constraints,
        "solver": [StrOptions(set(table.solver_names("lssvm")))],
    }

    @property
    def _fits_where_rows_are(self) -> bool:  # type: ignore[override]
        return not table.SOLVERS[self._family][self.solver].on_host

    @property
    def _is_direct(self) -> bool:  # type: ignore[override]
        return self.solver == "cholesky"

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        plan = super()._planned(n_rows, n_features)
        return plan | {"solve": 1e-9 * n_rows**3} if plan else {}

    def _counted(self, data: TrainingData, run: Run) -> TrainingData:
        criterion, several = run.criterion, np.ndim(run.criterion.C) == 1
        data = data.counted(criterion.left_out or (several and self._merges_for_choice))
        if (several or criterion.left_out) and data.n_positive < 2:
            self._refuse_one_row(data)
        return data

    def _grow(self, data: TrainingData, kernel: FittedKernel, run: Run) -> DualProblem:
        """Pose the problem of the rows that count: all of them are basis points."""
        rows, X = data.merged, data.X
        assert rows is not None
        name = "cg" if self.solver == "auto" else self.solver
        return DualProblem(
            X,
            kernel.kernel,
            data.Y[rows.first],
            rows.weight,
            self._bias_penalty(),
            resolve_cache_size(self.cache_size, X),
            Phases(),
            run.hook(f"{name}-iteration"),
            rows=None if len(rows.first) == X.shape[0] else rows.first,
            count=data.count,
        )

    def _solve(self, data: TrainingData, basis: DualProblem, run: Run) -> Solution:
        criterion = run.criterion
        solution = table.solve_dual(
            self._family,
            self.solver,
            basis,
            criterion.C,
            criterion=criterion.name,
            left_out=criterion.left_out,
            tol=self.tol,
            max_iter=self.max_iter,
            max_support=self._limit(),
        )
        return self._carried(basis, data, solution)

    def _carried(self, problem: DualProblem, data: TrainingData, solution: Solution) -> Solution:
        """Return the solution with the rows that carry it (squared loss: all rows)."""
        zeros = self._family == "lssvm"
        support, solution = Support.of_rows(problem, data.merged, data.weight, solution, zeros)
        return replace(solution, basis=support, seconds=problem.phases.seconds)

    def _limit(self) -> int | None:
        """Return the most support vectors there may be; None for as many as are needed."""
        return None

    def _basis_attributes(
        self, data: TrainingData, basis: DualProblem, solution: Solution
    ) -> dict[str, Any]:
        return self._support_attributes(data, solution.basis, solution)


class LSSVC(PredictsSets, Classifier, DualMachine):
    """Least-squares support vector classifier, solved exactly.

    Every training row becomes a support vector, so fit takes a dense m x m kernel matrix
    (8 m^2 bytes) and, with ``solver="cholesky"``, m^3 / 3 flops. Several classes share one
    factorisation; so do leave-one-out errors and the choice of ``C``.

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo", default=1.0
        Regularisation: weight of the squared errors. Several candidates are scored by one
        eigen-decomposition: a list and "gcv" by generalised cross-validation, "loo" by the exact
        leave-one-out squared error; the strings try ``numpy.logspace(-6, 7, 50)``.
    kernel : str, Mixture or callable, default="rbf"
        A name of `leansvm.kernels.KERNELS`, a `leansvm.kernels.Mixture`, a vectorised function
        ``f(X, Z)``, or "auto" (a mixture, learned with ``gamma="learn"``).
    gamma : {"scale", "auto", "learn"}, float or array-like of shape (n_features,), default="scale"
        Kernel coefficient. "scale" is 1 / (n_features * weighted variance of X), "auto" is
        1 / n_features, "learn" one per feature as in `SparseLSSVC`, which sets
        ``feature_scales_``, ``kernel_`` and ``clip_`` too.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether to have a bias b.
    bias_penalty : float, default=0.0
        A of the term A b^2 / 2; 0 leaves the bias free.
    solver : {"auto", "cholesky", "cg", "smo", "sumt", "substitution", "penalty-flow"}, \
default="auto"
        "cholesky" factors the kernel matrix in place. "cg" runs conjugate gradients
        preconditioned by a pivoted-Cholesky factor and recomputes kernel rows when the matrix
        exceeds ``cache_size``. "smo" minimises over a few multipliers at a time, with the matrix
        or a cache of its rows: the fastest where the kernel is close to diagonal.
        "substitution" is another name for "smo" with a free bias; "sumt" and "penalty-flow" are
        other methods for it. "auto" watches "smo" (where the kernel is close to diagonal) and
        "cg" for a few iterations on large problems and changes to "cholesky" if that will be
        faster.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``.
    calibrate : bool, default=True
        Fit probabilities to leave-one-out decision values, for `predict_proba`.
    tol : float, default=1e-8
        Relative residual of the optimality conditions at which iterative solvers stop.
    max_iter : int, default=1000
        Most iterations of "cg" and "penalty-flow"; most sweeps of the others, a sweep being as
        many updates as there are rows.
    cache_size : float or "auto", default="auto"
        Megabytes that kernel values and factors may take; "auto" is 80 % of the memory that is
        available. A fit that needs more raises MemoryError before it allocates.
    verbose, time_limit
        As in `SparseLSSVC`.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows of positive weight.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        Their values; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients beta of the kernel functions (float64 whatever the type of X).
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias b.
    n_support_ : int
        Number of support vectors.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_, gamma_ : float
        Values used; ``gamma_`` may be an array with one value per feature.
    kernel_, clip_
        As in `SparseLSSVC`.
    cv_curve_ : ndarray of shape (n_candidates,)
        Criterion at every candidate of ``C``; only when there are several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Target +-1 less the decision value of the model fitted without the row (and its exact
        copies); only with ``C="loo"``.
    objective_ : float
        Value of the objective, summed over the classes.
    n_iter_ : int
        Iterations; 1 for direct solvers.
    fit_report_ : dict
        Solver used, objective, residual and gap, iterations, rows, bytes, seconds by phase;
        sequential solvers add the largest ``violation`` of the conditions.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    LSSVR : The same for regression.
    sklearn.svm.SVC : Hinge loss, sparse in the support vectors.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import LSSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LSSVC(C="loo", gamma=0.5).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    >>> model.decision_function(X[:1]).shape
    (1, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DualMachine._parameter_constraints,
        **Classifier._class_constraints,
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
        class_weight: Any = None,
        calibrate: bool = True,
        tol: float = 1e-8,
        max_iter: int = 1000,
        cache_size: Any = "auto",
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.solver = solver
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size
        self.verbose = verbose
        self.time_limit = time_limit


class LSSVR(PredictsIntervals, Regressor, DualMachine):
    """Least-squares support vector regressor, solved exactly.

    Without a bias this is kernel ridge regression with ``alpha = 1 / C``; with one, the bias is
    free (``bias_penalty=0``) or penalised. Several targets share one factorisation.

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo", default=1.0
        Regularisation: weight of the squared errors. Several candidates are scored by one
        eigen-decomposition: a list and "gcv" by generalised cross-validation, "loo" by the exact
        leave-one-out squared error; the strings try ``numpy.logspace(-6, 7, 50)``.
    kernel, gamma, degree, coef0, fit_intercept, bias_penalty, solver, tol, max_iter, cache_size, \
verbose, time_limit
        As in `LSSVC`.
    target : {"log", "quantile"} or None, default=None
        Scale to learn on: log y, or normal scores of its quantiles, for targets with heavy tails.
        `predict`, intervals and quantiles are mapped back to units of y; `predict` is a median.

    Attributes
    ----------
    support_, support_vectors_, n_support_, C_, gamma_, kernel_, clip_, cv_curve_, objective_, \
n_iter_, fit_report_, n_features_in_, feature_names_in_
        As in `LSSVC`.
    dual_coef_ : ndarray of shape (n_outputs, n_support)
        Coefficients beta of the kernel functions (float64 whatever the type of X).
    intercept_ : ndarray of shape (n_outputs,)
        Bias b.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target less the prediction of the model fitted without the row (and its exact copies);
        only with ``C="loo"``.

    See Also
    --------
    LSSVC : The same for classification.
    sklearn.kernel_ridge.KernelRidge : The model without a bias.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = LSSVR(C="loo", gamma=0.5).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 1e-3)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DualMachine._parameter_constraints,
        **Regressor._target_constraints,
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
        tol: float = 1e-8,
        max_iter: int = 1000,
        cache_size: Any = "auto",
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size
        self.verbose = verbose
        self.time_limit = time_limit
        self.target = target
