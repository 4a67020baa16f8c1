"""Fit the coefficients of columns that a selector keeps in the blocks, roughly and from a start.

minimise  1/2 |theta|^2 + 1/2 A b^2 + C sum_i s_i L(u_i),  f = P theta + b,  P = state["P"][:, :k].
For selectors that fit again while they choose (`leansvm.basis.Fit.refit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.blocks import Block, RowBlocks, declare
from leansvm.losses import Loss
from leansvm.solvers._features import Features
from leansvm.solvers.newton import NewtonSolver

Array = NDArray[np.float64]
_TOL, _STEPS = 1e-3, 30


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
    """Minimise over the coefficients of the first k columns of ``state["P"]``, which stay.

    Parameters
    ----------
    blocks : RowBlocks
        Rows, targets and weights; the state "f" becomes the decision values.
    k : int
        Columns.
    start : ndarray of shape (k or k + 1, n_outputs)
        Coefficients to start from; a last row for the bias unless ``bias_penalty`` is inf.
    loss, C, bias_penalty, margin
        The objective, as in `leansvm.basis.Fit`.

    Returns
    -------
    theta : ndarray of the shape of ``start``
        Coefficients.
    objective : float
        Value reached.
    """
    has_bias = bool(np.isfinite(bias_penalty))
    solver = NewtonSolver(
        blocks,
        Features(_KeptColumns(k), has_bias, copies=True),
        bias_penalty=bias_penalty if has_bias else 0.0,
        margin=margin,
        outputs=range(start.shape[1]),
        tol=_TOL,
        max_iter=_STEPS,
    )
    found = solver.solve(loss, C, start)
    blocks.map(_drop_copies)
    return found.theta, found.objective


@dataclass
class _KeptColumns:
    """The first columns of P, which are in the blocks: nothing to compute."""

    size: int
    points: Any = None

    @property
    def kept(self) -> NDArray[np.intp]:
        return np.arange(self.size)

    def transform(self, X: Any) -> Array:
        raise NotImplementedError("the columns are known for rows of the blocks only")

    def coefficients(self, theta: Array) -> Array:
        return theta[: self.size]


@declare(sets=("Phi", "df", "in_gram"))
def _drop_copies(block: Block) -> None:
    for key in ("Phi", "df", "in_gram"):
        block.state.pop(key, None)
