"""The zip archive of a model: which parts it may have and how large they may be.

All parts but the facts lie in it as they are, not compressed: reading them takes no more memory
than the file has bytes. Arrays of sparse matrices are archives of their own inside of it.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import Any

import numpy as np
from numpy.lib import format as npy

from leansvm.persistence._schema import with_keys

FACTS, SCHEMA = "leansvm.json", "schema.json"
_MAX_FACTS = 2**24  # bytes, more only where they hardly pack
_MAX_PARTS = 100_000
_MORE_THAN_FILE = 32 * 2**20  # bytes that compressed arrays may have beyond the size of the file
_MORE_PIECES = 100_000  # of a schema beyond those of its nodes
_SPARSE_PARTS = {"data", "indices", "indptr", "shape", "format", "_is_array"}


def check_parts(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse parts that are encrypted, compressed or the same, by the list of the archive."""
    parts = archive.infolist()
    if len({part.filename for part in parts}) < len(parts) or len(parts) > _MAX_PARTS:
        raise ValueError("it has parts of the same name, or too many of them")
    for part in parts:
        if part.flag_bits & 0x1:
            raise ValueError(f"its part {part.filename} is encrypted")
        stored = part.compress_type == zipfile.ZIP_STORED and part.file_size == part.compress_size
        if not stored and part.filename != FACTS:
            raise ValueError(f"its part {part.filename} is compressed")
    if sum(part.compress_size for part in parts) > size:
        raise ValueError("its parts overlap")


def read_facts(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the facts about the model; only so much of them is unpacked as there may be."""
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


def read_schema(archive: zipfile.ZipFile) -> Any:
    """Return the schema, if its text has not many more lists and entries than nodes."""
    text = archive.read(SCHEMA)
    if _pieces(text) > _MORE_PIECES + 20 * text.count(b"__loader__"):
        raise ValueError("its schema is no tree of nodes")
    return json.loads(text)


def _pieces(text: bytes) -> int:
    """Return about how many lists, dictionaries and entries JSON has: each takes memory."""
    return sum(text.count(sign) for sign in (b"[", b"{", b","))


def check_arrays(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse arrays whose headers promise other sizes than there are bytes."""
    total = 0
    for part in archive.infolist():
        if part.filename.endswith(".npy"):
            with archive.open(part) as file:
                total += _bytes_of_array(file, part)
        elif part.filename.endswith(".npz"):
            with zipfile.ZipFile(io.BytesIO(archive.read(part))) as sparse:
                for inner in sparse.infolist():
                    if inner.filename.removesuffix(".npy") not in _SPARSE_PARTS:
                        raise ValueError(f"{part.filename} holds {inner.filename}")
                    with sparse.open(inner) as file:
                        total += _bytes_of_array(file, inner)
    if total > size + _MORE_THAN_FILE:
        raise ValueError(f"its arrays have {total:,} bytes, the file has {size:,}")


def _bytes_of_array(file: Any, part: zipfile.ZipInfo) -> int:
    """Return the bytes that an array in NumPy's format takes, by its header."""
    version = npy.read_magic(file)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, _, dtype = read_header(file)
    count = math.prod(shape)
    n_bytes = count * dtype.itemsize
    if dtype.hasobject or (count and not dtype.itemsize):
        raise ValueError(f"its part {part.filename} has type {dtype}")
    if any(length < 0 for length in shape) or file.tell() + n_bytes != part.file_size:
        raise ValueError(f"its part {part.filename} has another size than its shape {shape}")
    return n_bytes


def complete(content: bytes, facts: dict[str, Any]) -> bytes:
    """Return an archive of skops with facts, with nothing else compressed."""
    text = json.dumps(facts, indent=1, allow_nan=False).encode()
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new,
    ):
        for name in old.namelist():
            part = old.read(name)
            if name == SCHEMA:
                part = json.dumps(with_keys(json.loads(part))).encode()
            new.writestr(name, _unpacked(part) if name.endswith(".npz") else part)
        new.writestr(FACTS, text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _unpacked(content: bytes) -> bytes:
    """Return the archive of a sparse matrix with its arrays as they are."""
    buffer = io.BytesIO()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        np.savez(buffer, **arrays)
    return buffer.getvalue()
