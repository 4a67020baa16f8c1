"""Rows of a stream whose columns become numbers batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.rows._stream import Batch, StreamSource, place_of_row


class EncodedStream(StreamSource):
    """The rows of a stream after a function has made numbers of X.

    Parameters
    ----------
    source : StreamSource
        The rows as they are.
    encode, n_features, from_targets
        As in `RowSource.encoded`.
    """

    def __init__(
        self, source: StreamSource, encode: Callable[..., Any], n_features: int, from_targets: bool
    ) -> None:
        self._source, self._encode, self._from_targets = source, encode, from_targets
        self.n_rows, self.n_features, self.dtype = source.n_rows, n_features, np.dtype(np.float64)
        self.feature_names, self.has_weight = None, source.has_weight
        self.n_targets, self.single_target = source.n_targets, source.single_target

    def read(self, parts: frozenset[str], n_rows: int) -> Iterator[Batch]:
        """Yield all rows in order; see `StreamSource.read`."""
        for batch in self._source.read(self._needed(parts), n_rows):
            yield self._numbers(batch, parts)

    def take(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows with these numbers, which increase."""
        parts = frozenset(["X"])
        found = self._source.pieces(indices, self._needed(parts))
        empty = np.empty((0, self.n_features))
        return np.concatenate([empty, *(self._numbers(batch, parts).X for batch in found)])

    def place(self, row: int, part: str, column: int) -> str:
        """Return in words where a value is; one of X by its row alone."""
        return place_of_row(row, "", 0) if part == "X" else self._source.place(row, part, column)

    def _needed(self, parts: frozenset[str]) -> frozenset[str]:
        return parts | {"y"} if self._from_targets and "X" in parts else parts

    def _numbers(self, batch: Batch, parts: frozenset[str]) -> Batch:
        X, y, weight = batch
        X = None if X is None else self._encode(X, y if self._from_targets else None)
        return Batch(X, y if "y" in parts else None, weight)
