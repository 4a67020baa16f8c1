"""Partial dependence of f(x) = sum_j c_j k(x, z_j) + b on every feature, from one matrix of rows.

The mean of f over all rows with feature f set to v is sum_j c_j m_j(v), m_j(v) = mean_i k(x_i with
x_if = v, z_j). Most kernels need not compute it for every v from scratch (`sums_along`): they use
products of one factor for each feature, polynomials in v, and so on.

Matérn kernels are functions of D = rest_ij + t, t = gamma_f (v - z_jf)^2: smooth in t unless rest
is small, so that the rows' sum is a Chebyshev series, from fewer values of t than of v.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.polynomial import chebyshev

from leansvm.inspection._view import Array, Indices
from leansvm.kernels import Kernel
from leansvm.kernels._function import DistanceKernel

_TILE = 2**18  # pairs of rows and points at a time
# From rest = q T on, T the largest t, so many nodes in sqrt(t + q T) give 1e-12: with c and w the
# middle and half the width of their range, the series converges like (c/w + sqrt((c/w)^2 - 1))^-n.
_BANDS = ((5.0, 8), (1.0, 12), (0.4, 16), (0.12, 24), (0.03, 32))


def averages(
    kernel: Kernel, X: Array, Z: Array, coef: Array, moves: Sequence[tuple[Indices, Array]]
) -> list[Array]:
    """Return the mean of sum_j c_j k(x, z_j) over rows, values of the grid x outputs.

    A move is a few features and the values that they take together, grid x features. Rows, points
    and values are clipped already where the kernel clips.
    """
    sums = [np.zeros((len(values), coef.shape[1])) for _, values in moves]
    function, materns = kernel.function, {}
    if isinstance(function, DistanceKernel) and function.root_terms is not None:
        materns = {
            m: _MaternSums(function, Z[:, own[0]], int(own[0]), values[:, 0])
            for m, (own, values) in enumerate(moves)
            if len(own) == 1
        }
    step = max(1, _TILE // max(len(Z), 1))
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        base = function.pair_sums(rows, Z)
        for m, (own, values) in enumerate(moves):
            if m in materns:
                materns[m].add(base, rows[:, own[0]])
                continue
            found = None
            if len(own) == 1:
                found = function.sums_along(rows, Z, coef, base, int(own[0]), values[:, 0])
            if found is None:
                found = _sums_of_blocks(kernel, rows, Z, coef, own, values)
            sums[m] += found
    for m, series in materns.items():
        sums[m] = series.total().T @ coef
    return [total / len(X) for total in sums]


def individual(
    kernel: Kernel, X: Array, Z: Array, coef: Array, own: Indices, values: Array
) -> Array:
    """Return sum_j c_j k(x, z_j) of every row with some features set, rows x grid x outputs."""
    result = np.empty((len(X), len(values), coef.shape[1]))
    function = kernel.function
    if isinstance(function, DistanceKernel) and function.root_terms is None and len(own) == 1:
        f, grid = int(own[0]), values[:, 0]
        step = max(1, _TILE // max(len(Z), 1))
        along = np.exp(-function.distance_along(grid, Z[:, f], f))  # grid x points
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            now = function.distance_along(rows[:, f], Z[:, f], f)
            rest = np.exp(-np.maximum(function.pair_sums(rows, Z) - now, 0.0))
            for o, c in enumerate(coef.T):
                result[start : start + step, :, o] = rest @ (along * c).T
        return result
    for v, value in enumerate(values):
        result[:, v] = _moved(X, own, value, kernel, Z) @ coef
    return result


def _moved(X: Array, own: Indices, value: Array, kernel: Kernel, Z: Array) -> Array:
    """Return the kernel's values with some features of all rows set."""
    rows = X.copy()
    rows[:, own] = value
    return np.asarray(kernel.block(rows, Z))


def _sums_of_blocks(
    kernel: Kernel, X: Array, Z: Array, coef: Array, own: Indices, values: Array
) -> Array:
    """Return the sum of f over rows for every value of the grid, grid x outputs, value by value."""
    return np.stack([(_moved(X, own, v, kernel, Z) @ coef).sum(axis=0) for v in values])


class _MaternSums:
    """sum_i k(rest_ij + t_jv), points x grid: pairs with a large rest by a series in t."""

    def __init__(self, function: DistanceKernel, z: Array, f: int, grid: Array) -> None:
        self._terms, self._gamma = function.root_terms, function.gamma_of(f)
        self._z = np.ascontiguousarray(z)
        steps = function.distance_along(grid, z, f).T
        self._bands = [_Band(q, count, steps) for q, count in _BANDS if count < len(grid)]
        # the nodes of every band, the same for all points, then the points' own steps
        shared = np.concatenate([np.zeros(0), *(band.t for band in self._bands)])
        self._t = np.ascontiguousarray(np.hstack([np.tile(shared, (len(z), 1)), steps]))
        self._floors = np.array([band.floor for band in self._bands] + [0.0])
        counts = [len(band.t) for band in self._bands] + [len(grid)]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        self._sums = np.zeros(self._t.shape)

    def add(self, base: Array, x: Array) -> None:
        """Add the rows of a tile."""
        from leansvm.inspection._loops import add_materns

        place = np.ascontiguousarray(x), self._z, self._gamma, self._floors, self._starts
        add_materns(np.ascontiguousarray(base.T), *place, self._t, self._terms, self._sums)

    def total(self) -> Array:
        """Return the sums at the values of the grid."""
        total = self._sums[:, self._starts[-2] :].copy()
        for band, start in zip(self._bands, self._starts, strict=False):
            band.add_to(total, self._sums[:, start : start + len(band.t)])
        return total


class _Band:
    """Pairs with rest >= floor: a polynomial in sqrt(t + floor) through Chebyshev nodes."""

    def __init__(self, q: float, count: int, steps: Array) -> None:
        largest = float(steps.max())
        self.floor = q * largest
        low, high = np.sqrt(self.floor), np.sqrt(self.floor + largest)
        self._nodes = chebyshev.chebpts1(count)
        width = max(high - low, np.finfo(np.float64).tiny)
        self.t = np.maximum((low + 0.5 * width * (self._nodes + 1)) ** 2 - self.floor, 0.0)
        self._places = 2.0 * (np.sqrt(steps + self.floor) - low) / width - 1.0

    def add_to(self, total: Array, values: Array) -> None:
        """Add for every point the polynomial through its values, at its own steps."""
        from leansvm.inspection._loops import add_series

        n = len(self._nodes)
        coefficients = (2.0 / n) * values @ chebyshev.chebvander(self._nodes, n - 1)
        coefficients[:, 0] *= 0.5
        add_series(coefficients, np.ascontiguousarray(self._places), total)
