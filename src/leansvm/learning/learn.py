"""Learn one scale for each feature: ``gamma="learn"``.

Minimises log S + (1/n) sum_f (log gamma_f - mean)^2 over log gamma and log lam by L-BFGS, where S
is the leave-one-out error of a random basis on a sample of n rows (`LooObjective`). The second
term keeps scales together that the rows say little about. Kernels are compared by S with more
points. Features of small scale are dropped where S allows it. With few rows, or few of all classes
but one, the learned scales must beat one common scale on folds that they were not learned on. Where
the model's C is given, a last search finds the scales that suit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from leansvm._parallel import blas_threads, serial_blas
from leansvm._phases import Phases
from leansvm.learning.sample import ScaleSample, draw_sample
from leansvm.learning.search import (
    FIRST,
    FOLD,
    SECOND,
    TIED,
    OnIteration,
    ScaleProgress,
    Scales,
    ScaleSearch,
)
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]

LEARNABLE = ("rbf", "matern12", "matern32", "matern52", "laplacian")
_FEWEST_ROWS = 10  # to learn anything from
_FOLDS = 3
_FEW_ROWS, _ROWS_PER_FEATURE = 2000, 50  # with fewer, learned scales are checked on folds
_FEW_OTHERS = 200  # rows beyond those of the most frequent target; with fewer, likewise
_SHARES, _TOLERANCE = (0.1, 0.03), 1e-3  # which features may be dropped, what it may cost


@dataclass(frozen=True)
class LearnedKernel:
    """A kernel with the numbers that were learned for it.

    Parameters
    ----------
    kernel : str
        The kernel with the smallest leave-one-out error.
    gamma : ndarray of shape (n_features,)
        Factor of the squared differences (laplacian: absolute differences) of the raw features.
    clip : tuple of two ndarrays of shape (n_features,), or None
        Bounds of the features where they cut anything: what `Kernel` takes.
    scales : ndarray of shape (n_features,)
        sqrt(gamma) (laplacian: gamma) times the standard deviation of the feature, largest 1.
    C : float
        The regularisation that goes with the scales on the sample.
    report : dict
        ``rows`` and ``points`` of the last search, ``evaluations`` of the gradient,
        ``iterations``, ``log_loo`` of every kernel (with many points where several are compared),
        ``dropped`` features, ``guard`` (None, or the error of each candidate on held-out folds and
        which was chosen), ``fallback`` (None, or why nothing was learned), ``stopped`` by the
        callback, ``seconds``.
    """

    kernel: str
    gamma: Array
    clip: tuple[Array, Array] | None
    scales: Array
    C: float
    report: dict[str, Any]


def learn_kernel(
    blocks: RowBlocks,
    kernels: Sequence[str],
    *,
    bias_penalty: float,
    budget: int,
    random_state: int | np.random.RandomState | None,
    on_iteration: OnIteration | None = None,
    most_points: int | None = None,
    C: tuple[float, float] | None = None,
    groups: NDArray[np.intp] | None = None,
    numeric: NDArray[np.bool_] | None = None,
) -> LearnedKernel:
    """Learn the scales of the features, and choose among kernels.

    Parameters
    ----------
    blocks : RowBlocks
        The rows, with targets and weights, wherever they are: a sample is brought to the host.
    kernels : sequence of {"rbf", "matern12", "matern32", "matern52", "laplacian"}
        Kernels to compare; one or more.
    bias_penalty : float
        0: free bias; a positive number: its penalty; infinity: no bias.
    budget : int
        Bytes that may be allocated.
    random_state : int, RandomState or None
        Decides the sample and the basis.
    on_iteration : callable, optional
        Called as ``on_iteration(k, error)`` after every iteration with the leave-one-out error, in
        units of the targets' variance; the search ends when it returns True.
    most_points : int, optional
        Basis points that the model will have: narrow kernels need many.
    C : tuple of two floats, optional
        The least and the largest C that the model may have: wide kernels go with a large C, and
        scales that were found with one would be too wide for a small one. Anything by default.
    groups : ndarray of shape (n_features,), optional
        Number of the group of every feature; those of a group share one scale. By default every
        feature has its own.
    numeric : ndarray of shape (n_features,), optional
        Which features are quantities. The others, such as one-hot columns, are neither
        standardised nor clipped.

    Raises
    ------
    MemoryError
        When the budget is too small for the sample or for the first search.
    """
    phases, rng, progress = Phases(), check_random_state(random_state), ScaleProgress(on_iteration)
    with phases("sample"):
        sample = draw_sample(
            blocks,
            SECOND.rows,
            rng,
            free_bias=bias_penalty == 0,
            budget=budget // 2,
            numeric=numeric,
        )
    tied = np.arange(len(sample.units.varies)) if groups is None else groups
    tied = np.unique(tied[sample.units.varies], return_inverse=True)[1].ravel()
    search = ScaleSearch(
        sample, bias_penalty, budget // 2, progress, tied, blas_threads(), most_points
    )
    report: dict[str, Any] = {"log_loo": {}, "guard": None, "fallback": _why_not(sample)}
    report["seconds"] = phases.seconds
    if report["fallback"] is not None:
        d = search.n_scales
        return _in_raw_units(
            Scales(kernels[0], np.full(d, -np.log(max(d, 1))), 0.0), search, report
        )
    search.check_memory()
    with serial_blas():  # threads that wake for small products would spin into the tiles
        with phases("first"):
            scales, report["log_loo"] = _best_kernel(search, kernels)
        with phases("guard"):
            report["guard"] = _guard(search, scales.kernel)
        with phases("second"):
            choice = report["guard"]["chosen"] if report["guard"] else "learned"
            scales = _refined(search, scales, choice)
            if C is not None:  # only now: the way to good scales leads over other values
                lam = 1.0 / C[1] / sample.total_weight, 1.0 / C[0] / sample.total_weight
                search = replace(search, lam_per_row=lam)
                scales = search.minimise(scales, SECOND, tied=choice != "learned")
        with phases("drop"):
            scales = _without_idle_features(search, scales).rounded()
    return _in_raw_units(scales, search, report)


def _why_not(sample: ScaleSample) -> str | None:
    """Return why nothing can be learned; None where something can."""
    if sample.X.shape[1] == 0:
        return "all features are constant"
    if not sample.Y.any():
        return "the targets are constant"
    if len(sample.X) < _FEWEST_ROWS:
        return f"there are fewer than {_FEWEST_ROWS} different rows"
    return None


def _in_raw_units(scales: Scales, search: ScaleSearch, report: dict[str, Any]) -> LearnedKernel:
    stage, units, progress = search.sized(SECOND), search.sample.units, search.progress
    gamma = units.gamma(scales.kernel, scales.gamma[search.groups])
    relative = np.zeros(len(units.spread))
    relative[units.varies] = scales.relative[search.groups]
    report |= {
        "rows": stage.rows,
        "points": stage.points,
        "evaluations": progress.evaluations,
        "iterations": progress.iterations,
        "stopped": progress.stopped,
        "dropped": np.flatnonzero(units.varies & (relative == 0)).tolist(),
    }
    C = float(np.exp(-scales.log_lam)) / search.sample.unit_weight
    return LearnedKernel(scales.kernel, gamma, units.clip(gamma > 0), relative, C, report)


def _best_kernel(search: ScaleSearch, kernels: Sequence[str]) -> tuple[Scales, dict[str, float]]:
    """Learn scales for every kernel; return those of the best one and all leave-one-out errors."""
    found = []
    for name in kernels:
        one = search.minimise(search.start(name), TIED, tied=True)
        learned = search.minimise(one, FIRST)
        found.append(search.judged(learned) if len(kernels) > 1 else learned)
    errors = {scales.kernel: scales.log_loo for scales in found}
    return min(found, key=attrgetter("log_loo")), errors


def _guard(search: ScaleSearch, kernel: str) -> dict[str, Any] | None:
    """Compare one scale, shrunk scales and learned ones on folds that they were not learned on.

    The first of these that is within a standard error of the best is chosen. None where there are
    rows enough to trust the learned ones.
    """
    n, d = len(search.sample.X), search.n_scales
    many = n >= max(_FEW_ROWS, _ROWS_PER_FEATURE * d) and _others(search.sample) >= _FEW_OTHERS
    if many or d == 1 or search.progress.stopped:
        return None
    fold = np.arange(min(n, FOLD.rows * _FOLDS // (_FOLDS - 1))) % _FOLDS
    errors = np.empty((3, len(fold)))  # of every row, for each candidate
    for k in range(_FOLDS):
        inner, held_out = search.on(np.flatnonzero(fold != k)), np.flatnonzero(fold == k)
        one = inner.minimise(inner.start(kernel), FOLD, tied=True)
        learned = inner.minimise(one, FOLD)
        shrunk = inner.minimise(learned.shrunk(), FOLD, tied=True)
        others = search.on(held_out).sample
        for row, scales in zip(errors, (one, shrunk, learned), strict=True):
            row[held_out] = inner.errors(scales, others)
    excess = errors - errors[errors.sum(axis=1).argmin()]
    close = excess.mean(axis=1) <= excess.std(axis=1) / np.sqrt(len(fold))
    names = ("one", "shrunk", "learned")
    means = dict(zip(names, errors.mean(axis=1).tolist(), strict=True))
    return means | {"chosen": names[int(close.argmax())]}


def _others(sample: ScaleSample) -> int:
    """Return the rows without the most frequent target: of a rare class, all that tell of it."""
    _, counts = np.unique(sample.Y, axis=0, return_counts=True)
    return len(sample.Y) - int(counts.max())


def _refined(search: ScaleSearch, scales: Scales, choice: str) -> Scales:
    """Go on with more rows and points; then do what the folds say."""
    if choice == "one":
        return search.minimise(search.start(scales.kernel), SECOND, tied=True)
    scales = search.minimise(scales, SECOND)
    return search.minimise(scales.shrunk(), SECOND, tied=True) if choice == "shrunk" else scales


def _without_idle_features(search: ScaleSearch, scales: Scales) -> Scales:
    """Drop features of small scale, where leave-one-out hardly changes without them."""
    for share in _SHARES:
        low = scales.relative < share
        if low.any():
            fewer = scales._replace(log_gamma=np.where(low, -np.inf, scales.log_gamma))
            log_loo = search.log_loo(fewer, SECOND)
            if log_loo <= scales.log_loo + np.log1p(_TOLERANCE):
                return fewer._replace(log_loo=log_loo)
    return scales
