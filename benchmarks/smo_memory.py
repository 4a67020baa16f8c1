"""LSSVC by 2SMO with a row cache of 200 MB where the kernel matrix would take 20 GB."""

from typing import Any

from ._data import standardised_covtype
from ._harness import Options, Report
from ._isolated import measure, run_isolated

SETTINGS = {"C": 1.0, "gamma": 1.0, "bias_penalty": 1e4, "solver": "smo"}
TOL = 1e-3


def run(options: Options) -> Report:
    """Fit in a process of its own, whose peak memory is its own."""
    rows = options.pick(50_000, 3000)
    cache_size = options.pick(200.0, 12.0)
    standardised_covtype(10)  # skips without the data
    report = Report("smo_memory", f"2SMO on {rows:,} rows, cache of {cache_size:g} MB", options)
    outcome = run_isolated("benchmarks.smo_memory:fit", rows=rows, cache_size=cache_size)
    report.equals(f"2SMO, {rows:,} rows", outcome.status, "ok")
    if outcome.ok:
        found = outcome.value
        report.rows.append({"data": f"covtype {rows} × 54", "solver": "2SMO", **found})
        report.at_most("peak memory / cache_size", found["peak [MB]"] / cache_size, 1.25)
        report.at_most("relative residual", found["relative residual"], TOL)
        report.notes.append(f"the kernel matrix would take {8e-9 * rows**2:.1f} GB")
    return report


def fit(rows: int, cache_size: float) -> dict[str, Any]:
    """Fit standardised rows of covtype, class 2 against the rest, in this process."""
    from leansvm import LSSVC

    X, y = standardised_covtype(rows)
    LSSVC(**SETTINGS, cache_size=1.0).fit(X[:400], y[:400])  # compiled code is not the fit's
    model = LSSVC(**SETTINGS, cache_size=cache_size, tol=TOL)
    measured = measure(lambda: model.fit(X, y))
    report = model.fit_report_
    return {
        "sweeps": report["iterations"],
        "rows kept": report["cached_rows"],
        "rows computed": report["computed_rows"],
        "fit [s]": measured["seconds"],
        "peak [MB]": measured["peak_bytes"] / 2**20,
        "relative residual": report["residual"],
    }
