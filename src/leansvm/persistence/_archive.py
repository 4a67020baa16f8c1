"""The zip archive of a model: which parts it may have and how large they may be.

Parts are packed (deflate) if reading them takes no more memory than a few times the bytes of the
file, and some megabytes; else they are stored as they are. Arrays of sparse matrices are archives
inside the archive, and never packed themselves. Nothing is read before its size is known, and
never more than that size.
"""

from __future__ import annotations

import io
import json
import math
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from leansvm.persistence._schema import nodes_of, with_keys

FACTS, SCHEMA = "leansvm.json", "schema.json"
_MAX_FACTS = 2**24  # bytes, more only where they hardly pack
_MAX_PARTS = 100_000
# bytes that all parts, and the schema, may unpack to: (times the size of the file, and more)
_MOST_UNPACKED, _MOST_SCHEMA = (4, 32 * 2**20), (1, 2**21)
_MORE_PIECES = 100_000  # pieces that a schema may have in addition to those of its nodes
_MOST_ENTRIES = 1000  # of a sparse matrix's archive, some of which its numbers may imitate
# arrays of a sparse matrix, and how many bytes they may have: SciPy makes Python's numbers of some
_SPARSE_PARTS = dict.fromkeys(("data", "indices", "indptr"), math.inf)
_SPARSE_PARTS |= dict.fromkeys(("shape", "format", "_is_array"), 1000)


class ModelFileError(ValueError):
    """The file is not a model, is damaged, or comes from a newer version."""


class UntrustedTypesError(ModelFileError):
    """The model needs types that are neither ours nor scikit-learn's; `types` lists them."""

    def __init__(self, path: Path, types: list[str], *, saving: bool = False) -> None:
        self.types = types
        done = "Nothing was written" if saving else "Nothing was loaded"
        way_out = (
            "If they are yours, list them in trusted= here and when loading."
            if saving
            else "If you trust where the file comes from, list them in trusted=."
        )
        super().__init__(
            f"{path} needs types that leansvm does not know: {printable(', '.join(types))}. "
            f"{done}. {way_out}"
        )


def printable(text: str) -> str:
    """Return text of a file with control characters escaped: a terminal would obey them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def check_regular(path: Path) -> None:
    """Refuse devices and pipes, which have no end."""
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise ValueError("it is a device or a pipe")


def check_parts(archive: zipfile.ZipFile, size: int, *, packed: bool = True) -> None:
    """Refuse encrypted, too large or duplicate parts and, unless ``packed``, compressed parts."""
    parts = archive.infolist()
    if len({part.filename for part in parts}) < len(parts) or len(parts) > _MAX_PARTS:
        raise ValueError("it has duplicate part names, or too many parts")
    for part in parts:
        if part.flag_bits & 0x1:
            raise ValueError(f"its part {part.filename} is encrypted")
        stored = part.compress_type == zipfile.ZIP_STORED
        if stored and part.file_size != part.compress_size:
            raise ValueError(f"its part {part.filename} declares two different sizes")
        if not stored and not packed:
            raise ValueError(f"its part {part.filename} is compressed, but no part may be")
        if not stored and part.compress_type != zipfile.ZIP_DEFLATED:
            raise ValueError(f"its part {part.filename} is not compressed by deflate")
    if sum(part.compress_size for part in parts) > size:
        raise ValueError("its parts overlap")
    if not _unpacks_within(parts, size):
        raise ValueError(f"its parts unpack to far more than its {size:,} bytes")


def _unpacks_within(parts: list[zipfile.ZipInfo], size: int) -> bool:
    """Whether schema and parts stay within the limits, by the sizes they declare.

    `read_parts` unpacks no more than that. The facts have limits of their own.
    """
    schema = sum(part.file_size for part in parts if part.filename == SCHEMA)
    total = sum(part.file_size for part in parts if part.filename != FACTS)
    return all(
        unpacked <= times * size + more
        for unpacked, (times, more) in ((schema, _MOST_SCHEMA), (total, _MOST_UNPACKED))
    )


def read_facts(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the facts about the model; no more than the limit is unpacked."""
    packed = archive.getinfo(FACTS).compress_size
    most_bytes, most_pieces = max(_MAX_FACTS, 20 * packed), 5 * _MORE_PIECES + packed // 2
    with archive.open(FACTS) as part:
        text = part.read(most_bytes + 1)
    if len(text) > most_bytes or _pieces(text) > most_pieces:
        raise ValueError(f"its facts have more than {most_bytes:,} bytes or too many entries")
    facts = json.loads(text)
    if not isinstance(facts, dict) or type(facts.get("format")) is not int or facts["format"] < 1:
        raise ValueError("its facts have no format number")
    for name, kind in (("model", str), ("metadata", dict)):
        if not isinstance(facts.get(name), kind):
            raise ValueError(f"its facts have no {name}")
    return facts


def read_parts(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Return all parts but the facts."""
    parts = (part for part in archive.infolist() if part.filename != FACTS)
    return {part.filename: read_part(archive, part) for part in parts}


def read_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    """Return a part; no more is unpacked than the archive declares."""
    with archive.open(part) as file:
        content = file.read(part.file_size)  # without a number it would unpack everything
    if len(content) != part.file_size:
        raise ValueError(f"its part {part.filename} is truncated")
    return content


def read_schema(text: bytes) -> Any:
    """Return the schema; refuse a text with far more lists and entries than nodes."""
    if _pieces(text) > _MORE_PIECES + 20 * text.count(b"__loader__"):
        raise ValueError("its schema is not a tree of nodes")
    return json.loads(text)


def _pieces(text: bytes) -> int:
    """Return about how many lists, dictionaries and entries a JSON text has."""
    return sum(text.count(sign) for sign in (b"[", b"{", b","))


def check_arrays(parts: dict[str, bytes]) -> None:
    """Refuse arrays whose headers do not match their number of bytes."""
    for name, content in parts.items():
        if name.endswith(".npy"):
            check_header(content, name)
        elif name.endswith(".npz"):
            _check_sparse(content, name)


def _check_sparse(content: bytes, name: str) -> None:
    """Refuse the archive of a sparse matrix with other parts than its arrays, or packed ones."""
    if content.count(b"PK\1\2") > _MOST_ENTRIES:
        raise ValueError(f"its part {name} lists too many parts")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        check_parts(archive, len(content), packed=False)
        for part in archive.infolist():
            inner = part.filename.removesuffix(".npy")
            if inner not in _SPARSE_PARTS or part.file_size > _SPARSE_PARTS[inner]:
                raise ValueError(f"{name} holds {part.filename} of {part.file_size:,} bytes")
            check_header(read_part(archive, part), part.filename)


def check_header(content: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Refuse an array in NumPy's format whose header does not match its number of bytes.

    Returns
    -------
    shape, by_columns, dtype, start
        What the header says, and where the numbers begin.
    """
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    try:
        shape, by_columns, dtype = read_header(file)
    except MemoryError as error:  # what Python says to a text with thousands of levels
        raise ValueError(f"the header of its part {name} cannot be read") from error
    count = math.prod(shape)
    if dtype.hasobject or (count and not dtype.itemsize):
        raise ValueError(f"its part {name} has type {dtype}")
    if any(length < 0 for length in shape) or file.tell() + count * dtype.itemsize != len(content):
        raise ValueError(f"the size of its part {name} does not match the shape {shape}")
    return shape, by_columns, dtype, file.tell()


def read_dumped(content: bytes) -> tuple[dict[str, bytes], Any]:
    """Return the parts that skops wrote, and the schema, with keys that can be read back."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return parts, with_keys(json.loads(parts.pop(SCHEMA)))


def complete(parts: dict[str, bytes], schema: Any, facts: dict[str, Any]) -> bytes:
    """Return the archive of a model, packed unless that would exceed the limits of `check_parts`.

    Parameters
    ----------
    parts : dict of bytes
        What skops wrote, by name; those that the schema does not name are left out.
    schema, facts : dict
        Of the model.
    """
    used = {node["file"] for node in nodes_of(schema) if "file" in node}
    content = {SCHEMA: json.dumps(schema).encode()}
    for name in parts.keys() & used:
        content[name] = _unpacked(parts[name]) if name.endswith(".npz") else parts[name]
    content[FACTS] = json.dumps(facts, indent=1, allow_nan=False).encode()
    packed = archive_of(content, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        fits = _unpacks_within(archive.infolist(), len(packed))
    return packed if fits else archive_of(content)


def archive_of(content: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of parts, given by name; facts are always packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, part in content.items():
            archive.writestr(name, part, zipfile.ZIP_DEFLATED if name == FACTS else how)
    return buffer.getvalue()


def _unpacked(content: bytes) -> bytes:
    """Return the archive of a sparse matrix with its arrays as they are."""
    buffer = io.BytesIO()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        np.savez(buffer, **arrays)
    return buffer.getvalue()
