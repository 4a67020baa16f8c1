"""The class `Kernel`: which kernel, its parameters, and blocks of its values.

`Kernel.block` is the hot spot of the library. `_radial` has the kernels of distances,
`_coordinates` those that need a loop over features, `_devices` both for other array libraries;
kernels of x'z, callables and precomputed matrices are here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import device_of, foreign_namespace, from_host
from leansvm._parallel import for_tiles
from leansvm.kernels import _devices
from leansvm.kernels._clip import check_bounds, clipped
from leansvm.kernels._coordinates import chi2_block, laplacian_block
from leansvm.kernels._fused import fused_times
from leansvm.kernels._gamma import ONE_OR_PER_FEATURE, check_length
from leansvm.kernels._radial import RADIAL, radial_block
from leansvm.linalg import dot_factor, dot_into, row_norms_squared, tile_rows

KERNELS = (
    "linear",
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "laplacian",
    "poly",
    "polynomial",
    "sigmoid",
    "chi2",
    "cosine",
    "precomputed",
)
_ADDITIVE = (
    "kernel='additive_chi2' is only conditionally positive definite, so that a fit with it may "
    "have no minimum: take kernel='chi2', its exponential."
)
# tiles run in threads; a user's function is called by one at a time
_user_code = threading.RLock()
_NOT_FINITE = "the callable kernel returned NaN or infinity."


class Kernel:
    """A kernel with its parameters resolved.

    Parameters
    ----------
    name : str or callable
        One of `leansvm.kernels.KERNELS`: "linear" x'z, "poly" or "polynomial"
        (gamma x'z + coef0)^degree, "sigmoid" tanh(gamma x'z + coef0), "cosine" x'z / (|x| |z|),
        "rbf" exp(-gamma |x-z|^2), "matern12" e^-r with r^2 = gamma |x-z|^2, "matern32"
        (1 + r) e^-r with r^2 = 3 gamma |x-z|^2, "matern52" (1 + r + r^2/3) e^-r with
        r^2 = 5 gamma |x-z|^2, "laplacian" exp(-gamma |x-z|_1), "chi2"
        exp(-gamma sum (x-z)^2 / (x+z)) for features >= 0, "precomputed".
        A callable is vectorised: ``f(X, Z)`` returns the matrix of all pairs.
    gamma : float or ndarray of shape (n_features,)
        With an array, "rbf" and the Matérn kernels take sum_f gamma_f (x_f - z_f)^2 for
        gamma |x-z|^2, and "laplacian" takes sum_f gamma_f |x_f - z_f|.
    degree, coef0 : float
        Parameters of "poly" and "sigmoid".
    clip : tuple of two ndarrays of shape (n_features,), optional
        Lower and upper bounds (may be infinite) between which every feature of rows and points is
        moved first; for kernels with a name that is not "precomputed".

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
        gamma: Any = 1.0,
        degree: float = 3,
        coef0: float = 0.0,
        clip: Any = None,
    ) -> None:
        if name == "additive_chi2":
            raise ValueError(_ADDITIVE)
        if not callable(name) and name not in KERNELS:
            raise ValueError(
                f"kernel must be one of {', '.join(KERNELS)} or a callable, got {name!r}."
            )
        if clip is not None and (callable(name) or name == "precomputed"):
            raise ValueError("clip needs a kernel with a name that is not 'precomputed'.")
        self.name = "poly" if name == "polynomial" else name
        self.gamma: Any = gamma if np.ndim(gamma) == 0 else np.array(gamma, dtype=np.float64)
        self.degree = degree
        self.coef0 = coef0
        self.clip = None if clip is None else check_bounds(clip)
        # rows are rows of a kernel matrix, points are column numbers
        self.precomputed = name == "precomputed"
        # k(x, x) is exactly 1 for every x
        self.has_unit_diagonal = self.name in (*ONE_OR_PER_FEATURE, "chi2")

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
        if isinstance(self.gamma, np.ndarray):
            check_length(self.gamma, X.shape[1])
        xp = foreign_namespace(X)
        if self.clip is not None:
            Z = clipped(Z, self.clip)
        if xp is not None:
            return self._generic_block(xp, X if self.clip is None else clipped(X, self.clip), Z)
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
        elif self.clip is None and self.name in RADIAL:
            radial_block(self.name, X, Z, self.gamma, out)
        elif self.clip is None:
            self._named_block(X, Z, out)
        else:
            # copies of some megabytes, each still cut into tiles for all threads
            step = max(tile_rows(X.shape[1]), 8 * tile_rows(out.shape[1]))
            for start in range(0, len(out), step):
                part = slice(start, start + step)
                self._named_block(clipped(X[part], self.clip), Z, out[part])
        return out

    def _named_block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write the block of a kernel that has a name, for rows on the host."""
        if self.name in RADIAL:
            radial_block(str(self.name), X, Z, self.gamma, out)
        elif self.name == "laplacian":
            laplacian_block(X, Z, self.gamma, out)
        elif self.name == "chi2":
            chi2_block(X, Z, self.gamma, out)
        else:
            self._dot_block(X, Z, out)

    def fused_times(self, X: Any, V: Any) -> Any | None:
        """Return k(X, X) V of rows on a device in one pass; None where there is no such form."""
        if callable(self.name) or self.precomputed:
            return None
        X = X if self.clip is None else clipped(X, self.clip)
        return fused_times(self.name, X, self.gamma, V)

    def columns(self, X: Any) -> Callable[[int], Any]:
        """Return the function t -> k(X, x_t) for rows of another array library.

        What the columns share is computed once: for callers that want one after the other.
        """
        if self.clip is not None:
            X = clipped(X, self.clip)
        product = None
        if self.name in RADIAL and foreign_namespace(X) is not None:
            check_length(self.gamma, X.shape[1])
            product = _devices.radial_product(self.name, X, X, self.gamma)

        def column(t: int) -> Any:
            values = None if product is None else product.column(t)
            return self.block(X, X[t : t + 1, :])[:, 0] if values is None else values

        return column

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return k(x_i, x_i) of every row; ``start`` is the number of the first one."""
        xp = foreign_namespace(X)
        n = X.shape[0]
        if self.has_unit_diagonal:
            return np.ones(n, _float_type(X)) if xp is None else _devices.ones(X)
        if self.precomputed:
            if xp is not None:
                return xp.linalg.diagonal(X[:, start : start + n])
            return np.asarray(X.diagonal(start))[:n]
        if callable(self.name):
            return _callable_diag(self.name, X) if xp is None else _foreign_diag(xp, self.name, X)
        if self.clip is not None:
            X = clipped(X, self.clip)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = row_norms_squared(X) if xp is None else xp.sum(X * X, axis=1)
            dtype = _float_type(X) if xp is None else X.dtype
            values = squares > 0 if self.name == "cosine" else self._of_dot(xp or np, squares)
            values = (xp or np).astype(values, dtype, copy=False)
            self._check_finite(xp or np, values)
        return values

    def _of_dot(self, xp: Any, dot: Any) -> Any:
        """Turn x'z into the value of a kernel that depends on it alone."""
        if self.name in ("linear", "cosine"):
            return dot
        if self.name == "poly":
            return (self.gamma * dot + self.coef0) ** self.degree
        return xp.tanh(self.gamma * dot + self.coef0)

    def _dot_block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        right = dot_factor(self._factor(Z), out.dtype)

        def fill(start: int, stop: int) -> None:
            rows = out[start:stop]
            with np.errstate(over="ignore", invalid="ignore"):
                dot_into(self._factor(X[start:stop]), right, rows)
                if self.name in ("poly", "sigmoid"):
                    rows *= self.gamma
                    rows += self.coef0
                if self.name == "poly":
                    np.power(rows, self.degree, out=rows)
                elif self.name == "sigmoid":
                    np.tanh(rows, out=rows)
                self._check_finite(np, rows)

        for_tiles(out.shape[0], tile_rows(out.shape[1]), fill)

    def _factor(self, X: Any) -> Any:
        """Return the rows whose products the kernel takes: those of norm 1 for "cosine"."""
        return _unit_rows(X) if self.name == "cosine" else X

    def _generic_block(self, xp: Any, X: Any, Z: Any) -> Any:
        """Evaluate the block with the array API standard alone, where the data is."""
        if X.shape[0] == 0 or Z.shape[0] == 0:
            return xp.zeros((X.shape[0], Z.shape[0]), dtype=X.dtype, device=device_of(X))
        if self.precomputed:
            return xp.take(X, from_host(Z, X, dtype=xp.int64), axis=1)
        if callable(self.name):
            values = self.name(X, Z)
            _check_shape(tuple(values.shape), (X.shape[0], Z.shape[0]))
            if not bool(xp.all(xp.isfinite(values))):
                raise ValueError(_NOT_FINITE)
            return values
        if self.name in RADIAL:
            return _devices.radial_block(self.name, X, Z, self.gamma)
        if self.name == "laplacian":
            return _devices.laplacian_block(X, Z, self.gamma)
        if self.name == "chi2":
            return _devices.chi2_block(X, Z, self.gamma)
        if self.name == "cosine":
            X, Z = _devices.unit_rows(X), _devices.unit_rows(Z)
        values = self._of_dot(xp, X @ Z.T)
        self._check_finite(xp, values)
        return values

    def _check_finite(self, xp: Any, values: Any) -> None:
        """Refuse products that overflow and powers that do not exist; one look at a sum first."""
        if not np.isfinite(float(xp.sum(values))) and not bool(xp.all(xp.isfinite(values))):
            raise ValueError(
                f"kernel={self.name!r} gives values that are not finite: scale X, or change gamma, "
                f"degree or coef0."
            )


def _take(X: Any, columns: Any, out: NDArray[Any]) -> None:
    out[...] = X[:, columns]


def _float_type(X: Any) -> Any:
    return np.float32 if X.dtype == np.float32 else np.float64


def _unit_rows(X: Any) -> Any:
    """Return rows of norm 1, in float64; rows of zeros stay so."""
    norms = np.sqrt(row_norms_squared(X))
    norms[norms == 0] = 1.0
    if sparse.issparse(X):
        return sparse.diags_array(1.0 / norms, format="csr") @ X
    return X / norms[:, None]


def _foreign_diag(xp: Any, function: Callable[..., Any], X: Any, tile: int = 32) -> Any:
    n = X.shape[0]
    parts = [X[i : min(i + tile, n), :] for i in range(0, n, tile)]
    return xp.concat([xp.linalg.diagonal(function(rows, rows)) for rows in parts])


def _callable_diag(function: Callable[..., Any], X: Any, tile: int = 32) -> NDArray[Any]:
    """Diagonal of a callable kernel from small square tiles: few calls, 32 values wasted a row."""
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
