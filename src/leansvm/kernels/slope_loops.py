"""Values and slopes of kernels of a distance D in one pass: k and dk/dD of every entry.

``f(D, value, slope)`` reads D and writes the first columns of two C-contiguous arrays, which may
be wider than D; ``value`` or ``slope`` may be D itself. All are float64 or all float32. D is
taken as at least 0, and as no more than where e^-D, or e^-r, would stop to be a normal number.
Imported at the first use, as numba takes a while to load.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from leansvm._compile import compiled
from leansvm.kernels._compiled import decay

_OPTIONS = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
_TILE = 256  # distances that are read before results overwrite them
_POLE = 1e-12  # added to D under the root of the slope of matern12, which has a pole at 0


@compiled(**_OPTIONS)
def _furthest(D: Any) -> float:
    """Return the r up to which r^2 e^-r is a normal number of the type of D."""
    return 80.0 if D.itemsize == 4 else 690.0


@compiled(**_OPTIONS)
def _distances(D: Any, i: int, a: int, largest: float, out: Any) -> int:
    """Copy a part of a row of D, cut off below 0 and above ``largest``; return its length."""
    row = D[i, a : min(a + _TILE, D.shape[1])]
    for j in range(row.shape[0]):
        d = np.float64(row[j])
        above = d if d > 0.0 else 0.0
        out[j] = above if above < largest else largest
    return row.shape[0]


@compiled(**_OPTIONS)
def exponential(D: Any, value: Any, slope: Any) -> None:
    """Write e^-D and -e^-D: "rbf" and, with its own D, "laplacian"."""
    d, furthest = np.empty(_TILE), _furthest(D)
    for i in range(D.shape[0]):
        for a in range(0, D.shape[1], _TILE):
            n = _distances(D, i, a, furthest, d)
            k, s = value[i, a : a + n], slope[i, a : a + n]
            for j in range(n):
                e = decay(d[j])
                k[j] = e
                s[j] = -e


@compiled(**_OPTIONS)
def matern(
    D: Any, value: Any, slope: Any, linear: float, quadratic: float, multiple: float
) -> None:
    """Write k = (1 + a r + b r^2) e^-r, r^2 = c D, and dk/dD, given (a, b, c).

    With a = 1, dk/dD = c/2 (2 b - 1 - b r) e^-r. With a = b = 0 ("matern12") there is 1/r in it,
    a pole at 0, where it is taken as if D were 1e-12.
    """
    d, furthest = np.empty(_TILE), _furthest(D)
    constant, along, pole = multiple * (quadratic - 0.5), -0.5 * multiple * quadratic, linear == 0.0
    for i in range(D.shape[0]):
        for a in range(0, D.shape[1], _TILE):
            n = _distances(D, i, a, furthest * furthest / multiple, d)
            k, s = value[i, a : a + n], slope[i, a : a + n]
            for j in range(n):
                r = sqrt(multiple * d[j])
                e = decay(r)
                k[j] = (1.0 + r * (linear + r * quadratic)) * e
                s[j] = constant * e / sqrt(d[j] + _POLE) if pole else (constant + along * r) * e
