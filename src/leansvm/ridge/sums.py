"""What the squared loss needs of the rows: Z'Z for Z = S^1/2 [Phi, Y, 1], added up block by block.

Phi_c = Phi less its weighted column means gives the normal equations of zhou2016, (9) and (11):

    (I/C + Phi_c' S Phi_c) theta = Phi_c' S y_c,    b from the means.

Everything beyond the sums is of the size of the basis. A penalised bias is a constant column
1/sqrt(A) of Phi.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import add_to_diagonal, gram
from leansvm._array_api import as_float64, empty, foreign_namespace, like_rows, namespace, to_host
from leansvm.basis import on_device
from leansvm.basis.features import ColumnRows, FeatureMap
from leansvm.rows import Block, RowBlocks, check_points, declare
from leansvm.solution import Solution

Array = NDArray[np.float64]
FIRST_ROWS = 256  # rows whose means shift the sums
MATRICES = 7  # r x r at a time: the factor, sums and those on their way, work space
_PANEL = 256  # rows of a matrix at a time
NOT_FINITE = (
    "The sums over the rows are not finite: kernel values, targets or weights are too large. Scale "
    "X, y or sample_weight."
)


@dataclass
class Sums:
    """Z'Z for Z = S^1/2 [Phi - shift, Y - shift, 1]; grows by addition, whatever the rows."""

    shift: Array  # zero without a free bias
    gram: Any  # on the host; that of a large basis where the rows are
    n_outputs: int
    count: float  # samples that GCV counts: the sum of weights without class weights

    def __add__(self, other: Sums) -> Sums:
        gram, count = self.gram + other.gram, self.count + other.count
        return Sums(self.shift, gram, self.n_outputs, count)

    def total(self) -> Sums:
        """Return self."""
        return self

    def about(self, shift: Array) -> Sums:
        """Return the sums of the same rows about another shift."""
        gram = self.gram if np.array_equal(shift, self.shift) else shifted(self, self.gram, shift)
        return Sums(shift, gram, self.n_outputs, self.count)

    def on_host(self) -> Sums:
        """Return the same sums on the host."""
        return Sums(self.shift, to_host(self.gram), self.n_outputs, self.count)


def shifted(sums: Any, gram: Array, shift: Array) -> Array:
    """Return Z'Z, one matrix or several, after the columns were taken about another shift."""
    by = np.append(sums.shift - shift, 0.0)  # Z + Z_last by'
    cross = by[:, None] * gram[..., None, :, -1]
    n = gram[..., -1:, -1:]
    return np.asarray(gram + (cross + np.swapaxes(cross, -1, -2)) + n * np.outer(by, by))


def add_up(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    count: float | None = None,
    keep: bool = False,
    stays: bool = False,
) -> Sums:
    """Run over all rows once; with ``keep`` blocks keep their rows of Z for a second pass.

    With ``stays`` the sums of a large basis stay where the rows are.
    """
    function = _gram_and_rows if keep else _gram_of_block
    if stays and on_device.stays(blocks.place, features.width):
        total = blocks.sum_there(function, features, shift)
    else:
        total = blocks.sum(function, features, shift)
    outputs = len(shift) - features.width
    return Sums(shift, total, outputs, float(total[-1, -1]) if count is None else count)


def check_memory(points: int, budget: int, folds: int) -> None:
    """Refuse sums of so many points and folds, and the solution from them, beyond the budget."""
    check_points(points, budget, MATRICES * folds)


def first_shift(
    blocks: RowBlocks, features: FeatureMap, free_bias: bool, n_rows: int = FIRST_ROWS
) -> Array:
    """Return the column means of the first rows that count; zeros unless the bias is free.

    Sums of deviations from them keep the later centring free of cancellation.
    """
    X, Y, weight = blocks.head(n_rows)
    Y = np.asarray(to_host(Y), dtype=np.float64)
    if not free_bias:
        return np.zeros(features.width + Y.shape[1])
    Phi = to_host(features.transform(X))
    weight = to_host(weight)
    if weight is not None and weight.any():
        Phi, Y = Phi[weight > 0], Y[weight > 0]
    return np.concatenate([Phi.mean(axis=0), Y.mean(axis=0)])


@declare("X", "y", "weight")
def _gram_of_block(block: Block, features: FeatureMap, shift: Array) -> Any:
    """Return Z'Z in float64; where Z is float32, the sums of targets and weights are exact."""
    Z, r = rows_of_Z(block, features, shift), features.width
    G = gram(Z)
    if isinstance(Z, np.ndarray) and Z.dtype == np.float32:
        G[r:, r:] = moments_of_targets(block, shift[r:])
    return G


def moments_of_targets(block: Block, shift: Array) -> Array:
    """Return the moments of [Y - shift, 1] of a block's rows, in float64."""
    Y = np.append(np.asarray(block.y, dtype=np.float64) - shift, np.ones((len(block.y), 1)), axis=1)
    return np.asarray(Y.T @ (Y if block.weight is None else Y * block.weight[:, None]))


@dataclass
class MomentRows:
    """Rows of Z that a block keeps for a second pass."""

    Z: Any


@declare("X", "y", "weight", keeps=MomentRows)
def _gram_and_rows(block: Block, features: FeatureMap, shift: Array) -> Any:
    block.keep(MomentRows(rows_of_Z(block, features, shift)))
    return _gram_of_block(block, features, shift)


@declare("X", "y", "weight", keeps=MomentRows)
def keep_rows_of_Z(block: Block, features: FeatureMap, shift: Array) -> None:
    """Let a block keep its rows of Z."""
    block.keep(MomentRows(rows_of_Z(block, features, shift)))


def rows_of_Z(block: Block, features: FeatureMap, shift: Array) -> Any:
    """Return S^1/2 [Phi - shift, Y - shift, 1] of a block's rows, kept or computed.

    Kept rows must be of these features and this shift: `drop_rows_of_Z` before there are others.
    """
    known = block.state.get(MomentRows)
    if known is not None:
        return known.Z
    n, columns = block.stop - block.start, len(shift) + 1
    if foreign_namespace(block.X) is None:
        Z = np.empty((n, columns), np.float32 if features.single else np.float64, features.order)
    else:  # in float32, Z'Z is added up in float64 all the same
        if features.single or not on_device.stays(block.X, columns):
            Z = empty((n, columns), block.X, block.X.dtype if features.single else None)
        else:
            Z = empty((columns, n), block.X).T  # parts of its columns are multiplied
    width = features.width
    features.of(block, out=Z[:, :width])
    xp = namespace(Z)
    if xp is np:  # targets are centred before they are rounded
        Z[:, :width] -= shift[:width].astype(Z.dtype, copy=False)
        Z[:, width:-1] = block.y - shift[width:]
    else:
        Z[:, width:-1] = xp.asarray(block.y, dtype=Z.dtype)
        Z[:, :-1] -= xp.asarray(like_rows(shift, Z), dtype=Z.dtype)
    Z[:, -1] = 1.0
    if block.weight is not None:
        Z *= xp.asarray(xp.sqrt(as_float64(block.weight)), dtype=Z.dtype)[:, None]
    return Z


@declare(keeps=(MomentRows, ColumnRows))
def drop_rows_of_Z(block: Block) -> None:
    """Let go of the rows of Z, and of whitened columns, that a block keeps."""
    block.state.pop(MomentRows, None)
    block.state.pop(ColumnRows, None)


@dataclass
class NormalEquations:
    """Centred second moments: M = Phi_c'S Phi_c, c = Phi_c'S Y_c and what the bias needs."""

    features: FeatureMap  # whose columns these are
    shift: Array  # of the rows of Z
    n: float
    count: float
    gram: Any  # M + a a'/n; on the host or, of a large basis, where the rows are
    c: Array
    yy: Array  # Y_c'S Y_c, one number per output
    mean_phi: Array
    mean_y: Array
    free_bias: bool
    a: Array | None = None  # sums of the columns where the bias is free, or none to subtract

    def matrix(self, lam: float = 0.0) -> Any:
        """Return M + lam I, a new matrix where ``gram`` is; on the host no other is made."""
        if not isinstance(self.gram, np.ndarray):
            M = self.gram + 0.0
            if self.a is not None:
                M -= like_rows(self.a, M)[:, None] * like_rows(self.a / self.n, M)
            return add_to_diagonal(M, like_rows(np.full(len(self.c), lam), M)) if lam else M
        M = np.array(self.gram, order="C")
        if self.a is not None:
            for start in range(0, len(M), _PANEL):
                rows = slice(start, start + _PANEL)
                M[rows] -= np.outer(self.a[rows], self.a / self.n)
        M.flat[:: len(M) + 1] += lam
        return M

    def mean_square(self) -> float:
        """Return the mean of |phi_c|^2 over the rows."""
        trace = float(np.sum(to_host(namespace(self.gram).linalg.diagonal(self.gram))))
        return (trace - (0.0 if self.a is None else float(self.a @ self.a) / self.n)) / self.n

    def first(self, columns: NDArray[np.intp]) -> NormalEquations:
        """Return the equations of some columns."""
        return replace(
            self,
            gram=self.gram[np.ix_(columns, columns)],
            c=self.c[columns],
            mean_phi=self.mean_phi[columns],
            a=None if self.a is None else self.a[columns],
        )

    def solution(self, theta: Array, C: float, **others: Any) -> Solution:
        """Return the model with its objective and the relative norm of its gradient.

        The objective 1/2 |theta|^2 + C/2 RSS is summed over outputs. ``others`` are further fields.
        """
        constant = self.features.constant
        b = np.zeros(theta.shape[1]) if constant is None else constant * theta[-1]
        if self.free_bias:
            b = self.mean_y - self.mean_phi @ theta
        M_theta = np.asarray(to_host(self.gram @ like_rows(theta, self.gram)))
        if self.a is not None:
            M_theta = M_theta - np.outer(self.a, self.a @ theta / self.n)
        rss = self.yy - 2 * np.sum(theta * self.c, axis=0) + np.sum(theta * M_theta, axis=0)
        objective = float(0.5 * np.sum(theta**2) + 0.5 * C * np.sum(np.maximum(rss, 0.0)))
        scale = max(float(np.linalg.norm(self.c)), np.finfo(np.float64).tiny)
        residual = float(np.linalg.norm(theta / C + M_theta - self.c)) / scale
        coef = self.features.coefficients(theta)
        return Solution("primal", coef, b, C, objective, residual, **others)


def normal_equations(sums: Sums, features: FeatureMap, free_bias: bool) -> NormalEquations:
    """Centre the sums when the bias is free."""
    G, r, xp = sums.gram, features.width, namespace(sums.gram)
    if not bool(xp.all(xp.isfinite(G))):
        raise ValueError(NOT_FINITE)
    last = np.array(to_host(G[:, r:]))  # what goes with Y and 1 is small
    n = float(last[-1, -1])
    a, sy = last[:r, -1], last[r:-1, -1]
    c, yy = last[:r, :-1].copy(), last[r:-1, :-1].diagonal().copy()
    if free_bias:
        c -= np.outer(a, sy) / n
        yy -= sy**2 / n
    return NormalEquations(
        features,
        sums.shift,
        n,
        sums.count,
        G[:r, :r],
        c,
        np.maximum(yy, 0.0),
        sums.shift[:r] + a / n,
        sums.shift[r:] + sy / n,
        free_bias,
        a if free_bias else None,
    )
