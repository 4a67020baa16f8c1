"""Leave-one-out error of a basis and its gradient by the scales of the features.

k(x, z) = kappa(D), D = sum_f gamma_f (x_f - z_f)^2 (laplacian: |x_f - z_f|). With K = k(X, Z) of
m rows and r points, weighted by the roots of s and centred (free bias), M = K'K + lam k(Z, Z),
residuals E and leverages h,

    S = sum_i s_i (e_i / (1 - h_i))^2 / (n_outputs sum_i s_i)

and its derivatives by log gamma and log lam are closed forms. M is never formed: with
k(Z, Z) = L L', Phi = K L^-T and Phi'Phi + lam I = R R', the matrix N = L R is a Cholesky factor of
M that stays accurate, and P = K N^-T has rows whose squared norms are the leverages.
One evaluation takes 3.5 m r^2 + 2 m r d multiplications, in tiles of rows by all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import in_order, serial_blas
from leansvm.kernels import absolute_distances, absolute_moments, radial
from leansvm.linalg import corner_inverses, right_divide_in_place, right_solve_in_place
from leansvm.rows import check_budget

Array = NDArray[np.float64]

_JITTER = 1e-10  # added to the diagonal of k(Z, Z), which has ones on it
_LEAST_REST = 1e-8  # 1 - leverage is not taken as less
# a larger D gives values that are not normal numbers, which are slow
_FURTHEST = {"rbf": 7e2, "laplacian": 7e2, "matern12": 4.9e5, "matern32": 1.6e5, "matern52": 9e4}
_TILE_VALUES = 1 << 17  # values of K in a tile: a megabyte, which stays in a core's cache
_TILE_ARRAYS, _SQUARES = 6, 9  # arrays of a tile's size for each thread; r x r arrays


@dataclass(frozen=True)
class ScaleProblem:
    """What the leave-one-out error is of: rows, points, targets and weights, all in float64.

    Parameters
    ----------
    kernel : {"rbf", "matern12", "matern32", "matern52", "laplacian"}
        Kernel.
    X : ndarray of shape (m, d)
        Rows. Features should be centred: products of large means lose digits.
    Z : ndarray of shape (r, d)
        Basis points.
    Y : ndarray of shape (m, n_outputs)
        Targets.
    weight : ndarray of shape (m,)
        Positive weights of the rows.
    bias_penalty : float
        0: free bias; a positive number: its penalty; infinity: no bias.
    """

    kernel: str
    X: Array
    Z: Array
    Y: Array
    weight: Array
    bias_penalty: float = 0.0

    @property
    def free(self) -> bool:
        """Whether the bias is free, so that columns are centred."""
        return self.bias_penalty == 0

    @property
    def width(self) -> int:
        """Columns of the system: the points and, where the bias is penalised, one for it."""
        return len(self.Z) + bool(0 < self.bias_penalty < np.inf)


class Gradient(NamedTuple):
    """Leave-one-out error and its derivatives."""

    value: float
    log_gamma: Array
    log_lam: float


def needed_bytes(m: int, r: int, d: int, threads: int = 1) -> int:
    """Return the bytes that one evaluation allocates at most, for one output."""
    tile = max(_TILE_VALUES, r) + r * d
    return 8 * (2 * m * (r + 1) + _SQUARES * (r + 1) ** 2 + _TILE_ARRAYS * threads * tile)


class _Triangle:
    """A lower triangular matrix with the inverses of its diagonal blocks."""

    def __init__(self, L: Array) -> None:
        self.L, self.corners = L, corner_inverses(L)

    def solve(self, B: Array) -> Array:
        """Replace B by B L^-T."""
        right_solve_in_place(B, self.L, corners=self.corners)
        return B

    def divide(self, B: Array) -> Array:
        """Replace B by B L^-1."""
        right_divide_in_place(B, self.L, self.corners)
        return B


class _SquaredDistances:
    """D = sum_f gamma_f (x_f - z_f)^2 of all pairs: one product.

    ``exact_zeros``: what may be rounding of 0 becomes 0, for kernels of the root of D.
    """

    def __init__(self, Z: Array, gamma: Array, exact_zeros: bool) -> None:
        self.Z, self.gamma, self.exact_zeros = Z, gamma, exact_zeros
        # [x, 1, gamma'x^2] . [-2 gamma z, gamma'z^2, 1]'
        self.right, self.norms = (Z * (-2.0 * gamma)).T, (Z * Z) @ gamma

    def of(self, X: Array) -> Array:
        """Return D of rows and the points; rounding may take it below 0."""
        norms = (X * X) @ self.gamma
        D = X @ self.right
        D += self.norms
        D += norms[:, None]
        if self.exact_zeros:
            rounding = (4.0 + X.shape[1] ** 0.5) * np.finfo(np.float64).eps
            D *= rounding * (norms[:, None] + self.norms.max()) < D
        return D

    def gradient(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij (x_if - z_jf)^2 of every feature f."""
        products = np.einsum("jf,jf->f", V.T @ X, self.Z)
        return V.sum(axis=1) @ (X * X) + V.sum(axis=0) @ (self.Z * self.Z) - 2.0 * products


class _AbsoluteDistances:
    """D = sum_f gamma_f |x_f - z_f| of all pairs: a compiled loop."""

    def __init__(self, Z: Array, gamma: Array) -> None:
        self.Zt, self.gamma = np.ascontiguousarray(Z.T), gamma

    def of(self, X: Array) -> Array:
        """Return D of rows and the points."""
        return absolute_distances(X, self.Zt, self.gamma)

    def gradient(self, V: Array, X: Array) -> Array:
        """Return sum_ij V_ij |x_if - z_jf| of every feature f."""
        return absolute_moments(V, X, self.Zt)


_Distances = _SquaredDistances | _AbsoluteDistances


class LooObjective:
    """The leave-one-out error of a problem as a function of scales and ridge, with its gradient.

    Memory is allocated once, for all evaluations: ``P`` starts as K and ends as K N^-T, ``slope``
    is the derivative of K by D.

    Parameters
    ----------
    problem : ScaleProblem
        Rows, points, targets, weights, kernel and bias.
    budget : int
        Bytes that may be allocated; a MemoryError says when they do not suffice.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.learning.objective import LooObjective, ScaleProblem
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> problem = ScaleProblem("rbf", X, X[::4], X**2, np.ones(20))
    >>> objective = LooObjective(problem, budget=2**24)
    >>> objective(np.array([1.0]), 0.1).value < objective(np.array([100.0]), 0.1).value
    True
    """

    def __init__(self, problem: ScaleProblem, budget: int) -> None:
        (m, d), o, self.r = problem.X.shape, problem.Y.shape[1], len(problem.Z)
        with serial_blas() as threads:
            check_budget(
                needed_bytes(m, self.r, d, threads),
                budget,
                f"Learning feature scales on {m:,} rows and {self.r:,} points",
                "Give gamma a number or an array, or raise cache_size.",
            )
        self.problem = problem
        self.root, self.total = np.sqrt(problem.weight), float(problem.weight.sum())
        self.P, self.slope = np.empty((m, problem.width)), np.empty((m, self.r))
        # residuals, derivatives of S by them, and (the last) by the leverages
        self.E, self.a, self.c = np.empty((m, o)), np.empty((m, o)), np.empty((m, 1))
        Y = problem.Y - problem.weight @ problem.Y / self.total if problem.free else problem.Y
        self.Y = self.root[:, None] * Y

    def __call__(self, gamma: Array, lam: float) -> Gradient:
        """Return value and gradient.

        Parameters
        ----------
        gamma : ndarray of shape (d,)
            Scale of each feature, not negative.
        lam : float
            The ridge, 1 / C.

        Raises
        ------
        numpy.linalg.LinAlgError
            When a matrix is not positive definite to rounding, or a result is not finite.
        """
        with serial_blas():
            value, by_gamma, by_lam = self._differentiate(self._distances(gamma), lam)
        if not (np.isfinite(value) and np.isfinite(by_gamma).all() and np.isfinite(by_lam)):
            raise np.linalg.LinAlgError("the gradient of leave-one-out is not finite")
        return Gradient(value, by_gamma * gamma, by_lam)

    def predictions(self, gamma: Array, lam: float, X: Array) -> Array:
        """Return the values of the model whose errors these are at other rows."""
        problem, r, distances = self.problem, self.r, self._distances(gamma)
        with serial_blas():
            N, PY, means = self._factor(distances, lam, self._kernel(distances, problem.Z)[0])
            coef = N.divide(PY.T.copy()).T
            if problem.free:
                bias = problem.weight @ problem.Y / self.total - means @ coef
            else:
                bias = problem.bias_penalty**-0.5 * coef[r:].sum(axis=0)  # 0 where there is none
            step = max(1, _TILE_VALUES // r)
            tiles = (X[start : start + step] for start in range(0, len(X), step))
            values = [self._kernel(distances, rows)[0] @ coef[:r] + bias for rows in tiles]
        return np.concatenate(values)

    def _differentiate(self, distances: _Distances, lam: float) -> tuple[float, Array, float]:
        """Return S, its derivatives by gamma and that by log lam."""
        W, slope = self._kernel(distances, self.problem.Z)
        np.fill_diagonal(slope, 0.0)  # the distance of a point to itself stays 0
        N, PY, _ = self._factor(distances, lam, W)
        squares, Pa, PcP, weighted = self._sum(self._left_out, PY)
        # A' = (P'Y)' N^-1, U' = (P'a)' N^-1, T = N^-T (P'diag(c)P) N^-1
        A, U, PcP = N.divide(PY.T.copy()), N.divide(Pa.T.copy()), N.divide(PcP)
        # dS / dk(Z, Z) = lam (U A' - T)
        V = U.T @ A
        V -= N.divide(PcP.T.copy())
        V *= lam
        r = self.r
        by_lam = float(np.vdot(V[:r, :r], W) + np.trace(V[r:, r:]))
        by_gamma = distances.gradient(V[:r, :r] * slope, self.problem.Z)
        # dS / dK = -(a - P P'a) A' - E U' + 2 (diag(c) P - P P'diag(c)P) N^-1, then centred
        right = [-A, -U]
        if self.problem.free:
            mean = self.root @ self.a @ A - 2.0 * N.divide(weighted[None, :])
            right.append(mean / self.total)
        PcP *= 2.0
        PcP -= Pa @ A
        by_gamma += self._sum(self._through_rows, distances, N, PcP, np.concatenate(right))
        return squares / (self.total * self.Y.shape[1]), by_gamma, by_lam

    def _factor(
        self, distances: _Distances, lam: float, W: Array
    ) -> tuple[_Triangle, Array, Array]:
        """Turn K into P = K N^-T, given k(Z, Z); return N, P'Y and the means of K's columns."""
        np.fill_diagonal(W, 1.0 + _JITTER)
        means = self._sum(self._fill, distances) / self.total
        L = np.eye(self.problem.width)
        L[: self.r, : self.r] = np.linalg.cholesky(W)
        H = self._sum(self._whiten, _Triangle(L), means)
        np.fill_diagonal(H, H.diagonal() + lam)
        R = np.linalg.cholesky(H)
        PY = self._sum(self._rotate, _Triangle(R))
        return _Triangle(L @ R), PY, means

    def _distances(self, gamma: Array) -> _Distances:
        """Return what gives D of rows and the points, and the gradient through it."""
        name, Z = self.problem.kernel, self.problem.Z
        if name == "laplacian":
            return _AbsoluteDistances(Z, gamma)
        return _SquaredDistances(Z, gamma, exact_zeros=name == "matern12")

    def _kernel(self, distances: _Distances, X: Array) -> tuple[Array, Array]:
        """Return k(X, Z) and its derivative by D."""
        name = self.problem.kernel
        D = distances.of(X)
        np.clip(D, 0.0, _FURTHEST[name], out=D)
        return radial("rbf" if name == "laplacian" else name, D)

    def _sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """Add up ``function(rows, *args)`` over tiles of rows, tuples item by item."""
        m = len(self.Y)
        tiles = max(1, -(-m * self.r // _TILE_VALUES))
        step = -(-m // (tiles + tiles % 2))  # an even number of tiles, all of one size
        slices = [slice(start, start + step) for start in range(0, m, step)]
        return reduce(_add, in_order(function, slices, *args))

    def _fill(self, rows: slice, distances: _Distances) -> Array:
        """Write K and its slope; return the weighted sums of the columns of K."""
        problem, P = self.problem, self.P[rows]
        P[:, : self.r], self.slope[rows] = self._kernel(distances, problem.X[rows])
        P[:, self.r :] = problem.bias_penalty**-0.5 if problem.width > self.r else 0.0
        return problem.weight[rows] @ P

    def _whiten(self, rows: slice, L: _Triangle, means: Array) -> Array:
        """Turn K into Phi, weighted and centred; return Phi'Phi."""
        P = self.P[rows]
        if self.problem.free:
            P -= means
        P *= self.root[rows, None]
        L.solve(P)
        return P.T @ P

    def _rotate(self, rows: slice, R: _Triangle) -> Array:
        """Turn Phi into P; return P'Y."""
        return R.solve(self.P[rows]).T @ self.Y[rows]

    def _left_out(self, rows: slice, PY: Array) -> tuple[float, Array, Array, Array]:
        """Return the sum of squared left-out residuals, P'a, P'diag(c)P and P'(c root(s))."""
        P, E, a, c = self.P[rows], self.E[rows], self.a[rows], self.c[rows]
        np.subtract(self.Y[rows], P @ PY, out=E)
        rest = 1.0 - np.einsum("ij,ij->i", P, P)
        if self.problem.free:
            rest -= self.problem.weight[rows] / self.total
        rest = np.maximum(rest, _LEAST_REST)[:, None]
        left_out = E / rest
        np.divide(left_out * (2.0 / (self.total * E.shape[1])), rest, out=a)
        np.sum(a * left_out, axis=1, keepdims=True, out=c)
        scaled = P * np.sqrt(c)
        squares = float(np.vdot(left_out, left_out))
        return squares, P.T @ a, scaled.T @ scaled, (self.root[rows] * c[:, 0]) @ P

    def _through_rows(
        self, rows: slice, distances: _Distances, N: _Triangle, inner: Array, right: Array
    ) -> Array:
        """Return the gradient through k(X, Z) of some rows."""
        P, root = self.P[rows], self.root[rows, None]
        V = N.divide(P * (2.0 * self.c[rows]))
        V -= P @ inner
        columns = (self.a[rows], self.E[rows], root)[: 3 if self.problem.free else 2]
        V += np.concatenate(columns, axis=1) @ right
        V *= root
        V = np.ascontiguousarray(V[:, : self.r])
        V *= self.slope[rows]
        return distances.gradient(V, self.problem.X[rows])


def _add(total: Any, part: Any) -> Any:
    """Add the part, in the memory of the total where that is an array."""
    if isinstance(total, tuple):
        return tuple(map(_add, total, part))
    total += part
    return total
