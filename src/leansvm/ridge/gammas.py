"""The sums over rows of several Gaussian widths in one pass.

Bases that differ in gamma only share the distances between rows and points, half of the work of
a kernel block with many features: exponents are computed once and scaled for every gamma.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import gram
from leansvm._array_api import empty, foreign_namespace
from leansvm.basis.features import KernelFeatures
from leansvm.kernels import negative_distances
from leansvm.linalg import right_solve_in_place
from leansvm.ridge.sums import complete
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]


def add_up_together(
    blocks: RowBlocks, points: Any, bases: list[KernelFeatures], shifts: list[Array]
) -> list[Array]:
    """Return Z'Z of every basis (`leansvm.ridge.sums.Sums`) from one pass over the rows.

    Parameters
    ----------
    blocks : RowBlocks
        All rows.
    points : array
        The points that every basis was made of, before any was dropped.
    bases, shifts : list
        One basis for every gamma, and what is taken off its columns.
    """
    return list(blocks.sum(_grams_of_block, points, bases, shifts))


@declare("X", "y", "weight")
def _grams_of_block(
    block: Block, points: Any, bases: list[KernelFeatures], shifts: list[Array]
) -> tuple[Array, ...]:
    kernels = [basis.kernel for basis in bases]
    distances = None
    if kernels[0].name == "rbf" and foreign_namespace(block.X) is None:
        distances = negative_distances(block.X, points, max(k.gamma for k in kernels))
    grams = []
    for basis, shift in zip(bases, shifts, strict=True):
        # contiguous columns: taking some of the distances, in another order, is cheap
        Z = empty((len(shift) + 1, block.stop - block.start), block.X).T
        features = Z[:, : basis.width]
        if distances is None:
            basis.transform(block.X, out=features)
        else:
            values = features[:, : basis.size]
            np.multiply(distances.T[basis.kept], basis.kernel.gamma, out=values.T)
            np.exp(values, out=values)
            assert basis.L is not None
            right_solve_in_place(values, basis.L)
            if basis.constant is not None:
                features[:, basis.size] = basis.constant
        complete(Z, block, basis.width, shift)
        grams.append(gram(Z))
    return tuple(grams)
