"""What columns of pyarrow hold, and what its errors say."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_numpy(column: Any) -> NDArray[Any]:
    """Return the values of a column, also of a dictionary."""
    if hasattr(column, "dictionary_decode") and str(column.type).startswith("dictionary"):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))


def kind_of(typ: Any) -> str:
    """Return in a word what a column of an Arrow type holds."""
    import pyarrow.types as kind

    if kind.is_dictionary(typ):
        typ = typ.value_type
    if kind.is_integer(typ) or kind.is_floating(typ):
        return "numbers"
    if kind.is_boolean(typ) or kind.is_null(typ):
        return "booleans" if kind.is_boolean(typ) else "nothing"
    if kind.is_string(typ) or kind.is_large_string(typ):
        return "text"
    return "dates" if kind.is_timestamp(typ) or kind.is_date(typ) else f"values of type {typ}"


def missing_values(group: Any, columns: list[str]) -> int | None:
    """Return how many values of a row group are null; None if it does not say."""
    found = 0
    for i in range(group.num_columns):
        column = group.column(i)
        if column.path_in_schema in columns:
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count:
                return None
            found += statistics.null_count
    return found


def without_bytes(error: Exception) -> str:
    """Return the message of pyarrow up to the content of a file that it could not read."""
    return "".join(takewhile(str.isprintable, str(error)))[:300].rstrip(": ")
