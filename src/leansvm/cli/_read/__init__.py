"""Data files of the command line: CSV, Parquet, LIBSVM/SVMlight and npz.

Tables become data frames whose types say what a column is: numbers, texts, dates, booleans. The
other formats have numbers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from leansvm.cli._output import CommandError, UsageError
from leansvm.cli._read._arrays import read_npz, read_svmlight
from leansvm.cli._read._dates import DAY_FIRST, MONTH_FIRST
from leansvm.cli._read._frame import frame_of, missing_targets, target_of
from leansvm.cli._read._recognise import CATEGORY, DATE, KINDS, NUMBER, TIME, TRUTH, Conventions
from leansvm.cli._read._table import FileTable, read_table
from leansvm.cli._read._words import check_column, quoted, several

__all__ = [
    "CATEGORY",
    "DATE",
    "KINDS",
    "NUMBER",
    "TRUTH",
    "Conventions",
    "FileData",
    "read",
    "read_like",
]

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npz": "npz",
}


@dataclass
class FileData:
    """Rows of a file.

    Parameters
    ----------
    path : Path
        Where they come from.
    X : DataFrame, ndarray or CSR matrix
        Features.
    y : ndarray or None
        Target; None if the file has none.
    kinds : dict or None
        For a table: the kind of every feature column.
    notes : list of str
        What a user should know about how the file was understood.
    form : list of str
        What is unusual about the format of the file, such as "semicolons" and "decimal commas".
    reading : dict
        Conventions of the file that are kept with a model, in JSON's types.
    kept : dict
        Columns (of pyarrow) that go into the output as they are in the file.
    no_score : str
        Why there is no target, although the file has its column.
    """

    path: Path
    X: Any
    y: np.ndarray | None
    kinds: dict[str, str] | None = None
    notes: list[str] = field(default_factory=list)
    form: list[str] = field(default_factory=list)
    reading: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    no_score: str = ""

    def words(self) -> str:
        """Return what was recognised: "12 numbers, 3 categories, 1 date"."""
        if self.kinds is None:
            return several(self.X.shape[1], "number", "numbers")
        names = {
            NUMBER: ("number", "numbers"),
            CATEGORY: ("category", "categories"),
            DATE: ("date", "dates"),
            TIME: ("time of day", "times of day"),
            TRUTH: ("yes/no", "yes/no"),
        }
        counts = Counter(self.kinds.values())
        return ", ".join(several(counts[kind], *names[kind]) for kind in names if counts[kind])


def read(
    path: Path,
    *,
    target: str | None = None,
    drop: Sequence[str] = (),
    file_format: str | None = None,
    columns: Mapping[str, str] | None = None,
    conventions: Conventions | None = None,
) -> FileData:
    """Read a file to train on.

    Parameters
    ----------
    path : Path
        The file.
    target : str, optional
        Column to predict; needed for tables.
    drop : sequence of str
        Columns to leave out.
    file_format : str, optional
        By default the ending of the name says it.
    columns : dict, optional
        Kinds of columns that the user decides.
    conventions : Conventions, optional
        How numbers and dates are written, as far as the user says it.
    """
    kind, columns = _format(path, file_format), columns or {}
    if kind in ("svmlight", "npz"):
        if target not in (None, "y") or drop or columns:
            raise UsageError(
                f"{path}: this file has no column names; leave out --target, --drop and --column"
            )
        data = _without_names(path, kind)
        if data.y is None:
            raise CommandError(f"{path}: there is no array y (or y_train) to train on")
        return _checked(data)
    if target is None:
        raise UsageError(f"{path}: say which column to predict with --target COLUMN")
    table = read_table(path, kind)
    for name in (target, *drop, *columns):
        check_column(path, name, table.names)
    names = [name for name in table.names if name not in drop]
    frame = frame_of(table, names, target, columns, conventions or Conventions())
    data = FileData(path, frame.X, frame.y, frame.kinds, frame.notes)
    data.form, data.reading = _form(table, frame.ways), asdict(frame.ways)
    return _checked(data)


def _without_names(
    path: Path, kind: str, n_features: int | None = None, zero_based: bool | str = "auto"
) -> FileData:
    """Read a file of numbers without column names."""
    if kind == "npz":
        return FileData(path, *read_npz(path))
    X, y, zero_based = read_svmlight(path, n_features, zero_based)
    return FileData(path, X, y, reading={"zero_based": zero_based})


def _form(table: FileTable, ways: Conventions) -> list[str]:
    return table.words() + (["decimal commas"] if ways.decimal == "," else [])


def read_like(
    path: Path,
    columns: dict[str, str] | None,
    n_features: int,
    *,
    target: str | None,
    file_format: str | None = None,
    reading: Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
) -> FileData:
    """Read a file to predict, in the form on which a model was trained.

    `reading` holds the conventions of the training file; they decide if this file is ambiguous.
    `keep` names columns that are returned as they are.
    """
    kind = _format(path, file_format)
    table_like = kind in ("csv", "parquet")
    if table_like != (columns is not None):
        what = "a table with named columns" if columns is not None else "rows without column names"
        raise CommandError(f"{path}: the model was trained on {what}, this is {kind}")
    before, zero_based = _conventions_of_model(reading or {})
    if columns is None:
        if keep:
            raise UsageError(f"{path}: --keep needs a file with column names")
        data = _without_names(path, kind, n_features, zero_based)
        if data.X.shape[1] != n_features:
            raise CommandError(
                f"{path}: {data.X.shape[1]} features, but the model was trained on {n_features}"
            )
        return _checked(data)
    table = read_table(path, kind)
    for name in keep:
        check_column(path, name, table.names)
    here = set(table.names)
    missing = [name for name in columns if name not in here]
    if missing:
        word = "the column" if len(missing) == 1 else "the columns"
        raise CommandError(
            f"{path}: the model needs {word} {quoted(missing)}, which this file does not have; "
            f"the file has {quoted(table.names)}"
        )
    given = Conventions(missing=before.missing, options=False)
    frame = frame_of(table, list(columns), None, columns, given, before)
    y, gone = None, 0
    if target is not None and target in here:
        gone = missing_targets(table, target, frame.ways)
        if not gone:
            try:
                y = target_of(table, target, None, frame.ways)
            except CommandError:  # predictions do not need it, and scoring says what is wrong
                y = target_of(table, target, CATEGORY, frame.ways)
    kept = {name: table.columns[name] for name in keep}
    data = FileData(path, frame.X, y, columns, kept=kept)
    if 0 < gone < data.X.shape[0]:
        data.no_score = f"{gone:,} of {data.X.shape[0]:,} rows have no target in '{target}'"
    return _checked(data)


def _conventions_of_model(reading: Mapping[str, Any]) -> tuple[Conventions, bool | str]:
    """Return what a model file says about its training file; anybody may have written it.

    That is how a table is written, and whether an SVMlight file counts features from 0.
    """
    decimal, dates = reading.get("decimal"), reading.get("dates")
    missing, zero_based = reading.get("missing", ()), reading.get("zero_based", "auto")
    known = isinstance(missing, (list, tuple)) and all(isinstance(text, str) for text in missing)
    known &= decimal in (None, ".", ",") and dates in (None, DAY_FIRST, MONTH_FIRST)
    if not known or zero_based not in (True, False, "auto"):
        raise CommandError("the model's metadata was not written by leansvm train")
    return Conventions(decimal, dates, tuple(missing), options=False), zero_based


def _checked(data: FileData) -> FileData:
    if data.X.shape[1] == 0:
        raise CommandError(f"{data.path}: there are no features besides the target")
    if data.X.shape[0] == 0:
        raise CommandError(f"{data.path}: there are no rows")
    return data


def _format(path: Path, given: str | None) -> str:
    if given is not None:
        return given
    if not path.is_file():
        raise CommandError(f"{path}: there is no such file")
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".bz2")]
    if suffixes and suffixes[-1].lower() in FORMATS:
        return FORMATS[suffixes[-1].lower()]
    known = ", ".join(sorted(FORMATS))
    raise UsageError(f"{path}: unknown file type (known: {known}); set it with --format")
