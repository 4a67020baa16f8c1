"""Check learned scales on folds that they were not learned on, if rows are few.

Candidates are a linear kernel, one common scale, shrunk scales and learned ones. The first of these
whose held-out error is within half a standard error of the best is taken. For a linear kernel this
is not enough: it must be the best. In a classification its squared error says little (it is large
far from a straight border), so there it is also taken if it finds clearly better classes:

- fewer held-out rows are misclassified, or
- if the model will combine the functions of three classes or more (`leansvm.probabilities`), the
  log-loss of held-out rows is lower. Each fold combines them by values of its own rows, left out
  one by one: of models of different folds, f differs too much for one map.

Borders between three classes or more may be straight however many rows there are. So with many rows
and functions that will be combined, one fold compares a linear kernel with the scales that were
learned on all rows, unless the linear kernel is far behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.learning.search import FOLD, HELD_OUT, Scales, ScaleSearch
from leansvm.probabilities import class_map, fit_slopes, log_probabilities, mapped
from leansvm.rows import class_numbers

Array = NDArray[np.float64]

_FOLDS = 3
_CLOSE = 0.5  # standard errors of the difference within which the simpler scales are taken
ROWS_TO_TRUST, ROWS_PER_FEATURE = 2000, 50  # with fewer, learned scales are checked
_FEW_OTHERS = 200  # with fewer rows outside of the most frequent class, they are checked, too
_FAR_BEHIND = 1.2  # of log S of a linear kernel
_SMALLEST = 1e-8  # 1 - leverage


def choose_scales(
    search: ScaleSearch, found: Scales, line: float | None, classes: bool, maps: bool
) -> dict[str, Any] | None:
    """Return the held-out error of each candidate and which is ``chosen``; None if not needed.

    ``found``: what was learned on all rows. ``line``: log S of a linear kernel; None if it is no
    candidate. ``classes``: targets are +-1. ``maps``: the model combines the functions of three
    classes or more.
    """
    sample, n, d = search.sample, len(search.sample.X), search.sample.n_plain
    # rows without the most frequent target: if a class is rare, these are its only rows
    _, counts = np.unique(sample.Y, axis=0, return_counts=True)
    many = n >= max(ROWS_TO_TRUST, ROWS_PER_FEATURE * d) and n - counts.max() >= _FEW_OTHERS
    maps, by_line = maps and sample.Y.shape[1] > 1, line is not None
    straight = maps and line is not None and line < found.log_loo + _FAR_BEHIND
    if (many and not straight) or (d == 1 and not by_line) or search.progress.stopped:
        return None
    folds = 1 if many else _FOLDS
    names = ("linear",) * by_line + ("one", "shrunk") * (not many) + ("learned",)
    fold = np.arange(min(n, FOLD.rows * _FOLDS // (_FOLDS - 1))) % _FOLDS
    Y, weight = sample.Y[: len(fold)], sample.weight[: len(fold)]
    predicted = np.zeros((len(names), *Y.shape))  # of every row, by models without its fold
    left_out = np.empty((folds, len(names), *Y.shape)) if maps else None
    for k in range(folds):
        inside, held_out = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        rest = replace(sample, X=sample.X[inside], Y=Y[inside], weight=weight[inside])
        inner = replace(search, sample=rest)
        tried = [found]
        if not many:
            one = inner.minimise(inner.start(found.kernels), FOLD, tied=True)
            learned = inner.minimise(one, FOLD)
            tried = [one, inner.minimise(learned.shrunk(), FOLD, tied=True), learned]
        if by_line:
            tried.insert(0, inner.minimise(inner.start(("linear",)), FOLD, tied=True))
        for j, scales in enumerate(tried):
            model = inner.objective(scales.kernels, HELD_OUT)
            numbers = np.exp(scales.log_gamma), float(np.exp(scales.log_lam)), scales.omega
            values, leverage = model.predictions(sample.X[: len(fold)], *numbers)
            predicted[j, held_out] = values[held_out]
            if left_out is not None:
                without = np.maximum(1.0 - weight * leverage, _SMALLEST)[:, None]
                left_out[k, j] = Y - (Y - values) / without
    judged = fold < folds
    errors = weight[judged] * np.square(Y - predicted)[:, judged].mean(axis=2)
    excess = errors - errors[errors.sum(axis=1).argmin()]
    close = excess.mean(axis=1) <= _CLOSE * excess.std(axis=1) / np.sqrt(np.count_nonzero(judged))
    if by_line:
        close[0] = excess[0].mean() <= 0.0
        if classes and not close[0]:
            two = [0, int(close.argmax())]
            own = None if left_out is None else left_out[:, two]
            close[0] = _finds_classes(predicted[two], own, Y, weight, fold)
    means = dict(zip(names, errors.mean(axis=1).tolist(), strict=True))
    return means | {"chosen": names[int(close.argmax())]}


def _finds_classes(
    predicted: Array, left_out: Array | None, Y: Array, weight: Array, fold: NDArray[np.intp]
) -> bool:
    """Whether the first of two candidates finds clearly better classes than the second.

    ``predicted`` (2, m, K) are values of held-out rows. ``left_out`` (folds, 2, m, K) are those of
    a fold's model without the row, for the rows inside the fold: given if they are combined.
    """
    high, low = Y.max(axis=0), Y.min(axis=0)  # +-1, in units of the sample
    spread = np.maximum(high - low, np.finfo(np.float64).tiny)
    labels = class_numbers((2.0 * Y - high - low) / spread)
    losses, judged = [], fold < (_FOLDS if left_out is None else len(left_out))
    for j, values in enumerate((2.0 * predicted - high - low) / spread):
        if left_out is None:
            losses.append(weight * (class_numbers(values) != labels))
            continue
        for k, own in enumerate((2.0 * left_out[:, j] - high - low) / spread):
            inside, held_out = fold != k, fold == k
            B = class_map(own[inside], labels[inside], weight[inside])
            values[held_out] = mapped(values[held_out], B)
        values, own_labels, s = values[judged], labels[judged], weight[judged]
        log_p = log_probabilities(values, fit_slopes(values, own_labels, s)[1])
        losses.append(-s * log_p[np.arange(len(s)), own_labels])
    gain = losses[1] - losses[0]
    return bool(gain.mean() > _CLOSE * gain.std() / np.sqrt(len(gain)))
