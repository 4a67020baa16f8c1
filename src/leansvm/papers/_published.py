"""What the papers printed, read from ``published/<paper>.json``.

A table is a list of rows; a row has a key (method, data set, ...) and printed figures by metric.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

#: Short names of the papers, in the order in which they are run.
PAPERS = ("fang2019", "peng2016", "zhou2013", "zhou2016", "joshi")


@dataclass(frozen=True)
class Printed:
    """A printed figure; `std` is None if the paper gives none."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Row:
    """One row of a table: what identifies it and what the paper prints."""

    paper: str
    table: str
    key: Mapping[str, Any]
    published: Mapping[str, Printed]
    settings: Mapping[str, Any] = field(repr=False)  # of the whole table
    notes: tuple[str, ...] = ()
    source: str | None = None  # set if the paper quotes somebody else's result
    definition: Mapping[str, str] | None = None
    beside: bool = False  # not in the paper: what this library offers instead

    @property
    def method(self) -> str:
        """Name of the method in the paper."""
        return str(self.key.get("method", ""))

    @property
    def dataset(self) -> str:
        """Name of the data set in the paper."""
        return str(self.key.get("dataset", ""))

    @property
    def name(self) -> str:
        """The key in one line; unique within the table."""
        return ", ".join(
            str(v) if k in ("method", "dataset") else f"{k} {v:g}" if _number(v) else f"{k} {v}"
            for k, v in self.key.items()
        )

    @property
    def id(self) -> str:
        """Unique among all rows of all papers."""
        return f"{self.paper}/{self.table}/{self.name}"


@dataclass(frozen=True)
class Table:
    """A table, or a figure whose numbers the paper prints."""

    paper: str
    name: str
    kind: str
    caption: str
    settings: Mapping[str, Any]
    tolerance: Mapping[str, Any] | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Figure:
    """A figure that shows curves or surfaces."""

    paper: str
    name: str
    shows: str
    axes: str
    expected: str

    @property
    def id(self) -> str:
        """Unique among all papers."""
        return f"{self.paper}/{self.name}"


@dataclass(frozen=True)
class Paper:
    """A paper: tables, figures and where it contradicts itself."""

    name: str
    title: str
    authors: tuple[str, ...]
    year: int | None
    published: str
    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    contradictions: tuple[str, ...]


@cache
def paper(name: str) -> Paper:
    """Return the published numbers of a paper."""
    text = files(__package__).joinpath("published", f"{name}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    return Paper(
        name,
        content["title"],
        tuple(content["authors"]),
        content["year"],
        content["published"],
        {table: _table(name, table, value) for table, value in content["tables"].items()},
        {figure: Figure(name, figure, **value) for figure, value in content["figures"].items()},
        tuple(content["contradictions"]),
    )


@cache
def explanations() -> tuple[Mapping[str, Any], ...]:
    """Return why rows differ: entries with `paper`, `table`, `match` and `text`."""
    text = files(__package__).joinpath("explanations.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))


def explain(row: Row) -> str | None:
    """Return what is known about a row that falls short, None when nothing is."""
    for entry in explanations():
        here = entry["paper"] == row.paper and row.table in entry["tables"]
        if here and all(_matches(row.key.get(k), wanted) for k, wanted in entry["match"].items()):
            return str(entry["text"])
    return None


def _matches(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _table(paper_name: str, name: str, content: Mapping[str, Any]) -> Table:
    settings = content["settings"]
    rows = tuple(
        Row(
            paper_name,
            name,
            row["key"],
            {metric: Printed(*value) for metric, value in row["published"].items()},
            settings,
            tuple(row.get("notes", ())),
            row.get("source"),
            row.get("definition"),
            row.get("beside", False),
        )
        for row in content["rows"]
    )
    kind, caption = content["kind"], content["caption"]
    return Table(paper_name, name, kind, caption, settings, content.get("tolerance"), rows)


def _number(value: Any) -> bool:
    return isinstance(value, int | float)
