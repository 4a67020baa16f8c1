"""Gradients of f(x) = sum_j c_j k(x, z_j) and its mixed second derivatives, exactly.

Kernels of D = sum_f gamma_f (x_f - z_f)^2 with slope k' = dk/dD:

    df/dx_f = 2 gamma_f (x_f sum_j V_j - sum_j V_j z_jf),  V_j = c_j k'(D_j),

a matrix product for all features; kernels of x'z are V Z with V_j = c_j dk/d(x'z). The product
kernels (laplacian, chi2) have k times a sum of one slope for each feature: a compiled loop. Where a
kernel has a kink (matern12 and laplacian at x = z) the slope is that of the middle, 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from leansvm.kernels._clip import clipped
from leansvm.kernels._kernel import Kernel
from leansvm.kernels._radial import RADIAL, radial
from leansvm.linalg import dense_rows64

Array = NDArray[np.float64]
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
    step = max(1, _TILE // max(len(Z), 1))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        result[part] = _gradients_of_tile(kernel, rows[part], Z, coef)
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
    step = max(1, _TILE // max(len(Z), 1))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        result[part] = _mixed_of_tile(kernel, rows[part], Z, coef, pairs)
    if inside is not None:
        result *= (inside[:, pairs[:, 0]] & inside[:, pairs[:, 1]])[:, :, None]
    return result


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
    lower, upper = kernel.clip
    inside = (rows >= lower) & (rows <= upper)
    return clipped(rows, kernel.clip), clipped(Z, kernel.clip), inside


def _gradients_of_tile(kernel: Kernel, X: Array, Z: Array, coef: Array) -> Array:
    if kernel.name in RADIAL:
        gamma = np.broadcast_to(kernel.gamma, X.shape[1])
        _, slope = radial(str(kernel.name), _scaled_distances(X, Z, gamma))
        centre = Z.mean(axis=0)  # keeps the difference of two products small
        per_output = [_weighted_sums(slope * c, Z - centre) for c in coef.T]
        X = X - centre
        parts = [2.0 * gamma * (X * total[:, None] - sums) for total, sums in per_output]
    elif kernel.name in ("laplacian", "chi2"):
        parts = [_separable_sums(kernel, kernel_values(kernel, X, Z) * c, X, Z) for c in coef.T]
    elif kernel.name == "cosine":
        (units, length), (points, _) = _units(X), _units(Z)
        values = units @ points.T
        parts = [
            (points.T @ c - np.outer(values @ c, np.ones(X.shape[1])) * units) / length
            for c in coef.T
        ]
    else:
        slope = _slope_of_dot(kernel, X @ Z.T)
        parts = [(slope * c) @ Z for c in coef.T]
    return np.stack(parts, axis=2)


def _mixed_of_tile(
    kernel: Kernel, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]
) -> Array:
    a, b = pairs.T
    if kernel.name in RADIAL:
        gamma = np.broadcast_to(kernel.gamma, X.shape[1])
        curve = _curvature(str(kernel.name), _scaled_distances(X, Z, gamma))
        centre = Z.mean(axis=0)
        X, Z = X - centre, Z - centre
        parts = []
        for c in coef.T:
            U = curve * c
            total, sums = _weighted_sums(U, Z)
            value = X[:, a] * X[:, b] * total[:, None] + U @ (Z[:, a] * Z[:, b])
            value -= X[:, a] * sums[:, b] + X[:, b] * sums[:, a]
            parts.append(4.0 * gamma[a] * gamma[b] * value)
    elif kernel.name in ("laplacian", "chi2"):
        values = kernel_values(kernel, X, Z)
        slopes = {f: _log_slope(kernel, X, Z, f) for f in np.unique(pairs)}
        products = [values * slopes[i] * slopes[j] for i, j in pairs]
        return np.stack([product @ coef for product in products], axis=1)
    elif kernel.name == "cosine":
        (units, length), (points, _) = _units(X), _units(Z)
        both, square = units[:, a] * units[:, b], length**2
        parts = []
        for c in coef.T:
            w = points.T @ c
            value = 3.0 * both * (units @ w)[:, None] - units[:, b] * w[a] - units[:, a] * w[b]
            parts.append(value / square)
    else:
        curve = _curvature_of_dot(kernel, X @ Z.T)
        parts = [(curve * c) @ (Z[:, a] * Z[:, b]) for c in coef.T]
    return np.stack(parts, axis=2)


# ---------------------------------------------------------------------------- families


def _scaled_distances(X: Array, Z: Array, gamma: Array) -> Array:
    scale = np.sqrt(gamma)
    return np.asarray(cdist(X * scale, Z * scale, "sqeuclidean"))


def _weighted_sums(V: Array, Z: Array) -> tuple[Array, Array]:
    """Return sum_j V_j and sum_j V_j z_j."""
    return V.sum(axis=1), V @ Z


def _curvature(name: str, D: Array) -> Array:
    """Return d^2k/dD^2; 0 where it has a pole, whose product with (x_a - z_a)(x_b - z_b) is 0."""
    if name == "rbf":
        return np.exp(-D)
    r = np.sqrt(RADIAL[name] * D)
    decay = np.exp(-r)
    if name == "matern52":
        return (25.0 / 12.0) * decay
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = 2.25 * decay / r if name == "matern32" else decay * (1.0 + r) / (4.0 * r**3)
    return np.where(r > 0, curve, 0.0)


def kernel_values(kernel: Kernel, X: Array, Z: Array) -> Array:
    """Return k(x, z) of rows and points that are clipped already."""
    return np.asarray(Kernel(kernel.name, gamma=kernel.gamma).block(X, Z))


def _separable_sums(kernel: Kernel, V: Array, X: Array, Z: Array) -> Array:
    """Return -gamma_f sum_j V_j d(distance along f)/dx_f."""
    from leansvm.kernels._gradient_loops import chi2_sums, sign_sums

    out = np.empty(X.shape)
    loop = sign_sums if kernel.name == "laplacian" else chi2_sums
    loop(V, np.ascontiguousarray(X), np.ascontiguousarray(Z.T), out)
    return -np.asarray(kernel.gamma) * out


def _log_slope(kernel: Kernel, X: Array, Z: Array, feature: int) -> Array:
    """Return d log k / dx_f of all pairs."""
    x, z = X[:, feature, None], Z[:, feature]
    gamma = np.broadcast_to(kernel.gamma, X.shape[1])[feature]
    if kernel.name == "laplacian":
        return -gamma * np.sign(x - z)
    total = x + z
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (x - z) * (x + 3 * z) / total**2
    return -gamma * np.where(total > 0, slope, 1.0)


def _units(X: Array) -> tuple[Array, Array]:
    """Return rows of norm 1 and their lengths as a column; rows of zeros stay, with length 1."""
    length = np.linalg.norm(X, axis=1, keepdims=True)
    length[length == 0] = 1.0
    return X / length, length


def _slope_of_dot(kernel: Kernel, dot: Array) -> Array:
    if kernel.name == "linear":
        return np.ones_like(dot)
    inner = kernel.gamma * dot + kernel.coef0
    if kernel.name == "sigmoid":
        return kernel.gamma * (1.0 - np.tanh(inner) ** 2)
    if kernel.degree == 0:
        return np.zeros_like(dot)
    return kernel.degree * kernel.gamma * inner ** (kernel.degree - 1)


def _curvature_of_dot(kernel: Kernel, dot: Array) -> Array:
    if kernel.name == "linear" or (kernel.name == "poly" and kernel.degree in (0, 1)):
        return np.zeros_like(dot)
    inner = kernel.gamma * dot + kernel.coef0
    if kernel.name == "sigmoid":
        value = np.tanh(inner)
        return -2.0 * kernel.gamma**2 * value * (1.0 - value**2)
    factor = kernel.degree * (kernel.degree - 1) * kernel.gamma**2
    return factor * inner ** (kernel.degree - 2)
