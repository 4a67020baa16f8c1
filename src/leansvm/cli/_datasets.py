"""``leansvm datasets``: what the catalogue has, what is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leansvm.cli._output import Json, Output, guarded, table

app = typer.Typer(no_args_is_help=True, help="List and download the data sets of the papers.")

DataHome = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets; default: $LEANSVM_DATA, then the per-user cache.",
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
    Output(as_json=as_json).finish(result, table(header, rows), where)
