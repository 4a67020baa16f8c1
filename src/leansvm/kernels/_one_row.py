"""One row against points that stay the same: what depends on the points alone is computed once.

A block of one row spends its time on preparing the points. A kernel's own form is a handful of
NumPy calls on one value for each point. Nothing changes after construction, so that threads may
share these objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from leansvm.kernels._clip import Bounds, clipped
from leansvm.kernels._function import Array, RowForm
from leansvm.kernels._kernel import Kernel

_LARGEST_SCALE = 1e30  # beyond it squares may overflow


class ClippedRow:
    """Another form, after every feature was moved between its bounds."""

    def __init__(self, clip: Bounds, form: RowForm) -> None:
        (self.lower, self.upper), self.form = clip, form

    def __call__(self, x: Array) -> Array:
        """Return k(x, z_j) of every point."""
        return self.form(np.minimum(np.maximum(x, self.lower), self.upper))


def row_form(kernel: Kernel, points: Any) -> RowForm | None:
    """Return the function x -> k(x, z_j) of every point; None for kernels that gain nothing.

    Parameters
    ----------
    kernel : Kernel
        Of any kind; callables, "precomputed", "cosine" and "chi2" gain nothing.
    points : ndarray of shape (n_points, n_features)
        Nothing is gained for CSR points, or for scales at which squares overflow.
    """
    if sparse.issparse(points) or callable(kernel.name) or kernel.precomputed:
        return None
    if np.max(kernel.gamma, initial=0.0) > _LARGEST_SCALE:
        return None
    points = np.asarray(points, dtype=np.float64)
    points = points if kernel.clip is None else clipped(points, kernel.clip)
    form = kernel.function.row_form(points)
    return form if form is None or kernel.clip is None else ClippedRow(kernel.clip, form)
