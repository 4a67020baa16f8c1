"""Backfitting (ICP): the best of a few random rows for the fit itself (zhou2016, Algorithm 2).

A candidate j is worth delta_j = |G_j|^2 / (2 mu_j), eqs. (22) and (27), with the gradient
G_j = lam F_j + K_Mj' S rho of (20) at the current fit F = P theta, rho = cen(F - y). So a
candidate costs O(m) once its kernel column is there; only the chosen one needs u_t of (21).
`leansvm.basis.candidates.rounds` is the form that keeps candidates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.basis.candidates.best_of import (
    CandidateRows,
    Candidates,
    CandidateSelector,
    InBlock,
    OneByOne,
    add_column,
    bring_in,
    rows_of_basis,
)
from leansvm.basis.candidates.pool import Array, Refill, Rows
from leansvm.basis.candidates.ridge import GrowingRidge, Move, move_gradient
from leansvm.basis.candidates.rounds import Rounds, gains_of
from leansvm.basis.cholesky.rows import FactorRows
from leansvm.kernels import Kernel
from leansvm.rows import Block, declare


class Backfitting(CandidateSelector):
    """Basis rows that lower the model's squared-loss objective most, one at a time (ICP).

    Of ``n_candidates`` random rows the one is taken whose coefficient, added to the fit, lowers
    the objective most; then all coefficients are fitted again.

    Parameters
    ----------
    n_candidates : int, default=59
        Rows that compete for a place. The best of 59 is among the best 5 % with probability 0.95,
        the best of 22 among the best 10 % with probability 0.9.
    tol : float, default=0.0
        Stop when the best candidate lowers the objective, divided by C, by no more than this.
    keep_pool : bool, default=True
        Keep good candidates, and take up to ``n_candidates`` / 5 of them, one after the other,
        before rows are drawn in place of those taken and of the worst third: the best of four
        times as many. False draws all of them anew for every point, as the paper does; that is
        several times slower.
    random_state : int, RandomState instance or None, default=None
        Order in which rows become candidates; None: the estimator's.

    Notes
    -----
    Rows of zero weight and rows that the basis already contains, to rounding, are never chosen.
    The ``report`` of the selection has the objective after each step (``"objective"``), the
    predicted decrease of each step divided by C (``"gain"``) and why it ended (``"stop"``:
    "n_basis", "tol", "rank" or "callback").

    References
    ----------
    S. Zhou, "Sparse LSSVM in primal using Cholesky factorization for large-scale problems",
    IEEE Transactions on Neural Networks and Learning Systems, 2016, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis import Fit
    >>> from leansvm.basis.backfitting import Backfitting
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> blocks = MemoryBlocks(X, np.sin(X))
    >>> selector = Backfitting(n_candidates=20, random_state=0)
    >>> found = selector.select(blocks, Kernel("rbf", gamma=0.5), 5, fit=Fit(C=100.0))
    >>> len(found.indices), bool(np.all(np.diff(found.report["objective"]) < 0))
    (5, True)
    """

    uses_targets = True

    @property
    def runs_where_rows_are(self) -> bool:
        """Whether rows of any array library will do."""
        return self.keep_pool

    def state_columns(self, n_basis: int) -> int:
        """Columns kept for every row: P, the candidates, D, weights and one output's residual."""
        return n_basis + self.n_candidates + 3

    @property
    def _competition(self) -> type[Candidates]:
        return Rounds if self.keep_pool else _ByObjective


class _ByObjective(OneByOne):
    """Candidates that gain what they lower the objective of the fit by, divided by C."""

    def start(self) -> None:
        """Begin with the fit on no basis."""
        self.ridge = GrowingRidge(self.blocks, self.fit, self.capacity)
        self._update: Move | None = None  # change of the fit that the blocks do not know yet
        self._sums = np.zeros(len(self.pool.rows))  # s'K_Mj

    def report(self, gains: Array) -> dict[str, Any]:
        """Return the objective after each step."""
        return {"objective": self.ridge.objective[: len(gains)]}

    def gains(self) -> Array:
        """delta_j = |G_j|^2 / (2 mu_j) of every slot, eq. (27)."""
        return gains_of(*self.derivatives())

    def derivatives(self) -> tuple[Array, Array]:
        """Gradient G_j (one column for each output) and curvature mu_j, eq. (22), of every slot."""
        pool, ridge = self.pool, self.ridge
        K_rho, self._sums, squares = self.blocks.sum(
            _scores, self.kernel, self._update, self.refill
        )
        self._update = None
        P = pool.P[:, : ridge.k]
        # not by BLAS: its threads would spin on into the next pass over the blocks
        G = ridge.lam * np.einsum("ij,jk->ik", P, ridge.theta[: ridge.k]) + K_rho
        k_jj = pool.D + np.einsum("ij,ij->i", P, P)
        centred = squares - self._sums * ridge.mean(self._sums)
        return G, ridge.lam * k_jj + np.maximum(centred, 0.0)

    def append(self, slot: int, t: int, row: Array) -> list[InBlock]:
        """Add row t to the basis and fit again."""
        ridge, k = self.ridge, len(row) - 1
        # s'p is known before p is: centring p first loses nothing to cancellation
        shift = float(ridge.mean((self._sums[slot] - ridge.sums[:k] @ row[:k]) / row[k]))
        found = self.blocks.map(_append, slot, t, row, shift, self.pool.rows)
        u, rest, slope = (np.sum([f[i] for f in found], axis=0) for i in range(3))
        total = float(rest) + shift * ridge.n
        u += (shift - ridge.mean(total)) * np.append(ridge.sums[:k], total)
        c, tau = ridge.append(u, total, slope)
        offset = -ridge.mean(ridge.sums[: k + 1] @ c)
        self._update = np.multiply.outer(c, tau), offset * tau
        return [f[3] for f in found]


@declare("X", keeps=CandidateRows, changes=("r", "pool"))
def _scores(
    block: Block, kernel: Kernel, update: Move | None, refill: Refill
) -> tuple[Array, Array, Array]:
    """Bring r and the pool up to date; return K_Mj'r, s'K_Mj and K_Mj'S K_Mj of every slot."""
    state = block.kept(CandidateRows)
    if update is not None:
        move_gradient(block, *update)
    bring_in(block, kernel, refill)
    return state.pool @ state.r, state.pool @ state.s, np.square(state.pool) @ state.s


@declare(keeps=FactorRows, changes=("D",), appends=("P",), light=False)
def _append(
    block: Block, slot: int, t: int, row: Array, shift: float, rows: Rows
) -> tuple[Array, float, Array, InBlock]:
    """Append p = (K_Mt - P P_t') / sqrt(D_t), ``row`` being [P_t, sqrt(D_t)].

    Returns, with q = S (p - shift), [P, p]'q, the sum of q, p'r and the candidates' rows of P.
    """
    state, P, k = block.kept(CandidateRows), block.kept(FactorRows).P, len(row) - 1
    p = (state.pool[slot] - P[:, :k] @ row[:k]) / row[k]
    add_column(block, p, k, t)
    q = state.s * (p - shift)
    return q @ P[:, : k + 1], float(q.sum()), p @ state.r, rows_of_basis(block, rows, k + 1)
