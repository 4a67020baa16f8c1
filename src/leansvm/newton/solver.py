"""Newton's method for reduced machines with any smooth loss (zhou2013, section 4).

minimise  lam/2 theta' diag(rho) theta + sum_i s_i L(u_i),  f = Phi theta,  lam = 1/C,

with rho = 1 for the basis and A (`bias_penalty`) for a bias, the last column of Phi. Named steps,
the same for all losses: evaluate (19), direction (20) (`leansvm.newton.matrix`), line
search, convergence; smooth forms of the hinge loss are approached in stages (4.2.3, 4.2.4).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import blas_for
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.losses import Loss, Squared, get_loss
from leansvm.newton import passes as rows_of
from leansvm.newton.matrix import NewtonMatrices, Output
from leansvm.newton.passes import Slopes
from leansvm.ridge.sums import NOT_FINITE
from leansvm.rows import RowBlocks
from leansvm.solution import Solution

Array = NDArray[np.float64]

_FLAT_ENOUGH = 0.5  # the full step is taken if it leaves at most this share of the slope
_ARMIJO = 1e-4  # and lowers the objective by at least this share of the slope
_EXACT = 1e-3  # a line search ends when this share of the slope is left
_NEXT_STAGE = 1e-3  # relative gradient at which the next smoothing stage begins
SERIAL_WIDTH = 3000  # up to this many features BLAS stays serial between passes
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_NO_STEPS: dict[str, list[Any]] = {
    "objective": [],
    "gradient": [],
    "curved": [],
    "step": [],
    "hessian": [],
}
_THETA = attrgetter("theta")
_AT_THE_END = attrgetter("history", "objective", "residual", "n_iter", "state")


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


# Losses by name, and what stands for those without a second derivative.
_CLASSIFIES = ("squared_hinge", "squared", "huber", "logistic")
_REGRESSES = ("huber", "squared")
_KINKED = {
    "hinge": "'huber' (delta) or 'logistic' (p)",
    "absolute": "'huber' with a small delta",
    "epsilon_insensitive": "'huber'",
}


def loss_for_newton(
    loss: Any, margin: bool, delta: float | None, p: float | None, least: float = 0.0
) -> Loss:
    """Return a loss by its name, or one that was given; say why Newton's method cannot use it.

    Where none is given, ``delta`` of "huber" is 1e-4 or ``least`` in classification, and ``p`` 1.
    """
    if not isinstance(loss, str):
        missing = [name for name in NEEDS if not hasattr(loss, name)]
        if missing:
            raise ValueError(
                f"loss={loss!r} does not work with Newton's method: it lacks {', '.join(missing)}. "
                f"Derive it from leansvm.losses.Loss, or use 'squared_hinge', 'squared', 'huber' "
                f"or 'logistic'."
            )
        if not (margin or getattr(loss, "symmetric", False)):
            raise ValueError(f"loss={loss!r} is not symmetric, as regression needs.")
        return cast("Loss", loss)
    if loss in _KINKED:
        raise ValueError(
            f"loss={loss!r} does not work with Newton's method: it lacks a second derivative. "
            f"Use {_KINKED[loss]}, which comes as close to it as you like."
        )
    known = _CLASSIFIES if margin else _REGRESSES
    if loss not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"loss must be one of {names} or a Loss, got {loss!r}.")
    if not margin:
        return get_loss(loss, "regression", delta=delta)
    delta = max(1e-4, least) if delta is None else delta
    return get_loss(loss, "classification", delta=delta, p=1.0 if p is None else p)


class NewtonSolver:
    """Newton's method over row blocks, all outputs in step so that they share passes.

    Keeps decision values and Gram matrices between calls of `solve`, for paths of C.

    Parameters
    ----------
    blocks : RowBlocks
        Rows, targets (one column per output; +-1 in classification) and weights.
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
    at_once : int, optional
        Outputs whose matrices there is room for; all of them unless given.
    keeps : bool
        Whether there is room for the Gram matrices of all outputs between the steps.
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
        at_once: int | None = None,
        keeps: bool = True,
    ) -> None:
        self.blocks, self.features = blocks, features
        self.tol, self.max_iter, self.on_iteration = tol, max_iter, on_iteration
        self.rho = np.ones(features.width)
        if features.constant is not None:
            self.rho[-1] = bias_penalty
        free_bias = features.constant is not None and bias_penalty == 0
        self.matrices = NewtonMatrices(
            blocks, features, margin, self.rho, free_bias, at_once or len(outputs), keeps
        )
        self.theta = np.zeros((features.width, len(outputs)))  # of the last solution
        self.outputs: list[Output] = []
        for number in outputs:
            output = Output(number, np.zeros_like(self.rho), np.zeros_like(self.rho))
            output.history = deepcopy(_NO_STEPS)
            self.outputs.append(output)
        self._columns = 1 + max(outputs)  # of the targets, as far as they are used
        self.lam = 1.0
        self._loss: Loss = Squared()  # of the last solution
        if len(self.outputs) > 1:
            self.matrices.rows = int(blocks.sum(rows_of.count_rows))
        self.stopped = False  # by ``on_iteration``
        self._begun = self._resized = False

    # ------------------------------------------------------------------ the template

    def solve(
        self, loss: Loss, C: float, theta: Array | None = None, *, goes_on: bool = False
    ) -> Solution:
        """Minimise from ``theta`` (width x outputs), from the last solution, or from zero.

        With ``goes_on`` the steps so far are a part of this solution's history.
        """
        # small products between passes over tiles: BLAS threads would spin on into the tiles
        with blas_for(self.features.width, SERIAL_WIDTH):
            if not goes_on:
                for o in self.outputs:
                    o.n_iter, o.history = 0, deepcopy(_NO_STEPS)
            self.minimise(loss, C, theta, self.tol)
            return self._certified(C)

    def minimise(self, loss: Loss, C: float, theta: Array | None, tol: float) -> None:
        """Take Newton steps until gradient and gap are below ``tol``, without a certificate."""
        self._setup(loss, C, theta, tol)
        for iteration in range(1, self.max_iter + 1):
            running = []
            for o in self.outputs:
                if o.state == "running":
                    running.append(o)
            if not running or self.stopped:
                break
            found = self.matrices.of_every(running, self.matrices.direction, self.lam)
            self._line_search(running, np.stack(found, axis=1))
            self._check_convergence(running, tol)
            if self._told_to_stop(iteration, running):
                break
        self.theta = np.stack(list(map(_THETA, self.outputs)), axis=1)

    def resize(self, features: KernelFeatures, at_once: int, keeps: bool) -> None:
        """Go over to more columns, or fewer, of the same basis; new ones start at zero."""
        assert isinstance(self.features, KernelFeatures)
        self.blocks.map(rows_of.resize, self.features, features)
        rho, old = np.ones(features.width), self.rho
        theta = np.zeros((features.width, len(self.outputs)))
        same = min(features.size, self.features.size)
        theta[:same] = self.theta[:same]
        if features.constant is not None:
            rho[-1], theta[-1] = old[-1], self.theta[-1]
        for o, column in zip(self.outputs, theta.T, strict=True):
            o.theta, o.gram = column.copy(), None
        self.features, self.rho, self.theta, self._resized = features, rho, theta, True
        self.matrices = replace(
            self.matrices, features=features, rho=rho, at_once=at_once, keeps=keeps
        )

    def _setup(self, loss: Loss, C: float, theta: Array | None, tol: float) -> None:
        """Put every output where it starts; take the norm of the gradient at zero."""
        self.lam = 1.0 / C
        warm = self._begun and theta is None
        cold, resized = not warm and theta is None, warm and self._resized
        self._resized = False
        start = np.zeros((self.features.width, self._columns))
        for c, o in enumerate(self.outputs):
            o.loss, o.state = loss, "running"
            if not warm:
                o.theta = np.zeros_like(self.rho) if theta is None else theta[:, c].copy()
                start[:, o.number], o.gram = o.theta, None
        if not warm:
            self.blocks.map(rows_of.begin, self.features, start)
            self._begun = True
        known = warm and not (resized or any(o.stages or o.sums is None for o in self.outputs))
        if known and self._loss is loss:  # only C is another
            self.evaluate(self.outputs, again=True)
        else:
            at_zero = self.blocks.sum(rows_of.slopes, self.matrices.task(self.outputs), None, True)
            if not (np.isfinite(at_zero.value).all() and np.isfinite(at_zero.gradient).all()):
                raise ValueError(NOT_FINITE)
            stages = loss.smoothing_path() if resized else (loss,)
            first, *later = self._stages(loss) if cold else stages
            for c, o in enumerate(self.outputs):
                o.scale = max(float(np.linalg.norm(at_zero.gradient[:, c])), _TINY)
                o.loss, o.stages = first, later
            self.evaluate(self.outputs, at_zero if cold and first is loss else None)
        self._loss = loss
        self._check_convergence(self.outputs, tol)

    def _stages(self, loss: Loss) -> tuple[Loss, ...]:
        """Losses to solve in turn from zero; least squares first where few rows are curved."""
        path = loss.smoothing_path()
        first = path[0]
        curved_at_zero = float(first.second_derivative(np.ones(1))[0]) > 0.1 * first.max_curvature
        far = not curved_at_zero if self.matrices.margin else not isinstance(first, Squared)
        return (Squared(), *path) if far else path

    def evaluate(
        self, outputs: list[Output], found: Slopes | None = None, again: bool = False
    ) -> None:
        """Set objective, gradient (19), its relative norm and the duality gap: one pass.

        No pass where the sums at these points were ``found`` before, or where they are looked at
        ``again`` with another C. With slopes g as dual variables, P - D = C/2 sum_j
        (gradient_j)^2 / rho_j, plus b * gradient_b for a free bias,
        which also has to be dual feasible.
        """
        if not outputs:
            return
        if found is None and not again:
            found = self.blocks.sum(rows_of.slopes, self.matrices.task(outputs), None)
        penalised = self.rho > 0
        for c, o in enumerate(outputs):
            if found is not None:
                o.sums = float(found.value[c]), found.gradient[:, c].copy()
                o.counts = tuple(found.counts[c].tolist())
            assert o.sums is not None
            value, slopes = o.sums
            o.objective = 0.5 * self.lam * float(self.rho @ o.theta**2) + value
            o.gradient = g = self.lam * self.rho * o.theta - slopes
            o.residual = float(np.linalg.norm(g)) / o.scale
            gap = 0.5 * float(np.sum(g[penalised] ** 2 / self.rho[penalised])) / self.lam
            gap += float(np.abs(g[~penalised] * o.theta[~penalised]).sum())
            o.gap = gap / max(o.objective, _TINY)

    def _check_convergence(self, outputs: list[Output], tol: float) -> None:
        """Finish outputs, or hand them over to their next smoothing stage."""
        while outputs:
            moved = []
            for o in outputs:
                if o.state != "running":
                    continue
                if o.stages:
                    if o.residual <= _NEXT_STAGE:
                        o.loss, *o.stages = o.stages
                        moved.append(o)
                elif o.residual <= tol and o.gap <= tol:
                    o.state = "converged"
            self.evaluate(moved)
            outputs = moved

    def _told_to_stop(self, iteration: int, running: list[Output]) -> bool:
        """Note the iteration; return whether ``on_iteration`` ends it."""
        residuals = []
        for o in running:
            residuals.append(o.residual)
            o.n_iter += 1
            o.history["objective"].append(o.objective / self.lam)
            o.history["gradient"].append(o.residual)
            o.history["curved"].append(o.counts[0])
        if self.on_iteration is None or not self.on_iteration(iteration, max(residuals)):
            return False
        for o in running:
            o.state = "stopped" if o.state == "running" else o.state
        self.stopped = True
        return True

    # ------------------------------------------------------------------ line search

    def _line_search(self, outputs: list[Output], directions: Array) -> None:
        """Take the full step, or go to the minimum along the direction where that is not good."""
        task, n = self.matrices.task(outputs), len(outputs)
        trial = self.blocks.sum(rows_of.slopes, task, directions)
        before, after, lengths = np.empty(n), np.empty(n), np.ones(n)
        search: list[int] = []  # positions of the outputs that do not take the full step
        searching: list[Output] = []
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
            lengths[search] = self._minimum_along(
                searching, directions[:, search], before[search], after[search]
            )
        self.blocks.map(rows_of.step, task, lengths)
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

    def _certified(self, C: float) -> Solution:
        early = []
        for o in self.outputs:
            if o.stages:  # stopped on the way: the loss that was asked for is certified
                o.loss, o.stages = o.stages[-1], []
                early.append(o)
        self.evaluate(early)
        histories, objectives, residuals, counts, states = zip(
            *map(_AT_THE_END, self.outputs), strict=True
        )
        theta = self.theta
        residual, gap, iterations = max(residuals), max(self._gaps()), max(counts)
        has_bias = self.features.constant is not None
        return Solution(
            "newton",
            self.features.coefficients(theta),
            theta[-1].copy() if has_bias else np.zeros(len(states)),
            C,
            sum(objectives) / self.lam,
            residual,
            gap,
            iterations,
            set(states) == {"converged"},
            f"Newton's method ended after {iterations} iterations at a relative gradient of "
            f"{residual:.1e} and a relative duality gap of {gap:.1e} (tol={self.tol:g}). Increase "
            f"max_iter or tol, lower C, or use a smoother loss (a larger delta, a smaller p).",
            details={"history": list(histories)},
        )

    def _gaps(self) -> list[float]:
        """Relative duality gaps from feasible dual variables.

        A free bias asks for slopes that add up to 0: one more pass, and the heavier side is
        scaled down.
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
            gap = o.objective - float(values[c]) + 0.5 * norm / self.lam
            gaps.append(gap / max(o.objective, _TINY))
        return gaps
