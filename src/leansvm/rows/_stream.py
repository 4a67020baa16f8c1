"""Rows that come in batches, from files or a lazy collection, as often as a fit goes over them.

If a fit needs the rows many times, they stay in memory, provided that they fit in half of the
budget. A thread reads the next batch while this one is processed. Tiles are cut at the same rows as
in `MemoryBlocks`, so the sums and the model equal those of rows in memory to the last bit. State
stays in memory up to the budget and is in files beyond it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from copy import copy
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from leansvm._parallel import in_order, read_ahead
from leansvm.rows._blocks import Block, RowBlocks, declared
from leansvm.rows._budget import host_tile_rows
from leansvm.rows._spill import StateStore
from leansvm.rows._targets import Survey, Targets, survey

_CHUNK_BYTES = 1 << 24  # read at once, at least one tile
_ROWS_SHARE = 0.5  # of the budget that X may take to stay in memory
ALL_PARTS = frozenset(["X", "y", "weight"])
_FEW_PASSES = 3  # over X that are read without keeping it


class Batch(NamedTuple):
    """Consecutive rows of a data set; None for what was not asked for or is not there."""

    X: Any
    y: Any
    sample_weight: Any

    def rows(self, rows: slice) -> Batch:
        """Return some of the rows."""
        return Batch(*(None if part is None else part[rows] for part in self))

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Return the rows with these numbers; X may be a frame."""
        some = [None if part is None else part[rows] for part in self[1:]]
        X = self.X.iloc if hasattr(self.X, "iloc") else self.X
        return Batch(X.take(rows) if hasattr(X, "schema") else X[rows], *some)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return next(len(part) for part in self if part is not None)


class RowSource(ABC):
    """Rows that are not in this process's memory: a data set on disk, a Dask collection.

    Estimators first ask it about targets and weights; solvers and selectors then work on its
    `blocks`.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    feature_names: list[str] | None
    n_targets: int  # columns of the target; 0 without any
    single_target: bool  # whether predictions are one number per row
    has_weight: bool
    is_table: bool = False  # whether X comes as frames: a `TableEncoder` makes numbers of them

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.n_rows, self.n_features

    def has_gaps(self) -> bool:
        """Whether numbers are missing; False if this is impossible or not checked."""
        return False

    def as_table(self) -> Self:
        """Return the same rows with X as frames, if the source has columns."""
        twin = copy(self)
        twin.is_table = True
        return twin

    @abstractmethod
    def pieces(self, indices: NDArray[np.intp]) -> list[Batch]:
        """Return the rows with these numbers, which increase, as they are in the source."""

    @abstractmethod
    def encoded(self, encode: Callable[..., Any], n_features: int, from_targets: bool) -> RowSource:
        """Return the rows with X made numbers: ``encode(X, y)`` of a batch.

        ``from_targets`` says whether it looks at y, which is None otherwise.
        """

    @abstractmethod
    def survey(self, numeric: bool) -> Survey:
        """Look at all weights and, unless ``numeric``, all targets; X is not read."""

    @abstractmethod
    def targets(self) -> tuple[Any, Any]:
        """Return targets and weights (None for ones) of all rows, as they are in the source."""

    @abstractmethod
    def blocks(
        self,
        targets: Targets,
        *,
        columns: int = 0,
        budget: int = 0,
        weight: NDArray[np.float64] | None = None,
    ) -> RowBlocks:
        """Return the rows in blocks, with targets and weights as ``targets`` encodes them.

        ``columns`` is how many numbers a solver computes for each row. State takes up to ``budget``
        bytes of memory. ``weight``, one for each row, replaces the source's own weights.
        """


class StreamSource(RowSource):
    """A source that this process reads, batch by batch."""

    @abstractmethod
    def read(self, parts: frozenset[str], n_rows: int) -> Iterator[Batch]:
        """Yield all rows in order, about ``n_rows`` at once.

        ``parts`` says what of them: "X", "y", "weight".
        """

    def place(self, row: int, part: str, column: int) -> str:
        """Return in words where a value is: ``part`` is a field of `Batch`."""
        return place_of_row(row, part, column)

    def pieces(self, indices: NDArray[np.intp], parts: frozenset[str] = ALL_PARTS) -> list[Batch]:
        """Return the rows with these numbers, which increase; reads up to the last of them."""
        found, start = [], 0
        for batch in self.read(parts, 1 << 16):
            first, last = np.searchsorted(indices, [start, start + batch.n_rows])
            if first < last:
                found.append(batch.take(indices[first:last] - start))
            start += batch.n_rows
            if last == len(indices):
                break
        return found

    def encoded(self, encode: Callable[..., Any], n_features: int, from_targets: bool) -> RowSource:
        from leansvm.rows._sources import EncodedStream

        return EncodedStream(self, encode, n_features, from_targets)

    def survey(self, numeric: bool) -> Survey:
        if numeric and not self.has_weight:
            return Survey.of_ones(self.n_rows)
        parts = frozenset(["weight"] * self.has_weight + ["y"] * (not numeric))
        seen, start = None, 0
        for batch in self.read(parts, 1 << 18):
            with placed_errors(batch, range(start, start + batch.n_rows), self.place):
                found = survey(batch.y, batch.sample_weight, numeric)
                seen = found if seen is None else seen + found
            start += batch.n_rows
        assert seen is not None  # a source has rows
        return seen

    def targets(self) -> tuple[Any, Any]:
        return joined(list(self.read(frozenset(["y", "weight"]), 1 << 18)))[1:]

    def blocks(self, targets: Targets, **options: Any) -> RowBlocks:
        return StreamBlocks(self, targets, **options)


class StreamBlocks(RowBlocks):
    """Row blocks over a stream: every pass reads again the parts of the rows that it declares.

    From the fourth pass on, X stays in memory if it takes at most half of ``budget`` and fits
    beside the state. Parameters are those of `RowSource.blocks`.
    """

    def __init__(
        self,
        source: StreamSource,
        targets: Targets,
        *,
        columns: int = 0,
        budget: int = 0,
        weight: NDArray[np.float64] | None = None,
    ) -> None:
        self._source, self._targets, self._weight = source, targets, weight
        self.n_rows, self.n_features = source.shape
        self.dtype = source.dtype
        self.weighted = weight is not None or targets.weighted
        self.class_weight = targets.class_weight
        self._tile = host_tile_rows(self.n_rows, self.n_features, columns)
        row_bytes = self.dtype.itemsize * self.n_features
        self._chunk = self._tile * max(1, _CHUNK_BYTES // max(self._tile * row_bytes, 1))
        self._passes = 0  # that have read X
        self._kept: NDArray[Any] | None = None  # X, once it is read often enough to stay
        self._most_kept = int(_ROWS_SHARE * budget)
        self.states, self.n_blocks = StateStore(budget), -(-self.n_rows // self._tile)

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        with closing(read_ahead(self._chunks(declared(function).reads))) as chunks:
            yield from in_order(self._call, self._tiles(chunks), function, args)

    def take(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        indices = np.asarray(indices, dtype=np.intp)
        if self._kept is not None:
            return self._kept[indices]
        wanted, place = np.unique(indices, return_inverse=True)
        batches = self._source.pieces(wanted, frozenset(["X"]))
        none = np.empty((0, self.n_features), self.dtype)
        rows = np.concatenate([none, *(batch.X for batch in batches)])
        if len(rows) < len(wanted):
            raise OSError(
                f"The data set has fewer rows now than the {self.n_rows:,} that it had when it was "
                f"opened. Open it again."
            )
        self._check(rows, wanted)
        return rows[place]

    def _call(self, block: Block, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        block.state = self.states.load(block.start)
        result = function(block, *args)
        if declared(function).keeps:
            self.states.store(block.start, block.state)
        return result

    def _tiles(self, chunks: Iterable[tuple[int, Batch]]) -> Iterator[Block]:
        for first, chunk in chunks:
            last = min(first + self._chunk, self.n_rows)
            for start in range(first, last, self._tile):
                stop = min(start + self._tile, last)
                yield Block(start, stop, *chunk.rows(slice(start - first, stop - first)))

    def _chunks(self, reads: frozenset[str]) -> Iterator[tuple[int, Batch]]:
        """Yield the first row and the encoded rows of every chunk."""
        start, kept = 0, self._kept if "X" in reads else None
        copy: NDArray[Any] | None = None
        if kept is not None:
            reads = reads - {"X"}
        elif "X" in reads:
            self._passes += 1
            copy = self._room_for_rows() if self._passes > _FEW_PASSES else None
        for batch in self._read(reads):
            stop = start + min(self._chunk, self.n_rows - start)
            X, y, weight = batch
            if any(part is not None and len(part) < stop - start for part in batch):
                start += batch.n_rows
                break
            if kept is not None:
                X = kept[start:stop]
            elif X is not None:
                self._check(X, range(start, stop))
            if copy is not None:
                copy[start:stop] = X
            with placed_errors(batch, range(start, stop), self._source.place):
                y, weight = self._targets(y, weight)
            if self._weight is not None:
                weight = self._weight[start:stop]
            yield start, Batch(X, y, weight)
            start = stop
        if start < self.n_rows:
            raise OSError(
                f"The data set has {start:,} rows now, but it had {self.n_rows:,} when it was "
                f"opened. Open it again."
            )
        if copy is not None:
            self._kept = copy

    def _check(self, X: NDArray[Any], numbers: Sequence[int] | NDArray[np.intp]) -> None:
        with placed_errors(Batch(X, None, None), numbers, self._source.place):
            assert_all_finite(X, input_name="X")

    def _room_for_rows(self) -> NDArray[Any] | None:
        """Return an array for all of X, None if the budget has no room beside the state."""
        n_bytes = self.dtype.itemsize * self.n_rows * self.n_features
        if n_bytes > self._most_kept or not self.states.reserve(n_bytes):
            self._most_kept = 0  # do not ask again
            return None
        return np.empty((self.n_rows, self.n_features), self.dtype)

    def _read(self, reads: frozenset[str]) -> Iterator[Batch]:
        """Yield the parts of the rows that are needed, as they are in the source, in chunks."""
        parts = set(reads)
        if not self._source.n_targets:
            parts.discard("y")
        if "weight" in parts and self._weight is None and self._targets.class_weight is not None:
            parts.add("y")
        if self._weight is not None or not (self._targets.weighted and self._source.has_weight):
            parts.discard("weight")
        if not parts:
            return repeat(Batch(None, None, None), -(-self.n_rows // self._chunk))
        return recut(self._source.read(frozenset(parts), self._chunk), self._chunk)


def recut(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Cut batches of any length into ones of ``size`` rows."""
    waiting: list[Batch] = []
    count = 0
    for batch in batches:
        start = 0
        while count + batch.n_rows - start >= size:
            stop = start + size - count
            waiting.append(batch.rows(slice(start, stop)))
            yield joined(waiting)
            waiting, count, start = [], 0, stop
        if start < batch.n_rows:
            waiting.append(batch.rows(slice(start, batch.n_rows)))
            count += batch.n_rows - start
    if waiting:
        yield joined(waiting)


def place_of_row(row: int, part: str, column: int) -> str:
    """Return in words where a value is in rows without names."""
    return f"row {row:,} (the first is 0)" + (f", column {column}" if part == "X" else "")


@contextmanager
def placed_errors(
    batch: Batch,
    numbers: Sequence[int] | NDArray[np.intp],
    place: Callable[[int, str, int], str] = place_of_row,
) -> Iterator[None]:
    """Say in a ValueError about rows with these ``numbers`` where the first wrong value is.

    ``place`` is like `StreamSource.place`.
    """
    try:
        yield
    except ValueError as error:
        for part, values in zip(Batch._fields, batch, strict=True):
            wrong = np.empty((0, 0), bool) if values is None else _wrong(values, part)
            if wrong.any():
                row, column = np.argwhere(wrong)[0].tolist()
                where = f"The first is in {place(int(numbers[row]), part, column)}."
                break
        else:
            where = f"See the rows from {place(int(numbers[0]), 'y', 0)} on."
        raise ValueError(f"{error} {where}") from error


def _wrong(values: Any, part: str) -> NDArray[np.bool_]:
    """Return which values are missing, infinite or negative weights; rows x columns."""
    columns = np.asarray(values).reshape(len(values), -1)
    wrong = np.zeros(columns.shape, bool)
    if columns.dtype.kind == "f":
        wrong = ~np.isfinite(columns)
    elif columns.dtype.kind == "O":
        wrong = np.array([[v is None or v != v for v in row] for row in columns])
    return wrong | (columns < 0) if part == "sample_weight" else wrong


def joined(batches: list[Batch]) -> Batch:
    """Put batches one after the other."""
    if len(batches) == 1:
        return batches[0]
    parts = zip(*(tuple(batch) for batch in batches), strict=True)
    return Batch(*(None if part[0] is None else np.concatenate(part) for part in parts))
