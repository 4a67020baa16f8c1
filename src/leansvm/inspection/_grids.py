"""Values along a column, in the user's units, and the features that the machine makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats.mstats import mquantiles

from leansvm.inspection._view import Array, Indices, View
from leansvm.tables._frames import open_table
from leansvm.tables._values import numbers as numbers_of
from leansvm.tables._values import seconds

_MOST_LEVELS = 30  # of a column of words: the most frequent ones
_MISSING = ("nan", "None", "<NA>", "NaT")
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")


@dataclass(frozen=True)
class Along:
    """A column of the user's and its grid."""

    grid: NDArray[Any]  # numbers, dates or levels
    features: Indices  # of the machine, that the column makes
    values: Array  # of these features along the grid, grid x features
    ratio: Array | None  # d feature / d column, rows x features; None if it has levels

    @property
    def lead(self) -> int | None:
        """The one feature that moves with the column's number; None if there are others."""
        moves = self.features[[] if self.ratio is None else np.nanmax(np.abs(self.ratio), 0) > 0]
        return int(moves[0]) if len(moves) == 1 else None


def along(
    view: View, rows: Array, column: int, features: Indices, resolution: int, percentiles: Any
) -> Along:
    """Return the grid of a column; ``rows`` are all rows as the machine sees them."""
    given = as_read(view, column)
    numbers = as_numbers(given)
    if numbers is None or not np.isfinite(numbers).any():
        text = given.astype(str)
        text = np.where(np.isin(text, _MISSING), "missing", text)
        levels, first, counts = np.unique(text, return_index=True, return_counts=True)
        kept = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LEVELS])
        return Along(levels[kept], features, rows[np.ix_(first[kept], features)], None)
    points = even_grid(numbers[np.isfinite(numbers)], resolution, percentiles)
    if view.is_plain:
        return Along(points, features, points[:, None], np.ones((len(rows), 1)))
    grid = points
    if given.dtype.kind == "M":
        grid = (points * _DAY).astype(np.int64).astype("datetime64[us]")
    values = view.features(with_values(view.X, column, grid))[:, features]
    ratio = np.zeros((len(rows), len(features)))
    if len(points) > 1:
        steps = np.diff(values, axis=0) / np.diff(points)[:, None]
        for f in range(len(features)):
            ratio[:, f] = np.interp(numbers, (points[1:] + points[:-1]) / 2, steps[:, f])
    return Along(grid, features, values, ratio)


def as_read(view: View, column: int) -> NDArray[Any]:
    """Return a column as the model reads it: text may be numbers or dates, dates have a zone."""
    given, table = column_of(view.X, column), view.table
    if table is None or given.dtype.kind not in "OUTM":
        return given
    read = {found.name: found for found in table._columns}
    name = view.names[column]
    found = read.get(name, read.get(name.strip()))
    if found is None or found.kind not in ("number", "date"):
        return given
    zone = getattr(found, "zone", None)
    values = open_table(view.X).column(column, zone)
    if found.kind == "number":
        return numbers_of(values, name)
    moments = seconds(values, name, "date", zone) * 1e6
    missing = np.isnan(moments)
    micro = np.where(missing, 0, moments).astype(np.int64).astype("datetime64[us]")
    return np.where(missing, np.datetime64("NaT"), micro)


def column_of(X: Any, column: int) -> NDArray[Any]:
    """Return the values of one column."""
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, column])
    return np.asarray(X.to_series(column) if hasattr(X, "to_series") else X[:, column])


def as_numbers(values: NDArray[Any]) -> Array | None:
    """Return a column as numbers, dates as days since 1970; None if it has levels."""
    if values.dtype.kind == "M":
        days = values.astype("datetime64[us]").astype(np.int64) / _DAY
        return np.where(np.isnat(values), np.nan, days)
    truths = values.dtype.kind == "O" and any(isinstance(v, bool | np.bool_) for v in values)
    if truths or values.dtype.kind == "b":
        return None
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def with_values(X: Any, column: int, values: NDArray[Any]) -> Any:
    """Return copies of the first row of X with other values in one column."""
    same = np.zeros(len(values), np.intp)
    if hasattr(X, "isetitem"):  # pandas
        rows = X.iloc[same].reset_index(drop=True)
        rows.isetitem(column, values)
        return rows
    if hasattr(X, "to_series"):  # polars
        name = X.columns[column]
        return X[same].with_columns(type(X.to_series(column))(name, values))
    rows = X[same].astype(np.result_type(X.dtype, values.dtype))
    rows[:, column] = values
    return rows


def even_grid(values: Array, resolution: int, percentiles: tuple[float, float]) -> Array:
    """Return the values that scikit-learn takes."""
    if resolution < 2:
        raise ValueError(f"grid_resolution must be at least 2, got {resolution!r}.")
    if len(percentiles) != 2 or not 0 <= percentiles[0] < percentiles[1] <= 1:
        raise ValueError(f"percentiles must be two numbers 0 <= a < b <= 1, got {percentiles!r}.")
    distinct = np.unique(values)
    if len(distinct) < resolution:
        return distinct
    low, high = mquantiles(values, prob=percentiles)
    if np.allclose(low, high):  # most rows share one value: the whole range
        low, high = distinct[0], distinct[-1]
    return np.linspace(low, high, resolution)


def user_units(view: View, rows: Array, names: list[str]) -> tuple[list[str], Array, Array]:
    """Return name, origin and unit of every feature: column = origin + unit * feature.

    Features that a column makes by shifting and scaling have its name and its unit. Others keep
    their names, with origin 0 and unit 1.
    """
    origin, unit, names = np.zeros(rows.shape[1]), np.ones(rows.shape[1]), list(names)
    if view.is_plain:
        return names, origin, unit
    for column, own in enumerate(view.owned([np.array([c]) for c in range(len(view.names))]) or []):
        numbers = as_numbers(as_read(view, column))
        if len(own) != 1 or numbers is None or not np.isfinite(numbers).all():
            continue
        feature = rows[:, own[0]]
        low, high = feature.argmin(), feature.argmax()
        slope = (numbers[high] - numbers[low]) / (feature[high] - feature[low])
        start = numbers[low] - slope * feature[low]
        if np.allclose(start + slope * feature, numbers, rtol=1e-6, atol=1e-9 * np.ptp(numbers)):
            names[own[0]], origin[own[0]], unit[own[0]] = view.names[column], start, slope
    return names, origin, unit
