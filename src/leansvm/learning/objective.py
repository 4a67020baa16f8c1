"""Leave-one-out error of a basis and its gradient by the numbers of its kernel.

The kernel is a mixture k = sum_p w_p kappa_p (`parts`). With K = k(X, Z) of m rows and r points,
weighted by the roots of s and centred (free bias), M = K'K + lam k(Z, Z), residuals E and
leverages h,

    S = sum_i s_i (e_i / (1 - h_i))^2 / (n_outputs sum_i s_i)

and its derivatives by log gamma, the weights of the parts and log lam are closed forms. M is never
formed: with k(Z, Z) = L L', Phi = K L^-T and Phi'Phi + lam I = R R', the matrix N = L R is a
Cholesky factor of M that stays accurate, and P = K N^-T has rows whose squared norms are the
leverages. One evaluation takes 4 m r^2 + 2 m r d multiplications, in tiles of rows by all threads;
few rows are one tile in this thread, rows on a device are one tile there. Rows may be in single
precision: matrices of points, their factors and all sums over tiles stay in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._accelerated import cholesky_lower, gram, solve_lower
from leansvm._array_api import (
    as_float64,
    foreign_namespace,
    identity,
    like_rows,
    moved,
    namespace,
    to_host,
)
from leansvm._parallel import thread_pool

if TYPE_CHECKING:
    from leansvm.learning.parts import ScaledMixture

Array = NDArray[np.float64]

# of double and single precision: added to the diagonal of k(Z, Z), as a share of its mean; what
# single precision loses in K must stay small when it is divided by the least pivot
_JITTER = 1e-10, 1e-6
# 1 - leverage is not taken as less. The ridge solvers take 1e-12; the gradient divides by the third
# power, and one row of leverage 1 would drown all others.
_LEAST_REST = 1e-8, 1e-4
_TILE_VALUES = 1 << 17  # values of K in a tile: a megabyte, which stays in a core's cache
_TILE_ARRAYS, _SQUARES = 8, 9  # arrays of a tile's size for each thread; r x r arrays
_PANEL = 64  # columns of a product with a triangle


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
    rows = (2 * n_parts + 2) * m * (r + 1) + _TILE_ARRAYS * threads * tile
    return itemsize * rows + 8 * squares


def _inverse(L: Any) -> Any:
    """Return the inverse of a lower triangular matrix."""
    if foreign_namespace(L) is None:
        return dtrtri(L, lower=True)[0]
    return solve_lower(L, identity(L.shape[0], L))


def _times_upper(A: Any, U: Any) -> Any:
    """Return A U, U upper triangular, without most products with its zeros."""
    if foreign_namespace(A) is not None:
        return A @ U
    out = np.empty_like(A)
    for a in range(0, len(U), _PANEL):
        b = a + _PANEL
        np.matmul(A[:, :b], U[:b, a:b], out=out[:, a:b])
    return out


def _times_lower(A: Any, L: Any) -> Any:
    """Return A L, L lower triangular."""
    if foreign_namespace(A) is not None:
        return A @ L
    out = np.empty_like(A)
    for a in range(0, len(L), _PANEL):
        np.matmul(A[:, a:], L[a:, a : a + _PANEL], out=out[:, a : a + _PANEL])
    return out


class _Tile:
    """Some rows: what is given, and what one step leaves for the next."""

    P: Any  # K, then Phi, then K N^-T
    terms: Any  # the parts of K
    E: Any  # residuals
    a: Any  # derivatives of S by the residuals
    c: Any  # derivatives of S by the leverages

    def __init__(self, X: Any, Y: Any, root: Any) -> None:
        self.X, self.Y, self.root = X, Y, root  # Y is centred and weighted; roots of the weights


class LooObjective:
    """The leave-one-out error as a function of the kernel's numbers and lam, with its gradient.

    ``X`` is in the type in which rows are worked on, ``Z`` in float64, both in C order and in one
    place, the host or a device; features should be centred: products of large means lose digits.
    ``threads`` work on tiles of rows; callers hold BLAS to one thread (`serial_blas`).

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
        X: Any,  # rows (m, d)
        Z: Any,  # basis points (r, d)
        Y: Array,  # targets (m, n_outputs)
        weight: Array,  # of the rows, positive (m,)
        bias_penalty: float = 0.0,  # 0: free bias; a positive number: its penalty; inf: no bias
        *,
        threads: int = 1,
        place: Any = None,  # an array of the device on which to work; None: where X is
    ) -> None:
        from leansvm.learning.parts import ScaledMixture  # numba takes a while to load

        X, Z = (A if place is None else like_rows(A, place) for A in (X, Z))
        self.xp, self.dtype, self.Z, self.r = namespace(X), X.dtype, Z, Z.shape[0]
        self.single = bool(X.dtype != self.xp.float64)
        self.of_points = partial(ScaledMixture, kernels, Z)
        self.of_rows = partial(ScaledMixture, kernels, self._cast(Z))
        self.free = bias_penalty == 0  # columns are centred
        self.width = self.r + (0 < bias_penalty < np.inf)  # a column for a penalised bias
        self.bias_column = 0.0 if self.free else bias_penalty**-0.5
        (m, self.n_outputs), self.total = Y.shape, float(weight.sum())
        self.n_rows = m
        self.mean_Y = weight @ Y / self.total if self.free else np.zeros(self.n_outputs)
        root = np.sqrt(weight)[:, None]
        # an even number of tiles of one size; a single one where threads would cost more
        count = -(-m * self.r // _TILE_VALUES)
        one = 2 * m * self.r <= _TILE_VALUES or foreign_namespace(X) is not None
        self.step = -(-m // (1 if one else count + count % 2))
        self.tiles = []
        starts = range(0, m, self.step)
        for rows in map(slice, starts, (*starts[1:], m)):
            given = root[rows] * (Y[rows] - self.mean_Y), root[rows]
            self.tiles.append(_Tile(X[rows, :], *(like_rows(A, X) for A in given)))
        self.pool = thread_pool(threads) if threads > 1 and len(self.tiles) > 1 else None

    def _cast(self, A: Any) -> Any:
        """Return numbers in the type of the rows."""
        return self.xp.astype(A, self.dtype, copy=False)

    def __call__(self, gamma: Array, lam: float, omega: Array | None = None) -> Gradient:
        """Return value and gradient, given the scales of every part (n_parts, d) and lam = 1 / C.

        Raises LinAlgError when a matrix is not positive definite to rounding, or a result is not
        finite.
        """
        points, rows = self.of_points(gamma, omega), self.of_rows(gamma, omega)
        W, terms, L, _ = self._whiten_all(points, rows)
        R, YP = self._solve(lam)
        # the inverse of N = L R is found while rows are worked on
        (Pa, PcP, weighted), N = self._sum(
            partial(self._left_out, self._cast(R.T), self._cast(YP.T)),
            partial(_times_lower, R, L),
        )
        # A' = (P'Y)' N^-1, U' = (P'a)' N^-1, T = N^-T (P'diag(c)P) N^-1
        A, U, right = YP @ N, Pa.T @ N, _times_lower(PcP, N)
        # dS / dK = -(a - P P'a) A' - E U' + 2 (diag(c) P - P P'diag(c)P) N^-1, then centred
        factors = [-A, -U]
        if self.free:
            root_a = sum(tile.root.T @ tile.a for tile in self.tiles)
            factors.append((root_a @ A - 2.0 * weighted @ N) / self.total)
        inner = self._cast(2.0 * right - Pa @ A), self._cast(2.0 * N)
        through = partial(self._through_rows, rows, *inner, self._cast(self.xp.concat(factors)))

        def through_points() -> tuple[float, Array, Array]:
            # dS / dk(Z, Z) = lam (U A' - T)
            G = lam * (U.T @ A - _times_lower(right.T, N))
            by_W = G[: self.r, : self.r]
            log_lam = self.xp.sum(by_W * W) + self.xp.sum(self.xp.linalg.diagonal(G)[self.r :])
            return float(log_lam), *points.derivatives(by_W, self.Z, terms)

        (by_rows, omega_rows), others = self._sum(through, through_points)
        by_lam, by_points, omega_points = others
        found = Gradient(
            value=self._value(),
            log_gamma=(by_points + by_rows) * gamma,
            omega=omega_points + omega_rows,
            log_lam=by_lam,
        )
        if not np.isfinite([*found.log_gamma.flat, *found.omega, found.value, by_lam]).all():
            raise np.linalg.LinAlgError("the gradient of leave-one-out is not finite")
        return found

    def error(self, gamma: Array, lam: float, omega: Array | None = None) -> float:
        """Return the value alone, for half the price."""
        self._whiten_all(self.of_points(gamma, omega), self.of_rows(gamma, omega))
        R, YP = self._solve(lam)
        self._sum(partial(self._residuals, self._cast(R.T), self._cast(YP.T)))
        return self._value()

    def predictions(self, X: Any, gamma: Array, lam: float, omega: Array | None = None) -> Array:
        """Return the values of the model whose errors these are at other rows."""
        points, rows, X = self.of_points(gamma, omega), self.of_rows(gamma, omega), moved(X, self.Z)
        L, means = self._whiten_all(points, rows)[2:]
        R, YP = self._solve(lam)
        coef = (YP @ R @ L).T
        bias = self.bias_column * self.xp.sum(coef[self.r :, :], axis=0)  # 0 where there is none
        if self.free:
            bias = -means @ coef
        starts = range(0, X.shape[0], self.step)
        ends = (*starts[1:], X.shape[0])
        blocks = (as_float64(X[a:b, :]) for a, b in zip(starts, ends, strict=True))
        values = [points.block(rows)[0] @ coef[: self.r, :] + bias for rows in blocks]
        return np.concatenate([to_host(value) for value in values]) + self.mean_Y

    def _sum(
        self, step: Callable[[_Tile], tuple[Any, ...]], beside: Callable[[], Any] = tuple
    ) -> tuple[list[Any], Any]:
        """Add up the arrays that ``step`` returns, in the order of the tiles, in double precision.

        ``beside`` is called meanwhile, and its result returned, too.
        """
        results: Iterator[tuple[Any, ...]]
        if self.pool is None:
            other = beside()
            results = map(step, self.tiles)
        else:
            waiting = self.pool.submit(beside)
            results = self.pool.map(step, self.tiles)
        totals = list(map(as_float64, next(results)))
        for more in results:
            for total, part in zip(totals, more, strict=True):
                total += part
        return totals, other if self.pool is None else waiting.result()

    def _whiten_all(self, points: ScaledMixture, rows: ScaledMixture) -> tuple[Any, Any, Any, Any]:
        """Write Phi and its sums; return k(Z, Z), its parts, L^-1 and the means of K's columns."""

        def factor() -> tuple[Any, Any, Any]:
            W, terms = points.block(self.Z, same=True)
            shift = _JITTER[self.single] * float(self.xp.linalg.trace(W)) / self.r
            padded = identity(self.width, W)
            padded[: self.r, : self.r] *= shift
            padded[: self.r, : self.r] += W
            return padded[: self.r, : self.r], terms, _inverse(cholesky_lower(padded))

        (means,), (W, terms, L) = self._sum(partial(self._fill, rows), factor)
        means /= self.total
        step = partial(self._whiten, self._cast(L.T), self._cast(means))
        (self.H, self.YPhi), _ = self._sum(step)
        return W, terms, L, means

    def _solve(self, lam: float) -> tuple[Any, Any]:
        """Return R^-1 and (P'Y)'."""
        R = _inverse(cholesky_lower(self.H + lam * identity(self.width, self.H)))
        return R, self.YPhi @ R.T

    def _value(self) -> float:
        # a = 2 E / (n_outputs sum(s) (1 - h)^2), so that S = a'E / 2
        return 0.5 * sum(float(self.xp.sum(tile.a * tile.E)) for tile in self.tiles)

    # ------------------------------------------------------------------ steps of some rows

    def _fill(self, mixture: ScaledMixture, tile: _Tile) -> tuple[Any, ...]:
        """Write K and its parts; return the weighted sums of the columns of K."""
        tile.P, tile.terms = mixture.block(tile.X)
        if self.width > self.r:
            column = self.xp.full_like(tile.P[:, :1], self.bias_column)
            tile.P = self.xp.concat([tile.P, column], axis=1)
        return (self._cast(tile.root[:, 0] ** 2) @ tile.P,)

    def _whiten(self, L: Any, means: Any, tile: _Tile) -> tuple[Any, ...]:
        """Turn K into Phi, weighted and centred; return Phi'Phi and Y'Phi."""
        if self.free:
            tile.P -= means
        tile.P *= self._cast(tile.root)
        tile.P = _times_upper(tile.P, L)
        return gram(tile.P), self._cast(tile.Y.T) @ tile.P

    def _residuals(self, R: Any, PY: Any, tile: _Tile) -> tuple[Any, ...]:
        """Turn Phi into P, and write E and a."""
        tile.P = _times_upper(tile.P, R)
        tile.E = tile.Y - tile.P @ PY
        rest = 1.0 - as_float64(self.xp.vecdot(tile.P, tile.P))[:, None]
        if self.free:
            rest = rest - tile.root**2 / self.total
        rest = self.xp.clip(rest, _LEAST_REST[self.single], None)
        tile.a = (2.0 / (self.total * self.n_outputs)) * tile.E / rest**2
        tile.c = self.xp.sum(tile.a * tile.E / rest, axis=1, keepdims=True)
        return ()

    def _left_out(self, R: Any, PY: Any, tile: _Tile) -> tuple[Any, ...]:
        """Turn Phi into P, write E, a and c; return P'a, P'diag(c)P and P'(c root(s))."""
        self._residuals(R, PY, tile)
        P = tile.P
        weighted = self._cast((tile.root * tile.c)[:, 0]) @ P
        return P.T @ self._cast(tile.a), gram(P * self._cast(self.xp.sqrt(tile.c))), weighted

    def _through_rows(
        self, mixture: ScaledMixture, inner: Any, N: Any, right: Any, tile: _Tile
    ) -> tuple[Any, ...]:
        """Return the derivatives through k(X, Z) of some rows."""
        G = _times_lower(tile.P * self._cast(tile.c), N)
        G -= tile.P @ inner
        columns = (tile.a, tile.E, tile.root)[: 3 if self.free else 2]
        G += self._cast(self.xp.concat(columns, axis=1)) @ right
        G *= self._cast(tile.root)
        return mixture.derivatives(G[:, : self.r], tile.X, tile.terms)
