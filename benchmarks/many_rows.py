"""Default models on 30,000 rows and more: accuracy, seconds to fit and to predict, bytes to ship.

SparseLSSVC() with no argument on the features as they are, beside HistGradientBoosting, LightGBM
and SVC (on standardised features), all with their defaults, each fit in a process of its own. Our
fit and that of HistGradientBoosting draw rows at random: both are fitted with five seeds, accuracy
is the mean and every other number the median. Finished cells are kept in
results/many_rows-cells.json: start it again and it measures only what is missing, so a long run can
be cut into pieces. ``--rows 1000000`` adds the generated table at that size (one seed), and how
much longer its fit takes than at 100,000 rows.
"""

import pickle
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import _data
from ._cells import Cache, Cells, version_by
from ._harness import RESULTS, Options, Report
from ._isolated import measure as measured
from ._isolated import run_isolated
from ._tabular import BOOSTING, MODELS, OPTIONAL, OURS, WARM_ROWS, Part, score_of
from .phases import rows_of as generated

GENERATED, FEATURES = "generated", 20
SETS = ("SHUTTLE", "IJCNN", "COVTYPE", "ADULT")
TABLES = (GENERATED, *SETS)
SVM = "SVC/SVR"
PEERS = (OURS, BOOSTING, "LightGBM", SVM)
GENERATED_ROWS, COVTYPE_ROWS, TEST_ROWS = 100_000, 30_000, 10_000
SEEDS = 5  # of the models that draw rows at random
TIME_LIMIT = 600.0
SECONDS, BYTES, GROWTH = 15.0, 1.5e9, 9.0  # of our fit; growth at ten times the rows
BEHIND, LEADS = -0.2, 3  # points of accuracy behind boosting at most; tables where not behind


def run(options: Options) -> Report:
    """Measure what is missing, then print all of it."""
    most_rows, test_rows = options.pick((10**9, TEST_ROWS), (600, 300))
    cells = Cache(RESULTS / f"many_rows-cells{'-quick' if options.quick else ''}.json")
    versions = {model: version_by(model, options) for model in PEERS}
    sets = [name for name in TABLES if name in (options.sets or TABLES)]
    sets += [f"{GENERATED} {options.rows}"] if options.rows else []
    if any(not name.startswith(GENERATED) for name in sets):
        rows_of("SHUTTLE", 1, 1)  # skip here, not in each of the children
    wanted = [
        (name, seed, model)
        for model in PEERS
        for name in sets
        if versions[model] != "not installed" and model in (options.models or PEERS)
        # its time grows with the square of the rows
        if not (model == SVM and name.startswith(GENERATED))
        for seed in range(options.pick(seeds_of(name, model), 1))
    ]
    for name, seed, model in cells.missing(wanted, versions):
        outcome = run_isolated(
            "benchmarks.many_rows:measure",
            python=options.peer_python if model in OPTIONAL else None,
            time_limit=TIME_LIMIT,
            name=name,
            model=model,
            seed=seed,
            most_rows=most_rows,
            test_rows=test_rows,
        )
        cells.keep(name, seed, model, versions[model], outcome)
    report = Report("many_rows", f"default models, {test_rows:,} test rows", options)
    found = by_set(cells.chosen(wanted))
    for (name, model), cell in found.items():
        report.rows.append({"set": name, "model": model} | table_row(cell))
    _judge(report, found, sets)
    report.notes += [f"{model}: {found}" for model, found in versions.items() if model != OURS]
    return report


def seeds_of(name: str, model: str) -> int:
    """Return how many seeds a model is fitted with on one set."""
    return SEEDS if model in (OURS, BOOSTING) and name in TABLES else 1


def by_set(cells: Cells) -> dict[tuple[str, str], dict[str, Any]]:
    """Unite the seeds of each set and model: the mean accuracy, the median of the other numbers.

    A fit that failed stands for all seeds.
    """
    seeds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key, cell in cells.items():
        name, _, model = key.split("/", 2)
        seeds.setdefault((name, model), []).append(cell)
    return {place: _united(found) for place, found in seeds.items()}


def _united(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    if failed := [cell for cell in seeds if cell["status"] != "ok"]:
        return failed[0]
    scores = [cell["score"] for cell in seeds]
    numbers = {
        name: statistics.median(cell[name] for cell in seeds)
        for name, value in seeds[0].items()
        if isinstance(value, int | float) and all(name in cell for cell in seeds)
    }
    return seeds[0] | numbers | {"score": statistics.fmean(scores), "scores": scores}


def _judge(report: Report, found: dict[tuple[str, str], dict[str, Any]], sets: list[str]) -> None:
    """State the targets of our fits, as far as they and boosting's came to an end."""
    ours = {name: found.get((name, OURS), {}) for name in sets}
    trees = {name: found.get((name, BOOSTING), {}) for name in sets}
    known = [name for name in TABLES if "memory" in ours.get(name, {}) and "score" in trees[name]]
    leads = [ours[name]["score"] - trees[name]["score"] for name in known]
    for name in known:
        report.at_most(f"{name}: fit [s]", ours[name]["fit"], SECONDS)
        report.at_most(f"{name}: memory [GB]", ours[name]["memory"] / 1e9, BYTES / 1e9)
    if known:
        report.at_least("tables not behind boosting", sum(lead >= 0 for lead in leads), LEADS)
        report.at_least("least lead over boosting [points]", min(leads), BEHIND)
    larger = [name for name in sets if name not in TABLES and "fit" in ours[name]]
    for name in larger if "fit" in ours.get(GENERATED, {}) else []:
        times = ours[name]["rows"] / ours[GENERATED]["rows"]
        growth = ours[name]["fit"] / ours[GENERATED]["fit"]
        report.at_most(f"{name}: seconds at {times:g} times the rows, ratio", growth, GROWTH)


def rows_of(name: str, most_rows: int, test_rows: int) -> Part:
    """Return a set's training rows and some test rows, both in random order, labels ±1."""
    if name.startswith(GENERATED):
        n = min(most_rows, int(name.partition(" ")[2] or GENERATED_ROWS))
        X, y = generated(n + TEST_ROWS, FEATURES)
        parts = X[:n], y[:n], X[n:], y[n:]
    elif name == "COVTYPE":
        parts = _data.covtype(min(most_rows, COVTYPE_ROWS))
    else:
        parts = _data.zhou2016(name)
    X, y, X_test, y_test = parts
    rng = np.random.default_rng(0)
    train, test = rng.permutation(len(y))[:most_rows], rng.permutation(len(y_test))[:test_rows]
    y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    return Part(X[train], y[train], X_test[test], y_test[test], True)


def measure(name: str, model: str, seed: int, most_rows: int, test_rows: int) -> dict[str, Any]:
    """Fit and score one model; called in a fresh interpreter.

    Returns
    -------
    dict
        score (accuracy in %), rows, features, fit and predict seconds, bytes of memory that the
        fit took beyond the rows, bytes of the pickled model;
        ours also points and the bytes of its model file.
    """
    part = rows_of(name, most_rows, test_rows)
    few = part._replace(X=part.X[:WARM_ROWS], y=part.y[:WARM_ROWS])
    MODELS[model].make(few).fit(few.X, few.y).predict(few.X_test[:WARM_ROWS])  # compiles
    machine = MODELS[model].make(part)
    if "random_state" in machine.get_params():
        machine.set_params(random_state=seed)
    fit = measured(lambda: machine.fit(part.X, part.y))
    start = time.perf_counter()
    predicted = machine.predict(part.X_test)
    end = time.perf_counter()
    cell = {
        "score": score_of(part, np.ravel(predicted)),
        "rows": len(part.y),
        "features": part.X.shape[1],
        "fit": fit["seconds"],
        "memory": fit["peak_bytes"],
        "predict": end - start,
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
        "of each seed [%]": ", ".join(f"{score:.2f}" for score in cell["scores"]),
        "fit [s]": round(cell["fit"], 2),
        "memory [MB]": round(cell["memory"] / 1e6) if "memory" in cell else "-",
        "predict [s]": round(cell["predict"], 3),
        "points": cell.get("points", "-"),
        "pickled [kB]": round(cell["bytes"] / 1000),
        "file [kB]": round(cell["file bytes"] / 1000) if "file bytes" in cell else "-",
    }
