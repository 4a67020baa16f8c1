"""The HTML page of the demo: one file, no external resources, light and dark, wide and narrow.

Pictures are inline SVG. A decision surface is a PNG whose colour is the sign of f and whose
opacity is |f|, so that it sits on a light or a dark page alike; lines use the text colour.
"""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from contourpy import contour_generator
from matplotlib.image import imsave

from leansvm import _html
from leansvm.plotting import FeatureScalesDisplay

if TYPE_CHECKING:
    from demo import Result, Task

SIDE = 400  # units of a panel's coordinate system
GRID = 180  # pixels of a decision surface, each way
MOST_FEATURES = 12  # bars of a picture
NEGATIVE, POSITIVE = (0.85, 0.37, 0.05), (0.15, 0.39, 0.92)  # orange, blue


def page(results: list[Result], note: str) -> str:
    """Return the whole page."""
    planar = [r for r in results if r.task.X_train.shape[1] == 2]
    lines = "".join(f"<li>{line}</li>" for line in summary(results))
    panels = data_panel(planar[0].task) + "".join(surface_panel(r) for r in planar)
    body = BODY.format(summary=lines, panels=panels, table=table(results), scales=scales(results))
    return _html.page(TITLE, headline(results), body, [note], style=STYLE)


def headline(results: list[Result]) -> str:
    """What the run shows, in three sentences computed from the results."""
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
        f"{names}, raw features and nothing set: most accurate on {best} of {len(ours)} data sets, "
        f"at least as good as HistGradientBoosting on {even}. All test rows take "
        f"{predict[0]:.2f}\N{NO-BREAK SPACE}s to predict, SVC and SVR "
        f"{predict[1]:.2f}\N{NO-BREAK SPACE}s, HistGradientBoosting "
        f"{predict[2]:.2f}\N{NO-BREAK SPACE}s. Training takes {fit[0]:.0f}\N{NO-BREAK SPACE}s with "
        f"the choice of kernel, one scale for each feature, C and the number of points; "
        f"SVC and SVR, which choose nothing, {fit[1]:.0f}\N{NO-BREAK SPACE}s, "
        f"HistGradientBoosting {fit[2]:.0f}\N{NO-BREAK SPACE}s."
    )


def summary(results: list[Result]) -> list[str]:
    """One sentence per data set, computed from the results."""
    lines = []
    for task, group in by_task(results):
        first, *others = sorted(group, key=lambda r: -r.score)
        rest = ", ".join(f"{escape(r.model)} {r.score:.1f}" for r in others)
        lines.append(
            f"<b>{task.name}</b>, {escape(task.shows)}: best is {escape(first.model)} with "
            f"{first.score:.1f} % {task.metric}; {rest}."
        )
    return lines


def by_task(results: list[Result]) -> list[tuple[Task, list[Result]]]:
    """Group the results by data set, in order."""
    names = dict.fromkeys(r.task.name for r in results)
    groups = [[r for r in results if r.task.name == name] for name in names]
    return [(group[0].task, group) for group in groups]


# --- pictures --------------------------------------------------------------


def data_panel(task: Task) -> str:
    """Training points in the colour of their class."""
    groups = "".join(
        f'<path d="{dots(task.X_train[task.y_train == label])}" class="dots {name}"/>'
        for label, name in zip(np.unique(task.y_train), ("neg", "pos"), strict=True)
    )
    return panel(groups, "The training points", f"{len(task.y_train):,} of them, two classes")


def surface_panel(result: Result) -> str:
    """Decision function, decision boundary and the test points on the wrong side."""
    task, model = result.task, result.estimator
    axis = (np.arange(GRID) + 0.5) * (4 / GRID)
    grid = np.column_stack([m.ravel() for m in np.meshgrid(axis, axis)])
    f = model.decision_function(grid).reshape(GRID, GRID)
    wrong = task.X_test[model.predict(task.X_test) != task.y_test]

    boundary = contour_generator(axis, axis, f).lines(0.0)
    body = (
        f'<image href="{png(f)}" width="{SIDE}" height="{SIDE}" preserveAspectRatio="none"/>'
        f'<path d="{"".join(polyline(line) for line in boundary)}" class="boundary"/>'
        f'<path d="{dots(wrong)}" class="dots wrong"/>'
    )
    kept = "trees" if result.n_points is None else f"{result.n_points:,} points"
    return panel(body, result.model, f"{result.score:.1f} % correct · {kept}")


def panel(body: str, title: str, caption: str) -> str:
    """One square picture with the true squares' edges and a caption below."""
    edges = "".join(f"M{i * SIDE // 4} 0V{SIDE}M0 {i * SIDE // 4}H{SIDE}" for i in (1, 2, 3))
    return (
        f'<figure><svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-label="{escape(title)}">'
        f'{body}<path d="{edges}" class="edges"/></svg>'
        f"<figcaption><b>{escape(title)}</b><br>{escape(caption)}</figcaption></figure>"
    )


def png(f: np.ndarray) -> str:
    """Sign as colour, magnitude as opacity; a data URL. Row 0 is drawn at the top, y = 4."""
    rgba = np.empty((*f.shape, 4))
    rgba[..., :3] = np.where(f[..., None] < 0, NEGATIVE, POSITIVE)
    rgba[..., 3] = 0.75 * np.minimum(np.abs(f), 1.0)
    buffer = io.BytesIO()
    imsave(buffer, rgba[::-1], format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def to_svg(points: np.ndarray) -> np.ndarray:
    """Map [0, 4]^2 to the panel; y points up."""
    return np.column_stack([points[:, 0], 4 - points[:, 1]]) * (SIDE / 4)


def polyline(points: np.ndarray) -> str:
    """SVG path data of a line through the points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in to_svg(points))


def dots(points: np.ndarray) -> str:
    """SVG path data of zero-length strokes: round caps make them dots."""
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in to_svg(points))


def scales(results: list[Result]) -> str:
    """Learned scales of the features, for every data set whose features have a meaning."""
    shown = [r for r in results if r.ours and 2 < r.task.X_train.shape[1] <= 30]
    learned = [r for r in shown if np.ptp(r.estimator.feature_scales_) > 0]
    equal = " and ".join(r.task.name for r in shown if r not in learned)
    one = f" On {equal} one scale for all features did best." if equal else ""
    return f"""<section><h2>What the models look at</h2>
<p>One scale for each feature, learned by the gradient of the leave-one-out error. A long bar means
that the model can change quickly along this feature; a feature without a bar is ignored.{one}</p>
<div class="grid wide">{"".join(scales_figure(r) for r in learned)}</div></section>"""


def scales_figure(result: Result) -> str:
    """Draw the bars of one model."""
    n_bars = min(MOST_FEATURES, result.task.X_train.shape[1])
    with _html.drawing(figsize=(4.6, 0.8 + 0.2 * n_bars)) as (figure, axis):
        FeatureScalesDisplay.from_estimator(
            result.estimator,
            max_features=MOST_FEATURES,
            feature_names=result.task.feature_names,
            ax=axis,
        )
        picture = _html.svg(figure, f"feature scales of {result.task.name}")
    return _html.figure(picture, result.task.name, f"{result.model}, {result.task.shows}")


# --- table -----------------------------------------------------------------


def table(results: list[Result]) -> str:
    """The results, one group of rows per data set, with a bar for each fit time."""
    groups = []
    for task, group in by_task(results):
        m, d = task.X_train.shape
        slowest = max(r.fit_seconds for r in group)
        head = (
            f'<tr><th colspan="6" scope="rowgroup">{task.name} <small>{escape(task.shows)} · '
            f"{m:,} × {d} training, {len(task.y_test):,} test</small></th></tr>"
        )
        best = max(r.score for r in group)
        rows = "".join(row(r, slowest, best) for r in group)
        groups.append(f"<tbody>{head}{rows}</tbody>")
    names = ("model", "accuracy or R²", "fit", "predict", "size", "points kept")
    header = "".join(f'<th scope="col">{name}</th>' for name in names)
    return f"<table><thead><tr>{header}</tr></thead>{''.join(groups)}</table>"


def row(r: Result, slowest: float, best: float) -> str:
    """One model's cells; the best score of the data set is bold."""
    bar = f'<i style="width:{100 * r.fit_seconds / slowest:.0f}%"></i>'
    score = f"<b>{r.score:.1f} %</b>" if r.score == best else f"{r.score:.1f} %"
    share = 0.0 if r.n_points is None else r.n_points / len(r.task.y_train)
    points = "trees" if r.n_points is None else f"{r.n_points:,} <small>{share:.0%}</small>"
    return (
        f'<tr class="{"ours" if r.ours else "reference"}"><th scope="row">{escape(r.model)}</th>'
        f"<td>{score}</td><td>{milliseconds(r.fit_seconds)}{bar}</td>"
        f"<td>{milliseconds(r.predict_seconds)}</td><td>{r.n_bytes / 1000:,.0f} kB</td>"
        f"<td>{points}</td></tr>"
    )


def milliseconds(value: float) -> str:
    """Seconds as text, in the unit that reads well."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


TITLE = "leansvm beside scikit-learn, nothing set by hand"

# What the shared style of all pages lacks.
STYLE = """
svg text { fill: var(--soft); font-size: 14px; }
path { fill: none; } .edges { stroke: var(--ink); opacity: .22; stroke-dasharray: 3 5; }
.boundary { stroke: var(--ink); stroke-width: 2; stroke-linejoin: round; }
.dots { stroke-linecap: round; stroke-width: 4.5; } .neg { stroke: var(--neg); }
.pos { stroke: var(--pos); } .wrong { stroke: var(--ink); stroke-width: 5; }
table { width: 100%; min-width: 40rem; }
tbody th[colspan] { padding-top: 1.1rem; font-weight: 650; }
tbody th small { font-weight: 400; margin-left: .4rem; }
@media (max-width: 40rem) { table { min-width: 0; font-size: .84rem; }
  th, td { padding-inline: .25rem; } tr > :last-child { padding-right: 0; }
  th { white-space: normal; } tbody th small, td small { display: block; margin: 0; }
  /* predict and size are for wide pages */
  tr > :nth-child(4), tr > :nth-child(5) { display: none; } }
td i { display: block; height: 4px; margin: 3px 0 0 auto; border-radius: 2px;
  background: var(--pos); } tr.reference i { background: var(--soft); }
"""

BODY = """<ul>{summary}</ul>
<section><h2>Accuracy, time and size</h2><div class="scroll">{table}</div></section>
{scales}
<section><h2>Decision surfaces on the checkerboard</h2>
<p>Colour is the predicted class, its strength the size of the decision function up to 1. The solid
line is the decision boundary, dashed lines are the true squares, and dots are the test points
on the wrong side.</p><div class="grid">{panels}</div></section>"""
