"""What repeats the five papers and is not needed to use the library.

One module per paper measures the rows of its tables and draws its figures; the published numbers
are in ``published/``; the methods that the papers compare against are in ``baselines/``.
"""

from leansvm.papers._published import PAPERS
from leansvm.papers._report import write_report
from leansvm.papers._runner import Observer, reproduce

__all__ = ["PAPERS", "Observer", "reproduce", "write_report"]
