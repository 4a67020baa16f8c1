"""Rows to test a model without data: its points, and random rows around them."""

from __future__ import annotations

from collections.abc import Sequence
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
    inputs, texts = [], formula.texts
    prepared = _by_source(formula, [(column, 0) for column in formula.prepared])
    seen = _by_source(formula, list(zip(columns, U.T, strict=True)))
    for source in range(len(formula.inputs)):
        mine = [column for column, _ in prepared[source]]
        values = _categories(mine, source in texts, len(U), rng)
        if values is None:
            values = _numbers(mine, seen[source], len(U), rng)
            values = values.astype(dtype).astype(np.float64)
        inputs.append(values)
    return inputs


def _by_source(formula: Formula, pairs: Sequence[tuple[Column, Any]]) -> list[list[Any]]:
    """Return the pairs of every input value, whose columns are made of it."""
    found: list[list[Any]] = [[] for _ in formula.inputs]
    for pair in pairs:
        found[pair[0].source].append(pair)
    return found


def _categories(
    prepared: list[Column], is_text: bool, n_rows: int, rng: np.random.Generator
) -> NDArray[Any] | None:
    """Return random categories of an input value, also unknown and missing ones if allowed.

    None: the value is no category.
    """
    mine = [column for column in prepared if column.kind in ("member", "other", "mean")]
    if not mine:
        return None
    known = {value for column in mine for value in (*column.categories, *column.without)}
    choices: list[Any] = sorted(known - {MISSING})
    if not mine[0].strict:
        choices.append(_UNKNOWN if is_text else max(choices, default=0.0) + 1.0)
    if MISSING in known or mine[0].fill is not None:
        choices.append(mine[0].gap if is_text else np.nan)
    numbers = rng.integers(len(choices), size=n_rows)
    return np.array([choices[i] for i in numbers], object if is_text else np.float64)


def _numbers(
    prepared: list[Column], seen: list[tuple[Column, Array]], n_rows: int, rng: np.random.Generator
) -> NDArray[Any]:
    """Undo what was done to an input value that is a number; some are missing if allowed."""
    values = rng.normal(size=n_rows)  # if the machine does not use it
    for column, u in seen:
        if column.kind == "number" and column.scale:
            u = u if column.knots is None else np.interp(u, *column.knots[::-1])
            values = u / column.scale + column.center
    if any(column.reads == "time" for column in prepared):
        values = np.clip(values, 0.0, 23.999)
    if any(column.fill is not None for column in prepared):
        values[rng.random(n_rows) < _MISSING_SHARE] = np.nan
    return values
