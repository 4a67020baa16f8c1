"""Partial dependence of f(x) = sum_j c_j k(x, z_j) + b on every feature, from one matrix of rows.

The mean of f over all rows with feature f set to v is sum_j c_j m_j(v), m_j(v) = mean_i k(x_i with
x_if = v, z_j). The kernels' structure saves computing it for every v from scratch:

- rbf, laplacian, chi2 are products: m_j(v) = k_f(v, z_jf) mean_i k(x_i, z_j without f).
- Matérn kernels are functions of D = rest_ij + t, t = gamma_f (v - z_jf)^2: smooth in t unless rest
  is small, so that the rows' sum is a Chebyshev series, from fewer values of t than of v.
- poly is a polynomial in v; linear and cosine need x_i'z only; sigmoid is (E - 1) / (E + 1) with a
  product E.
"""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from leansvm.kernels import MATERN, RADIAL, Kernel, absolute_distances

Array = NDArray[np.float64]
SEPARABLE = ("rbf", "laplacian", "chi2")
_TILE = 2**18  # pairs of rows and points at a time
# From rest = q T on, T the largest t, so many nodes in sqrt(t + q T) give 1e-12: with c and w the
# middle and half the width of their range, the series converges like (c/w + sqrt((c/w)^2 - 1))^-n.
_BANDS = ((5.0, 8), (1.0, 12), (0.4, 16), (0.12, 24), (0.03, 32))
_LARGEST_EXPONENT = 600.0
_HIGHEST_DEGREE = 8


def averages(
    kernel: Kernel, X: Array, Z: Array, coef: Array, grids: dict[int, Array]
) -> dict[int, Array]:
    """Return the mean of sum_j c_j k(x, z_j) over rows, values of the grid x outputs.

    Rows, points and grids are clipped already where the kernel clips.
    """
    sums = {f: np.zeros((len(grid), coef.shape[1])) for f, grid in grids.items()}
    materns = {}
    if kernel.name in MATERN:
        materns = {f: _MaternSums(kernel, Z[:, f], f, grid) for f, grid in grids.items()}
    step = max(1, _TILE // max(len(Z), 1))
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        base = _base(kernel, rows, Z)
        for f, grid in grids.items():
            if f in materns:
                materns[f].add(base, rows[:, f])
            else:
                sums[f] += _sum_of_tile(kernel, rows, Z, coef, base, f, grid)
    for f, found in materns.items():
        sums[f] = found.total().T @ coef
    return {f: total / len(X) for f, total in sums.items()}


def individual(kernel: Kernel, X: Array, Z: Array, coef: Array, f: int, grid: Array) -> Array:
    """Return sum_j c_j k(x, z_j) of every row with feature f set, rows x grid x outputs."""
    result = np.empty((len(X), len(grid), coef.shape[1]))
    if kernel.name in SEPARABLE:
        step = max(1, _TILE // max(len(Z), 1))
        along = np.exp(-_own(kernel, grid, Z[:, f], f))  # grid x points
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            rest = np.exp(-_rest(kernel, _base(kernel, rows, Z), rows, Z, f))
            for o, c in enumerate(coef.T):
                result[start : start + step, :, o] = rest @ (along * c).T
        return result
    for v, value in enumerate(grid):
        result[:, v] = _moved(X, f, value, kernel, Z) @ coef
    return result


def _moved(X: Array, f: int, value: float, kernel: Kernel, Z: Array) -> Array:
    """Return the kernel's values with feature f of all rows set to one value."""
    rows = X.copy()
    rows[:, f] = value
    return np.asarray(kernel.block(rows, Z))


def _gamma_of(kernel: Kernel, f: int) -> float:
    return float(kernel.gamma if np.ndim(kernel.gamma) == 0 else kernel.gamma[f])


def _own(kernel: Kernel, x: Array, z: Array, f: int) -> Array:
    """Return what feature f adds to D (or to the exponent) of all pairs."""
    difference = x[:, None] - z
    if kernel.name == "laplacian":
        return _gamma_of(kernel, f) * np.abs(difference)
    square = _gamma_of(kernel, f) * difference**2
    if kernel.name == "chi2":
        square /= np.maximum(x[:, None] + z, np.finfo(np.float64).smallest_normal)
    return square


def _base(kernel: Kernel, X: Array, Z: Array) -> Array:
    """Return D, the exponent, or x'z of all pairs."""
    if kernel.name == "laplacian":
        gamma = np.broadcast_to(np.asarray(kernel.gamma, dtype=np.float64), X.shape[1]).copy()
        return absolute_distances(np.ascontiguousarray(X), np.ascontiguousarray(Z.T), gamma)
    if kernel.name == "chi2":
        return sum((_own(kernel, X[:, f], Z[:, f], f) for f in range(X.shape[1])), np.zeros(()))
    if kernel.name in RADIAL:
        scale = np.sqrt(np.broadcast_to(kernel.gamma, X.shape[1]))
        return np.asarray(cdist(X * scale, Z * scale, "sqeuclidean"))
    return X @ Z.T


def _rest(kernel: Kernel, base: Array, X: Array, Z: Array, f: int) -> Array:
    return np.maximum(base - _own(kernel, X[:, f], Z[:, f], f), 0.0)


# ---------------------------------------------------------------------------- sums over a tile


def _sum_of_tile(
    kernel: Kernel, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
) -> Array:
    """Return the sum of f over rows for every value of the grid, grid x outputs."""
    if kernel.name in SEPARABLE:
        from leansvm.inspection._loops import add_decays

        sums = np.zeros(len(Z))
        add_decays(base, _own(kernel, X[:, f], Z[:, f], f), sums)
        return np.exp(-_own(kernel, grid, Z[:, f], f)) @ (sums[:, None] * coef)
    if kernel.name == "linear":
        return _linear_sums(X, Z, coef, f, grid)
    if kernel.name == "cosine":
        return _cosine_sums(X, Z, coef, f, grid)
    inner = base - np.outer(X[:, f], Z[:, f])
    if kernel.name == "poly" and float(kernel.degree) in range(1, _HIGHEST_DEGREE + 1):
        return _polynomial_sums(kernel, inner, Z[:, f], coef, grid)
    if kernel.name == "sigmoid":
        a = 2 * (kernel.gamma * inner + kernel.coef0)
        b = 2 * kernel.gamma * np.outer(Z[:, f], grid)
        if max(np.abs(a).max(), np.abs(b).max()) < _LARGEST_EXPONENT / 2:
            from leansvm.inspection._loops import add_sigmoids

            sums = np.zeros(b.shape)
            add_sigmoids(np.exp(a), np.exp(b), sums)
            return sums.T @ coef
    return np.stack([(_moved(X, f, v, kernel, Z) @ coef).sum(axis=0) for v in grid])


class _MaternSums:
    """sum_i k(rest_ij + t_jv), points x grid: pairs with a large rest by a series in t."""

    def __init__(self, kernel: Kernel, z: Array, f: int, grid: Array) -> None:
        name = str(kernel.name)
        self._terms, self._gamma = (*MATERN[name], RADIAL[name]), _gamma_of(kernel, f)
        self._z = np.ascontiguousarray(z)
        steps = _own(kernel, grid, z, f).T
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


def _linear_sums(X: Array, Z: Array, coef: Array, f: int, grid: Array) -> Array:
    w = Z.T @ coef
    rest = X.sum(axis=0) @ w - X[:, f].sum() * w[f]
    return rest + np.outer(len(X) * grid, w[f])


def _cosine_sums(X: Array, Z: Array, coef: Array, f: int, grid: Array) -> Array:
    length = np.linalg.norm(Z, axis=1)
    w = (Z / np.where(length > 0, length, 1.0)[:, None]).T @ coef
    without = np.delete(X, f, axis=1)
    rest = without @ np.delete(w, f, axis=0)
    norms = np.sqrt(np.square(without).sum(axis=1)[:, None] + grid**2)
    inverse = np.where(norms > 0, 1.0 / np.where(norms > 0, norms, 1.0), 0.0)
    return inverse.T @ rest + np.outer(grid * inverse.sum(axis=0), w[f])


def _polynomial_sums(kernel: Kernel, inner: Array, z: Array, coef: Array, grid: Array) -> Array:
    """Return sum_ij c_j (u_ij + gamma z_j v)^p by powers of v."""
    degree, power = int(kernel.degree), np.ones_like(inner)
    u = kernel.gamma * inner + kernel.coef0
    sums = [power.sum(axis=0)]
    for _ in range(degree):
        power = power * u
        sums.append(power.sum(axis=0))
    result: Any = np.zeros((len(grid), coef.shape[1]))
    for q in range(degree + 1):
        factor = comb(degree, q) * sums[degree - q] * (kernel.gamma * z) ** q
        result += np.outer(grid**q, factor @ coef)
    return result
