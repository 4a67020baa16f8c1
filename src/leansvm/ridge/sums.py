"""What the squared loss needs of all rows: Z'Z for Z = S^1/2 [Phi, Y, 1], added up block by block.

After the sums, all arrays have the size of the basis (`equations`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import gram
from leansvm._array_api import to_host
from leansvm.basis import on_device
from leansvm.basis.features import FeatureMap
from leansvm.ridge.equations import MomentRows, keep_rows_of_Z, rows_of_Z
from leansvm.rows import Block, RowBlocks, check_points, declare

Array = NDArray[np.float64]
FIRST_ROWS = 256  # rows whose means shift the sums
MATRICES = 8  # r x r in memory at once: the factor, sums, new products, work space


@dataclass
class Sums:
    """Z'Z for Z = S^1/2 [Phi - shift, Y - shift, 1]; grows by addition, whatever the rows."""

    shift: Array  # zero without a free bias
    gram: Any  # on the host; that of a large basis where the rows are
    n_outputs: int
    count: float  # samples that GCV counts: the sum of weights without class weights

    def __add__(self, other: Sums) -> Sums:
        gram, count = self.gram + other.gram, self.count + other.count
        return Sums(self.shift, gram, self.n_outputs, count)

    def total(self) -> Sums:
        """Return self."""
        return self

    def about(self, shift: Array) -> Sums:
        """Return the sums of the same rows about another shift."""
        gram = self.gram if np.array_equal(shift, self.shift) else shifted(self, self.gram, shift)
        return Sums(shift, gram, self.n_outputs, self.count)

    def on_host(self) -> Sums:
        """Return the same sums on the host."""
        return Sums(self.shift, to_host(self.gram), self.n_outputs, self.count)


def shifted(sums: Any, gram: Array, shift: Array) -> Array:
    """Return Z'Z, one matrix or several, after the columns were taken about another shift."""
    by = np.append(sums.shift - shift, 0.0)  # Z + Z_last by'
    cross = by[:, None] * gram[..., None, :, -1]
    n = gram[..., -1:, -1:]
    return np.asarray(gram + (cross + np.swapaxes(cross, -1, -2)) + n * np.outer(by, by))


def add_up(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    count: float | None = None,
    keep: bool = False,
    stays: bool = False,
) -> Sums:
    """Run over all rows once; with ``keep`` blocks keep their rows of Z for a second pass.

    With ``stays`` the sums of a large basis stay where the rows are.
    """
    function = _gram_and_rows if keep else _gram_of_block
    if stays and on_device.stays(blocks.place, features.width):
        total = blocks.sum_there(function, features, shift)
    else:
        total = blocks.sum(function, features, shift)
    outputs = len(shift) - features.width
    return Sums(shift, total, outputs, float(total[-1, -1]) if count is None else count)


def check_memory(points: int, budget: int, folds: int) -> None:
    """Refuse sums of so many points and folds, and the solution from them, beyond the budget."""
    check_points(points, budget, MATRICES * folds)


def first_shift(
    blocks: RowBlocks, features: FeatureMap, free_bias: bool, n_rows: int = FIRST_ROWS
) -> Array:
    """Return the column means of the first rows that count; zeros unless the bias is free.

    Sums of deviations from them keep the later centring free of cancellation.
    """
    X, Y, weight = blocks.head(n_rows)
    Y = np.asarray(to_host(Y), dtype=np.float64)
    if not free_bias:
        return np.zeros(features.width + Y.shape[1])
    Phi = to_host(features.transform(X))
    weight = to_host(weight)
    if weight is not None and weight.any():
        Phi, Y = Phi[weight > 0], Y[weight > 0]
    return np.concatenate([Phi.mean(axis=0), Y.mean(axis=0)])


@declare("X", "y", "weight")
def _gram_of_block(block: Block, features: FeatureMap, shift: Array) -> Any:
    """Return Z'Z in float64; where Z is float32, the sums of targets and weights are exact."""
    Z, r = rows_of_Z(block, features, shift), features.width
    G = gram(Z)
    if isinstance(Z, np.ndarray) and Z.dtype == np.float32:
        G[r:, r:] = moments_of_targets(block, shift[r:])
    return G


def moments_of_targets(block: Block, shift: Array) -> Array:
    """Return the moments of [Y - shift, 1] of a block's rows, in float64."""
    Y = np.append(np.asarray(block.y, dtype=np.float64) - shift, np.ones((len(block.y), 1)), axis=1)
    return np.asarray(Y.T @ (Y if block.weight is None else Y * block.weight[:, None]))


@declare("X", "y", "weight", keeps=MomentRows)
def _gram_and_rows(block: Block, features: FeatureMap, shift: Array) -> Any:
    keep_rows_of_Z(block, features, shift)
    return _gram_of_block(block, features, shift)


def added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add up products of blocks in double precision, in the memory of the first."""
    return tuple(
        np.add(x, y, out=x if x.dtype == np.float64 else None, dtype=np.float64)
        if isinstance(x, np.ndarray)
        else x + y
        for x, y in zip(a, b, strict=True)
    )
