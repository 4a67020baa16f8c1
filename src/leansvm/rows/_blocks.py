"""Blocks of rows: the interface of every data source, and the rows that are in memory.

A primal method touches its m x r matrix only through sums over rows: it maps functions over blocks
of rows and adds up what they return. A block carries state (its rows of a factor, its residuals)
between calls, wherever the block lives.

In memory a block is a view of some rows, a tile. Its size follows scikit-learn's
``working_memory``: the tiles at work and what is computed from them (``columns`` numbers per row)
stay below it; on a GPU, below a part of its free memory. Tiles of NumPy and CSR rows are worked on
by as many threads as BLAS has, each with BLAS to itself; results are added in row order, so that
they do not depend on the number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import as_float64, foreign_namespace, moved, namespace, rows_at, to_host
from leansvm._parallel import in_order
from leansvm._phases import step
from leansvm.rows._budget import host_tile_rows, resolve_cache_size, tile_rows_for

Array = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., Any])
Kept = TypeVar("Kept")
_ROWS_FOR_THREADS = 1_000_000  # from here on threads make a light pass faster (measured)


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

    Parts that a function does not read are not loaded from disk (they are None in the block). State
    that it does not change is not copied on a cluster, where tasks may be computed again. Blocks
    outside of memory refuse a function without a declaration; blocks in memory accept any function.

    Parameters
    ----------
    *reads : {"X", "y", "weight"}
        Parts of the block that the function reads.
    keeps : type or tuple of types
        Dataclasses whose kept instances (`Block.keep`) it sets, drops or changes.
    changes : tuple of str
        Fields of these classes whose arrays it writes into.
    appends : tuple of str
        Fields in which it only writes new columns that nothing has read yet: writing them twice
        does no harm.
    light : bool
        Whether it needs only a few operations for each row; blocks in memory then use threads only
        if there are many rows. None means: light if the function does not read X.

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
    """Return the declaration of a function; refuse a function without one."""
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
        """Return the kept instance of this class; KeyError if there is none."""
        return self.state[kind]

    @property
    def rows(self) -> slice:
        """The slice of these rows in vectors of all rows."""
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
    class_weight: Array | None = None  # factor in the weights of each class's rows
    place: Any = None  # an empty array of the library and device of the rows; None on the host
    n_blocks: int = 100  # number of blocks in a pass, if known
    n_parts: int = 1  # that `fold_parts` goes over
    by_values: bool = False  # draw the same rows in any order of the rows; takes two more passes
    orders: dict[bool, Any] | None = None  # what `leansvm.rows.order_of` has found

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

        A part is a `RowBlocks` of rows in one place: here all rows. A cluster has one part for each
        of its threads, so that several steps over a part need only one message there and back.
        ``function`` declares what all of its steps read and change.
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
        """Join the tuples of arrays that ``function(block, *args)`` returns, item by item.

        None stays None. Blocks whose first array is empty are skipped.
        """
        found: list[tuple[Any, ...]] = []
        for result in self.each(function, *args):
            if found and not len(found[0][0]):
                found = [result]
            elif not found or len(result[0]):
                found.append(result)
        joined = []
        for items in zip(*found, strict=True):
            whole = len(items) == 1 or items[0] is None
            joined.append(items[0] if whole else namespace(items[0]).concat(items))
        return tuple(joined)

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
        from leansvm.rows._moments import merged_moments, moments, variance_of

        return variance_of(self.fold(merged_moments, moments))


def add(a: Any, b: Any) -> Any:
    """Add two results, tuples item by item."""
    if isinstance(a, tuple):
        return tuple(x + y for x, y in zip(a, b, strict=True))
    return a + b


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


# ---------------------------------------------------------------------------- codes of classes


def one_vs_rest(labels: NDArray[np.intp], n_classes: int) -> Array:
    """Return targets +-1 from class numbers: one column per class, for two classes a single one."""
    if n_classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, None]
    return np.where(labels[:, None] == np.arange(n_classes), 1.0, -1.0)


def few_values(y: NDArray[Any]) -> bool:
    """Whether whole numbers have so few different values that they are taken for classes.

    >>> few_values(np.arange(100) % 3), few_values(np.arange(100))
    (True, False)
    """
    return len(np.unique(y)) <= max(20, int(np.sqrt(len(y)) / 4))


def class_numbers(Y: NDArray[Any]) -> NDArray[np.intp]:
    """Return class numbers from targets +-1 or decision values: the inverse of `one_vs_rest`."""
    return (Y[:, 0] > 0).astype(np.intp) if Y.shape[1] == 1 else np.argmax(Y, axis=1)


def column_per_class(values: Array) -> Array:
    """Return decision values with a column for each class; a single one means two classes."""
    return np.hstack([-values, values]) if values.shape[1] == 1 else values


# ---------------------------------------------------------------------------- in memory


class MemoryBlocks(RowBlocks):
    """Row blocks over an array that is already here.

    Parameters
    ----------
    X : ndarray, memmap, CSR matrix or array-API array of shape (n_rows, n_features)
        Rows; blocks are views of it.
    y : array of shape (n_rows, n_outputs), optional
        Targets.
    weight : array of shape (n_rows,), optional
        Sample weights, times the weights of their classes.
    class_weight : ndarray of shape (n_classes,), optional
        Weights of the classes alone: rows are drawn without them.
    columns : int
        Columns that a solver computes for each row of a block (8 bytes each).
    tile_rows : int, optional
        Rows a block, instead of what ``working_memory`` allows.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.rows import MemoryBlocks
    >>> blocks = MemoryBlocks(np.arange(6.0).reshape(3, 2), tile_rows=2)
    >>> len(blocks), float(blocks.sum(lambda block: block.X.sum()))
    (2, 15.0)
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        weight: Any = None,
        *,
        class_weight: Array | None = None,
        columns: int = 0,
        tile_rows: int | None = None,
    ) -> None:
        self._X = X
        self.n_rows, self.n_features = X.shape
        self.dtype = X.dtype
        self._threaded = foreign_namespace(X) is None
        self.weighted, self.class_weight = weight is not None, class_weight
        if not self._threaded:  # move targets and weights to where the rows are
            self.place = X[:0, :]
            y, weight = (None if a is None else as_float64(moved(a, X)) for a in (y, weight))
        self._y, self._weight = y, weight
        if tile_rows is None and self._threaded:
            tile_rows = host_tile_rows(self.n_rows, self.n_features, columns)
        elif tile_rows is None:
            tile_rows = tile_rows_for(8 * (columns + self.n_features), X)
        self._blocks = []
        for start in range(0, max(self.n_rows, 1), tile_rows):
            rows = slice(start, min(start + tile_rows, self.n_rows))
            tile = _rows_of_csr(X, rows) if sparse.issparse(X) else X[rows, :]
            targets = None if y is None else y[rows, ...]
            weights = None if weight is None else weight[rows]
            self._blocks.append(Block(rows.start, rows.stop, tile, targets, weights))
        self.n_blocks = len(self._blocks)

    def __len__(self) -> int:
        return self.n_blocks

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield ``function(block, *args)`` for every block, in row order.

        In threads, unless the function is declared to be light and there are few rows.
        """
        does = getattr(function, "declared", None)
        short = does is not None and does.light and self.n_rows < _ROWS_FOR_THREADS
        if self.n_blocks > 1 and self._threaded and not short:
            yield from in_order(function, self._blocks, *args)
        else:
            for block in self._blocks:
                yield function(block, *args)

    def take(self, indices: NDArray[np.intp]) -> Any:
        rows = rows_at(self._X, indices)
        return np.asarray(rows) if isinstance(rows, np.memmap) else rows

    def targets_of(self, indices: NDArray[np.intp]) -> tuple[Any, Any]:
        y = None if self._y is None else to_host(rows_at(self._y, indices))
        return y, None if self._weight is None else to_host(rows_at(self._weight, indices))


def _rows_of_csr(X: Any, rows: slice) -> Any:
    """Return a view of rows; slicing a CSR matrix would make a copy."""
    stored = slice(X.indptr[rows.start], X.indptr[rows.stop])
    view = type(X)((rows.stop - rows.start, X.shape[1]), dtype=X.dtype)
    # set after construction: the constructor copies what is a small part of a larger array
    view.data, view.indices = X.data[stored], X.indices[stored]
    view.indptr = X.indptr[rows.start : rows.stop + 1] - X.indptr[rows.start]
    return view
