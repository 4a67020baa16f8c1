"""Machines with a kernel: on all rows, on a few, and with the squared loss on a few (P-LSSVM)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._array_api import rows_at
from leansvm._phases import Phases
from leansvm.basis import BasisSelector, Fit, RandomBasis
from leansvm.basis.choose import (
    LAST_SIZE,
    Basis,
    check_definite,
    choose,
    points_of_before,
    resolve_basis,
)
from leansvm.basis.features import KernelFeatures
from leansvm.estimators.machine import COUNT, NOT_NEGATIVE, SHARE, Machine, Run
from leansvm.estimators.mergeable import Mergeable
from leansvm.estimators.read import TrainingData
from leansvm.kernels import KERNELS, Kernel, Mixture, resolve_gamma
from leansvm.learning.learn import LEARNABLE, MIXTURE, FittedKernel, learn_kernel, plan_of
from leansvm.newton.refit import refit
from leansvm.ridge.kfold import KFoldSums
from leansvm.ridge.primal import SparseProblem, SummedBasis
from leansvm.rows import RowBlocks, resolve_cache_size
from leansvm.solution import Solution

Array = NDArray[np.float64]
# Up to so many rows, samples do not depend on the order of the rows. This takes two more passes;
# larger files are drawn by position unless a kernel is learned.
_ROWS_DRAWN_BY_VALUES = 100_000
_PILOT_SIZE = 100  # basis points of the pilot fit that finds a C for selectors that need one


@dataclass(frozen=True, kw_only=True)
class BasisData(TrainingData):
    """The rows of a machine on a small basis, and what its parameters mean for them."""

    rows: RowBlocks  # copies are merged if leave-one-out is used
    selector: Any  # a BasisSelector, row numbers or points
    size: int  # number of points; with ``auto`` the largest number
    auto: bool  # whether the fit chooses the number of points
    budget: int  # bytes that blocks may keep

    @property
    def uses_targets(self) -> bool:
        """Whether the selector looks at the residuals of a model, for which it needs a C."""
        return isinstance(self.selector, BasisSelector) and self.selector.uses_targets


class KernelMachine(Machine):
    """Adds the kernel: f(x) = sum_j dual_coef_j k(x_j, x) + intercept.

    Parameters
    ----------
    kernel : str, Mixture or callable
        "auto", a name in `leansvm.kernels.KERNELS`, a `leansvm.kernels.Mixture`, or a function
        ``f(X, Z)`` that returns the matrix of kernel values. "auto" with ``gamma="learn"`` learns
        a mixture of kernels by leave-one-out on a sample; with another gamma it means "rbf".
    gamma : {"learn", "scale", "auto"}, float or array-like of shape (n_features,)
        Kernel coefficient: a number, or one number for each feature. "learn" finds one for each
        feature by minimising the leave-one-out squared error on a sample of the rows; features
        then need no scaling, and useless ones get 0. "scale" is 1 / (n_features * weighted
        variance of X), "auto" is 1 / n_features. For "poly", "sigmoid" and "chi2", which have one
        gamma for all features, "learn" means "scale". Kernels without gamma ignore it.
    degree : float
        Degree of the polynomial kernel.
    coef0 : float
        Independent term of "poly" and "sigmoid".

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Indices of the training rows that the model keeps; -1 for points that you gave.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        These rows; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_outputs, n_support)
        Coefficients of the kernel functions, always float64.
    n_support_ : int
        Number of training rows that the model keeps.
    kernel_ : str or Mixture
        The kernel that was used.
    gamma_ : float, ndarray of shape (n_features,) or dict
        The gamma that was used, for the raw features; for a mixture, one array for each part.
    feature_scales_ : ndarray of shape (n_features,)
        How quickly the kernel changes along each feature, relative to the spread of the feature;
        the largest is 1. This is not an importance. Only with ``gamma="learn"``.
    clip_ : tuple of two ndarrays of shape (n_features,), or None
        Lower and upper bounds between which ``gamma="learn"`` clips features: the range of the
        training rows, or less for heavy tails. A mixture has its own bounds.
    """

    _batch_parameters: dict[str, Any]  # those of `fit`, or of the first batch
    _scales_suit_C: ClassVar[bool] = True  # scales are learned for the given values of C
    random_state: Any = 0  # decides the sample on which a kernel is learned

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": [StrOptions({*KERNELS, "auto", "additive_chi2"}), Mixture, callable],
        "gamma": [StrOptions({"scale", "auto", "learn"}), NOT_NEGATIVE, "array-like"],
        "degree": [NOT_NEGATIVE],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    @property
    def _learns_scales(self) -> bool:
        """Whether a kernel is learned; kernels without scales take gamma="learn" as "scale"."""
        learns = isinstance(self.gamma, str) and self.gamma == "learn"
        return learns and isinstance(self.kernel, str) and self.kernel in (*LEARNABLE, "auto")

    @property
    def _has_one_scale(self) -> bool:  # type: ignore[override]
        has_scales = self._learns_scales or isinstance(self.kernel, Mixture)
        return not has_scales and np.ndim(self.gamma) == 0

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        return plan_of(n_rows, n_features) if self._learns_scales else {}

    def _learn_kernel(self, data: TrainingData, run: Run) -> FittedKernel:
        """Return the kernel with its numbers: those that were given, or learned on a sample."""
        if not self._learns_scales:
            chosen = "rbf" if self.kernel == "auto" else self.kernel
            gamma = "scale" if isinstance(self.gamma, str) and self.gamma == "learn" else self.gamma
            if not isinstance(chosen, Mixture):
                gamma = resolve_gamma(gamma, chosen, data.X.shape[1], data.variance)
            elif chosen.n_features != data.X.shape[1]:
                table, width = data.attributes.get("table_"), data.X.shape[1]
                made = "" if table is None else f", made of the columns {[*table.kinds_]!s:.300}"
                raise ValueError(
                    f"kernel={chosen!r} needs {chosen.n_features} features, and X has {width}"
                    f"{made}. Pass the columns for which the kernel was learned, or learn again "
                    f"with kernel='auto'."
                )
            kernel = Kernel(chosen, gamma=gamma, degree=self.degree, coef0=self.coef0)
            return FittedKernel(kernel, chosen)
        table, given = data.attributes.get("table_"), not isinstance(self.C, str | KFoldSums)
        C = (float(np.min(run.criterion.C)), float(np.max(run.criterion.C)))
        hook, bias_penalty = run.hook("learning-step", 0.5), self._bias_penalty()
        with Phases()("learn"):
            return learn_kernel(
                data.blocks() if data.rows is None else data.rows,
                MIXTURE if self.kernel == "auto" else (self.kernel,),
                bias_penalty=bias_penalty,
                budget=resolve_cache_size(self.cache_size),
                random_state=self.random_state,
                on_iteration=hook,
                most_points=data.size if isinstance(data, BasisData) and not data.auto else None,
                C=C if given and self._scales_suit_C else None,
                groups=None if table is None else table.groups_,
                numeric=None if table is None else table.numeric_,
                classes=self._classifies,
                maps=self._classifies
                and data.n_outputs > 1
                and self._maps_classes
                and self.calibrate,
            )

    def _basis_attributes(self, data: TrainingData, solution: Solution) -> dict[str, Any]:
        basis, features, coef = solution.basis, solution.features, solution.coef
        indices, points = basis.indices, basis.rows
        if features is not None:  # a small basis: the points that it kept, in the order of choice
            kept = np.arange(features.size) if features.kept is None else features.kept
            order = np.argsort(kept)
            indices = np.full(len(kept), -1) if indices is None else indices[kept][order]
            points, coef = rows_at(features.points, order), coef[order]
        pairwise = self.kernel == "precomputed"
        found = {
            "support_": indices,
            "support_vectors_": np.empty((0, 0), data.X.dtype) if pairwise else points,
            "dual_coef_": np.ascontiguousarray(coef.T),
            "n_support_": len(indices),
        }
        if solution.weights is not None:
            found["coef_"] = solution.weights
        if solution.sums is not None:  # later rows are added to them
            found |= {"_features": features, "_sums": solution.sums, "_selected": basis.indices}
            found["n_rows_seen_"] = data.X.shape[0]
        return found

    def _small_matrix(self, rows: TrainingData | None) -> tuple[Any, Any]:
        """Return the map to a small basis and the sums over the rows; None for other machines."""
        return None, None

    def _refuse_changed(self) -> None:
        """Refuse to add rows to a model without its sums, or with a parameter that was changed."""
        if self._saved_small:
            raise ValueError(
                f"This {type(self).__name__} was saved or copied without the state that "
                f"partial_fit needs. Set keep_state=True before saving it, or call fit."
            )
        for name, before in vars(self).get("_batch_parameters", {}).items():
            now: Any = getattr(self, name, None)
            same = np.shape(now) == np.shape(before) and np.all(np.asarray(now == before))
            if now is not before and not same:
                raise ValueError(
                    f"partial_fit: {name}={now!r} was {before!r} in the first batch, and the sums "
                    f"over earlier rows depend on it. Set it back, or call fit."
                )

    def _model(self) -> tuple[KernelFeatures, Array]:
        given = {"gamma": self.gamma_, "degree": self.degree, "coef0": self.coef0}
        kernel = Kernel(self.kernel_, **given, clip=self.clip_)
        points = self.support_ if kernel.precomputed else self.support_vectors_
        return KernelFeatures(kernel, points), self.dual_coef_.T


class BasisMachine(KernelMachine):
    """Choose a basis, then solve on it; all rows count in the loss.

    Parameters
    ----------
    basis : str, selector, 1-D integer array or 2-D array
        How to choose the basis points: "random", "pivoted-cholesky", "random-pivoted-cholesky",
        "backfitting", "forward", "csi", "sparse-greedy", "entropy", "medoids" or "all", an instance
        of a class in `leansvm.basis`, row numbers, or the points themselves. Given points fix the
        size, so that ``n_basis`` is ignored; equal row numbers count once.
    select_on : {"auto", "all"}, int or float in (0, 1)
        Rows from which the selector chooses. "auto" means all rows, or a stratified sample if the
        numbers that the selector keeps for every row exceed half of ``cache_size``.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Indices of the training rows that are basis points; -1 for points that you gave.
    n_support_ : int
        Number of basis points. (Points that are numerically dependent on others are dropped.)
    """

    _fits_where_rows_are = True
    _fits_sources = True
    _last_size: ClassVar[int] = LAST_SIZE  # the largest that n_basis="auto" tries
    regularizer: str = "rkhs"  # of machines without this parameter
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "basis": [str, BasisSelector, "array-like"],
        "n_basis": [COUNT, SHARE, StrOptions({"auto"})],
        "select_on": [StrOptions({"auto", "all"}), COUNT, SHARE],
    }

    def _arrange_rows(self, data: TrainingData, run: Run) -> BasisData:
        budget, pairwise = resolve_cache_size(self.cache_size), self.kernel == "precomputed"
        terms = self.basis, self.n_basis, data.X.shape, pairwise, data, self._last_size
        selector, size, auto = resolve_basis(*terms)
        used = data
        if run.criterion.left_out or auto:  # sizes are compared by leave-one-out
            used = data.merge_copies(budget)
            if isinstance(selector, BasisSelector):  # given points fix the size
                size, auto = min(size, used.n_positive), auto and used.n_positive > 1
        rows = used.blocks(3 * (size + data.n_outputs + 1), budget)
        few = used.X.shape[0] <= _ROWS_DRAWN_BY_VALUES
        rows.by_values = (auto or few or self._learns_scales) and not pairwise
        plan: dict[str, Any] = {"selector": selector, "size": size, "auto": auto, "rows": rows}
        plan["budget"] = rows.state_budget(self.cache_size)
        # `rows` has the merged weights. `weight` stays as given, because folds of groups may
        # separate copies.
        return BasisData(**vars(used) | plan | {"weight": data.weight})

    def _work(self, n_rows: int) -> float:
        """Return the work of choosing all points on this many rows, in units of `_planned`."""
        points = 1000.0 if self.n_basis == "auto" else float(self.n_basis)
        points = min(points * (n_rows if points < 1 else 1), n_rows)
        return 4.3e-10 * n_rows * points**2

    def _chooser(
        self, data: BasisData, kernel: Kernel, run: Run, selector: Any = None, **options: Any
    ) -> Callable[[int], Basis]:
        """Return a function: number of points -> `Basis`, by the user's selector or another one.

        ``options`` are those of `choose`: the ``fit`` that a selector looks at, ``earlier`` points.
        """
        if selector is None and self.regularizer == "rkhs":  # once in a fit, not for a pilot
            check_definite(data.rows, kernel)
        return partial(
            choose,
            data.rows,
            kernel,
            data.selector if selector is None else selector,
            select_on=self.select_on,
            budget=data.budget,
            random_state=self.random_state,
            on_step=run.hook("basis-point", 1.0, data.size),
            **options,
        )


class SparseMachine(Mergeable, BasisMachine):
    """Choose a basis, add up the rows once, solve the small system.

    Parameters
    ----------
    C : float, array-like, "loo", "kfold", "gcv" or KFoldSums
        Regularisation: weight of the squared errors; a larger C means less regularisation. "loo",
        or a list of values, chooses the value with the smallest leave-one-out squared error of the
        rows that are not basis points (in large fits, of 2,000 of them). In `LSSVC`, a list is
        compared by generalised cross-validation instead. "kfold"
        (`leansvm.model_selection.KFoldSums`) chooses by cross-validation, "gcv" by generalised
        cross-validation; do not use "gcv" with hundreds of basis points, because it overfits. The
        strings try ``numpy.logspace(-6, 7, 50)``; large fits with "loo" try only some of these
        values. Large fits calibrate probabilities on a sample of the rows: the same 2,000, or up
        to 10,000 with "gcv".
    n_basis : int, float in (0, 1) or "auto"
        Number of basis points, or their share of the rows. "auto" doubles the number as long as
        that lowers the leave-one-out error by 1 % (beyond 2,000 points by 6 %), up to 4,000 points
        (2,000 if there are very many rows). It then chooses the smallest number whose error is
        within 0.2 % of the best. If there are more than 15,000 rows, 10,000 of them are used for
        this choice. Up to 2,000 rows, it also tries all rows as basis points.
    warm_start : bool
        Whether `fit` keeps the basis points of the previous fit and chooses only the missing ones
        up to ``n_basis``. If the new X has a different row at the number of a kept point,
        ``support_`` is -1 for this point.
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
        earlier, n_earlier = None, 0
        if self.warm_start and "support_" in vars(self):
            earlier = self._earlier_basis(data.rows)
            n_earlier = earlier.rows.shape[0]
        fit = self._pilot(data, problem, run) if data.uses_targets else None
        chooser = self._chooser(data, kernel.kernel, run, fit=fit, earlier=earlier)
        if data.auto:
            return problem.sum_best_size(chooser, data.selector, data.size, n_earlier)
        return problem.sum_size(chooser, data.size)

    def _solve(self, data: BasisData, summed: SummedBasis, run: Run) -> Solution:
        return summed.problem.solve(summed)

    def _pilot(self, data: BasisData, problem: SparseProblem, run: Run) -> Fit:
        """Return the model that a selector chooses for; a random basis compares several C."""
        C = problem.criterion.C
        if np.ndim(C) == 1:
            pilot = replace(problem, criterion=replace(problem.criterion, left_out=False))
            chooser = self._chooser(data, problem.kernel, run, RandomBasis())
            C = pilot.solve(pilot.sum_size(chooser, min(_PILOT_SIZE, data.n_positive))).C
        return Fit(float(C), problem.bias_penalty, refit=refit)

    def _earlier_basis(self, blocks: RowBlocks) -> Basis:
        """Return the basis of the previous fit, in the order of choice."""
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
