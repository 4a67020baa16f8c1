"""Answers of a fit without another fit: intervals, label errors, partial dependence.

- intervals of 10,000 rows by 10,000 training rows and 500 points: seconds and memory;
- 5 % of the labels changed: how many of the most suspicious 5 % of the rows are these, beside a
  ranking by scikit-learn's out-of-fold decision values of the same model;
- partial dependence of all features beside scikit-learn's: seconds and largest difference.
"""

from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark, ratio, time_interleaved
from ._isolated import measure, run_isolated
from ._tabular import folder

LABEL_SETS = ("letter", "optdigits", "satimage", "segment", "magic", "banana")
LABEL_ROWS = 5000  # at most
FLIPPED = 0.05
SEPARATE = ("rbf", "laplacian", "chi2")
KERNELS = (*SEPARATE, "matern12", "matern32", "matern52", "poly", "sigmoid", "cosine", "linear")


def run(options: Options) -> Report:
    """Run the three parts."""
    report = Report("answers", "intervals, label errors, partial dependence", options)
    _intervals(report)
    _dependence(report)
    try:
        _label_errors(report)
    except SkipBenchmark as reason:
        report.notes.append(f"no label errors: {reason}")
    return report


# ---------------------------------------------------------------------------- intervals


def _intervals(report: Report) -> None:
    rows, points = report.options.pick((10_000, 500), (1000, 50))
    outcome = run_isolated("benchmarks.answers:intervals", rows=rows, points=points)
    report.equals("intervals", outcome.status, "ok")
    if outcome.ok:
        report.rows.append(
            {"what": f"jackknife+, {rows:,} x {rows:,}, {points} points"} | outcome.value
        )
        report.at_most("intervals: seconds", outcome.value["seconds"], 5.0)
        report.at_most("intervals: MB above the data", outcome.value["MB"], 200.0)


def intervals(rows: int, points: int) -> dict[str, Any]:
    """Measure the first call after a fit, in this process."""
    from leansvm import SparseLSSVR

    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(rows, 10)), rng.normal(size=(rows, 10))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=rows)
    model = SparseLSSVR(kernel="rbf", gamma="scale", n_basis=points, random_state=0).fit(X, y)
    model.predict_interval(X_new[:10])
    model._answers = None  # what the first call worked out
    found = measure(lambda: model.predict_interval(X_new))
    return {"seconds": found["seconds"], "MB": found["peak_bytes"] / 2**20}


# ---------------------------------------------------------------------------- partial dependence


def _dependence(report: Report) -> None:
    from sklearn.inspection import partial_dependence

    from leansvm import SparseLSSVR
    from leansvm.inspection import effects

    rows, points = report.options.pick((1000, 500), (200, 50))
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 2.0, size=(rows, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    for kernel in KERNELS:
        model = SparseLSSVR(1.0, kernel, gamma=0.3, coef0=1.0, n_basis=points, random_state=0)
        model.fit(X, y)
        timings = time_interleaved(
            {
                "ours": lambda m=model: effects(m, X, pairs=[]),
                "sklearn": lambda m=model: [partial_dependence(m, X, [f]) for f in range(8)],
            },
            repeats=report.options.pick(3, 1),
        )
        report.add_timings(kernel, timings)
        found = effects(model, X, pairs=[])
        theirs = [partial_dependence(model, X, [f])["average"] for f in range(8)]
        error = max(np.abs(a - b).max() for a, b in zip(found.average, theirs, strict=True))
        faster = ratio(timings["sklearn"], timings["ours"]).median
        report.rows.append(
            {"what": f"effects, {kernel}", "seconds": timings["ours"].median}
            | {"sklearn [s]": timings["sklearn"].median, "times faster": faster, "error": error}
        )
        report.at_most(f"{kernel}: difference from scikit-learn", error, 1e-8)
        report.at_least(f"{kernel}: times faster", faster, 20.0 if kernel in SEPARATE[:2] else 5.0)


# ---------------------------------------------------------------------------- label errors


def _label_errors(report: Report) -> None:
    names = [name for name in LABEL_SETS if (folder() / f"{name}.npz").exists()]
    ours, theirs, shares = [], [], []
    for name in names[: report.options.pick(len(names), 1)]:
        found = _flip_and_find(name, report.options.pick(LABEL_ROWS, 400))
        report.rows.append({"what": f"label errors, {name}"} | found)
        ours.append(found["precision"])
        theirs.append(found["out of fold"])
        shares.append(found["seconds"] / found["sklearn [s]"])
    report.at_least("label errors: precision", float(np.mean(ours)), 0.6)
    gain = float(np.mean(ours) - np.mean(theirs))
    report.at_least("label errors: precision - that out of fold", gain, 0.0)
    report.at_most("label errors: time / that of five folds", float(np.mean(shares)), 1 / 3)


def _flip_and_find(name: str, most_rows: int) -> dict[str, float]:
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    from leansvm import SparseLSSVC
    from leansvm.inspection import inspect_rows

    with np.load(folder() / f"{name}.npz", allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1]
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:most_rows]
    X, y, count = X[rows], y[rows], int(FLIPPED * len(rows))
    wrong = rng.choice(len(y), count, replace=False)
    n_classes = y.max() + 1
    y[wrong] = (y[wrong] + rng.integers(1, n_classes, count)) % n_classes
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = SparseLSSVC(random_state=0)
    inspect_rows(model.fit(X[:300], y[:300]), X[:300], y[:300])  # compiles
    timings = time_interleaved(
        {
            "ours": lambda: inspect_rows(model.fit(X, y), X, y).most_suspicious(count),
            "sklearn": lambda: np.argsort(
                _margins(cross_val_predict(model, X, y, cv=folds, method="decision_function"), y)
            )[:count],
        },
        repeats=1,
        warmup=0,
        keep=lambda found: float(np.isin(found, wrong).mean()),
    )
    return {
        "seconds": timings["ours"].median,
        "sklearn [s]": timings["sklearn"].median,
        "precision": timings["ours"].kept[0],
        "out of fold": timings["sklearn"].kept[0],
    }


def _margins(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the decision value of every row's class less the largest of the others."""
    values = np.column_stack([-values, values]) if values.ndim == 1 else values.copy()
    rows = np.arange(len(y))
    own = values[rows, y]
    values[rows, y] = -np.inf
    return own - values.max(axis=1)
