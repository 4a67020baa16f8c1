"""The fit and partial_fit that SparseLSSVC and SparseLSSVR share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from leansvm._array_api import moved, to_host
from leansvm._parallel import serial_blas
from leansvm.basis import BasisSelector, Fit, RandomBasis
from leansvm.basis.choose import FIRST_SIZE, resolve_basis
from leansvm.blocks import MergedRows, RowBlocks, resolve_cache_size
from leansvm.cholesky.rows import factor_rows
from leansvm.estimators._base import Array, Phases, iteration_hook
from leansvm.estimators._basis_machine import BasisMachine, grow
from leansvm.estimators._dual import check_kernel_matrix
from leansvm.estimators._rows import Rows, SourceRows
from leansvm.estimators._sparse_fit import Basis, Chooser, PrimalSolution, solve_on_basis
from leansvm.solvers import primal
from leansvm.solvers.refit import refit

_SHIFT_ROWS = 256  # rows whose means shift the sums
_PILOT_SIZE = 100  # basis points of the pilot fit that finds a C for selectors that need one
_SMALL_SYSTEM = 512  # unknowns that one thread solves for in no time
_FLOAT32_LOSS = 1e-3  # of the spread of y; more, and float32 rows are added up in float64

Finish = Callable[[RowBlocks, MergedRows, Array], None]


@dataclass
class _Task:
    """Everything that stays the same while basis sizes are tried."""

    blocks: RowBlocks
    chooser: Chooser
    phases: Phases
    bias_penalty: float
    C: float | Array
    criterion: str
    loo: bool
    count: float | None

    def solve(self, selector: Any, size: int) -> _Fitted:
        """Choose ``size`` points, add up the rows and solve."""
        with serial_blas():  # small products between passes over tiles
            with self.phases("select"):
                chosen = self.chooser(self.blocks, selector, size)
            with self.phases("factor"):
                basis = chosen.whitened(self.chooser.kernel, self.bias_penalty)
        basis.single = self._may_use_float32(basis)
        fitted = self._add_up_and_solve(chosen, basis)
        lost = basis.rounding_of(fitted.solution.alpha) if basis.single else 0.0
        basis.single = False
        if lost > _FLOAT32_LOSS * fitted.sums.spread_of_targets():
            return self._add_up_and_solve(chosen, basis)
        return fitted

    def _may_use_float32(self, basis: primal.WhitenedBasis) -> bool:
        """Whether float32 rows can be whitened as they are: no pivot that magnifies rounding."""
        if basis.in_state or not self.blocks.is_float32 or self.chooser.kernel.precomputed:
            return False
        pivots = basis.L.diagonal()
        return bool(pivots.min() > 0.01 * pivots.max())

    def _add_up_and_solve(self, chosen: Basis, basis: primal.WhitenedBasis) -> _Fitted:
        keep, free_bias = self._keeps_features(basis), self.bias_penalty == 0
        with self.phases("sums"), serial_blas():
            sums = add_up_blocks(self.blocks, basis, free_bias, self.count, keep)
        # BLAS threads that wake for a small system would still spin in the next fit
        small = sums.gram.shape[0] <= _SMALL_SYSTEM
        with self.phases("solve"), serial_blas() if small else nullcontext():
            solution = solve_on_basis(
                self.blocks,
                basis,
                sums,
                free_bias=free_bias,
                C=self.C,
                criterion=self.criterion,
                loo=self.loo,
            )
        if keep:
            self.blocks.map(primal.drop_rows_of_Z)
        return _Fitted(chosen, basis, sums, solution)

    def _keeps_features(self, basis: primal.WhitenedBasis) -> bool:
        """Whether rows of Z are kept: leave-one-out reads them again, and they fit the budget."""
        needed = 8 * self.blocks.n_rows * (basis.width * (1 + basis.in_state) + 2)
        return self.loo and 2 * needed <= self.chooser.budget


@dataclass
class _Fitted:
    chosen: Basis
    basis: primal.WhitenedBasis
    sums: primal.Sums
    solution: PrimalSolution


def add_up_blocks(
    blocks: RowBlocks,
    basis: primal.WhitenedBasis,
    free_bias: bool,
    count: float | None = None,
    keep: bool = False,
) -> primal.Sums:
    """Add up all rows, shifted by the means of the first ones when the bias is free."""
    shift = first_shift(blocks, basis, free_bias)
    return primal.add_up(blocks, basis, shift, len(shift) - basis.width, count, keep)


def first_shift(blocks: RowBlocks, basis: primal.WhitenedBasis, free_bias: bool) -> Array:
    """Return the means of the first rows that count."""
    first = np.arange(min(blocks.n_rows, _SHIFT_ROWS))
    Y, weight = blocks.targets_of(first)
    if weight is not None and weight.any():
        first, Y = first[weight > 0], Y[weight > 0]
    if basis.in_state and free_bias:  # as it is known already
        Phi = to_host(factor_rows(blocks, first, basis.size)).mean(axis=0)
        return np.concatenate([Phi, Y.mean(axis=0)])
    return primal.choose_shift(basis, blocks.take(first), Y, free_bias)


class SparseMachine(BasisMachine):
    """Choose a basis, add up the rows once, solve the small system."""

    _fits_where_rows_are = True
    _fits_sources = True

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: rule
            for name, rule in BasisMachine._parameter_constraints.items()
            if name not in ("tol", "max_iter")
        },
        "warm_start": ["boolean"],
    }

    _fitted_basis: primal.WhitenedBasis
    _fitted_sums: primal.Sums
    _selected: Any  # rows in the order in which they were chosen
    n_rows_seen_: int
    fit_report_: dict[str, Any]

    # ------------------------------------------------------------------ fit

    def _fit_sparse(
        self, rows: Rows, y: Any, finish: Finish | None = None, *, calibrate: bool = False
    ) -> None:
        """Fit on all rows; ``finish`` gets the rows, those merged and left-out residuals."""
        X: Any = rows.X
        self._forget("cv_curve_", "loo_residuals_", "calibration_scale_")
        if self.kernel == "precomputed":
            check_kernel_matrix(X)
        candidates, criterion = self._candidates_of_C()
        loo = calibrate or (candidates is not None and criterion == "loo")
        budget, merged = resolve_cache_size(self.cache_size), None
        if loo:  # copies of a row are left out together: the first one stands for all
            merged, rows = rows.merged(budget)
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        n_rows = rows.n_positive
        selector = resolve_basis(self.basis, X.shape[1], X.shape[0], self.kernel == "precomputed")
        size = self._size(selector, n_rows)
        blocks = rows.blocks(3 * (size + rows.n_outputs + 1), budget)
        hook = iteration_hook(self, context, "basis-point")
        chooser = Chooser(
            self._resolve_kernel(blocks),
            self.select_on,
            blocks.state_budget(self.cache_size),
            self.random_state,
            on_step=None if hook is None else lambda k: hook(k, 0.0),
        )
        chooser.earlier = self._earlier_basis(blocks)
        C = self.C if candidates is None else candidates
        if len(np.atleast_1d(C)) > 1 and n_rows < 2:
            raise ValueError(
                f"C={self.C!r} needs two distinct rows of positive weight, got n_samples={n_rows}; "
                f"give C as a number."
            )
        if self._is_auto(selector):  # sizes are compared by the criterion
            C = np.atleast_1d(C)
        task = _Task(blocks, chooser, Phases(), self._bias_penalty(), C, criterion, loo, rows.count)
        self._choose_C_for_selector(task, selector, n_rows)
        if self._is_auto(selector):
            there = 0 if chooser.earlier is None else chooser.earlier.rows.shape[0]
            fitted = grow(
                lambda k: task.solve(selector, k),
                size,
                lambda found: found.basis.size,
                lambda found: found.solution.error,
                first=max(FIRST_SIZE, there),
            )
        else:
            fitted = task.solve(selector, size)
        self._set_fitted(X, fitted)
        self._report(task, fitted, X)
        if merged is not None and finish is not None:
            assert fitted.solution.loo is not None
            finish(blocks, merged, fitted.solution.loo)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})

    def _earlier_basis(self, blocks: RowBlocks) -> Basis | None:
        """Return the basis of the fit before, in the order of choice; None to start anew."""
        if not self.warm_start or not hasattr(self, "_fitted_basis"):
            return None
        if self.kernel != "precomputed":
            if self.support_vectors_.shape[1] != blocks.n_features:
                raise ValueError(
                    f"warm_start=True: X has {blocks.n_features} features, the basis of the fit "
                    f"before {self.support_vectors_.shape[1]}."
                )
            return Basis(self.support_, self.support_vectors_, None, {})
        if self.support_.max() >= blocks.n_rows:
            raise ValueError(
                "warm_start=True: the kernel matrix has fewer rows than that of the fit before."
            )
        return Basis(self.support_, blocks.take(self.support_), None, {})

    def _choose_C_for_selector(self, task: _Task, selector: Any, n_rows: int) -> None:
        """Selectors defined by the objective need a C: that of a pilot fit on a random basis."""
        if not (isinstance(selector, BasisSelector) and selector.uses_targets):
            return
        C = task.C
        if np.ndim(C) == 1:
            pilot = replace(task, criterion="gcv", loo=False)
            C = pilot.solve(RandomBasis(), min(_PILOT_SIZE, n_rows)).solution.C
        task.chooser.fit = Fit(float(C), task.bias_penalty, refit=refit)

    # ------------------------------------------------------------------ partial_fit

    def _left_out(self, rows: Rows, blocks: RowBlocks, merged: MergedRows, loo: Array) -> Array:
        """Left-out residuals of all rows, from those of the rows that stand for them."""
        return self._loo_of_all_rows(rows.X, rows.targets(), merged, loo[merged.first], blocks)

    def _partial_fit_sparse(self, rows: Rows, y: Any) -> None:
        candidates, criterion = self._candidates_of_C()
        if candidates is not None and criterion == "loo":
            raise ValueError(
                "partial_fit: C='loo' needs a second pass over all rows; use C='gcv' or a number."
            )
        if not hasattr(self, "_fitted_sums"):
            self._fit_sparse(rows, y)
            return
        basis, sums = self._fitted_basis, self._fitted_sums
        if not basis.kernel.precomputed:
            elsewhere = isinstance(rows, SourceRows)
            basis.points = to_host(basis.points) if elsewhere else moved(basis.points, rows.X)
        outputs = rows.n_outputs
        if outputs != sums.n_outputs:
            raise ValueError(
                f"partial_fit: y has {outputs} target columns, earlier batches {sums.n_outputs}."
            )
        self._forget("cv_curve_", "loo_residuals_", "calibration_scale_")
        blocks = rows.blocks(3 * (basis.width + outputs + 1))
        sums = sums + primal.add_up(blocks, basis, sums.shift, outputs, rows.count)
        solution = solve_on_basis(
            blocks,
            basis,
            sums,
            free_bias=self._bias_penalty() == 0,
            C=self.C if candidates is None else candidates,
            criterion=criterion,
            loo=False,
        )
        self._fitted_sums = sums
        self._set_solution(solution)
        self.n_rows_seen_ += rows.X.shape[0]
        self.fit_report_ = {
            **self.fit_report_,
            "objective": solution.objective,
            "residual": solution.residual,
            "rows": self.n_rows_seen_,
        }

    # ------------------------------------------------------------------ fitted attributes

    def _set_fitted(self, X: Any, fitted: _Fitted) -> None:
        # in the order in which the points were chosen, not that of the factor's pivots
        self._order = np.argsort(fitted.basis.kept)
        self.support_ = fitted.chosen.support(fitted.basis)[self._order]
        if self.kernel == "precomputed":
            self.support_vectors_ = np.empty((0, 0), X.dtype)
        else:
            self.support_vectors_ = primal.take_points(fitted.basis.points, self._order)
        fitted.basis.in_state = False
        self._fitted_basis, self._fitted_sums = fitted.basis, fitted.sums
        self._selected = fitted.chosen.indices
        self.n_rows_seen_ = X.shape[0]
        self.n_iter_ = 1
        self._set_solution(fitted.solution)

    def _set_solution(self, solution: PrimalSolution) -> None:
        self.dual_coef_ = np.ascontiguousarray(solution.alpha[self._order].T)
        self.intercept_ = solution.b
        self.C_ = solution.C
        self.objective_ = solution.objective
        self.n_support_ = len(self.dual_coef_[0])
        if solution.curve is not None and not isinstance(self.C, Real):
            self.cv_curve_ = solution.curve

    def _report(self, task: _Task, fitted: _Fitted, X: Any) -> None:
        size, outputs = fitted.basis.width, fitted.sums.n_outputs
        state = 8 * X.shape[0] * size * (fitted.chosen.L is not None)
        self.fit_report_ = {
            "solver": "primal",
            "objective": fitted.solution.objective,
            "residual": fitted.solution.residual,
            "iterations": 1,
            "converged": True,
            "rows": X.shape[0],
            "basis": fitted.basis.size,
            "dropped": fitted.chosen.rows.shape[0] - fitted.basis.size,
            "outputs": outputs,
            "bytes": state + 8 * 4 * (size + outputs + 1) ** 2,
            "selection": fitted.chosen.report,
            "seconds": task.phases.seconds,
        }
