"""Learn a kernel: a scale for each feature, and the weights of a mixture.

Minimises the leave-one-out error S of a random basis on a sample of rows (`search`). The parts of a
mixture are learned alone on a small sample, for a few steps, then together there, then on a larger
one; the linear part joins the others last. Parts of small weight and features of small scale are
dropped if S hardly grows. If rows are few, or if all classes but one have few rows, the learned
scales must beat one common scale on folds that they were not learned on. If the model's C is given,
a last search finds the scales that suit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils import check_random_state

from leansvm._accelerated import doubles_are_fast
from leansvm._parallel import blas_threads, limited_blas
from leansvm._phases import Phases
from leansvm.kernels import Kernel
from leansvm.learning.guard import ROWS_PER_FEATURE, ROWS_TO_TRUST, choose_scales
from leansvm.learning.sample import SHARE, ScaleSample, draw_sample, raw_kernel
from leansvm.learning.search import (
    ALONE,
    FIRST,
    ON_FAST_DEVICES,
    ROWS_IN_DOUBLE,
    SECOND,
    TIED,
    OnIteration,
    ScaleProgress,
    Scales,
    ScaleSearch,
)
from leansvm.learning.sparse_text import WIDE, is_text, text_kernel
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]

LEARNABLE = ("rbf", "matern12", "matern32", "matern52", "laplacian")
MIXTURE = ("rbf", "matern32", "laplacian", "linear")  # parts of kernel="auto"; linear is last
_ROWS_TO_LEARN = 13  # to learn anything from
_FEWEST_FOR_LINE = 5  # to compare a linear kernel with others
_LINE_ERROR, _LINE_CLOSE = -2.0, 0.2  # a line is enough below this log S, and so close to others
# rows of the sample: 50 per feature, at least those of the last search, at most 8,000; always 8,000
# if there are more than 15,000 rows, because the fit then takes longer than the search
_SAMPLE_PER_FEATURE, _LARGEST_SAMPLE, _MANY_ROWS = 50, 8000, 15_000
# features below such a share of the largest scale may be dropped if S rises by no more than this
_SHARES, _TOLERANCE = (0.1, 0.03), 1e-3
_WITHOUT_LEARNING = ("matern32", "linear")  # the mixture of rows too few to learn from
_LINEAR_GAIN = 0.01  # by which the linear part must lower log S: beyond the rows it is a risk
# the linear part joins with the omega of the heaviest other part minus 2, and this many iterations
_LINEAR_START, _LINEAR_STEPS = -2.0, 8
# the Gaussian joins the other parts of distances only if it alone has a log S lower by this much.
# With a smaller gain it is better on the sample but worse on other rows, most of all distant ones
_GAUSSIAN_GAIN = 0.1
_LEAST_PART_WEIGHT = 0.02  # parts of smaller weight may be dropped


@dataclass(frozen=True)
class FittedKernel:
    """A kernel with its numbers, given or learned.

    If they were learned, ``report`` holds the ``rows`` and ``points`` of the last search,
    ``evaluations`` of the gradient, ``iterations``, ``log_loo`` of every part alone, the ``C`` that
    goes with the scales on the sample, ``weights`` of the parts, ``quantile_features`` in use,
    ``dropped`` features, ``guard`` (None, or the error of each candidate on held-out folds and
    which was chosen), ``fallback`` (None, or why nothing was learned), ``stopped`` by the callback,
    ``seconds``.
    """

    kernel: Kernel  # of raw features; if a mixture was learned, what is left of it
    name: Any  # ``kernel_``: the name as it was given, a mixture, or the user's function
    # How fast the kernel changes per standard deviation of a feature: sqrt(gamma) (laplacian:
    # gamma) times the deviation, times the weight of the part. Of several parts the largest; scaled
    # so that the largest feature has 1. None if all features share one gamma.
    scales: Array | None = None
    report: dict[str, Any] | None = None
    # least and largest values (2, n_features) in the sample; infinite for features that no part
    # uses; None if nothing was learned
    seen: Array | None = None


def plan_of(n_rows: int, n_features: int) -> dict[str, float]:
    """Return the expected work of each phase of learning, relative to the others."""
    short, last = min(n_rows, FIRST.rows) / FIRST.rows, min(n_rows, SECOND.rows)
    last = _LARGEST_SAMPLE if n_rows > _MANY_ROWS else last
    checked = n_rows < max(ROWS_TO_TRUST, ROWS_PER_FEATURE * n_features)
    return {
        "first": (2.2 + 0.01 * n_features) * short,
        "guard": 3.0 * short * checked,
        "second": (1.2 + 0.01 * n_features) * (last / SECOND.rows),
    }


def learn_kernel(
    blocks: RowBlocks,  # with targets and weights, wherever they are
    kernels: Sequence[str],  # one of LEARNABLE, or the parts of a mixture
    *,
    bias_penalty: float,  # 0: free bias; a positive number: its penalty; infinity: no bias
    budget: int,  # bytes of the whole fit
    random_state: int | np.random.RandomState | None,  # decides the sample and the basis
    on_iteration: OnIteration | None = None,
    most_points: int | None = None,  # that the model will have: narrow kernels need many
    C: tuple[float, float] | None = None,  # the least and the largest that the model may have
    groups: NDArray[np.intp] | None = None,  # features with one number share a scale
    numeric: NDArray[np.bool_] | None = None,  # features that have units and quantile features
    classes: bool = False,  # targets are +-1, and the signs of predictions matter
    maps: bool = False,  # the model combines the functions of three classes or more (`class_map`)
) -> FittedKernel:
    """Learn the scales of the features and, of several kernels, a mixture, on a sample of rows.

    ``on_iteration(k, error)`` is called after every iteration with the leave-one-out error, in
    units of the targets' variance; the search ends when it returns True. Good scales depend on C:
    with a large C, wide kernels are best. So if the model's C is given, a last search adapts the
    scales to it. If the budget is too small for the sample or for the first search, it raises a
    MemoryError.
    """
    phases, rng, progress = Phases(), check_random_state(random_state), ScaleProgress(on_iteration)
    if blocks.n_features > WIDE and is_text(blocks):
        name, gamma, found = text_kernel(blocks, kernels, bias_penalty, 3 * budget // 4, rng)
        return FittedKernel(Kernel(name, gamma=gamma), name, report=found)
    several = len(kernels) > 1
    with phases("sample"):
        fast = blocks.place is not None and doubles_are_fast(blocks.place)
        last = ON_FAST_DEVICES if fast else SECOND  # on more rows if there are many features
        many = blocks.n_rows > _MANY_ROWS
        wanted = _LARGEST_SAMPLE if many else _SAMPLE_PER_FEATURE * blocks.n_features
        last = last._replace(rows=max(last.rows, min(wanted, _LARGEST_SAMPLE)))
        room = int(SHARE * budget)
        usual: Any = {"free_bias": bias_penalty == 0, "mixture": several}
        columns: Any = {"groups": groups, "numeric": numeric}
        sample = draw_sample(blocks, last.rows, rng, budget=room, **usual, **columns)
    search = ScaleSearch(
        sample,
        bias_penalty,
        budget=room,
        progress=progress,
        last=last,
        single=len(sample.X) > ROWS_IN_DOUBLE and not fast,
        threads=blas_threads(),
        most_points=most_points,
        place=blocks.place,
    )
    report: dict[str, Any] = {"log_loo": {}, "guard": None, "fallback": _nothing_to_learn(sample)}
    if report["fallback"] is not None:
        plain = [kernel for kernel in kernels if not several or kernel in _WITHOUT_LEARNING]
        if several and len(sample.X) >= _FEWEST_FOR_LINE and _is_line(search, plain):
            plain = ["linear"]
        start = search.start(plain if sample.n_plain else plain[:1])
        one = np.where(np.isfinite(start.log_gamma), -np.log(max(sample.n_plain, 1)), -np.inf)
        return _learned(start._replace(log_gamma=one), search, report, phases.seconds)
    search.size_of(kernels, FIRST)  # a budget that is too small is refused before the first step
    with limited_blas():  # threads that wake for small products would spin into the tiles
        with phases("first"):
            scales = _on_few_rows(search, kernels, report)
        with phases("guard"):
            line = report["log_loo"].get("linear") if several else None
            report["guard"] = choose_scales(search, scales, line, classes, maps)
        with phases("second"):
            choice = report["guard"]["chosen"] if report["guard"] else "learned"
            if choice in ("linear", "one"):
                names = ("linear",) if choice == "linear" else scales.kernels
                scales = search.minimise(search.start(names), search.last, tied=True)
            else:
                scales = search.minimise(scales, search.last)
            if choice == "shrunk":
                scales = search.minimise(scales.shrunk(), search.last, tied=True)
            if C is not None:  # only now: the search for good scales needs other values of C
                lam = 1.0 / C[1] / sample.total_weight, 1.0 / C[0] / sample.total_weight
                search = replace(search, lam_per_row=lam)
                scales = search.minimise(scales, search.last, tied=choice != "learned")
        with phases("drop"):
            scales = scales if progress.stopped else _drop_idle(search, scales)
    return _learned(scales, search, report, phases.seconds)


def _nothing_to_learn(sample: ScaleSample) -> str | None:
    """Return why nothing can be learned from these rows; None if something can."""
    if sample.n_plain == 0:
        return "all features are constant"
    if not sample.Y.any():
        return "the targets are constant"
    few = len(sample.X) < _ROWS_TO_LEARN
    return f"there are fewer than {_ROWS_TO_LEARN} different rows" if few else None


def _is_line(search: ScaleSearch, kernels: Sequence[str]) -> bool:
    """Whether a straight line explains nearly all, and these kernels hardly more than it."""
    if not search.sample.n_plain or not search.sample.Y.any():
        return False
    line = search.minimise(search.start(["linear"]), TIED, tied=True).log_loo
    other = search.minimise(search.start(kernels), TIED, tied=True).log_loo
    return line < _LINE_ERROR and line < other + _LINE_CLOSE


def _on_few_rows(search: ScaleSearch, kernels: Sequence[str], report: dict[str, Any]) -> Scales:
    """Learn every part alone, then those of distances together; then let the linear one join."""
    alone = {}
    for kernel in kernels:
        scales = search.minimise(search.start([kernel]), TIED, tied=True)
        if kernel != "linear":
            scales = search.minimise(scales, ALONE if len(kernels) > 1 else FIRST)
        alone[kernel] = scales
        report["log_loo"][kernel] = scales.log_loo
    if len(alone) == 1:
        return alone[kernel]
    line, best = alone.pop("linear", None), min(alone.values(), key=attrgetter("log_loo"))
    gaussian = alone.pop("rbf", None)
    if gaussian is not None:
        other = min(alone.values(), key=attrgetter("log_loo"))
        if gaussian.log_loo <= other.log_loo - _GAUSSIAN_GAIN:
            alone = {"rbf": gaussian, **alone}
    near = np.concatenate([*map(attrgetter("log_gamma"), alone.values())])
    without = search.minimise(Scales(tuple(alone), near, np.zeros(len(alone)), best.log_lam), FIRST)
    if line is None:
        return without
    joined = Scales(
        (*alone, "linear"),
        np.concatenate([without.log_gamma, line.log_gamma]),
        np.append(without.omega, without.omega.max() + _LINEAR_START),
        without.log_lam,
    )
    joined = search.minimise(joined, FIRST, iterations=_LINEAR_STEPS)
    return joined if joined.log_loo < without.log_loo - _LINEAR_GAIN else without


def _drop_idle(search: ScaleSearch, scales: Scales) -> Scales:
    """Drop parts of small weight, then columns of small scale, where S hardly changes.

    Numbers are then rounded to steps of 1 %, finer than the rows can tell, so that rounding errors
    of another machine do not change them.
    """
    heavy = softmax(scales.omega) >= _LEAST_PART_WEIGHT
    for share in (0.0, *_SHARES):
        if share == 0.0:
            fewer = scales._replace(
                kernels=tuple(compress(scales.kernels, heavy)),
                log_gamma=scales.log_gamma[heavy],
                omega=scales.omega[heavy],
            )
        else:
            high = scales.relative >= share
            fewer = scales._replace(log_gamma=np.where(high, scales.log_gamma, -np.inf))
        if np.isfinite(fewer.log_gamma).sum() == np.isfinite(scales.log_gamma).sum():
            continue
        fewer = search.minimise(fewer, search.last, iterations=0)
        if fewer.log_loo <= scales.log_loo + np.log1p(_TOLERANCE):
            scales = fewer
            if share > 0.0:
                break
    return scales._replace(
        log_gamma=scales.log_gamma.round(2),
        omega=(scales.omega - scales.omega.max()).round(2),
        log_lam=round(scales.log_lam, 2),
    )


def _learned(
    scales: Scales, search: ScaleSearch, report: dict[str, Any], seconds: dict[str, float]
) -> FittedKernel:
    """Return the kernel of raw rows, and what is told about the search."""
    progress, sample, weights = search.progress, search.sample, softmax(scales.omega)
    n_rows, n_points = search.size_of(scales.kernels, search.last)
    kernel, gamma, clip, dropped, n_curves = raw_kernel(
        scales.kernels, weights, np.exp(scales.log_gamma), sample
    )
    # the largest weighted scale of every feature over parts of distances, largest 1
    shown = np.zeros(len(sample.units.spread))
    features = np.flatnonzero(sample.units.varies)
    for curve in sample.curves:
        features = np.append(features, curve.feature)
    for part, weight, relative in zip(scales.kernels, weights, scales.relative, strict=True):
        if part != "linear":  # which resolves nothing
            np.maximum.at(shown, features, weight * relative[: len(features)])
    shown /= max(shown.max(initial=0.0), np.finfo(np.float64).tiny)
    report |= {
        "rows": n_rows,
        "points": n_points,
        "evaluations": progress.evaluations,
        "iterations": progress.iterations,
        "stopped": progress.stopped,
        "C": float(np.exp(-scales.log_lam)) / sample.unit_weight,
        "weights": dict(zip(scales.kernels, weights.round(4).tolist(), strict=True)),
        "quantile_features": n_curves,
        "dropped": dropped.tolist(),
        "seconds": seconds,
    }
    seen, idle = np.stack(sample.units.ends), ~sample.units.varies
    idle[dropped] = True
    seen[:, idle] = [[-np.inf], [np.inf]]
    return FittedKernel(Kernel(kernel, gamma=gamma, clip=clip), kernel, shown, report, seen)
