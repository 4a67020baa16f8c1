"""Searches for the scales of features by L-BFGS on the gradient of leave-one-out.

Minimises log S + (1/n) sum_f (log gamma_f - mean)^2 over log gamma and log lam, where S is the
leave-one-out error (`LooObjective`) of n rows; or moves all of log gamma together, without the
second term. Every search takes the first rows of a sample, and the first of these as basis points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from leansvm.kernels import Kernel
from leansvm.learning.objective import LooObjective, ScaleProblem, needed_bytes
from leansvm.learning.sample import WAY_OUT, ScaleSample
from leansvm.ridge.nested import open_ladder
from leansvm.rows import MemoryBlocks, check_budget

Array = NDArray[np.float64]
OnIteration = Callable[[int, float], bool]

_TIE = 2.0  # how far the common scale goes, in log
_BELOW, _ABOVE = 14.0, 8.0  # how far one scale goes from 1 / (2 d), in log
# bounds of log lam: below, gamma and lam may go to 0 together, S hardly changes, digits are lost
_LAM = (-9.2, 10.0)
_TINY = float(np.finfo(np.float64).tiny)
_FAILED = 1e3  # in place of log S where a matrix is not positive definite


class Stage(NamedTuple):
    """Rows, points and iterations of one search."""

    rows: int
    points: int
    iterations: int


TIED = Stage(1000, 150, 15)  # one scale for all features, where every search starts
FIRST = Stage(1500, 200, 25)
JUDGE = Stage(4000, 1000, 0)  # compares kernels: few points flatter smooth ones
SECOND = Stage(4000, 400, 25)
FOLD = Stage(1500, 150, 25)
HELD_OUT = Stage(1500, 600, 0)  # predictions for other rows: as many points as a model may have


class Scales(NamedTuple):
    """A point of the search."""

    kernel: str
    log_gamma: Array
    log_lam: float
    log_loo: float = np.inf

    @property
    def gamma(self) -> Array:
        """Scales of the standardised features."""
        return np.exp(self.log_gamma)

    @property
    def relative(self) -> Array:
        """Importance of the standardised features, largest 1."""
        power = 1.0 if self.kernel == "laplacian" else 0.5
        return np.exp(power * (self.log_gamma - self.log_gamma.max(initial=-np.inf)))

    def rounded(self) -> Scales:
        """Return scales in steps of 1 %: less than rows decide, and more than rounding moves."""
        return self._replace(log_gamma=self.log_gamma.round(2), log_lam=round(self.log_lam, 2))

    def shrunk(self) -> Scales:
        """Return scales half-way, in log, to their mean."""
        return self._replace(log_gamma=0.5 * (self.log_gamma + self.log_gamma.mean()))


@dataclass
class ScaleProgress:
    """Counts evaluations and iterations, and hears from the callback when to stop."""

    on_iteration: OnIteration | None
    evaluations: int = 0
    iterations: int = 0
    stopped: bool = False

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Take note of an iteration; `scipy.optimize.minimize` wants this parameter's name."""
        self.iterations += 1
        if self.on_iteration is not None:
            error = float(np.exp(min(intermediate_result.fun, _FAILED / 2)))
            self.stopped = bool(self.on_iteration(self.iterations, error))
            if self.stopped:
                raise StopIteration


@dataclass(frozen=True)
class ScaleSearch:
    """Searches on the first rows of a sample, with its first rows as basis points."""

    sample: ScaleSample
    bias_penalty: float
    budget: int
    progress: ScaleProgress
    groups: NDArray[np.intp]  # for every feature which of the scales is its own
    threads: int = 1
    most_points: int | None = None  # that the model will have, where it is known
    lam_per_row: tuple[float, float] | None = None  # of the model's C, where it is given

    @property
    def n_scales(self) -> int:
        """Scales to find: one for every group of features."""
        return int(self.groups.max(initial=-1)) + 1

    def on(self, rows: NDArray[np.intp]) -> ScaleSearch:
        """Return the same search on some rows of the sample."""
        return replace(self, sample=self.sample.take(rows))

    def check_memory(self) -> None:
        """Raise a MemoryError where the budget is too small for the first search."""
        sizes = self._there_are(FIRST)
        what = f"Learning feature scales on {sizes.rows:,} rows and {sizes.points:,} points"
        check_budget(self._needed_bytes(sizes), self.budget, what, WAY_OUT)

    def sized(self, stage: Stage) -> Stage:
        """Return the rows and points of a stage that there are; no more than memory allows."""
        sizes = self._there_are(stage)
        if stage.points <= FIRST.points or self._needed_bytes(sizes) <= self.budget:
            return sizes
        return self._there_are(FIRST)

    def _needed_bytes(self, sizes: Stage) -> int:
        return needed_bytes(sizes.rows, sizes.points, self.sample.X.shape[1], self.threads)

    def _there_are(self, stage: Stage) -> Stage:
        n = min(stage.rows, len(self.sample.X))
        most = max(n // 3, 20) if stage.iterations else n
        if self.most_points is not None:  # scales suit a number of points
            most = min(most, self.most_points)
        return Stage(n, min(stage.points, most, n), stage.iterations)

    def start(self, kernel: str) -> Scales:
        """Return one scale for all features: 1 / (2 d), or 1 / d for laplacian."""
        d = self.n_scales
        return Scales(kernel, np.full(d, np.log((1.0 if kernel == "laplacian" else 0.5) / d)), 0.0)

    def objective(self, kernel: str, stage: Stage) -> LooObjective:
        """Return the leave-one-out error of a stage that `sized` gave."""
        rows = self.sample.take(slice(stage.rows))
        points = rows.X[: stage.points]
        problem = ScaleProblem((kernel,), rows.X, points, rows.Y, rows.weight, self.bias_penalty)
        return LooObjective(problem, self.threads)

    def minimise(self, start: Scales, stage: Stage, *, tied: bool = False) -> Scales:
        """Move every scale, or all of them together (``tied``), and lam."""
        if self.progress.stopped:
            return start
        stage, d = self.sized(stage), len(start.log_gamma)
        iterations = TIED.iterations if tied else stage.iterations
        objective = self.objective(start.kernel, stage)
        if tied:
            descent = _Descent(objective, start.log_gamma, 0.0, self.progress, self.groups)
            first, bounds = np.zeros(1), [(-_TIE, _TIE)]
        else:
            prior = 1.0 / stage.rows
            descent = _Descent(objective, np.zeros(d), prior, self.progress, self.groups)
            centre = float(np.log(0.5 / d))
            first, bounds = start.log_gamma, [(centre - _BELOW, centre + _ABOVE)] * d
        lam = _LAM
        if self.lam_per_row is not None:  # what the given C is for the rows of this stage
            lam = tuple(np.clip(np.log(self.lam_per_row) + np.log(stage.rows), *_LAM).tolist())
        result = minimize(
            descent,
            np.append(first, np.clip(start.log_lam, *lam)),
            jac=True,
            method="L-BFGS-B",
            bounds=[*bounds, lam],
            callback=self.progress,
            options={
                "maxiter": iterations,
                "maxfun": int(1.3 * iterations) + 3,
                "maxcor": 20,
                "ftol": 1e-5,
            },
        )
        log_gamma = descent.start + result.x[:-1]
        apart = log_gamma - log_gamma.mean()
        log_loo = float(result.fun) - descent.prior * float(apart @ apart)
        return Scales(start.kernel, log_gamma, float(result.x[-1]), log_loo)

    def log_loo(self, scales: Scales, stage: Stage) -> float:
        """Return log S."""
        objective = self.objective(scales.kernel, self.sized(stage))
        descent = _Descent(objective, scales.log_gamma, 0.0, self.progress, self.groups)
        return descent(np.array([0.0, scales.log_lam]))[0]

    def judged(self, scales: Scales) -> Scales:
        """Return the scales with log S of many points, at the best lam."""
        stage = self.sized(JUDGE)
        rows = self.sample.take(slice(stage.rows))
        kernel = Kernel(scales.kernel, gamma=scales.gamma[self.groups])
        blocks, points = MemoryBlocks(rows.X, rows.Y, rows.weight), np.arange(stage.points)
        ladder = open_ladder(blocks, kernel, rows.X[points], self.bias_penalty, self.budget, points)
        ladder.extend(stage.points)
        error = float(ladder.curve(np.exp(-np.linspace(*_LAM, 40))).min()) / rows.Y.shape[1]
        return scales._replace(log_loo=float(np.log(max(error, _TINY))))

    def errors(self, scales: Scales, other: ScaleSample) -> Array:
        """Return the weighted squared error of each row of another sample."""
        objective = self.objective(scales.kernel, self.sized(HELD_OUT))
        lam = float(np.exp(scales.log_lam))
        residuals = other.Y - objective.predictions(other.X, scales.gamma[self.groups][None], lam)
        return other.weight * np.square(residuals).mean(axis=1)


@dataclass(frozen=True)
class _Descent:
    """log S plus the prior, and its gradient, as a function of what L-BFGS moves.

    That is what is added to ``start`` of log gamma, one number for every scale or one for all of
    them, and log lam.
    """

    objective: LooObjective
    start: Array
    prior: float
    progress: ScaleProgress
    groups: NDArray[np.intp]

    def __call__(self, variables: Array) -> tuple[float, Array]:
        """Return value and gradient."""
        log_gamma, lam = self.start + variables[:-1], float(np.exp(variables[-1]))
        self.progress.evaluations += 1
        try:
            found = self.objective(np.exp(log_gamma)[self.groups][None], lam)
        except np.linalg.LinAlgError:
            return _FAILED, np.zeros(len(variables))
        S = max(found.value, _TINY)
        value = float(np.log(S))
        slope = np.bincount(self.groups, found.log_gamma[0] / S, minlength=len(log_gamma))
        if self.prior > 0:
            apart = log_gamma - log_gamma.mean()
            value += self.prior * float(apart @ apart)
            slope += 2.0 * self.prior * apart
        if len(variables) <= len(slope):
            slope = slope.sum(keepdims=True)
        return value, np.append(slope, found.log_lam / S)
