"""Numbers written with a point or a comma, with thousands in groups, with a unit.

Two styles: "." takes the point for the decimal mark (1,234.5 and 1 234.5), "," the comma (1.234,5
and 1 234,5). A column such as 1,234 and 5,678 fits both: other columns decide, or the user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

POINT, COMMA = ".", ","
_SPACES = r"' ’\x{00A0}\x{202F}"  # groups of digits: 1'234, 1 234
_UNIT = r"[€$£¥%]|EUR|USD|GBP|CHF"
_AROUND = re.compile(rf"^({_UNIT})?\s*(?:[^\s].*?)??\s*({_UNIT})?$")


def number_pattern(style: str) -> str:
    """Return the regular expression of a number whose decimal mark is `style`."""
    mark = re.escape(style)
    group = f"[{COMMA if style == POINT else POINT}{_SPACES}]"
    whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:{group}\d{{3}})+)"
    return rf"^[-+−]?(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][-+]?\d+)?$"


def fits(texts: pa.Array, style: str) -> np.ndarray:
    """Return which values are numbers of this style; missing ones are none."""
    from pyarrow import compute

    found = compute.match_substring_regex(texts, number_pattern(style))
    return _flags(found)


def has_marks(texts: pa.Array) -> bool:
    """Return whether any value has a point or a comma."""
    from pyarrow import compute

    return bool(_flags(compute.match_substring_regex(texts, "[.,]")).any())


def is_code(texts: pa.Array) -> bool:
    """Return whether digits are a name: leading zeros, or more of them than float64 can hold."""
    from pyarrow import compute

    odd = compute.match_substring_regex(texts, r"^(?:0\d+|\d{17,})$")
    if not compute.any(odd).as_py():  # as in nearly all of the columns of a wide file
        return False
    return bool(compute.all(compute.match_substring_regex(texts, r"^\d+$")).as_py())


def to_numbers(texts: pa.Array, style: str) -> np.ndarray:
    """Convert values that fit the style; all others become NaN."""
    import pyarrow as pa
    from pyarrow import compute

    good = pa.array(fits(texts, style))
    texts = compute.if_else(good, texts, pa.scalar(None, texts.type))
    thousands = COMMA if style == POINT else r"\."
    texts = compute.replace_substring_regex(texts, f"[{thousands}{_SPACES}]", "")
    if style == COMMA:
        texts = compute.replace_substring(texts, COMMA, POINT)
    texts = compute.replace_substring(texts, "−", "-")
    texts = compute.replace_substring_regex(texts, r"^\+", "")
    numbers = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(numbers, dtype=np.float64)


def without_unit(texts: pa.Array) -> tuple[pa.Array, str]:
    """Take off a sign of money or a percent sign that all values have; return it too."""
    from pyarrow import compute

    known = texts.drop_null()
    match = _AROUND.match(known[0].as_py()) if len(known) else None
    before, after = match.groups() if match else (None, None)
    unit = before or after
    if not unit:
        return texts, ""
    sign = re.escape(unit)
    pattern = rf"^([-+−]?)\s*{sign}\s*" if before else rf"\s*{sign}$"
    if not _flags(compute.match_substring_regex(known, pattern)).all():
        return texts, ""
    return compute.replace_substring_regex(texts, pattern, r"\1" if before else ""), unit


def _flags(found: pa.Array) -> np.ndarray:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
