"""The squared-loss fit on a basis that grows by a column at a time (zhou2016, eqs. (29), (30)).

theta minimises lam |theta|^2 + (y - P theta)' S cen(y - P theta), lam = 1 / C, with
cen(z) = z - s'z / (n + bias_penalty / C). The factor is R'R = lam I + P' S cen(P): that of A_BB
itself, as printed, has the condition squared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtpsv

from leansvm._array_api import as_float64, like_rows, namespace
from leansvm.basis._base import Fit
from leansvm.basis.candidates.best_of import CandidateRows
from leansvm.basis.cholesky.rows import FactorRows
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]
# What the fit moved by: the change of theta, and of the bias that centring stands for.
Move = tuple[Array, Array]
Mark = tuple[int, Array, float]  # columns, theta and what is left of y: a fit to return to


class GrowingRidge:
    """The fit on the basis so far; the blocks keep its gradient ``r`` = S cen(P theta - y)."""

    def __init__(self, blocks: RowBlocks, fit: Fit, capacity: int) -> None:
        self.lam = 1.0 / fit.C
        self.n, sum_y = blocks.sum(_sums_of_targets)
        self._spread = self.n + fit.bias_penalty / fit.C
        mean = sum_y / self._spread
        penalty = fit.bias_penalty / fit.C * (mean @ mean) if np.isfinite(self._spread) else 0.0
        self._left = float(blocks.sum(_start_gradient, mean)) + penalty  # y' S cen(y)
        self.k = 0  # columns so far
        self.theta = np.zeros((capacity, len(sum_y)))  # 0 beyond row k
        self.sums = np.zeros(capacity)  # s'P
        self.objective = np.zeros(capacity)  # of the model, after each column
        self._R = np.empty(capacity * (capacity + 1) // 2)  # upper triangle, packed

    def mean(self, total: Any) -> Any:
        """What centring takes off a column with the sum s'z = ``total``."""
        return total / self._spread

    def append(self, u: Array, total: float, slope: Array) -> tuple[Array, Array]:
        """Fit again with one more column p; return c and tau: theta moved by outer(c, tau).

        ``u`` is [P, p]' S cen(p), ``total`` s'p, and ``slope`` p'r at the fit without p.
        """
        k = self.k
        self.sums[k] = total
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
        return c, tau

    def mark(self) -> Mark:
        """Return what `rewind` needs to come back to this fit."""
        return self.k, self.theta.copy(), self._left

    def rewind(self, mark: Mark) -> None:
        """Forget the columns since ``mark``."""
        self.k, self.theta[...], self._left = mark


@declare(keeps=CandidateRows, changes=("r",), light=False)
def move_gradient(block: Block, along: Array, offset: Array) -> None:
    """Bring r up to date with a fit that moved by P ``along`` + ``offset``."""
    P, state = block.kept(FactorRows).P, block.kept(CandidateRows)
    move = P[:, : len(along)] @ like_rows(along, P)
    move += like_rows(offset, P)
    move *= state.s[:, None]
    state.r += move


@declare("y")
def _sums_of_targets(block: Block) -> tuple[float, Any]:
    s, y = block.kept(CandidateRows).s, as_float64(block.y)
    return float(namespace(s).sum(s)), s @ y


@declare("y", keeps=CandidateRows)
def _start_gradient(block: Block, mean: Array) -> float:
    """Keep r = -S cen(y), the gradient at theta = 0; return the sum of s cen(y)^2."""
    state = block.kept(CandidateRows)
    y = as_float64(block.y) - like_rows(mean, state.s)
    state.r = -state.s[:, None] * y
    return -float(namespace(y).sum(state.r * y))
