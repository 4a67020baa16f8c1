"""Columns of data frames (through narwhals) and of arrays, as `Values`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from leansvm.tables._values import DAY, Values, joined


@dataclass(frozen=True)
class NamedColumns:
    """Columns with names, each read when it is asked for."""

    names: list[str]
    n_rows: int
    column: Callable[[int, str | None], Values]  # place, time zone that dates are moved to

    def values(self, zones: Mapping[str, str | None]) -> dict[str, Values]:
        """Return columns of training by name, dates in these time zones."""
        place = {name: i for i, name in enumerate(self.names)}
        gone = [repr(name) for name in zones if name not in place]
        if gone:
            more = f" and {len(gone) - 10} more" if len(gone) > 10 else ""
            names = (
                f"columns {', '.join(gone[:10])}{more}" if len(gone) > 1 else f"column {gone[0]}"
            )
            if not self.names:
                raise ValueError(f"X has no columns; the model needs {names}.")
            known = ", ".join(map(repr, self.names[:20]))
            known += f" and {len(self.names) - 20} more" if len(self.names) > 20 else ""
            raise ValueError(
                f"X has no {names}, which the model uses; the columns of X are {known}. If you do "
                f"not know the values, add missing ones (in pandas: X[{gone[0]}] = None)."
            )
        return {name: self.column(place[name], zone) for name, zone in zones.items()}


def is_frame(X: Any) -> bool:
    """Whether rows have named columns: a pandas or polars frame, an Arrow table."""
    if hasattr(X, "collect_schema") and not hasattr(X, "to_numpy"):
        raise TypeError("X is a lazy frame, without rows yet: pass X.collect().")
    return hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "schema"))


def is_table(X: Any, *, numbers: bool = True) -> bool:
    """Whether rows need a `TableEncoder`: there are texts, dates, categories or missing values.

    Without ``numbers``, only the types of the columns decide, and missing numbers do not count.
    """
    if type(X) is np.ndarray and not numbers:
        return X.dtype.kind in "mM" and X.ndim == 2  # numpy would make numbers of dates
    if is_frame(X):
        return _has_words(X) or (numbers and _has_gaps(X))
    if not numbers:
        return False
    if sparse.issparse(X):
        return _has_gaps(X.tocsr().data)
    try:
        rows = np.asarray(X)
    except ValueError:  # rows of different lengths
        return False
    return rows.ndim == 2 and (rows.dtype.kind in "OUSmM" or _has_gaps(rows))


def _has_words(X: Any) -> bool:
    """Whether a frame has a column of another type than numbers and booleans."""
    import narwhals as nw

    _names(X)
    try:
        schema = nw.from_native(X, eager_only=True).schema
    except TypeError:  # a frame that narwhals does not know
        return False
    return not all(dtype.is_numeric() or dtype == nw.Boolean for dtype in schema.values())


def _has_gaps(X: Any) -> bool:
    """Whether numbers are missing, and none is infinite."""
    if getattr(getattr(X, "dtype", None), "kind", "f") == "c":
        return False
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return is_frame(X)
    return bool(np.isnan(rows).any() and not np.isinf(rows).any())


def open_table(X: Any) -> NamedColumns:
    """Return the columns of a frame or of an array of any type."""
    if sparse.issparse(X):
        raise TypeError("TableEncoder takes frames and dense arrays, got a sparse matrix.")
    if is_frame(X):
        import narwhals as nw

        names, frame = _names(X), nw.from_native(X, eager_only=True)
        series = list(frame.iter_columns())
        return NamedColumns(names, len(frame), lambda i, zone: _of_series(series[i], zone))
    rows = np.asarray(X)
    names = [f"x{i}" for i in range(rows.shape[1])]
    return NamedColumns(names, len(rows), lambda i, zone: _of_array(rows[:, i]))


def join_tables(tables: list[NamedColumns]) -> NamedColumns:
    """Put blocks of a table one after the other."""
    names = tables[0].names

    def column(i: int, zone: str | None) -> Values:
        first = tables[0].column(i, zone)
        zone = zone or first.zone
        return joined([first, *(table.column(i, zone) for table in tables[1:])], names[i])

    return NamedColumns(names, sum(table.n_rows for table in tables), column)


def _names(X: Any) -> list[str]:
    names = [str(name) for name in getattr(X, "column_names", X.columns)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"X has more than one column {twice[0]!r}: rename or remove them.")
    return names


def _of_array(column: Any) -> Values:
    kind = column.dtype.kind
    if kind in "biuf":
        return Values("truth" if kind == "b" else "number", column.astype(np.float64))
    if kind in "mM":
        return _of_times(column)
    return Values("object", column.tolist())


def _of_series(series: Any, zone: str | None) -> Values:
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        kind = "truth" if dtype == nw.Boolean else "number"
        return Values(kind, np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64))
    if dtype == nw.Datetime:
        found = getattr(dtype, "time_zone", None)
        if found is not None:
            series = series.dt.convert_time_zone(zone) if zone else series
            series = series.dt.replace_time_zone(None)
        return _of_times(series.to_numpy(), zone or found)
    if dtype in (nw.Date, nw.Duration):
        series = series.cast(nw.Datetime("us")) if dtype == nw.Date else series
        return _of_times(series.to_numpy())
    if dtype.is_nested() or dtype == nw.Binary:
        raise TypeError(
            f"Column {series.name!r} holds {dtype}: argument must be a string, a number or a date. "
            f"Split it into such columns, or leave it out."
        )
    return Values("object", series.to_list(), declared=dtype in (nw.Categorical, nw.Enum))


def _of_times(column: Any, zone: str | None = None) -> Values:
    """Return dates as seconds, durations as days."""
    missing = np.isnat(column)
    if column.dtype.kind == "m":
        data = column.astype("timedelta64[us]").astype(np.int64) / (1e6 * DAY)
        return Values("number", np.where(missing, np.nan, data))
    data = column.astype("datetime64[us]").astype(np.int64) / 1e6
    return Values("date", np.where(missing, np.nan, data), zone)
