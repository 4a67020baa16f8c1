"""Fewer bytes for points and coefficients: float32, float16, or whole numbers of 8 bits.

Small types hold q with value = step * q, with one step for each column of points and each output.
With float16 and int8 the points move a little. So the coefficients are fitted to the old f at some
rows (by ridge regression) and rounded to whole steps one after the other; those that follow correct
each rounding error (by a Cholesky factor of the inverse). With int8, coefficients take 8 bits, or
16 if they are large and cancel; with float16 they take 16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from leansvm.estimators.targets import to_units
from leansvm.export._checks import check_numbers
from leansvm.export._evaluate import (
    functions_of,
    input_values,
    machine_columns,
    values_from,
    values_of,
)
from leansvm.export._formula import Formula, formula_of
from leansvm.export._rows import rows_around
from leansvm.kernels._function import Array
from leansvm.rows import available_memory, format_bytes

STORES = ("float64", "float32", "float16", "int8")  # largest first
BYTES = {"float64": 8, "float32": 4, "float16": 2, "int16": 2, "int8": 1}
_LARGEST = {8: 127, 16: 32767}
_RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-3)  # of the mean eigenvalue
_ROOMS = (1.0, 2.0)  # how far coefficients may grow while they are rounded
# by how much rounding coefficients to 8 bits may change f, as a share of its spread: less for
# numbers, because among the values of classes only the largest one counts
_LOST, _LOST_OF_CLASSES = 0.03, 0.1
_MOST_LOST, _TRIED = 0.1, 200  # share of its spread by which f may change at all; points tried


@dataclass(frozen=True, eq=False)
class Compressed:
    """A model whose numbers take fewer bytes; `to_c` and `to_js` take it in place of the model.

    Attributes
    ----------
    store : str
        Type of points and coefficients: "float64", "float32", "float16" or "int8".
    bytes : int
        Of all tables together.
    trials : list of dict
        For every type that was tried: "store", "bytes", "error" (share of wrong labels, or mean
        squared error) and "allowed", the largest error that was accepted.
    """

    formula: Formula
    trials: list[dict[str, Any]]

    def __repr__(self) -> str:
        return f"Compressed({self.formula.facts['model']}, {self.store}, {self.bytes:,} bytes)"

    @property
    def store(self) -> str:
        """Type of points and coefficients."""
        return self.formula.store

    @property
    def bytes(self) -> int:
        """Of all tables together."""
        return table_bytes(self.formula)


def compress(model: Any, X: Any, y: Any, *, max_loss: float | None = None) -> Compressed:
    """Return the model in the smallest type of numbers that predicts as well as before.

    Parameters
    ----------
    model : estimator
        Fitted estimator of leansvm, a pipeline that ends with one, or what `tune_threshold`
        returned.
    X, y : array-like or data frame
        Rows that the model was not fitted on, and their targets.
    max_loss : float, default=None
        By how much the error (share of wrong labels; mean squared error) may grow. None: by its
        standard error on these rows.

    Returns
    -------
    Compressed
        For `to_c` and `to_js`; ``trials`` has bytes and error of every type.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.export import compress, to_c
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SparseLSSVC(n_basis=20, gamma=0.2, kernel="rbf", C=10.0, random_state=0)
    >>> small = compress(model.fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> small.store, small.bytes
    ('int8', 168)
    >>> header = to_c(small, name="iris")
    """
    formula = formula_of(model)
    inputs = input_values(formula, X)
    # one half of the rows to fit coefficients to f on, the other to score on
    fitted, scored = ([values[i::2] for values in inputs] for i in (0, 1))
    targets = np.asarray(y)[1::2]
    losses = _losses(formula, scored, targets)
    full, error_of_full = float(np.mean(losses)), float(np.std(losses)) / np.sqrt(len(losses))
    allowed = float(full + (error_of_full if max_loss is None else max_loss))
    trials, best = [], formula
    for store in STORES:
        trial = stored(formula, store, fitted)
        error = float(np.mean(_losses(trial, scored, targets)))
        trials.append(
            {"store": store, "bytes": table_bytes(trial), "error": error, "allowed": allowed}
        )
        if error <= allowed:
            best = trial
    return Compressed(best, trials)


def _losses(formula: Formula, inputs: list[NDArray[Any]], targets: NDArray[Any]) -> NDArray[Any]:
    """Return for every row whether its label is wrong, or its squared error."""
    f = values_from(formula, inputs)
    if formula.classes is not None:
        return np.asarray(formula.classes[formula.class_numbers(f)] != targets)
    errors = to_units(formula.scale, f) - targets.astype(np.float64).reshape(len(f), -1)
    return np.mean(errors**2, axis=1)


def table_bytes(formula: Formula) -> int:
    """Return the bytes of points, shapes, coefficients and their steps."""
    total = sum(map(table_bytes, formula.others))
    for store, group in (
        (formula.store, (formula.points, formula.shapes)),
        (formula.coef_store, (formula.coef,)),
    ):
        total += BYTES[store] * sum(table.size for table in group if table is not None)
    steps = (formula.steps, formula.shape_steps, formula.coef_steps)
    return total + 4 * sum(len(s) for s in steps if s is not None)


def stored(formula: Formula, store: str, inputs: list[NDArray[Any]] | None = None) -> Formula:
    """Return the formula with numbers that a type of fewer bytes holds.

    Parameters
    ----------
    formula : Formula
        In float64.
    store : {"float64", "float32", "float16", "int8"}
        Type of points and coefficients.
    inputs : list of ndarray, optional
        Input values of rows at which f should change little, in addition to rows around the points.
    """
    if store not in STORES:
        raise ValueError(f"store must be one of {', '.join(STORES)}, got {store!r}.")
    if store == formula.store:
        return formula
    if formula.others:
        first, *others = (stored(term, store, inputs) for term in formula.terms)
        return replace(first, others=tuple(others))
    if formula.store != "float64":
        raise ValueError(f"The model is stored as {formula.store} already: start from the model.")
    check_numbers(formula, "float32")  # tables, or their steps
    if store == "float32":
        return replace(
            formula,
            store=store,
            coef_store=store,
            points=_float32(formula.points),
            shapes=None if formula.shapes is None else _float32(formula.shapes),
            coef=None if formula.coef is None else _float32(formula.coef),
        )
    rounded = _with_small_points(formula, store)
    if formula.coef is None:
        return rounded
    around = rows_around(formula, 4 * formula.size + 200)
    if inputs is not None:
        around = [np.concatenate(pair) for pair in zip(inputs, around, strict=True)]
    return _refitted(formula, rounded, around)


def stored_alike(formula: Formula, store: str, option: str = "store") -> Formula:
    """Return the formula in a smaller type; refuse a type that changes the predictions."""
    small = stored(formula, store)
    if small is formula:
        return formula
    lost, changed = rounding_loss(formula, small)
    if lost > _MOST_LOST:
        labels = "" if formula.classes is None else f" and changes {100 * changed:.0f} % of labels"
        raise ValueError(
            f"{option}={store!r} changes the predictions: at the model's points, rounding moves f "
            f"by {100 * lost:.0f} % of its spread{labels}. Use a wider type, such as "
            f"{option}='float64', or fit with a smaller C."
        )
    return small


def rounding_loss(formula: Formula, small: Formula) -> tuple[float, float]:
    """Return how far f moves at the points, as a share of its spread, and the changed labels'."""
    sizes = [term.size for term in formula.terms if term.coef is not None]  # all the same
    n_points = min([_TRIED, *sizes])
    inputs = rows_around(formula, 2 * n_points)
    if sizes:  # the first rows are points
        inputs = [values[:n_points] for values in inputs]
    f, g = (values_from(some, inputs) for some in (formula, small))
    spread = f.std(axis=0)
    lost = np.sqrt(np.mean((g - f) ** 2, axis=0))[spread > 0] / spread[spread > 0]
    changed = np.mean(formula.class_numbers(f) != formula.class_numbers(g))
    return float(np.max(lost, initial=0.0)), float(changed)


def small_numbers(values: NDArray[Any], steps: NDArray[Any], store: str) -> NDArray[Any]:
    """Return what a table of small numbers holds: whole numbers, or the bits of float16."""
    if store != "float16":
        return np.rint(values / steps).astype(store)
    return (values / steps).astype(np.float16).view(np.uint16)


def _float32(numbers: Array) -> Array:
    return numbers.astype(np.float32).astype(np.float64)


def _with_small_points(formula: Formula, store: str) -> Formula:
    """Round points and shapes; differences are first taken from the middle of every column."""
    columns, points = formula.columns, formula.points
    if formula.sum in ("squared", "absolute"):
        middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
        shifts = zip(columns, middle, strict=True)
        columns = tuple(column.moved(float(shift), 1.0) for column, shift in shifts)
        points = points - middle
    points, steps = _small(points, store)
    shapes, shape_steps = (None, None) if formula.shapes is None else _small(formula.shapes, store)
    return replace(
        formula,
        store=store,
        columns=columns,
        points=points,
        steps=steps,
        shapes=shapes,
        shape_steps=shape_steps,
    )


def _small(numbers: Array, store: str) -> tuple[Array, Array]:
    """Return numbers that are whole (or half-precision) multiples of a step for each column."""
    largest = np.abs(numbers).max(axis=0)
    largest[largest == 0] = 1.0
    steps = _float32(largest / (_LARGEST[8] if store == "int8" else 1.0))
    ratios = numbers / steps
    if store == "int8":
        return np.clip(np.rint(ratios), -_LARGEST[8], _LARGEST[8]) * steps, steps
    return ratios.astype(np.float16).astype(np.float64) * steps, steps


def _refitted(formula: Formula, rounded: Formula, inputs: list[NDArray[Any]]) -> Formula:
    """Fit the coefficients of the rounded points to the old f, and round them in turn."""
    assert formula.coef is not None
    _check_memory(len(inputs[0]), formula.size)
    f = values_of(formula, machine_columns(formula, inputs)) - formula.intercept
    inside = _like_points(formula, f)
    f, inputs = f[inside], [values[inside] for values in inputs]
    Phi = functions_of(rounded, machine_columns(rounded, inputs))
    gram, right = Phi.T @ Phi, Phi.T @ f
    sizes = (16,) if rounded.store == "float16" else (8, 16)
    trials: dict[int, list[tuple[float, Array, Array]]] = {bits: [] for bits in sizes}
    for ridge in _RIDGES:
        lam = ridge * float(np.trace(gram)) / len(gram)
        H = gram + lam * np.eye(len(gram))
        U = _factor_of_inverse(H)
        fitted = U.T @ (U @ right)
        for bits, room in product(trials, _ROOMS):
            coef, steps = _rounded_in_turn(fitted, U, _LARGEST[bits], room)
            trials[bits].append((float(np.sum((Phi @ coef - f) ** 2)), coef, steps))
    best = {bits: min(found, key=lambda trial: trial[0]) for bits, found in trials.items()}
    spread = float(np.sum((f - f.mean(axis=0)) ** 2))
    share = _LOST if formula.classes is None else _LOST_OF_CLASSES
    bits = 8 if 8 in best and best[8][0] <= share**2 * spread else 16
    _, coef, steps = best[bits]
    return replace(rounded, coef=coef, coef_steps=steps, coef_store=f"int{bits}")


def _like_points(formula: Formula, f: Array) -> NDArray[np.bool_]:
    """Return the rows at which f has values like those at the points, which are rows of the data.

    Far from the data f may have any value, and such rows would outweigh all others.
    """
    at_points = values_of(formula, formula.points) - formula.intercept
    low, high = at_points.min(axis=0), at_points.max(axis=0)
    margin = 0.5 * (high - low)
    return np.asarray(np.all((f >= low - margin) & (f <= high + margin), axis=1))


def _check_memory(n_rows: int, size: int) -> None:
    """Refuse before matrices are made that do not fit into the memory that is free."""
    needed, free = 8 * (n_rows * size + 6 * size**2), available_memory()
    if needed > free:
        raise MemoryError(
            f"store='float16' or 'int8' with {size:,} points needs {format_bytes(needed)}, but "
            f"only {format_bytes(free)} are free. Use store='float32', or fit with fewer points "
            f"(n_basis)."
        )


def _factor_of_inverse(H: NDArray[Any]) -> NDArray[Any]:
    """Return U, upper triangular, with H^-1 = U'U: from the factor of H in reverse order."""
    R = cholesky(H[::-1, ::-1], lower=True)
    return np.asarray(solve_triangular(R, np.eye(len(R)), lower=True)[::-1, ::-1])


def _rounded_in_turn(
    coef: NDArray[Any], U: NDArray[Any], largest: int, room: float = 1.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Round one coefficient after the other to whole steps, moving the later ones along.

    The best move of the coefficients after j, given an error e_j of the j-th, is
    -e_j U_j,j+1: / U_jj.
    """
    coef = coef.copy()
    highest = room * np.maximum(np.abs(coef).max(axis=0), np.finfo(np.float32).tiny)
    steps = _float32(highest / largest)
    for j in range(len(coef)):
        value = np.clip(np.rint(coef[j] / steps), -largest, largest) * steps
        error = (coef[j] - value) / U[j, j]
        coef[j + 1 :] -= np.outer(U[j, j + 1 :], error)
        coef[j] = value
    return coef, steps
