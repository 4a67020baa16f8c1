"""Default models on everyday tables: SparseLSSVC/R with no argument beside boosting and SVC/SVR.

All sets of ``$LEANSVM_DATA/tabular``, three splits of 70/30 with at most 10,000 training rows;
boosting by scikit-learn, LightGBM (also tuned: `_lightgbm`) and CatBoost. Cells are kept in
results/tabular-cells.json.
"""

import statistics

from ._cells import MOST_ROWS, Cells, add_tables, mean_of, measure_suite
from ._comparison import Scores, compare
from ._harness import Options, Report
from ._tabular import BOOSTING, MODELS, OURS, TUNED, TUNED_LIGHTGBM, folder

SHOWN = (
    "score", "log-loss", "RMSE", "AUC", "fit", "predict", "points", "bytes", "compact bytes",
)  # fmt: skip


def run(options: Options) -> Report:
    """Measure what is missing, then compare."""
    names = sorted(path.stem for path in folder().glob("*.npz"))
    if options.quick and not options.sets:
        names = sorted(names, key=lambda name: (folder() / f"{name}.npz").stat().st_size)[:2]
    report, cells = measure_suite("tabular", "benchmarks._tabular:measure", names, MODELS, options)
    add_tables(report, cells, SHOWN)
    _judge(report, cells, mean_of(cells, "score"), mean_of(cells, "predict"))
    return report


def _judge(report: Report, cells: Cells, scores: Scores, predict: Scores) -> None:
    boosting, tuned = compare(scores, OURS, BOOSTING), compare(scores, OURS, TUNED)
    searched = compare(scores, OURS, TUNED_LIGHTGBM)
    if boosting is not None:
        report.at_least(f"sets as good as {BOOSTING}", boosting.wins, 23)
        report.at_least("median difference from it [points]", boosting.median, 0.8)
        report.at_least(f"worst difference ({boosting.worst_set})", boosting.worst, -2.0)
        common = predict[OURS].keys() & predict[BOOSTING].keys()
        ratios = [predict[OURS][name] / max(predict[BOOSTING][name], 1e-4) for name in common]
        report.at_most("predict / its predict, median", statistics.median(ratios), 4.0)
    if tuned is not None:
        report.at_least(f"sets as good as {TUNED}", tuned.wins, 22)
    if searched is not None:
        report.at_least(f"sets as good as {TUNED_LIGHTGBM}", searched.wins, 19)
    ours = [cell for key, cell in cells.items() if key.endswith(f"/{OURS}") and "fit" in cell]
    if ours:
        points = statistics.median(cell["points"] for cell in ours)
        report.notes.append(f"basis points, median: {points:,.0f}")
    full = [cell for cell in ours if cell["rows"] == MOST_ROWS]
    # fits that ran beside others took longer: they count only if there are no others
    full = [cell for cell in full if cell.get("jobs", 1) == 1] or full
    if full:
        seconds = [cell["fit"] for cell in full]
        learning = [cell["learn"] / cell["plain fit"] for cell in full]
        report.at_most("fit at 10,000 rows, median [s]", statistics.median(seconds), 6.0)
        report.at_most("fit at 10,000 rows, worst [s]", max(seconds), 14.0)
        report.at_most("learning / a plain fit there, median", statistics.median(learning), 5.0)
        report.notes.append(f"learning / a plain fit at 10,000 rows, worst: {max(learning):.2f}")
