"""Words of the messages about files."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from leansvm.cli._output import UsageError


def check_column(path: Path, name: str, names: Sequence[str]) -> None:
    """Refuse the name of a column that does not exist; suggest the most similar name."""
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UsageError(f"{path}: no column '{name}'; {hint}the file has {quoted(names)}")


def quoted(names: Sequence[str], most: int = 20) -> str:
    """Return names in quotes, only the first of them if there are many."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def several(number: int, one: str, more: str) -> str:
    """Return a number with its noun.

    >>> several(1, "category", "categories"), several(1200, "number", "numbers")
    ('1 category', '1,200 numbers')
    """
    return f"{number:,} {one if number == 1 else more}"
