"""The documentation and the rules of an estimator's parameters, from its base classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def complete(cls: Any, bases: list[type]) -> None:
    """Add the rules and descriptions of the base classes to an estimator's, nearest class first.

    Parameters are in the order of the constructor, with its defaults if the description names none.
    Attributes of the class itself come first.
    """
    names = dict(inspect.signature(cls.__init__).parameters)
    names.pop("self")
    rules: dict[str, Any] = {}
    for base in (*reversed(bases), cls):
        rules |= vars(base).get("_parameter_constraints", {})
    cls._parameter_constraints = {name: rules[name] for name in names if name in rules}
    summary, own = _sections(cls)
    found = {}
    for section in cls._shared_sections:
        entries: dict[str, str] = {}  # an entry for several names is stored under each
        for base in (cls, *bases):
            for entry in re.split(r"^(?=\S)", _sections(base)[1].get(section, ""), flags=re.M):
                for name in entry.partition("\n")[0].partition(" : ")[0].split(", "):
                    entries.setdefault(name, entry.rstrip())
        entries.pop("", None)
        if section == "Parameters":
            entries = {n: _with_default(entries[n], names[n]) for n in names if n in entries}
        found[section] = "\n".join(dict.fromkeys(entries.values())) + "\n\n"
    for section, body in (found | {name: own[name] for name in own if name not in found}).items():
        summary += f"{section}\n{'-' * len(section)}\n{body}"
    cls.__doc__ = summary.rstrip() + "\n"


def _sections(cls: type) -> tuple[str, dict[str, str]]:
    """Return the part of a docstring before its sections, and the sections by name."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "") + "\n\n"
    summary, *rest = re.split(r"^(\w[\w ]*)\n-+\n", text, flags=re.M)
    return summary, dict(zip(rest[::2], rest[1::2], strict=True))


def _with_default(entry: str, parameter: inspect.Parameter) -> str:
    head, line, text = entry.partition("\n")
    if "default=" in head or " : " not in head or parameter.default is parameter.empty:
        return entry
    shown = f'"{parameter.default}"' if isinstance(parameter.default, str) else parameter.default
    return f"{head}, default={shown}{line}{text}"


def similar(given: Iterable[str], known: Iterable[str]) -> str:
    """Return the known name that a wrong one is probably meant to be, as the end of an error."""
    known = [*known]
    close = [
        match for name in given for match in get_close_matches(name, known, 1) if name != match
    ]
    return f"; did you mean {close[0]!r}?" if close else ""
