"""The chi-squared kernel e^-D, D = gamma sum_f (x_f - z_f)^2 / (x_f + z_f), of features >= 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._accelerated import apply_in_place
from leansvm._array_api import zeros
from leansvm.kernels._by_feature import ByFeature, contiguous, working_type
from leansvm.kernels._distances import capped
from leansvm.kernels._function import Array

_NEGATIVE = (
    "kernel='chi2' needs features that are all >= 0, such as counts or histograms: shift or "
    "rescale X (for instance with MinMaxScaler(clip=True)), or take another kernel."
)


class Chi2(ByFeature):
    """A kernel of histograms. Terms with x_f = z_f = 0 are 0."""

    name = "chi2"
    gamma_is = "one number"
    sum = "chi2"  # with gamma, it is that of gamma x and gamma z

    def exponents(self, X: Any, Z: Any, out: Any) -> Callable[[Any, Any], NDArray[Any]]:
        """Return what gives -D: a compiled loop over dense rows; CSR tiles become dense."""
        from leansvm.kernels._compiled import chi2

        dtype = working_type(out)
        points = np.ascontiguousarray(_non_negative(Z, dtype).T)

        def negative(rows: Any, target: Any) -> NDArray[Any]:
            target = contiguous(target, dtype)
            chi2(_non_negative(rows, dtype), points, np.finfo(dtype).smallest_normal, target)
            with np.errstate(over="ignore"):
                target *= dtype(self.gamma)
            return target

        return negative

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        if bool(xp.any(X < 0)) or bool(xp.any(Z < 0)):
            raise ValueError(_NEGATIVE)
        exponents = zeros((X.shape[0], Z.shape[0]), X, X.dtype)
        tiny = float(xp.finfo(X.dtype).smallest_normal)
        for f in range(X.shape[1]):
            x, z = X[:, f][:, None], Z[:, f][None, :]
            difference = x - z
            difference *= difference
            difference /= xp.clip(x + z, tiny, None)
            exponents += difference
        exponents *= -capped(xp, X, self.gamma)
        return apply_in_place("exp", exponents)

    def distance(self, x: Array, z: Array) -> Array:
        return (x - z) ** 2 / np.maximum(x + z, np.finfo(np.float64).smallest_normal)

    def slope_sums(self, V: Array, X: Array, Zt: Array, out: Array) -> None:
        from leansvm.kernels._compiled import chi2_sums

        chi2_sums(V, X, Zt, out)

    def slope_along(self, x: Array, z: Array) -> Array:
        """Return (x - z)(x + 3 z) / (x + z)^2, 1 at x = z = 0."""
        total = x + z
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (x - z) * (x + 3 * z) / total**2
        return np.where(total > 0, slope, 1.0)


def _non_negative(X: Any, dtype: Any) -> NDArray[Any]:
    rows = np.array(X.toarray() if sparse.issparse(X) else X, dtype, order="C")
    if rows.min(initial=0.0) < 0:
        raise ValueError(_NEGATIVE)
    return rows
