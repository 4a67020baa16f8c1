"""Default models on 30,000 rows and more: accuracy, seconds to fit and to predict, bytes to ship.

SparseLSSVC() with no argument on the features as they are, beside HistGradientBoosting, LightGBM
and SVC (on standardised features), all with their defaults, each in a process of its own. Finished
cells are kept in results/many_rows-cells.json: start it again and it measures only what is missing,
so a long run can be cut into pieces.
"""

import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import _data
from ._cells import Cache, version_by
from ._harness import RESULTS, Options, Report
from ._isolated import run_isolated
from ._tabular import BOOSTING, MODELS, OPTIONAL, OURS, WARM_ROWS, Part, score_of

SETS = ("SHUTTLE", "IJCNN", "COVTYPE", "ADULT")
SVM = "SVC/SVR"
PEERS = (OURS, BOOSTING, "LightGBM", SVM)
COVTYPE_ROWS, TEST_ROWS = 30_000, 10_000
TIME_LIMIT = 600.0


def run(options: Options) -> Report:
    """Measure what is missing, then print all of it."""
    most_rows, test_rows = options.pick((10**9, TEST_ROWS), (600, 300))
    rows_of("SHUTTLE", 1, 1)  # skip here, not in each of the children
    cells = Cache(RESULTS / f"many_rows-cells{'-quick' if options.quick else ''}.json")
    versions = {model: version_by(model, options) for model in PEERS}
    wanted = [
        (name, 0, model) for model in PEERS for name in SETS if versions[model] != "not installed"
    ]
    for name, split, model in cells.missing(wanted, versions):
        outcome = run_isolated(
            "benchmarks.many_rows:measure",
            python=options.peer_python if model in OPTIONAL else None,
            time_limit=TIME_LIMIT,
            name=name,
            model=model,
            most_rows=most_rows,
            test_rows=test_rows,
        )
        cells.keep(name, split, model, versions[model], outcome)
    report = Report("many_rows", f"default models, {test_rows:,} test rows", options)
    for key, cell in cells.chosen(wanted).items():
        name, _, model = key.split("/", 2)
        report.rows.append({"set": name, "model": model} | table_row(cell))
    report.notes += [f"{model}: {found}" for model, found in versions.items() if model != OURS]
    return report


def rows_of(name: str, most_rows: int, test_rows: int) -> Part:
    """Return a set's training rows and some test rows, both in random order, labels ±1."""
    if name == "COVTYPE":
        parts = _data.covtype(min(most_rows, COVTYPE_ROWS))
    else:
        parts = _data.zhou2016(name)
    X, y, X_test, y_test = parts
    rng = np.random.default_rng(0)
    train, test = rng.permutation(len(y))[:most_rows], rng.permutation(len(y_test))[:test_rows]
    y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    return Part(X[train], y[train], X_test[test], y_test[test], True)


def measure(name: str, model: str, most_rows: int, test_rows: int) -> dict[str, Any]:
    """Fit and score one model; called in a fresh interpreter.

    Returns
    -------
    dict
        score (accuracy in %), rows, features, fit and predict seconds, bytes of the pickled model;
        ours also points and the bytes of its model file.
    """
    part = rows_of(name, most_rows, test_rows)
    few = part._replace(X=part.X[:WARM_ROWS], y=part.y[:WARM_ROWS])
    MODELS[model].make(few).fit(few.X, few.y).predict(few.X_test[:WARM_ROWS])  # compiles
    machine = MODELS[model].make(part)
    start = time.perf_counter()
    machine.fit(part.X, part.y)
    fitted = time.perf_counter()
    predicted = machine.predict(part.X_test)
    end = time.perf_counter()
    cell = {
        "score": score_of(part, np.ravel(predicted)),
        "rows": len(part.y),
        "features": part.X.shape[1],
        "fit": fitted - start,
        "predict": end - fitted,
        "bytes": len(pickle.dumps(machine)),
    }
    if model == OURS:
        cell |= {"points": int(machine.n_support_), "kernel": str(machine.kernel_)}
        cell["file bytes"] = _file_bytes(machine)
    elif model == SVM:
        cell["points"] = len(machine[-1].support_)
    return cell


def _file_bytes(machine: Any) -> int:
    from leansvm import persistence

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.skops"
        persistence.save(machine, path)
        return path.stat().st_size


def table_row(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a cell as it is printed."""
    if cell["status"] != "ok":
        return {"rows": cell["status"]}
    return {
        "rows": cell["rows"],
        "accuracy [%]": round(cell["score"], 2),
        "fit [s]": round(cell["fit"], 2),
        "predict [s]": round(cell["predict"], 3),
        "points": cell.get("points", "-"),
        "pickled [kB]": round(cell["bytes"] / 1000),
        "file [kB]": round(cell["file bytes"] / 1000) if "file bytes" in cell else "-",
    }
