"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from leansvm._version import __version__
from leansvm.cli import _datasets, _reproduce
from leansvm.cli._export import export
from leansvm.cli._predict import info, predict
from leansvm.cli._train import train
from leansvm.cli._tune import tune

app = typer.Typer(
    name="leansvm",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train kernel machines (SVMs) on tables, predict with them and export them.\n\n"
    "Start with: leansvm train data.csv --target COLUMN -o model.skops",
)
for command in (train, tune, predict, info, export):
    app.command()(command)
app.add_typer(_datasets.app, name="datasets")
app.command("reproduce")(_reproduce.command)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
