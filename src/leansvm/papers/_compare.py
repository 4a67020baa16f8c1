"""Measured rows beside the published ones: for Python and for the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leansvm.papers._published import PAPERS, paper
from leansvm.papers._runner import check_names, row_names
from leansvm.papers._store import Store
from leansvm.papers._verdict import Verdict, judge, metric, shown

_MOST_IN_LINE = 3  # metrics that the line of a row names


@dataclass(frozen=True)
class Comparison:
    """A row of a table: what the paper prints, what was measured, and the verdict.

    ``str()`` gives one line of text.

    Attributes
    ----------
    id : str
        Paper, table and name of the row.
    verdict : str
        As in the report: "reached", "within tolerance", "short", "better by more than 2 points",
        "settings", "measured", "quoted", "beside", "not run" or "failed".
    note : str
        What is known about the difference, or why the row was not run; often empty.
    published, measured : dict
        For each metric its mean and standard deviation (None if there is none).
    called : str or None
        The estimator of the first trial, with its parameters.
    trials : int
        Number of trials; 0 if the row was not run.
    """

    id: str
    verdict: str
    note: str
    published: Mapping[str, tuple[float, float | None]]
    measured: Mapping[str, tuple[float, float | None]]
    called: str | None
    trials: int

    def __str__(self) -> str:
        """Return the verdict, the name, and the metrics that decide."""
        both = [name for name in self.published if name in self.measured]
        names = [name for name in both if metric(name).better or metric(name).exact is not None]
        names = names or both
        parts = [self._pair(name) for name in names[:_MOST_IN_LINE]]
        if len(names) > _MOST_IN_LINE:
            parts.append(f"{len(names) - _MOST_IN_LINE} more numbers in the report")
        if parts:
            parts.append(f"{self.trials} trial{'s' if self.trials > 1 else ''}")
        if self.note and (not parts or self.verdict in (Verdict.SHORT, Verdict.BETTER)):
            parts.append(self.note)
        return "; ".join([f"{self.verdict}: {self.id}", *parts])

    def _pair(self, name: str) -> str:
        how, point = metric(name), name.partition("[")[2].rstrip("]")
        unit = f" {how.unit}" if how.unit else ""
        label = f"{how.label} {point}".rstrip()
        measured, published = (
            " ".join(filter(None, shown(how, *found[name])))
            for found in (self.measured, self.published)
        )
        return f"{label} = {measured}{unit} (paper: {published}{unit})"


def compare(
    papers: Sequence[str] = PAPERS,
    *,
    tables: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    out: str | os.PathLike[str] = "reproduction",
) -> list[Comparison]:
    """Compare the rows that `reproduce` has measured with the published ones.

    Parameters
    ----------
    papers, tables, rows
        Which rows, as in `reproduce`.
    out : path, default="reproduction"
        Folder of the results.

    Returns
    -------
    list of Comparison
        One for each of these rows that `reproduce` has tried.
    """
    check_names(papers, tables)
    stored = Store(Path(out)).rows
    wanted = set(row_names(papers, tables=tables, rows=rows))
    return [one for one in _comparisons(papers, stored) if one.id in wanted]


def listing(
    papers: Sequence[str], tables: Sequence[str] | None, rows: Sequence[str] | None
) -> list[str]:
    """Return the names of rows below a line with the title of each table, then the figures."""
    wanted, lines = row_names(papers, tables=tables, rows=rows), []
    for name in papers:
        for table in paper(name).tables.values():
            start = f"{name}/{table.name}/"
            found = [one for one in wanted if one.startswith(start)]
            lines += [f"# {start[:-1]}: {table.caption}", *found] if found else []
        for figure in paper(name).figures.values():
            if rows is None and (tables is None or figure.name in tables):
                lines.append(f"# {figure.id} (run it with --table {figure.name}): {figure.shows}")
    return lines


def _comparisons(papers: Sequence[str], stored: Mapping[str, Any]) -> Iterator[Comparison]:
    for name in papers:
        for table in paper(name).tables.values():
            for row in table.rows:
                entry = stored.get(row.id)
                if entry is None:
                    continue
                found = judge(row, table, entry)
                published = {m: (one.mean, one.std) for m, one in row.published.items()}
                measured = {
                    m: (one["mean"], one["std"] if one["n"] > 1 else None)
                    for m, one in entry.get("metrics", {}).items()
                }
                yield Comparison(
                    row.id,
                    str(found.verdict),
                    found.text or "; ".join(row.notes),
                    published,
                    measured,
                    entry.get("called"),
                    max((one["n"] for one in entry.get("metrics", {}).values()), default=0),
                )
