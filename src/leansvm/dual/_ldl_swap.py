"""Compiled adjacent swaps in an LDL' factor (peng2016, eq. (64)); imported on first use."""

from __future__ import annotations

import numpy as np

from leansvm._compile import compiled


@compiled()
def drop_by_swaps(L: np.ndarray, D: np.ndarray, k: int, p: int) -> None:
    """Take row and column ``p`` out of the leading k x k factor, in place.

    The row is swapped with its successor until it is last, then forgotten. With l = L[p+1, p],
    d0 = D[p], d1 = D[p+1], one swap gives (no cancellation: both terms are positive)

        D[p] = d1 + d0 l^2,  lhat = d0 l / D[p],  D[p+1] = d0 d1 / D[p],
        L[i, p] = (d1 / D[p]) L[i, p+1] + lhat L[i, p],  L[i, p+1] = L[i, p] - l L[i, p+1].

    Swaps are applied row by row, all of them to row i before row i + 1, so that memory is read
    in order; ``moving`` is the entry of row i in the column that travels to the end.
    """
    direct = np.empty(k)
    cross = np.empty(k)
    eliminate = np.empty(k)
    d0 = D[p]
    for i in range(p + 1, k):
        moving = L[i, p]
        for j in range(p):
            L[i - 1, j] = L[i, j]
        for j in range(p, i - 1):
            x = L[i, j + 1]
            L[i - 1, j] = direct[j] * x + cross[j] * moving
            moving -= eliminate[j] * x
        d1 = D[i]
        pivot = d1 + d0 * moving * moving
        direct[i - 1] = d1 / pivot
        cross[i - 1] = d0 * moving / pivot
        eliminate[i - 1] = moving
        D[i - 1] = pivot
        d0 = d0 * (d1 / pivot)
        L[i - 1, i - 1] = 1.0
