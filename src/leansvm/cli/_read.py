"""Data files of the command line: CSV, Parquet, LIBSVM/SVMlight and npz.

Tables become data frames with two kinds of columns: "number" (float64, NaN where missing) and
"category" (strings, NaN where missing). The other formats have numbers alone.
"""

from __future__ import annotations

import difflib
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leansvm.cli._output import CommandError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NUMBER, CATEGORY = "number", "category"
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
_MISSING = ["", "?", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "#N/A", "None"]
_ONE_BLOCK = 2**30  # bytes of a CSV file whose column types are decided by all of its rows


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
        Target; None where the file has none.
    kinds : dict or None
        Of a table: kind of every feature column.
    notes : list of str
        What a user should know about how the file was understood.
    """

    path: Path
    X: Any
    y: np.ndarray | None
    kinds: dict[str, str] | None = None
    notes: list[str] = field(default_factory=list)


def read(
    path: Path,
    *,
    target: str | None = None,
    drop: Sequence[str] = (),
    file_format: str | None = None,
) -> FileData:
    """Read a file to train on."""
    kind = _format(path, file_format)
    if kind in ("svmlight", "npz"):
        if target not in (None, "y") or drop:
            raise CommandError(f"{path}: a file without column names takes no --target or --drop")
        X, y = _read_svmlight(path) if kind == "svmlight" else _read_npz(path)
        if y is None:
            raise CommandError(f"{path}: there is no array y (or y_train) to train on")
        return _checked(FileData(path, X, y))
    if target is None:
        raise CommandError(f"{path}: name the column to predict with --target")
    table = _read_table(path, kind)
    for name in (target, *drop):
        _check_column(path, name, table.column_names)
    y = _target(path, target, table[target])
    features = [name for name in table.column_names if name != target and name not in drop]
    frame, kinds, notes = _frame(path, table, features)
    return _checked(FileData(path, frame, y, kinds, notes))


def read_like(
    path: Path,
    columns: dict[str, str] | None,
    n_features: int,
    *,
    target: str | None,
    file_format: str | None = None,
) -> FileData:
    """Read a file to predict, in the form a model was trained on."""
    kind = _format(path, file_format)
    table_like = kind in ("csv", "parquet")
    if table_like != (columns is not None):
        what = "a table with named columns" if columns is not None else "rows without column names"
        raise CommandError(f"{path}: the model was trained on {what}, this is {kind}")
    if columns is None:
        X, y = _read_svmlight(path, n_features) if kind == "svmlight" else _read_npz(path)
        if X.shape[1] != n_features:
            raise CommandError(
                f"{path}: {X.shape[1]} features, but the model was trained on {n_features}"
            )
        return _checked(FileData(path, X, y))
    table = _read_table(path, kind)
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise CommandError(
            f"{path}: no column {_quoted(missing)}, which the model needs; "
            f"the file has {_quoted(table.column_names)}"
        )
    y = None
    if target is not None and target in table.column_names and not table[target].null_count:
        y = _target(path, target, table[target])
    frame, _, _ = _frame(path, table, list(columns), columns)
    return _checked(FileData(path, frame, y, columns))


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
    raise CommandError(f"{path}: unknown kind of file (known: {known}); say which with --format")


# ---------------------------------------------------------------------------- tables


def _read_table(path: Path, kind: str) -> pa.Table:
    if path.stat().st_size == 0:
        raise CommandError(f"{path}: the file is empty")
    table = _read_csv(path) if kind == "csv" else _read_parquet(path)
    names = table.column_names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise CommandError(f"{path}: more than one column is called {_quoted(twice)}")
    if table.num_rows == 0:
        raise CommandError(f"{path}: there are no rows")
    return table


def _read_csv(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    delimiter = _delimiter(path)
    size = min(max(path.stat().st_size * 20, 2**20), _ONE_BLOCK)  # 20: it may be compressed
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            return csv.read_csv(
                stream,
                # one thread: errors then have line numbers
                read_options=csv.ReadOptions(use_threads=False, block_size=size),
                parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                convert_options=csv.ConvertOptions(null_values=_MISSING, strings_can_be_null=True),
            )
    except pa.ArrowInvalid as error:
        raise CommandError(f"{path}{_csv_problem(str(error))}") from error


def _csv_problem(message: str) -> str:
    """Turn pyarrow's message into one with line, column and value."""
    if match := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        line, expected, found = match.groups()
        return f", line {line}: {found} values, but the header has {expected} columns"
    if match := re.search(r"column #(\d+).*?(?:Row #(\d+))?.*invalid value '(.*)'", message, re.S):
        column, line, value = match.groups()
        place = f", line {line}" if line else ""
        return f"{place}, column {int(column) + 1}: {value!r} is not like the values before it"
    if "mpty CSV" in message:
        return ": the file is empty"
    return f": {message}"


def _delimiter(path: Path) -> str:
    """Take the candidate that is most frequent in the first line; a comma if there is none."""
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as stream:
        head = bytes(stream.read(2**16)).split(b"\n", 1)[0].decode("utf-8", "replace")
    counts = {delimiter: head.count(delimiter) for delimiter in (",", ";", "\t", "|")}
    return max(counts, key=lambda delimiter: counts[delimiter])


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise CommandError(f"{path}: not a readable Parquet file ({error})") from error


def _frame(
    path: Path, table: pa.Table, names: list[str], wanted: dict[str, str] | None = None
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """Convert the columns to the two kinds; those of a model are given in `wanted`."""
    import pandas as pd

    columns, kinds, notes = {}, {}, []
    for name in names:
        values, kind = _column(path, name, table[name])
        if wanted is not None:
            values, kind = _as_wanted(path, name, values, kind, wanted[name]), wanted[name]
        elif kind == NUMBER and np.isnan(values).all():
            notes.append(f"column '{name}' has no values and is left out")
            continue
        elif kind == CATEGORY:
            notes += _suspicious(name, values)
        columns[name], kinds[name] = values, kind
    return pd.DataFrame(columns), kinds, notes


def _column(path: Path, name: str, column: pa.ChunkedArray) -> tuple[np.ndarray, str]:
    """Return numbers as float64 and text as objects, with NaN where a value is missing."""
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        if pa.types.is_time(kind):
            raise CommandError(f"{path}, column '{name}': times of day are not supported; drop it")
        seconds = column.cast(pa.timestamp("ms")).cast(pa.int64())
        column = compute.divide(seconds.cast(pa.float64()), 86_400_000.0)  # days since 1970
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = column.to_numpy(zero_copy_only=False).astype(object)
        values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return values, CATEGORY
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise CommandError(f"{path}, column '{name}': the text is not UTF-8")
    try:
        numbers = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CommandError(f"{path}, column '{name}': values of type {kind} are no use") from error
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64), NUMBER


def _as_wanted(path: Path, name: str, values: np.ndarray, kind: str, wanted: str) -> np.ndarray:
    """Convert a column to the kind a model was trained on."""
    if kind == wanted:
        return values
    if wanted == CATEGORY:  # numbers where the training file had text
        result = np.full(len(values), np.nan, dtype=object)
        known = ~np.isnan(values)
        result[known] = [_number_text(value) for value in values[known]]
        return result
    for row, value in enumerate(values):
        if isinstance(value, str) and not _is_number(value):
            raise CommandError(
                f"{path}, column '{name}', row {row + 1} of the data: {value!r} is not a number"
            )
    return np.array([float(value) for value in values])


def _number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _suspicious(name: str, values: np.ndarray) -> list[str]:
    """Say so when a column is text only because of a few values."""
    known = [(row, value) for row, value in enumerate(values) if isinstance(value, str)]
    odd = [(row, value) for row, value in known if not _is_number(value)]
    if odd and len(odd) <= 0.1 * len(known):
        row, value = odd[0]
        return [
            f"column '{name}' is taken as text because of {len(odd)} values that are not "
            f"numbers, such as {value!r} in row {row + 1} of the data"
        ]
    return []


def _target(path: Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    import pyarrow as pa

    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise CommandError(
            f"{path}, column '{name}': the target is missing in {column.null_count} rows, first "
            f"in row {row + 1} of the data; fill or remove them"
        )
    if pa.types.is_boolean(column.type):
        return np.array(["true" if value else "false" for value in column.to_pylist()])
    if pa.types.is_integer(column.type):  # float64 would round those beyond 2^53
        return _whole(column.to_numpy())
    values, kind = _column(path, name, column)
    if kind == CATEGORY:
        return values.astype(str)
    return _whole(values)


def _whole(y: np.ndarray) -> np.ndarray:
    """Return int64 where all values are whole and fit; what does not stays as it is."""
    if len(y) == 0 or not np.isfinite(y).all() or np.any(y != np.round(y)):
        return y
    fits = int(y.min()) >= -(2**63) and int(y.max()) < 2**63
    return y.astype(np.int64) if fits else y


# ---------------------------------------------------------------------------- plain arrays


def _read_svmlight(path: Path, n_features: int | None = None) -> tuple[Any, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(str(path))
    except (ValueError, EOFError, OverflowError) as error:
        raise CommandError(f"{path}{_svmlight_problem(path)}") from error
    if n_features is None:
        _check_width(path, X.shape[1])
    if n_features is not None and X.shape[1] < n_features:  # the last ones are zero in all rows
        X.resize((X.shape[0], n_features))
    return X, _whole(y)


def _check_width(path: Path, n_features: int) -> None:
    """Refuse an index so large that a few numbers for each feature would fill the memory."""
    from leansvm.blocks import available_memory, format_bytes

    needed, free = _VECTORS * 8 * n_features, available_memory()
    if needed > free:
        raise CommandError(
            f"{path}: the largest index is {n_features:,}: a model of so many features needs "
            f"{format_bytes(needed)}, and {format_bytes(free)} are free; number the features "
            f"without gaps"
        )


_VECTORS = 16  # of one number per feature that preprocessing, fit and model hold at once
_PAIR = re.compile(rb"(qid|\d+):[-+]?(\d+\.?\d*|\.\d+|nan|inf)([eE][-+]?\d+)?$", re.I)


def _svmlight_problem(path: Path) -> str:
    """Find the first line that is not 'label index:value ...' with growing indices."""
    content = path.read_bytes()
    for number, line in enumerate(content.splitlines(), start=1):
        fields = line.partition(b"#")[0].split()
        if not fields:
            continue
        if not _is_number(fields[0].decode("ascii", "replace")):
            return f", line {number}: the label {fields[0].decode(errors='replace')!r} is no number"
        last = -1
        for pair in fields[1:]:
            text = pair.decode(errors="replace")
            if not _PAIR.match(pair):
                return f", line {number}: {text!r} is not of the form index:value"
            if pair.startswith(b"qid"):
                continue
            index = int(pair.partition(b":")[0])
            if index >= 2**31:
                return f", line {number}: the index of {text!r} is too large"
            if index <= last:
                return f", line {number}: the index of {text!r} is not larger than the one before"
            last = index
    return ": not a LIBSVM/SVMlight file" if content.strip() else ": the file is empty"


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files if key in _NPZ_KEYS}
            found = file.files
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise CommandError(f"{path}: not a readable npz file ({error})") from error
    X = arrays.get("X", arrays.get("X_train"))
    y = arrays.get("y", arrays.get("y_train"))
    if X is None:
        raise CommandError(f"{path}: no array X (or X_train); the file has {_quoted(found)}")
    if X.ndim != 2 or (y is not None and y.shape != (len(X),)):
        shapes = f"X {X.shape}" + ("" if y is None else f" and y {y.shape}")
        needed = "X must have rows and columns, y one value per row"
        raise CommandError(f"{path}: {needed}; got {shapes}")
    return X, y if y is None or y.dtype.kind in "US" else _whole(y)


_NPZ_KEYS = ("X", "y", "X_train", "y_train")


# ---------------------------------------------------------------------------- words


def _check_column(path: Path, name: str, names: Sequence[str]) -> None:
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise CommandError(f"{path}: no column '{name}'; {hint}the file has {_quoted(names)}")


def _quoted(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
