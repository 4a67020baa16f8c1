"""Searches for the numbers of a kernel by L-BFGS on the gradient of leave-one-out.

A kernel is a mixture of parts, often of one. The search minimises

    log S + (1/n) sum_p sum_f (log gamma_pf - mean_p)^2

over log gamma, the parts' weights softmax(omega) and log lam, where S is the leave-one-out error
(`LooObjective`) of n rows; or it moves all of a part's log gamma together, without the second term.
Every search takes the first rows of a sample, and the first of these as basis points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from scipy.special import softmax

from leansvm.learning.objective import LooObjective, ScaleProblem, needed_bytes
from leansvm.learning.sample import WAY_OUT, ScaleSample
from leansvm.rows import check_budget

Array = NDArray[np.float64]
OnIteration = Callable[[int, float], bool]

_TIE = 2.0  # how far the common scale goes, in log
_BELOW, _ABOVE = 14.0, 8.0  # how far one scale goes from 1 / (2 d), in log
_WEIGHT = 8.0  # how far omega goes from 0
# bounds of log lam: below, gamma and lam may go to 0 together, S hardly changes, digits are lost
_LAM = (-9.2, 10.0)
_TINY = float(np.finfo(np.float64).tiny)
_ROWS_IN_DOUBLE = 2000
_FAILED = 1e3  # in place of log S where a matrix is not positive definite


class Stage(NamedTuple):
    """Rows, points and iterations of one search."""

    rows: int
    points: int
    iterations: int


TIED = Stage(1000, 150, 15)  # one scale for all features, where every search starts
FIRST = Stage(1500, 200, 25)
SECOND = Stage(4000, 400, 12)
FOLD = Stage(1500, 150, 25)
HELD_OUT = Stage(1500, 600, 0)  # predictions for other rows: as many points as a model may have


class Scales(NamedTuple):
    """A point of the search: the numbers of a mixture of kernels."""

    kernels: tuple[str, ...]
    log_gamma: Array  # (n_parts, n_columns); -inf: the part does not look at the column
    omega: Array  # (n_parts,)
    log_lam: float
    log_loo: float = np.inf

    @property
    def gamma(self) -> Array:
        """Scales of the standardised columns."""
        return np.exp(self.log_gamma)

    @property
    def weights(self) -> Array:
        """Weights of the parts; their sum is 1."""
        return np.asarray(softmax(self.omega))

    @property
    def relative(self) -> Array:
        """Scales of the columns beside the largest of their part, which is 1."""
        power = np.array([[0.5], [1.0]])[[int(k == "laplacian") for k in self.kernels]]
        most = self.log_gamma.max(axis=1, initial=-np.inf, keepdims=True)
        return np.exp(power * (self.log_gamma - np.where(np.isfinite(most), most, 0.0)))

    def part(self, p: int) -> Scales:
        """Return one part alone."""
        alone = slice(p, p + 1)
        return Scales(self.kernels[alone], self.log_gamma[alone], np.zeros(1), self.log_lam)

    def without(self, parts: NDArray[np.bool_]) -> Scales:
        """Return the numbers of all other parts."""
        kernels = tuple(k for k, gone in zip(self.kernels, parts, strict=True) if not gone)
        return self._replace(
            kernels=kernels, log_gamma=self.log_gamma[~parts], omega=self.omega[~parts]
        )

    def rounded(self) -> Scales:
        """Return numbers in steps of 1 %: less than rows decide, and more than rounding moves."""
        return self._replace(
            log_gamma=self.log_gamma.round(2),
            omega=(self.omega - self.omega.max()).round(2),
            log_lam=round(self.log_lam, 2),
        )

    def shrunk(self) -> Scales:
        """Return scales half-way, in log, to the mean of their part."""
        used = np.isfinite(self.log_gamma)
        mean = np.nanmean(np.where(used, self.log_gamma, np.nan), axis=1, keepdims=True)
        return self._replace(log_gamma=np.where(used, 0.5 * (self.log_gamma + mean), -np.inf))


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
    threads: int = 1
    most_points: int | None = None  # that the model will have, where it is known
    lam_per_row: tuple[float, float] | None = None  # of the model's C, where it is given

    def on(self, rows: NDArray[np.intp]) -> ScaleSearch:
        """Return the same search on some rows of the sample."""
        return replace(self, sample=self.sample.take(rows))

    def check_memory(self, n_parts: int) -> None:
        """Raise a MemoryError where the budget is too small for the first search."""
        sizes = self._there_are(FIRST)
        what = f"Learning a kernel on {sizes.rows:,} rows and {sizes.points:,} points"
        check_budget(self._needed_bytes(sizes, n_parts), self.budget, what, WAY_OUT)

    def sized(self, stage: Stage, n_parts: int = 1) -> Stage:
        """Return the rows and points of a stage that there are; no more than memory allows."""
        sizes = self._there_are(stage)
        if stage.points <= FIRST.points or self._needed_bytes(sizes, n_parts) <= self.budget:
            return sizes
        return self._there_are(FIRST)

    def _needed_bytes(self, sizes: Stage, n_parts: int) -> int:
        width = self.sample.X.shape[1]
        itemsize = np.dtype(self._dtype).itemsize
        return needed_bytes(sizes.rows, sizes.points, width, self.threads, n_parts, itemsize)

    def _there_are(self, stage: Stage) -> Stage:
        n = min(stage.rows, len(self.sample.X))
        most = max(n // 3, 20) if stage.iterations else n
        if self.most_points is not None:  # scales suit a number of points
            most = min(most, self.most_points)
        return Stage(n, min(stage.points, most, n), stage.iterations)

    def start(self, kernels: Sequence[str]) -> Scales:
        """Return one scale for all columns of a part: 1 / (2 d); laplacian and linear 1 / d."""
        log_gamma = np.full((len(kernels), self.sample.X.shape[1]), -np.inf)
        for row, kernel in zip(log_gamma, kernels, strict=True):
            seen = row[self.sample.columns(kernel)]
            total = 1.0 if kernel in ("laplacian", "linear") else 0.5
            seen[:] = np.log(total / max(len(seen), 1))
        return Scales(tuple(kernels), log_gamma, np.zeros(len(kernels)), 0.0)

    def objective(self, kernels: tuple[str, ...], stage: Stage) -> LooObjective:
        """Return the leave-one-out error of a stage that `sized` gave."""
        rows = self.sample.take(slice(stage.rows))
        points = rows.X[: stage.points]
        problem = ScaleProblem(kernels, rows.X, points, rows.Y, rows.weight, self.bias_penalty)
        return LooObjective(problem, self.threads, self._dtype)

    @property
    def _dtype(self) -> Any:
        """Double precision where it costs little: rounding decides where a flat search ends."""
        return np.float32 if len(self.sample.X) > _ROWS_IN_DOUBLE else np.float64

    def minimise(self, start: Scales, stage: Stage, *, tied: bool = False) -> Scales:
        """Move every scale, or all of a part together (``tied``), the weights and lam."""
        if self.progress.stopped:
            return start
        stage = self.sized(stage, len(start.kernels))
        iterations = TIED.iterations if tied else stage.iterations
        group = np.zeros_like(self.sample.group) if tied else self.sample.group
        objective = self.objective(start.kernels, stage)
        prior = 0.0 if tied else 1.0 / stage.rows
        descent = _Descent(objective, start, group, prior, self.progress)
        lam = _LAM
        if self.lam_per_row is not None:  # what the given C is for the rows of this stage
            lam = tuple(np.clip(np.log(self.lam_per_row) + np.log(stage.rows), *_LAM).tolist())
        result = minimize(
            descent,
            descent.at(np.clip(start.log_lam, *lam)),
            jac=True,
            method="L-BFGS-B",
            bounds=descent.bounds(lam),
            callback=self.progress,
            options={
                "maxiter": iterations,
                "maxfun": int(1.3 * iterations) + 3,
                "maxcor": 20,
                "ftol": 1e-5,
            },
        )
        found = descent.scales(result.x)
        return found._replace(log_loo=float(result.fun) - descent.penalty(found.log_gamma)[0])

    def log_loo(self, scales: Scales, stage: Stage) -> float:
        """Return log S."""
        objective = self.objective(scales.kernels, self.sized(stage, len(scales.kernels)))
        self.progress.evaluations += 1
        try:
            found = objective(scales.gamma, float(np.exp(scales.log_lam)), scales.omega)
        except np.linalg.LinAlgError:
            return _FAILED
        return float(np.log(max(found.value, _TINY)))

    def errors(self, scales: Scales, other: ScaleSample) -> Array:
        """Return the weighted squared error of each row of another sample."""
        objective = self.objective(scales.kernels, self.sized(HELD_OUT, len(scales.kernels)))
        lam = float(np.exp(scales.log_lam))
        residuals = other.Y - objective.predictions(other.X, scales.gamma, lam, scales.omega)
        return other.weight * np.square(residuals).mean(axis=1)


class _Descent:
    """log S plus the prior, and its gradient, as a function of what L-BFGS moves.

    That is: what is added to log gamma of ``start``, one number for each group of columns of each
    part; then omega where there are several parts; then log lam.
    """

    def __init__(
        self,
        objective: LooObjective,
        start: Scales,
        group: NDArray[np.intp],
        prior: float,
        progress: ScaleProgress,
    ) -> None:
        self.objective, self.start, self.prior, self.progress = objective, start, prior, progress
        self.used = np.isfinite(start.log_gamma)
        n_parts = len(start.kernels)
        labels = group[None, :] + (group.max(initial=0) + 1) * np.arange(n_parts)[:, None]
        # the variable of every scale that is used, and the part and a scale of every variable
        _, first, self.variable = np.unique(
            labels[self.used], return_index=True, return_inverse=True
        )
        self.part = np.nonzero(self.used)[0][first]
        self.first, self.n_scales = first, len(first)
        self.several = n_parts if n_parts > 1 else 0
        self.tied = self.n_scales <= n_parts

    def at(self, log_lam: float) -> Array:
        """Return where the search starts."""
        omega = self.start.omega[: self.several]
        return np.concatenate([np.zeros(self.n_scales), omega, [log_lam]])

    def bounds(self, lam: tuple[float, float]) -> list[tuple[float, float]]:
        """Return the bounds of all variables."""
        start = self.start.log_gamma[self.used][self.first]
        centre = float(np.log(0.5 / max(self.start.log_gamma.shape[1], 1)))
        low, high = centre - _BELOW - start, centre + _ABOVE - start
        if self.tied:
            low, high = np.full((2, self.n_scales), [[-_TIE], [_TIE]])
        pairs = list(
            zip(np.minimum(low, 0.0).tolist(), np.maximum(high, 0.0).tolist(), strict=True)
        )
        return [*pairs, *[(-_WEIGHT, _WEIGHT)] * self.several, lam]

    def scales(self, variables: Array) -> Scales:
        """Return the numbers that these variables stand for."""
        log_gamma = self.start.log_gamma.copy()
        log_gamma[self.used] += variables[: self.n_scales][self.variable]
        omega = variables[self.n_scales : -1] if self.several else self.start.omega
        return Scales(self.start.kernels, log_gamma, omega, float(variables[-1]))

    def penalty(self, log_gamma: Array) -> tuple[float, Array]:
        """Return the prior and its gradient by the variables of the scales."""
        values = log_gamma[self.used][self.first]
        count = np.bincount(self.part)
        apart = values - (np.bincount(self.part, values) / np.maximum(count, 1))[self.part]
        return self.prior * float(apart @ apart), 2.0 * self.prior * apart

    def __call__(self, variables: Array) -> tuple[float, Array]:
        """Return value and gradient."""
        scales = self.scales(variables)
        self.progress.evaluations += 1
        try:
            found = self.objective(scales.gamma, float(np.exp(scales.log_lam)), scales.omega)
        except np.linalg.LinAlgError:
            return _FAILED, np.zeros(len(variables))
        S = max(found.value, _TINY)
        value, slope = self.penalty(scales.log_gamma)
        slope = slope + np.bincount(self.variable, found.log_gamma[self.used], self.n_scales) / S
        omega = found.omega[: self.several] / S
        return value + float(np.log(S)), np.concatenate([slope, omega, [found.log_lam / S]])
