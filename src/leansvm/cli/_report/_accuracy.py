"""Accuracy in the report: where the model is wrong, and whether its probabilities are right."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import metrics

from leansvm.cli._output import readable
from leansvm.cli._run import TrainingRun
from leansvm.cli._scores import in_unit
from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

MOST_CLASSES = 12  # shown in a picture; of more, the worst go into a table
_SHOWN_CLASSES, _SHOWN_ROWS = 10, 1000


def accuracy(run: TrainingRun) -> str:
    """Return the section: errors in pictures, and all scores beside those of the baseline."""
    assert run.evaluation is not None
    text = f"Each row was predicted by a model that had not seen it: {run.evaluation.method}."
    if run.evaluation.folds:
        shown = ", ".join(run.evaluation.in_words(score) for score in run.evaluation.folds)
        name = run.evaluation.metric
        text += (
            f" {name[:1].upper()}{name[1:]} of the folds: {shown}; ± is their standard deviation."
        )
    body = _regression(run) if run.task == "regression" else _classes(run)
    return html.section("Accuracy", body + _score_table(run), text, "accuracy")


def _score_table(run: TrainingRun) -> str:
    """Return all scores beside those of the baseline."""
    assert run.evaluation is not None
    scores, without = run.evaluation.scores, run.evaluation.baseline
    rows = [[name, in_unit(name, scores[name]), in_unit(name, without[name])] for name in scores]
    if run.task == "regression":
        rows.append(["standard deviation of the target", readable(float(run.y.std())), ""])
        caption = "Errors in units of the target; R² is 1 for a perfect model, 0 for the mean."
        return html.table(["", "this model", "always the mean"], rows, caption)
    caption = "AUC: 0.5 is chance, 1 is perfect; lower log-loss is better."
    return html.table(["", "this model", "always the most frequent class"], rows, caption)


# ---------------------------------------------------------------------------- classes


def _classes(run: TrainingRun) -> str:
    assert run.evaluation is not None
    y, predicted = run.y, run.evaluation.predicted
    classes = np.unique(y)
    counts = metrics.confusion_matrix(y, predicted, labels=classes)
    by_class = _class_table(classes, y, predicted)
    if len(classes) > MOST_CLASSES:
        return html.figures([by_class, _worst_confusions(classes, counts)])
    picture = html.figure(
        _confusion_picture(classes, counts),
        "Confusion matrix",
        "Each cell counts rows; colour shows the share of the true class.",
    )
    return html.figures([picture, *_curves(run, classes), by_class])


def _class_table(classes: np.ndarray, y: np.ndarray, predicted: np.ndarray) -> str:
    """Return precision and recall by class: all classes, or those of the lowest recall."""
    parts = metrics.precision_recall_fscore_support(y, predicted, labels=classes, zero_division=0.0)
    found = list(zip(classes, *parts, strict=True))
    caption = "By class"
    if len(classes) > MOST_CLASSES:
        found.sort(key=lambda row: row[2])
        rest = found[_SHOWN_CLASSES][2]
        caption = (
            f"The {_SHOWN_CLASSES} classes with the lowest recall; that of the other "
            f"{len(classes) - _SHOWN_CLASSES} is {100 * rest:.1f} % or more"
        )
        found = found[:_SHOWN_CLASSES]
    rows = [
        [str(name), f"{count:,}", f"{100 * precision:.1f} %", f"{100 * recall:.1f} %"]
        for name, precision, recall, _, count in found
    ]
    return html.table(["class", "rows", "precision", "recall"], rows, caption)


def _confusion_picture(classes: np.ndarray, counts: np.ndarray) -> str:
    short = [str(name) if len(str(name)) <= 14 else f"{str(name)[:13]}…" for name in classes]
    names = [plain_text(name) for name in short]
    k = len(names)
    with html.drawing(figsize=(4.6, min(4.6, 1.9 + 0.6 * k))) as (fig, ax):
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
    places = np.argsort(-wrong, axis=None, kind="stable")[:_SHOWN_CLASSES]
    rows = [
        [str(classes[i]), str(classes[j]), f"{wrong[i, j]:,}"]
        for i, j in zip(*np.unravel_index(places, wrong.shape), strict=True)
        if wrong[i, j]
    ]
    return html.table(["true", "predicted", "rows"], rows, "The most frequent confusions")


def _curves(run: TrainingRun, classes: np.ndarray) -> list[str]:
    """Draw precision against recall, and the ROC curve, of the positive class of two."""
    assert run.evaluation is not None
    if len(classes) != 2 or run.evaluation.probabilities is None:
        return []
    true = run.y == run.positive
    claimed = run.evaluation.probabilities[:, int(np.flatnonzero(classes == run.positive)[0])]
    now = run.evaluation.predicted == run.positive  # at the threshold that predict uses
    recall_now, share = float(now[true].mean()), float(true.mean())
    precision, recall, _ = metrics.precision_recall_curve(true, claimed)
    # the last value is set by convention; before it, few rows decide
    pr = _curve(recall[:-1], precision[:-1], "recall", "precision", ([0, 1], [share, share]))
    false, found, _ = metrics.roc_curve(true, claimed)
    roc = _curve(false, found, "false positives", "recall", ([0, 1], [0, 1]))
    name = run.positive
    return [
        html.figure(
            pr,
            f"Precision and recall of {name}",
            f"Each point is a threshold; predict() has recall {100 * recall_now:.1f} %. The dashed "
            f"line is chance, {100 * share:.1f} %.",
        ),
        html.figure(
            roc,
            f"ROC curve of {name}",
            f"Vertical: the share of class {name} that is found (more is better). Horizontal: the "
            f"share of the other class that is predicted as {name} (less is better).",
        ),
    ]


def _curve(x: np.ndarray, y: np.ndarray, xlabel: str, ylabel: str, chance: Any) -> str:
    """Draw shares against each other, in per cent; no more points than can be seen."""
    kept = np.unique(np.linspace(0, len(x) - 1, 300).astype(int))
    with html.drawing() as (fig, ax):
        ax.plot(100 * np.asarray(chance[0]), 100 * np.asarray(chance[1]), "--", color="0.5", lw=1)
        ax.plot(100 * x[kept], 100 * y[kept])
        ax.set(xlim=(0, 100), ylim=(0, 103), xlabel=f"{xlabel} in %", ylabel=f"{ylabel} in %")
        return html.svg(fig, f"{ylabel} against {xlabel}")


# ---------------------------------------------------------------------------- numbers


def _regression(run: TrainingRun) -> str:
    assert run.evaluation is not None
    y, predicted = run.y.astype(float), run.evaluation.predicted
    shown = np.random.default_rng(0).permutation(len(y))[:_SHOWN_ROWS]
    with html.drawing() as (fig, ax):
        ends = [float(min(y.min(), predicted.min())), float(max(y.max(), predicted.max()))]
        ax.plot(ends, ends, color="0.5", linewidth=1, linestyle="--")
        html.dots(ax, np.transpose([predicted[shown], y[shown]]), 3, color="C0", alpha=0.6)
        ax.set(xlabel="predicted", ylabel="true")
        plain_ticks(ax.xaxis, ax.yaxis)
        scatter = html.svg(fig, "true against predicted values")
    with html.drawing() as (fig, ax):
        error = y - predicted
        ax.axhline(0.0, color="0.5", linewidth=1, linestyle="--")
        html.dots(ax, np.transpose([predicted[shown], error[shown]]), 3, color="C0", alpha=0.6)
        centres, middle, low, high = _running(predicted, error)
        ax.fill_between(centres, low, high, color="C1", alpha=0.25, linewidth=0)
        ax.plot(centres, middle, color="C1")
        ax.set(xlabel="predicted", ylabel="true minus predicted")
        plain_ticks(ax.xaxis, ax.yaxis)
        residuals = html.svg(fig, "errors against predictions")
    of_all = "All rows" if len(shown) == len(y) else f"{len(shown):,} of {len(y):,} rows"
    pictures = [
        html.figure(scatter, "Predicted and true", f"{of_all}; the diagonal is perfect."),
        html.figure(
            residuals,
            "Errors against prediction",
            "The orange line is the mean error, and the band has the middle 80 % of errors. A bent "
            "line means that the model misses a trend. A band that widens means that the noise "
            "grows with the prediction.",
        ),
    ]
    return html.figures(pictures)


def _running(x: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return mean x, mean error and its 10 % and 90 % quantiles of up to ten groups by x."""
    groups = equal_groups(x, min(10, max(1, len(x) // 10)))
    found = [(x[g].mean(), error[g].mean(), *np.quantile(error[g], [0.1, 0.9])) for g in groups]
    return tuple(np.transpose(found))


def equal_groups(x: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the row numbers of groups of equal size, by x."""
    return [g for g in np.array_split(np.argsort(x, kind="stable"), count) if len(g)]


def plain_ticks(*axes: Any) -> None:
    """Write 41,540 at each axis, not 4.154e4, and few enough numbers not to touch."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: readable(value)))


# ---------------------------------------------------------------------------- probabilities


def calibration(run: TrainingRun) -> str:
    """Return the section on probabilities; nothing for a regression."""
    if run.task == "regression":
        return ""
    assert run.evaluation is not None
    if run.evaluation.probabilities is None:
        text = "This model gives no probabilities."
        return html.section("Calibration", "", text)
    y, probabilities = run.y, run.evaluation.probabilities
    classes = np.unique(y)
    if len(classes) == 2:
        claimed = probabilities[:, int(np.flatnonzero(classes == run.positive)[0])]
        true, what, share = y == run.positive, f"{run.positive}", f"share of {run.positive}"
    else:
        claimed, true = probabilities.max(axis=1), run.evaluation.predicted == y
        what, share = "the predicted class", "share that is right"
    groups = equal_groups(claimed, 10)
    centres = np.array([claimed[group].mean() for group in groups])
    shares = np.array([true[group].mean() for group in groups])
    counts = np.array([len(group) for group in groups])
    gap = float(np.sum(counts * np.abs(centres - shares)) / counts.sum())
    top = 1.0 if len(classes) > 2 else min(1.0, 1.15 * max(centres.max(), shares.max(), 0.02))
    bottom = 0.85 * min(centres.min(), shares.min()) if len(classes) > 2 else 0.0
    with html.drawing() as (fig, ax):
        ax.plot([0, 100], [0, 100], color="0.5", linewidth=1, linestyle="--")
        ax.plot(100 * centres, 100 * shares, "o-", markersize=5, clip_on=False)
        ax.set(xlim=(100 * bottom, 100 * top), ylim=(100 * bottom, 100 * top))
        ax.set(xlabel=plain_text(f"probability of {what} in %"), ylabel=plain_text(f"{share} in %"))
        picture = html.svg(fig, "calibration curve")
    text = (
        f"The mean distance from the diagonal is {100 * gap:.1f} percentage points, the Brier "
        f"score {metrics.brier_score_loss(true, claimed):.3f} (0 is perfect). Each probability "
        f"comes from a model that had not seen the row."
    )
    figure = html.figure(
        picture, "Calibration", "Up to ten equal-sized bins; the diagonal is perfect calibration."
    )
    return html.section("Can the probabilities be believed?", html.figures([figure]), text)
