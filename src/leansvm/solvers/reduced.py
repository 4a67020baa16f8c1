"""All outputs of a reduced machine, along a path of C, within a memory budget.

The outputs of a group go in step and share every pass over the rows; groups are as large as their
Gram matrices allow. The features of all rows are kept if they fit, else computed in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.blocks import RowBlocks, check_budget
from leansvm.losses import Loss
from leansvm.solvers import _newton_blocks as rows_of
from leansvm.solvers._features import Features
from leansvm.solvers.newton import NewtonSolution, NewtonSolver

Array = NDArray[np.float64]


@dataclass
class NewtonPath:
    """Solutions at every C, left-out decision values at the last one if asked for, bytes used."""

    solutions: list[NewtonSolution]
    left_out: Array | None
    n_bytes: int


def solve_outputs(
    blocks: RowBlocks,
    features: Features,
    loss: Loss,
    path: Array,
    *,
    outputs: int,
    budget: int,
    left_out: bool = False,
    on_iteration: Callable[[int, float], bool] | None = None,
    **options: Any,
) -> NewtonPath:
    """Solve for all outputs at every C of ``path``, each from the solution at the one before.

    Parameters
    ----------
    blocks, features, loss
        The problem; ``features.keep`` is set to whether they fit ``budget``.
    path : ndarray
        Values of C, in the order in which they are solved.
    outputs : int
        Columns of the targets.
    budget : int
        Bytes.
    left_out : bool
        Whether to return approximate leave-one-out decision values.
    on_iteration, **options
        As `NewtonSolver` takes them.
    """
    matrix = 8 * features.width**2
    check_budget(
        3 * matrix,
        budget,
        f"The Newton matrix of {features.width:,} basis functions",
        "Use fewer basis points (n_basis), or raise cache_size.",
    )
    kept = 8 * blocks.n_rows * features.width
    features.keep = 4 * matrix + kept <= budget
    room = budget - kept * features.keep - 2 * matrix
    group = max(1, min(outputs, room // matrix))
    parts: list[list[NewtonSolution]] = []
    values = []
    for start in range(0, outputs, group):
        columns = range(start, min(start + group, outputs))
        solver = NewtonSolver(
            blocks, features, outputs=columns, on_iteration=on_iteration, **options
        )
        parts.append([solver.solve(loss, float(C)) for C in path])
        if left_out:
            values.append(solver.left_out())
    blocks.map(rows_of.end)
    solutions = [_joined([part[i] for part in parts]) for i in range(len(path))]
    n_bytes = kept * features.keep + (group + 2) * matrix
    return NewtonPath(solutions, np.concatenate(values, axis=1) if left_out else None, n_bytes)


def _joined(parts: list[NewtonSolution]) -> NewtonSolution:
    """Put the outputs of all groups side by side."""
    return NewtonSolution(
        np.concatenate([part.theta for part in parts], axis=1),
        sum(part.objective for part in parts),
        max(part.gap for part in parts),
        max(part.residual for part in parts),
        max(part.n_iter for part in parts),
        all(part.converged for part in parts),
        [history for part in parts for history in part.history],
    )
