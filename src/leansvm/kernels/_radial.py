"""Kernels of D = sum_f gamma_f (x_f - z_f)^2: the Gaussian and the Matérn kernels.

rbf e^-D; matern12 e^-r with r^2 = D; matern32 (1 + r) e^-r with r^2 = 3 D; matern52
(1 + r + r^2 / 3) e^-r with r^2 = 5 D. A block is one augmented GEMM that gives r^2
(`leansvm.linalg.distance_product`) and one pass over it in place, tile by tile in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from leansvm import linalg
from leansvm._accelerated import apply_in_place, exp_in_place, put_entries
from leansvm._array_api import as_float64, from_host, namespace, rows_at, to_host
from leansvm._compile import compiles
from leansvm._parallel import for_tiles
from leansvm.kernels._gamma import Gamma
from leansvm.linalg import (
    dense_rows64,
    distance_product,
    tile_rows,
    used_features,
)

# r^2 = factor * D
RADIAL = {"rbf": 1.0, "matern12": 1.0, "matern32": 3.0, "matern52": 5.0}
# a and b of kernels (1 + a r + b r^2) e^-r
MATERN = {"matern12": (0.0, 0.0), "matern32": (1.0, 0.0), "matern52": (1.0, 1.0 / 3.0)}
_POLE = 1e-12
# below it exp gives no normal number, and is slow
_SMALLEST_EXPONENT = {
    np.dtype(kind): float(np.log(np.finfo(kind).smallest_normal)) + 1
    for kind in (np.float32, np.float64)
}


def radial(name: str, D: Any) -> tuple[Any, Any]:
    """Return k and dk/dD of a radial kernel, D = sum_f gamma_f (x_f - z_f)^2.

    Parameters
    ----------
    name : {"rbf", "matern12", "matern32", "matern52"}
        Kernel.
    D : array
        Scaled squared distances, >= 0, of any array library.

    Returns
    -------
    value, slope : array
        The slope of "matern12", -e^-r / (2 r), has a pole at 0: 1e-12 is added to D under the
        root, so that the slope at 0 is -5e5. Its product with (x_f - z_f)^2 tends to 0 there.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.kernels import radial
    >>> value, slope = radial("matern32", np.array([0.0, 1.0]))
    >>> slope
    array([-1.5       , -0.26538181])
    """
    xp = namespace(D)
    if name == "rbf":
        value = xp.exp(-D)
        return value, -value
    r = xp.sqrt(RADIAL[name] * D)
    decay = xp.exp(-r)
    if name == "matern12":
        return decay, -0.5 * decay / xp.sqrt(D + _POLE)
    value = _polynomial(name, r) * decay
    return value, -1.5 * decay if name == "matern32" else (-5.0 / 6.0) * (1.0 + r) * decay


def _polynomial(name: str, r: Any) -> Any:
    """Return 1 + a r + b r^2."""
    linear, quadratic = MATERN[name]
    values = r * quadratic
    values += linear
    values *= r
    values += 1.0
    return values


def matern_in_place(name: str, squared: Any) -> Any:
    """Turn r^2 into the value of a Matérn kernel, in the memory of r^2 where the library can.

    Rounding below 0 is cut off, and what is so far away that e^-r would be no normal number.
    """
    furthest = -smallest_exponent(squared)
    if isinstance(squared, np.ndarray) and compiles():
        from leansvm.kernels._compiled import matern

        whole = squared.flags.c_contiguous or squared.flags.f_contiguous
        values = squared if whole else squared.copy(order="K")
        matern(values.ravel(order="K"), *MATERN[name], furthest)
        if not whole:
            squared[...] = values
        return squared
    r = apply_in_place("sqrt", apply_in_place("clip", squared, 0.0, furthest**2))
    polynomial = _polynomial(name, r)
    r *= -1.0
    values = exp_in_place(r)
    values *= polynomial
    return values


def smallest_exponent(values: Any) -> float:
    """Return the exponent below which exp gives no normal number, and is slow."""
    return float(np.log(float(namespace(values).finfo(values.dtype).smallest_normal))) + 1


# ------------------------------------------------------------------ accuracy


def split_gamma(gamma: Gamma) -> tuple[float, NDArray[np.float64] | None]:
    """Return (gamma, None), or 1 and the scale sqrt(gamma) of every feature."""
    if isinstance(gamma, np.ndarray):
        return 1.0, np.sqrt(gamma)
    return gamma, None


def product_suffices(name: str, spread: float, eps: float, n_features: int) -> bool:
    """Whether D may come from a product, given the largest scaled |z|^2.

    Values of rbf and Matérn-3/2 and -5/2 change by at most 1.5 times the error of D. Those of
    Matérn-1/2 may, too, where `near_bound` leaves few pairs to measure again.
    """
    if 4 * eps * spread > (5e-5 if eps > 1e-10 else 1e-9):
        return False
    return name != "matern12" or near_bound(spread, eps, n_features) <= 0.01


def near_bound(spread: float, eps: float, n_features: int) -> float:
    """Return the D below which Matérn-1/2 needs a more exact D than the product gives.

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


# ------------------------------------------------------------------ blocks on the host


def radial_block(name: str, X: Any, Z: Any, gamma: Gamma, out: NDArray[Any]) -> None:
    """Write the kernel of all pairs into ``out``, without temporaries of its size.

    With rows scaled and centred at the mean of Z, D is one matrix product,
    [x, |x|^2, 1] . [2 gamma z, -gamma, -gamma |z|^2]'. Where its cancellation, eps * gamma *
    |z|^2, shows (a huge gamma), float32 rows are worked on in float64, and float64 rows by
    differences of coordinates. Errors stay below 1e-9 (5e-5 in float32), and below 1e-7 for
    Matérn-1/2, whose root magnifies them: pairs that are nearly equal are measured again.
    """
    if not np.any(gamma):
        out[...] = 1.0
        return
    number, scales = split_gamma(gamma) if isinstance(gamma, np.ndarray) else (gamma, None)
    is_sparse = sparse.issparse(X) or sparse.issparse(Z)
    all_single = X.dtype == Z.dtype == out.dtype == np.float32
    for dtype in (np.float32, np.float64) if all_single and not is_sparse else (np.float64,):
        product, eps = distance_product(X, Z, dtype, scales), float(np.finfo(dtype).eps)
        spread = number * product.spread
        if number < 1e30 and product_suffices(name, spread, eps, X.shape[1]):
            _fill_by_product(name, product, X, Z, gamma, number, out)
            return
    _fill_by_differences(name, X, Z, gamma, out)


def negative_distances(X: Any, Z: Any, gamma: float) -> NDArray[np.float64] | None:
    """Return -|x_i - z_j|^2 in Fortran order, for Gaussian kernels of every gamma up to this one.

    None where the product would lose too much to cancellation.
    """
    product = distance_product(X, Z, np.float64)
    eps = float(np.finfo(np.float64).eps)
    if not product_suffices("rbf", gamma * product.spread, eps, X.shape[1]):
        return None
    product.scale(1.0)
    out = np.empty((Z.shape[0], X.shape[0])).T
    with np.errstate(over="ignore", invalid="ignore"):
        furthest = product.tile(0, X.shape[0], out) if X.shape[0] else 0.0
    if not np.isfinite(furthest):
        return None
    return np.minimum(out, 0.0, out=out)


def _fill_by_product(
    name: str, product: Any, X: Any, Z: Any, gamma: Gamma, number: float, out: Any
) -> None:
    """Fill ``out`` tile by tile: product, then the kernel's function in place."""
    dtype = product.dtype
    if name == "matern12":
        bound = near_bound(number * product.spread, float(np.finfo(dtype).eps), X.shape[1])
    # the Gaussian kernel takes -D, the others take r^2
    product.scale(number if name == "rbf" else -RADIAL[name] * number)

    def fill(start: int, stop: int) -> None:
        same = out.dtype == dtype
        rows = out[start:stop] if same else np.empty((stop - start, out.shape[1]), dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            furthest = product.tile(start, stop, rows)
        if (
            not np.isfinite(furthest)
            or (  # |x|^2 overflowed
                name == "matern12" and not measure_near(rows, X[start:stop], Z, gamma, bound)
            )
        ):
            _fill_by_differences(name, X[start:stop], Z, gamma, out[start:stop])
            return
        if name == "rbf":
            # exponents stay above -gamma (|x| + |z|)^2: clip only when some may underflow
            floor = _SMALLEST_EXPONENT[rows.dtype]
            if number * (np.sqrt(furthest) + np.sqrt(product.spread)) ** 2 > -floor:
                np.clip(rows, floor, 0.0, out=rows)
            np.exp(rows, out=rows)
        else:
            matern_in_place(name, rows)
        if not same:
            out[start:stop] = rows

    for_tiles(out.shape[0], tile_rows(out.shape[1]), fill)


def _fill_by_differences(name: str, X: Any, Z: Any, gamma: Gamma, out: NDArray[Any]) -> None:
    """Fill the block from differences of coordinates: exact near equal points, but slower."""
    used, factor, weights = slice(None), RADIAL[name], {}
    if isinstance(gamma, np.ndarray):
        used = used_features(gamma)
        weights = {"w": gamma[used]}
    else:
        factor *= gamma
    points = dense_rows64(Z)[:, used]

    def fill(start: int, stop: int) -> None:
        with np.errstate(over="ignore", under="ignore"):
            rows = dense_rows64(X[start:stop])[:, used]
            squared = cdist(rows, points, "sqeuclidean", **weights)
            squared *= factor if name != "rbf" else -factor
            values = exp_in_place(squared) if name == "rbf" else matern_in_place(name, squared)
            out[start:stop] = values

    for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)
