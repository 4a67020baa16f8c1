"""Kernels whose values come from the user: a precomputed matrix, or a function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, like_rows
from leansvm._parallel import for_tiles
from leansvm.kernels._function import Array, Expression, KernelFunction, float_type
from leansvm.linalg import tile_rows

_SQUARE = 32  # rows of the small square blocks that give a callable's diagonal
# tiles run in threads, but only one thread at a time calls a user's function
_user_code = threading.RLock()


class Precomputed(KernelFunction):
    """Rows are rows of a kernel matrix, points are numbers of its columns."""

    name = "precomputed"

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        def fill(start: int, stop: int) -> None:
            out[start:stop] = X[start:stop][:, Z]

        for_tiles(len(out), tile_rows(out.shape[1]), fill)

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        return xp.take(X, like_rows(Z, X, dtype=xp.int64), axis=1)

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return entries (i, start + i)."""
        xp, n = foreign_namespace(X), X.shape[0]
        if xp is not None:
            return xp.linalg.diagonal(X[:, start : start + n])
        return np.asarray(X.diagonal(start))[:n]

    def expression(self, points: Array, coef: Array) -> Expression:
        raise ValueError(
            "kernel='precomputed' cannot be exported: such a model holds no points, only columns "
            "of a kernel matrix. Fit it on the rows, with the name of a kernel (kernel='rbf')."
        )


class UserFunction(KernelFunction):
    """A vectorised function ``f(X, Z)`` that returns the values of all pairs."""

    name = "callable"

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        tile = tile_rows(out.shape[1])
        for start in range(0, len(out), tile):
            out[start : start + tile] = self._checked(np, X[start : start + tile], Z)

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        return self._checked(xp, X, Z)

    def diag(self, X: Any, start: int = 0) -> Any:
        """Return the diagonals of small square blocks: few calls, 32 values wasted a row."""
        xp = foreign_namespace(X)
        parts = [X[i : min(i + _SQUARE, X.shape[0]), ...] for i in range(0, X.shape[0], _SQUARE)]
        if xp is not None:
            return xp.concat([xp.linalg.diagonal(self.function(rows, rows)) for rows in parts])
        diagonals = [self._checked(np, rows, rows).diagonal() for rows in parts]
        return np.concatenate([np.empty(0), *diagonals]).astype(float_type(X), copy=False)

    def expression(self, points: Array, coef: Array) -> Expression:
        raise ValueError(
            "A callable kernel cannot be exported: it is Python code. Fit with the name of a "
            "kernel (kernel='rbf'), or keep the model in Python (pickle, joblib)."
        )

    def _checked(self, xp: Any, X: Any, Z: Any) -> Any:
        """Call the function; refuse values that are not finite or have another shape."""
        with _user_code:
            values = self.function(X, Z)
        values = np.asarray(values) if xp is np else values
        expected = (X.shape[0], Z.shape[0])
        if tuple(values.shape) != expected:
            raise ValueError(
                f"a kernel function f(X, Z) must return the values of all pairs of rows: expected "
                f"shape {expected}, got {tuple(values.shape)}."
            )
        if not bool(xp.all(xp.isfinite(values))):
            raise ValueError("the callable kernel returned NaN or infinity.")
        return values
