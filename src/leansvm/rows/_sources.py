"""Find out which arguments of ``fit`` and ``predict`` are rows outside memory; convert rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.rows._dask import dask_source
from leansvm.rows._stream import ALL_PARTS, Batch, RowSource, StreamSource, place_of_row


def source_of(X: Any, y: Any = None, sample_weight: Any = None) -> RowSource | None:
    """Return the rows as a source, None for arrays in memory."""
    if isinstance(X, RowSource):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "A data set contains its targets and weights: name their columns in "
                "open_dataset(..., target=..., sample_weight=...)."
            )
        return X
    if is_dask(X):
        return dask_source(X, y, sample_weight)
    if isinstance(X, np.memmap) and X.ndim == 2:
        usable_as_it_is = X.dtype in (np.float64, np.float32) and X.flags.c_contiguous
        return None if usable_as_it_is else MappedArray(X, y, sample_weight)
    return None


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; Dask is not imported for this."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")


class MappedArray(StreamSource):
    """A memory-mapped array that has to be converted, which is done batch by batch."""

    def __init__(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._X = X
        self._y = None if y is None else np.asarray(y)
        self._weight = None if sample_weight is None else np.asarray(sample_weight)
        self.n_rows, self.n_features = X.shape
        self.dtype = np.dtype(np.float32 if X.dtype in (np.float32, np.float16) else np.float64)
        self.feature_names = None
        self.has_weight = sample_weight is not None
        self.n_targets = 0 if self._y is None else 1 if self._y.ndim == 1 else self._y.shape[1]
        self.single_target = self._y is None or self._y.ndim == 1
        for name, part in (("y", self._y), ("sample_weight", self._weight)):
            if part is not None and len(part) != self.n_rows:
                raise ValueError(f"X has {self.n_rows} rows, {name} has {len(part)}.")

    def read(self, parts: frozenset[str], n_rows: int) -> Iterator[Batch]:
        for start in range(0, self.n_rows, n_rows):
            yield self._batch(slice(start, start + n_rows), parts)

    def pieces(self, indices: NDArray[np.intp], parts: frozenset[str] = ALL_PARTS) -> list[Batch]:
        return [self._batch(indices, parts)]

    def _batch(self, rows: Any, parts: frozenset[str]) -> Batch:
        return Batch(
            np.ascontiguousarray(self._X[rows], self.dtype) if "X" in parts else None,
            self._y[rows] if "y" in parts and self._y is not None else None,
            self._weight[rows] if "weight" in parts and self._weight is not None else None,
        )


class EncodedStream(StreamSource):
    """The rows of a stream after a function has made numbers of X; see `RowSource.encoded`."""

    def __init__(
        self, source: StreamSource, encode: Callable[..., Any], n_features: int, from_targets: bool
    ) -> None:
        self._source, self._encode, self._from_targets = source, encode, from_targets
        self.n_rows, self.n_features, self.dtype = source.n_rows, n_features, np.dtype(np.float64)
        self.feature_names, self.has_weight = None, source.has_weight
        self.n_targets, self.single_target = source.n_targets, source.single_target

    def read(self, parts: frozenset[str], n_rows: int) -> Iterator[Batch]:
        for batch in self._source.read(self._needed(parts), n_rows):
            yield self._numbers(batch, parts)

    def pieces(self, indices: NDArray[np.intp], parts: frozenset[str] = ALL_PARTS) -> list[Batch]:
        found = self._source.pieces(indices, self._needed(parts))
        return [self._numbers(batch, parts) for batch in found]

    def place(self, row: int, part: str, column: int) -> str:
        """Return in words where a value is; one of X by its row alone."""
        return place_of_row(row, "", 0) if part == "X" else self._source.place(row, part, column)

    def _needed(self, parts: frozenset[str]) -> frozenset[str]:
        return parts | {"y"} if self._from_targets and "X" in parts else parts

    def _numbers(self, batch: Batch, parts: frozenset[str]) -> Batch:
        X, y, weight = batch
        X = None if X is None else self._encode(X, y if self._from_targets else None)
        return Batch(X, y if "y" in parts else None, weight)
