"""``leansvm reproduce``: compute the papers' tables again and write the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leansvm.cli._output import INTERRUPTED, CommandError, Json, Printer, Quiet, guarded
from leansvm.papers import PAPERS, Observer, reproduce, write_report

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from leansvm.papers._runner import Job


class _Progress(Observer):
    """A bar over all rows, and a line for each that is left out or fails."""

    def __init__(self, output: Printer, bars: Progress) -> None:
        self._output, self._bars = output, bars
        self._task: TaskID | None = None
        self._last_reason = ""
        self.counts: Counter[str] = Counter()

    def start(self, n_jobs: int, n_kept: int) -> None:
        self._task = self._bars.add_task("", total=n_jobs, completed=n_kept)
        self.counts["kept from before"] = n_kept
        if n_kept:
            self._output.say(f"{n_kept} of {n_jobs} rows are there already")

    def begin(self, job: Job) -> None:
        if self._task is not None:
            self._bars.update(self._task, description=job.id)

    def end(self, job: Job, entry: Mapping[str, Any]) -> None:
        if self._task is not None:
            self._bars.advance(self._task)
        status = str(entry["status"])
        self.counts[status] += 1
        if status == "done":
            self._last_reason = ""
        elif entry["reason"] != self._last_reason:  # rows with the same reason share a line
            self._last_reason = entry["reason"]
            self._output.say(f"{status}: {job.id}: {entry['reason']}")


@guarded
def command(
    papers: Annotated[
        list[str], typer.Argument(help=f"Any of {', '.join(PAPERS)}; or all.", show_default=False)
    ],
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only this table or figure, such as table-1; may be given again."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few trials, without what takes long: five minutes.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Trials of what is random.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of results.json and report.html.")] = Path(
        "reproduction"
    ),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what is there already.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reproduce the papers' tables and figures, row by row, and write an HTML report.

    Every finished row is stored at once: stop with Ctrl-C and run the same command again to
    continue. Rows whose data are not on this machine are left out and named.
    """
    names = list(PAPERS) if "all" in papers else list(dict.fromkeys(papers))
    output = Printer(quiet, as_json)
    try:
        with output.progress() as bars:
            progress = _Progress(output, bars)
            reproduce(
                names,
                tables=table,
                quick=quick,
                seeds=seeds,
                out=out,
                fresh=fresh,
                observer=progress,
            )
    except ValueError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        report = write_report(out)
        done = sum(progress.counts.values())
        output.say(
            f"interrupted: {done} rows are in {out / 'results.json'} and {report}; "
            "run the same command again to go on"
        )
        raise typer.Exit(INTERRUPTED) from None
    report = write_report(out)
    counts = dict(progress.counts)
    text = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    output.finish({"rows": counts, "report": report}, f"{text}; report: {report}")
    if counts.get("failed"):
        raise typer.Exit(1)
