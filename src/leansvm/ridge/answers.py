"""Answers after a fit of the squared loss, from its small matrix and its training rows.

`Answers` combines the fitted model (`Fitted`) with its training rows. The models without each row,
or without each fold, are computed when they are first needed, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm

from leansvm._array_api import rows_at, to_host
from leansvm.basis.features import KernelFeatures
from leansvm.kernels import Kernel
from leansvm.ridge import nested
from leansvm.ridge.criteria import ENOUGH
from leansvm.ridge.jackknife import (
    FoldModels,
    fold_margins,
    fold_models_of_rows,
    fold_models_of_sums,
    jackknife_margins,
    prediction_sets,
    refuse_unknown,
    spreads_at,
    tie_margin,
)
from leansvm.ridge.kfold import FoldSums, KFoldSums, folds_by_hash
from leansvm.ridge.spread import LocalSpread, local_spread
from leansvm.ridge.sums import Sums, check_memory
from leansvm.ridge.without_row import Coordinates, DualLeftOut, LeftOut, PrimalLeftOut
from leansvm.rows import class_numbers, column_per_class

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_SAFE = 1e3  # of C s k(x, x); up to here leverages from the small matrix have ten digits
_EVEN_CLASSES = 0.5  # classes count as equal-sized if smallest / largest is at least this
METHODS = ("jackknife+", "cv+", "normal")
_NO_ROWS = (
    "This model does not know its training rows: it came from a file, a pickle, batches or a "
    "state. Call keep_rows(X, y) with them first."
)
_OTHER_ROWS = (
    "These are not the rows that the model was fitted on, or they have changed since then: pass "
    "the same X, y and sample_weight."
)


@dataclass(frozen=True)
class Fitted:
    """What a machine knows after its fit."""

    kernel: Kernel
    C: float
    bias_penalty: float  # 0: free, inf: none
    objective: float
    budget: int  # bytes
    features: KernelFeatures | None = None  # of a small basis; None: all rows
    sums: Sums | FoldSums | None = None
    folds: KFoldSums | None = None  # None: five, by a hash
    basis_rows: Any = None  # numbers of rows that are basis points; -1: given points
    class_map: Array | None = None  # of three classes or more (`leansvm.probabilities`)

    @cached_property
    def coordinates(self) -> Coordinates:
        """The map from rows to coordinates of the small matrix, on the host."""
        assert self.features is not None and self.sums is not None
        sums = self.sums.total() if isinstance(self.sums, FoldSums) else self.sums.on_host()
        features = self.features if self.kernel.precomputed else self.features.on_host()
        return Coordinates.of(sums, features, self.bias_penalty == 0, self.C)

    @property
    def rows_of_points(self) -> Rows | None:
        """The rows that are basis points, in the order of the factor; None if that is unknown."""
        features, rows = self.coordinates.features, self.basis_rows
        if features.L is None or features.kept is None or len(rows) != features.size:
            return None
        found = np.empty_like(rows)
        found[np.argsort(features.kept)] = rows  # these are in the order of choice
        return found


class Answers:
    """Answers of one fit; ``data`` are its training rows, None if they are not known."""

    def __init__(self, fitted: Fitted, data: Any) -> None:
        self.fitted, self._data = fitted, data

    @cached_property
    def data(self) -> Any:
        """The training rows, on the host unless they are in files or on a cluster."""
        if self._data is None:
            raise ValueError(_NO_ROWS)
        if self._data.encode is not None:
            return self._data
        X, Y, weight = (to_host(part) for part in (self._data.X, self._data.Y, self._data.weight))
        return replace(self._data, X=X, Y=Y, weight=weight)

    @cached_property
    def distinct(self) -> Any:
        """The distinct training rows: the first of equal rows represents all of them."""
        return self.data.merge_copies(self.fitted.budget)

    def are_of(self, data: Any) -> bool:
        """Whether the models without each row are known already, for rows equal to these."""
        return (
            "left_out" in vars(self) and self._digest is not None and self._digest == _digest(data)
        )

    @cached_property
    def left_out(self) -> LeftOut:
        """The models without each distinct row."""
        fitted, data = self.fitted, self.distinct
        self._digest = _digest(self._data)  # the user may change the arrays later
        if fitted.features is None:
            found = self._of_all_rows(data, fitted.kernel, fitted.bias_penalty)
        elif self._cancels(data):  # a penalised bias is a column of the features
            bias = 0.0 if fitted.bias_penalty == 0 else np.inf
            found = self._of_all_rows(data, fitted.coordinates.features, bias)
        else:
            blocks = data.blocks(4 * (fitted.features.width + 1))
            terms = fitted.coordinates, fitted.budget, fitted.rows_of_points
            found = PrimalLeftOut(blocks, *terms)
        return self._checked(found)

    def _cancels(self, data: Any) -> bool:
        """Whether rounding may destroy 1 - h of a row, and rows in memory allow another way.

        This happens if most rows are in the basis and C is large: a row's own function alone makes
        1 - h = 1 / (1 + C s k(x, x)), and the other functions make it a few times smaller.
        """
        fitted, merged = self.fitted, data.merged
        assert fitted.features is not None
        if 2 * fitted.features.width <= data.n_positive or data.encode is not None:
            return False
        if fitted.kernel.precomputed:
            return True
        size = fitted.kernel.diag(rows_at(data.X, merged.first))
        return bool(np.max(fitted.C * merged.weight * size) > _SAFE)

    @cached_property
    def places(self) -> Rows:
        """Position of each training row among the distinct ones; wrong for rows of zero weight."""
        merged = self.distinct.merged
        return np.asarray(np.searchsorted(self.left_out.rows, merged.first)[merged.group])

    @cached_property
    def unused(self) -> Rows:
        """Rows of zero weight: they are in no model."""
        return np.flatnonzero(self.distinct.merged.group < 0)

    @cached_property
    def left_out_values(self) -> Array:
        """The decision values, or predictions, of every distinct row in the model without it."""
        found, B = self.left_out, self.fitted.class_map
        values = found.target - found.residual
        return values if B is None else values @ B[:-1] + B[-1]

    def residuals(self, values: Callable[[Any], Any]) -> Array:
        """Return y - f of every row in the model without it; ``values(X)`` are those of f."""
        residual = (self.left_out.target - self.left_out_values)[self.places]
        if len(self.unused):
            blocks = self.data.blocks()
            rows, (Y, _) = to_host(blocks.take(self.unused)), blocks.targets_of(self.unused)
            residual[self.unused] = Y - to_host(values(rows))
        return residual

    def influence(self) -> Array:
        """Return the influence of every distinct row; raise a ValueError if rows were changed."""
        if self.left_out.reads_rows and self._digest != _digest(self._data):
            raise ValueError(_OTHER_ROWS)
        return self.left_out.influence

    def refuse_other_rows(self) -> None:
        """Raise a ValueError if the rows are unknown, or not the rows of the fit."""
        if self._data is None:
            raise ValueError(_OTHER_ROWS)
        self._checked(self.left_out)

    def _of_all_rows(self, data: Any, kernel: Any, bias_penalty: float) -> LeftOut:
        first = data.merged.first
        X = rows_at(data.X, first)
        points = kernel.points(X, first) if isinstance(kernel, Kernel) else None
        terms = data.Y[first], data.merged.weight, self.fitted.C, bias_penalty
        return DualLeftOut(kernel, X, points, *terms, self.fitted.budget, first)

    def _checked(self, found: LeftOut) -> LeftOut:
        """Refuse rows that the machine was not fitted on: its objective is C/2 sum s e y."""
        weight, fitted = found.weight[:, None], self.fitted
        errors = found.residual * (1.0 - found.leverage)[:, None]
        total = 0.5 * fitted.C * float(np.sum(weight * errors * found.target))
        spread = fitted.C * float(np.sum(weight * found.target**2))
        # shares of y: a fit adds up float32 rows in float32 if that loses at most 1e-3 of the
        # spread of y, and large sums in single precision if the left-out error hardly grows
        relative, rounding = 1e-3, 1e-6 if self.data.X.dtype == np.float32 else 1e-9
        width = 0 if fitted.features is None else fitted.features.width
        if width and len(weight) * width**2 >= nested.WORK_FOR_SINGLE:
            relative, rounding = 5e-2, 1e-3
        off = abs(total - fitted.objective)
        if not off <= relative * abs(fitted.objective) + rounding * spread:
            raise ValueError(_OTHER_ROWS)
        return found

    def counted(self, rows: Rows) -> Rows:
        """Return positions of rows whose left-out errors are like those of new rows.

        These are the rows outside of a small basis: a basis row keeps its own function even if its
        target is left out. If few rows are outside, all rows count, as in `rows_inside`.
        """
        every, basis = np.arange(len(rows)), self.fitted.basis_rows
        if self.fitted.features is None or basis is None:
            return every
        group = self.distinct.merged.group  # copies of a basis row are inside, too
        basis = basis[(basis >= 0) & (basis < len(group))]
        outside = every[~np.isin(group[rows], group[basis])]
        return outside if len(outside) >= min(ENOUGH, len(rows) / 2) else every

    @cached_property
    def fold_models(self) -> FoldModels:
        """The models without each fold."""
        fitted, data = self.fitted, self.data
        folds = fitted.folds or KFoldSums()
        if fitted.features is None:
            n_folds, model = folds.count(data.X.shape[0]), self.left_out
            assert isinstance(model, DualLeftOut)
            fold = data.blocks().concatenate(folds_by_hash, n_folds)[model.rows]
            return fold_models_of_rows(model, fold, n_folds)
        assert fitted.sums is not None
        features, free = fitted.coordinates.features, fitted.bias_penalty == 0
        check_memory(features.width, fitted.budget, folds.count(data.X.shape[0]))
        blocks = data.blocks(4 * (features.width + 1))
        return fold_models_of_sums(blocks, features, fitted.sums.shift, free, fitted.C, folds)

    def intervals(self, X: Any, values: Array, alpha: float, method: str, adaptive: bool) -> Array:
        """Return both ends of the interval around f(x), rows x outputs x 2."""
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
        if adaptive and method == "cv+":
            raise ValueError("adaptive=True needs method='jackknife+'; 'cv+' has one width.")
        _check_alpha(alpha)
        if method == "normal":
            margin = self._normal_margins(X, alpha)
            return np.stack([values - margin, values + margin], axis=2)
        model = self.left_out if method == "jackknife+" else self.fold_models
        counted, budget = self.counted(model.rows), self.fitted.budget
        if isinstance(model, FoldModels):
            below, above = fold_margins(model, counted, X, alpha, budget)
        else:
            below, above = jackknife_margins(model, counted, X, alpha, adaptive, budget)
        tie = tie_margin(model.residual[counted], model.weight[counted], values)
        return np.stack([values - below - tie, values + above + tie], axis=2)

    def quantiles(self, X: Any, values: Array, levels: Any) -> Array:
        """Return quantiles of the target at rows with f(x), rows x outputs x levels."""
        levels = _checked_levels(levels)
        variance = spreads_at(self.left_out, X, self.fitted.budget)[1]
        refuse_unknown(variance, "predict_quantiles")
        spread = self.local_spread
        widths = spread.at(X, values, variance)
        return np.asarray(values[:, :, None] + widths[:, :, None] * spread.quantiles(levels))

    @cached_property
    def local_spread(self) -> LocalSpread:
        """How far targets are from f(x), learned from left-out residuals."""
        model, blocks = self.left_out, self.distinct.blocks()
        counted, budget = self.counted(model.rows), self.fitted.budget
        return local_spread(model, counted, blocks, self.fitted.kernel, budget)

    def _normal_margins(self, X: Any, alpha: float) -> Array:
        """Return z sigma sqrt(1 + variance of f), from the sums of the fit if it has them."""
        budget = self.fitted.budget
        if self.fitted.features is None:
            variance, noise = spreads_at(self.left_out, X, budget)[1], self.left_out.noise()
        else:
            place = self.fitted.coordinates
            variance, noise = place.variances(X, budget), place.noise
        refuse_unknown(variance, "method='normal'")
        return np.asarray(norm.ppf(1 - alpha / 2) * np.sqrt(np.outer(1.0 + variance, noise)))

    def novelty(self, variance: Array) -> Array:
        """Return the share of training rows with at least this variance.

        For a training row it is the variance in the model without it. The new row counts, too.
        """
        model = self.left_out
        known = model.left_out_variance()
        order = np.argsort(known)
        below = np.concatenate([[0.0], np.cumsum(model.weight[order])])
        rank = np.searchsorted(known[order], variance, side="left")
        return np.asarray((1.0 + below[-1] - below[rank]) / (1.0 + below[-1]))

    def sets(self, X: Any, values: Array, alpha: float, by_class: bool | str) -> NDArray[np.bool_]:
        """Return which classes are in the set of every row, given f(x)."""
        _check_alpha(alpha)
        if not (isinstance(by_class, bool | np.bool_) or by_class == "auto"):
            raise ValueError(f"by_class must be True, False or 'auto', got {by_class!r}.")
        model, budget = self.left_out, self.fitted.budget
        labels = class_numbers(model.target)
        margins = own_margins(self.left_out_values, labels)
        values, residual = np.ascontiguousarray(column_per_class(values)), model.residual
        if self.fitted.class_map is not None:
            residual = residual @ self.fitted.class_map[:-1]
        residual = np.ascontiguousarray(column_per_class(residual))
        members = [np.flatnonzero(labels == k) for k in range(values.shape[1])]
        sizes = [len(rows) for rows in members]
        if not (by_class if by_class != "auto" else min(sizes) < _EVEN_CLASSES * max(sizes)):
            counted = self.counted(model.rows)
            return prediction_sets(model, counted, X, values, residual, margins, alpha, budget)
        sets = np.ones(values.shape, dtype=bool)
        for k, rows in enumerate(members):
            counted = rows[self.counted(model.rows[rows])]
            found = prediction_sets(model, counted, X, values, residual, margins, alpha, budget)
            sets[:, k] = found[:, k]
        return sets


def _digest(data: Any) -> bytes | None:
    """Return a digest of rows, targets and weights; None unless they are NumPy or CSR arrays."""
    X = data.X
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    parts += [part for part in (data.Y, data.weight) if part is not None]
    if data.encode is not None or not all(isinstance(part, np.ndarray) for part in parts):
        return None
    total = blake2b(digest_size=16)
    for part in parts:
        total.update(f"{part.dtype}{part.shape}".encode())
        total.update(np.ascontiguousarray(part).data)
    return total.digest()


def _checked_levels(levels: Any) -> Array:
    """Return the levels of quantiles as an array."""
    try:
        found = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 1 or not found.size or not np.all((found > 0) & (found < 1)):
        raise ValueError(
            f"quantiles must be numbers between 0 and 1, such as (0.05, 0.5, 0.95), got {levels!r}."
        )
    return found


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha!r}.")


def own_margins(values: Array, labels: Rows) -> Array:
    """Return the value of every row's own class minus the largest of the other classes."""
    values, rows = column_per_class(values).copy(), np.arange(len(values))
    own = values[rows, labels]
    values[rows, labels] = -np.inf
    return np.asarray(own - values.max(axis=1))
