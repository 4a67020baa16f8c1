"""Dates, times of day and yes/no answers as numbers.

A date becomes days since 1970, with the time of day as a fraction; a time of day becomes hours.
Which part is the day and which the month is clear from the year in front (2024-03-01), from points
(01.03.2024), from a number above 12, from other columns, or the user says it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from leansvm.tables._values import TRUTHS

if TYPE_CHECKING:
    import pyarrow as pa

DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
_TIME = (
    r"(?:[T ,]+(?P<h>\d{1,2}):(?P<n>\d{2})(?::(?P<s>\d{2}(?:[.,]\d+)?))?\s*(?P<p>[AaPp]\.?[Mm]\.?)?"
    r"\s*(?P<z>Z|[+-]\d{2}:?\d{2})?)?"
)
_MONTH = r"(?P<m>[A-Za-zÄÖÜäöüû.]{3,10})"
YEAR_FIRST = rf"^(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})(?:[-/.](?P<d>\d{{1,2}}){_TIME})?$"
COMPACT = rf"^(?P<y>(?:19|20)\d{{2}})(?P<m>\d{{2}})(?P<d>\d{{2}}){_TIME}$"
POINTS = rf"^(?P<d>\d{{1,2}})\.\s?(?P<m>\d{{1,2}})\.\s?(?P<y>\d{{4}}|\d{{2}}){_TIME}$"
SLASHES = rf"^(?P<d>\d{{1,2}})[-/](?P<m>\d{{1,2}})[-/](?P<y>\d{{4}}|\d{{2}}){_TIME}$"
NAMED = rf"^(?P<d>\d{{1,2}})[-. /]+{_MONTH}[-. /,]+(?P<y>\d{{4}}|\d{{2}}){_TIME}$"
NAMED_FIRST = rf"^{_MONTH}[-. /]+(?P<d>\d{{1,2}}),?\s+(?P<y>\d{{4}}){_TIME}$"
CLEAR = (YEAR_FIRST, POINTS, NAMED, NAMED_FIRST)
_CLOCK = r"^(?P<h>\d{1,2}):(?P<n>\d{2})(?::(?P<s>\d{2}(?:[.,]\d+)?))?$"
_MONTHS = {  # by their first three letters, in English and in German
    "jan": 1, "feb": 2, "mar": 3, "mär": 3, "mrz": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12,
}  # fmt: skip
_MOST_WORDS = 100  # that are looked at: a column of yes and no has few


def looks_like(text: str, pattern: str) -> bool:
    """Return whether one value has the form of a date; the date may still not exist."""
    return re.match(pattern, text) is not None


def to_days(texts: pa.Array, pattern: str, order: str = DAY_FIRST) -> np.ndarray:
    """Convert dates of one pattern to days since 1970; NaN if a value is no such date."""
    parts = _parts(texts, pattern)
    day, month = parts["d"], parts["m"]
    if pattern == SLASHES and order == MONTH_FIRST:
        day, month = month, day
    if pattern == YEAR_FIRST:
        day = np.where(np.isnan(day) & ~np.isnan(month), 1.0, day)  # 2024-03 is its first day
    year = parts["y"]
    year = year + np.where(year < 69, 2000, np.where(year < 100, 1900, 0))
    good = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year >= 1)
    y, m, d = (np.where(good, part, 1).astype(np.int64) for part in (year, month, day))
    first = (12 * (y - 1970) + m - 1).astype("datetime64[M]")
    date = first.astype("datetime64[D]") + (d - 1)
    good &= date.astype("datetime64[M]") == first  # there is no 31st of April
    fraction = _hours(parts, texts) / 24
    return np.where(good & (fraction < 1), date.astype(np.int64) + fraction - parts["z"], np.nan)


def to_hours(texts: pa.Array) -> np.ndarray:
    """Convert times of day to hours; NaN if a value is no time of day."""
    parts = _parts(texts, _CLOCK)
    hours = _hours(parts, texts)
    return np.where(~np.isnan(parts["h"]) & (hours < 24), hours, np.nan)


def _hours(parts: dict[str, np.ndarray], texts: pa.Array) -> np.ndarray:
    """Return hours since midnight; 24 if the parts are no time of day."""
    zero = np.zeros(len(texts))
    h, n, s = (np.nan_to_num(parts.get(name, zero)) for name in ("h", "n", "s"))
    afternoon = parts.get("p", zero)  # 0: nothing was said, 1: a.m., 2: p.m.
    wrong = (h > 23) | (n > 59) | (s >= 61) | ((afternoon > 0) & ((h < 1) | (h > 12)))
    h = np.where(afternoon > 0, h % 12 + 12 * (afternoon == 2), h)
    return np.where(wrong, 24.0, h + n / 60 + s / 3600)


def _parts(texts: pa.Array, pattern: str) -> dict[str, np.ndarray]:
    """Return the parts of every value as numbers, NaN if there are none."""
    from pyarrow import compute

    found = compute.extract_regex(texts, pattern)
    names = [field.name for field in found.type]
    columns = dict(zip(names, found.flatten(), strict=True))
    parts = {name: _part(name, column) for name, column in columns.items()}
    parts.setdefault("z", np.zeros(len(texts)))
    return parts


def _part(name: str, column: pa.Array) -> np.ndarray:
    import pyarrow as pa
    from pyarrow import compute

    if name in ("m", "p", "z"):
        values = column.dictionary_encode()
        meaning = {"m": _month, "p": _afternoon, "z": _zone}[name]
        known = np.array([meaning(text) for text in values.dictionary.to_pylist()] + [np.nan])
        places = values.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
        return known[places] if name == "m" else np.nan_to_num(known[places])
    digits = compute.replace_substring(column, ",", ".")
    empty = compute.equal(digits, "")
    numbers = compute.if_else(empty, pa.scalar(None, column.type), digits).cast(pa.float64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _month(text: str) -> float:
    return float(text) if text.isdigit() else float(_MONTHS.get(text.lower()[:3], np.nan))


def _afternoon(text: str) -> float:
    return {"a": 1.0, "p": 2.0}.get(text.lower()[:1], 0.0)


def _zone(text: str) -> float:
    """Return a time zone as days ahead of universal time."""
    digits = text.lstrip("+-").replace(":", "")
    if not digits.isdigit():
        return 0.0
    days = (int(digits[:2]) + int(digits[2:]) / 60) / 24
    return -days if text.startswith("-") else days


def to_truth(texts: pa.Array, digits: bool = False) -> np.ndarray:
    """Convert yes and no, in several languages or as digits, to 1 and 0; NaN for other values."""
    from pyarrow import compute

    values = compute.utf8_lower(texts).dictionary_encode()
    words = values.dictionary.to_pylist()
    yes, no = max(TRUTHS, key=lambda pair: len(set(words[:_MOST_WORDS]) & set(pair)))
    meaning = {yes: 1.0, no: 0.0}
    if digits:
        meaning |= {"1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}
    known = np.array([meaning.get(word, np.nan) for word in words] + [np.nan])
    places = values.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return known[places]
