"""SparseLSSVC and SparseLSSVR: the least-squares SVM on a small basis (P-LSSVM)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from leansvm.estimators.answers import PredictsIntervals, PredictsSets
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.sparse_machine import SparseMachine
from leansvm.ridge.criteria import JUDGES
from leansvm.ridge.primal import Criterion


class SparseLSSVC(PredictsSets, Classifier, SparseMachine):
    """Least-squares support vector classifier on a small basis.

    The decision function is a combination of ``n_basis`` kernel functions, chosen among the
    training rows by ``basis``; all rows count in the loss. Training runs once over the rows
    (n_samples * n_basis^2 flops), never holds the kernel matrix, and finds ``C`` at little cost.

    Parameters
    ----------
    C : float, array-like, "loo", "kfold", "gcv" or KFoldSums, default="loo"
        Regularisation: weight of the squared errors. A list and "loo" are scored by the exact
        leave-one-out squared error of the rows that are not basis points, of large fits by a
        bracketing search and 2,000 rows that stand for all; "kfold"
        (`leansvm.model_selection.KFoldSums`) by exact folds from sums, "gcv" by generalised
        cross-validation. Strings try ``numpy.logspace(-6, 7, 50)``. Do not use "gcv" with hundreds
        of basis points: basis rows fit themselves, their leverage flatters a large C, and the model
        overfits.
    kernel : str, Mixture or callable, default="auto"
        "auto" (a mixture of kernels, learned by leave-one-out on a sample; "rbf" where ``gamma`` is
        given), a name of `leansvm.kernels.KERNELS`, a `leansvm.kernels.Mixture`, or a vectorised
        function ``f(X, Z)``.
    gamma : {"learn", "scale", "auto"}, float or array-like of shape (n_features,), default="learn"
        Kernel coefficient. "learn" finds one per feature by the gradient of leave-one-out, on a
        sample of the rows: features need no scaling, useless ones are switched off; for kernels
        without a scale per feature ("poly", "sigmoid", "chi2") it means "scale". "scale" is
        1 / (n_features * weighted variance of X), "auto" is 1 / n_features. "linear", "cosine",
        "precomputed" and functions do not use it.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether to have a bias b.
    bias_penalty : float, default=0.0
        A of the term A b^2 / 2; 0 leaves the bias free.
    basis : str, selector, 1-D integer array or 2-D array, default="random"
        How to choose the basis points: "random", "pivoted-cholesky", "random-pivoted-cholesky",
        "backfitting", "csi", "sparse-greedy", "entropy", "medoids" or "all", an instance of a
        class in `leansvm.basis`, the numbers of rows, or the points themselves.
    n_basis : int, float in (0, 1) or "auto", default="auto"
        Number of basis points, or their share of the rows. "auto" doubles it while leave-one-out
        falls by 1 % or more (beyond 2,000: 6 %), up to 4,000 (of many rows 2,000), and takes the
        smallest size within 0.2 % of the best; more than 15,000 rows are represented by 10,000.
    select_on : {"auto", "all"}, int or float in (0, 1), default="auto"
        Rows that the selector looks at. "auto" is all of them unless what the selector keeps for
        every row would take more than half of ``cache_size``; then a stratified sample.
    criterion : {"squared", "accuracy", "log_loss"}, default="squared"
        What leave-one-out averages to choose C; kernel and size are chosen by squared errors.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``: costs of errors, by which no
        rows are drawn.
    calibrate : bool, default=True
        Fit probabilities to leave-one-out decision values, which C="loo" has for free.
    cache_size : float or "auto", default="auto"
        Megabytes that a selector may keep; "auto" is 80 % of the memory that is available.
    random_state : int, RandomState instance or None, default=None
        Seed of random selectors.
    warm_start : bool, default=False
        Let `fit` go on from the basis of the fit before: its points stay, and the selector is
        asked only for those missing up to ``n_basis``. ``support_`` of points that stayed is -1
        where the row of their number is another one now.
    keep_state : bool or None, default=None
        Whether pickles and model files hold what `partial_fit`, `state` and intervals need beyond
        prediction, 16 n_basis^2 bytes or more. None: those of a model that `partial_fit` made do.
    verbose : int, default=0
        1 prints a line for every phase: its seconds and, where that can be told, those to go.
    time_limit : float or None, default=None
        Seconds after which learning the kernel (after half of them) and growing the basis end
        with the best so far, a warning and a note in ``fit_report_``; the rest takes its time.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows chosen as basis, -1 where points were given.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        Basis points; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the kernel functions.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias b.
    n_support_ : int
        Number of basis points (dependent ones are dropped).
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_ : float
        Value used.
    kernel_ : str or Mixture
        Kernel used.
    gamma_ : float, ndarray of shape (n_features,) or dict
        Value used; with "learn" what multiplies the squared differences of the raw features; of a
        mixture one array for each part.
    feature_scales_ : ndarray of shape (n_features,)
        How sensitive the model is to every feature, in units of its spread, the largest 1; only
        with ``gamma="learn"``.
    clip_ : tuple of two ndarrays of shape (n_features,), or None
        Bounds that features are moved to before anything is computed, where they have heavy tails
        and ``gamma="learn"``.
    cv_curve_ : ndarray of shape (n_candidates,)
        Criterion at every candidate of ``C``, nan where it was not tried; only when there are
        several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Target +-1 less the decision value of the model fitted without the row (and its exact
        copies) on the same basis; only with ``C="loo"``. After large fits it is worked out when
        first asked for.
    objective_ : float
        Value of the objective, summed over the classes.
    n_iter_ : int
        1.
    fit_report_ : dict
        Objective, residual, rows, basis size, points dropped, bytes, seconds by phase, and notes
        on what was chosen on a sample.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    LSSVC : The model with all rows as basis.
    leansvm.basis : The selectors.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import SparseLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SparseLSSVC(n_basis=100, random_state=0).fit(X, y)
    >>> model.support_vectors_.shape
    (100, 64)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseMachine._parameter_constraints,
        **Classifier._class_constraints,
        "criterion": [StrOptions(set(JUDGES))],
    }

    def _criterion(self) -> Criterion:
        found = super()._criterion()
        if self.criterion != "squared" and np.ndim(found.C) == 1 and found.name != "loo":
            raise ValueError(f"criterion={self.criterion!r} needs C='loo' or a list of C.")
        return replace(found, judge=self.criterion)

    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "auto",
        *,
        gamma: Any = "learn",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        basis: Any = "random",
        n_basis: Any = "auto",
        select_on: Any = "auto",
        criterion: str = "squared",
        class_weight: Any = None,
        calibrate: bool = True,
        cache_size: Any = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        keep_state: bool | None = None,
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
        self.basis = basis
        self.n_basis = n_basis
        self.select_on = select_on
        self.criterion = criterion
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.cache_size = cache_size
        self.random_state = random_state
        self.warm_start = warm_start
        self.keep_state = keep_state
        self.verbose = verbose
        self.time_limit = time_limit

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> SparseLSSVC:
        """Add rows to the model; basis and gamma come from the first batch (or earlier `fit`).

        The result equals `fit` on all rows with that basis. Memory does not grow with the rows.
        Probabilities come from left-out decision values of the last 100,000 rows.

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
        SparseLSSVC
            The estimator.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "partial_fit: class_weight='balanced' needs all rows. Give it as a dictionary."
            )
        classes = self._same_classes(classes) if "_sums" in vars(self) else classes
        return self._add_batch(X, y, sample_weight, classes)


class SparseLSSVR(PredictsIntervals, Regressor, SparseMachine):
    """Least-squares support vector regressor on a small basis.

    Parameters
    ----------
    C, kernel, gamma, degree, coef0, fit_intercept, bias_penalty, basis, n_basis, select_on, \
cache_size, random_state, warm_start, keep_state, verbose, time_limit
        As in `SparseLSSVC`.
    target : {"log", "quantile"} or None, default=None
        Scale to learn on: log y, or normal scores of its quantiles, for targets with heavy tails.
        `predict`, intervals and quantiles are mapped back to units of y; `predict` is a median.

    Attributes
    ----------
    support_, support_vectors_, n_support_, C_, kernel_, gamma_, feature_scales_, clip_, \
cv_curve_, objective_, n_iter_, fit_report_, n_features_in_, feature_names_in_
        As in `SparseLSSVC`.
    dual_coef_ : ndarray of shape (n_outputs, n_support)
        Coefficients of the kernel functions.
    intercept_ : ndarray of shape (n_outputs,)
        Bias b.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target less the prediction of the model fitted without the row (and its exact copies) on
        the same basis; only with ``C="loo"``.

    See Also
    --------
    SparseLSSVC : The same for classification.
    LSSVR : The model with all rows as basis.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> X = np.linspace(0, 6, 400)[:, None]
    >>> model = SparseLSSVR(n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseMachine._parameter_constraints,
        **Regressor._target_constraints,
    }

    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "auto",
        *,
        gamma: Any = "learn",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        basis: Any = "random",
        n_basis: Any = "auto",
        select_on: Any = "auto",
        cache_size: Any = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        keep_state: bool | None = None,
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
        self.basis = basis
        self.n_basis = n_basis
        self.select_on = select_on
        self.cache_size = cache_size
        self.random_state = random_state
        self.warm_start = warm_start
        self.keep_state = keep_state
        self.verbose = verbose
        self.time_limit = time_limit
        self.target = target

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseLSSVR:
        """Add rows to the model; basis and gamma come from the first batch (or earlier `fit`).

        The result equals `fit` on all rows with that basis. Memory does not grow with the rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of this batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        SparseLSSVR
            The estimator.
        """
        return self._add_batch(X, y, sample_weight)
