"""Groups, learning curves, merged and forgotten rows: from sums, and by refitting.

Generated rows, 10 features, two targets, weights; Gaussian kernel, random points. Refitting is one
fit for every fold (and size) at a single C, from sums it is all of them at 50 values of C. The
differences are relative, to the largest value for predictions. The sites of the federated fit are
Parquet files, arrays and Dask arrays (the local scheduler). Memory is that of one call above the
data, in a process of its own.
"""

import gc
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark, ratio, time_interleaved
from ._isolated import measure, run_isolated

ROWS, POINTS, GROUPS, FORGET = 50_000, 300, 10, 100
FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
BUDGETS = (50.0, 100.0, 400.0)
EXCESS = 1.2  # of the budget that a call may take
CALLS = ("state of rows", "fit_from_state", "groups", "learning curve")


def run(options: Options) -> Report:
    """Compare everything that sums give with refitting."""
    rows, points = options.pick((ROWS, POINTS), (2000, 50))
    report = Report("merging", f"{rows:,} rows, {points} points, 2 targets, weights", options)
    data = _rows(rows)
    _groups(report, data, points)
    _learning_curve(report, data, points)
    _forget(report, data, points)
    _federated(report, data, points)
    _memory(report)
    return report


def _rows(n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, two targets and weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 10))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    Y = np.column_stack([f, 10 * X[:, 3] + 50]) + 0.3 * rng.normal(size=(n_rows, 2))
    return X, Y, rng.uniform(0.5, 2.0, size=n_rows)


def _model(C: Any, points: Any, **parameters: Any) -> Any:
    from leansvm import SparseLSSVR

    key = "n_basis" if isinstance(points, int) else "basis"
    return SparseLSSVR(C, "rbf", gamma=0.05, **{key: points, "random_state": 0, **parameters})


def _error(model: Any, X: np.ndarray, Y: np.ndarray, s: np.ndarray, rows: np.ndarray) -> float:
    """Return the weighted mean squared error on some rows, summed over targets."""
    squares = (Y[rows] - model.predict(X[rows])) ** 2
    return float(np.average(squares, axis=0, weights=s[rows]).sum())


# ---------------------------------------------------------------------------- groups, curves


def _groups(report: Report, data: tuple[np.ndarray, ...], points: int) -> None:
    from leansvm.model_selection import KFoldSums, cross_val_from_sums

    X, Y, s = data
    groups = np.random.default_rng(1).integers(0, GROUPS, size=len(X))
    folds = KFoldSums(None, groups=groups)
    fitted = _model(folds, points).fit(X, Y, sample_weight=s)
    found = cross_val_from_sums(fitted)
    best = int(np.argmin(found.mean))

    def refit() -> np.ndarray:
        errors = []
        for group in range(GROUPS):
            rest, basis = groups != group, fitted.support_vectors_
            model = _model(found.best_C, basis).fit(X[rest], Y[rest], sample_weight=s[rest])
            errors.append(_error(model, X, Y, s, ~rest))
        return np.array(errors)

    def from_sums() -> Any:
        return _model(folds, fitted.support_vectors_).fit(X, Y, sample_weight=s)

    difference = np.abs(found.errors[:, best] / refit() - 1).max()
    _timed(report, f"{GROUPS} groups left out", refit, from_sums, difference)


def _learning_curve(report: Report, data: tuple[np.ndarray, ...], points: int) -> None:
    from leansvm.model_selection import learning_curve_from_sums
    from leansvm.rows import Block, row_hashes

    X, Y, s = data
    basis = _model(1.0, points).fit(X, Y, sample_weight=s).support_vectors_
    hashes = row_hashes(Block(0, len(X), X, Y, None))
    fold, place = hashes % np.uint64(5), (hashes >> np.uint64(11)).astype(float) * 2.0**-53

    def from_sums() -> Any:
        return learning_curve_from_sums(
            _model("gcv", basis), X, Y, fractions=FRACTIONS, sample_weight=s
        )

    curve = from_sums()

    def refit() -> np.ndarray:
        errors = np.zeros_like(curve.test_errors)
        for k, share in enumerate(FRACTIONS):
            for f in range(5):
                rows = (fold != f) & (place < share)
                model = _model(curve.C[k], basis).fit(X[rows], Y[rows], sample_weight=s[rows])
                errors[k, f] = _error(model, X, Y, s, fold == f)
        return errors

    difference = np.abs(curve.test_errors / refit() - 1).max()
    _timed(report, f"learning curve, {len(FRACTIONS)} sizes, 5 folds", refit, from_sums, difference)


def _timed(report: Report, what: str, refit: Any, from_sums: Any, difference: float) -> None:
    """Add a row: seconds of both ways, their ratio, and how much the results differ."""
    repeats = report.options.pick(3, 1)
    timings = time_interleaved({"refit": refit, "sums": from_sums}, repeats=repeats, warmup=1)
    report.add_timings(what, timings)
    faster = ratio(timings["refit"], timings["sums"])
    report.rows.append(
        {
            "what": what,
            "refitting [s]": timings["refit"].median,
            "from sums [s]": timings["sums"].median,
            "times faster": faster.median,
            "relative difference": float(difference),
        }
    )
    report.at_most(f"{what}: relative difference", float(difference), 1e-8)


# ---------------------------------------------------------------------------- states


def _difference(a: Any, b: Any, X: np.ndarray) -> float:
    expected = b.predict(X)
    return float((np.abs(a.predict(X) - expected).max(axis=0) / np.abs(expected).max(axis=0)).max())


def _forget(report: Report, data: tuple[np.ndarray, ...], points: int) -> None:
    X, Y, s = data
    model = _model("kfold", points).fit(X, Y, sample_weight=s)
    gone = np.setdiff1d(np.arange(len(X)), model.support_)[:FORGET]
    rest = np.setdiff1d(np.arange(len(X)), gone)

    def from_sums() -> Any:
        state = model.state() - model.state(X[gone], Y[gone], s[gone])
        return _model("kfold", points).fit_from_state(state)

    def refit() -> Any:
        again = _model("kfold", model.support_vectors_)
        return again.fit(X[rest], Y[rest], sample_weight=s[rest])

    difference = _difference(from_sums(), refit(), X[:2000])
    _timed(report, f"{FORGET} rows forgotten", refit, from_sums, difference)


def _federated(report: Report, data: tuple[np.ndarray, ...], points: int) -> None:
    """Four sites with files, arrays and Dask arrays; the pooled fit has all files."""
    try:
        import pandas as pd
        import pyarrow
        from dask import array as dask_array
        from pyarrow import parquet
    except ImportError as error:
        raise SkipBenchmark(f"merging needs pandas, pyarrow and dask: {error}") from error
    import leansvm

    X, Y, s = data
    names = [f"x{j}" for j in range(X.shape[1])]
    with tempfile.TemporaryDirectory(prefix="leansvm-sites-") as folder:
        paths = [Path(folder, f"site-{k}.parquet") for k in range(4)]
        sites = np.array_split(np.arange(len(X)), 4)
        for path, rows in zip(paths, sites, strict=True):
            columns = dict(zip(names, X[rows].T, strict=True))
            columns |= {"a": Y[rows, 0], "b": Y[rows, 1], "w": s[rows]}
            parquet.write_table(pyarrow.table(columns), path)

        def opened(source: Any) -> Any:
            return leansvm.open_dataset(source, target=["a", "b"], sample_weight="w")

        public = np.random.default_rng(9).normal(size=(2000, X.shape[1]))
        plan = _model(1.0, points).fit(public, public[:, :2]).state().empty()
        pooled = _model("kfold", plan.points).fit(X, Y, sample_weight=s)
        site = _model("kfold", points).fit_from_state(plan)
        chunk = max(len(X) // 10, 1)
        states = {
            "files": [site.state(opened(path)) for path in paths],
            "memory": [site.state(X[rows], Y[rows], s[rows]) for rows in sites],
            "Dask": [
                site.state(*(dask_array.from_array(part[rows], chunks=chunk) for part in data))
                for rows in sites
            ],
        }
        pooled_files = _model("kfold", plan.points).fit(opened(paths))
        frame = pd.DataFrame(X[:2000], columns=names)
        apart = np.abs(pooled_files.predict(frame) - pooled.predict(X[:2000])).max()
        report.notes.append(f"pooled from files and from memory differ by {apart:.1e}")
    for place, parts in states.items():
        merged = _model("kfold", points).fit_from_state(sum(parts))
        difference = _difference(merged, pooled, X[:2000])
        report.rows.append({"what": f"federated, {place}", "relative difference": difference})
        report.at_most(f"federated over four sites, {place}: difference", difference, 1e-10)


# ---------------------------------------------------------------------------- memory


def _memory(report: Report) -> None:
    for call in CALLS:
        for budget in report.options.pick(BUDGETS, BUDGETS[:1]):
            outcome = run_isolated("benchmarks.merging:peak", call=call, budget=budget, threads=2)
            found = outcome.value or {"outcome": outcome.status}
            report.rows.append({"what": f"{call}, cache_size={budget:g} MB", **found})
            report.equals(f"{call}, {budget:g} MB", outcome.status, "ok")
            if outcome.ok:
                used = found["MB above the data"] / budget
                report.at_most(f"{call}: peak / {budget:g} MB", used, EXCESS)


def peak(call: str, budget: float) -> dict[str, Any]:
    """Return the megabytes that a call takes above the data, in this process."""
    from leansvm.model_selection import KFoldSums, cross_val_from_sums, learning_curve_from_sums

    X, Y, s = _rows(40_000)
    few = slice(0, 400)
    small = _model("kfold", 20, cache_size=budget).fit(X[few], Y[few])
    fitted = _model("kfold", POINTS).fit(X[:5000], Y[:5000]).set_params(cache_size=budget)
    plain = _model(1.0, POINTS, cache_size=budget)
    groups = KFoldSums(None, groups=np.arange(len(X)) % GROUPS)
    calls = {
        "state of rows": lambda: fitted.state(X, Y, s),
        "fit_from_state": lambda: small.fit_from_state(fitted.state()),
        "groups": lambda: cross_val_from_sums(plain, X, Y, folds=groups, sample_weight=s),
        "learning curve": lambda: learning_curve_from_sums(
            plain, X, Y, fractions=FRACTIONS, sample_weight=s
        ),
    }
    small.state(X[few], Y[few])  # imports, compiled code, threads
    learning_curve_from_sums(_model(1.0, 20, cache_size=budget), X[few], Y[few])
    outcome = ["done"]

    def run_or_refuse() -> None:
        try:
            calls[call]()
        except MemoryError as error:
            outcome[0] = f"refused: {error}"

    gc.collect()
    found = measure(run_or_refuse)
    return {"outcome": outcome[0], "MB above the data": found["peak_bytes"] / 2**20}
