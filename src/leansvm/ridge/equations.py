"""From rows to models of the squared loss: rows of Z, normal equations, and their factors.

With Z = S^1/2 [Phi, Y, 1] the sums Z'Z give, about the weighted means, M = Phi_c' S Phi_c and the
normal equations of zhou2016, (9) and (11):

    (M + I/C) theta = Phi_c' S y_c,    b from the means.

A penalised bias is a constant column 1/sqrt(A) of Phi. Models for every C, or of every size, come
from one factor. It gives coordinates e = Q'phi of a (centred) row, in which all models are simple:

- M = V diag(sigma) V' (`models_of_C`): theta = V z / (sigma + 1/C) with z = V'c, and leverages
  h = sum_j e_j^2 / (sigma_j + 1/C).
- R'R = M + 1/C, e = R^-T phi (`models_of_sizes`): at one C the model on the first k columns has
  fitted values sum_{j<k} e_j z_j and leverages sum_{j<k} e_j^2, with z = R^-T c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from leansvm._accelerated import add_to_diagonal, cholesky_lower, solve_lower
from leansvm._array_api import (
    as_float64,
    empty,
    foreign_namespace,
    identity,
    like_rows,
    matmul_into,
    namespace,
    to_host,
)
from leansvm.basis import on_device
from leansvm.basis.features import ColumnRows, FeatureMap
from leansvm.linalg import cholesky_in_place, cholesky_solve
from leansvm.rows import Block, declare
from leansvm.solution import Solution

if TYPE_CHECKING:
    from leansvm.ridge.sums import Sums

Array = NDArray[np.float64]
_ROWS, _PANEL = 256, 512  # rows of a matrix, and columns of a triangular product, at a time
NOT_FINITE = (
    "The sums over the rows are not finite: kernel values, targets or weights are too large. Scale "
    "X, y or sample_weight."
)


# ---------------------------------------------------------------------------- rows of Z


@dataclass
class MomentRows:
    """Rows of Z that a block keeps for a second pass."""

    Z: Any


@declare("X", "y", "weight", keeps=MomentRows)
def keep_rows_of_Z(block: Block, features: FeatureMap, shift: Array) -> None:
    """Let a block keep its rows of Z."""
    block.keep(MomentRows(rows_of_Z(block, features, shift)))


def rows_of_Z(block: Block, features: FeatureMap, shift: Array) -> Any:
    """Return S^1/2 [Phi - shift, Y - shift, 1] of a block's rows, kept or computed.

    Kept rows must belong to these features and this shift: call `drop_rows_of_Z` before a change.
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


# ---------------------------------------------------------------------------- normal equations


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
    a: Array | None = None  # sums of the columns; None unless the bias is free

    def matrix(self, lam: float = 0.0) -> Any:
        """Return M + lam I, a new matrix where ``gram`` is; on the host no other is made."""
        if not isinstance(self.gram, np.ndarray):
            M = self.gram + 0.0
            if self.a is not None:
                M -= like_rows(self.a, M)[:, None] * like_rows(self.a / self.n, M)
            return add_to_diagonal(M, like_rows(np.full(len(self.c), lam), M)) if lam else M
        M = np.array(self.gram, order="C")
        if self.a is not None:
            for start in range(0, len(M), _ROWS):
                rows = slice(start, start + _ROWS)
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
    means = sums.shift[:r] + a / n, sums.shift[r:] + sy / n
    given = features, sums.shift, n, sums.count, G[:r, :r], c, np.maximum(yy, 0.0)
    return NormalEquations(*given, *means, free_bias, a if free_bias else None)


# ---------------------------------------------------------------------------- models


@dataclass(frozen=True)
class RidgeModels:
    """Models theta_k = turn (z * weights_k), which share the coordinates e = turn'phi of rows.

    The leverage of a row in model k is sum_j e_j^2 weights_jk.
    """

    turn: Any  # width x coordinates
    z: Array  # coordinates x outputs
    weights: Array  # coordinates x models
    lam: Array | float  # 1/C
    freedom: Array  # what each coordinate, times its weight, adds to the degrees of freedom
    upper: bool = False  # coordinate j has no part of the functions behind j

    @property
    def trace(self) -> Array:
        """Degrees of freedom of each model, without that of a free bias."""
        return self.freedom @ self.weights

    def coordinates(self, Z: Any, size: int, out: Any = None) -> Any:
        """Return Z @ turn, where the first ``size`` columns of Z are functions.

        Zeros of a triangle are not multiplied. The result is in ``out`` if that is given.
        """
        end, others = self.turn.shape[1], Z[:, size:]
        if not self.upper or (end <= _PANEL and not others.shape[1]):
            return Z @ self.turn if out is None else np.matmul(Z, self.turn, out=out)
        E = empty((Z.shape[0], end), Z, Z.dtype) if out is None else out
        for start in range(0, end, _PANEL):
            stop = min(start + _PANEL, end)
            some, turn = min(stop, size), self.turn[:, start:stop]
            matmul_into(Z[:, :some], turn[:some, :], E[:, start:stop])
            E[:, start:stop] += others @ turn[size:, :]
        return E

    def theta(self, model: int = 0) -> Array:
        """Return the solution of one model, width x outputs."""
        return np.asarray(self.turn @ (self.z * self.weights[:, model, None]))

    def rss(self, equations: NormalEquations) -> Array:
        """Return the sums of s e^2, outputs x models: y'y - c'theta - |theta|^2 / C."""
        rss = np.repeat(equations.yy[:, None], self.weights.shape[1], axis=1)
        for o, left in enumerate(rss):
            thetas = self.turn @ (self.z[:, o, None] * self.weights)
            left -= equations.c[:, o] @ thetas + self.lam * np.sum(thetas**2, axis=0)
        return np.maximum(rss, 0.0)

    def gcv(self, equations: NormalEquations) -> Array:
        """Return generalised cross-validation of every model, summed over outputs."""
        freedom = equations.count - float(equations.free_bias) - self.trace
        return gcv(self.rss(equations).sum(axis=0), freedom, equations.count)


def gcv(rss: Array, freedom: Any, n: float) -> Array:
    """Return n RSS / (n - trace)^2, given n - trace; infinite if no freedom is left."""
    enough = freedom > 1e-10 * n
    return np.where(enough, n * np.maximum(rss, 0.0) / np.where(enough, freedom, 1.0) ** 2, np.inf)


# ---------------------------------------------------------------------------- factors


def models_of_C(equations: NormalEquations, candidates: Array, place: Any = None) -> RidgeModels:
    """Return the models at several C by one eigen-decomposition, on the host or at ``place``.

    The solution leaves out directions in which M and c are only rounding (for example a constant
    function in the span of a centred basis), because C would multiply their noise.
    """
    if place is None:
        values, vectors = np.linalg.eigh(equations.matrix())  # SciPy's would keep Python's lock
    else:
        found = namespace(place).linalg.eigh(like_rows(equations.matrix(), place))
        values, vectors = to_host(tuple(found))
    z = vectors.T @ equations.c
    noise = 16 * float(np.finfo(np.float64).eps)
    flat = values <= noise * np.abs(values).max(initial=0.0)
    z[flat[:, None] & (np.abs(z) <= noise * np.linalg.norm(equations.c, axis=0))] = 0.0
    values, lam = np.maximum(values, 0.0), 1.0 / candidates
    return RidgeModels(vectors, z, 1.0 / (values[:, None] + lam), lam, values)


def theta_at(equations: NormalEquations, C: float) -> Array:
    """Return theta at one C: by Cholesky, or by eigenvalues where 1/C is lost in M's rounding."""
    c, on_host = equations.c, isinstance(equations.gram, np.ndarray)
    if not len(c):  # no function but the bias
        return c
    try:
        if not on_host:
            return on_device.solve_factored(cholesky_lower(equations.matrix(1.0 / C)), c)
        return cholesky_solve(cholesky_in_place(equations.matrix(1.0 / C)), c)
    except np.linalg.LinAlgError:
        place = None if on_host else equations.gram
        return models_of_C(equations, np.array([C]), place).theta()


def models_of_sizes(
    equations: NormalEquations, C: float, sizes: NDArray[np.intp] | None = None
) -> RidgeModels:
    """Factor M + 1/C in the order of the basis; return the models on its first points.

    ``sizes`` are numbers of points, by default 1, 2, ...; a penalised bias belongs to every size.
    """
    c, offset = equations.c, int(equations.features.constant is not None)
    order = np.roll(np.arange(len(c)), offset)  # the column of a penalised bias comes first
    A = (equations.first(order) if offset else equations).matrix(1.0 / C)
    inverse = cholesky_in_place(A).T  # R, then R^-1 in the same memory
    if len(A):
        dtrtri(inverse, overwrite_c=True)
    for start in range(0, len(A), _PANEL):  # what M left below the diagonal
        stop = start + _PANEL
        inverse[stop:, start:stop] = 0.0
        inverse[start:stop, start:stop] = np.triu(inverse[start:stop, start:stop])
    if offset:
        inverse = inverse[np.argsort(order)]
    if sizes is None:
        sizes = np.arange(1, len(c) - offset + 1)
    inside = np.arange(len(c))[:, None] < sizes + offset
    lam, weights = 1.0 / C, inside.astype(np.float64)
    freedom = 1.0 - lam * np.einsum("ij,ij->j", inverse, inverse)
    return RidgeModels(inverse, inverse.T @ c, weights, lam, freedom, upper=True)


def model_at(equations: NormalEquations, C: float) -> RidgeModels:
    """Return the model at one C: by Cholesky, or by eigenvalues where 1/C is lost in rounding."""
    c, on_host = equations.c, isinstance(equations.gram, np.ndarray)
    try:
        if on_host:  # all points, or none
            return models_of_sizes(equations, C, np.array([len(c)]))
        L = cholesky_lower(equations.matrix(1.0 / C))
        inverse = np.asarray(to_host(solve_lower(L, identity(len(c), L)))).T
        freedom, all_points = 1.0 - np.sum(inverse**2, axis=0) / C, np.ones((len(c), 1))
        return RidgeModels(inverse, inverse.T @ c, all_points, 1.0 / C, freedom, upper=True)
    except np.linalg.LinAlgError:
        return models_of_C(equations, np.array([C]), None if on_host else equations.gram)
