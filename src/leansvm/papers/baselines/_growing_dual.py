"""Forward selection on the dual of the LS-SVM (Jiao, Bo and Wang 2007; zhou2016, (4), (13)).

With beta zero off B, the gradient of the dual at a row j outside is its error g_j = f(x_j) - y_j;
the next row is argmax g_j^2 / (2 (K_jj + 1 / (C s_j))) over all rows (FSA) or a few random ones
(PFSA). K_BB + diag(1 / (C s)) = L L', p = L^-1 Y_B and q = L^-1 1 grow by one row per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.utils.random import sample_without_replacement

from leansvm.kernels import Kernel

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_SAME_SCORE = 2.0**-36  # scores count as equal that differ by less than this part of the largest


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
    """Look at every row: one kernel column per step, U = K_MB L^-T is kept."""

    def __init__(
        self, X: Any, Y: Array, weight: Array, kernel: Kernel, C: float, capacity: int
    ) -> None:
        self._X, self._Y, self._kernel = X, Y, kernel
        self._open = weight > 0  # rows that may join
        self._diagonal = _diagonal(kernel, X) + _ridge(weight, C)
        self._U = np.empty((len(Y), capacity), order="F")
        self._Up, self._Uq = np.zeros(Y.shape), np.zeros(len(Y))

    def best(self, model: GrowingDual) -> DualCandidate | None:
        """Return the best row outside B, None when there is none."""
        if model.size:
            self._add_column(model)
        if not self._open.any():
            return None
        # f = U p + (1 - U q) b
        errors = self._Up + np.outer(1.0 - self._Uq, model.b) - self._Y
        i, score, largest = best_of(errors, self._diagonal, self._open)
        v = self._U[i, : model.size].copy()
        return DualCandidate(i, score, largest, errors[i], self._Y[i], float(self._diagonal[i]), v)

    def _add_column(self, model: GrowingDual) -> None:
        """Append u = (K_Mt - U v) / nu of the row t that joined last."""
        k, row = model.size - 1, np.array(model.rows[-1:], dtype=np.intp)
        point = self._kernel.points(self._X[row], row)
        u = np.asarray(self._kernel.block(self._X, point, dtype=np.float64))[:, 0]
        v, nu = model.L[k, :k], model.L[k, k]
        u = (u - self._U[:, :k] @ v) / nu
        self._U[:, k] = u
        self._Up += np.outer(u, model.p[k])
        self._Uq += u * model.q[k]
        self._open[row] = False


def best_of(errors: Array, diagonal: Array, usable: NDArray[np.bool_]) -> tuple[int, float, float]:
    """Return the first row with the largest g^2 / (2 (K + 1/(C s))), its score, the largest |g|."""
    scores = np.where(usable, np.einsum("ij,ij->i", errors, errors) / (2.0 * diagonal), -1.0)
    i = int(np.argmax(scores >= scores.max() * (1.0 - _SAME_SCORE)))
    return i, float(scores[i]), float(np.abs(errors[usable]).max())


def _diagonal(kernel: Kernel, X: Any) -> Array:
    """Return k(x, x) of all rows, in float64 also of float32 rows."""
    rows = X if kernel.precomputed else X.astype(np.float64, copy=False)
    return np.array(kernel.diag(rows), dtype=np.float64)


def _ridge(weight: Array, C: float) -> Array:
    """Return 1 / (C s), where s is positive."""
    return 1.0 / (C * np.where(weight > 0, weight, 1.0))


# ---------------------------------------------------------------------------- a few rows (PFSA)


class SomeRows:
    """Look at a few random rows per step: the work does not grow with the number of rows."""

    def __init__(
        self, X: Any, Y: Array, weight: Array, kernel: Kernel, C: float, n_candidates: int, rng: Any
    ) -> None:
        self._X, self._Y, self._kernel, self._rng = X, Y, kernel, rng
        self._ridge = _ridge(weight, C)
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
            diagonal = _diagonal(self._kernel, X_c)
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
