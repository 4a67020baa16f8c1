"""Shapley values of a model's columns at a row x, against rows b of a background.

A set S of columns is worth the mean over b of f(x in S, b elsewhere); a column gets the mean of
what it adds to sets of every size. For a kernel that is a product over columns, with factors X_g at
x and B_g at b, that is an integral of a polynomial in t,

    phi_g = int_0^1 (X_g - B_g) prod_(h != g) (t X_h + (1 - t) B_h) dt ,

which Gauss-Legendre quadrature with m / 2 nodes gives exactly for m columns. A linear kernel gives
w_g (x_g - mean b_g). Matern kernels are sums of Gaussians to 1e-6 (`_gaussians`). For everything
else orders of columns are drawn: from b to x one column after the other, and once the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import nnls

from leansvm._parallel import for_tiles
from leansvm.inspection._view import Array, Indices, Summand
from leansvm.kernels._function import DistanceKernel
from leansvm.kernels.linear import Linear

_FACTORS = 2**21  # numbers of a table of factors, made for some points at a time
_ROUNDING, _BELOW_GAUSSIANS = 1e-17, 1e-8  # of kernel values, whose largest is 1
_HYBRIDS = 2**22  # numbers of rows between x and b, made at a time


def is_product(parts: Sequence[Summand] | None) -> bool:
    """Whether all kernels are products over columns, or sums of such products."""
    return parts is not None and all(
        isinstance(part.function, Linear) or bool(_terms(part.function)) for part in parts
    )


def is_exact(parts: Sequence[Summand]) -> bool:
    """Whether they are so up to rounding."""
    return all(getattr(part.function, "root_terms", None) is None for part in parts)


def _terms(function: Any) -> list[tuple[float, float]]:
    """Return weights and scales of e^-(scale D) whose sum a kernel is; none for other kernels."""
    if not isinstance(function, DistanceKernel) or function.name == "matern12":
        return []  # a kink takes too many terms
    return [(1.0, 1.0)] if function.root_terms is None else _gaussians(function.root_terms)


@cache
def _gaussians(terms: tuple[float, float, float]) -> list[tuple[float, float]]:
    """Return weights and scales of the Gaussians that a Matern kernel is a sum of.

    It is an integral over scales with weights >= 0; least squares chooses those of a grid.
    """
    linear, quadratic, factor = terms
    squared = np.concatenate([[0.0], np.geomspace(1e-8, 1e3, 800)])
    r = np.sqrt(squared)
    scales = np.exp(np.arange(np.log(0.02), np.log(2e3), 0.5))
    values = (1.0 + r * (linear + r * quadratic)) * np.exp(-r)
    weights, _ = nnls(np.exp(-np.outer(squared, scales)), values, maxiter=10_000)
    return [(w, factor * s) for w, s in zip(weights, scales, strict=True) if w > 0]


def by_products(
    parts: Sequence[Summand], rows: Array, background: Array, groups: Sequence[Indices]
) -> Array:
    """Return Shapley values, rows x groups x outputs, of a sum of products.

    Parameters
    ----------
    parts : sequence of Summand
        The model.
    rows, background : ndarray of shape (n, n_features)
        Rows as the machine's kernel gets them.
    groups : sequence of ndarray
        Features of every group.
    """
    result = np.zeros((len(rows), len(groups), parts[0].coef.shape[1]))
    for part in parts:
        X, B = part.prepare(rows), part.prepare(background)
        columns = [part.columns_of(group) for group in groups]
        used = [g for g, own in enumerate(columns) if len(own)]
        if isinstance(part.function, Linear):
            w, step = part.points.T @ part.coef, X - B.mean(axis=0)
            for g in used:
                result[:, g] += step[:, columns[g]] @ w[columns[g]]
        elif used:
            result[:, used] += _of_product(part, X, B, [columns[g] for g in used])
    return result


def _of_product(part: Summand, X: Array, B: Array, columns: list[Indices]) -> Array:
    from leansvm.inspection._loops import add_shapley

    m, outputs = len(columns), part.coef.shape[1]
    even = m + m % 2  # the loop takes factors in pairs; one of 1 changes nothing
    result = np.zeros((len(X), m, outputs))
    nodes, weights = _quadrature(m)
    terms = _terms(part.function)
    tolerance = _ROUNDING if len(terms) == 1 else _BELOW_GAUSSIANS
    step = max(1, _FACTORS // (m * max(len(B), len(X))))
    for start in range(0, len(part.points), step):
        Z, coef = part.points[start : start + step], part.coef[start : start + step]
        along = [part.along(own) for own in columns]
        Dx, Db = np.zeros((len(X), len(Z), even)), np.zeros((len(Z), even, len(B)))
        for g, (kernel, own) in enumerate(zip(along, columns, strict=True)):
            Dx[:, :, g] = kernel.pair_sums(X[:, own], Z[:, own])
            Db[:, g] = kernel.pair_sums(B[:, own], Z[:, own]).T
        for weight, scale in terms:
            tables = np.exp(-scale * Dx), np.exp(-scale * Db), weight * coef, tolerance / weight

            def fill(i: int, end: int, tables: tuple[Any, ...] = tables) -> None:
                at_x, at_b, c, small = tables
                found = np.zeros((len(c), even))
                add_shapley(at_x[i], at_b, nodes, weights, small, found)
                result[i] += found[:, :m].T @ c

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
    their reverses, so that values add up to f(x) less the mean of f over the background.
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
        # the background is used alike in every draw: only orders of the same start differ by chance
        by_start = steps.reshape(len(batch), n_orders, n_background, *steps.shape[2:])
        errors.append(np.sqrt(by_start.var(axis=1, ddof=1).mean(axis=1) / walks))
    return np.concatenate(means), np.concatenate(errors)
