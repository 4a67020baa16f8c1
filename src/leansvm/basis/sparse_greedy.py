"""Sparse greedy approximation of the kernel matrix (Smola and Schölkopf, ICML 2000).

Minimises the trace of K - P P'. Row j lowers it by |rho_j|^2 / D_j, rho_j = K_Mj - P P_j' being
its residual column. Residual columns stay in the pool: a pick p changes them by rho_j -= p p_j,
so that only new candidates pay for a product with P.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.basis.candidates.best_of import (
    CandidateRows,
    CandidateSelector,
    InBlock,
    OneByOne,
    add_column,
    bring_in,
    rows_of_basis,
)
from leansvm.basis.candidates.pool import Array, Refill, Rows
from leansvm.basis.cholesky.growing import FactorRows
from leansvm.kernels import Kernel
from leansvm.rows import Block, declare

# Candidates whose residual is below this part of the largest one are passed over.
_LEAST_DECREASE = 1e-4


class _ByTrace(OneByOne):
    """The gain of a candidate is its decrease of the trace of K - P P'."""

    def start(self) -> None:
        """Begin with no basis."""
        self._k = 0  # columns of P; the last one is not yet subtracted from the pool's columns

    def report(self, gains: Array) -> dict[str, Any]:
        """Return the trace after each step."""
        return {"trace": np.maximum(self.total - np.cumsum(gains), 0.0)}

    def gains(self) -> Array:
        """|rho_j|^2 / D_j of every slot."""
        pool, refill = self.pool, self.refill
        norms = self.blocks.sum(_norms, self.kernel, refill, pool.P[:, : self._k])
        self.refill = Refill()
        # a residual that lost all its digits would promise any gain
        sound = pool.usable & (
            _LEAST_DECREASE * pool.D.max(where=pool.usable, initial=0.0) < pool.D
        )
        return np.asarray(np.divide(norms, pool.D, out=np.zeros_like(norms), where=sound))

    def append(self, slot: int, t: int, row: Array) -> list[InBlock]:
        """Add row t to the basis."""
        self._k = len(row)
        return self.blocks.map(_append, slot, t, row, self.pool.rows)


class SparseGreedy(CandidateSelector):
    """Choose, one at a time, the candidate that improves the approximate kernel matrix most.

    Each step looks at ``n_candidates`` random rows and takes the one that lowers the (weighted)
    trace of the error of the approximate kernel matrix most. Targets are not used.

    Parameters
    ----------
    n_candidates : int, default=59
        Rows looked at in a step. The best of 59 is among the best 5 % with probability 0.95.
    keep_pool : bool, default=True
        Keep the better two thirds of the candidates for the next step. False draws all of them
        anew, as published; that is slower.
    random_state : int, RandomState instance or None, default=None
        Seed for the order of the candidates; None uses that of the estimator.

    Notes
    -----
    Rows of zero weight, and rows that the basis already represents up to rounding, are never
    chosen. The ``report`` of the selection has the trace after each step (``"trace"``), what each
    step lowered it by (``"gain"``) and why it ended (``"stop"``: "n_basis", "rank" or "callback").

    References
    ----------
    A. J. Smola and B. Schölkopf, "Sparse greedy matrix approximation for machine learning",
    Proceedings of the 17th International Conference on Machine Learning, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis.sparse_greedy import SparseGreedy
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> blocks = MemoryBlocks(np.linspace(-3, 3, 200)[:, None])
    >>> selector = SparseGreedy(n_candidates=20, random_state=0)
    >>> found = selector.select(blocks, Kernel("rbf", gamma=0.5), 8)
    >>> len(found.indices), bool(found.report["trace"][-1] < 1)
    (8, True)
    """

    _competition = _ByTrace

    def __init__(
        self, n_candidates: int = 59, keep_pool: bool = True, random_state: Any = None
    ) -> None:
        self.n_candidates = n_candidates
        self.keep_pool = keep_pool
        self.random_state = random_state

    def state_columns(self, n_basis: int) -> int:
        """Columns kept for every row: P, the candidates, D and weights."""
        return n_basis + self.n_candidates + 2


@declare("X", keeps=CandidateRows, changes=("pool",))
def _norms(block: Block, kernel: Kernel, refill: Refill, P_pool: Array) -> Array:
    """Bring the residual columns up to date; return their squared norms."""
    state, k = block.kept(CandidateRows), P_pool.shape[1]
    pool, P = state.pool, block.kept(FactorRows).P[:, :k]
    if k:
        pool -= np.multiply.outer(P_pool[:, -1], P[:, -1])
    bring_in(block, kernel, refill)
    pool[refill.slots] -= P_pool[refill.slots] @ P.T
    return np.asarray(np.square(pool) @ state.s)


@declare(keeps=FactorRows, changes=("D",), appends=("P",))
def _append(block: Block, slot: int, t: int, row: Array, rows: Rows) -> InBlock:
    """Append p = rho_t / sqrt(D_t); return the candidates' rows of P."""
    k = len(row) - 1
    add_column(block, block.kept(CandidateRows).pool[slot] / row[k], k, t)
    return rows_of_basis(block, rows, k + 1)
