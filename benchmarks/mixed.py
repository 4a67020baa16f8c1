"""Default models on tables with text, dates and gaps, beside boosting with native categories.

All ``$LEANSVM_DATA/mixed/<name>.parquet`` (column ``target``), three splits of 70/30 with at most
10,000 training rows, nothing set. Ours gets the frame as it is. Boosting gets categories by their
type, dates as days and, in scikit-learn, the 254 most frequent levels, as it takes no more. Cells
are kept in results/mixed-cells.json, as those of `tabular` are.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._cells import Cells, add_tables, mean_of, measure_suite
from ._comparison import compare
from ._harness import Options, Report, SkipBenchmark
from ._tabular import BOOSTING, MODELS, OURS, Part, fitted, quality, seconds

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
    if options.quick and not options.sets:
        names = [name for name in names if name in QUICK]
    report, cells = measure_suite("mixed", "benchmarks.mixed:measure", names, COMPARED, options)
    add_tables(report, cells, ("score", "log-loss", "RMSE", "AUC", "fit", "encoder"))
    _judge(report, cells)
    return report


def _judge(report: Report, cells: Cells) -> None:
    scores = mean_of(cells, "score")
    for model, goal in ((BOOSTING, 20), ("LightGBM", 18)):
        found = compare(scores, OURS, model)
        if found is not None:
            report.at_least(f"tables as good as {model}", found.wins, goal)
            report.at_least(f"worst against {model} ({found.worst_set})", found.worst, -2.0)
    fit, share = mean_of(cells, "fit")[OURS], mean_of(cells, "encoder")[OURS]
    if share:
        worst = max(share[name] / fit[name] for name in share)
        report.at_most("encoder / fit, worst table", worst, 0.1)


# ---------------------------------------------------------------------------- one cell


def measure(name: str, number: int, model: str, most_rows: int) -> dict[str, Any]:
    """Fit and score one model on one split; called in a fresh interpreter."""
    part = split(name, number, most_rows)
    if model != OURS:
        part = part._replace(**_as_boosting_takes_it(part, model))
    machine, spent = fitted(_maker(model), part, number)
    cell = {"rows": len(part.y), "fit": spent} | quality(part, machine)
    if model == OURS and hasattr(machine, "table_"):
        encoder = type(machine.table_)()
        cell["encoder"] = seconds(encoder.fit_transform, part.X, part.y)
    return cell


def _maker(model: str) -> Callable[[Part], Any]:
    make = MODELS[model].make
    if model != BOOSTING:
        return make
    return lambda part: make(part).set_params(categorical_features="from_dtype")


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
