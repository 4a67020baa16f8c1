"""What a reader should know about the data and the fit, and what to try next.

Every check looks at one thing that makes people trust a wrong number: copies of rows, columns that
give the target away, rows in order of time, a class that is never predicted, a limit that was hit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import ks_2samp, rankdata

from leansvm.cli._evaluate import LEAVE_ONE_OUT, MANY_COPIES, copies
from leansvm.cli._output import readable
from leansvm.cli._read import CATEGORY
from leansvm.cli._report._importance import copies_of, numbers_of
from leansvm.cli._run import TrainingRun, support_size

_LEAK, _DRIFT = 0.99, 0.3
_SHOWN = 3
_FEW_ROWS, _FEW_COPIES = 100, 0.01
_RARE, _GOOD_RECALL = 0.2, 0.75
# of the command, with its value, in notes that the terminal shows as well
_OPTION = re.compile(r"--[a-z][a-z-]*(?: (?:'[^']*'|[^\s'(),;]*[^\s'(),;.]))?")
_C_LIMITS = (1e-6, 1e7)  # of C="loo" and C="gcv"


def worth_knowing(run: TrainingRun) -> list[str]:
    """Return sentences on the data and the fit."""
    checks: list[Callable[[TrainingRun], list[str]]] = [
        _leaks,
        _copies,
        _same_columns,
        _drift,
        _limits,
    ]
    found = [text for check in checks for text in check(run)]
    found += [_OPTION.sub(r"`\g<0>`", text) for text in run.notes]
    return [f"{text[:1].upper()}{text[1:].removesuffix('.')}." for text in found]


# ---------------------------------------------------------------------------- the data


def _leaks(run: TrainingRun) -> list[str]:
    return [
        f"column '{name}' alone almost determines the target ({how}): will you know it when you "
        f"need the prediction? `--drop {shlex.quote(name)}` trains without it"
        for name, how in leaks(run).items()
    ]


def leaks(run: TrainingRun) -> dict[str, str]:
    """Return columns that tell the target almost exactly, each with how well."""
    found = {}
    classes = np.unique(run.y)
    for name, x in numbers_of(run).items():
        known = np.isfinite(x)
        if known.sum() < 20:
            continue
        if run.task == "regression":
            ranks = rankdata(x[known]), rankdata(run.y[known])
            r = abs(float(np.corrcoef(*ranks)[0, 1]))
            if r > _LEAK:
                found[name] = f"rank correlation {r:.3f}"
        elif len(classes) == 2:
            share = _ordered(x[known], run.y[known] == classes[1])
            if share > _LEAK:
                found[name] = f"AUC {share:.3f}"
    if run.task == "classification" and run.data.kinds is not None:
        for name in (n for n, kind in run.data.kinds.items() if kind == CATEGORY):
            share, usual = _told_by_levels(run.data.X[name], run.y)
            if share > _LEAK > usual + 0.05:
                found[name] = f"its levels tell the class of {100 * share:.1f} % of rows"
    return found


def _ordered(x: np.ndarray, true: np.ndarray) -> float:
    """Return the AUC of a column alone, in the better direction."""
    n, total = int(true.sum()), len(true)
    if n in (0, total):
        return 0.0
    auc = (rankdata(x)[true].sum() - n * (n + 1) / 2) / (n * (total - n))
    return max(auc, 1.0 - auc)


def _told_by_levels(column: Any, y: np.ndarray) -> tuple[float, float]:
    """Return how often the most frequent class of each level is right, and that of all rows.

    Levels with a single row do not count: every column of names has them.
    """
    import pandas as pd

    counts = pd.crosstab(column.astype(object), y)
    usual = float(np.unique(y, return_counts=True)[1].max() / len(y))
    counts = counts[counts.sum(axis=1) > 1]
    total = counts.to_numpy().sum()
    return (counts.max(axis=1).sum() / total if total >= 20 else 0.0), usual


def left_out_together(run: TrainingRun) -> bool:
    """Whether the scores are those of models without a row and all its copies."""
    return run.evaluation is not None and run.evaluation.method == LEAVE_ONE_OUT


def _copies(run: TrainingRun) -> list[str]:
    same, other = copies(run)
    found = []
    if same and left_out_together(run):
        if same <= MANY_COPIES * len(run.y):  # of more copies the evaluation has a note
            found.append(
                f"{same:,} rows are copies of earlier rows; the scores leave out a row together "
                f"with its copies"
            )
    elif same:
        found.append(
            f"{same:,} rows are copies of earlier rows: the model may be judged on rows that it "
            f"has seen, so the score may be too good"
        )
    if other and run.task == "classification":
        found.append(
            f"{other:,} rows equal an earlier row in every column but have a different target: no "
            f"model can be right on all of them"
        )
    return found


def _same_columns(run: TrainingRun) -> list[str]:
    found = []
    for first, others in list(copies_of(run).items())[:_SHOWN]:
        *names, last = (f"'{name}'" for name in (first, *others))
        found.append(
            f"columns {', '.join(names)} and {last} hold the same information: one is enough. This "
            f"page shows '{first}' for all of them"
        )
    return found


def drifts(run: TrainingRun) -> dict[str, float]:
    """Return what differs between the first three quarters of the file and the last one.

    For each column: the largest difference between the shares of rows below a value, 0 to 1.
    """
    n = len(run.y)
    if n < _FEW_ROWS:
        return {}
    cut = n - n // 4
    columns = numbers_of(run)
    if run.task == "regression":
        columns = {"the target": run.y.astype(float), **columns}
    found = {}
    for name, x in columns.items():
        test = ks_2samp(x[:cut], x[cut:], nan_policy="omit")
        if test.statistic > _DRIFT and test.pvalue < 1e-6:
            found[name] = float(test.statistic)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _drift(run: TrainingRun) -> list[str]:
    found = drifts(run)
    if not found:
        return []
    shown = ", ".join(f"{name} ({100 * d:.0f} %)" for name, d in list(found.items())[:4])
    return [
        f"the last quarter of the file differs from the earlier rows in {shown}. (0 % would mean "
        f"the same distribution, 100 % no overlap.) The scores here mix all rows; expect larger "
        f"errors if new rows are like the last ones"
    ]


# ---------------------------------------------------------------------------- the fit


def _limits(run: TrainingRun) -> list[str]:
    found, model = [], run.model
    if isinstance(model.C, str) and hasattr(model, "C_"):
        low, high = _C_LIMITS
        if not 1.01 * low < model.C_ < 0.99 * high:
            what = "a nearly constant model" if model.C_ < 1 else "almost no smoothing"
            found.append(
                f"C ended at the limit of its search, {readable(float(model.C_))}: {what} was best"
            )
    if at_largest_size(run):
        found.append(
            f"the model has {support_size(model):,} points, the most that were tried: a larger "
            f"model may be better"
        )
    if len(run.y) < _FEW_ROWS:
        found.append(f"the file has only {len(run.y)} rows: every number here is uncertain")
    return found


def at_largest_size(run: TrainingRun) -> bool:
    """Whether the number of points is the largest that was tried, and rows are left."""
    sizes = getattr(run.model, "fit_report_", {}).get("sizes", {}).get("sizes", ())
    size = support_size(run.model)
    return len(sizes) > 1 and size >= max(sizes) and size < 0.9 * len(run.y)


# ---------------------------------------------------------------------------- what to try next


def next_steps(run: TrainingRun, unneeded: list[str], doubtful: list[int]) -> list[str]:
    """Return up to four things to do, the most useful first."""
    steps = [
        f"Drop '{name}' unless you know it before the prediction: `--drop {shlex.quote(name)}`."
        for name in leaks(run)
    ]
    if copies(run)[0] > _FEW_COPIES * len(run.y) and not left_out_together(run):
        steps.append("Remove copied rows and train again: the present score may be too good.")
    steps += _for_no_better_than_chance(run) + _for_the_rare_class(run)
    if len(run.y) < _FEW_ROWS:
        steps.append("Collect more rows first: they help more than any setting.")
    if drifts(run):
        steps.append(
            "Test on the last rows: train on the first three quarters of the file, then run "
            "`leansvm predict` on the rest; it prints the score."
        )
    if at_largest_size(run):
        steps.append(f"Allow a larger model: `--set n_basis={2 * support_size(run.model)}`.")
    if unneeded:
        shown = " ".join(f"--drop {shlex.quote(name)}" for name in unneeded)
        steps.append(f"Leave out columns that do not matter: `{shown}`.")
    if doubtful:
        rows = ", ".join(f"{i + 1:,}" for i in doubtful[:3])
        steps.append(f"Check the targets of the most doubtful rows: {rows}.")
    if not run.trials and getattr(run.model, "gamma", None) == "learn":
        steps.append(
            "Compare the learned kernel with plain Gaussian kernels: run `leansvm tune` with the "
            "same options."
        )
    return steps[:4]


def _for_no_better_than_chance(run: TrainingRun) -> list[str]:
    """Say so if the model is hardly better than the baseline."""
    found = run.evaluation
    if found is None:
        return []
    if run.task == "regression":
        poor = found.scores["R²"] < 0.05
    elif "AUC" in found.scores:
        poor = found.scores["AUC"] < 0.55
    else:
        poor = found.scores["balanced accuracy"] < found.baseline["balanced accuracy"] + 0.02
    text = "Look for other columns: these say almost nothing about the target."
    return [text] if poor else []


def _for_the_rare_class(run: TrainingRun) -> list[str]:
    """Advise on the threshold if a rare class is hardly predicted."""
    if run.evaluation is None or run.positive is None:
        return []
    share = float(np.mean(run.y == run.positive))
    recall = run.evaluation.scores[f"recall of {run.positive}"]
    if share > _RARE or recall > _GOOD_RECALL:
        return []
    found = f"only {100 * recall:.0f} % of the rows of class {run.positive}"
    if recall < 0.005:
        found = f"{'almost ' if recall else ''}no row of class {run.positive}"
    return [
        f"Choose a threshold: predict() finds {found}; this class has {100 * share:.1f} % of the "
        f"rows. Train with `--set keep_state=true`, and lower the "
        f'threshold by `leansvm.model_selection.tune_threshold(model, "balanced_accuracy")`; or '
        f"rank rows by `predict_proba`.",
        "Or give both classes the same weight: `--set class_weight=balanced`.",
    ]
