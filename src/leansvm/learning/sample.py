"""The rows on which a kernel is learned, in units of their own, and the way back to raw rows.

Features are clipped to mean +- 5 standard deviations of what is left after clipping (three
rounds), centred and divided by their standard deviation; targets likewise. Rows far out in a heavy
tail would otherwise be near no basis point, and units would matter. Mixtures also see quantile
features, and their linear part sees the features without bounds.

The learned kernel also clips features to the range of the training rows: beyond the range,
predictions stay what they are at its edge. (Without clipping they would return to the intercept,
which may be far from every target.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from leansvm._array_api import to_host
from leansvm.kernels import Mixture
from leansvm.kernels._columns import Curve
from leansvm.linalg import dense_rows64
from leansvm.rows import (
    MemoryBlocks,
    RowBlocks,
    WeightedSample,
    check_budget,
    merge_equal_rows,
    order_of,
    total_weight,
    weights_of_drawn,
)

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_DEVIATIONS, _ROUNDS, _MOST_ROUNDS = 5.0, 3, 30
_REACH = 10.0  # the linear part is clipped this many ranges of a feature beyond its values
_CONSTANT = 1e-12  # a range this small, relative to the values, is rounding
_FEW_DISTINCT = 100  # with fewer distinct rows, even a linear kernel alone has bounds
_SMALLEST_SAMPLE = 500  # the budget must have room for so many rows, if there are so many
_COPIES = 4  # of the sample in memory while it is made
_LEAST_GAMMA, _LARGEST_GAMMA = 1e-318, 1e300  # less has hardly any digits
_QUANTILE_KNOTS, _FEWEST_VALUES = 64, 10  # of a quantile feature, and of the feature that needs one
_END = 0.002  # shares of rows beyond which the curve is flat
_SAME = 0.99  # with at least this correlation, a quantile feature adds nothing to its feature
WAY_OUT = "Give gamma a number or an array, or raise cache_size."
SHARE = 0.375  # of cache_size, for the sample and for a search: 3/4 for both, the rest for tiles


@dataclass(frozen=True)
class ClippedUnits:
    """Bounds, centre and spread of every feature."""

    lower: Array  # -inf and inf: no bounds
    upper: Array
    centre: Array  # mean after clipping
    spread: Array  # standard deviation after clipping; 0 if the feature is constant
    whole: Array  # standard deviation without clipping, the unit of the linear part
    ends: tuple[Array, Array]  # least and largest value
    varies: Mask  # features that are not constant


def clipped_units(
    X: Array, weight: Array, contain_zero: bool, numeric: Mask | None = None
) -> ClippedUnits:
    """Measure the features of weighted rows; bounds only if they cut a heavy tail.

    ``contain_zero``: 0 must lie between the bounds, so that clipped CSR rows stay sparse. Features
    that are not ``numeric`` (indicators, cycles) keep their unit and have no bounds.
    """
    share, origin = weight / weight.sum(), X[0]
    unit = np.abs(X - origin).max(axis=0)
    varies = unit > _CONSTANT * np.abs(X).max(axis=0)
    unit[~varies] = 1.0
    rows = (X - origin) / unit
    # bounds of a feature of two values, such as a rare category, only change its unit: none
    farthest = np.take_along_axis(rows, np.abs(rows).argmax(axis=0)[None], axis=0)
    two = ((rows == 0) | (rows == farthest)).all(axis=0)
    own_unit = np.zeros(X.shape[1], np.bool_) if numeric is None else ~numeric
    lower, upper = np.full((2, X.shape[1]), [[-np.inf], [np.inf]])
    spreads: list[Array] = []
    while True:
        clipped = np.clip(rows, lower, upper)
        centre = share @ clipped
        spreads.append(np.sqrt(share @ np.square(clipped - centre)))
        # far outliers shrink the spread by more than half, natural tails by less
        settled = len(spreads) > _ROUNDS and np.all(2 * spreads[-1] > spreads[-2], where=varies)
        if settled or len(spreads) > _MOST_ROUNDS:
            break
        reach = np.where(two | own_unit, np.inf, _DEVIATIONS * spreads[-1])
        lower, upper = np.maximum(lower, centre - reach), np.minimum(upper, centre + reach)
        if contain_zero:
            lower, upper = np.minimum(lower, -origin / unit), np.maximum(upper, -origin / unit)
    cut = (clipped != rows).any(axis=0) & varies
    lower = np.where(cut, origin + unit * lower, -np.inf)
    upper = np.where(cut, origin + unit * upper, np.inf)
    if contain_zero:
        lower, upper = np.minimum(lower, 0.0), np.maximum(upper, 0.0)  # rounding
    spread = np.where(varies, np.where(own_unit, 1.0, unit * spreads[-1]), 0.0)
    whole = np.where(cut, unit * spreads[0], spread)
    ends = X.min(axis=0), X.max(axis=0)
    return ClippedUnits(lower, upper, origin + unit * centre, spread, whole, ends, spread > 0)


def quantile_curves(X: Array, weight: Array, features: NDArray[np.intp]) -> tuple[Curve, ...]:
    """Return q(x) = Phi^-1(F(x)) as a curve through knots for each feature that it may help.

    F is the share of rows below x, half of the equal ones counted. Features of few values need no
    such copy, nor do those whose copy is almost the feature itself.
    """
    curves = []
    for feature in features.tolist():
        x = X[:, feature]
        values, place = np.unique(x, return_inverse=True)
        if len(values) < _FEWEST_VALUES:
            continue
        share = np.bincount(place, weight) / weight.sum()
        below = np.cumsum(share) - 0.5 * share
        wanted = np.linspace(_END, 1.0 - _END, _QUANTILE_KNOTS)
        knots = np.unique(np.searchsorted(below, wanted).clip(0, len(values) - 1))
        y = ndtri(below[knots].clip(_END, 1.0 - _END))
        kept = np.append(True, np.diff(y) > 0)
        curve = Curve(feature, values[knots][kept], y[kept])
        pair = np.stack([x / np.abs(x).max(), np.interp(x, curve.x, curve.y)])
        pair -= np.average(pair, axis=1, weights=weight)[:, None]
        products = (pair * weight) @ pair.T
        same = products[0, 1] > _SAME * np.sqrt(products[0, 0] * products[1, 1])
        if len(curve.x) > 1 and not same:
            curves.append(curve)
    return tuple(curves)


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
    is_sparse: bool  # CSR rows, which are not centred
    n_plain: int  # columns that are features, as all kernels see them
    near: slice  # columns that parts of distances see
    linear: slice  # columns that a linear part sees


def draw_sample(
    blocks: RowBlocks,
    count: int,
    rng: np.random.RandomState,
    *,
    free_bias: bool,
    budget: int,
    mixture: bool = False,
    groups: NDArray[np.intp] | None = None,
    numeric: Mask | None = None,
) -> ScaleSample:
    """Draw rows by their sample weights and bring them to the host; all of them if they are few.

    There are at most ``count`` of them, fewer if the budget in bytes is small. ``rng`` decides
    which, and in which order. Targets are centred if the bias is free. ``mixture``: with the
    columns that the parts of a mixture see.
    """
    row_bytes = 8 * _COPIES * max(blocks.n_features, 1) * (3 if mixture else 1)
    what = f"A fit with a sample of rows with {blocks.n_features:,} features to learn scales from"
    needed = row_bytes * min(blocks.n_rows, _SMALLEST_SAMPLE)
    check_budget(needed, budget, what, WAY_OUT, SHARE)
    count = min(count, budget // row_bytes)
    X, Y, weight, unit, total, is_sparse = _drawn(blocks, count, rng, free_bias)
    units = clipped_units(X, weight, contain_zero=is_sparse, numeric=numeric)
    varies = units.varies
    has_unit = varies if numeric is None else varies & numeric
    curves: tuple[Curve, ...] = ()
    if mixture and not is_sparse:
        curves = quantile_curves(X, weight, np.flatnonzero(has_unit))
    bounds = np.stack([units.lower, units.upper])[:, varies]
    columns = [(np.clip(X[:, varies], *bounds) - units.centre[varies]) / units.spread[varies]]
    for curve in curves:
        columns.append(np.interp(X[:, curve.feature], curve.x, curve.y)[:, None])
    n_plain = columns[0].shape[1]
    beside = n_plain + len(curves)
    linear = slice(0, n_plain)
    if mixture and (is_sparse or np.isfinite(bounds).any()):
        origin = 0.0 if is_sparse else units.centre[varies]
        columns.append((X[:, varies] - origin) / units.whole[varies])
        linear = slice(beside, None)
    table = np.ascontiguousarray(np.hstack(columns))
    of_feature = (np.arange(len(varies)) if groups is None else np.asarray(groups))[varies]
    of_curve = len(varies) + np.arange(len(curves))
    of_column = np.concatenate([of_feature, of_curve, of_feature])[: table.shape[1]]
    group = np.asarray(np.unique(of_column, return_inverse=True)[1], np.intp)
    columns_of = n_plain, slice(0, beside), linear
    least, most = order_of(blocks, by_values=True).ends or units.ends
    if is_sparse:  # clipped rows stay sparse
        least, most = np.minimum(least, 0.0), np.maximum(most, 0.0)
    lower = np.where(has_unit, np.maximum(units.lower, least), units.lower)
    upper = np.where(has_unit, np.minimum(units.upper, most), units.upper)
    units = replace(units, lower=lower, upper=upper)
    return ScaleSample(table, Y, weight, unit, total, units, curves, group, is_sparse, *columns_of)


def _drawn(
    blocks: RowBlocks, count: int, rng: np.random.RandomState, free_bias: bool
) -> tuple[Array, Array, Array, float, float, bool]:
    """Return distinct rows in random order, their targets and weights of mean 1.

    With these: what the weights were divided by, the weight of all rows, whether rows were sparse.
    Targets get mean 0 (free bias) and mean square 1; codes +-1 keep their common unit.
    """
    rows = order_of(blocks, by_values=True).rows
    whole = len(rows) <= count
    if not whole:
        rows = WeightedSample(blocks, rng, by_values=True).first(count)
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
    merged = merge_equal_rows(MemoryBlocks(X, Y, weight))
    order = rng.permutation(len(merged.first))
    first, weight = merged.first[order], merged.weight[order]
    X, Y, mean = X[first], Y[first], float(weight.mean())
    share, codes = weight / weight.sum(), bool(np.isin(Y, (-1.0, 1.0)).all())
    if free_bias:
        Y = Y - Y[0]  # exactly 0 if all are equal
        Y = Y - share @ Y
    if not codes:
        most = np.abs(Y).max(axis=0)
        Y = Y / np.where(most > 0, most, 1.0)
        spread = np.sqrt(share @ np.square(Y))
        Y = Y / np.where(spread > 0, spread, 1.0)
    return X, Y, weight / mean, unit * mean, total, sparse.issparse(taken)


def raw_kernel(
    kernels: tuple[str, ...], weights: Array, scales: Array, sample: ScaleSample
) -> tuple[str | Mixture, Any, tuple[Array, Array] | None, NDArray[np.intp], int]:
    """Turn scales of standardised columns (n_parts, n_columns) into a kernel of raw rows.

    Returns a mixture, or the name of a kernel if one part without quantile features is left; its
    gamma and clip, as `Kernel` takes them; the features that vary and that no part looks at;
    and how many quantile features are in use.
    """
    units, varies, n = sample.units, sample.units.varies, sample.n_plain
    of_curves = scales[:, n : n + len(sample.curves)]
    kept: Mask = np.any(of_curves > 0, axis=0)
    knots, parts = list(compress(sample.curves, kept)), []
    looked_at, by_distance = np.zeros((2, len(varies)), np.bool_)  # by any part; by distances
    for curve in knots:
        looked_at[curve.feature] = True
    for p, (kernel, weight) in enumerate(zip(kernels, weights.tolist(), strict=True)):
        linear = kernel == "linear"
        gamma = scales[p, sample.linear if linear else sample.near][:n]
        spread = (units.whole if linear else units.spread)[varies]
        with np.errstate(over="ignore", under="ignore"):
            by_size = kernel == "laplacian"
            found = gamma / spread if by_size else np.square(np.sqrt(gamma) / spread)
        lost = (gamma > 0) & ~((found >= _LEAST_GAMMA) & (found <= _LARGEST_GAMMA))
        if lost.any():
            first = np.flatnonzero(varies)[lost][0]
            raise ValueError(
                f"gamma='learn': the standard deviation of feature {first}, "
                f"{units.spread[first]:.3g}, is too large or too small to be squared. Scale X."
            )
        raw = np.zeros(len(varies))
        raw[varies] = found
        looked_at |= raw > 0
        by_distance |= (raw > 0) & (not linear)
        parts.append((weight, kernel, raw if linear else np.append(raw, of_curves[p, kept])))
    dropped = np.flatnonzero(varies & ~looked_at)
    lower = np.where(by_distance, units.lower, -np.inf)
    upper = np.where(by_distance, units.upper, np.inf)
    clip = (lower, upper) if np.isfinite([lower, upper]).any() else None
    _, name, gamma = parts[0]
    if len(parts) == 1 and not knots and name != "linear":
        return name, gamma, clip, dropped, 0
    of_line: dict[str, Any] = {}
    if "linear" in kernels:
        of_line = {"origin": None if sample.is_sparse else units.centre}
        # beside other parts, or if rows are too few to show a range, its bounds are far outside
        if len(kernels) > 1 or len(sample.X) <= _FEW_DISTINCT:
            least, most = units.ends
            reach = _REACH * (most - least)
            of_line["linear_clip"] = least - reach, most + reach
    mixture = Mixture(parts, clip=clip, knots=knots, **of_line)
    return mixture, mixture.gamma_by_part, None, dropped, len(knots)
