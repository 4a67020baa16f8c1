"""SparseLSSVC's problem, on a basis of given size, or on one that grows while the error falls.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2  over w in the span of k(x_j, .),
j in B (P-LSSVM; zhou2016, eqs. (9), (11)), in the whitened basis and from sums over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from leansvm._accelerated import doubles_are_fast
from leansvm._array_api import namespace, to_host
from leansvm._parallel import limited_blas
from leansvm._phases import Phases
from leansvm.basis import BasisSelector
from leansvm.basis.choose import Basis
from leansvm.basis.features import KernelFeatures, lost_in_single, whiten
from leansvm.basis.growing import FIRST_SIZE, first_columns, grow
from leansvm.kernels import Kernel
from leansvm.ridge import nested
from leansvm.ridge.bracket import ChosenC
from leansvm.ridge.criteria import draws_rows, rows_inside
from leansvm.ridge.kfold import FoldSums, KFoldSums, add_up_folds
from leansvm.ridge.nested import MOST_LOST, NestedFit, choose_size, start_nested
from leansvm.ridge.primal import Criterion, solve_sums
from leansvm.ridge.sums import FIRST_ROWS, Sums, add_up, drop_rows_of_Z, first_shift
from leansvm.rows import RowBlocks, check_points, draw_for_all, points_within
from leansvm.solution import Solution

_MATRICES = 7  # r x r at a time: the factor, sums and those on their way, work space
_MOST_WORK, _ALWAYS_TRIED = 2.5e11, 2000  # rows x points^2 on a host; points that may cost more
_MOST_POINTS = 4000  # points, but on devices that are fast in double precision
# sizes are compared on all rows where these are so few, otherwise on a sample
_ROWS_COMPARED_WHOLE, _ROWS_COMPARED = 15_000, 10_000
_FLOAT32_LOSS = 1e-3  # of the spread of y, where no left-out error is known


@dataclass(frozen=True)
class SummedBasis:
    """Points in the order of choice, the map to their columns, and the sums over the rows."""

    basis: Basis
    features: KernelFeatures
    sums: Sums | FoldSums
    problem: SparseProblem
    keeps_rows: bool = False  # blocks still hold their rows of Z, which leave-one-out reads again
    dropped: int = 0  # points that depend on others
    sizes: dict[str, Any] | None = None  # sizes that were compared, and their errors
    solution: Solution | None = None  # where comparing sizes has solved at this one
    judged: ChosenC | None = None  # what comparing sizes on all rows has found out


@dataclass(frozen=True)
class SparseProblem:
    """Everything that stays the same while basis sizes are tried.

    A basis is summed over the rows at a given size (`sum_size`), or at the best one
    (`sum_best_size`); `solve` then needs matrices of the size of the basis alone.
    """

    blocks: RowBlocks
    kernel: Kernel
    bias_penalty: float
    criterion: Criterion
    count: float | None  # samples that GCV counts; None for the sum of weights
    budget: int  # bytes that blocks may keep
    folds: int = 1  # whose sums are kept apart
    unmerged: RowBlocks | None = None  # rows of groups: equal ones may be in several
    phases: Phases = field(default_factory=Phases)

    # ------------------------------------------------------------------ a given size

    def sum_size(self, points_of: Callable[[int], Basis], size: int) -> SummedBasis:
        """Choose ``size`` points and add up the rows."""
        check_memory(size, self.budget, self.folds)
        with limited_blas():  # small products between passes over tiles
            with self.phases("select"):
                basis = points_of(size)
            with self.phases("factor"):
                features = self._whitened(basis)
        return self._add_up(basis, features)

    def _whitened(self, basis: Basis) -> KernelFeatures:
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

    def _add_up(self, basis: Basis, features: KernelFeatures) -> SummedBasis:
        """Run over the rows once; blocks keep their rows of Z where leave-one-out needs them."""
        blocks, keep = self.blocks, self._kept_bytes(features.width, features.in_state) > 0
        with self.phases("sums"), limited_blas():
            shift = first_shift(blocks, features, self.bias_penalty == 0)
            sums: Sums | FoldSums
            if self.criterion.name == "kfold":
                rows = blocks if self.unmerged is None else self.unmerged
                sums = add_up_folds(rows, features, shift, self.count, self.criterion.folds)
            else:
                on_device = blocks.place is not None
                sums = add_up(blocks, features, shift, self.count, keep, on_device)
        return SummedBasis(basis, features, sums, self, keep, basis.rows.shape[0] - features.size)

    def _kept_bytes(self, width: int, in_state: bool = False) -> int:
        """Return the bytes of the rows of Z that blocks keep for leave-one-out.

        0 if only a sample is left out, if no left-out residuals are needed, or if they do not fit.
        """
        if not self.criterion.left_out or draws_rows(self.blocks, width):
            return 0
        rows = 8 * self.blocks.n_rows * (width * (1 + in_state) + 2)
        needed = rows + 8 * _MATRICES * self.folds * width**2
        return rows if 2 * needed <= self.budget else 0

    # ------------------------------------------------------------------ the best size

    def sum_best_size(
        self,
        points_of: Callable[[int], Basis],
        selector: BasisSelector,
        largest: int,
        n_earlier: int,
    ) -> SummedBasis:
        """Choose the size of the basis by leave-one-out, also if another criterion chooses C.

        Of a nested basis that costs nothing to choose, such as a random one, all sizes are compared
        in one pass (`nested.choose_size`), and the smallest that is nearly as good as the best is
        taken. Others are chosen again at every size, which doubles (`_double_size`), beginning with
        the ``n_earlier`` points of an earlier fit.
        """
        place = self.blocks.place  # memory and time allow so many points
        largest = min(largest, max(points_within(self.budget, _MATRICES * self.folds), 1))
        if place is None or not doubles_are_fast(place):
            largest = min(largest, _MOST_POINTS)
        if place is None:
            by_work = int(np.sqrt(_MOST_WORK / self.blocks.n_rows))
            largest = min(largest, max(by_work, _ALWAYS_TRIED))
        if not selector.nested or n_earlier or selector.state_columns(largest):
            return self._double_size(points_of, max(FIRST_SIZE, n_earlier), largest)
        with self.phases("select"):
            basis = points_of(largest)
            drawn, blocks = None, self.blocks  # sizes are compared on all rows, or on some for all
            if blocks.n_rows > _ROWS_COMPARED_WHOLE:
                wanted = _ROWS_COMPARED if place is None else max(_ROWS_COMPARED, 4 * largest)
                count = max(min(wanted, self.budget // (128 * max(blocks.n_features, 1))), 1)
                rng = np.random.RandomState(self.criterion.seed)
                drawn = draw_for_all(blocks, count, rng)
                drawn = None if len(drawn.rows) == drawn.n_rows else drawn  # others have no weight
            if drawn is not None:
                blocks = drawn.as_data(blocks, 3 * (largest + 1))
        given = self.kernel, basis.rows, self.bias_penalty, self.budget, basis.indices, drawn
        fit = start_nested(blocks, *given, self.criterion.seed)
        candidates = np.atleast_1d(np.asarray(self.criterion.C, dtype=np.float64))
        by_folds = self.criterion.name == "kfold"
        with self.phases("sizes"), limited_blas():
            size, compared, judged = choose_size(fit, candidates)
            dropped = fit.taken - fit.features.size
            if drawn is not None:
                compared["rows"] = len(drawn.rows)
                compared["note"] = _note(fit, size, compared, self.blocks.n_rows)
                single = fit.in_single and self.blocks.n_rows * size**2 >= nested.WORK_FOR_SINGLE
                features = first_columns(fit.features, size)
                features = replace(features, keep=False, single=single)
            else:
                evaluation = fit.evaluation if fit.evaluation and fit.evaluation.outside else None
                model = judged.model if size == fit.features.size else None
                judged = ChosenC(judged.error, judged.C, model=model, evaluation=evaluation)
                width = size + fit.features.width - fit.features.size
                keeps = by_folds or self._kept_bytes(width) > 0
                features, sums = fit.cut(size, self.count, keeps)
        if drawn is None and not by_folds:
            found = SummedBasis(basis, features, sums, self, keeps, judged=judged)
        else:
            del fit, blocks  # the columns that they keep
            found = self._add_up(basis, features)
            found = replace(found, keeps_rows=drawn is None or found.keeps_rows)
        return replace(found, dropped=dropped, sizes=compared)

    def _double_size(
        self, points_of: Callable[[int], Basis], first: int, largest: int
    ) -> SummedBasis:
        """Choose, sum and solve anew at sizes that double, until that hardly pays."""
        C = np.atleast_1d(np.asarray(self.criterion.C, dtype=np.float64))
        by_loo = replace(self, criterion=Criterion(C, "loo", True, seed=self.criterion.seed))

        def sum_and_solve(size: int) -> SummedBasis:
            summed = by_loo.sum_size(points_of, size)
            return replace(summed, solution=by_loo.solve(summed))

        found = grow(sum_and_solve, first, largest)
        if self.criterion.name == "loo" or not np.ndim(self.criterion.C):
            return found
        return self.sum_size(points_of, max(found.features.size, 1))  # all may have been dropped

    # ------------------------------------------------------------------ solving

    def solve(self, summed: SummedBasis) -> Solution:
        """Solve the small system, unless comparing sizes has done it; let go of the rows of Z.

        Where float32 columns lose too much, the rows are summed again in float64, then solved.
        """
        if summed.solution is not None:
            return summed.solution
        basis, features, by = summed.basis, summed.features, self.criterion
        if basis.indices is not None:
            chosen = basis.indices[features.kept]
            by = replace(by, basis_rows=rows_inside(self.blocks, chosen[chosen >= 0]))
        by = replace(by, known=summed.judged)
        with self.phases("solve"), limited_blas(features.width):
            solution = solve_sums(self.blocks, features, summed.sums, self.bias_penalty == 0, by)
        if summed.keeps_rows:
            self.blocks.map(drop_rows_of_Z)
        if features.single and self._lost_too_much(summed, solution):
            exact = self._add_up(basis, replace(features, single=False))
            return self.solve(replace(exact, dropped=summed.dropped, sizes=summed.sizes))
        selected = 8 * self.blocks.n_rows * features.width * features.in_state
        held = self._kept_bytes(features.width, features.in_state) or selected
        details: dict[str, Any] = {"dropped": summed.dropped, "selection": basis.report}
        if summed.sizes is not None:
            details["sizes"] = dict(summed.sizes)
            note = details["sizes"].pop("note", None)
            if note is not None:
                details["notes"] = [note, *solution.details.get("notes", ())]
        return replace(
            solution,
            features=replace(features, in_state=False, single=False, keep=False),
            sums=summed.sums,
            bytes=held + 8 * 4 * (features.width + 2) ** 2,
            seconds=self.phases.seconds,
            details=solution.details | details,
        )

    def _lost_too_much(self, summed: SummedBasis, solution: Solution) -> bool:
        """Whether float32 columns change f by more than a small part of its left-out error."""
        L, rows = to_host(summed.features.L), self.blocks.head(FIRST_ROWS)[0]
        theta = solution.coef if L is None else L.T @ solution.coef
        n_outputs, gram = summed.sums.n_outputs, summed.sums.total().gram
        last = np.asarray(to_host(gram[-1 - n_outputs :, -1 - n_outputs :])).diagonal()
        most = _FLOAT32_LOSS**2 * float(last[:-1].mean() / last[-1])  # of the targets' spread
        if solution.left_out is not None:
            # more rows make f larger: the sample on which sizes were compared saw less
            most = 4 * MOST_LOST * float(np.nanmean(np.square(solution.left_out).sum(axis=1)))
        return lost_in_single(summed.features, theta, rows) > most


def _note(fit: NestedFit, size: int, compared: dict[str, Any], n_rows: int) -> str:
    """Say on which rows the size was chosen, and how sure that is."""
    sizes, errors = compared["sizes"], compared["errors"]
    chosen, best = int(np.flatnonzero(sizes == size)[0]), int(errors.argmin())
    note = f"{size:,} points were chosen on {compared['rows']:,} of {n_rows:,} rows"
    other = best if best != chosen else chosen - 1
    if other < 0:
        return f"{note}."
    apart = 100 * (errors[other] / errors[chosen] - 1)
    spread = 100 * fit.standard_error(other, chosen) / errors[chosen]
    return (
        f"{note}: the left-out error of {sizes[other]:,} is {abs(apart):.2g} % "
        f"{'lower' if apart < 0 else 'higher'}, with a standard error of {spread:.2g} %."
    )


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
            "partial_fit: folds of groups cannot be continued, because the groups of earlier rows "
            "are not kept. Call fit on all rows with their groups, or set C to a number or 'gcv'."
        )
    if asked is None:
        return KFoldSums() if there is None else KFoldSums(there)
    if there is not None and asked.n_splits != there:
        raise ValueError(
            f"partial_fit: C asks for n_splits={asked.n_splits!r} folds, but earlier batches have "
            f"{there}. Set C=KFoldSums({there}), or call fit on all rows."
        )
    return asked


def check_memory(points: int, budget: int, folds: int) -> None:
    """Refuse sums of so many points and folds, and the solution from them, beyond the budget."""
    check_points(points, budget, _MATRICES * folds)
