"""Columns that say nothing about other rows: constant ones, counters, and names of single rows."""

from __future__ import annotations

import re

import numpy as np

from leansvm.cli._read._recognise import CATEGORY, NUMBER

_FEWEST_ROWS = 20  # fewer rows may differ in all columns
_NEARLY_UNIQUE = 0.9  # distinct values, as a share of the rows
_ID = re.compile(r"(?:^|[\s_.-])(?:id|uuid|guid|nr|no|key|index|idx|number|nummer)$|^unnamed: 0$")

_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def why_left_out(name: str, values: np.ndarray, kind: str) -> str | None:
    """Return why a column is of no use; None where it may be of some."""
    if _INDEX.fullmatch(name):
        return "it is the index of a pandas data frame"
    if kind == CATEGORY:
        known = [value for value in values.tolist() if isinstance(value, str)]
        distinct = len(set(known))
        if not known:
            return "it has no values"
        if distinct == 1 and len(known) == len(values):
            return f"it is {known[0]!r} in all rows"
        if len(known) >= _FEWEST_ROWS and distinct >= _NEARLY_UNIQUE * len(known):
            return f"{distinct:,} of its {len(known):,} values are different, as of an id or a text"
        return None
    known = values[~np.isnan(values)]
    if not len(known):
        return "it has no values"
    if known.min() == known.max():
        return "it has the same value in all rows"
    return _why_id(name, known, len(values)) if kind == NUMBER else None


def _why_id(name: str, known: np.ndarray, n_rows: int) -> str | None:
    """Say so where whole numbers count the rows or have the name of an id."""
    if n_rows < _FEWEST_ROWS or np.any(known != np.round(known)):
        return None
    if len(known) == n_rows and known[0] in (0, 1) and np.all(np.diff(known) == 1):
        return "it counts the rows"
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()  # customerId
    if _ID.search(words) and len(np.unique(known)) >= _NEARLY_UNIQUE * n_rows:
        return "its name and its different whole numbers are those of an id"
    return None
