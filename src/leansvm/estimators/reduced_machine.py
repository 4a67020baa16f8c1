"""Machines of smooth losses on a small basis: how the points are chosen and the problem posed."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from leansvm.basis import Basis, Fit, RandomBasis
from leansvm.estimators.basis_machine import BasisData, BasisMachine
from leansvm.estimators.kernel_machine import FittedKernel, KernelMachine
from leansvm.estimators.machine import BASIS_CONSTRAINTS, Run
from leansvm.estimators.publish import publish
from leansvm.estimators.read import read
from leansvm.estimators.training_data import TrainingData
from leansvm.kernels import Kernel
from leansvm.losses import smooth_loss
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

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        return super()._planned(n_rows, n_features) | {"solve": 5.0 * self._work(n_rows)}

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
        else:
            found = problem.fit(basis, plan.path, grows=data.auto)
        return found.path

    def _problem(self, data: BasisData, kernel: Kernel, run: Run) -> ReducedProblem:
        # summed over rows, max(0, u) and "huber" differ by at most n delta / 4
        shape = self.delta, self._sharpness, 4 * self.tol / data.X.shape[0]
        compares = np.ndim(run.criterion.C) == 1 and not run.is_path
        return ReducedProblem(
            data.rows,
            kernel,
            smooth_loss(self.loss, self._classifies, *shape),
            self.regularizer,
            self._bias_penalty(),
            self._classifies,
            data.n_outputs,
            self.tol,
            self.max_iter,
            data.budget,
            not run.is_path and (self._calibrates or (compares and isinstance(self.C, str))),
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
        models = []
        with self._fitting(X, y, Criterion(path), is_path=True) as run:
            data = self._counted(read(self, X, y, sample_weight), run)
            if data.auto:
                raise ValueError("n_basis='auto' depends on C: give a number for a path of C.")
            kernel = self._learn_kernel(data, run)
            plan = self._grow(data, kernel, run)
            for solution in self._solve_path(data, plan):
                model = copy(self).set_params(C=solution.C)
                if self._classifies:  # no rows are left out along a path
                    model.set_params(calibrate=False)
                publish(model, data, kernel, plan, solution)
                models.append(model)
        return models
