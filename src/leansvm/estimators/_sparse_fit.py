"""The steps that SparseLSSVC, SparseLSSVR and KernelBasis share: choose a basis, solve on it.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2  over w in the span of k(x_j, .),
j in B (P-LSSVM; zhou2016, eqs. (9), (11)), in the whitened basis and from sums over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import to_host
from leansvm.basis import Fit, choose
from leansvm.blocks import Block, RowBlocks, declare
from leansvm.kernels import Kernel
from leansvm.solvers import primal
from leansvm.solvers._features import BasisFeatures
from leansvm.solvers._spectral import solve_for_every_C

Array = NDArray[np.float64]


# ---------------------------------------------------------------------------- choosing B


@dataclass(frozen=True)
class Basis(choose.Basis):
    """Basis points that can be whitened."""

    def support(self, basis: BasisFeatures) -> NDArray[np.intp]:
        """Return the row numbers of the points that were kept, -1 for given points."""
        if self.indices is None:
            return np.full(basis.size, -1)
        return self.indices[basis.kept]

    def whitened(self, kernel: Kernel, bias_penalty: float) -> primal.WhitenedBasis:
        """Factor K_BB."""
        result = primal.whiten(kernel, self.rows, self.points(kernel), bias_penalty, self.L)
        result.in_state = self.L is not None
        return result


@dataclass
class Chooser:
    """The arguments of `choose.choose` that stay the same while sizes are tried."""

    kernel: Kernel
    select_on: Any
    budget: int
    random_state: Any
    fit: Fit | None = None
    on_step: Callable[[int], bool] | None = None
    earlier: Basis | None = None  # of the fit before, to go on from

    def __call__(self, blocks: RowBlocks, basis: Any, n_basis: int) -> Basis:
        """Choose ``n_basis`` rows by a selector, or take given row numbers or points."""
        options = {name: value for name, value in vars(self).items() if name != "kernel"}
        chosen = choose.choose(blocks, self.kernel, basis, n_basis, **options)
        return Basis(**vars(chosen))


# ---------------------------------------------------------------------------- solving on B


@dataclass
class PrimalSolution:
    """Coefficients of the points kept, bias, and what led to them."""

    alpha: Array  # points x outputs
    b: Array
    C: float
    curve: Array | None
    error: float  # GCV, or the leave-one-out error where that is the criterion
    objective: float
    residual: float
    loo: Array | None  # left-out residuals, rows x outputs


def solve_on_basis(
    blocks: RowBlocks,
    basis: primal.Features,
    sums: primal.Sums,
    *,
    free_bias: bool,
    C: float | Array,
    criterion: str,
    loo: bool,
) -> PrimalSolution:
    """Solve at one C, or at the best of several by GCV (from the sums) or leave-one-out.

    Leave-one-out runs over the blocks again: they must hold all rows of the sums.
    """
    equations = primal.normal_equations(sums, basis, free_bias)
    candidates = np.atleast_1d(np.asarray(C, dtype=np.float64))
    several = np.ndim(C) == 1
    by_loo = criterion == "loo" and several
    if (loo or by_loo) and 2 * basis.width > blocks.n_rows:
        return _solve_in_dual(blocks, basis, equations, candidates, criterion, several)
    curve = left_out = None
    if not several and not loo:
        best, error = float(candidates[0]), np.nan
        theta = primal.solve_single(equations, best)
    else:
        spectrum = primal.decompose(equations, blocks.place)
        if by_loo:
            small = 8 * blocks.n_rows * len(candidates) * sums.n_outputs <= _KEEP_LOO_BYTES
            curve = primal.left_out_residuals(
                blocks, basis, sums.shift, spectrum, candidates, small
            )
            curve = curve / equations.n
        elif several:
            curve = spectrum.gcv(candidates)
            _check_gcv(curve, equations.count)
        position = 0 if curve is None else int(np.argmin(curve))
        best = float(candidates[position])
        error = np.nan if curve is None else float(curve[position])
        theta = spectrum.theta(best)
        if loo:
            if not (by_loo and small):
                primal.left_out_residuals(
                    blocks, basis, sums.shift, spectrum, np.array([best]), True
                )
                position = 0
            left_out = blocks.concatenate(_pop_left_out, position)
    b = equations.bias(theta)
    return _described(basis, equations, theta, b, best, curve, error, left_out)


def _described(
    basis: primal.Features,
    equations: primal.NormalEquations,
    theta: Array,
    b: Array,
    C: float,
    curve: Array | None,
    error: float,
    loo: Array | None,
) -> PrimalSolution:
    """Add objective and optimality residual to a solution theta, b."""
    gradient = theta / C + equations.M @ theta - equations.c
    scale = max(float(np.linalg.norm(equations.c)), np.finfo(np.float64).tiny)
    residual = float(np.linalg.norm(gradient)) / scale
    alpha, objective = basis.coefficients(theta), equations.objective(theta, C)
    return PrimalSolution(alpha, b, C, curve, error, objective, residual, loo)


def _solve_in_dual(
    blocks: RowBlocks,
    basis: primal.Features,
    equations: primal.NormalEquations,
    candidates: Array,
    criterion: str,
    several: bool,
) -> PrimalSolution:
    """Leave-one-out where the basis is nearly all rows: 1 - leverage cancels in the primal.

    The same model is the dual LS-SVM with the kernel Phi Phi', whose leave-one-out does not.
    """
    Phi = blocks.concatenate(_all_features, basis)
    Y, weight = blocks.targets_of(np.arange(blocks.n_rows))
    weight = np.ones(len(Y)) if weight is None else weight
    used = np.flatnonzero(weight > 0)
    penalty = 0.0 if equations.free_bias else np.inf  # a penalised bias is a column of Phi
    every = solve_for_every_C(
        Phi[used] @ Phi[used].T,
        Y[used],
        weight[used],
        candidates,
        penalty,
        criterion,
        count=equations.count,
    )
    best = float(candidates[every.best])
    theta = Phi[used].T @ every.solution.beta
    b = every.solution.b if equations.free_bias else equations.bias(theta)
    left_out = np.full(Y.shape, np.nan)
    left_out[used] = every.solution.loo
    curve = every.curve if several else None
    error = float(every.curve[every.best])
    return _described(basis, equations, theta, b, best, curve, error, left_out)


@declare("X")
def _all_features(block: Block, basis: primal.Features) -> Any:
    return basis.features(block)


_KEEP_LOO_BYTES = 2**28


@declare(sets=("loo",))
def _pop_left_out(block: Block, position: int) -> Array:
    return np.ascontiguousarray(to_host(block.state.pop("loo")[:, :, position]).T)


def _check_gcv(curve: Array, n: float) -> None:
    if len(curve) > 1 and not np.isfinite(curve).any():
        raise ValueError(
            f"C='gcv' needs sample weights that sum to more than the degrees of freedom, but they "
            f"sum to {n:.3g}: scale sample_weight up, use fewer basis points, or give a number."
        )
