"""What the steps of a pipeline do to each value, as one line of arithmetic for every column.

A column that reaches the machine is u = (v - center) * scale, moved into [lower, upper]; quantile
features then go through a curve. v is an input value (a missing one is filled in); or 1 or 0, which
says whether the value is one of some categories, or is missing; or a number that belongs to its
category; or the sine or cosine of a cycle. Any sequence of scalers, imputers, one-hot encoders and
encoders of tables keeps this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)

from leansvm.tables import TableEncoder
from leansvm.tables._columns import (
    APART,
    CYCLES,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    position,
)
from leansvm.tables._values import DAY

STEPS = (
    "TableEncoder, Pipeline, ColumnTransformer, SimpleImputer, OneHotEncoder, StandardScaler, "
    "MinMaxScaler, MaxAbsScaler, RobustScaler"
)
# for users of a pipeline with a step that has no such form
_WAY_OUT = (
    "export only the last step, model[-1], and apply this step yourself where the model is used; "
    "for ONNX, skl2onnx supports more steps: leansvm.export.register_onnx()."
)


class _Missing:
    """The category of missing values: None and NaN alike."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


@dataclass(frozen=True)
class Column:
    """One number that the machine sees, made of one input value."""

    source: int  # position of the input value
    kind: Literal["number", "member", "other", "missing", "mean", "sin", "cos"] = "number"
    categories: tuple[Any, ...] = ()  # "member": 1 for one of these; "other": 1 for none of them
    numbers: tuple[float, ...] = ()  # "mean": v of each category
    rest: float = 0.0  # and of any other value
    cycle: str = ""  # "sin", "cos": "hour", "weekday", "month" or "yearday"
    reads: str = ""  # "date": the value is days since 1970; "time": hours since midnight
    strict: bool = False  # whether Python refuses other categories
    without: tuple[Any, ...] = ()  # categories that have no column of their own: all are 0
    fill: Any = None  # what a missing value is replaced by; None: it stays missing
    gap: Any = np.nan  # what stands for a missing value in Python: NaN or None
    blank: bool = False  # whether blank text is a missing value, and other values become text
    center: float = 0.0
    scale: float = 1.0
    lower: float = -np.inf  # of the result
    upper: float = np.inf
    # knots x and y of a piecewise linear curve that is applied last, constant beyond its ends
    knots: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def at(self, v: Any) -> NDArray[np.float64]:
        """Return u of numbers v."""
        u = np.clip((v - self.center) * self.scale, *self.bounds())
        return np.asarray(u if self.knots is None else np.interp(u, *self.knots), np.float64)

    def moved(
        self, center: float, scale: float, lower: float = -np.inf, upper: float = np.inf
    ) -> Column:
        """Return the column followed by (u - center) * scale within [lower, upper]; scale >= 0."""
        if self.knots is not None:
            x, y = self.knots
            values = np.clip((np.array(y) - center) * scale, lower, upper)
            return replace(self, knots=(x, tuple(values.tolist())))
        # infinity times 0 is no number
        low, high = ((side - center) * scale if scale else 0.0 for side in self.bounds())
        return replace(
            self,
            center=self.center + center / self.scale if self.scale else self.center,
            scale=self.scale * scale,
            lower=min(max(low, lower), upper),
            upper=min(max(high, lower), upper),
        )

    def number_of(self, category: Any) -> float:
        """Return v of a category; for None, that of any other value."""
        if self.kind == "mean":
            return dict(zip(self.categories, self.numbers, strict=True)).get(category, self.rest)
        known = category is MISSING if self.kind == "missing" else category in self.categories
        return float(known != (self.kind == "other"))

    def result(self, v: float) -> float:
        """Return the number that the machine sees."""
        return float(self.at(v))

    def bounds(self) -> tuple[float, float]:
        """Return the least and the largest result there can be, before a curve."""
        return self.lower, self.upper

    def is_raw(self) -> bool:
        """Whether nothing but filling in was done to the value yet."""
        return self.kind == "number" and (self.center, self.scale) == (0.0, 1.0) and self.is_free()

    def is_free(self) -> bool:
        """Whether the result has no bounds."""
        return self.bounds() == (-np.inf, np.inf)


def raw_columns(n_inputs: int) -> list[Column]:
    """Return the input values as they are."""
    return [Column(source) for source in range(n_inputs)]


def after(step: Any, columns: list[Column]) -> list[Column]:
    """Return the columns after a fitted step of a pipeline."""
    if isinstance(step, str):
        return [] if step == "drop" else columns
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            columns = after("passthrough" if inner is None else inner, columns)
        return columns
    if isinstance(step, ColumnTransformer):
        return _by_column(step, columns)
    for kind, apply in _APPLY.items():
        if isinstance(step, kind):
            return apply(step, columns)
    raise ValueError(
        f"{type(step).__name__} cannot be exported; the steps that can are {STEPS}. "
        f"Instead, {_WAY_OUT}"
    )


def _by_column(step: ColumnTransformer, columns: list[Column]) -> list[Column]:
    """Return the columns of all branches, one branch after the other."""
    places = step._transformer_to_input_indices
    result: list[Column] = []
    for name, branch, _ in step.transformers_:
        chosen = [columns[place] for place in places[name]]
        if chosen:  # a branch without columns was not fitted
            result += after(branch, chosen)
    return result


def _affine(
    columns: list[Column],
    centers: NDArray[Any] | float | None,
    scales: NDArray[Any] | float | None,
) -> list[Column]:
    """Return (u - center) / scale of every column; None stands for 0 and 1."""
    centers = np.broadcast_to(0.0 if centers is None else centers, len(columns))
    scales = np.broadcast_to(1.0 if scales is None else scales, len(columns))
    pairs = zip(columns, centers, scales, strict=True)
    return [column.moved(float(center), 1.0 / float(scale)) for column, center, scale in pairs]


def _standard(step: StandardScaler, columns: list[Column]) -> list[Column]:
    return _affine(columns, step.mean_ if step.with_mean else None, step.scale_)


def _robust(step: RobustScaler, columns: list[Column]) -> list[Column]:
    return _affine(columns, step.center_, step.scale_)


def _by_largest(step: MaxAbsScaler, columns: list[Column]) -> list[Column]:
    moved = _affine(columns, None, step.scale_)
    if getattr(step, "clip", False):
        return [column.moved(0.0, 1.0, -1.0, 1.0) for column in moved]
    return moved


def _by_range(step: MinMaxScaler, columns: list[Column]) -> list[Column]:
    # x * scale_ + min_
    moved = _affine(columns, -step.min_ / step.scale_, 1.0 / step.scale_)
    if step.clip:
        low, high = step.feature_range
        return [column.moved(0.0, 1.0, float(low), float(high)) for column in moved]
    return moved


def _unchanged(step: FunctionTransformer, columns: list[Column]) -> list[Column]:
    if step.func is not None:
        raise ValueError(
            f"FunctionTransformer with a function of your own cannot be exported: {_WAY_OUT}"
        )
    return columns


def _imputed(step: SimpleImputer, columns: list[Column]) -> list[Column]:
    marker = step.missing_values
    if not (marker is None or (isinstance(marker, float) and np.isnan(marker))):
        raise ValueError(
            f"SimpleImputer(missing_values={marker!r}) cannot be exported: use NaN or None for "
            f"missing values, or {_WAY_OUT}"
        )
    result = []
    for column, value in zip(columns, step.statistics_, strict=True):
        empty = isinstance(value, float) and np.isnan(value)  # no value in training: left out
        if empty and not step.keep_empty_features:
            continue
        result.append(replace(_filled(column, 0.0 if empty else value), gap=marker))
    if step.add_indicator:
        for place in step.indicator_.features_:
            result.append(Column(columns[place].source, "missing"))
    return result


def _filled(column: Column, value: Any) -> Column:
    if column.kind != "number" or column.fill is not None:
        return column  # nothing is missing there
    if not column.is_free():
        raise ValueError(
            f"SimpleImputer behind a scaler with clip=True cannot be exported: {_WAY_OUT}"
        )
    if isinstance(value, str):
        return replace(column, fill=value)
    return replace(column, fill=float(value) / column.scale + column.center)


def _one_hot(step: OneHotEncoder, columns: list[Column]) -> list[Column]:
    result: list[Column] = []
    infrequent = getattr(step, "infrequent_categories_", None)
    for place, column in enumerate(columns):
        if not column.is_raw():
            raise ValueError(f"OneHotEncoder behind a scaler cannot be exported: {_WAY_OUT}")
        known = [_category(value) for value in step.categories_[place]]
        gaps = [v for v in step.categories_[place] if _category(v) is MISSING]
        if len(gaps) > 1:
            raise ValueError(
                f"OneHotEncoder with None and NaN as two categories cannot be exported: use only "
                f"one of them for missing values, or {_WAY_OUT}"
            )
        if gaps:
            column = replace(column, gap=gaps[0])
        rare = infrequent[place] if infrequent is not None else None
        rare = [] if rare is None else [_category(value) for value in rare]
        dropped = None if step.drop_idx_ is None else step.drop_idx_[place]
        dropped = None if dropped is None else known[dropped]
        common = [value for value in known if value not in rare]
        without = () if dropped is None else tuple(rare) if dropped in rare else (dropped,)
        refuses = step.handle_unknown == "error"
        column = replace(column, kind="member", strict=refuses, without=without)
        result += [replace(column, categories=(v,)) for v in common if v is not dropped]
        if not rare or dropped in rare:
            continue
        if step.handle_unknown in ("infrequent_if_exist", "warn"):
            result.append(replace(column, kind="other", categories=tuple(common)))
        else:
            result.append(replace(column, categories=tuple(rare)))
    return result


def _table(step: TableEncoder, columns: list[Column]) -> list[Column]:
    """Return what an encoder of tables makes of the columns."""
    names = getattr(step, "feature_names_in_", [f"x{i}" for i in range(len(columns))])
    place = {str(name): i for i, name in enumerate(names)}
    result: list[Column] = []
    for fitted in step._columns:
        column = columns[place[fitted.name]]
        if isinstance(fitted, NumberColumn):
            shift, scale = fitted.unit
            if fitted.varies:
                result.append(_filled(column, fitted.fill).moved(shift, 1.0 / scale))
            if fitted.gaps:
                result.append(Column(column.source, "missing"))
        elif isinstance(fitted, CategoryColumn):
            result += _levels(fitted, column)
        else:
            result += _date(fitted, column)
    return result


def _date(fitted: DateColumn, column: Column) -> list[Column]:
    """Return trend, cycles and indicator of a date or of a time of day."""
    unit, (shift, scale) = fitted.unit_seconds, fitted.unit
    column = replace(column, reads=fitted.kind)
    trend = replace(column, fill=fitted.fill / unit).moved(fitted.first / unit, 1.0)
    result = [trend.moved(shift, 1.0 / scale)]
    for cycle in fitted.cycles:
        result += [
            replace(column, kind="sin", cycle=cycle),
            replace(column, kind="cos", cycle=cycle),
        ]
    return [*result, replace(column, kind="missing")] if fitted.gaps else result


def turns(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Return how far around its circle every value of a cycle is, from 0 to 1."""
    if column.reads == "time":
        return values / 24.0
    return position(column.cycle, values * DAY) / CYCLES[column.cycle]


def _levels(fitted: CategoryColumn, column: Column) -> list[Column]:
    """Return the one-hot columns of a category."""
    marks = {"True": 1.0, "False": 0.0} if fitted.truth else {}
    own = [MISSING if text is None else marks.get(text, text) for text in fitted.levels]
    result, size = [], 1.0 if len(fitted.one_hot()) == 1 else APART
    both = tuple(marks.values())
    column = replace(column, gap=None, strict=fitted.truth, without=both, blank=True)
    for _, i in fitted.one_hot():
        kind: Any = "member" if i < len(own) else "other"
        levels = (own[i],) if i < len(own) else tuple(own)
        result.append(replace(column, kind=kind, categories=levels, scale=size))
    known = tuple(MISSING if text is None else text for text in fitted.known)
    for means, (shift, scale) in zip(fitted.means.T.tolist(), fitted.units, strict=True):
        mean = replace(column, kind="mean", categories=known, rest=means[-1])
        result.append(replace(mean, numbers=tuple(means[:-1])).moved(shift, 1.0 / scale))
    return result


def _category(value: Any) -> Any:
    """Return a category as text, as a number, or as `MISSING`."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return MISSING
    return value if isinstance(value, str) else float(value)


_APPLY: dict[type[BaseEstimator], Any] = {
    StandardScaler: _standard,
    RobustScaler: _robust,
    MaxAbsScaler: _by_largest,
    MinMaxScaler: _by_range,
    SimpleImputer: _imputed,
    OneHotEncoder: _one_hot,
    FunctionTransformer: _unchanged,
    TableEncoder: _table,
}


def known_texts(columns: Sequence[Column]) -> dict[int, list[str]]:
    """Return, for every input value that is a text, the texts that mean something, sorted."""
    found: dict[int, set[str]] = {}
    for column in columns:
        for value in (*column.categories, column.fill):
            if isinstance(value, str):
                found.setdefault(column.source, set()).add(value)
    return {source: sorted(texts) for source, texts in found.items()}


def scaled(
    columns: list[Column], points: NDArray[np.float64], scales: NDArray[np.float64], keep_all: bool
) -> tuple[list[Column], NDArray[np.float64]]:
    """Scale columns and points; leave out columns of scale 0 (they add 0), unless all are kept."""
    kept = np.arange(len(scales)) if keep_all else np.flatnonzero(scales)
    kept = np.arange(1) if len(kept) == 0 else kept  # one stays, as no table may be empty
    moved = [columns[i].moved(0.0, float(scales[i])) for i in kept]
    return moved, points[:, kept] * scales[kept]


def centred(
    columns: list[Column], points: NDArray[np.float64]
) -> tuple[list[Column], NDArray[np.float64]]:
    """Shift columns and points by about the mean of the points: differences stay as they are.

    The centre of every column is a number that float32 has (if it has one so large), so that
    x - center loses nothing if x is near.
    """
    means = points.mean(axis=0)
    moved, shifts = [], np.zeros(len(columns))
    for i, column in enumerate(columns):
        if column.knots is not None:
            shifts[i] = float(np.float32(means[i]))
        elif column.scale:
            wanted = column.center + float(means[i]) / column.scale
            if abs(wanted) < float(np.finfo(np.float32).max):
                wanted = float(np.float32(wanted))
            shifts[i] = (wanted - column.center) * column.scale
        shifted = column.moved(shifts[i], 1.0)
        if (
            column.scale and column.knots is None
        ):  # exactly that number: rounding of the sum would be seen
            shifted = replace(shifted, center=wanted)
        moved.append(shifted)
    return moved, points - shifts
