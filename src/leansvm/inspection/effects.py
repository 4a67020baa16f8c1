"""What each feature does to the prediction: slopes, partial dependence and interactions.

From exact gradients of the kernel expansion (`leansvm.kernels.gradients`) and the structure of the
kernels (`_dependence`), for all features at once; no prediction is made for changed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats.mstats import mquantiles
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm.estimators.kernel_basis import KernelBasis
from leansvm.estimators.kernel_machine import KernelMachine
from leansvm.estimators.read import validate
from leansvm.inspection._dependence import averages, individual
from leansvm.kernels import Kernel, clipped, gradients, mixed_derivatives
from leansvm.linalg import dense_rows64
from leansvm.rows import check_budget, resolve_cache_size
from leansvm.tables import feature_names as feature_names_of

Array = NDArray[np.float64]
_STRONGEST = 6  # features whose pairs are looked at by default


@dataclass
class Effects:
    """What each feature does to f: the prediction, or the decision value of every class.

    Two classes count as one output, larger for the second class.

    Attributes
    ----------
    features : ndarray of shape (n_features,)
        Column numbers of the features that were looked at.
    names : list of str
        Their names.
    slope : ndarray of shape (n_outputs, n_features)
        Mean of df/dx over the rows: what one more unit of the feature adds, on average.
    strength : ndarray of shape (n_outputs, n_features)
        Mean of |df/dx| times the feature's standard deviation: how much it matters, in units of f.
    grids : list of ndarray
        Values of every feature.
    average : list of ndarray of shape (n_outputs, n_values)
        Partial dependence: mean of f over the rows with the feature set to each value.
    individual : list of ndarray of shape (n_outputs, n_rows, n_values), or None
        The same of single rows, less its value at the first grid point (centred ICE).
    pairs : ndarray of shape (n_pairs, 2)
        Pairs of column numbers.
    interaction : ndarray of shape (n_outputs, n_pairs)
        Root mean square of d^2f / dx_a dx_b times both standard deviations, in units of f: 0 for
        features whose effects add up.
    scales : ndarray of shape (n_features,) or None
        ``feature_scales_`` of the model, where it learned them.
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

    def strongest(self, count: int = _STRONGEST) -> NDArray[np.intp]:
        """Return positions in ``features`` of the features that matter most, the first most.

        Parameters
        ----------
        count : int, default=6
            Features at most.

        Returns
        -------
        ndarray of shape (count,)
            Positions.
        """
        return np.argsort(-self.strength.max(axis=0), kind="stable")[:count]


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
        A fitted machine of this package whose kernel has a name.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows to average over, such as the training rows or a sample of them.
    features : array-like of int, default=None
        Column numbers to look at; default: all.
    grid_resolution : int, default=100
        Values of every feature, evenly between the percentiles; a feature with fewer distinct
        values has these.
    percentiles : tuple of float, default=(0.05, 0.95)
        Shares of the rows below the first and the last value.
    n_individual : int, default=0
        Rows, the first ones, of which to return lines of their own.
    pairs : array-like of shape (n_pairs, 2), default=None
        Pairs of column numbers whose interaction to compute; default: all pairs of the six
        features that matter most.
    feature_names : sequence of str, default=None
        Names of all columns; default: those of the fit, or x0, x1, ...

    Returns
    -------
    Effects
        What every feature does.

    Notes
    -----
    Partial dependence is that of `sklearn.inspection.partial_dependence` with ``method="brute"``,
    to rounding. It and slopes describe the model, not what would happen if a feature were changed;
    features that go together make rows that never occur.

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
    if not isinstance(model, KernelMachine) or isinstance(model, KernelBasis):
        raise TypeError(
            f"{type(model).__name__} does not predict by a kernel: effects() needs a machine whose "
            f"functions are kernels (the last step of a pipeline, with the rows that it sees)."
        )
    check_is_fitted(model)
    rows = dense_rows64(to_host(validate(model, X, reset=False)))
    columns = np.arange(rows.shape[1]) if features is None else np.asarray(features)
    _check_columns(columns, rows.shape[1])
    grids = [_grid(rows[:, f], grid_resolution, percentiles) for f in columns]
    names = _names(model, feature_names, rows.shape[1], columns)
    _check_room(model, rows, columns)
    expansion = _expansion(model)
    slopes = gradients(expansion[0], rows, *expansion[1:])[:, columns]
    strength = np.abs(slopes).mean(axis=0).T * rows[:, columns].std(axis=0)
    average, lines = _dependences(model, rows, columns, grids, n_individual)
    if pairs is None:
        first = np.sort(columns[np.argsort(-strength.max(axis=0), kind="stable")[:_STRONGEST]])
        pairs = list(combinations(first.tolist(), 2))
    pairs = np.asarray(pairs, dtype=np.intp).reshape(-1, 2)
    scales = getattr(model, "feature_scales_", None)
    return Effects(
        columns,
        names,
        slopes.mean(axis=0).T,
        strength,
        grids,
        average,
        lines,
        pairs,
        _interactions(expansion, rows, pairs),
        None if scales is None else np.asarray(scales)[columns],
    )


def _expansion(model: Any) -> tuple[Kernel, Any, Array]:
    """Return the kernel, the points and their coefficients."""
    features, coef = model._model()
    points = features.points if features.kernel.precomputed else to_host(features.points)
    return features.kernel, points, coef


def _interactions(expansion: Any, rows: Array, pairs: NDArray[np.intp]) -> Array:
    """Return the size of the mixed derivatives, outputs x pairs."""
    kernel, points, coef = expansion
    if not len(pairs):
        return np.zeros((coef.shape[1], 0))
    _check_columns(pairs, rows.shape[1])
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError("pairs must hold two different features each.")
    mixed = mixed_derivatives(kernel, rows, points, coef, pairs)
    both = rows.std(axis=0)[pairs].prod(axis=1)
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
        f"The effects of {len(columns)} features on {n:,} rows",
        "Pass fewer rows: a random sample of some thousands is enough.",
    )


def _grid(values: Array, resolution: int, percentiles: tuple[float, float]) -> Array:
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


def _dependences(
    model: Any, rows: Array, columns: NDArray[np.intp], grids: list[Array], n_individual: int
) -> tuple[list[Array], list[Array] | None]:
    """Return partial dependence of all features and, if asked for, centred lines of some rows."""
    kernel, points, coef = _expansion(model)
    Z, b = dense_rows64(points), np.asarray(model.intercept_)
    values = grids
    if kernel.clip is not None:  # as the kernel would, once for all
        lower, upper = kernel.clip
        rows, Z = clipped(rows, kernel.clip), clipped(Z, kernel.clip)
        values = [np.clip(grid, lower[f], upper[f]) for f, grid in zip(columns, grids, strict=True)]
    along = {int(f): grid for f, grid in zip(columns, values, strict=True)}
    found = averages(kernel, rows, Z, coef, along)
    average = [(found[int(f)] + b).T for f in columns]
    if not n_individual:
        return average, None
    lines = []
    for f, grid in zip(columns.tolist(), values, strict=True):
        line = individual(kernel, rows[:n_individual], Z, coef, f, grid)
        lines.append(np.moveaxis(line - line[:, :1], 2, 0))
    return average, lines


def _names(
    model: Any, given: Sequence[str] | None, n_features: int, columns: NDArray[np.intp]
) -> list[str]:
    names, unnamed = given, [f"x{i}" for i in range(n_features)]
    if names is None:
        names = known if (known := feature_names_of(model)) is not None else unnamed
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names for {n_features} features.")
    return [str(names[f]) for f in columns]
