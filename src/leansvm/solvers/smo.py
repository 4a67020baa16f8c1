"""Sequential minimisation without a constraint to keep: 2SMO and SesquiSMO (joshi, §§III, IV).

minimise 1/2 beta'Q beta - (y - b)'beta,  Q_ij = K_ij + p_i + p_j + c + [i = j] / (C s_i).
With p = 0, b = 0, c = 1/A, beta = lambda y it is the relaxed LS-SVM (20), (21), where `bounded`
adds lambda >= 0 (SesquiSMO). A step minimises exactly over a block of multipliers (over one:
rule (31) with the term lambda_k / C that the paper drops) and updates K beta by its kernel rows.
Every half sweep, the steps of the last ones are combined to the best of their span.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._dual import NotPositiveDefinite
from leansvm.solvers._rows import POOL_BLOCKS, KernelRows, MatrixRows

Array = NDArray[np.float64]

WORKING_SETS = ("gain", "violation", "cyclic")
_SLOW_SWEEPS = 10.0  # expecting more than this, blocks are picked from a larger pool
_IN_TURN, _IN_TURN_LARGE = 0.25, POOL_BLOCKS - 1.0  # rows in turn of a pool, in blocks
_HISTORY = 3  # directions of the subspace that a round ends with
_ROUNDING = 1e-15
_ROUNDS = 12  # whose progress says how many more are to be expected
_PATIENCE = 50  # sweeps without progress after which the iteration has stalled


@dataclass
class Quadratic:
    """The function to minimise, less its kernel rows; arrays have one entry a row."""

    y: Array
    ridge: Array  # 1 / (C s)
    weight: Array  # s
    c: float = 0.0
    b: float = 0.0
    offset: Array | None = None  # p; None for zeros
    bounded: bool = False  # y beta >= 0

    def squared_norm(self) -> float:
        """Return sum(s y^2), what residuals are relative to."""
        return max(float(self.weight @ self.y**2), float(np.finfo(np.float64).tiny))


@dataclass
class State:
    """Multipliers, f = K beta, and how far the iteration has come."""

    beta: Array
    f: Array
    updates: int = 0
    norm: float = np.inf  # sum(s v^2), v the violation of every row
    status: str = "new"  # "done", "slow" (given up), "stopped" or "stalled"

    @classmethod
    def zeros(cls, m: int) -> State:
        """Start at beta = 0."""
        return cls(np.zeros(m), np.zeros(m))

    @property
    def sweeps(self) -> int:
        """Updates in units of the number of rows, rounded up."""
        return -(-self.updates // max(len(self.beta), 1))


def minimise(
    rows: KernelRows,
    quadratic: Quadratic,
    state: State | None = None,
    *,
    tol: float,
    max_sweeps: int,
    working_set: str = "gain",
    block: int | None = None,
    give_up_after: float | None = None,
    on_sweep: Callable[[int, float], bool] | None = None,
) -> State:
    """Minimise the quadratic; return the state, which a later call may start from.

    Parameters
    ----------
    rows : KernelRows
        Kernel matrix.
    quadratic : Quadratic
        The other terms.
    state : State, optional
        Where to start; it is changed. None for zero.
    tol : float
        Weighted violation of the optimality conditions relative to the targets,
        (sum s v^2 / sum s y^2)^1/2, at which to stop.
    max_sweeps : int
        Most updates, in units of the number of rows.
    working_set : {"gain", "violation", "cyclic"}
        How a block is chosen: the largest decrease of the objective given the members picked
        so far, the largest violation, or rows in turn, passing over those nearly optimal.
    block : int, optional
        Multipliers a step; 1 is the paper's update. None for what suits ``rows``.
    give_up_after : float, optional
        Return with status "slow" as soon as more sweeps than this are expected.
    on_sweep : callable, optional
        Called with (sweep, relative violation); returns True to stop.

    Raises
    ------
    NotPositiveDefinite
        When a block of Q is not, or the iteration diverges.
    """
    state = State.zeros(len(quadratic.y)) if state is None else state
    run = _Run(rows, quadratic, state, working_set, rows.block if block is None else block)
    scale = quadratic.squared_norm()
    target = max(tol, _ROUNDING) ** 2 * scale
    first, before = state.updates, np.inf
    best, best_at = np.inf, state.sweeps
    norms: list[float] = []
    state.status = "stalled"
    while state.updates - first < max_sweeps * len(state.beta):
        run.round(target)
        if state.norm <= target:
            state.status = "done"
            break
        if not state.norm <= 1e20 * scale:
            raise NotPositiveDefinite("the iteration diverged")
        if state.norm < 0.99 * best:
            best, best_at = state.norm, state.sweeps
        elif state.sweeps - best_at >= _PATIENCE:
            break
        if on_sweep is not None and on_sweep(state.sweeps, float(np.sqrt(state.norm / scale))):
            state.status = "stopped"
            break
        swept = (state.updates - first) / len(state.beta)
        expected = run.share * _rounds_left(state.norm / before, state.norm / target)
        if before < np.inf:
            run.set_pool(large=expected > _SLOW_SWEEPS)
            norms.append(state.norm)
            recent = norms[-_ROUNDS:]  # a single round may even raise the violation
            rate = (recent[-1] / recent[0]) ** (1.0 / max(len(recent) - 1, 1))
            expected = run.share * _rounds_left(rate, state.norm / target)
            if give_up_after is not None and swept >= 4 and swept + expected > give_up_after:
                state.status = "slow"
                break
        before = state.norm
        run.extrapolate()
    return state


def _rounds_left(rate: float, to_go: float) -> float:
    """Return the rounds that are left at the rate of the last one."""
    return float(np.log(to_go) / -np.log(rate)) if 0 < rate < 1 else np.inf


class _Run:
    """One minimisation: its terms, the place it has reached and how it chooses blocks."""

    def __init__(
        self, rows: KernelRows, quadratic: Quadratic, state: State, working_set: str, block: int
    ) -> None:
        from leansvm.solvers import _smo_kernels as kernels

        if working_set not in WORKING_SETS:
            raise ValueError(f"working_set must be one of {WORKING_SETS}, got {working_set!r}.")
        m = len(quadratic.y)
        offset = np.zeros(m) if quadratic.offset is None else quadratic.offset
        curvature = rows.diag + quadratic.ridge + quadratic.c + 2 * offset
        if not np.all(curvature > 0):
            raise NotPositiveDefinite(f"not positive definite at row {int(np.argmin(curvature))}")
        self.rows, self.state, self.kernels = rows, state, kernels
        self.y = quadratic.y - quadratic.b
        self.terms = kernels.Terms(
            ridge=quadratic.ridge,
            offset=offset,
            sign=np.sign(quadratic.y) if quadratic.bounded else np.zeros(m),
            weight=quadratic.weight,
            curvature=curvature,
            priority=np.ones(m) if working_set == "violation" else 1.0 / curvature,
            c=float(quadratic.c),
            shifted=quadratic.offset is not None,
            bounded=quadratic.bounded,
            uniform=bool(np.ptp(quadratic.weight) == 0 and np.ptp(curvature) == 0),
        )
        self.cyclic, self.by_gain = working_set == "cyclic", working_set != "violation"
        self.block = max(1, min(block, m))
        # the same order for everybody: a fit has no randomness
        self.order = np.random.default_rng(0).permutation(m)
        self.cursor = np.zeros(1, np.int64)
        self.set_pool(large=False)
        # a round is half a sweep and an extrapolation, a whole sweep of the paper's updates
        self.share = 0.5 if self.block > 1 else 1.0
        self.budget = max(1, round(self.share * m))
        self.before = (state.beta.copy(), state.f.copy())
        self.directions: list[tuple[Array, Array]] = []

    def set_pool(self, *, large: bool) -> None:
        """Set the pool's size: large where the greatest violations are much alike."""
        m, q = len(self.order), self.block
        n_top = 0 if self.cyclic else q
        n_turn = int(q * (1.0 if self.cyclic else _IN_TURN_LARGE if large else _IN_TURN))
        if q == 1 and not self.cyclic:  # the best of all rows, as in the paper
            n_turn = 0
        self.plan = self.kernels.Plan(
            self.by_gain, self.cyclic, n_top, min(n_turn, m - n_top), q, self.order, self.cursor
        )

    def round(self, target: float) -> None:
        """Update multipliers until the target or the budget of a round is reached."""
        state, terms = self.state, self.terms
        # summed afresh, for c multiplies what rounding adds up to
        sums = np.array([state.beta.sum(), terms.offset @ state.beta])
        r = self.y - state.f - terms.ridge * state.beta
        point = self.kernels.Point(state.beta, r, sums)
        work = self.kernels.make_work(len(state.beta), self.plan)
        if isinstance(self.rows, MatrixRows):
            used, state.norm, failed = self.kernels.run_on_matrix(
                self.rows.matrix, terms, point, self.plan, work, target, self.budget
            )
        else:
            used, state.norm, failed = self._fetching(point, work, target)
        state.f = self.y - r - terms.ridge * state.beta
        state.updates += max(used, 1)
        if failed < 0:
            raise NotPositiveDefinite(f"not positive definite at row {-1 - failed}")

    def extrapolate(self) -> None:
        """Minimise over the span of the last rounds' steps: K d is a difference of two K beta.

        Costs no kernel value. Not taken where it would leave the bounds.
        """
        if self.block == 1:
            return
        state, terms = self.state, self.terms
        beta, f = self.before
        recent = [*self.directions, (state.beta - beta, state.f - f)][-_HISTORY:]
        D, KD = (np.array(part) for part in zip(*recent, strict=True))
        QD = KD + terms.ridge * D + np.outer(D.sum(axis=1), terms.c + terms.offset)
        QD += (D @ terms.offset)[:, None]
        total = float(state.beta.sum())
        v = self.y - state.f - terms.ridge * state.beta
        v -= (terms.c + terms.offset) * total + terms.offset @ state.beta
        step = np.linalg.lstsq(D @ QD.T, D @ v, rcond=1e-12)[0]
        d, Kd = step @ D, step @ KD
        if np.all((state.beta + d) * terms.sign >= 0):
            state.beta += d
            state.f += Kd
            recent.append((d, Kd))
        self.directions = recent[1 - _HISTORY :]
        self.before = (state.beta.copy(), state.f.copy())

    def _fetching(self, point: Any, work: Any, target: float) -> tuple[int, float, int]:
        """Do as `run_on_matrix` does, with rows that may have to be computed first."""
        kernels, terms, used = self.kernels, self.terms, 0
        while True:
            n, norm = kernels.choose(terms, point, self.plan, work)
            if norm <= target or used >= self.budget or n == 0:
                return used, norm, 0
            square = self.rows.square(work.pool[:n])
            count = kernels.solve_block(square, np.arange(n), n, terms, point, self.plan, work)
            if count <= 0:
                return used, norm, count
            kernels.take_step(count, terms, point, work)
            self.rows.subtract(work.picks[:count], work.delta[:count], point.r)
            used += count
