"""Rows, targets and weights of a fit as one frozen value, wherever the rows are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import namespace, rows_at, to_host
from leansvm.rows import (
    Block,
    MemoryBlocks,
    MergedRows,
    RowBlocks,
    Targets,
    canonical_order,
    check_budget,
    declare,
    merge_equal_rows,
    merge_rows_of,
)

Array = NDArray[np.float64]
_SPREAD_ROWS = 256  # rows of a file from which the spread of the targets is taken


class BasisPlan(NamedTuple):
    """What the parameters of a basis mean for the rows."""

    selector: Any  # a selector, row numbers or points
    size: int  # number of points, or the most there may be
    auto: bool  # whether the number is to be found
    budget: int  # bytes that blocks may keep


@dataclass(frozen=True)
class TrainingData:
    """Rows, targets (one column per output) and weights of a fit, wherever they are."""

    X: Any  # array, CSR matrix or RowSource
    y: Any  # as it was given
    Y: Any  # None where a source has the targets
    weight: Any  # sample weights times class weights; None: the source's
    n_outputs: int
    n_positive: int  # rows of positive weight
    count: float | None = None  # samples that GCV counts: class weights are costs, not samples
    encode: Targets | None = None  # how a source's targets become numbers
    merged: MergedRows | None = None  # which rows stand for their copies
    taken: NDArray[np.intp] | None = None  # which of the given rows these are; None: all
    whole: TrainingData | None = None  # the rows as they were given, where these are fewer
    class_weight: Array | None = None  # of each class, a factor in ``weight``
    attributes: dict[str, Any] = field(default_factory=dict)  # that `publish` sets: classes, names
    rows: RowBlocks | None = None  # in blocks, equal rows merged where rows are left out
    plan: BasisPlan | None = None  # of machines on a small basis

    def blocks(self, columns: int = 0, budget: int = 0, tile_rows: int | None = None) -> RowBlocks:
        """Return the rows in blocks."""
        if self.encode is not None:
            return self.X.blocks(self.encode, columns=columns, budget=budget, weight=self.weight)
        ones = self.weight is None or bool(namespace(self.weight).all(self.weight == 1.0))
        return MemoryBlocks(
            self.X,
            self.Y,
            None if ones else self.weight,
            class_weight=None if ones else self.class_weight,
            columns=columns,
            tile_rows=tile_rows,
        )

    def variance(self) -> float:
        """Weighted variance of all entries of X, as ``gamma="scale"`` uses it."""
        return (self.blocks() if self.rows is None else self.rows).variance()

    def targets(self) -> Array:
        """Return the targets of all rows, on the host."""
        if self.encode is not None:
            return self.blocks().concatenate(_targets)
        return np.asarray(to_host(self.Y))

    def spread(self) -> Array:
        """Standard deviation of the targets, of the first rows in files; never zero."""
        Y = self.blocks().head(_SPREAD_ROWS)[1] if self.Y is None else self.Y
        return np.maximum(np.std(to_host(Y), axis=0), np.finfo(np.float64).tiny)

    def leave_out(self, budget: int) -> TrainingData:
        """Let the first of equal rows stand for all: copies of a row are left out together."""
        if self.encode is None:
            merged = merge_equal_rows(self.X, self.Y, self.weight)
        else:
            check_budget(
                self.X.n_rows * (64 + 24 * self.n_outputs),
                budget,
                f"The leave-one-out residuals of {self.X.n_rows:,} rows",
                "Use C='gcv' and calibrate=False, which need sums alone.",
            )
            merged = merge_rows_of(self.blocks())
        weight = np.zeros(self.X.shape[0])
        weight[merged.first] = merged.weight
        return replace(self, weight=weight, n_positive=len(merged.first), merged=merged)

    def counted(self, left_out: bool, earlier: Any = ()) -> TrainingData:
        """Find the rows that count, on the host: all of positive weight, or of equal ones one.

        ``earlier`` are weights of rows of the batches before, which come first.
        """
        Y, weight = to_host(self.Y), np.append(earlier, to_host(self.weight))
        if left_out:
            merged = merge_equal_rows(self.X, Y, weight)
        else:
            first = np.flatnonzero(weight > 0)
            group = np.full(len(weight), -1, dtype=np.intp)
            group[first] = np.arange(len(first))
            merged = MergedRows(first, group, weight[first])
        first = merged.first
        return replace(self, Y=Y, weight=weight, merged=merged, n_positive=len(first), taken=first)

    def distinct(self) -> TrainingData:
        """Merge equal rows and put the rest in an order that their values alone decide.

        For iterations that amplify rounding, which depends on the order: weights and repetitions,
        or rows in another order, then give the same model.
        """
        merged = merge_equal_rows(self.X, self.Y, self.weight)
        first = merged.first
        order = canonical_order(to_host(rows_at(self.X, first)), to_host(rows_at(self.Y, first)))
        taken = first[order]
        return replace(
            self,
            X=rows_at(self.X, taken),
            Y=rows_at(self.Y, taken),
            weight=merged.weight[order],
            n_positive=len(first),
            merged=merged,
            taken=taken,
            whole=self,
        )


@declare("y")
def _targets(block: Block) -> Array:
    return np.asarray(block.y, dtype=np.float64)
