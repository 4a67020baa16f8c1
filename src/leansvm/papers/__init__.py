"""The experiments of the five papers; nobody needs them to use the library.

One module per paper measures the rows of its tables and draws its figures. The published numbers
are in ``published/``. The methods with which the papers compare are in ``baselines/``.
"""

from leansvm.papers._compare import Comparison, compare
from leansvm.papers._published import PAPERS
from leansvm.papers._report import write_report
from leansvm.papers._runner import Observer, reproduce, row_names

__all__ = [
    "PAPERS",
    "Comparison",
    "Observer",
    "compare",
    "reproduce",
    "row_names",
    "write_report",
]
