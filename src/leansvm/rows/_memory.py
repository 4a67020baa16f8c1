"""Rows in memory: dense, CSR, memory-mapped or array-API arrays, cut into tiles of views.

The tile size follows scikit-learn's ``working_memory``: the tiles at work and what is computed
from them (``columns`` numbers per row) stay below it; on a GPU, below a part of its free memory.
Tiles of NumPy and CSR rows are worked on by as many threads as BLAS has, each with BLAS to itself;
results are added in row order, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn._config import get_config

from leansvm._accelerated import free_memory
from leansvm._array_api import as_float64, foreign_namespace, moved, rows_at, to_host
from leansvm._parallel import blas_threads, in_order
from leansvm.rows._base import Block, RowBlocks

# Rows: enough for BLAS-3 and few calls, but eight tiles or more for an even share of the work.
_SMALL_TILE, _LARGE_TILE = 1024, 2048
_MANY_ROWS = 1_000_000  # from which on threads make a light pass shorter (`declare`), as measured
_DEVICE_SHARE = 4  # a tile and what is computed from it take this part of a device's free memory


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
        The latter: rows are drawn without them.
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
        class_weight: NDArray[np.float64] | None = None,
        columns: int = 0,
        tile_rows: int | None = None,
    ) -> None:
        self._X = X
        self.n_rows, self.n_features = X.shape
        self.dtype = X.dtype
        self._threaded = foreign_namespace(X) is None
        self.weighted, self.class_weight = weight is not None, class_weight
        if not self._threaded:  # targets and weights go where the rows are
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
        short = does is not None and does.light and self.n_rows < _MANY_ROWS
        if self.n_blocks > 1 and self._threaded and not short:
            yield from in_order(function, self._blocks, *args)
        else:
            for block in self._blocks:
                yield function(block, *args)

    def take(self, indices: NDArray[np.intp]) -> Any:
        """Return the rows with these numbers, in this order."""
        rows = rows_at(self._X, indices)
        return np.asarray(rows) if isinstance(rows, np.memmap) else rows

    def head(self, count: int) -> tuple[Any, Any, Any]:
        """Return the first rows, a view of them, their targets and weights (None without any)."""
        first = slice(0, min(count, self.n_rows))
        y = None if self._y is None else to_host(self._y[first, ...])
        weight = None if self._weight is None else to_host(self._weight[first])
        return self._X[first, :], y, weight

    def targets_of(self, indices: NDArray[np.intp]) -> tuple[Any, Any]:
        """Return targets and weights (None without any) of the rows with these numbers."""
        y = None if self._y is None else to_host(rows_at(self._y, indices))
        return y, None if self._weight is None else to_host(rows_at(self._weight, indices))


def host_tile_rows(n_rows: int, n_features: int, columns: int) -> int:
    """Rows of a tile on the host: a sum of r x r results wants tall tiles.

    But no taller than leaves one for every thread, or than it takes for products to be fast.
    """
    if n_rows <= 1:
        return 1
    threads = blas_threads()
    share = max(_SMALL_TILE, -(-n_rows // 8))
    tall = min(max(share, min(2 * columns, -(-n_rows // threads))), _LARGE_TILE)
    budget = get_config()["working_memory"] * 2**20
    within = budget // max(8 * (columns + n_features) * threads, 1)
    return min(tall, max(1, int(within)))


def tile_rows_for(row_bytes: int, X: Any = None) -> int:
    """Rows a tile may have so that one for every thread fits in scikit-learn's working memory.

    On a device with memory of its own: so that one fits in a part of what is free there.
    """
    free = None if X is None else free_memory(X)
    if free is not None:
        return max(1, int(free // _DEVICE_SHARE // max(row_bytes, 1)))
    budget = get_config()["working_memory"] * 2**20
    threads = blas_threads() if X is None or foreign_namespace(X) is None else 1
    return max(1, int(budget // max(threads * row_bytes, 1)))


def _rows_of_csr(X: Any, rows: slice) -> Any:
    """Return a view of rows, which slicing a CSR matrix is not."""
    stored = slice(X.indptr[rows.start], X.indptr[rows.stop])
    view = type(X)((rows.stop - rows.start, X.shape[1]), dtype=X.dtype)
    # set after construction: the constructor copies what is a small part of a larger array
    view.data, view.indices = X.data[stored], X.indices[stored]
    view.indptr = X.indptr[rows.start : rows.stop + 1] - X.indptr[rows.start]
    return view
