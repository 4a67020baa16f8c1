"""How ``leansvm tune`` compares parameters.

If a fit gives left-out errors, nothing is fitted again for folds: each gamma costs one pass over
the rows on a few basis points, and one fit learns a scale for each feature. Other machines are
compared by cross-validation, with one warm-started path over C for each fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from leansvm.cli._output import Printer
from leansvm.cli._run import TrainingRun, in_words
from leansvm.cli._scores import LOWER_IS_BETTER
from leansvm.cli._train import clone_with, fit
from leansvm.cli._wait import wait_for

_PATH_POINTS = 300  # basis points on which values of gamma are compared
_RARE = 0.2  # if one of two classes has a smaller share, accuracy hardly tells models apart
_OF_PROBABILITIES = ("auc", "average-precision", "log-loss")


def metric_of_search(run: TrainingRun) -> str | None:
    """Return the metric that compares candidates; None means accuracy or R²."""
    from leansvm.cli._output import UsageError

    able = run.model.get_params(deep=False).get("calibrate", True)
    if run.metric in _OF_PROBABILITIES and not able:
        raise UsageError(f"--metric {run.metric} needs probabilities; remove --no-calibrate")
    rare = run.positive is not None and np.mean(run.y == run.positive) < _RARE
    return run.metric or ("auc" if rare and able else None)


def _goodness(run: TrainingRun, score: float) -> float:
    """Return a score such that higher is better."""
    return -score if run.compared_by in LOWER_IS_BETTER else score


def _by(run: TrainingRun) -> str:
    return f" and compared by {run.compared_by}" if run.compared_by else ""


# ---------------------------------------------------------------------------- left-out errors


def compares_by_leaving_out(model: Any) -> bool:
    """Return whether left-out errors can compare values of gamma, one fit for each."""
    kernels = ("auto", "rbf", "matern12", "matern32", "matern52", "laplacian")
    return (
        type(model).__name__.startswith("Sparse") and model.C == "loo" and model.kernel in kernels
    )


def search_along_path(run: TrainingRun, output: Printer) -> None:
    """Compare one gamma for all features with learned scales, if these are asked for.

    All candidates are scored on the same basis points. Learned scales that win leave the pipeline
    fitted.
    """
    learned, kernel = run.model.gamma == "learn", run.model.kernel
    kernel = "rbf" if kernel == "auto" else kernel
    asked = run.pipeline
    with run.phase("search"), output.progress() as bars:
        X = run.pipeline[:-1].fit_transform(run.data.X, run.y)
        values = _gammas(X)
        for gamma in bars.track(values, description="search along gamma"):
            run.trials.append(
                {"gamma": gamma, **_left_out_score(run, X, gamma=gamma, kernel=kernel)}
            )
    if learned:
        fit(run, output)
        with run.phase("search"):
            X = run.prepared_on(np.arange(len(run.y)))[0]
            found = _left_out_score(run, X, **run.kernel_parameters())
        run.trials.append({"gamma": "learn", **found})

    def goodness(trial: dict[str, Any]) -> tuple[float, float]:
        return _goodness(run, trial["score"]), -trial["error"]

    best = max(run.trials, key=goodness)["gamma"]
    for trial in run.trials:
        del trial["error"]  # decided between equal scores
    if best != "learn":
        run.pipeline = clone_with(asked, gamma=best, kernel=kernel)
        run.notes += _at_the_edge({"gamma": values}, {"gamma": best})
    output.say(f"{len(run.trials)} candidates tried{_by(run)}; best: gamma = {in_words(best)}")


def _left_out_score(run: TrainingRun, X: Any, **kernel: Any) -> dict[str, float]:
    """Return the score of left-out rows on few basis points, its spread, and the squared error."""
    from leansvm.cli._evaluate import leave_one_out

    points = min(_PATH_POINTS, len(run.y) // 2)
    probe = clone_with(run.pipeline[-1:], n_basis=points, **kernel)
    wait_for(partial(probe.fit, X, run.y))
    found = leave_one_out(probe, run.y, run.compared_by, run.positive)
    share = found.score if found.metric == "accuracy" else 0.0
    spread = math.sqrt(share * (1.0 - share) / len(run.y))
    return {"score": found.score, "spread": spread, "error": float(np.nanmin(probe[-1].cv_curve_))}


def _gammas(X: Any) -> list[float]:
    """Return seven values around gamma="scale"."""
    from leansvm.kernels import resolve_gamma
    from leansvm.rows import MemoryBlocks
    from leansvm.tables import TableEncoder, is_table

    if is_table(X, numbers=False):
        X = TableEncoder().fit_transform(X)
    scale = resolve_gamma("scale", "rbf", X.shape[1], MemoryBlocks(X).variance)
    return [float(f"{scale * 4.0**k:.3g}") for k in range(-3, 4)]


# ---------------------------------------------------------------------------- grid


def search_grid(
    run: TrainingRun, grid: Sequence[str], n_folds: int, seed: int, output: Printer
) -> None:
    """Score every combination by cross-validation; set the best in the pipeline."""
    from sklearn.model_selection import ParameterGrid

    space = _grid(run, grid)
    probe = run.pipeline
    if run.compared_by not in _OF_PROBABILITIES:
        probe = clone_with(probe, calibrate=False)
    if getattr(run.model, "n_basis", None) == "auto" and "n_basis" not in space:
        fewest = len(run.y) - math.ceil(len(run.y) / n_folds)  # rows of a fold
        probe = clone_with(probe, n_basis=min(_PATH_POINTS, fewest))
    by_path = run.compared_by is None and _has_c_path(probe[-1], space)
    values = space.pop("C") if by_path else [None]
    tried = list(ParameterGrid(space))
    with run.phase("search"), output.progress() as bars:
        for candidate in bars.track(tried, description="search"):
            model = clone_with(probe, **candidate)
            run.trials += [
                {**candidate, **trial} for trial in _scores(model, run, values, n_folds, seed)
            ]
    if values != [None]:
        space["C"] = values
    # of equal scores the one nearest to the middle of the grid
    middle = (len(run.trials) - 1) / 2
    ranked = [
        (_goodness(run, trial["score"]), -abs(i - middle)) for i, trial in enumerate(run.trials)
    ]
    best = run.trials[ranked.index(max(ranked))]
    run.pipeline = clone_with(run.pipeline, **{name: best[name] for name in space})
    chosen = ", ".join(f"{name} = {in_words(best[name])}" for name in space)
    output.say(f"{len(run.trials)} candidates tried{_by(run)}; best: {chosen}")
    run.notes += _at_the_edge(space, best)


def _has_c_path(model: Any, space: dict[str, list[Any]]) -> bool:
    """Return whether one warm-started path gives the models of all values of C."""
    name, size = type(model).__name__, getattr(model, "n_basis", 1)
    steady = name == "L2SVC" or (name.startswith("Reduced") and not isinstance(size, str))
    return steady and "C" in space and "n_basis" not in space


def _scores(
    pipeline: Any, run: TrainingRun, values: Sequence[float | None], n_folds: int, seed: int
) -> list[dict[str, Any]]:
    """Return a trial for each C; for the pipeline's own one where `values` is [None]."""
    from sklearn.base import clone

    from leansvm.cli._evaluate import cross_validate, rows_of, splits_of
    from leansvm.model_selection import c_path

    X, y = run.data.X, run.y
    if values == [None]:
        by = run.compared_by, run.positive
        found = cross_validate(pipeline, X, y, n_folds, seed, Printer(quiet=True), *by)
        return [{"score": found.score, "spread": found.spread}]
    classes = np.unique(y) if run.task == "classification" else None
    splits, _ = splits_of(y, n_folds, seed, classes)
    scores = []
    for train, test in splits:
        before = clone(pipeline[:-1])
        rows = before.fit_transform(rows_of(X, train), y[train])
        held = before.transform(rows_of(X, test))
        work = partial(c_path, pipeline[-1], rows, y[train], values, X_score=held, y_score=y[test])
        scores.append(np.asarray(wait_for(work).score))
    mean, spread = np.mean(scores, axis=0), np.std(scores, axis=0)
    return [
        {"C": C, "score": float(mean[k]), "spread": float(spread[k])} for k, C in enumerate(values)
    ]


def _grid(run: TrainingRun, grid: Sequence[str]) -> dict[str, list[Any]]:
    from leansvm.cli._pipeline import parse_settings, parse_value

    known, name = run.model.get_params(deep=True), type(run.model).__name__
    if grid:
        texts = [item.partition("=") for item in grid]
        parse_settings([f"{key}{sign}0" for key, sign, _ in texts], known, name)
        return {key: [parse_value(v) for v in values.split(",")] for key, _, values in texts}
    space: dict[str, list[Any]] = {}
    if "gamma" in known:
        with run.phase("search"):
            space["gamma"] = _gammas(run.pipeline[:-1].fit_transform(run.data.X, run.y))
        if known["gamma"] == "learn":  # one for each feature, beside one for all
            space["gamma"].append("learn")
    else:
        space["n_basis"] = [3, 5, 10, 20]
    if not isinstance(run.model.C, str):
        space["C"] = [0.1, 1.0, 10.0, 100.0]
    return space


def _at_the_edge(space: dict[str, list[Any]], best: dict[str, Any]) -> list[str]:
    """Return a note if the best number is the smallest or largest that was tried."""
    notes = []
    for name, values in space.items():
        numbers = sorted(value for value in values if isinstance(value, (int, float)))
        if len(numbers) > 2 and best[name] in (numbers[0], numbers[-1]):
            end = "smallest" if best[name] == numbers[0] else "largest"
            notes.append(
                f"the best {name}, {in_words(best[name])}, is the {end} that was tried: "
                f"a wider --grid may do better"
            )
    return notes
