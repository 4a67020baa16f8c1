"""ReducedSVC's problem: a smooth loss on chosen basis points, all outputs, one C or several.

All outputs take their Newton steps together and share every pass over the rows. The features of
all rows are kept if they fit in the budget, and are computed in every pass otherwise. With several
outputs, sizes or values of C the search begins on the first few points of the basis, and each
solution is where the next larger size starts (`leansvm.basis.growing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import rows_at
from leansvm._parallel import blas_threads, limited_blas
from leansvm._phases import Phases, out_of_time
from leansvm.basis.choose import Basis
from leansvm.basis.features import NO_FACTOR, KernelFeatures, whiten
from leansvm.basis.growing import FIRST_SIZE, doubled, grow, prefixes
from leansvm.kernels import Kernel
from leansvm.losses import Logistic, Loss
from leansvm.newton import passes
from leansvm.newton.left_out import leave_out, left_out_mistakes, left_out_residuals_of
from leansvm.newton.solver import SERIAL_WIDTH, NewtonSolver
from leansvm.ridge.criteria import rows_inside
from leansvm.rows import RowBlocks, check_points, points_within
from leansvm.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_MATRICES = 7  # matrices of r x r at a time, besides those of tiles at work
PILOT_SIZE = 100  # basis points of the fit that finds a C for selectors that need one
_TOGETHER = 2**30  # most bytes of matrices of outputs that are solved at the same time
_ROUGH_TOL = 1e-2  # relative gradient and gap of solutions that are only compared or start others
_COMPARED = 256  # points of the largest basis on which values of C are compared
_TIE_SHARE = 1e-3  # share of the loss added to the mistakes: several C may make no mistake
_BETTER = 1e-3  # another C must lower the error by this share, so that rounding does not decide
_FOR_MANY = 500  # points that n_basis="auto" may take with any number of classes
_FLAT_LOSS = 0.01  # twice the size has to lower the loss of left-out rows by this share
# Half-decades: C="loo" looks at as many of them as it needs.
CANDIDATES = np.logspace(-6, 7, 27)


class ReducedFit(NamedTuple):
    """The solution at every C of the path, as `leansvm.basis.growing.grow` compares them."""

    path: list[Solution]  # in increasing order of C

    @property
    def solution(self) -> Solution:
        """The solution at the last C."""
        return self.path[-1]

    @property
    def features(self) -> KernelFeatures:
        """The map to the columns of the basis."""
        return self.path[-1].features


class SizePlan(NamedTuple):
    """What the memory budget allows at one size of the basis."""

    features: KernelFeatures  # which know whether blocks keep their columns
    at_once: int  # outputs whose matrices fit
    keeps: bool  # whether the Gram matrices of all outputs fit
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
    left_out: bool  # whether the last solution gets the residuals of left-out rows
    on_iteration: Callable[[int, float], bool] | None = None
    compares: bool = False  # values of C, by left-out rows; else solves at each of them
    phases: Phases = field(default_factory=Phases)

    def largest_size(self, wanted: int) -> int:
        """Return the largest number of points that ``n_basis="auto"`` and the budget allow.

        If the curvature varies, every output has its own Gram matrix: many outputs, fewer points.
        """
        if not self.loss.curvature_is_piecewise_constant:
            wanted = min(wanted, max(_FOR_MANY, int(wanted / self.outputs**0.5)))
        return min(wanted, max(points_within(self.budget, _MATRICES), 1))

    def select(self, choose: Callable[[int], Basis], size: int) -> Basis:
        """Choose ``size`` points, unless their matrices do not fit in the budget."""
        check_points(size, self.budget, _MATRICES)
        with self.phases("select"):
            return choose(size)

    def fit(self, basis: Basis, path: Array, grows: bool = False) -> ReducedFit:
        """Solve at every C of the path or at the best.

        Uses all points of the basis or, if it ``grows``, as many of its first points as pay.
        """
        kernel, points, known = self.kernel, basis.points(self.kernel), basis.L is not None
        constant, last = 1.0 if np.isfinite(self.bias_penalty) else None, None
        with self.phases("factor"):
            whitened = self.regularizer == "rkhs"
            if grows:
                none, L = np.arange(0), NO_FACTOR if whitened else None
                start = KernelFeatures(kernel, rows_at(points, none), L, none, constant)
                sizes = doubled(start, basis.rows, points)
            else:
                features = KernelFeatures(kernel, points, constant=constant)
                if whitened:
                    options = {"constant": constant, "in_state": known}
                    features = whiten(kernel, basis.rows, points, basis.L, **options)
                one = known or (self.outputs == 1 and not self.compares)
                sizes, last = iter((features,)) if one else prefixes(features), features.size
        with self.phases("solve"), limited_blas(basis.rows.shape[0], SERIAL_WIDTH):
            search = SizeSearch(self, path, last, basis.indices)
            solutions = search.run(sizes)
            features = search.best.plan.features
            if self.left_out:
                error = leave_out(search.solver, search.basis_rows(features))
                if not np.isnan(solutions[-1].error):
                    error = solutions[-1].error
                residuals = left_out_residuals_of(search.solver)
                solutions[-1] = replace(solutions[-1], left_out=residuals, error=error)
            self.blocks.map(passes.end, features)
        asked = features.size if grows else basis.rows.shape[0]
        report = {"kernel_kept": features.keep, "dropped": asked - features.size}
        more: Any = {"bytes": search.best.plan.bytes, "seconds": self.phases.seconds}
        more |= {"basis": basis, "features": features}
        for k, found in enumerate(solutions):
            details = found.details | report | {"selection": basis.report}
            solutions[k] = replace(found, details=details, **more)
        return ReducedFit(solutions)

    def fit_each_size(
        self, choose: Callable[[int], Basis], largest: int, path: Array
    ) -> ReducedFit:
        """Double the size while that pays; the basis of every size is chosen anew."""
        by_loo = replace(self, left_out=True)  # sizes are compared by it
        return grow(lambda size: by_loo.fit(self.select(choose, size), path), FIRST_SIZE, largest)

    def best_C(self, basis: Basis, path: Array) -> float:
        """Return the best C on a basis, for selectors that need one."""
        return replace(self, compares=True, left_out=False).fit(basis, path).solution.C

    def plan_for(self, features: KernelFeatures) -> SizePlan:
        """Decide what is kept between passes and steps at the size of these features."""
        matrix, kept = 8 * features.width**2, 8 * self.blocks.n_rows * features.width
        # of an output at work: a Gram matrix, its sum so far and those of tiles on their way
        each, room = (4 + blas_threads()) * matrix, 3 * self.budget // 4 - 2 * matrix
        features = replace(features, keep=each + kept <= room)
        kept *= features.keep
        grams = self.outputs * matrix if self.outputs > 1 else 0
        keeps = grams == 0 or grams + each <= room - kept
        grams *= keeps
        free = min(room - kept - grams, _TOGETHER)
        at_once = max(1, min(self.outputs, free // max(each, 1)))
        return SizePlan(features, at_once, keeps, kept + at_once * each + 2 * matrix + grams)


@dataclass
class BestC:
    """The best C at one size, of those that were tried."""

    plan: SizePlan
    position: int  # of C among the candidates
    error: float = np.inf  # what values of C are compared by
    loss: float = np.inf  # of left-out rows at this C: what sizes are compared by
    least: float = np.inf  # of the losses at this size
    theta: Array | None = None
    errors: dict[int, float] = field(default_factory=dict)  # by position


class SizeSearch:
    """Goes through the sizes of a basis with one solver, and through values of C at each of them.

    Values of C are compared by the number of misclassified left-out rows or, if the decision values
    themselves matter, by the loss of left-out rows. Sizes are compared by that loss at the same C.
    At the first, small size the search goes up and down from C = 1 until the error has risen twice.
    Every larger size starts from the best solution of the previous size. Up to 256 points it also
    tries the neighbours of its C; beyond that it keeps its C, because few Newton steps are enough
    close to the minimum. ``last`` is the size at which to solve; None: the best one. ``chosen`` are
    the rows that are basis points.
    """

    solver: NewtonSolver
    best: BestC

    def __init__(
        self, problem: ReducedProblem, path: Array, last: int | None, chosen: Rows | None
    ) -> None:
        self.problem, self.last, self.chosen = problem, last, chosen
        self.order = np.argsort(path, kind="stable")
        self.candidates = path[self.order]
        middle = int(np.argmin(np.abs(np.log(self.candidates))))
        self.position = middle if problem.compares else 0
        self.curve: dict[int, float] = {}  # error by position
        self.compared: list[tuple[int, float]] = []  # sizes, left-out loss
        # count misclassified rows; for numbers and probabilities use the loss instead
        classes = problem.margin and not isinstance(problem.loss, Logistic)
        self.by_mistakes = problem.compares and classes

    def run(self, sizes: Iterator[KernelFeatures]) -> list[Solution]:
        """Take one size after the other; solve at the best C and size, or at every C given."""
        problem, first = self.problem, True
        for features in sizes:
            plan = problem.plan_for(features)
            if first:
                self.solver = NewtonSolver(
                    problem.blocks,
                    plan.features,
                    bias_penalty=problem.bias_penalty,
                    margin=problem.margin,
                    n_outputs=problem.outputs,
                    tol=problem.tol,
                    max_iter=problem.max_iter,
                    on_iteration=problem.on_iteration,
                    at_once=plan.at_once,
                    keeps=plan.keeps,
                )
            else:
                self.solver.resize(*plan[:3])
            found = BestC(plan, self.position)
            if problem.compares or self.last is None:
                self._look(found, first)
                if not first and self.last is None and not self._pays(found):
                    break
            elif features.size < self.last:  # where the next size starts
                self.solver.minimise(problem.loss, float(self.candidates[0]), None, _ROUGH_TOL)
            self.best, self.position, first = found, found.position, False
            if self.solver.stopped or (self.last is None and out_of_time(growth=4.0)):
                break
        if self.best.theta is not None:
            return [self._solved(self.best)]
        solutions = []
        for k, C in enumerate(self.candidates.tolist()):
            solutions.append(self.solver.solve(problem.loss, C, goes_on=k == 0))
        return solutions

    def basis_rows(self, features: KernelFeatures) -> Rows | None:
        """Return the basis rows at one size that do not count; None if points were given."""
        if self.chosen is None:
            return None
        kept = slice(features.size) if features.kept is None else features.kept
        return rows_inside(self.problem.blocks, self.chosen[kept][self.chosen[kept] >= 0])

    def _pays(self, found: BestC) -> bool:
        """Whether a size is better than the previous one, possibly at the next smaller C."""
        enough = (1.0 - _FLAT_LOSS) * self.best.loss
        if found.least > enough and self.problem.compares and found.plan.features.size > _COMPARED:
            self._go(found, -1, 1)
        return found.least <= enough

    def _look(self, found: BestC, first: bool) -> None:
        """Find the best C at one size, or the error at the present one."""
        self._try(found, self.position, None)
        if self.problem.compares and (first or found.plan.features.size <= _COMPARED):
            self.curve = found.errors
            rose = self._go(found, 1, 1 + first)
            if first or not rose:
                self._go(found, -1, 1 + first)
        self.compared.append((found.plan.features.size, found.loss))

    def _go(self, found: BestC, step: int, patience: int) -> bool:
        """Try larger values of C, or smaller ones, until the error has risen so many times."""
        start, theta = found.position, found.theta
        at, misses = start + step, 0
        while 0 <= at < len(self.candidates) and misses < patience and not self.solver.stopped:
            misses = 0 if self._try(found, at, theta) else misses + 1
            at, theta = at + step, None
        return found.position != start

    def _try(self, found: BestC, position: int, theta: Array | None) -> bool:
        """Solve roughly at a C; return whether the error of left-out rows is the lowest so far."""
        self.solver.minimise(self.problem.loss, float(self.candidates[position]), theta, _ROUGH_TOL)
        rows = self.basis_rows(found.plan.features)
        error = loss = leave_out(self.solver, rows)
        if self.by_mistakes:
            error = left_out_mistakes(self.solver) + _TIE_SHARE * loss
        found.errors[position], found.least = error, min(loss, found.least)
        if not error < (1.0 - _BETTER) * found.error and found.theta is not None:
            return False
        found.position, found.error, found.loss = position, error, loss
        found.theta = self.solver.theta
        return True

    def _solved(self, found: BestC) -> Solution:
        """Solve to the end at the best C and size."""
        solver, loss = self.solver, self.problem.loss
        if solver.features is not found.plan.features:
            solver.resize(*found.plan[:3])
        C = float(self.candidates[found.position])
        solution, curve = solver.solve(loss, C, found.theta, goes_on=True), None
        if self.problem.compares:
            curve = np.full(len(self.candidates), np.nan)
            curve[self.order[list(self.curve)]] = list(self.curve.values())
        details = solution.details
        if self.last is None:
            sizes, errors = zip(*self.compared, strict=True)
            details = details | {"sizes": {"sizes": np.array(sizes), "errors": np.array(errors)}}
        return replace(solution, error=found.loss, curve=curve, details=details)
