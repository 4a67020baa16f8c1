"""Values of a model when one column of its rows is taken from other rows.

For a kernel of D = sum_f gamma_f d(x_f, z_f), D of all rows and points is computed once. If a
column changes, its old part of D is replaced by the new one; nothing else is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from leansvm._parallel import for_tiles
from leansvm.inspection._view import Array, Indices, Summand
from leansvm.kernels._function import DistanceKernel
from leansvm.kernels.dot import Linear

_TILE = 2**17  # pairs of rows and points at a time
_VALUES = 2**24  # of moved rows, kept at a time


def can_move(parts: Sequence[Summand] | None) -> bool:
    """Whether every kernel has a form in which one column can change alone."""
    return parts is not None and all(
        isinstance(part.function, Linear)
        or (isinstance(part.function, DistanceKernel) and part.function.sum != "chi2")
        for part in parts
    )


def moved_values(
    parts: Sequence[Summand],
    rows: Array,
    groups: Sequence[Indices],
    orders: Sequence[Indices],
    intercept: Array,
) -> Iterator[NDArray[np.float64]]:
    """Yield f of rows, group after group, with the group's features taken from other rows.

    Parameters
    ----------
    parts : sequence of Summand
        The model.
    rows : ndarray of shape (n_rows, n_features)
        Rows as the machine's kernel gets them.
    groups : sequence of ndarray
        Features that move together.
    orders : sequence of ndarray of shape (n_rows,)
        Row i takes its features from row ``order[i]``.
    intercept : ndarray of shape (n_outputs,)
        Bias.

    Yields
    ------
    ndarray of shape (n_orders, n_rows, n_outputs)
    """
    shape = len(orders), len(rows), parts[0].coef.shape[1]
    step = max(1, _VALUES // int(np.prod(shape)))
    for start in range(0, len(groups), step):
        some = groups[start : start + step]
        out = np.empty((len(some), *shape))
        out[...] = intercept
        for part in parts:
            prepared = np.ascontiguousarray(part.prepare(rows))
            columns = [part.columns_of(group) for group in some]
            add = _add_linear if isinstance(part.function, Linear) else _add_distances
            add(part, prepared, columns, orders, out)
        yield from out


def _add_linear(
    part: Summand, rows: Array, groups: list[Indices], orders: Sequence[Indices], out: Array
) -> None:
    w = part.points.T @ part.coef
    values = rows @ w
    for g, columns in enumerate(groups):
        for k, order in enumerate(orders):
            moved = rows[order][:, columns] - rows[:, columns]
            out[g, k] += values + moved @ w[columns]


def _add_distances(
    part: Summand, rows: Array, groups: list[Indices], orders: Sequence[Indices], out: Array
) -> None:
    from leansvm.inspection._loops import add_moved

    function = part.function
    assert isinstance(function, DistanceKernel)
    gamma = np.broadcast_to(np.asarray(function.gamma, np.float64), rows.shape[1])
    terms = (0.0, 0.0, 0.0) if function.root_terms is None else function.root_terms
    squared, coef = function.sum == "squared", np.ascontiguousarray(part.coef.T)
    Zt = [np.ascontiguousarray(part.points[:, columns].T) for columns in groups]

    def fill(start: int, stop: int) -> None:
        own = rows[start:stop]
        base = function.pair_sums(own, part.points)
        for g, columns in enumerate(groups):
            now, weights = np.ascontiguousarray(own[:, columns]), gamma[columns]
            for k, order in enumerate(orders):
                moved = rows[np.ix_(order[start:stop], columns)]
                target = out[g, k, start:stop]
                add_moved(base, now, moved, Zt[g], weights, squared, terms, coef, target)

    for_tiles(len(rows), max(1, _TILE // max(len(part.points), 1)), fill)
