"""Loops compiled by numba, kept on disk for the next process where a folder can be written.

numba keeps what it compiled in the package's folder or in the user's cache. Where it can write to
neither, as in a hardened container, it refuses to compile at all: then every process compiles for
itself. Imported by the modules with loops alone, since numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function on its first call, outside Python's lock.

    Parameters
    ----------
    **options
        Passed to numba's ``njit``.
    """

    def compile_later(function: Any) -> Any:
        try:
            return njit(cache=True, nogil=True, **options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            return njit(nogil=True, **options)(function)

    return compile_later
