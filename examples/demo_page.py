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

if TYPE_CHECKING:
    from demo import Result, Task

SIDE = 400  # units of a panel's coordinate system
GRID = 180  # pixels of a decision surface, each way
NEGATIVE, POSITIVE = (0.85, 0.37, 0.05), (0.15, 0.39, 0.92)  # orange, blue


def page(results: list[Result], note: str) -> str:
    """Return the whole page."""
    planar = [r for r in results if r.task.X_train.shape[1] == 2]
    lines = "".join(f"<li>{line}</li>" for line in summary(results))
    panels = data_panel(planar[0].task) + "".join(surface_panel(r) for r in planar)
    body = BODY.format(summary=lines, panels=panels, table=table(results), curves=curves(results))
    return _html.page(TITLE, LEAD, body, [note], style=STYLE)


def summary(results: list[Result]) -> list[str]:
    """One sentence per data set, computed from the results."""
    lines = []
    for task, group in by_task(results):
        reference, best = group[0], max(group, key=lambda r: r.accuracy)
        others = [r for r in group[1:] if r is not best]
        text = f"<b>{task.name}</b>: most accurate is {escape(best.model)} ({best.accuracy:.1%})"
        if best is reference:
            runner_up = max(others, key=lambda r: r.accuracy)
            text += f", then {escape(runner_up.model)} ({runner_up.accuracy:.1%})"
        else:
            text += f"; {escape(reference.model)} reaches {reference.accuracy:.1%}"
        fastest = min(group, key=lambda r: r.fit_seconds)
        lines.append(
            f"{text}. Fastest to fit: {escape(fastest.model)}, {milliseconds(fastest.fit_seconds)}."
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
        for label, name in ((0, "neg"), (1, "pos"))
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
    caption = f"{result.accuracy:.1%} correct · {result.n_support:,} support vectors"
    return panel(body, result.model, caption)


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


def curves(results: list[Result]) -> str:
    """Leave-one-out error against C, for every model that searched it."""
    searched = [r for r in results if hasattr(r.estimator, "cv_curve_")]
    if not searched:
        return ""
    figures = "".join(curve_figure(r) for r in searched)
    return f"""<section><h2>Choosing C without cross-validation</h2>
<p><code>C="loo"</code> scores {len(searched[0].estimator.cv_curve_)} values of C by their exact
leave-one-out error, in closed form: no model is refitted. The times above include the search.</p>
<div class="grid wide">{figures}</div></section>"""


def curve_figure(result: Result) -> str:
    """Draw one curve on logarithmic C; the chosen C is marked."""
    error = np.ravel(result.estimator.cv_curve_)
    C = np.logspace(-6, 7, len(error))
    top = float(error.max())
    x = 40 + (np.log10(C) + 6) / 13 * 540
    y = 200 - error / top * 170
    chosen = int(np.argmin(np.abs(np.log(C) - np.log(result.estimator.C_))))
    ticks = "".join(
        f'<text x="{40 + (k + 6) / 13 * 540:.0f}" y="222" text-anchor="middle">10'
        f'<tspan dy="-6" font-size="10">{k}</tspan></text>'
        for k in range(-6, 8, 3)
    )
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    anchor = "end" if x[chosen] > 400 else "start"
    offset = -10 if anchor == "end" else 10
    return (
        f'<figure><svg viewBox="0 0 600 232" role="img" aria-label="leave-one-out error against C">'
        f'<path d="M40 200H580" class="axis"/><path d="{path}" class="curve"/>'
        f'<path d="M{x[chosen]:.1f} {y[chosen]:.1f}V200" class="axis"/>'
        f'<circle cx="{x[chosen]:.1f}" cy="{y[chosen]:.1f}" r="5" class="mark"/>'
        f'<text x="{x[chosen] + offset:.1f}" y="{y[chosen] - 10:.1f}" text-anchor="{anchor}">'
        f"C = {result.estimator.C_:.3g}</text>{ticks}</svg>"
        f"<figcaption><b>{result.task.name}</b><br>mean squared leave-one-out error against C, "
        f"summed over the classes; 0 at the bottom, {top:.2g} at the top</figcaption></figure>"
    )


# --- table -----------------------------------------------------------------


def table(results: list[Result]) -> str:
    """The results, one group of rows per data set, with a bar for each fit time."""
    groups = []
    for task, group in by_task(results):
        m, d = task.X_train.shape
        slowest = max(r.fit_seconds for r in group)
        head = (
            f'<tr><th colspan="6" scope="rowgroup">{task.name} <small>{m:,} × {d} training, '
            f"{len(task.y_test):,} test, γ = {task.gamma:g}, C = {task.C:g}</small></th></tr>"
        )
        rows = "".join(row(r, slowest, "reference" if r is group[0] else "ours") for r in group)
        groups.append(f"<tbody>{head}{rows}</tbody>")
    names = ("model", "accuracy", "fit", "predict", "support vectors", "fit time / SVC")
    header = "".join(f'<th scope="col">{name}</th>' for name in names)
    return f"<table><thead><tr>{header}</tr></thead>{''.join(groups)}</table>"


def row(r: Result, slowest: float, kind: str) -> str:
    """One model's cells."""
    share = r.n_support / len(r.task.y_train)
    bar = f'<i style="width:{100 * r.fit_seconds / slowest:.0f}%"></i>'
    return (
        f'<tr class="{kind}"><th scope="row">{escape(r.model)}</th><td>{r.accuracy:.2%}</td>'
        f"<td>{milliseconds(r.fit_seconds)}{bar}</td><td>{milliseconds(r.predict_seconds)}</td>"
        f"<td>{r.n_support:,} <small>{share:.0%}</small></td><td>{r.fit_ratio:.2f}×</td></tr>"
    )


def milliseconds(value: float) -> str:
    """Seconds as text, in the unit that reads well."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


TITLE = "leansvm beside scikit-learn’s SVC"
LEAD = "Least-squares kernel machines, trained on this machine in one run."

# What the shared style of all pages lacks.
STYLE = """
svg text { fill: var(--soft); font-size: 14px; }
path { fill: none; } .edges { stroke: var(--ink); opacity: .22; stroke-dasharray: 3 5; }
.boundary { stroke: var(--ink); stroke-width: 2; stroke-linejoin: round; }
.dots { stroke-linecap: round; stroke-width: 4.5; } .neg { stroke: var(--neg); }
.pos { stroke: var(--pos); } .wrong { stroke: var(--ink); stroke-width: 5; }
.axis { stroke: var(--line); stroke-width: 1.5; } .mark { fill: var(--pos); }
.curve { stroke: var(--pos); stroke-width: 2.5; stroke-linejoin: round; }
table { width: 100%; min-width: 40rem; }
tbody th[colspan] { padding-top: 1.1rem; font-weight: 650; }
tbody th small { font-weight: 400; margin-left: .4rem; }
@media (max-width: 40rem) { tbody th small { display: block; margin: 0; white-space: normal;
  max-width: 85vw; } }
td i { display: block; height: 4px; margin: 3px 0 0 auto; border-radius: 2px;
  background: var(--pos); } tr.reference i { background: var(--soft); }
"""

BODY = """<ul>{summary}</ul>
<section><h2>Decision surfaces on the checkerboard</h2>
<p>Colour is the predicted class, its strength the size of the decision function up to 1. The solid
line is the decision boundary, dashed lines are the true squares, and dots are the test points
on the wrong side.</p><div class="grid">{panels}</div></section>
<section><h2>Accuracy, time and size</h2><div class="scroll">{table}</div></section>
{curves}"""
