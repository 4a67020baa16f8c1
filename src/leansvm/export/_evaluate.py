"""The formula in NumPy, which defines what its numbers mean and tests rounded numbers.

The writers compute the same in C, in JavaScript and as a graph; the tests compare all of them with
the models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.export._columns import MISSING, Column, turns
from leansvm.export._formula import Formula
from leansvm.kernels._function import Array
from leansvm.tables._frames import is_frame, open_table
from leansvm.tables._values import DAY, is_missing, levels, numbers, seconds

_TILE = 1 << 20  # numbers in a block of differences


def values(formula: Formula, X: Any) -> Array:
    """Return f of every row of a table or array, one column for each output."""
    return values_from(formula, input_values(formula, X))


def values_from(formula: Formula, inputs: Sequence[NDArray[Any]]) -> Array:
    """Return f of every row: the sum of all terms."""
    found = (values_of(term, machine_columns(term, inputs)) for term in formula.terms)
    return sum(found, np.zeros(formula.outputs))


def input_values(formula: Formula, X: Any) -> list[NDArray[Any]]:
    """Return one array for every input value: numbers, or objects if it is a text."""
    X = X if hasattr(X, "shape") else np.asarray(X, object)  # lists of mixed values
    texts, table = formula.texts, open_table(X)
    used = {column.source for column in formula.prepared}
    result: list[NDArray[Any]] = []
    for i, name in enumerate(formula.inputs):
        values = table.column(table.names.index(name) if is_frame(X) else i, None)
        if i in texts:
            data = values.data if values.kind == "object" else levels(values, name)
            gone = [is_missing(v) and not isinstance(v, str) for v in data]
            cells = np.array(data, object)
            cells[gone] = None
            result.append(cells)
        elif i in formula.dates:
            unit = DAY if formula.dates[i] == "date" else 3600.0
            result.append(seconds(values, name, formula.dates[i]) / unit)
        else:
            result.append(numbers(values, name) if i in used else np.zeros(table.n_rows))
    return result


def machine_columns(formula: Formula, inputs: Sequence[NDArray[Any]]) -> Array:
    """Return u of every row: what `_columns` says, column by column."""
    return np.column_stack([_column(column, inputs[column.source]) for column in formula.columns])


def _column(column: Column, values: NDArray[Any]) -> Array:
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    else:
        gone = is_missing if column.blank else (lambda value: value is None or value != value)
        missing = np.array([gone(value) for value in values], bool)
    if column.fill is not None:
        values, missing = np.where(missing, column.fill, values), np.zeros_like(missing)
    if column.kind == "number":
        result = np.asarray(values, np.float64)
    elif column.kind == "missing":
        result = missing.astype(np.float64)
    elif column.kind in ("sin", "cos"):
        angle = 2.0 * np.pi * turns(column, np.where(missing, 0.0, values).astype(np.float64))
        result = np.where(missing, 0.0, np.sin(angle) if column.kind == "sin" else np.cos(angle))
    elif column.kind == "mean":
        known = dict(zip(column.categories, column.numbers, strict=True))
        keys = [MISSING if gap else v for v, gap in zip(values.tolist(), missing, strict=True)]
        result = np.array([known.get(key, column.rest) for key in keys])
    else:
        found = missing if MISSING in column.categories else np.zeros(len(values), bool)
        for category in column.categories:
            found = found | (values == category)
        result = (found if column.kind == "member" else ~found).astype(np.float64)
    return column.at(result)


def values_of(formula: Formula, U: Array) -> Array:
    """Return f of rows whose columns are known, without other terms."""
    result = np.empty((len(U), formula.outputs))
    for part in _tiles(len(U), formula.points.size):
        phi = _outer(formula, _sums(formula, U[part]))
        result[part] = phi if formula.coef is None else phi @ formula.coef
    return result + formula.intercept


def functions_of(formula: Formula, U: Array) -> Array:
    """Return g(t_j(u)) of every row and function."""
    result = np.empty((len(U), formula.size))
    for part in _tiles(len(U), formula.points.size):
        result[part] = _outer(formula, _sums(formula, U[part]))
    return result


def _tiles(n_rows: int, width: int) -> Iterator[slice]:
    step = max(1, _TILE // max(1, width))
    return (slice(start, start + step) for start in range(0, n_rows, step))


def _sums(formula: Formula, U: Array) -> Array:
    if formula.sum == "unit-dot":
        largest = np.abs(U).max(axis=1, keepdims=True)
        U = U / np.where(largest > 0, largest, 1.0)  # so that no square overflows
        norms = np.linalg.norm(U, axis=1, keepdims=True)
        U = U / np.where(norms > 0, norms, 1.0)
    if formula.sum in ("dot", "unit-dot"):
        return U @ formula.points.T
    d = U[:, None, :] - formula.points
    if formula.sum == "absolute":
        terms = np.abs(d)
    elif formula.sum == "squared":
        terms = d * d
    else:
        total = U[:, None, :] + formula.points
        terms = np.divide(d * d, total, out=np.zeros_like(d), where=total > 0)
    return np.sum(terms if formula.shapes is None else terms * formula.shapes, axis=2)


def _outer(formula: Formula, t: Array) -> Array:
    if formula.outer == "identity":
        return t
    if formula.outer == "power":
        return np.asarray((t + formula.coef0) ** formula.degree)
    if formula.outer == "tanh":
        return np.tanh(t + formula.coef0)
    if formula.outer == "simplex":
        return np.maximum(0.0, 1.0 - t)
    if formula.outer == "exp":
        return np.exp(-t)
    r = np.minimum(np.sqrt(t), 700.0)
    linear, quadratic = formula.polynomial
    return np.asarray((1.0 + r * (linear + r * quadratic)) * np.exp(-r))
