"""How large a basis? Sizes of one nested basis, compared by leave-one-out.

In the order of choice K_BB = L L', so that the first k whitened columns Phi = K_MB L^-T are those
of the first k points: a larger size only adds columns, and to the sums only new products with them.
One factor gives the left-out errors of all sizes at one C (`factor.Prefixes`), another one those of
all C at one size. The basis doubles while that pays; then the smallest size whose error is within
0.2 % of the best is taken, and C is chosen for it. Some 10,000 rows are enough to compare sizes.

Large sizes are added up in single precision where the model of the size before loses nothing to it,
as its values at some rows tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import to_host
from leansvm._phases import out_of_time, reach
from leansvm.basis.features import FeatureMap, KernelFeatures, lost_in_single
from leansvm.basis.growing import NestedPoints, first_columns, resize_columns
from leansvm.kernels import Kernel
from leansvm.ridge.criteria import ENOUGH, rows_inside, standard_error
from leansvm.ridge.factor import RidgeModels, decompose, factor_prefixes
from leansvm.ridge.primal import LeftOutResiduals, left_out_errors
from leansvm.ridge.sums import (
    FIRST_ROWS,
    NormalEquations,
    Sums,
    first_shift,
    moments_of_targets,
    normal_equations,
    rows_of_Z,
)
from leansvm.rows import Block, RowBlocks, declare, row_weights
from leansvm.solution import Solution, first_of_the_best

Array = NDArray[np.float64]
FIRST_SIZE = 50  # of a basis that is chosen anew at each size
_GAIN = 0.01  # share of the error that twice the size has to save
# from 2,000 points on a size costs seconds: it is tried where the one before saved so much
_LARGE, _LARGE_GAIN = 2000, 0.06
_MARGIN = 0.002  # sizes whose errors are this close are alike
_STEP = 2**0.5  # between sizes that are compared
_FIRST_NESTED = 60
_TYPICAL = 1000  # points that are enough
_EVERY_C = 1024  # points; larger bases are judged at one C
_MUCH_WORK = 4e9  # rows x points^2 from which on single precision is worth while
MOST_LOST = 1e-3  # of the left-out error, that single precision may add


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
    basis_rows: NDArray[np.intp] | None  # rows that may become points and so do not count
    features: KernelFeatures
    sums: Sums  # of the columns [Phi, constant, Y, 1]
    in_single: bool = False  # whether rounding kernel values to float32 changes nothing

    def extend(self, size: int) -> None:
        """Go on to the first ``size`` points; dependent ones are dropped."""
        first, old = self.features.size, self.sums
        self.points = self.points.extended(size)
        last = len(self.points.kept)
        width = last + old.gram.shape[0] - first
        # rows are copied when they get wider; beside them lie tiles and some r x r matrices
        keep = 32 * self.blocks.n_rows * (width + 1) + 64 * width**2 <= self.budget
        single = self.in_single and self.worth_single(self.blocks.n_rows, last)
        before, self.features = self.features, self.points.features(keep, single)
        self.blocks.map(resize_columns, before, self.features)
        shift = first_shift(self.blocks, self.features, self.free_bias)
        shift[:first] = old.shift[:first]
        new, rest = self.blocks.sum(_new_moments, self.features, shift, first)
        gram = np.empty((width, width))
        gram[:first, :first], gram[:first, last:] = (
            old.gram[:first, :first],
            old.gram[:first, first:],
        )
        gram[first:last], gram[:first, first:last] = new, new[:, :first].T
        gram[last:, :last], gram[last:, last:] = gram[:last, last:].T, rest
        self.sums = Sums(shift, gram, old.n_outputs, float(gram[-1, -1]))

    def worth_single(self, n_rows: int, size: int) -> bool:
        """Whether sums over so many rows and points on the host are faster in single precision."""
        return self.blocks.place is None and is_much(n_rows, size)

    def _stands(self, models: RidgeModels, model: int, error: float) -> bool:
        """Whether the sums are precise enough, as one model and its left-out error tell.

        If not, they are made again in double precision. Larger sizes may be in single precision
        where this one may.
        """
        lost = lost_in_single(self.features, models.theta(model), self.blocks.head(FIRST_ROWS)[0])
        self.in_single = lost <= MOST_LOST * error
        if self.features.single and not self.in_single:
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

    def cut(self, size: int, count: float | None = None) -> tuple[KernelFeatures, Sums]:
        """Return the map to the columns of the first ``size`` points, which blocks keep, and sums.

        ``count`` is the number of samples that GCV counts; None for the sum of weights.
        """
        features = first_columns(self.features, size)
        self.blocks.map(resize_columns, self.features, features)
        order = np.delete(np.arange(len(self.sums.gram)), np.s_[size : self.features.size])
        gram, shift = self.sums.gram[np.ix_(order, order)], self.sums.shift[order[:-1]]
        total = self.sums.count if count is None else count
        return features, Sums(shift, gram, self.sums.n_outputs, total)

    def curve(self, candidates: Array) -> Array:
        """Return the left-out errors of all points at every C."""
        equations = self._equations()
        models = decompose(equations).models(candidates)
        curve = self._errors(equations, models)
        best = first_of_the_best(curve)
        return curve if self._stands(models, best, curve[best]) else self.curve(candidates)

    def errors(self, sizes: NDArray[np.intp], C: float) -> Array:
        """Return the left-out errors of the first ``sizes`` points at one C."""
        equations = self._equations()
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
        difference, weight = self.blocks.collect(_pop_differences, *models)
        if self.basis_rows is not None and len(weight) - len(self.basis_rows) >= ENOUGH:
            weight[self.basis_rows] = 0.0
        return standard_error(difference, weight)

    def _equations(self) -> NormalEquations:
        return normal_equations(self.sums, self.features, self.free_bias)

    def _errors(self, equations: NormalEquations, models: RidgeModels, keep: bool = False) -> Array:
        rows, inside = (self.blocks, self.features, self.sums.shift), self.basis_rows
        return left_out_errors(*rows, equations, models, keep=keep, basis_rows=inside)


@declare("X", "y", "weight")
def _new_moments(block: Block, features: FeatureMap, shift: Array, first: int) -> tuple[Any, Any]:
    """Return Zn'Z of the functions from ``first`` on, and the moments of [constant, Y, 1]."""
    Z, size = rows_of_Z(block, features, shift), features.size
    new, rest = Z[:, first:size].T @ Z, Z[:, size:]
    if not features.single:
        return new, rest.T @ rest
    corner = np.asarray(rest.T @ rest, dtype=np.float64)
    bias = features.width - size
    corner[bias:, bias:] = moments_of_targets(block, shift[features.width :])
    return np.asarray(new, dtype=np.float64), corner


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
    return Ladder(blocks, points, bias_penalty == 0, budget, inside, features, sums)


# ---------------------------------------------------------------------------- the search


def climb(ladder: Ladder, candidates: Array) -> tuple[int, dict[str, Any]]:
    """Double the basis while that lowers the error; return the lean size, and what was compared.

    Sizes in between are compared at the C of the largest one. A basis too large for an
    eigen-decomposition that may not be its last one is judged at the C of half of it.
    """
    largest = ladder.points.rows.shape[0]
    size, best, C = _first_size(largest), np.inf, float(candidates[0])
    errors = None
    while True:
        reach(min((size / _TYPICAL) ** 2 / 4, 0.8))  # what is behind: sizes quadruple the work
        ladder.extend(size)
        if len(candidates) > 1 and size <= _EVERY_C:
            curve = ladder.curve(candidates)
            error, at = float(curve.min()), float(candidates[first_of_the_best(curve)])
        else:
            errors = ladder.errors(_sizes_up_to(ladder.features.size), C)
            error, at = float(errors[-1]), C
        pays = error < (1.0 - (_GAIN if size < _LARGE else _LARGE_GAIN)) * best
        if error < best:
            best, C = error, at
        if size == largest or not pays or out_of_time(growth=4.0):
            break
        size = min(2 * size, largest)
    sizes = _sizes_up_to(ladder.features.size)
    if errors is None:
        errors = ladder.errors(sizes, C)
    # a smaller size may have been better than any of these, at another C: then the best of them
    enough = max((1.0 + _MARGIN) * min(best, errors.min()), errors.min())
    lean = int(sizes[np.argmax(errors <= enough)])
    return lean, {"sizes": sizes, "errors": errors, "C": C}


def _first_size(largest: int) -> int:
    """Return a size of about sixty from which doubling leads to the largest one."""
    doublings = max(0, round(np.log2(max(largest, 1) / _FIRST_NESTED)))
    return int(np.ceil(largest / 2**doublings))


def _sizes_up_to(largest: int) -> NDArray[np.intp]:
    """Return the sizes to compare, each about sqrt(2) times the one before."""
    steps = np.arange(1 + 2 * np.log2(max(largest / _FIRST_NESTED, 1.0)))
    return np.unique(np.rint(largest * _STEP**-steps)).astype(np.intp)


class OnBasis(Protocol):
    """A solution on a basis of some size."""

    @property
    def features(self) -> FeatureMap:
        """The features made of the basis."""

    @property
    def solution(self) -> Solution:
        """The solution; its ``error`` is compared."""


Solved = TypeVar("Solved", bound=OnBasis)


def grow(solve: Callable[[int], Solved], first: int, largest: int) -> Solved:
    """Return ``solve(size)`` at the first size that doubling hardly improves.

    An error that is not a number is no improvement.
    """
    size = min(first, largest)
    found = solve(size)
    while size < largest and found.features.size == size and not out_of_time(growth=4.0):
        size = min(2 * size, largest)
        larger = solve(size)
        if not larger.solution.error <= (1.0 - _GAIN) * found.solution.error:
            break
        found = larger
    return found
