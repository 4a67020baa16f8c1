"""The interface every data source implements: map a function over blocks of rows, add results.

A primal method touches its m x r matrix only through sums over rows, so this is all that a
solver or a selector may use. A block carries state (its rows of a factor, its residuals)
between calls, wherever the block lives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import as_float64, namespace, rows_at, to_host
from leansvm._phases import step
from leansvm.linalg import canonical_csr
from leansvm.rows._budget import resolve_cache_size

Function = TypeVar("Function", bound=Callable[..., Any])
Kept = TypeVar("Kept")


class Declared(NamedTuple):
    """What a function does with a block; see `declare`."""

    reads: frozenset[str]
    keeps: tuple[type, ...]
    changes: tuple[str, ...]
    appends: tuple[str, ...]
    light: bool


def declare(
    *reads: str,
    keeps: tuple[type, ...] | type = (),
    changes: tuple[str, ...] = (),
    appends: tuple[str, ...] = (),
    light: bool | None = None,
) -> Callable[[Function], Function]:
    """Declare what a function given to `RowBlocks` does with a block.

    What is not read need not come from a disk (it is None in the block), and a state that is not
    changed need not be copied where a lost machine may make us compute it again. Blocks outside
    memory refuse a function without a declaration; those in memory take any.

    Parameters
    ----------
    *reads : {"X", "y", "weight"}
        Parts of the block that the function reads.
    keeps : type or tuple of types
        Dataclasses of which it sets, drops or changes what the block keeps (`Block.keep`).
    changes : tuple of str
        Fields of these classes whose arrays it writes into.
    appends : tuple of str
        Fields of which it writes only columns that nothing has been read from yet: doing that
        twice does no harm.
    light : bool
        Whether it does but a few operations for each row: blocks in memory then call it without
        threads unless there are many rows. None: whether it does not read X.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from typing import Any
    >>> from leansvm.rows import declare
    >>> @dataclass
    ... class Norms:
    ...     squares: Any
    >>> @declare("X", keeps=Norms)
    ... def keep_norms(block):
    ...     block.keep(Norms((block.X**2).sum(axis=1)))
    """

    def mark(function: Function) -> Function:
        kinds = keeps if isinstance(keeps, tuple) else (keeps,)
        few = "X" not in reads if light is None else light
        function.declared = Declared(frozenset(reads), kinds, changes, appends, few)  # type: ignore[attr-defined]
        return function

    return mark


def declared(function: Callable[..., Any]) -> Declared:
    """Return what `declare` said of a function; refuse one of which it said nothing."""
    found = getattr(function, "declared", None)
    if found is None:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name} does not say what it reads of a block, and these rows are not in memory: "
            f"decorate it with leansvm.rows.declare, as in "
            f'@declare("X", "y", "weight", keeps=ClassOfItsState).'
        )
    return found


@dataclass(slots=True)
class Block:
    """Consecutive rows ``start:stop`` with their targets, weights and state."""

    start: int
    stop: int
    X: Any
    y: Any
    weight: Any
    state: dict[type, Any] = field(default_factory=dict)  # by class

    def keep(self, kept: Any) -> None:
        """Keep an instance of a dataclass for later passes, in place of an earlier one."""
        self.state[type(kept)] = kept

    def kept(self, kind: type[Kept]) -> Kept:
        """Return what an earlier pass kept of this class; KeyError where there is none."""
        return self.state[kind]

    def find(self, kind: type[Kept]) -> Kept | None:
        """Return what an earlier pass kept of this class, None where there is none."""
        return self.state.get(kind)

    def drop(self, kind: type) -> None:
        """Let go of what was kept of this class."""
        self.state.pop(kind, None)

    @property
    def rows(self) -> slice:
        """The rows' place in vectors that hold all rows."""
        return slice(self.start, self.stop)

    def positions(self, indices: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which of ``indices`` lie in this block, and their rows within it."""
        mine = np.flatnonzero((indices >= self.start) & (indices < self.stop))
        return mine, indices[mine] - self.start


class RowBlocks(ABC):
    """Rows of a data set in blocks.

    Functions given to `map` and `sum` are called as ``function(block, *args)``. They may read
    and replace ``block.state`` entries, must not change ``block.X``, and return arrays or tuples
    of arrays of a size that does not grow with the number of rows in the block (`sum`), or
    whatever is to be collected in row order (`map`).
    """

    n_rows: int
    n_features: int
    dtype: Any
    weighted: bool = True  # whether rows may have weights other than one
    class_weight: NDArray[np.float64] | None = None  # factor in the weights of each class's rows
    place: Any = None  # an empty array of the library and device of the rows; None on the host
    n_blocks: int = 100  # that a pass goes over, as far as that is known
    n_parts: int = 1  # that `fold_parts` goes over
    by_values: bool = False  # draw the same rows whatever their order; two passes more

    @cached_property
    def orders(self) -> dict[bool, Any]:
        """What `leansvm.rows._order.order_of` has found."""
        return {}

    @abstractmethod
    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield ``function(block, *args)`` for every block, in row order."""

    def take(self, indices: NDArray[np.intp]) -> Any:
        """Return the rows with these numbers, in this order."""
        mine, rows = self.collect(rows_with_numbers, np.asarray(indices, dtype=np.intp))
        return rows[np.argsort(mine)]

    def state_budget(self, cache_size: float | str) -> int:
        """Return the bytes of state that blocks may keep where they are."""
        return resolve_cache_size(cache_size, self.place)

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return ``function(block, *args)`` of every block, in row order."""
        return list(self.each(function, *args))

    def fold(
        self, combine: Callable[[Any, Any], Any], function: Callable[..., Any], *args: Any
    ) -> Any:
        """Combine ``function(block, *args)`` of all blocks, two at a time, in row order.

        ``combine`` must be associative, to rounding.
        """
        found = None
        for result in self.each(function, *args):
            step(1.0 / self.n_blocks)
            found = result if found is None else combine(found, result)
        return found

    def fold_parts(
        self, combine: Callable[[Any, Any], Any], function: Callable[..., Any], *args: Any
    ) -> Any:
        """Combine ``function(part, *args)`` of all parts of the rows, in row order.

        A part is the `RowBlocks` of rows that are together: here all of them. A cluster has one
        for each of its threads, and several steps over a part then cost a single message there
        and back. ``function`` declares what all of its steps read and change.
        """
        return function(self, *args)

    def sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """Add up ``function(block, *args)`` over all blocks; tuples are added item by item.

        Sums are made where the blocks are; arrays come back on the host.
        """
        return to_host(self.fold(add, function, *args))

    def sum_there(self, function: Callable[..., Any], *args: Any) -> Any:
        """Do as `sum`, but leave the sums where the blocks are."""
        return self.fold(add, function, *args)

    def collect(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Join the tuples of arrays that ``function(block, *args)`` returns, item by item."""
        return join(self.each(function, *args))

    def concatenate(self, function: Callable[..., Any], *args: Any) -> NDArray[Any]:
        """Collect one host array of all rows from the blocks' results."""
        return np.concatenate(to_host(tuple(self.each(function, *args))))

    def stack(self, function: Callable[..., Any], *args: Any) -> Any:
        """Collect one array of all rows from the blocks' results, where these are."""
        parts = list(self.each(function, *args))
        return namespace(parts[0]).concat(parts) if len(parts) > 1 else parts[0]

    def targets_of(self, indices: NDArray[np.intp]) -> tuple[Any, Any]:
        """Return targets and weights (None without any) of the rows with these numbers."""
        mine, y, weight = self.collect(_targets_at, indices)
        order = np.argsort(mine)
        return None if y is None else y[order], None if weight is None else weight[order]

    def head(self, count: int) -> tuple[Any, Any, Any]:
        """Return the first rows, their targets and weights (None without any)."""
        first = np.arange(min(count, self.n_rows))
        return self.take(first), *self.targets_of(first)

    def variance(self) -> float:
        """Weighted variance of all entries of X, as ``gamma="scale"`` uses it: one pass."""
        return variance_of(self.fold(merged_moments, moments))


class NoRows(RowBlocks):
    """Rows that are gone, where sums over them are left: no block, and no row can be taken."""

    n_rows = 0
    weighted = False

    def __init__(self, n_features: int) -> None:
        self.n_features, self.dtype = n_features, np.dtype(np.float64)

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def take(self, indices: NDArray[np.intp]) -> Any:
        """Refuse: the rows are not there."""
        raise ValueError("The rows are not there any more: a state holds sums over them alone.")

    def targets_of(self, indices: NDArray[np.intp]) -> tuple[Any, Any]:
        """Return no targets and no weights."""
        return None, None


def add(a: Any, b: Any) -> Any:
    """Add two results, tuples item by item."""
    if isinstance(a, tuple):
        return tuple(x + y for x, y in zip(a, b, strict=True))
    return a + b


def join(results: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Concatenate tuples of arrays item by item; None stays None, empty ones leave no trace."""
    iterator = iter(results)
    first = next(iterator)
    parts = [part for part in (first, *iterator) if len(part[0])] or [first]
    return tuple(
        None if items[0] is None else namespace(items[0]).concat(items)
        for items in zip(*parts, strict=True)
    )


@declare("X")
def rows_with_numbers(block: Block, indices: NDArray[np.intp]) -> tuple[NDArray[np.intp], Any]:
    """Return which of these numbers are rows of the block, and the rows."""
    mine, rows = block.positions(indices)
    return mine, block.X[rows]


@declare("y", "weight")
def _targets_at(block: Block, indices: NDArray[np.intp]) -> tuple[Any, Any, Any]:
    mine, rows = block.positions(indices)
    y = None if block.y is None else to_host(rows_at(block.y, rows))
    return mine, y, None if block.weight is None else to_host(rows_at(block.weight, rows))


_VANISHES = 1e-150  # entries whose squares may
Moments = tuple[float, float, float]  # sum of weights, mean, weighted sum of squares about it


@declare("X", "weight")
def moments(block: Block) -> Moments:
    """Return the moments of all entries of the block's rows that count."""
    X, weight = block.X, block.weight
    if weight is not None:
        used = np.flatnonzero(to_host(weight > 0))
        if len(used) < X.shape[0]:
            X, weight = rows_at(X, used), rows_at(weight, used)
    if X.shape[0] == 0 or X.shape[1] == 0:
        return 0.0, 0.0, 0.0
    # deviations from one entry of X: exactly zero where all entries are equal
    missing: Any = 0  # entries of each row that are not stored: zeros
    if sparse.issparse(X):
        X = canonical_csr(X)
        missing = X.shape[1] - np.diff(X.indptr)
        shift, stored = float(X[[0], :].toarray()[0, 0]), X.data
    else:
        shift, stored = float(X[0, 0]), X
    deviations = as_float64(stored) - shift
    count = X.shape[1] * (_dot(weight, 1.0) if weight is not None else float(X.shape[0]))
    mean = _dot(weight, _row_sums(X, deviations) - missing * shift) / count
    deviations -= mean
    deviations *= deviations
    squares = _dot(weight, _row_sums(X, deviations) + missing * (shift + mean) ** 2)
    return count, shift + mean, squares


def _row_sums(X: Any, entries: Any) -> Any:
    """Add up entries row by row; of a CSR matrix ``entries`` stand for its stored ones."""
    if not sparse.issparse(X):
        return namespace(entries).sum(entries, axis=1)
    sums = sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape).sum(axis=1)
    return np.asarray(sums).ravel()


def _dot(weight: Any, values: Any) -> float:
    """Return the weighted sum of values (weight None: ones)."""
    total = values if weight is None else as_float64(weight) * values
    return float(namespace(total).sum(total))


def merged_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of two sets of entries together (Chan, Golub and LeVeque)."""
    weight = a[0] + b[0]
    if not weight > 0:
        return a
    apart, share = b[1] - a[1], b[0] / weight
    return weight, a[1] + share * apart, a[2] + b[2] + a[0] * share * (apart * apart)


def variance_of(found: Moments) -> float:
    """Return the variance of the entries that moments are of; 0 without any.

    Where entries are so small that their squares vanish, it is not 0 but the least number above.
    """
    weight, mean, squares = found
    if squares == 0 and 0 < abs(mean) < _VANISHES:
        return float(np.nextafter(0.0, 1.0))
    return squares / weight if weight > 0 else 0.0
