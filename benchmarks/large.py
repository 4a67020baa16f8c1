"""LSSVC at 20,000 rows, where KernelRidge crashes or needs one thread.

Threaded LAPACK Cholesky factorisations of large matrices end some interpreters with a signal,
so every candidate runs in a process of its own and with a time limit.
"""

from typing import Any

from ._data import ijcnn1
from ._harness import Options, Report, SkipBenchmark
from ._isolated import Outcome, measure, run_isolated
from ._machine import available_bytes

C, GAMMA = 100.0, 0.1
TIME_LIMIT = 600.0

# Name, arguments of fit_once, threads (None: as many as the libraries take).
CANDIDATES: tuple[tuple[str, dict[str, str], int | None], ...] = (
    ("LSSVC, cholesky", {"model": "LSSVC", "solver": "cholesky"}, None),
    ("LSSVC, auto", {"model": "LSSVC", "solver": "auto"}, None),
    ("KernelRidge", {"model": "KernelRidge"}, None),
    ("KernelRidge", {"model": "KernelRidge"}, 1),
)


def run(options: Options) -> Report:
    """Fit each candidate once."""
    n_rows = options.pick(20_000, 600)
    ijcnn1(1)  # skip here, not four times in the children
    needed = 2.2 * 8 * n_rows**2  # KernelRidge keeps the matrix and factors a copy
    free = available_bytes()
    if 0 < free < needed:
        raise SkipBenchmark(f"needs {needed / 1e9:.1f} GB of free memory, {free / 1e9:.1f} are")
    report = Report("large", f"{n_rows} rows of ijcnn1, one fit each", options)
    for name, arguments, threads in CANDIDATES:
        outcome = run_isolated(
            "benchmarks.large:fit_once",
            threads=threads,
            time_limit=TIME_LIMIT,
            n_rows=n_rows,
            **arguments,
        )
        report.rows.append(_row(name, threads, outcome))
    for row in report.rows[:2]:
        report.equals(f"{row['candidate']} finishes", row["outcome"], "ok")
    return report


def _row(name: str, threads: int | None, outcome: Outcome) -> dict[str, Any]:
    measured = outcome.value or {}
    return {
        "candidate": name,
        "threads": threads or "all",
        "outcome": outcome.status,
        "fit [s]": round(measured["seconds"], 2) if measured else "-",
        "peak [GB]": round(measured["peak_bytes"] / 1e9, 2) if measured else "-",
        "training accuracy": round(measured["accuracy"], 4) if measured else "-",
    }


def fit_once(model: str, n_rows: int, solver: str = "auto") -> dict[str, float]:
    """Fit one model; called in a fresh interpreter."""
    X, y, *_ = ijcnn1(n_rows)
    estimator = _estimator(model, solver)
    few = slice(None, None, max(1, len(y) // 300))
    estimator.fit(X[few], y[few])  # compilation and thread buffers are not the fit's
    measured = measure(lambda: estimator.fit(X, y))
    some = slice(0, 2_000)
    agree = (estimator.predict(X[some]) > 0) == (y[some] > 0)
    return {**measured, "accuracy": float(agree.mean())}


def _estimator(model: str, solver: str) -> Any:
    if model == "KernelRidge":
        from sklearn.kernel_ridge import KernelRidge

        return KernelRidge(alpha=1.0 / C, kernel="rbf", gamma=GAMMA)
    from leansvm import LSSVC

    return LSSVC(C=C, gamma=GAMMA, solver=solver)
