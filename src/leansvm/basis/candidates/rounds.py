"""Backfitting in rounds: several points in one pass over the rows.

One at a time, every point would read all of P. But products of the candidates' columns are enough
to compute what a point changes: with Q = K'S cen(K), U = K'S cen(P) of the pool and
M = P'S cen(P), point t with row l of L (l = P_t, d = sqrt(D_t)) adds the column

    p = (K_t - P l') / d,  K'S cen(p) = (Q_t - U l') / d,  P'S cen(p) = (U_t' - M l') / d

to U and M. A round computes these products from the rows once, as matrix products. It picks its
points as single steps would, and appends their columns to P together. Then it fits again with
products of the columns themselves, so that rounding in the formulas above affects neither theta nor
the objective. Each new candidate is the best of several rows by its gain at the present fit, which
needs no products with P. If candidates are not kept, a round is one point and needs no products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.blas import dtpsv

from leansvm._array_api import as_float64, like_rows, namespace, rows_at, to_host
from leansvm._parallel import limited_blas
from leansvm.basis.candidates.best_of import (
    CandidateRows,
    Candidates,
    bring_in,
    kernel_columns,
    rows_of_basis,
)
from leansvm.basis.candidates.pool import Array, Refill, Rows, by_score
from leansvm.basis.cholesky.growing import (
    FactorRows,
    PartialCholesky,
    append,
    factor_rows,
    residual_of,
)
from leansvm.basis.selector import Basis, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare

# A round ends when rounding may have changed the root of a gain by this share: a thousandth of the
# difference that decides between gains (`leansvm.basis.candidates.pool`).
_NOISE = 1e-8
_SCREENED = 4  # rows looked at for one that joins the pool
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
# What the fit moved by: the change of theta, and of the bias that centring stands for.
Move = tuple[Array, Array]
Mark = tuple[int, Array, float]  # number of columns, theta and what is left of y


class Rounds(Candidates):
    """A pool of candidates, the fit, and the products that tell what a candidate gains."""

    def start(self) -> None:
        """Begin with the fit on no basis."""
        size = len(self.pool.rows)
        # most points of a round; one if all candidates are drawn anew for every point
        self._length = max(1, self.n_candidates // 5) if self.keep else 1
        self.ridge = GrowingRidge(self.blocks, self.fit, self.capacity)
        self._move: Move | None = None  # of the fit, since r was up to date
        self._sums = np.zeros(size)  # s'K
        self._Q = np.zeros((size, size))
        self._U = np.zeros((size, self.capacity))
        self._M = np.zeros((self.capacity, self.capacity))
        self._indices = np.empty(self.capacity, np.intp)
        self._gain = np.empty(self.capacity)
        self._L = np.zeros((self.capacity, self.capacity))

    def choose(self, on_step: OnStep) -> Basis:
        """Choose up to ``n_basis`` rows; stop when the best gain is at most ``tol``."""
        ridge, stop = self.ridge, None if self.capacity else "n_basis"
        self.draw(0)
        while stop is None:
            self._look()
            if not self.pool.usable.any():
                stop = None if self.draw_missed(ridge.k) else "rank"
                continue
            start = ridge.mark()
            with limited_blas():
                slots, scores, stop = self._pick(on_step)
            if slots:
                self._append(slots, start)
            if stop is None and self.keep:
                part = len(slots) / self._length  # a short round has used few candidates
                self.refill = self.pool.replace_worst(slots, scores, self._best_of_new, part)
            elif stop is None:
                self.refill = self.pool.replace_all(slots)
        gain, objective = self._gain[: ridge.k], ridge.objective[: ridge.k]
        found = self._indices[: ridge.k]
        return self.found(found, self._L, gain=gain, stop=stop, objective=objective)

    # ------------------------------------------------------------------ what the rows tell

    def _look(self) -> None:
        """Bring the pool's columns and the products with them up to date."""
        pool, ridge, slots, k = self.pool, self.ridge, self.refill.slots, self.ridge.k
        products = self.blocks.sum(_look, self.kernel, self._move, self.refill, k, self.keep)
        self._slope, sums, Q, U = products
        self._move, self.refill, self._sums[slots] = None, Refill(), sums
        mean = ridge.mean(sums)
        if self.keep:
            Q -= np.multiply.outer(mean, self._sums)
            self._Q[slots] = Q
            self._Q[:, slots] = Q.T
            self._U[slots, :k] = U - np.multiply.outer(mean, ridge.sums[:k])
        else:
            np.fill_diagonal(self._Q[slots, slots], Q - mean * sums)
        rows = np.maximum(pool.rows, 0)  # empty slots: any row
        P = factor_rows(self.blocks, rows, k)
        H = residual_of(self.kernel, self.blocks.take(rows), P, rows)
        pool.P[:, :k] = to_host(P)
        self._among = PartialCholesky(H, self._length)
        k_jj = self._among.D + np.einsum("ij,ij->i", pool.P[:, :k], pool.P[:, :k])
        self._mu = ridge.lam * k_jj + np.maximum(self._Q.diagonal(), 0.0)
        pool.look_at(self._among.D, k)

    def _append(self, slots: list[int], start: Mark) -> None:
        """Append the columns of the picked rows to P and fit again, by products of these."""
        ridge, (k, theta, _), end = self.ridge, start, self.ridge.k
        shift = ridge.mean(ridge.sums[k:end])  # nearly exact: centring first loses no digits
        rows = np.asfortranarray(self._L[k:end, :end])
        new = slots, rows, k, self._indices[k:end], shift
        M, rest, U, slope = self.blocks.sum(_append, *new, self.keep)
        ridge.rewind(start)
        sums = rest + shift * ridge.n
        beyond = shift - ridge.mean(sums)
        M += np.multiply.outer(np.append(ridge.sums[:k], sums), beyond)
        if self.keep:
            self._U[:, k:end] = U + np.multiply.outer(self._sums, beyond)
        self._M[:end, k:end], self._M[k:end, :k] = M, M[:k].T
        for i in range(end - k):
            c, tau = ridge.append(M[: k + i + 1, i], sums[i], slope[i])
            slope[i + 1 :] += np.multiply.outer(c @ M[: k + i + 1, i + 1 :], tau)
        move = ridge.theta[:end] - theta[:end]
        self._move = move, -ridge.mean(ridge.sums[:end] @ move)

    def _best_of_new(self, count: int) -> Rows:
        """Draw rows; return those that gain most at the fit as it is."""
        pool, ridge, k = self.pool, self.ridge, self.ridge.k
        rows = pool.stream.draw(_SCREENED * count)
        if not len(rows):
            return rows
        X = self.blocks.take(rows)
        slope, sums, squares, F, k_jj = self.blocks.sum(
            _screen, self.kernel, self._move, X, rows, ridge.theta[:k]
        )
        self._move = None
        G = slope + ridge.lam * F
        mu = np.maximum(squares - sums * ridge.mean(sums), 0.0) + ridge.lam * k_jj
        best = by_score(-gains_of(G, mu), rows)
        pool.stream.give_back(rows[best[count:]])
        return rows[best[:count]]

    # ------------------------------------------------------------------ among the candidates

    def _pick(self, on_step: OnStep) -> tuple[list[int], Array, str | None]:
        """Pick the points of a round; return their slots, the scores and why to stop, if at all."""
        pool, ridge, slots = self.pool, self.ridge, self._among.picked
        noise, scores, stop = 0.0, np.zeros(len(pool.rows)), None
        while len(slots) < self._among.most and stop is None:
            G, mu = self.derivatives()
            gains = gains_of(G, mu)
            slot = pool.best(gains)
            if slot is None or noise > _NOISE * np.sqrt(gains[slot]):
                break
            if ridge.k and gains[slot] <= self.tol:
                return slots, scores, "tol"
            scores = gains
            noise += self._take(slot, G[slot]) * np.sqrt(gains[slot])
            self._gain[ridge.k - 1] = gains[slot]
            if on_step(ridge.k):
                stop = "callback"
            elif ridge.k == self.capacity:
                stop = "n_basis"
        return slots, scores, stop

    def derivatives(self) -> tuple[Array, Array]:
        """Gradient G_j (one column for each output) and curvature mu_j, eq. (22), of every slot."""
        k = self.ridge.k
        F = self.pool.P[:, :k] @ self.ridge.theta[:k]
        return self.ridge.lam * F + self._slope, self._mu

    def _take(self, slot: int, G: Array) -> float:
        """Add a candidate to the fit; return how far rounding may have changed the result."""
        pool, ridge, k = self.pool, self.ridge, self.ridge.k
        U, M, D = self._U, self._M, self._among.D[slot]
        self._among.take(slot)
        pool.P[:, k] = self._among.columns[:, len(self._among.picked) - 1]
        self._indices[k], self._L[k, : k + 1] = pool.rows[slot], pool.P[slot, : k + 1]
        pool.rounding.add(self._L[k, : k + 1])
        row, d = self._L[k, :k], self._L[k, k]
        total = (self._sums[slot] - ridge.sums[:k] @ row) / d
        if not self.keep:  # no further points in this round: `_append` fits again
            ridge.sums[k], ridge.k = total, k + 1
            return 0.0
        U[:, k] = (self._Q[slot] - U[:, :k] @ row) / d
        M[:k, k] = M[k, :k] = (U[slot, :k] - M[:k, :k] @ row) / d
        M[k, k] = (U[slot, k] - M[k, :k] @ row) / d
        c, tau = ridge.append(M[: k + 1, k], total, G / d)  # P'r = -lam theta: p'r = G / d
        self._slope += np.multiply.outer(U[:, : k + 1] @ c, tau)
        pool.look_at(self._among.D, k + 1)
        square = self._Q[slot, slot] + self._sums[slot] * ridge.mean(self._sums[slot])
        return float(_EPS * square / D * c[k] ** 2)


class GrowingRidge:
    """The squared-loss fit on a basis that grows by a column (zhou2016, eqs. (29), (30)).

    theta minimises lam |theta|^2 + (y - P theta)' S cen(y - P theta), lam = 1 / C, with
    cen(z) = z - s'z / (n + bias_penalty / C). The factor is R'R = lam I + P' S cen(P); the matrix
    A_BB that the paper factors has the square of its condition number. The blocks keep the
    gradient r = S cen(P theta - y).
    """

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
        """Return what centring subtracts from a column with the sum s'z = ``total``."""
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


def gains_of(G: Array, mu: Array) -> Array:
    """delta_j = |G_j|^2 / (2 mu_j), eq. (27)."""
    return np.asarray(np.einsum("ij,ij->i", G, G) / (2 * np.maximum(mu, _TINY)))


@declare("X", keeps=CandidateRows, changes=("r",))
def _screen(
    block: Block, kernel: Kernel, move: Move | None, X: Any, rows: Rows, theta: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Bring r up to date; return K'r, s'K and K'SK of rows, and of those here F and k(x, x)."""
    state = block.kept(CandidateRows)
    if move is not None:
        move_gradient(block, *move)
    K = kernel_columns(block, kernel, X, rows)
    slope, sums = K.T @ state.r, state.s @ K
    K *= K
    slope, sums, squares = to_host((slope, sums, state.s @ K))
    mine, P, D = rows_of_basis(block, rows, len(theta))
    F, k_jj = np.zeros_like(slope), np.zeros_like(sums)
    F[mine], k_jj[mine] = P @ theta, D + np.einsum("ij,ij->i", P, P)
    return slope, sums, squares, F, k_jj


@declare("X", keeps=CandidateRows, changes=("r", "pool"))
def _look(
    block: Block, kernel: Kernel, move: Move | None, refill: Refill, k: int, compare: bool
) -> tuple[Any, Any, Any, Any]:
    """Bring r and the pool up to date; return K'r, and s'K, K'SK, K'SP of the new columns.

    Where only one point is taken, K'SK is its diagonal, and K'SP is not needed.
    """
    state, P = block.kept(CandidateRows), block.kept(FactorRows).P
    if move is not None:
        move_gradient(block, *move)
    new = bring_in(block, kernel, refill)
    slope = state.pool @ state.r
    if not compare:
        return slope, new @ state.s, (new * new) @ state.s, 0.0
    weighted = new * state.s
    sums = namespace(weighted).sum(weighted, axis=1)
    return slope, sums, weighted @ state.pool.T, weighted @ P[:, :k]


@declare("weight", keeps=FactorRows, changes=("D",), appends=("P",), light=False)
def _append(
    block: Block, slots: list[int], rows: Array, k: int, indices: Rows, shift: Array, compare: bool
) -> tuple[Any, Any, Any, Any]:
    """Append columns N to P; return, with q = S (N - shift), P'q, the sum of q, K'q and N'r.

    K'q is computed only where candidates stay.
    """
    state = block.kept(CandidateRows)
    append(block, rows_at(state.pool, slots), rows, k, indices)
    P = block.kept(FactorRows).P[:, : k + len(rows)]
    new = P[:, k:]
    q = new - like_rows(shift, new)
    q *= state.s[:, None]
    U = state.pool @ q if compare else 0.0
    return P.T @ q, namespace(q).sum(q, axis=0), U, new.T @ state.r


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
