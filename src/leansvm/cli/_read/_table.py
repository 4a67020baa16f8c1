"""Tables as they are in a file: named columns, and the place of every row for messages.

A CSV file gives columns of text, which `_recognise` understands; a Parquet file brings its types.
"""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leansvm.cli._output import CommandError
from leansvm.cli._read._encoding import NAMES, find_encoding, open_text
from leansvm.cli._read._words import quoted

if TYPE_CHECKING:
    import pyarrow as pa

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SAMPLE = 50  # records that decide what stands between values
_MOST_COLUMNS = 20_000  # of a CSV file, each of which is recognised by itself
_BLOCK = 2**24  # bytes of a CSV file that are parsed at once; no row may be longer


@dataclass(frozen=True)
class CsvForm:
    """How a CSV file is written.

    Parameters
    ----------
    encoding : str
        Codec.
    delimiter : str
        Between values.
    names : list of str
        Of the columns.
    skip : int
        Lines before the first row.
    """

    encoding: str
    delimiter: str
    names: list[str]
    skip: int


@dataclass(frozen=True)
class FileTable:
    """Columns of a file.

    Parameters
    ----------
    path : Path
        Where they come from.
    columns : pyarrow Table
        Of a CSV file: all of them text. Of a Parquet file: dictionaries are decoded.
    form : CsvForm or None
        Of a CSV file.
    categories : frozenset of str
        Columns of a Parquet file that are categories by their type: their digits stay text.
    """

    path: Path
    columns: pa.Table
    form: CsvForm | None = None
    categories: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns.column_names)

    def place(self, row: int, column: str) -> str:
        """Return file, line and column of a value, for messages; rows are counted from 0."""
        if self.form is None:
            return f"{self.path}, row {row + 1}, column '{column}'"
        return f"{self.path}, line {self._line(row)}, column '{column}'"

    def _line(self, row: int) -> int:
        assert self.form is not None
        records = _records(self.path, self.form.encoding, self.form.delimiter, self.form.skip)
        return next(itertools.islice(records, row, None))[0]

    def words(self) -> list[str]:
        """Return what is not plain about a CSV file."""
        if self.form is None:
            return []
        encoding = NAMES.get(self.form.encoding)
        delimiter = DELIMITERS[self.form.delimiter] if self.form.delimiter != "," else None
        return [word for word in (encoding, delimiter) if word]


def read_table(path: Path, kind: str) -> FileTable:
    """Read a CSV or Parquet file."""
    if path.stat().st_size == 0:
        raise CommandError(f"{path}: the file is empty")
    table = _read_csv(path) if kind == "csv" else _read_parquet(path)
    names = table.names
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        line = ", line 1" if table.form is not None else ""
        raise CommandError(f"{path}{line}: more than one column is called {quoted(twice)}")
    if table.columns.num_rows == 0:
        raise CommandError(f"{path}: there are no rows")
    return table


def _read_parquet(path: Path) -> FileTable:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise CommandError(f"{path}: not a readable Parquet file ({error})") from error
    categories = set()
    for i, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            chunks = [chunk.dictionary_decode() for chunk in column.chunks]
            plain = pa.chunked_array(chunks, column.type.value_type)
            table = table.set_column(i, table.column_names[i], plain)
            categories.add(table.column_names[i])
    return FileTable(path, table, categories=frozenset(categories))


# ---------------------------------------------------------------------------- CSV


def _read_csv(path: Path) -> FileTable:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    form = find_form(path)
    places = [str(i) for i in range(len(form.names))]  # names may be there twice
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            found = arrow_csv.read_csv(
                stream,
                read_options=arrow_csv.ReadOptions(
                    encoding="utf-8" if form.encoding == "utf-8-sig" else form.encoding,
                    column_names=places,
                    skip_rows=form.skip,
                    block_size=_BLOCK,
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=form.delimiter, newlines_in_values=True
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(places, pa.string())
                ),
            )
    except pa.ArrowInvalid as error:
        if "mpty CSV" in str(error):
            raise CommandError(f"{path}: there are no rows") from error
        raise CommandError(_ragged(path, form) or f"{path}: {error}") from error
    return FileTable(path, found.rename_columns(form.names), form)


def find_form(path: Path) -> CsvForm:
    """Find encoding, delimiter and header from the whole file's bytes and its first records."""
    encoding = find_encoding(path)
    with open_text(path, encoding) as stream:
        first = stream.readline().strip()
    if max(map(first.count, DELIMITERS)) >= _MOST_COLUMNS:
        _check_width(path, encoding)
    delimiter = first[4:5] if first.lower().startswith("sep=") else ""  # Excel says it itself
    start = 1 if delimiter else 0
    if delimiter not in DELIMITERS:
        delimiter = _delimiter(path, encoding)
    header = next(_records(path, encoding, delimiter, start), None)
    if header is None:
        raise CommandError(f"{path}: the file is empty")
    line, names, end = header
    _check_header(path, line, names)
    # pandas gives nameless columns the same names
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
    return CsvForm(encoding, delimiter, names, end)


def _check_width(path: Path, encoding: str) -> None:
    """Refuse a header of very many columns before anything else is read."""
    for delimiter in DELIMITERS:
        _, names, _ = next(_records(path, encoding, delimiter, 0))
        if len(names) > _MOST_COLUMNS:
            raise CommandError(
                f"{path}, line 1: {len(names):,} columns between {DELIMITERS[delimiter]}; a CSV "
                f"file may have {_MOST_COLUMNS:,}. Give wide tables of numbers as .npz or "
                f"svmlight files, or transpose the table if its columns are the rows"
            )


def _check_header(path: Path, line: int, names: Sequence[str]) -> None:
    """Refuse a first line of numbers: the names are missing, or the first row would be lost."""
    numbers = [name for name in names if name.strip()[:1].lstrip("+-.,").isdigit()]
    if numbers and all(_plain_number(name) for name in names if name.strip()):
        raise CommandError(
            f"{path}, line {line}: the first line should hold the names of the columns, but "
            f"these are numbers: {quoted(names, 3)}"
        )


def _plain_number(text: str) -> bool:
    try:
        float(text.strip().replace(",", "."))
    except ValueError:
        return False
    return True


def _delimiter(path: Path, encoding: str) -> str:
    """Return the delimiter that cuts all first records into the same number of values, the most."""
    widths = {}
    for delimiter in DELIMITERS:
        records = itertools.islice(_records(path, encoding, delimiter, 0), _SAMPLE)
        widths[delimiter] = [len(values) for _, values, _ in records]
    if not widths[","]:
        return ","
    even = {d: w[0] for d, w in widths.items() if w[0] > 1 and len(set(w)) == 1}
    # a record may be wrong: then the one that cuts the header into most names
    chosen = even or {d: w[0] for d, w in widths.items()}
    return max(chosen, key=lambda delimiter: chosen[delimiter])


def _records(
    path: Path, encoding: str, delimiter: str, skip: int
) -> Iterator[tuple[int, list[str], int]]:
    """Yield first line, values and last line of every record that is not empty."""
    with open_text(path, encoding) as stream:
        for _ in range(skip):
            stream.readline()
        # a header of many columns is one long value where another delimiter is tried
        csv.field_size_limit(max(csv.field_size_limit(), _BLOCK))
        reader = csv.reader(stream, delimiter=delimiter)
        end = skip
        try:
            for values in reader:
                start, end = end + 1, skip + reader.line_num
                if values:
                    yield start, values, end
        except csv.Error as error:
            raise CommandError(f"{path}, line {skip + reader.line_num}: {error}") from error


def _ragged(path: Path, form: CsvForm) -> str:
    """Say which record has too few or too many values."""
    width = len(form.names)
    for line, values, end in _records(path, form.encoding, form.delimiter, form.skip):
        if len(values) == width:
            continue
        text = f"{path}, line {line}: {len(values)} values, but the header has {width} columns"
        if end > line + 1:
            return f"{text}; a quote that opens in this line is closed in line {end}, or nowhere"
        if form.delimiter == "," and len(values) > width:
            text += "; values with a comma need quotes, or semicolons between values"
        return text
    return ""
