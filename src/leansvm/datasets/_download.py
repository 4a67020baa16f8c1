"""Fetch a file over HTTP: retries, resumes where it stopped, and checks what it got.

A file that is larger than it may be, as sent or unpacked, is not kept; nothing is unpacked beyond
that size.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import http.client
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leansvm._version import __version__
from leansvm.datasets._lzw import unpack_lzw

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known

CHUNK = 2**16
MOST_BYTES = 2**29
_MOST_RATIO, _SMALL = 100, 2**20  # text packs to a tenth; small files may be much of the same
_OPEN: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open}


class DownloadError(OSError):
    """A file could not be fetched, or is not what it should be; the message says what to do."""


class _Transient(Exception):
    """A failure that another attempt may not have."""


class _TooLarge(Exception):
    """A file is larger than it may be."""


def fetch(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    delay: float = 1.0,
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
    delay : float
        Seconds before the second attempt; doubled before each further one.
    max_bytes : int
        Size that the file may have at most, as it is sent and unpacked.
    progress : callable or None
        Called with the bytes so far and in all.
    """
    problem = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(delay * 2 ** (attempt - 1))
        try:
            if not path.is_file():
                _fetch_once(url, path, timeout, max_bytes, progress)
            return _checked(path, url, sha256, max_bytes)
        except _Transient as error:
            problem = str(error)
        except _TooLarge as error:
            raise DownloadError(f"{url} {error}; nothing of it was kept") from None
    raise DownloadError(f"{url} could not be fetched in {attempts} attempts: {problem}")


def _fetch_once(
    url: str, path: Path, timeout: float, max_bytes: int, progress: Progress | None
) -> None:
    """Add to the partial file; rename it when it is complete."""
    partial = path.with_name(path.name + ".partial")
    have = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": f"leansvm/{__version__}"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if response.status != 206:  # the server sends the file from its beginning
                have = 0
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            with partial.open("ab" if have else "wb") as file:
                while chunk := response.read(CHUNK):
                    have += len(chunk)
                    if max(have, total or 0) > max_bytes:
                        raise _TooLarge(f"has more than {max_bytes:,} bytes")
                    file.write(chunk)
                    if progress is not None:
                        progress(have, total)
    except _TooLarge:
        partial.unlink()
        raise
    except urllib.error.HTTPError as error:
        if error.code == 416:  # there is nothing after what we have, or it is another file
            partial.unlink(missing_ok=True)
        if error.code in (408, 416, 429) or error.code >= 500:
            raise _Transient(f"the server answered {error.code} {error.reason}") from error
        raise DownloadError(
            f"{url} could not be fetched: the server answered {error.code} {error.reason}"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise _Transient(f"no connection ({reason})") from error
    except TimeoutError as error:
        raise _Transient(f"no answer within {timeout:g} s") from error
    if total is not None and have < total:
        raise _Transient(f"the connection ended after {have:,} of {total:,} bytes")
    partial.replace(path)


def _checked(path: Path, url: str, sha256: str | None, max_bytes: int) -> bytes:
    """Unpack a file and compare its checksum; a wrong one is removed, to be fetched again."""
    try:
        unpacked = _unpack(path, Path(url).suffix, max_bytes)
    except _TooLarge:
        path.unlink()
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        path.unlink()
        raise _Transient(f"the file is damaged ({error})") from error
    found = hashlib.sha256(unpacked).hexdigest()
    if sha256 is not None and found != sha256:
        path.unlink()
        raise _Transient(f"its checksum is {found}, not {sha256}")
    return unpacked


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
        raise _TooLarge(f"unpacks to more than {most:,} bytes")
    return bytes(content)
