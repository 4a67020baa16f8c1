"""Take the best of a few random rows, one at a time, by what each would gain.

The loop and the passes over the blocks that `Backfitting` and `SparseGreedy` share. A block keeps
``P`` and ``D`` (`leansvm.basis._whitened`), the weights ``s``, and a row for the column of every
candidate: ``pool`` for those in slots, ``waiting`` for those that will get one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from leansvm.basis._base import Selection
from leansvm.basis._pool import (
    Array,
    CandidateStream,
    Pool,
    Refill,
    Rounding,
    Rows,
    waiting_room,
)
from leansvm.basis._whitened import start
from leansvm.blocks import Block, RowBlocks
from leansvm.kernels import Kernel

# What a block knows of candidates: which of them it has, their rows of P and their D.
Found = tuple[Rows, Array, Array]


class Candidates(ABC):
    """Candidates and the blocks that hold their columns; subclasses know what they gain.

    Parameters
    ----------
    blocks, kernel : RowBlocks, Kernel
        The rows and the model's kernel.
    n_basis : int
        Most rows to choose.
    n_candidates : int
        Rows to look at in a step.
    keep : bool
        Whether good candidates stay for the next step; otherwise all are drawn anew.
    rng : RandomState
        Decides which rows become candidates.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        kernel: Kernel,
        n_basis: int,
        n_candidates: int,
        keep: bool,
        rng: np.random.RandomState,
    ) -> None:
        if n_candidates < 1:
            raise ValueError(f"n_candidates must be at least 1, got {n_candidates!r}.")
        self.blocks, self.kernel, self._keep = blocks, kernel, keep
        self.capacity = min(n_basis, blocks.n_rows)
        size = min(n_candidates, blocks.n_rows)
        room = waiting_room(size) if keep else 0
        begun = blocks.map(_start, kernel, self.capacity, size, room)
        self.total = float(sum(total for total, _ in begun))
        rounding = Rounding(max(largest for _, largest in begun), self.capacity)
        stream = CandidateStream(rng, blocks.concatenate(_missed, rounding, 0))
        self.pool = Pool(blocks, size, self.capacity, stream, rounding)
        self.refill = Refill()

    @abstractmethod
    def gains(self) -> Array:
        """Bring the columns in the blocks up to date; return what every slot would gain.

        Slots that cannot be used may get any finite number.
        """

    @abstractmethod
    def append(self, slot: int, t: int, row: Array) -> list[Found]:
        """Add row t, in ``slot``, to the basis; ``row`` is its row of L, [P_t, sqrt(D_t)].

        Returns what `rows_of_basis` finds of the pool's rows in the blocks.
        """

    def choose(
        self, tol: float = -np.inf, on_step: Callable[[int], bool] | None = None
    ) -> Selection:
        """Choose up to ``n_basis`` rows; stop when the best gain is at most ``tol``."""
        pool, k, stop = self.pool, 0, "n_basis"
        indices, taken = np.empty(self.capacity, np.intp), np.empty(self.capacity)
        L = np.zeros((self.capacity, self.capacity))
        self._draw(k)
        while k < self.capacity:
            gains = self.gains()
            slot = pool.best(gains)
            if slot is None:
                # all candidates lie in the basis: are there rows that do not?
                if pool.restrict(self.blocks.concatenate(_missed, pool.rounding, k)):
                    self._draw(k)
                    continue
                stop = "rank"
                break
            if k and gains[slot] <= tol:
                stop = "tol"
                break
            indices[k], taken[k] = pool.rows[slot], gains[slot]
            L[k, :k], L[k, k] = pool.P[slot, :k], np.sqrt(pool.D[slot])
            self._take(slot, L[k, : k + 1], gains)
            k += 1
            if on_step is not None and on_step(k):
                stop = "callback"
                break
        self.blocks.map(_end)
        return Selection(indices[:k], L[:k, :k], {"gain": taken[:k], "stop": stop})

    def _draw(self, k: int) -> None:
        self.refill = self.pool.replace_all()
        self.pool.refresh(self.blocks.map(rows_of_basis, self.pool.rows, k), k)

    def _take(self, slot: int, row: Array, gains: Array) -> None:
        pool, k, t = self.pool, len(row), int(self.pool.rows[slot])
        if k < self.capacity:
            keep = self._keep
            self.refill = pool.replace_worst(slot, gains) if keep else pool.replace_all(slot)
        found = self.append(slot, t, row)
        pool.rounding.add(row)
        pool.refresh(found, k)


def bring_in(block: Block, kernel: Kernel, refill: Refill) -> Array | None:
    """Compute new columns and fill slots with columns that waited; return the new ones."""
    state, new = block.state, None
    if refill.X is not None:
        new = state[refill.into][: refill.X.shape[0]]
        points = kernel.points(block.X, np.arange(block.start, block.stop))
        values = kernel.block(refill.X, points, out=new)
        if values is not new:  # another array library
            new[...] = np.asarray(values)
    if len(refill.slots):
        state["pool"][refill.slots] = state["waiting"][refill.waited]
    return new


def add_column(block: Block, p: Array, k: int, chosen: int) -> None:
    """Append p to P as column k and lower D by p^2; the chosen row's residual is 0."""
    block.state["P"][:, k] = p
    D = block.state["D"]
    D -= p * p
    np.maximum(D, 0.0, out=D)
    if block.start <= chosen < block.stop:
        D[chosen - block.start] = 0.0


def rows_of_basis(block: Block, rows: Rows, k: int) -> Found:
    """Return which candidates lie in this block, their rows of P and their D."""
    mine, local = block.positions(rows)
    return mine, block.state["P"][local, :k], block.state["D"][local]


def _start(
    block: Block, kernel: Kernel, capacity: int, size: int, waiting: int
) -> tuple[float, float]:
    """As `_whitened.start`, with room for the candidates' columns and the weights in "s"."""
    state, n = block.state, block.stop - block.start
    state["s"] = np.ones(n) if block.weight is None else np.asarray(block.weight, np.float64)
    state["pool"] = np.zeros((size, n))
    state["waiting"] = np.zeros((waiting, n))
    return start(block, kernel, capacity)


def _missed(block: Block, rounding: Rounding, k: int) -> NDArray[np.bool_]:
    """Rows that the basis does not contain, to rounding."""
    return np.asarray(rounding.bound(block.state["P"][:, :k]) < block.state["D"])


def _end(block: Block) -> None:
    """Drop what the choice needed and the model does not."""
    for key in ("pool", "waiting", "s", "r"):
        block.state.pop(key, None)
