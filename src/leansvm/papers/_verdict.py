"""The verdict of a row: all rules are here.

A row is judged by its accuracy or error. Times belong to another machine and are never judged;
sizes of data files and parameters that the experiment only passes on are checked, but no result;
numbers of support vectors are compared, but decide only if the paper prints nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from leansvm.papers._published import Printed, Row, Table, explain

_ROUNDING = 0.0051  # printed percentages have two digits at most
_FAR = 2.0  # points: a row that is better by more needs an explanation as well


class Verdict(StrEnum):
    """Outcome of a row."""

    BETTER = "better by more than 2 points"  # suspiciously good: a note says why it can be
    REACHED = "reached"  # as good as the paper's, or better
    WITHIN = "within tolerance"  # worse, but within what the table allows
    SHORT = "short"  # worse than the table allows
    SETTINGS = "settings"  # agrees, but nothing was fitted: sizes, parameters, formulas
    MEASURED = "measured"  # nothing to judge: seconds
    BESIDE = "beside"  # not in the paper
    QUOTED = "quoted"  # by the paper, from somebody else
    NOT_RUN = "not run"
    FAILED = "failed"  # an error


@dataclass(frozen=True)
class Metric:
    """How a metric is named, printed and judged."""

    label: str
    unit: str = ""
    better: int = 0  # +1: more is better, -1: less, 0: not judged by size
    exact: float | None = None  # must agree to this (absolute) difference
    digits: int = 2


METRICS: dict[str, Metric] = {
    "test_accuracy": Metric("test accuracy", "%", +1),
    "cv_accuracy": Metric("accuracy, ten-fold", "%", +1),
    "scaled_accuracy": Metric("accuracy, features in [0, 1]", "%"),
    "test_error": Metric("test error", "%", -1),
    "train_accuracy": Metric("training accuracy", "%"),
    "n_sv": Metric("support vectors", digits=1),
    "model_size": Metric("model size", exact=0.0, digits=0),
    "n_basis": Metric("basis points", digits=0),
    "n_newton_steps": Metric("Newton steps", digits=1),
    "n_iter": Metric("iterations", digits=0),
    "run_time": Metric("time", "s", digits=3),
    "train_time": Metric("training time", "s", digits=3),
    "relative_run_time": Metric("time", "s", digits=4),
    "n_train": Metric("training rows", exact=0.0, digits=0),
    "n_test": Metric("test rows", exact=0.0, digits=0),
    "n_features": Metric("features", exact=0.0, digits=0),
    "C": Metric("C", exact=0.0, digits=4),
    "gamma": Metric("gamma", exact=6e-4, digits=6),
    "loss_difference": Metric("largest difference, loss", exact=1e-12, digits=16),
    "conjugate_difference": Metric("largest difference, conjugate", exact=1e-12, digits=16),
    # the four-point problem: printed with four digits
    "sv_indices": Metric("support vector", exact=0.0, digits=0),
    "sv_coefficient": Metric("coefficient", exact=6e-5, digits=5),
    "bias": Metric("bias", exact=6e-5, digits=5),
    "w_dot_w": Metric("w'w", exact=6e-5, digits=5),
    "l2_loss": Metric("sum of squared errors", exact=1e-11, digits=12),
    "error": Metric("error", exact=6e-5, digits=5),
}

_SETTINGS = {"n_train", "n_test", "n_features", "C", "gamma"}
_SETTINGS |= {"loss_difference", "conjugate_difference"}


def metric(name: str) -> Metric:
    """Return a metric; ``error[2]`` is that of the second point."""
    return METRICS[name.partition("[")[0]]


@dataclass(frozen=True)
class Judgement:
    """A verdict and the words that go with it."""

    verdict: Verdict
    text: str = ""


def tolerance(table: Table, printed: Printed) -> float:
    """Return by how many points a row may be worse than the paper's."""
    allowed = table.tolerance or {"points": 0.0, "stds": 1}
    return max(float(allowed["points"]), float(allowed["stds"]) * (printed.std or 0.0))


def judge(row: Row, table: Table, stored: Mapping[str, Any] | None) -> Judgement:
    """Judge what was stored about a row."""
    if row.source is not None:
        return Judgement(Verdict.QUOTED, f"Quoted by the paper from {row.source}.")
    if stored is None:
        return Judgement(Verdict.NOT_RUN, "Not run yet.")
    if stored["status"] == "skipped":
        return Judgement(Verdict.NOT_RUN, stored["reason"])
    if stored["status"] == "failed":
        return Judgement(Verdict.FAILED, stored["reason"])
    if row.beside:
        return Judgement(Verdict.BESIDE, "Not in the paper: the default of leansvm, to compare.")
    found = {
        name: _judge_metric(name, printed, stored["metrics"][name]["mean"], table)
        for name, printed in row.published.items()
        if name in stored["metrics"]
    }
    decisive = [verdict for verdict in found.values() if verdict is not None]
    if not decisive:
        return Judgement(Verdict.MEASURED, explain(row) or "")
    if found.keys() <= _SETTINGS and Verdict.SHORT not in decisive:
        return Judgement(Verdict.SETTINGS, explain(row) or "")
    order = (Verdict.SHORT, Verdict.WITHIN, Verdict.REACHED, Verdict.BETTER)
    return Judgement(next(v for v in order if v in decisive), explain(row) or "")


def _judge_metric(name: str, printed: Printed, ours: float, table: Table) -> Verdict | None:
    how = metric(name)
    if how.exact is not None and name != "model_size":
        return Verdict.REACHED if abs(ours - printed.mean) <= how.exact else Verdict.SHORT
    if how.better == 0:
        return None
    worse = how.better * (printed.mean - ours)
    if worse <= _ROUNDING:
        return Verdict.BETTER if worse < -_FAR else Verdict.REACHED
    return Verdict.WITHIN if worse <= tolerance(table, printed) + _ROUNDING else Verdict.SHORT


def agrees(name: str, printed: Printed, ours: float) -> bool | None:
    """Whether a number that decides nothing is close to the printed one; None: no comparison."""
    if name in ("n_sv", "model_size", "n_basis"):
        return abs(ours - printed.mean) <= max(2 * (printed.std or 0.0), 0.05 * printed.mean)
    return None


def summarise(values: Any, seconds: bool = False) -> dict[str, float]:
    """Return mean (of seconds: median), standard deviation and number of trials."""
    numbers = [float(v) for v in values]
    mean = statistics.median(numbers) if seconds else math.fsum(numbers) / len(numbers)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in numbers) / len(numbers))
    return {"mean": mean, "std": spread, "n": len(numbers)}


def shown(how: Metric, mean: float, std: float | None) -> tuple[str, str]:
    """Return a mean and its standard deviation as text."""
    if mean and abs(mean) < 10.0**-how.digits:
        return f"{mean:.1e}", ""
    text = f"{mean:.{how.digits}f}"
    if "." in text and how.digits > 2:
        text = text.rstrip("0").rstrip(".")
    return text, f"±{std:.{min(how.digits, 3)}f}" if std else ""
