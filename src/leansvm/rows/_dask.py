"""Dask arrays and data frames as rows: partitions, on a cluster or read one after the other.

With a `distributed` client the blocks stay on its workers (`leansvm.rows._cluster`). Without one
this process goes over the partitions like over batches of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.rows._stream import ALL_PARTS, Batch, RowSource, StreamSource, place_of_row


def dask_source(X: Any, y: Any, sample_weight: Any) -> RowSource:
    """Return the rows of a collection, on the `distributed` client that Dask would use, if any."""
    import dask

    partitions = Partitions(X, y, sample_weight)
    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return LocalPartitions(partitions)
    try:
        from distributed import default_client

        client = default_client()
    except (ImportError, ValueError):
        return LocalPartitions(partitions)
    from leansvm.rows._cluster import ClusterRows

    return ClusterRows(partitions, client)


class Partitions:
    """The delayed partitions of X, and of y and the weights if there are any."""

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None) -> None:
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, got a Dask collection with {X.ndim} dimension.")
        self.feature_names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        self.n_features = int(X.shape[1])
        self.dtypes = dict(X.dtypes) if hasattr(X, "dtypes") else {"X": X.dtype}
        self.is_table = any(getattr(t, "kind", "O") not in "fiub" for t in self.dtypes.values())
        if self.is_table and self.feature_names is None:
            raise ValueError(f"Dask arrays must hold numbers, got {X.dtype}: use a data frame.")
        single = all(str(t) in ("float32", "Float32", "float16") for t in self.dtypes.values())
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.collection = X
        known = getattr(X, "chunks", None)
        sizes = None if known is None else known[0]
        self.sizes = None if sizes is None or np.isnan(sizes).any() else [int(n) for n in sizes]
        self.X = delayed_parts(X)
        self.y = self._aligned("y", y)
        self.weight = self._aligned("sample_weight", sample_weight)
        self.n_targets = 0 if y is None else 1 if np.ndim(y) == 1 else int(y.shape[1])
        self.single_target = y is None or np.ndim(y) == 1

    def __len__(self) -> int:
        return len(self.X)

    def describe(self, source: RowSource) -> None:
        """Tell a source of these rows what they are."""
        source.n_features, source.dtype = self.n_features, self.dtype
        source.feature_names, source.has_weight = self.feature_names, self.weight is not None
        source.n_targets, source.single_target = self.n_targets, self.single_target
        source.is_table = self.is_table

    @property
    def may_have_gaps(self) -> bool:
        """Whether the types of a frame's columns allow missing numbers."""
        plain = all(isinstance(t, np.dtype) and t.kind in "iub" for t in self.dtypes.values())
        return self.feature_names is not None and not plain

    def _aligned(self, name: str, part: Any) -> list[Any] | None:
        """Return the partitions of y or the weights, one for each of X."""
        if part is None:
            return None
        if not hasattr(part, "dask"):
            import dask.array as da

            part = da.from_array(np.asarray(part), chunks=-1)
            self.sizes = self.sizes or lengths_of(self.X)
        known = getattr(part, "chunks", None)
        if known is not None and self.sizes is not None and not np.isnan(known[0]).any():
            self._check_length(name, part.shape[0])
            part = part.rechunk({0: tuple(self.sizes)})
        parts = delayed_parts(part)
        if len(parts) == len(self.X):
            return parts
        self.sizes = self.sizes or lengths_of(self.X)
        lengths = lengths_of(parts)
        self._check_length(name, sum(lengths))
        return regrouped(parts, lengths, self.sizes)

    def _check_length(self, name: str, n_rows: int) -> None:
        if self.sizes is not None and n_rows != sum(self.sizes):
            raise ValueError(f"X has {sum(self.sizes)} rows, {name} has {n_rows}.")


def lengths_of(parts: list[Any]) -> list[int]:
    """Compute the numbers of rows of delayed partitions."""
    import dask

    return list(dask.compute(*(dask.delayed(len)(part) for part in parts)))


def regrouped(parts: list[Any], lengths: list[int], wanted: list[int]) -> list[Any]:
    """Return the same rows in delayed partitions of the wanted lengths.

    Dask joins the partitions of a Parquet frame of which few columns are used, so y can have fewer
    than X although the user sees as many.
    """
    import dask

    given, ends = np.cumsum([0, *lengths]), np.cumsum(wanted)
    found = []
    for end, n in zip(ends.tolist(), wanted, strict=True):
        first = max(int(np.searchsorted(given, end - n, side="right")) - 1, 0)
        last = max(int(np.searchsorted(given, end)), first + 1)
        start = end - n - int(given[first])
        found.append(dask.delayed(_rows_of)(parts[first:last], start, n))
    return found


def _rows_of(parts: list[Any], start: int, n: int) -> NDArray[Any]:
    return np.concatenate([np.asarray(part) for part in parts])[start : start + n]


def starts_of(sizes: list[int]) -> tuple[int, NDArray[np.intp]]:
    """Return the number of rows of all partitions, and where each begins."""
    starts = np.cumsum([0, *sizes])
    if starts[-1] == 0:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    return int(starts[-1]), starts


def delayed_parts(collection: Any) -> list[Any]:
    """Return the partitions along the rows as delayed objects."""
    if hasattr(collection, "rechunk"):
        if collection.ndim == 2 and collection.numblocks[1] > 1:
            collection = collection.rechunk({1: -1})
        return list(np.ravel(collection.to_delayed()))
    return list(collection.to_delayed())


def to_batch(X: Any, y: Any, weight: Any, dtype: np.dtype[Any] | None) -> Batch:
    """Convert a computed partition; None stays None, and without ``dtype`` X stays a frame."""
    if X is not None and dtype is not None:
        X = X.to_numpy(dtype, na_value=np.nan) if hasattr(X, "to_numpy") else X
        if hasattr(X, "tocsr"):
            raise TypeError("Dask chunks must be dense: sparse ones are not supported.")
        X = np.ascontiguousarray(X, dtype=dtype)
    y = None if y is None else np.asarray(y)
    weight = None if weight is None else np.asarray(weight)
    lengths = {len(part) for part in (X, y, weight) if part is not None}
    if len(lengths) > 1:
        raise ValueError(f"X, y and sample_weight have partitions of different length: {lengths}.")
    return Batch(X, y, weight)


class LocalPartitions(StreamSource):
    """Partitions that the local scheduler computes whenever a pass needs them."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        partitions.describe(self)
        sizes = partitions.sizes
        if sizes is None:
            sizes = lengths_of(partitions.X)
        self.n_rows, self._starts = starts_of(sizes)

    def place(self, row: int, part: str, column: int) -> str:
        """Return partition, row and column of a value."""
        i = int(np.searchsorted(self._starts, row, side="right")) - 1
        inside = place_of_row(row - int(self._starts[i]), "", 0)
        if part != "X":
            return f"partition {i}, {inside}"
        name = column if self.feature_names is None else repr(self.feature_names[column])
        return f"partition {i}, {inside}, column {name}"

    def has_gaps(self) -> bool:
        batches = self.read(frozenset(["X"]), 0) if self._partitions.may_have_gaps else ()
        return any(np.isnan(batch.X).any() for batch in batches)

    def read(self, parts: frozenset[str], n_rows: int) -> Iterator[Batch]:
        """Yield all rows in order, one partition at once."""
        for i in range(len(self._partitions)):
            if self._starts[i] < self._starts[i + 1]:
                yield self._compute(i, parts)

    def pieces(self, indices: NDArray[np.intp], parts: frozenset[str] = ALL_PARTS) -> list[Batch]:
        found, edges = [], np.searchsorted(indices, self._starts)
        for i in np.flatnonzero(np.diff(edges)).tolist():
            rows = indices[edges[i] : edges[i + 1]] - self._starts[i]
            found.append(self._compute(i, parts).take(rows))
        return found

    def _compute(self, i: int, parts: frozenset[str]) -> Batch:
        import dask

        pieces = self._partitions
        X = pieces.X[i] if "X" in parts else None
        y = pieces.y[i] if "y" in parts and pieces.y is not None else None
        weight = pieces.weight[i] if "weight" in parts and pieces.weight is not None else None
        X, y, weight = dask.compute(X, y, weight)
        return to_batch(X, y, weight, None if self.is_table else self.dtype)
