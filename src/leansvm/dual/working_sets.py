"""The squared-hinge SVM on working sets of rows: Newton's method by conjugate gradients.

A model of low rank (`_support_cg`) tells, for all classes at once, nearly which rows S have an
error 1 - y f > 0. On these and a few more, W, the exact problem is solved by Newton steps with an
exact line search, each by conjugate gradients that the low rank preconditions, or by a factor
where S is small. Then kernel values of all rows show which of them W lacks: W grows
until there is none. Nothing larger than K_WW is kept, and nothing of it is factored.

`solve_newton` is Newton's method in the primal (Chapelle 2007), the second reference: the whole
kernel matrix, where the rows are, and a factor of K_SS for every S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import blas_for, in_order, serial_blas
from leansvm.dual._hinge import Hinge, HingeOutput, Point, joined_solution
from leansvm.dual._support_cg import (
    Nystrom,
    changed_gram,
    left_out_residuals,
    low_rank_inverse,
    rank_for,
    solve_by_cg,
    solve_by_factor,
    times,
)
from leansvm.dual.kernel_matrix import KernelMatrix, StoredMatrix, gram, product_bytes, unstored
from leansvm.dual.problem import DualProblem
from leansvm.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_MARGIN = 0.02  # rows this close to an error belong to the working set
_FIRST_TOL = 0.01  # violation at which the first ones, found by low rank, have served
_FEW = 300  # support vectors up to which a factor is faster than conjugate gradients (measured)
_FIRST, _SHARPER, _OWN = 1e-2, 0.03, 0.3  # tolerance of a solve: most, by violation, by aim
_INSIDE = 0.5  # share of tol to aim at: `feasible_dual` changes the multipliers a little
# steps of CG for one output beyond which an active set, with its factor, is faster: to factor 500
# to 4,000 rows takes as long as 50 to 80 steps (measured), and it takes several factors. The first
# solve, of two digits, takes about a tenth of all steps
_MOST_CG, _CG_SHARE, _FIRST_SHARE = 100, 8, 10
_MOST_STEPS = 40  # of Newton, for one working set
_ROUNDS = 20
_IN_THREADS = 1000  # rows from which on outputs are solved side by side
_SPARE = 16  # a working set may grow by one part in so many before its matrix is made anew
_TILE = 512
_VECTORS, _PER_OUTPUT = 12, 8  # of length m


class TooSlow(Exception):
    """Another solver will be faster, or fit."""


@dataclass
class _ClassSet:
    """One class against the rest: its working set W and what was found on it."""

    hinge: Hinge  # of all rows
    rows: Rows  # W
    e: Array  # errors of W
    gram: Array  # Z_S' C s Z_S of the rows `counted` of W
    counted: NDArray[np.bool_]
    K: Array | None = None  # K_WW of the first `known` rows of W, with room to grow
    known: int = 0
    point: Point | None = None  # of W, later of all rows
    n_iter: int = 0
    n_cg: int = 0
    violation: float = 1.0
    stopped: bool = False
    found: HingeOutput | None = None  # once no row is lacking


class WorkingSets:
    """Solver of one problem (targets +-1) for any C, which share the features of low rank."""

    matrix: KernelMatrix
    low_rank: Nystrom | None = None
    cost: Array  # C s
    threads: int
    planned: int  # bytes beside the matrices K_WW
    inside: float  # violation to reach on working sets

    def __init__(self, problem: DualProblem) -> None:
        self.problem = problem
        m, n_outputs = problem.Y.shape
        self.rank = rank = rank_for(m)
        needed = 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs + 2 * rank)
        self.needed = needed + 8 * rank**2 * (n_outputs + 4) + product_bytes(problem)

    def solve(
        self, C: float, *, tol: float, max_iter: int, left_out: bool = False
    ) -> Solution | None:
        """Solve for all outputs; None where another solver will be faster, or fit.

        ``left_out`` asks for the residuals of a model without each row, at fixed support sets.
        """
        if not self.problem.fits(self.needed):
            return None
        self.problem = problem = self.problem.reserve(self.needed, "Working sets", or_cg=False)
        self.cost, self.planned, self.matrix = C * problem.weight, self.needed, unstored(problem)
        self.tol, self.max_iter, self.left_out = tol, max_iter, left_out
        try:
            with problem.phases("solve"), np.errstate(all="ignore"), serial_blas() as self.threads:
                found = self._run()
        except (TooSlow, np.linalg.LinAlgError):  # the others say where K + 1 / C is indefinite
            return None
        finally:
            del self.matrix  # it may hold all kernel values
        return joined_solution("working-set", self.problem, C, found, tol)

    def _run(self) -> list[HingeOutput]:
        """Solve on working sets until no row outside of them has an error."""
        self.low_rank = self.low_rank or Nystrom(self.matrix, self.problem.bias_penalty)
        outputs = todo = self._begin(self.low_rank)
        side_by_side = len(self.cost) >= _IN_THREADS and self.problem.on_iteration is None
        for number in range(_ROUNDS):
            keep = self._plan(outputs)
            self.inside = max(_INSIDE * self.tol, 0.0 if number else _FIRST_TOL)
            if side_by_side and len(todo) > 1:
                for _ in in_order(self._solve_on_set, todo, keep):
                    pass
            else:
                for output in todo:
                    self._solve_on_set(output, keep)
            todo = self._lacking(todo)
            if not todo:
                return [output.found for output in outputs if output.found is not None]
        raise TooSlow

    def _begin(self, low_rank: Nystrom) -> list[_ClassSet]:
        """Return the outputs with the working sets that the model of low rank suggests."""
        Y, penalty = np.ascontiguousarray(self.problem.Y.T), self.problem.bias_penalty
        E, grams, counted = low_rank.start(Y, self.cost)
        if not np.all(np.isfinite(E)):
            raise TooSlow
        outputs, own, m = [], 0, len(self.cost)
        for y, e, inner, was in zip(Y, E, grams, counted, strict=True):
            W = np.flatnonzero((e > -_MARGIN) | was)
            outputs.append(_ClassSet(Hinge(y, self.cost, penalty), W, e[W], inner, was[W]))
            own += len(W) ** 2
        # the classes share one matrix where, each on its own, they would compute more values
        shared = self.planned + 8 * m * m
        worth_it = len(outputs) > 1 and own > m * m and not isinstance(self.matrix, StoredMatrix)
        if worth_it and self.problem.fits(shared + 8 * own):
            self.planned = shared
            self.matrix = StoredMatrix(self.matrix.block(np.arange(m), np.arange(m)))
        return outputs

    def _plan(self, outputs: list[_ClassSet]) -> bool:
        """Plan the memory of the matrices K_WW; return whether all of them can be kept."""
        rows = np.sort([float(len(output.rows)) for output in outputs])
        sizes = 8 * (rows + rows // _SPARE + 1) ** 2
        at_once = min(len(rows), self.threads + 1)
        # beside K_WW a thread holds rows of Z and the system of a few rows
        work = 8 * at_once * (rows[-1] * (self.rank + 1) + 3 * min(_FEW, rows[-1]) ** 2)
        work += 2 * 8 * rows[-1] ** 2 if self.left_out else 0  # a factor, and panels
        keep = self.problem.fits(int(self.planned + work + sizes.sum()))
        needed = int(self.planned + work + (sizes if keep else sizes[-at_once:]).sum())
        if not keep and not self.problem.fits(needed):
            raise TooSlow
        self.problem = self.problem.reserve(needed, "Working sets", or_cg=False)
        return keep

    def _values(self, output: _ClassSet) -> Array:
        """Return K_WW: computed at first, and only its new rows after W has grown."""
        W, n, K = output.rows, len(output.rows), output.K
        first = 0
        if K is not None and len(K) >= n:
            first = output.known
        else:
            room = n + n // _SPARE
            K = output.K = None  # its memory first
            K = output.K = np.empty((room, room))
        for start in range(first, n, _TILE):
            stop = min(start + _TILE, n)
            K[start:stop, :n] = self.matrix.block(W[start:stop], W)
        K[:first, first:n] = K[first:n, :first].T
        output.known = n
        return K[:n, :n]

    def _solve_on_set(self, output: _ClassSet, keep: bool) -> None:
        """Take Newton steps on the working set, each to the minimum on its line."""
        K, W, point = self._values(output), output.rows, output.point
        hinge = Hinge(output.hinge.y[W], self.cost[W], output.hinge.bias_penalty)
        assert self.low_rank is not None
        Z = self.low_rank.Z[W]
        for _ in range(_MOST_STEPS):
            if output.n_iter >= self.max_iter or output.stopped:
                break
            found = self._newton_point(output, K, hinge, Z, point)
            output.n_iter += 1
            output.violation = hinge.distance(found)
            if self.problem.on_iteration is not None:
                output.stopped = self.problem.on_iteration(output.n_iter, output.violation)
            solved = output.violation <= self.inside
            if point is not None and not solved:
                better = hinge.minimum_towards(point, found)
                if better is None:
                    raise TooSlow
                found = better
            point = output.point = found
            output.e = hinge.errors(found)
            if solved:
                break
        else:
            raise TooSlow
        if not keep:
            output.K = None

    def _newton_point(
        self, output: _ClassSet, K: Array, hinge: Hinge, Z: Array, point: Point | None
    ) -> Point:
        """Return the solution of the equations of S, the rows with an error."""
        now = output.e > 0
        S = np.flatnonzero(now)
        if not len(S):
            raise TooSlow
        if len(S) <= _FEW:
            return solve_by_factor(K, hinge, S)
        moved = not np.array_equal(now, output.counted)
        if moved:
            output.gram = changed_gram(output.gram, Z, hinge.cost, output.counted, now)
            output.counted = now
        start = hinge.constant_point()
        if point is not None:  # less the rows that left S
            left = np.flatnonzero((point.beta != 0) & ~now)
            f = point.f - point.beta[left] @ K[left]
            start = Point(np.where(now, point.beta, 0.0), point.b, f)
        # while S still moves, its equations need no more digits than the violation has
        rough = max(min(_FIRST, _SHARPER * output.violation), _OWN * self.inside)
        tol = rough if moved else _OWN * self.inside
        system = low_rank_inverse(Z[:, :-1], output.gram[:-1, :-1], S, hinge.cost)
        most = max(_MOST_CG, len(S) // _CG_SHARE)
        most = most // _FIRST_SHARE if point is None else most - output.n_cg
        found, steps, done = solve_by_cg(K, hinge, S, start, system, tol=tol, most=most)
        output.n_cg += steps
        if not done:
            raise TooSlow
        return found

    def _lacking(self, todo: list[_ClassSet]) -> list[_ClassSet]:
        """Certify on all rows; return the outputs whose working sets lacked some, with these."""
        m, lacking = len(self.cost), []
        B = np.zeros((m, len(todo)))
        for column, output in zip(B.T, todo, strict=True):
            assert output.point is not None  # a step was taken
            column[output.rows] = output.point.beta
            column[:] = output.hinge.feasible_dual(column)
        for beta, product, output in zip(B.T, self._products(B, todo).T, todo, strict=True):
            assert output.point is not None
            hinge, W = output.hinge, output.rows
            point = Point(beta.copy(), output.point.b, product + output.point.b)
            output.violation = hinge.distance(point)
            if output.violation <= self.tol or output.n_iter >= self.max_iter or output.stopped:
                S, residuals, output.K = np.flatnonzero(beta), None, None
                if self.left_out:
                    residuals = left_out_residuals(self.matrix.block(S, S), hinge, S, point)
                certificate = beta, product, output.violation, output.n_iter, residuals
                output.found = HingeOutput(hinge, point, *certificate)
                continue
            e = hinge.errors(point)
            outside = np.ones(m, np.bool_)
            outside[W] = False
            added = np.flatnonzero(outside & (e > -_MARGIN))
            output.rows = W = np.concatenate([W, added])
            output.counted = np.append(output.counted, np.zeros(len(added), np.bool_))
            output.e, output.point = e[W], Point(beta[W], point.b, point.f[W])
            lacking.append(output)
        return lacking

    def _products(self, B: Array, todo: list[_ClassSet]) -> Array:
        """Return K B: output by output with its K_WW where that takes fewer new kernel values."""
        m, new = len(B), 0.0
        for output, count in zip(todo, np.count_nonzero(B, axis=0), strict=True):
            new += np.inf if output.K is None else (m - len(output.rows)) * count
        stored = isinstance(self.matrix, StoredMatrix)
        if stored or new > m * np.count_nonzero(B.any(axis=1)):
            return self.matrix.product(B)
        result = np.empty(B.shape)
        for beta, out, output in zip(B.T, result.T, todo, strict=True):
            W, support = output.rows, np.flatnonzero(beta)
            assert output.K is not None
            out[W] = times(output.K[: len(W), : len(W)], beta[W])
            others = np.delete(np.arange(m), W)
            for start in range(0, len(others), _TILE):
                rows = others[start : start + _TILE]
                out[rows] = self.matrix.block(rows, support) @ beta[support]
        return result


def solve_newton(problem: DualProblem, C: float, *, tol: float, max_iter: int) -> Solution:
    """Solve for all outputs where the rows are; dense, 32 m^2 bytes."""
    needed = 4 * 8 * len(problem.weight) ** 2
    problem = problem.reserve(needed, "Newton's method on the kernel matrix", or_cg=False)
    K, outputs = gram(problem), []
    with problem.phases("solve"), blas_for(K.shape[0]):
        for y in problem.Y.T:
            hinge = Hinge(y, C * problem.weight, problem.bias_penalty)
            point, worst = hinge.constant_point(), np.inf
            for n_iter in range(1, max_iter + 1):
                S = np.flatnonzero(hinge.errors(point) > 0)
                found = solve_by_factor(K, hinge, S) if len(S) else hinge.constant_point(point.b)
                solved = hinge.distance(found) <= tol
                better = found if solved else hinge.minimum_towards(point, found)
                point = better or point
                worst = hinge.distance(point)
                stop = problem.on_iteration is not None and problem.on_iteration(n_iter, worst)
                if worst <= tol or stop or better is None:
                    break
            feasible = hinge.feasible_dual(point.beta)
            product = times(K, feasible)
            outputs.append(HingeOutput(hinge, point, feasible, product, worst, n_iter))
    return joined_solution("newton", problem, C, outputs, tol)
