"""Which encoding a text file has: UTF-8, UTF-16 or UTF-32 by its first bytes, else Windows-1252.

Windows-1252 holds Latin-1's letters and the euro sign: it is what spreadsheets in western Europe
write. It is used only if the file cannot be UTF-8 at all.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from leansvm.cli._output import CommandError

_MARKS = (  # the longer ones first: the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTAINERS = {
    b"PK\x03\x04": "an Excel workbook or another zip archive; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"PAR1": "a Parquet file; give it the ending .parquet, or use --format parquet",
    b"%PDF": "a PDF document",
}
WINDOWS = "cp1252"
NAMES = {"utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32"}
NAMES |= {WINDOWS: "Windows-1252 text", "latin-1": "Latin-1 text"}
_CHUNK = 2**22


def find_encoding(path: Path) -> str:
    """Return the name of the codec that reads the whole file; refuse what is not text."""
    head = _head(path)
    for start, what in _CONTAINERS.items():
        if head.startswith(start):
            raise CommandError(f"{path}: this is {what}")
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            _check(path, encoding)
            return encoding
    if b"\x00" in head:
        encoding = _utf16_without_mark(path, head)
        _check(path, encoding)
        return encoding
    wrong = _first_wrong(path, "utf-8")
    if wrong is None:
        return "utf-8"
    line, byte, other_letters = wrong
    if other_letters:  # the lines before can hardly be UTF-8 by chance
        raise CommandError(
            f"{path}, line {line}: the byte 0x{byte:02X} is not UTF-8, but other letters of the "
            f"file are; save the file again as UTF-8"
        )
    return WINDOWS if _first_wrong(path, WINDOWS) is None else "latin-1"


def _head(path: Path) -> bytes:
    with _open(path) as stream:
        return bytes(stream.read(4096))


def _open(path: Path):  # type: ignore[no-untyped-def]
    """Open a file for reading bytes, unpacked if its name ends in .gz or .bz2."""
    import pyarrow as pa

    return pa.input_stream(str(path), compression="detect")


def _utf16_without_mark(path: Path, head: bytes) -> str:
    """Return the order of bytes: in text of western languages every other byte is zero."""
    zeros_first, zeros_second = head[0::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if zeros_second > 0.6 * half and zeros_first < 0.1 * half:
        return "utf-16-le"
    if zeros_first > 0.6 * half and zeros_second < 0.1 * half:
        return "utf-16-be"
    line = head[: head.index(0)].count(b"\n") + 1
    raise CommandError(f"{path}, line {line}: a zero byte; this is not a text file")


def _check(path: Path, encoding: str) -> None:
    wrong = _first_wrong(path, encoding)
    if wrong is not None:
        raise CommandError(
            f"{path}, line {wrong[0]}: the file begins as {encoding.upper()}, but this line is not"
        )


def _first_wrong(path: Path, encoding: str) -> tuple[int, int, bool] | None:
    """Return line and value of the first byte that cannot be read; None if all can.

    The third value says whether letters beyond ASCII came before it.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    lines, letters = 1, False
    with _open(path) as stream:
        while True:
            chunk = bytes(stream.read(_CHUNK))
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                # a chunk may begin with the rest of a letter, which the decoder kept
                good = error.object[: error.start].decode(encoding, "ignore")
                line = lines + good.count("\n")
                return line, error.object[error.start], letters or not good.isascii()
            lines += text.count("\n")
            letters = letters or not text.isascii()
            if not chunk:
                return None


def open_text(path: Path, encoding: str):  # type: ignore[no-untyped-def]
    """Open a file, packed or not, as text with its line ends as they are."""
    import io

    return io.TextIOWrapper(io.BufferedReader(_open(path)), encoding, newline="")
