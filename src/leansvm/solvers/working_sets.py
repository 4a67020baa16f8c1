"""The squared-hinge SVM on working sets of rows: Newton's method by conjugate gradients.

A model of low rank (`_nystrom`) tells, for all classes at once, nearly which rows S have an
error 1 - y f > 0. On these and a few more, W, the exact problem is solved by Newton steps with an
exact line search, each by conjugate gradients that the low rank preconditions (`_support_cg`), or
by a factor where S is small. Then kernel values of all rows show which of them W lacks: W grows
until there is none. Nothing larger than K_WW is kept, and nothing of it is factored.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import in_order, serial_blas
from leansvm.solvers._hinge import (
    Hinge,
    Point,
    distance,
    dual_objective,
    errors,
    exact_step,
    feasible_dual,
    linear_weights,
    objective,
    stopped_advice,
)
from leansvm.solvers._nystrom import Nystrom, changed_gram, rank_for
from leansvm.solvers._support_cg import Cheap, solve_by_cg, solve_by_factor
from leansvm.solvers.kernel_matrix import KernelMatrix, product_bytes, unstored
from leansvm.solvers.problem import DualProblem
from leansvm.solvers.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_MARGIN = 0.05  # rows this close to an error belong to the working set
_FEW = 300  # support vectors up to which a factor is faster than conjugate gradients (measured)
_FACTORED = 2500  # the same where these converge slowly
_FIRST, _SHARPER, _OWN = 1e-2, 0.03, 0.15  # tolerance of a solve: most, of the violation, of tol
_INSIDE = 0.5  # share of tol to aim at: `feasible_dual` changes the multipliers a little
_MOST_CG = 60  # steps of one solve
_MOST_STEPS = 40  # of Newton, for one working set
_ROUNDS = 20
_IN_THREADS = 1000  # rows from which on outputs are solved side by side
_SPARE = 16  # a working set may grow by one part in so many before its matrix is made anew
_TILE = 512
_VECTORS, _PER_OUTPUT = 12, 8  # of length m


class TooSlow(Exception):
    """Another solver will be faster, or fit."""


@dataclass
class _Output:
    """One class against the rest: its working set W and what was found on it."""

    hinge: Hinge  # of all rows
    rows: Rows  # W
    e: Array  # errors of W
    gram: Array  # Z_S' C s Z_S of the rows `counted` of W
    counted: NDArray[np.bool_]
    K: Array | None = None  # K_WW of the first `known` rows of W, with room to grow
    known: int = 0
    point: Point | None = None  # of W, later of all rows
    few: int = _FEW  # support vectors up to which K_SS is factored
    n_iter: int = 0
    violation: float = 1.0
    objective: float = np.nan
    gap: float = np.nan
    stopped: bool = False


def solve_working_sets(
    problem: DualProblem, C: float, *, tol: float, max_iter: int
) -> Solution | None:
    """Solve for all outputs (targets +-1); None where another solver will be faster, or fit."""
    m, n_outputs = problem.Y.shape
    rank = rank_for(m)
    needed = 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs + 2 * rank)
    needed += 8 * rank**2 * (n_outputs + 4) + product_bytes(problem)
    if not problem.fits(needed):
        return None
    problem.reserve(needed, "Working sets", or_cg=False)
    try:
        with problem.phases("solve"), np.errstate(all="ignore"), serial_blas() as threads:
            outputs = _Fit(problem, C, tol, max_iter, threads, needed).run()
    except (TooSlow, np.linalg.LinAlgError):  # the others say where K + 1 / C is indefinite
        return None
    return _solution(problem, C, outputs, tol)


class _Fit:
    """One fit: the kernel matrix, its low rank, and the loop over working sets."""

    def __init__(
        self,
        problem: DualProblem,
        C: float,
        tol: float,
        max_iter: int,
        threads: int,
        planned: int,
    ) -> None:
        self.problem, self.cost, self.tol, self.max_iter = problem, C * problem.weight, tol, max_iter
        self.threads, self.planned = threads, planned
        self.matrix: KernelMatrix = unstored(problem)
        self.low_rank = Nystrom(self.matrix, problem.bias_penalty)

    def run(self) -> list[_Output]:
        """Solve on working sets until no row outside of them has an error."""
        outputs = self._begin()
        todo, side_by_side = outputs, len(self.cost) >= _IN_THREADS
        for _ in range(_ROUNDS):
            keep = self._plan(outputs)
            if side_by_side and len(todo) > 1 and self.problem.on_iteration is None:
                deque(in_order(self._solve_on_set, todo, keep), maxlen=0)
            else:
                for output in todo:
                    self._solve_on_set(output, keep)
            todo = self._lacking(todo)
            if not todo:
                return outputs
        raise TooSlow

    def _begin(self) -> list[_Output]:
        """Return the outputs with the working sets that the model of low rank suggests."""
        Y, penalty = np.ascontiguousarray(self.problem.Y.T), self.problem.bias_penalty
        E, grams, counted = self.low_rank.start(Y, self.cost)
        if not np.all(np.isfinite(E)):
            raise TooSlow
        outputs = []
        for y, e, gram, was in zip(Y, E, grams, counted, strict=True):
            W = np.flatnonzero((e > -_MARGIN) | was)
            outputs.append(_Output(Hinge(y, self.cost, penalty), W, e[W], gram, was[W]))
        return outputs

    def _plan(self, outputs: list[_Output]) -> bool:
        """Plan the memory of the matrices K_WW; return whether all of them can be kept."""
        rows = np.sort([len(output.rows) for output in outputs]).astype(float)
        sizes = 8 * (rows + rows // _SPARE + 1) ** 2
        at_once = min(len(rows), self.threads + 1)
        # beside K_WW a thread holds rows of Z and the system of a few rows
        work = 8 * at_once * (rows[-1] * self.low_rank.Z.shape[1] + 3 * _FEW**2)
        keep = self.problem.fits(int(self.planned + work + sizes.sum()))
        needed = int(self.planned + work + (sizes if keep else sizes[-at_once:]).sum())
        if not self.problem.fits(needed):
            raise TooSlow
        self.problem.reserve(needed, "Working sets", or_cg=False)
        return keep

    def _values(self, output: _Output) -> Array:
        """Return K_WW: computed at first, and only its new rows after W has grown."""
        W, n, K = output.rows, len(output.rows), output.K
        first = 0
        if K is not None and len(K) >= n:
            first = output.known
        else:
            room = n + n // _SPARE
            K = output.K = np.empty((room, room))
        for start in range(first, n, _TILE):
            stop = min(start + _TILE, n)
            K[start:stop, :n] = self.matrix.block(W[start:stop], W)
        K[:first, first:n] = K[first:n, :first].T
        output.known = n
        return K[:n, :n]

    def _solve_on_set(self, output: _Output, keep: bool) -> None:
        """Take Newton steps on the working set, each to the minimum on its line."""
        K, W, point = self._values(output), output.rows, output.point
        hinge = Hinge(output.hinge.y[W], self.cost[W], output.hinge.bias_penalty)
        Z = self.low_rank.Z[W]
        for _ in range(_MOST_STEPS):
            if output.n_iter >= self.max_iter or output.stopped:
                break
            found = self._newton_point(output, K, hinge, Z, point)
            output.n_iter += 1
            output.violation = distance(hinge, found)
            if self.problem.on_iteration is not None:
                output.stopped = self.problem.on_iteration(output.n_iter, output.violation)
            solved = output.violation <= _INSIDE * self.tol
            if point is None or solved:
                point = found
            else:
                step = found - point
                t = exact_step(hinge, point, step, None)
                if t == 0.0:  # only rounding is left
                    raise TooSlow
                point = found if t == 1.0 else point.moved(step, t)
            output.point, output.e = point, errors(hinge, point)
            if solved:
                break
        else:
            raise TooSlow
        if not keep:
            output.K = None

    def _newton_point(
        self, output: _Output, K: Array, hinge: Hinge, Z: Array, point: Point | None
    ) -> Point:
        """Return the solution of the equations of S, the rows with an error."""
        now = output.e > 0
        S = np.flatnonzero(now)
        if not len(S):
            raise TooSlow
        if len(S) <= output.few:
            return solve_by_factor(K, hinge, S)
        output.gram = changed_gram(output.gram, Z, hinge.cost, output.counted, now)
        output.counted = now
        start = Point(np.zeros(len(K)), 0.0, np.zeros(len(K)))
        if point is not None:  # less the rows that left S
            left = np.flatnonzero((point.beta != 0) & ~now)
            f = point.f - point.beta[left] @ K[left]
            start = Point(np.where(now, point.beta, 0.0), point.b, f)
        tol = max(_OWN * self.tol, min(_FIRST, _SHARPER * output.violation))
        cheap = Cheap.of(Z[:, :-1], output.gram[:-1, :-1], S, hinge.cost)
        found, done = solve_by_cg(K, hinge, S, start, cheap, tol=tol, most=_MOST_CG)
        if done:
            return found
        if len(S) > _FACTORED:
            raise TooSlow
        output.few = _FACTORED
        return solve_by_factor(K, hinge, S)

    def _lacking(self, todo: list[_Output]) -> list[_Output]:
        """Certify on all rows; return the outputs whose working sets lacked some, with these."""
        m, lacking = len(self.cost), []
        B = np.zeros((m, len(todo)))
        for column, output in zip(B.T, todo, strict=True):
            assert output.point is not None  # a step was taken
            column[output.rows] = output.point.beta
            column[:] = feasible_dual(output.hinge, column)
        for beta, product, output in zip(B.T, self.matrix.product(B).T, todo, strict=True):
            assert output.point is not None
            hinge, W = output.hinge, output.rows
            point = Point(beta.copy(), output.point.b, product + output.point.b)
            output.violation = distance(hinge, point)
            if output.violation <= self.tol or output.n_iter >= self.max_iter or output.stopped:
                output.objective = objective(hinge, point)
                output.gap = output.objective - dual_objective(hinge, beta, product)
                output.point, output.K = point, None
                continue
            e = errors(hinge, point)
            outside = np.ones(m, np.bool_)
            outside[W] = False
            added = np.flatnonzero(outside & (e > -_MARGIN))
            output.rows = W = np.concatenate([W, added])
            output.counted = np.append(output.counted, np.zeros(len(added), np.bool_))
            output.e, output.point = e[W], Point(beta[W], point.b, point.f[W])
            lacking.append(output)
        return lacking


def _solution(problem: DualProblem, C: float, outputs: list[_Output], tol: float) -> Solution:
    """Put together what the outputs found."""
    found = Solution("working-set", np.empty(problem.Y.shape), np.empty(len(outputs)), C)
    found.objective = found.gap = found.residual = 0.0
    for j, output in enumerate(outputs):
        assert output.point is not None
        found.coef[:, j], found.b[j] = output.point.beta, output.point.b
        found.objective += output.objective
        found.gap += max(output.gap, 0.0)
        found.residual = max(output.violation, found.residual)
        found.iterations = max(output.n_iter, found.iterations)
    found.converged = found.residual <= tol
    found.weights = linear_weights(problem, found.coef)
    found.details = {"violation": found.residual, "rows_kept_out": 0, "factor": {}}
    if not found.converged:
        found.advice = stopped_advice(found.iterations, found.residual, tol)
    return found
