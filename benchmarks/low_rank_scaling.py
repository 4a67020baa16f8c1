"""Time of LowRankLSSVC against the number of rows, and scikit-learn's SVC on fewer of them.

Eight features, five functions, 100 iterations. Labels are noisy (a fifth of them is flipped), as
they are where people have a million rows; that is what makes SVC slow.
"""

import time
import warnings

import numpy as np

from ._harness import Options, Report
from ._isolated import measure, run_isolated

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (500, 1_000, 2_000)
KINDS = {
    "abs": {"objective": "abs", "iterate": "last"},
    "loss": {"tol": 0.0, "n_iter_no_change": 1_000},
}
ITERATIONS, FUNCTIONS, FEATURES = 100, 5, 8


def run(options: Options) -> Report:
    """Fit all sizes in one process, the largest and SVC in processes of their own."""
    report = Report("low_rank_scaling", "LowRankLSSVC: time and memory by rows, SVC", options)
    sizes = options.pick(SIZES, QUICK_SIZES)
    largest = {}
    for kind in KINDS:
        seconds = []
        for n_rows in sizes:
            outcome = run_isolated("benchmarks.low_rank_scaling:fit_once", kind=kind, n_rows=n_rows)
            if not outcome.ok:
                raise RuntimeError(outcome.status)
            seconds.append(outcome.value["seconds"])
            report.rows.append(_row(f"LowRankLSSVC, {kind}", n_rows, outcome.value))
        # the slope where the rows, not fixed costs, take the time, and over the whole range
        for first, label in ((0, "all sizes"), (-2, "the largest two")):
            slope = np.polyfit(np.log(sizes[first:]), np.log(seconds[first:]), 1)[0]
            report.at_most(f"{kind}: exponent of time by rows, {label}", float(slope), 1.1)
        largest[kind] = outcome.value
        floor = 8 * sizes[-1] * FUNCTIONS
        report.at_most(
            f"{kind}: memory beside the data / (8 N M) at {sizes[-1]:,} rows",
            outcome.value["peak_bytes"] / floor,
            6.0,
        )
    n_svc = options.pick(50_000, 2_000)
    outcome = run_isolated("benchmarks.low_rank_scaling:fit_svc", n_rows=n_svc)
    if not outcome.ok:
        raise RuntimeError(outcome.status)
    report.rows.append(_row("SVC", n_svc, outcome.value))
    for kind, value in largest.items():
        report.at_most(
            f"{kind}: seconds of {sizes[-1]:,} rows / seconds of SVC on {n_svc:,}",
            value["seconds"] / outcome.value["seconds"],
            1.0,
        )
    return report


def _row(name: str, n_rows: int, value: dict[str, float]) -> dict[str, object]:
    return {
        "candidate": name,
        "rows": n_rows,
        "fit [s]": round(value["seconds"], 3),
        "beside the data [MB]": round(value["peak_bytes"] / 1e6, 1),
        "test accuracy": round(value["accuracy"], 4),
        "support": value["support"],
    }


def rows(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of eight features whose labels depend on four of them, a fifth flipped."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, FEATURES))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] - np.abs(X[:, 3]) + 0.8
    return X, np.where(rng.random(n_rows) < 0.2, -1, 1) * np.where(f > 0, 1, -1)


def _measured(model: object, n_rows: int) -> dict[str, float]:
    X, y = rows(n_rows)
    value = measure(lambda: model.fit(X, y))
    X_test, y_test = rows(2_000, seed=1)
    return {**value, "accuracy": float(model.score(X_test, y_test))}


def fit_once(kind: str, n_rows: int) -> dict[str, float]:
    """Fit one model; called in a fresh interpreter."""
    from leansvm import LowRankLSSVC

    warnings.simplefilter("ignore")  # 100 iterations are what is measured
    model = LowRankLSSVC(n_basis=FUNCTIONS, max_iter=ITERATIONS, random_state=0, **KINDS[kind])
    model.fit(*rows(300))  # compilation and thread buffers are not the fit's
    time.sleep(0.1)
    return {**_measured(model, n_rows), "support": FUNCTIONS}


def fit_svc(n_rows: int) -> dict[str, float]:
    """Fit scikit-learn's SVC; called in a fresh interpreter."""
    from sklearn.svm import SVC

    model = SVC(cache_size=1_000)
    return {**_measured(model, n_rows), "support": int(model.n_support_.sum())}
