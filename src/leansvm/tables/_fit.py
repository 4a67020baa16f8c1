"""One fit of an encoder: what each column is, from values, targets and weights of the rows."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, column_or_1d

from leansvm._sklearn import level_of_user
from leansvm.tables._columns import (
    MOST_LEVELS,
    RAW,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    refuse_infinite,
    unit_of,
)
from leansvm.tables._frames import NamedColumns
from leansvm.tables._hints import hint_of, hint_of_case, hint_of_numbers
from leansvm.tables._target import Codes, Units, folds_of, row_marks, target_means, units_of
from leansvm.tables._values import Values, coded, in_kind, levels, recognised

Array = NDArray[np.float64]
_ALL_DIFFERENT = 0.9  # a column with this share of different values counts as an id
_FEWEST_IDS = 20
_ID = re.compile(r"(?:^|[\s_.-])(?:id|uuid|guid|nr|no|key|index|idx|number|nummer)$|^unnamed: 0$")
_MOST_MEANS = 10  # outputs whose means are features


@dataclass
class FittedTable:
    """The fitted columns of a table; encodes its training rows, all at once or block by block.

    The target means of a row come from the rows of other folds. The content of a row decides its
    fold, so that the row gets the same features in any block.
    """

    kinds: dict[str, tuple[str, str | None]]  # of all columns, with the time zone
    columns: list[Column] = field(default_factory=list)  # those that are used
    left_out: dict[str, str] = field(default_factory=dict)  # why others are not
    means: dict[str, Array] = field(default_factory=dict)  # by level and fold: `target_means`

    def encode(self, table: NamedColumns, Y: Array | None) -> Array:
        """Return the features of a block of training rows; Y is needed if there are means."""
        values = table.values({name: zone for name, (_, zone) in self.kinds.items()})
        for name, (kind, zone) in self.kinds.items():
            values[name] = in_kind(values[name], kind, name, zone)
        fold = folds_of(marks_of(values, Y)) if self.means else None
        return self.features(values, fold)

    def features(self, values: dict[str, Values], fold: Codes | None) -> Array:
        """Return the features of values, with means of other folds."""
        blocks = []
        for column in self.columns:
            given: list[Any] = [values[column.name]]
            if isinstance(column, CategoryColumn) and column.name in self.means:
                place = column.places(levels(given[0], column.name))
                given.append(self.means[column.name][place, fold])
            blocks.append(column.encode(*given))
        return np.ascontiguousarray(np.hstack(blocks), dtype=np.float64)


def fit_table(
    table: NamedColumns, Y: Array | None, weight: Array, standardize: bool
) -> tuple[FittedTable, Array]:
    """Learn what the columns are; return them and the features of these rows."""
    fit = _ColumnFit(table, Y, weight, standardize)
    found = FittedTable({name: (v.kind, v.zone) for name, v in fit.values.items()}, means=fit.means)
    for name, values in fit.values.items():
        column = fit.column(values, name)
        if isinstance(column, str):
            found.left_out[name] = column
        else:
            found.columns.append(column)
    if not found.columns:
        reasons = ", ".join(f"{name} ({why})" for name, why in found.left_out.items())
        rows = "1 sample" if table.n_rows == 1 else f"{table.n_rows:,} samples"
        reasons = reasons if len(reasons) < 300 else f"{reasons[:300]} …"
        raise ValueError(f"X has no usable column, with {rows}; left out: {reasons}.")
    fold = fit.units.fold[fit.units.unit] if fit.means else None
    return found, found.features(fit.values, fold)


def marks_of(values: dict[str, Values], Y: Array | None) -> NDArray[np.uint64]:
    """Return a hash of every row."""
    columns: list[Any] = [] if Y is None else list(Y.T)
    for v in values.values():
        columns.append(coded(v.data) if v.kind == "text" else v.data)
    return row_marks(columns)


def training_rows(
    columns: list[Column], values: dict[str, Values], Y: Array, weight: Array
) -> Array:
    """Return the features of the rows of the fit again; ``values`` are of all its columns."""
    for column in columns:
        given, name = recognised(values[column.name], column.name), column.name
        if not isinstance(column, CategoryColumn):
            values[name] = in_kind(given, column.kind, name, getattr(column, "zone", None))
        elif column.truth:
            truth = {None: np.nan, "True": 1.0, "False": 0.0}
            values[name] = Values("truth", np.array([truth[text] for text in column.read(given)]))
        else:
            values[name] = Values("text", column.read(given), declared=True)
    values = {name: recognised(given, name) for name, given in values.items()}
    units, means = _units_of(values, Y, weight), {}
    for column in columns:
        if isinstance(column, CategoryColumn) and column.means.shape[1]:
            codes = np.array(column.places(levels(values[column.name], column.name)))
            known = np.maximum(codes, 0)  # others have no weight
            means[column.name] = target_means(known, len(column.known), Y, units)[1]
    return FittedTable({}, columns, means=means).features(values, units.fold[units.unit])


def _units_of(values: dict[str, Values], Y: Array | None, weight: Array) -> Units:
    """Return which rows are equal."""
    found = units_of(marks_of(values, Y), weight)
    positive = found.weight[found.weight > 0]
    return replace(found, weight=found.weight / min(1.0, positive.mean()))


class _ColumnFit:
    """Columns, targets and weights of the rows of one fit."""

    def __init__(
        self, table: NamedColumns, Y: Array | None, weight: Array, standardize: bool
    ) -> None:
        self.Y, self.weight, self.standardize = Y, weight, standardize
        self.used = weight > 0
        self.values: dict[str, Values] = {}
        for i, name in enumerate(table.names):
            self.values[name] = recognised(table.column(i, None), name)
        self.means: dict[str, Array] = {}

    def column(self, values: Values, name: str) -> Column | str:
        """Return a fitted column; or why it is left out."""
        if values.kind in ("text", "truth"):
            return self._category(values, name)
        x = values.data
        refuse_infinite(x, name)
        if np.isnan(x[self.used]).all():
            return "no values"
        rows = x[self.used], self.weight[self.used]
        if values.kind != "number":
            found: Column | None = DateColumn.fit(name, values, *rows, self.standardize)
        elif self._is_id(name, x):
            return "whole numbers and the name of an id"
        else:
            found = NumberColumn.fit(name, *rows, self.standardize)
            hint = hint_of_numbers(x, name)
            if hint:
                _warn(name, f"is read as numbers, {hint}")
        return "the same in all rows" if found is None else found

    def _is_id(self, name: str, x: Array) -> bool:
        """Whether a column is called an id and its whole numbers are nearly all different."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()  # customerId
        if not _ID.search(words):
            return False
        known = ~np.isnan(x) & self.used
        different = len(np.unique(x[known]))
        if np.any(x[known] != np.round(x[known])) or different < _FEWEST_IDS:
            return False
        return different >= _ALL_DIFFERENT * len(np.unique(self.units.unit[known]))

    def _category(self, values: Values, name: str) -> Column | str:
        (codes, texts), rows = coded(levels(values, name)), self.weight
        if values.kind == "text" and not values.declared:
            hint, few = hint_of(texts), len(texts) < _ALL_DIFFERENT * len(codes)
            case = hint_of_case(texts) if few else ""
            if hint or case:
                _warn(name, f"is read as text, {hint}" if hint else case)
        if rows.mean() < 1.0:  # weights below 1 on average do not count copies
            rows = rows * (self.units.weight.sum() / rows.sum())
        counts = np.bincount(codes + 1, weights=rows, minlength=len(texts) + 1)
        seen = [text for text, count in zip(texts, counts[1:], strict=True) if count > 0]
        if not seen:
            return "no values"
        if len(seen) == 1 and not counts[0]:
            return "the same in all rows"
        known: tuple[str | None, ...] = (*((None,) if counts[0] else ()), *seen)
        weights = counts[counts > 0].astype(np.float64)
        column = CategoryColumn.fit(name, known, weights, values.kind == "truth")
        if len(seen) > MOST_LEVELS:
            n_rows = len(np.unique(self.units.unit[(codes >= 0) & self.used]))
            common = sum(w for text, w in zip(known, weights, strict=True) if text in column.levels)
            many = len(seen) >= _ALL_DIFFERENT * n_rows
            if many and common < (1 - _ALL_DIFFERENT) * weights.sum():
                return "all different" if len(seen) == n_rows else "nearly all different"
            if self.Y is not None:
                place = {text: i for i, text in enumerate(known)}
                numbers = np.array([place.get(text, 0) for text in (*texts, None)])[codes]
                return self._with_means(column, numbers)
        return column if column.parts() else "few rows of each value"

    def _with_means(self, column: CategoryColumn, codes: Codes) -> CategoryColumn:
        """Add means of the target by level."""
        assert self.Y is not None
        units = self.units
        means, left_out = target_means(codes, len(column.known), self.Y, units)
        self.means[column.name] = left_out
        scales = [RAW] * means.shape[1]
        if self.standardize:
            own = left_out[codes, units.fold[units.unit]][self.used]
            scales = [unit_of(mean, self.weight[self.used]) for mean in own.T]
        return replace(column, means=means, units=tuple(scales))

    @cached_property
    def units(self) -> Units:
        """Which rows are equal."""
        return _units_of(self.values, self.Y, self.weight)


def _warn(name: str, text: str) -> None:
    """Warn at the user's line."""
    warnings.warn(f"Column {name!r} {text}", stacklevel=level_of_user())


def targets_of(y: Any, n_rows: int) -> Array:
    """Return one column per output: numbers as they are, +-1 for every class."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] > 1:
        Y = y[:, :_MOST_MEANS].astype(np.float64)
    else:
        y = column_or_1d(y)
        classes, place = np.unique(y, return_inverse=True)
        if y.dtype.kind == "f" or (y.dtype.kind in "iu" and len(classes) > 20):
            Y = y.astype(np.float64)[:, None]
        else:
            frequent = np.argsort(-np.bincount(place.ravel()), kind="stable")
            chosen = frequent[:1] if len(classes) <= 2 else frequent[:_MOST_MEANS]
            Y = 2.0 * (place.ravel()[:, None] == chosen) - 1.0
    check_consistent_length(Y, np.empty(n_rows))
    if not np.isfinite(Y).all():
        raise ValueError("Input y contains NaN or infinity.")
    return Y
