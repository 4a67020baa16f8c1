"""What each column of a table becomes: fitted numbers, categories and dates.

Every kind has the same methods: `fit`, `encode` (values to features) and `parts` (name, group and
kind of every feature).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm.tables._values import DAY, Values, levels, meant, numbers, seconds, text_of, truths

Array = NDArray[np.float64]

MOST_LEVELS = 30  # that have a feature of their own
# rows that a level needs to get its own feature: 10; in a small table 1 % of the rows, at least 2
_MANY_LEVEL_ROWS, _LEVEL_SHARE, _FEW_LEVEL_ROWS = 10.0, 0.01, 2.0
CYCLES = {"hour": DAY, "weekday": 7.0, "month": 12.0, "yearday": 365.25}
APART = 2.0**-0.5  # one-hot columns of this size: different levels have distance 1


class TableFeature(NamedTuple):
    """One feature."""

    name: str
    group: int  # within the column: features of a group share a scale
    numeric: bool  # may be standardised and cut


Unit = tuple[float, float]  # shift and scale: a number becomes (x - shift) / scale
RAW: Unit = (0.0, 1.0)


def unit_of(x: Array, weight: Array) -> Unit:
    """Return mean and standard deviation of weighted numbers."""
    origin, share = float(x[0]), weight / weight.sum()
    size = float(np.abs(x - origin).max()) or 1.0
    rows = (x - origin) / size  # squares neither overflow nor lose digits
    mean = float(share @ rows)
    spread = float(np.sqrt(share @ np.square(rows - mean)))
    return origin + mean * size, spread * size if spread > 0 else 1.0


def _in_units(x: Array, unit: Unit) -> Array:
    return x if unit == RAW else (x - unit[0]) / unit[1]


def weighted_median(x: Array, weight: Array) -> float:
    """Return the median; a whole weight counts as so many copies, and the median is NumPy's."""
    order = np.argsort(x, kind="stable")
    reached, half = np.cumsum(weight[order]), weight.sum() / 2.0
    lower = x[order[np.searchsorted(reached, half * (1 - 1e-12))]]
    upper = x[order[min(np.searchsorted(reached, half * (1 + 1e-12)), len(x) - 1)]]
    return float(lower + (upper - lower) / 2.0)


@dataclass(frozen=True)
class NumberColumn:
    """A number and, if some training rows lack it, an indicator of missing values."""

    name: str
    fill: float  # in place of a missing number: the median
    gaps: bool  # whether some training rows lack it
    varies: bool  # whether there is more than one number
    unit: Unit = RAW
    kind: ClassVar[str] = "number"

    @classmethod
    def fit(cls, name: str, x: Array, weight: Array, standardize: bool) -> NumberColumn | None:
        """Learn from the rows of positive weight; None if the column is the same in all rows."""
        known = ~np.isnan(x)
        varies = x[known].min() < x[known].max()
        if not varies and known.all():
            return None
        fill = weighted_median(x[known], weight[known])
        unit = unit_of(np.where(known, x, fill), weight) if standardize else RAW
        return cls(name, fill, not known.all(), bool(varies), unit)

    def parts(self) -> list[TableFeature]:
        found = [TableFeature(self.name, 0, True)] if self.varies else []
        return [*found, TableFeature(f"{self.name}:missing", 1, False)] if self.gaps else found

    def encode(self, values: Values) -> Array:
        x = numbers(values, self.name)
        refuse_infinite(x, self.name)
        missing = np.isnan(x)
        found = [_in_units(np.where(missing, self.fill, x), self.unit)] if self.varies else []
        return np.column_stack([*found, missing] if self.gaps else found)


@dataclass(frozen=True)
class DateColumn:
    """Days since the first training row, or hours of a time of day, and cycles that vary.

    A cycle is a point on a circle of radius 1, or its centre if the date is missing.
    """

    name: str
    kind: str  # "date" or "time"
    zone: str | None
    first: float  # seconds
    fill: float
    gaps: bool
    cycles: tuple[str, ...]
    unit: Unit = RAW

    @classmethod
    def fit(
        cls, name: str, values: Values, x: Array, weight: Array, standardize: bool
    ) -> DateColumn | None:
        """Learn from the rows of positive weight; None if the column is useless."""
        known = ~np.isnan(x)
        if known.all() and x.min() == x.max():
            return None
        first = float(x[known].min()) if values.kind == "date" else 0.0
        fill = weighted_median(x[known], weight[known])
        names = CYCLES if values.kind == "date" else ["hour"]
        positions = {cycle: position(cycle, x[known]) for cycle in names}
        cycles = tuple(cycle for cycle, p in positions.items() if p.min() < p.max())
        found = cls(name, values.kind, values.zone, first, fill, not known.all(), cycles)
        if not standardize:
            return found
        return replace(found, unit=unit_of(found.trend(np.where(known, x, fill)), weight))

    def trend(self, x: Any) -> Any:
        """Return days since the first row, or hours of the day."""
        return (x - self.first) / self.unit_seconds

    @property
    def unit_seconds(self) -> float:
        """Seconds in a unit of the trend."""
        return DAY if self.kind == "date" else 3600.0

    def parts(self) -> list[TableFeature]:
        unit = "days" if self.kind == "date" else "hours"
        found = [TableFeature(f"{self.name}:{unit}", 0, True)]
        for i, cycle in enumerate(self.cycles, 2):
            found += [TableFeature(f"{self.name}:{cycle}_{f}", i, False) for f in ("sin", "cos")]
        return [*found, TableFeature(f"{self.name}:missing", 1, False)] if self.gaps else found

    def encode(self, values: Values) -> Array:
        x = seconds(values, self.name, self.kind, self.zone)
        missing = np.isnan(x)
        x = np.where(missing, self.fill, x)
        found = [_in_units(self.trend(x), self.unit)]
        for cycle in self.cycles:
            angle = 2.0 * np.pi / CYCLES[cycle] * position(cycle, x)
            found += [np.where(missing, 0.0, f(angle)) for f in (np.sin, np.cos)]
        return np.column_stack([*found, missing] if self.gaps else found)


def position(cycle: str, x: Array) -> Array:
    """Return where in a cycle a date is: seconds of the day, or days or months from 0."""
    day: Array = np.floor(x / DAY).astype(np.float64)
    if cycle == "hour":
        return x - day * DAY
    if cycle == "weekday":
        return np.mod(day + 3.0, 7.0).astype(np.float64)  # 1970 began on a Thursday; Monday is 0
    calendar = day.astype("datetime64[D]")
    if cycle == "month":
        return (calendar.astype("datetime64[M]").astype(np.int64) % 12).astype(np.float64)
    return (calendar - calendar.astype("datetime64[Y]")).astype(np.float64)


@dataclass(frozen=True)
class CategoryColumn:
    """One-hot features of frequent levels; if levels are many, also means of the target.

    A missing value is a level. Rare levels share one feature with levels that training did not
    see. If there would be two features, only one is kept, because it determines the other.
    """

    name: str
    levels: tuple[str | None, ...]  # with a feature of their own; None: missing
    rest: bool  # whether a feature stands for all others
    truth: bool = False  # levels were booleans
    known: tuple[str | None, ...] = ()  # all levels of training
    means: Array = field(default_factory=lambda: np.empty((0, 0)))  # last: of unseen levels
    units: tuple[Unit, ...] = ()  # of the means
    kind: ClassVar[str] = "category"

    @classmethod
    def fit(
        cls, name: str, texts: tuple[str | None, ...], counts: Array, truth: bool
    ) -> CategoryColumn:
        """Learn which levels are frequent, from the weight of each."""
        # small tables: one row in a hundred, but never a single row
        enough = max(_FEW_LEVEL_ROWS, min(_MANY_LEVEL_ROWS, _LEVEL_SHARE * counts.sum()))
        order = sorted(range(len(texts)), key=lambda i: (-counts[i], texts[i] or ""))
        own = [texts[i] for i in order if counts[i] >= enough][:MOST_LEVELS]
        return cls(name, tuple(own), len(own) < len(texts), truth, texts)

    def __getstate__(self) -> dict[str, Any]:
        """Return levels as one text: a file with thousands of them stays small."""
        return vars(self) | {n: json.dumps(getattr(self, n)) for n in ("levels", "known")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        vars(self).update({n: tuple(json.loads(state[n])) for n in ("levels", "known")})

    def one_hot(self) -> list[tuple[str, int]]:
        """Return names of the one-hot features and which levels they stand for."""
        ends = [":missing" if level is None else f"={level}" for level in self.levels]
        ends += [":rare"] * self.rest
        found = [(self.name + end, i) for i, end in enumerate(ends)]
        return found[1:] if len(found) <= 2 else found  # of two one is enough, one is constant

    def parts(self) -> list[TableFeature]:
        found = [TableFeature(name, 0, False) for name, _ in self.one_hot()]
        n_means = self.means.shape[1]
        names = [f"{self.name}:mean{i if n_means > 1 else ''}" for i in range(n_means)]
        return found + [TableFeature(name, i + 1, True) for i, name in enumerate(names)]

    def encode(self, values: Values, own_means: Array | None = None) -> Array:
        """Return features of all rows; ``own_means`` are the target means of training rows."""
        return self.rows_of(self.read(values), own_means)

    def read(self, values: Values) -> list[str | None]:
        """Return values as levels of training if they mean one, such as 7 for 007."""
        if self.truth and values.kind == "number":  # 0 and 1 in place of False and True
            others = set(values.data[~np.isnan(values.data)].tolist()) - {0.0, 1.0}
            truths([text_of(value, self.name) for value in others], self.name)
            values = replace(values, kind="truth")
        texts = levels(values, self.name)
        if self.truth:
            return truths(texts, self.name)
        unseen = {text for text in texts if text is not None}.difference(self.known)
        found = meant(unseen, self.known, values.kind == "number")
        return [text if text is None else found.get(text, text) for text in texts]

    def places(self, texts: list[str | None]) -> list[int]:
        """Return the rows of `means` for levels; -1 for those that training did not see."""
        row = {level: i for i, level in enumerate(self.known)}
        return [row.get(text, -1) for text in texts]

    def rows_of(self, texts: list[str | None], own_means: Array | None = None) -> Array:
        """Return features of levels."""
        one_hot = self.one_hot()
        place = {level: i for i, level in enumerate(self.levels)}
        at = np.array([place.get(text, len(place)) for text in texts], dtype=np.intp)
        size = 1.0 if len(one_hot) == 1 else APART
        found = [np.where(at == i, size, 0.0) for _, i in one_hot]
        if not self.means.shape[1]:
            return np.column_stack(found)
        if own_means is None:
            own_means = self.means[self.places(texts)]
        means = [_in_units(mean, unit) for unit, mean in zip(self.units, own_means.T, strict=True)]
        return np.column_stack([*found, *means])


Column = NumberColumn | CategoryColumn | DateColumn


def check_column(column: Any) -> None:
    """Refuse a column whose parts do not match: anybody may have written the file it is from."""
    if not isinstance(column, Column) or not isinstance(column.name, str):
        raise ValueError("a column of the table has the wrong type")
    if isinstance(column, CategoryColumn):
        units, means, texts = column.units, column.means, (*column.levels, *column.known)
        n_known = len(column.known) + 1
        fits = isinstance(means, np.ndarray) and means.dtype == np.float64 and means.ndim == 2
        fits &= means.shape in ((n_known, len(units)), (0, 0)) and bool(np.isfinite(means).all())
        fits &= all(isinstance(text, str | None) for text in texts)
    else:
        units, fits = (column.unit,), bool(np.isfinite(column.fill))
    if isinstance(column, DateColumn):
        fits &= bool(np.isfinite(column.first)) and set(column.cycles) <= CYCLES.keys()
        fits &= column.kind in ("date", "time")
    if not fits or not all(np.isfinite(shift) and 0 < scale < np.inf for shift, scale in units):
        raise ValueError(f"column {column.name!r:.50} of the table has parts that do not match")


def refuse_infinite(x: Array, name: str) -> None:
    """Raise a ValueError if a number is infinite."""
    if np.isinf(x).any():
        raise ValueError(f"Column {name!r} holds infinity: replace it, or make it missing.")
