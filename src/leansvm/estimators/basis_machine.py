"""Machines on a small basis: which rows count, how many points, and who chooses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from leansvm.basis import BasisSelector, Fit
from leansvm.basis.choose import LAST_SIZE, Basis, basis_size, choose, resolve_basis
from leansvm.estimators.kernel_machine import FittedKernel, KernelMachine
from leansvm.estimators.machine import Run
from leansvm.estimators.training_data import TrainingData
from leansvm.rows import NoRows, RowBlocks, resolve_cache_size


@dataclass(frozen=True)
class BasisData(TrainingData):
    """The rows of a fit in blocks, and what the parameters of the basis mean for them."""

    rows: RowBlocks = field(
        default_factory=lambda: NoRows(0)
    )  # equal rows are merged where rows are left out
    selector: Any = None  # a selector, row numbers or points
    size: int = 0  # number of points, or the most there may be
    auto: bool = False  # whether the number is to be found
    budget: int = 0  # bytes that blocks may keep


class BasisMachine(KernelMachine):
    """Choose a basis, then solve on it; all rows count in the loss."""

    _fits_where_rows_are = True
    _fits_sources = True
    _last_size: ClassVar[int] = LAST_SIZE  # the largest that n_basis="auto" tries

    @property
    def _seed(self) -> Any:
        return self.random_state

    def _counted(self, data: TrainingData, run: Run) -> BasisData:
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
        compares = np.ndim(criterion.C) == 1 and not run.is_path
        if (compares or criterion.left_out) and used.n_positive < 2:
            self._refuse_one_row(used)
        blocks = used.blocks(3 * (size + data.n_outputs + 1), budget)
        budget = blocks.state_budget(self.cache_size)
        # weights as given: copies of a row may be in other folds
        known = {**vars(used), "weight": data.weight}
        return BasisData(
            **known, rows=blocks, selector=selector, size=size, auto=auto, budget=budget
        )

    def _work(self, n_rows: int) -> float:
        """Return the work of one pass over the rows for all points, in units of `_planned`."""
        points = 1000.0 if self.n_basis == "auto" else float(self.n_basis)
        points = min(points * (n_rows if points < 1 else 1), n_rows)
        return 1.3e-9 * n_rows * points**2

    def _learn_kernel(
        self, data: Any, run: Run | None, most_points: int | None = None, table: Any = None
    ) -> FittedKernel:
        size, table = None if data.auto else data.size, data.attributes.get("table_")
        return super()._learn_kernel(data.rows, run, size, table)

    def _chooser(
        self, data: BasisData, problem: Any, run: Run, selector: Any = None, **options: Any
    ) -> Callable[[int], Basis]:
        """Return the function that chooses so many points, by the user's selector or another."""
        selector = data.selector if selector is None else selector
        if isinstance(selector, BasisSelector) and selector.uses_targets:
            options["fit"] = self._pilot(data, problem, run)
        return partial(
            choose,
            data.rows,
            problem.kernel,
            selector,
            select_on=self.select_on,
            budget=data.budget,
            random_state=self.random_state,
            on_step=run.hook("basis-point", 1.0, data.size),
            **options,
        )

    def _pilot(self, data: BasisData, problem: Any, run: Run) -> Fit:
        """Return the fit that a selector's objective is about: C is that of a random basis."""
        raise NotImplementedError
