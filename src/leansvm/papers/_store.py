"""results.json: what has been measured so far, one entry per row, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leansvm._atomic import write_atomically

FORMAT = 1


class Store:
    """Results in a folder.

    Every change writes the whole file beside the old one and renames it, so that an interruption
    or a full disk leaves the old file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.json"
        self.content: dict[str, Any] = {"format": FORMAT, "machine": {}, "rows": {}, "figures": {}}
        if self.path.exists():
            self.content = self._read()
        folder.mkdir(parents=True, exist_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r} is not {FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path} is not a results file of this version ({error}); "
                "choose another folder or remove it."
            ) from error
        return dict(content)

    @property
    def rows(self) -> dict[str, Any]:
        """Entries by row."""
        return dict(self.content["rows"])

    @property
    def figures(self) -> dict[str, Any]:
        """Entries by figure."""
        return dict(self.content["figures"])

    def put(self, section: str, name: str, entry: Mapping[str, Any]) -> None:
        """Add one entry; entries that another run wrote meanwhile are kept."""
        if self.path.exists():
            self.content = self._read() | {"machine": self.content["machine"]}
        self.content[section][name] = dict(entry)
        write_atomically(self.path, _text(self.content).encode())


def _text(content: Mapping[str, Any]) -> str:
    """Return the file's text: one line per entry, so that differences between runs can be read."""

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = [f' "format": {content["format"]}', f' "machine": {dump(content["machine"])}']
    for section in ("rows", "figures"):
        lines = ",\n".join(f"  {dump(k)}: {dump(v)}" for k, v in content[section].items())
        parts.append(f' "{section}": {{\n{lines}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
