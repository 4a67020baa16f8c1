"""From the columns of a table to features and target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leansvm.cli._output import CommandError
from leansvm.cli._read._arrays import whole
from leansvm.cli._read._recognise import (
    CATEGORY,
    DATE,
    NUMBER,
    TIME,
    TRUTH,
    Conventions,
    as_objects,
    cleaned,
    convert_to,
    recognise,
    recognise_typed,
    settle,
)
from leansvm.cli._read._table import FileTable

if TYPE_CHECKING:
    import pyarrow as pa

_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
_MANY_CLASSES = 0.5  # of the rows: a text target with more different values is no class


@dataclass
class Frame:
    """Features and target of a table, and the conventions by which it was read."""

    X: Any
    y: np.ndarray | None
    kinds: dict[str, str]
    notes: list[str]
    ways: Conventions


def frame_of(
    table: FileTable,
    names: list[str],
    target: str | None,
    wanted: Mapping[str, str],
    given: Conventions,
    before: Conventions | None = None,
) -> Frame:
    """Convert columns to the kinds that are wanted, or to those that are recognised.

    Numbers are float64, categories texts, dates datetime64, times of day texts such as 08:30:00 and
    yes/no booleans; NaN, NaT and None if a value is missing.
    """
    import pandas as pd

    texts = {
        name: cleaned(table.columns[name], given.missing)
        for name in names
        if _is_text(table.columns[name].type)
    }
    ways = given
    if table.form is not None:  # the text of a Parquet file is understood as in Python
        ways = settle((texts[n] for n in names if wanted.get(n) != CATEGORY), given, before)
    y = None
    if target is not None:
        y = target_of(table, target, wanted.get(target), ways)
    columns: dict[str, np.ndarray] = {}
    kinds: dict[str, str] = {}
    notes: list[str] = []
    for name in names:
        if name == target:
            continue
        text = texts.get(name)
        if name in wanted:
            values, kind = _wanted(table, name, text, wanted[name], ways), wanted[name]
        elif _INDEX.fullmatch(name):
            notes.append(
                f"column '{name}' is left out: it is the index of a pandas data frame "
                f"(--column '{name}=number' keeps it)"
            )
            continue
        else:
            values, kind, note = _found(table, name, text, ways)
            notes += [note] if note else []
        columns[name], kinds[name] = _typed_values(values, kind), kind
    return Frame(pd.DataFrame(columns), y, kinds, notes, ways)


def _typed_values(values: np.ndarray, kind: str) -> Any:
    """Return values in the type that says what they are: dates as dates, yes and no as booleans."""
    import pandas as pd

    if kind == DATE:
        return pd.to_datetime(np.round(values * 8.64e10), unit="us")
    if kind == CATEGORY:  # whose digits are no numbers
        return pd.Categorical(values)
    if kind == NUMBER:
        return values
    missing = np.isnan(values)
    if kind == TRUTH:
        truth = values == 1
        return np.where(missing, np.array(None), truth) if missing.any() else truth
    seconds = np.where(missing, 0, np.round(3600 * values)).astype(int)
    texts = [f"{t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}" for t in seconds.tolist()]
    return np.where(missing, np.array(None), np.array(texts, dtype=object))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _found(
    table: FileTable, name: str, text: pa.Array | None, ways: Conventions
) -> tuple[np.ndarray, str, str]:
    """Return values, kind and a note of a column as it is in the file."""
    if name in table.categories:
        return _wanted(table, name, text, CATEGORY, ways), CATEGORY, ""
    if text is None:
        return (*_typed(table, name), "")
    if table.form is None:
        return recognise_typed(name, text)
    return recognise(table, name, text, ways)


def _wanted(
    table: FileTable, name: str, text: pa.Array | None, kind: str, ways: Conventions
) -> np.ndarray:
    """Return a column as the kind that a user or a model wants."""
    if text is not None:
        return convert_to(table, name, text, kind, ways)
    values, found = _typed(table, name)
    if found == kind or (kind != CATEGORY and found == NUMBER):
        return values
    if kind != CATEGORY:
        raise CommandError(f"{table.path}, column '{name}': expected {kind}, found {found}")
    result = np.full(len(values), np.nan, dtype=object)  # numbers where text is wanted
    known = ~np.isnan(values)
    words = ["true" if value else "false" for value in values[known]]
    result[known] = words if found == TRUTH else [_number_text(v) for v in values[known]]
    return result


def _number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _typed(table: FileTable, name: str) -> tuple[np.ndarray, str]:
    """Return values and kind of a Parquet column that is no text."""
    import pyarrow as pa

    column = table.columns[name]
    kind, found = column.type, NUMBER
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise CommandError(f"{table.path}, column '{name}': bytes are neither numbers nor text")
    try:
        if pa.types.is_boolean(kind):
            column, found = column.cast(pa.int8()), TRUTH
        elif pa.types.is_time(kind):
            column, found = _microseconds(column, pa.time64("us"), 3.6e9), TIME
        elif pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
            column, found = _microseconds(column, pa.timestamp("us"), 8.64e10), DATE
        numbers = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CommandError(
            f"{table.path}, column '{name}': values of type {kind} cannot be used"
        ) from error
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise CommandError(f"{table.place(row, name)}: {values[row]} is not finite")
    return values, found


def _microseconds(column: pa.ChunkedArray, unit: pa.DataType, divisor: float) -> pa.ChunkedArray:
    """Return a time in hours or days; what is finer than microseconds is cut off."""
    import pyarrow as pa
    from pyarrow import compute

    count = column.cast(unit, safe=False).cast(pa.int64())
    return compute.divide(count.cast(pa.float64(), safe=False), divisor)


# ---------------------------------------------------------------------------- target


def missing_targets(table: FileTable, name: str, ways: Conventions) -> int:
    """Return how many rows have no target."""
    column = table.columns[name]
    return int((cleaned(column, ways.missing) if _is_text(column.type) else column).null_count)


def target_of(table: FileTable, name: str, wanted: str | None, ways: Conventions) -> np.ndarray:
    """Return the target: numbers, or classes as they are written; refuse missing values."""
    import pyarrow as pa

    column = table.columns[name]
    text = None
    if _is_text(column.type):
        text = cleaned(column, ways.missing)
    gone = (column if text is None else text).is_null().to_numpy(zero_copy_only=False)
    if gone.any():
        raise CommandError(
            f"{table.place(int(np.argmax(gone)), name)}: the target is missing in "
            f"{int(gone.sum()):,} rows, first in this one; fill or remove them"
        )
    if text is not None:
        return _text_target(table, name, text, wanted, ways)
    if pa.types.is_boolean(column.type):
        return np.array(["true" if value else "false" for value in column.to_pylist()])
    if pa.types.is_integer(column.type):  # float64 would round those beyond 2^53
        return whole(column.to_numpy())
    values, found = _typed(table, name)
    if found == NUMBER:
        return whole(values)
    if wanted == CATEGORY:
        return np.array(column.cast(pa.string()).to_pylist())
    raise _no_target(table, name, found)


def _no_target(table: FileTable, name: str, kind: str) -> CommandError:
    return CommandError(
        f"{table.path}, column '{name}': the target is a {kind}; give a column of numbers or "
        f"classes, or take it as classes with --column '{name}=category'"
    )


def _text_target(
    table: FileTable, name: str, text: pa.Array, wanted: str | None, ways: Conventions
) -> np.ndarray:
    import pyarrow as pa

    if wanted is None and table.form is not None:
        values, wanted, _ = recognise(table, name, text, ways)
        if wanted == NUMBER and np.abs(values).max() >= 2.0**53:
            try:
                return text.cast(pa.int64()).to_numpy()  # not rounded, as by float64
            except pa.ArrowInvalid:
                return values
    elif wanted in (NUMBER, DATE, TIME):
        values = convert_to(table, name, text, wanted, ways)
    if wanted in (DATE, TIME):
        raise _no_target(table, name, wanted)
    if wanted == NUMBER:
        return whole(values)
    labels = as_objects(text).astype(str)
    distinct = len(np.unique(labels))
    if ways.options and len(labels) >= 20 and distinct > _MANY_CLASSES * len(labels):
        hint = "" if table.form else f"; if they are numbers, use --column '{name}=number'"
        raise CommandError(
            f"{table.path}, column '{name}': the target has {distinct:,} different texts in "
            f"{len(labels):,} rows, such as {str(labels[0])!r}: these are no classes{hint}"
        )
    return labels
