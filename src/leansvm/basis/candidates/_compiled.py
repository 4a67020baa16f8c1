"""Loops of `leansvm.basis.backfitting` for which BLAS would read memory several times.

Compiled on first use: import it inside functions only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._compile import compiled

_TILE = 512  # rows: so many of P stay in the second-level cache between p and u
# sums may be reordered, so that they use vector instructions; NaN and infinity stay what they are
_compiled: Any = compiled(fastmath={"reassoc", "contract", "nsz"})


@_compiled
def append_column(columns, residual, K_t, row, shift, s):  # type: ignore[no-untyped-def]
    """Append p = (K_t - P row[:k]) / row[k] to P and lower D by p^2, in one pass over P.

    ``columns`` is P', so that columns of P are contiguous rows, ``residual`` is D. Returns
    [P, p]'q and the sum of q = s (p - shift).
    """
    n, k = len(K_t), len(row) - 1
    q, u, total = np.empty(_TILE), np.zeros(k + 1), 0.0
    columns[k] = K_t
    for first in range(0, n, _TILE):
        tile = slice(first, min(first + _TILE, n))
        p_t, s_t, D_t = columns[k, tile], s[tile], residual[tile]
        q_t = q[: len(p_t)]
        for j in range(0, k - 3, 4):  # by fours: p is read and written less often
            A, B = columns[j, tile], columns[j + 1, tile]
            C, D = columns[j + 2, tile], columns[j + 3, tile]
            a, b, c, d = row[j], row[j + 1], row[j + 2], row[j + 3]
            for i in range(len(p_t)):
                p_t[i] -= a * A[i] + b * B[i] + c * C[i] + d * D[i]
        for j in range(k - k % 4, k):
            A, a = columns[j, tile], row[j]
            for i in range(len(p_t)):
                p_t[i] -= a * A[i]
        for i in range(len(p_t)):
            p_t[i] /= row[k]
            q_t[i] = s_t[i] * (p_t[i] - shift)
            total += q_t[i]
            left = D_t[i] - p_t[i] * p_t[i]
            D_t[i] = left if left > 0.0 else 0.0
        for j in range(k + 1):
            u[j] += _dot(columns[j, tile], q_t)
    return u, total


@_compiled
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@_compiled
def sums_and_squares(K, s):  # type: ignore[no-untyped-def]
    """Return s'k and k'Sk of every row k of K."""
    sums, squares = np.zeros(len(K)), np.zeros(len(K))
    for j in range(len(K)):
        total = square = 0.0
        for i in range(len(s)):
            weighted = K[j, i] * s[i]
            total += weighted
            square += weighted * K[j, i]
        sums[j], squares[j] = total, square
    return sums, squares
