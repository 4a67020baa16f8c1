"""How large a basis? Sizes of one nested basis, compared by leave-one-out.

In the order of choice K_BB = L L', so that the first k whitened columns Phi = K_MB L^-T are those
of the first k points: a larger size only adds columns, and to the sums only new products with them.
One factor gives the left-out errors of all sizes at one C (`factor.Prefixes`), another one those of
all C at one size; larger sizes look for C near that of half their points. The basis doubles while
that pays; then the smallest size whose error is within 0.2 % of the best is taken, and C is chosen
for it. Some 10,000 rows are enough to compare sizes, and left-out errors of 2,000 of them.

Large sizes are added up in single precision where the model of the size before loses nothing to it,
as its values at some rows tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import namespace, to_host
from leansvm._parallel import blas_for
from leansvm._phases import out_of_time, reach
from leansvm.basis.features import ColumnRows, FeatureMap, KernelFeatures, lost_in_single
from leansvm.basis.growing import (
    GAIN,
    NestedPoints,
    first_columns,
    new_rows_of_factor,
    resize_columns,
)
from leansvm.kernels import Kernel
from leansvm.ridge.bracket import Judged, Judges, draw_judges, search
from leansvm.ridge.criteria import ENOUGH, rows_inside, standard_error
from leansvm.ridge.factor import RidgeModels, decompose, factor_prefixes
from leansvm.ridge.primal import LeftOutResiduals, left_out_errors
from leansvm.ridge.sums import (
    FIRST_ROWS,
    MomentRows,
    NormalEquations,
    Sums,
    complete,
    drop_rows_of_Z,
    first_shift,
    moments_of_targets,
    normal_equations,
    rows_of_Z,
)
from leansvm.rows import Block, RowBlocks, declare, row_weights
from leansvm.solution import first_of_the_best

Array = NDArray[np.float64]
# from 2,000 points on a size costs seconds: it is tried where the one before saved so much
_LARGE, _LARGE_GAIN = 2000, 0.04
_MARGIN = 0.002  # sizes whose errors are this close are alike
_STEP = 2**0.5  # between sizes that are compared
_FIRST_NESTED = 60
_TYPICAL = 1000  # points that are enough
_FEW_ROWS = 2000  # all of them may become points
_NEARBY = 4.0 ** np.arange(-2, 3)  # times C: both sizes are compared at their best of these
_EVERY_C = 512  # points, up to which an eigen-decomposition judges all C
_SOME_C = 1024  # points, up to which a search finds C; larger bases are judged at that one
_MANY_ROWS = 4000  # of which some are drawn to judge
_MUCH_WORK = 4e9  # rows x points^2 from which on single precision is worth while
MOST_LOST = 1e-3  # of the left-out error, that single precision may add
_MORE_LOST = 4.0  # times as much may be lost at twice the size


def is_much(n_rows: int, size: int) -> bool:
    """Whether single precision is worth while for so many rows and points."""
    return n_rows * size**2 >= _MUCH_WORK


@dataclass
class Ladder:
    """The basis so far: points in order, and the sums over the rows of their columns."""

    blocks: RowBlocks
    points: NestedPoints
    free_bias: bool
    budget: int  # bytes that blocks may keep
    indices: NDArray[np.intp] | None  # rows that may become points, in order
    basis_rows: NDArray[np.intp] | None  # those of them that do not count
    judges: Judges | None  # rows whose left-out errors are compared; None: all rows
    features: KernelFeatures
    sums: Sums  # of the columns [Phi, constant, Y, 1]
    in_single: bool = False  # whether rounding kernel values to float32 changes nothing

    def extend(self, size: int) -> None:
        """Go on to the first ``size`` points; dependent ones are dropped."""
        first, old = self.features.size, self.sums
        self.points = self.points.extended(size)
        width = (last := len(self.points.kept)) + old.gram.shape[0] - first
        # rows are copied when they get wider; beside them lie tiles and some r x r matrices
        keep = 32 * self.blocks.n_rows * (width + 1) + 64 * width**2 <= self.budget
        single = self.in_single and self.worth_single(self.blocks.n_rows, last)
        before, self.features = self.features, self.points.features(keep, single)
        L = new_rows_of_factor(before, self.features) if keep else None
        self.blocks.map(resize_columns, before, self.features, L)
        del before, L  # as large as the sums that follow
        shift = first_shift(self.blocks, self.features, self.free_bias)
        shift[:first] = old.shift[:first]
        parts = self.blocks.fold(_added, _new_moments, self.features, shift, first)
        if self.judges is not None:
            Phi = self.blocks.concatenate(_columns_at, self.features, self.judges.drawn.rows)
            self.judges.blocks.map(_keep_rows_of_judges, Phi, shift)
            if size == self.points.rows.shape[0]:  # no larger size needs the columns of all rows
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

    def worth_single(self, n_rows: int, size: int) -> bool:
        """Whether sums over so many rows and points on the host are faster in single precision."""
        return self.blocks.place is None and is_much(n_rows, size)

    def _stands(self, models: RidgeModels, model: int, error: float) -> bool:
        """Whether the sums are precise enough, as one model and its left-out error tell.

        If not, they are made again in double precision. Decides the precision of larger sizes.
        """
        lost = lost_in_single(self.features, models.theta(model), self.blocks.head(FIRST_ROWS)[0])
        self.in_single = _MORE_LOST * lost <= MOST_LOST * error
        if self.features.single and lost > MOST_LOST * error:
            self._return_to_double()
            return False
        return True

    def _return_to_double(self) -> None:
        """Make the sums of all points again, in double precision."""
        self.in_single = False
        before, self.features = self.features, first_columns(self.features, 0)
        self.features = replace(self.features, keep=False, single=False)
        self.blocks.map(resize_columns, before, self.features)
        width = self.features.width + self.sums.n_outputs
        self.sums = Sums(np.zeros(width), np.zeros((width + 1,) * 2), self.sums.n_outputs, 0.0)
        self.extend(self.points.taken)

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
            features = first_columns(features, size)
            order = np.delete(np.arange(len(gram)), np.s_[size : self.features.size])
            gram, shift = gram[np.ix_(order, order)], shift[order[:-1]]
            if self.judges is not None:
                self.judges.blocks.map(_cut_rows_of_judges, order)
        if features is not self.features:
            self.blocks.map(resize_columns, self.features, features)
        total = self.sums.count if count is None else count
        return features, Sums(shift, gram, self.sums.n_outputs, total)

    def curve(self, candidates: Array) -> Array:
        """Return the left-out errors of all points at every C."""
        equations = self._equations()
        models = decompose(equations).models(candidates)
        curve = self._errors(equations, models)
        best = first_of_the_best(curve)
        return curve if self._stands(models, best, curve[best]) else self.curve(candidates)

    def judged(self, candidates: Array, near: float | None) -> Judged:
        """Return the best C of all points, near one that is known.

        Where many points are judged at one C only, give that one as the only candidate.
        """
        size = self.features.size  # 0 if all points were dropped
        if not size or (len(candidates) > 1 and (near is None or size <= _EVERY_C)):
            curve = self.curve(candidates)
            best = first_of_the_best(curve)
            return Judged(float(curve.min()), float(candidates[best]), curve)
        equations = self._equations()
        known = Judged(np.nan, float(candidates[0]) if near is None else near)
        with blas_for(self.features.width):
            found = search(equations, candidates, partial(self._errors, equations), known)
        assert found.model is not None
        clear = found.model.upper or not self.features.single  # or 1/C is lost in rounding of sums
        if not clear:
            self._return_to_double()
        if not clear or not self._stands(found.model, 0, found.error):
            return self.judged(candidates, near)
        return found

    def errors(self, sizes: NDArray[np.intp], C: float, known: Judged | None = None) -> Array:
        """Return the left-out errors of the first ``sizes`` points at one C.

        A triangular factor that is ``known`` at this C is not made again.
        """
        equations = self._equations()
        if known is not None and known.model is not None and known.model.upper:
            models = known.model.first_coordinates(sizes + int(equations.constant is not None))
            with blas_for(self.features.width):
                return self._errors(equations, models, keep=True)
        try:
            models = factor_prefixes(equations, C).models(sizes)
        except np.linalg.LinAlgError:  # 1/C is lost in the rounding of the sums
            if not self.features.single:
                raise
            self._return_to_double()
            return self.errors(sizes, C)
        errors = self._errors(equations, models, keep=True)
        return errors if self._stands(models, len(sizes) - 1, errors[-1]) else self.errors(sizes, C)

    def standard_error(self, *models: int) -> float:
        """Return that of the difference of two of the errors, of those that were returned last."""
        if self.judges is not None:
            difference, _ = self.judges.blocks.collect(_pop_differences, *models)
            return standard_error(difference, self.judges.drawn.weight)
        difference, weight = self.blocks.collect(_pop_differences, *models)
        if self.basis_rows is not None and len(weight) - len(self.basis_rows) >= ENOUGH:
            weight[self.basis_rows] = 0.0
        return standard_error(difference, weight)

    def _equations(self) -> NormalEquations:
        return normal_equations(self.sums, self.features, self.free_bias)

    def _errors(self, equations: NormalEquations, models: RidgeModels, keep: bool = False) -> Array:
        rows, inside = self.blocks, self.basis_rows
        if self.judges is not None:
            rows, inside = self.judges.blocks, None
        how = rows, self.features, self.sums.shift, equations, models
        return left_out_errors(*how, keep=keep, basis_rows=inside)


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


def _added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add up products of blocks in double precision, in the memory of the first."""
    return tuple(
        np.add(x, y, out=x if x.dtype == np.float64 else None, dtype=np.float64)
        if isinstance(x, np.ndarray)
        else x + y
        for x, y in zip(a, b, strict=True)
    )


@declare("X", keeps=ColumnRows)
def _columns_at(block: Block, features: FeatureMap, rows: NDArray[np.intp]) -> Any:
    return features.of_rows(block, block.positions(rows)[1])


@declare("y", "weight", keeps=MomentRows)
def _keep_rows_of_judges(block: Block, Phi: Any, shift: Array) -> None:
    Z = np.empty((block.stop - block.start, len(shift) + 1), Phi.dtype)
    Z[:, : Phi.shape[1]] = Phi[block.rows]
    block.keep(MomentRows(complete(Z, block, Phi.shape[1], shift)))


@declare(keeps=MomentRows)
def _cut_rows_of_judges(block: Block, order: NDArray[np.intp]) -> None:
    block.keep(MomentRows(block.kept(MomentRows).Z[:, order]))


@declare("weight", keeps=LeftOutResiduals)
def _pop_differences(block: Block, a: int, b: int) -> tuple[Array, Array]:
    """Return the squared left-out errors of one model less those of another, and the weights."""
    residuals, weight = block.kept(LeftOutResiduals).residuals, to_host(row_weights(block))
    block.drop(LeftOutResiduals)
    one, other = (to_host(residuals[:, :, model]) for model in (a, b))
    difference = np.square(one).sum(axis=0) - np.square(other).sum(axis=0)
    return np.where(weight > 0, difference, 0.0), weight


def open_ladder(
    blocks: RowBlocks,
    kernel: Kernel,
    rows: Any,
    bias_penalty: float,
    budget: int,
    indices: NDArray[np.intp] | None = None,
    drawn: NDArray[np.intp] | None = None,
) -> Ladder:
    """Begin with no point of a basis; its row numbers are needed for a precomputed kernel.

    Where blocks hold some rows only, ``drawn`` are their numbers, which increase.
    """
    constant = 1.0 / np.sqrt(bias_penalty) if 0 < bias_penalty < np.inf else None
    where = indices if kernel.precomputed else rows
    points = NestedPoints(kernel, rows, where, constant=constant)
    features, n_outputs = points.features(), blocks.head(1)[1].shape[1]
    shift = np.zeros(features.width + n_outputs)
    sums = Sums(shift, np.zeros((len(shift) + 1,) * 2), n_outputs, 0.0)
    inside = indices
    if indices is not None:
        if drawn is not None:
            indices = np.flatnonzero(np.isin(drawn, indices))
        inside = rows_inside(blocks, indices)
    judges = None
    if blocks.place is None and blocks.n_rows > _MANY_ROWS:
        judges = draw_judges(blocks, rows.shape[0], inside)
    free_bias, numbers = bias_penalty == 0, indices if drawn is None else None
    return Ladder(blocks, points, free_bias, budget, numbers, inside, judges, features, sums)


# ---------------------------------------------------------------------------- the search


def climb(ladder: Ladder, candidates: Array) -> tuple[int, dict[str, Any], Judged]:
    """Double the basis while that lowers the error.

    Sizes in between are compared at the C of the largest one.

    Returns
    -------
    size : int
        The lean one.
    compared : dict
        Sizes, their errors, and C.
    judged : Judged
        The C at which sizes were compared; what it says about the model where the lean size is
        the largest one.
    """
    largest = ladder.points.rows.shape[0]
    size, best, found = _first_size(largest), np.inf, None
    while True:
        reach(min((size / _TYPICAL) ** 2 / 4, 0.8))  # what is behind: sizes quadruple the work
        ladder.extend(size)
        C = None if found is None else found.C
        found = ladder.judged(candidates if C is None or size <= _SOME_C else np.array([C]), C)
        gain = GAIN if size < _LARGE else _LARGE_GAIN
        pays, best = found.error < (1.0 - gain) * best, min(best, found.error)
        if size == largest or not pays or out_of_time(growth=4.0):
            break
        if size > _SOME_C:  # a larger basis takes this one's C
            found = ladder.judged(candidates, found.C)
        size = min(2 * size, largest)
    sizes = _sizes_up_to(ladder.features.size)
    errors = ladder.errors(sizes, found.C, found)
    # a smaller size may have been better than any of these, at another C: then the best of them
    enough = max((1.0 + _MARGIN) * min(best, errors.min()), errors.min())
    lean = int(sizes[np.argmax(errors <= enough)])
    if _all_are_better(ladder, lean, found.C):
        lean = ladder.features.size
    return lean, {"sizes": sizes, "errors": errors, "C": found.C}, found


def _all_are_better(ladder: Ladder, lean: int, C: float) -> bool:
    """Whether few rows do clearly better if all of them are points.

    Both models are judged by the rows that are no points of the lean one: their left-out errors
    are those of new rows in both. If all rows may become points, sizes in between were judged by
    basis rows too, whose left-out errors are too large (`criteria`), and doubling ended early.
    """
    largest, indices = ladder.points.rows.shape[0], ladder.indices
    if indices is None or ladder.blocks.n_rows > _FEW_ROWS or 2 * lean > largest:
        return False
    if not lean or out_of_time(growth=4.0):
        return False
    chosen = indices[ladder.points.kept[:lean]]
    before, ladder.basis_rows = ladder.basis_rows, rows_inside(ladder.blocks, chosen)
    ladder.extend(largest)
    both = np.array([lean, ladder.features.size])
    few, every = np.min([ladder.errors(both, near) for near in C * _NEARBY], axis=0)
    ladder.basis_rows = before
    return bool(every < (1.0 - GAIN) * few)


def _first_size(largest: int) -> int:
    """Return a size of about sixty from which doubling leads to the largest one."""
    doublings = max(0, round(np.log2(max(largest, 1) / _FIRST_NESTED)))
    return int(np.ceil(largest / 2**doublings))


def _sizes_up_to(largest: int) -> NDArray[np.intp]:
    """Return the sizes to compare, each about sqrt(2) times the one before."""
    steps = np.arange(1 + 2 * np.log2(max(largest / _FIRST_NESTED, 1.0)))
    return np.unique(np.rint(largest * _STEP**-steps)).astype(np.intp)
