"""Basis points by greedy pivoted Cholesky: zhou2016's PCP (Algorithm 1), blocked."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from leansvm.basis.cholesky.greedy import pivoted_cholesky
from leansvm.basis.selector import Basis, BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import RowBlocks


class PivotedCholesky(BasisSelector):
    """Choose the row that the basis so far approximates worst, again and again.

    With P the whitened basis, the next row is the one with the largest residual
    k(x, x) - |P_x|^2; ties go to the first row. Rows are taken in rounds, so that matrix products
    do the work; the result is the same as one at a time (`theta` = 1). Weights do not
    change the order, except that rows of zero weight are never chosen.

    Parameters
    ----------
    tol : float, default=0.0
        Stop when the (weighted) trace of the residual is at most this share of the trace of the
        kernel matrix. With 0 only the number of rows or the numerical rank ends the choice.
    batch : int, default=512
        Number of candidate rows in a round. It changes the time, not the result.
    theta : float, default=1.0
        A value below 1 accepts a candidate if its residual is at least this share of the largest
        residual outside the batch. This takes fewer rounds, but is no longer exactly greedy.

    Attributes
    ----------
    nested : bool
        True: k rows are the first k of a larger choice.

    See Also
    --------
    leansvm.basis.RandomPivotedCholesky : Draws rows by their residual; outliers matter less.

    References
    ----------
    S. Zhou, "Sparse LSSVM in primal using Cholesky factorization for large-scale problems",
    IEEE Transactions on Neural Networks and Learning Systems 27(4), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis.pivoted import PivotedCholesky
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> blocks = MemoryBlocks(np.linspace(0, 1, 101)[:, None])
    >>> PivotedCholesky().select(blocks, Kernel("rbf", gamma=4.0), 5).indices
    array([  0, 100,  50,  24,  79])
    >>> len(PivotedCholesky().select(blocks, Kernel("linear"), 5).indices)  # rank one
    1
    """

    nested = True
    runs_where_rows_are = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "tol": [Interval(Real, 0, 1, closed="left")],
        "batch": [Interval(Integral, 1, None, closed="left")],
        "theta": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(self, tol: float = 0.0, batch: int = 512, theta: float = 1.0) -> None:
        self.tol = tol
        self.batch = batch
        self.theta = theta

    def state_columns(self, n_basis: int) -> int:
        """P and the residual diagonal."""
        return n_basis + 1

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        options: dict[str, Any] = {"batch": self.batch, "theta": self.theta, "tol": self.tol}
        return pivoted_cholesky(blocks, kernel, n_basis, on_step=on_step, **options)
