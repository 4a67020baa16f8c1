"""Warnings about text columns whose values look like numbers or dates.

Text becomes numbers or dates only if every value is written in one plain form. If only nearly all
values are in this form, or all are in another form, the user should know that the column is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from leansvm.tables._values import DATE, DECIMAL, NO_VALUE

_MOSTLY = 0.9  # share of the different values
_FEWEST, _FEWEST_NUMBERS = 3, 30  # different values: so few may be levels, such as 1, 2, 3, other
_CLOCK = r"(?:[T ,]+\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?[AaPp][Mm])?)?"
_OTHER_DATE = re.compile(
    rf"\s*(?:\d{{1,2}}[-/.]\s?\d{{1,2}}[-/.]\s?(?:\d{{4}}|\d\d)|\d{{4}}[/.]\d{{1,2}}[/.]\d{{1,2}}|"
    r"\d{1,2}[-. ]+[^\W\d]{3,10}[-., ]+\d{4}|[^\W\d]{3,10}\.? \d{1,2},? \d{4})"
    rf"{_CLOCK}\s*"
)
_UNIT = r"(?:[€$£¥%]|EUR|USD|GBP|CHF)"
_OTHER_NUMBER = re.compile(
    rf"\s*[-+]?\s*{_UNIT}?\s*[-+]?(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:[,.'\s]\d{{3}})+)(?:[.,]\d+)?"
    rf"\s*{_UNIT}?\s*"
)


def hint_of(different: list[str]) -> str:
    """Return why a column is text although its values look like numbers or dates; or nothing."""
    texts = [text for text in different if text.strip().lower() not in NO_VALUE]
    if len(texts) <= _FEWEST:
        return ""
    numbers = len(texts) > _FEWEST_NUMBERS
    return (
        (_few_others(texts, DECIMAL.fullmatch, "numbers", "pandas.to_numeric") if numbers else "")
        or _few_others(texts, DATE.fullmatch, "dates", "pandas.to_datetime")
        or _other_form(texts)
    )


def _few_others(texts: list[str], fits: Callable[[str], object], kinds: str, convert: str) -> str:
    """Say what to do if only a few values do not fit."""
    others = [text for text in texts if not fits(text)]
    if len(others) >= (1 - _MOSTLY) * len(texts):
        return ""
    are = f"is not a {kinds[:-1]}" if len(others) == 1 else f"are not {kinds}"
    return (
        f"because {len(others):,} of its {len(texts):,} different values {are}, such as "
        f"{others[0]!r}. If the column has {kinds}, make the other values missing: "
        f"{convert}(..., errors='coerce')."
    )


def _other_form(texts: list[str]) -> str:
    """Say what to do if nearly all values are dates or numbers in another form."""
    for pattern, kinds, how in (
        (_OTHER_DATE, "dates", "use pandas.to_datetime, with dayfirst=True for 31/12/2024"),
        (_OTHER_NUMBER, "numbers", "remove units, and use a point as the decimal mark"),
    ):
        found = [text for text in texts if pattern.fullmatch(text)]
        if len(found) >= _MOSTLY * len(texts):
            example = next((text for text in found if not DECIMAL.fullmatch(text)), None)
            if example is not None:
                return (
                    f"although its values look like {kinds}, such as {example.strip()!r}. If they "
                    f"are, convert them first ({how})."
                )
    return ""
