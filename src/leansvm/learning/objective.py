"""Leave-one-out error of a basis and its gradient by the numbers of its kernel.

The kernel is a mixture k = sum_p w_p kappa_p (`parts`). With K = k(X, Z) of m rows and r points,
weighted by the roots of s and centred (free bias), M = K'K + lam k(Z, Z), residuals E and
leverages h,

    S = sum_i s_i (e_i / (1 - h_i))^2 / (n_outputs sum_i s_i)

and its derivatives by log gamma, the weights of the parts and log lam are closed forms. M is never
formed: with k(Z, Z) = L L', Phi = K L^-T and Phi'Phi + lam I = R R', the matrix N = L R is a
Cholesky factor of M that stays accurate, and P = K N^-T has rows whose squared norms are the
leverages. One evaluation takes 3.5 m r^2 + 2 m r d multiplications, in tiles of rows by all
threads; few rows are one tile in this thread. Tiles may be in single precision: matrices of points,
their factors and all sums over tiles stay in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._parallel import thread_pool

if TYPE_CHECKING:
    from leansvm.learning.parts import ScaledMixture

Array = NDArray[np.float64]

# added to the diagonal of k(Z, Z), as a share of its mean: what single precision loses in K must
# stay small when it is divided by the least pivot
_JITTER = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-6}
# 1 - leverage is not taken as less. The ridge solvers take 1e-12; the gradient divides by the third
# power, and one row of leverage 1 would drown all others.
_LEAST_REST = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-4}
_TILE_VALUES = 1 << 17  # values of K in a tile: a megabyte, which stays in a core's cache
_TILE_ARRAYS, _SQUARES = 8, 9  # arrays of a tile's size for each thread; r x r arrays
_PANEL = 64  # columns of a triangular solve


class Gradient(NamedTuple):
    """Leave-one-out error and its derivatives."""

    value: float
    log_gamma: Array  # (n_parts, d)
    omega: Array  # (n_parts,); the parts' weights are softmax(omega)
    log_lam: float


def needed_bytes(
    m: int, r: int, d: int, threads: int = 1, n_parts: int = 1, itemsize: int = 8
) -> int:
    """Return the bytes that one evaluation allocates at most, for one output."""
    tile = max(_TILE_VALUES, r) + r * d
    squares = (_SQUARES + 2 * n_parts) * (r + 1) ** 2
    rows = (2 * n_parts + 1) * m * (r + 1) + _TILE_ARRAYS * threads * tile
    return itemsize * rows + 8 * squares


class _Triangle:
    """A lower triangular L, by whose inverse rows are multiplied in place, by panels of columns.

    NumPy's products release the interpreter's lock, SciPy's triangular solves do not.
    """

    def __init__(self, L: Array, dtype: Any = np.float64) -> None:
        self.L, self.panels = L.astype(dtype, copy=False), []
        for start in range(0, len(L), _PANEL):
            panel = slice(start, min(start + _PANEL, len(L)))
            corner = dtrtri(L[panel, panel], lower=True)[0]
            self.panels.append((panel, corner.astype(dtype, copy=False)))

    def solve(self, B: Array) -> Array:
        """Replace B by B L^-T."""
        for panel, inverse in self.panels:
            done = slice(panel.start)
            B[:, panel] = (B[:, panel] - B[:, done] @ self.L[panel, done].T) @ inverse.T
        return B

    def divide(self, B: Array) -> Array:
        """Replace B by B L^-1, from the last columns on."""
        for panel, inverse in reversed(self.panels):
            done = slice(panel.stop, None)
            B[:, panel] = (B[:, panel] - B[:, done] @ self.L[done, panel]) @ inverse
        return B


class LooObjective:
    """The leave-one-out error as a function of the kernel's numbers and lam, with its gradient.

    Arrays are in float64 and C order; features should be centred: products of large means lose
    digits. Memory is allocated once, for all evaluations: ``P`` starts as K and ends as K N^-T,
    ``values`` and ``slopes`` are the parts and their derivatives by D. ``threads`` work on tiles of
    rows of type ``dtype``; callers hold BLAS to one thread (`serial_blas`).

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.learning.objective import LooObjective
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> objective = LooObjective(("rbf",), X, X[::4], X**2, np.ones(20))
    >>> objective(np.array([[1.0]]), 0.1).value < objective(np.array([[100.0]]), 0.1).value
    True
    """

    def __init__(
        self,
        kernels: tuple[str, ...],  # parts: rbf, matern12, matern32, matern52, laplacian, linear
        X: Array,  # rows (m, d)
        Z: Array,  # basis points (r, d)
        Y: Array,  # targets (m, n_outputs)
        weight: Array,  # of the rows, positive (m,)
        bias_penalty: float = 0.0,  # 0: free bias; a positive number: its penalty; inf: no bias
        *,
        threads: int = 1,
        dtype: Any = np.float64,
    ) -> None:
        from leansvm.learning.parts import ScaledMixture  # numba takes a while to load

        self.of_points, self.dtype = partial(ScaledMixture, kernels, Z), np.dtype(dtype)
        self.of_rows = partial(ScaledMixture, kernels, Z.astype(dtype, copy=False))
        self.X, self.Z, self.weight = X.astype(dtype, copy=False), Z, weight
        (m, o), self.r = Y.shape, len(Z)
        # an even number of tiles of one size; a single one where threads would cost more
        count = -(-m * self.r // _TILE_VALUES)
        count = 1 if 2 * m * self.r <= _TILE_VALUES else count + count % 2
        self.step = -(-m // count)
        starts = range(0, m, self.step)
        self.tiles = list(map(slice, starts, (*starts[1:], m)))
        self.pool = thread_pool(threads) if threads > 1 and len(self.tiles) > 1 else None
        self.free = bias_penalty == 0  # columns are centred
        self.width = self.r + (0 < bias_penalty < np.inf)  # a column for a penalised bias
        self.bias_column = 0.0 if self.free else bias_penalty**-0.5
        self.root, self.total = np.sqrt(weight), float(weight.sum())
        self.mean_Y = weight @ Y / self.total if self.free else np.zeros(o)
        self.Y = self.root[:, None] * (Y - self.mean_Y)
        self.P = np.empty((m, self.width), dtype)
        self.values, self.slopes = np.empty((2, len(kernels), m, self.r), dtype)
        # residuals, derivatives of S by them, and (the last) by the leverages
        self.E, self.a, self.c = np.empty((m, o)), np.empty((m, o)), np.empty((m, 1))

    def __call__(self, gamma: Array, lam: float, omega: Array | None = None) -> Gradient:
        """Return value and gradient, given the scales of every part (n_parts, d) and lam = 1 / C.

        Raises LinAlgError when a matrix is not positive definite to rounding, or a result is not
        finite.
        """
        of_points, of_rows = self.of_points(gamma, omega), self.of_rows(gamma, omega)
        values, slopes = np.empty((2, len(gamma), self.r, self.r))
        W = of_points.block(self.Z, values, slopes, same=True)
        L, R, YP, _ = self._factor(of_rows, lam, W)
        Pa, PcP, weighted = self._sum(self._left_out, _Triangle(R, self.dtype), YP.T)
        # A' = (P'Y)' N^-1, U' = (P'a)' N^-1, T = N^-T (P'diag(c)P) N^-1
        N = _Triangle(L @ R)
        A, U, PcP = N.divide(YP), N.divide(Pa.T.copy()), N.divide(PcP)
        # dS / dk(Z, Z) = lam (U A' - T)
        G = U.T @ A
        G -= N.divide(PcP.T.copy())
        G *= lam
        by_W, by_bias = G[: self.r, : self.r], G[self.r :, self.r :]
        by_lam = float(np.vdot(by_W, W) + np.trace(by_bias))
        by_points, omega_points = of_points.derivatives(by_W, self.Z, values, slopes)
        # dS / dK = -(a - P P'a) A' - E U' + 2 (diag(c) P - P P'diag(c)P) N^-1, then centred
        right = [-A, -U]
        if self.free:
            mean = self.root @ self.a @ A - 2.0 * N.divide(weighted[None, :])
            right.append(mean / self.total)
        PcP *= 2.0
        PcP -= Pa @ A
        by_rows, omega_rows = self._sum(
            self._through_rows,
            of_rows,
            _Triangle(N.L, self.dtype),
            PcP.astype(self.dtype),
            np.concatenate(right).astype(self.dtype),
        )
        # a = 2 E / (n_outputs sum(s) (1 - h)^2), so that S = a'E / 2
        found = Gradient(
            value=0.5 * float(np.vdot(self.a, self.E)),
            log_gamma=(by_points + by_rows) * gamma,
            omega=omega_points + omega_rows,
            log_lam=by_lam,
        )
        if not np.isfinite([*found.log_gamma.flat, *found.omega, found.value, by_lam]).all():
            raise np.linalg.LinAlgError("the gradient of leave-one-out is not finite")
        return found

    def predictions(self, X: Array, gamma: Array, lam: float, omega: Array | None = None) -> Array:
        """Return the values of the model whose errors these are at other rows."""
        of_points, of_rows = self.of_points(gamma, omega), self.of_rows(gamma, omega)
        values, slopes = np.empty((2, len(gamma), max(self.step, self.r), self.r))
        W = of_points.block(self.Z, values[:, : self.r], slopes[:, : self.r], same=True)
        L, R, YP, means = self._factor(of_rows, lam, W)
        coef = _Triangle(L @ R).divide(YP).T
        bias = self.mean_Y + self.bias_column * coef[self.r :].sum(axis=0)  # 0 where there is none
        if self.free:
            bias = bias - means @ coef
        result = np.empty((len(X), coef.shape[1]))
        for start in range(0, len(X), self.step):
            rows = X[start : start + self.step]
            K = of_points.block(rows, values[:, : len(rows)], slopes[:, : len(rows)])
            result[start : start + self.step] = K @ coef[: self.r] + bias
        return result

    def _factor(
        self, mixture: ScaledMixture, lam: float, W: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Write Phi, given k(Z, Z); return L, R, (P'Y)' and the means of K's columns."""
        diagonal = W.diagonal()
        np.fill_diagonal(W, diagonal + _JITTER[self.dtype] * diagonal.mean())
        (means,) = self._sum(self._fill, mixture)
        means /= self.total
        L: Array = np.eye(self.width)
        L[: self.r, : self.r] = np.linalg.cholesky(W)
        H, YPhi = self._sum(self._whiten, _Triangle(L, self.dtype), means.astype(self.dtype))
        np.fill_diagonal(H, H.diagonal() + lam)
        R = np.asarray(np.linalg.cholesky(H), dtype=np.float64)
        return L, R, _Triangle(R).solve(YPhi), means

    def _sum(self, step: Callable[..., tuple[Array, ...]], *args: Any) -> list[Array]:
        """Add up the arrays that ``step(*args, rows)`` returns, in the order of the tiles."""
        in_order = map if self.pool is None else self.pool.map
        results = iter(in_order(partial(step, *args), self.tiles))
        totals = list(map(partial(np.asarray, dtype=np.float64), next(results)))
        for more in results:
            for total, part in zip(totals, more, strict=True):
                total += part
        return totals

    def _fill(self, mixture: ScaledMixture, rows: slice) -> tuple[Array, ...]:
        """Write K, values and slopes; return the weighted sums of the columns of K."""
        P = self.P[rows]
        P[:, : self.r] = mixture.block(self.X[rows], self.values[:, rows], self.slopes[:, rows])
        P[:, self.r :] = self.bias_column
        return (self.weight[rows] @ P,)

    def _whiten(self, L: _Triangle, means: Array, rows: slice) -> tuple[Array, ...]:
        """Turn K into Phi, weighted and centred; return Phi'Phi and Y'Phi."""
        P = self.P[rows]
        if self.free:
            P -= means
        P *= self.root[rows, None].astype(self.dtype)
        L.solve(P)
        return P.T @ P, self.Y[rows].T.astype(self.dtype) @ P

    def _left_out(self, R: _Triangle, PY: Array, rows: slice) -> tuple[Array, ...]:
        """Turn Phi into P, write E, a and c; return P'a, P'diag(c)P and P'(c root(s))."""
        P, E, a, c = R.solve(self.P[rows]), self.E[rows], self.a[rows], self.c[rows]
        np.subtract(self.Y[rows], P @ PY.astype(self.dtype), out=E)
        rest = 1.0 - np.einsum("ij,ij->i", P, P)
        if self.free:
            rest -= self.weight[rows] / self.total
        rest = np.maximum(rest, _LEAST_REST[self.dtype])[:, None]
        left_out = E / rest
        np.divide(left_out * (2.0 / (self.total * E.shape[1])), rest, out=a)
        np.sum(a * left_out, axis=1, keepdims=True, out=c)
        scaled = P * np.sqrt(c).astype(self.dtype)
        weighted = (self.root[rows] * c[:, 0]).astype(self.dtype) @ P
        return P.T @ a.astype(self.dtype), scaled.T @ scaled, weighted

    def _through_rows(
        self, mixture: ScaledMixture, N: _Triangle, inner: Array, right: Array, rows: slice
    ) -> tuple[Array, ...]:
        """Return the derivatives through k(X, Z) of some rows."""
        P, root = self.P[rows], self.root[rows, None]
        G = N.divide(P * (2.0 * self.c[rows]).astype(self.dtype))
        G -= P @ inner
        columns = (self.a[rows], self.E[rows], root)[: 3 if self.free else 2]
        G += np.concatenate(columns, axis=1).astype(self.dtype) @ right
        G *= root.astype(self.dtype)
        X, values, slopes = self.X[rows], self.values[:, rows], self.slopes[:, rows]
        return mixture.derivatives(G[:, : self.r], X, values, slopes)
