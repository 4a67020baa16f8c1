"""Blocks of the kernels for rows of another array library, worked on where they are.

The same equations as on the host, with the array API standard and, in torch and CuPy, the
in-place forms of `leansvm._accelerated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from leansvm._accelerated import exp_in_place, manhattan, product_eps
from leansvm._array_api import as_float64, device_of, foreign_namespace, from_host, zeros
from leansvm.kernels._coordinates import NEGATIVE
from leansvm.kernels._gamma import Gamma
from leansvm.kernels._radial import (
    RADIAL,
    matern_in_place,
    measure_near,
    near_bound,
    product_suffices,
    split_gamma,
)


def radial_block(name: str, X: Any, Z: Any, gamma: Gamma) -> Any:
    """Return the block of a radial kernel: one product, one pass in place."""
    xp = foreign_namespace(X)
    assert xp is not None
    wide = as_float64(X), as_float64(Z)
    for rows, points in ((X, Z), wide) if X.dtype != xp.float64 else (wide,):
        product = radial_product(name, rows, points, gamma)
        if product is not None:
            values = product.values(product.right @ product.left.T, points)
            if values is not None:
                # one point's values side by side, as the basis keeps them
                return xp.astype(values, X.dtype, copy=False).T
    return xp.astype(_radial_by_differences(xp, name, *wide, gamma), X.dtype, copy=False)


@dataclass(frozen=True)
class RadialProduct:
    """Factors [x, |x|^2, 1] and [2 z, -1, -|z|^2] of -D, or of r^2 for the Matérn kernels."""

    name: str
    X: Any
    gamma: Gamma
    left: Any
    right: Any
    bound: float

    def values(self, product: Any, points: Any) -> Any | None:
        """Turn the product of these points (one a row) and all X into kernel values.

        None where differences of coordinates are needed for too many pairs.
        """
        if self.name == "rbf":
            return exp_in_place(product)
        if self.name == "matern12" and not measure_near(
            product, points, self.X, self.gamma, self.bound
        ):
            return None
        return matern_in_place(self.name, product)

    def column(self, t: int) -> Any | None:
        """Return the kernel of all rows and row ``t``, where X are the points, too."""
        values = self.values((self.left @ self.right[t, :])[None, :], self.X[t : t + 1, :])
        return None if values is None else values[0, :]


def radial_product(name: str, X: Any, Z: Any, gamma: Gamma) -> RadialProduct | None:
    """Return the factors of the block, centred at the mean of Z, with scaled features.

    None where their product would lose too much to cancellation.
    """
    xp = foreign_namespace(X)
    assert xp is not None
    number, scales = split_gamma(_capped(xp, X, gamma))
    centre = xp.mean(Z, axis=0, keepdims=True)
    Xc, Zc = X - centre, Z - centre
    if scales is not None:
        factors = from_host(scales, X, dtype=X.dtype)[None, :]
        Xc, Zc = Xc * factors, Zc * factors
    norms = xp.sum(Zc * Zc, axis=1, keepdims=True)
    spread, eps = number * float(xp.max(norms)), float(xp.finfo(X.dtype).eps)
    if name == "matern12" and X.dtype != xp.float64:
        eps = product_eps(X)
    if not product_suffices(name, spread, eps, X.shape[1]):
        return None
    factor = number if name == "rbf" else -RADIAL[name] * number
    left = xp.concat([Xc, xp.sum(Xc * Xc, axis=1, keepdims=True), xp.ones_like(Xc[:, :1])], axis=1)
    right = xp.concat([2 * factor * Zc, xp.full_like(norms, -factor), -factor * norms], axis=1)
    return RadialProduct(name, X, gamma, left, right, near_bound(spread, eps, X.shape[1]))


def _radial_by_differences(xp: Any, name: str, X: Any, Z: Any, gamma: Gamma) -> Any:
    squared = zeros((X.shape[0], Z.shape[0]), X, X.dtype)
    factors = RADIAL[name] * np.broadcast_to(_capped(xp, X, gamma), X.shape[1])
    for f in np.flatnonzero(factors).tolist():
        difference = X[:, f][:, None] - Z[:, f][None, :]
        difference *= difference
        difference *= float(factors[f])
        squared += difference
    return exp_in_place(-squared) if name == "rbf" else matern_in_place(name, squared)


def laplacian_block(X: Any, Z: Any, gamma: Gamma) -> Any:
    """Return exp(-sum_f gamma_f |x_f - z_f|) of all pairs."""
    xp = foreign_namespace(X)
    assert xp is not None
    gamma = _capped(xp, X, gamma)
    if isinstance(gamma, np.ndarray):
        centre = xp.mean(Z, axis=0, keepdims=True)
        scales = from_host(gamma, X, dtype=X.dtype)[None, :]
        X, Z, gamma = (X - centre) * scales, (Z - centre) * scales, 1.0
    exponents = manhattan(X, Z)
    exponents *= -gamma
    return exp_in_place(exponents)


def chi2_block(X: Any, Z: Any, gamma: float) -> Any:
    """Return exp(-gamma sum_f (x_f - z_f)^2 / (x_f + z_f)) of all pairs."""
    xp = foreign_namespace(X)
    assert xp is not None
    if bool(xp.any(X < 0)) or bool(xp.any(Z < 0)):
        raise ValueError(NEGATIVE)
    exponents = zeros((X.shape[0], Z.shape[0]), X, X.dtype)
    tiny = float(xp.finfo(X.dtype).smallest_normal)
    for f in range(X.shape[1]):
        x, z = X[:, f][:, None], Z[:, f][None, :]
        difference = x - z
        difference *= difference
        difference /= xp.clip(x + z, tiny, None)
        exponents += difference
    exponents *= -_capped(xp, X, gamma)
    return exp_in_place(exponents)


def unit_rows(X: Any) -> Any:
    """Return rows of norm 1; rows of zeros stay so."""
    xp = foreign_namespace(X)
    assert xp is not None
    norms = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    return X / xp.where(norms == 0, xp.ones_like(norms), norms)


def ones(X: Any) -> Any:
    """Return a one for every row."""
    xp = foreign_namespace(X)
    assert xp is not None
    return xp.ones(X.shape[0], dtype=X.dtype, device=device_of(X))


def _capped(xp: Any, X: Any, gamma: Gamma) -> Gamma:
    """Return gamma small enough that its products do not overflow."""
    largest = float(xp.finfo(X.dtype).max) ** 0.5
    if isinstance(gamma, np.ndarray):
        return np.minimum(gamma, largest)
    return min(gamma, largest)
