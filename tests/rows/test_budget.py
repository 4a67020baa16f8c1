"""Budgets: what memory there is, and a refusal that says what is needed and what to do."""

from __future__ import annotations

import io

import numpy as np
import pytest
from sklearn import config_context, get_config

from leansvm._parallel import blas_threads
from leansvm.rows import _budget as budget
from leansvm.rows import (
    available_memory,
    check_budget,
    check_points,
    format_bytes,
    points_within,
    resolve_cache_size,
    tiles_within,
)

MEMINFO = """MemTotal:       16000000 kB
MemFree:          100000 kB
MemAvailable:    8000000 kB
Buffers:           10000 kB
"""


@pytest.fixture
def files(monkeypatch):
    """Replace the system's files by the entries of a dictionary; others do not exist."""
    contents = {}

    def open_(path, **options):
        if path not in contents:
            raise FileNotFoundError(path)
        return io.StringIO(contents[path])

    monkeypatch.setattr(budget, "open", open_, raising=False)
    return contents


def test_free_memory_of_the_machine(files):
    files["/proc/meminfo"] = MEMINFO
    assert available_memory() == 8_000_000 * 1024


def test_a_control_group_allows_less(files):
    files["/proc/meminfo"] = MEMINFO
    files["/sys/fs/cgroup/memory.max"] = "3000000000\n"
    files["/sys/fs/cgroup/memory.current"] = "1000000000\n"
    assert available_memory() == 2_000_000_000


def test_a_control_group_that_allows_more_does_not_matter(files):
    files["/proc/meminfo"] = MEMINFO
    files["/sys/fs/cgroup/memory.max"] = f"{10**15}\n"
    files["/sys/fs/cgroup/memory.current"] = "1000000000\n"
    assert available_memory() == 8_000_000 * 1024


def test_a_control_group_without_a_limit(files):
    files["/proc/meminfo"] = MEMINFO
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    files["/sys/fs/cgroup/memory.current"] = "1000000000\n"
    assert available_memory() == 8_000_000 * 1024


def test_a_full_control_group_leaves_nothing(files):
    files["/proc/meminfo"] = MEMINFO
    files["/sys/fs/cgroup/memory.max"] = "1000000000\n"
    files["/sys/fs/cgroup/memory.current"] = "1000004096\n"
    assert available_memory() == 0


def test_cached_files_in_a_control_group_can_be_reclaimed(files):
    # memory.current counts the page cache: after reading a large file it is close to the limit
    files["/proc/meminfo"] = MEMINFO
    files["/sys/fs/cgroup/memory.max"] = "3000000000\n"
    files["/sys/fs/cgroup/memory.current"] = "2900000000\n"
    files["/sys/fs/cgroup/memory.stat"] = (
        "anon 400000000\nfile 2500000000\nactive_file 0\ninactive_file 2500000000\n"
    )
    assert available_memory() == 2_600_000_000


@pytest.mark.parametrize("meminfo", [None, "MemTotal: 16000000 kB\n"])
def test_no_meminfo(files, monkeypatch, meminfo):
    if meminfo is not None:
        files["/proc/meminfo"] = meminfo
    pages = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(budget.os, "sysconf", pages.__getitem__)
    assert available_memory() == 1000 * 4096 // 2

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(budget.os, "sysconf", unknown)
    assert available_memory() == 4 * 2**30
    monkeypatch.delattr(budget.os, "sysconf")
    assert available_memory() == 4 * 2**30


def test_this_machine():
    memory = available_memory()
    assert isinstance(memory, int)
    assert 0 < memory < 2**50


def test_cache_size(files):
    files["/proc/meminfo"] = MEMINFO
    assert resolve_cache_size(1) == 2**20
    assert resolve_cache_size(0.5) == 2**19
    assert resolve_cache_size(np.int64(200)) == 200 * 2**20
    automatic = resolve_cache_size("auto")
    assert isinstance(automatic, int)
    # some is left to others, most is used
    assert 0.5 * available_memory() < automatic < available_memory()


@pytest.mark.parametrize(
    "n_bytes, text",
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (320e9, "320.0 GB"),
        (1e12, "1.0 TB"),
        (5e15, "5000.0 TB"),
        (999_999, "1.0 MB"),
    ],
)
def test_bytes_for_people(n_bytes, text):
    assert format_bytes(n_bytes) == text


def test_within_the_budget():
    check_budget(100, 100, "The matrix", "Do something else.")


def test_over_the_budget():
    with pytest.raises(MemoryError) as caught:
        check_budget(320_000_000_000, 16_000_000_000, "The matrix", "Take SparseLSSVC.")
    message = str(caught.value)
    assert message.startswith("The matrix needs 320.0 GB")
    assert "320,000,000,000 bytes" in message
    assert "16.0 GB" in message
    assert "cache_size" in message
    assert message.endswith("Take SparseLSSVC.")


def test_one_byte_over_the_budget():
    with pytest.raises(MemoryError, match=r"101 bytes.*100 bytes"):
        check_budget(101, 100, "The matrix", "Do something else.")


# ---------------------------------------------------------------------------- other limits


def test_a_control_group_of_version_1_allows_less(files):
    files["/proc/meminfo"] = MEMINFO
    files["/proc/self/cgroup"] = "5:cpu,cpuacct:/job\n4:memory:/job/step\n"
    files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n"
    files["/sys/fs/cgroup/memory/memory.usage_in_bytes"] = "5000000000\n"
    files["/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes"] = "3000000000\n"
    files["/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes"] = "2000000000\n"
    files["/sys/fs/cgroup/memory/job/step/memory.stat"] = "total_inactive_file 500000000\n"
    assert available_memory() == 1_500_000_000


@pytest.mark.parametrize("group", ["user.slice", "user.slice/job.scope"])
def test_a_control_group_inside_others_is_bound_by_each_of_them(files, group):
    files["/proc/meminfo"] = MEMINFO
    files["/proc/self/cgroup"] = "0::/user.slice/job.scope\n"
    files[f"/sys/fs/cgroup/{group}/memory.max"] = "700000000\n"
    files[f"/sys/fs/cgroup/{group}/memory.current"] = "100000000\n"
    assert available_memory() == 600_000_000


def test_a_limit_of_the_address_space_allows_less(files, monkeypatch):
    files["/proc/meminfo"] = MEMINFO
    files["/proc/self/status"] = "Name:\tpython\nVmSize:\t 1000000 kB\nVmRSS:\t 100000 kB\n"
    monkeypatch.setattr(budget.resource, "getrlimit", lambda which: (3_000_000_000, -1))
    assert available_memory() == 3_000_000_000 - 1_024_000_000
    monkeypatch.setattr(budget.resource, "getrlimit", lambda which: (1_000_000_000, -1))
    assert available_memory() == 0
    monkeypatch.setattr(budget, "resource", None)
    assert available_memory() == 8_000_000 * 1024


# ---------------------------------------------------------------------------- shares


def test_tiles_take_a_quarter_of_the_budget():
    with tiles_within(100.0):
        assert get_config()["working_memory"] == 25.0
        with config_context(working_memory=3), tiles_within(100.0):
            assert get_config()["working_memory"] == 3
    with tiles_within(1e-3):  # never less than a megabyte
        assert get_config()["working_memory"] == 1.0


def test_points_that_fit_are_not_refused():
    most = points_within(100 * 2**20, 8)
    taken = 8 * (8 + blas_threads()) * most**2
    assert 0.7 * 100 * 2**20 < taken <= 0.75 * 100 * 2**20
    check_points(most, 100 * 2**20, 8)
    with pytest.raises(MemoryError, match=rf"n_basis={most} or fewer"):
        check_points(most + 1, 100 * 2**20, 8)
