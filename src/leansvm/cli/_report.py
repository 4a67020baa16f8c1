"""The report of a training run: one HTML page with everything a reader asks first.

How accurate, on what it errs, whether its probabilities can be believed, where the time went and
how to use the model in Python are here; what the model looks like is in `_report_model`, what it
says of rows and features in `_report_answers`.
"""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.metrics import brier_score_loss, confusion_matrix, precision_recall_fscore_support

from leansvm._extras import needs
from leansvm.cli._output import CommandError, readable
from leansvm.cli._read import CATEGORY, NUMBER
from leansvm.cli._report_answers import answers
from leansvm.cli._report_importance import importance
from leansvm.cli._report_model import feature_scales, sparsity, tuning
from leansvm.cli._run import TrainingRun, support_size
from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

MOST_CLASSES = 12  # shown in a picture; more go into a table of the worst


def report_page(run: TrainingRun, model_file: Path) -> str:
    """Return the page of a run whose pipeline is fitted."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CommandError(needs("--report", str(error.name), "cli")) from error
    sections = [_facts(run), _notes(run)]
    if run.evaluation is not None:
        sections += [_errors(run), _calibration(run)]
    sections += [importance(run), *answers(run), feature_scales(run), sparsity(run), tuning(run)]
    sections += [_time(run), _data(run), _use(run, model_file)]
    name = run.target or run.data.path.name
    lead = (
        f"{type(run.model).__name__} trained on {run.data.X.shape[0]:,} rows of "
        f"{run.data.path.name}, {run.task}."
    )
    return html.page(f"Training report: {name}", lead, sections, _made_by())


def _made_by() -> list[str]:
    """Return the command and the time that made the page; the versions follow."""
    command = shlex.join(["leansvm", *sys.argv[1:]])
    now = datetime.now().astimezone()
    return [f"Made by: {command}", f"On {now:%Y-%m-%d at %H:%M %Z}, with:"]


def _facts(run: TrainingRun) -> str:
    facts: list[tuple[str, object]] = []
    if run.evaluation is not None:
        facts.append((f"{run.evaluation.metric}, {run.evaluation.method}", run.evaluation.words()))
        facts += _baseline_fact(run)
    rows, columns = run.data.X.shape
    facts += [
        ("rows", f"{rows:,}"),
        ("features", f"{columns:,}"),
        ("support vectors", f"{support_size(run.model):,}"),
        ("time to fit", _seconds(run.seconds["fit"])),
    ]
    return html.facts(facts)


def _baseline_fact(run: TrainingRun) -> list[tuple[str, object]]:
    """Return the score without any model; for R², which is 0 for the mean, nothing."""
    assert run.evaluation is not None
    if run.task == "regression":
        return []
    share = 100 * run.evaluation.baseline["accuracy"]
    return [("always the most frequent class", f"{share:.1f} %")]


def _notes(run: TrainingRun) -> str:
    return html.section("Worth knowing", html.bullets(run.notes)) if run.notes else ""


# ---------------------------------------------------------------------------- errors


def _errors(run: TrainingRun) -> str:
    assert run.evaluation is not None
    text = f"Every row was predicted by a model that did not see it: {run.evaluation.method}."
    if run.evaluation.folds:
        shown = ", ".join(_score(run, score) for score in run.evaluation.folds)
        text += f" {run.evaluation.metric} of the folds: {shown}."
    body = _regression_errors(run) if run.task == "regression" else _class_errors(run)
    return html.section("Accuracy", body + _score_table(run), text, "accuracy")


def _score_table(run: TrainingRun) -> str:
    """Return all scores beside those of the baseline."""
    assert run.evaluation is not None
    scores, without = run.evaluation.scores, run.evaluation.baseline
    rows = [[name, _in_unit(name, scores[name]), _in_unit(name, without[name])] for name in scores]
    always = "always the mean" if run.task == "regression" else "always the most frequent class"
    if run.task == "regression":
        rows.append(["standard deviation of the target", readable(float(run.y.std())), ""])
    caption = (
        ""
        if run.task == "regression"
        else "AUC: 0.5 is chance, 1 is perfect; lower log-loss is better."
    )
    return html.table(["", "this model", always], rows, caption)


def _in_unit(name: str, score: float) -> str:
    """Return a score as text: shares in per cent, errors in the target's unit, others to 0.001."""
    if name == "accuracy" or name.startswith("F1"):
        return f"{100 * score:.1f} %"
    return readable(score) if "error" in name else f"{score:.3f}"


def _score(run: TrainingRun, score: float) -> str:
    assert run.evaluation is not None
    return f"{100 * score:.1f} %" if run.evaluation.metric == "accuracy" else f"{score:.3f}"


def _class_errors(run: TrainingRun) -> str:
    assert run.evaluation is not None
    y, predicted = run.y, run.evaluation.predicted
    classes = np.unique(y)
    counts = confusion_matrix(y, predicted, labels=classes)
    parts = precision_recall_fscore_support(y, predicted, labels=classes, zero_division=0.0)
    rows = [
        [str(name), f"{count:,}", f"{100 * precision:.1f} %", f"{100 * recall:.1f} %"]
        for name, precision, recall, _, count in zip(classes, *parts, strict=True)
    ]
    header = ["class", "rows", "precision", "recall"]
    if len(classes) > MOST_CLASSES:
        return _worst_confusions(classes, counts) + html.table(header, rows, "By class")
    picture = html.figure(
        _confusion_picture(classes, counts),
        "Confusion matrix",
        "Numbers of rows; colour is the share of the true class.",
    )
    return html.figures([picture, html.table(header, rows, "By class")])


def _confusion_picture(classes: np.ndarray, counts: np.ndarray) -> str:
    short = [str(name) if len(str(name)) <= 14 else f"{str(name)[:13]}…" for name in classes]
    names = [plain_text(name) for name in short]
    k = len(names)
    with html.drawing(figsize=(4.6, min(4.6, 1.7 + 0.55 * k))) as (fig, ax):
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        for i in range(k):
            for j in range(k):
                colour = html.POSITIVE if i == j else html.NEGATIVE
                alpha = 0.75 * share[i, j]
                ax.add_patch(_square(j, i, colour, alpha))
                ax.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", fontsize=9)
        ax.set(xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5))
        rotation = 0 if k * max(map(len, names)) < 34 else 90  # as many letters fit below
        ax.set_xticks(range(k), names, rotation=rotation)
        ax.set_yticks(range(k), names)
        ax.set(xlabel="predicted", ylabel="true")
        ax.tick_params(length=0)
        return html.svg(fig, "confusion matrix")


def _square(x: int, y: int, colour: str, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=colour, alpha=alpha, linewidth=0)


def _worst_confusions(classes: np.ndarray, counts: np.ndarray) -> str:
    wrong = counts - np.diag(np.diag(counts))
    places = np.argsort(wrong, axis=None)[::-1][:10]
    rows = [
        [str(classes[i]), str(classes[j]), f"{wrong[i, j]:,}"]
        for i, j in zip(*np.unravel_index(places, wrong.shape), strict=True)
        if wrong[i, j]
    ]
    return html.table(["true", "predicted", "rows"], rows, "The most frequent confusions")


def _regression_errors(run: TrainingRun) -> str:
    assert run.evaluation is not None
    y, predicted = run.y.astype(float), run.evaluation.predicted
    shown = np.random.default_rng(0).permutation(len(y))[:1000]
    with html.drawing() as (fig, ax):
        ends = [float(min(y.min(), predicted.min())), float(max(y.max(), predicted.max()))]
        ax.plot(ends, ends, color="0.5", linewidth=1, linestyle="--")
        html.dots(ax, np.transpose([y[shown], predicted[shown]]), 3, color="C0", alpha=0.6)
        ax.set(xlabel="true", ylabel="predicted")
        _plain_ticks(ax)
        scatter = html.svg(fig, "predicted against true values")
    with html.drawing() as (fig, ax):
        ax.hist(predicted - y, bins=30)
        ax.set(xlabel="predicted less true", ylabel="rows")
        _plain_ticks(ax)
        residuals = html.svg(fig, "histogram of the errors")
    pictures = [
        html.figure(
            scatter,
            "Predicted and true",
            f"{len(shown):,} rows; the diagonal is a perfect prediction.",
        ),
        html.figure(residuals, "Errors", "All rows."),
    ]
    return html.figures(pictures)


def _plain_ticks(ax: Any) -> None:
    """Write 41,540 at the axes, not 4.154e4, and few enough numbers not to touch."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: readable(value)))


# ---------------------------------------------------------------------------- probabilities


def _calibration(run: TrainingRun) -> str:
    if run.task == "regression":
        return ""
    assert run.evaluation is not None
    if run.evaluation.probabilities is None:
        text = "There is no curve here: this model gives no probabilities."
        return html.section("Calibration", "", text)
    y, probabilities = run.y, run.evaluation.probabilities
    classes = np.unique(y)
    if len(classes) == 2:
        claimed, true = probabilities[:, 1], y == classes[1]
        what = f"probability of {classes[1]}"
    else:
        claimed, true = probabilities.max(axis=1), run.evaluation.predicted == y
        what = "probability of the predicted class"
    centres, shares, counts = _bins(claimed, true)
    gap = float(np.sum(counts * np.abs(centres - shares)) / counts.sum())
    with html.drawing() as (fig, ax):
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle="--")
        ax.plot(centres, shares, "o-", markersize=5)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=plain_text(what), ylabel="share that is right")
        if len(classes) == 2:
            ax.set_ylabel(plain_text(f"share of {classes[1]}"))
        picture = html.svg(fig, "calibration curve")
    text = (
        f"Mean distance from the diagonal {100 * gap:.1f} percentage points; Brier score "
        f"{brier_score_loss(true, claimed):.3f}. Probabilities are of rows left out of the fit."
    )
    figure = html.figure(
        picture, "Calibration", "Up to ten equal-sized bins; the diagonal is perfect calibration."
    )
    return html.section("Can the probabilities be believed?", html.figures([figure]), text)


def _bins(claimed: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group rows by predicted probability: its mean, the true share, the number of rows."""
    groups = [g for g in np.array_split(np.argsort(claimed, kind="stable"), 10) if len(g)]
    centres = np.array([claimed[group].mean() for group in groups])
    shares = np.array([true[group].mean() for group in groups])
    return centres, shares, np.array([len(group) for group in groups])


# ---------------------------------------------------------------------------- time, data, use


def _time(run: TrainingRun) -> str:
    rows = [[name, _seconds(value)] for name, value in run.seconds.items()]
    steps = getattr(run.model, "fit_report_", {}).get("seconds", {})
    rows += [[f"fit: {name}", _seconds(value)] for name, value in steps.items()]
    table = html.table(["phase", "time"], rows)
    report = getattr(run.model, "fit_report_", {})
    words = []
    if "solver" in report:
        words.append(f"Solver {report['solver']}, {report.get('iterations', 1)} iteration(s).")
    if report.get("bytes"):
        words.append(f"Largest working set {report['bytes'] / 2**20:.1f} MiB.")
    if not report.get("converged", True):
        words.append("It did not converge: see the notes above.")
    return html.section("Time by phase", table, " ".join(words), "time")


def _data(run: TrainingRun) -> str:
    X = run.data.X
    if run.data.kinds is None:
        kind = "sparse" if issparse(X) else "dense"
        return html.section("Data", "", f"{X.shape[0]:,} × {X.shape[1]:,} numbers, {kind}.")
    shown = list(run.data.kinds.items())[:100]
    rows = [
        [name, kind, f"{int(X[name].isna().sum()):,}", f"{X[name].nunique():,}"]
        for name, kind in shown
    ]
    text = (
        "Numbers: missing values become the median, and an indicator. Categories become indicator "
        "columns, a missing value is a category of its own. Dates become days and cycles."
    )
    return html.section("Data", html.table(["column", "kind", "missing", "distinct"], rows), text)


def _use(run: TrainingRun, model_file: Path) -> str:
    suffix = run.data.path.suffix
    shell = f"leansvm predict {model_file.name} new{suffix} -o predictions.csv"
    text = "The preprocessing is part of the model: give it columns as they are in the file."
    load = f'model = persistence.load("{model_file.name}")\n'
    kinds = set((run.data.kinds or {}).values())
    if run.data.kinds is None:
        rows = "# X: array or CSR matrix with the training file's columns\n"
        python = f"from leansvm import persistence\n\n{load}{rows}model.predict(X)"
    elif kinds <= {CATEGORY, NUMBER} and not run.data.form:
        reader = "read_parquet" if suffix in (".parquet", ".pq") else "read_csv"
        rows = f'X = pd.{reader}("new{suffix}")\n'
        python = (
            f"import pandas as pd\nfrom leansvm import persistence\n\n{load}{rows}model.predict(X)"
        )
    else:  # pandas would have to be told about marks, dates and answers
        text = "The command reads the file as training did: marks of numbers, dates, yes and no."
        rows = "# X: frame with these columns; dates as dates, yes/no as True and False\n"
        python = f"from leansvm import persistence\n\n{load}{rows}model.predict(X)"
    return html.section("Use the model", html.code(shell) + html.code(python), text, "use")


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"
