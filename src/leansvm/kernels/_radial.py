"""Kernels of D = sum_f gamma_f (x_f - z_f)^2: their base, and the Gaussian kernel e^-D.

A block is one augmented GEMM that gives a multiple of D (`leansvm.linalg.distance_product`) and
one pass over it in place, tile by tile in cache. The product loses about eps times the largest
scaled |z|^2, the ``spread``, to cancellation; if that is too much, D comes from differences of
coordinates. Gradients need only the slope k' = dk/dD:

    df/dx_f = 2 gamma_f (x_f sum_j V_j - sum_j V_j z_jf),  V_j = c_j k'(D_j).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from leansvm import linalg
from leansvm._accelerated import apply_in_place, product_eps, put
from leansvm._array_api import as_float64, like_rows, namespace, rows_at, to_host, zeros
from leansvm._parallel import for_tiles
from leansvm.kernels._function import (
    Array,
    DistanceKernel,
    Gamma,
    RowForm,
    capped,
    smallest_exponent,
)
from leansvm.linalg import dense_rows64, distance_product, tile_rows, used_features


class Radial(DistanceKernel):
    """A kernel of D; subclasses say how k, its slope and its curvature follow from D."""

    gamma_is = "one or per feature"
    multiple: ClassVar[float]  # of D, from which `in_place` computes values
    fused_root: ClassVar[int | None] = None  # what `_fused_triton` calls this kernel
    sum = "squared"

    def in_place(self, values: Any, reach: float = 0.0) -> Any:
        """Turn multiples of D into values of k, in place if the library can.

        ``reach`` is an upper bound of all D, if a useful one is known.
        """
        raise NotImplementedError

    def from_row(self, minus: Array) -> Array:
        """Turn -|multiple| D of one row into values of k, in place, with few calls."""
        raise NotImplementedError

    # ------------------------------------------------------------------ blocks on the host

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write the kernel of all pairs into ``out``, without temporaries of its size.

        With rows scaled and centred at the mean of Z, D is one matrix product,
        [x, |x|^2, 1] . [2 gamma z, -gamma, -gamma |z|^2]'. Where its cancellation, eps * gamma *
        |z|^2, shows (a huge gamma), float32 rows are worked on in float64, and float64 rows by
        differences of coordinates. Errors stay below 1e-9 (5e-5 in float32), and below 1e-7 for
        Matérn-1/2, whose root magnifies them: pairs that are nearly equal are measured again.
        """
        if not np.any(self.gamma):
            out[...] = 1.0
            return
        number, scales = split_gamma(self.gamma)
        factor, magnified = -self.multiple * number, self.magnifies * X.shape[1]
        single = out.dtype == np.float32 and not (sparse.issparse(X) or sparse.issparse(Z))
        for dtype in (np.float32, np.float64) if single and number < 1e30 else (np.float64,):
            product, spread = distance_product(X, Z, dtype, factor, scales)
            eps = float(np.finfo(dtype).eps)
            if number < 1e30 and product_suffices(number * spread, eps, magnified):
                break
        else:
            self._fill_by_differences(X, Z, out)
            return
        bound = near_bound(number * spread, eps, magnified) if magnified else 0.0
        same = out.dtype == dtype

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop] if same else np.empty((stop - start, out.shape[1]), dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                furthest = product(start, stop, rows)  # the largest |x|^2
            if not isfinite(furthest) or (
                magnified and not measure_near(rows, X[start:stop], Z, self.gamma, bound)
            ):
                self._fill_by_differences(X[start:stop], Z, out[start:stop])
                return
            largest = sqrt(furthest) + sqrt(spread)  # no distance is larger
            self.in_place(rows, number * largest * largest)
            if not same:
                out[start:stop] = rows

        for_tiles(len(out), tile_rows(out.shape[1]), fill)

    def _fill_by_differences(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Fill the block from differences of coordinates: exact near equal points, but slower."""
        used, factor, weights = slice(None), self.multiple, {}
        if isinstance(self.gamma, np.ndarray):
            used = used_features(self.gamma)
            weights = {"w": self.gamma[used]}
        else:
            factor *= self.gamma
        points = dense_rows64(Z)[:, used]

        def fill(start: int, stop: int) -> None:
            with np.errstate(over="ignore", under="ignore"):
                rows = dense_rows64(X[start:stop])[:, used]
                squared = cdist(rows, points, "sqeuclidean", **weights)
                squared *= factor
                out[start:stop] = self.in_place(squared)

        for_tiles(len(out), tile_rows(max(out.shape[1], X.shape[1])), fill)

    # ------------------------------------------------------------------ other array libraries

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        wide = as_float64(X), as_float64(Z)
        for rows, points in ((X, Z), wide) if X.dtype != xp.float64 else (wide,):
            factors = self._device_factors(xp, rows, points)
            if factors is not None:
                left, right, bound = factors
                values = self._from_product(right @ left.T, points, rows, bound)
                if values is not None:
                    # one point's values side by side, as the basis keeps them
                    return xp.astype(values, X.dtype, copy=False).T
        return xp.astype(self._differences_on_device(xp, *wide), X.dtype, copy=False)

    def device_columns(self, xp: Any, X: Any) -> Callable[[int], Any]:
        """Return t -> k(X, x_t), whose columns share one factor."""
        any_column, factors = super().device_columns(xp, X), self._device_factors(xp, X, X)
        if factors is None:
            return any_column
        left, right, bound = factors

        def column(t: int) -> Any:
            product = (left @ right[t, :])[None, :]
            values = self._from_product(product, X[t : t + 1, :], X, bound)
            return any_column(t) if values is None else values[0, :]

        return column

    def fused_times(self, X: Any, V: Any) -> Any | None:
        """Return k(X, X) V without writing values of k to memory."""
        from leansvm.kernels._fused import fused_times

        if self.fused_root is None:
            return None
        return fused_times(self.fused_root, X, self.gamma, V)

    def _device_factors(self, xp: Any, X: Any, Z: Any) -> tuple[Any, Any, float] | None:
        """Return the factors [x, |x|^2, 1] and [2 z, -1, -|z|^2] of the block, times -multiple.

        Rows are centred at the mean of Z and scaled; the last number is the `near_bound`. None
        where the product would lose too much to cancellation.
        """
        number, scales = split_gamma(capped(xp, X, self.gamma))
        centre = xp.mean(Z, axis=0, keepdims=True)
        Xc, Zc = X - centre, Z - centre
        if scales is not None:
            factors = like_rows(scales, X, dtype=X.dtype)[None, :]
            Xc, Zc = Xc * factors, Zc * factors
        norms = xp.sum(Zc * Zc, axis=1, keepdims=True)
        spread, eps = number * float(xp.max(norms)), float(xp.finfo(X.dtype).eps)
        if self.magnifies and X.dtype != xp.float64:
            eps = product_eps(X)
        if not product_suffices(spread, eps, self.magnifies * X.shape[1]):
            return None
        factor, squares = -self.multiple * number, xp.sum(Xc * Xc, axis=1, keepdims=True)
        left = xp.concat([Xc, squares, xp.ones_like(Xc[:, :1])], axis=1)
        right = xp.concat([2 * factor * Zc, xp.full_like(norms, -factor), -factor * norms], axis=1)
        return left, right, near_bound(spread, eps, X.shape[1])

    def _from_product(self, product: Any, points: Any, X: Any, bound: float) -> Any | None:
        """Turn a product (points x rows) into values of k; None if too many pairs are near."""
        if self.magnifies and not measure_near(product, points, X, self.gamma, bound):
            return None
        return self.in_place(product)

    def _differences_on_device(self, xp: Any, X: Any, Z: Any) -> Any:
        squared = zeros((X.shape[0], Z.shape[0]), X, X.dtype)
        factors = self.multiple * np.broadcast_to(capped(xp, X, self.gamma), X.shape[1])
        for f in np.flatnonzero(factors).tolist():
            difference = X[:, f][:, None] - Z[:, f][None, :]
            difference *= difference
            difference *= float(factors[f])
            squared += difference
        return self.in_place(squared)

    # ------------------------------------------------------------------ other forms

    def row_form(self, points: Array) -> RowForm:
        return RadialRow(self, points)

    def feature_scales(self, n_features: int) -> Array:
        """Return the root of gamma, times that of the kernel's own factor of D."""
        return np.sqrt(abs(self.multiple) * np.broadcast_to(self.gamma, n_features))

    def pair_sums(self, X: Array, Z: Array) -> Array:
        scale = np.sqrt(np.broadcast_to(self.gamma, X.shape[1]))
        return np.asarray(cdist(X * scale, Z * scale, "sqeuclidean"))

    def distance(self, x: Array, z: Array) -> Array:
        return (x - z) ** 2

    def slope_along(self, x: Array, z: Array, f: int) -> Array:
        return 2.0 * self.gamma_of(f) * (x - z)

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return df/dx of every row: a matrix product for all features."""
        _, slope = self.value_and_slope(self.pair_sums(X, Z))
        centre = Z.mean(axis=0)  # keeps the difference of two products small
        X, Z = X - centre, Z - centre
        parts = []
        for c in coef.T:
            V = slope * c
            parts.append(2.0 * self.gamma * (X * V.sum(axis=1)[:, None] - V @ Z))
        return np.stack(parts, axis=2)


class Gaussian(Radial):
    """e^-D."""

    name = "rbf"
    multiple = -1.0
    fused_root = 0

    def in_place(self, values: Any, reach: float = 0.0) -> Any:
        """Turn -D into e^-D; where D may be so large that exp is slow, it is cut off."""
        if reach > 80.0 and reach > -(floor := smallest_exponent(values)):
            values = apply_in_place("clip", values, floor, 0.0)
        return apply_in_place("exp", values)

    def from_row(self, minus: Array) -> Array:
        return np.exp(minus, out=minus)


class RadialRow:
    """Values between a row and all points: |t|^2 + |s_j|^2 - 2 s_j't, centred and scaled."""

    def __init__(self, function: Radial, points: Array) -> None:
        self.function = function
        self.scale = function.feature_scales(points.shape[1])
        self.centre = points.mean(axis=0)
        self.points = (points - self.centre) * self.scale
        self.norms = np.square(self.points).sum(axis=1)
        self.twice = 2.0 * self.points
        spread = float(self.norms.max(initial=0.0))
        # a root near 0 magnifies what a product loses
        suffices = product_suffices(spread, float(np.finfo(np.float64).eps))
        self.by_product = suffices and not function.magnifies

    def __call__(self, x: Array) -> Array:
        t = x - self.centre
        t *= self.scale
        if self.by_product:
            values = self.twice.dot(t)
            values -= self.norms
            values -= t.dot(t)
        else:
            difference = self.points - t
            values = np.einsum("ij,ij->i", difference, difference)
            np.negative(values, out=values)
        return self.function.from_row(values)


# ---------------------------------------------------------------------------- exactness of D


def split_gamma(gamma: Gamma) -> tuple[float, Array | None]:
    """Return (gamma, None), or 1 and the scale sqrt(gamma) of every feature."""
    if isinstance(gamma, np.ndarray):
        return 1.0, np.sqrt(gamma)
    return gamma, None


def product_suffices(spread: float, eps: float, magnified: int = 0) -> bool:
    """Whether a product gives D accurately enough for kernels that change by at most 1.5 dD.

    For kernels of the root of D, which magnifies errors near 0, ``magnified`` is the number of
    features: pairs that are measured again must be few.
    """
    if 4 * eps * spread > (5e-5 if eps > 1e-10 else 1e-9):
        return False
    return not magnified or near_bound(spread, eps, magnified) <= 0.01


def near_bound(spread: float, eps: float, n_features: int) -> float:
    """Return the D below which a kernel of sqrt(D) needs a more exact D than the product gives.

    The product's D is off by up to delta = (4 + sqrt(d)) eps * spread, its root by
    delta / sqrt(D). Above the bound that is at most 1e-7 (5e-5 in float32). Equal rows, whose
    D is at most delta, are below the bound.
    """
    delta = (4.0 + n_features**0.5) * eps * spread
    return float(max(delta, (delta / (5e-5 if eps > 1e-10 else 1e-7)) ** 2))


def measure_near(D: Any, X: Any, Z: Any, gamma: Gamma, bound: float) -> bool:
    """Replace every D_ij below ``bound`` by the sum of gamma_f (x_if - z_jf)^2.

    If so many are below that measuring all is faster, change nothing and return False.
    """
    xp = namespace(D)
    if float(xp.min(D)) >= bound:
        return True
    (places,) = xp.nonzero(xp.reshape(bound > D, (-1,)))  # one index is found faster than two
    i, j = np.divmod(to_host(places), D.shape[1])
    count = len(i)
    if count > 1000 and 8 * count > D.shape[0] * D.shape[1]:
        return False
    scales = like_rows(np.sqrt(np.broadcast_to(gamma, X.shape[1])), D, dtype=xp.float64)
    step = max(1, linalg.TILE_ELEMENTS // max(1, X.shape[1]))
    for start in range(0, count, step):
        rows, columns = i[start : start + step], j[start : start + step]
        difference = (_rows64(X, rows) - _rows64(Z, columns)) * scales
        squares = xp.sum(difference * difference, axis=1)
        put(D, rows, xp.astype(squares, D.dtype), columns)
    return True


def _rows64(X: Any, rows: Any) -> Any:
    return dense_rows64(X[rows]) if sparse.issparse(X) else as_float64(rows_at(X, rows))
