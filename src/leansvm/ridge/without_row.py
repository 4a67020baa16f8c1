"""The model without row i at any x, computed from the fit on all rows.

Squared loss, rows z (whitened, with the bias's column), A = Z'SZ + I/C (0 for a free bias):

    f_-i(x) = f(x) - S_i(x) r_i,   S_i(x) = s_i z(x)'A^-1 z_i,   r_i = e_i / (1 - h_i),

with h_i = S_i(x_i) the leverage and r_i the left-out residual. The variance of f(x), in units of
the noise's, is h(x) = z(x)'A^-1 z(x) plus C (k(x, x) - |phi(x)|^2) for the part of x that the basis
does not reach. Without this second term, basis rows would look less certain than other rows.

`PrimalLeftOut` has A, of the size of the basis; `DualLeftOut` has G = K + diag(1 / (C s)), of the
number of rows, for machines whose basis is (nearly) all rows: S(x) = G^-1 k(x) + u (1 - u'k(x)) /
(A_b + 1'u), u = G^-1 1, A_b the penalty of the bias; 1 - h_i = T_ii / (C s_i) does not cancel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.basis.features import KernelFeatures
from leansvm.kernels import Kernel
from leansvm.ridge.criteria import FLOOR
from leansvm.ridge.equations import RidgeModels, model_at, normal_equations
from leansvm.ridge.kernel_factor import Factor, factor_bytes, factored
from leansvm.ridge.pairs import squares_by_pairs, sums_by_forms
from leansvm.ridge.sums import Sums
from leansvm.rows import Block, RowBlocks, check_budget, declare

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_KEEP_BYTES = 2**29  # of the training rows' coordinates; larger ones are computed again
_TILE_BYTES = 2**26  # of what is computed from rows at a time
_WORK_FOR_SINGLE = 1e9  # rows x coordinates^2, from which on influences are added up in float32


class LeftOut(ABC):
    """Effects of leaving out one distinct training row, on itself and on any other row."""

    rows: Rows  # numbers of the distinct rows that count
    target: Array  # y, rows x outputs
    residual: Array  # y - f without the row, rows x outputs
    leverage: Array  # h of every row
    weight: Array  # s of every row
    beyond: Array  # C (k(x, x) - |phi(x)|^2) of every row; nan if k(x, x) is unknown
    reads_rows = False  # whether the rows are read again for what is asked later

    @abstractmethod
    def place(self, X: Any) -> Array:
        """Return what `shares` and `leverage_at` need about new rows."""

    def chosen(self, rows: Rows) -> Any:
        """Return what `shares` needs about some training rows."""
        return rows

    @abstractmethod
    def shares(self, places: Array, chosen: Any) -> Array:
        """Return S_i(x): how much f at new rows grows if the target of row i grows by one."""

    @abstractmethod
    def leverage_at(self, places: Array) -> Array:
        """Return h(x) = z(x)'A^-1 z(x) of new rows."""

    def variance_at(self, places: Array) -> Array:
        """Return the variance of f(x) over that of the noise; nan if k(x, x) is unknown."""
        return self.leverage_at(places) + places[:, -1]

    @property
    @abstractmethod
    def bytes_a_row(self) -> int:
        """Bytes that `place` takes for a new row."""

    @abstractmethod
    def pulls(self, a: Array, c: Array) -> tuple[Array, Array]:
        """Return sum_j g_ij a_j and sum_j g_ij^2 c_j over the other rows, g_ij = z_i'A^-1 z_j."""

    def noise(self) -> Array:
        """Return the variance of the targets around f, by output: s e^2 over n - sum h."""
        errors = self.residual * (1.0 - self.leverage)[:, None]
        free = max(float(self.weight.sum() - self.leverage.sum()), FLOOR)
        return np.asarray(self.weight @ errors**2) / free

    @cached_property
    def influence(self) -> Array:
        """Return how much each row adds to the mean squared left-out error of the other rows.

        Without rows i and j, row j's residual is r_j' = (r_j + s_i g_ij r_i / (1-h_j)) / (1-q) with
        q = s_i s_j g_ij^2 / ((1-h_i)(1-h_j)); r_j'^2 is taken up to squares of g_ij.
        """
        s, room = self.weight, np.maximum(1.0 - self.leverage, FLOOR)
        squares = np.sum(self.residual**2, axis=1)
        a = self.residual * (s / room)[:, None]
        once, twice = self.pulls(a, np.column_stack([s / room**2, s**2 * squares / room]))
        without = 2 * s * np.sum(self.residual * once, axis=1)
        without += s**2 * squares * twice[:, 0] + 2 * s / room * twice[:, 1]
        return np.asarray(-without / s.sum())

    def left_out_variance(self) -> Array:
        """Return `variance_at` of every row in the model without it; its h is h / (s (1 - h))."""
        return self.leverage / self.room() + self.beyond

    def room(self) -> Array:
        """Return s_i (1 - h_i): without row i the variance at x is larger by S_i(x)^2 over it."""
        return self.weight * np.maximum(1.0 - self.leverage, FLOOR)


def beyond_basis(features: KernelFeatures, X: Any, Phi: Array, C: float) -> Array:
    """Return C (k(x, x) - |phi(x)|^2) of rows; nan for a precomputed kernel.

    For rows outside of the kernel's bounds, the possible change of f beyond the bounds is added.
    """
    if features.kernel.precomputed:
        return np.full(len(Phi), np.nan)
    reached = np.einsum("ij,ij->i", Phi[:, : features.size], Phi[:, : features.size])
    missed = np.maximum(features.kernel.diag(X) - reached, 0.0)
    return np.asarray(C * (missed + features.kernel.change_to_bounds(X)))


# ---------------------------------------------------------------------------- a small basis


@dataclass
class Coordinates:
    """x -> w(x) with w(x)'w(z) = z(x)'A^-1 z(z), from sums over the rows."""

    features: KernelFeatures
    C: float
    centre: Array  # mean of phi; zeros unless the bias is free
    models: RidgeModels  # whose turn T has T T' = (M + 1/C)^-1
    constant: float  # last coordinate, 1/sqrt(n); 0 unless the bias is free
    theta: Array
    mean_y: Array
    noise: Array  # variance of the targets around f, by output

    @classmethod
    def of(cls, sums: Sums, features: KernelFeatures, free_bias: bool, C: float) -> Coordinates:
        """Factor the small matrix of the fit."""
        equations = normal_equations(sums, features, free_bias)
        models = model_at(equations, C)
        theta, rss = models.theta(), models.rss(equations)[:, 0]
        trace, roots = float(free_bias) + float(models.trace[0]), np.sqrt(models.weights[:, 0])
        return cls(
            features,
            C,
            equations.mean_phi if free_bias else np.zeros(features.width),
            models if (roots == 1.0).all() else replace(models, turn=models.turn * roots),
            1.0 / np.sqrt(equations.n) if free_bias else 0.0,
            theta,
            equations.mean_y if free_bias else np.zeros(theta.shape[1]),
            rss / max(equations.n - trace, FLOOR),
        )

    @property
    def width(self) -> int:
        """Number of coordinates, without that of the bias."""
        return len(self.centre)

    def at(self, X: Any) -> Array:
        """Return w(x) of rows and, last, what the basis does not reach of them."""
        return self.of_training_rows(X, None)[0]

    def of_training_rows(
        self, X: Any, Y: Array | None, point: Rows | None = None
    ) -> tuple[Array, Array | None]:
        """Return w(x), with what the basis does not reach, and y - f(x) of rows with targets.

        ``point`` says which point of the basis a row is, -1 if it is none.
        """
        Phi = self.features.transform(X) if point is None else self._columns(X, point)
        result = np.empty((len(Phi), self.width + 2))
        result[:, -2], result[:, -1] = self.constant, beyond_basis(self.features, X, Phi, self.C)
        Phi -= self.centre
        self.models.coordinates(Phi, self.features.size, out=result[:, :-2])
        return result, None if Y is None else Y - self.mean_y - Phi @ self.theta

    def _columns(self, X: Any, point: Rows) -> Array:
        """Return phi of rows; that of a basis point is its row of L, which the fit has found."""
        features, inside = self.features, point >= 0
        if not (isinstance(X, np.ndarray) and inside.any()) or not np.array_equal(
            X[inside], features.points[point[inside]]
        ):  # these are other rows
            return np.asarray(features.transform(X))
        Phi = np.empty((len(X), features.width))
        Phi[~inside] = features.transform(X[~inside])
        # a column of L is contiguous
        Phi[inside, : features.size] = np.take(features.L.T, point[inside], axis=1).T
        Phi[:, features.size :] = features.constant or 0.0
        return Phi

    def variances(self, X: Any, budget: int) -> Array:
        """Return the variance of f(x) over that of the noise, a tile at a time."""
        tile = max(1, min(_TILE_BYTES, budget // 8) // (16 * (self.width + 2)))
        result = np.empty(X.shape[0])
        for start in range(0, X.shape[0], tile):
            rows = slice(start, start + tile)
            places = self.at(X[rows])
            result[rows] = np.square(places[:, :-1]).sum(axis=1) + places[:, -1]
        return result


class PrimalLeftOut(LeftOut):
    """A basis of few points: one pass over the training rows, which stay where they are."""

    def __init__(
        self,
        blocks: RowBlocks,
        coordinates: Coordinates,
        budget: int,
        basis_rows: Rows | None = None,
    ) -> None:
        self.coordinates = coordinates
        self._blocks = blocks
        width = 8 * (coordinates.width + 1)
        keep = blocks.n_rows * width <= min(_KEEP_BYTES, budget // 4)
        found = blocks.collect(_left_out_rows, coordinates, keep, basis_rows)
        self.rows, self.target, self.weight, self.leverage, self.beyond = found[:5]
        self.residual, self._kept = found[5:]
        self.residual /= np.maximum(1.0 - self.leverage, FLOOR)[:, None]
        self.reads_rows = self._kept is None

    @property
    def bytes_a_row(self) -> int:
        """Bytes of the coordinates of a row."""
        return 8 * (self.coordinates.width + 2)

    def place(self, X: Any) -> Array:
        """Return w(x) and, last, what the basis does not reach."""
        return self.coordinates.at(X)

    def chosen(self, rows: Rows) -> Array:
        """Return s_i w_i of some training rows."""
        return self.coordinates_of_rows(rows) * self.weight[rows, None]

    def shares(self, places: Array, chosen: Array) -> Array:
        """Return s_i w(x)'w_i."""
        return places[:, :-1] @ chosen.T

    def leverage_at(self, places: Array) -> Array:
        """Return |w(x)|^2."""
        return np.einsum("ij,ij->i", places[:, :-1], places[:, :-1])

    def pulls(self, a: Array, c: Array) -> tuple[Array, Array]:
        """Return w_i'(W'a) and sums of squares (`pairs`), without the part of row i itself."""
        m, width = len(self.rows), self.coordinates.width + 1
        dtype: Any = np.float32 if m * width**2 > _WORK_FOR_SINGLE else np.float64
        own = (self.leverage / self.weight)[:, None]
        if self._kept is not None and m < 2 * c.shape[1] * width:
            first = self._kept @ (self._kept.T @ a)
            return first - own * a, squares_by_pairs(self._kept, c, dtype)
        step = max(1, _TILE_BYTES // 4 // self.bytes_a_row)
        tiles = [slice(start, start + step) for start in range(0, m, step)]
        first, second = sums_by_forms(self.coordinates_of_rows, tiles, a, c, dtype)
        return first - own * a, second - own**2 * c

    def coordinates_of_rows(self, rows: Any) -> Array:
        """Return w_i of some training rows."""
        if self._kept is not None:
            return self._kept[rows]
        return self.coordinates.at(self._blocks.take(self.rows[rows]))[:, :-1]


@declare("X", "y", "weight")
def _left_out_rows(
    block: Block, coordinates: Coordinates, keep: bool, basis_rows: Rows | None
) -> tuple[Any, ...]:
    """Return number, weight, leverage, residual and (if kept) coordinates of rows that count."""
    weight = np.ones(block.stop - block.start) if block.weight is None else block.weight
    used = np.flatnonzero(weight > 0)
    Y, s = np.asarray(block.y)[used], np.asarray(weight, dtype=np.float64)[used]
    point = None
    if basis_rows is not None:
        numbers, places = block.positions(basis_rows)
        point = np.full(len(weight), -1)
        point[places] = numbers
        point = point[used]
    W, errors = coordinates.of_training_rows(block.X[used], Y, point)
    beyond, W = W[:, -1].copy(), W[:, :-1]
    leverage = s * np.einsum("ij,ij->i", W, W)
    return block.start + used, Y, s, leverage, beyond, errors, W if keep else None


# ---------------------------------------------------------------------------- all rows


class DualLeftOut(LeftOut):
    """A basis of all rows, or nearly so: the factor of G, of the size of the kernel matrix.

    Features phi in place of a kernel stand for phi(x)'phi(z). ``X`` are the distinct training rows,
    with their numbers ``rows`` among those given to `fit`; ``points`` are the same for
    `Kernel.block` (others if precomputed). A ``bias_penalty`` of 0 is a free bias, inf is none.
    """

    def __init__(
        self,
        kernel: Kernel | KernelFeatures,
        X: Any,
        points: Any,
        Y: Array,
        weight: Array,
        C: float,
        bias_penalty: float,
        budget: int,
        rows: Rows,
    ) -> None:
        m = len(weight)
        check_budget(
            factor_bytes(m, Y.shape[1], left_out=True),
            budget,
            f"The model without each of {m:,} rows",
            "Use SparseLSSVC / SparseLSSVR (a small basis), or a larger cache_size.",
        )
        self.rows, self.target, self.weight, self.C = rows, Y, weight, C
        self._kernel = kernel
        self._points = kernel.transform(X) if isinstance(kernel, KernelFeatures) else points
        K, _, self.beyond = self._compared(X)
        self._factor: Factor = factored(K, 1.0 / (C * weight))
        self._u = self._factor.solve(np.ones((m, 1)))[:, 0]
        self._bottom = bias_penalty + float(self._u.sum())  # inf without a bias
        self.beta = self._factor.solve(Y) - np.outer(self._u, self._u @ Y) / self._bottom
        diagonal = self._factor.inverse_diagonal() - self._u**2 / self._bottom
        self.residual = self.beta / diagonal[:, None]
        self.leverage = np.clip(1.0 - diagonal / (C * weight), 0.0, 1.0 - FLOOR)

    def _compared(self, X: Any) -> tuple[Array, Array, Array]:
        """Return k(x, x_i) for all training rows, k(x, x), and what the basis does not reach."""
        kernel = self._kernel
        if isinstance(kernel, KernelFeatures):
            Phi = kernel.transform(X)
            beyond = beyond_basis(kernel, X, Phi, self.C)
            return Phi @ self._points.T, np.square(Phi).sum(axis=1), beyond
        # a row of a precomputed matrix does not have k(x, x)
        own = np.full(X.shape[0], np.nan) if kernel.precomputed else kernel.diag(X)
        K = np.asarray(kernel.block(X, self._points, dtype=np.float64))
        return K, own, self.C * kernel.change_to_bounds(X)

    @property
    def bytes_a_row(self) -> int:
        """Bytes of a row of S and its work space."""
        return 32 * len(self.weight)

    def place(self, X: Any) -> Array:
        """Return k(x, x_i), k(x, x) and, last, what the basis does not reach."""
        return np.column_stack(self._compared(X))

    def shares(self, places: Array, chosen: Rows) -> Array:
        """Return G^-1 k(x) + u (1 - u'k(x)) / (A + 1'u)."""
        k = places[:, :-2]
        solved = self._factor.solve(np.ascontiguousarray(k.T))[chosen].T
        return solved + np.outer((1.0 - k @ self._u) / self._bottom, self._u[chosen])

    def leverage_at(self, places: Array) -> Array:
        """Return C (k(x, x) - k'G^-1 k + (1 - u'k)^2 / (A + 1'u)); nan if k(x, x) is unknown."""
        k = places[:, :-2]
        solved = self._factor.solve(np.ascontiguousarray(k.T))
        rest = places[:, -2] - np.einsum("ij,ji->i", k, solved)
        bias = (1.0 - k @ self._u) ** 2 / self._bottom
        return self.C * (np.maximum(rest, 0.0) + bias)

    def pulls(self, a: Array, c: Array) -> tuple[Array, Array]:
        """Use g_ij = -T_ij / (C s_i s_j), i != j, from the columns of T, a panel at a time."""
        first, second, m = np.empty(a.shape), np.empty(c.shape), len(self.weight)
        step = max(1, _TILE_BYTES // 4 // (8 * m))
        for start in range(0, m, step):
            rows = np.arange(start, min(start + step, m))
            g = self._columns_of_T(rows)
            g[rows, rows - start] = 0.0
            g /= -self.C * np.outer(self.weight, self.weight[rows])
            first[rows], second[rows] = g.T @ a, (g * g).T @ c
        return first, second

    def _columns_of_T(self, rows: Rows) -> Array:
        """Return columns of T = G^-1 - uu' / (A + 1'u)."""
        unit = np.zeros((len(self.weight), len(rows)))
        unit[rows, np.arange(len(rows))] = 1.0
        return self._factor.solve(unit) - np.outer(self._u, self._u[rows] / self._bottom)

    def without_groups(self, group: Rows) -> Array:
        """Return the residuals of every group in the model without it: T_gg^-1 beta_g."""
        residual = np.empty_like(self.beta)
        for g in np.unique(group):
            rows = np.flatnonzero(group == g)
            residual[rows] = np.linalg.solve(self._columns_of_T(rows)[rows], self.beta[rows])
        return residual

    def shift_coefficients(self, R: Array) -> tuple[Array, Array]:
        """Return a, c with S(x)'R = k(x)'a + c for any columns R."""
        constant = self._u @ R / self._bottom
        return self._factor.solve(R) - np.outer(self._u, constant), constant
