"""The HTML page of the demo: one file, no external resources, light and dark, wide and narrow.

A decision surface is an image. Its colour is the sign of f and its opacity is |f|, so that it works
on a light and on a dark page. Lines use the text colour.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgb

from leansvm.inspection import importance
from leansvm.plotting import ImportanceDisplay, html

if TYPE_CHECKING:
    from demo import Result, Task

GRID = 180  # pixels of a decision surface, each way
MOST_FEATURES = 12  # bars of a picture


def page(results: list[Result], note: str) -> str:
    """Return the whole page."""
    planar = [r for r in results if r.task.X_train.shape[1] == 2]
    shown = [r for r in results if r.ours and 2 < r.task.X_train.shape[1] <= 30]
    return html.render(
        Path(__file__).with_name("demo.html.j2"),
        title="leansvm and scikit-learn with default parameters",
        lead=headline(results),
        groups=by_task(results),
        importance=[importance_figure(r) for r in shown],
        panels=[data_panel(planar[0].task), *map(surface_panel, planar)],
        milliseconds=milliseconds,
        footer=[note],
    )


def headline(results: list[Result]) -> str:
    """Return what the run shows, in a few sentences computed from the results."""
    groups = [group for _, group in by_task(results)]
    ours = [next(r for r in group if r.ours) for group in groups]
    names = " and ".join(dict.fromkeys(r.model for r in ours))
    best = sum(
        r.score == max(other.score for other in g) for r, g in zip(ours, groups, strict=True)
    )
    trees = [r for r in results if r.n_points is None]
    even = sum(r.score >= t.score for r, t in zip(ours, trees, strict=True))
    machines = [r for r in results if not r.ours and r.n_points is not None]
    fit, predict = (
        [sum(getattr(r, name) for r in kind) for kind in (ours, machines, trees)]
        for name in ("fit_seconds", "predict_seconds")
    )
    return (
        f"{names} with raw features and default parameters: most accurate on {best} of {len(ours)} "
        f"data sets, and at least as good as HistGradientBoosting on {even}. Predicting all test "
        f"rows takes {predict[0]:.2f}\N{NO-BREAK SPACE}s; SVC and SVR take "
        f"{predict[1]:.2f}\N{NO-BREAK SPACE}s, HistGradientBoosting "
        f"{predict[2]:.2f}\N{NO-BREAK SPACE}s. Training takes {fit[0]:.0f}\N{NO-BREAK SPACE}s, "
        f"which includes choosing the kernel, a scale for each feature, C and the model size. "
        f"SVC and SVR choose nothing and take {fit[1]:.0f}\N{NO-BREAK SPACE}s; "
        f"HistGradientBoosting takes {fit[2]:.0f}\N{NO-BREAK SPACE}s."
    )


def by_task(results: list[Result]) -> list[tuple[Task, list[Result]]]:
    """Group the results by data set, in order."""
    names = dict.fromkeys(r.task.name for r in results)
    groups = [[r for r in results if r.task.name == name] for name in names]
    return [(group[0].task, group) for group in groups]


def milliseconds(value: float) -> str:
    """Seconds as text, in the unit that reads well."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


# --- pictures --------------------------------------------------------------


@contextmanager
def board():
    """Give the figure and axes of a checkerboard on [0, 4]^2, with the true squares' edges."""
    with html.drawing(figsize=(4, 4), layout="none") as (figure, ax):
        ax.set(position=(0, 0, 1, 1), xlim=(0, 4), ylim=(0, 4))
        ax.set_axis_off()
        edges = {"color": html.INK, "alpha": 0.22, "linewidth": 1, "linestyle": (0, (3, 5))}
        ax.vlines([1, 2, 3], 0, 4, **edges)
        ax.hlines([1, 2, 3], 0, 4, **edges)
        yield figure, ax


def data_panel(task: Task) -> str:
    """Training points in the colour of their class."""
    with board() as (figure, ax):
        colours = (html.NEGATIVE, html.POSITIVE)
        for label, colour in zip(np.unique(task.y_train), colours, strict=True):
            html.dots(ax, task.X_train[task.y_train == label], 3.2, color=colour)
        picture = html.svg(figure, "training points")
    return html.figure(picture, "The training points", f"{len(task.y_train):,}, two classes")


def surface_panel(result: Result) -> str:
    """Decision function, decision boundary and the test points on the wrong side."""
    task, model = result.task, result.estimator
    axis = (np.arange(GRID) + 0.5) * (4 / GRID)
    grid = np.column_stack([m.ravel() for m in np.meshgrid(axis, axis)])
    f = model.decision_function(grid).reshape(GRID, GRID)
    rgba = np.empty((GRID, GRID, 4))
    rgba[..., :3] = np.where(f[..., None] < 0, to_rgb(html.NEGATIVE), to_rgb(html.POSITIVE))
    rgba[..., 3] = 0.75 * np.minimum(np.abs(f), 1.0)
    with board() as (figure, ax):
        ax.imshow(rgba, extent=(0, 4, 0, 4), origin="lower", interpolation="none")
        ax.contour(axis, axis, f, [0.0], colors=html.INK, linewidths=1.5)
        wrong = task.X_test[model.predict(task.X_test) != task.y_test]
        html.dots(ax, wrong, 3.6, color=html.INK)
        picture = html.svg(figure, f"decision function of {result.model}")
    kept = "trees" if result.n_points is None else f"{result.n_points:,} points"
    return html.figure(picture, result.model, f"{result.score:.1f} % correct · {kept}")


def importance_figure(result: Result) -> str:
    """Draw the bars of one model."""
    task = result.task
    found = importance(result.estimator, task.X_test, task.y_test, random_state=0)
    found = replace(found, names=list(task.feature_names))
    n_bars = min(MOST_FEATURES, task.X_train.shape[1])
    with html.drawing(figsize=(4.6, 0.8 + 0.2 * n_bars)) as (figure, axis):
        ImportanceDisplay(found).plot(max_columns=MOST_FEATURES, ax=axis)
        picture = html.svg(figure, f"importance of the columns of {task.name}")
    return html.figure(picture, result.task.name, f"{result.model}, {result.task.shows}")
