"""Cells (table, split, model) of a suite: measured side by side, kept in a file, compared.

Every cell runs in a process of its own and is kept at once: a second run measures only what is
missing or was measured by another version or processor.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from ._comparison import Scores, compare
from ._harness import RESULTS, Options, Report
from ._isolated import Outcome, run_isolated
from ._machine import machine_facts
from ._tabular import MODELS, OPTIONAL, OURS, version_of

SPLITS = (0, 1, 2)
MOST_ROWS = 10_000
TIME_LIMIT = 7_200.0  # seconds of one cell: the grid of SVR is slow

Cells = dict[str, dict[str, Any]]  # by "table/split/model"
Wanted = list[tuple[str, int, str]]  # table, split, model


class Measure(NamedTuple):
    """A number of a cell: how it is shown, and how two models are compared by it."""

    label: str
    digits: int = 2
    factor: float = 1.0  # of the number as it is shown
    unit: str = ""  # of a difference; "": models are not compared by it
    merit: Callable[[float], float] = float  # larger is better


MEASURES = {
    "score": Measure("accuracy or R² [%]", unit="points"),
    "log-loss": Measure("log-loss", 4, unit="hundredths", merit=lambda value: -100 * value),
    "RMSE": Measure("RMSE", 4, unit="% smaller", merit=lambda value: -100 * math.log(value)),
    "AUC": Measure("AUC, two classes [%]", unit="points"),
    "fit": Measure("fit [s]"),
    "predict": Measure("predict [ms]", 1, 1e3),
    "encoder": Measure("encoder [s]", 3),
    "points": Measure("points", 0),
    "bytes": Measure("pickled [kB]", 0, 1e-3),
    "compact bytes": Measure("its numbers [kB]", 0, 1e-3),
}


def measure_suite(
    suite: str, function: str, names: list[str], models: Iterable[str], options: Options
) -> tuple[Report, Cells]:
    """Measure the missing cells of a suite.

    Parameters
    ----------
    suite : str
        Name of the benchmark, and of its files.
    function : str
        "benchmarks.module:function" of one cell, with name, number, model and most_rows.
    names, models : iterable of str
        Tables and models of the suite; `options` may choose some of both.
    options : Options
        Choice of the command line.

    Returns
    -------
    report : Report
        With its title, and a note for each model that is not installed.
    cells : dict
        All cells that were asked for.
    """
    names = _chosen("table", names, options.sets)
    models = _chosen("model", list(models), options.models)
    splits, most_rows = options.pick((SPLITS, MOST_ROWS), (SPLITS[:1], 500))
    splits = splits if options.splits is None else range(options.splits)
    cache = Cache(RESULTS / f"{suite}-cells{'-quick' if options.quick else ''}.json")
    versions = {model: version_by(model, options) for model in models}
    there = [model for model in models if versions[model] != "not installed"]
    wanted = [(name, number, model) for name in names for number in splits for model in there]
    _fill(cache, cache.missing(wanted, versions), versions, function, most_rows, options)
    title = f"{len(names)} tables, {len(splits)} splits, <= {most_rows:,} rows"
    report = Report(suite, title, options)
    report.notes += [f"{model}: not installed" for model in models if model not in there]
    return report, cache.chosen(wanted)


def _chosen(kind: str, there: list[str], wanted: tuple[str, ...]) -> list[str]:
    if unknown := set(wanted) - set(there):
        raise ValueError(f"unknown {kind}: {sorted(unknown)}; there are {there}")
    return [name for name in there if name in wanted] if wanted else there


def _fill(
    cache: "Cache",
    missing: Wanted,
    versions: dict[str, str],
    function: str,
    most_rows: int,
    options: Options,
) -> None:
    """Measure cells, `options.jobs` at a time, and keep each as soon as it is there."""

    def outcome_of(name: str, number: int, model: str) -> Outcome:
        return run_isolated(
            function,
            python=options.peer_python if model in OPTIONAL else None,
            threads=options.threads,
            time_limit=TIME_LIMIT,
            name=name,
            number=number,
            model=model,
            most_rows=most_rows,
        )

    pool = ThreadPoolExecutor(options.jobs)
    try:
        running = {pool.submit(outcome_of, *cell): cell for cell in missing}
        for done, future in enumerate(as_completed(running), 1):
            (name, number, model), outcome = running[future], future.result()
            facts = {"jobs": options.jobs, "threads": options.threads}
            cache.keep(name, number, model, versions[model], outcome, facts)
            said = f"{outcome.value['score']:.2f} %" if outcome.ok else outcome.status
            print(f"  {done} of {len(missing)}: {name}, {number}, {model}: {said}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


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

    def missing(self, wanted: Wanted, versions: dict[str, str]) -> Wanted:
        """Return cells that are not there, or come from another version or processor."""
        found = {cell: self.cells.get("/".join(map(str, cell)), {}) for cell in wanted}
        return [
            cell
            for cell, kept in found.items()
            if (kept.get("version"), kept.get("cpu")) != (versions[cell[2]], self.cpu)
        ]

    def keep(
        self,
        name: str,
        split: int,
        model: str,
        version: str,
        outcome: Outcome,
        facts: dict[str, Any] | None = None,
    ) -> None:
        """Add a cell, also one that failed, and write the file."""
        cell = {"status": outcome.status, "version": version, "cpu": self.cpu, **(facts or {})}
        self.cells[f"{name}/{split}/{model}"] = cell | (outcome.value or {})
        self.path.parent.mkdir(exist_ok=True)
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in self.cells.items())
        part = self.path.with_suffix(".part")
        part.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        part.replace(self.path)

    def chosen(self, wanted: Wanted) -> Cells:
        """Return these cells alone."""
        keys = [f"{name}/{split}/{model}" for name, split, model in wanted]
        return {key: self.cells[key] for key in keys}


# ---------------------------------------------------------------------------- summary


def mean_of(cells: Cells, what: str) -> Scores:
    """Return means over the splits, by model and table, less tables with a failed split."""
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


def add_tables(report: Report, cells: Cells, measures: Iterable[str]) -> None:
    """Add a row for every measure and table, what failed, and the comparisons with each peer."""
    names = list(dict.fromkeys(key.split("/")[0] for key in cells))
    models = [model for model in MODELS if any(key.endswith(f"/{model}") for key in cells)]
    for what in measures:
        label, digits, factor, unit, merit = MEASURES[what]
        means = mean_of(cells, what)
        for name in names:
            found = {model: means[model][name] for model in models if name in means[model]}
            shown = {model: round(factor * value, digits) for model, value in found.items()}
            if shown:
                report.rows.append({"measure": label, "table": name} | shown)
        merits = {model: {k: merit(v) for k, v in by.items()} for model, by in means.items()}
        for model in models if unit and OURS in models else ():
            if model != OURS and (compared := compare(merits, OURS, model)):
                report.notes.append(f"{label} {compared.words(unit)}")
    failed = {f"{key}: {cell['status']}" for key, cell in cells.items() if cell["status"] != "ok"}
    report.notes += sorted(failed)
