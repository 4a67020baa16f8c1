"""The least-squares machine on a small basis: how its points are chosen and its rows summed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from leansvm.basis import Fit, RandomBasis
from leansvm.basis.choose import Basis, points_of_before
from leansvm.estimators.basis_machine import BasisData, BasisMachine
from leansvm.estimators.kernel_machine import FittedKernel, KernelMachine
from leansvm.estimators.machine import BASIS_CONSTRAINTS, Run
from leansvm.estimators.mergeable import Mergeable
from leansvm.estimators.training_data import TrainingData
from leansvm.kernels import Kernel
from leansvm.newton.refit import refit
from leansvm.ridge.kfold import KFoldSums
from leansvm.ridge.primal import Criterion
from leansvm.ridge.sparse import SparseProblem, SummedBasis
from leansvm.rows import RowBlocks
from leansvm.solution import Solution, Support

_PILOT_SIZE = 100  # basis points of the pilot fit that finds a C for selectors that need one


class SparseMachine(BasisMachine, Mergeable):
    """Choose a basis, add up the rows once, solve the small system."""

    _scores_lists_by = "loo"
    _last_size = 8000  # on a fast device; half of it elsewhere

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: rule
            for name, rule in KernelMachine._parameter_constraints.items()
            if name not in ("tol", "max_iter")
        },
        **BASIS_CONSTRAINTS,
        "C": [*KernelMachine._parameter_constraints["C"], StrOptions({"kfold"}), KFoldSums],
        "warm_start": ["boolean"],
        "keep_state": ["boolean", None],
    }

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        work, summed = self._work(n_rows), "sizes" if self.n_basis == "auto" else "sums"
        return super()._planned(n_rows, n_features) | {summed: work, "solve": 0.3 * work}

    def _grow(self, data: BasisData, kernel: FittedKernel, run: Run) -> SummedBasis:
        problem = self._problem(data, kernel.kernel, run.criterion)
        options, there = {}, 0
        if self.warm_start and "support_" in vars(self):
            options["earlier"] = self._earlier_basis(data.rows)
            there = options["earlier"].rows.shape[0]
        chooser = self._chooser(data, problem, run, **options)
        if data.auto:
            return problem.sized(chooser, data.selector, data.size, there)
        return problem.summed(chooser, data.size)

    def _solve(self, data: BasisData, basis: SummedBasis, run: Run) -> Solution:
        assert basis.problem is not None
        return basis.problem.solve(basis)

    def _problem(self, data: BasisData, kernel: Kernel, criterion: Criterion) -> SparseProblem:
        folds, rows = criterion.folds, None
        if folds is not None and folds.groups is not None:  # copies may be in several groups
            rows = data.blocks(3 * (data.size + data.n_outputs + 1), data.budget)
        return SparseProblem(
            data.rows,
            kernel,
            self._bias_penalty(),
            criterion,
            data.count,
            data.budget,
            1 if folds is None else folds.count(data.X.shape[0]),
            rows,
        )

    def _pilot(self, data: BasisData, problem: SparseProblem, run: Run) -> Fit:
        C = problem.criterion.C
        if np.ndim(C) == 1:
            pilot = replace(problem, criterion=replace(problem.criterion, left_out=False))
            chooser = self._chooser(data, problem, run, RandomBasis())
            C = pilot.solve(pilot.summed(chooser, min(_PILOT_SIZE, data.n_positive))).C
        return Fit(float(C), problem.bias_penalty, refit=refit)

    def _basis_attributes(
        self, data: TrainingData, basis: SummedBasis, solution: Solution
    ) -> dict[str, Any]:
        support = Support.of(basis.basis, solution.features)
        found = self._support_attributes(data, support, solution)
        found |= {"_features": solution.features, "_sums": solution.sums}
        return found | {"_selected": basis.basis.indices, "n_rows_seen_": data.X.shape[0]}

    def _earlier_basis(self, blocks: RowBlocks) -> Basis:
        """Return the basis of the fit before, in the order of choice."""
        if self.kernel != "precomputed":
            if self.support_vectors_.shape[1] != blocks.n_features:
                raise ValueError(
                    f"warm_start=True: X has {blocks.n_features} features, the basis of the fit "
                    f"before {self.support_vectors_.shape[1]}."
                )
            return points_of_before(blocks, self.support_, self.support_vectors_)
        if self.support_.max() >= blocks.n_rows:
            raise ValueError(
                "warm_start=True: the kernel matrix has fewer rows than that of the fit before."
            )
        return Basis(self.support_, blocks.take(self.support_))
