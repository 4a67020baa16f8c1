"""``leansvm reproduce``: compute the papers' tables again and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leansvm.cli._output import INTERRUPTED, CommandError, Json, Printer, Quiet, guarded

# as in `leansvm.papers.PAPERS`, which takes long to load
_PAPERS = "fang2019, peng2016, zhou2013, zhou2016, joshi"


@guarded
def command(
    papers: Annotated[
        list[str], typer.Argument(help=f"Any of {_PAPERS}; or all.", show_default=False)
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
    from leansvm.cli._reproduce_progress import RowProgress
    from leansvm.papers import PAPERS, reproduce, write_report

    names = list(PAPERS) if "all" in papers else list(dict.fromkeys(papers))
    output = Printer(quiet, as_json)
    try:
        with output.progress() as bars:
            progress = RowProgress(output, bars)
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
