"""ReducedSVC and ReducedSVR: smooth losses on a small basis, by Newton's method (zhou2013)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from leansvm.basis import Basis, Fit, RandomBasis
from leansvm.estimators.basis_machine import BasisData, BasisMachine
from leansvm.estimators.kernel_machine import FittedKernel, KernelMachine
from leansvm.estimators.machine import BASIS_CONSTRAINTS, Run
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.publish import publish
from leansvm.estimators.read import read
from leansvm.estimators.training_data import TrainingData
from leansvm.kernels import Kernel
from leansvm.losses import Logistic
from leansvm.newton.losses import loss_for_newton
from leansvm.newton.reduced import CANDIDATES, PILOT_SIZE, ReducedProblem
from leansvm.newton.refit import refit
from leansvm.ridge.primal import Criterion
from leansvm.solution import Solution, Support

Array = NDArray[np.float64]


class ReducedPlan(NamedTuple):
    """The problem and its points, or how they are chosen anew for every size."""

    problem: ReducedProblem
    basis: Basis | None
    choose: Callable[[int], Basis]
    size: int  # number of points, or the most there may be
    path: Array  # values of C


class ReducedMachine(BasisMachine):
    """Choose a basis; Newton's method for a smooth loss on it."""

    _candidates = CANDIDATES
    _sharpness: float | property | None = None  # p of the logistic loss

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelMachine._parameter_constraints,
        **BASIS_CONSTRAINTS,
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"loo"}), "array-like"],
        "loss": [str, HasMethods(["value"])],
        "regularizer": [StrOptions({"rkhs", "coef"})],
        "delta": [Interval(Real, 0, None, closed="neither"), None],
    }
    _scores_lists_by = "loo"

    def _grow(self, data: BasisData, kernel: FittedKernel, run: Run) -> ReducedPlan:
        """Pose the problem and choose its points; where sizes need others, while solving."""
        path = np.atleast_1d(run.criterion.C)
        problem = self._problem(data, kernel.kernel, run)
        choose, size, basis = self._chooser(data, problem, run), data.size, None
        if data.auto:
            size = problem.largest_size(size)
        if not data.auto or (data.selector.nested and not data.selector.state_columns(size)):
            basis = problem.select(choose, size)
        return ReducedPlan(problem, basis, choose, size, path)

    def _solve(self, data: BasisData, basis: ReducedPlan, run: Run) -> Solution:
        return self._solve_path(data, basis)[-1]

    def _solve_path(self, data: BasisData, plan: ReducedPlan) -> list[Solution]:
        """Solve at the best C, or at every C of a path."""
        problem, basis = plan.problem, plan.basis
        if basis is None:
            found = problem.fit_each_size(plan.choose, plan.size, plan.path)
        elif data.auto:
            found = problem.fit_growing(basis, plan.path)
        else:
            found = problem.fit(basis, plan.path)
        return [
            replace(solution, features=found.features, basis=found.basis) for solution in found.path
        ]

    def _problem(self, data: BasisData, kernel: Kernel, run: Run) -> ReducedProblem:
        # summed over rows, max(0, u) and "huber" differ by at most n delta / 4
        shape = self.delta, self._sharpness, 4 * self.tol / data.X.shape[0]
        compares = np.ndim(run.criterion.C) == 1 and not run.is_path
        return ReducedProblem(
            data.rows,
            kernel,
            loss_for_newton(self.loss, self._classifies, *shape),
            self.regularizer,
            self._bias_penalty(),
            self._classifies,
            data.n_outputs,
            self.tol,
            self.max_iter,
            data.budget,
            self._calibrates or (compares and isinstance(self.C, str)),
            run.hook("newton-iteration"),
            compares,
        )

    def _pilot(self, data: BasisData, problem: ReducedProblem, run: Run) -> Fit:
        C = self.C
        if not isinstance(C, Real):
            chooser = self._chooser(data, problem, run, RandomBasis())
            few = problem.select(chooser, min(PILOT_SIZE, data.rows.n_rows))
            C = problem.best_C(few, np.atleast_1d(run.criterion.C))
        penalty, loss = problem.bias_penalty, problem.loss
        return Fit(float(C), penalty, loss, self.regularizer, self._classifies, refit)

    def _basis_attributes(
        self, data: TrainingData, basis: ReducedPlan, solution: Solution
    ) -> dict[str, Any]:
        support = Support.of(solution.basis, solution.features)
        return self._support_attributes(data, support, solution)

    def _fit_path(self, X: Any, y: Any, path: Array, sample_weight: Any) -> list[Any]:
        """Return copies of this estimator, fitted at every C of the path on one basis."""
        if self._calibrates:
            raise ValueError("calibrate=True is not available along a path of C: fit at one C.")
        models = []
        with self._fitting(X, y, Criterion(path), is_path=True) as run:
            data = self._counted(read(self, X, y, sample_weight), run)
            if data.auto:
                raise ValueError("n_basis='auto' depends on C: give a number for a path of C.")
            kernel = self._learn_kernel(data, run)
            plan = self._grow(data, kernel, run)
            for solution in self._solve_path(data, plan):
                model = copy(self).set_params(C=solution.C)
                publish(model, data, kernel, plan, solution)
                models.append(model)
        return models


class ReducedSVC(Classifier, ReducedMachine):
    """Support vector classifier on a small basis, for smooth losses.

    The decision function is a combination of ``n_basis`` kernel functions, chosen among the
    training rows by ``basis``; all rows count in the loss. Rows that are classified with a margin
    cost nothing (squared hinge, Huber), which makes the model more accurate than the
    least-squares one on the same basis where classes are well separated.

    Parameters
    ----------
    C : "loo", float or list of float, default="loo"
        Regularisation: weight of the losses. "loo" takes the half-decade, a list its member, at
        which the fewest left-out rows are misclassified, or at which their loss is lowest for
        "logistic". Values are compared on a part of the basis and followed as it grows.
    kernel : str or callable, default="rbf"
        A name of `leansvm.kernels.KERNELS`, a vectorised function ``f(X, Z)``, or "auto" (the
        better of "matern32" and "laplacian", with ``gamma="learn"``).
    loss : {"squared_hinge", "squared", "huber", "logistic"} or Loss, default="squared_hinge"
        Loss of the slack u = 1 - y f(x): max(0, u)^2 / 2, u^2 / 2, or one of two smooth forms of
        the hinge loss max(0, u); or an object with the methods of `leansvm.losses.Loss`.
        "logistic" gives probabilities by itself.
    regularizer : {"rkhs", "coef"}, default="rkhs"
        Norm of the decision function in the kernel's space, or of its coefficients.
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
        Sharpness of "logistic"; None is 1, as in logistic regression. Large ones come close to the
        hinge loss and are approached from 10 by factors of 10.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``: costs of errors, by which no
        rows are drawn.
    calibrate : bool, default=False
        Fit probabilities to left-out decision values, for `predict_proba`.
    tol : float, default=1e-6
        Ends when the gradient's norm, relative to that at zero, and the relative duality gap are
        below it.
    max_iter : int, default=500
        Most Newton steps.
    cache_size : float or "auto", default="auto"
        Megabytes for kernel values between all rows and the basis, which are computed anew in
        every pass if they do not fit; "auto" is 80 % of the memory that is available.
    random_state : int, RandomState instance or None, default=None
        Seed of random selectors.

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
    >>> model = ReducedSVC(C=10, n_basis=100, random_state=0).fit(X, y)
    >>> model.support_vectors_.shape
    (100, 64)
    >>> bool(model.score(X, y) > 0.97)
    True
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

    def _link(self) -> tuple[Logistic | None, float]:
        if self.calibrate:
            return super()._link()
        loss = loss_for_newton(self.loss, True, self.delta, self.p)
        assert isinstance(loss, Logistic)
        return loss, 1.0

    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "rbf",
        *,
        loss: Any = "squared_hinge",
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
        p: float | None = None,
        class_weight: Any = None,
        calibrate: bool = False,
        tol: float = 1e-6,
        max_iter: int = 500,
        cache_size: Any = "auto",
        random_state: Any = None,
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
    kernel, regularizer, gamma, degree, coef0, fit_intercept, bias_penalty, basis, n_basis, \
select_on, tol, max_iter, cache_size, random_state
        As in `ReducedSVC`.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = ReducedMachine._parameter_constraints

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
