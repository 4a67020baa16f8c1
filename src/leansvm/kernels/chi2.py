"""The chi-squared kernel e^-D, D = gamma sum_f (x_f - z_f)^2 / (x_f + z_f), of features >= 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._accelerated import apply_in_place
from leansvm._array_api import zeros
from leansvm.kernels._function import Array, ByFeature, capped

_NEGATIVE = (
    "kernel='chi2' needs features that are all >= 0, such as counts or histograms: shift or "
    "rescale X (for instance with MinMaxScaler(clip=True)), or use another kernel."
)


class Chi2(ByFeature):
    """A kernel of histograms. Terms with x_f = z_f = 0 are 0."""

    name = "chi2"
    gamma_is = "one number"
    sum = "chi2"  # with gamma, it is that of gamma x and gamma z

    def prepared(self, X: Any, dtype: Any) -> NDArray[Any]:
        """Return dense rows; refuse negative features."""
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype, order="C")
        if rows.min(initial=0.0) < 0:
            raise ValueError(_NEGATIVE)
        return rows

    def minus_distances(self, rows: Any, points: Any, out: NDArray[Any]) -> None:
        from leansvm.kernels._compiled import chi2

        chi2(rows, points, np.finfo(out.dtype).smallest_normal, out)
        out *= out.dtype.type(self.gamma)

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

    def slope_along(self, x: Array, z: Array, f: int) -> Array:
        """Return gamma (x - z)(x + 3 z) / (x + z)^2, the ratio 1 at x = z = 0."""
        total = x + z
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (x - z) * (x + 3 * z) / total**2
        return self.gamma_of(f) * np.where(total > 0, slope, 1.0)
