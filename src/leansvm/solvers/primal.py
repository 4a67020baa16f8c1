"""The LS-SVM on a small basis, in its primal, whitened (zhou2016, eqs. (9), (11)).

With K_BB = L L', Phi = K_MB L^-T and Phi_c = Phi less its weighted column means,

    (I/C + Phi_c' S Phi_c) theta = Phi_c' S y_c,    alpha = L^-T theta,    b from the means,

whose condition is free of that of K_BB. One pass over the rows adds up Z'Z for
Z = S^1/2 [Phi, Y, 1]; everything else is small. A penalised bias is a column 1/sqrt(A) of Phi.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh, solve_triangular
from scipy.linalg.lapack import dpstrf

from leansvm._accelerated import gram, library_of, matmul_into, product_eps, solve_lower
from leansvm._array_api import (
    as_float64,
    empty,
    foreign_namespace,
    in_float64,
    like_rows,
    namespace,
    rows_at,
    to_host,
)
from leansvm.blocks import Block, RowBlocks, declare
from leansvm.kernels import Kernel
from leansvm.linalg import right_solve_in_place

Array = NDArray[np.float64]


class Features(Protocol):
    """What the sums and solutions below ask of a basis: Phi, block by block."""

    @property
    def bias_column(self) -> float | None:
        """Value of the column of a penalised bias."""

    @property
    def width(self) -> int:
        """Columns of Phi."""

    @property
    def order(self) -> Literal["C", "F"]:
        """Order of memory in which Phi is computed."""

    def features(self, block: Block, out: Any = None) -> Any:
        """Return Phi of a block's rows, where they are; in ``out`` where that is given."""

    def transform(self, X: Any) -> Any:
        """Return Phi of any rows, where they are."""

    def coefficients(self, theta: Array) -> Array:
        """Return the coefficients of the basis functions."""


@dataclass
class WhitenedBasis:
    """Points B with K_BB = L L', those dropped that depend on the others to rounding."""

    kernel: Kernel
    points: Any  # rows of X, or column numbers of a precomputed kernel
    L: Array
    kept: NDArray[np.intp]  # positions of the points among those asked for
    bias_column: float | None = None  # 1 / sqrt(A) for a penalised bias
    in_state: bool = False  # blocks keep Phi in state["P"]
    rotation: Array | None = None  # of the features, for nested ones
    order: ClassVar[Literal["C", "F"]] = "C"
    single: bool = False  # float32 rows: kernel values and whitening in float32, sums in float64

    @property
    def size(self) -> int:
        """Number of points kept."""
        return self.L.shape[0] if self.rotation is None else self.rotation.shape[1]

    @property
    def width(self) -> int:
        """Columns of Phi: the points and, when the bias is penalised, one for it."""
        return self.size + (self.bias_column is not None)

    def features(self, block: Block, out: Any = None) -> Any:
        """Return Phi of a block's rows, where they are; in ``out`` where that is given."""
        if not (self.in_state and "P" in block.state):
            return self.transform(block.X, out)
        Phi = block.state["P"][:, : self.size]
        if out is None:
            if self.bias_column is None:
                return Phi
            out = empty((Phi.shape[0], self.width), Phi)
        out[:, : self.size] = Phi
        return self.with_bias(out)

    def transform(self, X: Any, out: Any = None) -> Any:
        """Return Phi = k(X, B) L^-T, where the rows are; in ``out`` where that is given."""
        if out is None:
            out = empty((X.shape[0], self.width), X)
        Phi = out[:, : self.size]
        if foreign_namespace(X) is not None:
            return self._transform_where_rows_are(X, out)
        if self.single:
            whitened = self.kernel.block(X, self.points, dtype=np.float32)
            right_solve_in_place(whitened, self._L32)
        else:
            whitened = Phi if self.rotation is None else np.empty((X.shape[0], len(self.L)))
            self.kernel.block(X, self.points, out=whitened)
            right_solve_in_place(whitened, self.L)
        if self.rotation is not None:
            np.matmul(whitened, self.rotation, out=Phi)
        elif whitened is not Phi:
            Phi[...] = whitened
        return self.with_bias(out)

    def _transform_where_rows_are(self, X: Any, out: Any) -> Any:
        Phi, xp = out[:, : self.size], namespace(X)
        K = self.kernel.block(*(a if self.single else in_float64(a) for a in (X, self.points)))
        right = inverse_transpose_like(self.L, X)
        if self.rotation is not None:
            right = right @ like_rows(self.rotation, X)
        right = xp.astype(right, K.dtype, copy=False)
        if Phi.dtype == K.dtype:
            matmul_into(K, right, Phi)
        else:
            Phi[...] = xp.astype(K @ right, Phi.dtype)
        return self.with_bias(out)

    @cached_property
    def _L32(self) -> NDArray[np.float32]:
        return np.asfortranarray(self.L, dtype=np.float32)

    def rounding_of(self, alpha: Array) -> float:
        """Return about how much decision values lose where `single` kernel values are rounded."""
        largest = float(np.abs(to_host(self.kernel.diag(self.points))).max(initial=0.0))
        return 8 * product_eps(self.points) * float(np.linalg.norm(alpha)) * largest

    def with_bias(self, out: Any) -> Any:
        """Fill in the column of a penalised bias, if there is one."""
        if self.bias_column is not None:
            out[:, self.size] = self.bias_column
        return out

    def coefficients(self, theta: Array) -> Array:
        """Return alpha = L^-T theta for the points kept."""
        return np.asarray(solve_triangular(self.L, theta[: self.size], lower=True, trans="T"))


def inverse_transpose(L: Array) -> Array:
    """Return L^-T."""
    return np.ascontiguousarray(solve_triangular(L, np.eye(len(L)), lower=True, trans="N").T)


def inverse_transpose_like(L: Array, X: Any) -> Any:
    """Return L^-T where ``X`` is."""
    if library_of(X) == "other":
        return like_rows(inverse_transpose(L), X)
    return solve_lower(like_rows(L, X), like_rows(np.eye(len(L)), X)).T


def whiten(
    kernel: Kernel,
    rows: Any,
    points: Any,
    bias_penalty: float = np.inf,
    L: Array | None = None,
) -> WhitenedBasis:
    """Factor K_BB, with pivoting; points whose pivot is at rounding level are dropped.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the model.
    rows, points : array
        The basis as rows and as points of `Kernel.block` (the same unless precomputed).
    bias_penalty : float
        0 for a free bias, inf for none.
    L : ndarray, optional
        A factor that is already known, in the order of the points.
    """
    kept = np.arange(rows.shape[0])
    if L is None:
        values = kernel.block(in_float64(rows), in_float64(points), dtype=np.float64)
        K = np.array(to_host(values), np.float64, order="F")
        if kernel.has_unit_diagonal:  # exact, so that rounding decides no tie
            np.fill_diagonal(K, 1.0)
        floor = 10 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
        factor, pivots, rank, _ = dpstrf(K, tol=floor, lower=1, overwrite_a=True)
        kept = np.asarray(pivots[:rank], dtype=np.intp) - 1
        L = np.tril(factor[:rank, :rank])
    column = 1.0 / np.sqrt(bias_penalty) if 0 < bias_penalty < np.inf else None
    return WhitenedBasis(kernel, take_points(points, kept), np.asfortranarray(L), kept, column)


def nested(basis: WhitenedBasis, rows: Any) -> WhitenedBasis:
    """Turn the whitened features so that the first k of them span the first k rows of B.

    Cholesky in the given order would divide by tiny pivots; instead the rows' features under
    the pivoted factor are orthogonalised in order, skipping those that depend on earlier ones.
    """
    features = to_host(basis.transform(rows))[:, : basis.size]
    floor = 10 * float(np.finfo(np.float64).eps) * float(np.square(features).sum(axis=1).max())
    Q = np.empty((basis.size, basis.size))
    kept: list[int] = []
    for t, row in enumerate(features):
        known = Q[:, : len(kept)]
        rest = row - known @ (known.T @ row)
        rest -= known @ (known.T @ rest)
        length = float(np.linalg.norm(rest))
        if length**2 > floor and len(kept) < basis.size:
            Q[:, len(kept)] = rest / length
            kept.append(t)
    return replace(basis, rotation=Q[:, : len(kept)], kept=np.asarray(kept, dtype=np.intp))


def take_points(points: Any, kept: NDArray[np.intp]) -> Any:
    """Return some points, in this order."""
    return rows_at(points, kept)


# ---------------------------------------------------------------------------- sums over rows


@dataclass
class Sums:
    """Z'Z for Z = S^1/2 [Phi - shift, Y - shift, 1]; grows by addition, whatever the rows."""

    shift: Array  # zero without a free bias
    gram: Array
    n_outputs: int
    count: float  # samples that GCV counts: the sum of weights without class weights

    def __add__(self, other: Sums) -> Sums:
        gram, count = self.gram + other.gram, self.count + other.count
        return Sums(self.shift, gram, self.n_outputs, count)

    def spread_of_targets(self) -> float:
        """Root mean square of the (shifted) targets."""
        squares = self.gram.diagonal()[-1 - self.n_outputs : -1]
        return float(np.sqrt(squares.mean() / self.gram[-1, -1]))


def add_up(
    blocks: RowBlocks,
    basis: Features,
    shift: Array,
    n_outputs: int,
    count: float | None = None,
    keep: bool = False,
) -> Sums:
    """Run over all rows once; with ``keep`` blocks keep their rows of Z for a second pass."""
    total = blocks.sum(_gram_and_rows if keep else _gram_of_block, basis, shift)
    return Sums(shift, total, n_outputs, float(total[-1, -1]) if count is None else count)


def choose_shift(basis: Features, X: Any, Y: Array, free_bias: bool) -> Array:
    """Column means of a first block, which keep the later centring free of cancellation."""
    if not free_bias:
        return np.zeros(basis.width + Y.shape[1])
    return np.concatenate([to_host(basis.transform(X)).mean(axis=0), Y.mean(axis=0)])


@declare("X", "y", "weight")
def _gram_of_block(block: Block, basis: Features, shift: Array) -> Any:
    return gram(_rows_of_Z(block, basis, shift))


@declare("X", "y", "weight", sets=("Z",))
def _gram_and_rows(block: Block, basis: Features, shift: Array) -> Any:
    block.state["Z"] = Z = _rows_of_Z(block, basis, shift)
    return gram(Z)


def _rows_of_Z(block: Block, basis: Features, shift: Array) -> Any:
    n, columns = block.stop - block.start, len(shift) + 1
    if foreign_namespace(block.X) is None:
        Z = np.empty((n, columns), order=basis.order)
    else:  # in float32, Z'Z is added up in float64 all the same
        Z = empty((n, columns), block.X, block.X.dtype if getattr(basis, "single", False) else None)
    basis.features(block, out=Z[:, : basis.width])
    complete(Z, block, basis.width, shift)
    return Z


def complete(Z: Any, block: Block, width: int, shift: Array) -> None:
    """Turn [Phi, ., .] into S^1/2 [Phi - shift, Y - shift, 1]."""
    xp = namespace(Z)
    Z[:, width:-1] = xp.asarray(block.y, dtype=Z.dtype)
    Z[:, -1] = 1.0
    Z[:, :-1] -= xp.asarray(like_rows(shift, Z), dtype=Z.dtype)
    if block.weight is not None:
        Z *= xp.asarray(xp.sqrt(as_float64(block.weight)), dtype=Z.dtype)[:, None]


@declare(sets=("Z",))
def drop_rows_of_Z(block: Block) -> None:
    """Let go of what `add_up` kept."""
    block.state.pop("Z", None)


@dataclass
class NormalEquations:
    """Centred second moments: M = Phi_c'S Phi_c, c = Phi_c'S Y_c and what the bias needs."""

    n: float
    count: float
    M: Array
    c: Array
    yy: Array  # Y_c'S Y_c, one number an output
    mean_phi: Array
    mean_y: Array
    free_bias: bool
    bias_column: float | None

    def bias(self, theta: Array) -> Array:
        """Return b of every output."""
        if self.free_bias:
            return np.asarray(self.mean_y - self.mean_phi @ theta)
        if self.bias_column is not None:
            return np.asarray(self.bias_column * theta[-1])
        return np.zeros(theta.shape[1])

    def objective(self, theta: Array, C: float) -> float:
        """Evaluate 1/2 |theta|^2 + C/2 RSS, summed over outputs."""
        rss = (
            self.yy - 2 * np.sum(theta * self.c, axis=0) + np.sum(theta * (self.M @ theta), axis=0)
        )
        return float(0.5 * np.sum(theta**2) + 0.5 * C * np.sum(np.maximum(rss, 0.0)))


def normal_equations(sums: Sums, basis: Features, free_bias: bool) -> NormalEquations:
    """Centre the sums when the bias is free."""
    G, r = sums.gram, basis.width
    n = float(G[-1, -1])
    a, sy = G[:r, -1], G[r:-1, -1]
    M, c, yy = G[:r, :r].copy(), G[:r, r:-1].copy(), G[r:-1, r:-1].diagonal().copy()
    if free_bias:
        M -= np.outer(a, a) / n
        c -= np.outer(a, sy) / n
        yy -= sy**2 / n
    mean_phi, mean_y = sums.shift[:r] + a / n, sums.shift[r:] + sy / n
    return NormalEquations(
        n, sums.count, M, c, np.maximum(yy, 0.0), mean_phi, mean_y, free_bias, basis.bias_column
    )


def solve_single(equations: NormalEquations, C: float) -> Array:
    """Return theta at one C, by Cholesky."""
    A = equations.M.copy()
    A.flat[:: len(A) + 1] += 1.0 / C
    return np.asarray(cho_solve(cho_factor(A, lower=True, overwrite_a=True), equations.c))


# ---------------------------------------------------------------------------- every C


@dataclass
class Spectrum:
    """Eigen-decomposition of M; solutions and errors for every C come from it."""

    equations: NormalEquations
    vectors: Array
    values: Array
    z: Array  # V'c

    def theta(self, C: float) -> Array:
        """Return the solution at C."""
        return np.asarray(self.vectors @ (self.z / (self.values + 1.0 / C)[:, None]))

    def gcv(self, candidates: Array) -> Array:
        """Generalised cross-validation n RSS / (n - tr)^2, summed over outputs."""
        lam = 1.0 / candidates
        shrunk = self.values[:, None] + lam
        z2 = np.sum(self.z**2, axis=1)
        rss = self.equations.yy.sum() - z2 @ ((self.values[:, None] + 2 * lam) / shrunk**2)
        trace = float(self.equations.free_bias) + np.sum(self.values[:, None] / shrunk, axis=0)
        n = self.equations.count
        room = n - trace
        enough = room > 1e-10 * n
        return np.where(enough, n * np.maximum(rss, 0.0) / np.where(enough, room, 1.0) ** 2, np.inf)


def decompose(equations: NormalEquations, like: Any = None) -> Spectrum:
    """Decompose M once for all C, where ``like`` is.

    A direction in which both M and c are rounding (a constant function in the span of a centred
    basis) has no part in the solution; C would multiply its noise.
    """
    if like is None or foreign_namespace(like) is None:
        values, vectors = eigh(equations.M, check_finite=False, driver="evd")
    else:
        values, vectors = to_host(tuple(namespace(like).linalg.eigh(like_rows(equations.M, like))))
    z = vectors.T @ equations.c
    noise = 16 * float(np.finfo(np.float64).eps)
    flat = values <= noise * np.abs(values).max(initial=0.0)
    z[flat[:, None] & (np.abs(z) <= noise * np.linalg.norm(equations.c, axis=0))] = 0.0
    return Spectrum(equations, vectors, np.maximum(values, 0.0), z)


def left_out_residuals(
    blocks: RowBlocks,
    basis: Features,
    shift: Array,
    spectrum: Spectrum,
    candidates: Array,
    keep: bool,
    *,
    one_copy: bool = False,
) -> Array:
    """Sum of s (left-out residual)^2 for every C; one pass.

    A row's residual without it is e / (1 - h) with leverage h. With ``keep`` blocks also keep
    the residuals of all candidates, outputs x rows x candidates, in ``state["loo"]``. With
    ``one_copy`` a row of weight s > 1 is taken for s equal rows, of which one is left out.
    """
    eq, width = spectrum.equations, basis.width
    # Z @ turn = S^1/2 [Phi_c V, Y_c]; without a free bias the shift is zero
    turn = np.zeros((len(shift) + 1, len(shift)))
    turn[:width, :width] = spectrum.vectors
    turn[width:-1, width:] = np.eye(len(shift) - width)
    if eq.free_bias:
        turn[-1] = (shift - np.concatenate([eq.mean_phi, eq.mean_y])) @ turn[:-1]
    inverse = 1.0 / (spectrum.values[:, None] + 1.0 / candidates)
    return np.asarray(
        blocks.sum(_left_out_of_block, basis, shift, spectrum, turn, inverse, keep, one_copy)
    )


@declare("X", "y", "weight", sets=("loo",))
def _left_out_of_block(
    block: Block,
    basis: Features,
    shift: Array,
    spectrum: Spectrum,
    turn: Array,
    inverse: Array,
    keep: bool,
    one_copy: bool,
) -> Any:
    eq, width, xp = spectrum.equations, basis.width, namespace(block.X)
    Z = as_float64(block.state["Z"] if "Z" in block.state else _rows_of_Z(block, basis, shift))
    root = Z[:, -1:]  # sqrt(s): what follows are rows times it
    turned = Z @ like_rows(turn, Z)
    E, Y = turned[:, :width], turned[:, width:]
    left_out = empty((Y.shape[1], Y.shape[0], inverse.shape[1]), Z)
    for o in range(Y.shape[1]):  # Y - E z / (lam + sigma)
        residual = left_out[o, ...]
        matmul_into(E, like_rows(-spectrum.z[:, o, None] * inverse, Z), residual)
        residual += Y[:, o : o + 1]
    # h - 1 = s (1/n + sum_j E_j^2 / (lam + sigma_j)) - 1, kept away from zero by rounding
    E *= E
    leverage = E @ like_rows(inverse, Z)
    if eq.free_bias:
        leverage += root * root / eq.n
    if one_copy:
        leverage /= xp.clip(root * root, 1.0, None)
    leverage -= 1.0
    left_out /= xp.clip(leverage, None, -1e-12)
    total = xp.sum(left_out * left_out, axis=(0, 1))
    if keep:
        with np.errstate(invalid="ignore"):  # rows of zero weight have none
            left_out /= -root
        block.state["loo"] = left_out
    return total
