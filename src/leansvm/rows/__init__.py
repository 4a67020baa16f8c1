"""RowBlocks: where the rows are, and map / sum over them.

Solvers and selectors are written once against `RowBlocks`; the implementations differ only in
where a block of rows lives (memory, memory map, device; files and clusters plug in here).
"""

from leansvm.rows._blocks import (
    Block,
    MemoryBlocks,
    RowBlocks,
    class_numbers,
    column_per_class,
    declare,
    few_values,
    one_vs_rest,
)
from leansvm.rows._budget import (
    LEAST_BUDGET,
    available_memory,
    check_budget,
    check_points,
    format_bytes,
    points_within,
    resolve_cache_size,
    tile_rows_for,
    tiles_within,
)
from leansvm.rows._dask import Partitions
from leansvm.rows._draw import (
    DrawnRows,
    StandsFor,
    draw_by_weight,
    draw_for_all,
    positive_rows,
    total_weight,
    weights_of_drawn,
)
from leansvm.rows._files import Dataset, open_dataset
from leansvm.rows._order import (
    MergedRows,
    WeightedSample,
    merge_equal_rows,
    order_of,
    points_among,
    row_hashes,
    row_weights,
    rows_alike,
    sample_weights,
)
from leansvm.rows._sources import is_dask, source_of
from leansvm.rows._stream import RowSource
from leansvm.rows._targets import Targets

__all__ = [
    "LEAST_BUDGET",
    "Block",
    "Dataset",
    "DrawnRows",
    "MemoryBlocks",
    "MergedRows",
    "Partitions",
    "RowBlocks",
    "RowSource",
    "StandsFor",
    "Targets",
    "WeightedSample",
    "available_memory",
    "check_budget",
    "check_points",
    "class_numbers",
    "column_per_class",
    "declare",
    "draw_by_weight",
    "draw_for_all",
    "few_values",
    "format_bytes",
    "is_dask",
    "merge_equal_rows",
    "one_vs_rest",
    "open_dataset",
    "order_of",
    "points_among",
    "points_within",
    "positive_rows",
    "resolve_cache_size",
    "row_hashes",
    "row_weights",
    "rows_alike",
    "sample_weights",
    "source_of",
    "tile_rows_for",
    "tiles_within",
    "total_weight",
    "weights_of_drawn",
]
