"""Fetch a file over HTTP with pooch, which asks again where another attempt may help.

This module adds: a transfer goes on where the last one stopped; the checksum is that of the
unpacked content; and a file above the allowed size, as sent or unpacked, is not kept. Nothing is
unpacked beyond that size.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leansvm._extras import needs
from leansvm._version import __version__
from leansvm.datasets._lzw import unpack_lzw

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if known

CHUNK = 2**14
MOST_BYTES = 2**29
_MOST_RATIO, _SMALL = 100, 2**20  # text packs to about a tenth; small files may pack better
_OPEN: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open}


class DownloadError(OSError):
    """A file could not be fetched, or is not what it should be; the message says what to do."""


def fetch(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    max_bytes: int = MOST_BYTES,
    progress: Progress | None = None,
) -> bytes:
    """Return the unpacked content of a file, which is fetched unless it is at `path` already.

    Parameters
    ----------
    url : str
        Where to fetch it.
    path : Path
        Where to keep it; while it is incomplete, under this name with ``.partial`` added.
    sha256 : str or None
        Of the unpacked content.
    attempts : int
        How often to try; each continues where the last one stopped if the server can.
    timeout : float
        Seconds without an answer after which an attempt has failed.
    max_bytes : int
        Size that the file may have at most, as it is sent and unpacked.
    progress : callable or None
        Called with the bytes so far and in all.
    """
    try:
        import pooch
        from requests.exceptions import RequestException
    except ImportError as error:
        raise ImportError(needs("a download", "pooch", "cli")) from error
    if path.is_file():
        with suppress(ValueError):  # then it is removed, and fetched again
            return _unpacked(path, url, sha256, max_bytes)
    pooch.get_logger().setLevel("WARNING")  # or it would print every step
    transfer = _Transfer(url, path, timeout, sha256, max_bytes, progress)
    known = {"registry": {path.name: None}, "urls": {path.name: url}}
    files = pooch.create(path.parent, "", **known, retry_if_failed=attempts - 1)
    try:
        files.fetch(path.name, downloader=transfer)
        return transfer.content
    except RequestException as error:
        problem = f"no connection ({error})" if error.response is None else _answer(error.response)
    except ValueError as error:
        problem = str(error)
    raise DownloadError(f"{url} could not be fetched in {attempts} attempts: {problem}")


def _answer(response: Any) -> str:
    return f"the server answered {response.status_code} {response.reason}"


@dataclass
class _Transfer:
    """How pooch gets a file, and what it writes to: this does not grow beyond its limit."""

    url: str
    path: Path
    timeout: float
    sha256: str | None
    max_bytes: int
    progress: Progress | None
    have: int = 0
    total: int | None = None
    content: bytes = b""

    def __post_init__(self) -> None:
        self.partial = self.path.with_name(f"{self.path.name}.partial")

    def __call__(self, url: str, output_file: str, caller: Any) -> None:
        """Fetch what is missing and check it; pooch gives the file its name."""
        from pooch import HTTPDownloader

        self.have = self.partial.stat().st_size if self.partial.is_file() else 0
        headers = {"User-Agent": f"leansvm/{__version__}", "Accept-Encoding": "identity"}
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
        options = {"timeout": self.timeout, "headers": headers, "hooks": {"response": self.begin}}
        HTTPDownloader(chunk_size=CHUNK, **options)(url, self, caller)
        self.content = _unpacked(self.partial, url, self.sha256, self.max_bytes)
        self.partial.replace(output_file)

    def begin(self, response: Any, **_: Any) -> None:
        """Read the server's answer, before anything is sent."""
        code = response.status_code
        if code in (200, 416):  # it sends the file from its beginning, or has nothing after ours
            self.partial.unlink(missing_ok=True)
            self.have = 0
        elif 400 <= code < 500 and code not in (408, 429):
            raise DownloadError(f"{self.url} could not be fetched: {_answer(response)}")
        length = response.headers.get("Content-Length")
        self.total = self.have + int(length) if length else None

    def write(self, chunk: bytes) -> None:
        """Add to the partial file."""
        self.have += len(chunk)
        if max(self.have, self.total or 0) > self.max_bytes:
            self.partial.unlink(missing_ok=True)
            words = f"has more than {self.max_bytes:,} bytes; nothing of it was kept"
            raise DownloadError(f"{self.url} {words}")
        with self.partial.open("ab") as file:
            file.write(chunk)
        if self.progress is not None:
            self.progress(self.have, self.total)

    def flush(self) -> None:
        """Every chunk is written at once."""


def _unpacked(path: Path, url: str, sha256: str | None, max_bytes: int) -> bytes:
    """Return what is in a file; one that is damaged (ValueError) or too large is removed."""
    try:
        content = _unpack(path, Path(url).suffix, max_bytes)
        found = hashlib.sha256(content).hexdigest()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        path.unlink(missing_ok=True)
        if isinstance(error, DownloadError):
            raise DownloadError(f"{url} {error}; nothing of it was kept") from None
        raise ValueError(f"the file is damaged ({error})") from error
    if sha256 not in (None, found):
        path.unlink()
        raise ValueError(f"its checksum is {found}, not {sha256}")
    return content


def _unpack(path: Path, suffix: str, most: int) -> bytes:
    """Return the unpacked content of a file, unless that is too large."""
    if suffix in _OPEN or suffix == ".Z":
        most = min(most, _MOST_RATIO * path.stat().st_size + _SMALL)
    if suffix == ".Z":
        content = unpack_lzw(path.read_bytes(), most + 1)
    else:
        with _OPEN.get(suffix, open)(path, "rb") as file:
            content = file.read(most + 1)
    if len(content) > most:
        raise DownloadError(f"unpacks to more than {most:,} bytes")
    return bytes(content)
