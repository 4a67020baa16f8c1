"""``leansvm reproduce``: compute the papers' tables again and write the report."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from leansvm.cli._output import (
    INTERRUPTED,
    CommandError,
    Json,
    Printer,
    Quiet,
    UsageError,
    guarded,
)

# as in `leansvm.papers.PAPERS`, which takes long to load
_PAPERS = "fang2019, peng2016, zhou2013, zhou2016, joshi"
_MOST_LINES = 30  # of the result: one for each row


@guarded
def command(
    papers: Annotated[
        list[str] | None,
        typer.Argument(help=f"One or more of {_PAPERS}, or all.", show_default=False),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only this table or figure, such as table-1. Can be repeated."),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this row, such as 'RLSSVM, 4-point toy', or all rows whose name contains "
            "this text; --list prints the names. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Fewer trials, and no rows that take long. All papers then take five minutes.",
        ),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of random trials. Default: depends on the experiment.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results.json and report.html.")] = Path(
        "reproduction"
    ),
    names_only: Annotated[
        bool, typer.Option("--list", help="Print the names of the rows and run nothing.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure finished rows again.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compute the papers' tables and figures again and write an HTML report.

    Up to 30 rows are printed beside the paper's numbers. Of more rows, the
    command prints only how many reached these. Every finished row is
    stored at once. To continue after Ctrl-C, run the same command again. A row
    is never replaced by one with fewer trials. Rows
    without data on this machine are skipped; the last lines say how to
    download the data. The exit code is 1 only if no row could be run.
    """
    from leansvm.cli._reproduce_progress import RowProgress
    from leansvm.papers import PAPERS, reproduce, row_names, write_report
    from leansvm.papers._compare import listing

    if not papers and not names_only:
        raise UsageError(f"name one or more papers, or all; the papers are {_PAPERS}")
    papers = papers or ["all"]
    names = list(PAPERS) if "all" in papers else list(dict.fromkeys(papers))
    output = Printer(quiet, as_json)
    try:
        if names_only:
            listed = row_names(names, tables=table, rows=row)
            output.finish({"rows": listed}, "\n".join(listing(names, table, row)))
            return
        with output.progress() as bars:
            progress = RowProgress(output, bars)
            reproduce(
                names,
                tables=table,
                rows=row,
                quick=quick,
                seeds=seeds,
                out=out,
                fresh=fresh,
                observer=progress,
                command=shlex.join(["leansvm", *sys.argv[1:]]),
            )
    except ValueError as error:  # an unknown paper, table or row
        raise UsageError(str(error)) from error
    except KeyboardInterrupt:
        report = write_report(out)
        output.say(
            f"interrupted after {progress.words()}; they are in {out / 'results.json'} and "
            f"{report}; run the same command again to continue"
        )
        raise typer.Exit(INTERRUPTED) from None
    report = write_report(out)
    missing = progress.missing
    facts = {"rows": dict(progress.counts), "kept": progress.kept, "missing data": missing}
    compared, lines = _compared(names, table, row, out)
    text = "\n".join([*lines, f"{progress.words()}; report: {report}"])
    output.finish({**facts, "compared": compared, "report": report}, text)
    note = ""
    if missing:
        note = (
            f"data sets that are not on this machine: {', '.join(missing)}; get them with: "
            f"leansvm datasets download {' '.join(missing)}"
        )
    if not progress.counts["done"]:
        raise CommandError(note or "no row could be run")
    if note:
        output.say(f"note: {note}")


def _compared(
    names: list[str], tables: list[str] | None, rows: list[str] | None, out: Path
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows beside the published ones: as facts, and as lines for people."""
    from leansvm.papers import compare

    found = compare(names, tables=tables, rows=rows, out=out)
    if len(found) <= _MOST_LINES:  # why others were not run is said before
        lines = [str(one) for one in found if one.measured]
    else:
        verdicts = Counter(one.verdict for one in found)
        trials = sorted({one.trials for one in found if one.trials}) or [0]
        lines = ["; ".join(f"{name}: {n} rows" for name, n in verdicts.items())]
        lines[0] += f"; trials of each row: {trials[0]} to {trials[-1]}"
    return [asdict(one) for one in found], lines
