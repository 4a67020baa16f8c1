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
precision, but matrices of points, their factors and sums over tiles are in double precision.

A tile, and the points, are one generator each. It computes up to a sum over all rows, yields its
part, and is sent what follows from the whole sum:

    step  rows get              rows yield                 points get     points yield
    1     -                     sums of K's columns        -              L^-1
    2     L^-T, means           Phi'Phi, Y'Phi             -              -
    3     R^-T, P'Y             S, P'a, P'cP and others    R^-1           N^-1
    4     factors of P, c P     derivatives through        A', U',        derivatives by lam
          and [a, E, root(s)]   k(X, Z)                    P'cP N^-1      and through k(Z, Z)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from itertools import repeat
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._accelerated import cholesky_lower, gram, solve_lower
from leansvm._array_api import identity, like_rows, moved, namespace, to_host
from leansvm._parallel import thread_pool

if TYPE_CHECKING:
    from leansvm.learning.parts import ScaledMixture

Array = NDArray[np.float64]
Steps = Generator[Any, Any, None]

# of double and single precision: added to the diagonal of k(Z, Z), as a share of its mean; what
# single precision loses in K must stay small when it is divided by the least pivot
_JITTER = 1e-10, 1e-6
# 1 - leverage is not taken as less. The ridge solvers take 1e-12; the gradient divides by the third
# power, and one row of leverage 1 would drown all others.
_LEAST_REST = 1e-8, 1e-4
TILE_VALUES = 1 << 17  # values of K in a tile: a megabyte, which stays in a core's cache
_TRIANGLE_PANEL = 64  # columns of a product with a triangle


class Gradient(NamedTuple):
    """Leave-one-out error and its derivatives."""

    value: float
    log_gamma: Array  # (n_parts, d)
    omega: Array  # (n_parts,); the parts' weights are softmax(omega)
    log_lam: float


def inverse_factor(A: Any, eye: Any) -> Any:
    """Return L^-1 of A = L L'; ``eye`` is the identity beside it."""
    if isinstance(A, np.ndarray):
        return dtrtri(np.linalg.cholesky(A), lower=True)[0]
    return solve_lower(cholesky_lower(A), eye)


def times_triangle(A: Any, T: Any, upper: bool = False) -> Any:
    """Return A T; on the host without most products with the zeros of the triangular T."""
    if not isinstance(A, np.ndarray):
        return A @ T
    out = np.empty_like(A)
    for a in range(0, len(T), _TRIANGLE_PANEL):
        b = a + _TRIANGLE_PANEL
        used = slice(b) if upper else slice(a, None)
        np.matmul(A[:, used], T[used, a:b], out=out[:, a:b])
    return out


class _Solved(NamedTuple):
    """The model for some numbers of the kernel, and the running steps of rows and points."""

    points: Steps
    rows: list[Steps]  # of every tile
    mixture: ScaledMixture  # the kernel between rows of Z's type and the points
    inv_L: Any
    means: Any  # of the columns of K
    inv_R: Any
    YP: Any  # Y'P


class LooObjective:
    """The leave-one-out error as a function of the kernel's numbers and lam, with its gradient.

    ``X`` is in the type in which rows are worked on, ``Z`` in float64, both in C order and in one
    place, the host or a device; features should be centred: products of large means lose digits.
    ``threads`` work on tiles of rows; callers hold BLAS to one thread (`limited_blas`).

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

        self.xp, on_host = np, place is None and isinstance(X, np.ndarray)
        if not on_host:
            X, Z = map(like_rows, (X, Z), repeat(X if place is None else place))
            self.xp = namespace(X)
        self.dtype, self.Z, self.r = X.dtype, Z, Z.shape[0]
        self.single = bool(X.dtype != self.xp.float64)
        self.of_points = partial(ScaledMixture, kernels, Z, self.xp)
        self.of_rows = partial(ScaledMixture, kernels, self.xp.astype(Z, X.dtype), self.xp)
        self.free = bias_penalty == 0  # columns are centred
        self.width = self.r + (0 < bias_penalty < np.inf)  # a column for a penalised bias
        self.bias_column = 0.0 if self.free else bias_penalty**-0.5
        (m, self.n_outputs), self.total = Y.shape, float(weight.sum())
        self.n_rows = m
        self.mean_Y = weight @ Y / self.total if self.free else np.zeros(self.n_outputs)
        self.eye = np.eye(self.width) if on_host else identity(self.width, Z)
        root = np.sqrt(weight)[:, None]
        # an even number of tiles of one size; a single one where threads would cost more
        count = -(-m * self.r // TILE_VALUES)
        one = 2 * m * self.r <= TILE_VALUES or not on_host
        self.step = -(-m // (1 if one else count + count % 2))
        self.tiles: list[Any] = []  # rows; targets, centred and weighted; roots of the weights
        starts = range(0, m, self.step)
        for rows in map(slice, starts, (*starts[1:], m)):
            given = root[rows] * (Y[rows] - self.mean_Y), root[rows]
            there = given if on_host else map(like_rows, given, repeat(X))
            self.tiles.append((X[rows, :], *there))
        self.pool = thread_pool(threads) if threads > 1 and len(self.tiles) > 1 else None

    def __call__(self, gamma: Array, lam: float, omega: Array | None = None) -> Gradient:
        """Return value and gradient, given the scales of every part (n_parts, d) and lam = 1 / C.

        Raises LinAlgError when a matrix is not positive definite to rounding, or a result is not
        finite.
        """
        found, xp = self._solve(gamma, lam, omega), self.xp
        inv_R, YP = found.inv_R, found.YP
        inv_Rt = xp.astype(inv_R.T, self.dtype, copy=False)
        PY = xp.astype(YP.T, self.dtype, copy=False)
        # the inverse of N = L R is found while rows are worked on
        sums, inv_N = self._sum(found.rows, (inv_Rt, PY), found.points, inv_R)
        S, Pa, PcP, weighted, root_a = sums
        # A' = (P'Y)' N^-1, U' = (P'a)' N^-1, T = N^-T (P'diag(c)P) N^-1
        A, U, PcP_inv_N = YP @ inv_N, Pa.T @ inv_N, times_triangle(PcP, inv_N)
        # dS / dK = -(a - P P'a) A' - E U' + 2 (diag(c) P - P P'diag(c)P) N^-1, then centred
        of_columns = [-A, -U]  # factors of the columns a, E and root(s)
        if self.free:
            of_columns.append((root_a @ A - 2.0 * weighted @ inv_N) / self.total)
        given = [
            xp.astype(2.0 * PcP_inv_N - Pa @ A, self.dtype, copy=False),
            xp.astype(2.0 * inv_N, self.dtype, copy=False),
            xp.astype(xp.concat(of_columns), self.dtype, copy=False),
        ]
        sums, others = self._sum(found.rows, given, found.points, (A, U, PcP_inv_N))
        (by_rows, omega_rows), (by_lam, by_points, omega_points) = sums, others
        by_gamma, by_omega = (by_points + by_rows) * gamma, omega_points + omega_rows
        value = float(S[0, 0])
        if not np.isfinite([*by_gamma.flat, *by_omega, value, by_lam]).all():
            raise np.linalg.LinAlgError("the gradient of leave-one-out is not finite")
        return Gradient(value, by_gamma, by_omega, by_lam)

    def predictions(
        self, X: Any, gamma: Array, lam: float, omega: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the values of the model at other rows, and their leverages for a weight of 1."""
        found, xp = self._solve(gamma, lam, omega), self.xp
        to_P = found.inv_L.T @ found.inv_R.T
        values, leverages = np.empty((X.shape[0], self.n_outputs)), np.empty(X.shape[0])
        for start in range(0, len(values), self.step):
            rows = slice(start, min(start + self.step, len(values)))
            P = found.mixture.block(X[rows] if xp is np else moved(X[rows, :], self.Z))[0]
            if self.width > self.r:
                P = xp.concat([P, xp.full_like(P[:, :1], self.bias_column)], axis=1)
            P = (P - found.means if self.free else P) @ to_P
            values[rows], leverages[rows] = to_host(P @ found.YP.T), to_host(xp.vecdot(P, P))
        return values + self.mean_Y, leverages + (1.0 / self.total if self.free else 0.0)

    def _sum(
        self, rows: list[Steps], message: Any, points: Steps, other: Any
    ) -> tuple[list[Any], Any]:
        """Send a message to the steps of all rows; add up what they yield.

        Arrays are added in the order of the tiles, in double precision. Meanwhile the points run
        their next step, with a message of their own; what they yield is returned, too.
        """
        results: Iterator[tuple[Any, ...]]
        if self.pool is None:
            found, results = points.send(other), map(methodcaller("send", message), rows)
        else:
            waiting = self.pool.submit(points.send, other)
            results = self.pool.map(methodcaller("send", message), rows)
        totals: list[Any] = []
        for A in next(results):
            xp = np if isinstance(A, np.ndarray) else self.xp  # some sums are on the host anyway
            totals.append(xp.astype(A, xp.float64, copy=False))
        for more in results:
            for total, part in zip(totals, more, strict=True):
                total += part
        return totals, found if self.pool is None else waiting.result()

    def _solve(self, gamma: Array, lam: float, omega: Array | None) -> _Solved:
        """Factor k(Z, Z) and Phi'Phi + lam I."""
        mixture = of_rows = self.of_points(gamma, omega)
        if self.single:
            of_rows = self.of_rows(gamma, omega)
        points, rows = self._points(mixture, lam), [*map(self._rows, self.tiles, repeat(of_rows))]
        (means,), inv_L = self._sum(rows, None, points, None)
        means /= self.total
        inv_Lt = self.xp.astype(inv_L.T, self.dtype, copy=False)
        to_rows = inv_Lt, self.xp.astype(means, self.dtype, copy=False)
        (H, YPhi), _ = self._sum(rows, to_rows, points, None)
        inv_R = inverse_factor(H + lam * self.eye, self.eye)
        return _Solved(points, rows, mixture, inv_L, means, inv_R, YPhi @ inv_R.T)

    def _points(self, mixture: ScaledMixture, lam: float) -> Steps:
        """Yield L^-1 of k(Z, Z) = L L', N^-1 of N = L R, and the derivatives through k(Z, Z)."""
        xp, r = self.xp, self.r
        K, terms = mixture.block(self.Z, self.eye[:r, :r])
        shift = _JITTER[self.single] * float(xp.linalg.trace(K)) / r
        padded = 1.0 * self.eye
        padded[:r, :r] *= shift
        padded[:r, :r] += K
        inv_L = inverse_factor(padded, self.eye)
        yield inv_L
        inv_R = yield  # nothing to do while Phi'Phi is added up
        inv_N = times_triangle(inv_R, inv_L)
        A, U, PcP_inv_N = yield inv_N
        # dS / dk(Z, Z) = lam (U A' - T)
        G = lam * (U.T @ A - times_triangle(PcP_inv_N.T, inv_N))
        by_W = G[:r, :r]
        log_lam = xp.sum(by_W * padded[:r, :r]) + xp.sum(xp.linalg.diagonal(G)[r:])
        yield float(log_lam), *mixture.derivatives(by_W, self.Z, terms)

    def _rows(self, tile: tuple[Any, Any, Any], mixture: ScaledMixture) -> Steps:
        """Yield what some rows add to the sums of every step.

        In step 3 these are S, P'a, P'diag(c)P, (c root(s))'P and root(s)'a.
        """
        (X, Y, root), xp, dtype = tile, self.xp, self.dtype
        near = xp.astype(root, dtype, copy=False)
        P, terms = mixture.block(X)
        if self.width > self.r:
            P = xp.concat([P, xp.full_like(P[:, :1], self.bias_column)], axis=1)
        inv_Lt, means = yield (xp.astype(root[:, 0] ** 2, dtype, copy=False) @ P,)
        if self.free:
            P -= means
        P *= near
        P = times_triangle(P, inv_Lt, upper=True)  # Phi, weighted and centred
        YPhi = xp.astype(Y.T, dtype, copy=False) @ P
        inv_Rt, PY = yield P.T @ P if xp is np else gram(P), YPhi
        P = times_triangle(P, inv_Rt, upper=True)
        E = Y - P @ PY
        rest = 1.0 - xp.astype(xp.vecdot(P, P), xp.float64, copy=False)[:, None]
        if self.free:
            rest = rest - root**2 / self.total
        rest = xp.clip(rest, _LEAST_REST[self.single], None)
        # derivatives of S by the residuals and by the leverages
        a = (2.0 / (self.total * self.n_outputs)) * E / rest**2
        c = xp.sum(a * E / rest, axis=1, keepdims=True)
        S = 0.5 * xp.sum(a * E, keepdims=True)  # a = 2 E / (... (1 - h)^2)
        scaled = P * xp.astype(xp.sqrt(c), dtype, copy=False)
        PcP = scaled.T @ scaled if xp is np else gram(scaled)
        Pa = P.T @ xp.astype(a, dtype, copy=False)
        weighted = xp.astype(root * c, dtype, copy=False).T @ P
        del scaled
        of_P, twice_inv_N, of_columns = yield S, Pa, PcP, weighted, root.T @ a
        G = times_triangle(P * xp.astype(c, dtype, copy=False), twice_inv_N)
        G -= P @ of_P
        columns = (a, E, root)[: 3 if self.free else 2]
        G += xp.astype(xp.concat(columns, axis=1), dtype, copy=False) @ of_columns
        G *= near
        yield mixture.derivatives(G[:, : self.r], X, terms)
