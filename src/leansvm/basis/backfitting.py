"""Backfitting (ICP): the best of a few random rows for the fit itself (zhou2016, Algorithm 2).

A candidate j is worth delta_j = |G_j|^2 / (2 mu_j), eqs. (22) and (27), with the gradient
G_j = lam F_j + K_Mj' S rho of (20) at the current fit F = P theta, rho = cen(F - y). So a
candidate costs O(m) once its kernel column is there; only the chosen one needs u_t of (21).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.blas import dtpsv

from leansvm.basis._base import BasisSelector, Fit, Selection
from leansvm.basis._best_of import Candidates, Found, add_column, bring_in, rows_of_basis
from leansvm.basis._pool import Array, Refill, Rows, waiting_room
from leansvm.blocks import Block, RowBlocks
from leansvm.kernels import Kernel

# A change of the fit: rho moves by outer(P c + offset, tau).
_Update = tuple[Array, float, Array]
_TINY = float(np.finfo(np.float64).tiny)


class Backfitting(BasisSelector):
    """Basis rows that lower the model's squared-loss objective most, one at a time (ICP).

    Each step looks at ``n_candidates`` random rows and takes the one whose coefficient, added to
    the fit, lowers the objective most; then all coefficients are fitted again.

    Parameters
    ----------
    n_candidates : int, default=59
        Rows looked at in a step. The best of 59 is among the best 5 % with probability 0.95, the
        best of 22 among the best 10 % with probability 0.9.
    tol : float, default=0.0
        Stop when the best candidate lowers the objective, divided by C, by no more than this.
    keep_pool : bool, default=True
        Keep the better two thirds of the candidates, with their kernel columns, for the next
        step. False draws all of them anew, as the paper does; that is slower.
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
    >>> from leansvm.blocks import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> blocks = MemoryBlocks(X, np.sin(X))
    >>> selector = Backfitting(n_candidates=20, random_state=0)
    >>> found = selector.select(blocks, Kernel("rbf", gamma=0.5), 5, fit=Fit(C=100.0))
    >>> len(found.indices), bool(np.all(np.diff(found.report["objective"]) < 0))
    (5, True)
    """

    nested = True
    uses_targets = True

    def __init__(
        self,
        n_candidates: int = 59,
        tol: float = 0.0,
        keep_pool: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_candidates = n_candidates
        self.tol = tol
        self.keep_pool = keep_pool
        self.random_state = random_state

    def state_columns(self, n_basis: int) -> int:
        """Columns kept for every row: P, the candidates, D, weights and one output's residual."""
        waiting = waiting_room(self.n_candidates) if self.keep_pool else 0
        return n_basis + self.n_candidates + waiting + 3

    def select(
        self,
        blocks: RowBlocks,
        kernel: Kernel,
        n_basis: int,
        *,
        random_state: Any = None,
        fit: Fit | None = None,
        on_step: Callable[[int], bool] | None = None,
    ) -> Selection:
        """Choose up to ``n_basis`` rows; see `BasisSelector.select`."""
        if fit is None:
            raise ValueError("Backfitting needs the model's C and bias: pass fit=Fit(C, ...).")
        candidates = _Fitted(
            blocks, kernel, n_basis, self.n_candidates, self.keep_pool, self._rng(random_state)
        )
        candidates.start(fit)
        found = candidates.choose(self.tol, on_step)
        found.report["objective"] = candidates.ridge.objective[: len(found.indices)]
        return found


class _Ridge:
    """The fit on the basis so far: min lam |theta|^2 + (y - P theta)' S cen(y - P theta).

    It grows by a column at a time with R, R'R = lam I + P' S cen(P), a packed upper triangle.
    cen(z) = z - s'z / (n + bias_penalty / C).
    """

    def __init__(self, blocks: RowBlocks, fit: Fit, capacity: int) -> None:
        self.lam = 1.0 / fit.C
        self.n, sum_y = blocks.sum(_sums_of_targets)
        self._spread = self.n + fit.bias_penalty / fit.C
        mean = sum_y / self._spread
        penalty = fit.bias_penalty / fit.C * (mean @ mean) if np.isfinite(self._spread) else 0.0
        self._left = float(blocks.sum(_start_residual, mean)) + penalty  # y' S cen(y)
        self.k = 0
        self.theta = np.zeros((capacity, len(sum_y)))
        self.sums = np.zeros(capacity)  # s'P
        self.objective = np.zeros(capacity)
        self._R = np.empty(capacity * (capacity + 1) // 2)

    def mean(self, total: Any) -> Any:
        """What centring takes off a column with the sum s'z = ``total``."""
        return total / self._spread

    def append(self, u: Array, total: float, shift: float, slope: Array) -> _Update:
        """Fit again with one more column p.

        Parameters
        ----------
        u : ndarray of shape (k + 1,)
            [P, p]' S (p - shift).
        total, slope : float, ndarray of shape (n_outputs,)
            s'p, and p' S rho at the fit without p.
        """
        k = self.k
        self.sums[k] = total
        u = u + (shift - self.mean(total)) * self.sums[: k + 1]  # [P, p]' S cen(p)
        R = self._R[: k * (k + 1) // 2]
        v = dtpsv(k, R, u[:k], trans=1) if k else u[:0]  # R^-T u
        nu = np.sqrt(max(self.lam + u[k] - v @ v, self.lam))
        self._R[len(R) : len(R) + k + 1] = np.append(v, nu)
        # (30): theta moves by tau along c = (-R^-1 v, 1) / nu
        c = np.append(-dtpsv(k, R, v) if k else v, 1.0) / nu
        tau = -slope / nu
        self.theta[: k + 1] += np.multiply.outer(c, tau)
        self._left -= float(tau @ tau)
        self.objective[k] = 0.5 * max(self._left, 0.0) / self.lam
        self.k = k + 1
        return c, -self.mean(self.sums[: k + 1] @ c), tau


class _Fitted(Candidates):
    """Candidates that gain what they lower the objective of the fit by, divided by C."""

    def start(self, fit: Fit) -> None:
        """Begin with the fit on no basis."""
        self.ridge = _Ridge(self.blocks, fit, self.capacity)
        self._update: _Update | None = None  # change of the fit that the blocks do not know yet
        # s'K_Mj and K_Mj' S K_Mj of the columns in the blocks
        size = len(self.pool.rows)
        self._sums = {"pool": np.zeros((2, size)), "waiting": np.zeros((2, waiting_room(size)))}

    def gains(self) -> Array:
        """delta_j = |G_j|^2 / (2 mu_j) of every slot, eq. (27)."""
        G, mu = self.derivatives()
        return np.asarray(np.einsum("ij,ij->i", G, G) / (2 * np.maximum(mu, _TINY)))

    def derivatives(self) -> tuple[Array, Array]:
        """Gradient G_j (one column an output) and curvature mu_j, eq. (22), of every slot."""
        pool, ridge, refill = self.pool, self.ridge, self.refill
        K_rho, sums = self.blocks.sum(_scores, self.kernel, self._update, refill)
        self._update, self.refill = None, Refill()
        self._sums[refill.into][:, : sums.shape[1]] = sums
        self._sums["pool"][:, refill.slots] = self._sums["waiting"][:, refill.waited]
        P = pool.P[:, : ridge.k]
        # not by BLAS: its threads would spin on into the next pass over the blocks
        G = ridge.lam * np.einsum("ij,jk->ik", P, ridge.theta[: ridge.k]) + K_rho
        total, square = self._sums["pool"]
        k_jj = pool.D + np.einsum("ij,ij->i", P, P)
        return G, ridge.lam * k_jj + np.maximum(square - total * ridge.mean(total), 0.0)

    def append(self, slot: int, t: int, row: Array) -> list[Found]:
        """Add row t to the basis and fit again."""
        ridge, k = self.ridge, len(row) - 1
        # s'p is known before p is: centring p first loses nothing to cancellation
        total = (self._sums["pool"][0, slot] - ridge.sums[:k] @ row[:k]) / row[k]
        shift = float(ridge.mean(total))
        found = self.blocks.map(_append, slot, t, row, shift, self.pool.rows)
        u, rest, slope = (np.sum([f[i] for f in found], axis=0) for i in range(3))
        self._update = ridge.append(u, float(rest) + shift * ridge.n, shift, slope)
        return [f[3] for f in found]


def _sums_of_targets(block: Block) -> tuple[float, Array]:
    y = np.asarray(block.y, dtype=np.float64)
    return float(block.state["s"].sum()), block.state["s"] @ y


def _start_residual(block: Block, mean: Array) -> float:
    """State "r" = S rho = -S cen(y); return the sum of s cen(y)^2."""
    y = np.asarray(block.y, dtype=np.float64) - mean
    block.state["r"] = -block.state["s"][:, None] * y
    return -float(np.vdot(block.state["r"], y))


def _scores(
    block: Block, kernel: Kernel, update: _Update | None, refill: Refill
) -> tuple[Array, Array]:
    """Bring r = S rho and the pool up to date; return K_Mj' r, and s'K and K'SK of new columns."""
    state = block.state
    r, s = state["r"], state["s"]
    if update is not None:
        c, offset, tau = update
        w = state["P"][:, : len(c)] @ c
        w += offset
        w *= s
        r += np.multiply.outer(w, tau)
    new = bring_in(block, kernel, refill)
    sums = np.empty((2, 0)) if new is None else np.stack([new @ s, np.square(new) @ s])
    return state["pool"] @ r, sums


def _append(
    block: Block, slot: int, t: int, row: Array, shift: float, rows: Rows
) -> tuple[Array, float, Array, Found]:
    """Append p = (K_Mt - P P_t') / sqrt(D_t), ``row`` being [P_t, sqrt(D_t)].

    Returns, with q = S (p - shift), [P, p]'q, the sum of q, p'r and the candidates' rows of P.
    """
    state, k = block.state, len(row) - 1
    P = state["P"]
    p = state["pool"][slot] - P[:, :k] @ row[:k]
    p /= row[k]
    add_column(block, p, k, t)
    q = (p - shift) * state["s"]
    return q @ P[:, : k + 1], q.sum(), p @ state["r"], rows_of_basis(block, rows, k + 1)
