"""Loops compiled by numba, kept on disk for the next process if a folder is writable.

Compiled loops run outside of Python's lock. numba keeps what it compiled in the package's folder or
in the user's cache. If it can write to neither, as in a hardened container, it refuses to compile
with a cache; then every process compiles for itself. numba takes half a second to load, so
modules with loops are imported at their first use, and a process with little to do may do without
(`uncompiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

compiles: ContextVar[bool] = ContextVar("compiles", default=True)  # False inside `uncompiled`


@contextmanager
def uncompiled(wanted: bool = True) -> Iterator[None]:
    """Let kernels that can do without compiled loops do so: slower, equal up to rounding."""
    before = compiles.set(not wanted)
    try:
        yield
    finally:
        compiles.reset(before)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function, by ``njit`` with options, on its first call."""
    from numba import njit

    def compile_later(function: Any) -> Any:
        try:
            return njit(cache=True, nogil=True, **options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            return njit(nogil=True, **options)(function)

    return compile_later
