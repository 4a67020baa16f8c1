"""Small files that ask for much memory: states, and sparse matrices inside of models."""

import bz2
import io
import json
import lzma
import os
import struct
import warnings
import zipfile
from functools import cache

import numpy as np

import leansvm
from tests.hostile.craft import BIG, File, bomb, case, header, header_of, npy, patched, write_zip

STATE_FACTS = "state.json"


class Parts:
    """The parts of an archive, to be written again with one of them changed."""

    def __init__(self, content: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            self.parts = {name: archive.read(name) for name in archive.namelist()}


@cache
def zeros(how: str) -> bytes:
    """`BIG` bytes of zeros, as a part of an archive packs them."""
    if how == "lzma":
        options = {"id": lzma.FILTER_LZMA1, "preset": 0}
        packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[options])
        properties = lzma._encode_filter_properties(options)
        start = struct.pack("<BBH", 9, 4, len(properties)) + properties
    else:
        packer, start = bz2.BZ2Compressor(1), b""
    packed = b"".join(packer.compress(bytes(2**22)) for _ in range(BIG >> 22))
    return start + packed + packer.flush()


def with_bomb(parts: Parts, name: str, how: str, declared: int) -> bytes:
    """Return the archive with zeros in the place of a part, packed in some way."""
    if how == "deflate":
        return bomb(parts, name, declared)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part, content in (parts.parts | {name: zeros(how)}).items():
            archive.writestr(part, content)
    number = {"bzip2": 12, "lzma": 14}[how]
    content = patched(buffer.getvalue(), name, 8, 10, number.to_bytes(2, "little"))
    return patched(content, name, 22, 24, declared.to_bytes(4, "little"))


# ---------------------------------------------------------------------------- states


@cache
def state() -> bytes:
    """A state as it is saved."""
    import tempfile
    from pathlib import Path

    rows = np.random.default_rng(0).normal(size=(40, 3))
    model = leansvm.SparseLSSVR(C=1.0, gamma=0.5, basis=rows[:15]).fit(rows, rows[:, 0])
    with tempfile.TemporaryDirectory() as folder:
        model.state().save(Path(folder) / "state")
        return (Path(folder) / "state").read_bytes()


def state_with(name: str, part: str, content) -> None:
    """A state of which one part is another."""

    @case(f"state-{name}")
    def _(models, path):
        changed = content() if callable(content) else content
        write_zip(path, Parts(state()).parts | {part: changed})


for how in ("bzip2", "lzma", "deflate"):
    for part in ("L.npy", STATE_FACTS):
        for declared in (BIG, 500):

            @case(f"state-bomb-{how}-{part}-declares-{declared}")
            def _(models, path, how=how, part=part, declared=declared):
                path.write_bytes(with_bomb(Parts(state()), part, how, declared))


for how in (9, 93, 95):  # Deflate64, Zstandard, xz

    @case(f"state-packed-by-method-{how}")
    def _(models, path, how=how):
        path.write_bytes(patched(state(), "L.npy", 8, 10, how.to_bytes(2, "little")))


@case("state-part-of-4-GB")
def _(models, path):
    size = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(patched(state(), "shift.npy", 18, 20, size * 2))


@case("state-part-twice")
def _(models, path):
    path.write_bytes(state())
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("L.npy", npy(np.zeros((15, 15))))


@case("state-many-parts")
def _(models, path):
    write_zip(path, Parts(state()).parts | {f"{i}.npy": b"" for i in range(20_000)})


if hasattr(os, "mkfifo"):
    case("state-pipe")(lambda models, path: os.mkfifo(path))

for name, content in {
    "header-of-3-GB": b"\x93NUMPY\2\0" + struct.pack("<I", 3 * 2**30) + b" " * 1000,
    "header-long": header("{" + " " * 60_000 + "}"),
    "header-deep": header("(" * 5000 + "\n"),
    "header-of-signs": header("-" * 9000 + "1\n"),
    "shape-too-large": header_of("(1000000000, 1000000000)"),
    "shape-negative": header_of("(-1, -8)"),
    "shape-of-zeros": header_of("(0, 1000000000000)", pad=False),
    "no-bytes-per-item": header_of("(10000000000,)", "'<U0'", pad=False),
    "items-too-large": header_of("(1,)", "'|V2147483647'"),
    "items-of-items": header_of("(1,)", "('<f8', (100000, 100000))"),
    "objects": header_of("(8,)", "'|O'"),
}.items():
    state_with(f"array-{name}", "L.npy", content)

for dtype in ("float16", "float32", "longdouble", "complex128", "int64"):
    for part in ("gram", "shift"):

        def converted(part=part, dtype=dtype):
            array = np.load(io.BytesIO(Parts(state()).parts[f"{part}.npy"]))
            return npy(array.astype(dtype))

        state_with(f"{part}-of-{dtype}", f"{part}.npy", converted)

state_with("indices-of-bytes", "selected.npy", npy(np.zeros(10**6, np.int8)))
state_with("facts-deep", STATE_FACTS, b"[" * 60_000)
state_with("facts-long", STATE_FACTS, b" " * 10**6)
for name, value in {"outputs": 10**18, "rows": -1, "digits": 10**4000}.items():
    field = "n_outputs" if name == "outputs" else "n_rows" if name == "rows" else "count"
    state_with(
        f"facts-{name}",
        STATE_FACTS,
        lambda field=field, value=value: json.dumps(
            json.loads(Parts(state()).parts[STATE_FACTS]) | {field: value}
        ).encode(),
    )

# ---------------------------------------------------------------------------- sparse matrices


def sparse_with(name: str, change, how: int = zipfile.ZIP_STORED) -> None:
    """A model whose sparse matrix is changed; ``change`` gets its archive and returns another."""

    @case(f"bomb-sparse-{name}")
    def _(models, path):
        file = File(models["csr"])
        part = file.attributes()["support_vectors_"]["file"]
        file.parts[part] = change(file.parts[part])
        file.write(path, how)


def one_part(content: bytes, name: str, other: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for part, inside in (Parts(content).parts | {name: other}).items():
            archive.writestr(part, inside)
    return buffer.getvalue()


def many_entries(content: bytes) -> bytes:
    """Name a part 400,000 times in the list at the end of the archive."""
    start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    entry = content[start : start + 46 + content[start + 28] + content[start + 30]]
    entries = entry * 400_000
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(entries), start, 0)
    assert end > start
    return content[:start] + entries + last


for how in ("bzip2", "lzma", "deflate"):
    for declared in (BIG, 500):
        sparse_with(
            f"{how}-declares-{declared}",
            lambda c, how=how, declared=declared: with_bomb(Parts(c), "data.npy", how, declared),
        )
LONG_HEADER = b"\x93NUMPY\2\0" + struct.pack("<I", 3 * 2**30)
for name, how in {"stored": zipfile.ZIP_STORED, "packed": zipfile.ZIP_DEFLATED}.items():
    sparse_with(
        f"header-of-3-GB-{name}",
        lambda c, how=how: one_part(c, "data.npy", LONG_HEADER + bytes(2**24), how),
        zipfile.ZIP_DEFLATED,
    )
sparse_with(
    "shape-of-millions",
    lambda c: one_part(c, "shape.npy", npy(np.full(2**23, 1000, np.int16))),
    zipfile.ZIP_DEFLATED,
)
sparse_with("many-entries", many_entries, zipfile.ZIP_DEFLATED)
