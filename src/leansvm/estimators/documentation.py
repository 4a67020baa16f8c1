"""Parameters and attributes are described once, in the class that uses them.

The docstring of an estimator has what is its own. Its base classes describe the rest: `described`
puts all together, so that `help` and the API pages show every parameter and every attribute.
"""

from __future__ import annotations

import inspect
import re


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of the constructor in their order, without ``self``."""
    found = dict(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
    found.pop("self")
    return found


def described(cls: type, bases: list[type], names: tuple[str, ...]) -> str:
    """Return the docstring of a class with what its bases, the nearest first, say beside it.

    Sections of these names are completed. Parameters are in the order of the constructor, and get
    its defaults where a base class does not name them. Attributes of the class itself come first.
    """
    summary, own = _sections(cls)
    known, found = parameters(cls), {}
    for section in names:
        entries: dict[str, str] = {}  # an entry of several names is there by each of them
        for base in (cls, *bases):
            for entry in re.split(r"^(?=\S)", _sections(base)[1].get(section, ""), flags=re.M):
                for name in entry.partition("\n")[0].partition(" : ")[0].split(", "):
                    entries.setdefault(name, entry.rstrip())
        entries.pop("", None)
        if section == "Parameters":
            there = {n: _with_default(entries[n], known[n]) for n in known if n in entries}
            entries = there
        found[section] = "\n".join(dict.fromkeys(entries.values())) + "\n\n"
    for section, body in (found | {name: own[name] for name in own if name not in found}).items():
        summary += f"{section}\n{'-' * len(section)}\n{body}"
    return summary.rstrip() + "\n"


def _sections(cls: type) -> tuple[str, dict[str, str]]:
    """Return what a docstring has before its sections, and their texts by name."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "") + "\n\n"
    summary, *rest = re.split(r"^(\w[\w ]*)\n-+\n", text, flags=re.M)
    return summary, dict(zip(rest[::2], rest[1::2], strict=True))


def _with_default(entry: str, parameter: inspect.Parameter) -> str:
    head, line, text = entry.partition("\n")
    if "default=" in head or " : " not in head or parameter.default is parameter.empty:
        return entry
    shown = f'"{parameter.default}"' if isinstance(parameter.default, str) else parameter.default
    return f"{head}, default={shown}{line}{text}"
