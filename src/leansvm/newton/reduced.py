"""ReducedSVC's problem: a smooth loss on a small basis, all outputs, one C or several.

All outputs go in step and share every pass over the rows; the features of all rows are kept if
they fit, else computed in every pass. Several outputs, sizes or values of C begin on a few points
of the basis: what is found there is where the next size starts (`leansvm.basis.growing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import blas_for, blas_threads
from leansvm._phases import Phases
from leansvm.basis.features import KernelFeatures, whiten
from leansvm.basis.growing import NestedPoints, prefixes
from leansvm.kernels import Kernel
from leansvm.losses import Logistic, Loss
from leansvm.newton import passes as rows_of
from leansvm.newton.one_step import leave_out, left_out_mistakes, left_out_residuals_of
from leansvm.newton.solver import SERIAL_WIDTH, NewtonSolver
from leansvm.ridge.nested import FIRST_SIZE, grow
from leansvm.rows import RowBlocks, check_points, points_within
from leansvm.solution import Solution

Array = NDArray[np.float64]
_MATRICES = 7  # r x r at a time, beside those of tiles on their way
_PILOT_SIZE = 100  # basis points of the fit that finds a C for selectors that need one
_TOGETHER = 2**30  # bytes of matrices of outputs that are worked on at once, at most
_ROUGH = 1e-2  # relative gradient and gap of solutions that are compared, or that others start from
_COMPARED = 256  # points of the largest basis on which values of C are compared
_TIE = 1e-3  # of the loss is added to mistakes, of which there may be none at several C
_BETTER = 1e-3  # another C has to lower it by this share: rounding decides nothing
_FLAT = 0.01  # twice the size has to lower the loss of left-out rows by this share
# Half-decades: C="loo" looks at as many of them as it needs.
CANDIDATES = np.logspace(-6, 7, 27)


class ReducedFit(NamedTuple):
    """A basis with its features, and the solution at every C of the path."""

    basis: Any  # `leansvm.basis.Basis`
    features: KernelFeatures
    path: list[Solution]
    solution: Solution  # at the last C


class Room(NamedTuple):
    """What fits the budget at a size: the features with or without rows that are kept."""

    features: KernelFeatures
    at_once: int  # outputs whose matrices fit
    keeps: bool  # Gram matrices of all outputs
    bytes: int


@dataclass(frozen=True)
class ReducedProblem:
    """Everything that stays the same while basis sizes and values of C are tried."""

    blocks: RowBlocks
    kernel: Kernel
    loss: Loss
    regularizer: str
    bias_penalty: float  # inf: no bias
    margin: bool  # classification
    outputs: int
    tol: float
    max_iter: int
    budget: int  # bytes
    left_out: bool
    on_iteration: Callable[[int, float], bool] | None = None
    compares: bool = False  # values of C, by the loss of left-out rows; else solves at each
    phases: Phases = field(default_factory=Phases)

    @property
    def by_mistakes(self) -> bool:
        """Whether left-out rows are counted: their loss matters for numbers and probabilities."""
        return self.margin and not isinstance(self.loss, Logistic)

    def find_size(
        self, choose: Callable[[int], Any], selector: Any, largest: int, path: Array
    ) -> ReducedFit:
        """Choose a basis as large as it pays, by the loss of left-out rows.

        A nested basis that costs nothing to choose grows; others are chosen anew at each size.
        """
        largest = min(largest, max(points_within(self.budget, _MATRICES), 1))
        if not selector.nested or selector.state_columns(largest):
            judged = replace(self, left_out=True)  # sizes are compared by it
            return grow(partial(judged.solve, choose, path=path), FIRST_SIZE, largest)
        with self.phases("select"):
            basis = choose(largest)
        whitened = self.regularizer == "rkhs"
        constant = 1.0 if np.isfinite(self.bias_penalty) else None
        growing = NestedPoints(
            self.kernel, basis.rows, basis.points(self.kernel), whitened, constant
        )
        return self._solve_on(basis, growing.sizes(), path, None)

    def pilot_C(self, choose: Callable[[int], Any], path: Array) -> float:
        """Return the best C on a small basis, for selectors that need one."""
        pilot = replace(self, compares=True, left_out=False)
        return pilot.solve(choose, min(_PILOT_SIZE, self.blocks.n_rows), path).solution.C

    def solve(self, choose: Callable[[int], Any], size: int, path: Array) -> ReducedFit:
        """Choose ``size`` points and solve on them, at every C of the path or at the best."""
        check_points(size, self.budget, _MATRICES)
        with self.phases("select"):
            basis = choose(size)
        points, known = basis.points(self.kernel), basis.L is not None
        constant = 1.0 if np.isfinite(self.bias_penalty) else None
        with self.phases("factor"):
            if self.regularizer == "coef":
                features = KernelFeatures(self.kernel, points, constant=constant)
            else:
                features = whiten(
                    self.kernel,
                    basis.rows,
                    points,
                    basis.L,
                    constant=constant,
                    in_state=known,
                )
        one = known or (self.outputs == 1 and not self.compares)
        sizes = iter((features,)) if one else prefixes(features)
        return self._solve_on(basis, sizes, path, features.size)

    def _solve_on(
        self, basis: Any, sizes: Iterator[KernelFeatures], path: Array, last: int | None
    ) -> ReducedFit:
        """Go through sizes of a basis; solve at the ``last`` one, or at the one that pays."""
        with self.phases("solve"), blas_for(basis.rows.shape[0], SERIAL_WIDTH):
            order = np.argsort(path, kind="stable")
            middle = int(np.argmin(np.abs(np.log(path[order]))))
            start = middle if self.compares else 0
            search = ReducedSearch(self, path[order], order, last, start, basis.indices)
            solutions = search.run(sizes)
            solver, room = search.solver, search.best.room
            if self.left_out:
                error = leave_out(solver, search.basis_rows(room.features))
                solutions[-1].left_out = left_out_residuals_of(solver)
                if np.isnan(solutions[-1].error):
                    solutions[-1].error = error
            self.blocks.map(rows_of.end)
        asked = basis.rows.shape[0] if last is not None else room.features.size
        for solution in solutions:
            solution.bytes, solution.seconds = room.bytes, self.phases.seconds
            solution.details |= {
                "kernel_kept": room.features.keep,
                "dropped": asked - room.features.size,
                "selection": basis.report,
            }
        return ReducedFit(basis, room.features, solutions, solutions[-1])

    def room_for(self, features: KernelFeatures) -> Room:
        """Decide what is kept between passes and steps at the size of these features."""
        matrix, kept = 8 * features.width**2, 8 * self.blocks.n_rows * features.width
        # of an output at work: a Gram matrix, its sum so far and those of tiles on their way
        each, room = (4 + blas_threads()) * matrix, 3 * self.budget // 4 - 2 * matrix
        features = replace(features, keep=each + kept <= room)
        room -= kept * features.keep
        grams = self.outputs * matrix
        keeps = self.outputs == 1 or grams + each <= room
        free = min(room - grams * keeps * (self.outputs > 1), _TOGETHER)
        at_once = max(1, min(self.outputs, free // max(each, 1)))
        taken = kept * features.keep + at_once * each + 2 * matrix
        return Room(features, at_once, keeps, taken + grams * keeps * (self.outputs > 1))


@dataclass
class Found:
    """The best C at one size."""

    room: Room
    position: int  # of C among the candidates
    error: float = np.inf  # what values of C are compared by
    loss: float = np.inf  # of left-out rows at this C: what sizes are compared by
    least: float = np.inf  # of the losses at this size
    theta: Array | None = None
    errors: dict[int, float] = field(default_factory=dict)  # by position


@dataclass
class ReducedSearch:
    """Goes through the sizes of a basis with one solver, and through values of C at each of them.

    Values of C are compared by the left-out rows that are misclassified, or by the loss of left-out
    rows where decision values themselves matter, sizes by that loss at the same C.
    At the first, small size the candidates are compared upward and downward from C = 1 until the
    error has risen twice. Every larger size starts from the best solution of the
    one before, up to 256 points it looks at the neighbours of its C, and beyond that it takes the
    C that it has: close to the minimum, that needs few Newton steps.
    """

    problem: ReducedProblem
    candidates: Array  # in increasing order
    order: NDArray[np.intp]  # their places in what was given
    last: int | None  # size at which to solve; None: the one that pays
    position: int  # of the C to start from
    chosen: NDArray[np.intp] | None  # rows that are basis points, all there may be
    curve: dict[int, float] = field(default_factory=dict)  # error by position
    compared: list[tuple[int, float]] = field(default_factory=list)  # sizes, left-out loss
    solver: NewtonSolver = field(init=False)
    best: Found = field(init=False)

    def run(self, sizes: Iterator[KernelFeatures]) -> list[Solution]:
        """Take one size after the other; solve at the best C and size, or at every C given."""
        problem, first = self.problem, True
        for features in sizes:
            room = problem.room_for(features)
            if first:
                self.solver = NewtonSolver(
                    problem.blocks,
                    room.features,
                    bias_penalty=problem.bias_penalty,
                    margin=problem.margin,
                    outputs=range(problem.outputs),
                    tol=problem.tol,
                    max_iter=problem.max_iter,
                    on_iteration=problem.on_iteration,
                    at_once=room.at_once,
                    keeps=room.keeps,
                )
            else:
                self.solver.resize(room.features, room.at_once, room.keeps)
            found = Found(room, self.position)
            if problem.compares or self.last is None:
                self._look(found, first)
                if not first and self.last is None and not self._pays(found):
                    break
            elif features.size < self.last:  # where the next size starts
                self.solver.minimise(problem.loss, float(self.candidates[0]), None, _ROUGH)
            self.best, self.position, first = found, found.position, False
            if self.solver.stopped:
                break
        if self.best.theta is not None:
            return [self._solved(self.best)]
        solutions = []
        for k, C in enumerate(self.candidates.tolist()):
            solutions.append(self.solver.solve(problem.loss, C, goes_on=k == 0))
        return solutions

    def basis_rows(self, features: KernelFeatures) -> NDArray[np.intp] | None:
        """Return the rows that are basis points at one size; None where points were given."""
        if self.chosen is None:
            return None
        return self.chosen[: features.size] if features.kept is None else self.chosen[features.kept]

    def _pays(self, found: Found) -> bool:
        """Whether a size is better than the one before, if need be at the next smaller C."""
        enough = (1.0 - _FLAT) * self.best.loss
        if found.least > enough and self.problem.compares and found.room.features.size > _COMPARED:
            self._go(found, -1, 1)
        return found.least <= enough

    def _look(self, found: Found, first: bool) -> None:
        """Find the best C at one size, or how good the one there is is."""
        self._try(found, self.position, None)
        if self.problem.compares and (first or found.room.features.size <= _COMPARED):
            self.curve = found.errors
            rose = self._go(found, 1, 1 + first)
            if first or not rose:
                self._go(found, -1, 1 + first)
        self.compared.append((found.room.features.size, found.loss))

    def _go(self, found: Found, step: int, patience: int) -> bool:
        """Try larger values of C, or smaller ones, until the error has risen so many times."""
        start, theta = found.position, found.theta
        at, misses = start + step, 0
        while 0 <= at < len(self.candidates) and misses < patience and not self.solver.stopped:
            misses = 0 if self._try(found, at, theta) else misses + 1
            at, theta = at + step, None
        return found.position != start

    def _try(self, found: Found, position: int, theta: Array | None) -> bool:
        """Solve roughly at a C; return whether the error of left-out rows is the lowest so far."""
        self.solver.minimise(self.problem.loss, float(self.candidates[position]), theta, _ROUGH)
        rows = self.basis_rows(found.room.features)
        error = loss = leave_out(self.solver, rows)
        if self.problem.compares and self.problem.by_mistakes:
            error = left_out_mistakes(self.solver) + _TIE * loss
        found.errors[position], found.least = error, min(loss, found.least)
        if not error < (1.0 - _BETTER) * found.error and found.theta is not None:
            return False
        found.position, found.error, found.loss = position, error, loss
        found.theta = self.solver.theta.copy()
        return True

    def _solved(self, found: Found) -> Solution:
        """Solve to the end at the best C and size."""
        solver, loss = self.solver, self.problem.loss
        if solver.features is not found.room.features:
            solver.resize(found.room.features, found.room.at_once, found.room.keeps)
        C = float(self.candidates[found.position])
        solution = solver.solve(loss, C, found.theta, goes_on=True)
        solution.error = found.loss
        if self.problem.compares:
            solution.curve = np.full(len(self.candidates), np.nan)
            solution.curve[self.order[list(self.curve)]] = list(self.curve.values())
        if self.last is None:
            sizes, errors = zip(*self.compared, strict=True)
            solution.details["sizes"] = {"sizes": np.array(sizes), "errors": np.array(errors)}
        return solution
