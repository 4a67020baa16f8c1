"""The Cholesky factor of G = K + diag(ridge), K a kernel matrix, on the host or a device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import add_to_diagonal, cholesky_lower, solve_lower
from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host, zeros
from leansvm.basis.on_device import solve_factored
from leansvm.linalg import (
    CHOLESKY_TILE,
    LAPACK_SAFE_ROWS,
    cholesky_in_place,
    cholesky_solve,
    inverse_diagonal,
    symmetric_matmul,
)

Array = NDArray[np.float64]
_PANEL = 2048  # columns of G^-1 at a time


def factor_bytes(m: int, n_outputs: int, *, left_out: bool = False, on_device: bool = False) -> int:
    """Bytes of the kernel matrix, factored in place, with its work space.

    On a device the factor has memory of its own.
    """
    if on_device:
        return 8 * (2 * m * m + 6 * m * (n_outputs + 1) + 3 * left_out * m * min(_PANEL, m))
    panels = int(m > LAPACK_SAFE_ROWS) + 3 * int(left_out)
    return 8 * (m * m + panels * m * min(CHOLESKY_TILE, m) + 6 * m * (n_outputs + 1))


class Factor:
    """L in the lower triangle of K, K itself in the upper one; all on the host."""

    def __init__(self, K: Any, ridge: Array) -> None:
        self._diagonal = K.diagonal().copy()
        K.flat[:: K.shape[0] + 1] += ridge
        self._L = cholesky_in_place(K)

    def solve(self, B: Array) -> Array:
        """Return G^-1 B."""
        return cholesky_solve(self._L, B)

    def times(self, V: Array) -> Array:
        """Return K V."""
        return symmetric_matmul(self._L, self._diagonal, V)

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of G^-1."""
        return inverse_diagonal(self._L)


def factored(K: Any, ridge: Array) -> Factor:
    """Factor K + diag(ridge); ``K`` is overwritten. LinAlgError if it is not definite."""
    return Factor(K, ridge) if foreign_namespace(K) is None else _DeviceFactor(K, ridge)


class _DeviceFactor(Factor):
    """G and its factor, both on the device; vectors are on the host."""

    def __init__(self, K: Any, ridge: Array) -> None:
        self._ridge = ridge
        self._G = add_to_diagonal(K, like_rows(ridge, K))
        self._L = cholesky_lower(self._G)

    def solve(self, B: Array) -> Array:
        return solve_factored(self._L, B)

    def times(self, V: Array) -> Array:
        return np.asarray(to_host(self._G @ like_rows(V, self._G))) - self._ridge[:, None] * V

    def inverse_diagonal(self) -> Array:
        m, xp = self._L.shape[0], namespace(self._L)
        parts = []
        for start in range(0, m, _PANEL):  # squared column norms of L^-1
            stop = min(start + _PANEL, m)
            columns = zeros((m, stop - start), self._L)
            columns[start:stop, :] = xp.eye(stop - start, dtype=xp.float64, device=self._L.device)
            columns = solve_lower(self._L, columns)
            parts.append(to_host(xp.sum(columns * columns, axis=0)))
        return np.concatenate(parts)
