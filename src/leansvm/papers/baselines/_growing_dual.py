"""Forward selection on the dual of the LS-SVM (Jiao, Bo and Wang 2007; zhou2016, (4), (13)).

With beta zero off B, the gradient of the dual at a row j outside is its error g_j = f(x_j) - y_j;
the next row is argmax g_j^2 / (2 (K_jj + 1 / (C s_j))) over all rows (FSA) or a few random ones
(PFSA). K_BB + diag(1 / (C s)) = L L', p = L^-1 Y_B and q = L^-1 1 grow by one row per step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.utils.random import sample_without_replacement

from leansvm.basis.cholesky.rows import host_diag
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Scores that differ by less than this part of the first largest one count as equal.
_QUANTA = 2.0**36


@dataclass(frozen=True)
class DualCandidate:
    """The best row of those looked at."""

    row: int
    score: float
    largest: float  # largest absolute error of all rows looked at
    error: Array  # g, one number per output
    target: Array
    diagonal: float  # K_jj + 1 / (C s_j)
    v: Array  # L^-1 K_Bj


class GrowingDual:
    """The solution on the rows B, factored so that one more row costs little."""

    def __init__(self, capacity: int, n_outputs: int) -> None:
        self.rows: list[int] = []
        self._L = np.zeros((capacity, capacity))
        self._p = np.empty((capacity, n_outputs))
        self._q = np.empty(capacity)
        self.objectives: list[float] = []  # minus the dual after each row

    @property
    def size(self) -> int:
        """Number of rows in B."""
        return len(self.rows)

    @property
    def L(self) -> Array:
        """The factor."""
        return self._L[: self.size, : self.size]

    @property
    def p(self) -> Array:
        """L^-1 Y_B."""
        return self._p[: self.size]

    @property
    def q(self) -> Array:
        """L^-1 1."""
        return self._q[: self.size]

    @property
    def b(self) -> Array:
        """The bias, q'p / q'q."""
        if self.size == 0:
            return np.zeros(self._p.shape[1])
        return np.asarray(self.q @ self.p / (self.q @ self.q))

    @property
    def beta(self) -> Array:
        """Coefficients of the rows, L^-T (p - q b')."""
        rest = self.p - np.outer(self.q, self.b)
        return np.asarray(solve_triangular(self.L, rest, lower=True, trans="T"))

    def gain(self, row: DualCandidate) -> float:
        """By how much the dual falls when the row joins."""
        sigma = row.diagonal - row.v @ row.v
        if self.size:
            sigma += (1.0 - self.q @ row.v) ** 2 / (self.q @ self.q)
            return float(row.error @ row.error / (2.0 * sigma))
        return 0.0  # one row: beta = 0

    def append(self, row: DualCandidate) -> None:
        """Add a row to B."""
        k, v = self.size, row.v
        square = row.diagonal - v @ v
        if not square > 0:
            raise np.linalg.LinAlgError(f"row {row.row}")
        nu = np.sqrt(square)
        self._L[k, :k], self._L[k, k] = v, nu
        self._p[k] = (row.target - v @ self.p) / nu
        self._q[k] = (1.0 - v @ self.q) / nu
        self.rows.append(row.row)
        # y_B'beta = p'(p - q b')
        explained = np.sum((self.q @ self.p) ** 2) / (self.q @ self.q)
        self.objectives.append(0.5 * float(np.sum(self.p**2) - explained))


class RowSearch(Protocol):
    """Where the next row comes from."""

    def best(self, model: GrowingDual) -> DualCandidate | None:
        """Return the best row outside B, None when there is none."""


# ---------------------------------------------------------------------------- all rows (FSA)


class AllRows:
    """Look at every row: one pass over the blocks per step; blocks keep U = K_MB L^-T."""

    def __init__(self, blocks: RowBlocks, kernel: Kernel, C: float, capacity: int) -> None:
        self._blocks, self._kernel, self._C, self._capacity = blocks, kernel, C, capacity
        self._scale = 0.0

    def best(self, model: GrowingDual) -> DualCandidate | None:
        """Return the best row outside B, None when there is none."""
        k = model.size
        if k == 0:
            start = self._blocks.map(_start, self._kernel, self._C, self._capacity)
            top = max((c.score for c in start if c is not None), default=0.0)
            self._scale = _QUANTA / top if top > 0 else 0.0
            return self._first(start)
        row = np.array(model.rows[-1:], dtype=np.intp)
        point = self._kernel.points(self._blocks.take(row), row)
        found = self._blocks.map(
            _look, self._kernel, point, model.L[-1], model.p[-1], model.q[-1], model.b, row[0]
        )
        return self._first(found)

    def _first(self, found: list[DualCandidate | None]) -> DualCandidate | None:
        """Return the largest score of all blocks; of equal ones the first."""
        candidates = [c for c in found if c is not None]
        if not candidates:
            return None
        keys = [np.rint(c.score * self._scale) for c in candidates]
        best = candidates[int(np.argmax(keys))]
        return replace(best, largest=max(c.largest for c in candidates))


@declare("X", "y", "weight", sets=("open", "diagonal", "U", "Up", "Uq"))
def _start(block: Block, kernel: Kernel, C: float, capacity: int) -> DualCandidate | None:
    """Begin with f = 0."""
    state = block.state
    diagonal = host_diag(kernel, block.X, block.start)
    weight = np.ones(len(diagonal)) if block.weight is None else np.asarray(block.weight)
    state["open"] = weight > 0
    state["diagonal"] = diagonal + 1.0 / (C * np.where(weight > 0, weight, 1.0))
    state["U"] = np.empty((len(diagonal), capacity), order="F")
    state["Up"], state["Uq"] = np.zeros(block.y.shape), np.zeros(len(diagonal))
    return _best_in_block(block, np.zeros(block.y.shape[1]), 0)


@declare("X", "y", changes=("open", "Up", "Uq"), appends=("U",))
def _look(
    block: Block, kernel: Kernel, point: Any, L_row: Array, p: Array, q: float, b: Array, row: int
) -> DualCandidate | None:
    """Append u = (K_Mt - U v) / nu, with f = U p + (1 - U q) b; return the best row outside B."""
    state = block.state
    k = len(L_row) - 1
    u = np.asarray(kernel.block(block.X, point, dtype=np.float64), dtype=np.float64)[:, 0]
    u = (u - state["U"][:, :k] @ L_row[:k]) / L_row[k]
    state["U"][:, k] = u
    state["Up"] += np.outer(u, p)
    state["Uq"] += u * q
    if block.start <= row < block.stop:
        state["open"][row - block.start] = False
    return _best_in_block(block, b, k + 1)


def _best_in_block(block: Block, b: Array, k: int) -> DualCandidate | None:
    state = block.state
    if not state["open"].any():
        return None
    errors = state["Up"] + np.outer(1.0 - state["Uq"], b) - block.y
    i, score, largest = best_of(errors, state["diagonal"], state["open"])
    return DualCandidate(
        block.start + i,
        score,
        largest,
        errors[i],
        np.asarray(block.y[i]),
        float(state["diagonal"][i]),
        state["U"][i, :k].copy(),
    )


def best_of(errors: Array, diagonal: Array, usable: NDArray[np.bool_]) -> tuple[int, float, float]:
    """Return the first row with the largest g^2 / (2 (K + 1/(C s))), its score, the largest |g|."""
    scores = np.where(usable, np.einsum("ij,ij->i", errors, errors) / (2.0 * diagonal), -1.0)
    i = int(np.argmax(scores >= scores.max() * (1.0 - 1.0 / _QUANTA)))
    return i, float(scores[i]), float(np.abs(errors[usable]).max())


# ---------------------------------------------------------------------------- a few rows (PFSA)


class SomeRows:
    """Look at a few random rows per step: the work does not grow with the number of rows."""

    def __init__(
        self, X: Any, Y: Array, weight: Array, kernel: Kernel, C: float, n_candidates: int, rng: Any
    ) -> None:
        self._X, self._Y, self._kernel, self._rng = X, Y, kernel, rng
        self._ridge = 1.0 / (C * np.where(weight > 0, weight, 1.0))
        self._usable = np.flatnonzero(weight > 0)
        self._n_candidates = n_candidates

    def best(self, model: GrowingDual) -> DualCandidate | None:
        """Return the best of the candidates, None when no row is left."""
        rows = self._draw(model)
        if len(rows) == 0:
            return None
        B = np.array(model.rows, dtype=np.intp)
        X_c, k = self._X[rows], model.size
        K_cB = np.empty((len(rows), 0))
        errors = -self._Y[rows]
        if k:
            points = self._kernel.points(self._X[B], B)
            K_cB = np.asarray(self._kernel.block(X_c, points, dtype=np.float64))
            errors = K_cB @ model.beta + model.b - self._Y[rows]
        if self._kernel.precomputed:
            diagonal = np.asarray(X_c[np.arange(len(rows)), rows], dtype=np.float64)
        else:
            diagonal = host_diag(self._kernel, X_c)
        diagonal = diagonal + self._ridge[rows]
        i, score, largest = best_of(errors, diagonal, np.ones(len(rows), dtype=bool))
        v = solve_triangular(model.L, K_cB[i], lower=True) if k else np.empty(0)
        row = int(rows[i])
        return DualCandidate(row, score, largest, errors[i], self._Y[row], float(diagonal[i]), v)

    def _draw(self, model: GrowingDual) -> Rows:
        """Return different rows outside B, in order."""
        n = len(self._usable)
        count = min(self._n_candidates + model.size, n)
        drawn = sample_without_replacement(n, count, random_state=self._rng)
        rows = self._usable[self._rng.permutation(drawn)]
        rows = rows[~np.isin(rows, model.rows)][: self._n_candidates]
        return np.sort(rows)
