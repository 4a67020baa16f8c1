"""Searches for the scales of features by L-BFGS on the gradient of leave-one-out.

Minimises log S + (1/n) sum_f (log gamma_f - mean)^2 over log gamma and log lam, where S is the
leave-one-out error (`scale_gradient`) of n rows; or moves all of log gamma together, without the
second term. Every search takes the first rows of a sample, and the first of these as basis points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from leansvm._parallel import serial_blas
from leansvm.kernels import Kernel
from leansvm.learning.objective import LooObjective, ScaleProblem, needed_bytes
from leansvm.learning.sample import ScaleSample
from leansvm.ridge.nested import open_ladder
from leansvm.rows import MemoryBlocks

Array = NDArray[np.float64]
OnIteration = Callable[[int, float], bool]

_TIE = 2.0  # how far the common scale goes, in log
_BELOW, _ABOVE = 14.0, 8.0  # how far one scale goes from 1 / (2 d), in log
# bounds of log lam: below, gamma and lam may go to 0 together, S hardly changes, digits are lost
_LAM = (-9.2, 10.0)
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
    most_points: int | None = None  # that the model will have, where it is known
    lam_per_row: tuple[float, float] | None = None  # of the model's C, where it is given

    @property
    def d(self) -> int:
        """Features that vary."""
        return self.sample.X.shape[1]

    def on(self, rows: NDArray[np.intp]) -> ScaleSearch:
        """Return the same search on some rows of the sample."""
        X, Y, weight = (a[rows] for a in (self.sample.X, self.sample.Y, self.sample.weight))
        return replace(self, sample=replace(self.sample, X=X, Y=Y, weight=weight))

    def sized(self, stage: Stage) -> Stage:
        """Return the rows and points of a stage that there are; no more than memory allows."""
        sizes = self._there_are(stage)
        with serial_blas() as threads:
            fits = needed_bytes(sizes.rows, sizes.points, self.d, threads) <= self.budget
        return sizes if fits or stage.points <= FIRST.points else self._there_are(FIRST)

    def _there_are(self, stage: Stage) -> Stage:
        n = min(stage.rows, len(self.sample))
        most = max(n // 3, 20) if stage.iterations else n
        if self.most_points is not None:  # scales suit a number of points
            most = min(most, self.most_points)
        return Stage(n, min(stage.points, most, n), stage.iterations)

    def objective(self, kernel: str, stage: Stage) -> LooObjective:
        """Return the leave-one-out error of a stage that `sized` gave."""
        sample, rows = self.sample, slice(stage.rows)
        X, Z, Y = sample.X[rows], sample.X[: stage.points], sample.Y[rows]
        problem = ScaleProblem((kernel,), X, Z, Y, sample.weight[rows], self.bias_penalty)
        return LooObjective(problem, self.budget)

    def start(self, kernel: str) -> Scales:
        """Return one scale for all features: 1 / (2 d), or 1 / d for laplacian."""
        share = 1.0 if kernel == "laplacian" else 0.5
        return Scales(kernel, np.full(self.d, np.log(share / self.d)), 0.0)

    def tied(self, start: Scales, stage: Stage) -> Scales:
        """Move all scales together, and lam."""
        stage = self.sized(stage)._replace(iterations=TIED.iterations)
        return self._minimise(start, stage, prior=0.0, tied=True)

    def learn(self, start: Scales, stage: Stage) -> Scales:
        """Move every scale, and lam."""
        stage = self.sized(stage)
        return self._minimise(start, stage, prior=1.0 / stage.rows, tied=False)

    def log_loo(self, scales: Scales, stage: Stage) -> float:
        """Return log S."""
        objective = self.objective(scales.kernel, self.sized(stage))
        descent = _Descent(objective, scales.log_gamma, 0.0, True, self.progress)
        return descent(np.array([0.0, scales.log_lam]))[0]

    def judged(self, scales: Scales) -> Scales:
        """Return the scales with log S of many points, at the best lam."""
        stage, sample = self.sized(JUDGE), self.sample
        X, Y, weight = (a[: stage.rows] for a in (sample.X, sample.Y, sample.weight))
        ladder = open_ladder(
            MemoryBlocks(X, Y, weight),
            Kernel(scales.kernel, gamma=scales.gamma),
            X[: stage.points],
            self.bias_penalty,
            self.budget,
            np.arange(stage.points),
        )
        ladder.extend(stage.points)
        error = float(ladder.curve(np.exp(-np.linspace(*_LAM, 40))).min()) / Y.shape[1]
        return scales._replace(log_loo=float(np.log(max(error, np.finfo(np.float64).tiny))))

    def errors(self, scales: Scales, other: ScaleSample) -> Array:
        """Return the weighted squared error of each row of another sample."""
        objective = self.objective(scales.kernel, self.sized(HELD_OUT))
        lam = float(np.exp(scales.log_lam))
        residuals = other.Y - objective.predictions(scales.gamma[None], lam, other.X)
        return other.weight * np.square(residuals).mean(axis=1)

    def _log_lam(self, stage: Stage) -> tuple[float, float]:
        """Return the bounds of log lam: where C is given, what it is for the rows of a stage."""
        if self.lam_per_row is None:
            return _LAM
        least, most = np.clip(np.log(self.lam_per_row) + np.log(stage.rows), *_LAM).tolist()
        return least, most

    def _minimise(self, start: Scales, stage: Stage, *, prior: float, tied: bool) -> Scales:
        if self.progress.stopped:
            return start
        objective = self.objective(start.kernel, stage)
        descent = _Descent(objective, start.log_gamma, prior, tied, self.progress)
        centre = np.log(0.5 / self.d)
        each = [(-_TIE, _TIE)] if tied else [(centre - _BELOW, centre + _ABOVE)] * self.d
        bounds = self._log_lam(stage)
        result = minimize(
            descent,
            np.append(0.0 if tied else start.log_gamma, np.clip(start.log_lam, *bounds)),
            jac=True,
            method="L-BFGS-B",
            bounds=[*each, bounds],
            callback=self.progress,
            options={
                "maxiter": stage.iterations,
                "maxfun": int(1.3 * stage.iterations) + 3,
                "maxcor": 20,
                "ftol": 1e-5,
            },
        )
        log_gamma = descent.log_gamma(result.x)
        log_loo = float(result.fun) - descent.penalty(log_gamma)[0]
        return Scales(start.kernel, log_gamma, float(result.x[-1]), log_loo)


@dataclass(frozen=True)
class _Descent:
    """log S plus the prior, and its gradient, as a function of what L-BFGS moves.

    That is log gamma, or a number added to all of it (``tied``), and log lam.
    """

    objective: LooObjective
    start: Array
    prior: float
    tied: bool
    progress: ScaleProgress

    def log_gamma(self, variables: Array) -> Array:
        """Return the scales that the variables stand for."""
        return self.start + variables[0] if self.tied else variables[:-1]

    def penalty(self, log_gamma: Array) -> tuple[float, Array]:
        """Return the prior's term and its gradient."""
        if self.prior == 0:
            return 0.0, np.zeros_like(log_gamma)
        apart = log_gamma - log_gamma.mean()
        return self.prior * float(apart @ apart), 2.0 * self.prior * apart

    def __call__(self, variables: Array) -> tuple[float, Array]:
        """Return value and gradient."""
        log_gamma, lam = self.log_gamma(variables), float(np.exp(variables[-1]))
        self.progress.evaluations += 1
        try:
            found = self.objective(np.exp(log_gamma)[None], lam)
        except np.linalg.LinAlgError:
            return _FAILED, np.zeros(len(variables))
        S = max(found.value, np.finfo(np.float64).tiny)
        penalty, slope = self.penalty(log_gamma)
        slope = found.log_gamma[0] / S + slope
        by_scale = [slope.sum()] if self.tied else slope
        return float(np.log(S)) + penalty, np.append(by_scale, found.log_lam / S)
