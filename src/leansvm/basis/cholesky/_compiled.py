"""The loop of the greedy pivoted Cholesky among a few candidates; compiled on first use.

A step is a few hundred multiplications: called from Python, each would cost more than it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._compile import compiled

_compiled: Any = compiled(fastmath={"contract", "nsz"})


@_compiled
def greedy(H, D, columns, picked, rows, outside_key, outside_row, largest, quanta, floor):  # type: ignore[no-untyped-def]
    """Take pivots of H while they beat (``outside_key``, ``outside_row``); return how many.

    ``columns`` gets one row per pivot, ``picked`` its place, ``D`` what is left of the diagonal.
    Values are compared as rint(D / largest * quanta), ties go to the lowest row; the first pivot
    is always taken unless it is at most ``floor``.
    """
    n, most = len(D), len(picked)
    for a in range(most):
        t, key = -1, -1.0
        for i in range(n):
            if D[i] > floor:
                value = np.rint(D[i] / largest * quanta)
                if value > key:
                    t, key = i, value
        beaten = key < outside_key or (key == outside_key and rows[t] > outside_row)
        if t < 0 or (a > 0 and beaten):
            return a
        column = columns[a]
        # entry by entry: to copy a row in one go takes numba three seconds to compile
        for i in range(n):
            column[i] = H[t, i]
        for j in range(a):
            c = columns[j, t]
            for i in range(n):
                column[i] -= c * columns[j, i]
        pivot = np.sqrt(D[t])
        for i in range(n):
            column[i] /= pivot
        for j in range(a):
            column[picked[j]] = 0.0
        for i in range(n):
            D[i] -= column[i] * column[i]
        D[t] = 0.0
        picked[a] = t
    return most
