"""Sizes of a basis that double, as long as that pays.

The first k points of a nested basis are those of a smaller one: a solution of the smaller basis,
with zeros appended, is one point of the larger problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._phases import out_of_time
from leansvm.basis.features import KernelFeatures

Array = NDArray[np.float64]
FIRST_SIZE = 50  # of a basis that is chosen anew at each size
GAIN = 0.01  # doubling the size must lower the error by this share
_SMALLEST_STEP = 64  # points of the first basis, at least


def sizes_up_to(largest: int) -> list[int]:
    """Return sizes that double, from 64 to 127 points, up to the largest one.

    Examples
    --------
    >>> sizes_up_to(1000)
    [125, 250, 500, 1000]
    """
    halvings = max(0, int(np.log2(max(largest, 1) / _SMALLEST_STEP)))
    return [-(-largest // 2**step) for step in range(halvings, -1, -1)]


def prefixes(features: KernelFeatures) -> Iterator[KernelFeatures]:
    """Yield the maps to the first columns of one map, in doubling sizes; last, the map itself."""
    for size in sizes_up_to(features.size)[:-1]:
        yield features.first(size)
    yield features


def doubled(features: KernelFeatures, rows: Any, points: Any) -> Iterator[KernelFeatures]:
    """Yield the maps to sizes that double, up to all points that do not depend on others."""
    taken = 0
    for size in sizes_up_to(rows.shape[0]):
        features, taken = features.extended(rows, points, taken, size), size
        yield features


def grow(solve: Callable[[int], Any], first: int, largest: int) -> Any:
    """Return ``solve(size)`` at the first size that doubling hardly improves.

    What it returns has ``features`` of that size, and a ``solution`` whose ``error`` is compared.
    An error that is not a number is no improvement.
    """
    size = min(first, largest)
    found = solve(size)
    while size < largest and found.features.size == size and not out_of_time(growth=4.0):
        size = min(2 * size, largest)
        larger = solve(size)
        if not larger.solution.error <= (1.0 - GAIN) * found.solution.error:
            break
        found = larger
    return found
