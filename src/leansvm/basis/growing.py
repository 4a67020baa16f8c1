"""A nested basis that grows: the first k points of a larger basis are those of a smaller one.

K_BB = L L' is extended by the factor of the new points' Schur complement, so the whitened columns
of the first points stay what they are: Phi gets new columns (K_new - Phi L_21') L_22^-T, and a
solution of the smaller basis, with zeros appended, is one point of the larger problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from leansvm._array_api import foreign_namespace, in_float64, rows_at, to_host
from leansvm._phases import out_of_time
from leansvm.basis.features import ColumnRows, KernelFeatures
from leansvm.basis.on_device import CLEAR, factor_by_pivots
from leansvm.linalg import right_solve_in_place
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
_PANEL = 512  # columns at a time
FIRST_SIZE = 50  # of a basis that is chosen anew at each size
GAIN = 0.01  # share of the error that twice the size has to save
NO_FACTOR = np.zeros((0, 0), order="F")  # L of no points
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


def first_columns(features: KernelFeatures, size: int) -> KernelFeatures:
    """Return the map to the first ``size`` columns of a map."""
    L = None if features.L is None else features.L[:size, :size]
    L = np.asfortranarray(L) if isinstance(L, np.ndarray) else L
    kept = None if features.kept is None else features.kept[:size]
    return replace(features, points=rows_at(features.points, np.arange(size)), L=L, kept=kept)


def prefixes(features: KernelFeatures) -> Iterator[KernelFeatures]:
    """Yield the maps to the first columns of one map, in sizes that double; itself at last."""
    for size in sizes_up_to(features.size)[:-1]:
        yield first_columns(features, size)
    yield features


def extended(
    features: KernelFeatures, rows: Any, points: Any, first: int, size: int
) -> KernelFeatures:
    """Return the map that also has points ``first`` to ``size``, unless they depend on others.

    ``rows`` are all points there may be, in the order of choice, and ``points`` the same as
    `Kernel.block` takes them. The first map has none of them, and L is `NO_FACTOR` or None.
    """
    new, kernel = np.arange(first, size), features.kernel
    if features.L is None:
        kept = np.arange(size)
        return replace(features, points=rows_at(points, kept), kept=kept)
    own, values = in_float64(rows_at(rows, new)), []
    for others in (in_float64(rows_at(points, new)), in_float64(features.points)):
        K = to_host(kernel.block(own, others, dtype=np.float64))
        values.append(np.array(K, np.float64))
    K, below = values
    if kernel.has_unit_diagonal:  # exact, so that rounding decides no tie
        np.fill_diagonal(K, 1.0)
    # well above rounding, which must not decide how many points there are
    floor = 1e3 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
    if features.size:
        below = solve_triangular(features.L, below.T, lower=True).T
        K -= below @ below.T
    try:  # in the given order, unless a pivot is not clear of the floor
        corner, chosen = cholesky(K, lower=True, check_finite=False), np.arange(len(K))
        clear = corner.diagonal().min(initial=np.inf) ** 2 > CLEAR * floor
    except np.linalg.LinAlgError:
        clear = False
    if not clear:
        corner, chosen = factor_by_pivots(K, floor)
    k, rank = features.size, len(chosen)
    L = np.zeros((k + rank, k + rank), order="F")
    L[:k, :k], L[k:, :k], L[k:, k:] = features.L, below[chosen], corner
    kept = np.append(features.kept, new[chosen])
    return replace(features, points=rows_at(points, kept), L=L, kept=kept)


def doubled(features: KernelFeatures, rows: Any, points: Any) -> Iterator[KernelFeatures]:
    """Yield the maps to sizes that double, up to all points that do not depend on others."""
    taken = 0
    for size in sizes_up_to(rows.shape[0]):
        features, taken = extended(features, rows, points, taken, size), size
        yield features


def rotation_in_order(features: KernelFeatures, rows: Any) -> tuple[Array, NDArray[np.intp]]:
    """Return Q such that the first k columns of Phi Q span the first k of ``rows``, the points.

    Cholesky in the given order would divide by tiny pivots; instead the rows' features under
    the pivoted factor are orthogonalised in order. Rows that depend on earlier ones are skipped:
    the second result is the positions of the others.
    """
    size = features.size
    values = to_host(features.phi(rows))
    floor = 10 * float(np.finfo(np.float64).eps) * float(np.square(values).sum(axis=1).max())
    Q = np.empty((size, size))
    kept: list[int] = []
    for t, row in enumerate(values):
        known = Q[:, : len(kept)]
        rest = row - known @ (known.T @ row)
        rest -= known @ (known.T @ rest)
        length = float(np.linalg.norm(rest))
        if length**2 > floor and len(kept) < size:
            Q[:, len(kept)] = rest / length
            kept.append(t)
    return Q[:, : len(kept)], np.asarray(kept, dtype=np.intp)


@declare("X", keeps=ColumnRows)
def resize_columns(block: Block, before: KernelFeatures, after: KernelFeatures) -> None:
    """Turn the columns that a block keeps, if any, into those of another size of the same basis."""
    kept = block.state.pop(ColumnRows, None)
    if not after.keep:
        return
    if foreign_namespace(block.X) is not None:
        block.keep(ColumnRows(after.transform(block.X)))
        return
    same = 0 if kept is None else min(before.size, after.size)
    n_rows = block.stop - block.start
    Phi = np.empty((n_rows, after.width), np.float32 if after.single else np.float64)
    if kept is not None:
        Phi[:, :same] = kept.Phi[:, :same]
    if after.constant is not None:
        Phi[:, -1] = after.constant
    if after.size > same:
        new = Phi[:, same : after.size]
        after.kernel.block(
            block.X, rows_at(after.points, np.arange(same, after.size)), out=new, dtype=Phi.dtype
        )
        if after.L is not None:
            for start in range(0, new.shape[1], _PANEL):
                L = np.asarray(after.L[same + start : same + start + _PANEL, :same], Phi.dtype)
                new[:, start : start + _PANEL] -= Phi[:, :same] @ L.T
            right_solve_in_place(new, after.L[same:, same:])
    block.keep(ColumnRows(Phi))


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
