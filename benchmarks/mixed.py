"""Default models on tables with text, dates and gaps, beside boosting with native categories.

All ``$LEANSVM_DATA/mixed/<name>.parquet`` (column ``target``), three splits of 70/30 with at most
10,000 training rows, nothing set. Ours gets the frame as it is. Boosting gets categories by their
type, dates as days and, in scikit-learn, the 254 most frequent levels, as it takes no more. Cells
are kept in results/mixed-cells.json, as those of `tabular` are.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from ._comparison import compare
from ._harness import RESULTS, Options, Report, SkipBenchmark
from ._isolated import run_isolated
from ._tabular import BOOSTING, MODELS, OPTIONAL, OURS, Part, score_of
from .tabular import MOST_ROWS, SPLITS, TIME_LIMIT, Cache, mean_of, version_by

COMPARED = (OURS, BOOSTING, "LightGBM")
MOST_LEVELS = 254  # of scikit-learn's boosting
QUICK = ("titanic", "car_prices")


def folder() -> Path:
    """Return the folder of the tables, or skip."""
    place = Path(os.environ.get("LEANSVM_DATA", "")) / "mixed"
    if not os.environ.get("LEANSVM_DATA") or not any(place.glob("*.parquet")):
        raise SkipBenchmark("LEANSVM_DATA names no folder with mixed/<name>.parquet")
    return place


def run(options: Options) -> Report:
    """Measure what is missing, then compare."""
    names = sorted(path.stem for path in folder().glob("*.parquet"))
    names = [name for name in names if name in QUICK] if options.quick else names
    splits, most_rows = options.pick((SPLITS, MOST_ROWS), (SPLITS[:1], 500))
    cells = Cache(RESULTS / f"mixed-cells{'-quick' if options.quick else ''}.json")
    versions = {model: version_by(model, options) for model in COMPARED}
    there = [model for model in COMPARED if versions[model] != "not installed"]
    wanted = [(name, number, model) for name in names for number in splits for model in there]
    for name, number, model in cells.missing(wanted, versions):
        outcome = run_isolated(
            "benchmarks.mixed:measure",
            python=options.peer_python if model in OPTIONAL else None,
            time_limit=TIME_LIMIT,
            name=name,
            number=number,
            model=model,
            most_rows=most_rows,
        )
        cells.keep(name, number, model, versions[model], outcome)
    title = f"{len(names)} tables, {len(splits)} splits, <= {most_rows:,} rows"
    report = Report("mixed", title, options)
    report.notes += [f"{model}: not installed" for model in COMPARED if model not in there]
    return summarise(report, cells.chosen(wanted))


def summarise(report: Report, cells: dict[str, dict[str, Any]]) -> Report:
    """Fill the table, the comparisons and the goals."""
    scores, fit = mean_of(cells, "score"), mean_of(cells, "fit")[OURS]
    share = mean_of(cells, "encoder")[OURS]
    for name in dict.fromkeys(key.split("/")[0] for key in cells):
        row: dict[str, Any] = {"table": name}
        row |= {model: round(by[name], 2) for model, by in scores.items() if name in by}
        if name in fit:
            row |= {"fit [s]": round(fit[name], 2), "encoder [s]": round(share[name], 3)}
        report.rows.append(row)
    report.notes += sorted(f"{k}: {c['status']}" for k, c in cells.items() if c["status"] != "ok")
    for model, goal in ((BOOSTING, 20), ("LightGBM", 18)):
        found = compare(scores, OURS, model)
        if found is not None:
            report.notes.append(found.words())
            report.at_least(f"tables as good as {model}", found.wins, goal)
            if model == BOOSTING:
                report.at_least(f"worst difference ({found.worst_set})", found.worst, -2.0)
    if fit:
        worst = max(share[name] / fit[name] for name in fit)
        report.at_most("encoder / fit, worst table", worst, 0.1)
    return report


# ---------------------------------------------------------------------------- one cell


def measure(name: str, number: int, model: str, most_rows: int) -> dict[str, Any]:
    """Fit and score one model on one split; called in a fresh interpreter."""
    part = split(name, number, most_rows)
    if model != OURS:
        part = part._replace(**_as_boosting_takes_it(part, model))
    machine = MODELS[model].make(part)
    if model == BOOSTING:
        machine.set_params(categorical_features="from_dtype")
    np.random.seed(number)  # noqa: NPY002 (the seed of models that are given none)
    start = time.perf_counter()
    machine.fit(part.X, part.y)
    cell = {"rows": len(part.y), "fit": time.perf_counter() - start, "encoder": 0.0}
    cell["score"] = score_of(part, np.ravel(machine.predict(part.X_test)))
    if hasattr(machine, "table_"):
        start = time.perf_counter()
        type(machine.table_)().fit_transform(part.X, part.y)
        cell["encoder"] = time.perf_counter() - start
    return cell


def split(name: str, number: int, most_rows: int) -> Part:
    """Return 70 % of the rows, at most `most_rows`, to train on, and the other 30 % to score on."""
    import pandas as pd
    from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

    table = pd.read_parquet(folder() / f"{name}.parquet")
    y = table.pop("target").to_numpy()
    is_classification = y.dtype.kind not in "iuf"
    splitter = StratifiedShuffleSplit if is_classification else ShuffleSplit
    train, test = next(splitter(1, test_size=0.3, random_state=number).split(table, y))
    train = train[:most_rows]
    return Part(table.iloc[train], y[train], table.iloc[test], y[test], is_classification)


def _as_boosting_takes_it(part: Part, model: str) -> dict[str, Any]:
    """Return the rows with categories as such and dates as days; levels are those of training."""
    import pandas as pd

    X, X_test = part.X.copy(), part.X_test.copy()
    for name in X:
        if X[name].dtype.kind == "M":
            days = [(rows[name] - pd.Timestamp(0)) / pd.Timedelta("1D") for rows in (X, X_test)]
            X[name], X_test[name] = days
        elif X[name].dtype.kind not in "biuf":
            levels = X[name].value_counts().index
            levels = levels[:MOST_LEVELS] if model == BOOSTING else levels
            for rows in (X, X_test):
                rows[name] = pd.Categorical(rows[name], list(levels))
    return {"X": X, "X_test": X_test}
