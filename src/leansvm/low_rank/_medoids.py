"""Partitioning around medoids: greedy BUILD, then the best SWAP until none helps.

Minimises sum_n s_n min_j d(x_n, x_j) over medoids j (fang2019, eq. (30)). All swaps are valued at
once as in FastPAM1 (Schubert, Rousseeuw 2021): O(n^2) per round, for tens of medoids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pam(
    distances: Array, n_medoids: int, weight: Array | None = None, max_iter: int = 100
) -> NDArray[np.intp]:
    """Return the positions of the medoids of symmetric ``distances``, in the order of BUILD."""
    weight = np.ones(len(distances)) if weight is None else weight
    medoids = np.empty(n_medoids, dtype=np.intp)
    # BUILD: each medoid is the row that lowers the sum of distances most
    medoids[0] = int(np.argmin(weight @ distances))
    nearest = distances[:, medoids[0]].copy()
    for j in range(1, n_medoids):
        change = weight @ np.minimum(distances - nearest[:, None], 0.0)
        change[medoids[:j]] = np.inf
        medoids[j] = int(np.argmin(change))
        np.minimum(nearest, distances[:, medoids[j]], out=nearest)
    # SWAP a medoid for another row as long as that lowers the sum
    none = np.full(len(distances), np.inf)  # the second choice where there is one medoid
    for _ in range(max_iter if n_medoids < len(distances) else 0):
        # the nearest medoid of every row, and the distances to it and to the next one
        to_medoids = np.column_stack([distances[:, medoids], none])
        near = to_medoids.argmin(axis=1)
        first, second = np.partition(to_medoids, 1, axis=1)[:, :2].T
        # change when a row becomes a medoid and none leaves: sum_n s_n min(d - d1, 0)
        joined = np.minimum(distances - first[:, None], 0.0)
        # and when medoid j leaves, its rows go to the newcomer or to their second choice
        moved = np.minimum(distances, second[:, None]) - first[:, None] - joined
        own = (near[:, None] == np.arange(n_medoids)) * weight[:, None]
        change = weight @ joined + own.T @ moved
        change[:, medoids] = np.inf
        leaving, entering = np.unravel_index(int(np.argmin(change)), change.shape)
        if not change[leaving, entering] < -1e-12 * float(weight @ first):
            break
        medoids[leaving] = entering
    return medoids
