"""Which columns matter: the score falls by so much when one column is shuffled among the rows."""

from __future__ import annotations

import numpy as np

from leansvm import inspection
from leansvm.cli._pipeline import encoder_of
from leansvm.cli._run import TrainingRun
from leansvm.cli._scores import METRICS, scorer_of
from leansvm.plotting import ImportanceDisplay, html

_ROWS, _REPEATS = 1000, 5
_MOST_COLUMNS, _SHOWN = 200, 20


def measured(run: TrainingRun) -> inspection.Importance | None:
    """Return the importance of the columns in use; None for sparse rows or too many columns.

    A rare class hardly changes the accuracy: two classes are measured by AUC. Numbers are measured
    by the mean absolute error, in units of the target.
    """
    if run.data.X.shape[1] > _MOST_COLUMNS or hasattr(run.data.X, "nnz"):
        return None
    n_classes = len(np.unique(run.y)) if run.task == "classification" else 0
    metric = run.metric or {0: "mae", 2: "auc"}.get(n_classes, "accuracy")
    if run.metric is None and n_classes == 2 and not hasattr(run.model, "decision_function"):
        metric = "balanced-accuracy"
    found = inspection.importance(
        run.pipeline,
        run.data.X,
        run.y,
        scoring=scorer_of(metric, n_classes, run.positive),
        n_repeats=_REPEATS,
        max_rows=_ROWS,
    )
    left_out = getattr(encoder_of(run.pipeline), "left_out_", {})
    used = [i for i, name in enumerate(found.names) if name not in left_out]
    found.names = [found.names[i] for i in used]
    found.mean, found.std, found.losses = (
        values[used] for values in (found.mean, found.std, found.losses)
    )
    found.scoring = METRICS[metric].strip()
    if METRICS[metric].endswith(" of "):
        found.scoring = f"{METRICS[metric]}{run.positive}"
    return found


def importance(run: TrainingRun, found: inspection.Importance | None) -> str:
    """Return the section; nothing where importance was not measured."""
    if found is None:
        return ""
    columns, shown = len(found.names), min(len(found.names), _SHOWN)
    short = [name if len(name) <= 24 else f"{name[:23]}…" for name in found.names]
    drawn = inspection.Importance(
        short, found.mean, found.std, found.losses, found.score, found.scoring
    )
    error = found.scoring.endswith("error") or found.scoring == "log-loss"
    with html.drawing(figsize=(4.6, 0.8 + 0.22 * shown)) as (fig, ax):
        ImportanceDisplay(drawn).plot(ax=ax, max_columns=_SHOWN, bar_kw={"height": 0.7})
        ax.set(xlabel=f"{'growth' if error else 'loss'} of {found.scoring}", ylabel="")
        picture = html.svg(fig, "importance of the columns")
    text = (
        f"The {'growth' if error else 'loss'} of {found.scoring} when the values of one column are "
        f"shuffled, on {min(_ROWS, len(run.y)):,} training rows. Columns with the same information "
        f"share it. It does not show that a column is a cause."
    )
    caption = f"{shown} of {columns} columns. " if columns > shown else ""
    caption += f"Lines show the standard deviation over {_REPEATS} shuffles."
    figure = html.figure(picture, "Permutation importance", caption)
    return html.section("Which columns matter", html.figures([figure]), text, "importance")


def unused(found: inspection.Importance | None) -> list[str]:
    """Return columns that can be left out: below 1 % of the largest and within their spread."""
    if found is None or found.mean.max() <= 0:
        return []
    small = (found.mean < 0.01 * found.mean.max()) & (found.mean <= 2 * found.std + 1e-12)
    return [name for name, out in zip(found.names, small, strict=True) if out]
