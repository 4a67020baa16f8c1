"""Which rows are candidates: drawn at random, looked at, and kept while they are good.

For selectors that choose the best of a few rows in every step. The candidates' kernel columns are
as long as the data and stay in the blocks. Which rows are drawn depends on the seed alone, not on
where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import like_rows, namespace
from leansvm.basis.cholesky.growing import rank_floor
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Scores are compared after rounding to this many values in [1/2, 1): so ties, for example between
# equal rows, go to the lowest row number in any order of summation.
_QUANTA = 2.0**16


class Rounding:
    """How large a residual D_j can be by rounding alone, given row j of P.

    Pivot l turns errors of size eps into (1 + a)^2 eps with a = |P_jl| / L_ll. This is large if
    the pivot is small and row j far from it; only the greedy order excludes that.
    """

    def __init__(self, largest: float, capacity: int) -> None:
        self._floor = rank_floor(largest)
        self._eps = float(np.finfo(np.float64).eps) * largest
        self._inverse = np.zeros(capacity)  # 1 / L_ll

    def bound(self, P: Any) -> Any:
        """Return the largest residual that may be rounding alone, for every row of P."""
        a = abs(P) * like_rows(self._inverse[: P.shape[1]], P)
        xp = namespace(P)
        squares = np.einsum("ij,ij->i", a, a) if xp is np else xp.sum(a * a, axis=1)
        return self._floor + self._eps * (2 * xp.sum(a, axis=1) + squares)

    def add(self, row: Array) -> None:
        """Take note of a pivot by its row of L."""
        self._inverse[len(row) - 1] = 1.0 / row[-1]


def by_score(scores: Array, rows: Rows) -> Rows:
    """Return the order by score, then by row."""
    mantissa, exponent = np.frexp(scores)
    return np.lexsort((rows, np.ldexp(np.rint(mantissa * _QUANTA), exponent)))


class CandidateStream:
    """Rows in random order: no row comes twice before all have come, or while it is in use."""

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


class Refill(NamedTuple):
    """Which columns the blocks have to compute."""

    X: Any = None  # points whose columns are computed, if any
    rows: Rows | None = None  # their numbers
    slots: Rows | slice = slice(0, 0)  # where the columns go


class Pool:
    """Up to ``size`` candidates in numbered slots."""

    def __init__(
        self,
        blocks: RowBlocks,
        size: int,
        capacity: int,
        stream: CandidateStream,
        rounding: Rounding,
    ) -> None:
        self._blocks, self.stream, self.rounding = blocks, stream, rounding
        self.rows = np.full(size, -1, dtype=np.intp)  # -1 if the slot is empty
        self.P = np.zeros((size, capacity))  # rows of the whitened basis, as of `refresh`
        self.D = np.zeros(size)  # residuals k(x, x) - |P_x|^2
        self.usable = np.zeros(size, dtype=bool)  # rows that the basis misses, beyond rounding

    def best(self, scores: Array) -> int | None:
        """Return the usable slot with the largest score (ties: the lowest row), if there is one."""
        slots = np.flatnonzero(self.usable)
        if not len(slots):
            return None
        return int(slots[by_score(-scores[slots], self.rows[slots])[0]])

    def replace_all(self, chosen: Sequence[int] = ()) -> Refill:
        """Draw the whole pool anew, without the rows in the chosen slots."""
        self._retire(chosen)
        self.stream.give_back(self.rows[self.rows >= 0])
        drawn = self.stream.draw(len(self.rows))
        self.rows[: len(drawn)] = drawn
        self.rows[len(drawn) :] = -1
        self.usable[:] = False
        return self._refill(drawn, slice(0, len(drawn)))

    def replace_worst(
        self,
        chosen: Sequence[int],
        scores: Array,
        draw: Callable[[int], Rows] | None = None,
        part: float = 1.0,
    ) -> Refill:
        """Replace the chosen and the useless rows, and a ``part`` of the worst third, by new rows.

        If too few new rows are left, the least bad candidates stay. ``draw(count)`` returns up to
        ``count`` rows that the stream lends; by default it is the stream's own method.
        """
        useless = self._retire(chosen)
        rest = np.flatnonzero(~useless)
        worst = rest[by_score(scores[rest], self.rows[rest])][: int(part * len(self.rows) / 3)]
        slots = np.concatenate([np.flatnonzero(useless), worst])
        drawn = (draw or self.stream.draw)(len(slots))
        slots = slots[: len(drawn)]
        self.rows[useless] = -1
        left = self.rows[slots]
        self.stream.give_back(left[left >= 0])
        self.rows[slots] = drawn
        return self._refill(drawn, slots)

    def _refill(self, drawn: Rows, slots: Rows | slice) -> Refill:
        return Refill(self._blocks.take(drawn), drawn, slots) if len(drawn) else Refill()

    def _retire(self, chosen: Sequence[int]) -> NDArray[np.bool_]:
        """Give up chosen rows and those that the basis contains; return their slots as a mask."""
        useless = ~self.usable
        useless[list(chosen)] = True
        self.stream.retire(self.rows[useless & (self.rows >= 0)])
        return useless

    def refresh(self, found: list[tuple[Rows, Array, Array]], k: int) -> None:
        """Take over what `rows_of_basis` found in the blocks."""
        for mine, P, D in found:
            self.P[mine, :k] = P
            self.D[mine] = D
        self.look_at(self.D, k)

    def look_at(self, D: Array, k: int) -> None:
        """Find the slots that are usable given the residuals and k columns of P."""
        self.D = D
        self.usable = (self.rows >= 0) & (self.rounding.bound(self.P[:, :k]) < D)
