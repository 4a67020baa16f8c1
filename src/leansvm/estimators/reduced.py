"""ReducedSVC and ReducedSVR: smooth losses on a small basis, by Newton's method (zhou2013)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from leansvm.estimators.calibration import Slopes
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.reduced_machine import ReducedMachine
from leansvm.losses import Logistic, smooth_loss


class ReducedSVC(Classifier, ReducedMachine):
    """Kernel logistic regression, or an SVM with another smooth loss, on a small basis.

    The decision function is a combination of ``n_basis`` kernel functions, chosen among the
    training rows by ``basis``; all rows count in the loss. By default the loss is the logistic one,
    decision values are log odds, and C and the number of points are those at which the log-loss of
    left-out rows is lowest: the machine for probabilities and rare classes. With the squared hinge
    or Huber's loss, rows that are classified with a margin cost nothing.

    Parameters
    ----------
    C : "loo", float or list of float, default="loo"
        Regularisation: weight of the losses. "loo" takes the half-decade, a list its member, at
        which the log-loss of left-out rows is lowest; for other losses than "logistic", at which
        the fewest of them are misclassified. Values are compared on a part of the basis and
        followed as it grows.
    kernel : str, Mixture or callable, default="auto"
        As in `SparseLSSVC`: "auto" is a mixture that is learned on a sample ("rbf" where ``gamma``
        is given); or a name of `leansvm.kernels.KERNELS`, or a vectorised function ``f(X, Z)``.
    loss : {"logistic", "squared_hinge", "squared", "huber"} or Loss, default="logistic"
        "logistic" is log(1 + exp(-y f(x))) and gives probabilities by itself. The others are losses
        of the slack u = 1 - y f(x): max(0, u)^2 / 2, u^2 / 2, or a smooth form of the hinge loss
        max(0, u); or an object with the methods of `leansvm.losses.Loss`.
    regularizer : {"rkhs", "coef"}, default="rkhs"
        Norm of the decision function in the kernel's space, or of its coefficients.
    gamma : {"learn", "scale", "auto"}, float or array-like of shape (n_features,), default="learn"
        Kernel coefficient. "learn" finds one per feature as in `SparseLSSVC`, by the squared error
        of left-out rows; "scale" is 1 / (n_features * weighted variance of X), "auto" is
        1 / n_features.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether to have a bias b.
    bias_penalty : float, default=0.0
        A of the term A b^2 / 2; 0 leaves the bias free.
    basis : str, selector, 1-D integer array or 2-D array, default="random"
        How to choose the basis points: "random", "forward", "pivoted-cholesky",
        "random-pivoted-cholesky", "backfitting", "csi", "sparse-greedy", "entropy", "medoids" or
        "all", an instance of a class in `leansvm.basis`, the numbers of rows, or the points
        themselves.
    n_basis : int, float in (0, 1) or "auto", default="auto"
        Number of basis points, or their share of the rows. "auto" doubles it until the loss of
        left-out rows, estimated, hardly falls; each size starts from the model on the one before.
    select_on : {"auto", "all"}, int or float in (0, 1), default="auto"
        Rows that the selector looks at. "auto" is all of them unless what the selector keeps for
        every row would take more than half of ``cache_size``; then a stratified sample.
    delta : float or None, default=None
        Half-width of the quadratic zone of "huber"; None is max(1e-4, 4 * tol / n_samples). It is
        approached from 1 by factors of 10.
    p : float or None, default=None
        None is the loss of logistic regression. With a number, "logistic" is the smooth hinge
        log(1 + exp(p u)) / p; large ones are approached from 10 by factors of 10.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``: costs of errors, by which no
        rows are drawn.
    calibrate : bool, default=True
        Fit probabilities to left-out decision values, for `predict_proba`.
    tol : float, default=1e-6
        Ends when the gradient's norm, relative to that at zero, and the relative duality gap are
        below it, or stand still; a gap above it then gives a ConvergenceWarning.
    max_iter : int, default=500
        Most Newton steps.
    cache_size : float or "auto", default="auto"
        Megabytes for kernel values between all rows and the basis, which are computed anew in
        every pass if they do not fit; "auto" is 80 % of the memory that is available.
    random_state : int, RandomState instance or None, default=None
        Seed of random selectors.
    verbose, time_limit
        As in `SparseLSSVC`.

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
        Number of basis points ("rkhs" drops dependent ones).
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_, gamma_ : float
        Values used; ``gamma_`` may be an array with one value per feature.
    kernel_, clip_
        As in `SparseLSSVC`.
    cv_curve_ : ndarray of shape (n_candidates,)
        Share of left-out rows that are misclassified (those near the boundary in part, plus a
        thousandth of the mean loss), or mean loss for "logistic", at every candidate of C (for
        "loo" ``logspace(-6, 7, 27)``), on the largest basis on which they were compared; NaN where
        none was needed.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Labels +-1 less the decision values without the row; with ``C="loo"``.
    objective_ : float
        Value of the objective, summed over the classes.
    n_iter_ : int
        Newton steps in all, the most of all classes.
    fit_report_ : dict
        Objective, relative duality gap and gradient, seconds by phase, bytes, and for every class
        the history of its iterations: objective, relative gradient, curved rows, step length,
        and how the Hessian came about. With ``n_basis="auto"``, "sizes": those compared and
        their left-out loss.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    SparseLSSVC : The squared loss in closed form, with choice of C.
    leansvm.model_selection.c_path : Models along a path of C.

    References
    ----------
    S. Zhou, "Which is better? Regularization in RKHS vs R^m on reduced SVMs", Statistics,
    Optimization and Information Computing, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import ReducedSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ReducedSVC(C=10, kernel="rbf", gamma="scale", n_basis=100, random_state=0)
    >>> model.fit(X, y).support_vectors_.shape
    (100, 64)
    >>> bool(model.score(X, y) > 0.97)
    True
    >>> model.predict_proba(X[:1]).round(2).argmax()
    np.int64(0)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ReducedMachine._parameter_constraints,
        "p": [Interval(Real, 0, None, closed="neither"), None],
        **Classifier._class_constraints,
    }

    @property
    def _sharpness(self) -> float | None:  # type: ignore[override]
        return self.p

    @property
    def _is_probabilistic(self) -> bool:  # type: ignore[override]
        return self.loss == "logistic" or isinstance(self.loss, Logistic)

    def _link(self) -> tuple[Logistic | None, Slopes]:
        if self.calibrate:
            return super()._link()
        loss = smooth_loss(self.loss, True, self.delta, self.p)
        assert isinstance(loss, Logistic)
        return (None, loss.p) if loss.margin == 0.0 else (loss, 1.0)

    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "auto",
        *,
        loss: Any = "logistic",
        regularizer: str = "rkhs",
        gamma: Any = "learn",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        basis: Any = "random",
        n_basis: Any = "auto",
        select_on: Any = "auto",
        delta: float | None = None,
        p: float | None = None,
        class_weight: Any = None,
        calibrate: bool = True,
        tol: float = 1e-6,
        max_iter: int = 500,
        cache_size: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.loss = loss
        self.regularizer = regularizer
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.basis = basis
        self.n_basis = n_basis
        self.select_on = select_on
        self.delta = delta
        self.p = p
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size
        self.random_state = random_state
        self.verbose = verbose
        self.time_limit = time_limit


class ReducedSVR(Regressor, ReducedMachine):
    """Regressor on a small basis, for the squared and Huber's loss.

    Huber's loss grows only linearly beyond ``delta``: outliers have bounded influence.

    Parameters
    ----------
    C : "loo", float or list of float, default="loo"
        Regularisation: weight of the losses; "loo" takes the half-decade, a list its member, at
        which the loss of left-out rows is lowest.
    loss : {"huber", "squared"} or Loss, default="huber"
        Loss of the residual u = y - f(x): u^2 / 2, for "huber" only up to |u| = ``delta`` and
        linear beyond; or an object with the methods of `leansvm.losses.Loss`.
    delta : float or None, default=None
        Where "huber" becomes linear, in units of y; None is 1.35.
    kernel : str or callable, default="rbf"
        As in `ReducedSVC`.
    gamma : {"scale", "auto", "learn"}, float or array-like of shape (n_features,), default="scale"
        As in `ReducedSVC`; "learn" looks at squared errors, which outliers may decide.
    regularizer, degree, coef0, fit_intercept, bias_penalty, basis, n_basis, select_on, tol, \
max_iter, cache_size, random_state, verbose, time_limit
        As in `ReducedSVC`.
    target : {"log", "quantile"} or None, default=None
        Scale to learn on: log y, or normal scores of its quantiles, for targets with heavy tails.
        `predict`, intervals and quantiles are mapped back to units of y; `predict` is a median.

    Attributes
    ----------
    support_, support_vectors_, n_support_, C_, gamma_, kernel_, clip_, objective_, n_iter_, \
fit_report_, n_features_in_, feature_names_in_
        As in `ReducedSVC`.
    dual_coef_ : ndarray of shape (n_outputs, n_support)
        Coefficients of the kernel functions.
    intercept_ : ndarray of shape (n_outputs,)
        Bias b.
    cv_curve_, loo_residuals_ : ndarray
        Mean loss of left-out rows at every candidate of C; targets less predictions without the
        row.

    See Also
    --------
    ReducedSVC : The same for classification.
    SparseLSSVR : The squared loss in closed form, with choice of C.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import ReducedSVR
    >>> X = np.linspace(0, 6, 400)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> y[::40] += 50.0  # outliers
    >>> model = ReducedSVR(C=100, delta=0.1, n_basis=20, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.05)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ReducedMachine._parameter_constraints,
        **Regressor._target_constraints,
    }

    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "rbf",
        *,
        loss: Any = "huber",
        regularizer: str = "rkhs",
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        basis: Any = "random",
        n_basis: Any = "auto",
        select_on: Any = "auto",
        delta: float | None = None,
        tol: float = 1e-6,
        max_iter: int = 500,
        cache_size: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.loss = loss
        self.regularizer = regularizer
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.basis = basis
        self.n_basis = n_basis
        self.select_on = select_on
        self.delta = delta
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size
        self.random_state = random_state
        self.verbose = verbose
        self.time_limit = time_limit
        self.target = target
