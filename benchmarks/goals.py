"""Goals and what was measured, as the pages show them: parts that ``benchmarks.front`` fills in.

Everything comes from results/*.json and gpu/results/*.json, so no page repeats a number by hand.
`tabular` and `mixed` keep all their cells in a file, and their last run may have measured a part
of them only: they are judged again, by all cells.
"""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import mixed, tabular
from ._cells import MOST_ROWS, SPLITS, Cells, mean_of
from ._harness import RESULTS, Options, Report
from .tabular_figures import table

GPU = Path(__file__).parent / "gpu" / "results"
ONLY_THE_WORST = ("budgets",)  # too many goals of one kind
# one H200, `gpu.exact` and `gpu.large_basis`: seconds, accuracy in percent, difference from NumPy
EXACT_SECONDS, POINTS, POINTS_SECONDS, POINTS_ACCURACY, DIFFERENCE = 60, 16_000, 8, 91.2, 1e-6

Content = dict[str, Any]  # of a result file


def reports(folder: Path = RESULTS) -> list[Content]:
    """Return the result files that have goals, by name; those of quick runs have none."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    full = [report for report in found if report.get("targets") and not report["quick"]]
    return [_by_all_cells(folder, report) for report in full]


def _by_all_cells(folder: Path, report: Content) -> Content:
    """Return the report with the goals of all tables and splits, where the suite has more."""
    judges: dict[str, Callable[[Report, Cells], None]] = {
        "tabular": lambda judged, cells: tabular._judge(
            judged, cells, mean_of(cells, "score"), mean_of(cells, "predict")
        ),
        "mixed": mixed._judge,
    }
    name = report["benchmark"]
    if name not in judges:
        return report
    cells = json.loads((folder / f"{name}-cells.json").read_text("utf-8"))
    tables = {key.split("/")[0] for key in cells}
    title = f"{len(tables)} tables, {len(SPLITS)} splits, <= {MOST_ROWS:,} rows"
    judged = Report(name, title, Options())
    judges[name](judged, cells)
    return report | {"title": title, "targets": [vars(target) for target in judged.targets]}


# ---------------------------------------------------------------------------- all goals


def goals() -> str:
    """Return how many goals are met, which ones are missed, and all that was measured."""
    return shown(reports())


def shown(found: list[Content]) -> str:
    """Return the section of some reports."""
    met = sum(len(report["targets"]) - len(missed(report)) for report in found)
    total = sum(len(report["targets"]) for report in found)
    counts = [
        [f"`{report['benchmark']}`", _text(report["title"]), f"{_met(report)} of {_all(report)}"]
        for report in found
    ]
    misses = [_row(report, target) for report in found for target in missed(report)]
    listed = [_row(report, target) for report in found for target in _listed(report)]
    header = ["benchmark", "what", "measured", "goal"]
    return (
        f"**{met} of {total} goals are met**, in {len(found)} benchmarks:\n\n"
        f"{table(['benchmark', 'what it measures', 'goals met'], counts)}\n"
        f"{f'The missed goals ({total - met}):' if misses else 'No goal is missed.'}\n\n"
        f"{table(header, misses) + chr(10) if misses else ''}"
        f"<details><summary>All {len(listed)} measured numbers with their goals (of "
        f"{', '.join(ONLY_THE_WORST)}: only the worst)</summary>\n\n"
        f"{table(header, listed)}\n</details>\n"
    )


def missed(report: Content) -> list[Content]:
    """Return the goals that were not met."""
    return [target for target in report["targets"] if not _is_met(target)]


def _is_met(target: Content) -> bool:
    """Return the truth value; some files have it as text."""
    return str(target["met"]) == "True"


def _all(report: Content) -> int:
    return len(report["targets"])


def _met(report: Content) -> int:
    return _all(report) - len(missed(report))


def _listed(report: Content) -> list[Content]:
    if report["benchmark"] not in ONLY_THE_WORST:
        return list(report["targets"])
    limits = [target for target in report["targets"] if target["goal"].startswith("<=")]
    worst = max(limits, key=lambda target: float(target["measured"]))
    return [worst | {"what": f"{worst['what']}, the worst of {len(limits)}"}]


def _row(report: Content, target: Content) -> list[str]:
    measured = _number(str(target["measured"]))
    if not _is_met(target):
        measured = f"**{measured}**"
    return [f"`{report['benchmark']}`", _text(target["what"]), measured, _text(target["goal"])]


def _text(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", r"\|").replace("<=", "≤").replace(">=", "≥")


def _number(text: str) -> str:
    """Return 3.57e+03 as 3,570, and anything else as it is."""
    return f"{float(text):,.0f}" if "e+" in text else _text(text)


# ---------------------------------------------------------------------------- single files


def _read(name: str) -> Content:
    found: Content = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def against_svc() -> str:
    """Return the fit times of L2SVC beside those of SVC."""
    report = _read("l2svc_speed")
    found = {target["what"]: _number(target["measured"]) for target in report["targets"]}
    rbf, less = "L2SVC / SVC, ADULT rbf, C=", "accuracy less SVC's, "
    losses = [float(value) for what, value in found.items() if what.startswith(less)]
    text = (
        "How long does a fit take, compared with `SVC`? On the "
        f"{len(losses)} classification tables of the [tabular suite](../benchmarks.md) (393 to "
        f"10,000 training rows, 2 to 26 classes) with `C = 1`, `L2SVC` takes "
        f"{found['L2SVC / SVC, median of the suite']} times as long in the median, and "
        f"{found['L2SVC / SVC, worst of the suite']} times at worst. "
    )
    both = found.get("L2SVC / SVC, both with probabilities, median of the suite")
    if both is not None:
        text += (
            "Neither model makes probabilities in these fits (`calibrate=False`). If both do "
            "(`SVC` in `CalibratedClassifierCV(SVC(), ensemble=False)`), the median is "
            f"{both} times. "
        )
    ratios = {what[len(rbf) :]: value for what, value in found.items() if what.startswith(rbf)}
    text += (
        "The tolerance of `SVC` is $10^{-3}$, that of `L2SVC` is $10^{-8}$. On each table, the "
        f"accuracy of `L2SVC` (mean of three splits) is at most {max(-min(losses), 0):.1f} points "
        "below that of `SVC`. On 5,000 rows of ADULT with a Gaussian kernel, `L2SVC` takes "
        f"{', '.join(ratios.values())} times as long as `SVC` for `C` = {', '.join(ratios)}. With "
        "a linear kernel, `SVC` takes so many times as long as `L2SVC` (above 1, `L2SVC` is "
        "faster; `>`: `SVC` was stopped after a minute):"
    )
    linear = [row for row in report["rows"] if row["data"] in {"splice", "a1a", "w1a"}]
    names = list(dict.fromkeys(row["data"] for row in linear))
    rows = [[name, *(_slower(row) for row in linear if row["data"] == name)] for name in names]
    header = ["`C`", *(f"{row['C']:g}" for row in linear if row["data"] == names[0])]
    return f"{paragraph(text)}\n{table(header, rows)}"


def _slower(row: Content) -> str:
    """Return SVC's fit time divided by ours; "–" for a fit that was not tried."""
    stopped = "> " if str(row["SVC [ms]"]).startswith(">") else ""
    return f"{stopped}{row['SVC / L2SVC']}" if row["SVC / L2SVC"] else "–"


def paragraph(text: str) -> str:
    """Return text in lines of 120 characters."""
    return textwrap.fill(text, 120, break_on_hyphens=False) + "\n"


def large() -> str:
    """Return the fits of 20,000 rows with all their kernel values."""
    rows = [
        [row["candidate"], row["threads"], row["outcome"], row["fit [s]"], row["peak [GB]"]]
        for row in _read("large")["rows"]
    ]
    return table(["20,000 rows", "threads", "outcome", "fit [s]", "peak memory [GB]"], rows)


def files() -> str:
    """Return fits of rows in files and on Dask workers."""
    rows = []
    for row in _read("out_of_core")["rows"]:
        size = "" if row["rows from"] == "in memory" else f", {row['files, GB']:.1f} GB"
        rows.append([f"{row['rows']:,}, float32", row["rows from"] + size, *_pace(row)])
        rows[-1].append(f"{row['peak RSS, GB']:.2f}")
    dask = next(row for row in _read("dask_scaling")["rows"] if row["basis"] == "random")
    for workers in ("1 worker", "2 workers"):
        seconds = float(dask[f"{workers}, s"].split()[0])
        pace = _pace({"rows": dask["rows"], "seconds": seconds})
        name = f"Dask, {workers} of one thread"
        rows.append([f"{dask['rows']:,}, float64", name, *pace, ""])
    return table(["rows", "where", "seconds", "rows per second", "peak memory [GB]"], rows)


def _pace(row: Content) -> list[str]:
    return [f"{row['seconds']:.1f}", f"{round(row['rows'] / row['seconds'], -3):,.0f}"]


def gpu() -> str:
    """Return the fits on one GPU that have goals."""
    exact, basis = (json.loads((GPU / f"{n}.json").read_text()) for n in ("exact", "large_basis"))
    rows = []
    for fit in exact["fits"]:
        what = f"`LSSVC(solver='cg')`, {fit['rows']:,} rows of COVTYPE, to {fit['tol']:g}"
        rows += [_judged("exact", f"{what} [s]", fit["seconds"], EXACT_SECONDS, True)]
        rows += [["`gpu.exact`", f"{what}: accuracy [%]", f"{fit['accuracy [%]']:.2f}", "–"]]
    fit = next(fit for fit in basis["fits"] if fit["points"] == POINTS)
    what = f"`SparseLSSVC`, {POINTS:,} points on COVTYPE, float32 rows, fixed `C`"
    error = max(row["largest difference"] for row in basis["compared"])
    accuracy = fit["accuracy [%]"]
    rows += [
        _judged("large_basis", f"{what} [s]", fit["seconds"], POINTS_SECONDS, True),
        _judged("large_basis", f"{what}: accuracy [%]", accuracy, POINTS_ACCURACY, False),
        _judged("large_basis", "largest difference from NumPy, float64", error, DIFFERENCE, True),
    ]
    return table(["benchmark", f"one {exact['device']}", "measured", "goal"], rows)


def _judged(name: str, what: str, value: float, goal: float, at_most: bool) -> list[str]:
    met = value <= goal if at_most else value >= goal
    measured = f"{value:.4g}" if value >= 1 else f"{value:.1g}"
    sign = "≤" if at_most else "≥"
    return [f"`gpu.{name}`", what, measured if met else f"**{measured}**", f"{sign} {goal:g}"]


PARTS: dict[str, Callable[[], str]] = {
    "goals": goals,
    "large": large,
    "files": files,
    "gpu": gpu,
    "l2svc": against_svc,
}
