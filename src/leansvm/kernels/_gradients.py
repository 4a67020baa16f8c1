"""Gradients of f(x) = sum_j c_j k(x, z_j) and its mixed second derivatives, exactly.

Rows go through the kernel's own formulas in tiles. Where a kernel has a kink (matern12 and
laplacian at x = z) the slope is that of the middle, 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels._clip import clipped, inside_bounds
from leansvm.kernels._function import Array
from leansvm.kernels._kernel import Kernel
from leansvm.linalg import dense_rows64

_TILE = 2**20  # entries of a block of kernel values


def gradients(kernel: Kernel, X: Any, points: Any, coef: Array) -> Array:
    """Return the gradient of f(x) = sum_j coef_j k(x, z_j) at every row.

    Parameters
    ----------
    kernel : Kernel
        A kernel with a name that is not "precomputed". Features that it clips have slope 0
        outside their bounds.
    X, points : {array, sparse matrix} of shapes (n, d) and (r, d)
        Rows, and the points z_j.
    coef : ndarray of shape (r, n_outputs)
        Coefficients of every output.

    Returns
    -------
    ndarray of shape (n, d, n_outputs)
        Derivatives of every output by every feature.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.kernels import Kernel, gradients
    >>> kernel = Kernel("rbf", gamma=0.5)
    >>> gradients(kernel, np.array([[1.0]]), np.array([[0.0]]), np.ones((1, 1))).round(4)
    array([[[-0.6065]]])
    """
    rows, Z, inside = _prepared(kernel, X, points)
    result = np.empty((len(rows), Z.shape[1], coef.shape[1]))
    for part in _tiles(rows, Z):
        result[part] = kernel.function.gradients(rows[part], Z, coef)
    return result if inside is None else result * inside[:, :, None]


def mixed_derivatives(
    kernel: Kernel, X: Any, points: Any, coef: Array, pairs: NDArray[np.intp]
) -> Array:
    """Return d^2 f / dx_a dx_b of f(x) = sum_j coef_j k(x, z_j) at every row, a != b.

    Parameters
    ----------
    kernel, X, points, coef
        As `gradients` takes them.
    pairs : ndarray of shape (n_pairs, 2)
        Pairs of features.

    Returns
    -------
    ndarray of shape (n, n_pairs, n_outputs)
        Second derivatives.
    """
    rows, Z, inside = _prepared(kernel, X, points)
    result = np.empty((len(rows), len(pairs), coef.shape[1]))
    for part in _tiles(rows, Z):
        result[part] = kernel.function.mixed_derivatives(rows[part], Z, coef, pairs)
    if inside is not None:
        result *= (inside[:, pairs[:, 0]] * inside[:, pairs[:, 1]])[:, :, None]
    return result


def _tiles(rows: Array, Z: Array) -> Iterator[slice]:
    step = max(1, _TILE // max(len(Z), 1))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def _prepared(kernel: Kernel, X: Any, points: Any) -> tuple[Array, Array, Any]:
    """Return rows and points as the kernel sees them, and which features it does not clip."""
    if callable(kernel.name) or kernel.precomputed:
        raise ValueError(
            f"kernel={kernel.name!r} has no known gradient: use a kernel with a name that is not "
            f"'precomputed'."
        )
    rows, Z = dense_rows64(X), dense_rows64(points)
    if kernel.clip is None:
        return rows, Z, None
    inside = inside_bounds(rows, kernel.clip)
    return clipped(rows, kernel.clip), clipped(Z, kernel.clip), inside
