"""LSSVC and LSSVR: the exact least-squares SVM for classification and regression."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from leansvm._array_api import to_host
from leansvm.blocks import MergedRows
from leansvm.estimators._base import KernelClassifier, KernelRegressor, _sample_weights
from leansvm.estimators._dual import DualMachine


class LSSVC(KernelClassifier, DualMachine):
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
    calibrate : bool, default=False
        Fit probabilities to leave-one-out decision values, for `predict_proba`.
    tol : float, default=1e-8
        Relative residual of the optimality conditions at which iterative solvers stop.
    max_iter : int, default=1000
        Most iterations of "cg" and "penalty-flow"; most sweeps of the others, a sweep being as
        many updates as there are rows.
    cache_size : float or "auto", default="auto"
        Megabytes that kernel values and factors may take; "auto" is 80 % of the memory that is
        available. A fit that needs more raises MemoryError before it allocates.

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
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_, gamma_ : float
        Values used.
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
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVC:
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
        LSSVC
            The fitted estimator.
        """
        X, y = self._validate_rows(X, y, reset=True)
        Y, labels = self._encode(y)
        weight, count = self._weights(sample_weight, X, y, labels)

        def finish(rows: MergedRows, loo: Any) -> None:
            numbers = to_host(labels)
            self.n_support_ = np.bincount(numbers[self.support_], minlength=len(self.classes_))
            if self.calibrate:
                left_out = to_host(Y)[rows.first] - loo
                self._calibrate(left_out, numbers[rows.first], rows.weight)
            if isinstance(self.C, str) and self.C == "loo":
                residuals = self._loo_of_all_rows(X, Y, rows, loo)
                self.loo_residuals_ = residuals[:, 0] if residuals.shape[1] == 1 else residuals

        self._fit_dual(X, y, Y, weight, finish, count=count, loo=self.calibrate)
        return self


class LSSVR(KernelRegressor, DualMachine):
    """Least-squares support vector regressor, solved exactly.

    Without a bias this is kernel ridge regression with ``alpha = 1 / C``; with one, the bias is
    free (``bias_penalty=0``) or penalised. Several targets share one factorisation.

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo", default=1.0
        Regularisation: weight of the squared errors. Several candidates are scored by one
        eigen-decomposition: a list and "gcv" by generalised cross-validation, "loo" by the exact
        leave-one-out squared error; the strings try ``numpy.logspace(-6, 7, 50)``.
    kernel, gamma, degree, coef0, fit_intercept, bias_penalty, solver, tol, max_iter, cache_size
        As in `LSSVC`.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows of positive weight.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        Their values; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_outputs, n_support)
        Coefficients beta of the kernel functions (float64 whatever the type of X).
    intercept_ : ndarray of shape (n_outputs,)
        Bias b.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    C_, gamma_ : float
        Values used.
    cv_curve_ : ndarray of shape (n_candidates,)
        Criterion at every candidate of ``C``; only when there are several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target less the prediction of the model fitted without the row (and its exact copies);
        only with ``C="loo"``.
    objective_ : float
        Value of the objective, summed over the outputs.
    n_iter_ : int
        Iterations; 1 for direct solvers.
    fit_report_ : dict
        Solver used, objective, residual and gap, iterations, rows, bytes, seconds by phase;
        sequential solvers add the largest ``violation`` of the conditions.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = DualMachine._parameter_constraints

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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVR:
        """Fit the regressor.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of k counts like k copies of the row.

        Returns
        -------
        LSSVR
            The fitted estimator.
        """
        X, y, Y = self._numeric_targets(X, y, reset=True)
        weight = _sample_weights(sample_weight, X)

        def finish(rows: MergedRows, loo: Any) -> None:
            self.n_support_ = np.array([len(self.support_)])
            if isinstance(self.C, str) and self.C == "loo":
                residuals = self._loo_of_all_rows(X, Y, rows, loo)
                self.loo_residuals_ = residuals[:, 0] if self._single_output else residuals

        self._fit_dual(X, y, Y, weight, finish)
        return self
