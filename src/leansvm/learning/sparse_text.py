"""Wide sparse rows, such as the words of texts: one gamma for all features, or a linear kernel.

A scale for every word would be thousands of numbers, and no sample of rows is large enough to learn
them. Instead, leave-one-out on a sample compares the linear kernel and a few values of gamma around
the one that suits the mean distance of rows. This takes seconds, however many features there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._phases import Phases
from leansvm.kernels import Kernel
from leansvm.ridge.nested import start_nested
from leansvm.rows import RowBlocks, draw_for_all

WIDE, _DENSE = 1000, 0.05  # features beyond which, and share of entries below which, rows are text
_HEAD = 256  # rows that are looked at
_ROWS, _POINTS = 2000, 500  # on which kernels are compared
_FACTORS = (0.1, 0.3, 1.0, 3.0)  # of the gamma that suits the mean distance
_CANDIDATES = np.logspace(-4, 5, 28)  # of C


def is_text(blocks: RowBlocks) -> bool:
    """Whether rows are sparse, wide and mostly empty, as far as the first of them tell."""
    if blocks.n_features <= WIDE or not blocks.n_rows:
        return False
    X = blocks.head(_HEAD)[0]
    return sparse.issparse(X) and X.nnz < _DENSE * X.shape[0] * X.shape[1]


def text_kernel(
    blocks: RowBlocks,
    kernels: Sequence[str],
    bias_penalty: float,
    budget: int,
    rng: np.random.RandomState,
) -> tuple[str, float, dict[str, Any]]:
    """Return a kernel, its gamma, and a report.

    Where several kernels are asked for, these are "linear" and "rbf": others differ little from
    "rbf" if all rows are about equally far apart.
    """
    phases, tried = Phases(), []  # error, C, kernel and gamma
    with phases("text"):
        sample = draw_for_all(blocks, _ROWS, rng).as_data(blocks)
        X, points = sample.take(np.arange(sample.n_rows)), rng.permutation(sample.n_rows)[:_POINTS]
        for name in kernels if len(kernels) == 1 else ("linear", "rbf"):
            usual = 1.0 if name == "linear" else _usual_gamma(X, name)
            for factor in (1.0,) if name == "linear" else _FACTORS:
                kernel = Kernel(name, gamma=factor * usual)
                fit = start_nested(sample, kernel, X[points], bias_penalty, budget, points)
                fit.extend(len(points))
                found = fit.best_C(_CANDIDATES)
                tried.append((found.error, found.C, name, factor * usual))
    _, C, name, gamma = min(tried, key=itemgetter(0))
    density = X.nnz / max(X.shape[0] * X.shape[1], 1)
    report = {
        "rows": sample.n_rows,
        "points": len(points),
        "errors": {f"{name} {gamma:.3g}": error for error, _, name, gamma in tried},
        "C": float(C),
        "note": f"The rows are sparse and wide ({blocks.n_features:,} features, {density:.2%} of "
        f"the entries): no scale for each feature was learned.",
        "seconds": phases.seconds,
    }
    return name, gamma, report


def _usual_gamma(X: Any, kernel: str) -> float:
    """Return 1 over the mean squared (laplacian: absolute) distance of rows."""
    if kernel == "laplacian":
        distance = float(abs(X[1:] - X[:-1]).sum()) / max(X.shape[0] - 1, 1)
    else:
        mean: NDArray[Any] = np.asarray(X.mean(axis=0))
        distance = 2.0 * (float(X.multiply(X).sum()) / X.shape[0] - float(np.square(mean).sum()))
    return 1.0 / distance if distance > 0 else 1.0
