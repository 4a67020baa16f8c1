"""What the columns of a table hold: numbers, dates or texts, whatever library the table is from.

Dates are seconds since 1970 by the clock of the column's time zone, times of day seconds since
midnight. Categories are texts: numbers, booleans and other objects among them become texts, and
spaces around a text do not count, so that blank texts are missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DAY = 86400.0  # seconds
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_NUMBER: Any = 19000101  # from here on, numbers are dates such as 20240301
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
_TIME = re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?")
DECIMAL = re.compile(r"\s*[+-]?(?:0|[1-9]\d*)?(?:\.\d*)?(?<=[\d.])(?:[eE][+-]?\d+)?\s*")
_POINTS = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4}|\d\d)(?=\D|$)")
# how files spell a missing value, beside blank text; in small letters
NO_VALUE = {
    "?", "??", "-", "--", "---", ".", "..", "na", "n/a", "n.a.", "nan", "-nan", "null", "none",
    "(null)", "<na>", "nil", "nat", "missing", "k.a.", "k. a.", "keine angabe", "#n/a", "#nv",
    "#null!", "#div/0!", "#value!", "#wert!", "#ref!", "#bezug!", "#name?", "#num!", "#zahl!",
}  # fmt: skip
TRUTHS = (
    ("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("on", "off"),
    ("wahr", "falsch"), ("ja", "nein"), ("j", "n"), ("oui", "non"), ("vrai", "faux"),
    ("sí", "no"), ("si", "no"),
)  # fmt: skip
_MEANING = {word: str(i == 0) for pair in TRUTHS for i, word in enumerate(pair)}
# share of numbers, and different values, of a column that is refused
_MOSTLY, _FEW_NUMBERS = 0.9, 30


@dataclass(frozen=True)
class Values:
    """The values of one column."""

    kind: str  # "number", "truth", "date", "time", "text", or "object" before it is known
    data: Any  # float64 with NaN if a value is missing; a list of texts, None if missing
    zone: str | None = None  # of dates with a time zone
    declared: bool = False  # categories by their type: text of digits stays text


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, pandas.NA or blank text."""
    if isinstance(value, str):
        return not value or value.isspace()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(value != value)
    except ValueError:  # an array or a series: `text_of` refuses it
        return False


def is_none(value: Any) -> bool:
    """Whether a number or date is missing: also a text such as "n/a"."""
    return is_missing(value) or (isinstance(value, str) and value.strip().lower() in NO_VALUE)


def text_of(value: Any, name: str) -> str:
    """Return a value as text: 1.0 as "1"; equal values of all libraries have the same text."""
    if isinstance(value, str):
        return str(value)
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"Column {name!r} holds a {type(value).__name__}: argument must be a string, a number "
            f"or a date. Make it one of these, or leave the column out."
        ) from error
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating | Decimal) and value == value // 1:
        return str(int(value))
    return str(float(value)) if isinstance(value, np.floating | Decimal) else str(value)


def words(values: Iterable[Any], name: str) -> list[str | None]:
    """Return values as texts without spaces around them, None if one is missing."""
    values = list(values)
    if not set(map(type, values)) <= {str, type(None)}:
        values = [None if is_missing(v) else text_of(v, name) for v in values]
    return [None if v is None else v.strip() or None for v in values]


def coded(texts: list[str | None]) -> tuple[NDArray[np.intp], list[str]]:
    """Return the number of every text, -1 if it is missing, and the different texts."""
    lookup: dict[str | None, int] = {}
    codes = [lookup.setdefault(text, len(lookup)) for text in texts]
    place = lookup.pop(None, None)
    found = np.asarray(codes, dtype=np.intp)
    if place is not None:
        found = np.where(found == place, -1, found - (found > place))
    return found, [text for text in lookup if text is not None]


# ---------------------------------------------------------------------------- recognition


def recognised(values: Values, name: str) -> Values:
    """Return objects as numbers, dates or booleans, if all of them are, or else as texts."""
    if values.kind != "object":
        return values
    known = [value for value in values.data if not is_missing(value)]
    kinds = set(map(type, known))
    if kinds <= {str}:
        return _of_texts(values, name)
    if all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return Values("truth", numbers(values, name))
    if all(issubclass(kind, timedelta | np.timedelta64) for kind in kinds):
        return Values("number", numbers(values, name))
    dates = (issubclass(kind, date | np.datetime64) or _is_period(kind) for kind in kinds)
    if all(dates):  # datetime is a date
        zone = next((str(v.tzinfo) for v in known if getattr(v, "tzinfo", None)), None)
        return Values("date", seconds(values, name, "date", zone), zone)
    if all(issubclass(kind, time) for kind in kinds):
        return Values("time", seconds(values, name, "time"))
    if any(issubclass(kind, complex | np.complexfloating) for kind in kinds):
        raise ValueError(
            f"Column {name!r} holds complex numbers: replace it by two columns, the real and the "
            f"imaginary part, or leave it out."
        )
    is_number = [isinstance(v, Number) and not isinstance(v, bool) for v in known]
    if all(is_number) and not values.declared:
        return Values("number", numbers(values, name))
    data = words(values.data, name)
    count, different = sum(is_number), len(set(data))
    if _MOSTLY * len(known) <= count < len(known) and different > _FEW_NUMBERS:
        example = known[is_number.index(False)]
        raise ValueError(
            f"Column {name!r} holds {count:,} numbers among its {len(known):,} values, but also "
            f"{example!r}, for example. Make the other values missing (pandas.to_numeric(..., "
            f"errors='coerce')), or convert the whole column to text (astype(str))."
        )
    return Values("text", data, declared=values.declared)


def _of_texts(values: Values, name: str) -> Values:
    """Return texts as dates, times or numbers, if all of them are written so."""
    data = words(values.data, name)
    different = [text for text in dict.fromkeys(data) if text is not None and not is_none(text)]
    plain = Values("text", data, declared=values.declared)
    if not different:
        return plain
    for kind, pattern in (("date", DATE), ("time", _TIME)):
        if all(map(pattern.fullmatch, different)):
            try:
                return Values(kind, seconds(plain, name, kind))
            except ValueError:  # such as 2024-02-31
                return plain
    if not values.declared and all(map(DECIMAL.fullmatch, different)):
        return Values("number", numbers(plain, name))
    return plain


# ---------------------------------------------------------------------------- conversion


def in_kind(values: Values, kind: str, name: str, zone: str | None = None) -> Values:
    """Return values as the kind that they were recognised as among other rows."""
    if values.kind == kind:
        return values
    if kind == "text":
        return Values(kind, levels(values, name))
    if kind in ("date", "time"):
        return Values(kind, seconds(values, name, kind, zone), zone)
    return Values(kind, numbers(values, name))


def joined(parts: list[Values], name: str) -> Values:
    """Put the values of a column in several blocks one after the other."""
    kinds = {part.kind for part in parts}
    if len(kinds) == 1 and kinds != {"object"}:
        return replace(parts[0], data=np.concatenate([part.data for part in parts]))
    if not kinds <= {"object", "number", "truth"}:
        raise ValueError(
            f"Column {name!r} holds {' and '.join(sorted(kinds))} values in different blocks of "
            f"rows: give the whole column one type."
        )
    data: list[Any] = []
    for part in parts:
        typed = {"truth": bool, "number": float}.get(part.kind, lambda v: v)
        data += [None if is_missing(v) else typed(v) for v in part.data]
    return Values("object", data, declared=any(part.declared for part in parts))


def numbers(values: Values, name: str) -> Array:
    """Return a column that was numbers in training as numbers."""
    if values.kind in ("number", "truth"):
        return values.data
    if values.kind not in ("text", "object"):
        _refuse(name, "numbers", f"a {values.kind}")
    return np.array([number_of(value, name) for value in values.data], dtype=np.float64)


def number_of(value: Any, name: str) -> float:
    """Return one value as a number, NaN if it is missing; durations in days."""
    if is_none(value):
        return np.nan
    if isinstance(value, timedelta):
        return value.total_seconds() / DAY
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "D"))
    try:
        if isinstance(value, str) and "_" in value:
            raise ValueError("float reads 1_000, a file does not")
        return float(value)
    except (TypeError, ValueError, OverflowError):
        _refuse(name, "numbers", repr(value))
        raise


def levels(values: Values, name: str) -> list[str | None]:
    """Return a column that was categories in training as texts."""
    data = values.data
    if values.kind in ("text", "object"):
        return data if values.kind == "text" else words(data, name)
    if values.kind in ("date", "time"):
        moments = np.where(np.isnan(data), np.iinfo(np.int64).min, data).astype("datetime64[s]")
        return [None if v == "NaT" else str(v) for v in np.datetime_as_string(moments)]
    different, place = np.unique(data, return_inverse=True)
    typed = bool if values.kind == "truth" else float
    texts = [None if np.isnan(v) else text_of(typed(v), name) for v in different]
    return [texts[i] for i in place.ravel()]


def truths(texts: list[str | None], name: str) -> list[str | None]:
    """Return yes and no, in several languages, as "True" and "False"; other texts are refused."""
    given = {text for text in texts if not is_none(text)}
    found = {text: _MEANING.get(text.strip().lower()) for text in given if text is not None}
    for text, meaning in found.items():
        if meaning is None:
            _refuse(name, "yes/no values", repr(text))
    return [None if text is None else found.get(text) for text in texts]


def meant(texts: set[str], known: Collection[str | None], are_numbers: bool) -> dict[str, Any]:
    """Return what unknown texts stand for: a level of training, a missing value or themselves.

    A file may be read in two ways: with spaces around a text or without them, with "?" as text or
    as a missing value, with codes such as "0123" and "1.50" as texts or as numbers.
    """
    levels = {level: level for level in known if level is not None}
    levels = {level.strip(): level for level in levels} | levels  # of old files, with spaces
    if are_numbers:
        levels = {_number_text(level): level for level in levels} | levels
    none = NO_VALUE if None in known else set()
    bare = {text: text.strip() for text in texts}
    return {t: None if b.lower() in none else levels.get(b, t) for t, b in bare.items()}


def _number_text(text: str) -> str:
    """Return the text of the number that a text is read as: "123" for "0123"."""
    try:
        return text_of(float(text), "")
    except ValueError:
        return text


def seconds(values: Values, name: str, kind: str, zone: str | None = None) -> Array:
    """Return a column that was dates (or times of day) in training as seconds."""
    if values.kind == kind:
        return values.data
    if values.kind == "number":  # pandas reads 20240301, and a column without values, as numbers
        least = _FIRST_NUMBER if kind == "date" else np.inf
        if np.nanmin(values.data, initial=np.inf) >= least:
            values = Values("text", levels(values, name))
    if values.kind not in ("text", "object"):
        _refuse(name, f"{kind}s", f"a {values.kind}")
    data = values.data
    if kind == "date" and set(map(type, data)) <= {str, type(None)}:
        codes, different = coded([None if is_none(text) else text for text in words(data, name)])
        parsed = np.append(_parsed(different, name), np.nan)
        return parsed[codes]
    convert = second_of if kind == "date" else clock_of
    return np.array([convert(value, name, zone) for value in data], dtype=np.float64)


def _parsed(texts: list[str], name: str) -> Array:
    """Parse ISO 8601 texts, all at once where numpy reads them."""
    if all(DATE.fullmatch(text) and not _ZONE.search(text) for text in texts):
        try:
            return np.array(texts, dtype="datetime64[us]").astype(np.int64) / 1e6
        except ValueError:
            pass  # the loop names the text
    return np.array([second_of(text, name) for text in texts], dtype=np.float64)


def second_of(value: Any, name: str, zone: str | None = None) -> float:
    """Return one date as seconds since 1970 by its clock, NaN if it is missing.

    A date with a time zone is moved to that of training; texts say what their clock shows.
    """
    if is_none(value):
        return np.nan
    if isinstance(value, np.datetime64):
        return float(value.astype("datetime64[us]").astype(np.int64)) / 1e6
    if isinstance(value, Number) and value >= _FIRST_NUMBER:
        value = text_of(value, name)
    elif _is_period(type(value)):
        value = value.start_time
    try:
        moment = datetime.fromisoformat(_iso(value)) if isinstance(value, str) else value
    except ValueError:
        _refuse(name, "dates", repr(value))
    if not isinstance(moment, datetime):
        if not isinstance(moment, date):
            _refuse(name, "dates", repr(value))
        return (moment.toordinal() - _EPOCH) * DAY
    if zone is not None and moment.tzinfo is not None and moment is value:
        from zoneinfo import ZoneInfo

        moment = moment.astimezone(ZoneInfo(zone))
    day = moment.toordinal() - _EPOCH
    return day * DAY + clock_of(moment.time(), name)


def _is_period(kind: type) -> bool:
    return kind.__name__ == "Period" and hasattr(kind, "start_time")  # of pandas


def _iso(text: str) -> str:
    """Return a date with points as ISO 8601 writes it: 2024-03-01 for 1.3.2024 and 01.03.24."""
    text = text.strip()
    found = _POINTS.match(text)
    if found is None:
        return text
    day, month, year = map(int, found.groups())
    year += 2000 if year < 69 else 1900 if year < 100 else 0
    return f"{year:04d}-{month:02d}-{day:02d}{text[found.end() :]}"


def clock_of(value: Any, name: str, zone: str | None = None) -> float:
    """Return one time of day as seconds since midnight, NaN if it is missing."""
    if is_none(value):
        return np.nan
    if isinstance(value, str):
        text = value.strip()
        text = f"0{text}" if text[1:2] == ":" else text  # 8:30
        with suppress(ValueError):  # digits alone may be a date, such as 20240301
            value = time.fromisoformat(text) if ":" in text else value
    if not isinstance(value, time):
        _refuse(name, "times of day", repr(value))
    return value.hour * 3600.0 + value.minute * 60.0 + value.second + value.microsecond / 1e6


def _refuse(name: str, wanted: str, found: str) -> None:
    raise ValueError(
        f"Column {name!r} had {wanted} in training, but now {found:.60}: correct the value, or "
        f"make it missing."
    )
