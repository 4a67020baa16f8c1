"""Bounds between which every feature is moved before a kernel is computed.

Rows far out in a heavy tail are near no basis point, and a model says nothing about them. Moving
each feature into [lower, upper] brings them to the edge of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from leansvm._array_api import foreign_namespace, from_host
from leansvm.kernels._function import Array, RowForm

Bounds = tuple[Array, Array]


def check_bounds(clip: Any) -> Bounds:
    """Return lower and upper bounds as arrays of numbers, one of each for every feature."""
    lower, upper = (np.array(side, dtype=np.float64) for side in clip)
    if lower.ndim != 1 or lower.shape != upper.shape or not (lower <= upper).all():
        raise ValueError(
            "clip must be two arrays with one lower and one upper bound for each feature, "
            "lower <= upper."
        )
    return lower, upper


def clipped(X: Any, bounds: Bounds) -> Any:
    """Return a copy of rows with every feature between its bounds, of the type of the rows.

    CSR rows stay CSR where 0 is between all bounds; otherwise they become dense.
    """
    if X.shape[1] != len(bounds[0]):
        raise ValueError(f"clip has bounds of {len(bounds[0])} features, X has {X.shape[1]}.")
    xp = foreign_namespace(X)
    if xp is not None:
        lower, upper = (from_host(side, X, dtype=X.dtype)[None, :] for side in bounds)
        return xp.clip(X, lower, upper)
    lower, upper = (side.astype(X.dtype if X.dtype.kind == "f" else np.float64) for side in bounds)
    if not sparse.issparse(X):
        return np.clip(X, lower, upper)
    if (lower > 0).any() or (upper < 0).any():
        return np.clip(X.toarray(), lower, upper)
    result = X.astype(lower.dtype, copy=True)
    np.clip(X.data, lower[X.indices], upper[X.indices], out=result.data)
    return result


def inside_bounds(X: Array, bounds: Bounds | None) -> Array:
    """Return 1 where a feature of dense rows is between its bounds, else 0: its slope there."""
    if bounds is None:
        return np.ones(X.shape)
    return ((bounds[0] <= X) & (bounds[1] >= X)).astype(np.float64)


class ClippedRow:
    """The values between one row and all points, after the row was moved between the bounds."""

    def __init__(self, bounds: Bounds, form: RowForm) -> None:
        (self.lower, self.upper), self.form = bounds, form

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        return self.form(np.minimum(np.maximum(x, self.lower), self.upper))
