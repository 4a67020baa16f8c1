"""Newton's method for reduced machines with any smooth loss (zhou2013, section 4).

minimise  lam/2 theta' diag(rho) theta + sum_i s_i L(u_i),  f = Phi theta,  lam = 1/C,

with rho = 1 for the basis and A (`bias_penalty`) for a bias, the last column of Phi. Named steps,
the same for all losses: evaluate (19), direction (20) (`leansvm.newton.matrix`), line
search, convergence; smooth forms of the hinge loss are approached in stages (4.2.3, 4.2.4).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import limited_blas
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.losses import Loss, Squared
from leansvm.newton import passes
from leansvm.newton.matrix import NewtonMatrices, Output, no_steps
from leansvm.newton.passes import Slopes
from leansvm.ridge.equations import NOT_FINITE
from leansvm.rows import RowBlocks, total_weight
from leansvm.solution import Solution

Array = NDArray[np.float64]

_FLAT_ENOUGH = 0.5  # the full step is taken if it leaves at most this share of the slope
_ARMIJO = 1e-4  # and lowers the objective by at least this share of the slope
_EXACT = 1e-3  # a line search ends when this share of the slope is left
_CANCELLED = 1e-6  # the unit of residuals is at least this share of the gradient's terms at zero
_IDLE_STEPS, _FALL = 10, 0.01  # an output ends if in so many steps its objective falls by less
# than this share of tol, and its gradient does not halve: only rounding or zigzagging is left
_IDLE_ROUGH, _ROUGH = 3, 1e-3  # steps before the last stage, and whenever tol is above this
_EASY, _EASY_STAGES = 1e2, 1e4  # largest C s solved directly from zero: without stages, with stages
_ROUGH_TOL, _MOST_GOALS = 1e-2, 8  # tolerance at smaller C on the way, and most of these C
_NEXT_STAGE = 1e-3  # relative gradient at which the next smoothing stage begins
SERIAL_WIDTH = 3000  # up to this many features BLAS stays serial between passes
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


class NewtonSolver(NewtonMatrices):
    """Newton's method over row blocks, all outputs in step so that they share passes.

    Keeps decision values and Gram matrices between calls of `solve`, for paths of C. Targets are
    +-1 in classification. ``on_iteration`` gets the iteration and the relative gradient norm, and
    returns True to stop.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        features: FeatureMap,  # Phi; a constant last column is the bias
        *,
        bias_penalty: float = 0.0,  # A; 0 is a free bias
        margin: bool = True,  # classification, u = 1 - y f; else regression, u = y - f
        n_outputs: int = 1,  # columns of the targets
        tol: float = 1e-6,  # of the gradient norm, relative to that at zero, and of the gap
        max_iter: int = 500,
        on_iteration: Callable[[int, float], bool] | None = None,
        at_once: int | None = None,  # outputs whose matrices fit in memory together; None: all
        keeps: bool = True,  # whether the Gram matrices of all outputs fit from step to step
    ) -> None:
        self.blocks, self.features, self.margin = blocks, features, margin
        self.tol, self.max_iter, self.on_iteration = tol, max_iter, on_iteration
        self.at_once, self.keeps = at_once or n_outputs, keeps
        self.rho = np.ones(features.width)
        self.free_bias = features.constant is not None and bias_penalty == 0
        if features.constant is not None:
            self.rho[-1] = bias_penalty
        if self.free_bias and not margin:
            self._centre_targets(n_outputs)
        zero = np.zeros_like(self.rho)
        self.outputs = [Output(number, zero, zero) for number in range(n_outputs)]
        self.stopped = False  # by ``on_iteration``
        self._loss: Loss | None = None  # of the last solution
        self._resized = False

    def _centre_targets(self, n_outputs: int) -> None:
        """Find the means of the targets, to subtract: large means would cost digits.

        The second pass makes those of equal targets exact. Sums beyond float64 count as 0.
        """
        self.centre = np.zeros(n_outputs)
        for _ in range(2):
            total, weight = self.blocks.sum(passes.target_sums, self.task([]))
            self.centre = self.centre + np.nan_to_num(total / weight, posinf=0.0, neginf=0.0)

    @property
    def theta(self) -> Array:
        """Present coefficients, width x outputs; the bias is for targets that are not centred."""
        theta = np.stack([o.theta for o in self.outputs], axis=1)
        if self.centre is not None:
            theta[-1] += self.centre
        return theta

    # ------------------------------------------------------------------ the template

    def solve(
        self, loss: Loss, C: float, theta: Array | None = None, *, goes_on: bool = False
    ) -> Solution:
        """Minimise from ``theta`` (width x outputs), from the last solution, or from zero.

        With ``goes_on`` the history of this solution includes the steps so far.
        """
        # small products between passes over tiles: BLAS threads would spin on into the tiles
        with limited_blas(self.features.width, SERIAL_WIDTH):
            if not goes_on:
                for o in self.outputs:
                    o.n_iter, o.history = 0, no_steps()
            self.minimise(loss, C, theta, self.tol)
            return self._certified(C)

    def minimise(self, loss: Loss, C: float, theta: Array | None, tol: float) -> None:
        """Take Newton steps until gradient and gap are below ``tol``, without a certificate.

        For a large C s, steps from zero would add one row at a time, so smaller C come first.
        """
        goals = [(C, tol)]
        if theta is None and self._loss is None and not isinstance(loss, Squared):
            near = _EASY if len(loss.smoothing_path()) == 1 else _EASY_STAGES
            blocks, strength = self.blocks, C
            if blocks.weighted:
                strength *= total_weight(blocks) / max(blocks.n_rows, 1)
            while strength >= 100.0 * near and len(goals) <= _MOST_GOALS:
                strength /= 100.0
                goals.insert(0, (goals[0][0] / 100.0, _ROUGH_TOL))
        for at, enough in goals:
            self._setup(loss, at, theta, enough)
            for iteration in range(1, self.max_iter + 1):
                running = [o for o in self.outputs if o.state == "running"]
                if not running or self.stopped:
                    break
                self._line_search(running, self.directions(running))
                self._check_convergence(running, enough)
                for o in running:
                    o.n_iter += 1
                    o.history["objective"].append(o.objective / self.lam)
                    o.history["gradient"].append(o.residual)
                    o.history["curved"].append(o.counts[0])
                if self.on_iteration is not None:
                    largest = max([o.residual for o in running])
                    self.stopped = self.on_iteration(iteration, largest)

    def resize(self, features: KernelFeatures, at_once: int, keeps: bool) -> None:
        """Change to more or fewer columns of the same basis; new columns start at zero."""
        assert isinstance(self.features, KernelFeatures)
        self.blocks.map(passes.resize, self.features, features)
        same, rho = min(features.size, self.features.size), np.ones(features.width)
        for o in self.outputs:
            before, o.theta, o.gram = o.theta, np.zeros_like(rho), None
            o.theta[:same] = before[:same]
            if features.constant is not None:
                rho[-1], o.theta[-1] = self.rho[-1], before[-1]
        self.features, self.rho, self._resized = features, rho, True
        self.at_once, self.keeps = at_once, keeps

    def _setup(self, loss: Loss, C: float, theta: Array | None, tol: float) -> None:
        """Put every output at its start; measure the gradient at zero, the unit of residuals."""
        self.lam, outputs = 1.0 / C, self.outputs
        cold = theta is None and self._loss is None
        moved = cold or theta is not None
        if moved:
            start = np.zeros((self.features.width, len(outputs))) if theta is None else theta.copy()
            if theta is not None and self.centre is not None:
                start[-1] -= self.centre
            self.blocks.map(passes.begin, self.features, start)
        for o in outputs:
            o.state, o.lowest, o.idle = "running", (np.inf, np.inf), 0
            if moved:
                o.theta = start[:, o.number].copy()
                if loss.curvature_is_piecewise_constant:  # otherwise an earlier one is close enough
                    o.gram = None
        unfinished = self._resized or any([o.stages for o in outputs])
        if not moved and not unfinished and self._loss is loss:  # only C is another
            self.evaluate(outputs, again=True)
        else:
            for o in outputs:
                o.loss = loss
            at_zero = Slopes(*self.blocks.sum(passes.slopes, self.task(outputs), None, True))
            if not (np.isfinite(at_zero.value).all() and np.isfinite(at_zero.gradient).all()):
                raise ValueError(NOT_FINITE)
            stages = loss.smoothing_path() if self._resized and not moved else (loss,)
            first, *later = self._stages(loss) if cold else stages
            for c, o in enumerate(outputs):
                # large terms may cancel, for example if every row occurs with both labels
                terms = float(np.sqrt(at_zero.squares[c] * at_zero.squares[-1]))
                slope = float(np.linalg.norm(at_zero.gradient[:, c]))
                o.scale = max(slope, _CANCELLED * terms, _TINY)
                o.loss, o.stages = first, later
            self.evaluate(outputs, at_zero if cold and first is loss else None)
        self._loss, self._resized = loss, False
        self._check_convergence(outputs, tol)

    def _stages(self, loss: Loss) -> tuple[Loss, ...]:
        """Losses to solve in turn from zero; least squares first if few rows are curved."""
        path = loss.smoothing_path()
        first = path[0]
        curved_at_zero = float(first.second_derivative(np.ones(1))[0]) > 0.1 * first.max_curvature
        far = not curved_at_zero if self.margin else not isinstance(first, Squared)
        return (Squared(), *path) if far else path

    def evaluate(
        self, outputs: list[Output], found: Slopes | None = None, again: bool = False
    ) -> None:
        """Set objective, gradient (19), its relative norm and the duality gap: one pass.

        No pass is needed if the sums at these points were ``found`` before, or if they are used
        ``again`` with another C. With slopes g as dual variables, P - D = C/2 sum_j
        (gradient_j)^2 / rho_j, plus b * gradient_b for a free bias,
        which also has to be dual feasible.
        """
        if not outputs:
            return
        if found is None and not again:
            found = Slopes(*self.blocks.sum(passes.slopes, self.task(outputs)))
        penalised = self.rho > 0
        for c, o in enumerate(outputs):
            if found is not None:
                o.sums = float(found.value[c]), found.gradient[:, c].copy(), found.absolute[c]
                o.counts = tuple(found.counts[c].tolist())
            assert o.sums is not None
            value, slopes, _ = o.sums
            o.objective = 0.5 * self.lam * float(self.rho @ o.theta**2) + value
            o.gradient = g = self.lam * self.rho * o.theta - slopes
            o.residual = float(np.linalg.norm(g)) / o.scale
            gap = 0.5 * float(np.sum(g[penalised] ** 2 / self.rho[penalised])) / self.lam
            gap += float(np.abs(g[~penalised] * o.theta[~penalised]).sum())
            o.gap = gap / max(o.objective, _TINY)

    def _check_convergence(self, outputs: list[Output], tol: float) -> None:
        """Mark outputs that are done; move others on to their next smoothing stage."""
        while outputs:
            moved = []
            for o in outputs:
                if o.state == "converged":
                    continue
                ends = o.state == "stalled" or _stands_still(o, tol)
                if o.stages:
                    if ends or o.residual <= _NEXT_STAGE:
                        o.loss, *o.stages = o.stages
                        o.state, o.lowest, o.idle = "running", (np.inf, np.inf), 0
                        moved.append(o)
                elif o.residual <= tol and o.gap <= tol:
                    o.state = "converged"
                elif ends:
                    o.state = "stalled"
            self.evaluate(moved)
            outputs = moved

    # ------------------------------------------------------------------ line search

    def _line_search(self, outputs: list[Output], directions: Array) -> None:
        """Take the full step; if it is not good enough, go to the minimum along the direction."""
        task, n = self.task(outputs), len(outputs)
        trial = Slopes(*self.blocks.sum(passes.slopes, task, directions))
        before, after, lengths = np.empty(n), np.empty(n), np.ones(n)
        search, searching = list[int](), list[Output]()  # outputs that do not take the full step
        for c, o in enumerate(outputs):
            d, theta = directions[:, c], o.theta + directions[:, c]
            before[c] = o.gradient @ d
            after[c] = (self.lam * self.rho * theta - trial.gradient[:, c]) @ d
            value = 0.5 * self.lam * float(self.rho @ theta**2) + float(trial.value[c])
            limit = o.objective * (1 + 8 * _EPS) + _ARMIJO * before[c]
            if not (value <= limit and abs(after[c]) <= _FLAT_ENOUGH * abs(before[c])):
                search.append(c)
                searching.append(o)
        if search:
            slopes = before[search], after[search]
            lengths[search] = self._minimum_along(searching, directions[:, search], *slopes)
        self.blocks.map(passes.step, task, lengths)
        for c, o in enumerate(outputs):
            o.theta = o.theta + lengths[c] * directions[:, c]
            o.history["step"].append(float(lengths[c]))
            if before[c] >= 0 or lengths[c] == 0:  # no descent beyond rounding
                o.state = "stalled"
        self.evaluate(outputs, trial)
        self.evaluate(searching)

    def _minimum_along(self, outputs: list[Output], D: Array, before: Array, after: Array) -> Array:
        """Find where the increasing derivative along D vanishes: Newton within brackets.

        A pass needs f and df alone, no features.
        """
        task, n = self.task(outputs), len(outputs)
        theta = np.stack([o.theta for o in outputs], axis=1)
        start, grow = self.lam * self.rho @ (theta * D), self.lam * self.rho @ D**2
        low, high = np.zeros(n), np.where(after > 0, 1.0, np.inf)
        low[after < 0] = 1.0
        t = np.full(n, 2.0)
        np.divide(before, before - after, out=t, where=after > 0)  # secant
        done = before >= 0
        t[done] = 0.0
        for _ in range(60):
            losses, curves = self.blocks.sum(passes.along, task, t).T
            slopes, curves = losses + start + t * grow, curves + grow
            rounding = 8 * _EPS * (np.abs(losses) + np.abs(start) + t * grow)
            done |= np.abs(slopes) <= np.maximum(_EXACT * np.abs(before), rounding)
            done |= np.isfinite(high) & (high - low <= 4 * _EPS * np.minimum(high, 1e300))
            if done.all():
                break
            low, high = np.where(slopes < 0, t, low), np.where(slopes < 0, high, t)
            with np.errstate(all="ignore"):  # no curvature: not inside, then
                newton = t - slopes / curves
                far = (low > 0) & (high > 16 * low)  # across many decades: the geometric mean
                middle = np.where(far, np.sqrt(low) * np.sqrt(high), 0.5 * (low + high))
            inside = (newton > low) & (newton < np.minimum(high, 10 * np.maximum(low, 1.0)))
            other = np.where(np.isfinite(high), middle, t * np.clip(t, 4.0, 1e30))
            t = np.where(done, t, np.where(inside, newton, other))
        return t

    # ------------------------------------------------------------------ at the solution

    def _certified(self, C: float) -> Solution:
        """Return the solution at the present coefficients, with its certificate."""
        outputs, theta, early = self.outputs, self.theta, list[Output]()
        for o in outputs:  # if stopped before the last stage: certify the requested loss
            if o.stages:
                o.loss, o.stages = o.stages[-1], []
                early.append(o)
        self.evaluate(early)
        gaps, reached = self._gaps(), True
        for o, gap_of_o in zip(outputs, gaps, strict=True):
            stalled_well = o.state == "stalled" and gap_of_o <= self.tol
            reached = reached and (o.state == "converged" or stalled_well)
        residual, gap = float(np.max([o.residual for o in outputs])), float(np.max(gaps))
        iterations = max([o.n_iter for o in outputs])
        return Solution(
            "newton",
            self.features.coefficients(theta),
            np.zeros(len(outputs)) if self.features.constant is None else theta[-1].copy(),
            C,
            float(np.sum([o.objective for o in outputs])) / self.lam,
            residual,
            gap,
            iterations,
            reached,
            f"Newton's method ended after {iterations} iterations at a relative gradient of "
            f"{residual:.1e} and a relative duality gap of {gap:.1e} (tol={self.tol:g}). Increase "
            f"max_iter or tol, lower C, or use a smoother loss (a larger delta, a smaller p).",
            details={"history": [o.history for o in outputs]},
        )

    def _gaps(self) -> list[float]:
        """Relative duality gaps from feasible dual variables: one pass.

        A free bias asks for slopes that add up to 0: the heavier side is scaled down.
        """
        scale = np.ones((len(self.outputs), 2))
        for c, o in enumerate(self.outputs if self.free_bias else ()):
            assert o.sums is not None
            _, slopes, absolute = o.sums
            sides = np.maximum([absolute + slopes[-1], absolute - slopes[-1]], 0.0)
            scale[c] = sides.min() / np.maximum(sides, _TINY)
        values, products = self.blocks.sum(passes.dual, self.task(self.outputs), scale)
        penalised, gaps = self.rho > 0, []
        for c, o in enumerate(self.outputs):
            norm = float(np.sum(products[penalised, c] ** 2 / self.rho[penalised]))
            gap = o.objective - float(values[c]) + 0.5 * norm / self.lam
            gaps.append(gap / max(o.objective, _TINY))
        return gaps


def _stands_still(o: Output, tol: float) -> bool:
    """Count the steps since objective or gradient were notably lower; return if they are many."""
    objective, residual = o.lowest
    fall = max(_FALL * tol, 8 * _EPS)
    if o.objective < objective * (1 - fall) or o.residual < 0.5 * residual:
        o.lowest, o.idle = (min(o.objective, objective), min(o.residual, residual)), 0
    else:
        o.idle += 1
    return o.idle >= (_IDLE_ROUGH if o.stages or tol > _ROUGH else _IDLE_STEPS)
