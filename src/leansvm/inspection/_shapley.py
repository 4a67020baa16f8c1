"""Shapley values of a model's columns at a row x, against rows b of a background.

The value of a set S of columns is the mean over b of f(x in S, b elsewhere). A column gets the mean
of what it adds to sets of any size. If a kernel is a product over columns, with factors X_g at
x and B_g at b, that is an integral of a polynomial in t,

    phi_g = int_0^1 (X_g - B_g) prod_(h != g) (t X_h + (1 - t) B_h) dt ,

which Gauss-Legendre quadrature with m / 2 nodes gives exactly for m columns. A linear kernel gives
w_g (x_g - mean b_g). A Matern kernel is close to a sum of few Gaussians, chosen for the model at
hand (`_gaussians`). For everything else orders of columns are drawn: from b to x one column after
the other, and once the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from leansvm._parallel import for_tiles
from leansvm.inspection._view import Array, Indices, Summand
from leansvm.kernels._function import DistanceKernel
from leansvm.kernels.dot import Linear

_FACTORS = 2**22  # numbers of a table of factors, made for some points at a time
_ROUNDING = 1e-17  # of kernel values, whose largest is 1
_HYBRIDS = 2**22  # numbers of rows between x and b, made at a time
_PROBES = 400  # rows between x and b on which Gaussians are chosen, and then checked
_GAUSSIANS, _NODE_ERROR = 7, 1e-3  # how many; error of quadrature in units of a kernel's spread
_ITSELF = np.ones((1, 2))  # e^-D: one term of weight and scale 1
_SINGLE = 1e-7  # what single precision rounds off a mean of products
_LANES = 64  # numbers in single precision that a compiled loop takes at a time
_TINY = np.finfo(np.float64).tiny


def is_product(parts: Sequence[Summand] | None) -> bool:
    """Whether all kernels are products over columns, or close to sums of such products."""
    return parts is not None and all(
        isinstance(part.function, Linear)
        # the kink of "matern12" takes too many Gaussians
        or (isinstance(part.function, DistanceKernel) and part.function.name != "matern12")
        for part in parts
    )


def is_exact(parts: Sequence[Summand]) -> bool:
    """Whether they are products up to rounding."""
    return all(getattr(part.function, "root_terms", None) is None for part in parts)


def _terms(part: Summand, probes: Array) -> tuple[Array, float, Array]:
    """Return Gaussians whose sum is the kernel, for one model.

    Parameters
    ----------
    part : Summand
        f(x) = sum_j coef_j k(x, z_j).
    probes : ndarray of shape (_PROBES, n_features)
        Rows between rows to explain and the background, as the machine's kernel gets them.

    Returns
    -------
    terms : ndarray of shape (n_terms, 2)
        Weight and scale of each e^-(scale D).
    tolerance : float
        How exactly products of factors are needed.
    error : ndarray of shape (n_outputs,)
        Root mean squared error of f on probes.
    """
    function: Any = part.function
    if isinstance(function, Linear):
        return _ITSELF, _ROUNDING, np.zeros(part.coef.shape[1])
    D = function.pair_sums(part.prepare(probes), part.points)
    if function.root_terms is None:
        k, terms, error = np.exp(-D), _ITSELF, np.zeros(part.coef.shape[1])
    else:
        linear, quadratic, factor = function.root_terms
        D *= factor
        r = np.sqrt(D)
        k = (1.0 + r * (linear + r * quadratic)) * np.exp(-r)
        # k has its largest share of e^-(s D) at s = 1 / (2 sqrt(D))
        ladder = np.geomspace(0.05, 800.0, 20) / max(float(np.median(r)), 1e-6)
        of_scale = np.stack([np.exp(-s * D) @ part.coef for s in ladder], axis=-1)
        terms, error = _gaussians(k @ part.coef, of_scale, ladder)
        terms[:, 1] *= factor
    return terms, _NODE_ERROR * float(k.std()), error


def _gaussians(f: Array, of_scale: Array, ladder: Array) -> tuple[Array, Array]:
    """Return weights and scales of few Gaussians, and their error.

    Least squares fits f, not the kernel, on every other probe, because the coefficients of f cancel
    by many digits. The scales are neighbours on a ladder, or every second or third of its steps:
    those with the smallest error on the remaining probes.

    Parameters
    ----------
    f : ndarray of shape (n_probes, n_outputs)
        The model at the probes.
    of_scale : ndarray of shape (n_probes, n_outputs, n_scales)
        What it would be there with a Gaussian of each scale in place of its kernel.
    ladder : ndarray of shape (n_scales,)
        The scales.
    """
    size = np.maximum(np.abs(of_scale).max(axis=(0, 1)), _TINY)
    known, other = of_scale[::2] / size, of_scale[1::2] / size
    best: tuple[Any, ...] = (np.inf,)
    for step in (1, 2, 3):
        for first in range(len(ladder) - step * (_GAUSSIANS - 1)):
            chosen = slice(first, first + step * _GAUSSIANS, step)
            learn = known[..., chosen].reshape(-1, _GAUSSIANS)
            weights = np.linalg.lstsq(learn, f[::2].ravel(), rcond=1e-14)[0]
            error = np.sqrt(np.mean((other[..., chosen] @ weights - f[1::2]) ** 2, axis=0))
            if error.max() < best[0]:
                terms = np.column_stack([weights / size[chosen], ladder[chosen]])
                best = error.max(), terms, error
    return best[1], best[2]


def _between(rows: Array, background: Array, groups: Sequence[Indices], rng: Any) -> Array:
    """Return rows of the background that have some groups of columns from rows to explain."""
    x, b = (rng.randint(len(source), size=_PROBES) for source in (rows, background))
    probes, share = background[b], rng.uniform(size=_PROBES)
    for group in groups:
        moved = np.flatnonzero(rng.uniform(size=_PROBES) < share)
        probes[np.ix_(moved, group)] = rows[np.ix_(x[moved], group)]
    return probes


def by_products(
    parts: Sequence[Summand], rows: Array, background: Array, groups: Sequence[Indices], rng: Any
) -> tuple[Array, Array]:
    """Return Shapley values, rows x groups x outputs, of a sum of products, and how far f is off.

    Parameters
    ----------
    parts : sequence of Summand
        The model.
    rows, background : ndarray of shape (n, n_features)
        Rows as the machine's kernel gets them.
    groups : sequence of ndarray
        Features of every group.
    rng : RandomState
        Draws the rows on which the Gaussians of Matern kernels are chosen.

    Returns
    -------
    values : ndarray of shape (n, n_groups, n_outputs)
        Shapley values.
    error : ndarray of shape (n_outputs,)
        Root mean squared difference between the model and the sum of products; 0 without Matern
        kernels.
    """
    n_outputs = parts[0].coef.shape[1]
    result, off = np.zeros((len(rows), len(groups), n_outputs)), np.zeros(n_outputs)
    chosen = [(_ITSELF, _ROUNDING)] * len(parts)
    if not is_exact(parts):
        probes = _between(rows, background, groups, rng)
        found = [_terms(part, probes) for part in parts]
        chosen = [(terms, tolerance) for terms, tolerance, _ in found]
        off = np.sqrt(sum(error**2 for _, _, error in found))
    for part, (terms, tolerance) in zip(parts, chosen, strict=True):
        X, B = part.prepare(rows), part.prepare(background)
        columns = [part.columns_of(group) for group in groups]
        used = [g for g, own in enumerate(columns) if len(own)]
        if isinstance(part.function, Linear):
            w, step = part.points.T @ part.coef, X - B.mean(axis=0)
            for g in used:
                result[:, g] += step[:, columns[g]] @ w[columns[g]]
        elif used:
            dtype = np.float32 if _single_is_enough(part, terms, off) else np.float64
            own = [columns[g] for g in used]
            result[:, used] += _of_product(part, X, B, own, terms, tolerance, dtype)
    return result, off


def _single_is_enough(part: Summand, terms: Array, off: Array) -> bool:
    """Whether rounding to single precision adds less than a tenth of the error there is."""
    weight = np.abs(terms[:, 0]).sum()
    return bool(np.all(_SINGLE * weight * np.linalg.norm(part.coef, axis=0) < 0.1 * off))


def _of_product(
    part: Summand,
    X: Array,
    B: Array,
    columns: list[Indices],
    terms: Array,
    tolerance: float,
    dtype: Any,
) -> Array:
    from leansvm.inspection._loops import add_shapley

    n, m, outputs = len(B), len(columns), part.coef.shape[1]
    even = m + m % 2  # the loop takes factors in pairs; one of 1 changes nothing
    result = np.zeros((len(X), m, outputs))
    nodes, weights = _quadrature(m)
    backwards = np.arange(even // 2)[::-1].copy()
    padded = len(B) if dtype is np.float64 else -(-len(B) // _LANES) * _LANES
    step = max(1, _FACTORS // (m * max(padded, len(X)) * len(terms)))
    for start in range(0, len(part.points), step):
        Z, coef = part.points[start : start + step], part.coef[start : start + step]
        along = [part.along(own) for own in columns]
        Dx = np.zeros((len(X), len(Z), even), dtype)
        Db = np.zeros((len(Z), even, padded), dtype)
        for g, (kernel, own) in enumerate(zip(along, columns, strict=True)):
            Dx[:, :, g] = kernel.pair_sums(X[:, own], Z[:, own])
            Db[:, g, : len(B)] = kernel.pair_sums(B[:, own], Z[:, own]).T
        scales = terms[:, 1].astype(dtype)
        at_x, at_b = (np.stack([np.exp(-scale * D) for scale in scales]) for D in (Dx, Db))
        tables = Dx, Db, at_x, at_b, coef

        def fill(i: int, end: int, tables: tuple[Array, ...] = tables) -> None:
            Dx, Db, at_x, at_b, coef = tables
            found = np.zeros((len(coef), even), dtype)
            # made here: of arrays that a compiled loop makes, LLVM does not know that they differ
            room = np.empty((3, padded), dtype), np.empty((even // 2, padded), dtype), backwards
            # contiguous, so that the loop is compiled for one layout
            of_row = Dx[i], Db, np.ascontiguousarray(at_x[:, i]), at_b, n, terms, tolerance
            add_shapley(*of_row, nodes, weights, *room, found)
            result[i] += found[:, :m].T @ coef

        for_tiles(len(X), 1, fill)
    return result


def _quadrature(m: int) -> tuple[Array, Array]:
    """Return nodes and weights on [0, 1], row n for n + 1 of them, for products of m factors.

    m / 2 nodes are exact, and 3.2 sqrt(m) are so up to rounding (see `nodes_for`).
    """
    most = max(1, min(-(-m // 2), int(np.ceil(3.2 * np.sqrt(m)))))
    nodes, weights = np.zeros((2, most, most))
    for n in range(most):
        nodes[n, : n + 1], weights[n, : n + 1] = np.polynomial.legendre.leggauss(n + 1)
    return (nodes + 1.0) / 2.0, weights / 2.0


def by_orders(
    values: Callable[[Indices], Array],
    n_rows: int,
    n_background: int,
    groups: Sequence[Indices],
    n_orders: int,
    rng: Any,
) -> tuple[Array, Array]:
    """Return Shapley values and their standard errors, from drawn orders of the columns.

    ``values`` gives f for an array of row numbers, one for each column: 0 to n_rows - 1 are rows,
    further ones the background. Every background row is the start of ``n_orders`` orders and of
    their reverses, so that values add up to f(x) minus the mean of f over the background.
    """
    m, width = len(groups), sum(map(len, groups))
    walks = n_background * n_orders
    starts = n_rows + np.tile(np.arange(n_background), n_orders)
    step = max(1, _HYBRIDS // (2 * walks * (m + 1) * width))
    means, errors = [], []
    for first in range(0, n_rows, step):
        batch = np.arange(first, min(first + step, n_rows))
        orders = np.argsort(rng.uniform(size=(len(batch), walks, m)), axis=2)
        orders = np.stack([orders, orders[:, :, ::-1]], axis=2)  # rows x walks x 2 x places
        place = np.argsort(orders, axis=3)  # of every group
        moved = place[..., None, :] < np.arange(m + 1)[:, None]  # ... x steps x groups
        sources = np.empty((*moved.shape[:-1], width), np.intp)
        for g, columns in enumerate(groups):
            sources[..., columns] = np.where(
                moved[..., g], batch[:, None, None, None], starts[:, None, None]
            )[..., None]
        found = values(sources.reshape(-1, width))
        steps = np.diff(found.reshape(*moved.shape[:-1], -1), axis=3)
        steps = np.take_along_axis(steps, place[..., None], axis=3).mean(axis=2)
        means.append(steps.mean(axis=1))
        # every draw uses the background in the same way: only the orders differ by chance
        by_start = steps.reshape(len(batch), n_orders, n_background, *steps.shape[2:])
        errors.append(np.sqrt(by_start.var(axis=1, ddof=1).mean(axis=1) / walks))
    return np.concatenate(means), np.concatenate(errors)
