"""Sums over all pairs of rows: what each row does to the left-out errors of all others.

With coordinates w of rows and g_ij = w_i'w_j, the sums q_i = sum_j g_ij^2 c_j have two forms:

- by pairs, for two tiles of rows at a time: m^2 r flops for m rows and r coordinates;
- by q_i = w_i'(W'diag(c) W) w_i: 2 m r^2 flops for every column of c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_PANEL = 256  # columns of a symmetric matrix at a time
_ROWS = 1024  # of a tile of pairs


def squares_by_pairs(W: Array, c: Array, dtype: Any) -> Array:
    """Return sum_j g_ij^2 c_j over the other rows; each pair is computed once, in ``dtype``."""
    result, c = np.zeros(c.shape), c.astype(dtype)
    tiles = [slice(start, start + _ROWS) for start in range(0, len(W), _ROWS)]
    for number, rows in enumerate(tiles):
        own = W[rows].astype(dtype, copy=False)
        for others in tiles[number:]:
            same = others is rows
            g = own @ (own if same else W[others].astype(dtype, copy=False)).T
            g *= g
            if same:
                np.fill_diagonal(g, 0.0)
            else:
                result[others] += g.T @ c[rows]
            result[rows] += g @ c[others]
    return result


def sums_by_forms(
    at: Callable[[slice], Array], tiles: list[slice], a: Array, c: Array, dtype: Any
) -> tuple[Array, Array]:
    """Return sum_j g_ij a_j and, from sums in ``dtype``, sum_j g_ij^2 c_j over all rows.

    ``at`` computes the coordinates of a tile of rows, twice.
    """
    once: Any = 0.0
    twice: list[Any] = [0.0] * c.shape[1]
    roots = np.sqrt(c)  # a product of one matrix with itself takes half the time
    for rows in tiles:
        W = at(rows)
        once = once + W.T @ a[rows]
        for column in range(c.shape[1]):
            scaled = np.multiply(W, roots[rows, column, None], dtype=dtype)
            twice[column] += scaled.T @ scaled
    first, second = np.empty(a.shape), np.empty(c.shape)
    for rows in tiles:
        W = at(rows)
        first[rows] = W @ once
        W = W.astype(dtype, copy=False)
        for column, total in enumerate(twice):
            second[rows, column] = _quadratic_forms(W, total)
    return first, second


def _quadratic_forms(W: Array, M: Array) -> Array:
    """Return w'M w of every row, M symmetric: its upper half counts twice."""
    result = -np.einsum("ij,ij,j->i", W, W, M.diagonal())
    for start in range(0, len(M), _PANEL):
        columns = slice(start, start + _PANEL)
        upper = 2 * np.triu(M[: start + _PANEL, columns], -start)
        result += np.einsum("ij,ij->i", W[:, : start + _PANEL] @ upper, W[:, columns])
    return np.asarray(result)
