"""ReducedSVC and ReducedSVR: smooth losses on a small basis, by Newton's method (zhou2013)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import HasMethods, StrOptions

from leansvm.basis import Basis, Fit, RandomBasis
from leansvm.estimators.kernel_machine import BasisData, BasisMachine
from leansvm.estimators.machine import POSITIVE, Run, running, stored
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.publish import publish
from leansvm.estimators.read import read
from leansvm.learning.learn import FittedKernel
from leansvm.losses import Logistic, smooth_loss
from leansvm.newton.reduced import CANDIDATES, PILOT_SIZE, ReducedProblem
from leansvm.newton.refit import refit
from leansvm.probabilities import Slopes
from leansvm.ridge.criteria import Criterion
from leansvm.solution import Solution

Array = NDArray[np.float64]


class ReducedPlan(NamedTuple):
    """The problem and its points, or how to choose points for every size."""

    problem: ReducedProblem
    basis: Basis | None
    choose: Callable[[int], Basis]
    size: int  # number of points, or the most there may be


class ReducedMachine(BasisMachine):
    """Choose a basis, then minimise a smooth loss on it by Newton's method.

    Parameters
    ----------
    regularizer : {"rkhs", "coef"}
        What is penalised: the norm of the decision function in the kernel's space ("rkhs"), or
        the norm of its coefficients ("coef").
    n_basis : int, float in (0, 1) or "auto"
        Number of basis points, or their share of the rows. "auto" doubles the number until the
        loss of left-out rows hardly falls; each size starts from the model of the previous one.
    tol : float
        Tolerance. Newton's method ends when the relative norm of the gradient and the relative
        duality gap are below it, or no longer fall. If the gap stays above it, the fit gives a
        ConvergenceWarning.
    max_iter : int
        Largest number of Newton steps.

    Attributes
    ----------
    n_support_ : int
        Number of basis points ("rkhs" drops dependent ones).
    n_iter_ : int
        Total number of Newton steps, the largest over all outputs.
    fit_report_ : dict
        Objective, relative duality gap and gradient, seconds by phase, bytes, and for every output
        the history of its iterations: objective, relative gradient, number of rows at which the
        loss is curved, step length, and how the Hessian was computed. With ``n_basis="auto"``,
        "sizes" has the sizes that were compared and their left-out loss.
    """

    _candidates = CANDIDATES
    _scores_lists_by = "loo"
    p: float | None = None  # of the logistic loss

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [POSITIVE, StrOptions({"loo"}), "array-like"],
        "loss": [str, HasMethods(["value"])],
        "regularizer": [StrOptions({"rkhs", "coef"})],
        "delta": [POSITIVE, None],
        "p": [POSITIVE, None],
    }

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        return super()._planned(n_rows, n_features) | {"solve": 2.0 * self._work(n_rows)}

    def _grow(self, data: BasisData, kernel: FittedKernel, run: Run) -> ReducedPlan:
        """Pose the problem and choose its points, unless `_solve` chooses them for every size."""
        compares = np.ndim(run.criterion.C) == 1 and not run.is_path
        # summed over rows, max(0, u) and "huber" differ by at most n delta / 4
        shape = self.delta, self.p, 4 * self.tol / data.X.shape[0]
        problem = ReducedProblem(
            data.rows,
            kernel.kernel,
            smooth_loss(self.loss, self._classifies, *shape),
            self.regularizer,
            self._bias_penalty(),
            self._classifies,
            data.n_outputs,
            self.tol,
            self.max_iter,
            data.budget,
            not run.is_path and (self.calibrate or (compares and isinstance(self.C, str))),
            run.hook("newton-iteration"),
            compares,
        )
        fit = self._pilot(data, problem, run) if data.uses_targets else None
        choose, size, basis = self._chooser(data, kernel.kernel, run, fit=fit), data.size, None
        if data.auto:
            size = problem.largest_size(size)
        if not data.auto or (data.selector.nested and not data.selector.state_columns(size)):
            basis = problem.select(choose, size)
        return ReducedPlan(problem, basis, choose, size)

    def _solve(self, data: BasisData, basis: ReducedPlan, run: Run) -> Solution:
        return self._solve_path(data, basis, run)[-1]

    def _solve_path(self, data: BasisData, plan: ReducedPlan, run: Run) -> list[Solution]:
        """Solve at the best C, or at every C of a path."""
        path = run.criterion.candidates
        if plan.basis is None:
            return plan.problem.fit_each_size(plan.choose, plan.size, path).path
        return plan.problem.fit(plan.basis, path, grows=data.auto).path

    def _pilot(self, data: BasisData, problem: ReducedProblem, run: Run) -> Fit:
        C = self.C
        if not isinstance(C, Real):
            chooser = self._chooser(data, problem.kernel, run, RandomBasis())
            few = problem.select(chooser, min(PILOT_SIZE, data.rows.n_rows))
            C = problem.best_C(few, run.criterion.candidates)
        penalty, loss = problem.bias_penalty, problem.loss
        return Fit(float(C), penalty, loss, self.regularizer, self._classifies, refit)

    def _fit_path(self, X: Any, y: Any, path: Array, sample_weight: Any) -> list[Any]:
        """Return copies of this estimator, fitted at every C of the path on one basis."""
        models = []
        with running(self, X, y, Criterion(path), is_path=True) as run:
            data = self._arrange_rows(read(self, X, y, sample_weight), run)
            if data.auto:
                raise ValueError("n_basis='auto' depends on C: set it to a number for a path of C.")
            kernel = self._learn_kernel(data, run)
            for solution in self._solve_path(data, self._grow(data, kernel, run), run):
                model = copy(self).set_params(C=solution.C)
                if self._classifies:  # no rows are left out along a path
                    model.set_params(calibrate=False)
                publish(model, data, kernel, solution)
                models.append(model)
        return models


class ReducedSVC(Classifier, ReducedMachine):
    """Kernel logistic regression, or an SVM with another smooth loss, on a small basis.

    Use it for probabilities and rare classes. The model is a sum of kernel functions at a few
    training rows, the basis points; all rows count in the loss. By default the loss is logistic,
    decision values are log odds, and the log-loss of left-out rows chooses C and the number of
    points. With the squared hinge or Huber's loss, rows on the right side of the margin cost
    nothing.

    Parameters
    ----------
    C : "loo", float or list of float, default="loo"
        Regularisation: weight of the losses; a larger C means less regularisation. "loo" compares
        values in steps of a factor of sqrt(10); a list gives the values to compare. With the
        logistic loss, the value with the smallest mean loss of left-out rows wins; with other
        losses, the one that misclassifies the fewest (rows near the boundary count in part).
        Values are compared on a part of the basis points.
    loss : {"logistic", "squared_hinge", "squared", "huber"} or Loss, default="logistic"
        "logistic" is log(1 + exp(-y f(x))) and gives probabilities by itself. The others are losses
        of the slack u = 1 - y f(x): max(0, u)^2 / 2, u^2 / 2, or a smooth form of the hinge loss
        max(0, u); or an object with the methods of `leansvm.losses.Loss`.
    delta : float or None, default=None
        Half-width of the quadratic zone of "huber"; None means 1e-4, or 4 * tol / n_samples if that
        is larger. The fit starts with 1 and divides by 10 until it reaches this value.
    p : float or None, default=None
        None means the loss of logistic regression. With a number, "logistic" is the smooth hinge
        log(1 + exp(p u)) / p. If p is large, the fit starts with 10 and multiplies by 10 up to p.

    Attributes
    ----------
    cv_curve_ : ndarray of shape (n_candidates,)
        Error of left-out rows at every value of C (for "loo" ``logspace(-6, 7, 27)``), NaN if it
        was not tried. For "logistic" it is the mean loss; for other losses the share of
        misclassified rows, where rows near the boundary count in part, plus a thousandth of the
        mean loss. It belongs to the largest basis on which values were compared.

    See Also
    --------
    SparseLSSVC : The squared loss, solved in closed form.
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

    @property
    def _is_probabilistic(self) -> bool:  # type: ignore[override]
        return self.loss == "logistic" or isinstance(self.loss, Logistic)

    def _link(self) -> tuple[Logistic | None, Slopes]:
        if self.calibrate:
            return super()._link()
        loss = smooth_loss(self.loss, True, self.delta, self.p)
        assert isinstance(loss, Logistic)
        return (None, loss.p) if loss.margin == 0.0 else (loss, 1.0)

    @stored
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
        n_basis: float | str = "auto",
        select_on: float | str = "auto",
        delta: float | None = None,
        p: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        calibrate: bool = True,
        tol: float = 1e-6,
        max_iter: int = 500,
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...


class ReducedSVR(Regressor, ReducedMachine):
    """Regressor on a small basis, with Huber's or the squared loss.

    Use it if the targets have outliers: Huber's loss grows only linearly beyond ``delta``, so a
    single row has bounded influence.

    Parameters
    ----------
    C : "loo", float or list of float, default="loo"
        Regularisation: weight of the losses; a larger C means less regularisation. "loo" compares
        values in steps of a factor of sqrt(10); a list gives the values to compare. The value with
        the smallest loss of left-out rows is chosen.
    loss : {"huber", "squared"} or Loss, default="huber"
        Loss of the residual u = y - f(x): u^2 / 2, for "huber" only up to |u| = ``delta`` and
        linear beyond; or an object with the methods of `leansvm.losses.Loss`.
    delta : float or None, default=None
        Where "huber" becomes linear, in units of y; None is 1.35.

    Attributes
    ----------
    cv_curve_ : ndarray of shape (n_candidates,)
        Mean loss of left-out rows at every candidate of C; NaN for those that were not tried.

    See Also
    --------
    ReducedSVC : The same for classification.
    SparseLSSVR : The squared loss, solved in closed form.

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

    @stored
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
        n_basis: float | str = "auto",
        select_on: float | str = "auto",
        delta: float | None = None,
        tol: float = 1e-6,
        max_iter: int = 500,
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None: ...
