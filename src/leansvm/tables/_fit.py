"""One fit of an encoder: what each column is, from values, targets and weights of the rows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, column_or_1d

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
from leansvm.tables._target import Units, target_means, units_of
from leansvm.tables._values import Values, coded, levels, recognised

Array = NDArray[np.float64]
_ALL_DIFFERENT = 0.9  # share of texts that no other row has, as of an id
_FEWEST_IDS = 20
_ID = re.compile(r"(?:^|[\s_.-])(?:id|uuid|guid|nr|no|key|index|idx|number|nummer)$|^unnamed: 0$")
_MOST_MEANS = 10  # outputs whose means are features


class TableFit:
    """One fit: columns, targets and weights of the rows."""

    def __init__(
        self, table: NamedColumns, Y: Array | None, weight: Array, standardize: bool
    ) -> None:
        self.table, self.Y, self.weight, self.standardize = table, Y, weight, standardize
        self.used = weight > 0
        self.read: dict[int, Values] = {}
        self._units: Units | None = None

    def values(self, i: int) -> Values:
        """Return a column as what it is."""
        if i not in self.read:
            self.read[i] = recognised(self.table.column(i, None), self.table.names[i])
        return self.read[i]

    def column(self, i: int) -> tuple[Column, Array] | str:
        """Return a fitted column and its features; or why it is left out."""
        values, name = self.values(i), self.table.names[i]
        if values.kind in ("text", "truth"):
            return self._category(values, name)
        x = values.data
        refuse_infinite(x, name)
        if np.isnan(x[self.used]).all():
            return "no values"
        rows = x[self.used], self.weight[self.used]
        column: NumberColumn | DateColumn | None
        if values.kind == "number":
            if self._is_id(name, x):
                return "whole numbers and the name of an id"
            column = NumberColumn.fit(name, *rows, self.standardize)
        else:
            column = DateColumn.fit(name, values, *rows, self.standardize)
        return "the same in all rows" if column is None else (column, column.encode(values))

    def _is_id(self, name: str, x: Array) -> bool:
        """Whether a column is called an id and its whole numbers are nearly all different."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()  # customerId
        if not _ID.search(words):
            return False
        known = ~np.isnan(x) & self.used
        different = len(np.unique(x[known]))
        if np.any(x[known] != np.round(x[known])) or different < _FEWEST_IDS:
            return False
        return different >= _ALL_DIFFERENT * len(np.unique(self.units().unit[known]))

    def _category(self, values: Values, name: str) -> tuple[Column, Array] | str:
        codes, texts = coded(levels(values, name))
        counts = np.bincount(codes + 1, weights=self._row_weights(), minlength=len(texts) + 1)
        present = counts[1:] > 0
        n_known = int(present.sum())
        if not n_known:
            return "no values"
        if n_known == 1 and not counts[0]:
            return "the same in all rows"
        seen = [t for t, here in zip(texts, present, strict=True) if here]
        known: tuple[str | None, ...] = (*((None,) if counts[0] else ()), *seen)
        weights = counts[counts > 0].astype(np.float64)
        column = CategoryColumn.fit(name, known, weights, values.kind == "truth")
        if n_known <= MOST_LEVELS:
            return (column, column.encode(values)) if column.parts() else "few rows of each value"
        of_known = np.unique(self.units().unit[(codes >= 0) & self.used])
        common = sum(w for text, w in zip(known, weights, strict=True) if text in column.levels)
        if n_known >= _ALL_DIFFERENT * len(of_known) and common < (1 - _ALL_DIFFERENT) * sum(
            weights
        ):
            return "all different" if n_known == len(of_known) else "nearly all different"
        if self.Y is None:
            return (column, column.encode(values)) if column.parts() else "few rows of each value"
        place = {text: i for i, text in enumerate(known)}
        numbers = np.array([place.get(text, 0) for text in (*texts, None)])[codes]
        means, overall, own = target_means(numbers, len(known), self.Y, self.units())
        units = [unit_of(m[self.used], self.weight[self.used]) for m in own.T]
        column = replace(
            column,
            means=np.vstack([means, overall]),
            units=tuple(units if self.standardize else [RAW] * len(units)),
        )
        return column, column.encode(values, own)

    def units(self) -> Units:
        """Return equal rows."""
        if self._units is None:
            columns: list[Any] = [] if self.Y is None else list(self.Y.T)
            for i in range(len(self.table.names)):
                values = self.values(i)
                texts = values.kind == "text"
                columns.append(coded(values.data) if texts else values.data)
            found = units_of(columns, self.weight)
            self._units = replace(found, weight=found.weight / self._unit(found.weight))
        return self._units

    def _row_weights(self) -> Array:
        """Return weights in rows: weights below 1 on average are no copies."""
        if self.weight.mean() >= 1.0:
            return self.weight
        units = self.units()
        return self.weight * (units.weight.sum() / self.weight.sum())

    @staticmethod
    def _unit(weight: Array) -> float:
        return float(min(1.0, weight[weight > 0].mean()))


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
