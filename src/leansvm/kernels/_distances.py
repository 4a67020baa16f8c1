"""How exact squared distances from a matrix product are, and pairs that are measured again.

D = sum_f gamma_f (x_f - z_f)^2 from a product loses about eps times the largest scaled |z|^2,
the ``spread``, to cancellation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from leansvm import linalg
from leansvm._accelerated import put_entries
from leansvm._array_api import as_float64, from_host, namespace, rows_at, to_host
from leansvm.kernels._function import Array, Gamma
from leansvm.linalg import dense_rows64


def smallest_exponent(values: Any) -> float:
    """Return the exponent below which exp gives no normal number, and is slow."""
    return float(np.log(float(namespace(values).finfo(values.dtype).smallest_normal))) + 1


def split_gamma(gamma: Gamma) -> tuple[float, Array | None]:
    """Return (gamma, None), or 1 and the scale sqrt(gamma) of every feature."""
    if isinstance(gamma, np.ndarray):
        return 1.0, np.sqrt(gamma)
    return gamma, None


def capped(xp: Any, X: Any, gamma: Gamma) -> Gamma:
    """Return gamma small enough that its products do not overflow in the type of X."""
    largest = float(xp.finfo(X.dtype).max) ** 0.5
    if isinstance(gamma, np.ndarray):
        return np.minimum(gamma, largest)
    return min(gamma, largest)


def product_suffices(spread: float, eps: float, magnified: int = 0) -> bool:
    """Whether a product gives D well enough for kernels that change by at most 1.5 dD.

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

    Return False, and change nothing, when so many are below that all are measured faster.
    """
    xp = namespace(D)
    if float(xp.min(D)) >= bound:
        return True
    (places,) = xp.nonzero(xp.reshape(bound > D, (-1,)))  # one index is found faster than two
    i, j = np.divmod(to_host(places), D.shape[1])
    count = len(i)
    if count > 1000 and 8 * count > D.shape[0] * D.shape[1]:
        return False
    scales = from_host(np.sqrt(np.broadcast_to(gamma, X.shape[1])), D, dtype=xp.float64)
    step = max(1, linalg.TILE_ELEMENTS // max(1, X.shape[1]))
    for start in range(0, count, step):
        rows, columns = i[start : start + step], j[start : start + step]
        difference = (_rows64(X, rows) - _rows64(Z, columns)) * scales
        squares = xp.sum(difference * difference, axis=1)
        put_entries(D, rows, columns, xp.astype(squares, D.dtype))
    return True


def _rows64(X: Any, rows: Any) -> Any:
    return dense_rows64(X[rows]) if sparse.issparse(X) else as_float64(rows_at(X, rows))
