"""The report: one HTML page from results.json and the published numbers, no network needed.

What stands on the page is collected here; how it looks is in ``report.html.j2``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leansvm._atomic import write_atomically
from leansvm.papers import _charts
from leansvm.papers._experiment import Chart, Experiment, experiments_of
from leansvm.papers._published import PAPERS, Figure, Paper, Printed, Row, Table, paper
from leansvm.papers._store import Store
from leansvm.papers._verdict import Judgement, Verdict, agrees, judge, metric, shown
from leansvm.plotting import html

# Rows of one of these can be shown alone.
_CHOICES = (
    Verdict.BETTER,
    Verdict.REACHED,
    Verdict.WITHIN,
    Verdict.SHORT,
    Verdict.SETTINGS,
    Verdict.MEASURED,
    Verdict.QUOTED,
    Verdict.NOT_RUN,
)

# Counts of a paper in the Markdown table.
_SHOWN = (str(Verdict.BETTER), "reached", "within tolerance", "short", "settings", "times only")


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write ``report.html`` beside ``results.json`` and return its path."""
    store = Store(Path(folder))
    path = Path(folder) / "report.html"
    write_atomically(path, report(store.content).encode())
    return path


def report(content: Mapping[str, Any]) -> str:
    """Return the page."""
    found = {
        row.id: judge(row, table, content["rows"].get(row.id))
        for name in PAPERS
        for table in paper(name).tables.values()
        for row in table.rows
    }
    return html.render(
        Path(__file__).with_name("report.html.j2"),
        title="Five papers, reproduced",
        lead="Every table and figure of the five papers, beside the results of leansvm.",
        machine=content["machine"],
        counts=_counts(found.values()),
        choices=[_slug(verdict) for verdict in _CHOICES],
        papers=[_paper(paper(name), content, found) for name in PAPERS],
        footer=[_machine(content["machine"])],
    )


def summary(content: Mapping[str, Any]) -> str:
    """Return the counts of every paper as a Markdown table, with what was not possible and why."""
    lines = [
        f"| paper | {' | '.join(_SHOWN)} | not possible, and why |",
        "| --- |" + " --- |" * (len(_SHOWN) + 1),
    ]
    for name in PAPERS:
        tables = paper(name).tables.values()
        found = [judge(r, t, content["rows"].get(r.id)) for t in tables for r in t.rows]
        counts = _counts(found)
        reasons = Counter(
            one.text.partition(". ")[0].rstrip(".")
            for one in found
            if one.verdict in (Verdict.NOT_RUN, Verdict.FAILED)
        )
        quoted = counts["quoted by the papers"]
        why = [f"{quoted} rows are quoted from other work"] if quoted else []
        why += [f"{n} rows: {text}" for text, n in reasons.items()]
        shown = " | ".join(str(counts[kind]) for kind in _SHOWN)
        lines.append(f"| {name} | {shown} | {'; '.join(why)} |")
    return "\n".join(lines)


def _machine(facts: Mapping[str, Any]) -> str:
    if not facts:
        return "Nothing has been run yet."
    threads = facts["blas threads"]
    return (
        f"Measured on {facts['processor']}, {facts['cores']} cores, {threads} BLAS "
        f"thread{'s' if threads > 1 else ''}, Python {facts['python']}, leansvm "
        f"{facts['leansvm']}, NumPy {facts['numpy']}, SciPy {facts['scipy']}, scikit-learn "
        f"{facts['scikit-learn']}. Seconds are medians over trials on a machine that was not idle."
    )


def _slug(verdict: Verdict) -> str:
    """Return the verdict as a name for CSS; what failed was not run."""
    return "not-run" if verdict == Verdict.FAILED else str(verdict).replace(" ", "-")


def _counts(found: Iterable[Judgement]) -> dict[str, int]:
    """Return how many rows there are of each kind, as the page names them."""
    counts = Counter(judgement.verdict for judgement in found)
    return {
        "rows of all tables": counts.total() - counts[Verdict.BESIDE],
        "judged": sum(counts[verdict] for verdict in _CHOICES[:4]),
        str(Verdict.BETTER): counts[Verdict.BETTER],
        "reached": counts[Verdict.REACHED],
        "within tolerance": counts[Verdict.WITHIN],
        "short": counts[Verdict.SHORT],
        "settings": counts[Verdict.SETTINGS],
        "times only": counts[Verdict.MEASURED],
        "quoted by the papers": counts[Verdict.QUOTED],
        "not run": counts[Verdict.NOT_RUN] + counts[Verdict.FAILED],
    }


# ---------------------------------------------------------------------------------- papers


def _paper(
    one: Paper, content: Mapping[str, Any], found: Mapping[str, Judgement]
) -> dict[str, Any]:
    experiments, _ = experiments_of(one.name)
    authors = one.authors[0].split()[-1] + (" et al." if len(one.authors) > 1 else "")
    tables = one.tables.values()
    return {
        "paper": one,
        "cited": f"{authors} ({one.year or 'no year'})",
        "counts": _counts(found[row.id] for table in tables for row in table.rows),
        "tables": [
            _table(table, content["rows"], found, experiments[table.name]) for table in tables
        ],
        "figures": [
            _figure(one.figures[name], content["figures"].get(one.figures[name].id, {}))
            for name in one.figures
        ],
    }


def _title(name: str, text: str) -> str:
    """Return "Table 1. What it shows" for table-1."""
    kind, _, number = name.partition("-")
    return f"{'Figure' if kind == 'fig' else 'Table'} {number}. {text[:1].upper()}{text[1:]}"


def _table(
    table: Table,
    stored: Mapping[str, Any],
    found: Mapping[str, Judgement],
    experiment: Experiment,
) -> dict[str, Any]:
    keys = _keys(table)
    metrics = _metrics(table, stored)
    notes: list[str] = []
    panels = [panel for chart in experiment.charts for panel in _chart_panels(table, stored, chart)]
    return {
        "place": f"{table.paper}-{table.name}",
        "title": _title(table.name, table.caption),
        "names": keys,
        "metrics": [(_label(name), bool(metric(name).better)) for name in metrics],
        "rows": [
            _row(row, keys, metrics, stored.get(row.id, {}), found[row.id], notes)
            for row in table.rows
        ],
        "notes": notes,
        "how": (experiment.measure.__doc__ or "").partition("\n")[0],
        "calls": [
            (row.name, stored[row.id]["called"])
            for row in table.rows
            if "called" in stored.get(row.id, {})
        ],
        "tolerance": table.tolerance["why"] if table.tolerance else "",
        "figures": [_charts.draw(panel) for panel in panels],
    }


def _keys(table: Table) -> list[str]:
    """Keys that tell the rows apart, and the method."""
    names = list(dict.fromkeys(key for row in table.rows for key in row.key))
    several = [k for k in names if len({str(row.key.get(k)) for row in table.rows}) > 1]
    return several or names[:1]


def _metrics(table: Table, stored: Mapping[str, Any]) -> list[str]:
    """Metrics that the paper prints, then those measured beside."""
    printed = dict.fromkeys(name for row in table.rows for name in row.published)
    ours = dict.fromkeys(
        name for row in table.rows for name in stored.get(row.id, {}).get("metrics", {})
    )
    names = list(printed | ours)
    return sorted(names, key=lambda name: metric(name).better == 0)  # what decides comes first


def _label(name: str) -> str:
    how, point = metric(name), name.partition("[")[2].rstrip("]")
    return how.label + (f" {point}" if point else "") + (f" ({how.unit})" if how.unit else "")


def _row(
    row: Row,
    keys: Sequence[str],
    metrics: Sequence[str],
    entry: Mapping[str, Any],
    judgement: Judgement,
    notes: list[str],
) -> dict[str, Any]:
    figures = entry.get("metrics", {})
    words = [text for text in (judgement.text, *row.notes) if text]
    notes += [text for text in dict.fromkeys(words) if text not in notes]
    return {
        "slug": _slug(judgement.verdict),
        "verdict": str(judgement.verdict),
        "names": [_key(row.key.get(key)) for key in keys],
        "pairs": [_pair(name, row.published.get(name), figures.get(name)) for name in metrics],
        "marks": [notes.index(text) + 1 for text in words],
        "trials": max((int(one["n"]) for one in figures.values()), default=""),
        "seconds": f"{entry['seconds']:.1f}" if "seconds" in entry else "",
    }


def _key(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def _pair(name: str, printed: Printed | None, ours: Mapping[str, float] | None) -> dict[str, Any]:
    """Cells of one metric: paper, ours and, if it decides, the difference."""
    how = metric(name)
    value, differs, difference = 0.0, False, ""
    if printed is not None and ours is not None:
        value = round(ours["mean"] - printed.mean, how.digits) + 0.0  # no minus zero
        differs = agrees(name, printed, ours["mean"]) is False
        difference = f"{value:+.{how.digits}f}".replace("-", "−")
    return {
        "decides": bool(how.better),
        "paper": printed and shown(how, printed.mean, printed.std),
        "ours": ours and shown(how, ours["mean"], ours["std"] if ours["n"] > 1 else None),
        "differs": differs,
        "difference": difference,
        "kind": "good" if value * how.better > 0 else "bad" if value else "",
    }


# ---------------------------------------------------------------------------- figures


def _chart_panels(table: Table, stored: Mapping[str, Any], chart: Chart) -> list[dict[str, Any]]:
    """Return the table as curves: ours, and the paper's dashed in the same colour."""
    panels = []
    groups = dict.fromkeys(row.key.get(chart.each or "") for row in table.rows)
    for group in groups:
        rows = [row for row in table.rows if row.key.get(chart.each or "") == group]
        series = []
        for colour, name in enumerate(dict.fromkeys(row.key[chart.by] for row in rows)):
            own = [row for row in rows if row.key[chart.by] == name]
            ours = [
                (row.key[chart.x], stored[row.id]["metrics"][chart.y]["mean"])
                for row in own
                if stored.get(row.id, {}).get("status") == "done"
            ]
            theirs = [
                (r.key[chart.x], r.published[chart.y].mean) for r in own if chart.y in r.published
            ]
            for points, extra in (
                (ours, {"name": name}),
                (theirs, {"name": name, "dashed": True, "unnamed": bool(ours)}),
            ):
                if points:
                    x, y = zip(*sorted(points), strict=True)
                    series.append({"x": x, "y": y, "colour": colour, **extra})
        if any(not one.get("dashed") for one in series):
            how = metric(chart.y)
            title = f"{chart.each} = {group}" if chart.each and group is not None else ""
            panels.append(
                {
                    "type": "curves",
                    "title": f"{title or how.label.capitalize()}: ours solid, the paper's dashed",
                    "x": chart.x_label or chart.x,
                    "y": how.label + (f" ({how.unit})" if how.unit else ""),
                    "log": chart.log,
                    "series": series,
                }
            )
    return panels


def _figure(figure: Figure, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "place": f"{figure.paper}-{figure.name}-drawing",
        "title": _title(figure.name, figure.shows),
        "expected": figure.expected,
        "findings": entry.get("findings", ()),
        "figures": [_charts.draw(panel) for panel in entry.get("panels", ())],
        "missing": "" if entry.get("status") == "done" else entry.get("reason", "Not run yet."),
    }
