"""The squared-hinge SVM on working sets of rows: Newton's method by conjugate gradients.

A model of low rank (`Nystrom`) estimates, for all classes at once, which rows S have an error
1 - y f > 0. These rows and a few more are the working set W. On W, Newton steps with an exact line
search solve the exact problem; each uses conjugate gradients, preconditioned by the low-rank model,
or a factor if S is small. Then the kernel values of all rows show which rows W lacks, and W grows
until it lacks none. Nothing larger than K_WW is kept, and K_WW is never factored as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from leansvm._parallel import in_order, limited_blas
from leansvm.dual._hinge import (
    Array,
    Hinge,
    HingeOutput,
    Mask,
    Point,
    Rows,
    changed_gram,
    cholesky_of,
    gram_of,
    joined_solution,
    left_out_residuals,
    low_rank_inverse,
    solve_by_cg,
    solve_by_factor,
    times,
)
from leansvm.dual.kernel_matrix import KernelMatrix, StoredMatrix, product_bytes, unstored
from leansvm.dual.problem import DualProblem, check_symmetric
from leansvm.linalg import cholesky_solve
from leansvm.solution import Solution

_CLOSE_TO_ERROR = 0.02  # rows this close to an error belong to the working set
_FIRST_TOL = 0.01  # violation at which the first ones, found by low rank, have served
_FACTORED_SUPPORT = 300  # support vectors: up to here a factor is faster than CG (measured)
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
_FEWEST, _MOST, _SHARE = 64, 300, 16  # random rows: a share of all, within these (measured)
_INDEPENDENT = 1e-10  # rows whose pivot is below this share of the largest add nothing
_STEPS = 8  # Newton steps of low rank at most: they find a start, no solution
_SETTLED = 0.02  # share of the support whose change ends them


class TooSlow(Exception):
    """Another solver will be faster, or fit."""


@dataclass
class _ClassSet:
    """One class against the rest: its working set W and what was found on it."""

    hinge: Hinge  # of all rows
    rows: Rows  # W
    e: Array  # errors of W
    gram: Array  # Z_S' C s Z_S of the rows `counted` of W
    counted: Mask
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
        self.rank = rank = min(m, max(_FEWEST, min(_MOST, m // _SHARE)))
        needed = 8 * m * (_VECTORS + _PER_OUTPUT * n_outputs + 2 * rank)
        self.needed = needed + 8 * rank**2 * (n_outputs + 4) + product_bytes(problem)

    def solve(self, C: float, *, tol: float, max_iter: int, left_out: float = 0) -> Solution | None:
        """Solve on working sets until no row outside of them has an error, for all outputs.

        Returns None if another solver will be faster, or fit. If outputs have at
        most about ``left_out`` support vectors, the solution has the residuals of models without
        each row, at fixed support sets.
        """
        if not self.problem.fits(self.needed):
            return None
        self.problem = problem = self.problem.reserve(self.needed, "The fit", or_cg=False)
        self.cost, self.planned, self.matrix = C * problem.weight, self.needed, unstored(problem)
        self.tol, self.max_iter, self.left_out = tol, max_iter, left_out
        side_by_side = len(self.cost) >= _IN_THREADS and problem.on_iteration is None
        try:
            with problem.phases("solve"), np.errstate(all="ignore"), limited_blas() as self.threads:
                penalty = problem.bias_penalty
                self.low_rank = self.low_rank or Nystrom(self.matrix, self.rank, penalty)
                outputs = todo = self._begin(self.low_rank)
                for number in range(_ROUNDS):
                    keep = self._plan(outputs)
                    self.inside = max(_INSIDE * tol, 0.0 if number else _FIRST_TOL)
                    if side_by_side and len(todo) > 1:
                        list(in_order(self._solve_on_set, todo, keep))
                    else:
                        for output in todo:
                            self._solve_on_set(output, keep)
                    todo = self._lacking(todo)
                    if not todo:
                        break
                else:
                    return None
                found = [output.found for output in outputs if output.found is not None]
                sizes = np.array([np.count_nonzero(one.point.beta) for one in found], np.float64)
                if np.mean(sizes**3) <= left_out**3:  # of factors, one for each output
                    found = [self._left_out(one) for one in found]
        except (TooSlow, np.linalg.LinAlgError):  # the others say where K + 1 / C is indefinite
            return None
        finally:
            del self.matrix  # it may hold all kernel values
        return joined_solution("working-set", self.problem, C, found, tol)

    def _begin(self, low_rank: Nystrom) -> list[_ClassSet]:
        """Return the outputs with the working sets that the model of low rank suggests."""
        Y, penalty = np.ascontiguousarray(self.problem.Y.T), self.problem.bias_penalty
        E, grams, counted = low_rank.start(Y, self.cost)
        if not np.all(np.isfinite(E)):
            raise TooSlow
        outputs, own, m = [], 0, len(self.cost)
        for y, e, inner, was in zip(Y, E, grams, counted, strict=True):
            W = np.flatnonzero((e > -_CLOSE_TO_ERROR) | was)
            outputs.append(_ClassSet(Hinge(y, self.cost, penalty), W, e[W], inner, was[W]))
            own += len(W) ** 2
        # the classes share one matrix if separate matrices would take more kernel values
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
        factored = 3 * min(_FACTORED_SUPPORT, rows[-1]) ** 2
        work = 8 * at_once * (rows[-1] * (self.rank + 1) + factored)
        work += 2 * 8 * min(rows[-1], self.left_out) ** 2  # a factor, and panels
        keep = self.problem.fits(int(self.planned + work + sizes.sum()))
        needed = int(self.planned + work + (sizes if keep else sizes[-at_once:]).sum())
        if not keep and not self.problem.fits(needed):
            raise TooSlow
        self.problem = self.problem.reserve(needed, "The fit", or_cg=False)
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
        if len(S) <= _FACTORED_SUPPORT:
            return solve_by_factor(K, hinge, S)
        moved = not np.array_equal(now, output.counted)
        if moved:
            output.gram = changed_gram(output.gram, Z, hinge.cost, output.counted, now)
            output.counted = now
        start = hinge.constant_point()
        if point is not None:  # without the rows that left S
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
        """Certify on all rows; return the outputs whose working sets lacked rows, now added."""
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
                certificate = beta, product, output.violation, output.n_iter
                output.found, output.K = HingeOutput(hinge, point, *certificate), None
                continue
            e = hinge.errors(point)
            outside = np.ones(m, np.bool_)
            outside[W] = False
            added = np.flatnonzero(outside & (e > -_CLOSE_TO_ERROR))
            output.rows = W = np.concatenate([W, added])
            output.counted = np.append(output.counted, np.zeros(len(added), np.bool_))
            output.e, output.point = e[W], Point(beta[W], point.b, point.f[W])
            lacking.append(output)
        return lacking

    def _left_out(self, found: HingeOutput) -> HingeOutput:
        """Add the residuals of models without each row, at a fixed support set."""
        S = np.flatnonzero(found.point.beta)
        K = self.matrix.block(S, S)
        return found._replace(left_out=left_out_residuals(K, found.hinge, S, found.point))

    def _products(self, B: Array, todo: list[_ClassSet]) -> Array:
        """Return K B: output by output with its K_WW if that takes fewer new kernel values."""
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


# ---------------------------------------------------------------------------- low rank


class Nystrom:
    """Features Z = K_MB L^-T of all rows, with a last column for the bias.

    B are a few random rows, K_BB = L L'. With K = Z Z' the squared-hinge SVM f = Z theta + b
    minimises 1/2 |theta|^2 + 1/2 A b^2 + C/2 sum_i s_i max(0, 1 - y_i f_i)^2: Newton steps in few
    unknowns, all outputs at once, tell nearly which rows belong to S.
    Raises LinAlgError if no kernel value of a row with itself is positive.
    """

    def __init__(self, matrix: KernelMatrix, rank: int, bias_penalty: float) -> None:
        m = matrix.m
        basis = np.random.default_rng(0).permutation(m)[:rank]  # no randomness in a fit
        K = matrix.block(basis, basis)
        if callable(matrix.kernel.name):
            check_symmetric(K, "the callable kernel")
        largest = float(K.diagonal().max())
        factor, order, rank, _ = dpstrf(K.T, lower=1, tol=_INDEPENDENT * largest)
        if not 0 < largest < np.inf or rank == 0:
            raise np.linalg.LinAlgError("no positive kernel value on the diagonal")
        chosen, L = basis[order[:rank] - 1], np.tril(factor[:rank, :rank])
        self.Z = np.empty((m, rank + 1))
        for start in range(0, m, _TILE):
            rows = np.arange(start, min(start + _TILE, m))
            values = matrix.block(rows, chosen)
            self.Z[rows, :rank] = solve_triangular(L, values.T, lower=True, check_finite=False).T
        self.Z[:, rank] = 0.0 if np.isinf(bias_penalty) else 1.0
        self.penalty = np.ones(rank + 1)
        self.penalty[rank] = 1.0 if np.isinf(bias_penalty) else bias_penalty

    def start(self, Y: Array, cost: Array) -> tuple[Array, list[Array], Mask]:
        """Solve the problem of low rank for every row of Y, the targets of an output.

        Return the errors 1 - y f, Gram matrices, and the rows that each of these is made of.
        """
        everything = gram_of(self.Z, cost, np.arange(Y.shape[1]))
        grams, was = [everything] * len(Y), np.ones(Y.shape, np.bool_)
        factor = cholesky_of(everything.copy(), self.penalty)
        theta = cholesky_solve(factor, ((cost * Y) @ self.Z).T).T
        E = 1.0 - Y * (np.ascontiguousarray(theta) @ self.Z.T)
        for _ in range(_STEPS):
            now = E > 0
            count = np.count_nonzero(now != was, axis=1)
            moving = np.flatnonzero(count > _SETTLED * np.count_nonzero(now, axis=1))
            if not len(moving):
                break
            right = (cost * Y[moving] * now[moving]) @ self.Z
            for i, j in enumerate(moving):
                grams[j] = changed_gram(grams[j], self.Z, cost, was[j], now[j])
                right[i] = cholesky_solve(cholesky_of(grams[j].copy(), self.penalty), right[i])
            was[moving] = now[moving]
            E[moving] = 1.0 - Y[moving] * (right @ self.Z.T)
        return E, grams, was
