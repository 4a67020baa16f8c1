"""What each column does to the prediction: slopes, partial dependence and interactions.

All columns are computed at once, from exact gradients of the kernel expansion
(`leansvm.kernels.gradients`) and the structure of the kernels (`_dependence`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import to_host
from leansvm.estimators.kernel_basis import KernelBasis
from leansvm.estimators.kernel_machine import KernelMachine
from leansvm.inspection._dependence import averages, individual
from leansvm.inspection._grids import Along, along
from leansvm.inspection._moved import can_move, moved_values
from leansvm.inspection._view import (
    Array,
    Indices,
    View,
    as_lines,
    classes_of,
    parts_of,
    split_pipeline,
    with_columns_of,
)
from leansvm.kernels import Kernel, clipped, gradients, mixed_derivatives
from leansvm.linalg import dense_rows64
from leansvm.low_rank import names_of_features
from leansvm.rows import check_budget, resolve_cache_size

_STRONGEST = 6  # columns whose pairs are looked at by default
_PAIRS = 2000  # of rows, that strength is the mean over, at least


@dataclass(repr=False)
class Effects:
    """What each column does to f: the prediction, or the decision value of every class.

    Two classes count as one output, which is larger for the second class. Columns have your names
    and units, even if a pipeline scales or encodes them.

    Attributes
    ----------
    features : ndarray of shape (n_features,)
        Numbers of the columns that were looked at.
    names : list of str
        Their names.
    slope : ndarray of shape (n_outputs, n_features)
        Mean of df/dx over the rows: the mean change of f per unit of the column (for dates, per
        day); nan for columns that are not numbers.
    strength : ndarray of shape (n_outputs, n_features)
        Mean of |change of f| if the column takes the value of another row: how much the column
        matters, in units of f.
    grids : list of ndarray
        Values of every column: numbers, dates, or levels as text.
    average : list of ndarray of shape (n_outputs, n_values)
        Partial dependence: mean of f over the rows with the feature set to each value.
    individual : list of ndarray of shape (n_outputs, n_rows, n_values), or None
        The same for single rows, minus its value at the first grid point (centred ICE).
    pairs : ndarray of shape (n_pairs, 2)
        Pairs of column numbers.
    interaction : ndarray of shape (n_outputs, n_pairs)
        Root mean square of d^2f / dx_a dx_b times both standard deviations, in units of f. It is 0
        for columns whose effects add up.
    scales : ndarray of shape (n_features,) or None
        ``feature_scales_`` of the model if it learned them; for a column that is encoded as several
        features, the largest.
    classes : tuple
        Labels whose decision values the outputs are: the second of two classes, or all of several.
        Empty for regressors.
    left_out : list of str
        Columns that the fit left out. Nothing depends on them.
    """

    features: NDArray[np.intp]
    names: list[str]
    slope: Array
    strength: Array
    grids: list[Array]
    average: list[Array]
    individual: list[Array] | None
    pairs: NDArray[np.intp]
    interaction: Array
    scales: Array | None
    classes: tuple[Any, ...] = ()
    left_out: list[str] = field(default_factory=list)

    def what(self, output: int | None = None) -> str:
        """Return what f is, in words.

        Parameters
        ----------
        output : int, default=None
            Number of one output; None means the output that changes most.

        Returns
        -------
        str
            "prediction" or, for classes, "decision value of 'yes'".
        """
        if not self.classes:
            return "prediction"
        if output is None and len(self.classes) > 1:
            return "decision value (of the class that changes most)"
        return f"decision value of {self.classes[output or 0]!r}"

    def strongest(self, count: int = _STRONGEST) -> NDArray[np.intp]:
        """Return positions in ``features`` of the strongest features, the strongest first.

        Parameters
        ----------
        count : int, default=6
            Largest number of features.

        Returns
        -------
        ndarray of shape (count,)
            Positions.
        """
        return np.argsort(-self.strength.max(axis=0), kind="stable")[:count]

    def __repr__(self) -> str:
        most, columns = self.strength.argmax(axis=0), np.arange(len(self.names))
        strength, slope = self.strength[most, columns], self.slope[most, columns]
        cells = [
            f"{size:.4g}" + ("" if np.isnan(up) else f", slope {up:+.4g}")
            for size, up in zip(strength, slope, strict=True)
        ]
        title = f"Mean change of the {self.what()} when a column gets another row's value:"
        shown = self.strongest(len(self.names))
        return as_lines(title, self.names, cells, shown, self.left_out)


def effects(
    model: Any,
    X: Any,
    *,
    features: Any = None,
    grid_resolution: int = 100,
    percentiles: tuple[float, float] = (0.05, 0.95),
    n_individual: int = 0,
    pairs: Any = None,
    feature_names: Sequence[str] | None = None,
) -> Effects:
    """Return slopes, partial dependence and interactions of a fitted kernel machine.

    Parameters
    ----------
    model : estimator
        A fitted estimator of leansvm with a named kernel, or a pipeline that ends with one. Every
        feature must come from a single column: a pipeline with PCA, for example, is refused.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_columns)
        Rows to average over, such as the training rows or a sample of them, with the columns that
        ``model.predict`` takes.
    features : array-like of int or str, default=None
        Columns to look at, by number or name; default: all.
    grid_resolution : int, default=100
        Number of values per column, evenly spaced between the percentiles. A column with fewer
        distinct values uses these, and a category its 30 most frequent levels.
    percentiles : tuple of float, default=(0.05, 0.95)
        Shares of the rows below the first and the last value.
    n_individual : int, default=0
        Number of rows, from the first on, for which single curves are returned.
    pairs : array-like of shape (n_pairs, 2), default=None
        Pairs of column numbers whose interaction is computed; default: all pairs of the six
        strongest columns, among those that become a single feature.
    feature_names : sequence of str, default=None
        Names of all columns; default: those of the fit, or x0, x1, ...

    Returns
    -------
    Effects
        What every feature does.

    Notes
    -----
    Partial dependence equals that of `sklearn.inspection.partial_dependence` with
    ``method="brute"``, up to rounding. Effects describe the model, not what happens if somebody
    changes a column. If columns are correlated, some of the rows that are averaged never occur.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.inspection import effects
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> y = 2 * X[:, 0] + X[:, 1] * X[:, 2]
    >>> model = SparseLSSVR(kernel="rbf", gamma=0.2, n_basis=80, random_state=0).fit(X, y)
    >>> found = effects(model, X)
    >>> np.abs(found.slope).round(1)
    array([[2., 0., 0.]])
    >>> [int(f) for f in found.pairs[found.interaction[0].argmax()]]
    [1, 2]
    """
    machine = split_pipeline(model)[1]
    if not isinstance(machine, KernelMachine) or isinstance(machine, KernelBasis):
        raise TypeError(
            f"{type(machine).__name__} has no kernel: effects() needs an estimator with a kernel, "
            f"or a pipeline that ends with one."
        )
    view = View(model, X)
    columns = _columns(view, features)
    names = view.names if feature_names is None else feature_names
    names = names_of_features(names, len(view.names))
    own = view.owned([np.array([c]) for c in range(len(names))])
    if own is None:
        raise ValueError(
            "This pipeline mixes columns (as PCA does): pass its last step, and as X the output of "
            "the earlier steps."
        )
    rows = view.features(view.X)
    _check_room(machine, rows, columns)
    lines = [along(view, rows, c, own[c], grid_resolution, percentiles) for c in columns]
    expansion = _expansion(machine)
    slopes = gradients(expansion[0], rows, *expansion[1:])
    strength = _strength(view, rows, [own[c] for c in columns], columns)
    average, single = _dependences(machine, rows, lines, n_individual)
    if pairs is None:
        order = np.argsort(-strength.max(axis=0), kind="stable")
        strongest = [p for p in order if lines[p].lead is not None][:_STRONGEST]
        pairs = list(combinations(np.unique(columns[strongest]).tolist(), 2))
    pairs = np.asarray(pairs, dtype=np.intp).reshape(-1, 2)
    if len(pairs):
        _check_columns(pairs, len(own))
    leads = {
        c: along(view, rows, c, own[c], grid_resolution, percentiles).lead
        for c in np.unique(pairs).tolist()
    }
    return Effects(
        columns,
        [names[c] for c in columns],
        np.stack([_slope(slopes, line) for line in lines], axis=1),
        strength,
        [line.grid for line in lines],
        average,
        single,
        pairs,
        _interactions(expansion, rows, pairs, leads),
        _scales(machine, lines),
        classes_of(machine, strength.shape[0]),
        [names[c] for c in columns if view.left_out([view.names[c]])],
    )


def _columns(view: View, given: Any) -> NDArray[np.intp]:
    """Return column numbers, of names or numbers."""
    if given is None:
        return np.arange(len(view.names))
    places = {name: i for i, name in enumerate(view.names)}
    columns = np.asarray([places.get(c, c) if isinstance(c, str) else c for c in given])
    _check_columns(columns, len(view.names))
    return columns


def _slope(slopes: Array, line: Along) -> Array:
    """Return the mean slope along a column, one for each output."""
    if line.ratio is None:
        return np.full(slopes.shape[2], np.nan)
    known = np.isfinite(line.ratio).all(axis=1)  # not at rows where the column is missing
    return np.einsum("ifo,if->o", slopes[known][:, line.features], line.ratio[known]) / known.sum()


def _strength(view: View, rows: Array, own: list[Indices], columns: NDArray[np.intp]) -> Array:
    """Return mean |change of f| when columns are shuffled, outputs x columns."""
    rng, parts, b = np.random.RandomState(0), parts_of(view.machine), view.machine.intercept_
    orders = [rng.permutation(len(rows)) for _ in range(-(-_PAIRS // len(rows)))]
    before = np.asarray(view.machine._values(rows))
    result, used = np.zeros((before.shape[1], len(columns))), list(range(len(columns)))
    if parts is not None and can_move(parts):
        used = [p for p in used if any(len(part.columns_of(own[p])) for part in parts)]
        moved: Any = moved_values(parts, rows, [own[p] for p in used], orders, np.asarray(b))
    else:
        moved = (
            [view.values(with_columns_of(view.X, columns[[p]], order)) for order in orders]
            for p in used
        )
    for p, values in zip(used, moved, strict=True):
        result[:, p] = np.abs(np.subtract(values, before)).mean(axis=(0, 1))
    return result


def _scales(machine: Any, lines: list[Along]) -> Array | None:
    scales = getattr(machine, "feature_scales_", None)
    if scales is None:
        return None
    return np.array([np.asarray(scales)[line.features].max(initial=0.0) for line in lines])


def _expansion(model: Any) -> tuple[Kernel, Any, Array]:
    """Return the kernel, the points and their coefficients."""
    features, coef = model._model()
    points = features.points if features.kernel.precomputed else to_host(features.points)
    return features.kernel, points, coef


def _interactions(
    expansion: Any, rows: Array, pairs: NDArray[np.intp], leads: dict[int, int | None]
) -> Array:
    """Return the size of the mixed derivatives, outputs x pairs."""
    kernel, points, coef = expansion
    if not len(pairs):
        return np.zeros((coef.shape[1], 0))
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError("pairs must hold two different features each.")
    if None in leads.values():
        raise ValueError("pairs must name numeric columns: a category makes several features.")
    features = np.array([[leads[a], leads[b]] for a, b in pairs.tolist()], np.intp)
    mixed = mixed_derivatives(kernel, rows, points, coef, features)
    both = rows.std(axis=0)[features].prod(axis=1)
    return np.sqrt(np.square(mixed).mean(axis=0)).T * both


def _check_columns(columns: NDArray[np.intp], n_features: int) -> None:
    known = columns.size and columns.dtype.kind in "iu"
    if not known or columns.min() < 0 or columns.max() >= n_features:
        raise ValueError(
            f"features and pairs must be column numbers from 0 to {n_features - 1}, at least one."
        )


def _check_room(model: Any, rows: Array, columns: NDArray[np.intp]) -> None:
    """Refuse rows whose gradients do not fit."""
    n, d = rows.shape
    check_budget(
        8 * (n * d * (2 + 2 * len(model.dual_coef_)) + 8 * 2**20),
        resolve_cache_size(model.cache_size),
        f"Computing the effects of {len(columns)} features on {n:,} rows",
        "Pass fewer rows: a random sample of some thousands is enough.",
    )


def _dependences(
    machine: Any, rows: Array, lines: list[Along], n_individual: int
) -> tuple[list[Array], list[Array] | None]:
    """Return partial dependence of all columns and, if asked for, centred lines of some rows."""
    kernel, points, coef = _expansion(machine)
    Z, b = dense_rows64(points), np.asarray(machine.intercept_)
    moves = [(line.features, line.values) for line in lines]
    if kernel.clip is not None:  # as the kernel would, once for all
        lower, upper = kernel.clip
        rows, Z = clipped(rows, kernel.clip), clipped(Z, kernel.clip)
        moves = [(own, np.clip(values, lower[own], upper[own])) for own, values in moves]
    average = [(found + b).T for found in averages(kernel, rows, Z, coef, moves)]
    if not n_individual:
        return average, None
    single = (individual(kernel, rows[:n_individual], Z, coef, *move) for move in moves)
    return average, [np.moveaxis(line - line[:, :1], 2, 0) for line in single]
