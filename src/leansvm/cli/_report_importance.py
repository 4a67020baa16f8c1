"""Which columns a model without learned scales looks at: permutation importance.

The score falls by so much when the values of one column are shuffled among the rows.
"""

from __future__ import annotations

import numpy as np

from leansvm.cli._evaluate import metric_of, rows_of
from leansvm.cli._run import TrainingRun
from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

_ROWS, _REPEATS = 500, 3
_MOST_COLUMNS, _SHOWN = 200, 20


def importance(run: TrainingRun) -> str:
    """Return the section; nothing for sparse rows and for more columns than anyone reads."""
    columns = run.data.X.shape[1]
    if columns > _MOST_COLUMNS or hasattr(run.data.X, "nnz"):
        return ""
    losses = _losses(run)
    names = (
        list(run.data.kinds) if run.data.kinds is not None else [f"x{i}" for i in range(columns)]
    )
    order = np.argsort(losses)[::-1][:_SHOWN]
    percent = run.task == "classification"
    short = [name if len(name) <= 24 else f"{name[:23]}…" for name in names]
    with html.drawing(figsize=(4.6, 0.8 + 0.22 * len(order))) as (fig, ax):
        places = np.arange(len(order))
        ax.barh(places, (100 if percent else 1) * losses[order], height=0.7)
        ax.set_yticks(places, [plain_text(short[i]) for i in order])
        ax.invert_yaxis()
        ax.set_xlabel("percentage points of accuracy" if percent else "R²")
        picture = html.svg(fig, "importance of the columns")
    metric = metric_of(run.pipeline)[0]
    text = (
        f"The loss of {metric} when the values of one column are shuffled, on "
        f"{min(_ROWS, len(run.y)):,} training rows. Columns that say the same share it between "
        f"them; it does not say that a column is the cause."
    )
    caption = f"{len(order)} of {columns} columns." if columns > len(order) else ""
    figure = html.figure(picture, "Permutation importance", caption)
    return html.section("Which columns matter", html.figures([figure]), text, "importance")


def _losses(run: TrainingRun) -> np.ndarray:
    """Return the mean loss of the score for each column."""
    from sklearn.inspection import permutation_importance

    rows = np.random.default_rng(0).permutation(len(run.y))[:_ROWS]
    X, y = rows_of(run.data.X, rows), run.y[rows]
    found = permutation_importance(run.pipeline, X, y, n_repeats=_REPEATS, random_state=0)
    return np.asarray(found.importances_mean)
