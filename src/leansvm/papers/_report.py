"""The report: one HTML page from results.json and the published numbers, no network needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from leansvm import _html
from leansvm._atomic import write_atomically
from leansvm.papers import _charts
from leansvm.papers._experiment import Chart, experiments_of
from leansvm.papers._filter import filter_buttons, filter_style, slug
from leansvm.papers._published import PAPERS, Figure, Paper, Printed, Row, Table, paper
from leansvm.papers._store import Store
from leansvm.papers._verdict import Judgement, Metric, Verdict, agrees, judge, metric

_CLASS = {
    Verdict.REACHED: "good",
    Verdict.WITHIN: "near",
    Verdict.SHORT: "bad",
    Verdict.FAILED: "bad",
    Verdict.MEASURED: "plain",
    Verdict.BESIDE: "near",
    Verdict.QUOTED: "plain",
    Verdict.NOT_RUN: "plain",
}
_STYLE = """
.scroll { border: 1px solid var(--line); border-radius: 10px; margin: .6rem 0; max-width: 100%; }
.scroll.tall { max-height: 34rem; overflow: auto; }
.scroll table { border-collapse: separate; border-spacing: 0; min-width: 100%; }
.scroll th, .scroll td { padding: .35rem .7rem; font-size: .9rem; }
.scroll thead th { background: var(--panel); text-align: right; }
.scroll thead.two tr:first-child th { border-bottom: 0; padding-bottom: 0; height: 1.7rem; }
.scroll.tall thead th { position: sticky; top: 0; z-index: 1; }
.scroll.tall thead.two tr:last-child th { top: 1.7rem; }
.scroll thead th.key, .scroll td.key { text-align: left; }
.scroll td.name { white-space: normal; max-width: 10rem; overflow-wrap: break-word; }
.scroll thead th.head { text-align: center; color: var(--ink); }
.scroll tbody tr:last-child > * { border-bottom: 0; }
.scroll .from { border-left: 1px solid var(--line); }
td.paper { color: var(--soft); } td small { color: var(--soft); font-size: .85em; }
.badge { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .82rem;
  background: color-mix(in srgb, currentColor 13%, transparent); }
.near { color: var(--pos); } .plain { color: var(--soft); }
.notes { font-size: .88rem; color: var(--soft); padding-left: 1.6rem; }
details { margin: .8rem 0; } summary { cursor: pointer; }
.expected { color: var(--soft); } .bar { display: flex; height: .8rem; border-radius: .4rem;
  overflow: hidden; gap: 2px; min-width: 9rem; } .bar i { background: currentColor; }
section > h2 { font-size: 1.45rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
sup a { text-decoration: none; }
"""


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
    body = _summary(found) + "".join(_paper(paper(name), content, found) for name in PAPERS)
    return _html.page(
        "Five papers, reproduced",
        "Every table and figure of the five papers behind leansvm, beside what this library gives.",
        _made_by(content["machine"]) + body,
        [_machine(content["machine"])],
        style=_charts.STYLE + _STYLE + filter_style(),
    )


def _made_by(facts: Mapping[str, Any]) -> str:
    """Return command, version, date and seeds of the last run."""
    if "command" not in facts:
        return ""
    command = f"<code>{escape(str(facts['command']))}</code>"
    words = f"leansvm {facts['leansvm']}, {facts['date']}, seeds {facts['seeds']}."
    return f"<p>Made by {command} with {escape(words)}</p>"


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


# -------------------------------------------------------------------------------- summary


def _summary(found: Mapping[str, Judgement]) -> str:
    counts = Counter(judgement.verdict for judgement in found.values())
    judged = counts[Verdict.REACHED] + counts[Verdict.WITHIN] + counts[Verdict.SHORT]
    numbers = [
        ("rows of all tables", len(found) - counts[Verdict.BESIDE]),
        ("judged", judged),
        ("reached", counts[Verdict.REACHED]),
        ("within tolerance", counts[Verdict.WITHIN]),
        ("short", counts[Verdict.SHORT]),
        ("times only", counts[Verdict.MEASURED]),
        ("quoted by the papers", counts[Verdict.QUOTED]),
        ("not run", counts[Verdict.NOT_RUN] + counts[Verdict.FAILED]),
    ]
    rules = (
        "<p><b>Reached</b>: as accurate as the paper's row, or more. <b>Within tolerance</b>: less "
        "accurate, by no more than the table allows (stated below it). <b>Short</b>: less accurate "
        "than that; a note says why. Times belong to other machines: they are shown, not judged. "
        "Rows that a paper quotes from elsewhere are not run; other rows that are not say why.</p>"
    )
    rows = "".join(_paper_line(paper(name), found) for name in PAPERS)
    table = (
        '<div class="scroll" tabindex="0"><table><thead><tr><th class="key">paper</th>'
        "<th>rows</th><th>reached</th><th>within</th><th>short</th><th>times only</th>"
        f"<th>quoted</th><th>not run</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return f"{_html.facts(numbers)}{rules}{table}{filter_buttons()}"


def _paper_line(one: Paper, found: Mapping[str, Judgement]) -> str:
    verdicts = Counter(found[row.id].verdict for t in one.tables.values() for row in t.rows)
    not_run = verdicts[Verdict.NOT_RUN] + verdicts[Verdict.FAILED]
    numbers = [
        verdicts.total() - verdicts[Verdict.BESIDE],
        verdicts[Verdict.REACHED],
        verdicts[Verdict.WITHIN],
        verdicts[Verdict.SHORT],
        verdicts[Verdict.MEASURED],
        verdicts[Verdict.QUOTED],
        not_run,
    ]
    kinds = ("good", "near", "bad", "plain")
    bar = "".join(
        f'<i class="{kind}" style="flex:{number}"></i>'
        for kind, number in zip(kinds, numbers[1:], strict=False)
        if number
    )
    cells = "".join(f"<td>{number}</td>" for number in numbers)
    link = f'<td class="key"><a href="#{one.name}">{escape(_cite(one))}</a></td>'
    return f'<tr>{link}{cells}<td><div class="bar">{bar}</div></td></tr>'


def _cite(one: Paper) -> str:
    authors = one.authors[0].split()[-1] + (" et al." if len(one.authors) > 1 else "")
    return f"{authors} ({one.year or 'no year'})"


# ---------------------------------------------------------------------------------- papers


def _paper(one: Paper, content: Mapping[str, Any], found: Mapping[str, Judgement]) -> str:
    experiments, _ = experiments_of(one.name)
    parts = [
        f"<p><i>{escape(one.title)}</i><br><small>{escape(', '.join(one.authors))}</small></p>"
    ]
    if one.contradictions:
        items = "".join(f"<li>{escape(text)}</li>" for text in one.contradictions)
        parts.append(
            f"<details><summary>Where the paper contradicts itself ({len(one.contradictions)})"
            f"</summary><ul>{items}</ul></details>"
        )
    for table in one.tables.values():
        charts = experiments[table.name].charts if table.name in experiments else ()
        parts.append(_table(table, content["rows"], found, charts))
    for figure in one.figures.values():
        parts.append(_figure(figure, content["figures"].get(figure.id)))
    return _html.section(f"{_cite(one)}", "".join(parts), anchor=one.name)


def _title(name: str) -> str:
    kind, _, number = name.partition("-")
    return f"{'Figure' if kind == 'fig' else 'Table'} {number}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(
    table: Table,
    stored: Mapping[str, Any],
    found: Mapping[str, Judgement],
    charts: Sequence[Chart],
) -> str:
    keys = _keys(table)
    metrics = _metrics(table, stored)
    notes: list[str] = []
    lines = [
        _row(row, keys, metrics, stored.get(row.id), found[row.id], notes) for row in table.rows
    ]
    tall = " tall" if len(lines) > 22 else ""
    place = f"{table.paper}-{table.name}"
    heading = f"{_title(table.name)}. {_sentence(table.caption)}"
    parts = [
        f'<h3 id="{place}">{escape(heading)}</h3>',
        f'<div class="scroll{tall}" tabindex="0"><table>{_head(keys, metrics)}'
        f"<tbody>{''.join(lines)}</tbody></table></div>",
    ]
    if table.tolerance:
        parts.append(f"<p><small>Tolerance: {escape(table.tolerance['why'])}.</small></p>")
    if notes:
        items = "".join(
            f'<li id="{place}-{k}">{escape(text)}</li>' for k, text in enumerate(notes, 1)
        )
        parts.append(f'<ol class="notes">{items}</ol>')
    panels = [panel for chart in charts for panel in _chart_panels(table, stored, chart)]
    if panels:
        parts.append(f'<div class="grid wide">{"".join(map(_charts.draw, panels))}</div>')
    verdicts = " ".join(dict.fromkeys(slug(found[row.id].verdict) for row in table.rows))
    return f'<div class="block" data-verdicts="{verdicts}">{"".join(parts)}</div>'


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


def _head(keys: Sequence[str], metrics: Sequence[str]) -> str:
    top = [f'<th class="key" rowspan="2">{escape(key)}</th>' for key in keys]
    below: list[str] = []
    verdict = '<th class="key from" rowspan="2">verdict</th>'
    for name in metrics:
        how = metric(name)
        if not how.better and verdict not in top:
            top.append(verdict)
        point = name.partition("[")[2].rstrip("]")
        label = how.label + (f" {point}" if point else "") + (f" ({how.unit})" if how.unit else "")
        top.append(f'<th class="head from" colspan="{3 if how.better else 2}">{escape(label)}</th>')
        below.append('<th class="from">paper</th><th>ours</th>')
        below.append("<th>diff.</th>" if how.better else "")
    if verdict not in top:
        top.append(verdict)
    top.append('<th class="from" rowspan="2">trials</th><th rowspan="2">took (s)</th>')
    return f'<thead class="two"><tr>{"".join(top)}</tr><tr>{"".join(below)}</tr></thead>'


def _row(
    row: Row,
    keys: Sequence[str],
    metrics: Sequence[str],
    entry: Mapping[str, Any] | None,
    judgement: Judgement,
    notes: list[str],
) -> str:
    figures = (entry or {}).get("metrics", {})
    cells = [f'<td class="key name">{escape(_key(row.key.get(key)))}</td>' for key in keys]
    decisive = [name for name in metrics if metric(name).better]
    for name in decisive:
        cells += _pair(name, row.published.get(name), figures.get(name))
    words = [text for text in (judgement.text, *row.notes) if text]
    marks = "".join(_mark(row, text, notes) for text in words)
    badge = f'<span class="badge {_CLASS[judgement.verdict]}">{judgement.verdict}</span>'
    cells.append(f'<td class="key from">{badge}{marks}</td>')
    for name in metrics[len(decisive) :]:
        cells += _pair(name, row.published.get(name), figures.get(name))
    trials = max((int(one["n"]) for one in figures.values()), default=0)
    seconds = (entry or {}).get("seconds")
    cells.append(f'<td class="from">{trials or ""}</td>')
    cells.append(f"<td>{'' if seconds is None else f'{seconds:.1f}'}</td>")
    return f'<tr data-verdict="{slug(judgement.verdict)}">{"".join(cells)}</tr>'


def _key(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def _mark(row: Row, text: str, notes: list[str]) -> str:
    if text not in notes:
        notes.append(text)
    number = notes.index(text) + 1
    return f' <sup><a href="#{row.paper}-{row.table}-{number}">{number}</a></sup>'


def _pair(name: str, printed: Printed | None, ours: Mapping[str, float] | None) -> list[str]:
    """Cells of one metric: paper, ours and, where it decides, the difference."""
    how = metric(name)
    paper_text = "" if printed is None else _number(how, printed.mean, printed.std)
    ours_text = (
        "" if ours is None else _number(how, ours["mean"], ours["std"] if ours["n"] > 1 else None)
    )
    if printed is not None and ours is not None and agrees(name, printed, ours["mean"]) is False:
        ours_text += ' <small title="differs from the paper">≠</small>'
    cells = [f'<td class="paper from">{paper_text}</td>', f"<td>{ours_text}</td>"]
    if how.better:
        cells.append(f"<td>{_difference(how, printed, ours)}</td>")
    return cells


def _difference(how: Metric, printed: Printed | None, ours: Mapping[str, float] | None) -> str:
    if printed is None or ours is None:
        return ""
    value = round(ours["mean"] - printed.mean, how.digits) + 0.0  # no minus zero
    kind = "good" if value * how.better > 0 else "bad" if value else ""
    return f'<span class="{kind}">{value:+.{how.digits}f}</span>'.replace("-", "−")


def _number(how: Metric, mean: float, std: float | None) -> str:
    if mean and abs(mean) < 10.0**-how.digits:
        return f"{mean:.1e}"
    text = f"{mean:.{how.digits}f}"
    if "." in text and how.digits > 2:
        text = text.rstrip("0").rstrip(".")
    if std:
        text += f" <small>±{std:.{min(how.digits, 3)}f}</small>"
    return text


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


def _figure(figure: Figure, entry: Mapping[str, Any] | None) -> str:
    place = f"{figure.paper}-{figure.name}-drawing"
    heading = f'<h3 id="{place}">{_title(figure.name)}. {escape(_sentence(figure.shows))}</h3>'
    expected = f'<p class="expected">In the paper: {escape(figure.expected)}.</p>'
    if entry is None or entry["status"] != "done":
        reason = "Not run yet." if entry is None else entry["reason"]
        words = f'<p><span class="badge plain">not run</span> {escape(reason)}</p>'
        return f'<div class="block" data-verdicts="not-run">{heading}{expected}{words}</div>'
    drawings = "".join(_charts.draw(panel) for panel in entry["panels"])
    signs = {True: '<span class="good">✓</span>', False: '<span class="bad">✗</span>'}
    findings = "".join(
        f"<li>{signs[holds]} {escape(text)}</li>" for text, holds in entry["findings"]
    )
    listed = f"<ul>{findings}</ul>" if findings else ""
    shown = f'{heading}{expected}{listed}<div class="grid wide">{drawings}</div>'
    return f'<div class="block" data-verdicts="">{shown}</div>'
