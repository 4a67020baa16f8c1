"""Which columns matter: permutation importance.

The score falls by so much when the values of one column are shuffled among the rows.
"""

from __future__ import annotations

from leansvm import inspection
from leansvm.cli._evaluate import metric_of
from leansvm.cli._run import TrainingRun
from leansvm.plotting import ImportanceDisplay, html

_ROWS, _REPEATS = 500, 3
_MOST_COLUMNS, _SHOWN = 200, 20


def importance(run: TrainingRun) -> str:
    """Return the section; nothing for sparse rows and for more columns than anyone reads."""
    columns = run.data.X.shape[1]
    if columns > _MOST_COLUMNS or hasattr(run.data.X, "nnz"):
        return ""
    found = inspection.importance(
        run.pipeline, run.data.X, run.y, n_repeats=_REPEATS, max_rows=_ROWS
    )
    found.names = [name if len(name) <= 24 else f"{name[:23]}…" for name in found.names]
    shown = min(columns, _SHOWN)
    with html.drawing(figsize=(4.6, 0.8 + 0.22 * shown)) as (fig, ax):
        ImportanceDisplay(found).plot(ax=ax, max_columns=_SHOWN, bar_kw={"height": 0.7})
        ax.set(xlabel=f"loss of {found.scoring}", ylabel="")
        picture = html.svg(fig, "importance of the columns")
    metric = metric_of(run.pipeline)[0]
    text = (
        f"The loss of {metric} when the values of one column are shuffled, on "
        f"{min(_ROWS, len(run.y)):,} training rows. Columns that say the same share it between "
        f"them; it does not say that a column is the cause."
    )
    caption = f"{shown} of {columns} columns." if columns > shown else ""
    figure = html.figure(picture, "Permutation importance", caption)
    return html.section("Which columns matter", html.figures([figure]), text, "importance")
