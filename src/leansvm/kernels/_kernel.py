"""The class `Kernel`: which kernel, its parameters, and blocks of its values.

It checks parameters, moves rows between the bounds of ``clip`` and makes room for results. Every
kernel is a class in a file for its family: to add one, write the class and list it here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import device_of, foreign_namespace, to_host
from leansvm.kernels._columns import clipped_row
from leansvm.kernels._function import DistanceKernel, Gamma, KernelFunction, RowForm, float_type
from leansvm.kernels._radial import Gaussian
from leansvm.kernels.by_feature import Chi2, Laplacian
from leansvm.kernels.dot import Cosine, Linear, Poly, Sigmoid
from leansvm.kernels.given import Precomputed, UserFunction
from leansvm.kernels.matern import Matern12, Matern32, Matern52
from leansvm.kernels.mixture import Mixture
from leansvm.linalg import Bounds, check_bounds, clipped, dense_rows64, tile_rows

_CLASSES: tuple[type[KernelFunction], ...] = (
    *(Linear, Gaussian, Matern12, Matern32, Matern52, Laplacian),
    *(Poly, Sigmoid, Chi2, Cosine, Precomputed),
)
FUNCTIONS = {name: kind for kind in _CLASSES for name in (kind.name, *kind.aliases)}
KERNELS = tuple(FUNCTIONS)
PER_FEATURE = tuple(n for n, kind in FUNCTIONS.items() if kind.gamma_is == "one or per feature")
WITH_GAMMA = tuple(n for n, kind in FUNCTIONS.items() if kind.gamma_is != "unused")

_ADDITIVE = (
    "kernel='additive_chi2' is only conditionally positive definite, so a fit with it may have no "
    "minimum: use kernel='chi2', its exponential."
)
_LARGEST_SCALE = 1e30  # of one row: beyond it squares may overflow


class Kernel:
    """A kernel with its parameters resolved.

    Parameters
    ----------
    name : str, Mixture or callable
        One of `leansvm.kernels.KERNELS`: "linear" x'z, "poly" or "polynomial"
        (gamma x'z + coef0)^degree, "sigmoid" tanh(gamma x'z + coef0), "cosine" x'z / (|x| |z|),
        "rbf" exp(-gamma |x-z|^2), "matern12" e^-r with r^2 = gamma |x-z|^2, "matern32"
        (1 + r) e^-r with r^2 = 3 gamma |x-z|^2, "matern52" (1 + r + r^2/3) e^-r with
        r^2 = 5 gamma |x-z|^2, "laplacian" exp(-gamma |x-z|_1), "chi2"
        exp(-gamma sum (x-z)^2 / (x+z)) for features >= 0, "precomputed".
        A callable is vectorised: ``f(X, Z)`` returns the matrix of all pairs. A `Mixture` has its
        own numbers, so that none of the others are used.
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
        name: str | Mixture | Callable[..., Any] = "rbf",
        *,
        gamma: Any = 1.0,
        degree: float = 3,
        coef0: float = 0.0,
        clip: Any = None,
    ) -> None:
        if name == "additive_chi2":
            raise ValueError(_ADDITIVE)
        self._mixture = mixture = name if isinstance(name, Mixture) else None
        if mixture is not None:  # has its own numbers
            gamma, clip = 1.0, None
        elif not callable(name) and name not in KERNELS:
            raise ValueError(
                f"kernel must be one of {', '.join(KERNELS)} or a callable, got {name!r}."
            )
        if clip is not None and (callable(name) or name == "precomputed"):
            raise ValueError("clip needs a kernel with a name that is not 'precomputed'.")
        self.gamma: Any = gamma if np.ndim(gamma) == 0 else np.array(gamma, dtype=np.float64)
        self.degree, self.coef0 = degree, coef0
        self.clip = None if clip is None else check_bounds(clip)
        # the kernel's own class, which knows its formulas, with these parameters
        self.function: KernelFunction
        if isinstance(name, Mixture):
            self.function = name
        elif callable(name):
            self.function = UserFunction(name)
        else:
            self.function = FUNCTIONS[name](self.gamma, degree, coef0)
        self.name = name if callable(name) else self.function.name
        # what ``kernel`` of an estimator takes, and ``gamma_`` of a fitted model
        self.given: Any = self.name if mixture is None else mixture
        self.scales: Any = self.gamma if mixture is None else mixture.gamma_by_part
        # rows are rows of a kernel matrix, points are column numbers
        self.precomputed = self.name == "precomputed"
        self.has_unit_diagonal = self.function.has_unit_diagonal

    def __getstate__(self) -> dict[str, Any]:
        made = "function", "given", "scales"  # from the rest
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the kernel as its constructor does, with all checks: files may hold anything."""
        numbers = {key: state[key] for key in ("gamma", "degree", "coef0", "clip")}
        vars(self).update(vars(Kernel(state.get("_mixture") or state["name"], **numbers)))

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
            Type of the result: by default that of ``X`` (float64 unless X is float32). Arrays of
            other libraries are worked on in this type.
        """
        if isinstance(self.gamma, np.ndarray) and len(self.gamma) != X.shape[1]:
            refuse_length(self.gamma, X.shape[1])
        xp, width = None if isinstance(X, np.ndarray) else foreign_namespace(X), Z.shape[0]
        if xp is not None and dtype is not None:
            kind = getattr(xp, np.dtype(dtype).name)
            X = xp.astype(X, kind, copy=False)
            Z = Z if self.precomputed else xp.astype(Z, kind, copy=False)
        if self.clip is not None:
            Z = clipped(Z, self.clip)
        if xp is not None:
            if X.shape[0] == 0 or width == 0:
                return xp.zeros((X.shape[0], width), dtype=X.dtype, device=device_of(X))
            return self.function.device_block(xp, self._clipped(X), Z)
        if out is None:
            out = np.empty((X.shape[0], width), float_type(X) if dtype is None else dtype)
        if out.size == 0:
            return out
        function, step = self.function, len(out)
        if self.clip is not None:  # copies of some megabytes, each cut into tiles for all threads
            step = 8 * tile_rows(max(X.shape[1], width))
        for start in range(0, len(out), step):
            rows = X if self.clip is None else clipped(X[start : start + step], self.clip)
            function.block(rows, Z, out[start : start + step])
        return out

    def fused_times(self, X: Any, V: Any) -> Any | None:
        """Return k(X, X) V of rows on a device in one pass; None if there is no such form."""
        return self.function.fused_times(self._clipped(X), V)

    def columns(self, X: Any) -> Callable[[int], Any]:
        """Return the function t -> k(X, x_t), for callers that want one after the other."""
        xp = foreign_namespace(X)
        if xp is None:
            return lambda t: self.block(X, X[t : t + 1, :])[:, 0]
        if isinstance(self.gamma, np.ndarray) and len(self.gamma) != X.shape[1]:
            refuse_length(self.gamma, X.shape[1])
        return self.function.device_columns(xp, self._clipped(X))

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return k(x_i, x_i) of every row; ``start`` is the number of the first one."""
        return self.function.diag(X if self.has_unit_diagonal else self._clipped(X), start)

    def change_to_bounds(self, X: Any) -> NDArray[np.float64]:
        """Return the variance of f(x) - f(z), z being x moved between the bounds.

        f is a random function whose covariance is this kernel without its bounds. 0 inside them.
        """
        if self._mixture is not None:
            return self._mixture.change_to_bounds(X)
        if self.clip is None or not isinstance(self.function, DistanceKernel):
            return np.zeros(X.shape[0])
        rows = dense_rows64(X)
        return self.function.change(rows, clipped(rows, self.clip))

    def row_form(self, points: Any) -> RowForm | None:
        """Return the function x -> k(x, z_j) of every point; None if a block is as fast.

        Parts that depend only on the points are computed once. The function does not change, so
        threads may share it. It does not exist for callables, "precomputed", "cosine" and "chi2",
        for CSR points, and for scales at which squares may overflow.
        """
        if sparse.issparse(points) or callable(self.name) or self.precomputed:
            return None
        if np.max(self.gamma, initial=0.0) > _LARGEST_SCALE:
            return None
        form = self.function.row_form(self._clipped(np.asarray(points, dtype=np.float64)))
        return form if form is None or self.clip is None else partial(_of_clipped, self.clip, form)

    def _clipped(self, X: Any) -> Any:
        return X if self.clip is None else clipped(X, self.clip)


def _of_clipped(bounds: Bounds, form: RowForm, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return form(clipped_row(x, bounds))


def resolve_gamma(
    gamma: Any, kernel: str | Callable[..., Any], n_features: int, variance: Callable[[], float]
) -> Gamma:
    """Return ``gamma`` as a number or as an array with one value for each feature.

    "scale" is 1 / (d * variance), "auto" is 1 / d.

    Parameters
    ----------
    gamma : {"scale", "auto"}, float or array-like of shape (n_features,)
        As in `sklearn.svm.SVC`; one value for each feature for "rbf", "laplacian" and the Matérn
        kernels.
    kernel : str or callable
        Kernels without a gamma get 1.0 and do not look at the data.
    n_features : int
        Number of columns d of the data.
    variance : callable
        Returns the (weighted) variance of all entries of the data; called for "scale" only.

    Examples
    --------
    >>> from leansvm.kernels import resolve_gamma
    >>> resolve_gamma("scale", "rbf", 4, lambda: 0.5)
    0.5
    >>> resolve_gamma([1, 0.5], "matern32", 2, lambda: 0.5)
    array([1. , 0.5])
    """
    if callable(kernel) or kernel not in WITH_GAMMA:
        return 1.0
    if isinstance(gamma, str):
        if gamma == "auto":
            return 1.0 / n_features
        if gamma != "scale":
            raise ValueError(
                f"gamma must be 'scale', 'auto', a number >= 0 or one for each feature, got "
                f"{gamma!r}."
            )
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                spread = variance()
        except OverflowError:
            spread = np.inf
        scale = 1.0 / (n_features * spread) if spread > 0 else 1.0
        if not (np.isfinite(spread) and np.isfinite(scale)):
            raise ValueError(
                "gamma='scale': the variance of X is too large or too small to divide by. Scale X, "
                "or give gamma as a number."
            )
        return scale
    if isinstance(gamma, float | int) and 0 <= gamma < np.inf:
        return float(gamma)
    values = _numbers(gamma)
    if values.ndim == 0:
        return float(values)
    if kernel not in PER_FEATURE:
        raise ValueError(
            f"kernel={kernel!r} takes one number as gamma, got {len(values)} values; "
            f"{', '.join(PER_FEATURE)} take one value for each feature."
        )
    if len(values) != n_features:
        refuse_length(values, n_features)
    return values


def refuse_length(gamma: Any, n_features: int) -> None:
    """Raise the error for a gamma whose length is not the number of features."""
    raise ValueError(f"gamma has {len(gamma)} values, X has {n_features} features.")


def _numbers(gamma: Any) -> NDArray[np.float64]:
    try:
        values = np.array(to_host(gamma), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"gamma must be a number or an array of numbers, got {gamma!r}."
        ) from error
    if values.ndim > 1:
        raise ValueError(
            f"gamma must be a number or one number for each feature, got an array of shape "
            f"{values.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        first = int(wrong[0])
        where = f" for feature {first}" if values.ndim else ""
        raise ValueError(
            f"gamma must be finite and >= 0, got {float(values.ravel()[first])!r}{where}."
        )
    return values
