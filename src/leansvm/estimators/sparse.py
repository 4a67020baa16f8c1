"""SparseLSSVC and SparseLSSVR: the least-squares SVM on a small basis (P-LSSVM)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from leansvm.basis import Fit, RandomBasis
from leansvm.basis.choose import Basis, points_of_before
from leansvm.estimators.answers import PredictsIntervals, PredictsSets
from leansvm.estimators.kernel_machine import BasisMachine
from leansvm.estimators.machine import Machine, stored
from leansvm.estimators.mergeable import Mergeable
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.run import BasisData, FittedKernel, Run
from leansvm.newton.refit import refit
from leansvm.ridge.criteria import LOO_LOSSES
from leansvm.ridge.kfold import KFoldSums
from leansvm.ridge.primal import SparseProblem, SummedBasis
from leansvm.rows import RowBlocks
from leansvm.solution import Solution

_PILOT_SIZE = 100  # basis points of the pilot fit that finds a C for selectors that need one


class SparseMachine(BasisMachine, Mergeable):
    """Choose a basis, add up the rows once, solve the small system.

    Parameters
    ----------
    C : float, array-like, "loo", "kfold", "gcv" or KFoldSums
        Regularisation: weight of the squared errors; a larger C means less regularisation. "loo",
        or a list of values, chooses the value with the smallest leave-one-out squared error of the
        rows that are not basis points (in large fits, of 2,000 sampled rows). "kfold"
        (`leansvm.model_selection.KFoldSums`) chooses by cross-validation, "gcv" by generalised
        cross-validation; do not use "gcv" with hundreds of basis points, because it overfits. The
        strings try ``numpy.logspace(-6, 7, 50)``, large fits with "loo" only some of these values.
        Large fits calibrate probabilities on sampled rows: the same 2,000, or with "gcv" up to
        10,000.
    n_basis : int, float in (0, 1) or "auto"
        Number of basis points, or their share of the rows. "auto" doubles the number as long as
        that lowers the leave-one-out error by 1 % (beyond 2,000 points by 6 %), up to 4,000 points
        (2,000 if there are very many rows). It then chooses the smallest number whose error is
        within 0.2 % of the best. If there are more than 15,000 rows, 10,000 of them are used for
        this choice. Up to 2,000 rows, it also tries all rows as basis points.
    warm_start : bool
        Whether `fit` keeps the basis points of the previous fit and chooses only the missing ones
        up to ``n_basis``. ``support_`` is -1 for a kept point if the new row with its number is
        another row.
    keep_state : bool or None
        Whether pickles and model files contain what `partial_fit`, `state` and intervals need, in
        addition to what prediction needs: 16 n_basis^2 bytes or more. None means: only if the
        model was trained by `partial_fit`.

    Attributes
    ----------
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Leave-one-out residuals: target (+-1 for classes) minus the prediction of the model without
        the row and its exact copies, on the same basis. Only with ``C="loo"``. After a large fit
        they are computed when they are first used.
    """

    _scores_lists_by = "loo"
    _last_size = 5000  # on a fast device; 4,000 elsewhere

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [*Machine._parameter_constraints["C"], StrOptions({"kfold"}), KFoldSums],
        "warm_start": ["boolean"],
    }

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        sample = min(n_rows, 10_000) if self.n_basis == "auto" else 0  # sizes are compared on it
        # a pass at a known size, in single precision; the small matrix hardly grows with the rows
        passed = 0.3 * self._work(n_rows) if n_rows > sample else 0.0
        own = {"sizes": self._work(sample), "sums": passed, "solve": self._work(min(n_rows, 5000))}
        return super()._planned(n_rows, n_features) | own

    def _grow(self, data: BasisData, kernel: FittedKernel, run: Run) -> SummedBasis:
        folds, unmerged = run.criterion.folds, None
        if folds is not None and folds.groups is not None:  # copies may be in several groups
            unmerged = data.blocks(3 * (data.size + data.n_outputs + 1), data.budget)
        problem = SparseProblem(
            data.rows,
            kernel.kernel,
            self._bias_penalty(),
            run.criterion,
            data.count,
            data.budget,
            1 if folds is None else folds.count(data.X.shape[0]),
            unmerged,
        )
        options, n_earlier = {}, 0
        if self.warm_start and "support_" in vars(self):
            options["earlier"] = self._earlier_basis(data.rows)
            n_earlier = options["earlier"].rows.shape[0]
        chooser = self._chooser(data, problem, run, **options)
        if data.auto:
            return problem.sum_best_size(chooser, data.selector, data.size, n_earlier)
        return problem.sum_size(chooser, data.size)

    def _solve(self, data: BasisData, basis: SummedBasis, run: Run) -> Solution:
        return replace(basis.problem.solve(basis), basis=basis.basis)  # the basis has its problem

    def _pilot(self, data: BasisData, problem: SparseProblem, run: Run) -> Fit:
        C = problem.criterion.C
        if np.ndim(C) == 1:
            pilot = replace(problem, criterion=replace(problem.criterion, left_out=False))
            chooser = self._chooser(data, problem, run, RandomBasis())
            C = pilot.solve(pilot.sum_size(chooser, min(_PILOT_SIZE, data.n_positive))).C
        return Fit(float(C), problem.bias_penalty, refit=refit)

    def _earlier_basis(self, blocks: RowBlocks) -> Basis:
        """Return the basis of the fit before, in the order of choice."""
        if self.kernel != "precomputed":
            if self.support_vectors_.shape[1] != blocks.n_features:
                raise ValueError(
                    f"warm_start=True: X has {blocks.n_features} features, but the basis of the "
                    f"previous fit has {self.support_vectors_.shape[1]}."
                )
            return points_of_before(blocks, self.support_, self.support_vectors_)
        if self.support_.max() >= blocks.n_rows:
            raise ValueError(
                "warm_start=True: the kernel matrix has fewer rows than in the previous fit."
            )
        return Basis(self.support_, blocks.take(self.support_))


class SparseLSSVC(PredictsSets, Classifier, SparseMachine):
    """Least-squares support vector classifier on a small basis.

    The default estimator for classification. The model is a sum of kernel functions at a few
    training rows, the basis points; all rows count in the loss. By default, a fit learns the kernel
    with a scale for every feature, and chooses ``C`` and the number of basis points by
    leave-one-out. The whole kernel matrix is stored only if nearly all rows become points.

    Parameters
    ----------
    criterion : {"squared", "accuracy", "log_loss"}, default="squared"
        Leave-one-out error that chooses C. The kernel and the number of basis points are always
        chosen by the squared error.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = {"criterion": [StrOptions(set(LOO_LOSSES))]}

    @stored
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
        n_basis: float | str = "auto",
        select_on: float | str = "auto",
        criterion: str = "squared",
        class_weight: dict[Any, float] | str | None = None,
        calibrate: bool = True,
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        keep_state: bool | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> SparseLSSVC:
        """Add a batch of rows to the model.

        Basis points and gamma come from the first batch, or from an earlier `fit`. The result
        equals `fit` on all rows with that basis. Memory does not grow with the number of rows.
        Probabilities are calibrated on the leave-one-out values of the last 100,000 rows (of
        large batches, of sampled rows).

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

    The default estimator for regression. The model is a sum of kernel functions at a few training
    rows, the basis points; all rows count in the loss. By default, a fit learns the kernel with a
    scale for every feature, and chooses ``C`` and the number of basis points by leave-one-out.

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

    @stored
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
        n_basis: float | str = "auto",
        select_on: float | str = "auto",
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        keep_state: bool | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None: ...

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseLSSVR:
        """Add a batch of rows to the model.

        Basis points and gamma come from the first batch, or from an earlier `fit`. The result
        equals `fit` on all rows with that basis. Memory does not grow with the number of rows.

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
