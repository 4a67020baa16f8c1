"""What commands print: results on stdout, everything else on stderr, errors with an exit code.

Exit codes: 0 done, 1 the command failed (message on stderr), 2 wrong options or arguments, 130
interrupted.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leansvm.cli._wait import still_running

if TYPE_CHECKING:
    from rich.progress import Progress

FAILED, USAGE, INTERRUPTED = 1, 2, 130

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON to stdout.")]


class CommandError(Exception):
    """A message to print instead of a traceback; the command ends with its exit code."""

    code = FAILED


class UsageError(CommandError):
    """An option or an argument is wrong: another command line would work."""

    code = USAGE


Parameters = ParamSpec("Parameters")


def guarded(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Wrap a command: its errors become one line on stderr and an exit code."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CommandError as error:
            _fail(str(error), error.code)
        except KeyboardInterrupt:
            _interrupted()
        except ImportError as error:  # Ctrl-C while a compiled module is loaded arrives as this
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            _interrupted()
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of stdout has ended, as in `| head`
                raise
            _fail(file_problem(error), FAILED)

    return run


def _interrupted() -> None:
    """Print "interrupted" and end at once: a running computation would keep Python alive."""
    try:
        _fail("interrupted", INTERRUPTED)
    finally:
        if still_running():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)


def _fail(message: str, code: int) -> None:
    stderr = Console(stderr=True, highlight=False, soft_wrap=True)
    stderr.print(f"[bold red]error:[/] {escape(printable(message))}")
    raise typer.Exit(code)


def file_problem(error: OSError) -> str:
    """Return the name of the file and what happened to it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.filename or 'writing'}: no space left on the device"
    if error.filename is None or error.strerror is None:
        return str(error)
    if error.errno == errno.ENOENT:
        return f"{error.filename}: there is no such file"
    return f"{error.filename}: {error.strerror}"


class Printer:
    """Prints for people, as JSON, or not at all.

    Parameters
    ----------
    quiet : bool
        Print neither progress nor results.
    as_json : bool
        Print results as one JSON object on stdout and no progress.
    """

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json
        self.result = Console(highlight=False, soft_wrap=True)
        self.progress_console = Console(stderr=True, quiet=quiet or as_json, highlight=False)

    def say(self, text: str) -> None:
        """Print a line of progress on stderr."""
        self.progress_console.print(printable(text), markup=False, soft_wrap=True)

    @contextmanager
    def notes(self) -> Iterator[None]:
        """Print the warnings of a block as notes, each once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.say(f"note: {text}")

    def finish(self, result: dict[str, Any], *text: str | Table) -> None:
        """Print the result: as JSON, or the text and tables given for people."""
        if self.as_json:
            typer.echo(json.dumps(result, indent=1, default=_plain, allow_nan=False))
        elif not self.quiet:
            for item in text:
                shown = printable(item) if isinstance(item, str) else item
                self.result.print(shown, markup=False)

    def data(self, text: str) -> None:
        """Print data on stdout: unchanged to files and pipes, without control codes elsewhere."""
        # not typer.echo, which removes escape codes if the output is not a terminal
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show bars on stderr while the block runs; nothing if stderr is not a terminal."""
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
        )
        console = self.progress_console
        with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
            yield bars


def table(header: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Table:
    """Return a table for the terminal; numbers are right-aligned."""
    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    grid.show_header = any(header)
    for j, name in enumerate(header):
        numeric = all(isinstance(row[j], (int, float)) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_text(value) for value in row))
    return grid


def _text(value: object) -> str:
    return readable(value) if isinstance(value, float) else printable(str(value), keep="")


def readable(value: float, digits: int = 4) -> str:
    """Return a number as people write it.

    >>> readable(41540.3), readable(0.25), readable(-1234567.8), readable(3.14159)
    ('41,540', '0.25', '-1,234,568', '3.142')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    if size >= 15 or size < -4:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{max(0, digits - 1 - size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Return text whose control characters are written out: a file cannot steer the terminal.

    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def _plain(value: Any) -> Any:
    """Turn NumPy values and paths into what JSON has."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
