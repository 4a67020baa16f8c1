"""The rows of a fit: arrays in memory, or a source that is read or computed elsewhere.

Both answer the same questions, so that a fit is written once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import namespace
from leansvm.blocks import (
    Block,
    MemoryBlocks,
    MergedRows,
    RowBlocks,
    RowSource,
    Targets,
    check_budget,
    declare,
    merge_equal_rows,
    merge_rows_of,
)

Array = NDArray[np.float64]


@dataclass
class ArrayRows:
    """Rows, targets (one column an output) and weights in memory."""

    X: Any
    Y: Any
    weight: Any
    count: float | None = None  # samples that GCV counts

    @property
    def n_outputs(self) -> int:
        """Columns of the targets."""
        return self.Y.shape[1]

    @property
    def n_positive(self) -> int:
        """Rows of positive weight."""
        return count_positive(self.weight)

    def merged(self, budget: int) -> tuple[MergedRows, ArrayRows]:
        """Find equal rows; the first of each kind gets the weight of all."""
        merged = merge_equal_rows(self.X, self.Y, self.weight)
        weight = np.zeros(self.X.shape[0])
        weight[merged.first] = merged.weight
        return merged, replace(self, weight=weight)

    def blocks(self, columns: int, budget: int = 0) -> RowBlocks:
        """Return the rows in blocks."""
        return MemoryBlocks(self.X, self.Y, without_ones(self.weight), columns=columns)

    def targets(self) -> Any:
        """Return the targets of all rows."""
        return self.Y


@dataclass
class SourceRows:
    """Rows that are elsewhere, with what a look at their targets has told."""

    X: RowSource
    encode: Targets
    n_outputs: int
    n_positive: int
    count: float | None = None
    weight: Array | None = None  # instead of the source's

    def merged(self, budget: int) -> tuple[MergedRows, SourceRows]:
        """Find equal rows; the first of each kind gets the weight of all."""
        check_budget(
            self.X.n_rows * (64 + 24 * self.n_outputs),
            budget,
            f"The leave-one-out residuals of {self.X.n_rows:,} rows",
            "Use C='gcv' and calibrate=False, which need sums alone.",
        )
        merged = merge_rows_of(self.blocks(0))
        weight = np.zeros(self.X.n_rows)
        weight[merged.first] = merged.weight
        return merged, replace(self, weight=weight, n_positive=len(merged.first))

    def blocks(self, columns: int, budget: int = 0) -> RowBlocks:
        """Return the rows in blocks."""
        return self.X.blocks(self.encode, columns=columns, budget=budget, weight=self.weight)

    def targets(self) -> Array:
        """Return the targets of all rows."""
        return self.blocks(0).concatenate(_targets)


Rows = ArrayRows | SourceRows


def without_ones(weight: Any) -> Any:
    """Return weights as blocks take them: None where all are one."""
    return None if bool(namespace(weight).all(weight == 1.0)) else weight


def count_positive(weight: Any) -> int:
    """Return how many rows count."""
    return int(namespace(weight).count_nonzero(weight > 0))


@declare("y")
def _targets(block: Block) -> Array:
    return np.asarray(block.y, dtype=np.float64)


def labels_of(Y: Array) -> NDArray[np.intp]:
    """Return class numbers from targets +-1."""
    return (Y[:, 0] > 0).astype(np.intp) if Y.shape[1] == 1 else np.argmax(Y, axis=1)
