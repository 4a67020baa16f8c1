"""Take the best of a few random rows, one at a time, by what each would gain.

What `Backfitting`, `ForwardSelection` and `SparseGreedy` share. A block keeps `FactorRows` and,
until the choice is made, `CandidateRows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from leansvm._accelerated import put
from leansvm._array_api import foreign_namespace, rows_at, to_host, zeros
from leansvm.basis.candidates.pool import Array, CandidateStream, Pool, Refill, Rounding, Rows
from leansvm.basis.cholesky.growing import FactorRows, start, total_and_largest
from leansvm.basis.selector import Basis, BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare, row_weights

# What a block knows of candidates: which of them it has, their rows of P and their D.
InBlock = tuple[Rows, Array, Array]


@dataclass
class CandidateRows:
    """What a block keeps while candidates compete."""

    s: Any  # weights
    pool: Any  # a row for the kernel column of every candidate
    r: Any = None  # gradient S cen(P theta - y) of the squared-loss fit (`GrowingRidge`)
    f: Any = None  # values of the model (`ForwardSelection`)


class CandidateSelector(BasisSelector):
    """Base class of selectors that take the best of a few random rows in every step."""

    nested: ClassVar[bool] = True
    tol: float = -np.inf
    _competition: ClassVar[type[Candidates]]  # how candidates compete
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_candidates": [Interval(Integral, 1, None, closed="left")]
    }

    def __init__(
        self,
        n_candidates: int = 59,
        tol: float = 0.0,
        keep_pool: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_candidates = n_candidates
        self.tol = tol
        self.keep_pool = keep_pool
        self.random_state = random_state

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        return self._competition(blocks, kernel, n_basis, self, rng, fit).choose(on_step)


class Candidates(ABC):
    """A pool of candidates and the blocks that hold their columns.

    The selector says how many candidates there are, whether good ones stay for the next step, and
    the gain at or below which the choice ends. Subclasses that look at the targets use ``fit``.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        kernel: Kernel,
        n_basis: int,
        selector: CandidateSelector,
        rng: np.random.RandomState,
        fit: Fit,
    ) -> None:
        self.blocks, self.kernel, self.fit = blocks, kernel, fit
        self.keep, self.tol = selector.keep_pool, selector.tol
        self.capacity = min(n_basis, blocks.n_rows)
        self.n_candidates = selector.n_candidates
        size = min(self.n_candidates, blocks.n_rows)
        self.total, largest = blocks.fold(total_and_largest, _start, kernel, self.capacity, size)
        rounding = Rounding(largest, self.capacity)
        stream = CandidateStream(rng, blocks.concatenate(_missed, rounding, 0))
        self.pool = Pool(blocks, size, self.capacity, stream, rounding)
        self.refill = Refill()  # columns that the blocks have yet to compute
        self.start()

    @abstractmethod
    def choose(self, on_step: OnStep) -> Basis:
        """Choose up to ``n_basis`` rows; stop when the best gain is at most ``tol``."""

    @abstractmethod
    def start(self) -> None:
        """Begin with no basis."""

    def draw(self, k: int) -> None:
        """Draw the whole pool anew."""
        self.refill = self.pool.replace_all()
        self.pool.refresh([self.blocks.collect(rows_of_basis, self.pool.rows, k)], k)

    def draw_missed(self, k: int) -> bool:
        """Draw from rows that the basis does not contain; return whether there are any."""
        some = self.pool.stream.restrict(self.blocks.concatenate(_missed, self.pool.rounding, k))
        if some:
            self.draw(k)
        return some

    def found(self, indices: Rows, L: Array, **report: Any) -> Basis:
        """Drop what the choice needed and the model does not; return the basis."""
        self.blocks.map(_end)
        k = len(indices)
        return Basis(indices, L=L[:k, :k], report=report)


class OneByOne(Candidates):
    """Choose the best of the pool in every step; subclasses compute the gains of candidates."""

    @abstractmethod
    def gains(self) -> Array:
        """Bring the columns in the blocks up to date; return what every slot would gain.

        Slots that cannot be used may get any finite number.
        """

    @abstractmethod
    def append(self, slot: int, t: int, row: Array) -> list[InBlock]:
        """Add row t, in ``slot``, to the basis; ``row`` is its row of L, [P_t, sqrt(D_t)].

        Returns what `rows_of_basis` finds of the pool's rows in the blocks.
        """

    @abstractmethod
    def report(self, gains: Array) -> dict[str, Any]:
        """Return what to report besides the gains of the chosen rows and the reason to stop."""

    def choose(self, on_step: OnStep) -> Basis:
        """Choose up to ``n_basis`` rows; stop when the best gain is at most ``tol``."""
        pool, k, stop = self.pool, 0, "n_basis"
        indices, taken = np.empty(self.capacity, np.intp), np.empty(self.capacity)
        L = np.zeros((self.capacity, self.capacity))
        self.draw(k)
        while k < self.capacity:
            gains = self.gains()
            slot = pool.best(gains)
            if slot is None:
                if self.draw_missed(k):
                    continue
                stop = "rank"
                break
            if k and gains[slot] <= self.tol:
                stop = "tol"
                break
            indices[k], taken[k] = pool.rows[slot], gains[slot]
            L[k, :k], L[k, k] = pool.P[slot, :k], np.sqrt(pool.D[slot])
            self._take(slot, L[k, : k + 1], gains)
            k += 1
            if on_step(k):
                stop = "callback"
                break
        gain = taken[:k]
        return self.found(indices[:k], L, gain=gain, stop=stop, **self.report(gain))

    def _take(self, slot: int, row: Array, gains: Array) -> None:
        pool, k, t = self.pool, len(row), int(self.pool.rows[slot])
        if k < self.capacity:
            keep = self.keep
            self.refill = pool.replace_worst([slot], gains) if keep else pool.replace_all([slot])
        found = self.append(slot, t, row)
        pool.rounding.add(row)
        pool.refresh(found, k)


def bring_in(block: Block, kernel: Kernel, refill: Refill) -> Any:
    """Compute the columns that new candidates need and put them into their slots."""
    pool = block.kept(CandidateRows).pool
    if refill.rows is None:
        return pool[:0, :]
    slots = refill.slots
    if foreign_namespace(pool) is not None:
        new = kernel_columns(block, kernel, refill.X, refill.rows).T
        put(pool, range(slots.start, slots.stop) if isinstance(slots, slice) else slots, new)
        return new
    in_place = isinstance(slots, slice)
    new = pool[slots] if in_place else np.empty((len(refill.rows), pool.shape[1]))
    kernel_columns(block, kernel, refill.X, refill.rows, new.T)
    if not in_place:
        pool[slots] = new
    return new


def kernel_columns(
    block: Block, kernel: Kernel, X: Any, rows: Rows, out: Array | None = None
) -> Any:
    """Compute the kernel columns of points X, which are rows of the data with these numbers."""
    return kernel.block(block.X, kernel.points(X, rows), out, np.float64)


def add_column(block: Block, p: Array, k: int, chosen: int) -> None:
    """Append p to P as column k and lower D by p^2; the chosen row's residual is 0."""
    known = block.kept(FactorRows)
    known.P[:, k] = p
    D = known.D
    D -= p * p
    np.maximum(D, 0.0, out=D)
    if block.start <= chosen < block.stop:
        D[chosen - block.start] = 0.0


@declare()
def rows_of_basis(block: Block, rows: Rows, k: int) -> InBlock:
    """Return which candidates lie in this block, their rows of P and their D."""
    mine, local = block.positions(rows)
    known = block.kept(FactorRows)
    return mine, *to_host((rows_at(known.P[:, :k], local), rows_at(known.D, local)))


@declare("X", "weight", keeps=(CandidateRows, FactorRows))
def _start(block: Block, kernel: Kernel, capacity: int, size: int) -> tuple[float, float]:
    """As `cholesky.growing.start`, with the weights and room for the candidates' columns."""
    pool = zeros((size, block.stop - block.start), block.X)
    block.keep(CandidateRows(row_weights(block), pool))
    return start(block, kernel, capacity)


@declare(light=False)
def _missed(block: Block, rounding: Rounding, k: int) -> Any:
    """Rows that the basis does not contain, to rounding."""
    known = block.kept(FactorRows)
    return rounding.bound(known.P[:, :k]) < known.D


@declare(keeps=CandidateRows)
def _end(block: Block) -> None:
    block.state.pop(CandidateRows, None)
