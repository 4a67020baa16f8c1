"""Warnings about text columns whose values look like numbers or dates.

Text becomes numbers or dates only if every value is written in one plain form. If only nearly all
values are in this form, or all are in another form, the user should know that the column is text.
The user should also know of numbers that look like dates, and of levels that differ in case only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from leansvm.tables._values import DATE, DECIMAL, is_none, second_of

_MOSTLY = 0.9  # share of the different values
_FEWEST, _FEWEST_NUMBERS = 3, 30  # different values: so few may be levels, such as 1, 2, 3, other
_CLOCK = r"(?:[T ,]+\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?[AaPp][Mm])?)?"
_OTHER_DATE = re.compile(
    rf"\s*(?:\d{{1,2}}[-/.]\s?\d{{1,2}}[-/.]\s?(?:\d{{4}}|\d\d)|\d{{4}}[/.]\d{{1,2}}[/.]\d{{1,2}}|"
    r"\d{1,2}[-. ]+[^\W\d]{3,10}[-., ]+\d{4}|[^\W\d]{3,10}\.? \d{1,2},? \d{4})"
    rf"{_CLOCK}\s*"
)
_UNIT = r"(?:[€$£¥%]|EUR|USD|GBP|CHF)"
_TIMES = r"(?:[kKmM]|bn|Mio\.?|Mrd\.?)"  # thousand, million and such
_OTHER_NUMBER = re.compile(
    rf"\s*\(?[-+]?\s*{_UNIT}?\s*[-+]?(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:[,.'\s]\d{{3}})+)(?:[.,]\d+)?"
    rf"\s*{_TIMES}?\s*{_UNIT}?\)?\s*"
)
_FIRST_DAY, _LAST_DAY = 19000101, 21001231  # dates that are written as whole numbers


def hint_of(different: list[str]) -> str:
    """Return why a column is text although its values look like numbers or dates; or nothing."""
    texts = [text for text in different if not is_none(text)]
    if len(texts) <= _FEWEST:
        return ""
    numbers = len(texts) > _FEWEST_NUMBERS
    return (
        (_few_others(texts, DECIMAL.fullmatch, "numbers", "pandas.to_numeric") if numbers else "")
        or _few_others(texts, _is_date, "dates", "pandas.to_datetime")
        or _other_form(texts)
    )


def hint_of_case(levels: list[str]) -> str:
    """Return which levels differ only in capital letters; or nothing."""
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault(level.casefold(), level)
        if other != level:
            return (
                f"has {other!r} and {level!r} as different values. If they mean the same, write "
                f"them in one way, such as with .str.lower()."
            )
    return ""


def hint_of_numbers(x: NDArray[np.float64], name: str) -> str:
    """Return how to convert whole numbers that are all dates, such as 20240301; or nothing."""
    days = np.unique(x[~np.isnan(x)])
    if len(days) <= _FEWEST or days[0] < _FIRST_DAY or days[-1] > _LAST_DAY:
        return ""
    if not all(day == int(day) and _is_date(_dashed(int(day))) for day in days.tolist()):
        return ""
    return (
        f"although its values look like dates, such as {days[0]:.0f}. If they are, convert them "
        f"first: pandas.to_datetime(X[{name!r}].astype('Int64').astype('string'), format='%Y%m%d')."
    )


def _dashed(day: int) -> str:
    return f"{day // 10000}-{day // 100 % 100:02d}-{day % 100:02d}"


def _is_date(text: str) -> bool:
    """Whether a text is an ISO 8601 date that exists."""
    try:
        return DATE.fullmatch(text) is not None and second_of(text, "") == second_of(text, "")
    except ValueError:
        return False


def _few_others(texts: list[str], fits: Callable[[str], object], kinds: str, convert: str) -> str:
    """Say what to do if only a few values do not fit."""
    others = [text for text in texts if not fits(text)]
    if not others or len(others) >= (1 - _MOSTLY) * len(texts):
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
        (_OTHER_NUMBER, "numbers", "write €1,200.50 as 1200.50, 9.3k as 9300 and (12) as -12"),
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
