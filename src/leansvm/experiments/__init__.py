"""The five papers' tables and figures, worked out again: one module per paper."""

from leansvm.experiments._published import PAPERS
from leansvm.experiments._report import write_report
from leansvm.experiments._runner import Observer, reproduce

__all__ = ["PAPERS", "Observer", "reproduce", "write_report"]
