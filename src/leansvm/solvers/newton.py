"""Newton's method for reduced machines with any smooth loss (zhou2013, section 4).

minimise  lam/2 theta' diag(rho) theta + sum_i s_i L(u_i),  f = Phi theta,  lam = 1/C,

with rho = 1 for the basis and A (`bias_penalty`) for a bias, the last column of Phi. Named steps,
the same for all losses: evaluate (19), direction (20) (`leansvm.solvers._newton_matrix`), line
search, convergence; smooth forms of the hinge loss are approached in stages (4.2.3, 4.2.4).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from leansvm._parallel import serial_blas
from leansvm.blocks import RowBlocks
from leansvm.losses import Loss, Squared
from leansvm.solvers import _newton_blocks as rows_of
from leansvm.solvers._newton_blocks import Slopes
from leansvm.solvers._newton_matrix import NewtonMatrices, Output
from leansvm.solvers.features import FeatureMap
from leansvm.solvers.solution import Solution

Array = NDArray[np.float64]

_FLAT_ENOUGH = 0.5  # a full step is taken that leaves less than this of the slope
_ARMIJO = 1e-4  # and that lowers the objective by this share of the slope at least
_EXACT = 1e-3  # a line search ends when this is left of the slope
_NEXT_STAGE = 1e-3  # relative gradient at which a smoothing stage hands over to the next
_SERIAL_WIDTH = 3000  # up to this many features BLAS stays serial between passes
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


# What Newton's method asks of a loss.
NEEDS = (
    "value",
    "derivative",
    "second_derivative",
    "conjugate",
    "smoothing_path",
    "domain",
    "max_curvature",
    "curvature_is_piecewise_constant",
)


def check_loss(loss: Any) -> None:
    """Refuse a loss that lacks something, and say what."""
    missing = [name for name in NEEDS if not hasattr(loss, name)]
    if missing:
        raise ValueError(
            f"loss={loss!r} does not work with Newton's method: it lacks {', '.join(missing)}. "
            f"Derive it from leansvm.losses.Loss, or use 'squared_hinge', 'squared', 'huber' or "
            f"'logistic'."
        )


class NewtonSolver:
    """Newton's method over row blocks, all outputs in step so that they share passes.

    Keeps decision values and Gram matrices between calls of `solve`, for paths of C.

    Parameters
    ----------
    blocks : RowBlocks
        Rows, targets (one column an output; +-1 in classification) and weights.
    features : FeatureMap
        Phi; a constant last column is the bias.
    bias_penalty : float
        A; 0 is a free bias. Only where features have one.
    margin : bool
        Classification, u = 1 - y f, instead of regression, u = y - f.
    outputs : sequence of int
        Columns of the targets to solve for.
    tol : float
        On the gradient norm, relative to that at zero, and on the relative duality gap.
    max_iter : int
        Most Newton steps.
    on_iteration : callable, optional
        Called with the iteration and the relative gradient norm; returns True to stop.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        features: FeatureMap,
        *,
        bias_penalty: float = 0.0,
        margin: bool = True,
        outputs: Any = (0,),
        tol: float = 1e-6,
        max_iter: int = 500,
        on_iteration: Callable[[int, float], bool] | None = None,
    ) -> None:
        self.blocks, self.features = blocks, features
        self.tol, self.max_iter, self.on_iteration = tol, max_iter, on_iteration
        self.rho = np.ones(features.width)
        if features.constant is not None:
            self.rho[-1] = bias_penalty
        self.matrices = NewtonMatrices(blocks, features, margin, self.rho)
        self.outputs = [Output(o, np.zeros(features.width)) for o in outputs]
        self.lam = 1.0
        self._begun = False

    # ------------------------------------------------------------------ the template

    def solve(self, loss: Loss, C: float, theta: Array | None = None) -> Solution:
        """Minimise from ``theta`` (width x outputs), from the last solution, or from zero."""
        # small products between passes over tiles: BLAS threads would spin on into the tiles
        with serial_blas() if self.features.width <= _SERIAL_WIDTH else nullcontext():
            return self._solve(loss, C, theta)

    def _solve(self, loss: Loss, C: float, theta: Array | None) -> Solution:
        self._setup(loss, C, theta)
        for iteration in range(1, self.max_iter + 1):
            running = [o for o in self.outputs if o.state == "running"]
            if not running:
                break
            gradients = [self._gradient(o) for o in running]
            directions = self.matrices.directions(running, gradients, self.lam)
            self._line_search(running, directions)
            self._check_convergence(running)
            if self._told_to_stop(iteration, running):
                break
        return self._certified(C)

    def _setup(self, loss: Loss, C: float, theta: Array | None) -> None:
        self.lam = 1.0 / C
        warm = self._begun and theta is None
        stages = (loss,) if warm or theta is not None else self._stages(loss)
        if not warm:
            start = self._start(theta)
            self.blocks.map(rows_of.begin, self.features, start)
            self._begun = True
        for o in self.outputs:
            o.stages, o.stage, o.state, o.n_iter = stages, 0, "running", 0
            o.history = {key: [] for key in ("objective", "gradient", "curved", "step", "hessian")}
        at_zero = self._scale(loss)
        if warm or theta is not None or stages[0] is not loss:
            self._evaluate(self.outputs)
        else:
            for position, o in enumerate(self.outputs):
                o.take(at_zero, position)
        self._check_convergence(self.outputs)

    def _stages(self, loss: Loss) -> tuple[Loss, ...]:
        """Losses to solve in turn from zero; least squares first where few rows are curved."""
        path = loss.smoothing_path()
        first = path[0]
        curved_at_zero = float(first.second_derivative(np.ones(1))[0]) > 0.1 * first.max_curvature
        far = not curved_at_zero if self.matrices.margin else not isinstance(first, Squared)
        return (Squared(), *path) if far else path

    def _start(self, theta: Array | None) -> Array:
        """Give every output its first coefficients; return them by column of the targets."""
        columns = 1 + max(o.number for o in self.outputs)
        start = np.zeros((self.features.width, columns))
        for position, o in enumerate(self.outputs):
            o.theta = np.zeros(self.features.width) if theta is None else theta[:, position].copy()
            start[:, o.number] = o.theta
            o.gram = None
        return start

    def _scale(self, loss: Loss) -> Slopes:
        """Take the norm of the final objective's gradient at zero; return what is known there."""
        task = self.matrices.task(self.outputs, loss)
        found = self.blocks.sum(rows_of.slopes, task, None, True)
        for position, o in enumerate(self.outputs):
            o.scale = max(float(np.linalg.norm(found.gradient[:, position])), _TINY)
        return found

    def _evaluate(self, outputs: list[Output]) -> None:
        if not outputs:
            return
        found = self.blocks.sum(rows_of.slopes, self.matrices.task(outputs), None)
        for position, o in enumerate(outputs):
            o.take(found, position)

    # ------------------------------------------------------------------ where we are

    def _gradient(self, o: Output) -> Array:
        return self.lam * self.rho * o.theta - o.slope

    def _objective(self, o: Output) -> float:
        """Evaluate what is minimised, divided by C."""
        return 0.5 * self.lam * float(self.rho @ o.theta**2) + o.value

    def _distances(self, o: Output) -> tuple[float, float]:
        """Relative gradient norm and relative duality gap.

        With slopes g as dual variables, P - D = C/2 sum_j (gradient_j)^2 / rho_j, plus
        b * gradient_b for a free bias, which also has to be dual feasible.
        """
        g = self._gradient(o)
        penalised = self.rho > 0
        gap = 0.5 * float(np.sum(g[penalised] ** 2 / self.rho[penalised])) / self.lam
        gap += float(np.abs(g[~penalised] * o.theta[~penalised]).sum())
        residual = float(np.linalg.norm(g)) / o.scale
        return residual, gap / max(self._objective(o), _TINY)

    def _check_convergence(self, outputs: list[Output]) -> None:
        """Finish outputs, or hand them over to their next smoothing stage."""
        moved = outputs
        while moved:
            moved = [o for o in moved if o.state == "running" and self._stage_is_done(o)]
            for o in moved:
                o.stage += 1
            self._evaluate(moved)

    def _stage_is_done(self, o: Output) -> bool:
        """Whether there is a next stage to go to; at the last one, finish when converged."""
        residual, gap = self._distances(o)
        if o.stage < len(o.stages) - 1:
            return residual <= _NEXT_STAGE
        if residual <= self.tol and gap <= self.tol:
            o.state = "converged"
        return False

    def _told_to_stop(self, iteration: int, running: list[Output]) -> bool:
        residuals = []
        for o in running:
            residual, _ = self._distances(o)
            residuals.append(residual)
            o.n_iter += 1
            o.history["objective"].append(self._objective(o) / self.lam)
            o.history["gradient"].append(residual)
            o.history["curved"].append(o.counts[0])
        if self.on_iteration is None or not self.on_iteration(iteration, max(residuals)):
            return False
        for o in running:
            o.state = "stopped" if o.state == "running" else o.state
        return True

    # ------------------------------------------------------------------ line search

    def _line_search(self, outputs: list[Output], directions: Array) -> None:
        """Take the full step, or go to the minimum along the direction where that is not good."""
        task = self.matrices.task(outputs)
        before = np.array(
            [self._gradient(o) @ d for o, d in zip(outputs, directions.T, strict=True)]
        )
        trial = self.blocks.sum(rows_of.slopes, task, directions)
        after, full = np.empty(len(outputs)), np.empty(len(outputs), dtype=bool)
        for c, o in enumerate(outputs):
            theta = o.theta + directions[:, c]
            after[c] = (self.lam * self.rho * theta - trial.gradient[:, c]) @ directions[:, c]
            value = 0.5 * self.lam * float(self.rho @ theta**2) + float(trial.value[c])
            limit = self._objective(o) * (1 + 8 * _EPS) + _ARMIJO * before[c]
            full[c] = value <= limit and abs(after[c]) <= _FLAT_ENOUGH * abs(before[c])
        lengths = np.ones(len(outputs))
        search = np.flatnonzero(~full)
        if len(search):
            lengths[search] = self._minimum_along(
                [outputs[c] for c in search], directions[:, search], before[search], after[search]
            )
        self.blocks.map(rows_of.step, task, lengths)
        for c, o in enumerate(outputs):
            o.theta = o.theta + lengths[c] * directions[:, c]
            o.history["step"].append(float(lengths[c]))
            o.take(trial, c)
            if before[c] >= 0 or lengths[c] == 0:  # no descent beyond rounding
                o.state = "stalled"
        self._evaluate([outputs[c] for c in search])

    def _minimum_along(self, outputs: list[Output], D: Array, before: Array, after: Array) -> Array:
        """Find where the increasing derivative along D vanishes: Newton within brackets.

        A pass needs f and df alone, no features.
        """
        n = len(outputs)
        task = self.matrices.task(outputs)
        start = np.array(
            [self.lam * (self.rho * o.theta) @ d for o, d in zip(outputs, D.T, strict=True)]
        )
        grow = np.array([self.lam * self.rho @ d**2 for d in D.T])
        low, high = np.zeros(n), np.where(after > 0, 1.0, np.inf)
        low[after < 0] = 1.0
        t = np.full(n, 2.0)
        np.divide(before, before - after, out=t, where=after > 0)  # secant
        done = before >= 0
        t[done] = 0.0
        for _ in range(60):
            slopes, curves = self.blocks.sum(rows_of.along, task, t).T
            slopes, curves = slopes + start + t * grow, curves + grow
            done |= np.abs(slopes) <= _EXACT * np.abs(before)
            done |= np.isfinite(high) & (high - low <= 4 * _EPS * np.minimum(high, 1e300))
            if done.all():
                break
            low, high = np.where(slopes < 0, t, low), np.where(slopes < 0, high, t)
            with np.errstate(all="ignore"):  # no curvature: not inside, then
                newton = t - slopes / curves
            inside = (newton > low) & (newton < np.minimum(high, 10 * np.maximum(low, 1.0)))
            other = np.where(np.isfinite(high), 0.5 * (low + high), 4 * t)
            t = np.where(done, t, np.where(inside, newton, other))
        return t

    # ------------------------------------------------------------------ at the solution

    def left_out(self) -> Array:
        """Return y less the decision value without the row, rows x outputs: one Newton step."""
        self._evaluate(self.outputs)
        plans = [self.matrices.plan(o, woodbury=False) for o in self.outputs]
        self.matrices.bring_up_to_date(self.outputs, plans)
        inverses = []
        for o in self.outputs:
            if o.counts[0] == 0:  # no row is curved: a free bias does not move
                ridge = np.sqrt(self.lam * self.rho)
                inverses.append(np.diag(np.divide(1, ridge, out=ridge * 0, where=ridge > 0)))
                continue
            A = np.tril(self.matrices.factor(o, self.lam))
            inverses.append(solve_triangular(A, np.eye(len(A)), lower=True, check_finite=False))
        return self.blocks.concatenate(rows_of.left_out, self.matrices.task(self.outputs), inverses)

    @property
    def theta(self) -> Array:
        """Coefficients of the columns of Phi, one column per output."""
        return np.stack([o.theta for o in self.outputs], axis=1)

    def _certified(self, C: float) -> Solution:
        theta, gap = self.theta, max(self._gaps())
        residual = max(self._distances(o)[0] for o in self.outputs)
        iterations = max(o.n_iter for o in self.outputs)
        has_bias = self.features.constant is not None
        return Solution(
            "newton",
            self.features.coefficients(theta),
            theta[-1].copy() if has_bias else np.zeros(len(self.outputs)),
            C,
            sum(self._objective(o) for o in self.outputs) / self.lam,
            residual,
            gap,
            iterations,
            all(o.state == "converged" for o in self.outputs),
            f"Newton's method ended after {iterations} iterations at a relative gradient of "
            f"{residual:.1e} and a relative duality gap of {gap:.1e} (tol={self.tol:g}). Increase "
            f"max_iter or tol, lower C, or use a smoother loss (a larger delta, a smaller p).",
            details={"history": [o.history for o in self.outputs]},
        )

    def _gaps(self) -> list[float]:
        """Relative duality gaps from feasible dual variables: one pass.

        A free bias asks for slopes that add up to 0: the heavier side is scaled down.
        """
        task = self.matrices.task(self.outputs)
        scale = np.ones((len(self.outputs), 2))
        if self.matrices.free_bias:
            sums = self.blocks.sum(rows_of.balance, task)
            lighter = sums.min(axis=1, keepdims=True)
            scale = lighter / np.maximum(sums, _TINY)
        values, products = self.blocks.sum(rows_of.dual, task, scale)
        penalised = self.rho > 0
        gaps = []
        for c, o in enumerate(self.outputs):
            norm = float(np.sum(products[penalised, c] ** 2 / self.rho[penalised]))
            primal = self._objective(o)
            gaps.append((primal - float(values[c]) + 0.5 * norm / self.lam) / max(primal, _TINY))
        return gaps
