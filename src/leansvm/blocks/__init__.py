"""RowBlocks: where the rows are, and map / sum over them.

Solvers and selectors are written once against `RowBlocks`; the implementations differ only in
where a block of rows lives (memory, memory map, device; files and clusters plug in here).
"""

from leansvm.blocks._base import Block, RowBlocks
from leansvm.blocks._budget import available_memory, check_budget, format_bytes, resolve_cache_size
from leansvm.blocks._memory import MemoryBlocks
from leansvm.blocks._merge import MergedRows, canonical_order, merge_equal_rows

__all__ = [
    "Block",
    "MemoryBlocks",
    "MergedRows",
    "RowBlocks",
    "available_memory",
    "canonical_order",
    "check_budget",
    "format_bytes",
    "merge_equal_rows",
    "resolve_cache_size",
]
