"""A nested basis that grows: the first k points of a larger basis are those of a smaller one.

K_BB = L L' is extended by the factor of the new points' Schur complement, so the whitened columns
of the first points stay what they are: Phi gets new columns (K_new - Phi L_21') L_22^-T, and a
solution of the smaller basis, with zeros appended, is one point of the larger problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from leansvm._array_api import foreign_namespace, in_float64, rows_at, to_host
from leansvm._phases import out_of_time
from leansvm.basis.features import ColumnRows, KernelFeatures
from leansvm.basis.on_device import CLEAR, factor_by_pivots
from leansvm.kernels import Kernel
from leansvm.linalg import right_solve_in_place
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
_PANEL = 512  # columns at a time
FIRST_SIZE = 50  # of a basis that is chosen anew at each size
GAIN = 0.01  # share of the error that twice the size has to save
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


@dataclass(frozen=True)
class NestedPoints:
    """Points in the order of choice, and the factor of the first of them."""

    kernel: Kernel
    rows: Any  # all points there may be, as rows and as `Kernel.block` takes them
    points: Any
    whitened: bool = True
    constant: float | None = None  # of the bias's column
    taken: int = 0  # points that were looked at
    kept: NDArray[np.intp] = field(default_factory=partial(np.arange, 0))
    L: Array = field(default_factory=partial(np.zeros, (0, 0), order="F"))

    def extended(self, size: int) -> NestedPoints:
        """Return the first ``size`` points; those that depend on others are not kept."""
        if not self.whitened:
            return replace(self, taken=size, kept=np.arange(size))
        new = np.arange(self.taken, size)
        K = self._kernel_of(new, new)
        if self.kernel.has_unit_diagonal:  # exact, so that rounding decides no tie
            np.fill_diagonal(K, 1.0)
        # well above rounding, which must not decide how many points there are
        floor = 1e3 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
        below = np.empty((len(new), 0))
        if len(self.kept):
            below = solve_triangular(self.L, self._kernel_of(new, self.kept).T, lower=True).T
            K -= below @ below.T
        try:  # in the given order, unless a pivot is not clear of the floor
            corner, chosen = cholesky(K, lower=True, check_finite=False), np.arange(len(K))
            clear = corner.diagonal().min(initial=np.inf) ** 2 > CLEAR * floor
        except np.linalg.LinAlgError:
            clear = False
        if not clear:
            corner, chosen = factor_by_pivots(K, floor)
        k, rank = len(self.kept), len(chosen)
        L = np.zeros((k + rank, k + rank), order="F")
        L[:k, :k], L[k:, :k], L[k:, k:] = self.L, below[chosen], corner
        return replace(self, taken=size, kept=np.concatenate([self.kept, new[chosen]]), L=L)

    def features(self, keep: bool = False, single: bool = False) -> KernelFeatures:
        """Return the map to the columns of all points that are kept."""
        L, points = self.L if self.whitened else None, rows_at(self.points, self.kept)
        return KernelFeatures(
            self.kernel, points, L, self.kept, self.constant, keep=keep, single=single
        )

    def sizes(self) -> Iterator[KernelFeatures]:
        """Yield the maps to sizes that double, up to all points that do not depend on others."""
        growing = self
        for size in sizes_up_to(self.rows.shape[0]):
            growing = growing.extended(size)
            yield growing.features()

    def _kernel_of(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> Array:
        rows, points = in_float64(rows_at(self.rows, a)), in_float64(rows_at(self.points, b))
        return np.array(to_host(self.kernel.block(rows, points, dtype=np.float64)), np.float64)


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


def new_rows_of_factor(first: int, after: KernelFeatures) -> Any:
    """Return the rows of L from number ``first`` on, in the precision of the columns."""
    if after.L is None or not isinstance(after.L, np.ndarray):
        return None
    return np.asfortranarray(after.L[first:], np.float32 if after.single else np.float64)


@declare("X", keeps=ColumnRows)
def resize_columns(
    block: Block, before: KernelFeatures, after: KernelFeatures, L: Any = None
) -> None:
    """Turn the columns that a block keeps, if any, into those of another size of the same basis.

    ``L`` is what `new_rows_of_factor` returned for the points after those of ``before``, once for
    all blocks.
    """
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
            if L is None or same != before.size:  # the block had kept none
                L = new_rows_of_factor(same, after)
            for start in range(0, len(L), _PANEL):
                rows = slice(start, start + _PANEL)
                new[:, rows] -= Phi[:, :same] @ L[rows, :same].T
            right_solve_in_place(new, L[:, same:])
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
