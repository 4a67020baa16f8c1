"""What the fit answers, in the report: how sure it is, what features do, which rows look wrong.

All from the models without each row and from exact gradients; nothing is fitted for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from leansvm.cli._evaluate import left_out_predictions, rows_of
from leansvm.cli._output import readable
from leansvm.cli._run import TrainingRun
from leansvm.inspection import Effects, effects, inspect_rows
from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

ALPHA = 0.1
FEWEST_ROWS = 20  # fewer say nothing about one in ten
SOME_ROWS = 500  # that pictures and averages are made of
MOST_FEATURES = 1000  # whose effects are computed
SHOWN_FEATURES, SHOWN_CLASSES, SHOWN_ROWS = 6, 4, 10


def answers(run: TrainingRun) -> list[str]:
    """Return the sections that the machine has answers for."""
    if len(run.y) < FEWEST_ROWS:
        return []
    X = run.pipeline[:-1].transform(run.data.X)
    X = X.tocsr() if issparse(X) else X
    some = np.sort(np.random.default_rng(0).permutation(len(run.y))[:SOME_ROWS])
    sections = []
    if hasattr(run.model, "keep_rows"):
        regression = run.task == "regression"
        sections.append(_intervals(run, X, some) if regression else _sets(run, X, some))
    if hasattr(run.model, "support_vectors_"):
        sections.append(_effects(run, rows_of(run.data.X, some)))
    if hasattr(run.model, "keep_rows"):
        sections.append(_suspicious(run, X))
    return sections


def _intervals(run: TrainingRun, X: Any, some: np.ndarray) -> str:
    """Draw intervals of some rows, by prediction."""
    low, high = run.model.predict_interval(rows_of(X, some), ALPHA).T
    y, middle = run.y[some], run.model.predict(rows_of(X, some))
    order = np.argsort(middle, kind="stable")
    inside = (low <= y) & (y <= high)
    with html.drawing() as (fig, ax):
        places = np.arange(len(order))
        ax.fill_between(places, low[order], high[order], alpha=0.25, linewidth=0)
        ax.plot(places, middle[order])
        for kind, colour in ((True, "C0"), (False, "C1")):
            shown = inside[order] == kind
            html.dots(ax, np.transpose([places, y[order]])[shown], 2.4, color=colour)
        ax.set(xlabel="rows, by prediction", ylabel="target")
        picture = html.svg(fig, "prediction intervals of some rows")
    width = readable(float(np.mean(high - low)))
    text = (
        f"Of new rows like these, about {100 * (1 - ALPHA):.0f} % have their target within the "
        f"interval (jackknife+), which is {width} wide on average. In Python: "
        f"predict_interval(X, alpha={ALPHA})."
    )
    figure = html.figure(picture, "Intervals", f"{len(some):,} training rows; orange: outside.")
    return html.section("How sure is it?", html.figures([figure]), text, "sure")


def _sets(run: TrainingRun, X: Any, some: np.ndarray) -> str:
    """Count the classes in the sets of some rows."""
    sets = run.model.predict_set(rows_of(X, some), ALPHA)
    sizes = sets.sum(axis=1)
    counts = np.bincount(sizes, minlength=2)
    names = {0: "none: no class is clear", 1: "one", 2: "two", 3: "three"}
    rows = [
        [names.get(size, str(size)), f"{count:,}", f"{100 * count / len(sizes):.1f} %"]
        for size, count in enumerate(counts)
        if count
    ]
    table = html.table(["classes in the set", "rows", "share"], rows, f"{len(sizes):,} rows")
    pairs = [
        (int(np.sum(sets[:, a] & sets[:, b])), run.model.classes_[a], run.model.classes_[b])
        for a in range(sets.shape[1])
        for b in range(a)
    ]
    count, first, second = max(pairs, key=lambda pair: pair[0])
    text = (
        f"A set holds the classes that a row may have: about {100 * (1 - ALPHA):.0f} % of the sets "
        f"of new rows like these have the right one. One class in the set: the model is sure. "
        f"None: no class is as clear as for most rows, which happens where most are easy. In "
        f"Python: predict_set(X, alpha={ALPHA})."
    )
    if count:
        text += f" Most often together: {second} and {first}, {count:,} rows."
    return html.section("How sure is it?", table, text, "sure")


def _effects(run: TrainingRun, X: Any) -> str:
    """Draw the partial dependence of the features that matter most."""
    if X.shape[1] > MOST_FEATURES:
        text = (
            f"Effects are computed for up to {MOST_FEATURES:,} features; here are {X.shape[1]:,}."
        )
        return html.section("What the features do", "", text, "effects")
    found = effects(run.pipeline, X)
    shown = found.strongest(SHOWN_FEATURES)
    changes = [found.average[place] - found.average[place][:, :1] for place in shown]
    ends = min(change.min() for change in changes), max(change.max() for change in changes)
    margin = 0.05 * max(ends[1] - ends[0], np.finfo(np.float64).tiny)
    limits = ends[0] - margin, ends[1] + margin
    figures = [_effect(run, found, int(place), limits) for place in shown]
    text = (
        "The change of the prediction (for classes: of the decision value) as one column changes "
        "and the others stay as they are, on average over rows; the strongest columns first. It "
        "describes the model, not a cause."
    )
    if len(found.pairs):
        size = found.interaction.max(axis=0)
        a, b = (found.names[f] for f in found.pairs[int(np.argmax(size))])
        text += f" The strongest interaction is that of {a} and {b}, {readable(size.max(), 3)}."
    return html.section("What the features do", html.figures(figures), text, "effects")


def _effect(run: TrainingRun, found: Effects, place: int, limits: tuple[float, float]) -> str:
    """Draw one feature, with a line for each of the classes that it matters most for."""
    lines, grid = found.average[place], found.grids[place]
    outputs = np.sort(np.argsort(-found.strength[:, place], kind="stable")[:SHOWN_CLASSES])
    classes = getattr(run.model, "classes_", None)
    name = found.names[place]
    with html.drawing(figsize=(4.6, 2.6)) as (fig, ax):
        for o in outputs:
            label = None if classes is None or len(lines) == 1 else plain_text(classes[o])
            marker = "o" if len(grid) < 5 or grid.dtype.kind == "U" else ""
            colour = f"C{o % 10}"  # a class has one colour in all pictures
            ax.plot(grid, lines[o] - lines[o, 0], color=colour, marker=marker, label=label)
        if len(lines) > 1:
            ax.legend()
        ax.axhline(0.0, color="0.5", linewidth=0.5)
        label = plain_text(name if len(name) <= 40 else f"{name[:39]}…")
        ax.set(xlabel=label, ylabel="change", ylim=limits)
        picture = html.svg(fig, f"effect of {name}")
    caption = f"Mean size of its effect {readable(found.strength[:, place].max(), 3)}."
    return html.figure(picture, name, caption)


def _suspicious(run: TrainingRun, X: Any) -> str:
    """List the rows whose target the model without them believes least."""
    found = inspect_rows(run.model, X, run.y)
    predicted = left_out_predictions(run.model, run.y, found.residual)
    rows = [
        [
            f"{i + 1:,}",
            _short(run.y[i]),
            _short(predicted[i]),
            f"{100 * found.suspicion[i]:.1f} %",
            "worse" if found.influence[i] > 0 else "better",
        ]
        for i in found.most_suspicious(SHOWN_ROWS)
    ]
    head = ["row", "target", "predicted without it", "suspicion", "it makes others"]
    what = "share of rows with a smaller error"
    if run.task == "classification":
        what = "probability that the label is wrong, by the model without the row"
    text = (
        f"Rows that the model fitted without them predicts worst: wrong targets, or rare cases. "
        f"Suspicion: {what}. Rows count from 1, the first of the file."
    )
    return html.section("Which rows look wrong?", html.table(head, rows), text, "rows")


def _short(value: Any) -> str:
    return readable(value, 5) if isinstance(value, float) else str(value)
