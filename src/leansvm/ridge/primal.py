"""The LS-SVM on given features, from sums over the rows (zhou2016, eqs. (9), (11)).

One eigen-decomposition of M = Phi_c' S Phi_c gives the solution, generalised cross-validation and
the exact leave-one-out residuals e / (1 - h) for every C and every output:
theta = V (V'c / (sigma + 1/C)), h = s (1/n + sum_j (Phi_c V)_j^2 / (sigma_j + 1/C)).
A large M on the host is only made tridiagonal, which gives the same (`tridiagonal`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn._config import get_config

from leansvm._accelerated import matmul_into
from leansvm._array_api import as_float64, empty, like_rows, namespace, to_host
from leansvm._parallel import SMALL_MATRIX
from leansvm.basis import on_device
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.linalg import cholesky_in_place, cholesky_solve
from leansvm.ridge.eigen import solve_for_every_C
from leansvm.ridge.left_out import add_up_squares, mean_errors
from leansvm.ridge.sums import NormalEquations, Sums, normal_equations, rows_of_Z
from leansvm.ridge.tridiagonal import (
    RidgeFactors,
    Tridiagonal,
    leverages,
    stays_definite,
    tridiagonal,
)
from leansvm.rows import (
    Block,
    RowBlocks,
    declare,
    total_weight,
)
from leansvm.solution import Solution, first_of_the_best

Array = NDArray[np.float64]
_KEEP_LOO_BYTES = 2**28
_FEW_ROWS = 2000
_NO_ROOM = (
    "C='gcv' needs sample weights that sum to more than the degrees of freedom, but they sum to "
    "{:.3g}: scale sample_weight up, use fewer basis points, or give a number."
)


@dataclass(frozen=True)
class Criterion:
    """How C is found: candidates and what scores them, or one value."""

    C: float | Array
    name: str = "gcv"  # "gcv", "loo" or "kfold"
    left_out: bool = False  # whether left-out residuals are asked for at the C that is taken
    folds: Any = None  # `leansvm.ridge.kfold.KFoldSums`, for "kfold"
    basis_rows: NDArray[np.intp] | None = None  # rows that are basis points (`left_out`)


def solve(
    blocks: RowBlocks, features: FeatureMap, sums: Sums, free_bias: bool, criterion: Criterion
) -> Solution:
    """Solve at one C, or at the best of several by GCV (from the sums) or leave-one-out.

    Leave-one-out runs over the blocks again: they must hold all rows of the sums. So does GCV
    where the basis is nearly all rows; batches, of which the sums alone are left, do without.
    """
    equations, several = normal_equations(sums, features, free_bias), np.ndim(criterion.C) == 1
    if not (several or criterion.left_out):
        C = float(np.asarray(criterion.C))
        theta = theta_at(equations, C)
        return Solution("primal", features.coefficients(theta), **equations.describe(theta, C))
    by_loo = several and criterion.name == "loo"
    # nearly all rows are basis points: 1 - leverage and the squared residuals lose their digits
    share = 0.5 if blocks.n_rows <= _FEW_ROWS else 0.95  # an eigen-decomposition of all is slow
    if features.width > share * blocks.n_rows and _all_there(blocks, equations):
        return _solve_in_dual(blocks, features, equations, criterion)
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    spectrum: Spectrum | Tridiagonal
    large = features.width > SMALL_MATRIX and blocks.place is None
    if large and stays_definite(equations, candidates):
        spectrum = tridiagonal(equations)
    else:
        spectrum = decompose(equations, blocks.place)
    # as much as tiles may take, which follows the budget
    room = min(_KEEP_LOO_BYTES, get_config()["working_memory"] * 2**20)
    kept = 8 * blocks.n_rows * len(candidates) * sums.n_outputs <= room and criterion.left_out
    curve = None
    if by_loo:
        curve = left_out_errors(
            blocks,
            features,
            sums.shift,
            spectrum,
            candidates,
            keep=kept,
            basis_rows=criterion.basis_rows,
        )
    elif several:
        curve = spectrum.gcv(candidates)
        if len(curve) > 1 and not np.isfinite(curve).any():
            raise ValueError(_NO_ROOM.format(equations.count))
    best = 0 if curve is None else first_of_the_best(curve)
    C = float(candidates[best])
    theta = spectrum.theta(C)
    solution = Solution("primal", features.coefficients(theta), **equations.describe(theta, C))
    if curve is not None:
        solution.curve, solution.error = curve, float(curve[best])
    if criterion.left_out:
        if not (by_loo and kept):
            left_out_errors(blocks, features, sums.shift, spectrum, np.array([C]), keep=True)
            best = 0
        solution.left_out = blocks.concatenate(_pop_left_out, best)
    return solution


def theta_at(equations: NormalEquations, C: float) -> Array:
    """Return theta at one C: by Cholesky, or by eigenvalues where 1/C is lost in M's rounding."""
    M, c = equations.M, equations.c
    if not len(c):  # no function but the bias
        return c
    try:
        if not isinstance(M, np.ndarray):
            return on_device.solve_definite(M, np.full(len(c), 1.0 / C), c)
        A = M.copy()
        A.flat[:: len(A) + 1] += 1.0 / C
        return cholesky_solve(cholesky_in_place(A), c)
    except np.linalg.LinAlgError:
        return decompose(equations, None if isinstance(M, np.ndarray) else M).theta(C)


def _all_there(blocks: RowBlocks, equations: NormalEquations) -> bool:
    """Whether the blocks hold all rows of the sums, by their weights: a batch does not."""
    return abs(total_weight(blocks) - equations.n) <= 1e-9 * equations.n


def _solve_in_dual(
    blocks: RowBlocks, features: FeatureMap, equations: NormalEquations, criterion: Criterion
) -> Solution:
    """Leave-one-out and GCV where the basis is nearly all rows: both cancel in the primal.

    The same model is the dual LS-SVM with the kernel Phi Phi', where they do not.
    """
    wide = replace(features, single=False) if isinstance(features, KernelFeatures) else features
    Phi = blocks.concatenate(_all_features, wide)
    Y, weight = blocks.targets_of(np.arange(blocks.n_rows))
    weight = np.ones(len(Y)) if weight is None else weight
    used = np.flatnonzero(weight > 0)
    candidates = np.atleast_1d(np.asarray(criterion.C, dtype=np.float64))
    outside = np.ones(len(Y), bool)
    outside[[] if criterion.basis_rows is None else criterion.basis_rows] = False
    every = solve_for_every_C(
        Phi[used] @ Phi[used].T,
        Y[used],
        weight[used],
        candidates,
        0.0 if equations.free_bias else np.inf,  # a penalised bias is a column of Phi
        criterion.name,
        count=equations.count,
        outside=outside[used],
    )
    theta = Phi[used].T @ every.coef
    known = equations.describe(theta, every.C)
    solution = Solution("primal", features.coefficients(theta), **known)
    if equations.free_bias:
        solution.b = every.b
    solution.left_out = np.full(Y.shape, np.nan)
    solution.left_out[used] = every.left_out
    solution.curve = every.curve if np.ndim(criterion.C) == 1 else None
    solution.error = every.error
    return solution


@declare("X")
def _all_features(block: Block, features: FeatureMap) -> Any:
    return features.of(block)


@declare(sets=("loo",))
def _pop_left_out(block: Block, position: int) -> Array:
    return np.ascontiguousarray(to_host(block.state.pop("loo")[:, :, position]).T)


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
        rss = self.equations.yy.sum() - z2 @ ((self.values[:, None] + 2 * lam) / shrunk / shrunk)
        trace = float(self.equations.free_bias) + np.sum(self.values[:, None] / shrunk, axis=0)
        n = self.equations.count
        room = n - trace
        enough = room > 1e-10 * n
        return np.where(enough, n * np.maximum(rss, 0.0) / np.where(enough, room, 1.0) ** 2, np.inf)


def decompose(equations: NormalEquations, place: Any = None) -> Spectrum:
    """Decompose M once for all C, on the host or where ``place`` is.

    A direction in which both M and c are rounding (a constant function in the span of a centred
    basis) has no part in the solution; C would multiply its noise.
    """
    if place is None:
        values, vectors = np.linalg.eigh(equations.M)  # SciPy's would keep Python's lock
    else:
        found = namespace(place).linalg.eigh(like_rows(equations.M, place))
        values, vectors = to_host(tuple(found))
    z = vectors.T @ equations.c
    noise = 16 * float(np.finfo(np.float64).eps)
    flat = values <= noise * np.abs(values).max(initial=0.0)
    z[flat[:, None] & (np.abs(z) <= noise * np.linalg.norm(equations.c, axis=0))] = 0.0
    return Spectrum(equations, vectors, np.maximum(values, 0.0), z)


def left_out_errors(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    spectrum: Spectrum | Tridiagonal,
    candidates: Array,
    *,
    keep: bool = False,
    one_copy: bool = False,
    basis_rows: NDArray[np.intp] | None = None,
) -> Array:
    """Mean square of the left-out residuals for every C; one pass.

    A row's residual without it is e / (1 - h) with leverage h. With ``keep`` blocks also keep
    the residuals of all candidates, outputs x rows x candidates, in ``state["loo"]``. With
    ``one_copy`` a row of weight s > 1 is taken for s equal rows, of which one is left out.
    ``basis_rows`` do not count where the others are enough (`left_out`).
    """
    eq, width = spectrum.equations, features.width
    # Z @ turn = S^1/2 [Phi_c V, Y_c]; without a free bias the shift is zero
    turn = np.zeros((len(shift) + 1, len(shift)))
    turn[:width, :width] = spectrum.vectors
    turn[width:-1, width:] = np.eye(len(shift) - width)
    if eq.free_bias:
        turn[-1] = (shift - np.concatenate([eq.mean_phi, eq.mean_y])) @ turn[:-1]
    if blocks.place is not None:
        turn = like_rows(turn, blocks.place)  # once, not for every block
    factors: RidgeFactors | Array
    if isinstance(spectrum, Tridiagonal):
        factors = spectrum.factored(candidates)
        coefs = spectrum.coordinates(factors)
    else:
        factors = 1.0 / (spectrum.values[:, None] + 1.0 / candidates)
        coefs = spectrum.z.T[:, :, None] * factors
    solved = (turn, coefs, factors, eq.free_bias / eq.n)
    totals = blocks.sum(_left_out_of_block, features, shift, *solved, keep, one_copy, basis_rows)
    return mean_errors(totals)


@declare("X", "y", "weight", sets=("loo",))
def _left_out_of_block(
    block: Block,
    features: FeatureMap,
    shift: Array,
    turn: Array,
    coefs: Array,
    factors: RidgeFactors | Array,
    per_row: float,
    keep: bool,
    one_copy: bool,
    basis_rows: NDArray[np.intp] | None,
) -> Any:
    width, xp = features.width, namespace(block.X)
    Z = as_float64(rows_of_Z(block, features, shift))
    root = Z[:, -1:]  # sqrt(s): what follows are rows times it
    turned = Z @ like_rows(turn, Z)
    E, Y = turned[:, :width], turned[:, width:]
    left_out = empty((Y.shape[1], Y.shape[0], coefs.shape[2]), Z)
    for o in range(Y.shape[1]):  # Y - E z / (lam + sigma)
        residual = left_out[o, ...]
        matmul_into(E, like_rows(-coefs[o], Z), residual)
        residual += Y[:, o : o + 1]
    # h - 1 = s (1/n + sum_j E_j^2 / (lam + sigma_j)) - 1, kept away from zero by rounding
    if isinstance(factors, RidgeFactors):
        leverage = leverages(E, factors)
    else:
        E *= E
        leverage = E @ like_rows(factors, Z)
    leverage += root * root * per_row
    if one_copy:
        leverage /= xp.clip(root * root, 1.0, None)
    leverage -= 1.0
    left_out /= xp.clip(leverage, None, -1e-12)
    squares = xp.sum(left_out * left_out, axis=0)
    totals = add_up_squares(block, squares, root[:, 0], basis_rows)
    if keep:
        with np.errstate(invalid="ignore"):  # rows of zero weight have none
            left_out /= -root
        block.state["loo"] = left_out
    return totals
