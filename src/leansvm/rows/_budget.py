"""Byte budgets: how much memory there is, the rows of a tile, refusals before allocating."""

from __future__ import annotations

import os
from math import ceil, isqrt
from types import ModuleType
from typing import Any

from sklearn._config import config_context, get_config

from leansvm._accelerated import free_memory
from leansvm._array_api import foreign_namespace
from leansvm._parallel import blas_threads

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

# Part of the available memory that cache_size="auto" takes.
_AUTO_SHARE = 0.8
# Part of a budget for the tiles at work; matrices, and what rows keep, share the rest.
_TILE_SHARE = 0.25
# Rows: enough for BLAS-3 and few calls, and few r x r results to add up.
_SMALL_TILE, _LARGE_TILE = 1024, 4096
_DEVICE_SHARE = 4  # a tile and what is computed from it take this part of a device's free memory
LEAST_BUDGET = 2**22  # bytes that are always there for matrices and tiles
_CGROUP = "/sys/fs/cgroup"
# Limit, use and reclaimable cache of a control group: version 2, then version 1.
_GROUP_FILES = (
    ("", "memory.max", "memory.current", "inactive_file "),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
)


def available_memory() -> int:
    """Bytes this process may still allocate.

    That is the free memory, or less if a control group or a limit of the address space
    (``ulimit -v``) allows less.
    """
    kilobytes = _number_in("/proc/meminfo", "MemAvailable:")
    if kilobytes is not None:
        free = 1024 * kilobytes
    else:
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, ValueError, OSError):
            free = 4 * 2**30
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for controller, limit_file, use_file, cache_key in _GROUP_FILES:
        # inside a container the root is the container's own group
        groups = [f"{_CGROUP}/{controller}" if controller else _CGROUP]
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                for name in filter(None, path.split("/")):
                    groups.append(f"{groups[-1]}/{name}")
        for group in groups:
            limit = _number_in(f"{group}/{limit_file}")
            used = None if limit is None else _number_in(f"{group}/{use_file}")
            if limit is not None and used is not None and limit - used < free:
                # memory of cached files is freed for allocations
                cached = _number_in(f"{group}/memory.stat", cache_key) or 0
                free = min(free, max(limit - used + cached, 0))
    if resource is not None:
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            used = _number_in("/proc/self/status", "VmSize:") or 0
            free = min(free, max(int(most) - 1024 * used, 0))
    return free


def _number_in(path: str, key: str = "") -> int | None:
    """Return the number after ``key`` in a file of the system; None if there is none."""
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                if line.startswith(key):
                    return int(line[len(key) :].split()[0])
    except (OSError, ValueError):
        pass
    return None


def resolve_cache_size(cache_size: float | str, X: Any = None) -> int:
    """Turn ``cache_size`` ("auto" or megabytes) into bytes of memory where the rows ``X`` are."""
    if cache_size == "auto":
        free = None if foreign_namespace(X) is None else free_memory(X)
        return int(_AUTO_SHARE * (available_memory() if free is None else free))
    return int(float(cache_size) * 2**20)


def tiles_within(cache_size: float | str) -> Any:
    """Return a context in which tiles of rows take no more than their part of ``cache_size``.

    They follow scikit-learn's ``working_memory``, which is lowered to a quarter of a budget in
    megabytes; "auto" leaves it as it is.
    """
    if cache_size == "auto":
        return config_context()
    megabytes = _TILE_SHARE * max(resolve_cache_size(cache_size), LEAST_BUDGET) / 2**20
    return config_context(working_memory=min(get_config()["working_memory"], megabytes))


def host_tile_rows(n_rows: int, n_features: int, columns: int) -> int:
    """Rows of a tile on the host.

    Tiles are tall, because then fewer r x r sums have to be added. Every thread gets equally many,
    so they are no taller than that needs.
    """
    if n_rows <= 1:
        return 1
    threads = blas_threads()
    share = max(_SMALL_TILE, -(-n_rows // 8))
    tall = min(max(share, min(2 * columns, -(-n_rows // threads))), _LARGE_TILE)
    budget = get_config()["working_memory"] * 2**20
    within = budget // max(8 * (columns + n_features) * threads, 1)
    tall = min(tall, max(1, int(within)))
    rounds = -(-n_rows // (threads * tall))
    return tall if n_rows <= tall else -(-n_rows // (threads * rounds))


def tile_rows_for(row_bytes: int, X: Any = None) -> int:
    """Rows a tile may have so that one for every thread fits in scikit-learn's working memory.

    On a device with memory of its own: so that one fits in a part of what is free there.
    """
    free = None if X is None else free_memory(X)
    if free is not None:
        return max(1, int(free // _DEVICE_SHARE // max(row_bytes, 1)))
    budget = get_config()["working_memory"] * 2**20
    threads = blas_threads() if X is None or foreign_namespace(X) is None else 1
    return max(1, int(budget // max(threads * row_bytes, 1)))


def points_within(budget: int, matrices: int) -> int:
    """Return the most points r for which so many r x r matrices fit beside the tiles.

    Every thread needs one more such matrix.
    """
    room = int((1 - _TILE_SHARE) * max(budget, LEAST_BUDGET))
    return isqrt(room // (8 * (matrices + blas_threads())))


def check_points(points: int, budget: int, matrices: int) -> None:
    """Refuse a basis whose r x r matrices, beside the tiles, exceed the budget."""
    count, budget = matrices + blas_threads(), max(budget, LEAST_BUDGET)
    needed = int(8 * count * points**2 / (1 - _TILE_SHARE))
    if needed > budget:
        what = (
            f"A basis of {points:,} points (up to {count} matrices of that size, and tiles of rows)"
        )
        way_out = f"Use n_basis={points_within(budget, matrices)} or fewer, or raise cache_size."
        check_budget(needed, budget, what, way_out)


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


def check_budget(needed: int, budget: int, what: str, way_out: str, share: float = 1.0) -> None:
    """Raise MemoryError if ``needed`` exceeds ``budget``; say both numbers and what to do.

    ``share`` is the part of ``cache_size`` that the budget is: the numbers are those of all parts.
    """
    if needed > budget:
        needed, budget = ceil(needed / share), int(budget / share)
        raise MemoryError(
            f"{what} needs {format_bytes(needed)} ({needed:,} bytes), but cache_size allows "
            f"{format_bytes(budget)}. {way_out}"
        )
