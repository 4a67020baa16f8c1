"""How long a fit will take, roughly: flops by the cost model, over the speed of one product."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from leansvm.kernels import PER_FEATURE

_SIDE = 512  # of the matrices whose product is timed
_MOST_POINTS = 2000  # of n_basis="auto"


def expected_seconds(model: Any, n_rows: int, n_features: int) -> float | None:
    """Return the expected seconds of a fit, within a factor of two or three; None if unknown.

    The constants were fitted to fits of 300 to 8,000 rows with 4 to 60 features.
    """
    name = type(model).__name__
    if name.startswith("Sparse"):
        flops = _learning(model, n_rows, n_features) + _small_system(model, n_rows)
    elif name.startswith("LSSV"):
        # an eigen-decomposition for all C, or a Cholesky factor for one
        flops = (30.0 if isinstance(model.C, str) else 0.5) * n_rows**3
    else:
        return None
    return flops / _speed()


def _learning(model: Any, n_rows: int, n_features: int) -> float:
    """Flops of learning the scales: short searches on 1,500 rows, a long one on 4,000."""
    learns = isinstance(model.gamma, str) and model.gamma == "learn"
    if not (learns and model.kernel in ("auto", *PER_FEATURE)):
        return 0.0
    short, long = min(n_rows, 1500) / 1500, min(n_rows, 4000) / 4000
    return 1.4e11 * short + (7e10 + 1.8e9 * n_features) * long


def _small_system(model: Any, n_rows: int) -> float:
    """Flops of the sums over all rows and of the eigen-decompositions on the basis points."""
    size = model.n_basis
    if isinstance(size, str):
        size = _MOST_POINTS
    elif size < 1:
        size = size * n_rows
    points = min(float(size), n_rows)
    return 8.0 * n_rows * points**2 + 10.0 * points**3


def _speed() -> float:
    """Return flops a second of a product of two matrices, the best of three."""
    A = np.ones((_SIDE, _SIDE))
    A @ A  # wakes the threads
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        A @ A
        seconds.append(time.perf_counter() - start)
    return 2.0 * _SIDE**3 / min(seconds)
