"""The fit that ReducedSVC and ReducedSVR share: choose a basis, then Newton's method on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from leansvm._array_api import rows_at
from leansvm.basis import Fit
from leansvm.basis.choose import resolve_basis
from leansvm.blocks import MergedRows, RowBlocks, resolve_cache_size
from leansvm.estimators._base import (
    Array,
    Phases,
    iteration_hook,
)
from leansvm.estimators._basis_machine import BasisMachine, grow
from leansvm.estimators._dual import check_kernel_matrix
from leansvm.estimators._rows import Rows
from leansvm.estimators._sparse_fit import Basis, Chooser
from leansvm.losses import Loss, get_loss
from leansvm.solvers._features import Features, PlainBasis
from leansvm.solvers.newton import NewtonSolution, check_loss
from leansvm.solvers.reduced import NewtonPath, solve_outputs
from leansvm.solvers.refit import refit

# Losses without a second derivative, and what stands for them.
_KINKED = {
    "hinge": "'huber' (delta) or 'logistic' (p)",
    "absolute": "'huber' with a small delta",
    "epsilon_insensitive": "'huber'",
}


@dataclass
class _Task:
    """Everything that stays the same while basis sizes are tried."""

    blocks: RowBlocks
    chooser: Chooser
    phases: Phases
    fit: Fit
    outputs: int
    tol: float
    max_iter: int
    hook: Callable[[int, float], bool] | None
    left_out: bool

    def solve(self, selector: Any, size: int, path: Array) -> _Fitted:
        """Choose ``size`` points and solve on them, at every C of the path in turn."""
        with self.phases("select"):
            chosen = self.chooser(self.blocks, selector, size)
        with self.phases("factor"):
            features = self._features(chosen)
        with self.phases("solve"):
            found = solve_outputs(
                self.blocks,
                features,
                self.fit.loss,
                path,
                outputs=self.outputs,
                budget=self.chooser.budget,
                bias_penalty=self.fit.bias_penalty,
                margin=self.fit.margin,
                tol=self.tol,
                max_iter=self.max_iter,
                on_iteration=self.hook,
                left_out=self.left_out,
            )
        return _Fitted(chosen, features, found)

    def _features(self, chosen: Basis) -> Features:
        kernel, has_bias = self.chooser.kernel, bool(np.isfinite(self.fit.bias_penalty))
        if self.fit.regularizer == "coef":
            return Features(PlainBasis(kernel, chosen.points(kernel)), has_bias)
        basis = chosen.whitened(kernel, np.inf)
        return Features(basis, has_bias, in_state=basis.in_state)


@dataclass
class _Fitted:
    chosen: Basis
    features: Features
    path: NewtonPath

    @property
    def solution(self) -> NewtonSolution:
        return self.path.solutions[-1]

    def error(self, task: _Task) -> float:
        """Mean loss of the left-out decision values."""
        assert self.path.left_out is not None
        Y, weight = task.blocks.targets_of(np.arange(task.blocks.n_rows))
        weight = np.ones(len(Y)) if weight is None else weight
        side = Y if task.fit.margin else 1.0
        slack = side * (Y - self.path.left_out)
        return float(weight @ task.fit.loss.value(slack).sum(axis=1) / weight.sum())


class ReducedMachine(BasisMachine):
    """Choose a basis; Newton's method for a smooth loss on it."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BasisMachine._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "loss": [str, HasMethods(["value"])],
        "regularizer": [StrOptions({"rkhs", "coef"})],
        "delta": [Interval(Real, 0, None, closed="neither"), None],
    }

    _fits_where_rows_are = True

    _fits_sources = True

    fit_report_: dict[str, Any]
    _margin: ClassVar[bool]  # classification
    _losses: ClassVar[tuple[str, ...]]

    def _rows_and_targets(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, Any]:
        raise NotImplementedError

    def _loss(self, **parameters: float | None) -> Loss:
        """Return the loss object, or say why Newton's method cannot use it."""
        if not isinstance(self.loss, str):
            check_loss(self.loss)
            if not (self._margin or getattr(self.loss, "symmetric", False)):
                raise ValueError(f"loss={self.loss!r} is not symmetric, as regression needs.")
            return self.loss
        if self.loss in _KINKED:
            raise ValueError(
                f"loss={self.loss!r} does not work with Newton's method: it lacks a second "
                f"derivative. Use {_KINKED[self.loss]}, which comes as close to it as you like."
            )
        if self.loss not in self._losses:
            names = ", ".join(map(repr, self._losses))
            raise ValueError(f"loss must be one of {names} or a Loss, got {self.loss!r}.")
        task = "classification" if self._margin else "regression"
        return get_loss(self.loss, task, **parameters)

    def _loss_parameters(self, n_rows: int) -> dict[str, float | None]:
        return {"delta": self.delta}

    def _fit_reduced(
        self, rows: Rows, y: Any, *, calibrate: Callable[[MergedRows, Array], None] | None = None
    ) -> None:
        """Fit on all rows; ``calibrate`` gets the merged rows and left-out decision values."""
        self._forget("calibration_scale_")
        X = rows.X
        task, selector, size, merged, context = self._begin(rows, y, calibrate is not None)
        path = np.array([float(self.C)])
        fitted = self._solve(task, selector, size, path)
        self._set_fitted(X, fitted, fitted.solution)
        self._report(task, fitted, X, fitted.solution)
        if not fitted.solution.converged:
            self._warn(fitted.solution)
        if calibrate is not None:
            assert merged is not None and fitted.path.left_out is not None
            calibrate(merged, fitted.path.left_out)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})

    def _fit_path(self, X: Any, y: Any, path: Array, sample_weight: Any) -> list[Any]:
        """Return copies of this estimator, fitted at every C of the path on one basis."""
        self._validate_params()
        if getattr(self, "calibrate", False):
            raise ValueError("calibrate=True is not available along a path of C: fit at one C.")
        rows, y = self._rows_and_targets(X, y, sample_weight)
        X = rows.X
        task, selector, size, _, context = self._begin(rows, y, False)
        if self._is_auto(selector):
            raise ValueError("n_basis='auto' depends on C: give a number for a path of C.")
        fitted = task.solve(selector, size, path)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        models = []
        for C, solution in zip(path, fitted.path.solutions, strict=True):
            model = copy(self).set_params(C=float(C))
            model._set_fitted(X, fitted, solution)
            model._report(task, fitted, X, solution)
            if not solution.converged:
                model._warn(solution)
            models.append(model)
        return models

    def _begin(
        self, rows: Rows, y: Any, calibrated: bool
    ) -> tuple[_Task, Any, int, MergedRows | None, Any]:
        """Resolve parameters into a task."""
        X: Any = rows.X
        if float(self.C) < 1e-300:
            raise ValueError(f"C={self.C!r} is too small: it must be finite, and so must 1 / C.")
        if self.kernel == "precomputed":
            check_kernel_matrix(X)
        loss = self._loss(**self._loss_parameters(X.shape[0]))
        selector = resolve_basis(self.basis, X.shape[1], X.shape[0], self.kernel == "precomputed")
        left_out = calibrated or self._is_auto(selector)
        budget, merged = resolve_cache_size(self.cache_size), None
        if left_out:  # copies of a row are left out together: the first one stands for all
            merged, rows = rows.merged(budget)
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        size, outputs = self._size(selector, rows.n_positive), rows.n_outputs
        blocks = rows.blocks(3 * (size + outputs + 1), budget)
        fit = Fit(float(self.C), self._bias_penalty(), loss, self.regularizer, self._margin, refit)
        step = iteration_hook(self, context, "basis-point")
        chooser = Chooser(
            self._resolve_kernel(blocks),
            self.select_on,
            blocks.state_budget(self.cache_size),
            self.random_state,
            fit,
            None if step is None else lambda k: step(k, 0.0),
        )
        hook = iteration_hook(self, context, "newton-iteration")
        task = _Task(
            blocks, chooser, Phases(), fit, outputs, self.tol, self.max_iter, hook, left_out
        )
        return task, selector, size, merged, context

    def _solve(self, task: _Task, selector: Any, size: int, path: Array) -> _Fitted:
        if not self._is_auto(selector):
            return task.solve(selector, size, path)
        return grow(
            lambda k: task.solve(selector, k, path),
            size,
            lambda found: found.features.basis.size,
            lambda found: found.error(task),
        )

    def _warn(self, solution: NewtonSolution) -> None:
        warnings.warn(
            f"{type(self).__name__}: Newton's method ended after {solution.n_iter} iterations at a "
            f"relative gradient of {solution.residual:.1e} and a relative duality gap of "
            f"{solution.gap:.1e} (tol={self.tol:g}). Increase max_iter or tol, lower C, or use a "
            f"smoother loss (a larger delta, a smaller p).",
            ConvergenceWarning,
            stacklevel=4,
        )

    # ------------------------------------------------------------------ fitted attributes

    def _set_fitted(self, X: Any, fitted: _Fitted, solution: NewtonSolution) -> None:
        basis, has_bias = fitted.features.basis, fitted.features.has_bias
        order = np.argsort(basis.kept)  # that of the choice, not that of the factor's pivots
        self.support_ = fitted.chosen.support(basis)[order]
        pairwise = self.kernel == "precomputed"
        self.support_vectors_ = (
            np.empty((0, 0), X.dtype) if pairwise else rows_at(basis.points, order)
        )
        self.dual_coef_ = np.ascontiguousarray(basis.coefficients(solution.theta)[order].T)
        outputs = solution.theta.shape[1]
        self.intercept_ = solution.theta[-1].copy() if has_bias else np.zeros(outputs)
        self.n_support_ = basis.size
        self.n_iter_ = solution.n_iter
        self.objective_ = solution.objective
        self.C_ = float(self.C)

    def _report(self, task: _Task, fitted: _Fitted, X: Any, solution: NewtonSolution) -> None:
        self.fit_report_ = {
            "solver": "newton",
            "objective": solution.objective,
            "residual": solution.residual,
            "gap": solution.gap,
            "iterations": solution.n_iter,
            "converged": solution.converged,
            "history": solution.history,
            "rows": X.shape[0],
            "basis": fitted.features.basis.size,
            "dropped": fitted.chosen.rows.shape[0] - fitted.features.basis.size,
            "outputs": task.outputs,
            "kernel_kept": fitted.features.keep,
            "bytes": fitted.path.n_bytes,
            "selection": fitted.chosen.report,
            "seconds": task.phases.seconds,
        }
