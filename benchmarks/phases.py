"""Where the time of a default fit goes, phase by phase, and the floor of each phase.

A floor is what the phase cannot avoid: its flops at the speed of a matrix product of the same
precision, or its bytes at the speed of memory, whichever takes longer; both speeds are measured in
the same run. The counts are those of docs/cost_model.md, where a full run puts its table. Beside
it: the seconds of a small model of one learned kernel, which is made where a second counts.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from ._harness import Options, Report, time_interleaved
from ._isolated import run_isolated
from ._roofline import put_between

PAGE = Path(__file__).parents[1] / "docs" / "cost_model.md"
CASES = ((10_000, 10), (100_000, 20), (1_000_000, 20))
QUICK_CASES = ((600, 5), (1_500, 5))
TIME_LIMIT = 900.0
LEAN = {"kernel": "matern32", "n_basis": 500}
LEAN_CASE, QUICK_LEAN_CASE, LEAN_SECONDS = (10_000, 10), (1_500, 5), 1.0

SAMPLE = 10_000  # rows on which sizes are compared
SEARCHED, LOO_LOSSES = 3, 2_000  # values of C in the shortest search, and rows that judge them
ENTRY = 30  # flops of one kernel value beside its product: distance, root, exponential
EVALUATION = 7.5  # flops of learning for a row and a pair of points, gradient included


def run(options: Options) -> Report:
    """Measure the speeds of this machine, then each fit in a process of its own."""
    report = Report("phases", "default SparseLSSVC: measured seconds / floor, by phase", options)
    speeds = measured_speeds(options.pick(3000, 1500), options.pick(5, 2))
    for rows, features in options.pick(CASES, QUICK_CASES):
        outcome = run_isolated(
            "benchmarks.phases:measure", time_limit=TIME_LIMIT, rows=rows, features=features
        )
        name = f"{rows:,} × {features}"
        if not outcome.ok:
            report.add_row({"rows": name, "phase": outcome.status})
            continue
        floors = floors_of(rows, features, outcome.value, speeds)
        for phase, floor in floors.items():
            report.add_row({"rows": name} | table_row(phase, outcome.value["seconds"], floor))
    _time_lean(report)
    report.notes.append(
        f"float32 {speeds['float32'] / 1e9:.0f} GFlop/s, float64 {speeds['float64'] / 1e9:.0f} "
        f"GFlop/s, memory {speeds['bytes'] / 1e9:.1f} GB/s"
    )
    if not options.quick:
        content = f"{report.notes[-1]}.\n\n{_markdown(report.rows)}"
        PAGE.write_text(put_between(PAGE.read_text("utf-8"), "phases", content), encoding="utf-8")
    return report


def _time_lean(report: Report) -> None:
    """Time a small model of one learned kernel, in a process of its own."""
    rows, features = report.options.pick(LEAN_CASE, QUICK_LEAN_CASE)
    outcome = run_isolated("benchmarks.phases:lean", rows=rows, features=features)
    if not outcome.ok:
        raise RuntimeError(outcome.status)
    what = f"SparseLSSVC(kernel='matern32', n_basis=500), {rows:,} × {features}"
    report.notes.append(f"{what}: {outcome.value['learn']:.2f} s of it learning")
    report.at_most(f"{what} [s]", outcome.value["seconds"], LEAN_SECONDS)


def lean(rows: int, features: int, repeats: int = 5) -> dict[str, float]:
    """Return the median seconds of a fit and of its learning; called in a fresh process."""
    from leansvm import SparseLSSVC

    X, y = rows_of(rows, features)
    SparseLSSVC(**LEAN, random_state=0).fit(X[:600], y[:600])
    seconds, learn = [], []
    for _ in range(repeats):
        time.sleep(0.1)
        start = time.perf_counter()
        model = SparseLSSVC(**LEAN, random_state=0).fit(X, y)
        seconds.append(time.perf_counter() - start)
        learn.append(model.fit_report_["seconds"]["learn"])
    return {"seconds": statistics.median(seconds), "learn": statistics.median(learn)}


def measured_speeds(n: int, rounds: int) -> dict[str, float]:
    """Return flop/s of a matrix product in both precisions, and bytes/s of a copy."""
    rng = np.random.default_rng(0)
    double = rng.standard_normal((n, n))
    single, there = double.astype(np.float32), np.empty_like(double)
    timings = time_interleaved(
        {
            "float32": lambda: single @ single,
            "float64": lambda: double @ double,
            "bytes": lambda: np.copyto(there, double),
        },
        repeats=rounds,
    )
    best = {name: min(summary.values) for name, summary in timings.items()}
    work = {"float32": 2.0 * n**3, "float64": 2.0 * n**3, "bytes": 2.0 * double.nbytes}
    return {name: work[name] / best[name] for name in work}


def rows_of(rows: int, features: int) -> tuple[Any, Any]:
    """Return normal rows and two classes: sin 2x0 + x1 x2 + x3 > 0, 5 % of them flipped."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    positive = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3] > 0
    return X, (positive ^ (rng.random(rows) < 0.05)).astype(np.int64)


def measure(rows: int, features: int) -> dict[str, Any]:
    """Fit once, after a fit of few rows that loads what is compiled; called in a fresh process."""
    from leansvm import SparseLSSVC
    from leansvm.learning.search import FIRST  # nearly all evaluations are on its small sample

    X, y = rows_of(rows, features)
    SparseLSSVC(random_state=0).fit(X[:500], y[:500])
    model = SparseLSSVC(random_state=0).fit(X, y)
    report, learning = model.fit_report_, model.fit_report_["learning"]
    seconds = report["seconds"]
    return {
        "points": int(model.n_support_),
        "learning": {
            "rows": min(learning["rows"], FIRST.rows),
            "points": min(learning["points"], FIRST.points),
            "evaluations": learning["evaluations"],
        },
        "seconds": {
            "learning": seconds.get("learn", 0.0),
            "sizes": seconds.get("select", 0.0) + seconds.get("sizes", 0.0),
            "pass": seconds.get("factor", 0.0) + seconds.get("sums", 0.0),
            "solve": seconds.get("solve", 0.0),
        },
    }


def floors_of(
    rows: int, features: int, fit: dict[str, Any], speeds: dict[str, float]
) -> dict[str, float]:
    """Return the least seconds of every phase.

    Parameters
    ----------
    rows, features : int
        Of the table.
    fit : dict
        What `measure` returned: points, and what learning looked at.
    speeds : dict
        Of `measured_speeds`.

    Returns
    -------
    dict of str to float
        Up to `SAMPLE` rows the comparison of sizes is the pass over all of them: no second one.
    """
    r, learned = fit["points"], fit["learning"]
    evaluation = EVALUATION * learned["rows"] * learned["points"] ** 2

    def visited(n: int) -> float:
        """Kernel, whitening and Gram of n rows in float32; rows are read, columns written."""
        flops = n * r * (2 * features + ENTRY) + 2 * n * r * r
        return max(flops / speeds["float32"], (8 * n * features + 4 * n * r) / speeds["bytes"])

    candidate = r**3 / 3 + min(rows, LOO_LOSSES) * r**2
    return {
        "learning": learned["evaluations"] * evaluation / speeds["float32"],
        "sizes": visited(min(rows, SAMPLE)),
        "pass": visited(rows) if rows > SAMPLE else 0.0,
        "solve": SEARCHED * candidate / speeds["float64"],
    }


def table_row(phase: str, seconds: dict[str, float], floor: float) -> dict[str, Any]:
    """Return a phase as it is printed."""
    share = seconds[phase] / max(sum(seconds.values()), 1e-9)
    return {
        "phase": phase,
        "measured [s]": f"{seconds[phase]:.2f}",
        "of the fit": f"{share:.0%}",
        "floor [s]": f"{floor:.2f}" if floor else "–",
        "measured / floor": f"{seconds[phase] / floor:.1f}" if floor else "–",
    }


def _markdown(rows: list[dict[str, Any]]) -> str:
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *([row.get(key, "") for key in header] for row in rows)]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
