"""Facts about the machine that a reader needs to judge a timing; nothing that names it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy  # noqa: F401  (threadpoolctl reports the libraries that are loaded)
import scipy.linalg  # noqa: F401
from threadpoolctl import threadpool_info

# Read on import: later the benchmarks themselves are the load.
LOAD_AT_START = os.getloadavg()[0]

PACKAGES = ("leansvm", "numpy", "scipy", "scikit-learn", "numba", "threadpoolctl")


def machine_facts() -> dict[str, Any]:
    """Return processor, memory, load, BLAS and package versions."""
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_gib": round(_meminfo("MemTotal") / 2**30, 1),
        "load_average_at_start": round(LOAD_AT_START, 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "thread_pools": [_pool_facts(pool) for pool in threadpool_info()],
    }


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_bytes() -> int:
    """Return the memory that can be taken without swapping; 0 when the system does not say."""
    return _meminfo("MemAvailable")


def package_version(name: str) -> str:
    """Return the installed version of a distribution, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _pool_facts(pool: dict[str, Any]) -> dict[str, Any]:
    wanted = ("internal_api", "version", "num_threads", "threading_layer", "architecture")
    return {key: pool[key] for key in wanted if pool.get(key) is not None}


def _cpu_model() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _meminfo(key: str) -> int:
    for line in _lines("/proc/meminfo"):
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    return 0


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []
