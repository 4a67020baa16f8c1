"""What a column of text holds: numbers, yes/no, dates, times of day, or categories.

A column has the first kind that all its values fit. If only nearly all fit, the column is refused,
and the error names the first one that does not: guessing would silently make numbers categories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from leansvm.cli._output import CommandError
from leansvm.cli._read import _dates, _numbers
from leansvm.cli._read._table import FileTable
from leansvm.tables._hints import hint_of
from leansvm.tables._values import DAY, NO_VALUE, Values, recognised

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER, CATEGORY, DATE, TIME, TRUTH = "number", "category", "date", "time", "yes/no"
KINDS = (NUMBER, CATEGORY, DATE, TIME, TRUTH)
_NEARLY = 0.9  # share of values from which the others count as mistakes


@dataclass(frozen=True)
class Conventions:
    """How numbers and dates of a file are written, as far as it is known.

    Parameters
    ----------
    decimal : {".", ","} or None
        Decimal mark, used if a column is ambiguous.
    dates : {"day-first", "month-first"} or None
        Order of 03/04/2024, used if a column is ambiguous.
    missing : tuple of str
        Spellings of a missing value, beside the usual ones.
    options : bool
        Whether the command has options for all this, which messages may name.
    """

    decimal: str | None = None
    dates: str | None = None
    missing: tuple[str, ...] = ()
    options: bool = True


def cleaned(column: pa.ChunkedArray, missing: Sequence[str]) -> pa.Array:
    """Return text without spaces around it, null if a value is missing."""
    import pyarrow as pa
    from pyarrow import compute

    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # more than two gigabytes of text
        whole = pa.concat_arrays([part.cast(pa.large_string()) for part in whole.chunks])
    texts = compute.utf8_trim_whitespace(whole)
    given = (text.strip().lower() for text in missing)
    spellings = pa.array(["", *NO_VALUE, *given], texts.type)
    gone = compute.is_in(compute.utf8_lower(texts), value_set=spellings)
    return compute.if_else(gone, pa.scalar(None, texts.type), texts)


def settle(
    columns: Iterable[pa.Array], given: Conventions, before: Conventions | None = None
) -> Conventions:
    """Find what columns say about the others: the decimal mark, and the order of day and month.

    What the user gives comes first, then what the columns of the file show without doubt, then
    the conventions of the file that a model was trained on.
    """
    before = before or Conventions()
    decimals, orders = set(), set()
    texts = list(columns)
    open_marks = before.decimal == _numbers.COMMA or any(map(_has_comma, texts))
    for column in texts:
        if given.decimal is None and open_marks and (mark := _decimal_mark(column)):
            decimals.add(mark)
        if given.dates is None and (order := _date_order(column)):
            orders.add(order)
    decimal = given.decimal or (decimals.pop() if len(decimals) == 1 else before.decimal)
    dates = given.dates or (orders.pop() if len(orders) == 1 else before.dates)
    return replace(given, decimal=decimal, dates=dates)


def _has_comma(texts: pa.Array) -> bool:
    from pyarrow import compute

    return bool(compute.any(compute.match_substring(texts, ",")).as_py())


def _decimal_mark(texts: pa.Array) -> str | None:
    """Return the decimal mark that a column of numbers shows; None if it shows none."""
    texts, _ = _numbers.without_unit(texts)
    if not _numbers.has_marks(texts):
        return None
    known = len(texts) - texts.null_count
    point, comma = (int(_numbers.fits(texts, mark).sum()) for mark in (".", ","))
    if point == comma or max(point, comma) < _NEARLY * known:
        return None
    return _numbers.POINT if point > comma else _numbers.COMMA


def _date_order(texts: pa.Array) -> str | None:
    """Return the order of day and month that a column shows; None if it shows none."""
    known = texts.drop_null()
    if not len(known) or not _dates.looks_like(known[0].as_py(), _dates.SLASHES):
        return None
    counts = [
        np.count_nonzero(~np.isnan(_dates.to_days(known, _dates.SLASHES, order)))
        for order in (_dates.DAY_FIRST, _dates.MONTH_FIRST)
    ]
    if counts[0] == counts[1]:
        return None
    return _dates.DAY_FIRST if counts[0] > counts[1] else _dates.MONTH_FIRST


def _slashed(texts: pa.Array) -> np.ndarray:
    days = [
        _dates.to_days(texts, _dates.SLASHES, order)
        for order in (_dates.DAY_FIRST, _dates.MONTH_FIRST)
    ]
    return np.where(np.isnan(days[0]), days[1], days[0])


# ---------------------------------------------------------------------------- one column


def recognise(
    table: FileTable, name: str, texts: pa.Array, ways: Conventions
) -> tuple[np.ndarray, str, str]:
    """Return values, kind and a note about a column: float64, or objects for categories."""
    known = len(texts) - texts.null_count
    if _is_compact_date(texts):
        value = texts.drop_null()[0].as_py()
        note = f"column '{name}': {value} is a date (--column '{name}=number' makes it a number)"
        return _dates.to_days(texts, _dates.COMPACT), DATE, note
    if _numbers.is_code(texts):
        note = f"column '{name}' is a category: its numbers have leading zeros or too many digits"
        return as_objects(texts), CATEGORY, note
    for kind in (NUMBER, TRUTH, DATE, TIME):
        values, note = _convert(table, name, texts, kind, ways)
        good = int(np.count_nonzero(~np.isnan(values)))
        if good == known:
            return values, kind, note
        if good >= _NEARLY * known and kind != TRUTH:
            _refuse(table, name, texts, values, kind, ways)
    return as_objects(texts), CATEGORY, ""


def recognise_typed(name: str, texts: pa.Array) -> tuple[np.ndarray, str, str]:
    """Return values, kind and a note about a text column of Parquet, as `fit` understands it.

    Text is text, unless all of it is numbers, ISO dates or times of day.
    """
    found = recognised(Values("object", texts.to_pylist()), name)
    if found.kind == "number":
        return found.data, NUMBER, ""
    if found.kind == "date":
        return found.data / DAY, DATE, ""
    if found.kind == "time":
        return found.data / 3600.0, TIME, ""
    hint = hint_of(texts.unique().drop_null().to_pylist())
    note = f"column '{name}' is read as text, {hint}" if hint else ""
    return as_objects(texts), CATEGORY, note


def convert_to(
    table: FileTable, name: str, texts: pa.Array, kind: str, ways: Conventions
) -> np.ndarray:
    """Convert a column to the kind that a user or a model wants."""
    if kind == CATEGORY:
        return as_objects(texts)
    if kind == DATE and _is_compact_date(texts):
        return _dates.to_days(texts, _dates.COMPACT)
    values, _ = _convert(table, name, texts, kind, ways)
    if kind == TRUTH and np.isnan(values).sum() > texts.null_count:
        values = _dates.to_truth(texts, digits=True)
    if np.isnan(values).sum() > texts.null_count:
        _refuse(table, name, texts, values, kind, ways)
    return values


def as_objects(texts: pa.Array) -> np.ndarray:
    """Return text as objects, NaN if it is missing."""
    values = texts.to_numpy(zero_copy_only=False).astype(object)
    values[texts.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _convert(
    table: FileTable, name: str, texts: pa.Array, kind: str, ways: Conventions
) -> tuple[np.ndarray, str]:
    """Convert the values that fit a kind, the others to NaN; also return a note."""
    if kind == NUMBER:
        return _to_numbers(table, name, texts, ways)
    if kind == TRUTH:
        return _dates.to_truth(texts), ""
    if kind == TIME:
        return _dates.to_hours(texts), ""
    return _to_dates(table, name, texts, ways), ""


def _to_numbers(
    table: FileTable, name: str, texts: pa.Array, ways: Conventions
) -> tuple[np.ndarray, str]:
    import pyarrow as pa

    plain = ways.decimal != _numbers.COMMA
    if plain:  # what most files hold is converted at once
        try:
            values = np.asarray(texts.cast(pa.float64()).to_numpy(zero_copy_only=False), float)
            return np.where(np.isinf(values), np.nan, values), ""
        except pa.ArrowInvalid:
            pass
    texts, unit = _numbers.without_unit(texts)
    note = f"column '{name}' is read as numbers without {unit}" if unit else ""
    known = len(texts) - texts.null_count
    point, comma = (int(_numbers.fits(texts, mark).sum()) for mark in (".", ","))
    style = _numbers.POINT if point > comma else _numbers.COMMA
    if point == comma:
        style = ways.decimal or _numbers.POINT
        if point == known and ways.decimal is None and _has_comma(texts):
            _refuse_open_decimal(table, name, texts, ways)
    values = _numbers.to_numbers(texts, style)
    return np.where(np.isinf(values), np.nan, values), note


def _to_dates(table: FileTable, name: str, texts: pa.Array, ways: Conventions) -> np.ndarray:
    """Convert by the pattern that most values fit."""
    from pyarrow import compute

    best = np.full(len(texts), np.nan)
    if not compute.any(compute.match_substring_regex(texts, r"\d")).as_py():
        return best
    for pattern in _dates.CLEAR:
        days = _dates.to_days(texts, pattern)
        if np.isnan(days).sum() < np.isnan(best).sum():
            best = days
    if np.isnan(_slashed(texts)).sum() >= np.isnan(best).sum():
        return best
    orders = {
        order: _dates.to_days(texts, _dates.SLASHES, order)
        for order in (_dates.DAY_FIRST, _dates.MONTH_FIRST)
    }
    order = _date_order(texts) or ways.dates
    if order is None:
        first, second = orders.values()
        if not np.array_equal(first, second, equal_nan=True):
            differ = (first != second) & ~np.isnan(first)
            _refuse_open_dates(table, name, texts, int(np.argmax(differ)), ways)
        order = _dates.DAY_FIRST
    return orders[order]


def _is_compact_date(texts: pa.Array) -> bool:
    """Return whether all values are dates such as 20240301."""
    known = texts.drop_null()
    if not len(known) or not _dates.looks_like(known[0].as_py(), _dates.COMPACT):
        return False
    return not np.isnan(_dates.to_days(known, _dates.COMPACT)).any()


# ---------------------------------------------------------------------------- refusals

_WORDS = {NUMBER: "a number", TRUTH: "yes or no", DATE: "a date", TIME: "a time of day"}


def _refuse(
    table: FileTable, name: str, texts: pa.Array, values: np.ndarray, kind: str, ways: Conventions
) -> None:
    """Name the first value that is not of the kind."""
    wrong = np.isnan(values) & ~texts.is_null().to_numpy(zero_copy_only=False)
    row, number = int(np.argmax(wrong)), int(wrong.sum())
    value, known = texts[row].as_py(), len(texts) - texts.null_count
    text = f"{table.place(row, name)}: {value!r} is not {_WORDS[kind]}"
    if ways.options and 2 * number > known:  # nothing but --column asks for this kind
        text += f", and {number:,} of {known:,} values are not; remove --column '{name}={kind}'"
    elif ways.options:
        text += f", as {known - number:,} of {known:,} values are" if known > number else ""
        text += (
            f"; correct it, read it as a missing value with --missing '{value}', or read the "
            f"column as text with --column '{name}=category'"
        )
    else:
        text += ", which this column held in training; correct it, or leave it empty"
    raise CommandError(text)


def _refuse_open_decimal(table: FileTable, name: str, texts: pa.Array, ways: Conventions) -> None:
    from pyarrow import compute

    row = compute.match_substring(texts, ",").fill_null(False).index(True).as_py()
    value = texts[row].as_py()
    numbers = value.replace(",", "."), value.replace(",", "")
    hint = "; use --decimal , or --decimal ." if ways.options else ""
    raise CommandError(
        f"{table.place(row, name)}: {value!r} may be {numbers[0]} or {numbers[1]}, and nothing in "
        f"the file decides it{hint}"
    )


def _refuse_open_dates(
    table: FileTable, name: str, texts: pa.Array, row: int, ways: Conventions
) -> None:
    hint = "; use --dates day-first or --dates month-first" if ways.options else ""
    raise CommandError(
        f"{table.place(row, name)}: {texts[row].as_py()!r} may begin with the day or with the "
        f"month, and nothing in the file decides it{hint}"
    )
