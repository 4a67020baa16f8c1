"""Scores of predictions, and what they are without any model: the baseline."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn import metrics

from leansvm.cli._output import UsageError, readable

# What --metric takes, and how the names of its scores begin.
METRICS = {
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "r2": "R²",
    "accuracy": "accuracy",
    "balanced-accuracy": "balanced accuracy",
    "recall": "recall of ",
    "precision": "precision of ",
    "f1": "F1",
    "average-precision": "average precision of ",
    "auc": "AUC",
    "log-loss": "log-loss",
}
LOWER_IS_BETTER = ("mae", "rmse", "log-loss")
_SHARES = ("accuracy", "balanced", "recall", "precision", "F1", "average")


def all_scores(
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: np.ndarray | None,
    positive: Any = None,
) -> dict[str, float]:
    """Return scores by name, those that fit the task best first.

    Parameters
    ----------
    y, predicted : ndarray
        True and predicted values or classes.
    probabilities : ndarray of shape (n_rows, n_classes) or None
        Of the classes. Scores that need them are left out if they, or rows of a class, are missing.
    classes : ndarray or None
        In the order of the probabilities; None: a regression.
    positive : object, default=None
        The class of two that is looked for; None is the second.
    """
    if classes is None:
        return {
            "mean absolute error": float(metrics.mean_absolute_error(y, predicted)),
            "root mean squared error": float(metrics.root_mean_squared_error(y, predicted)),
            "R²": float(metrics.r2_score(y, predicted)),
        }
    shares = None
    if probabilities is not None and len(np.unique(y)) == len(classes):
        shares = probabilities / probabilities.sum(axis=1, keepdims=True)
    right = {
        "accuracy": float(metrics.accuracy_score(y, predicted)),
        "balanced accuracy": float(
            metrics.recall_score(y, predicted, labels=classes, average="macro", zero_division=0.0)
        ),
    }
    if len(classes) == 2:
        positive = classes[1] if positive is None else positive
        return _of_two(y, predicted, shares, classes, positive) | right | _of_shares(y, shares)
    f1 = metrics.f1_score(y, predicted, average="macro", zero_division=0.0)
    scores = right | {"F1, mean of the classes": float(f1)}
    if shares is not None:
        auc = metrics.roc_auc_score(y, shares, multi_class="ovr", labels=classes)
        scores["AUC"] = float(auc)
    return scores | _of_shares(y, shares)


def _of_two(
    y: np.ndarray, predicted: np.ndarray, shares: Any, classes: np.ndarray, positive: Any
) -> dict[str, float]:
    """Return how well the rows of one class are found."""
    options = {"pos_label": positive, "zero_division": 0.0}
    scores = {
        f"recall of {positive}": float(metrics.recall_score(y, predicted, **options)),
        f"precision of {positive}": float(metrics.precision_score(y, predicted, **options)),
        f"F1 of {positive}": float(metrics.f1_score(y, predicted, **options)),
    }
    if shares is not None:
        true, claimed = y == positive, shares[:, int(np.flatnonzero(classes == positive)[0])]
        average = float(metrics.average_precision_score(true, claimed))
        scores[f"average precision of {positive}"] = average
        scores["AUC"] = float(metrics.roc_auc_score(true, claimed))
    return scores


def _of_shares(y: np.ndarray, shares: Any) -> dict[str, float]:
    return {} if shares is None else {"log-loss": float(metrics.log_loss(y, shares))}


def baseline(y: np.ndarray, classes: np.ndarray | None, positive: Any = None) -> dict[str, float]:
    """Return the scores of always predicting the most frequent class, or the mean."""
    if classes is None:
        return all_scores(y, np.full(len(y), y.mean()), None, None)
    counts = np.array([np.count_nonzero(y == value) for value in classes])
    always = np.full(len(y), classes[counts.argmax()])
    shares = np.tile(counts / len(y), (len(y), 1))
    return all_scores(y, always, shares, classes, positive)


def score_name(metric: str, scores: dict[str, float]) -> str:
    """Return the name of the score that --metric asks for."""
    found = [name for name in scores if name.startswith(METRICS[metric])]
    if not found:
        known = [
            key for key, start in METRICS.items() if any(name.startswith(start) for name in scores)
        ]
        raise UsageError(f"--metric {metric} does not fit this task; choose {', '.join(known)}")
    return found[0]


def first_scores(scores: dict[str, float], positive: Any, asked: str | None) -> list[str]:
    """Return the names of the scores to show first: the one asked for, then those of the task."""
    if positive is not None:
        wanted = [f"recall of {positive}", f"average precision of {positive}", "AUC", "accuracy"]
    elif "R²" in scores:
        wanted = ["mean absolute error", "root mean squared error", "R²"]
    else:
        wanted = ["accuracy", "balanced accuracy", "log-loss"]
    return [name for name in dict.fromkeys([asked or wanted[0], *wanted]) if name in scores]


def in_unit(name: str, score: float) -> str:
    """Return a score as text: shares in per cent, errors in the target's unit, others to 0.001."""
    if name.startswith(_SHARES):
        return f"{100 * score:.1f} %"
    return readable(score) if "error" in name else f"{score:.3f}"


def scorer_of(metric: str, n_classes: int, positive: Any) -> Any:
    """Return what scikit-learn calls a metric: a name, or a scorer of the positive class."""
    plain = {
        "mae": "neg_mean_absolute_error",
        "rmse": "neg_root_mean_squared_error",
        "balanced-accuracy": "balanced_accuracy",
        "auc": "roc_auc" if n_classes == 2 else "roc_auc_ovr",
        "log-loss": "neg_log_loss",
    }
    if n_classes == 2 and metric == "average-precision":
        return metrics.make_scorer(
            partial(metrics.average_precision_score, pos_label=positive),
            response_method="decision_function",
            pos_label=positive,
        )
    if n_classes == 2 and metric in ("recall", "precision", "f1"):
        score = getattr(metrics, f"{metric}_score")
        return metrics.make_scorer(score, pos_label=positive, zero_division=0.0)
    return "f1_macro" if metric == "f1" else plain.get(metric, metric)
