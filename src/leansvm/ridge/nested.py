"""How large a basis? Sizes of one nested basis, compared by leave-one-out.

In the order of choice K_BB = L L', so that the first k whitened columns Phi = K_MB L^-T are those
of the first k points: a larger size only adds columns. With R'R = I/C + Phi_c'S Phi_c and
W = S^1/2 Phi_c R^-1, the model on the first k points has fitted values sum_{j<=k} w_j (w_j'y) and
leverages sum_{j<=k} w_ij^2: one triangular solve gives the left-out errors of all sizes at one C.
The basis doubles while that pays; then the smallest size whose error is within 0.5 % of the best is
taken, and C is chosen for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from leansvm._array_api import (
    as_float64,
    empty,
    foreign_namespace,
    like_rows,
    namespace,
    rows_at,
    to_host,
    zeros,
)
from leansvm.basis.cholesky import pivoted_cholesky
from leansvm.basis.features import KernelFeatures, inverse_transpose_like
from leansvm.kernels import Kernel
from leansvm.linalg import right_solve_in_place
from leansvm.ridge._lapack import eigh_in_place
from leansvm.ridge.left_out import add_up_squares, mean_errors
from leansvm.ridge.sums import FIRST_ROWS, Sums
from leansvm.rows import (
    Block,
    MemoryBlocks,
    RowBlocks,
    declare,
)
from leansvm.solution import first_of_the_best

Array = NDArray[np.float64]
_GAIN = 0.01  # share of the error that twice the size has to save
_MARGIN = 0.005  # sizes whose errors are this close are alike
_STEP = 2**0.5  # between sizes that are compared
_FIRST_SIZE = 60
_EVERY_C = 1000  # points; larger bases are judged at one C
_SMALL_PIVOT = 1e5  # times what counts as dependent: below it the order of choice is given up


@dataclass
class Ladder:
    """The basis so far: points in order, their factor, and the second moments of their columns."""

    blocks: RowBlocks
    kernel: Kernel
    rows: Any  # of all points there may be, in order
    indices: NDArray[np.intp] | None
    free_bias: bool
    constant: float | None  # of the column of a penalised bias, which comes first
    budget: int
    y_shift: Array  # means of the first rows' targets, for a free bias
    taken: int = 0  # points looked at
    kept: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    L: Array = field(default_factory=lambda: np.empty((0, 0)))
    shift: Array = field(default_factory=lambda: np.empty(0))
    gram: Array = field(default_factory=lambda: np.empty((0, 0)))  # Zp'Zp
    cross: Array = field(default_factory=lambda: np.empty((0, 0)))  # Zp'Zt
    targets: Array = field(default_factory=lambda: np.empty((0, 0)))  # Zt'Zt

    def extend(self, size: int) -> None:
        """Go on to the first ``size`` points; dependent ones are dropped."""
        self._factor(size)
        first = self.gram.shape[0]
        self._set_shift(first)
        width = len(self.shift)
        # rows are copied when they get wider; beside them lie tiles and some r x r matrices
        keep = 32 * self.blocks.n_rows * (width + 2) + 64 * width**2 <= self.budget
        found = self.blocks.sum(_new_moments, self.columns(), first, keep)
        new, cross, targets = found
        gram = np.empty((width, width))
        gram[:first, :first] = self.gram
        gram[first:], gram[:first, first:] = new, new[:, :first].T
        self.gram, self.cross = gram, np.vstack([self.cross, cross]) if first else cross
        self.targets = targets

    def _factor(self, size: int) -> None:
        """Extend L by the factor of the new points' Schur complement."""
        new = np.arange(self.taken, size)
        K = self._block(new, new)
        # well above rounding, which must not decide how many points there are
        floor = 1e3 * float(np.finfo(np.float64).eps) * float(K.diagonal().max(initial=0.0))
        below = np.empty((len(new), 0))
        if len(self.kept):
            below = solve_triangular(self.L, self._block(new, self.kept).T, lower=True).T
        corner, chosen = _factored(K - below @ below.T, floor)
        k, rank = len(self.kept), len(chosen)
        L = np.zeros((k + rank, k + rank), order="F")
        L[:k, :k], L[k:, :k], L[k:, k:] = self.L, below[chosen], corner
        self.L, self.kept, self.taken = L, np.concatenate([self.kept, new[chosen]]), size

    def _block(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> Array:
        """Return the kernel between points, on the host."""
        rows, points = to_host(rows_at(self.rows, a)), to_host(self._points(b))
        return np.asarray(self.kernel.block(rows, points, dtype=np.float64))

    def _points(self, positions: NDArray[np.intp]) -> Any:
        if self.kernel.precomputed:
            assert self.indices is not None
            return self.indices[positions]
        return rows_at(self.rows, positions)

    def _set_shift(self, first: int) -> None:
        """Take the means of the first rows off the new columns; nothing without a free bias."""
        offset = self.constant is not None
        width = len(self.kept) + offset
        if not self.free_bias:
            self.shift = np.zeros(width)
            return
        X, _, weight = self.blocks.head(FIRST_ROWS)
        Phi = to_host(self.features(len(self.kept)).phi(X))[:, first:]
        if weight is not None and weight.any():
            Phi = Phi[weight > 0]
        self.shift = np.concatenate([self.shift, Phi.mean(axis=0)])

    def features(self, size: int) -> KernelFeatures:
        """Return the map to the first ``size`` whitened columns."""
        L = np.asfortranarray(self.L[:size, :size])
        kept = self.kept[:size]
        return KernelFeatures(self.kernel, self._points(kept), L, kept, self.constant)

    def columns(self) -> NestedColumns:
        """Return what blocks need to know of the columns."""
        return NestedColumns(self.features(len(self.kept)), self.shift, self.y_shift)

    def sums(self, size: int, count: float | None) -> Sums:
        """Return the sums of the first ``size`` points in the order [Phi, constant, Y, 1]."""
        order = self._order(size)
        k, t = len(order), len(self.targets)
        total = np.empty((k + t, k + t))
        total[:k, :k], total[:k, k:] = self.gram[np.ix_(order, order)], self.cross[order]
        total[k:, :k], total[k:, k:] = self.cross[order].T, self.targets
        n = float(self.targets[-1, -1]) if count is None else count
        return Sums(self.shift_of(size), total, t - 1, n)

    def shift_of(self, size: int) -> Array:
        """Return what was taken off the columns [Phi, constant, Y] of the first ``size`` points."""
        return np.concatenate([self.shift[self._order(size)], self.y_shift])

    def _order(self, size: int) -> NDArray[np.intp]:
        """Return the places of [Phi, constant] of the first ``size`` points: the constant last."""
        offset = int(self.constant is not None)
        return np.r_[offset : size + offset, np.zeros(offset, np.intp)]

    # ------------------------------------------------------------------ errors

    def curve(self, candidates: Array) -> Array:
        """Return the left-out errors of all points at every C, by an eigen-decomposition."""
        M, c, _ = self._centred()
        values, vectors = eigh_in_place(M)  # NumPy's would take two matrices more
        inverse = 1.0 / (np.maximum(values, 0.0)[:, None] + 1.0 / candidates)
        z = vectors.T @ c
        found = self.blocks.sum(
            _errors_by_spectrum, self.columns(), self._means(), vectors, z, inverse, self.indices
        )
        return mean_errors(found)

    def errors(self, sizes: NDArray[np.intp], C: float) -> Array:
        """Return the left-out errors of the first ``sizes`` points at one C."""
        M, c, _ = self._centred()
        M.flat[:: len(M) + 1] += 1.0 / C
        R = cholesky(M, lower=True, overwrite_a=True, check_finite=False)
        tau = solve_triangular(R, c, lower=True, check_finite=False)
        edges = sizes + (self.constant is not None)
        by = (np.asfortranarray(R), tau, edges, self.indices)
        return mean_errors(self.blocks.sum(_errors_by_prefix, self.columns(), self._means(), *by))

    def _centred(self) -> tuple[Array, Array, float]:
        n, a, sy = float(self.targets[-1, -1]), self.cross[:, -1], self.targets[:-1, -1]
        M, c = self.gram.copy(), self.cross[:, :-1].copy()
        if self.free_bias:
            M -= np.outer(a, a / n)
            c -= np.outer(a, sy) / n
        return M, c, n

    def _means(self) -> tuple[Array, Array, float]:
        """Return the means of the (shifted) columns and targets; 1 / n of a free bias, else 0."""
        n = float(self.targets[-1, -1])
        if not self.free_bias:
            return np.zeros(len(self.shift)), np.zeros(len(self.targets) - 1), 0.0
        return self.cross[:, -1] / n, self.targets[:-1, -1] / n, 1.0 / n


def _factored(rest: Array, floor: float) -> tuple[Array, NDArray[np.intp]]:
    """Factor a Schur complement in its order; pivoted, without dependent rows, where it must be."""
    try:
        corner = cholesky(rest, lower=True, check_finite=False)
        if float(corner.diagonal().min(initial=np.inf)) ** 2 > _SMALL_PIVOT * floor:
            return corner, np.arange(len(rest))
    except np.linalg.LinAlgError:
        pass
    # compares residuals after rounding, so that noise decides no pivot
    blocks = MemoryBlocks(np.ascontiguousarray(rest))
    found = pivoted_cholesky(blocks, Kernel("precomputed"), len(rest))
    rank = int(np.count_nonzero(found.L.diagonal() ** 2 > floor))
    return found.L[:rank, :rank], found.indices[:rank]


@dataclass(frozen=True)
class NestedColumns:
    """The whitened columns of a ladder, as passes over the rows need them."""

    features: KernelFeatures
    shift: Array
    y_shift: Array

    def rows(self, block: Block, keep: bool = False) -> tuple[Any, Any]:
        """Return Zp = S^1/2 [constant, Phi - shift] and S^1/2 of a block, kept or computed."""
        xp = namespace(block.X)
        root = zeros((block.stop - block.start,), block.X) + 1.0
        if block.weight is not None:
            root = xp.sqrt(as_float64(block.weight))
        known = block.state.get("Zp")
        there = 0 if known is None else known.shape[1]
        if known is not None and there >= len(self.shift):
            return known[:, : len(self.shift)], root
        Z = empty((root.shape[0], len(self.shift)), block.X)
        if foreign_namespace(Z) is not None:
            offset = int(self.features.constant is not None)
            Z[:, :offset] = 0.0 if self.features.constant is None else self.features.constant
            self.features.phi(block.X, Z[:, offset:])
            Z -= like_rows(self.shift, Z)
            Z *= root[:, None]
        else:
            if known is not None:
                Z[:, :there] = known
            self._fill(block, Z, there, root)
        if keep:
            block.state["Zp"] = Z
        return Z, root

    def _fill(self, block: Block, Z: Array, there: int, root: Array) -> None:
        features, offset = self.features, int(self.features.constant is not None)
        if features.constant is not None and not there:
            Z[:, 0] = root * features.constant
        done = max(there - offset, 0)
        points, L = rows_at(features.points, np.arange(done, features.size)), features.L
        assert L is not None
        new = features.kernel.block(block.X, points, dtype=np.float64)
        new *= root[:, None]
        if done:  # K_new - Phi L21', with what was shifted put back
            old = Z[:, offset:there] @ L[done:, :done].T
            old += np.outer(root, L[done:, :done] @ self.shift[offset:there])
            new -= old
        right_solve_in_place(new, np.asfortranarray(L[done:, done:]))
        Z[:, done + offset :] = new
        Z[:, done + offset :] -= np.outer(root, self.shift[done + offset :])

    def targets(self, block: Block, root: Any) -> Any:
        """Return Zt = S^1/2 [Y - shift, 1]."""
        Y = as_float64(block.y) - like_rows(self.y_shift, root)
        return namespace(root).concat([Y * root[:, None], root[:, None]], axis=1)


@declare("X", "y", "weight", sets=("Zp",))
def _new_moments(
    block: Block, columns: NestedColumns, first: int, keep: bool
) -> tuple[Any, Any, Any]:
    """Return Zn'Zp, Zn'Zt of the columns from ``first`` on, and Zt'Zt."""
    Z, root = columns.rows(block, keep)
    T, new = columns.targets(block, root), Z[:, first:]
    return new.T @ Z, new.T @ T, T.T @ T


def _centred_rows(
    block: Block, columns: NestedColumns, means: tuple[Array, Array, float]
) -> tuple[Any, Any, Any, Any]:
    """Return centred columns and targets, 1 less the leverage of a free bias, roots of weights."""
    Z, root = columns.rows(block)
    mean_phi, mean_y, per_row = like_rows(means[0], Z), like_rows(means[1], Z), means[2]
    Z = Z - root[:, None] * mean_phi
    Y = columns.targets(block, root)[:, :-1] - root[:, None] * mean_y
    return Z, Y, 1.0 - root * root * per_row, root


@declare("X", "y", "weight")
def _errors_by_prefix(
    block: Block,
    columns: NestedColumns,
    means: tuple[Array, Array, float],
    R: Array,
    tau: Array,
    edges: NDArray[np.intp],
    basis_rows: NDArray[np.intp] | None,
) -> Any:
    """Add up s (left-out residual)^2 for every prefix of the columns."""
    W, Y, room, root = _centred_rows(block, columns, means)
    xp, squares, start = namespace(W), [], 0
    if xp is np:
        right_solve_in_place(W, R)
    else:
        W = W @ inverse_transpose_like(R, W)
    for stop in edges.tolist():
        part = W[:, start:stop]
        Y = Y - part @ like_rows(tau[start:stop], W)
        room = room - xp.sum(part * part, axis=1)
        left_out = Y / xp.clip(room, 1e-12, None)[:, None]
        squares.append(xp.sum(left_out * left_out, axis=1))
        start = stop
    return add_up_squares(block, xp.stack(squares, axis=1), root, basis_rows)


@declare("X", "y", "weight")
def _errors_by_spectrum(
    block: Block,
    columns: NestedColumns,
    means: tuple[Array, Array, float],
    vectors: Array,
    z: Array,
    inverse: Array,
    basis_rows: NDArray[np.intp] | None,
) -> Any:
    """Add up s (left-out residual)^2 for every C."""
    Z, Y, room, root = _centred_rows(block, columns, means)
    E, xp = Z @ like_rows(vectors, Z), namespace(Z)
    leverage = (E * E) @ like_rows(inverse, Z)
    room = xp.clip(room[:, None] - leverage, 1e-12, None)
    squares = zeros((Z.shape[0], inverse.shape[1]), Z)
    for o in range(Y.shape[1]):
        left_out = (Y[:, o : o + 1] - E @ like_rows(z[:, o, None] * inverse, Z)) / room
        left_out *= left_out
        squares += left_out
    return add_up_squares(block, squares, root, basis_rows)


@declare("y", "weight", sets=("Zp", "Z"))
def _keep_prefix(block: Block, columns: NestedColumns, size: int) -> None:
    """Turn what was kept into the rows of Z that the solver of one size reads."""
    Zp = block.state.pop("Zp", None)
    if Zp is None or Zp.shape[1] < size + (columns.features.constant is not None):
        return  # nothing kept, or only of a smaller size because there was no room for more
    xp, offset = namespace(Zp), int(columns.features.constant is not None)
    root = zeros((Zp.shape[0],), Zp) + 1.0
    if block.weight is not None:
        root = xp.sqrt(as_float64(block.weight))
    parts = [Zp[:, offset : size + offset], Zp[:, :offset], columns.targets(block, root)]
    block.state["Z"] = xp.concat(parts, axis=1)


# ---------------------------------------------------------------------------- the search


def open_ladder(
    blocks: RowBlocks,
    kernel: Kernel,
    rows: Any,
    bias_penalty: float,
    budget: int,
    indices: NDArray[np.intp] | None = None,
) -> Ladder:
    """Begin with no point of a basis; its row numbers are needed for a precomputed kernel."""
    constant = 1.0 / np.sqrt(bias_penalty) if 0 < bias_penalty < np.inf else None
    _, Y, weight = blocks.head(FIRST_ROWS)
    Y = np.asarray(to_host(Y), dtype=np.float64)
    if weight is not None and weight.any():
        Y = Y[weight > 0]
    y_shift = Y.mean(axis=0) if bias_penalty == 0 else np.zeros(Y.shape[1])
    free = bias_penalty == 0
    return Ladder(blocks, kernel, rows, indices, free, constant, budget, y_shift)


def climb(ladder: Ladder, candidates: Array) -> tuple[int, dict[str, NDArray[Any]]]:
    """Double the basis while that lowers the error; return the lean size, and what was compared.

    Sizes in between are compared at the C of the largest one. A basis too large for an
    eigen-decomposition that may not be its last one is judged at the C of half of it.
    """
    largest = ladder.rows.shape[0]
    size, best, C = _first_size(largest), np.inf, float(candidates[0])
    errors = None
    while True:
        ladder.extend(size)
        if len(candidates) > 1 and size <= _EVERY_C:
            curve = ladder.curve(candidates)
            error, at = float(curve.min()), float(candidates[first_of_the_best(curve)])
        else:
            errors = ladder.errors(_sizes_up_to(len(ladder.kept)), C)
            error, at = float(errors[-1]), C
        pays = error < (1.0 - _GAIN) * best
        if error < best:
            best, C = error, at
        if size == largest or not pays:
            break
        size = min(2 * size, largest)
    sizes = _sizes_up_to(len(ladder.kept))
    if errors is None:
        errors = ladder.errors(sizes, C)
    # a smaller size may have been better than any of these, at another C: then the best of them
    enough = max((1.0 + _MARGIN) * min(best, errors.min()), errors.min())
    lean = int(sizes[np.argmax(errors <= enough)])
    return lean, {"sizes": sizes, "errors": errors}


def _first_size(largest: int) -> int:
    """Return a size of about sixty from which doubling leads to the largest one."""
    doublings = max(0, round(np.log2(max(largest, 1) / _FIRST_SIZE)))
    return int(np.ceil(largest / 2**doublings))


def _sizes_up_to(largest: int) -> NDArray[np.intp]:
    """Return the sizes to compare, each about sqrt(2) times the one before."""
    steps = np.arange(1 + 2 * np.log2(max(largest / _FIRST_SIZE, 1.0)))
    return np.unique(np.rint(largest * _STEP**-steps)).astype(np.intp)


def keep_prefix(ladder: Ladder, size: int) -> None:
    """Let blocks keep, of what they have, the rows of Z of the size that was taken."""
    ladder.blocks.map(_keep_prefix, ladder.columns(), size)
