"""Learn on a transformed target: log y, or normal scores of its quantiles.

Models learn on the new scale, and numbers are mapped back to units of y. That maps quantiles to
quantiles, so `predict` returns the median of y where errors are symmetric on the learned scale, as
scikit-learn's `TransformedTargetRegressor` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from leansvm._array_api import like_rows, to_host

Array = NDArray[np.float64]
Scale = tuple[Array, ...]  # for every output, quantiles of y above their scores; empty: log
_KNOTS = 1000
_LARGEST_LOG = 700.0


def learn_scale(name: str, Y: Any, weight: Any) -> Scale:
    """Return the scale to learn on, from targets (rows x outputs) and weights."""
    Y, weight = np.asarray(to_host(Y)), np.asarray(to_host(weight))
    Y, weight = Y[weight > 0], weight[weight > 0]
    if name == "log":
        if Y.min() <= 0:
            raise ValueError(
                f"target='log' needs positive targets, and the smallest of y is {Y.min():g}: add a "
                f"constant to y, or set target='quantile'."
            )
        return ()
    return tuple(_scores(column, weight) for column in Y.T)


def _scores(y: Array, weight: Array) -> Array:
    """Return values of y and the normal scores of the shares of weight up to their middle."""
    values, place = np.unique(y, return_inverse=True)
    total = np.bincount(place, weights=weight).astype(np.float64)
    shares = (np.cumsum(total) - total / 2) / total.sum()
    if len(values) > _KNOTS:  # evenly in weight, with both ends
        wanted = np.searchsorted(shares, np.linspace(shares[0], shares[-1], _KNOTS))
        values, shares = values[np.unique(wanted)], shares[np.unique(wanted)]
    return np.stack([values, ndtri(shares)])


def to_scale(scale: Scale, Y: Any) -> Any:
    """Return targets on the learned scale, rows x outputs, where they are."""
    given = np.asarray(to_host(Y))
    if not scale:
        if given.min() <= 0:
            raise ValueError(f"target='log' needs positive targets, got {given.min():g} in y.")
        return like_rows(np.log(given), Y)
    columns = [np.interp(y, *knots) for y, knots in zip(given.T, scale, strict=True)]
    return like_rows(np.stack(columns, axis=1), Y)


def to_units(scale: Scale | None, values: Any) -> Any:
    """Return values on the learned scale, rows x outputs (x anything), in units of y."""
    if scale is None:
        return values
    given = np.asarray(to_host(values))
    if not scale:
        found = np.exp(np.minimum(given, _LARGEST_LOG))
    else:
        found = np.empty_like(given)
        for output, (units, scores) in enumerate(scale):
            found[:, output] = np.interp(given[:, output], scores, units)
    return like_rows(found.astype(given.dtype), values)
