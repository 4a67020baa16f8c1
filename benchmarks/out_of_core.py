"""Rows per second and peak memory of a fit from Parquet, beside the same fit in memory.

Generated rows, 20 features in float32, 500 random basis points, C by generalised cross-validation;
Parquet as pyarrow writes it by default, in files of a million rows. A fit goes over the rows five
times (missing numbers, variance twice, basis points, sums) and over the target alone twice. The
in-memory fit (the median of three) has fewer rows, which its time is proportional to.
`--rows` says how many rows are written, seeded and a million at once; they go to a folder of their
own in `TMPDIR`, 0.13 GB for a million, which is deleted at the end.
"""

import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from ._harness import Options, Report, SkipBenchmark
from ._isolated import run_isolated

FEATURES, BASIS = 20, 500
ROWS, IN_MEMORY, FILE_ROWS = 20_000_000, 1_000_000, 1_000_000
QUICK_ROWS = 40_000
GIGABYTE = 1e9
ROW_BYTES = 130  # of a file; numbers of normal rows cannot be compressed
TIME_LIMIT = 3600.0


def run(options: Options) -> Report:
    """Write the files, fit from them and from memory, each in a process of its own."""
    report = Report("out_of_core", "SparseLSSVC from Parquet files and from memory", options)
    rows, in_memory = options.pick((ROWS, IN_MEMORY), (QUICK_ROWS, QUICK_ROWS))
    if options.rows is not None:
        rows, in_memory = options.rows, min(options.rows, IN_MEMORY)
    with tempfile.TemporaryDirectory(prefix="leansvm-rows-") as folder:
        free = shutil.disk_usage(folder).free
        if free < ROW_BYTES * rows:
            needed = ROW_BYTES * rows / GIGABYTE
            raise SkipBenchmark(f"the files need {needed:.1f} GB in TMPDIR")
        _call("write", folder=folder, n_rows=rows)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        memory = _call("fit_memory", n_rows=in_memory)
        files = _call("fit_files", folder=folder)
    for name, found in (("in memory", memory), ("Parquet", files)):
        report.rows.append({"rows from": name, "files, GB": size / 1e9, **found})
    report.at_least(
        f"rows per second from Parquet ({rows:,}) / in memory ({in_memory:,})",
        files["rows per second"] / memory["rows per second"],
        0.6,
    )
    report.at_most(f"peak resident memory, GB, {rows:,} rows", files["peak RSS, GB"], 1.5)
    report.at_least("accuracy from Parquet less that in memory", _gain(files, memory), -0.005)
    return report


def _gain(files: dict[str, float], memory: dict[str, float]) -> float:
    return files["accuracy"] - memory["accuracy"]


def _call(function: str, **arguments: object) -> dict[str, float]:
    name = f"benchmarks.out_of_core:{function}"
    outcome = run_isolated(name, time_limit=TIME_LIMIT, **arguments)
    if not outcome.ok:
        raise RuntimeError(outcome.status)
    return outcome.value


def _rows(seed: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, FEATURES), dtype=np.float32)
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n_rows)
    return X, (f > 0).astype(np.int8)


def write(folder: str, n_rows: int) -> None:
    """Write files of up to a million rows."""
    import pyarrow
    from pyarrow import parquet

    for i, start in enumerate(range(0, n_rows, FILE_ROWS)):
        X, y = _rows(i, min(FILE_ROWS, n_rows - start))
        columns = {f"x{j:02}": X[:, j] for j in range(FEATURES)}
        parquet.write_table(pyarrow.table(columns | {"y": y}), Path(folder, f"{i:03}.parquet"))


def _model() -> object:
    from leansvm import SparseLSSVC

    return SparseLSSVC("gcv", gamma="scale", n_basis=BASIS, random_state=0)


def _found(model: object, n_rows: int, seconds: float) -> dict[str, float]:
    # threads and the kernel have done their part by then: the record of the whole process
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIGABYTE
    X, y = _rows(10_000, 20_000)
    phases = {f"{name}, s": spent for name, spent in model.fit_report_["seconds"].items()}
    import pandas as pd

    names = getattr(model, "feature_names_in_", None)
    accuracy = float(
        np.mean(model.predict(X if names is None else pd.DataFrame(X, columns=names)) == y)
    )
    return {
        "rows": n_rows,
        "seconds": seconds,
        "rows per second": n_rows / seconds,
        "peak RSS, GB": peak,
        "accuracy": accuracy,
        **phases,
    }


def fit_memory(n_rows: int) -> dict[str, float]:
    """Fit on arrays with the first rows of the files."""
    parts = [
        _rows(i, min(FILE_ROWS, n_rows - i * FILE_ROWS)) for i in range(-(-n_rows // FILE_ROWS))
    ]
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    model = _model()
    model.fit(X[:20_000], y[:20_000])  # threads, BLAS and imports are there
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - start)
    return _found(model, n_rows, statistics.median(seconds))


def fit_files(folder: str) -> dict[str, float]:
    """Fit on the files; opening them is part of it."""
    import leansvm

    model = _model()
    X, y = _rows(0, 20_000)
    model.fit(X, y)
    start = time.perf_counter()
    data = leansvm.open_dataset(folder, target="y")
    model.fit(data)
    return _found(model, data.n_rows, time.perf_counter() - start)
