"""Fit all coefficients of the columns that a selector keeps in the blocks, by Newton's method.

For selectors that fit again while they choose (`leansvm.basis.Fit.refit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leansvm.basis.features import FeatureMap
from leansvm.losses import Loss
from leansvm.newton import passes
from leansvm.newton.solver import NewtonSolver
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]
_TOL, _STEPS = 1e-3, 30


@dataclass(frozen=True, eq=False)
class StateFeatures(FeatureMap):
    """The first columns of P, which a selector keeps in the blocks while it goes on choosing."""

    size: int = 0  # columns of P
    constant: float | None = None
    in_state: bool = True
    keep: bool = True
    frees: ClassVar[bool] = False

    def phi(self, X: Any, out: Any = None) -> Any:
        """Raise an error: only the values at the blocks' own rows are known."""
        raise ValueError("StateFeatures knows only the rows of its blocks.")

    def coefficients(self, theta: Array) -> Array:
        """Return the coefficients of the columns of P."""
        return theta[: self.size]


def refit(
    blocks: RowBlocks,
    k: int,
    start: Array,
    *,
    loss: Loss,
    C: float,
    bias_penalty: float,
    margin: bool,
) -> tuple[Array, float]:
    """Minimise over the coefficients of the first k columns of P, and the bias.

    ``blocks`` keep P (`leansvm.basis.cholesky.FactorRows`) and do not change it. Steps begin at
    ``start``, k x n_outputs; its last row is the bias, if there is one. ``bias_penalty`` is 0 for a
    free bias and inf for none; ``margin`` says that the model classifies. Returns coefficients of
    the shape of ``start`` and the value of the objective there.
    """
    solver = NewtonSolver(
        blocks,
        StateFeatures(k, 1.0 if np.isfinite(bias_penalty) else None),
        bias_penalty=bias_penalty,
        margin=margin,
        n_outputs=start.shape[1],
        tol=_TOL,
        max_iter=_STEPS,
    )
    found = solver.solve(loss, C, start)
    blocks.map(passes.end, solver.features)
    return solver.theta, found.objective
