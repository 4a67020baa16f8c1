"""Matrices of the size of the basis that stay where the rows are: K_BB = L L', k(x, B) L^-T.

A large basis makes matrices of gigabytes, which are factored on a GPU in less time than it takes to
copy them to the host. Small ones are solved on the host, which saves a launch for every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import add_to_diagonal, cholesky_lower, solve_lower
from leansvm._array_api import (
    as_float64,
    device_of,
    in_float64,
    like_rows,
    matmul_into,
    namespace,
    same_place,
    to_host,
)
from leansvm.basis.cholesky import pivoted_cholesky
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

Array = NDArray[np.float64]
LARGE = 1024  # with at least so many points, matrices of this size stay on the device
_PANEL = 1024  # columns that are solved for at once, by the inverse of their corner of L
_ROUNDING = 10 * float(np.finfo(np.float64).eps)  # pivots at or below this are rounding
CLEAR = 1e5  # times `_ROUNDING`: if all pivots are above it, no pivoting is needed


def stays(place: Any, size: int) -> bool:
    """Whether matrices of ``size`` points stay at ``place``, an array of the rows' library."""
    return place is not None and size >= LARGE


def own_block(kernel: Kernel, X: Any, points: Any) -> Any:
    """Return kernel values that may be overwritten: a copy if a callable may keep its result."""
    values = kernel.block(X, points)
    return values + 0.0 if callable(kernel.name) else values


# ---------------------------------------------------------------------------- the factor of K_BB


def factor_points(kernel: Kernel, rows: Any, points: Any) -> tuple[Any, NDArray[np.intp]]:
    """Return L of K_BB = L L' where the points are, and which of them it holds, in its order.

    The order is the given one unless a pivot is not clear of rounding.
    """
    K = own_block(kernel, in_float64(rows), in_float64(points))
    xp = namespace(K)
    diagonal = as_float64(kernel.diag(in_float64(rows)))
    K = add_to_diagonal(K, diagonal - xp.linalg.diagonal(K))  # exact: rounding decides no tie
    floor = _ROUNDING * float(xp.max(diagonal))
    try:
        L = cholesky_lower(K)
        if not K.shape[0] or float(xp.min(xp.linalg.diagonal(L))) ** 2 > CLEAR * floor:
            return L, np.arange(K.shape[0])
    except np.linalg.LinAlgError:
        pass
    return factor_by_pivots(K, floor)


def factor_by_pivots(K: Any, floor: float) -> tuple[Any, NDArray[np.intp]]:
    """Factor a small matrix with pivoting; return L, where K is, and its rows in their order.

    Rows whose pivot is at most the ``floor`` depend on others and are dropped. Residuals are
    compared after rounding, so that noise decides no pivot.
    """
    found = pivoted_cholesky(MemoryBlocks(K), Kernel("precomputed"), K.shape[0])
    rank = int(np.count_nonzero(found.L.diagonal() ** 2 > floor))
    return like_rows(np.ascontiguousarray(found.L[:rank, :rank]), K), found.indices[:rank]


# ---------------------------------------------------------------------------- rows times L^-T


@dataclass(frozen=True)
class Whitener:
    """L in the type and place of the rows, with the inverses of its corners on the diagonal."""

    L: Any
    corners: list[Any]

    def apply(self, values: Any, out: Any = None) -> Any:
        """Return values L^-T; ``values`` are overwritten.

        By panels of columns: half the operations of a product with L^-T, nearly all of them in
        products of matrices.
        """
        if len(self.corners) == 1:  # one product for all
            if out is None or out.dtype != values.dtype:
                return put_into(values @ self.corners[0], out)
            matmul_into(values, self.corners[0], out)
            return out
        start = 0
        for corner in self.corners:
            stop = start + corner.shape[0]
            columns = values[:, start:stop]
            if start:
                columns = columns - values[:, :start] @ self.L[start:stop, :start].T
            values[:, start:stop] = columns @ corner
            start = stop
        return put_into(values, out)


def put_into(values: Any, out: Any) -> Any:
    """Return ``values``, in ``out`` and its type if that is given."""
    if out is None:
        return values
    out[...] = namespace(out).astype(values, out.dtype, copy=False)
    return out


_whiteners: WeakKeyDictionary[Any, Whitener] = WeakKeyDictionary()  # by their features


def whitener_of(features: Any, values: Any) -> Whitener:
    """Return the factor of features where kernel ``values`` are; made once for all blocks."""
    known = _whiteners.get(features)
    if known is None or known.L.dtype != values.dtype or not same_place(known.L, values):
        known = _whiteners[features] = placed(features.L, values)
    return known


def placed(L: Any, values: Any) -> Whitener:
    """Put a factor where ``values`` are, in their type, and invert its corners."""
    xp, L = namespace(values), like_rows(L, values)
    corners = []
    for start in range(0, max(L.shape[0], 1), _PANEL):
        stop = min(start + _PANEL, L.shape[0])
        eye = xp.eye(stop - start, dtype=xp.float64, device=device_of(L))
        corners.append(solve_lower(L[start:stop, start:stop], eye).T)  # in float64 in any case
    typed = [xp.astype(a, values.dtype, copy=False) for a in (L, *corners)]
    return Whitener(typed[0], typed[1:])


# ---------------------------------------------------------------------------- systems


def solve_factored(L: Any, right: Array) -> Array:
    """Return x of L L' x = right, on the host."""
    columns = like_rows(right.reshape(len(right), -1), L)
    x = to_host(solve_lower(L, solve_lower(L, columns), transposed=True))
    return np.asarray(x).reshape(right.shape)
