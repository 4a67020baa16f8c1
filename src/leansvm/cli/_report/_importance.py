"""Which columns matter: how much the score falls when one column is shuffled among the rows.

The rows are new to the model: another model with the kernel, C and size of the fit is fitted to the
other rows, which needs no learning. On its own training rows a model also uses columns of noise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from leansvm import inspection
from leansvm.cli._evaluate import rows_of, splits_of
from leansvm.cli._pipeline import encoder_of
from leansvm.cli._read import NUMBER
from leansvm.cli._report._accuracy import plain_ticks
from leansvm.cli._run import TrainingRun, support_size
from leansvm.cli._scores import METRICS, scorer_of
from leansvm.plotting import ImportanceDisplay, html

_ROWS, _REPEATS = 1000, 5
_PARTS = 4  # one part is left out; with fewer than _ROWS rows, each part in turn
_MOST_ROWS = 20_000  # to fit the other model on
_MOST_COLUMNS, _SHOWN = 200, 20
_FEWEST_ROWS, _GROUPS = 50, 10  # of each class, for advice; groups of rows for its error
_SAME = 0.9999  # correlation of columns that are copies


@dataclass
class PartModel:
    """A model of some rows, and the numbers of rows that it has not seen."""

    model: Any
    rows: np.ndarray
    train: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))  # empty: all rows


@dataclass
class Measured:
    """The importance of the columns in use, on which rows, in words, and columns to leave out."""

    importance: inspection.Importance | None
    on_rows: str = ""
    unneeded: list[str] = field(default_factory=list)


def measured(run: TrainingRun) -> Measured:
    """Return the importance of the columns in use, and columns that the model does not need.

    Copies of a column are shuffled with it and have its name. A rare class hardly changes the
    accuracy: two classes are measured by AUC, and so are several if one is rare. Numbers are
    measured by the mean absolute error, in units of the target. Sparse rows, or too many columns,
    are not measured.
    """
    if run.data.X.shape[1] > _MOST_COLUMNS or hasattr(run.data.X, "nnz"):
        return Measured(None)
    n_classes = len(np.unique(run.y)) if run.task == "classification" else 0
    metric = run.metric or {0: "mae", 2: "auc"}.get(n_classes)  # None: inspection decides
    if run.metric is None and n_classes == 2 and not hasattr(run.model, "decision_function"):
        metric = "balanced-accuracy"
    scoring = metric and scorer_of(metric, n_classes, run.positive)
    parts, words = list(_left_out(run)), "rows that the model has not seen"
    if not parts:
        parts, words = [PartModel(run.pipeline, np.arange(len(run.y)))], "training rows"
    each: list[inspection.Importance] = []
    copies = {first: [first, *others] for first, others in copies_of(run).items()}
    for part in parts:
        options: Any = {"scoring": scoring, "n_repeats": _REPEATS, "max_rows": _ROWS}
        options["groups"] = copies
        X, y = rows_of(run.data.X, part.rows), run.y[part.rows]
        each.append(inspection.importance(part.model, X, y, **options))
        scoring = scoring or each[0].scoring
    sizes = [min(_ROWS, len(part.rows)) for part in parts]
    found = each[0]
    found.score = float(np.average([part.score for part in each], weights=sizes))
    found.losses = np.average([part.losses for part in each], axis=0, weights=sizes)
    left_out = getattr(encoder_of(run.pipeline), "left_out_", {})
    used = [i for i, name in enumerate(found.names) if name not in left_out]
    found.names, found.losses = [found.names[i] for i in used], found.losses[used]
    found.mean, found.std = found.losses.mean(axis=1), found.losses.std(axis=1)
    unneeded = _unneeded(run, found, parts, copies, get_scorer(scoring))
    decided = ("accuracy", "balanced-accuracy", "auc")
    metric = metric or next(m for m in decided if scorer_of(m, n_classes, None) == scoring)
    found.scoring = METRICS[metric].strip()
    if METRICS[metric].endswith(" of "):
        found.scoring = f"{METRICS[metric]}{run.positive}"
    return Measured(found, f"{sum(sizes):,} {words}", unneeded)


def numbers_of(run: TrainingRun) -> dict[str, np.ndarray]:
    """Return the columns of numbers in use by name, not those of only one value."""
    if run.data.kinds is None:
        return {}
    left_out = getattr(encoder_of(run.pipeline), "left_out_", {})
    numbers = [name for name, kind in run.data.kinds.items() if kind == NUMBER]
    names = [name for name in numbers if name not in left_out][:_MOST_COLUMNS]
    columns = {name: np.asarray(run.data.X[name], dtype=float) for name in names}
    return {name: x for name, x in columns.items() if np.nanmin(x) < np.nanmax(x)}


def copies_of(run: TrainingRun) -> dict[str, list[str]]:
    """Return columns with the same information: the first of each group, and the others."""
    columns = {name: x for name, x in numbers_of(run).items() if np.isfinite(x).all()}
    if len(columns) < 2:
        return {}
    names, same = list(columns), np.abs(np.corrcoef(list(columns.values()))) > _SAME
    found: dict[str, list[str]] = {}
    for b, name in enumerate(names):
        firsts = (a for a in range(b) if same[a, b] and names[a] in found)
        first = next(firsts, None)
        if first is None:
            found[name] = []
        else:
            found[names[first]].append(name)
    return {first: others for first, others in found.items() if others}


def _left_out(run: TrainingRun) -> Iterator[PartModel]:
    """Yield models of some rows.

    Yields nothing if the machine has no kernel, or if a class has too few rows for every part.
    """
    model, y = run.model, run.y
    classes, counts = np.unique(y, return_counts=True)
    by_class = run.task == "classification"
    fewest = counts.min() if by_class else len(y)
    if not hasattr(model, "gamma_") or fewest < 2 * _PARTS:
        return
    splits = splits_of(y, _PARTS, 0, classes if by_class else None)[0]
    for train, test in splits if len(y) < _ROWS else splits[:1]:
        train = np.sort(np.random.default_rng(0).permutation(train)[:_MOST_ROWS])
        yield PartModel(_model_of(run, train), test, train)


def _model_of(run: TrainingRun, train: np.ndarray, without: Collection[str] = ()) -> Any:
    """Fit the kernel, C and size of the fit to some rows, without some columns."""
    parameters = {**run.kernel_parameters(), "C": run.model.C_}
    if "n_basis" in run.model.get_params(deep=False):
        parameters["n_basis"] = min(support_size(run.model), len(train))
    rows, prepare = run.prepared_on(train)
    kept: Any = 1.0
    if without:
        kept = np.isin(encoder_of(run.pipeline).columns_, list(without), invert=True).astype(float)
    machine = clone(run.model).set_params(**parameters).fit(rows * kept, run.y[train])
    return make_pipeline(FunctionTransformer(lambda X: prepare(X) * kept), machine)


def _unneeded(
    run: TrainingRun,
    found: inspection.Importance,
    parts: list[PartModel],
    copies: dict[str, list[str]],
    scorer: Any,
) -> list[str]:
    """Return columns whose importance is noise, if models without all of them are as good.

    Models with and without them are fitted to the same rows and scored on the same other rows;
    the loss may be one standard error, from jackknife groups of these rows.
    """
    small = found.mean <= 2 * found.std + 1e-12
    names = [name for name, out in zip(found.names, small, strict=True) if out]
    tested = run.y[np.concatenate([part.rows for part in parts])]
    of_class = np.unique(tested, return_counts=True)[1] if run.task == "classification" else ()
    few = min([len(tested), *of_class]) < _FEWEST_ROWS
    useless = run.data.kinds is None or len(names) in (0, len(found.names))
    if few or useless or not len(parts[0].train):
        return []
    names = [copy for name in names[:_SHOWN] for copy in copies.get(name, [name])]
    losses = []  # of the score in every group, for each part
    for part in parts:
        fewer = _model_of(run, part.train, names)
        order = part.rows[np.argsort(run.y[part.rows], kind="stable")]
        keep = [np.delete(order, np.s_[k::_GROUPS]) for k in range(_GROUPS)]
        losses.append(
            [
                scorer(part.model, rows_of(run.data.X, rows), run.y[rows])
                - scorer(fewer, rows_of(run.data.X, rows), run.y[rows])
                for rows in keep
            ]
        )
    loss = np.mean(losses, axis=0)
    error = np.sqrt((_GROUPS - 1) * np.mean((loss - loss.mean()) ** 2))
    return names if loss.mean() <= error + 1e-12 else []


def importance(measured: Measured) -> str:
    """Return the section; nothing if importance was not measured."""
    found, on_rows = measured.importance, measured.on_rows
    if found is None:
        return ""
    columns, shown = len(found.names), min(len(found.names), _SHOWN)
    short = [name if len(name) <= 24 else f"{name[:23]}…" for name in found.names]
    drawn = inspection.Importance(
        short, found.mean, found.std, found.losses, found.score, found.scoring
    )
    error = found.scoring.endswith("error") or found.scoring == "log-loss"
    what = f"{'growth' if error else 'loss'} of {found.scoring}"
    with html.drawing(figsize=(4.6, 0.8 + 0.22 * shown)) as (fig, ax):
        ImportanceDisplay(drawn).plot(ax=ax, max_columns=_SHOWN, bar_kw={"height": 0.7})
        ax.set(xlabel=what, ylabel="")
        plain_ticks(ax.xaxis)
        picture = html.svg(fig, "importance of the columns")
    text = (
        f"Bars show the {what} when the values of one column are shuffled among {on_rows}. Columns "
        f"with the same information look less important than they are. A long bar does not show "
        f"that the column is a cause."
    )
    caption = f"{shown} of {columns} columns. " if columns > shown else ""
    caption += f"Lines show the standard deviation over {_REPEATS} shuffles."
    figure = html.figure(picture, "Permutation importance", caption)
    return html.section("Which columns matter", html.figures([figure]), text, "importance")
