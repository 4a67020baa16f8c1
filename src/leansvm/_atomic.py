"""Files that are there completely or not at all.

The content goes to a new file in the same folder, which takes the place of the old one by a
rename. Its name cannot be guessed and must not exist, so that two processes, two threads or a
planted link do not get in each other's way.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# a new file only, never through a link; the last two exist on some systems only
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NEW |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file completely or not at all; a device is written directly."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` if the block ends without an error.

    It keeps the permissions of the file it replaces. Errors of the system carry the name ``path``.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        descriptor = os.open(partial, _NEW, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if mode is not None:
                os.chmod(partial, mode)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        error.filename = str(path)  # the name that the user gave
        del error.filename2  # None would be part of the message
        raise
    finally:
        partial.unlink(missing_ok=True)
    # write the new name to the disk; Windows opens no folders, some file systems do not sync them
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
