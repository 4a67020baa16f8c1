"""L2SVC: the maximal-margin SVM with the squared hinge loss, solved exactly (peng2016)."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from leansvm._sklearn import level_of_user
from leansvm.basis.features import KernelFeatures
from leansvm.dual import solvers
from leansvm.dual.active_set import ActiveSet
from leansvm.dual.left_out import with_left_out
from leansvm.dual.problem import DualProblem
from leansvm.estimators.lssvm import DualMachine
from leansvm.estimators.machine import POSITIVE, running, stored
from leansvm.estimators.predict import Classifier
from leansvm.estimators.publish import publish
from leansvm.estimators.read import read
from leansvm.kernels import Kernel

Array = NDArray[np.float64]


def _learns_from_batches(estimator: Any) -> bool:
    if not isinstance(estimator.C, Real):
        raise AttributeError("partial_fit needs a number as C: call fit on all rows to choose C.")
    if estimator.class_weight == "balanced":
        raise AttributeError("partial_fit: class_weight='balanced' needs all rows: call fit.")
    if estimator.kernel == "precomputed" or estimator.solver in ("newton", "smo"):
        raise AttributeError(
            "partial_fit: kernel='precomputed', solver='newton' and 'smo' need all rows: call fit."
        )
    return True


class L2SVC(Classifier, DualMachine):
    """Support vector classifier with the squared hinge loss, solved exactly.

    Minimises 1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, 1 - y_i f(x_i))^2, one class against
    the rest. Only rows with y f(x) < 1, the support vectors, matter. For given support vectors the
    solution is that of a linear system; a few linear solves find the support vectors exactly. The
    fit time grows slowly with ``C``.

    Parameters
    ----------
    C : float, array-like or "loo", default=1.0
        Regularisation: weight of the squared errors; a larger C means less regularisation. "loo",
        or a list of values, chooses the value with the smallest leave-one-out loss. This loss is
        exact for at most 1,000 rows; with more, it takes the other support vectors as fixed. "loo"
        tries ``numpy.logspace(-3, 4, 15)``.
    solver : {"auto", "active-set", "newton", "smo"}, default="auto"
        "auto" solves on working sets of rows by conjugate gradients ("working-set" in
        ``fit_report_``). If these are slow (a large ``C``), or the working sets exceed
        ``cache_size``, it switches to "active-set", or to "smo" if thousands of rows are support
        vectors. "active-set" updates a factor while the set of support vectors changes; with a
        linear kernel, the system has the size n_features if that is smaller. "newton" is Newton's
        method on the whole kernel matrix: use it on a GPU. "smo" updates a few dual coefficients
        at a time and needs little memory.
    max_support : int or "auto", default="auto"
        Largest number of support vectors, which limits memory and time. If the fit needs more, it
        warns, and ``fit_report_`` says so. "auto" means no limit.
    tol : float, default=1e-8
        Largest violation of theta = C s max(0, 1 - y f), relative to the largest theta; for
        "smo" the root mean square of the violation in units of y.
    max_iter : int, default=1000
        Largest number of linear solves for one class, or of sweeps of "smo". A sweep has as many
        updates as there are rows.
    keep_state : bool or None, default=None
        Whether pickles and model files contain all rows of `partial_fit`, so that it can continue.
        None means: only if the model was trained by `partial_fit`.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Support vectors: rows with y f(x) < 1 for some class.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients y theta of the kernel functions, theta = C s (1 - y f(x)).
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights w; only for ``kernel="linear"``.
    cv_curve_ : ndarray of shape (n_candidates,)
        Leave-one-out loss at every candidate of ``C``; only when there are several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Leave-one-out residuals: target +-1 minus the decision value of the model without the row
        (with more than 1,000 rows, for fixed support vectors). Only with ``C="loo"``.
    n_iter_ : int
        Number of linear solves, the largest over all classes.

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

    _family = "hinge"
    _candidates = np.logspace(-3, 4, 15)
    _merges_for_choice = True
    _training_only = DualMachine._training_only | {"_sequence"}
    _sequence: tuple[ActiveSet, Array]  # of `partial_fit`: the solver and all weights so far
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [POSITIVE, "array-like", StrOptions({"loo"})],
        "solver": [StrOptions(set(solvers.SOLVERS["hinge"]))],
        "max_support": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
    }

    @stored
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
        max_support: int | str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        calibrate: bool = True,
        tol: float = 1e-8,
        max_iter: int = 1000,
        cache_size: float | str = "auto",
        keep_state: bool | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...

    def _model(self) -> tuple[KernelFeatures, Array]:
        if self.kernel_ != "linear":
            return super()._model()
        # f(x) = coef_ x: the linear kernel with the weights of every output as points
        return KernelFeatures(Kernel("linear"), self.coef_), np.eye(len(self.coef_))

    def _active_set(self, problem: DualProblem, keep: bool = False) -> ActiveSet:
        most = None if self.max_support == "auto" else int(self.max_support)
        return ActiveSet(problem, max_support=most, keep=keep)

    def _fit_path(self, X: Any, y: Any, path: Array, sample_weight: Any) -> list[Any]:
        """Return a fitted copy for every C; each fit starts from the solution at the previous C."""
        models = []
        with running(self, X, y) as run:
            data = read(self, X, y, sample_weight).take_positive(merge=False)
            kernel = self._learn_kernel(data, run)
            problem = self._grow(data, kernel, run)
            solvers.check_solver(self._family, self.solver, problem, several=True)
            active_set = self._active_set(problem)
            for C in path:
                model = copy(self).set_params(C=float(C), calibrate=False)
                with solvers.explain_failure(problem.kernel):
                    solution = active_set.solve(float(C), tol=self.tol, max_iter=self.max_iter)
                publish(model, data, kernel, self._with_support(problem, data, solution))
                models.append(model)
        return models

    @available_if(_learns_from_batches)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> L2SVC:
        """Add rows and update the support vectors; the result equals `fit` on all rows.

        It needs a number as C, and does not work with class_weight="balanced",
        kernel="precomputed", solver="newton" and solver="smo". ``gamma`` comes from the first
        batch. Rows without error may become support vectors later, so all rows are kept, with
        kernel rows and factors (within ``cache_size``). `fit` keeps no rows: after `fit`,
        partial_fit starts a new model, with a warning. After a call that raises an error, the rows
        are as they were before the call.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of this batch.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will occur; needed in the first call unless the batch has all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        L2SVC
            The estimator; ``support_`` counts rows over all batches.
        """
        first = not ("_sequence" in vars(self) or self._saved_small)
        if first and "support_" in vars(self):
            warnings.warn(
                "partial_fit starts a new model, because fit does not keep its rows. To add rows "
                "to a model, call partial_fit instead of fit, also for the first batch.",
                UserWarning,
                stacklevel=level_of_user(),
            )
        if not first:
            self._refuse_changed()
            classes = self._same_classes(classes)
        added: AbstractContextManager[None] = nullcontext()
        with running(self, X, y) as run:
            rows = read(self, X, y, sample_weight, reset=first, classes=classes, batch=True)
            batch, kernel = rows.take_positive(merge=False), None
            if first:
                kernel, data = self._learn_kernel(batch, run), batch
                problem = self._grow(batch, kernel, run)
                active_set = self._active_set(problem, keep=True)
            else:
                active_set, weight = self._sequence
                used, data = batch.taken, rows.take_positive(merge=False, earlier=weight)
                added = active_set.extended(batch.X[used], batch.Y[used], batch.weight[used])
            with added:
                hook = run.hook("iteration")
                active_set.problem = problem = replace(active_set.problem, on_iteration=hook)
                Y = np.zeros((len(data.weight), data.n_outputs))  # also of earlier batches
                Y[data.taken] = problem.Y
                data = replace(data, Y=Y)
                options: Any = {"tol": self.tol, "max_iter": self.max_iter}
                with solvers.explain_failure(problem.kernel):
                    solution = active_set.solve(float(self.C), left_out=self.calibrate, **options)
                if self.calibrate:
                    solution = with_left_out(problem, solution)
                active_set.problem = replace(active_set.problem, on_iteration=None)
                publish(self, data, kernel, self._with_support(problem, data, solution))
            self._sequence, self._has_batches = (active_set, data.weight), True
        return self
