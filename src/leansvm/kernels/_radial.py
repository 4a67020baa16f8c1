"""The base of kernels of D = sum_f gamma_f (x_f - z_f)^2, the Gaussian and the Matérn kernels.

A block is one augmented GEMM that gives a multiple of D (`leansvm.linalg.distance_product`) and
one pass over it in place, tile by tile in cache. Gradients need the slope k' = dk/dD alone:

    df/dx_f = 2 gamma_f (x_f sum_j V_j - sum_j V_j z_jf),  V_j = c_j k'(D_j).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from leansvm._accelerated import product_eps
from leansvm._array_api import as_float64, foreign_namespace, from_host, zeros
from leansvm._parallel import for_tiles
from leansvm.kernels._distances import (
    capped,
    measure_near,
    near_bound,
    product_suffices,
    split_gamma,
)
from leansvm.kernels._function import Array, DistanceKernel, RowForm
from leansvm.linalg import dense_rows64, distance_product, tile_rows, used_features


class Radial(DistanceKernel):
    """A kernel of D; subclasses say how k, its slope and its curvature follow from D."""

    gamma_is = "one or per feature"
    multiple: ClassVar[float]  # of D, from which `in_place` computes values
    fused_root: ClassVar[int | None] = None  # what `_fused_triton` calls this kernel
    sum = "squared"

    def in_place(self, values: Any, reach: float = 0.0) -> Any:
        """Turn multiples of D into values of k, in their memory where the library can.

        ``reach`` is a bound of all D, where one is known that says something.
        """
        raise NotImplementedError

    def from_row(self, minus: Array) -> Array:
        """Turn -|multiple| D of one row into values of k, in place, with few calls."""
        raise NotImplementedError

    def curvature(self, D: Array) -> Array:
        """Return d^2k/dD^2; 0 at a pole, whose product with (x_a - z_a)(x_b - z_b) is 0."""
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
        is_sparse = sparse.issparse(X) or sparse.issparse(Z)
        single = out.dtype == np.float32 and not is_sparse
        for dtype in (np.float32, np.float64) if single else (np.float64,):
            product, eps = distance_product(X, Z, dtype, scales), float(np.finfo(dtype).eps)
            spread = number * product.spread
            if number < 1e30 and product_suffices(spread, eps, self.magnifies * X.shape[1]):
                self._fill_by_product(product, number, X, Z, out)
                return
        self._fill_by_differences(X, Z, out)

    def _fill_by_product(self, product: Any, number: float, X: Any, Z: Any, out: Any) -> None:
        """Fill ``out`` tile by tile: product, then the kernel's function in place."""
        dtype, spread = product.dtype, float(product.spread)
        bound = 0.0
        if self.magnifies:
            bound = near_bound(number * spread, float(np.finfo(dtype).eps), X.shape[1])
        product.scale(-self.multiple * number)

        def fill(start: int, stop: int) -> None:
            same = out.dtype == dtype
            rows = out[start:stop] if same else np.empty((stop - start, out.shape[1]), dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                furthest = float(product.tile(start, stop, rows))  # the largest |x|^2
            if not isfinite(furthest) or (
                self.magnifies and not measure_near(rows, X[start:stop], Z, self.gamma, bound)
            ):
                self._fill_by_differences(X[start:stop], Z, out[start:stop])
                return
            largest = sqrt(furthest) + sqrt(spread)  # no distance is larger
            self.in_place(rows, number * largest * largest)
            if not same:
                out[start:stop] = rows

        for_tiles(out.shape[0], tile_rows(out.shape[1]), fill)

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

        for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)

    # ------------------------------------------------------------------ other array libraries

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        wide = as_float64(X), as_float64(Z)
        for rows, points in ((X, Z), wide) if X.dtype != xp.float64 else (wide,):
            product = self._device_product(xp, rows, points)
            if product is not None:
                values = product.values(product.right @ product.left.T, points)
                if values is not None:
                    # one point's values side by side, as the basis keeps them
                    return xp.astype(values, X.dtype, copy=False).T
        return xp.astype(self._differences_on_device(xp, *wide), X.dtype, copy=False)

    def column_function(self, X: Any) -> Callable[[int], Any]:
        """Return t -> k(X, x_t), which shares one factor; None where differences are needed."""
        xp = foreign_namespace(X)
        product = None if xp is None else self._device_product(xp, X, X)
        return super().column_function(X) if product is None else product.column

    def fused_times(self, X: Any, V: Any) -> Any | None:
        """Return k(X, X) V without writing values of k to memory."""
        from leansvm.kernels._fused import fused_times

        if self.fused_root is None:
            return None
        return fused_times(self.fused_root, X, self.gamma, V)

    def _device_product(self, xp: Any, X: Any, Z: Any) -> DeviceProduct | None:
        """Return the factors of the block, centred at the mean of Z, with scaled features.

        None where their product would lose too much to cancellation.
        """
        number, scales = split_gamma(capped(xp, X, self.gamma))
        centre = xp.mean(Z, axis=0, keepdims=True)
        Xc, Zc = X - centre, Z - centre
        if scales is not None:
            factors = from_host(scales, X, dtype=X.dtype)[None, :]
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
        return DeviceProduct(self, X, left, right, near_bound(spread, eps, X.shape[1]))

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

    # ------------------------------------------------------------------ derivatives

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return df/dx of every row: a matrix product for all features."""
        gamma = np.broadcast_to(self.gamma, X.shape[1])
        _, slope = self.value_and_slope(self.pair_sums(X, Z))
        centre = Z.mean(axis=0)  # keeps the difference of two products small
        X, Z = X - centre, Z - centre
        parts = []
        for c in coef.T:
            V = slope * c
            parts.append(2.0 * gamma * (X * V.sum(axis=1)[:, None] - V @ Z))
        return np.stack(parts, axis=2)

    def mixed_derivatives(self, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]) -> Array:
        """Return 4 gamma_a gamma_b sum_j c_j k''(D_j) (x_a - z_ja)(x_b - z_jb)."""
        a, b = pairs.T
        gamma = np.broadcast_to(self.gamma, X.shape[1])
        curve = self.curvature(self.pair_sums(X, Z))
        centre = Z.mean(axis=0)
        X, Z = X - centre, Z - centre
        parts = []
        for c in coef.T:
            U = curve * c
            sums = U @ Z
            value = X[:, a] * X[:, b] * U.sum(axis=1)[:, None] + U @ (Z[:, a] * Z[:, b])
            value -= X[:, a] * sums[:, b] + X[:, b] * sums[:, a]
            parts.append(4.0 * gamma[a] * gamma[b] * value)
        return np.stack(parts, axis=2)


@dataclass(frozen=True)
class DeviceProduct:
    """Factors [x, |x|^2, 1] and [2 z, -1, -|z|^2] of what `Radial.in_place` takes."""

    function: Radial
    X: Any
    left: Any
    right: Any
    bound: float

    def values(self, product: Any, points: Any) -> Any | None:
        """Turn the product of these points (one a row) and all X into kernel values.

        None where differences of coordinates are needed for too many pairs.
        """
        function = self.function
        if function.magnifies and not measure_near(
            product, points, self.X, function.gamma, self.bound
        ):
            return None
        return function.in_place(product)

    def column(self, t: int) -> Any | None:
        """Return the kernel of all rows and row ``t``, where X are the points, too."""
        values = self.values((self.left @ self.right[t, :])[None, :], self.X[t : t + 1, :])
        return None if values is None else values[0, :]


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
        """Return k(x, z_j) of every point."""
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
