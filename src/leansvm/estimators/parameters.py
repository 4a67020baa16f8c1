"""Parameters of estimators: stored, checked and described in one place.

A constructor has a signature and nothing else (`stored`). The rules for a parameter and its
description, like those of fitted attributes, are in the class that uses it, once. `complete` gives
an estimator those of its base classes, so that `help` and the API pages show all of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any


def stored(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor set every parameter as an attribute, as scikit-learn asks for."""
    signature = inspect.signature(init)

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        vars(self).update(list(bound.arguments.items())[1:])

    return __init__


def complete(cls: Any, bases: list[type]) -> None:
    """Add what the bases of an estimator, the nearest first, say of its parameters.

    These are rules and, in the ``_shared_sections`` of the docstring, descriptions: parameters in
    the order of the constructor, with its defaults where a base class does not name them;
    attributes of the class itself come first.
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
        entries: dict[str, str] = {}  # an entry of several names is there by each of them
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
