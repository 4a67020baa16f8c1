"""Classes beyond accuracy: log-loss, AUC, average precision and calibration of default models.

All tables with classes of ``$LEANSVM_DATA``, ten variants with one positive row in 20 to 500, and
three seeded problems with a rare class (ten seeds). Cells are kept in results/classes-cells.json.
"""

import dataclasses
import statistics
from collections.abc import Callable

from ._cells import Cells, measure_suite
from ._classes import (
    BALANCED,
    GENERATED,
    LIGHTGBM,
    LOGISTIC,
    REDUCED,
    SPARSE,
    tables,
    variants,
)
from ._harness import Options, Report
from ._tabular import BOOSTING

SEEDS = 10
MACHINES = (SPARSE, REDUCED)


def run(options: Options) -> Report:
    """Measure what is missing, then compare."""
    names = options.sets or tuple(
        options.pick([*tables(), *variants()], ["imbalanced spambase 1:20"])
    )
    chosen = options.models or (*MACHINES, BOOSTING, LIGHTGBM)
    suite = dataclasses.replace(options, sets=(), models=())
    function = "benchmarks._classes:measure"
    report, cells = measure_suite("classes", function, list(names), chosen, suite)
    if not options.sets:
        seeded = dataclasses.replace(suite, splits=options.pick(SEEDS, 1))
        chosen = options.models or (*MACHINES, BALANCED, BOOSTING, LIGHTGBM, LOGISTIC)
        _, found = measure_suite("classes", function, list(GENERATED), chosen, seeded)
        cells |= found
    _add_rows(report, cells)
    _judge_tables(report, cells)
    _judge_variants(report, cells)
    if not options.sets:
        _judge_seeds(report, cells)
    return report


def _means(cells: Cells, what: str, kind: Callable[[str], bool]) -> dict[str, dict[str, float]]:
    """Return means over splits of all problems of a kind, by model and problem."""
    found: dict[str, dict[str, list[float]]] = {}
    for key, cell in cells.items():
        name, _, model = key.split("/", 2)
        if kind(name) and what in cell:
            found.setdefault(model, {}).setdefault(name, []).append(cell[what])
    return {
        model: {name: statistics.fmean(values) for name, values in by.items()}
        for model, by in found.items()
    }


def _add_rows(report: Report, cells: Cells) -> None:
    for what in ("log-loss", "AUC", "average precision", "calibration error", "score", "fit"):
        by_model = _means(cells, what, lambda name: True)
        for name in dict.fromkeys(key.split("/")[0] for key in cells):
            shown = {m: round(by[name], 4) for m, by in by_model.items() if name in by}
            if shown:
                report.rows.append({"measure": what, "problem": name} | shown)
    report.notes += sorted(
        f"{key}: {cell['status']}" for key, cell in cells.items() if cell["status"] != "ok"
    )


def _is_table(name: str) -> bool:
    return name.startswith(("tabular ", "mixed "))


def _judge_tables(report: Report, cells: Cells) -> None:
    losses, aucs = (_means(cells, what, _is_table) for what in ("log-loss", "AUC"))
    errors, trees = _means(cells, "calibration error", _is_table), BOOSTING
    for model in MACHINES:
        common = losses.get(model, {}).keys() & losses.get(trees, {}).keys()
        if not common:
            continue
        ratios = [losses[model][name] / losses[trees][name] for name in common]
        share = 100 * sum(ratio <= 1 for ratio in ratios) / len(ratios)
        report.at_least(f"{model}: tables with a log-loss no larger [%]", share, 75)
        report.at_most(f"{model}: mean ratio of log-losses", statistics.fmean(ratios), 0.85)
        common = aucs.get(model, {}).keys() & aucs.get(trees, {}).keys()
        if common:
            share = 100 * sum(aucs[model][n] >= aucs[trees][n] for n in common) / len(common)
            report.at_least(f"{model}: tables with an AUC no smaller [%]", share, 60)
        median = statistics.median(errors[model].values())
        report.at_most(f"{model}: calibration error, median", median, 0.03)


def _judge_variants(report: Report, cells: Cells) -> None:
    found = _means(cells, "average precision", lambda name: name.startswith("imbalanced"))
    for model in MACHINES:
        common = found.get(model, {}).keys() & found.get(BOOSTING, {}).keys()
        if common:
            wins = sum(found[model][name] >= found[BOOSTING][name] for name in common)
            report.at_least(f"{model}: variants of {len(common)} with a better precision", wins, 6)
        silent = [
            key
            for key, cell in cells.items()
            if key.endswith(f"/{model}") and cell.get("one class") and not cell["warnings"]
        ]
        report.at_most(f"{model}: constant predictions without a warning", len(silent), 0)
        report.notes += silent


def _judge_seeds(report: Report, cells: Cells) -> None:
    def of(what: str, name: str, model: str) -> list[float]:
        keys = (f"{name}/{seed}/{model}" for seed in range(SEEDS))
        return [cells[key][what] for key in keys if what in cells.get(key, {})]

    plain, balanced = of("AUC", "rare class", SPARSE), of("AUC", "rare class", BALANCED)
    if plain and len(plain) == len(balanced):
        lost = max(a - b for a, b in zip(plain, balanced, strict=True))
        report.at_most("rare class: AUC lost by balanced weights, worst seed [points]", lost, 1.0)
        C = of("C", "rare class", BALANCED)
        report.at_most(
            "rare class: C at an end of its values", sum(not 1e-6 < c < 1e7 for c in C), 0
        )
    linear = of("AUC", "few positives", LOGISTIC)
    for model in (SPARSE, BALANCED, REDUCED):
        found = of("AUC", "few positives", model)
        if found and linear:
            behind = statistics.fmean(linear) - statistics.fmean(found)
            report.at_most(f"few positives: {model} behind {LOGISTIC}, AUC [points]", behind, 3.0)
    found, peer = (
        of("average precision", "55 of 10,000", REDUCED),
        of("average precision", "55 of 10,000", LIGHTGBM),
    )
    if found and peer:
        ahead = statistics.fmean(found) - statistics.fmean(peer)
        report.at_least(f"55 of 10,000: average precision, {REDUCED} - {LIGHTGBM}", ahead, -0.02)
