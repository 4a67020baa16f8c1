"""The fit that LSSVC and LSSVR share: the dual least-squares SVM (zhou2016, eqs. (3)-(6)).

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2,  f(x) = <w, k(x, .)> + b.
All rows are support vectors; one factorisation serves all classes, outputs and leave-one-out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions

from leansvm._array_api import rows_at, to_host
from leansvm.blocks import MemoryBlocks, MergedRows, merge_equal_rows, resolve_cache_size
from leansvm.estimators._base import (
    Array,
    KernelMachine,
    Phases,
    iteration_hook,
)
from leansvm.solvers import DualProblem, Solution
from leansvm.solvers.kernel_matrix import check_symmetric
from leansvm.solvers.table import SOLVERS, names, solve


class DualMachine(KernelMachine):
    """The fit that LSSVC and LSSVR share."""

    _fits_where_rows_are = True

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelMachine._parameter_constraints,
        "solver": [StrOptions(set(names("lssvm")))],
    }

    def _fit_dual(
        self,
        X: Any,
        y: Any,
        Y: Array,
        weight: Array,
        finish: Callable[[MergedRows, Array | None], None],
        *,
        count: float | None = None,
        loo: bool = False,
    ) -> None:
        """Solve for all outputs and set the fitted attributes.

        Y holds one column an output; ``count`` is the number of samples that GCV takes the rows
        for, where it is not the sum of weights; ``loo`` asks for leave-one-out residuals at a
        single C; ``finish`` gets the rows that were solved for and their left-out residuals.
        """
        self._forget("cv_curve_", "loo_residuals_", "calibration_scale_")
        Y, weight = to_host(Y), to_host(weight)  # small beside the kernel matrix
        if SOLVERS["lssvm"][self.solver].on_host:
            X = to_host(X)
        candidates, criterion = self._candidates_of_C()
        loo = loo or (candidates is not None and criterion == "loo")
        if self.kernel == "precomputed":
            check_kernel_matrix(X)
        rows = merge_equal_rows(X, Y, weight) if loo else _positive_rows(weight)
        if len(rows.first) < 2 and (loo or candidates is not None):
            raise ValueError(
                f"C={self.C!r} needs two distinct rows of positive weight, got "
                f"n_samples={len(rows.first)}; give C as a number."
            )
        context = self._init_callback_context(max_subtasks=0 if self.solver == "cholesky" else None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        phases = Phases()
        kernel = self._resolve_kernel(MemoryBlocks(X, weight=weight))
        problem = DualProblem(
            X,
            kernel,
            Y[rows.first],
            rows.weight,
            self._bias_penalty(),
            resolve_cache_size(self.cache_size, X),
            phases,
            iteration_hook(
                self, context, f"{'cg' if self.solver == 'auto' else self.solver}-iteration"
            ),
            rows=None if len(rows.first) == X.shape[0] else rows.first,
            count=count,
        )
        solution = solve(
            "lssvm",
            self.solver,
            problem,
            float(self.C) if candidates is None else candidates,
            criterion=criterion,
            left_out=loo and candidates is None,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.C_ = solution.C
        if solution.curve is not None:
            self.cv_curve_ = solution.curve
        self._set_model(X, rows, weight, solution)
        self._report(problem, solution, phases)
        if not solution.converged:
            text = f"{type(self).__name__}: {solution.advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)
        finish(rows, solution.left_out)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})

    def _set_model(self, X: Any, rows: MergedRows, weight: Array, solution: Solution) -> None:
        self.support_ = np.flatnonzero(rows.group >= 0)
        group = rows.group[self.support_]
        # copies of a row share its coefficient in proportion to their weights
        share = weight[self.support_] / rows.weight[group]
        self.dual_coef_ = np.ascontiguousarray((solution.coef[group] * share[:, None]).T)
        self.intercept_ = np.asarray(solution.b)
        pairwise = self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0), X.dtype) if pairwise else rows_at(X, self.support_)
        self.n_iter_ = solution.iterations

    def _report(self, problem: DualProblem, solution: Solution, phases: Phases) -> None:
        self.objective_ = solution.objective
        self.fit_report_ = {
            "solver": solution.solver,
            "objective": self.objective_,
            "residual": solution.residual,
            "gap": solution.gap,
            "iterations": solution.iterations,
            "converged": solution.converged,
            "rows": problem.m,
            "basis": problem.m,
            "outputs": problem.Y.shape[1],
            "bytes": solution.bytes,
            "seconds": phases.seconds,
            **solution.details,
        }


def _positive_rows(weight: Array) -> MergedRows:
    """Leave out rows of zero weight; merge nothing."""
    first = np.flatnonzero(weight > 0)
    group = np.full(len(weight), -1, dtype=np.intp)
    group[first] = np.arange(len(first))
    return MergedRows(first, group, weight[first])


def check_kernel_matrix(K: NDArray[Any]) -> None:
    """Refuse a precomputed kernel matrix that is not square or not symmetric."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"kernel='precomputed': fit needs a square kernel matrix between the training rows, "
            f"got shape {K.shape}."
        )
    check_symmetric(K, "kernel='precomputed': the kernel matrix")
