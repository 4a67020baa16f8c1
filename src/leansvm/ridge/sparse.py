"""SparseLSSVC's problem: a basis of given size, or one as large as it pays.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2  over w in the span of k(x_j, .),
j in B (P-LSSVM; zhou2016, eqs. (9), (11)), in the whitened basis and from sums over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from leansvm._accelerated import doubles_are_fast
from leansvm._array_api import namespace, to_host
from leansvm._parallel import blas_for, serial_blas
from leansvm._phases import Phases
from leansvm.basis.features import KernelFeatures, product_rounding, whiten
from leansvm.kernels import Kernel
from leansvm.ridge import primal
from leansvm.ridge.kfold import FoldSums, KFoldSums, add_up_folds, fold_errors
from leansvm.ridge.nested import FIRST_SIZE, climb, grow, open_ladder
from leansvm.ridge.primal import Criterion
from leansvm.ridge.sums import Sums, add_up, drop_rows_of_Z, first_shift
from leansvm.rows import RowBlocks, check_points, points_within
from leansvm.solution import Solution, first_of_the_best

_MATRICES = 7  # r x r at a time: the factor, sums and those on their way, work space
_FLOAT32_LOSS = 1e-3  # of the spread of y; more, and float32 rows are added up in float64


class SparseFit(NamedTuple):
    """A basis with its features, the sums over the rows and the solution they lead to."""

    basis: Any  # `leansvm.basis.Basis`
    features: KernelFeatures
    sums: Sums | FoldSums
    solution: Solution


@dataclass(frozen=True)
class SparseProblem:
    """Everything that stays the same while basis sizes are tried."""

    blocks: RowBlocks
    kernel: Kernel
    bias_penalty: float
    criterion: Criterion
    count: float | None  # samples that GCV counts; None for the sum of weights
    budget: int  # bytes that blocks may keep
    folds: int = 1  # whose sums are kept apart
    unmerged: RowBlocks | None = None  # rows of groups: equal ones may be in several
    phases: Phases = field(default_factory=Phases)

    def solve(self, choose: Callable[[int], Any], size: int) -> SparseFit:
        """Choose ``size`` points, add up the rows and solve."""
        check_points(size, self.budget, _MATRICES * self.folds)
        with serial_blas():  # small products between passes over tiles
            with self.phases("select"):
                basis = choose(size)
            with self.phases("factor"):
                features = self._whitened(basis)
        found = self._add_up_and_solve(basis, features)
        if features.single:
            eps = product_rounding(features.points)
            lost = features.rounding_of(found.solution.coef, eps)
            sums = found.sums if isinstance(found.sums, Sums) else found.sums.total()
            if lost > _FLOAT32_LOSS * sums.spread_of_targets():
                found = self._add_up_and_solve(basis, replace(features, single=False))
        return found

    def _whitened(self, basis: Any) -> KernelFeatures:
        """Factor K_BB; float32 rows stay so unless a small pivot would magnify rounding."""
        penalty, in_state = self.bias_penalty, basis.L is not None
        constant = 1.0 / np.sqrt(penalty) if 0 < penalty < np.inf else None
        features = whiten(
            self.kernel,
            basis.rows,
            basis.points(self.kernel),
            basis.L,
            constant=constant,
            in_state=in_state,
        )
        single = str(self.blocks.dtype).endswith("float32")  # in whatever library
        if in_state or not single or self.kernel.precomputed:
            return features
        assert features.L is not None
        if not isinstance(features.L, np.ndarray) and doubles_are_fast(features.L):
            return features  # nothing to gain
        pivots = np.asarray(to_host(namespace(features.L).linalg.diagonal(features.L)))
        clear = pivots.min(initial=np.inf) > 0.01 * pivots.max(initial=0.0)  # or none at all
        return replace(features, single=bool(clear))

    def _add_up_and_solve(
        self,
        basis: Any,
        features: KernelFeatures,
        sums: Sums | FoldSums | None = None,
        dropped: int | None = None,
    ) -> SparseFit:
        """Add up the rows, unless their sums are known, and solve the small system."""
        blocks, free_bias, by = self.blocks, self.bias_penalty == 0, self.criterion
        if basis.indices is not None:
            chosen = basis.indices[features.kept]
            by = replace(by, basis_rows=chosen[chosen >= 0])
        # leave-one-out reads the rows of Z again: keep them if they fit
        needed = 8 * blocks.n_rows * (features.width * (1 + features.in_state) + 2)
        matrices = 8 * _MATRICES * self.folds * features.width**2
        keep = by.left_out and 2 * (needed + matrices) <= self.budget
        if sums is None:
            with self.phases("sums"), serial_blas():
                shift = first_shift(blocks, features, free_bias)
                if by.name == "kfold":
                    rows = blocks if self.unmerged is None else self.unmerged
                    sums = add_up_folds(rows, features, shift, self.count, by.folds)
                else:
                    there = blocks.place is not None
                    sums = add_up(blocks, features, shift, self.count, keep, there)
        with self.phases("solve"), blas_for(features.width):
            if isinstance(sums, Sums):
                solution = primal.solve(blocks, features, sums, free_bias, by)
            else:
                solution = solve_folds(blocks, features, sums, free_bias, by)
        if keep:
            blocks.map(drop_rows_of_Z)
        held = needed if keep else 8 * blocks.n_rows * features.width * features.in_state
        solution.bytes = held + 8 * 4 * (features.width + 2) ** 2
        solution.seconds = self.phases.seconds
        lost = basis.rows.shape[0] - features.size if dropped is None else dropped
        solution.details |= {"dropped": lost, "selection": basis.report}
        features = replace(features, in_state=False, single=False, keep=False)
        return SparseFit(basis, features, sums, solution)

    def find_size(
        self, choose: Callable[[int], Any], selector: Any, largest: int, there: int
    ) -> SparseFit:
        """Choose a basis as large as it pays, by leave-one-out, whatever scores C.

        Sizes of a nested basis that costs nothing to choose are compared at once; others double
        from the points that are ``there`` already.
        """
        largest = min(largest, max(points_within(self.budget, _MATRICES * self.folds), 1))
        if selector.nested and not there and not selector.state_columns(largest):
            return self.solve_lean(choose, largest)
        C = np.atleast_1d(np.asarray(self.criterion.C, dtype=np.float64))
        by_loo = replace(self, criterion=Criterion(C, "loo", left_out=True))
        found = grow(partial(by_loo.solve, choose), max(FIRST_SIZE, there), largest)
        if self.criterion.name == "loo" or not np.ndim(self.criterion.C):
            return found
        return self.solve(choose, max(found.features.size, 1))  # all may have been dropped

    def solve_lean(self, choose: Callable[[int], Any], largest: int) -> SparseFit:
        """Find the smallest of nested bases that is nearly as good as any, and solve on it."""
        with self.phases("select"):
            basis = choose(largest)
        ladder = open_ladder(
            self.blocks, self.kernel, basis.rows, self.bias_penalty, self.budget, basis.indices
        )
        candidates = np.atleast_1d(np.asarray(self.criterion.C, dtype=np.float64))
        with self.phases("sizes"), serial_blas():
            size, compared = climb(ladder, candidates)
            features, sums = ladder.cut(size, self.count)
        lost = ladder.points.taken - ladder.features.size
        known = sums if self.criterion.name != "kfold" else None
        found = self._add_up_and_solve(basis, features, known, lost)
        self.blocks.map(drop_rows_of_Z)
        found.solution.details["sizes"] = compared
        return found


def add_batch(
    blocks: RowBlocks,
    features: KernelFeatures,
    before: Sums | FoldSums,
    count: float | None,
    criterion: Criterion,
    budget: int,
) -> Sums | FoldSums:
    """Add more rows to sums; where folds begin later, the rows so far are in none of them.

    Folds that are groups do not go on: they are refused where they choose C, else forgotten.
    """
    before, by_folds = before.on_host(), criterion.name == "kfold"
    if not by_folds and (isinstance(before, Sums) or before.by_groups):
        check_memory(features.width, budget, 1)
        return before.total() + add_up(blocks, features, before.shift, count)
    folds = _more_folds(before, criterion.folds)
    number = folds.count(blocks.n_rows)
    check_memory(features.width, budget, number)
    if isinstance(before, Sums):
        before = FoldSums.after(before, number)
    return before + add_up_folds(blocks, features, before.shift, count, folds)


def _more_folds(before: Sums | FoldSums, asked: KFoldSums | None) -> KFoldSums:
    """Return the folds that more rows go into: as many as there are, by a hash of the rows."""
    there, of_groups = None, asked is not None and asked.groups is not None
    if isinstance(before, FoldSums):
        there, of_groups = len(before.grams), of_groups or before.by_groups
    if of_groups:
        raise ValueError(
            "partial_fit: folds of groups do not go on from batch to batch, as it is not known "
            "where earlier rows of a group are. Call fit on all rows with all their groups, or set "
            "C to a number or 'gcv'."
        )
    if asked is None:
        return KFoldSums() if there is None else KFoldSums(there)
    if there is not None and asked.n_splits != there:
        raise ValueError(
            f"partial_fit: C asks for n_splits={asked.n_splits!r} folds, and the rows so far are "
            f"in {there}. Set C=KFoldSums({there}), or call fit on all rows."
        )
    return asked


def check_memory(points: int, budget: int, folds: int) -> None:
    """Refuse sums of so many points and folds, and the solution from them, beyond the budget."""
    check_points(points, budget, _MATRICES * folds)


def solve_batch(
    blocks: RowBlocks,
    features: KernelFeatures,
    sums: Sums | FoldSums,
    free_bias: bool,
    criterion: Criterion,
) -> Solution:
    """Solve from sums, of which the blocks may hold a part of the rows, or none."""
    if isinstance(sums, Sums):
        return primal.solve(blocks, features, sums, free_bias, criterion)
    return solve_folds(blocks, features, sums, free_bias, criterion)


def solve_folds(
    blocks: RowBlocks,
    features: KernelFeatures,
    sums: FoldSums,
    free_bias: bool,
    criterion: Criterion,
) -> Solution:
    """Solve from the sums of folds, which score the candidates of C where they are to."""
    if criterion.name != "kfold":
        return primal.solve(blocks, features, sums.total(), free_bias, criterion)
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    if np.count_nonzero(sums.grams[:, -1, -1]) + bool(sums.base[-1, -1]) < 2:
        # a batch of a row or two: nothing to leave out yet
        solution = primal.solve(
            blocks, features, sums.total(), free_bias, Criterion(candidates, "gcv")
        )
        solution.details["criterion"] = "gcv"
        return solution
    curve = fold_errors(sums, features, free_bias, candidates)
    best = first_of_the_best(curve)
    chosen = Criterion(float(candidates[best]), left_out=criterion.left_out)
    solution = primal.solve(blocks, features, sums.total(), free_bias, chosen)
    solution.curve, solution.error = curve, float(curve[best])
    solution.details["criterion"] = "kfold"
    return solution
