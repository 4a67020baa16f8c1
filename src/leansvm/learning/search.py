"""Searches for the numbers of a kernel by L-BFGS on the gradient of leave-one-out.

A kernel is a mixture of parts, often of one. The search minimises

    log S + (1/n) sum_p sum_f (log gamma_pf - mean_p)^2

over log gamma, the parts' weights softmax(omega) and log lam, where S is the leave-one-out error
(`LooObjective`) of n rows; or it moves all of a part's log gamma together, without the second term.
Every search uses the first rows of a sample, and the first of these as basis points. If the same
numbers are searched again on more rows, the search starts with the curvature seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm.learning.objective import TILE_VALUES, LooObjective
from leansvm.learning.sample import SHARE, WAY_OUT, ScaleSample
from leansvm.rows import check_budget

Array = NDArray[np.float64]
OnIteration = Callable[[int, float], bool]
Pairs = tuple[tuple[Array, Array], ...]  # steps, and the changes of the gradient that they made

_TIE = 2.0  # how far the common scale goes, in log
_BELOW, _ABOVE = 14.0, 8.0  # how far one scale goes from 1 / (2 d), in log
_WEIGHT = 8.0  # how far omega goes from 0
# bounds of log lam: below them, gamma and lam may go to 0 together, and only digits are lost
_LAM = (-9.2, 10.0)
_TINY = float(np.finfo(np.float64).tiny)
ROWS_IN_DOUBLE = 2000  # at most so many in double precision: in flat searches rounding matters
_TILE_ARRAYS, _SQUARES = 8, 9  # arrays of a tile's size for each thread; r x r arrays
_FAILED = 1e3  # in place of log S if a matrix is not positive definite
# a search ends after two steps in a row that each lower log S by less than this: for rows in double
# precision, and in single
_STILL = 1e-3, 2e-3
_PAIRS, _TRIES = 20, 6  # steps that are remembered; values that a line search looks at
_FIRST_STEP, _LONGEST = 25.0, 4.0  # times the gradient; of one number, in log
_ENOUGH = 1e-4  # share of the expected decrease that a step must reach
_CURVED = 1e-10  # curvature below is rounding


class Stage(NamedTuple):
    """Rows, points and iterations of one search."""

    rows: int
    points: int
    iterations: int


TIED = Stage(600, 100, 15)  # one scale for all features, where every search starts
ALONE = Stage(1500, 200, 12)  # one part by itself, before the parts are learned together
FIRST = Stage(1500, 200, 25)  # all parts together, on few rows
SECOND = Stage(4000, 500, 14)  # all parts together, on the whole sample
ON_FAST_DEVICES = Stage(12000, 800, 12)  # in place of SECOND, where double precision is fast
FOLD = Stage(1500, 150, 25)  # on the rows of all folds but one, to check the scales
HELD_OUT = Stage(1500, 600, 0)  # predictions for other rows: as many points as a model may have


class Scales(NamedTuple):
    """A point of the search: the numbers of a mixture of kernels."""

    kernels: tuple[str, ...]
    log_gamma: Array  # (n_parts, n_columns); -inf: the part does not look at the column
    omega: Array  # (n_parts,); the weights are softmax(omega)
    log_lam: float
    log_loo: float = np.inf
    pairs: Pairs = ()  # curvature seen on the way here

    @property
    def relative(self) -> Array:
        """Scales of the columns relative to the largest of their part, which is 1."""
        power = np.where(np.array(self.kernels) == "laplacian", 1.0, 0.5)[:, None]
        most = self.log_gamma.max(axis=1, initial=-np.inf, keepdims=True)
        return np.exp(power * (self.log_gamma - np.where(np.isfinite(most), most, 0.0)))

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


@dataclass(frozen=True)
class ScaleSearch:
    """Searches on the first rows of a sample, with its first rows as basis points."""

    sample: ScaleSample
    bias_penalty: float
    budget: int
    progress: ScaleProgress
    last: Stage  # the largest stage, which decides
    single: bool  # rows are worked on in single precision
    threads: int = 1
    most_points: int | None = None  # that the model will have, if known
    place: Any = None  # an empty array of the device on which to work; None: the host
    lam_per_row: tuple[float, float] | None = None  # of the model's C, if given

    def start(self, kernels: Sequence[str]) -> Scales:
        """Return one scale for all columns of a part: 1 / (2 d); laplacian and linear 1 / d."""
        log_gamma = np.full((len(kernels), self.sample.X.shape[1]), -np.inf)
        for row, kernel in zip(log_gamma, kernels, strict=True):
            seen = row[self.sample.linear if kernel == "linear" else self.sample.near]
            total = 1.0 if kernel in ("laplacian", "linear") else 0.5
            seen[:] = np.log(total / max(len(seen), 1))
        return Scales(tuple(kernels), log_gamma, np.zeros(len(kernels)), 0.0)

    def objective(self, kernels: Sequence[str], stage: Stage) -> LooObjective:
        """Return the leave-one-out error on the rows and points of a stage, or those there are.

        If memory is short, it has those of FIRST.
        """
        X, Y, weight = self.sample.X, self.sample.Y, self.sample.weight
        n, points = self.size_of(kernels, stage)
        rows = X[:n].astype(np.float32 if self.single else np.float64)
        arrays = rows, X[:points], Y[:n], weight[:n]
        return LooObjective(
            tuple(kernels), *arrays, self.bias_penalty, threads=self.threads, place=self.place
        )

    def size_of(self, kernels: Sequence[str], stage: Stage) -> tuple[int, int]:
        """Return the rows and points of a stage, or those of FIRST if memory is short.

        If these are too many, too, it raises a MemoryError.
        """
        n, width = min(stage.rows, len(self.sample.X)), self.sample.X.shape[1]
        most = max(n // 3, 20) if stage.iterations else n
        if self.most_points is not None:  # scales suit a number of points
            most = min(most, self.most_points)
        points = min(stage.points, most, n)
        # the most that one evaluation allocates, for one output
        tile = min(max(TILE_VALUES, points), n * (points + 1)) + points * width
        of_rows = (2 * len(kernels) + 2) * n * (points + 1) + _TILE_ARRAYS * self.threads * tile
        squares = (_SQUARES + 2 * len(kernels)) * (points + 1) ** 2
        needed = (4 if self.single else 8) * of_rows + 8 * squares
        if needed > self.budget:
            if stage.points > FIRST.points:
                return self.size_of(kernels, FIRST)
            what = f"A fit that learns its kernel on {n:,} rows and {points:,} points"
            check_budget(needed, self.budget, what, WAY_OUT, SHARE)
        return n, points

    def minimise(
        self, start: Scales, stage: Stage, *, tied: bool = False, iterations: int | None = None
    ) -> Scales:
        """Move every scale, or all of a part together (``tied``), the weights and lam.

        Tied searches take as many iterations as TIED on every stage, others those of the stage.
        With 0 ``iterations`` nothing moves: the result has the leave-one-out error of ``start``.
        """
        if self.progress.stopped:
            return start
        objective = self.objective(start.kernels, stage)
        lam = np.array(_LAM)
        if self.lam_per_row is not None:  # what the given C is for the rows of this stage
            lam = np.clip(np.log(self.lam_per_row) + np.log(objective.n_rows), *_LAM)
        group = np.zeros_like(self.sample.group) if tied else self.sample.group
        used, n_parts = np.isfinite(start.log_gamma), len(start.kernels)
        labels = group + (group.max(initial=0) + 1) * np.arange(n_parts)[:, None]
        _, first, variable = np.unique(labels[used], return_index=True, return_inverse=True)
        low, high = np.full((2, len(first)), [[-_TIE], [_TIE]])
        if not tied:
            centre = np.log(0.5 / group.size) - start.log_gamma[used][first]
            low, high = np.minimum(centre - _BELOW, 0.0), np.maximum(centre + _ABOVE, 0.0)
        omega, weight = start.omega[:0], np.empty(0)
        if n_parts > 1:
            omega, weight = start.omega, np.full(n_parts, _WEIGHT)
        descent = _Descent(
            objective,
            start,
            self.progress,
            used,
            variable,
            first,
            part=np.nonzero(used)[0][first],
            prior=0.0 if tied else 1.0 / objective.n_rows,
            lower=np.concatenate([low, -weight, lam[:1]]),
            upper=np.concatenate([high, weight, lam[1:]]),
            found=start._replace(log_loo=_FAILED),
        )
        x = np.concatenate([np.zeros(len(first)), omega, [min(max(start.log_lam, lam[0]), lam[1])]])
        if iterations is None:
            iterations = TIED.iterations if tied else stage.iterations
        pairs = descend(descent, x, iterations, start.pairs)
        return descent.found._replace(pairs=pairs)


@dataclass
class _Descent:
    """log S plus the prior, and its gradient, as a function of what the search moves.

    The search moves: what is added to log gamma of ``start``, one number for each group of columns
    of each part; omega, if there are several parts; and log lam.
    """

    objective: LooObjective
    start: Scales
    progress: ScaleProgress
    used: NDArray[np.bool_]  # scales that are not 0
    variable: NDArray[np.intp]  # of every such scale
    first: NDArray[np.intp]  # a scale of every variable
    part: NDArray[np.intp]  # of every variable
    prior: float
    lower: Array
    upper: Array
    found: Scales  # the best that was evaluated
    best: float = _FAILED  # its value

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Return value and gradient."""
        n, log_gamma, log_lam = len(self.first), self.start.log_gamma.copy(), float(x[-1])
        log_gamma[self.used] += x[:n][self.variable]
        several = len(x) - n - 1
        omega = x[n:-1] if several else self.start.omega
        self.progress.evaluations += 1
        try:
            loo = self.objective(np.exp(log_gamma), float(np.exp(log_lam)), omega)
        except np.linalg.LinAlgError:
            return _FAILED, np.zeros(len(x))
        S, values = max(loo.value, _TINY), log_gamma[self.used][self.first]
        mean = np.bincount(self.part, values) / np.maximum(np.bincount(self.part), 1)
        apart = values - mean[self.part]
        slope = np.bincount(self.variable, loo.log_gamma[self.used], n) / S
        slope += 2.0 * self.prior * apart
        value = float(np.log(S)) + self.prior * float(apart @ apart)
        if value < self.best:
            kernels, self.best = self.start.kernels, value
            self.found = Scales(kernels, log_gamma, omega, log_lam, float(np.log(S)))
        return value, np.concatenate([slope, loo.omega[:several] / S, [loo.log_lam / S]])


def descend(function: _Descent, x: Array, iterations: int, pairs: Pairs) -> Pairs:
    """Minimise from x by L-BFGS between bounds; return the curvature that was seen.

    The best point is ``function.found``.

    Scipy's L-BFGS-B would forget the curvature between two searches, and its first step is the
    gradient itself, which is far too short here.
    """
    progress, still = function.progress, 0
    least = _STILL[function.objective.single]
    pairs = pairs if pairs and len(pairs[0][0]) == len(x) else ()
    value, slope = function(x)
    for _ in range(iterations):
        held = np.where(slope > 0, x <= function.lower, x >= function.upper)
        # the gradient times the inverse Hessian that the pairs stand for: two loops over them
        step, factors = np.where(held, 0.0, slope), []
        for moved, change in reversed(pairs):
            factors.append((moved @ step) / (moved @ change))
            step -= factors[-1] * change
        if pairs:
            moved, change = pairs[-1]
            step *= (moved @ change) / (change @ change)
        else:
            step *= min(_FIRST_STEP, 2.0 / max(float(np.linalg.norm(step)), _TINY))
        for (moved, change), factor in zip(pairs, reversed(factors), strict=True):
            step += (factor - (change @ step) / (moved @ change)) * moved
        step = np.where(held, 0.0, -step)
        step *= min(_LONGEST / max(np.abs(step).max(), _TINY), 1.0)
        for _ in range(_TRIES):
            moved = np.clip(x + step, function.lower, function.upper) - x
            new_value, new_slope = function(x + moved)
            expected, above = float(slope @ moved), new_value - value
            if above <= _ENOUGH * expected:
                break
            # the minimum of the parabola through both values and the slope
            step *= np.clip(-0.5 * expected / max(above - expected, _TINY), 0.1, 0.5)
            if -float(slope @ step) < least:  # all that a shorter step could gain
                return pairs
        else:
            return pairs
        change = new_slope - slope
        if moved @ change > _CURVED * (change @ change):
            pairs = (*pairs, (moved, change))[-_PAIRS:]
        still = still + 1 if -above < least else 0
        x, value, slope = x + moved, new_value, new_slope
        progress.iterations += 1
        if progress.on_iteration is not None:
            error = float(np.exp(min(value, _FAILED / 2)))
            progress.stopped = bool(progress.on_iteration(progress.iterations, error))
        if progress.stopped or still == 2:
            return pairs
    return pairs
