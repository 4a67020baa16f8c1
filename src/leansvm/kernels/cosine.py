"""The cosine kernel x'z / (|x| |z|); rows of zeros give 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import foreign_namespace
from leansvm.kernels._function import Array, Expression, float_type
from leansvm.kernels.dot import DotKernel
from leansvm.linalg import row_norms_squared

_MODERATE = 400  # powers of two whose squares, in float64, neither overflow nor vanish


class Cosine(DotKernel):
    """The product of rows of norm 1."""

    name = "cosine"

    def factor(self, X: Any) -> Any:
        """Return rows of norm 1; rows of zeros stay so."""
        xp = foreign_namespace(X)
        if xp is None:
            return _units(X)[0]
        largest = xp.max(xp.abs(X), axis=1, keepdims=True)
        X = X / xp.where(largest == 0, xp.ones_like(largest), largest)
        norms = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
        return X / xp.where(norms == 0, xp.ones_like(norms), norms)

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return 1, or 0 for a row of zeros."""
        xp = foreign_namespace(X)
        if xp is None:
            return (_largest(X) > 0).astype(float_type(X))
        return xp.astype(xp.any(X != 0, axis=1), X.dtype)

    def row_form(self, points: Array) -> None:
        """Return None: a block of one row is as fast."""

    def expression(self, points: Array, coef: Array) -> Expression:
        """Return the product of u / |u| with points of norm 1."""
        return Expression("unit-dot", "identity", _units(points)[0], coef)

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return (w - u u'w) / |x| with u = x / |x| and w = sum_j c_j z_j / |z_j|."""
        units, length = _units(X)
        W = coef.T @ _units(Z)[0]
        return np.stack([(w - (units @ w)[:, None] * units) / length for w in W], axis=2)

    def mixed_derivatives(self, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]) -> Array:
        """Return (3 u_a u_b u'w - u_b w_a - u_a w_b) / |x|^2."""
        a, b = pairs.T
        units, length = _units(X)
        both, parts = units[:, a] * units[:, b], []
        for w in coef.T @ _units(Z)[0]:
            value = 3.0 * both * (units @ w)[:, None] - units[:, b] * w[a] - units[:, a] * w[b]
            parts.append(value / length**2)
        return np.stack(parts, axis=2)

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array:
        """Return sums over rows of x'w / |x|, whose norm changes with the feature."""
        w = _units(Z)[0].T @ coef
        without = np.delete(X, f, axis=1)
        rest = without @ np.delete(w, f, axis=0)
        norms = np.sqrt(np.square(without).sum(axis=1)[:, None] + grid**2)
        inverse = np.where(norms > 0, 1.0 / np.where(norms > 0, norms, 1.0), 0.0)
        return np.asarray(inverse.T @ rest + np.outer(grid * inverse.sum(axis=0), w[f]))


def _units(X: Any) -> tuple[Any, Array]:
    """Return rows of norm 1 and their lengths as a column; rows of zeros stay, with length 1."""
    X, exponent = _moderate(X)
    length = np.sqrt(row_norms_squared(X))[:, None]
    length[length == 0] = 1.0
    if sparse.issparse(X):
        return sparse.diags_array(1.0 / length[:, 0], format="csr") @ X, length
    return X / length, np.ldexp(length, exponent[:, None])


def _largest(X: Any) -> NDArray[Any]:
    """Return the largest |x_f| of every row."""
    if sparse.issparse(X):
        return np.asarray(abs(X).max(axis=1).toarray()).ravel()
    return np.asarray(np.abs(X).max(axis=1, initial=0.0))


def _moderate(X: Any) -> tuple[Any, NDArray[np.intc]]:
    """Return rows over powers of two, and these: 0 but where squares would overflow or vanish."""
    exponent = np.frexp(_largest(X))[1]
    exponent[np.abs(exponent) < _MODERATE] = 0
    if not exponent.any():
        return X, exponent
    if not sparse.issparse(X):
        return np.ldexp(X, -exponent[:, None]), exponent
    X = X.tocsr(copy=True)
    X.data = np.ldexp(X.data, -np.repeat(exponent, np.diff(X.indptr)))
    return X, exponent
