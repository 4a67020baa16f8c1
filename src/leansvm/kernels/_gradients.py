"""Gradients of f(x) = sum_j c_j k(x, z_j) and its mixed second derivatives, exactly.

Rows go through the kernel's own formulas in tiles. If a kernel has a kink (matern12 and laplacian
at x = z), its slope there counts as 0, the middle of both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels._columns import inside_bounds
from leansvm.kernels._function import Array, DistanceKernel
from leansvm.kernels._kernel import FUNCTIONS, Kernel
from leansvm.linalg import clipped, dense_rows64

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
    found = [
        kernel.function.gradients(rows, Z, coef) * inside[:, :, None]
        for rows, Z, inside in _tiles(kernel, X, points)
    ]
    return np.concatenate([np.empty((0, X.shape[1], coef.shape[1])), *found])


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
    a, b = pairs.T
    found = [
        kernel.function.mixed_derivatives(rows, Z, coef, pairs)
        * (inside[:, a] * inside[:, b])[:, :, None]
        for rows, Z, inside in _tiles(kernel, X, points)
    ]
    return np.concatenate([np.empty((0, len(pairs), coef.shape[1])), *found])


def _tiles(kernel: Kernel, X: Any, points: Any) -> Iterator[tuple[Array, Array, Array]]:
    """Yield rows and points as the kernel sees them, and 1 if it does not clip a feature."""
    if callable(kernel.name) or kernel.precomputed:
        raise ValueError(
            f"kernel={kernel.name!r} has no known gradient: use a kernel with a name that is not "
            f"'precomputed'."
        )
    rows, Z = dense_rows64(X), dense_rows64(points)
    inside = inside_bounds(rows, kernel.clip)
    if kernel.clip is not None:
        rows, Z = clipped(rows, kernel.clip), clipped(Z, kernel.clip)
    step = max(1, _TILE // max(len(Z), 1))
    for start in range(0, len(rows), step):
        yield rows[start : start + step], Z, inside[start : start + step]


def radial(name: str, D: Any) -> tuple[Any, Any]:
    """Return k and dk/dD of a radial kernel, D = sum_f gamma_f (x_f - z_f)^2.

    Parameters
    ----------
    name : {"rbf", "matern12", "matern32", "matern52"}
        Kernel.
    D : array
        Scaled squared distances, >= 0, of any array library.

    Returns
    -------
    value, slope : array
        The slope of "matern12", -e^-r / (2 r), has a pole at 0: 1e-12 is added to D under the
        root, so that the slope at 0 is -5e5. Its product with (x_f - z_f)^2 tends to 0 there.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.kernels import radial
    >>> value, slope = radial("matern32", np.array([0.0, 1.0]))
    >>> slope
    array([-1.5       , -0.26538181])
    """
    function = FUNCTIONS[name]()
    assert isinstance(function, DistanceKernel)
    return function.value_and_slope(D)
