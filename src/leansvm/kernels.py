"""Kernels k(x, z): named ones, callables and precomputed matrices behind one small class.

The only place that knows ``gamma``. `Kernel.block` is the hot spot of the library: the Gaussian
kernel is one augmented GEMM and one exp in place (`leansvm.linalg.gaussian_block`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from leansvm._accelerated import exp_in_place
from leansvm._array_api import device_of, foreign_namespace, from_host
from leansvm._parallel import for_tiles
from leansvm.linalg import (
    cancellation_is_small,
    canonical_csr,
    dot_factor,
    dot_into,
    gaussian_block,
    row_norms_squared,
    tile_rows,
)

KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed")
# tiles run in threads; a user's function is called by one thread at a time
_user_code = threading.RLock()
_NOT_FINITE = "the callable kernel returned NaN or infinity."
_USES_GAMMA = ("rbf", "poly", "sigmoid", "laplacian")


def resolve_gamma(
    gamma: float | str,
    kernel: str | Callable[..., Any],
    n_features: int,
    variance: Callable[[], float],
) -> float:
    """Turn ``gamma`` into a number: "scale" is 1 / (d * variance), "auto" is 1 / d.

    Parameters
    ----------
    gamma : {"scale", "auto"} or float
        As in `sklearn.svm.SVC`.
    kernel : str or callable
        Kernels without a gamma get 1.0 and do not look at the data.
    n_features : int
        Number of columns d of the data.
    variance : callable
        Returns the (weighted) variance of all entries of the data; called for "scale" only.
    """
    if callable(kernel) or kernel not in _USES_GAMMA:
        return 1.0
    if gamma == "scale":
        spread = variance()
        return 1.0 / (n_features * spread) if spread > 0 else 1.0
    if gamma == "auto":
        return 1.0 / n_features
    if isinstance(gamma, str) or not np.isfinite(gamma) or gamma < 0:
        raise ValueError(f"gamma must be 'scale', 'auto' or a number >= 0, got {gamma!r}.")
    return float(gamma)


class Kernel:
    """A kernel with its parameters resolved.

    Parameters
    ----------
    name : {"linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed"} or callable
        A callable is vectorised: ``f(X, Z)`` returns the matrix of all pairs.
    gamma, degree, coef0 : float
        rbf exp(-gamma |x-z|^2), laplacian exp(-gamma |x-z|_1), poly (gamma x'z + coef0)^degree,
        sigmoid tanh(gamma x'z + coef0).

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.kernels import Kernel
    >>> Kernel("rbf", gamma=0.5).block(np.array([[0.0], [1.0]]), np.array([[0.0]]))
    array([[1.        ],
           [0.60653066]])
    """

    def __init__(
        self,
        name: str | Callable[..., Any] = "rbf",
        *,
        gamma: float = 1.0,
        degree: float = 3,
        coef0: float = 0.0,
    ) -> None:
        if not callable(name) and name not in KERNELS:
            raise ValueError(
                f"kernel must be one of {', '.join(KERNELS)} or a callable, got {name!r}."
            )
        self.name = name
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    @property
    def precomputed(self) -> bool:
        """Whether rows are rows of a kernel matrix and points are column numbers."""
        return self.name == "precomputed"

    def points(self, rows: Any, indices: NDArray[np.intp]) -> Any:
        """Return what `block` takes as points: the rows themselves, or column numbers."""
        return indices if self.precomputed else rows

    def block(self, X: Any, Z: Any, out: NDArray[Any] | None = None, dtype: Any = None) -> Any:
        """Evaluate the kernel for all rows of ``X`` against all points of ``Z``.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, d)
            Rows; for "precomputed" rows of the kernel matrix.
        Z : array or CSR matrix of shape (r, d)
            Points; for "precomputed" the r column numbers.
        out : ndarray of shape (n, r), optional
            Where to write (NumPy and CSR input only).
        dtype : dtype, optional
            Type of the result: by default that of ``X`` (float64 unless X is float32).
        """
        xp = foreign_namespace(X)
        if xp is not None:
            return self._generic_block(xp, X, Z)
        if out is None:
            width = len(Z) if self.precomputed else Z.shape[0]
            if dtype is None:
                dtype = _float_type(X)
            out = np.empty((X.shape[0], width), dtype)
        if self.precomputed:
            for_tiles(len(out), tile_rows(out.shape[1]), lambda a, b: _take(X[a:b], Z, out[a:b]))
        elif out.size == 0:
            return out
        elif callable(self.name):
            tile = tile_rows(out.shape[1])
            for start in range(0, len(out), tile):
                rows = out[start : start + tile]
                with _user_code:
                    values = self.name(X[start : start + tile], Z)
                rows[...] = _checked(values, rows.shape)
        elif self.name == "rbf":
            gaussian_block(X, Z, self.gamma, out)
        elif self.name == "laplacian":
            _laplacian_block(X, Z, self.gamma, out)
        else:
            self._dot_block(X, Z, out)
        return out

    def columns(self, X: Any) -> Callable[[int], Any]:
        """Return the function t -> k(X, x_t) for rows of another array library.

        What the columns share is computed once: for callers that ask for one column after another.
        """
        xp = foreign_namespace(X)
        factors = None
        if xp is not None and self.name == "rbf":
            gamma = min(self.gamma, float(xp.finfo(X.dtype).max) ** 0.5)
            factors = _exponent_factors(xp, X, X, gamma)
        if factors is None:
            return lambda t: self.block(X, X[t : t + 1, :])[:, 0]
        left, right = factors
        return lambda t: exp_in_place(left @ right[t, :])

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return k(x_i, x_i) of every row; ``start`` is the number of the first one."""
        xp = foreign_namespace(X)
        n = X.shape[0]
        if self.name in ("rbf", "laplacian"):
            if xp is not None:
                return xp.ones(n, dtype=X.dtype, device=device_of(X))
            return np.ones(n, _float_type(X))
        if self.precomputed:
            if xp is not None:
                return xp.linalg.diagonal(X[:, start : start + n])
            return np.asarray(X.diagonal(start))[:n]
        if callable(self.name):
            return _callable_diag(self.name, X) if xp is None else _foreign_diag(xp, self.name, X)
        if xp is not None:
            return self._of_dot(xp, xp.sum(X * X, axis=1))
        return self._of_dot(np, row_norms_squared(X)).astype(_float_type(X))

    def _of_dot(self, xp: Any, dot: Any) -> Any:
        """Turn x'z into the value of a kernel that depends on it alone."""
        if self.name == "linear":
            return dot
        if self.name == "poly":
            return (self.gamma * dot + self.coef0) ** self.degree
        return xp.tanh(self.gamma * dot + self.coef0)

    def _dot_block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        right = dot_factor(Z, out.dtype)

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop]
            dot_into(X[start:stop], right, rows)
            if self.name == "linear":
                return
            rows *= self.gamma
            rows += self.coef0
            np.power(rows, self.degree, out=rows) if self.name == "poly" else np.tanh(
                rows, out=rows
            )

        for_tiles(out.shape[0], tile_rows(out.shape[1]), fill)

    def _generic_block(self, xp: Any, X: Any, Z: Any) -> Any:
        """Evaluate the block with the array API standard alone, where the data is."""
        if X.shape[0] == 0 or Z.shape[0] == 0:
            return xp.zeros((X.shape[0], Z.shape[0]), dtype=X.dtype, device=device_of(X))
        gamma = min(self.gamma, float(xp.finfo(X.dtype).max) ** 0.5)  # no overflow in products
        if self.precomputed:
            return xp.take(X, from_host(Z, X, dtype=xp.int64), axis=1)
        if callable(self.name):
            values = self.name(X, Z)
            _check_shape(tuple(values.shape), (X.shape[0], Z.shape[0]))
            if not bool(xp.all(xp.isfinite(values))):
                raise ValueError(_NOT_FINITE)
            return values
        if self.name == "laplacian":
            return xp.exp(-gamma * _sum_of_differences(xp, X, Z, xp.abs))
        if self.name == "rbf":
            return _generic_gaussian(xp, X, Z, gamma)
        return self._of_dot(xp, X @ Z.T)


def _generic_gaussian(xp: Any, X: Any, Z: Any, gamma: float) -> Any:
    """`leansvm.linalg.gaussian_block` where the data is: one product, one exp."""
    factors = _exponent_factors(xp, X, Z, gamma)
    if factors is None:
        return xp.exp(-gamma * _sum_of_differences(xp, X, Z, xp.square))
    left, right = factors
    return exp_in_place(right @ left.T).T  # the values of one point are contiguous in memory


def _exponent_factors(xp: Any, X: Any, Z: Any, gamma: float) -> tuple[Any, Any] | None:
    """Return [x, |x|^2, 1] and [2 gamma z, -gamma, -gamma |z|^2], centred at the mean of Z.

    None where their product would lose too much to cancellation.
    """
    centre = xp.mean(Z, axis=0, keepdims=True)
    Xc, Zc = X - centre, Z - centre
    norms = xp.sum(Zc * Zc, axis=1, keepdims=True)
    if not cancellation_is_small(gamma * float(xp.max(norms)), xp.finfo(X.dtype).eps):
        return None
    left = xp.concat([Xc, xp.sum(Xc * Xc, axis=1, keepdims=True), xp.ones_like(Xc[:, :1])], axis=1)
    return left, xp.concat([2 * gamma * Zc, xp.full_like(norms, -gamma), -gamma * norms], axis=1)


def _take(X: Any, columns: Any, out: NDArray[Any]) -> None:
    out[...] = X[:, columns]


def _canonical64(X: Any) -> Any:
    """Return CSR as scikit-learn's compiled code takes it: float64, int32, no duplicates."""
    result = canonical_csr(sparse.csr_matrix(X, dtype=np.float64, copy=True))
    if result.nnz < np.iinfo(np.int32).max:
        result.indices = result.indices.astype(np.int32)
        result.indptr = result.indptr.astype(np.int32)
    return result


def _sum_of_differences(xp: Any, X: Any, Z: Any, function: Callable[[Any], Any]) -> Any:
    """Return the sum over features of function(x - z), for all pairs."""
    total = xp.zeros((X.shape[0], Z.shape[0]), dtype=X.dtype, device=device_of(X))
    for j in range(X.shape[1]):
        total = total + function(X[:, j][:, None] - Z[:, j][None, :])
    return total


def _float_type(X: Any) -> Any:
    return np.float32 if X.dtype == np.float32 else np.float64


def _laplacian_block(X: Any, Z: Any, gamma: float, out: NDArray[Any]) -> None:
    both_sparse = sparse.issparse(X) or sparse.issparse(Z)
    points = _canonical64(Z) if both_sparse else np.asarray(Z)

    def fill(start: int, stop: int) -> None:
        rows = X[start:stop]
        if both_sparse:  # scikit-learn's does not make them dense
            distance = manhattan_distances(_canonical64(rows), points)
        else:
            distance = cdist(rows, points, "cityblock")
        with np.errstate(over="ignore", under="ignore"):
            distance *= -gamma
            np.exp(distance, out=distance)
            out[start:stop] = distance

    for_tiles(out.shape[0], tile_rows(max(out.shape[1], X.shape[1])), fill)


def _foreign_diag(xp: Any, function: Callable[..., Any], X: Any, tile: int = 32) -> Any:
    n = X.shape[0]
    parts = [X[i : min(i + tile, n), :] for i in range(0, n, tile)]
    return xp.concat([xp.linalg.diagonal(function(rows, rows)) for rows in parts])


def _callable_diag(function: Callable[..., Any], X: Any, tile: int = 32) -> NDArray[Any]:
    """Diagonal of a callable kernel from small square tiles: 31 unused values per row."""
    n = X.shape[0]
    result = np.empty(n, _float_type(X))
    for start in range(0, n, tile):
        rows = X[start : start + tile]
        square = (rows.shape[0], rows.shape[0])
        with _user_code:
            values = function(rows, rows)
        result[start : start + tile] = _checked(values, square).diagonal()
    return result


def _checked(values: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    values = np.asarray(values)
    _check_shape(values.shape, shape)
    if not np.isfinite(values).all():
        raise ValueError(_NOT_FINITE)
    return values


def _check_shape(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(
            f"a callable kernel must be vectorised, f(X, Z) -> (len(X), len(Z)) values: expected "
            f"shape {expected}, got {shape}."
        )
