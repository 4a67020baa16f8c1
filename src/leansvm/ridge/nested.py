"""How large a basis? Sizes of one nested basis, compared by leave-one-out.

In the order of choice K_BB = L L', so that the first k whitened columns Phi = K_MB L^-T are those
of the first k points. So a larger size only adds columns, and the sums get only products with them.
One factor gives the left-out errors of all sizes at one C (`equations`), another one those of all C
at one size; larger sizes look for C near that of half their points. The basis doubles while that
lowers the error by 1 %. Then the smallest size whose error is within 0.2 % of the best is taken,
and C is chosen for it. To compare sizes, 10,000 rows and the left-out errors of 2,000 of them are
enough.

Large sizes are added up in single precision if the model of the previous size loses nothing by it;
its values at some rows tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import namespace, rows_at, to_host
from leansvm._parallel import limited_blas
from leansvm._phases import out_of_time, step
from leansvm.basis.features import (
    NO_FACTOR,
    ColumnRows,
    FeatureMap,
    KernelFeatures,
    lost_in_single,
    resize_columns,
)
from leansvm.basis.growing import GAIN
from leansvm.kernels import Kernel
from leansvm.ridge.bracket import search
from leansvm.ridge.criteria import (
    ChosenC,
    EvaluationRows,
    draw_evaluation_rows,
    first_of_the_best,
    left_out_errors,
    pop_left_out,
    rows_inside,
    standard_error,
)
from leansvm.ridge.equations import (
    MomentRows,
    NormalEquations,
    drop_rows_of_Z,
    keep_rows_of_Z,
    models_of_C,
    models_of_sizes,
    normal_equations,
    rows_of_Z,
)
from leansvm.ridge.sums import FIRST_ROWS, Sums, added, moments_of_targets
from leansvm.rows import Block, DrawnRows, RowBlocks, declare, row_weights

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
# The largest size follows from `SparseMachine._last_size` (others: `LAST_SIZE` of basis/choose.py),
# `_MOST_POINTS` and `_ALWAYS_TRIED` (primal.py). A basis chosen anew at each size has `FIRST_SIZE`
# (basis/growing.py) points at first.
# A size above 2,000 points costs seconds: it is tried only if the previous one saved this share.
_LARGE, _LARGE_GAIN = 2000, 0.06
_ALIKE_ERRORS = 0.002  # sizes whose errors are this close are alike
_SIZE_RATIO = 2**0.5  # between sizes that are compared
_FIRST_NESTED = 60
_TYPICAL = 1000  # points that are enough
_ROWS_TRIED_AS_POINTS = 2000  # all of them may become points
_NEARBY = 4.0 ** np.arange(-2, 3)  # factors of C; of each of two sizes the best one counts
_EVERY_C = 512  # points, up to which an eigen-decomposition finds the error of every C
_SOME_C = 1024  # points, up to which a search finds C; larger bases are compared at that C
_ROWS_ALL_LEFT_OUT = 2500  # up to so many rows, all are left out; of more, a sample
WORK_FOR_SINGLE = 4e9  # rows x points^2 above which single precision pays
MOST_LOST = 2e-3  # of the left-out error, that single precision may add
_MORE_LOST = 4.0  # times as much may be lost at twice the size


@dataclass
class NestedFit:
    """The fit on the first points of a basis: it grows, and all of its sizes are compared."""

    blocks: RowBlocks
    head: Block  # the first rows that count, whose means shift the sums
    rows: Any  # all points there may be, in the order of choice
    points: Any  # the same as `Kernel.block` takes them
    free_bias: bool
    budget: int  # bytes that blocks may keep
    features: KernelFeatures
    sums: Sums  # of the columns [Phi, constant, Y, 1]
    indices: Rows | None  # rows that may become points, in order
    evaluation: EvaluationRows | None  # rows whose left-out errors are compared; None: all rows
    left_out_blocks: RowBlocks  # the rows of ``evaluation``, or all
    basis_rows: Rows | None  # rows of these that do not count
    may_use_single: bool  # whether there will be enough work for single precision
    taken: int = 0  # points that were looked at
    equations: NormalEquations = field(init=False)
    errors: Callable[..., Array] = field(init=False)  # of models: `left_out_errors` at this size
    in_single: bool = False  # whether rounding kernel values to float32 changes nothing

    def extend(self, size: int) -> None:
        """Go on to the first ``size`` points; dependent ones are dropped."""
        before, old, n_rows = self.features, self.sums, self.blocks.n_rows
        wider = before.extended(self.rows, self.points, self.taken, size)
        others = 1 + old.n_outputs + before.width - before.size  # columns [constant, Y, 1]
        first, last, self.taken = len(old.gram) - others, wider.size, size
        width = last + others
        # rows are copied when they get wider; beside them lie tiles and some r x r matrices
        keep = 32 * n_rows * (width + 1) + 64 * width**2 <= self.budget
        single = self.in_single and self.blocks.place is None
        single = single and n_rows * last**2 >= WORK_FOR_SINGLE
        self.features, shift = replace(wider, keep=keep, single=single), np.zeros(width - 1)
        if self.free_bias:
            resize_columns(self.head, before, replace(self.features, keep=True))
            Phi = to_host(self.head.kept(ColumnRows).Phi)
            shift[last:] = self.head.y.mean(axis=0)
            shift[first:last] = Phi[:, first:].mean(axis=0)
            shift[:first] = old.shift[:first]
        self.blocks.map(resize_columns, before, self.features)
        parts = self.blocks.fold(added, _new_moments, self.features, shift, first)
        del before, wider  # as large as the sums that follow
        if self.evaluation is not None:
            Phi = self.blocks.concatenate(_columns_at, self.features, self.evaluation.drawn.rows)
            self.evaluation.blocks.map(_keep_evaluation_rows, Phi, self.features, shift)
            if size == self.rows.shape[0]:  # no larger size needs the columns of all rows
                self.blocks.map(drop_rows_of_Z)
        old_new, new, rest = to_host(parts)
        gram = np.empty((width, width))
        gram[:first, :first] = old.gram[:first, :first]
        gram[:first, last:] = old.gram[:first, first:]
        gram[:first, first:last] = old_new
        gram[first:last, :first] = old_new.T
        gram[first:last, first:] = new
        gram[last:, :last], gram[last:, last:] = gram[:last, last:].T, rest
        self.sums = Sums(shift, gram, old.n_outputs, float(gram[-1, -1]))
        self.equations = normal_equations(self.sums, self.features, self.free_bias)
        given = self.left_out_blocks, self.equations
        self.errors = partial(left_out_errors, *given, basis_rows=self.basis_rows)

    def best_C(self, candidates: Array, near: float | None = None) -> ChosenC:
        """Return the best C of all points; with many points the best one near a known C.

        To evaluate many points at one C only, pass this C as the only candidate.
        """
        size = self.features.size  # 0 if all points were dropped
        if not size or (len(candidates) > 1 and (near is None or size <= _EVERY_C)):
            models, clear = models_of_C(self.equations, candidates), True
            curve = self.errors(models)
            best = first_of_the_best(curve)
            found = ChosenC(float(curve.min()), float(candidates[best]), curve)
        else:
            known = ChosenC(np.nan, float(candidates[0]) if near is None else near)
            with limited_blas():
                found = search(self.equations, candidates, self.errors, known)
            assert found.model is not None
            models, best = found.model, 0
            clear = found.model.upper  # without a triangular factor, 1/C was lost in rounding
        single = self.features.single
        if not (self.may_use_single or single):  # double, and will be
            return found
        if (clear or not single) and self._check_precision(models.theta(best), found.error):
            return found
        self._return_to_double()
        return self.best_C(candidates, near)

    def errors_of_sizes(
        self, sizes: Rows, C: float, known: ChosenC | None = None, **options: Any
    ) -> Array:
        """Return the left-out errors of the first ``sizes`` points at one C; blocks keep residuals.

        A triangular factor that is ``known`` at this C is not made again. ``options`` are those of
        `left_out_errors`.
        """
        if known is not None and known.model is not None and known.model.upper:
            first = sizes + self.features.width - self.features.size
            inside = np.arange(len(known.model.z))[:, None] < first
            models = replace(known.model, weights=inside.astype(np.float64))
            with limited_blas():
                return self.errors(models, keep=True, **options)
        try:
            models = models_of_sizes(self.equations, C, sizes)
        except np.linalg.LinAlgError:  # 1/C is lost in the rounding of the sums
            if not self.features.single:
                raise
        else:
            errors = self.errors(models, keep=True, **options)
            if not (self.may_use_single or self.features.single):
                return errors
            if self._check_precision(models.theta(len(sizes) - 1), errors[-1]):
                return errors
        self._return_to_double()
        return self.errors_of_sizes(sizes, C, **options)

    def _check_precision(self, theta: Array, error: float) -> bool:
        """Whether the sums are precise enough for a model with this left-out error.

        Sets ``in_single``: whether larger sizes may be added up in single precision.
        """
        lost = lost_in_single(self.features, theta, self.head.X)
        self.in_single = _MORE_LOST * lost <= MOST_LOST * error
        return not self.features.single or lost <= MOST_LOST * error

    def _return_to_double(self) -> None:
        """Make the sums of all points again, in double precision."""
        self.in_single = False
        before, self.features = self.features, replace(self.features, keep=False, single=False)
        self.blocks.map(resize_columns, before, self.features)
        self.head.state.clear()
        width = before.width - before.size + self.sums.n_outputs
        self.sums = Sums(np.zeros(width), np.zeros((width + 1,) * 2), self.sums.n_outputs, 0.0)
        self.extend(self.taken)

    def error_of_difference(self, *models: int) -> float:
        """Return the standard error of the difference of two errors from `errors_of_sizes`."""
        one, other = self.left_out_blocks.collect(pop_left_out, *models)
        if self.evaluation is not None:
            weight = self.evaluation.drawn.weight
        else:
            weight = self.left_out_blocks.concatenate(row_weights)
        if self.basis_rows is not None:
            weight[self.basis_rows] = 0.0
        difference = np.square(one).sum(axis=1) - np.square(other).sum(axis=1)
        return standard_error(np.where(weight > 0, difference, 0.0), weight)

    def cut(
        self, size: int, count: float | None = None, keep: bool = True
    ) -> tuple[KernelFeatures, Sums]:
        """Return the map to the columns of the first ``size`` points, and the sums.

        Blocks ``keep`` these columns, or none. ``count`` is the number of samples that GCV counts;
        None for the sum of weights.
        """
        gram, shift, features = self.sums.gram, self.sums.shift, self.features
        if not keep:
            features = replace(features, keep=False)
        if size < self.features.size:
            features = features.first(size)
            order = np.delete(np.arange(len(gram)), np.s_[size : self.features.size])
            gram, shift = gram[np.ix_(order, order)], shift[order[:-1]]
            if self.evaluation is not None:
                self.evaluation.blocks.map(_cut_evaluation_rows, order)
        if features is not self.features:
            self.blocks.map(resize_columns, self.features, features)
        total = self.sums.count if count is None else count
        return features, Sums(shift, gram, self.sums.n_outputs, total)


@declare("X", "y", "weight")
def _new_moments(
    block: Block, features: FeatureMap, shift: Array, first: int
) -> tuple[Any, Any, Any]:
    """Return products of the columns from ``first`` on, and the moments of [constant, Y, 1].

    The first result is products of older functions with new ones, the second of new ones with
    themselves and [constant, Y, 1].
    """
    Z, size = rows_of_Z(block, features, shift), features.size
    old, new, rest = Z[:, :first], Z[:, first:size], Z[:, size:]
    own = namespace(Z).concat([new.T @ new, new.T @ rest], axis=1)
    corner = rest.T @ rest
    if features.single:
        corner = np.asarray(corner, dtype=np.float64)
        bias = features.width - size
        corner[bias:, bias:] = moments_of_targets(block, shift[features.width :])
    return old.T @ new, own, corner


@declare("X", keeps=ColumnRows)
def _columns_at(block: Block, features: FeatureMap, rows: Rows) -> Any:
    return features.of_rows(block, block.positions(rows)[1])


@declare("X", "y", "weight", keeps=(MomentRows, ColumnRows))
def _keep_evaluation_rows(block: Block, Phi: Any, features: FeatureMap, shift: Array) -> None:
    block.state.pop(MomentRows, None)  # of a smaller size
    block.keep(ColumnRows(Phi[block.rows]))
    keep_rows_of_Z(block, features, shift)
    block.state.pop(ColumnRows)


@declare(keeps=MomentRows)
def _cut_evaluation_rows(block: Block, order: Rows) -> None:
    block.keep(MomentRows(block.kept(MomentRows).Z[:, order]))


def start_nested(
    blocks: RowBlocks,
    kernel: Kernel,
    rows: Any,
    bias_penalty: float,
    budget: int,
    indices: Rows | None = None,
    drawn: DrawnRows | None = None,
    seed: int = 0,
) -> NestedFit:
    """Begin with none of the points ``rows``, whose row numbers a precomputed kernel needs.

    Where blocks hold some rows only, these are ``drawn``. ``seed`` decides which are left out.
    """
    constant = 1.0 / np.sqrt(bias_penalty) if 0 < bias_penalty < np.inf else None
    points = indices if kernel.precomputed else rows
    X, Y, weight = blocks.head(FIRST_ROWS)
    if weight is not None and weight.any():
        X, Y = rows_at(X, np.flatnonzero(weight > 0)), Y[weight > 0]
    head, none, n_outputs = Block(0, len(Y), X, Y, None), np.arange(0), Y.shape[1]
    features = KernelFeatures(kernel, rows_at(points, none), NO_FACTOR, none, constant)
    shift = np.zeros(features.width + n_outputs)
    sums = Sums(shift, np.zeros((len(shift) + 1,) * 2), n_outputs, 0.0)
    numbers, n_rows, among, inside = indices, blocks.n_rows, indices, None
    if drawn is not None:
        numbers, n_rows = None, drawn.n_rows
        among = None if indices is None else np.flatnonzero(np.isin(drawn.rows, indices))
    if among is not None:
        inside = rows_inside(blocks, among)
    on_host, evaluation = blocks.place is None, None
    if on_host and blocks.n_rows > _ROWS_ALL_LEFT_OUT:
        evaluation, inside = draw_evaluation_rows(blocks, rows.shape[0], inside, seed), None
    given = blocks, head, rows, points, bias_penalty == 0, budget, features, sums
    return NestedFit(
        *given,
        indices=numbers,
        evaluation=evaluation,
        left_out_blocks=blocks if evaluation is None else evaluation.blocks,
        basis_rows=inside,
        may_use_single=on_host and n_rows * rows.shape[0] ** 2 >= WORK_FOR_SINGLE,
    )


# ---------------------------------------------------------------------------- the search


def choose_size(fit: NestedFit, candidates: Array) -> tuple[int, dict[str, Any], ChosenC]:
    """Double the basis while that lowers the error, then take the smallest that is nearly as good.

    Sizes in between are compared at the C of the largest one. Returns the size to take; the sizes,
    their errors and C; and this C with its error. Its ``model``, if any, is on all points of the
    ``fit``, so it is of use only if these are taken.
    """
    largest = fit.rows.shape[0]
    # from a size of about sixty doubling leads to the largest one
    doublings = max(0, round(np.log2(max(largest, 1) / _FIRST_NESTED)))
    size, best, found = int(np.ceil(largest / 2**doublings)), np.inf, None
    while True:
        # share of the work that is done: each size takes four times as long
        step(0.0, reached=min((size / _TYPICAL) ** 2 / 4, 0.8))
        fit.extend(size)
        C = None if found is None else found.C
        found = fit.best_C(candidates if C is None or size <= _SOME_C else np.array([C]), C)
        gain = GAIN if size < _LARGE else _LARGE_GAIN
        pays, best = found.error < (1.0 - gain) * best, min(best, found.error)
        if size == largest or not pays or out_of_time(growth=4.0):
            break
        if size > _SOME_C:  # a larger basis takes this one's C
            found = fit.best_C(candidates, found.C)
        size = min(2 * size, largest)
    kept = fit.features.size
    steps = np.arange(1 + 2 * np.log2(max(kept / _FIRST_NESTED, 1.0)))
    sizes = np.unique(np.rint(kept * _SIZE_RATIO**-steps)).astype(np.intp)
    errors = fit.errors_of_sizes(sizes, found.C, found)
    # `best` may belong to a smaller size at another C; then no size here may reach it
    enough = max((1.0 + _ALIKE_ERRORS) * min(best, errors.min()), errors.min())
    lean = int(sizes[np.argmax(errors <= enough)])
    compared = {"sizes": sizes, "errors": errors, "C": found.C}
    few = fit.indices is not None and fit.blocks.n_rows <= _ROWS_TRIED_AS_POINTS
    if not (few and 0 < 2 * lean <= largest) or out_of_time(growth=4.0):
        return lean, compared, found
    assert fit.indices is not None
    # All rows may become points: the errors of sizes in between include basis rows, whose left-out
    # errors are too large (`criteria`), so doubling ended early. Now the lean model and the model
    # on all rows are compared on the rows that are not points of the lean one: in both models,
    # their left-out errors are like those of new rows.
    inside = rows_inside(fit.blocks, fit.indices[fit.features.kept[:lean]])
    fit.extend(largest)
    both, lowest = np.array([lean, fit.features.size]), np.full(2, np.inf)
    for near in found.C * _NEARBY:
        lowest = np.minimum(lowest, fit.errors_of_sizes(both, near, basis_rows=inside))
    if lowest[1] < (1.0 - GAIN) * lowest[0]:  # clearly better
        lean = fit.features.size
    return lean, compared, replace(found, model=None)  # the model has fewer points


def note_of_size(fit: NestedFit, size: int, compared: dict[str, Any], n_rows: int) -> str:
    """Say on which rows the size was chosen, and how sure that is."""
    sizes, errors = compared["sizes"], compared["errors"]
    chosen, best = int(np.flatnonzero(sizes == size)[0]), int(errors.argmin())
    note = f"{size:,} points were chosen on {compared['rows']:,} of {n_rows:,} rows"
    other = best if best != chosen else chosen - 1
    if other < 0:
        return f"{note}."
    apart = 100 * (errors[other] / errors[chosen] - 1)
    spread = 100 * fit.error_of_difference(other, chosen) / errors[chosen]
    return (
        f"{note}: the left-out error of {sizes[other]:,} is {abs(apart):.2g} % "
        f"{'lower' if apart < 0 else 'higher'}, with a standard error of {spread:.2g} %."
    )
