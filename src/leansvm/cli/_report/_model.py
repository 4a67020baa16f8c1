"""The model in the report: its feature scales, how small it could be, and what was tuned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, get_scorer, roc_auc_score

from leansvm.cli._evaluate import rows_of
from leansvm.cli._report._accuracy import plain_ticks
from leansvm.cli._run import TrainingRun, in_words
from leansvm.cli._scores import LOWER_IS_BETTER, baseline, in_unit, score_name, scorer_of
from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

PATH_POINTS, PATH_ROWS = 200, 20_000
FEWEST_ROWS = 100  # a quarter of fewer rows would be too few to compare sizes
MOST_FEATURES = 20  # in the picture
_CANDIDATES = np.logspace(-6, 7, 50)  # what C="loo" and C="gcv" try


def feature_scales(run: TrainingRun) -> str:
    """Learned scales of the features as bars; nothing if gamma was not learned."""
    scales = run.feature_scales()
    if scales is None:
        return ""
    from leansvm.plotting import FeatureScalesDisplay

    heading = "How quickly does it change along each feature?"
    text = (
        "The fit learned a scale for each feature by leave-one-out error. A long bar means that "
        "the model can change quickly along the feature, not that the feature matters: a strong "
        "straight-line effect has a short bar."
    )
    used = {scale for scale in scales.values() if scale > 0}
    equal = max(used) <= 1.01 * min(used)
    if equal:
        text = (
            "One scale for all features had the smallest leave-one-out error: the model can change "
            "One scale for all features had the smallest leave-one-out error: the model can change "
            "equally quickly along all standardised features. This says nothing about their "
            "importance. Values of gamma below are in raw units, so the numbers may differ."
        )
    unused = [name for name, scale in scales.items() if scale == 0]
    if unused:
        shown = ", ".join(unused[:10]) + (", …" if len(unused) > 10 else "")
        text += f" The model does not use {len(unused)} of {len(scales)} features: {shown}."
    if equal:
        return html.section(heading, "", text, "scales")
    names = [name if len(name) <= 24 else f"{name[:23]}…" for name in scales]
    height = 0.8 + 0.22 * min(len(names), MOST_FEATURES)
    with html.drawing(figsize=(4.6, height)) as (fig, ax):
        bars = FeatureScalesDisplay(np.array(list(scales.values())), names)
        bars.plot(ax=ax, max_features=MOST_FEATURES)
        ax.set_xlabel(ax.get_xlabel(), loc="right")  # beside long names the axis is short
        picture = html.svg(fig, "learned scales of the features")
    figure = html.figure(picture, "Feature scales")
    return html.section(heading, html.figures([figure]), text, "scales")


def sparsity(run: TrainingRun) -> str:
    """Score of every smaller model, from one fit of a sparse machine with the same kernel."""
    from sklearn.model_selection import train_test_split

    from leansvm import SparseLSSVC, SparseLSSVR
    from leansvm.model_selection import basis_path

    model, y = run.model, run.y
    if not hasattr(model, "gamma_") or len(y) < FEWEST_ROWS:
        return ""
    rows = np.random.default_rng(0).permutation(len(y))[:PATH_ROWS]
    counts = np.unique(y[rows], return_counts=True)[1]
    stratify = y[rows] if run.task == "classification" and counts.min() >= 2 else None
    try:
        train, test = train_test_split(rows, test_size=0.25, random_state=0, stratify=stratify)
    except ValueError:  # more classes than rows to score on
        train, test = train_test_split(rows, test_size=0.25, random_state=0)
    X_train, prepare = run.prepared_on(train)  # gamma has a value for each of its features
    X_test = prepare(rows_of(run.data.X, test))
    machine = (SparseLSSVR if run.task == "regression" else SparseLSSVC)(
        **run.kernel_parameters(),
        degree=model.degree,
        coef0=model.coef0,
        basis="pivoted-cholesky",
        n_basis=min(PATH_POINTS, len(train)),
    )
    name, sign, score = _score_of_values(run)
    values: list[np.ndarray] = []

    def keeping(truth: Any, of_size: np.ndarray) -> float:
        values.append(of_size)
        return score(truth, of_size)

    scored = {"X_score": X_test, "y_score": y[test], "scoring": keeping}
    scores = basis_path(machine, X_train, y[train], **scored).score
    assert scores is not None
    # one size may be good by chance, so the larger half of them decides together
    half = np.arange(len(values)) >= len(values) // 2
    usual, margin = float(np.median(scores[half])), _error(score, y[test], values[-1])
    classes = np.unique(y) if run.task == "classification" else None
    if sign * (usual - baseline(y[test], classes, run.positive)[name]) <= margin:
        return ""  # no size predicts more than chance
    below = np.flatnonzero(sign * (scores - usual) < -margin)
    enough = int(below[-1]) + 2 if len(below) else 1
    if enough > len(values):
        return ""
    unit = 100 if in_unit(name, usual).endswith("%") else 1
    with html.drawing() as (fig, ax):
        ax.plot(np.arange(len(scores)) + 1, unit * scores)
        ax.axvline(enough, color="0.5", linewidth=1, linestyle="--")
        ax.set(xlabel="basis points", ylabel=f"{name} in %" if unit == 100 else name)
        low, high = np.quantile(unit * scores, [0.05, 0.95])
        ax.set_ylim(low - 0.1 * (high - low) - 1e-9, None if sign > 0 else high + (high - low))
        picture = html.svg(fig, "score against the number of basis points")
    text = (
        f"A sparse least-squares model with the same kernel was trained on {len(train):,} rows and "
        f"scored on {len(test):,} others. {enough:,} points are enough: with so many or more, the "
        f"{name} is within a standard error ({in_unit(name, margin)}) of {in_unit(name, usual)}, "
        f"the median of the sizes from {int(np.argmax(half)) + 1:,} to {len(values):,} points. "
        f"Train it with `--estimator sparse --set n_basis={enough}`."
    )
    figure = html.figure(picture, "Sparsity path", f"Dashed: {enough:,} points.")
    return html.section("How small could it be?", html.figures([figure]), text, "sparsity")


def _score_of_values(run: TrainingRun) -> tuple[str, float, Callable[[Any, np.ndarray], float]]:
    """Return the report's metric: its name, its sign, and the score of decision values."""
    classes = np.unique(run.y) if run.task == "classification" else np.zeros(0)
    counts = np.unique(run.y, return_counts=True)[1]
    rare = counts.min() * len(classes) < 0.4 * len(run.y)
    default = {0: "r2", 2: "auc"}.get(len(classes), "balanced-accuracy" if rare else "accuracy")
    metric = run.metric or default
    if metric == "log-loss" or (metric == "auc" and len(classes) > 2):
        metric = default  # decision values are no probabilities
    scorer = get_scorer(scorer_of(metric, len(classes), run.positive))
    name = score_name(metric, baseline(run.y, classes if len(classes) else None, run.positive))

    def score(y: Any, values: np.ndarray) -> float:
        if metric in ("auc", "average-precision"):
            sign, y = (1 if run.positive == classes[1] else -1), y == run.positive
            measure = roc_auc_score if metric == "auc" else average_precision_score
            return float(measure(y, sign * values.ravel()))
        if len(classes):
            number = values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] > 0
            values = classes[np.asarray(number, dtype=int)]
        return float(scorer._score_func(y, values, **scorer._kwargs))

    return name, scorer._sign, score


def _error(score: Callable[[Any, np.ndarray], float], y: np.ndarray, values: np.ndarray) -> float:
    """Return the standard error of a score, from jackknife groups of its rows."""
    order, groups = np.argsort(y, kind="stable"), 20
    kept = [np.delete(order, np.s_[k::groups]) for k in range(groups)]
    return float(np.sqrt(groups - 1) * np.std([score(y[rows], values[rows]) for rows in kept]))


def tuning(run: TrainingRun) -> str:
    """What the fit chose by itself, what a search compared, and the values used."""
    model, tables = run.model, ""
    figures = _criterion_picture(model)
    found = [name for name in ("kernel_", "C_", "gamma_") if hasattr(model, name)]
    if run.trials:
        names = [name for name in run.trials[0] if name not in ("score", "spread")]
        if len(names) == 1:
            figures += _trial_picture(run, names[0])
        tables = _trial_table(run, names)
    defaults = type(model)().get_params(deep=False)
    changed = [
        [name, html.Cell(repr(value), "words")]
        for name, value in model.get_params(deep=False).items()
        if value != defaults[name] and f"{name}_" not in found
    ]
    chosen = {name.rstrip("_"): in_words(getattr(model, name)) for name in found}
    used = [[name, html.Cell(value, "words")] for name, value in chosen.items()] + changed
    tables += html.table(["parameter", "value"], used, "Values used; all others are defaults")
    text = f"{len(run.trials)} combinations were compared." if run.trials else ""
    if not run.trials:
        learns = hasattr(model, "feature_scales_")
        own = {
            "C": isinstance(model.C, str),
            "the kernel": learns and model.kernel == "auto",
            "the scales of the features": learns,
            "the number of points": getattr(model, "n_basis", 0) == "auto",
        }
        *names, last = [name for name, by_itself in own.items() if by_itself] or [""]
        learned = f"{', '.join(names)} and {last}" if names else last
        text = f"The fit chose {learned} by itself." if learned else ""
    text = text or "All parameters were given; `leansvm tune` compares values."
    return html.section("What was tuned", html.figures(figures) + tables, text, "tuning")


def _criterion_picture(model: Any) -> list[str]:
    """Draw the criterion by which the fit chose C; nothing where C was given."""
    curve = np.ravel(getattr(model, "cv_curve_", ()))
    if len(curve) != len(_CANDIDATES):
        return []
    tried = np.isfinite(curve)
    label = {"loo": "leave-one-out squared error", "gcv": "generalised cross-validation"}
    with html.drawing() as (fig, ax):
        ax.semilogx(_CANDIDATES[tried], curve[tried], marker=".")
        ax.axvline(model.C_, color="0.5", linewidth=1, linestyle="--")
        if tried.sum() <= 6:
            ax.set_xticks(
                _CANDIDATES[tried], [in_words(float(f"{c:.3g}")) for c in _CANDIDATES[tried]]
            )
            ax.minorticks_off()
        plain_ticks(ax.yaxis)
        ax.set(xlabel="C", ylabel=label.get(str(model.C), "cross-validation error"))
        picture = html.svg(fig, "criterion against C")
    caption = f"{tried.sum()} values; dashed: C = {in_words(model.C_)}."
    return [html.figure(picture, "Choice of C", caption)]


def _trial_picture(run: TrainingRun, name: str) -> list[str]:
    """Draw scores against a number; other values, such as "learn", are horizontal lines."""
    numbers = [trial for trial in run.trials if isinstance(trial[name], (int, float))]
    others = [trial for trial in run.trials if trial not in numbers]
    if len(numbers) < 2:
        return []
    trials = sorted(numbers, key=lambda trial: trial[name])
    values = [trial[name] for trial in trials]
    with html.drawing() as (fig, ax):
        spread = [trial["spread"] or 0.0 for trial in trials]
        ax.errorbar(values, [trial["score"] for trial in trials], spread, marker="o", capsize=3)
        for i, trial in enumerate(others, 1):
            ax.axhline(trial["score"], color=f"C{i}", linestyle="--", label=plain_text(trial[name]))
        if others:
            ax.legend()
        if min(values) > 0:
            ax.set_xscale("log")
        ax.set(xlabel=name, ylabel=run.compared_by or "score")
        picture = html.svg(fig, f"score against {name}")
    caption = "Bars: standard deviation of the folds."
    return [html.figure(picture, f"Search over {name}", caption)]


def _trial_table(run: TrainingRun, names: list[str]) -> str:
    used = run.model.get_params(deep=True)

    def chosen(trial: dict[str, Any]) -> bool:
        return all(trial[name] == used[name] for name in names)

    sign = 1.0 if run.compared_by in LOWER_IS_BETTER else -1.0
    trials = sorted(run.trials, key=lambda trial: (sign * trial["score"], not chosen(trial)))[:20]
    rows = [
        [
            *(f"{v:.4g}" if isinstance(v := trial[name], float) else str(v) for name in names),
            html.Cell(f"{trial['score']:.4f}", "good" if chosen(trial) else "plain"),
            f"{trial['spread'] or 0.0:.4f}",
        ]
        for trial in trials
    ]
    caption = "Best first" + (f"; 20 of {len(run.trials)}" if len(run.trials) > 20 else "")
    return html.table([*names, run.compared_by or "score", "± over folds"], rows, caption)


def in_python(run: TrainingRun, method: str, alpha: float) -> str:
    """Return how to call a method of the saved model, which needs the training rows for it."""
    call = f"`model.keep_rows(X, y).{method}(X_new, alpha={alpha})`"
    if run.pipeline[0] != "passthrough":
        call = (
            f"`model[-1].keep_rows(model[:-1].transform(X), y)`, then "
            f"`model[-1].{method}(model[:-1].transform(X_new), alpha={alpha})`"
        )
    return f" In Python, with the training rows X and y: {call}."
