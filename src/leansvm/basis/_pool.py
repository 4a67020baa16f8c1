"""Which rows are candidates: drawn at random, looked at, and kept while they are good.

For selectors that take the best of a few rows a step (`leansvm.basis._best_of`). What is as long
as the data, the candidates' kernel columns, stays in the blocks. Which rows are drawn depends on
the seed alone, not on where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.basis._whitened import rank_floor
from leansvm.blocks import RowBlocks

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Scores are compared after rounding to this many values in [1/2, 1): ties, as equal rows give,
# go to the lowest row, whatever the order of summation.
_QUANTA = 2.0**24


class Rounding:
    """How large a residual D_j may come out that is 0, given row j of P.

    Pivot l turns errors of the size of eps into (1 + a)^2 eps with a = |P_jl| / L_ll. That is
    much where the pivot is small and row j far from it, as only the greedy order excludes.
    """

    def __init__(self, largest: float, capacity: int) -> None:
        self._floor = rank_floor(largest)
        self._eps = float(np.finfo(np.float64).eps) * largest
        self._inverse = np.zeros(capacity)  # 1 / L_ll

    def bound(self, P: Array) -> Array:
        """Return the largest residual that may be rounding alone, for every row of P."""
        a = np.abs(P) * self._inverse[: P.shape[1]]
        return self._floor + self._eps * (2 * a.sum(axis=1) + np.einsum("ij,ij->i", a, a))

    def add(self, row: Array) -> None:
        """Take note of a pivot by its row of L."""
        self._inverse[len(row) - 1] = 1.0 / row[-1]


class CandidateStream:
    """Rows in random order: none twice before all had their turn, none while it is lent."""

    def __init__(self, rng: np.random.RandomState, allowed: NDArray[np.bool_]) -> None:
        self._rng = rng
        self._allowed = allowed.copy()  # rows that may still be chosen
        self._lent = np.zeros(len(allowed), dtype=bool)
        self._queue = np.empty(0, dtype=np.intp)

    def draw(self, count: int) -> Rows:
        """Lend up to ``count`` rows; fewer only when all rows that are allowed are lent."""
        drawn = self._from_queue(count)
        if len(drawn) < count:  # all had their turn: a new round
            self._queue = self._rng.permutation(np.flatnonzero(self._allowed & ~self._lent))
            drawn = np.concatenate([drawn, self._from_queue(count - len(drawn))])
        return drawn

    def _from_queue(self, count: int) -> Rows:
        found = [np.empty(0, dtype=np.intp)]
        while count > 0 and len(self._queue):
            head, self._queue = self._queue[:count], self._queue[count:]
            head = head[self._allowed[head] & ~self._lent[head]]
            self._lent[head] = True
            count -= len(head)
            found.append(head)
        return np.concatenate(found)

    def give_back(self, rows: Rows) -> None:
        """Make these rows available again."""
        self._lent[rows] = False

    def retire(self, rows: Rows) -> None:
        """Never offer these rows again."""
        self._allowed[rows] = False

    def restrict(self, allowed: NDArray[np.bool_]) -> bool:
        """Offer only these rows from now on; return whether there are any."""
        self._allowed &= allowed
        return bool(self._allowed.any())


@dataclass(frozen=True)
class Refill:
    """Which columns the blocks have to compute, and which of them to put into slots."""

    X: Any = None  # rows whose kernel columns are computed, if any
    into: str = "pool"  # where these go: into the first slots, or to "waiting"
    slots: Rows = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    first: int = 0  # the slots get the columns that wait from this place on

    @property
    def waited(self) -> slice:
        """The columns that get a slot, of those that wait."""
        return slice(self.first, self.first + len(self.slots))


class Pool:
    """Up to ``size`` candidates in numbered slots, and some that wait for one.

    Those that wait are drawn several steps ahead, so that their kernel columns are computed
    together: one pass over the features of the data for many columns.

    Attributes
    ----------
    rows : ndarray of shape (size,)
        Row of each slot; -1 where the slot is empty.
    P : ndarray of shape (size, capacity)
        The candidates' rows of the whitened basis; `refresh` brings them up to date.
    D : ndarray of shape (size,)
        Their residuals k(x, x) - |P_x|^2.
    usable : ndarray of shape (size,)
        Slots with a row that the basis does not contain yet, to rounding.
    """

    def __init__(
        self,
        blocks: RowBlocks,
        size: int,
        capacity: int,
        stream: CandidateStream,
        rounding: Rounding,
    ) -> None:
        self._blocks, self._stream = blocks, stream
        self.rounding = rounding
        self.rows = np.full(size, -1, dtype=np.intp)
        self._waiting = self.rows[:0]
        self._first = 0  # of those that wait, the next to get a slot
        self.P = np.zeros((size, capacity))
        self.D = np.zeros(size)
        self.usable = np.zeros(size, dtype=bool)

    def best(self, scores: Array) -> int | None:
        """Return the usable slot with the largest score (ties: the lowest row), if there is one."""
        slots = np.flatnonzero(self.usable)
        return int(slots[self._order(slots, -scores)[0]]) if len(slots) else None

    def _order(self, slots: Rows, scores: Array) -> Rows:
        """Sort slots by score, then by row."""
        mantissa, exponent = np.frexp(scores[slots])
        rounded = np.ldexp(np.rint(mantissa * _QUANTA), exponent)
        return np.lexsort((self.rows[slots], rounded))

    def replace_all(self, chosen: int | None = None) -> Refill:
        """Draw the whole pool anew, without the chosen row."""
        self._retire(chosen)
        self._stream.give_back(self.rows[self.rows >= 0])
        self._stream.give_back(self._waiting[self._first :])
        self._waiting, self._first = self._waiting[:0], 0
        drawn = self._stream.draw(len(self.rows))
        self.rows[: len(drawn)] = drawn
        self.rows[len(drawn) :] = -1
        self.usable[:] = False
        return Refill(self._blocks.take(drawn) if len(drawn) else None)

    def replace_worst(self, chosen: int, scores: Array) -> Refill:
        """Put rows that wait in place of the chosen one, useless ones and the worst third.

        When too few wait, the least bad candidates stay.
        """
        useless = self._retire(chosen)
        X = None
        if self._first == len(self._waiting):
            self._waiting, self._first = self._stream.draw(waiting_room(len(self.rows))), 0
            X = self._blocks.take(self._waiting) if len(self._waiting) else None
        rest = np.flatnonzero(~useless)
        worst = rest[self._order(rest, scores)][: len(self.rows) // 3]
        first, waiting = self._first, self._waiting[self._first :]
        slots = np.concatenate([np.flatnonzero(useless), worst])[: len(waiting)]
        self.rows[useless] = -1
        left = self.rows[slots]
        self._stream.give_back(left[left >= 0])
        self.rows[slots] = waiting[: len(slots)]
        self._first += len(slots)
        return Refill(X, "waiting", slots, first)

    def _retire(self, chosen: int | None) -> NDArray[np.bool_]:
        """Give up the chosen row and those the basis contains; return the slots without use."""
        useless = ~self.usable
        if chosen is not None:
            useless[chosen] = True
        self._stream.retire(self.rows[useless & (self.rows >= 0)])
        return useless

    def refresh(self, found: list[tuple[Rows, Array, Array]], k: int) -> None:
        """Take over what `rows_of_basis` found in the blocks."""
        for mine, P, D in found:
            self.P[mine, :k] = P
            self.D[mine] = D
        self.usable = (self.rows >= 0) & (self.rounding.bound(self.P[:, :k]) < self.D)

    def restrict(self, allowed: NDArray[np.bool_]) -> bool:
        """Draw only from these rows from now on; return whether there are any."""
        return self._stream.restrict(allowed)


def waiting_room(n_candidates: int) -> int:
    """How many rows are drawn ahead: what three steps replace."""
    return 3 * (n_candidates // 3 + 1)
