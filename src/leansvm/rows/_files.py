"""Data sets in files, larger than memory: Parquet, CSV, Arrow and Feather, read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._extras import needs
from leansvm.rows._arrow import kind_of, missing_values, to_numpy, without_bytes
from leansvm.rows._stream import ALL_PARTS, Batch, StreamSource

_FORMATS = {"arrow": "ipc", "feather": "feather", "ipc": "ipc", "csv": "csv", "parquet": "parquet"}
_CACHED_ROWS = 1 << 13  # copied column by column while they are in the cache


def open_dataset(
    source: Any,
    *,
    target: str | Sequence[str] | None = None,
    sample_weight: str | None = None,
    features: Sequence[str] | None = None,
    format: str | None = None,
) -> Dataset:
    r"""Open a data set on disk; estimators read it in batches, as often as they need it.

    Parameters
    ----------
    source : str, path, list of them, or pyarrow.dataset.Dataset
        A file, a folder of files (read in the order of their names) or a list of files.
    target : str or list of str, default=None
        Column with the labels or numbers to learn; several for `SparseLSSVR`. None means that the
        data set is only used for predictions.
    sample_weight : str, default=None
        Column with the weights of the rows.
    features : list of str, default=None
        Columns of X; None: all that are neither target nor weight. They may be text, dates and
        categories, and may have missing values (null or NaN): a `leansvm.tables.TableEncoder`,
        fitted on at most 100,000 rows, turns them into numbers batch by batch.
    format : {"parquet", "csv", "arrow", "feather"}, default=None
        Format of the files; None: from their names.

    Returns
    -------
    Dataset
        What ``fit``, ``partial_fit``, ``predict`` and ``score`` take as X.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import leansvm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("x1,x2,y\n0,0,no\n1,1,no\n0,1,yes\n1,0,yes\n")
    >>> data = leansvm.open_dataset(folder, target="y")
    >>> data
    Dataset(4 rows, 2 features, target='y', 1 file)
    >>> model = leansvm.SparseLSSVC(C=100, gamma=1.0, n_basis=4).fit(data)
    >>> model.predict([[1, 0]])
    array(['yes'], dtype='<U3')
    """
    try:
        import pyarrow
        import pyarrow.dataset as arrow
    except ImportError as error:
        raise ImportError(needs("open_dataset", "pyarrow", "files")) from error
    try:
        if not isinstance(source, arrow.Dataset):
            several = isinstance(source, list | tuple)
            paths = [str(path) for path in source] if several else str(source)
            source = arrow.dataset(paths, format=_format_of(paths, format))
        return Dataset(source, target, sample_weight, features)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(without_bytes(error)) from None


def _format_of(source: str | list[str], format: str | None) -> str:
    paths = [Path(path) for path in ([source] if isinstance(source, str) else source)]
    if len(paths) == 1 and paths[0].is_dir():
        found = (path for path in sorted(paths[0].rglob("*")) if path.name[0] not in "._")
        paths = [path for path in found if path.is_file()]
    if not paths:
        raise ValueError(f"open_dataset found no files in {source!r}.")
    if format is None:
        suffixes = [path.suffix.lstrip(".").lower() for path in paths]
        format, kinds = suffixes[0], {_FORMATS[name] for name in suffixes if name in _FORMATS}
        if len(kinds) > 1:
            raise ValueError(
                f"{source} mixes files of the formats {' and '.join(sorted(kinds))}: pass a list "
                f"of files of one format."
            )
    if format not in _FORMATS:
        raise ValueError(
            f"format must be one of {', '.join(map(repr, _FORMATS))}, got {format!r} for {source}."
        )
    return _FORMATS[format]


@dataclass
class _Piece:
    """A file, or a row group of one, and where its rows are in the data set."""

    fragment: Any
    start: int
    n_rows: int
    file_start: int  # number of the first row of the file

    @property
    def path(self) -> str:
        """Where the rows are."""
        return str(getattr(self.fragment, "path", "memory"))

    def place(self, row: int) -> str:
        """Return file, row group and row of a row of the data set, in words."""
        groups = getattr(self.fragment, "row_groups", None)
        group = f", row group {groups[0].id}" if groups else ""
        return f"{self.path}{group}, row {row - self.file_start:,} (the first is 0)"

    def batches(self, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Yield record batches of up to ``n_rows`` rows."""
        from pyarrow import ArrowInvalid, parquet

        groups = getattr(self.fragment, "row_groups", None)
        try:
            if groups is None:
                yield from self.fragment.to_batches(
                    columns=columns, batch_size=n_rows, batch_readahead=1, fragment_readahead=1
                )
                return
            # decodes as it goes on; the scanner would hold a whole row group
            with self.fragment.filesystem.open_input_file(self.fragment.path) as file:
                reader = parquet.ParquetFile(file, metadata=self.fragment.metadata)
                yield from reader.iter_batches(n_rows, [g.id for g in groups], columns)
        except ArrowInvalid as error:
            raise ValueError(f"{self.path}: {without_bytes(error)}") from None


class Dataset(StreamSource):
    """A data set in files, as `leansvm.open_dataset` returns it.

    Attributes
    ----------
    shape : tuple of int
        Rows and features.
    dtype : numpy.dtype
        float32 when all features are, else float64.
    feature_names : list of str
        Columns of X.
    is_table : bool
        Whether some columns are text, dates or categories; then X of a batch is an Arrow table.
    """

    def __init__(
        self,
        dataset: Any,
        target: str | Sequence[str] | None,
        sample_weight: str | None,
        features: Sequence[str] | None,
    ) -> None:
        self._dataset = dataset
        self.single_target = target is None or isinstance(target, str)
        self.target = [target] if isinstance(target, str) else list(target or ())
        self.sample_weight = sample_weight
        self.has_weight, self.n_targets = sample_weight is not None, len(self.target)
        special = {*self.target, *([sample_weight] if sample_weight else [])}
        names = [name for name in dataset.schema.names if name not in special]
        self.feature_names: list[str] = names if features is None else list(features)
        self.n_features = len(self.feature_names)
        self._check_columns(special)
        kinds = {kind_of(dataset.schema.field(name).type) for name in self.feature_names}
        self.is_table = not kinds <= {"numbers", "booleans"}
        types = {str(dataset.schema.field(name).type) for name in self.feature_names}
        self.dtype = np.dtype(np.float32 if types <= {"float", "halffloat"} else np.float64)
        self._pieces = _pieces(dataset)
        self._check_files()
        self.n_rows = sum(piece.n_rows for piece in self._pieces)
        if self.n_rows == 0:
            raise ValueError("The data set has no rows: a minimum of 1 is required.")

    def __repr__(self) -> str:
        files = len({piece.path for piece in self._pieces})
        target = self.target[0] if self.single_target and self.target else self.target
        about = f", target={target!r}" if self.target else ""
        rows = f"{self.n_rows:,} rows, {self.n_features} features"
        return f"Dataset({rows}{about}, {files} file{'s' * (files != 1)})"

    def batches(self, n_rows: int = 65536) -> Iterator[Batch]:
        """Yield all rows in order as named tuples (X, y, sample_weight) of NumPy arrays.

        Parameters
        ----------
        n_rows : int, default=65536
            Largest number of rows in a batch.
        """
        return self.read(ALL_PARTS, n_rows)

    def column(self, name: str) -> NDArray[Any]:
        """Read one column of all rows, such as the groups of `leansvm.model_selection.KFoldSums`.

        Parameters
        ----------
        name : str
            A column of the files, feature or not.

        Returns
        -------
        ndarray of shape (n_rows,)
            Its values, in memory.
        """
        if name not in self._dataset.schema.names:
            raise ValueError(
                f"The data set has no column {name!r}; it has {self._dataset.schema.names}."
            )
        batches = (b for piece in self._pieces for b in piece.batches([name], 65536))
        return np.concatenate([to_numpy(batch.column(name)) for batch in batches])

    def place(self, row: int, part: str, column: int) -> str:
        """Return file, row group, row and column of a value, in words."""
        names: Any = {
            "X": self.feature_names,
            "y": self.target,
            "sample_weight": [self.sample_weight],
        }
        after = [piece.start for piece in self._pieces]
        piece = self._pieces[int(np.searchsorted(after, row, side="right")) - 1]
        return f"{piece.place(row)}, column {names[part][column]!r}"

    def read(self, parts: frozenset[str], n_rows: int) -> Iterator[Batch]:
        """Yield all rows in order, up to ``n_rows`` at once; see `StreamSource.read`."""
        columns = self._columns(parts)
        for piece in self._pieces:
            for batch in piece.batches(columns, n_rows):
                if batch.num_rows:
                    yield self._converted(batch, parts)

    def has_gaps(self) -> bool:
        """Whether numbers are missing; columns of floats are read, for others the files say it."""
        return any(_has_gaps(piece, self.feature_names) for piece in self._pieces)

    def pieces(self, indices: NDArray[np.intp], parts: frozenset[str] = ALL_PARTS) -> list[Batch]:
        """Return the rows with these numbers, which increase; other row groups are not read."""
        columns, found = self._columns(parts), []
        for piece in self._pieces:
            low, high = np.searchsorted(indices, [piece.start, piece.start + piece.n_rows])
            start = piece.start
            if low == high:
                continue
            for batch in piece.batches(columns, 65536):
                first, last = np.searchsorted(indices, [start, start + batch.num_rows])
                if first < last:
                    taken = batch.take(indices[first:last] - start)
                    found.append(self._converted(taken, parts))
                start += batch.num_rows
                if last == high:
                    break
        return found

    # ------------------------------------------------------------------ columns

    def _check_columns(self, special: set[str]) -> None:
        schema = self._dataset.schema
        for name in [*special, *self.feature_names]:
            if name not in schema.names:
                raise ValueError(f"The data set has no column {name!r}; it has {schema.names}.")
        if not self.feature_names:
            raise ValueError("The data set has no columns left as features.")
        for name in self.feature_names:
            if name in special:
                raise ValueError(f"features: {name!r} is the target or the weight.")

    def _check_files(self) -> None:
        """Refuse a file that lacks a column, or has one of another kind than the data set."""
        from pyarrow.dataset import get_partition_keys

        needed = self._columns(ALL_PARTS)
        whole = {name: self._dataset.schema.field(name).type for name in needed}
        for path, fragment in {p.fragment.path: p.fragment for p in self._pieces}.items():
            schema = fragment.physical_schema
            for name in needed:
                if name in get_partition_keys(fragment.partition_expression):
                    raise ValueError(
                        f"{path}: column {name!r} is in the name of a folder, which is not read: "
                        f"write it into the files, or name other columns with features=[...]."
                    )
                if name not in schema.names:
                    raise ValueError(f"{path} has no column {name!r}; it has {schema.names}.")
                kinds = [kind_of(whole[name]), kind_of(schema.field(name).type)]
                if name in self.feature_names:
                    kinds = ["numbers" if kind == "booleans" else kind for kind in kinds]
                if kinds[0] != kinds[1]:
                    differs = f"holds {kinds[1]}, but {kinds[0]} in the first file"
                    raise ValueError(f"{path}: column {name!r} {differs}.")

    def _columns(self, parts: frozenset[str]) -> list[str]:
        columns = list(self.feature_names) if "X" in parts else []
        columns += self.target if "y" in parts else []
        if "weight" in parts and self.sample_weight is not None:
            columns.append(self.sample_weight)
        return columns

    def _converted(self, batch: Any, parts: frozenset[str]) -> Batch:
        X = None
        if "X" in parts:
            X = self._table(batch) if self.is_table else self._features(batch)
        y = weight = None
        if "y" in parts and self.target:
            columns = [to_numpy(batch.column(name)) for name in self.target]
            y = columns[0] if self.single_target else np.column_stack(columns)
        if "weight" in parts and self.sample_weight is not None:
            weight = to_numpy(batch.column(self.sample_weight))
        return Batch(X, y, weight)

    def _table(self, batch: Any) -> Any:
        import pyarrow

        return pyarrow.Table.from_batches([batch.select(self.feature_names)])

    def _features(self, batch: Any) -> NDArray[Any]:
        columns = [to_numpy(batch.column(name)) for name in self.feature_names]
        X = np.empty((batch.num_rows, len(columns)), self.dtype)
        for start in range(0, batch.num_rows, _CACHED_ROWS):
            rows = slice(start, start + _CACHED_ROWS)
            for j, column in enumerate(columns):
                X[rows, j] = column[rows]
        return X


def _has_gaps(piece: _Piece, columns: list[str]) -> bool:
    """Whether a file or row group has missing numbers: null, or NaN, which no file counts."""
    from pyarrow.types import is_floating

    groups = getattr(piece.fragment, "row_groups", None)
    if groups is not None:
        counts = [missing_values(piece.fragment.metadata.row_group(g.id), columns) for g in groups]
        if None not in counts:
            if any(counts):
                return True
            schema = piece.fragment.physical_schema
            columns = [name for name in columns if is_floating(schema.field(name).type)]
    for batch in piece.batches(columns, 65536) if columns else ():
        for column in batch.columns:
            floats = is_floating(column.type) and not column.null_count
            if column.null_count or (floats and np.isnan(to_numpy(column)).any()):
                return True
    return False


def _pieces(dataset: Any) -> list[_Piece]:
    """Return row groups (Parquet) or files, in order, with their numbers of rows."""
    pieces, start = [], 0
    for fragment in dataset.get_fragments():
        parts, file_start = [fragment], start
        if hasattr(fragment, "split_by_row_group"):
            parts = fragment.split_by_row_group()
        for part in parts:
            groups = getattr(part, "row_groups", None)
            n_rows = part.count_rows() if groups is None else sum(g.num_rows for g in groups)
            pieces.append(_Piece(part, start, n_rows, file_start))
            start += n_rows
    return pieces
