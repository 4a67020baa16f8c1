"""The map x -> phi(x): every primal method sees the rows only through it.

f(x) = phi(x)'theta + b. `KernelFeatures` is phi = k(x, B). It is whitened by K_BB = L L' if the
regulariser is the norm of the function (zhou2013's M1, zhou2016), and not if it is the norm of the
coefficients (M2). `LearnedFeatures` is a handful of learned functions (fang2019). A map does not
change: precision, a column for the bias and what blocks keep are decided when it is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpstrf

from leansvm._accelerated import solve_lower
from leansvm._array_api import (
    empty,
    foreign_namespace,
    in_float64,
    like_rows,
    moved,
    namespace,
    rows_at,
    to_host,
)
from leansvm.basis import on_device
from leansvm.basis.cholesky.growing import FactorRows
from leansvm.kernels import Kernel
from leansvm.linalg import right_solve_in_place
from leansvm.rows import Block, MemoryBlocks, RowSource, Targets, declare

Array = NDArray[np.float64]
_FLOAT32_LOSS = 1e-4  # of the targets' spread; if more is lost, float32 rows use float64 tiles
NO_FACTOR = np.zeros((0, 0), order="F")  # L of no points
_PANEL = 512  # columns at a time
_SAFE_IN_FLOAT32 = 1e15  # numbers up to which float32 has decades to spare for their squares


@dataclass
class ColumnRows:
    """A block's rows of the columns phi."""

    Phi: Any


class FeatureMap(ABC):
    """Columns phi_1 .. phi_size of any rows and, if there is a ``constant``, the bias's."""

    order: ClassVar[Literal["C", "F"]] = "C"  # of memory in which phi is computed
    single: bool = False  # float32 rows: phi in float32
    # the selector has left phi (`FactorRows`) in the blocks; it is not computed again
    in_state: bool = False
    keep: bool = False  # blocks keep phi: `ColumnRows`
    frees: ClassVar[bool] = True  # blocks that keep phi drop `FactorRows`
    constant: float | None = None  # value of the bias's column; None without one

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of functions."""

    @cached_property
    def width(self) -> int:
        """Number of columns: the functions and, if there is one, that of the bias."""
        return self.size + (self.constant is not None)

    @abstractmethod
    def phi(self, X: Any, out: Any = None) -> Any:
        """Return the functions' values at rows, where the rows are; in ``out`` if it is given."""

    @abstractmethod
    def coefficients(self, theta: Array) -> Array:
        """Return the coefficients of the functions k(x_j, .) or phi_j from those of the columns."""

    def transform(self, X: Any, out: Any = None) -> Any:
        """Return all columns of any rows; in ``out`` if it is given."""
        if out is None:
            if self.constant is None:
                return self.phi(X)
            out = self._empty(X)
        self.phi(X, out[:, : self.size])
        if self.constant is not None:
            out[:, self.size] = self.constant
        return out

    def of(self, block: Block, out: Any = None) -> Any:
        """Return all columns of a block's rows, from its state if they are known.

        If ``out`` is given, the result is in ``out``, and the block keeps nothing new.
        """
        kept, left = block.state.get(ColumnRows), block.state.get(FactorRows)
        if kept is not None:
            if out is None:
                return kept.Phi
            out[...] = kept.Phi
            return out
        if self.in_state and left is not None:  # by a selector
            P = left.P[:, : self.size]
            found = self._empty(P) if out is None else out
            found[:, : self.size] = P
            if self.constant is not None:
                found[:, self.size] = self.constant
        else:
            found = self.transform(block.X, out)
        if self.keep and out is None:
            block.keep(ColumnRows(found))
            if self.frees:
                block.state.pop(FactorRows, None)
        return found

    def of_rows(self, block: Block, rows: NDArray[np.intp]) -> Any:
        """Return the columns of some rows of a block; only these are computed."""
        kept = block.state.get(ColumnRows)
        if kept is not None:
            return rows_at(kept.Phi, rows)
        return self.transform(rows_at(block.X, rows))

    def _empty(self, X: Any) -> Any:
        n, on_host = X.shape[0], foreign_namespace(X) is None
        dtype = np.float32 if self.single and on_host else None
        if self.order == "C":
            return empty((n, self.width), X, dtype)
        return empty((self.width, n), X, dtype).T


@dataclass(frozen=True, eq=False)
class KernelFeatures(FeatureMap):
    """Kernel functions of points B, whitened where ``L`` is given: phi = k(x, B) L^-T."""

    kernel: Kernel
    points: Any  # rows of X, or column numbers of a precomputed kernel
    L: Any = None  # on the host; that of a large basis where its points are
    kept: Any = None  # positions of the points among those asked for
    constant: float | None = None
    in_state: bool = False
    keep: bool = False
    single: bool = False

    @cached_property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    def phi(self, X: Any, out: Any = None) -> Any:
        """Return k(X, B), times L^-T if whitened, where the rows are."""
        if foreign_namespace(X) is not None:
            pair = (a if self.single else in_float64(a) for a in (X, self.points))
            if self.L is not None:  # by products, which every library has, in panels of columns
                values = on_device.own_block(self.kernel, *pair)
                return on_device.whitener_of(self, values).apply(values, out)
            return on_device.put_into(self.kernel.block(*pair), out)
        dtype = np.dtype(np.float32 if self.single else np.float64)
        direct = out is not None and out.dtype == dtype
        values = self.kernel.block(X, self.points, out=out if direct else None, dtype=dtype)
        if self.L is not None:
            right_solve_in_place(values, self.L)
        if direct or out is None:
            return values
        out[...] = values
        return out

    def coefficients(self, theta: Array) -> Array:
        """Return alpha = L^-T theta of the points."""
        theta = theta[: self.size]
        if self.L is None:
            return theta
        if not isinstance(self.L, np.ndarray):
            solved = solve_lower(self.L, like_rows(theta, self.L), transposed=True)
            return np.asarray(to_host(solved))
        # numbers that are not finite stay so, and are reported with the solution
        return np.asarray(
            solve_triangular(self.L, theta, lower=True, trans="T", check_finite=False)
        )

    def first(self, size: int) -> KernelFeatures:
        """Return the map to the first ``size`` columns."""
        L = None if self.L is None else self.L[:size, :size]
        L = np.asfortranarray(L) if isinstance(L, np.ndarray) else L
        kept = None if self.kept is None else self.kept[:size]
        return replace(self, points=rows_at(self.points, np.arange(size)), L=L, kept=kept)

    def extended(self, rows: Any, points: Any, first: int, size: int) -> KernelFeatures:
        """Return the map that also has points ``first`` to ``size``, unless they depend on others.

        K_BB = L L' is extended by the factor of the new points' Schur complement, so the columns of
        the first points stay what they are. ``rows`` are all points there may be, in the order of
        choice, and ``points`` the same as `Kernel.block` takes them. The first map has none of
        them, and L is `NO_FACTOR` or None.
        """
        new, kernel = np.arange(first, size), self.kernel
        if self.L is None:
            kept = np.arange(size)
            return replace(self, points=rows_at(points, kept), kept=kept)
        own = rows_at(rows, new)
        K = kernel.block(own, rows_at(points, new), dtype=np.float64)
        below = kernel.block(own, self.points, dtype=np.float64)
        K, below = np.array(to_host(K), np.float64), np.array(to_host(below), np.float64)
        if kernel.has_unit_diagonal:  # exact, so that rounding decides no tie
            np.fill_diagonal(K, 1.0)
        # well above rounding, which must not decide how many points there are
        floor = 1e3 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
        if self.size:
            below = solve_triangular(self.L, below.T, lower=True).T
            K -= below @ below.T
        try:  # in the given order, unless a pivot is not clear of the floor
            corner, chosen = cholesky(K, lower=True, check_finite=False), np.arange(len(K))
            clear = corner.diagonal().min(initial=np.inf) ** 2 > on_device.CLEAR * floor
        except np.linalg.LinAlgError:
            clear = False
        if not clear:
            corner, chosen = on_device.factor_by_pivots(K, floor)
        k, rank = self.size, len(chosen)
        L = np.zeros((k + rank, k + rank), order="F")
        L[:k, :k], L[k:, :k], L[k:, k:] = self.L, below[chosen], corner
        kept = np.append(self.kept, new[chosen])
        return replace(self, points=rows_at(points, kept), L=L, kept=kept)

    def on_host(self) -> KernelFeatures:
        """Return the same map with its points and its factor on the host."""
        return replace(self, points=to_host(self.points), L=to_host(self.L))


def whiten(
    kernel: Kernel, rows: Any, points: Any, L: Array | None = None, **options: Any
) -> KernelFeatures:
    """Factor K_BB, with pivoting; points whose pivot is at rounding level are dropped.

    The basis is given as rows and as points of `Kernel.block` (the same unless precomputed).
    ``L`` is a factor that is already known, in the order of the points; ``options`` are those of
    `KernelFeatures`.
    """
    if L is not None:
        kept = np.arange(rows.shape[0])
        return KernelFeatures(kernel, points, np.asfortranarray(L), kept, **options)
    foreign = not kernel.precomputed and foreign_namespace(points) is not None
    if foreign and on_device.stays(points, points.shape[0]):
        L, kept = on_device.factor_points(kernel, rows, points)
        return KernelFeatures(kernel, rows_at(points, kept), L, kept, **options)
    values = kernel.block(rows, points, dtype=np.float64)
    K = np.array(to_host(values), np.float64, order="F")
    if kernel.has_unit_diagonal:  # exact, so that rounding decides no tie
        np.fill_diagonal(K, 1.0)
    floor = 10 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
    factor, pivots, rank, _ = dpstrf(K, tol=floor, lower=1, overwrite_a=True)
    kept = np.asarray(pivots[:rank], dtype=np.intp) - 1
    L = np.asfortranarray(np.tril(factor[:rank, :rank]))
    return KernelFeatures(kernel, rows_at(points, kept), L, kept, **options)


def inverse_transpose(L: Array) -> Array:
    """Return L^-T."""
    return np.ascontiguousarray(solve_triangular(L, np.eye(len(L)), lower=True, trans="N").T)


@declare("X", keeps=ColumnRows)
def resize_columns(block: Block, before: KernelFeatures, after: KernelFeatures) -> None:
    """Turn the columns that a block keeps, if any, into those of another size of the same basis.

    The new ones are (K_new - Phi L_21') L_22^-T.
    """
    kept = block.state.pop(ColumnRows, None)
    if not after.keep:
        return
    if foreign_namespace(block.X) is not None:
        block.keep(ColumnRows(after.transform(block.X)))
        return
    same = 0 if kept is None else min(before.size, after.size)
    n_rows = block.stop - block.start
    Phi = np.empty((n_rows, after.width), np.float32 if after.single else np.float64)
    if kept is not None:
        Phi[:, :same] = kept.Phi[:, :same]
    if after.constant is not None:
        Phi[:, -1] = after.constant
    if after.size > same:
        new = Phi[:, same : after.size]
        after.kernel.block(
            block.X, rows_at(after.points, np.arange(same, after.size)), out=new, dtype=Phi.dtype
        )
        if after.L is not None:
            for start in range(0, new.shape[1], _PANEL):
                L = np.asarray(after.L[same + start : same + start + _PANEL, :same], Phi.dtype)
                new[:, start : start + _PANEL] -= Phi[:, :same] @ L.T
            right_solve_in_place(new, after.L[same:, same:])
    block.keep(ColumnRows(Phi))


# ---------------------------------------------------------------------------- decision values


def evaluate(features: FeatureMap, coef: Array, b: Array, X: Any, spread: Any = 1.0) -> Any:
    """Return f(x) = phi(x)'coef + b of all rows and outputs, by tiles; an array of X's kind.

    A model of any library is moved to where the rows are. Rounding of float32 rows is compared
    with the ``spread`` of the targets, one number or one per output.
    """
    columns, elsewhere = features.size, isinstance(X, RowSource)
    if elsewhere:
        blocks = X.blocks(Targets(None), columns=columns)
    else:
        foreign = foreign_namespace(X) is not None
        blocks = MemoryBlocks(X, columns=2 * columns if foreign else columns)
    at_home = type(X) is np.ndarray and X.dtype == np.float64
    if isinstance(features, KernelFeatures) and not (
        at_home and isinstance(features.points, np.ndarray)
    ):
        features = _at_rows(features, coef, spread, X, elsewhere)
    values = blocks.stack(_decision, features, coef)
    xp: Any = np
    if not isinstance(values, np.ndarray):
        xp, b = namespace(values), moved(b, values)
    with np.errstate(over="ignore", invalid="ignore"):
        values = xp.asarray(values + b, dtype=X.dtype)
    if not bool(xp.all(xp.isfinite(values))):
        raise ValueError(
            f"The model's values at some rows of X are not finite, or too large for {X.dtype}: "
            f"scale X and y, or pass X as float64."
        )
    return values


def _at_rows(
    features: KernelFeatures, coef: Array, spread: Any, X: Any, elsewhere: bool
) -> KernelFeatures:
    """Move the points to the rows; decide whether float32 rows may stay in float32."""
    points, foreign = features.points, not elsewhere and foreign_namespace(X) is not None
    if features.kernel.precomputed:
        return replace(features, single=X.dtype == np.float32)
    if foreign or foreign_namespace(points) is not None:
        points = to_host(points) if elsewhere else in_float64(moved(points, X))
        features = replace(features, points=points)
    if foreign or X.dtype != np.float32:
        return features
    # the largest |k(z, z)| of the points, in float64: float32 may not hold it
    foreign = foreign_namespace(features.points) is not None
    points = in_float64(features.points) if foreign else features.points.astype(np.float64)
    diagonal = float(np.abs(to_host(features.kernel.diag(points))).max(initial=0.0))
    # rounding kernel values to float32 costs a value about eps * |coef| * max k
    lost = 4 * float(np.finfo(np.float32).eps) * float(np.linalg.norm(coef / spread)) * diagonal
    fits = float(np.abs(coef).max(initial=0.0)) < 1e30  # and so do sums of products
    # gamma, products and values of rows like the points must be far from overflow
    values = features.points.data if sparse.issparse(features.points) else features.points
    largest = float(np.abs(np.asarray(to_host(values))).max(initial=0.0))
    largest = max(largest, float(np.max(features.kernel.gamma)), diagonal)
    fits = fits and largest < _SAFE_IN_FLOAT32
    return replace(features, single=fits and lost <= _FLOAT32_LOSS)


@declare("X")
def _decision(block: Block, features: FeatureMap, coef: Array) -> Any:
    values = features.phi(block.X)
    if isinstance(values, np.ndarray):
        return values @ (coef.astype(np.float32) if features.single else coef)
    return values @ moved(coef, values)


def transform_rows(features: FeatureMap, X: Any) -> Any:
    """Return all columns of all rows, by tiles, where the rows are."""
    blocks = MemoryBlocks(X, columns=2 * features.width)
    return blocks.stack(_columns, features)


@declare("X")
def _columns(block: Block, features: FeatureMap) -> Any:
    return features.transform(block.X)


def lost_in_single(features: KernelFeatures, theta: Array, X: Any) -> float:
    """Return the mean squared error of f if phi is computed in float32, summed over outputs.

    ``X`` are some rows. The result is infinite if they are too large for float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        in_double, in_single = (
            np.asarray(to_host(replace(features, single=single).phi(X)), dtype=np.float64)
            for single in (False, True)
        )
        lost = (in_single - in_double) @ theta[: features.size]
    mean = float(np.square(lost).sum(axis=1).mean())
    return mean if np.isfinite(mean) else np.inf
