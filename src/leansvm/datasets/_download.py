"""Fetch a file over HTTP: retries, resumes where it stopped, and checks what it got."""

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

from leansvm._version import __version__
from leansvm.datasets._lzw import unpack_lzw

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known

CHUNK = 2**16
_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.decompress,
    ".gz": gzip.decompress,
    ".Z": unpack_lzw,
}


class DownloadError(OSError):
    """A file could not be fetched, or is not what it should be; the message says what to do."""


class _Transient(Exception):
    """A failure that another attempt may not have."""


def fetch(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    delay: float = 1.0,
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
    progress : callable or None
        Called with the bytes so far and in all.
    """
    problem = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(delay * 2 ** (attempt - 1))
        try:
            if not path.is_file():
                _fetch_once(url, path, timeout, progress)
            return _checked(path, url, sha256)
        except _Transient as error:
            problem = str(error)
    raise DownloadError(f"{url} could not be fetched in {attempts} attempts: {problem}")


def _fetch_once(url: str, path: Path, timeout: float, progress: Progress | None) -> None:
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
                    file.write(chunk)
                    have += len(chunk)
                    if progress is not None:
                        progress(have, total)
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


def _checked(path: Path, url: str, sha256: str | None) -> bytes:
    """Unpack a file and compare its checksum; a wrong one is removed, to be fetched again."""
    content = path.read_bytes()
    unpack = _UNPACK.get(Path(url).suffix)
    try:
        unpacked = content if unpack is None else unpack(content)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        path.unlink()
        raise _Transient(f"the file is damaged ({error})") from error
    found = hashlib.sha256(unpacked).hexdigest()
    if sha256 is not None and found != sha256:
        path.unlink()
        raise _Transient(f"its checksum is {found}, not {sha256}")
    return unpacked
