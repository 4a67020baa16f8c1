"""Loops over weighted distances, rows innermost so that they run in vector registers.

Imported at the first use: numba takes a while to load. Each row of ``Xt`` is a feature, each row of
``z`` and ``slopes`` is a function. Sums may be reordered, but only depending on the shapes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leansvm._compile import compiled

Array = NDArray[np.float64]
_OPTIONS = {"fastmath": {"reassoc", "contract", "nsz"}}


@compiled(**_OPTIONS)
def distances(Xt: Array, centers: Array, shapes: Array, power: int, z: Array) -> None:
    """Set z_jn = sum_i mu_ji |x_in - c_ji|^power, power 1 or 2."""
    for j in range(centers.shape[0]):
        row = z[j]
        row[:] = 0.0
        for i in range(centers.shape[1]):
            x, c, mu = Xt[i], centers[j, i], shapes[j, i]
            if mu > 0.0 and power == 1:
                for n in range(x.shape[0]):
                    row[n] += mu * abs(x[n] - c)
            elif mu > 0.0:
                for n in range(x.shape[0]):
                    d = x[n] - c
                    row[n] += mu * d * d


@compiled(**_OPTIONS)
def slope_sums(
    Xt: Array, centers: Array, slopes: Array, power: int, by_center: Array, by_shape: Array
) -> None:
    """Sum slope_jn d'(x_in - c_ji) and slope_jn d(x_in - c_ji) over the rows, d = |.|^power."""
    for j in range(centers.shape[0]):
        slope = slopes[j]
        for i in range(centers.shape[1]):
            x, c = Xt[i], centers[j, i]
            signed = total = 0.0
            if power == 1:
                for n in range(x.shape[0]):
                    d, w = x[n] - c, slope[n]
                    total += w * abs(d)
                    signed += w if d > 0.0 else (-w if d < 0.0 else 0.0)
            else:
                for n in range(x.shape[0]):
                    d = x[n] - c
                    w = slope[n] * d
                    signed += 2.0 * w
                    total += w * d
            by_center[j, i], by_shape[j, i] = signed, total
