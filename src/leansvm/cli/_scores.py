"""Scores of predictions, and what they are without any model: the baseline."""

from __future__ import annotations

import numpy as np
from sklearn import metrics


def all_scores(
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: np.ndarray | None,
) -> dict[str, float]:
    """Return scores by name; those of probabilities only where there are any.

    Parameters
    ----------
    y, predicted : ndarray
        True and predicted values or classes.
    probabilities : ndarray of shape (n_rows, n_classes) or None
        Of the classes.
    classes : ndarray or None
        In the order of the probabilities; None: a regression.
    """
    if classes is None:
        return {
            "R²": float(metrics.r2_score(y, predicted)),
            "root mean squared error": float(metrics.root_mean_squared_error(y, predicted)),
            "mean absolute error": float(metrics.mean_absolute_error(y, predicted)),
        }
    two = len(classes) == 2
    f1 = (
        metrics.f1_score(y, predicted, pos_label=classes[1], zero_division=0.0)
        if two
        else metrics.f1_score(y, predicted, average="macro", zero_division=0.0)
    )
    name = f"F1 of {classes[1]}" if two else "F1, mean of the classes"
    scores = {"accuracy": float(metrics.accuracy_score(y, predicted)), name: float(f1)}
    if probabilities is not None and len(np.unique(y)) == len(classes):
        shares = probabilities / probabilities.sum(axis=1, keepdims=True)
        claimed = shares[:, 1] if two else shares
        scores["AUC"] = float(metrics.roc_auc_score(y, claimed, multi_class="ovr", labels=classes))
        scores["log-loss"] = float(metrics.log_loss(y, shares, labels=classes))
    return scores


def baseline(y: np.ndarray, classes: np.ndarray | None) -> dict[str, float]:
    """Return the scores of always predicting the most frequent class, or the mean."""
    if classes is None:
        return all_scores(y, np.full(len(y), y.mean()), None, None)
    counts = np.array([np.count_nonzero(y == value) for value in classes])
    always = np.full(len(y), classes[counts.argmax()])
    shares = np.tile(counts / len(y), (len(y), 1))
    return all_scores(y, always, shares, classes)
