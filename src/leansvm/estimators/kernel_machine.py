"""Machines with a kernel: f(x) = sum_j dual_coef_j k(x_j, x) + intercept, on all rows or a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._array_api import rows_at
from leansvm._phases import Phases
from leansvm.basis import BasisSelector, Fit
from leansvm.basis.choose import LAST_SIZE, Basis, basis_size, choose, resolve_basis
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.estimators.machine import Machine, Run
from leansvm.estimators.training_data import BasisPlan, TrainingData
from leansvm.kernels import KERNELS, Kernel, Mixture, resolve_gamma
from leansvm.learning.learn import LEARNABLE, MIXTURE, learn_kernel
from leansvm.ridge.kfold import KFoldSums
from leansvm.rows import resolve_cache_size
from leansvm.solution import Solution

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FittedKernel:
    """A kernel with its numbers, and how they were learned."""

    kernel: Kernel
    name: Any  # ``kernel_``: a name as it was given, a mixture, or the user's function
    scales: Array | None = None  # ``feature_scales_``
    report: dict[str, Any] | None = None


class KernelMachine(Machine):
    """Adds the kernel: f(x) = sum_j dual_coef_j k(x_j, x) + intercept.

    Parameters
    ----------
    kernel : str, Mixture or callable
        "auto" (a mixture of kernels, learned by leave-one-out on a sample; "rbf" unless
        ``gamma="learn"``), a name of `leansvm.kernels.KERNELS`, a `leansvm.kernels.Mixture`, or a
        vectorised function ``f(X, Z)``.
    gamma : {"learn", "scale", "auto"}, float or array-like of shape (n_features,)
        Kernel coefficient. "learn" finds one per feature by the gradient of the leave-one-out
        squared error, on a sample of the rows: features need no scaling, useless ones are switched
        off, outliers may decide; for kernels without a scale per feature ("poly", "sigmoid",
        "chi2") it means "scale". "scale" is 1 / (n_features * weighted variance of X), "auto" is
        1 / n_features. "linear", "cosine", "precomputed" and functions do not use it.
    degree : float
        Degree of the polynomial kernel.
    coef0 : float
        Independent term of "poly" and "sigmoid".

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows whose kernel functions the model is made of; -1 where points were given.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        Their values; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (n_outputs, n_support)
        Coefficients of the kernel functions (float64 whatever the type of X).
    n_support_ : int
        Number of kernel functions.
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
    """

    _batch_parameters: dict[str, Any]  # as they were in `fit`, or in the first batch
    _scales_suit_C: ClassVar[bool] = True  # scales are learned for the values of C that are given
    random_state: Any = 0  # of the sample that a kernel is learned on

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": [StrOptions({*KERNELS, "auto", "additive_chi2"}), Mixture, callable],
        "gamma": [
            StrOptions({"scale", "auto", "learn"}),
            Interval(Real, 0, None, closed="left"),
            "array-like",
        ],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    @property
    def _learns_scales(self) -> bool:
        """Whether gamma="learn" finds scales; kernels without any take it as "scale"."""
        learns = isinstance(self.gamma, str) and self.gamma == "learn"
        return learns and isinstance(self.kernel, str) and self.kernel in (*LEARNABLE, "auto")

    @property
    def _has_one_scale(self) -> bool:  # type: ignore[override]
        return not self._learns_scales and np.ndim(self.gamma) == 0

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        """Return the work of learning: searches on 1,500 rows, on folds of few rows, on 4,000."""
        if not self._learns_scales:
            return {}
        short, long = min(n_rows, 1500) / 1500, min(n_rows, 4000) / 4000
        folds = 3.0 * short if n_rows < max(2000, 50 * n_features) else 0.0
        first, second = 2.2 + 0.01 * n_features, 1.2 + 0.01 * n_features
        return {"first": first * short, "guard": folds, "second": second * long}

    def _learn_kernel(self, data: TrainingData, run: Run) -> FittedKernel:
        """Resolve gamma, or learn it on a sample."""
        if not self._learns_scales:
            # "auto" without anything to compare kernels by: the Gaussian one
            chosen = "rbf" if self.kernel == "auto" else self.kernel
            asked = "scale" if isinstance(self.gamma, str) and self.gamma == "learn" else self.gamma
            if not isinstance(chosen, Mixture):
                asked = resolve_gamma(asked, chosen, data.X.shape[1], data.variance)
            kernel = Kernel(chosen, gamma=asked, degree=self.degree, coef0=self.coef0)
            return FittedKernel(kernel, chosen)
        C, plan, table = None, data.plan, data.attributes.get("table_")
        if self._scales_suit_C and not isinstance(self.C, str | KFoldSums):
            C = float(np.min(run.criterion.C)), float(np.max(run.criterion.C))
        with Phases()("learn"):
            learned = learn_kernel(
                data.blocks() if data.rows is None else data.rows,
                MIXTURE if self.kernel == "auto" else (self.kernel,),
                bias_penalty=self._bias_penalty(),
                budget=3 * resolve_cache_size(self.cache_size) // 4,  # the rest is for tiles
                random_state=self.random_state,
                on_iteration=run.hook("learning-step", 0.5),
                most_points=None if plan is None or plan.auto else plan.size,
                C=C,
                groups=None if table is None else table.groups_,
                numeric=None if table is None else table.numeric_,
            )
        kernel = Kernel(learned.kernel, gamma=learned.gamma, clip=learned.clip)
        return FittedKernel(kernel, learned.kernel, learned.scales, learned.report)

    def _basis_attributes(self, data: TrainingData, solution: Solution) -> dict[str, Any]:
        basis, features, coef = solution.basis, solution.features, solution.coef
        indices, points = basis.indices, basis.rows
        if features is not None:  # of a small basis: those that it kept, in the order of choice
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
        if solution.sums is not None:  # that later rows are added to
            found |= {"_features": features, "_sums": solution.sums, "_selected": basis.indices}
            found["n_rows_seen_"] = data.X.shape[0]
        return found

    def _small_matrix(self, rows: Any) -> tuple[Any, Any]:
        """Return the map to a small basis and the sums over the rows; none where all rows are."""
        return None, None

    def _refuse_changed(self) -> None:
        """Say what keeps `partial_fit` from going on: no sums, or a parameter that was changed."""
        if self._saved_small:
            raise ValueError(
                f"This needs the sums over all rows so far, and this {type(self).__name__} has "
                f"only what prediction needs: it came from a file, a pickle or a deep copy. Set "
                f"keep_state=True before the model is saved or pickled, or call fit."
            )
        for name, before in getattr(self, "_batch_parameters", {}).items():
            now: Any = getattr(self, name, None)
            same = np.shape(now) == np.shape(before) and np.all(np.asarray(now == before))
            if now is not before and not same:
                raise ValueError(
                    f"partial_fit: {name}={now!r} was {before!r} in the first batch, and the rows "
                    f"since then were added up with that. Set it back, or call fit."
                )

    def _model(self) -> tuple[FeatureMap, Array]:
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
        of a class in `leansvm.basis`, the numbers of rows, or the points themselves.
    select_on : {"auto", "all"}, int or float in (0, 1)
        Rows that the selector looks at. "auto" is all of them unless what the selector keeps for
        every row would take more than half of ``cache_size``; then a stratified sample.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows chosen as basis, -1 where points were given.
    n_support_ : int
        Number of basis points (dependent ones are dropped).
    """

    _fits_where_rows_are = True
    _fits_sources = True
    _last_size: ClassVar[int] = LAST_SIZE  # the largest that n_basis="auto" tries
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "basis": [str, BasisSelector, "array-like"],
        "n_basis": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            StrOptions({"auto"}),
        ],
        "select_on": [
            StrOptions({"auto", "all"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
    }

    def _rows_that_count(self, data: TrainingData, run: Run) -> TrainingData:
        criterion, budget = run.criterion, resolve_cache_size(self.cache_size)
        n_rows, n_features = data.X.shape
        pairwise = self.kernel == "precomputed"
        selector = resolve_basis(self.basis, n_features, n_rows, pairwise, data)
        size, auto = basis_size(selector, self.n_basis, data.n_positive, self._last_size)
        used = data
        if criterion.left_out or auto:  # sizes are compared by leave-one-out
            used = data.leave_out(budget)
            if isinstance(selector, BasisSelector):  # given points fix the size
                size, auto = min(size, used.n_positive), auto and used.n_positive > 1
        rows = used.blocks(3 * (size + data.n_outputs + 1), budget)
        rows.by_values = (auto or self._learns_scales) and not pairwise
        plan = BasisPlan(selector, size, auto, rows.state_budget(self.cache_size))
        # weights as given: copies of a row may be in other folds
        return replace(used, weight=data.weight, rows=rows, plan=plan)

    def _work(self, n_rows: int) -> float:
        """Return the work of choosing all points on so many rows, in units of `_planned`."""
        points = 1000.0 if self.n_basis == "auto" else float(self.n_basis)
        points = min(points * (n_rows if points < 1 else 1), n_rows)
        return 4.3e-10 * n_rows * points**2

    def _chooser(
        self, data: Any, problem: Any, run: Run, selector: Any = None, **options: Any
    ) -> Callable[[int], Basis]:
        """Return the function that chooses so many points, by the user's selector or another."""
        selector = data.plan.selector if selector is None else selector
        if isinstance(selector, BasisSelector) and selector.uses_targets:
            options["fit"] = self._pilot(data, problem, run)
        return partial(
            choose,
            data.rows,
            problem.kernel,
            selector,
            select_on=self.select_on,
            budget=data.plan.budget,
            random_state=self.random_state,
            on_step=run.hook("basis-point", 1.0, data.plan.size),
            **options,
        )

    def _pilot(self, data: TrainingData, problem: Any, run: Run) -> Fit:
        """Return the fit that a selector's objective is about: C is that of a random basis."""
        raise NotImplementedError
