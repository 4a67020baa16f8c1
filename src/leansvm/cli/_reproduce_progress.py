"""The bar of ``leansvm reproduce``, in a module of its own: it loads the papers' experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leansvm.papers import Observer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from leansvm.cli._output import Printer
    from leansvm.papers._runner import Job


class RowProgress(Observer):
    """A bar over all rows, and a line for each that is left out or fails.

    Every run counts all rows that it was asked for, also those that an earlier run finished.
    """

    def __init__(self, output: Printer, bars: Progress) -> None:
        self._output, self._bars = output, bars
        self._task: TaskID | None = None
        self._waiting: list[str] = []  # rows that share the last status and reason
        self._last = ("", "")
        self.counts: Counter[str] = Counter()
        self.kept = 0
        self.missing: list[str] = []  # data sets that are not on this machine

    def start(self, n_jobs: int, n_kept: int) -> None:
        self._task = self._bars.add_task("", total=n_jobs, completed=n_kept)
        self.counts["done"] = self.kept = n_kept
        if n_kept:
            self._output.say(
                f"{n_kept} of {n_jobs} rows are there already, with at least as many trials"
            )

    def begin(self, job: Job) -> None:
        if self._task is not None:
            self._bars.update(self._task, description=job.id)

    def end(self, job: Job, entry: Mapping[str, Any]) -> None:
        if self._task is not None:
            self._bars.advance(self._task)
        status = str(entry["status"])
        self.counts["done" if status == "kept" else status] += 1
        self.kept += status == "kept"
        if entry.get("needs") and entry["needs"] not in self.missing:
            self.missing.append(entry["needs"])
        if self._last != (status, entry.get("reason", "")):
            self._flush()
        if status != "done":
            self._last = (status, entry["reason"])
            self._waiting.append(job.id)

    def _flush(self) -> None:
        """Say why rows have no new result; rows with the same reason share a line."""
        if self._waiting:
            status, reason = self._last
            more = f" and the next {len(self._waiting) - 1}" if len(self._waiting) > 1 else ""
            self._output.say(f"{status}: {self._waiting[0]}{more}: {reason}")
        self._waiting = []

    def words(self) -> str:
        """Return what was done: "38 of 40 rows and figures done (12 of them before), ..."."""
        self._flush()
        kept = f" ({self.kept} of them before)" if self.kept else ""
        done = f"{self.counts['done']} of {self.counts.total()} rows and figures done{kept}"
        others = [f"{self.counts[n]} {n}" for n in ("skipped", "failed") if self.counts[n]]
        return ", ".join([done, *others])
