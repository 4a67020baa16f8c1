"""The rows on which a kernel is learned, in units of their own.

Features are clipped to mean +- 5 standard deviations of what is left after clipping (three
rounds), centred and divided by their standard deviation; targets likewise. Rows far out in a heavy
tail would otherwise be near no basis point, and units would matter. Mixtures also see quantile
features, and their linear part sees the features without bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import to_host
from leansvm.kernels._curves import Curve
from leansvm.learning.quantiles import quantile_curves
from leansvm.linalg import dense_rows64
from leansvm.rows import (
    RowBlocks,
    WeightedSample,
    canonical_order,
    check_budget,
    merge_equal_rows,
    total_weight,
    weights_of_drawn,
)

Array = NDArray[np.float64]

_DEVIATIONS, _ROUNDS, _MOST_ROUNDS = 5.0, 3, 30
_FEW_DISTINCT = 100  # rows among which a single one still moves the scales
_REACH = 10.0  # ranges of a feature that the linear part goes on beyond its values
_CONSTANT = 1e-12  # a range that is this small beside the values themselves is rounding
_FEWEST_ROWS = 500  # a budget must have room for so many, if there are so many
_COPIES = 4  # of the sample in memory while it is made
_LEAST_GAMMA, _LARGEST_GAMMA = 1e-318, 1e300  # less has hardly any digits
WAY_OUT = "Give gamma a number or an array, or raise cache_size."


@dataclass(frozen=True)
class ClippedUnits:
    """Bounds, centre and spread of every feature."""

    lower: Array  # -inf and inf where nothing lies beyond the bounds
    upper: Array
    centre: Array  # mean after clipping
    spread: Array  # standard deviation after clipping; 0 where the feature is constant
    whole: Array  # standard deviation without clipping, the unit of the linear part
    reach: tuple[Array, Array]  # bounds of the linear part

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Which features are not constant."""
        return self.spread > 0

    def clip(self, used: NDArray[np.bool_]) -> tuple[Array, Array] | None:
        """Return the bounds of features that are used where they cut anything, otherwise None."""
        lower = np.where(used, self.lower, -np.inf)
        upper = np.where(used, self.upper, np.inf)
        return (lower, upper) if np.isfinite([lower, upper]).any() else None

    def standardised(self, X: Array) -> Array:
        """Return the features that vary, clipped, with mean 0 and standard deviation 1."""
        used = self.varies
        rows = np.clip(X[:, used], self.lower[used], self.upper[used])
        rows -= self.centre[used]
        rows /= self.spread[used]
        return np.ascontiguousarray(rows)

    def unbounded(self, X: Array, *, centred: bool) -> Array:
        """Return the features that vary without bounds, with standard deviation 1."""
        used = self.varies
        return (X[:, used] - (self.centre[used] if centred else 0.0)) / self.whole[used]

    def gamma(self, kernel: str, gamma: Array) -> Array:
        """Turn the scales of standardised features into those of the raw ones; constant ones 0."""
        result = np.zeros(len(self.spread))
        spread = (self.whole if kernel == "linear" else self.spread)[self.varies]
        with np.errstate(over="ignore", under="ignore"):
            by_size = kernel == "laplacian"
            found = gamma / spread if by_size else np.square(np.sqrt(gamma) / spread)
        lost = (gamma > 0) & ~((found >= _LEAST_GAMMA) & (found <= _LARGEST_GAMMA))
        if lost.any():
            first = np.flatnonzero(self.varies)[lost][0]
            raise ValueError(
                f"gamma='learn': the standard deviation of feature {first}, "
                f"{self.spread[first]:.3g}, is too large or too small to be squared. Scale X."
            )
        result[self.varies] = found
        return result


def clipped_units(
    X: Array, weight: Array, contain_zero: bool, numeric: NDArray[np.bool_] | None = None
) -> ClippedUnits:
    """Measure the features of weighted rows.

    ``contain_zero``: 0 must lie between the bounds, so that clipped CSR rows stay sparse. Features
    that are not ``numeric`` (indicators, cycles) keep their unit and have no bounds.
    """
    share = weight / weight.sum()
    origin = X[0]
    unit = np.abs(X - origin).max(axis=0)
    constant = unit <= _CONSTANT * np.abs(X).max(axis=0)
    unit[constant] = 1.0
    rows = (X - origin) / unit
    # bounds of a feature of two values, such as a rare category, only change its unit: none
    farthest = np.take_along_axis(rows, np.abs(rows).argmax(axis=0)[None], axis=0)
    two = ((rows == 0) | (rows == farthest)).all(axis=0)
    own_unit = np.zeros(X.shape[1], np.bool_) if numeric is None else ~numeric
    lower, upper = np.full((2, X.shape[1]), [[-np.inf], [np.inf]])
    before = np.full(X.shape[1], np.inf)
    for number in range(_MOST_ROUNDS):
        centre, spread = _moments(np.clip(rows, lower, upper), share)
        if number >= _ROUNDS and np.all(2 * spread > before):
            break  # far outliers shrink the spread by more, natural tails by less
        before = spread
        reach = np.where(two | own_unit, np.inf, _DEVIATIONS * spread)
        lower, upper = np.maximum(lower, centre - reach), np.minimum(upper, centre + reach)
        if contain_zero:
            lower, upper = np.minimum(lower, -origin / unit), np.maximum(upper, -origin / unit)
    cut = ((rows < lower) | (rows > upper)).any(axis=0) & ~constant
    lower, upper = np.where(cut, lower, -np.inf), np.where(cut, upper, np.inf)
    centre, spread = _moments(np.clip(rows, lower, upper), share)
    spread[constant] = 0.0
    lower, upper, centre = (origin + unit * place for place in (lower, upper, centre))
    if contain_zero:
        lower, upper = np.minimum(lower, 0.0), np.maximum(upper, 0.0)  # rounding
    spread = np.where(own_unit & (spread > 0), 1.0, unit * spread)
    whole = np.where(cut, unit * _moments(rows, share)[1], spread)
    least, most = X.min(axis=0), X.max(axis=0)
    beyond = _REACH * (most - least)
    far = least - beyond, most + beyond
    return ClippedUnits(lower, upper, centre, spread, whole, far)


def _moments(rows: Array, share: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of every column."""
    mean = share @ rows
    return mean, np.sqrt(share @ np.square(rows - mean))


@dataclass(frozen=True)
class ScaleSample:
    """Distinct rows in random order, standardised, with targets and weights of mean 1.

    The columns of X are features, then quantile features, then features without bounds where a
    mixture is learned and there are bounds.
    """

    X: Array
    Y: Array
    weight: Array
    unit_weight: float  # what the weights were divided by
    total_weight: float  # of all rows, not of the sample alone
    units: ClippedUnits
    curves: tuple[Curve, ...]
    group: NDArray[np.intp]  # of every column: those of one group share a scale
    is_sparse: bool = False  # CSR rows, which are not centred

    @property
    def n_plain(self) -> int:
        """How many columns are features, as all kernels see them."""
        return int(np.count_nonzero(self.units.varies))

    def columns(self, kernel: str) -> slice:
        """Return the columns that a kernel of a mixture sees."""
        beside = self.n_plain + len(self.curves)
        if kernel != "linear":
            return slice(0, beside)
        return slice(beside, None) if self.X.shape[1] > beside else slice(0, self.n_plain)

    def take(self, rows: slice | NDArray[np.intp]) -> ScaleSample:
        """Return some of the rows."""
        return replace(self, X=self.X[rows], Y=self.Y[rows], weight=self.weight[rows])


def draw_sample(
    blocks: RowBlocks,
    count: int,
    rng: np.random.RandomState,
    *,
    free_bias: bool,
    budget: int,
    mixture: bool = False,
    groups: NDArray[np.intp] | None = None,
    numeric: NDArray[np.bool_] | None = None,
) -> ScaleSample:
    """Draw rows by their sample weights and bring them to the host; all of them where they are few.

    There are at most ``count`` of them, fewer where the budget in bytes is small. ``rng`` decides
    which, and in which order. Targets are centred where the bias is free. ``mixture``: with the
    columns that the parts of a mixture see.
    """
    row_bytes = 8 * _COPIES * max(blocks.n_features, 1) * (3 if mixture else 1)
    check_budget(
        row_bytes * min(blocks.n_rows, _FEWEST_ROWS),
        budget,
        f"A sample of rows with {blocks.n_features:,} features to learn scales from",
        WAY_OUT,
    )
    rows, whole = _rows_to_take(blocks, min(count, budget // row_bytes), rng)
    taken = to_host(blocks.take(rows))
    X, (Y, weight) = dense_rows64(taken), blocks.targets_of(rows)
    if Y is None:
        raise ValueError("gamma='learn' needs targets y.")
    Y = np.asarray(Y, dtype=np.float64).reshape(len(X), -1)
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    unit, total = 1.0, float(weight.sum())
    if not whole:
        unit, weight = weights_of_drawn(blocks, Y, weight)
        total = total_weight(blocks)
    merged = merge_equal_rows(X, Y, weight)
    order = rng.permutation(len(merged.first))
    if len(order) <= _FEW_DISTINCT:  # weights are repetitions, in whatever order rows come
        order = canonical_order(X[merged.first], Y[merged.first])[order]
    first, weight = merged.first[order], merged.weight[order]
    X, Y = X[first], Y[first]
    unit *= float(weight.mean())
    weight = weight / weight.mean()
    is_sparse = sparse.issparse(taken)
    units = clipped_units(X, weight, contain_zero=is_sparse, numeric=numeric)
    targets = _standardised_targets(Y, weight, free_bias)
    used = np.flatnonzero(units.varies if numeric is None else units.varies & numeric)
    curves = quantile_curves(X, weight, used) if mixture and not is_sparse else ()
    columns = [units.standardised(X), *(c(X[:, c.feature])[:, None] for c in curves)]
    if mixture and (is_sparse or units.clip(units.varies) is not None):
        columns.append(units.unbounded(X, centred=not is_sparse))
    table: Array = np.ascontiguousarray(np.hstack(columns), np.float64)
    group = _column_groups(units.varies, len(curves), table.shape[1], groups)
    return ScaleSample(table, targets, weight, unit, total, units, curves, group, is_sparse)


def _column_groups(
    varies: NDArray[np.bool_], n_curves: int, width: int, groups: NDArray[np.intp] | None
) -> NDArray[np.intp]:
    """Number the groups of columns, given those of features: each is its own by default."""
    of_feature = np.arange(len(varies)) if groups is None else np.asarray(groups)
    plain = of_feature[varies]
    behind = len(varies) + np.arange(n_curves)
    columns = np.concatenate([plain, behind, plain])[:width]
    return np.asarray(np.unique(columns, return_inverse=True)[1], np.intp)


def _rows_to_take(
    blocks: RowBlocks, count: int, rng: np.random.RandomState
) -> tuple[NDArray[np.intp], bool]:
    """Return row numbers, and whether these are all rows of positive weight."""
    if blocks.n_rows <= count:
        return np.arange(blocks.n_rows), True
    rows = WeightedSample(blocks, rng).first(count + 1)
    if len(rows) <= count:
        return np.sort(rows), True
    return rows[:count], False


def _standardised_targets(Y: Array, weight: Array, free_bias: bool) -> Array:
    """Return targets of mean 0 (free bias) and mean square 1; codes +-1 keep their common unit."""
    share = weight / weight.sum()
    codes = bool(np.isin(Y, (-1.0, 1.0)).all())
    if free_bias:
        Y = Y - Y[0]  # exactly 0 where all are equal
        Y = Y - share @ Y
    if not codes:
        Y = Y / _or_one(np.abs(Y).max(axis=0))
        Y = Y / _or_one(np.sqrt(share @ np.square(Y)))
    return np.ascontiguousarray(Y)


def _or_one(values: Array) -> Array:
    return np.where(values > 0, values, 1.0)
