"""Rows to try a model on where no data are at hand: its points, and random ones around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.export._columns import MISSING, Column
from leansvm.export._formula import Formula
from leansvm.kernels._function import Array

_MISSING_SHARE = 0.05
_UNKNOWN = "a text that training did not see"


def rows_around(
    formula: Formula, n_rows: int, random_state: int = 0, dtype: Any = np.float64
) -> list[NDArray[Any]]:
    """Return input values: at most half of the rows are the points, the others lie around them.

    Parameters
    ----------
    formula : Formula
        Of the model.
    n_rows : int
        How many.
    random_state : int
        Seed.
    dtype : dtype
        Numbers are rounded to it.

    Returns
    -------
    list of ndarray
        One array for each input value; texts are objects, missing ones what training has for them.
    """
    rng = np.random.default_rng(random_state)
    # the weights of a linear machine are no points: rows around 0
    terms = [term for term in formula.terms if term.coef is not None] or [formula]
    columns = [column for term in terms for column in term.columns]
    points = np.hstack([term.points for term in terms])
    spread = points.std(axis=0)
    if terms[0].coef is None:
        points, spread = np.zeros((1, len(spread))), np.ones(len(spread))
    base = points[rng.permutation(len(points))[: n_rows // 2]]
    others = points[rng.integers(len(points), size=n_rows - len(base))]
    spread = np.where(spread > 0, spread, 0.1)
    U = np.vstack([base, others + rng.normal(size=others.shape) * spread])
    if formula.sum == "chi2":
        U = np.abs(U)
    inputs = []
    for source in range(len(formula.inputs)):
        values = _categories(formula, source, len(U), rng)
        if values is None:
            values = _numbers(formula, columns, source, U, rng).astype(dtype).astype(np.float64)
        inputs.append(values)
    return inputs


def _categories(
    formula: Formula, source: int, n_rows: int, rng: np.random.Generator
) -> NDArray[Any] | None:
    """Return random categories of an input value, unknown and missing ones where it may have them.

    None: the value is no category.
    """
    mine = [
        c for c in formula.prepared if c.source == source and c.kind in ("member", "other", "mean")
    ]
    if not mine:
        return None
    known = {value for column in mine for value in column.categories}
    is_text = source in formula.texts
    choices: list[Any] = sorted(known - {MISSING})
    if not mine[0].strict:
        choices.append(_UNKNOWN if is_text else max(choices, default=0.0) + 1.0)
    if MISSING in known or mine[0].fill is not None:
        choices.append(mine[0].gap if is_text else np.nan)
    numbers = rng.integers(len(choices), size=n_rows)
    return np.array([choices[i] for i in numbers], object if is_text else np.float64)


def _numbers(
    formula: Formula, columns: list[Column], source: int, U: Array, rng: np.random.Generator
) -> NDArray[Any]:
    """Undo what was done to an input value that is a number; some are missing where they may be."""
    values = rng.normal(size=len(U))  # where the machine does not look at it
    for i, column in enumerate(columns):
        if column.source == source and column.kind == "number" and column.scale:
            seen = U[:, i]
            if column.knots is not None:
                seen = np.interp(seen, *column.knots[::-1])
            values = seen / column.scale + column.center
    if formula.dates.get(source) == "time":
        values = np.clip(values, 0.0, 23.999)
    if any(c.source == source and c.fill is not None for c in formula.prepared):
        values[rng.random(len(U)) < _MISSING_SHARE] = np.nan
    return values
