"""Forward selection for any smooth loss (Keerthi, Chapelle and DeCoste 2006): "well-chosen".

The gain of a candidate j is the decrease of the objective by one Newton step on its coefficient and
the bias: (g_j - c_j g_b / w)^2 / (2 (h_j - c_j^2 / w)) with lam = 1/C, slack u and
g_j = lam F_j - sum s side L' K_ij, h_j = lam K_jj + sum s L'' K_ij^2, c_j = sum s L'' K_ij and
w = sum s L''. All coefficients are fitted again when the basis has grown by a fifth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from leansvm._array_api import to_host
from leansvm.basis.candidates.best_of import (
    CandidateRows,
    CandidateSelector,
    InBlock,
    OneByOne,
    add_column,
    bring_in,
    rows_of_basis,
)
from leansvm.basis.candidates.pool import Array, Refill
from leansvm.basis.cholesky.growing import FactorRows
from leansvm.basis.selector import Basis, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare

_COPY = 1e-9  # relative squared distance in feature space below which a row is a copy
_TINY = float(np.finfo(np.float64).tiny)


class _Forward(OneByOne):
    """The gain of a candidate is its decrease of the objective, divided by C."""

    def start(self) -> None:
        """Begin with f = 0."""
        fit = self.fit
        self.lam = 1.0 / fit.C
        self.has_bias = bool(np.isfinite(fit.bias_penalty))
        self.whitened = fit.regularizer == "rkhs"
        self.model = replace(fit, loss=fit.loss.smoothing_path()[0], refit=None)  # for the passes
        self.outputs = self.blocks.map(_begin)[0]
        self.theta = np.zeros((self.capacity, self.outputs))
        self.b = np.zeros(self.outputs)
        self.k = 0
        self.objective: list[float] = []

    def report(self, gains: Array) -> dict[str, Any]:
        """Return the objective after each fit of all coefficients."""
        return {"objective": self.objective}

    def gains(self) -> Array:
        """Decrease by one Newton step on a candidate's coefficient, of every slot."""
        K_g, K_h, KK_h, total_g, total_h = self.blocks.sum(
            _scores, self.kernel, self.model, self.refill
        )
        self.refill = Refill()
        pool, k = self.pool, self.k
        P = pool.P[:, :k]
        if self.whitened:  # the regulariser's slope and curvature along k(x_j, .)
            slope = np.einsum("ij,jo->io", P, self.theta[:k])
            k_jj = pool.D + np.einsum("ij,ij->i", P, P)
            g, h = self.lam * slope - K_g, self.lam * k_jj[:, None] + KK_h
        else:
            g, h = -K_g, self.lam + KK_h
        g_b, w = np.zeros(self.outputs), np.zeros(self.outputs)
        if self.has_bias:
            g_b = self.lam * self.fit.bias_penalty * self.b - total_g
            w = self.lam * self.fit.bias_penalty + total_h
        # if the loss is curved at no row, the bias does not move
        with_bias = w > 0
        safe = np.where(with_bias, w, 1.0)
        shift, c = np.where(with_bias, g_b / safe, 0.0), np.where(with_bias, K_h, 0.0)
        top, bottom = g - c * shift, np.maximum(h - c * c / safe, 1e-12 * h + _TINY)
        self._steps = -top / bottom
        self._bias_steps = -shift - c * self._steps / safe
        return np.asarray(0.5 * np.sum(top * top / bottom, axis=1))

    def append(self, slot: int, t: int, row: Array) -> list[InBlock]:
        """Add row t to the basis and move its coefficient; fit all of them now and then."""
        k, step, bias_step = len(row) - 1, self._steps[slot], self._bias_steps[slot]
        self.blocks.map(_append, self.model, slot, t, row, step, bias_step)
        self.k = k + 1
        if self.whitened:
            self.theta[: k + 1] += np.multiply.outer(row, step)
        else:
            self.theta[k] = step
        self.b += bias_step
        if self.k < self.capacity and _is_a_stop(self.k):
            self._refit()
        return self.blocks.map(rows_of_basis, self.pool.rows, self.k)

    def _refit(self) -> None:
        """Fit all coefficients, from where they are."""
        k, fit = self.k, self.fit
        start = np.vstack([self.theta[:k], self.b]) if self.has_bias else self.theta[:k]
        assert fit.refit is not None
        model: Any = {"loss": self.model.loss, "C": fit.C, "bias_penalty": fit.bias_penalty}
        theta, objective = fit.refit(self.blocks, k, start, **model, margin=fit.margin)
        self.theta[:k] = theta[:k]
        if self.has_bias:
            self.b = theta[-1].copy()
        self.objective.append(objective)
        self.blocks.map(_set_values, self.theta[:k], self.b)


class ForwardSelection(CandidateSelector):
    """Basis rows that lower the model's own objective most, one at a time.

    Each step looks at ``n_candidates`` random rows and takes the one whose coefficient would lower
    the objective most. All coefficients are fitted again at the sizes 1 to 8, 10, 12, 14, 16, 20,
    23, 27, 32, ..., where floor(4 log2 k) changes.

    Parameters
    ----------
    n_candidates : int, default=59
        Rows looked at in a step. The best of 59 is among the best 5 % with probability 0.95.
    tol : float, default=0.0
        Stop when the best candidate lowers the objective, divided by C, by no more than this.
    keep_pool : bool, default=True
        Keep the better two thirds of the candidates, with their kernel columns, for the next
        step. False draws all of them anew, as the authors do; that is slower.
    random_state : int, RandomState instance or None, default=None
        Seed for the order of the candidates; None uses that of the estimator.

    Notes
    -----
    Sharp losses (Huber, logistic) are solved in stages; the selection uses the first, smoothest
    stage, because the curvature of a sharp loss says little about a step of finite length. Rows of
    zero weight and rows that the basis already represents up to rounding are never chosen. The
    ``report`` of the selection has the predicted decrease of each step divided by C (``"gain"``),
    the objective after each fit of all coefficients (``"objective"``) and why it ended
    (``"stop"``).

    References
    ----------
    S. S. Keerthi, O. Chapelle and D. DeCoste, "Building support vector machines with reduced
    classifier complexity", Journal of Machine Learning Research 7, 2006.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from leansvm import ReducedSVC
    >>> from leansvm.basis import ForwardSelection
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> basis = ForwardSelection(n_candidates=20)
    >>> model = ReducedSVC(C=100, basis=basis, n_basis=10, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.98)
    True
    """

    uses_targets = True
    _competition = _Forward

    def state_columns(self, n_basis: int) -> int:
        """Columns kept for every row: P and a copy while fitting, candidates, D, f and slopes."""
        return 2 * n_basis + self.n_candidates + 6

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        if fit.refit is None:
            raise ValueError(
                "ForwardSelection needs a function that fits all coefficients again: pass "
                "fit=Fit(C, ..., refit=leansvm.newton.refit.refit)."
            )
        found = super()._choose(blocks, kernel, n_basis, rng, fit, on_step)
        if fit.regularizer == "coef":  # P was K_MB, not whitened
            blocks.map(_forget)
            return replace(found, L=None)
        return found


def _is_a_stop(k: int) -> bool:
    return k < 2 or int(4 * np.log2(k)) > int(4 * np.log2(k - 1))


# ---------------------------------------------------------------------------- passes


@declare("y", keeps=CandidateRows)
def _begin(block: Block) -> int:
    """Set f = 0; return the number of outputs."""
    outputs = int(block.y.shape[1])
    block.kept(CandidateRows).f = np.zeros((outputs, block.stop - block.start))
    return outputs


@declare(keeps=CandidateRows, light=False)
def _set_values(block: Block, theta: Array, b: Array) -> None:
    """Compute f of the coefficients anew."""
    P = block.kept(FactorRows).P[:, : len(theta)]
    block.kept(CandidateRows).f = (P @ theta + b).T


@declare("X", "y", keeps=CandidateRows, changes=("pool",))
def _scores(
    block: Block, kernel: Kernel, model: Fit, refill: Refill
) -> tuple[Array, Array, Array, Array, Array]:
    """Bring in new columns; return K'g, K'h, (K*K)'h of the pool, sums of g and h.

    g = s side L'(u) and h = s L''(u).
    """
    bring_in(block, kernel, refill)
    state = block.kept(CandidateRows)
    y = np.asarray(to_host(block.y), dtype=np.float64)
    side = y if model.margin else np.ones_like(y)
    u = side * (y - state.f.T)
    s = state.s[:, None]
    g, h = s * side * model.loss.derivative(u), s * model.loss.second_derivative(u)
    pool = state.pool
    return pool @ g, pool @ h, np.square(pool) @ h, g.sum(axis=0), h.sum(axis=0)


@declare(keeps=(CandidateRows, FactorRows), changes=("f", "D"), appends=("P",), light=False)
def _append(
    block: Block, model: Fit, slot: int, t: int, row: Array, step: Array, bias_step: Array
) -> None:
    """Append the column of row t to P; move f by the step on its coefficient."""
    state, known, k = block.kept(CandidateRows), block.kept(FactorRows), len(row) - 1
    column = state.pool[slot]
    state.f += np.multiply.outer(step, column) + bias_step[:, None]
    if model.regularizer == "rkhs":
        add_column(block, (column - known.P[:, :k] @ row[:k]) / row[k], k, t)
        return
    known.P[:, k] = column
    largest = row[k] ** 2  # D holds k(x, x) of all rows that are no copy of a basis point
    known.D[known.D + largest - 2 * column <= _COPY * largest] = 0.0
    if block.start <= t < block.stop:
        known.D[t - block.start] = 0.0


@declare(keeps=FactorRows)
def _forget(block: Block) -> None:
    block.state.pop(FactorRows, None)
