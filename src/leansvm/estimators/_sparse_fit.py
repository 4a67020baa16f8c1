"""The steps that SparseLSSVC, SparseLSSVR and KernelBasis share: choose a basis, solve on it.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2  over w in the span of k(x_j, .),
j in B (P-LSSVM; zhou2016, eqs. (9), (11)), in the whitened basis and from sums over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from leansvm._array_api import foreign_namespace, from_host, moved, to_host
from leansvm.basis import BasisSelector, Fit
from leansvm.blocks import Block, MemoryBlocks, RowBlocks, declare
from leansvm.kernels import Kernel
from leansvm.solvers import primal
from leansvm.solvers._features import BasisFeatures
from leansvm.solvers.eigen import solve_for_every_C

Array = NDArray[np.float64]


# ---------------------------------------------------------------------------- choosing B


@dataclass
class Basis:
    """Basis points: row numbers (None when points were given), their rows, a known factor."""

    indices: NDArray[np.intp] | None
    rows: Any
    L: Array | None
    report: dict[str, Any]

    def support(self, basis: BasisFeatures) -> NDArray[np.intp]:
        """Return the row numbers of the points that were kept, -1 for given points."""
        if self.indices is None:
            return np.full(basis.size, -1)
        return self.indices[basis.kept]

    def points(self, kernel: Kernel) -> Any:
        """Return the basis as `Kernel.block` takes it."""
        return self.rows if self.indices is None else kernel.points(self.rows, self.indices)

    def whitened(self, kernel: Kernel, bias_penalty: float) -> primal.WhitenedBasis:
        """Factor K_BB."""
        result = primal.whiten(kernel, self.rows, self.points(kernel), bias_penalty, self.L)
        result.in_state = self.L is not None
        return result


@dataclass
class Chooser:
    """Runs a selector, on a sample of the rows where its state would not fit the budget."""

    kernel: Kernel
    select_on: Any
    budget: int
    random_state: Any
    fit: Fit | None = None
    on_step: Callable[[int], bool] | None = None
    earlier: Basis | None = None  # of the fit before, to go on from

    def __call__(self, blocks: RowBlocks, basis: Any, n_basis: int) -> Basis:
        """Choose ``n_basis`` rows by a selector, or take given row numbers or points."""
        if isinstance(basis, BasisSelector) and self.earlier is not None:
            return self._go_on(blocks, basis, n_basis, self.earlier)
        return self._anew(blocks, basis, n_basis)

    def _go_on(
        self, blocks: RowBlocks, basis: BasisSelector, n_basis: int, earlier: Basis
    ) -> Basis:
        """Keep the earlier points, add the first others of a new choice."""
        assert earlier.indices is not None
        missing = n_basis - len(earlier.indices)
        if missing <= 0:
            first = np.arange(n_basis)
            return Basis(
                earlier.indices[:n_basis], primal.take_points(earlier.rows, first), None, {}
            )
        new = self._anew(blocks, basis, min(n_basis, blocks.n_rows))
        assert new.indices is not None
        others = np.flatnonzero(~np.isin(new.indices, earlier.indices))[:missing]
        indices = np.concatenate([earlier.indices, new.indices[others]])
        rows = _stacked(earlier.rows, primal.take_points(new.rows, others))
        return Basis(indices, rows, None, new.report)

    def _anew(self, blocks: RowBlocks, basis: Any, n_basis: int) -> Basis:
        if not isinstance(basis, BasisSelector):
            if basis.ndim == 2:
                first = blocks.take(np.array([0]))
                points = (
                    basis.astype(blocks.dtype)
                    if foreign_namespace(first) is None
                    else (from_host(basis, first, dtype=first.dtype))
                )
                return Basis(None, points, None, {})
            return Basis(basis, blocks.take(basis), None, {})
        rng = check_random_state(self.random_state)
        elsewhere = blocks
        if not basis.runs_where_rows_are and foreign_namespace(blocks.take(np.array([0]))):
            blocks = _on_host(blocks)
        sample = self._sample(blocks, basis, n_basis, rng)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        options: dict[str, Any] = {"random_state": seed, "fit": self.fit, "on_step": self.on_step}
        if sample is None:
            chosen = basis.select(blocks, self.kernel, n_basis, **options)
            indices, L = chosen.indices, chosen.L if blocks is elsewhere else None
        else:
            y, weight = blocks.targets_of(sample)
            part = MemoryBlocks(
                blocks.take(sample), y, weight, columns=basis.state_columns(n_basis)
            )
            chosen = basis.select(part, self.kernel, n_basis, **options)
            indices, L = sample[chosen.indices], None
            chosen.report["selected_on"] = len(sample)
        return Basis(indices, elsewhere.take(indices), L, chosen.report)

    def _sample(
        self, blocks: RowBlocks, basis: BasisSelector, n_basis: int, rng: Any
    ) -> NDArray[np.intp] | None:
        """Return the rows to select on, None for all of them."""
        row_bytes = 8 * basis.state_columns(n_basis)
        if row_bytes == 0 or self.kernel.precomputed or self.select_on == "all":
            return None
        if self.select_on == "auto":
            count = max(self.budget // (2 * row_bytes), 4 * n_basis)
        elif isinstance(self.select_on, Integral):
            count = int(self.select_on)
        else:
            count = int(np.ceil(float(self.select_on) * blocks.n_rows))
        if count >= blocks.n_rows:
            return None
        return _stratified_rows(blocks, max(count, n_basis), rng)


def _on_host(blocks: RowBlocks) -> RowBlocks:
    """Copy all rows to the host, for selectors that know NumPy alone."""
    everything = np.arange(blocks.n_rows)
    return MemoryBlocks(to_host(blocks.take(everything)), *blocks.targets_of(everything))


def _stacked(first: Any, second: Any) -> Any:
    xp = foreign_namespace(second)
    if xp is not None:
        return xp.concat([moved(first, second), second])
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.vstack([first, second], format="csr", dtype=second.dtype)
    return np.concatenate([first, second]).astype(second.dtype, copy=False)


def _stratified_rows(blocks: RowBlocks, count: int, rng: Any) -> NDArray[np.intp]:
    """Draw rows of positive weight, classes (the columns of y) in proportion.

    Memory is that of the sample: blocks count the rows of every class, then find those whose
    numbers within their class were drawn.
    """
    in_blocks = np.asarray(blocks.map(_sizes_of_strata))
    sizes = in_blocks.sum(axis=0)
    count = min(count, int(sizes.sum()))
    # equal spacing along the rows sorted by class takes every class in proportion
    spaced = np.linspace(0, sizes.sum() - 1, count).astype(np.intp)
    drawn = np.diff(np.searchsorted(spaced, np.concatenate([[0], np.cumsum(sizes)])))
    ranks = [
        np.sort(sample_without_replacement(size, n, random_state=rng))
        for size, n in zip(sizes.tolist(), drawn.tolist(), strict=True)
    ]
    before = np.cumsum(np.vstack([np.zeros_like(sizes), in_blocks]), axis=0)
    starts = np.asarray(blocks.map(_start_of))
    (rows,) = blocks.collect(_rows_of_ranks, starts, before, ranks)
    return np.asarray(rows)


@declare()
def _start_of(block: Block) -> int:
    return block.start


@declare("y", "weight")
def _sizes_of_strata(block: Block) -> NDArray[np.intp]:
    columns = 1 if block.y is None else block.y.shape[1]
    strata = _stratum(block)
    return np.bincount(strata[strata >= 0], minlength=max(columns, 2))


@declare("y", "weight")
def _rows_of_ranks(
    block: Block, starts: NDArray[np.intp], before: NDArray[np.intp], ranks: list[NDArray[np.intp]]
) -> tuple[NDArray[np.intp]]:
    """Return the rows whose numbers within their class, counted over all blocks, are drawn."""
    strata = _stratum(block)
    here = int(np.flatnonzero(starts == block.start)[-1])
    found = [np.empty(0, np.intp)]
    for k, wanted in enumerate(ranks):
        low, high = np.searchsorted(wanted, [before[here, k], before[here + 1, k]])
        if low < high:
            found.append(np.flatnonzero(strata == k)[wanted[low:high] - before[here, k]])
    return (block.start + np.sort(np.concatenate(found)),)


def _stratum(block: Block) -> NDArray[np.intp]:
    n = block.stop - block.start
    strata = np.zeros(n, dtype=np.intp)
    if block.y is not None:
        y = np.asarray(to_host(block.y))
        strata = (y > 0).astype(np.intp)[:, 0] if y.shape[1] == 1 else np.argmax(y, axis=1)
    if block.weight is not None:
        strata = np.where(np.asarray(to_host(block.weight)) > 0, strata, -1)
    return strata


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
        spectrum = primal.decompose(equations, blocks.take(np.array([0])))
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
    theta = Phi[used].T @ every.coef
    b = every.b if equations.free_bias else equations.bias(theta)
    left_out = np.full(Y.shape, np.nan)
    left_out[used] = every.left_out
    curve = every.curve if several else None
    return _described(basis, equations, theta, b, every.C, curve, every.error, left_out)


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
