"""Default models on everyday tables: SparseLSSVC/R with no argument beside boosting and SVC/SVR.

All sets of ``$LEANSVM_DATA/tabular``, three splits of 70/30 with at most 10,000 training rows.
Every cell (set, split, model) runs in a process of its own and is kept in
results/tabular-cells.json: a second run measures only what is missing or was measured by another
version or processor.
"""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._comparison import Scores, compare
from ._harness import RESULTS, Options, Report
from ._isolated import Outcome, run_isolated
from ._machine import machine_facts
from ._tabular import BOOSTING, MODELS, OPTIONAL, OURS, TUNED, folder, version_of

SPLITS = (0, 1, 2)
MOST_ROWS = 10_000
TIME_LIMIT = 7_200.0  # seconds of one cell: the grid of SVR is slow

Cells = dict[str, dict[str, Any]]  # by "set/split/model"


def run(options: Options) -> Report:
    """Measure what is missing, then compare."""
    names = sorted(path.stem for path in folder().glob("*.npz"))
    if options.quick:
        names = sorted(names, key=lambda name: (folder() / f"{name}.npz").stat().st_size)[:2]
    splits, most_rows = options.pick((SPLITS, MOST_ROWS), (SPLITS[:1], 500))
    cells = Cache(RESULTS / f"tabular-cells{'-quick' if options.quick else ''}.json")
    versions = {model: version_by(model, options) for model in MODELS}
    wanted = [
        (name, number, model)
        for name in names
        for number in splits
        for model in MODELS
        if versions[model] != "not installed"
    ]
    for name, number, model in cells.missing(wanted, versions):
        python = options.peer_python if model in OPTIONAL else None
        outcome = run_isolated(
            "benchmarks._tabular:measure",
            python=python,
            time_limit=TIME_LIMIT,
            name=name,
            number=number,
            model=model,
            most_rows=most_rows,
        )
        cells.keep(name, number, model, versions[model], outcome)
    report = Report(
        "tabular", f"{len(names)} sets, {len(splits)} splits, <= {most_rows:,} rows", options
    )
    for model, version in versions.items():
        if version == "not installed":
            report.notes.append(f"{model}: not installed")
    return summarise(report, cells.chosen(wanted))


def version_by(model: str, options: Options) -> str:
    """Ask the interpreter that will run the model."""
    if model not in OPTIONAL or options.peer_python is None:
        return version_of(model)
    outcome = run_isolated(
        "benchmarks._tabular:version_of", python=options.peer_python, model=model
    )
    return outcome.value if outcome.ok else outcome.status


class Cache:
    """Finished cells in a JSON file, written after each of them.

    Parameters
    ----------
    path : Path
        The file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cpu = machine_facts()["cpu"]
        self.cells: Cells = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def missing(
        self, wanted: list[tuple[str, int, str]], versions: dict[str, str]
    ) -> Iterator[tuple[str, int, str]]:
        """Yield cells that are not there, or come from another version or processor."""
        for number, (name, split, model) in enumerate(wanted, 1):
            found = self.cells.get(f"{name}/{split}/{model}", {})
            if (found.get("version"), found.get("cpu")) != (versions[model], self.cpu):
                print(f"  {number} of {len(wanted)}: {name}, split {split}, {model}", flush=True)
                yield name, split, model

    def keep(self, name: str, split: int, model: str, version: str, outcome: Outcome) -> None:
        """Add a cell, also one that failed, and write the file."""
        cell = {"status": outcome.status, "version": version, "cpu": self.cpu}
        self.cells[f"{name}/{split}/{model}"] = cell | (outcome.value or {})
        self.path.parent.mkdir(exist_ok=True)
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in self.cells.items())
        part = self.path.with_suffix(".part")
        part.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        part.replace(self.path)

    def chosen(self, wanted: list[tuple[str, int, str]]) -> Cells:
        """Return these cells alone."""
        keys = [f"{name}/{split}/{model}" for name, split, model in wanted]
        return {key: self.cells[key] for key in keys}


# ---------------------------------------------------------------------------- summary


def mean_of(cells: Cells, what: str) -> Scores:
    """Return means over the splits, by model and set; a set with a failed split is left out."""
    found: dict[str, dict[str, list[float]]] = {model: {} for model in MODELS}
    failed = set()
    for key, cell in cells.items():
        name, _, model = key.split("/", 2)
        if what in cell:
            found[model].setdefault(name, []).append(cell[what])
        else:
            failed.add((model, name))
    return {
        model: {
            name: statistics.fmean(values)
            for name, values in by_set.items()
            if (model, name) not in failed
        }
        for model, by_set in found.items()
    }


def summarise(report: Report, cells: Cells) -> Report:
    """Fill the table, the comparisons and the goals."""
    scores, fit, predict = (mean_of(cells, what) for what in ("score", "fit", "predict"))
    points, size = mean_of(cells, "points")[OURS], mean_of(cells, "bytes")[OURS]
    compact = mean_of(cells, "compact bytes")[OURS]
    for name in dict.fromkeys(key.split("/")[0] for key in cells):
        row: dict[str, Any] = {"set": name}
        row |= {model: round(by[name], 2) for model, by in scores.items() if name in by}
        if name in points:
            row["points"] = round(points[name])
            row["fit [s]"] = round(fit[OURS][name], 2)
            row["predict [ms]"] = round(1000 * predict[OURS][name], 1)
            row["model [kB]"] = round(size[name] / 1000)
            row["its numbers [kB]"] = round(compact[name] / 1000)
        report.rows.append(row)
    failures = {f"{key}: {cell['status']}" for key, cell in cells.items() if cell["status"] != "ok"}
    report.notes += sorted(failures)
    for model in MODELS:
        if model != OURS and (found := compare(scores, OURS, model)):
            report.notes.append(found.words())
    _judge(report, cells, scores, predict)
    return report


def _judge(report: Report, cells: Cells, scores: Scores, predict: Scores) -> None:
    boosting, tuned = compare(scores, OURS, BOOSTING), compare(scores, OURS, TUNED)
    if boosting is not None:
        report.at_least(f"sets as good as {BOOSTING}", boosting.wins, 20)
        report.at_least("median difference from it [points]", boosting.median, 0.5)
        report.at_least(f"worst difference ({boosting.worst_set})", boosting.worst, -5.0)
        common = predict[OURS].keys() & predict[BOOSTING].keys()
        ratios = [predict[OURS][name] / predict[BOOSTING][name] for name in common]
        report.at_most("predict / its predict, median", statistics.median(ratios), 1.0)
    if tuned is not None:
        report.at_least(f"sets as good as {TUNED}", tuned.wins, 22)
    ours = [cell for key, cell in cells.items() if key.endswith(f"/{OURS}") and "fit" in cell]
    if ours:
        points = statistics.median(cell["points"] for cell in ours)
        report.at_most("basis points, median", points, 1200)
    full = [cell for cell in ours if cell["rows"] == MOST_ROWS]
    if full:
        seconds = [cell["fit"] for cell in full]
        learning = [cell["learn"] / cell["plain fit"] for cell in full]
        report.at_most("fit at 10,000 rows, median [s]", statistics.median(seconds), 10.0)
        report.at_most("fit at 10,000 rows, worst [s]", max(seconds), 25.0)
        report.at_most("learning / a plain fit there, median", statistics.median(learning), 5.0)
        report.notes.append(f"learning / a plain fit at 10,000 rows, worst: {max(learning):.2f}")
