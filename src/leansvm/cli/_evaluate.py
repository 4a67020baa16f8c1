"""How good a pipeline is: cross-validation with out-of-fold predictions, or leave-one-out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold

from leansvm.cli._output import CommandError, Printer


@dataclass
class Evaluation:
    """Predictions for rows that took no part in the model that made them.

    Parameters
    ----------
    method : str
        In words, such as "5-fold cross-validation".
    metric : str
        "accuracy" or "R²".
    score : float
        Over all rows.
    folds : list of float
        Score of each fold; empty for leave-one-out.
    predicted : ndarray
        One prediction per row.
    probabilities : ndarray or None
        Of every row and class, where the model gives them.
    """

    method: str
    metric: str
    score: float
    folds: list[float]
    predicted: np.ndarray
    probabilities: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the folds' scores."""
        return float(np.std(self.folds)) if self.folds else None

    def words(self) -> str:
        """Return the score as people write it."""
        if self.metric == "accuracy":
            spread = "" if self.spread is None else f" ± {100 * self.spread:.1f}"
            return f"{100 * self.score:.1f}{spread} %"
        spread = "" if self.spread is None else f" ± {self.spread:.3f}"
        return f"{self.score:.3f}{spread}"


def cross_validate(
    pipeline: Any, X: Any, y: np.ndarray, n_folds: int, seed: int, output: Printer
) -> Evaluation:
    """Predict every row with a model that was fitted without its fold."""
    classes = np.unique(y) if is_classifier(pipeline) else None
    predicted = np.empty_like(y) if classes is not None else np.empty(len(y))
    probabilities = None
    if classes is not None and hasattr(pipeline[-1], "predict_proba"):  # even if not fitted
        probabilities = np.zeros((len(y), len(classes)))
    metric, score = metric_of(pipeline)
    folds = []
    splits, notes = _splits(y, n_folds, seed, classes)
    with output.progress() as bars:
        for train, test in bars.track(splits, description="cross-validation"):
            model = clone(pipeline).fit(_rows(X, train), y[train])
            predicted[test] = model.predict(_rows(X, test))
            if probabilities is not None and classes is not None:
                places = np.searchsorted(classes, model.classes_)
                probabilities[np.ix_(test, places)] = model.predict_proba(_rows(X, test))
            folds.append(float(score(y[test], predicted[test])))
    method = f"{len(splits)}-fold cross-validation"
    whole = float(score(y, predicted))
    return Evaluation(method, metric, whole, folds, predicted, probabilities, notes)


def leave_one_out(pipeline: Any, y: np.ndarray) -> Evaluation:
    """Use the exact left-out residuals of a machine that was fitted with C="loo"."""
    metric, score = metric_of(pipeline)
    predicted = left_out_predictions(pipeline[-1], y, pipeline[-1].loo_residuals_)
    notes = [
        "the preprocessing saw all rows and C was chosen by the same left-out errors: "
        "the estimate is slightly optimistic"
    ]
    whole = float(score(y, predicted))
    return Evaluation("exact leave-one-out", metric, whole, [], predicted, None, notes)


def left_out_predictions(model: Any, y: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Return what the model without each row predicts for it, from its left-out residuals."""
    if not is_classifier(model):
        return np.asarray(y - residuals)
    if residuals.ndim == 1:
        signs = np.where(y == model.classes_[1], 1.0, -1.0)
        return np.asarray(model.classes_[(signs - residuals > 0).astype(int)])
    signs = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    return np.asarray(model.classes_[np.argmax(signs - residuals, axis=1)])


def prepare_leave_one_out(estimator: Any) -> None:
    """Ask the machine for left-out residuals, or say why it has none."""
    name = type(estimator).__name__
    if name not in ("LSSVC", "LSSVR", "SparseLSSVC", "SparseLSSVR", "LowRankLSSVC", "LowRankLSSVR"):
        raise CommandError(f"--cv loo: {name} has no closed-form leave-one-out; use --cv 5")
    if estimator.C not in ("loo", "gcv", type(estimator)().C):
        raise CommandError('--cv loo chooses C by leave-one-out itself; drop "--set C=..."')
    estimator.set_params(C="loo")


def metric_of(pipeline: Any) -> tuple[str, Any]:
    """Return name and function of the score."""
    return ("accuracy", accuracy_score) if is_classifier(pipeline) else ("R²", r2_score)


def _splits(
    y: np.ndarray, n_folds: int, seed: int, classes: np.ndarray | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[str]]:
    """Split by class where every class has a row for two folds; fewer folds for few rows."""
    n = min(n_folds, len(y))
    notes: list[str] = []
    rows = np.zeros(len(y))
    if n < 2:
        raise CommandError(f"--cv {n_folds}: {len(y)} row(s) cannot be split; use --cv 0")
    if classes is None:
        return list(KFold(n, shuffle=True, random_state=seed).split(rows)), notes
    fewest = min(int(np.sum(y == value)) for value in classes)
    if fewest < 2 and len(classes) == 2:
        raise CommandError(
            f"--cv {n_folds}: a class has one row only, and a fold without it has one class; "
            f"use --cv 0"
        )
    if 2 <= fewest < n:
        n = fewest
        notes.append(f"{n} folds, since the smallest class has {fewest} rows")
    with warnings.catch_warnings():  # a class of one row is in one fold only
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        splitter = StratifiedKFold(n, shuffle=True, random_state=seed)
        return list(splitter.split(rows, y)), notes


def _rows(X: Any, index: np.ndarray) -> Any:
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def candidates(grid: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of a grid."""
    from sklearn.model_selection import ParameterGrid

    yield from ParameterGrid(grid)
