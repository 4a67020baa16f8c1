"""``leansvm datasets``: what the catalogue has and what is here; fetch the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leansvm.cli._output import CommandError, Json, Printer, Quiet, UsageError, guarded, table

app = typer.Typer(no_args_is_help=True, help="List and download the data sets of the papers.")

DataHome = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets. Default: $LEANSVM_DATA, then the per-user cache.",
        show_default=False,
    ),
]


@app.command("list")
@guarded
def list_(data_home: DataHome = None, as_json: Json = False) -> None:
    """List the data sets of the papers and where they are on this machine."""
    from leansvm.datasets import available
    from leansvm.datasets._catalogue import CATALOGUE
    from leansvm.datasets._files import search_folders

    here = available(data_home=data_home)
    names = sorted({*CATALOGUE, *here})
    entries = {name: CATALOGUE.get(name) for name in names}
    result = {
        name: {
            "shape": entry.shape if entry else None,
            "papers": entry.papers if entry else None,
            "file": here.get(name),
        }
        for name, entry in entries.items()
    }
    rows = [
        [name, one["shape"] or "", one["papers"] or "your own", "yes" if one["file"] else "no"]
        for name, one in result.items()
    ]
    header = ["name", "rows (train / test) x features", "papers", "here"]
    folders = ", ".join(str(folder) for folder in search_folders(data_home))
    where = f"looked in {folders}"
    Printer(as_json=as_json).finish(result, table(header, rows), where)


@app.command()
@guarded
def download(
    names: Annotated[
        list[str],
        typer.Argument(help="Names of data sets (see datasets list), or all.", show_default=False),
    ],
    data_home: Annotated[
        Path | None,
        typer.Option(help="Folder to store the files in. Default: the per-user cache."),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(help="Download MIRROR/FILE instead of the original source."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Download again what is already there.")
    ] = False,
    verify: Annotated[
        bool, typer.Option(help="Check the data against known checksums or sizes.")
    ] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Download data sets from their original public sources."""
    from leansvm.datasets import DownloadError, find
    from leansvm.datasets import download as fetch
    from leansvm.datasets import names as known
    from leansvm.datasets._catalogue import check_name

    output = Printer(quiet, as_json)
    wanted = known() if names == ["all"] else names
    for name in wanted:
        try:
            check_name(name)
        except ValueError as error:
            raise UsageError(str(error)) from error
    here: dict[str, Path] = {}
    failed: dict[str, str] = {}
    for name in wanted:
        if not force and (path := find(name, data_home=data_home)) is not None:
            here[name] = path
            output.say(f"{name}: already here, {path}")
            continue
        try:
            with output.progress() as bars:
                task = bars.add_task(name, total=None)
                here[name] = fetch(
                    name,
                    data_home=data_home,
                    mirror=mirror,
                    verify=verify,
                    progress=lambda done, total, bars=bars, task=task: bars.update(  # type: ignore[misc]
                        task, completed=done, total=total
                    ),
                )
            output.say(f"{name}: stored as {here[name]}")
        except DownloadError as error:
            failed[name] = str(error)
    output.finish({"here": here, "failed": failed})
    if failed:
        raise CommandError("\n".join(failed.values()))
