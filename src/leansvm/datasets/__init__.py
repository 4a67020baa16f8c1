"""Data sets of the papers: files on this machine, downloads, and generators of synthetic data."""

from leansvm.datasets._catalogue import names
from leansvm.datasets._customers import make_customers
from leansvm.datasets._download import DownloadError
from leansvm.datasets._files import DatasetNotFoundError, available, cache_folder, find, load
from leansvm.datasets._generators import (
    checkerboard_blocks,
    checkerboard_rows,
    make_checkerboard,
    make_four_points,
    make_linear_toy,
    make_ripley,
)
from leansvm.datasets._set import LabelledData
from leansvm.datasets._sources import download

__all__ = [
    "DatasetNotFoundError",
    "DownloadError",
    "LabelledData",
    "available",
    "cache_folder",
    "checkerboard_blocks",
    "checkerboard_rows",
    "download",
    "find",
    "load",
    "make_checkerboard",
    "make_customers",
    "make_four_points",
    "make_linear_toy",
    "make_ripley",
    "names",
]
