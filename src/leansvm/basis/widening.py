"""A basis that grows: the model on the first k points is where that on more of them starts.

K_BB = L L' is extended by the factor of the new points' Schur complement, so the whitened columns
of the first points stay what they are: Phi gets new columns (K_new - Phi L_21') L_22^-T, and a
solution of the smaller basis, with zeros appended, is one point of the larger problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from leansvm._array_api import foreign_namespace, in_float64, rows_at, to_host
from leansvm.basis.features import KernelFeatures
from leansvm.kernels import Kernel
from leansvm.linalg import right_solve_in_place
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
_SMALLEST_STEP = 64  # points of the first basis, at least


def sizes_up_to(largest: int) -> list[int]:
    """Return sizes that double, from 64 to 127 points, up to the largest one.

    Examples
    --------
    >>> sizes_up_to(1000)
    [125, 250, 500, 1000]
    """
    halvings = max(0, int(np.log2(max(largest, 1) / _SMALLEST_STEP)))
    sizes = []
    for step in range(halvings, -1, -1):
        sizes.append(-(-largest // 2**step))
    return sizes


def prefixes(features: KernelFeatures) -> Iterator[KernelFeatures]:
    """Yield the maps to the first columns of one map, in sizes that double; itself at last."""
    for size in sizes_up_to(features.size)[:-1]:
        L = None if features.L is None else features.L[:size, :size]
        L = np.asfortranarray(L) if isinstance(L, np.ndarray) else L
        kept = None if features.kept is None else features.kept[:size]
        yield replace(features, points=rows_at(features.points, np.arange(size)), L=L, kept=kept)
    yield features


@dataclass
class NestedPoints:
    """Points in the order of choice, and the map to the columns of the first of them."""

    kernel: Kernel
    rows: Any  # all points there may be, as rows and as `Kernel.block` takes them
    points: Any
    whitened: bool
    constant: float | None  # of the bias's column

    def sizes(self) -> Iterator[KernelFeatures]:
        """Yield the maps to sizes that double, up to all points that do not depend on others."""
        kept, L, taken = np.empty(0, np.intp), np.zeros((0, 0), order="F"), 0
        for size in sizes_up_to(self.rows.shape[0]):
            new = np.arange(taken, size)
            if self.whitened:
                L, chosen = self._extended(L, kept, new)
                kept = np.concatenate([kept, new[chosen]])
            else:
                kept = np.arange(size)
            taken = size
            points = rows_at(self.points, kept)
            yield KernelFeatures(
                self.kernel, points, L if self.whitened else None, kept, self.constant
            )

    def _extended(
        self, L: Array, kept: NDArray[np.intp], new: NDArray[np.intp]
    ) -> tuple[Array, NDArray[np.intp]]:
        """Return L with the new points, and which of them it holds: the others depend on them."""
        K = self._kernel_of(new, new)
        if self.kernel.has_unit_diagonal:  # exact, so that rounding decides no tie
            np.fill_diagonal(K, 1.0)
        # well above rounding, which must not decide how many points there are
        floor = 1e3 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
        below = np.empty((len(new), 0))
        if len(kept):
            below = solve_triangular(L, self._kernel_of(new, kept).T, lower=True).T
            K -= below @ below.T
        factor, pivots, rank, _ = dpstrf(np.asfortranarray(K), tol=floor, lower=1)
        chosen, k = np.asarray(pivots[:rank], dtype=np.intp) - 1, len(kept)
        extended = np.zeros((k + rank, k + rank), order="F")
        extended[:k, :k], extended[k:, :k] = L, below[chosen]
        extended[k:, k:] = np.tril(factor[:rank, :rank])
        return extended, chosen

    def _kernel_of(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> Array:
        rows, points = in_float64(rows_at(self.rows, a)), in_float64(rows_at(self.points, b))
        return np.array(to_host(self.kernel.block(rows, points, dtype=np.float64)), np.float64)


@declare("X", sets=("Phi",))
def resize(block: Block, before: KernelFeatures, after: KernelFeatures) -> None:
    """Turn the columns that a block keeps into those of another size of the same basis."""
    known = block.state.pop("Phi", None)
    if known is None or not after.keep:
        return
    if foreign_namespace(known) is not None:
        block.state["Phi"] = after.transform(block.X)
        return
    same = min(before.size, after.size)
    Phi = np.empty((known.shape[0], after.width))
    Phi[:, :same] = known[:, :same]
    if after.constant is not None:
        Phi[:, -1] = after.constant
    if after.size > same:
        points = rows_at(after.points, np.arange(same, after.size))
        new = after.kernel.block(block.X, points, dtype=np.float64)
        if after.L is not None:
            new -= Phi[:, :same] @ after.L[same:, :same].T
            right_solve_in_place(new, np.asfortranarray(after.L[same:, same:]))
        Phi[:, same : after.size] = new
    block.state["Phi"] = Phi
