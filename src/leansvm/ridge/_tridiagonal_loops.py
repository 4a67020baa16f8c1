"""A loop over a tridiagonal matrix T + ridge, one ridge beside the other; compiled on first use.

T + ridge = L D L' with L_jj = 1 and L_{j,j-1} = ratio_j, ratio_0 = 0; ``inverse`` holds 1 / D. Each
row of ``ratio`` and ``inverse`` has one number per ridge, so that the loop runs in vector
registers. Two rows and two columns are taken at a time: half the loads and stores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._compile import compiled

_compiled: Any = compiled(fastmath={"contract", "nsz"})


@_compiled
def quadratic_forms(E, ratio, inverse, out):  # type: ignore[no-untyped-def]
    """Set out_ic = e_i' (T + ridge_c)^-1 e_i for the rows e_i of E.

    With w = L^-1 e, that is w_j = e_j - ratio_j w_{j-1}, it is the sum of w_j^2 / D_j: terms of one
    sign, so that nothing cancels. Where E has an odd number of columns, ``ratio`` and ``inverse``
    have a row of zeros more.
    """
    (n, r), k = E.shape, ratio.shape[1]
    w, h = np.empty((2, k)), np.empty((2, k))
    for first in range(0, n, 2):
        second = min(first + 1, n - 1)  # the last row twice where their number is odd
        for c in range(k):
            w[0, c] = w[1, c] = h[0, c] = h[1, c] = 0.0
        for j in range(0, r, 2):
            last = min(j + 1, r - 1)
            a0, b0, a1, b1 = E[first, j], E[first, last], E[second, j], E[second, last]
            for c in range(k):
                step, weight = ratio[j, c], inverse[j, c]
                next_step, next_weight = ratio[j + 1, c], inverse[j + 1, c]
                v, total = a0 - step * w[0, c], h[0, c]
                total += weight * v * v
                v = b0 - next_step * v
                w[0, c], h[0, c] = v, total + next_weight * v * v
                v, total = a1 - step * w[1, c], h[1, c]
                total += weight * v * v
                v = b1 - next_step * v
                w[1, c], h[1, c] = v, total + next_weight * v * v
        for c in range(k):
            out[first, c] = h[0, c]
            out[second, c] = h[1, c]
