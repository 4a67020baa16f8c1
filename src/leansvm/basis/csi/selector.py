"""CSI: Cholesky with side information (Bach and Jordan 2005), guided by kernel and targets.

Greedy on J = (1 - kappa) tr(K - GG') / tr K + kappa min_beta |Y - G beta|^2 / |Y|^2 (centred). A
column g lowers J by a |g|^2 + c |q'Y|^2, q its centred part orthogonal to the earlier ones. The
columns of most rows are unknown; in the scores, a window W of look-ahead columns replaces K - GG'.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from leansvm.basis.cholesky.growing import factor_rows, kernel_rounding, rank_floor
from leansvm.basis.csi import in_block
from leansvm.basis.csi.in_block import Added, BestRows, Bounds, Extraction, GainCriterion, ScoredRow
from leansvm.basis.selector import Basis, BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]
Reflector = tuple[Array, float]  # I - b v v'

_QUANTA = 2.0**36  # residuals are compared in these parts of the largest diagonal entry
_ORTHOGONAL = 1e-13  # loss of orthogonality that is left alone
_DEPENDENT = 1e-12  # a column whose new part is smaller, relative to it, adds no direction
_LAST = 20  # rows whose mean gain is compared with tol
_REFRESH = 32  # steps after which the scores are computed afresh,
_FADED = 0.1  # or when this part of the window's size is left: they carry errors of the old size


class CSI(BasisSelector):
    """Choose rows that approximate the kernel matrix and explain the targets.

    Each step takes the row whose column is expected to lower most a weighted sum of the relative
    trace error of the kernel matrix and the relative squared error of least squares on the targets
    (Cholesky with side information). The choice is nested. The ``report`` holds the gain of every
    row, true (``"gains"``) and expected, and the ``"criterion"`` at the end.

    Parameters
    ----------
    trade_off : float, default=0.99
        Weight of the targets, between 0 (the kernel matrix alone) and 1 (the targets alone).
    look_ahead : int, default=40
        Columns computed ahead to estimate what the others would gain. 0 gives the rows of
        pivoted Cholesky when all weights are equal.
    tol : float, default=1e-4
        Stop when the last 20 rows lowered the criterion, which starts at 1, by less than this per
        row on average (single gains vary much). 0 chooses ``n_basis`` rows.

    References
    ----------
    F. R. Bach and M. I. Jordan, "Predictive low-rank decomposition for kernel methods",
    ICML 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis import Fit
    >>> from leansvm.basis.csi import CSI
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> X = np.linspace(0, 3, 50)[:, None]
    >>> blocks = MemoryBlocks(X, y=np.sign(np.sin(4 * X)))
    >>> chosen = CSI().select(blocks, Kernel("rbf", gamma=2.0), 5, fit=Fit(C=1.0))
    >>> len(chosen.indices), bool(chosen.report["criterion"] < 0.3)
    (5, True)
    """

    nested: ClassVar[bool] = True
    uses_targets: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "trade_off": [Interval(Real, 0, 1, closed="both")],
        "look_ahead": [Interval(Integral, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, trade_off: float = 0.99, look_ahead: int = 40, tol: float = 1e-4) -> None:
        self.trade_off = trade_off
        self.look_ahead = look_ahead
        self.tol = tol

    def state_columns(self, n_basis: int) -> int:
        """Columns kept for every row: the factor, its orthogonal basis, residuals and scores."""
        return 2 * (n_basis + self.look_ahead) + 8

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        n_basis = min(n_basis, blocks.n_rows)
        search = _Search(blocks, kernel, fit, n_basis, self)
        search.fill_window()
        gains: list[float] = []
        expected: list[float] = []
        while len(gains) < n_basis and search.best is not None:
            expected.append(search.best.value)
            gains.append(search.take_best())
            hardly_falls = len(gains) >= _LAST and np.mean(gains[-_LAST:]) < self.tol
            if on_step(len(gains)) or hardly_falls:
                break
        indices = np.array(search.indices, dtype=np.intp)
        blocks.map(in_block.finish, len(indices))
        L = np.tril(factor_rows(blocks, indices, len(indices)))
        report = {
            "gains": np.array(gains),
            "expected_gains": np.array(expected),
            "criterion": 1.0 - float(np.sum(gains)),
        }
        return Basis(indices, L=L, report=report)


class _Search:
    """What the host holds: arrays of the size of the window, and the best rows at present.

    With a penalised bias the inner product of centred columns has the additional term
    tau mean mean'; Q then has one more row, ``tail``.
    """

    def __init__(
        self, blocks: RowBlocks, kernel: Kernel, fit: Fit, n_basis: int, options: CSI
    ) -> None:
        self._blocks, self._kernel = blocks, kernel
        self._look_ahead = min(int(options.look_ahead), blocks.n_rows)
        capacity = min(n_basis + self._look_ahead, blocks.n_rows)
        parts = blocks.map(in_block.begin, kernel, capacity)
        trace, self._n = sum(p[0] for p in parts), sum(p[2] for p in parts)
        largest = max(p[1] for p in parts)
        mean = sum(p[3] for p in parts) / self._n
        A = fit.bias_penalty / fit.C
        self._tau = np.sqrt(self._n if np.isinf(A) else self._n * A / (self._n + A))
        self._mean_y = self._tau * mean
        targets = blocks.sum(in_block.centre_targets, mean) + float(self._mean_y @ self._mean_y)
        a = (1.0 - options.trade_off) / trace if trace > 0 else 0.0
        c = options.trade_off / targets if targets > 0 else 0.0
        scale = _QUANTA / largest if largest > 0 else 0.0
        unit = a / scale if a > 0 else 1.0 / _QUANTA
        self._floor = max(rank_floor(largest), 16 * kernel_rounding(blocks, kernel))
        self._criterion = GainCriterion(a, c, self._floor, scale, unit)
        self.indices: list[int] = []
        self._gram = np.empty((0, 0))  # W'SW
        self._R = np.empty((0, 0))
        self._z = np.empty((0, len(mean)))  # Q_W'T
        self._tail = np.empty(0)
        self.best: ScoredRow | None = None
        self._missed: ScoredRow | None = None  # the row that G and W miss most

    @property
    def _width(self) -> int:
        return len(self._gram)

    @property
    def _size(self) -> int:
        return len(self.indices) + self._width

    # ------------------------------------------------------------------ window

    def fill_window(self) -> None:
        """Put the look-ahead columns into the window, greedily by residual, and score all rows."""
        self._missed = _first_of(self._blocks.map(in_block.normalise, 0, 1.0, self._criterion))
        while self._missed is not None and self._width < self._look_ahead:
            added, _ = self._add(self._missed, self._missed.row)
            found = self._blocks.map(in_block.normalise, self._size, added.scale, self._criterion)
            self._missed = _first_of(found)
        self._score_afresh()

    def _add(self, row: ScoredRow, watched: int) -> tuple[Added, float]:
        """Append the column of a row to the window; also return its value at ``watched``."""
        k, n, w = len(self.indices), self._size, self._width
        index = np.array([row.row], dtype=np.intp)
        x = self._blocks.take(index)
        point = self._kernel.points(x, index)
        # rounding: g is off by eps K / sqrt(E), so g_i^2 by as much times sqrt(E_i)
        assert self._missed is not None
        floor = self._floor * float(np.sqrt(self._missed.E / row.E))
        self._criterion = self._criterion._replace(floor=max(floor, self._criterion.floor))
        # its residual afresh: E has gathered rounding errors, and they would enter P P_t' = K_Mt
        K_tt = float(np.asarray(self._kernel.block(x, point, dtype=np.float64))[0, 0])
        residual = max(K_tt - float(row.factor @ row.factor), 0.5 * row.E)
        factor = np.append(row.factor, np.sqrt(residual))
        sums = self._blocks.sum(in_block.grow, self._kernel, point, factor, k, row.row, watched)
        gram, (total, square, seen) = sums[n : n + w], sums[n + w :]
        h, rho, targets, tail = self._orthogonalise(sums[:n], total / self._n, square)
        h_W = h[k:]
        scale, centred = 1.0 / rho if rho > 0 else 0.0, float(h_W @ h_W) + rho**2
        new_targets = h_W @ self._z + rho * targets
        added = Added(scale, square, centred, gram, self._R.T @ h_W, new_targets)
        self._gram = np.block([[self._gram, gram[:, None]], [gram, square]])
        self._R = np.block([[self._R, h_W[:, None]], [np.zeros(w), rho]])
        self._z = np.vstack([self._z, targets])
        self._tail = np.append(self._tail, tail)
        return added, float(seen)

    def _orthogonalise(
        self, h: Array, mean: float, square: float
    ) -> tuple[Array, float, Array, float]:
        """Gram-Schmidt, repeated while it pays: return Q'g, the rest's norm, q'T and its tail."""
        n = len(h)
        total = np.zeros(n)
        left = self._tau * mean
        h = h + self._tail * left
        shift: float | None = mean
        for _ in range(3):
            total += h
            left -= float(self._tail @ h)
            sums = self._blocks.sum(in_block.orthogonalise, h, shift)
            h, shift = sums[:n] + self._tail * left, None
            rho = float(np.sqrt(sums[n] + left**2))
            if np.linalg.norm(h) <= _ORTHOGONAL * rho:
                break
        if rho <= _DEPENDENT * np.sqrt(square):
            return total, 0.0, np.zeros(len(self._mean_y)), 0.0
        return total, rho, (sums[n + 1 :] + left * self._mean_y) / rho, left / rho

    # ------------------------------------------------------------------ selection

    def take_best(self) -> float:
        """Move the best row from the window to the selected ones; return its true gain."""
        best, k = self.best, len(self.indices)
        assert best is not None
        w_t = best.factor[k:]
        added = None
        # the window takes in the row itself, or if that adds nothing to it the one most missed
        new = best if self._criterion.floor < best.E else self._missed
        if new is not None:
            added, seen = self._add(new, best.row)
            w_t = np.append(w_t, seen)
        step, gain = self._plan(best.row, w_t, added)
        found = self._blocks.map(in_block.extract, k, step, self._criterion)
        self.indices.append(best.row)
        self._take_over(found)
        self._age += 1
        now, then = step.bounds, self._then
        faded = now.gram < _FADED * then.gram or now.directions < _FADED * then.directions
        if self._age == _REFRESH or faded:
            self._gram = self._blocks.sum(in_block.window_gram, k + 1, self._size)
            self._score_afresh()
        return gain

    def _plan(self, row: int, w_t: Array, added: Added | None) -> tuple[Extraction, float]:
        """Rotate the window so that its first column is that of the row, and take it out."""
        k = len(self.indices)
        right = _reflector(w_t)
        gram, R = self._gram, _reflected(self._R, right)
        first = _reflected(np.eye(len(w_t))[:1], right)[0]
        gram_first = gram @ first
        square = float(first @ gram_first)
        rho = float(np.linalg.norm(R[:, 0]))
        independent = rho > _DEPENDENT * np.sqrt(square)
        # Q_W <- Q_W H with R's first column along its first axis; if that column is zero, any
        # axis that R does not use
        left = _reflector(R[:, 0] if independent else np.linalg.svd(R)[0][:, -1])
        R = _reflected(R.T, left).T
        z = _reflected(self._z.T, left).T
        self._tail[k:] = _reflected(self._tail[None, k:], left)[0]
        if not independent:
            R[0], z[0], self._tail[k] = 0.0, 0.0, 0.0
        self._gram = _reflected(_reflected(gram, right).T, right)[1:, 1:]
        along = _reflected(R[:1], right)[0]  # R'q in the coordinates of W before the rotation
        self._R, self._z = R[1:, 1:], z[1:]
        change = square, gram_first, along, z[0], independent, self._bounds()
        gain = self._criterion.a * square + self._criterion.c * float(z[0] @ z[0])
        return Extraction(row, added, right, left, *change), gain

    def _score_afresh(self) -> None:
        window = self._gram, self._R, self._z, self._bounds()
        self._then, self._age = window[-1], 0
        self._take_over(
            self._blocks.map(in_block.recompute, len(self.indices), *window, self._criterion)
        )

    def _bounds(self) -> Bounds:
        gram, R, z = self._gram, self._R, self._z
        return Bounds(float(np.trace(gram)), float(np.sum(R * R)), float(np.sum(z * z)))

    def _take_over(self, found: list[BestRows]) -> None:
        gain, dependent, self._missed = map(_first_of, zip(*found, strict=True))
        self.best = dependent if self._missed is None else gain


def _first_of(candidates: Iterable[ScoredRow | None]) -> ScoredRow | None:
    """Return the candidate with the largest key; of equal ones the first."""
    found = (candidate for candidate in candidates if candidate is not None)
    return max(found, key=attrgetter("key"), default=None)


def _reflector(x: Array) -> Reflector:
    """Return v, b with x (I - b v v') = (|x|, 0, ..)."""
    v = x.copy()
    rest = float(x[1:] @ x[1:])
    norm = float(np.sqrt(x[0] ** 2 + rest))
    # x_0 - |x|, without cancellation
    v[0] = x[0] - norm if x[0] <= 0 else -rest / (x[0] + norm)
    square = float(v @ v)
    return v, 2.0 / square if square > 0 else 0.0


def _reflected(A: Array, reflector: Reflector) -> Array:
    """Return A (I - b v v')."""
    v, b = reflector
    return A - np.outer(A @ v, b * v)
