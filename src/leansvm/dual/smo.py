"""The relaxed LS-SVM by sequential minimisation without equality constraint: 2SMO (joshi, §III).

minimise 1/2 beta'Q beta - (y - b)'beta,  Q_ij = K_ij + p_i + p_j + c + [i = j] / (C s_i).
With p = 0, b = 0, c = 1/A, beta = lambda y it is the relaxed LS-SVM (20), (21), where `bounded`
adds lambda >= 0 (SesquiSMO). A step minimises exactly over a block of multipliers (over one:
rule (31) with the term lambda_k / C that the paper drops) and updates K beta by its kernel rows.
Every half sweep, the steps of the last ones are combined to the best of their span.
`solve_smo` treats a free bias by substitution, see `minimise_by_substitution`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.dual.kernel_matrix import RecentRows, StoredMatrix, SweepMatrix, sweep_matrix
from leansvm.dual.problem import DualProblem, certified
from leansvm.solution import Solution

Array = NDArray[np.float64]

_HISTORY = 3  # directions of the subspace that a round ends with
_ROUNDING = 1e-15
_ROUNDS = 12  # whose progress says how many more are to be expected
_PATIENCE = 50  # sweeps without progress after which the iteration has stalled
TOO_SMOOTH = (  # what to do if sweeps did not converge
    "solver={solver!r} stopped after {sweeps} sweeps at {reached} (tol={tol:g}): the kernel is too "
    "smooth for updates of few multipliers at this C. Use solver={others}; or a larger gamma, a "
    "smaller C, a larger tol or max_iter."
)
CERTIFIED = 0.9  # share of tol that the sweeps aim at: the certificate adds rounding


@dataclass(frozen=True)
class Quadratic:
    """The function to minimise, without its kernel rows; arrays have one entry per row."""

    y: Array
    ridge: Array  # 1 / (C s)
    weight: Array  # s
    c: float = 0.0
    b: float = 0.0
    offset: Array | None = None  # p; None for zeros
    bounded: bool = False  # y beta >= 0


@dataclass
class SweepState:
    """Multipliers, f = K beta, and how far the iteration has come; it moves with the sweeps."""

    beta: Array
    f: Array
    updates: int = 0  # of single multipliers
    norm: float = np.inf  # sum(s v^2), v the violation of every row
    status: str = "new"  # "done", "slow" (given up), "stopped" or "stalled"

    @property
    def sweeps(self) -> int:
        """Updates in units of the number of rows, rounded up."""
        return -(-self.updates // max(len(self.beta), 1))


def solve_smo(
    problem: DualProblem,
    C: float,
    *,
    tol: float,
    max_iter: int,
    matrix: SweepMatrix | None = None,
    give_up_after: float = np.inf,
    name: str = "smo",
) -> Solution | None:
    """Solve every output with any kind of bias; None if more sweeps are expected than allowed.

    ``matrix`` is the kernel matrix if it has been computed already.
    """
    if matrix is None:
        problem, matrix = sweep_matrix(problem)
    weight, A, found = problem.weight, problem.bias_penalty, list[tuple[SweepState, float]]()
    options: dict[str, Any] = {
        "tol": CERTIFIED * tol,
        "max_sweeps": max_iter,
        "give_up_after": give_up_after,
        "on_sweep": problem.on_iteration,
    }
    with problem.phases("solve"):
        row_sums = matrix.product(np.ones(len(weight))) if A == 0 else None
        for y in np.ascontiguousarray(problem.Y.T):
            quadratic = Quadratic(y, 1.0 / (C * weight), weight)
            if row_sums is not None:
                state, b = minimise_by_substitution(matrix, quadratic, row_sums, **options)
            else:
                state = minimise(matrix, replace(quadratic, c=1.0 / A), **options)
                b = float(state.beta.sum()) / A
            if state.status == "slow":
                return None
            found.append((state, b))
    return sweep_solution(problem, matrix, C, found, tol=tol, solver=name)


def sweep_solution(
    problem: DualProblem,
    matrix: SweepMatrix,
    C: float,
    found: list[tuple[SweepState, float]],
    *,
    tol: float,
    solver: str,
    **details: Any,
) -> Solution:
    """Put the outputs, each with its bias, together with a certificate."""
    m, n_outputs = problem.Y.shape
    beta, b, sweeps, done = np.empty((m, n_outputs)), np.empty(n_outputs), 0, True
    for j, (state, bias) in enumerate(found):
        beta[:, j], b[j], sweeps = state.beta, bias, max(sweeps, state.sweeps)
        done = done and state.status == "done"
    reached, others = "a relative residual of {residual}", "'cg' or 'cholesky'"
    advice = TOO_SMOOTH.format(
        solver=solver, sweeps=sweeps, reached=reached, tol=tol, others=others
    )
    with problem.phases("certificate"):
        product = matrix.product(beta)
        r = problem.Y - b - product - beta / (C * problem.weight)[:, None]
        details["violation"] = float(np.abs(r).max())
        if isinstance(matrix, RecentRows):
            details |= {"cached_rows": matrix.n_slots, "computed_rows": matrix.computed}
        more = {"iterations": sweeps, "details": details}
        return certified(problem, C, solver, beta, b, product, tol, advice, done=done, **more)


def minimise_by_substitution(
    matrix: SweepMatrix, quadratic: Quadratic, row_sums: Array, **options: Any
) -> tuple[SweepState, float]:
    """Minimise with a free bias as one unconstrained problem (joshi, Appendix, corrected).

    The multiplier of the constraint 1'beta = 0 is b = 1'(y - G beta) / m,
    G = K + diag(1 / (C s)). Put into the objective it leaves W beta = P y, P = I - 11'/m,

        W = G - (11'G + G11') / m + d 11' = P G P + (d - 1'G1 / m^2) 11',

    which is positive definite for d > 1'G1 / m^2; 1'(W beta - P y) = 0 then implies 1'beta = 0.
    (The paper's term in alpha moves the stationary point; alpha = 0.) W is K plus p_i + p_j + c
    with p = -G1 / m, so that 2SMO needs nothing but ``row_sums`` = K 1. ``options`` are those of
    `minimise`. Return the state and the bias.
    """
    means = (row_sums + quadratic.ridge) / len(quadratic.y)  # G1 / m
    # in the direction of ones W has the curvature of G, so that tol bounds 1'beta as it does r
    c = 2.0 * float(means.mean())
    centred = quadratic.y - quadratic.y.mean()
    state = minimise(matrix, replace(quadratic, y=centred, offset=-means, c=c), **options)
    share = quadratic.weight / quadratic.weight.sum()
    state.beta -= state.beta.sum() * share  # rounding and tolerance, no more
    return state, float(share @ (quadratic.y - state.f - quadratic.ridge * state.beta))


def minimise(
    matrix: SweepMatrix,
    quadratic: Quadratic,
    state: SweepState | None = None,
    *,
    tol: float,
    max_sweeps: int,
    block: int | None = None,
    give_up_after: float = np.inf,
    on_sweep: Callable[[int, float], bool] | None = None,
) -> SweepState:
    """Minimise the quadratic from ``state`` (None: zero), which is changed and returned.

    ``tol`` is the weighted violation of the optimality conditions relative to the targets,
    (sum s v^2 / sum s y^2)^1/2, at which to stop; ``max_sweeps`` the most updates, in units of the
    number of rows; ``block`` the multipliers per step: 1 is the paper's update, None what suits
    the matrix. As soon as more than ``give_up_after`` sweeps are expected the status is "slow".
    ``on_sweep`` gets (sweep, relative violation) and returns True to stop. Raises LinAlgError when
    a block of Q is not positive definite, or the iteration diverges.
    """
    m = len(quadratic.y)
    state = SweepState(np.zeros(m), np.zeros(m)) if state is None else state
    run = _Sweeps(matrix, quadratic, state, matrix.step_rows if block is None else block)
    scale = max(float(quadratic.weight @ quadratic.y**2), float(np.finfo(np.float64).tiny))
    target = max(tol, _ROUNDING) ** 2 * scale
    first, best, best_at = state.updates, np.inf, state.sweeps
    norms: list[float] = []  # after every round
    state.status = "stalled"
    while state.updates - first < max_sweeps * m:
        run.round(target)
        norms.append(state.norm)
        if state.norm <= target:
            state.status = "done"
            break
        if not state.norm <= 1e20 * scale:
            raise np.linalg.LinAlgError("the iteration diverged")
        if state.norm < 0.99 * best:
            best, best_at = state.norm, state.sweeps
        elif state.sweeps - best_at >= _PATIENCE:
            break
        if on_sweep is not None and on_sweep(state.sweeps, float(np.sqrt(state.norm / scale))):
            state.status = "stopped"
            break
        recent = norms[1:][-_ROUNDS:]  # a single round may even raise the violation
        if len(recent) > 1:
            rate = (recent[-1] / recent[0]) ** (1.0 / (len(recent) - 1))
            rounds = np.log(state.norm / target) / -np.log(rate) if 0 < rate < 1 else np.inf
            swept = (state.updates - first) / m
            if swept >= 4 and swept + run.share * rounds > give_up_after:
                state.status = "slow"
                break
        run.extrapolate()
    return state


class _Sweeps:
    """One minimisation: its terms, the place it has reached and how it chooses blocks."""

    def __init__(
        self, matrix: SweepMatrix, quadratic: Quadratic, state: SweepState, block: int
    ) -> None:
        from leansvm.dual import _smo_kernels as kernels

        m = len(quadratic.y)
        offset = np.zeros(m) if quadratic.offset is None else quadratic.offset
        curvature = matrix.diag + quadratic.ridge + quadratic.c + 2 * offset
        if not np.all(curvature > 0):
            raise np.linalg.LinAlgError(f"not positive definite at row {int(np.argmin(curvature))}")
        self.matrix, self.state, self.kernels = matrix, state, kernels
        self.y = quadratic.y - quadratic.b
        self.terms = kernels.SweepTerms(
            ridge=quadratic.ridge,
            offset=offset,
            sign=np.sign(quadratic.y) if quadratic.bounded else np.zeros(m),
            weight=quadratic.weight,
            curvature=curvature,
            priority=1.0 / curvature,
            c=float(quadratic.c),
            shifted=quadratic.offset is not None,
            bounded=quadratic.bounded,
            uniform=bool(np.ptp(quadratic.weight) == 0 and np.ptp(curvature) == 0),
        )
        self.block = q = max(1, min(block, m))
        # rows of the pool in turn; none for one multiplier: the best of all rows, as in the paper
        n_turn = min(max(matrix.pool_rows - q, q), m - q) if q > 1 else 0
        self.work = kernels.SweepWork(
            block=q,
            n_turn=n_turn,
            order=np.random.default_rng(0).permutation(m),  # the same one in every fit
            cursor=np.zeros(1, np.int64),
            v=np.empty(m),
            score=np.empty(m),
            taken=np.zeros(m, np.bool_),
            pool=np.empty(q + n_turn, np.int64),
            keys=np.empty(q + n_turn),
            L=np.empty((q, q + n_turn)),
            picks=np.empty(q, np.int64),
            delta=np.empty(q),
        )
        # a round is half a sweep and an extrapolation, a whole sweep of the paper's updates
        self.share = 0.5 if q > 1 else 1.0
        self.budget = max(1, round(self.share * m))
        self.before = (state.beta.copy(), state.f.copy())
        self.directions: list[tuple[Array, Array]] = []

    def round(self, target: float) -> None:
        """Update multipliers until the target or the budget of a round is reached."""
        state, terms = self.state, self.terms
        # summed afresh, for c multiplies what rounding adds up to
        sums = np.array([state.beta.sum(), terms.offset @ state.beta])
        r = self.y - state.f - terms.ridge * state.beta
        point = self.kernels.SweepPoint(state.beta, r, sums)
        if isinstance(self.matrix, StoredMatrix):
            used, state.norm, failed = self.kernels.run_on_matrix(
                self.matrix.values, terms, point, self.work, target, self.budget
            )
        else:
            used, state.norm, failed = self._fetching(self.matrix, point, target)
        state.f = self.y - r - terms.ridge * state.beta
        state.updates += max(used, 1)
        if failed < 0:
            raise np.linalg.LinAlgError(f"not positive definite at row {-1 - failed}")

    def _fetching(self, matrix: RecentRows, point: Any, target: float) -> tuple[int, float, int]:
        """Do as `run_on_matrix` does, with rows that may have to be computed first."""
        kernels, terms, work, used = self.kernels, self.terms, self.work, 0
        while True:
            n, norm = kernels.choose(terms, point, work)
            if norm <= target or used >= self.budget or n == 0:
                return used, norm, 0
            square = matrix.square(work.pool[:n])
            count = kernels.solve_block(square, np.arange(n), n, terms, point, work)
            if count <= 0:
                return used, norm, count
            kernels.take_step(count, terms, point, work)
            matrix.subtract(work.picks[:count], work.delta[:count], point.r)
            used += count

    def extrapolate(self) -> None:
        """Minimise over the span of the last rounds' steps: K d is a difference of two K beta.

        Needs no kernel value. The step is not made if it would leave the bounds.
        """
        if self.block == 1:
            return
        state, terms = self.state, self.terms
        beta, f = self.before
        recent = [*self.directions, (state.beta - beta, state.f - f)][-_HISTORY:]
        steps, products = zip(*recent, strict=True)
        D, KD = np.array(steps), np.array(products)
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
