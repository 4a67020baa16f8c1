"""One row of a table at a time, in microseconds: `TableEncoder.transform` without arrays.

A row is a dict by column name, or a sequence in the order of the training columns. In a dict,
columns that are not given are missing, and unknown columns are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.tables._columns import (
    CYCLES,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    refuse_infinite,
)
from leansvm.tables._values import (
    DAY,
    clock_of,
    is_missing,
    meant,
    number_of,
    second_of,
    text_of,
    truths,
)

Array = NDArray[np.float64]
_FIRST_DAY = date(1970, 1, 1).toordinal()


class RowEncoder:
    """Turns rows into the features of fitted columns; ``names`` are all columns of training."""

    def __init__(self, columns: Sequence[Column], names: Sequence[str]) -> None:
        self.names = {name: i for i, name in enumerate(names)}
        self.template: list[float] = []  # a row in which every value is missing
        units: list[tuple[float, float]] = []
        self.numbers: list[tuple[str, int, int]] = []  # name, place, place of the indicator
        self.categories: list[tuple[str, bool, dict[str | None, Any], Any]] = []
        self.dates: list[tuple[DateColumn, int]] = []
        for column in columns:
            start, width = len(self.template), len(column.parts())
            self.template += [0.0] * width
            units += [(0.0, 1.0)] * width
            if isinstance(column, NumberColumn):
                number = start if column.varies else -1
                self.numbers.append((column.name, number, start + width - 1 if column.gaps else -1))
                if column.varies:
                    self.template[start], units[start] = column.fill, column.unit
            elif isinstance(column, DateColumn):
                self.dates.append((column, start))
                self.template[start] = column.trend(column.fill)
                units[start] = column.unit
            else:
                self.categories.append((column.name, column.truth, *_lookup(column, start)))
        self.shift, self.scale = np.array(units).T.copy()
        self.is_raw = bool(np.all(self.shift == 0) and np.all(self.scale == 1))

    def __call__(self, row: Mapping[str, Any] | Sequence[Any]) -> Array:
        """Return the features of a row."""
        if not isinstance(row, Mapping):
            if len(row) != len(self.names):
                raise ValueError(f"A row has {len(row)} values, training had {len(self.names)}.")
            row = dict(zip(self.names, row, strict=True))
        elif not row or not row.keys() <= self.names.keys():
            unknown = list(row.keys() - self.names.keys())
            what = f"the unknown columns {unknown[:20]}" if unknown else "no columns"
            first = [*self.names][:20]
            more = f" and {len(self.names) - 20} more" if len(self.names) > 20 else ""
            raise ValueError(f"A row has {what}; the columns of training are {first}{more}.")
        out, given = self.template[:], row.get
        for name, place, gap in self.numbers:
            value = given(name)
            if type(value) is not float:
                value = number_of(value, name)
            if value != value:
                if gap >= 0:
                    out[gap] = 1.0
            elif place >= 0:
                out[place] = value
        for name, truth, known, unseen in self.categories:
            value = given(name)
            is_text = type(value) is str
            if truth or not is_text:
                value = _text(value, name, truth)
            found = known.get(value)
            if found is None:
                if value is not None and not is_missing(value):
                    value = meant({value}, known, not is_text)[value]
                found = known.get(None if is_missing(value) else value, unseen)
            for place, number in found:
                out[place] = number
        for column, place in self.dates:
            _write_date(out, place, column, given(column.name))
        x = np.array(out)
        if not math.isfinite(x.sum()):
            for name, place, _ in self.numbers:
                refuse_infinite(x[max(place, 0) : place + 1], name)
        return x if self.is_raw else (x - self.shift) / self.scale


def _lookup(column: CategoryColumn, start: int) -> tuple[dict[str | None, Any], Any]:
    """Return places and numbers of the features of every known level, and of unseen ones."""
    texts = dict.fromkeys((*column.levels, *column.known))
    rows = column.rows_of([*texts, "\0 no level"]).tolist()
    pairs = [[(start + j, v) for j, v in enumerate(row) if v] for row in rows]
    return dict(zip(texts, pairs, strict=False)), pairs[-1]


def _text(value: Any, name: str, truth: bool) -> str | None:
    if is_missing(value):
        return None
    if truth and not isinstance(value, bool | np.bool_) and value in (0, 1):
        value = bool(value)
    return truths([text_of(value, name)], name)[0] if truth else text_of(value, name)


def _write_date(out: list[float], place: int, column: DateColumn, value: Any) -> None:
    convert = second_of if column.kind == "date" else clock_of
    x = convert(value, column.name, column.zone)
    if x != x:
        if column.gaps:
            out[place + 1 + 2 * len(column.cycles)] = 1.0
        return
    out[place] = column.trend(x)
    day = int(x // DAY)
    for cycle in column.cycles:
        if cycle == "hour":
            at = x - day * DAY
        elif cycle == "weekday":
            at = (day + 3) % 7
        else:
            when = date.fromordinal(_FIRST_DAY + day)
            at = when.month - 1
            if cycle == "yearday":
                at = when.toordinal() - date(when.year, 1, 1).toordinal()
        angle = 2.0 * math.pi / CYCLES[cycle] * at
        out[place + 1], out[place + 2] = math.sin(angle), math.cos(angle)
        place += 2
