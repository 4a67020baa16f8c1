"""Answers of the fit in the report: how sure it is, what features do, which rows look wrong.

They come from the models without each row and from exact gradients; nothing is fitted again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from leansvm.cli._evaluate import left_out_predictions, rows_of
from leansvm.cli._output import readable
from leansvm.cli._read import DATE, TRUTH
from leansvm.cli._report._accuracy import equal_groups, plain_ticks
from leansvm.cli._report._model import in_python
from leansvm.cli._report._rows import position, strongest, suspicious
from leansvm.cli._run import TrainingRun
from leansvm.inspection import Effects, Importance, effects, inspect_rows
from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

ALPHA = 0.1
FEWEST_ROWS = 20  # fewer say nothing about one in ten
SOME_ROWS = 500  # that pictures and averages are made of
MOST_FEATURES = 1000  # whose effects are computed
SHOWN_FEATURES, SHOWN_CLASSES = 6, 4
DATE_VALUES = 60  # days at which the effect of a date is drawn


@dataclass
class Answered:
    """Sections of the report, and the rows that look wrong, the worst first."""

    sections: list[str]
    doubtful: list[int]


def answers(run: TrainingRun, importance: Importance | None) -> Answered:
    """Return the sections that the machine has answers for."""
    found = Answered([], [])
    if len(run.y) < FEWEST_ROWS:
        return found
    X = run.pipeline[:-1].transform(run.data.X)
    X = X.tocsr() if issparse(X) else X
    some = np.sort(np.random.default_rng(0).permutation(len(run.y))[:SOME_ROWS])
    if hasattr(run.model, "support_vectors_"):
        found.sections.append(_effects(run, rows_of(run.data.X, some), importance))
    if hasattr(run.model, "keep_rows"):
        regression = run.task == "regression"
        found.sections.append(_intervals(run, X, some) if regression else _sets(run, X, some))
        table, found.doubtful = suspicious(run, X, importance)
        found.sections.append(table)
    return found


def _intervals(run: TrainingRun, X: Any, some: np.ndarray) -> str:
    """Draw intervals of some rows, by prediction."""
    low, high = run.model.predict_interval(rows_of(X, some), ALPHA).T
    y, seen = run.y[some], run.model.predict(rows_of(X, some))
    # around the prediction of the model without the row: the fit was drawn towards its own rows
    middle = left_out_predictions(run.model, run.y, inspect_rows(run.model, X, run.y).residual)[
        some
    ]
    low, high = low + middle - seen, high + middle - seen
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
        plain_ticks(ax.xaxis, ax.yaxis)
        picture = html.svg(fig, "prediction intervals of some rows")
    width, covered = readable(float(np.mean(high - low))), 100 * float(inside.mean())
    text = (
        f"The interval (jackknife+) contains the target of about {100 * (1 - ALPHA):.0f} % of new "
        f"rows like these. It is {width} wide on average. Around the prediction of the model "
        f"without the row, it contains {covered:.1f} % of the rows shown."
        f"{in_python(run, 'predict_interval', ALPHA)}"
    )
    groups = equal_groups(middle, min(5, max(1, len(middle) // FEWEST_ROWS)))
    figures = [
        html.figure(
            picture,
            "Intervals",
            f"{len(some):,} rows, each predicted by the model without it; orange: targets outside "
            f"their interval.",
        ),
        _coverage(groups, middle, inside, high - low),
    ]
    worst = min(groups, key=lambda g: inside[g].mean())
    if len(worst) >= FEWEST_ROWS and inside[worst].mean() < 1 - 1.5 * ALPHA:
        text += (
            f" If the prediction is {_range(middle[worst])}, the intervals contain only "
            f"{100 * inside[worst].mean():.0f} % of the targets. Then `predict_quantiles(X)`, "
            f"whose width follows the noise, is better."
        )
    return html.section("How sure is it?", html.figures(figures), text, "sure")


def _range(values: np.ndarray) -> str:
    return f"{readable(float(values.min()), 3)} to {readable(float(values.max()), 3)}"


def _coverage(
    groups: list[np.ndarray], middle: np.ndarray, inside: np.ndarray, width: np.ndarray
) -> str:
    """Return a table of how often intervals hold the target, from small to large predictions."""
    rows = [
        [
            _range(middle[g]),
            f"{len(g):,}",
            f"{100 * float(inside[g].mean()):.0f} %",
            readable(float(width[g].mean()), 3),
        ]
        for g in groups
    ]
    head = ["prediction", "rows", "within", "mean width"]
    return html.table(head, rows, "Coverage of the intervals, by prediction")


def _sets(run: TrainingRun, X: Any, some: np.ndarray) -> str:
    """Count the classes in the sets of some rows."""
    sets = run.model.predict_set(rows_of(X, some), ALPHA)
    sizes = sets.sum(axis=1)
    counts = np.bincount(sizes, minlength=2)
    names = {0: "none: fits no class well", 1: "one", 2: "two", 3: "three"}
    rows = [
        [names.get(size, str(size)), f"{count:,}", f"{100 * count / len(sizes):.1f} %"]
        for size, count in enumerate(counts)
        if count
    ]
    table = html.table(
        ["classes in the set", "rows", "share"], rows, f"Sets of {len(sizes):,} training rows"
    )
    pairs = [
        (int(np.sum(sets[:, a] & sets[:, b])), run.model.classes_[a], run.model.classes_[b])
        for a in range(sets.shape[1])
        for b in range(a)
    ]
    count, first, second = max(pairs, key=lambda pair: pair[0])
    text = (
        f"A set lists the classes that a row may have. About {100 * (1 - ALPHA):.0f} % of the sets "
        f"of new rows like these contain the right class. A set with one class is a confident "
        f"prediction.{in_python(run, 'predict_set', ALPHA)}"
    )
    if counts[0]:
        text += " An empty set means that the row fits no class well."
    if count and len(run.model.classes_) > 2:
        text += f" {second} and {first} are together most often, in {count:,} rows."
    return html.section("How sure is it?", table, text, "sure")


def _effects(run: TrainingRun, X: Any, importance: Importance | None) -> str:
    """Draw the partial dependence of the columns that matter most."""
    if X.shape[1] > MOST_FEATURES:
        text = f"The file has {X.shape[1]:,} columns; effects are for up to {MOST_FEATURES:,}."
        return html.section("What the columns do", "", text, "effects")
    chosen = None
    if importance is not None:
        names = strongest(importance, SHOWN_FEATURES)
        chosen = [position(X, name) for name in names]
    found = effects(run.pipeline, X, features=chosen)
    shown = found.strongest(SHOWN_FEATURES) if chosen is None else np.arange(len(chosen))
    if _looks_for_first_class(run):
        found.average = [-lines for lines in found.average]
    drawn = {int(place): of_dates(run, X, found.names[place]) for place in shown}
    curves = [found.average[place] for place in shown if not drawn[int(place)]]
    changes = [curve - curve[:, :1] for curve in curves]
    changes += [change[None] for lines in drawn.values() for _, _, change in lines]
    ends = min(change.min() for change in changes), max(change.max() for change in changes)
    margin = 0.05 * max(ends[1] - ends[0], np.finfo(np.float64).tiny)
    limits = ends[0] - margin, ends[1] + margin
    figures, colours = [], class_colours(found, drawn)
    for place, lines in drawn.items():
        figures += [_date_effect(found.names[place], *line, limits) for line in lines]
        if not lines:
            figures.append(_effect(run, found, place, limits, colours))
    what = _value_name(run)
    what += ", in units of the target," if run.task == "regression" else ""
    if run.positive is not None:
        what += f" (upwards: towards {run.positive})"
    text = (
        f"Each curve shows the mean change of the {what} when one column changes and the others "
        f"stay. The most important columns come first. Curves describe the model, not causes."
    )
    if len(found.pairs):
        size = found.interaction.max(axis=0)
        named = dict(zip(found.features.tolist(), found.names, strict=True))
        a, b = (named[int(f)] for f in found.pairs[int(np.argmax(size))])
        if size.max() > 0.1 * found.strength.max():
            text += f" The effect of {a} depends most on the value of {b}, and vice versa."
    return html.section("What the columns do", html.figures(figures), text, "effects")


def _value_name(run: TrainingRun) -> str:
    return "prediction" if run.task == "regression" else "decision value"


def _looks_for_first_class(run: TrainingRun) -> bool:
    return run.positive is not None and run.positive == run.model.classes_[0]


def of_dates(run: TrainingRun, X: Any, name: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the effect of a date by parts: label, values and mean change; none for others.

    A single line over time would jump with every hour. So rows keep their time of day while the day
    changes, and their day while the hour changes.
    """
    several = run.task == "classification" and run.positive is None
    if (run.data.kinds or {}).get(name) != DATE or several:
        return []
    import pandas as pd

    moments = X[name].dropna()
    day = moments.dt.normalize()
    ends = day.quantile([0.02, 0.98])
    days = pd.date_range(ends.iloc[0], ends.iloc[-1], periods=DATE_VALUES).normalize().unique()
    moved = [day - day + when + (moments - day) for when in days]
    found = [(name, days.to_numpy(), _mean_predictions(run, X, name, moved))]
    if (moments != day).any():
        hours = np.arange(24)
        moved = [day + pd.Timedelta(hours=int(hour)) for hour in hours]
        found.append(("hour of the day", hours, _mean_predictions(run, X, name, moved)))
    week = moments - pd.to_timedelta(moments.dt.day_of_week, unit="D")
    weekdays = np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
    moved = [week + pd.Timedelta(days=i) for i in range(7)]
    found.append(("day of the week", weekdays, _mean_predictions(run, X, name, moved)))
    return [(label, values, means - means[0]) for label, values, means in found]


def _mean_predictions(run: TrainingRun, X: Any, name: str, columns: list[Any]) -> np.ndarray:
    """Return the mean prediction with each of the columns in place of the named one."""
    rows, sign = X.loc[columns[0].index], -1.0 if _looks_for_first_class(run) else 1.0
    value = run.pipeline.predict if run.positive is None else run.pipeline.decision_function
    with warnings.catch_warnings():  # moments that no row has are among them on purpose
        warnings.filterwarnings("ignore", ".* outside the range of the training rows", UserWarning)
        return np.array([sign * value(rows.assign(**{name: c})).mean() for c in columns])


def _date_effect(
    name: str, label: str, values: np.ndarray, change: np.ndarray, limits: tuple[float, float]
) -> str:
    with html.drawing(figsize=(4.6, 2.6)) as (fig, ax):
        ax.plot(values, change, marker="o" if len(values) < 30 else "", markersize=4)
        ax.axhline(0.0, color="0.5", linewidth=0.5)
        ax.set(xlabel=plain_text(label), ylabel="change", ylim=limits)
        plain_ticks(ax.yaxis)
        short_dates(ax, values)
        picture = html.svg(fig, f"effect of {name}, {label}")
    caption = "Only the day changes." if label == name else f"Only the {label} changes."
    return html.figure(picture, name if label == name else f"{name}: {label}", caption)


def short_dates(ax: Any, values: np.ndarray) -> None:
    """Write few dates at the axis, short enough not to touch."""
    if values.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=2, maxticks=5)  # with 3 it fails for some ranges
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _shown_classes(found: Effects, place: int) -> np.ndarray:
    """Return the outputs that a column matters most for."""
    return np.sort(np.argsort(-found.strength[:, place], kind="stable")[:SHOWN_CLASSES])


def class_colours(found: Effects, places: Iterable[int]) -> dict[int, int]:
    """Return a colour for each output that is drawn; nothing if there are more than colours."""
    outputs = np.unique([o for place in places for o in _shown_classes(found, place)])
    if len(outputs) > len(html.COLOURS):
        return {}
    return {int(o): number for number, o in enumerate(outputs)}


def _effect(
    run: TrainingRun,
    found: Effects,
    place: int,
    limits: tuple[float, float],
    colours: dict[int, int],
) -> str:
    """Draw one feature, with a line for each of the classes that it matters most for."""
    lines, grid = found.average[place], found.grids[place]
    if (run.data.kinds or {}).get(found.names[place]) == TRUTH:
        grid = np.array([{"True": "yes", "False": "no"}.get(str(level), level) for level in grid])
    outputs = _shown_classes(found, place)
    classes = getattr(run.model, "classes_", None)
    name = found.names[place]
    with html.drawing(figsize=(4.6, 2.6)) as (fig, ax):
        for number, o in enumerate(outputs):
            label = None if classes is None or len(lines) == 1 else plain_text(classes[o])
            marker = "o" if len(grid) < 5 or grid.dtype.kind == "U" else ""
            colour = html.COLOURS[colours.get(int(o), number)]
            ax.plot(grid, lines[o] - lines[o, 0], color=colour, marker=marker, label=label)
        if len(lines) > 1:
            ax.legend()
        ax.axhline(0.0, color="0.5", linewidth=0.5)
        label = plain_text(name if len(name) <= 40 else f"{name[:39]}…")
        ax.set(xlabel=label, ylabel="change", ylim=limits)
        plain_ticks(ax.yaxis)
        _value_ticks(ax, grid)
        short_dates(ax, grid)
        picture = html.svg(fig, f"effect of {name}")
    change = readable(found.strength[:, place].max(), 3)
    caption = (
        f"If {name} takes another row's value, the {_value_name(run)} changes by {change} on "
        f"average."
    )
    return html.figure(picture, name, caption)


def _value_ticks(ax: Any, grid: np.ndarray) -> None:
    """Write numbers as people do, few of them one by one; turn and shorten long names of levels."""
    if grid.dtype.kind in "iuf" and len(grid) < 5:  # such as 0 and 1
        ax.set_xticks(grid, [readable(float(value)) for value in grid])
        ax.margins(x=0.2)
    elif grid.dtype.kind in "iuf":
        plain_ticks(ax.xaxis)
    if grid.dtype.kind == "U" and sum(map(len, grid)) > 36:
        short = [name if len(name) <= 12 else f"{name[:11]}…" for name in grid]
        ax.set_xticks(range(len(grid)), [plain_text(name) for name in short], rotation=90)
