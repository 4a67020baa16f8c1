"""Microseconds to predict one row, and the bytes of a model file: 200 points, 20 features.

All candidates run in one process with one thread, in turns: `predict`, `Predictor` and three lines
of NumPy (which check nothing) for one model, `Predictor` for other kernels, SVC with its own
support vectors, and LightGBM where the interpreter (``--peer-python``) has it.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark, Summary
from ._isolated import run_isolated

POINTS, FEATURES, ROWS = 200, 20, 5_000
OWN, READY, PLAIN = "SparseLSSVC.predict", "Predictor", "plain NumPy"


def run(options: Options) -> Report:
    """Time single rows in a fresh process."""
    rounds, calls = options.pick((15, 500), (3, 50))
    found = run_isolated(
        "benchmarks.latency:measure",
        python=options.peer_python,
        threads=1,
        rounds=rounds,
        calls=calls,
    )
    if not found.ok:
        raise SkipBenchmark(f"the measuring process {found.status}")
    title = f"one row, {POINTS} points x {FEATURES} features, {rounds} rounds of {calls} calls"
    report = Report("latency", title, options)
    timings = {name: Summary(seconds) for name, seconds in found.value["seconds"].items()}
    report.add_timings("one row", timings)
    for name, seconds in timings.items():
        micro = Summary([1e6 * value for value in seconds.values])
        report.rows.append({"candidate": name, "one row [us]": f"{micro:.1f}"})
    sizes = _bytes_of(_fitted("rbf"))
    for what, size in sizes.items():
        report.rows.append({"candidate": what, "bytes": size})
    report.at_most("predict, us", 1e6 * timings[OWN].median, 150)
    report.at_most("Predictor, us", 1e6 * timings[READY].median, 20)
    report.at_most("model file, bytes", sizes["model file"], 60_000)
    report.notes += found.value["notes"]
    return report


def measure(rounds: int, calls: int) -> dict[str, Any]:
    """Return seconds by candidate and round, and notes."""
    from sklearn.svm import SVC

    X, y = _data()
    row = X[:1].copy()
    models = {kernel: _fitted(kernel) for kernel in ("rbf", "matern32", "laplacian")}
    candidates: dict[str, Callable[[], Any]] = {
        OWN: lambda: models["rbf"].predict(row),
        **{_name(kernel): _ready(model, row[0]) for kernel, model in models.items()},
        PLAIN: _plain(models["rbf"], row[0]),
    }
    svc, notes = SVC(gamma=0.05).fit(X, y), []
    candidates[f"SVC.predict, {len(svc.support_):,} support vectors"] = lambda: svc.predict(row)
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        notes.append("LightGBM is not there: pass --peer-python of an interpreter that has it")
    else:
        trees = LGBMClassifier(n_jobs=1, verbose=-1).fit(X, y)
        candidates["LightGBM.predict"] = lambda: trees.predict(row)
    return {"seconds": _in_turns(candidates, rounds, calls), "notes": notes}


def _data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, FEATURES))
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(ROWS) > 0).astype(int)


def _fitted(kernel: str) -> Any:
    from leansvm import SparseLSSVC

    model = SparseLSSVC(C=1.0, kernel=kernel, gamma=0.05, n_basis=POINTS, random_state=0)
    return model.fit(*_data())


def _name(kernel: str) -> str:
    return READY if kernel == "rbf" else f"{READY}, {kernel}"


def _ready(model: Any, row: Any) -> Callable[[], Any]:
    from leansvm import Predictor

    predictor = Predictor(model)
    return lambda: predictor.predict(row)


def _plain(model: Any, row: Any) -> Callable[[], Any]:
    """What a user would write by hand."""
    Z, gamma = model.support_vectors_, model.gamma_
    coef, b, classes = model.dual_coef_[0], model.intercept_[0], model.classes_

    def predict() -> Any:
        values = np.exp(-gamma * ((Z - row) ** 2).sum(axis=1))
        return classes[int(values @ coef + b > 0)]

    return predict


def _in_turns(
    candidates: dict[str, Callable[[], Any]], rounds: int, calls: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(-1, rounds):  # the first round warms up
        for name, call in candidates.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            if number >= 0:
                seconds[name].append((time.perf_counter() - start) / calls)
    return seconds


def _bytes_of(model: Any) -> dict[str, int]:
    from leansvm import persistence

    folder = Path(tempfile.mkdtemp())
    sizes = {}
    for what, keep in (("model file", False), ("model file, keep_state=True", True)):
        persistence.save(model.set_params(keep_state=keep), folder / "model.skops")
        sizes[what] = (folder / "model.skops").stat().st_size
    return sizes
