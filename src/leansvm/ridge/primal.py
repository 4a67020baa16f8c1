"""The LS-SVM on a small basis: SparseLSSVC's problem, from sums over the rows.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2  over w in the span of k(x_j, .),
j in B (P-LSSVM; zhou2016, eqs. (9), (11)), in the whitened basis, of given size or as large as it
pays (`nested`). One factor of M = Phi_c' S Phi_c (`equations`) gives the solution, generalised
cross-validation and, in a second pass over the rows, the exact leave-one-out residuals (`criteria`)
of many models, for every output. Folds (`kfold`) and the search for C in large fits (`bracket`)
need no second pass over all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn._config import get_config

from leansvm._accelerated import doubles_are_fast
from leansvm._array_api import namespace, to_host
from leansvm._parallel import limited_blas
from leansvm._phases import Phases
from leansvm.basis import BasisSelector
from leansvm.basis.choose import Basis
from leansvm.basis.features import FeatureMap, KernelFeatures, lost_in_single, whiten
from leansvm.basis.growing import FIRST_SIZE, grow
from leansvm.kernels import Kernel
from leansvm.ridge import nested
from leansvm.ridge.bracket import solve_by_some_rows
from leansvm.ridge.criteria import (
    ChosenC,
    Criterion,
    draws_rows,
    first_of_the_best,
    left_out_errors,
    pop_left_out,
    rows_inside,
)
from leansvm.ridge.eigen import solve_in_dual
from leansvm.ridge.equations import (
    drop_rows_of_Z,
    model_at,
    models_of_C,
    normal_equations,
    theta_at,
)
from leansvm.ridge.kfold import FoldSums, add_up_folds, errors_of_folds
from leansvm.ridge.nested import MOST_LOST, choose_size, note_of_size, start_nested
from leansvm.ridge.sums import FIRST_ROWS, MATRICES, Sums, add_up, check_memory, first_shift
from leansvm.rows import DrawnRows, RowBlocks, draw_for_all, points_within, total_weight
from leansvm.solution import Solution

_KEEP_LOO_BYTES = 2**28
_ROWS_FOR_DUAL = 2000  # beyond, an eigen-decomposition of all rows is slow
_NO_ROOM = (
    "C='gcv' needs sample weights that sum to more than the degrees of freedom, but they sum to "
    "{:.3g}: scale sample_weight up, use fewer basis points, or set C to a number."
)
_MOST_WORK, _ALWAYS_TRIED = 2.5e11, 2000  # rows x points^2 on a host; points that may cost more
_MOST_POINTS = 4000  # points; more only on devices that are fast in double precision
# sizes are compared on all rows if there are at most so many, otherwise on a sample of so many
_ROWS_COMPARED_WHOLE, _ROWS_COMPARED = 15_000, 10_000
_FLOAT32_LOSS = 1e-3  # allowed share of the spread of y if no left-out error is known


@dataclass(frozen=True)
class SummedBasis:
    """Points in the order of choice, the map to their columns, and the sums over the rows."""

    basis: Basis
    features: KernelFeatures
    sums: Sums | FoldSums
    problem: SparseProblem
    kept_bytes: int = 0  # of the rows of Z that blocks still hold: leave-one-out reads them again
    dropped: int = 0  # points that depend on others
    sizes: dict[str, Any] | None = None  # sizes that were compared, and their errors
    solution: Solution | None = None  # if comparing sizes has solved at this size
    best_C: ChosenC | None = None  # the best C, if sizes were compared on all rows


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
        points = basis.rows, basis.points(self.kernel)
        features = whiten(self.kernel, *points, basis.L, constant=constant, in_state=in_state)
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
        """Run over the rows once; blocks keep their rows of Z if leave-one-out needs them."""
        blocks, held = self.blocks, self._kept_bytes(features.width, features.in_state)
        with self.phases("sums"), limited_blas():
            shift = first_shift(blocks, features, self.bias_penalty == 0)
            sums: Sums | FoldSums
            if self.criterion.name == "kfold":
                rows = blocks if self.unmerged is None else self.unmerged
                sums = add_up_folds(rows, features, shift, self.count, self.criterion.folds)
            else:
                on_device = blocks.place is not None
                sums = add_up(blocks, features, shift, self.count, held > 0, on_device)
        return SummedBasis(basis, features, sums, self, held, basis.rows.shape[0] - features.size)

    def _kept_bytes(self, width: int, in_state: bool = False) -> int:
        """Return the bytes of the rows of Z that blocks keep for leave-one-out.

        0 if only a sample is left out, if no left-out residuals are needed, or if they do not fit.
        """
        if not self.criterion.left_out or draws_rows(self.blocks, width):
            return 0
        rows = 8 * self.blocks.n_rows * (width * (1 + in_state) + 2)
        needed = rows + 8 * MATRICES * self.folds * width**2
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

        If a basis is nested and costs nothing to choose, such as a random one, all sizes are
        compared in one pass (`nested.choose_size`), and the smallest that is nearly as good as the
        best is used. Other bases are chosen again at every size; sizes double (`_double_size`) and
        begin with the ``n_earlier`` points of an earlier fit.
        """
        place = self.blocks.place  # memory and time allow so many points
        largest = min(largest, max(points_within(self.budget, MATRICES * self.folds), 1))
        if place is None or not doubles_are_fast(place):
            largest = min(largest, _MOST_POINTS)
        if place is None:
            by_work = int(np.sqrt(_MOST_WORK / self.blocks.n_rows))
            largest = min(largest, max(by_work, _ALWAYS_TRIED))
        if not selector.nested or n_earlier or selector.state_columns(largest):
            return self._double_size(points_of, max(FIRST_SIZE, n_earlier), largest)
        with self.phases("select"):
            basis, drawn = points_of(largest), None
            if self.blocks.n_rows > _ROWS_COMPARED_WHOLE:
                wanted = _ROWS_COMPARED if place is None else max(_ROWS_COMPARED, 4 * largest)
                room = self.budget // (128 * max(self.blocks.n_features, 1))
                rng = np.random.RandomState(self.criterion.seed)
                drawn = draw_for_all(self.blocks, max(min(wanted, room), 1), rng)
        if drawn is None or len(drawn.rows) == drawn.n_rows:  # others have no weight
            return self._compare_on_all_rows(basis)
        return self._compare_on_sample(basis, drawn, largest)

    def _compare_on_all_rows(self, basis: Basis) -> SummedBasis:
        """Compare sizes by the sums over all rows, which are also those of the chosen size."""
        given = self.kernel, basis.rows, self.bias_penalty, self.budget, basis.indices
        fit = start_nested(self.blocks, *given, seed=self.criterion.seed)
        by_folds = self.criterion.name == "kfold"
        with self.phases("sizes"), limited_blas():
            size, compared, best_C = choose_size(fit, self.criterion.candidates)
            dropped = fit.taken - fit.features.size
            best_C = replace(
                best_C,
                curve=None,
                model=best_C.model if size == fit.features.size else None,
                evaluation=fit.evaluation if fit.evaluation and fit.evaluation.outside else None,
            )
            held = self._kept_bytes(size + fit.features.width - fit.features.size)
            features, sums = fit.cut(size, self.count, by_folds or held > 0)
        if not by_folds:
            return SummedBasis(basis, features, sums, self, held, dropped, compared, best_C=best_C)
        del fit, sums, best_C  # folds have sums of their own
        found = self._add_up(basis, features)
        if not self.criterion.left_out:  # nothing else reads the columns
            self.blocks.map(drop_rows_of_Z)
        return replace(found, dropped=dropped, sizes=compared)

    def _compare_on_sample(self, basis: Basis, drawn: DrawnRows, largest: int) -> SummedBasis:
        """Compare sizes on the ``drawn`` rows, then run over all rows once."""
        with self.phases("select"):
            blocks = drawn.as_data(self.blocks, 3 * (largest + 1))
        given = self.kernel, basis.rows, self.bias_penalty, self.budget, basis.indices, drawn
        fit = start_nested(blocks, *given, self.criterion.seed)
        with self.phases("sizes"), limited_blas():
            size, compared, _ = choose_size(fit, self.criterion.candidates)
            dropped = fit.taken - fit.features.size
            compared["rows"] = len(drawn.rows)
            compared["note"] = note_of_size(fit, size, compared, self.blocks.n_rows)
            single = fit.in_single and self.blocks.n_rows * size**2 >= nested.WORK_FOR_SINGLE
            features = replace(fit.features.first(size), keep=False, single=single)
        del fit, blocks  # the columns that they keep
        return replace(self._add_up(basis, features), dropped=dropped, sizes=compared)

    def _double_size(
        self, points_of: Callable[[int], Basis], first: int, largest: int
    ) -> SummedBasis:
        """Choose, sum and solve anew at sizes that double, until that hardly pays."""
        criterion = Criterion(self.criterion.candidates, "loo", True, seed=self.criterion.seed)
        by_loo = replace(self, criterion=criterion)

        def sum_and_solve(size: int) -> SummedBasis:
            summed = by_loo.sum_size(points_of, size)
            return replace(summed, solution=by_loo.solve(summed))

        found = grow(sum_and_solve, first, largest)
        if self.criterion.name == "loo" or not np.ndim(self.criterion.C):
            return found
        return self.sum_size(points_of, max(found.features.size, 1))  # all may have been dropped

    # ------------------------------------------------------------------ solving

    def solve(self, summed: SummedBasis) -> Solution:
        """Solve the small system, unless comparing sizes has done it.

        Where float32 columns lose too much, the rows are summed again in float64, then solved.
        """
        if summed.solution is not None:
            return summed.solution
        basis, features, by = summed.basis, summed.features, self.criterion
        if basis.indices is not None:
            chosen = basis.indices[features.kept]
            by = replace(by, basis_rows=rows_inside(self.blocks, chosen[chosen >= 0]))
        by = replace(by, known=summed.best_C)
        with self.phases("solve"), limited_blas(features.width):
            solution = solve_sums(self.blocks, features, summed.sums, self.bias_penalty == 0, by)
        if features.single and self._lost_too_much(summed, solution):
            exact = self._add_up(basis, replace(features, single=False))
            return self.solve(replace(exact, dropped=summed.dropped, sizes=summed.sizes))
        held = summed.kept_bytes or 8 * self.blocks.n_rows * features.width * features.in_state
        details: dict[str, Any] = {"dropped": summed.dropped, "selection": basis.report}
        if summed.sizes is not None:
            details["sizes"] = dict(summed.sizes)
            note = details["sizes"].pop("note", None)
            if note is not None:
                details["notes"] = [note, *solution.details.get("notes", ())]
        return replace(
            solution,
            basis=basis,
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


# ---------------------------------------------------------------------------- the small system


def solve_sums(
    blocks: RowBlocks,
    features: FeatureMap,
    sums: Sums | FoldSums,
    free_bias: bool,
    criterion: Criterion,
) -> Solution:
    """Solve at one C, or at the best of several by folds, GCV (from the sums) or leave-one-out.

    Leave-one-out runs over the blocks again, so they must hold all rows of the sums. So does GCV if
    the basis is nearly all rows, except after batches, of which only the sums are left.

    - folds choose C: `_solve_by_folds`
    - one C, no left-out residuals: here, by Cholesky
    - left-out errors of all rows cost too much: `solve_by_some_rows`, for GCV after the choice
    - nearly all rows are points: `solve_in_dual`
    - otherwise: here, by eigenvalues for several C, by Cholesky for one
    """
    if isinstance(sums, FoldSums):
        if criterion.name == "kfold":
            return _solve_by_folds(blocks, features, sums, free_bias, criterion)
        sums = sums.total()
    equations, several = normal_equations(sums, features, free_bias), np.ndim(criterion.C) == 1
    if not (several or criterion.left_out):
        C = float(np.asarray(criterion.C))
        return equations.solution(theta_at(equations, C), C)
    by_loo, some_rows = several and criterion.name == "loo", draws_rows(blocks, features.width)
    if (by_loo or not several) and some_rows:
        return solve_by_some_rows(blocks, equations, criterion)
    # If nearly all rows are points, 1 - leverage cancels: solve in the dual.
    share = 0.5 if blocks.n_rows <= _ROWS_FOR_DUAL else 0.95
    if (
        features.width > share * blocks.n_rows
        and abs(total_weight(blocks) - equations.n) <= 1e-9 * equations.n  # not a batch of them
    ):
        return solve_in_dual(blocks, equations, criterion)
    candidates = criterion.candidates
    if several or not len(equations.c):  # no function but the bias has no triangular factor
        models = models_of_C(equations, candidates, blocks.place)
    else:
        models = model_at(equations, float(candidates[0]))
    # as much as tiles may take, which follows the budget
    room = min(_KEEP_LOO_BYTES, get_config()["working_memory"] * 2**20)
    fits = 8 * blocks.n_rows * len(candidates) * sums.n_outputs <= room and criterion.left_out
    curve = None
    if by_loo:
        asked: Any = {"basis_rows": criterion.basis_rows, "loss": criterion.loss}
        curve = left_out_errors(blocks, equations, models, keep=fits, **asked)
    elif several:
        curve = models.gcv(equations)
        if len(curve) > 1 and not np.isfinite(curve).any():
            raise ValueError(_NO_ROOM.format(equations.count))
    best = 0 if curve is None else first_of_the_best(curve)
    C, left_out = float(candidates[best]), None
    if curve is not None and criterion.left_out and some_rows:  # GCV looked at no row
        model = replace(models, weights=models.weights[:, [best]])
        chosen = replace(criterion, C=C, known=None)
        found = solve_by_some_rows(blocks, equations, chosen, model)
        return replace(found, curve=curve, error=float(curve[best]))
    # At one C, triangular solves are more exact than the inverse in `models`. They are also more
    # exact than eigenvalues beside a penalised bias, whose column may be large.
    by_models = several and features.constant is None
    theta = models.theta(best) if by_models else theta_at(equations, C)
    if criterion.left_out:
        if not (by_loo and fits):
            model = replace(models, weights=models.weights[:, [best]])
            left_out_errors(blocks, equations, model, keep=True)
        (left_out,) = blocks.collect(pop_left_out, best if by_loo and fits else 0)
    error = np.nan if curve is None else float(curve[best])
    return equations.solution(theta, C, left_out=left_out, curve=curve, error=error)


def _solve_by_folds(
    blocks: RowBlocks, features: FeatureMap, sums: FoldSums, free_bias: bool, criterion: Criterion
) -> Solution:
    """Choose C by the errors on left-out folds, then solve from the sums over all rows."""
    candidates = criterion.candidates
    if np.count_nonzero(sums.grams[:, -1, -1]) + bool(sums.base[-1, -1]) < 2:
        # a batch of a row or two: nothing to leave out yet
        gcv = Criterion(candidates, "gcv", criterion.left_out, seed=criterion.seed)
        solution = solve_sums(blocks, features, sums.total(), free_bias, gcv)
        return replace(solution, details=solution.details | {"criterion": "gcv"})
    errors, weight = errors_of_folds(sums, features, free_bias, candidates)
    curve = np.asarray(errors.sum(axis=(0, 1)) / weight.sum())
    best = first_of_the_best(curve)
    chosen = Criterion(float(candidates[best]), left_out=criterion.left_out, seed=criterion.seed)
    solution = solve_sums(blocks, features, sums.total(), free_bias, chosen)
    details = solution.details | {"criterion": "kfold"}
    return replace(solution, curve=curve, error=float(curve[best]), details=details)
