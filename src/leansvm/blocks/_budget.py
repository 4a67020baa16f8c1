"""Byte budgets: how much memory there is, and a refusal with numbers before allocating."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from leansvm._accelerated import free_memory
from leansvm._array_api import foreign_namespace

# Part of the available memory that cache_size="auto" takes.
_AUTO_SHARE = 0.8
_CGROUP = "/sys/fs/cgroup"


def available_memory() -> int:
    """Bytes this process may still allocate: free memory, or what its control group leaves."""
    kilobytes = _number_in("/proc/meminfo", "MemAvailable:")
    free = _physical_memory() // 2 if kilobytes is None else 1024 * kilobytes
    limit, used = _number_in(f"{_CGROUP}/memory.max"), _number_in(f"{_CGROUP}/memory.current")
    if limit is not None and used is not None:
        # cached files give way to allocations
        cached = _number_in(f"{_CGROUP}/memory.stat", "inactive_file ") or 0
        free = min(free, max(limit - used + cached, 0))
    return free


def _number_in(path: str, key: str = "") -> int | None:
    """Return the number behind ``key`` in a file of the system; None where there is none."""
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return int(line[len(key) :].split()[0])
    except (OSError, ValueError):
        pass
    return None


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def resolve_cache_size(cache_size: float | str, X: Any = None) -> int:
    """Turn ``cache_size`` ("auto" or megabytes) into bytes of memory where the rows ``X`` are."""
    if cache_size == "auto":
        free = None if foreign_namespace(X) is None else free_memory(X)
        return int(_AUTO_SHARE * (available_memory() if free is None else free))
    return int(float(cache_size) * 2**20)


def format_bytes(n_bytes: float) -> str:
    """Write a number of bytes for people.

    >>> format_bytes(320e9)
    '320.0 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < (1000 if unit == "bytes" else 999.95):
            return f"{n_bytes:.0f} bytes" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def check_budget(needed: int, budget: int, what: str, way_out: str) -> None:
    """Raise MemoryError with both numbers and a way out when ``needed`` exceeds ``budget``."""
    if needed > budget:
        raise MemoryError(
            f"{what} needs {format_bytes(needed)} ({needed:,} bytes), but cache_size allows "
            f"{format_bytes(budget)}. {way_out}"
        )
