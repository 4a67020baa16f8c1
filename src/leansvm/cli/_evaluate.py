"""How good a pipeline is: cross-validation with out-of-fold predictions, or leave-one-out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_expit, softmax
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold

from leansvm.cli._output import CommandError, Printer, UsageError
from leansvm.cli._scores import all_scores, baseline, in_unit, score_name
from leansvm.cli._wait import wait_for

if TYPE_CHECKING:
    from leansvm.cli._run import TrainingRun

CLOSED_FORM = ("LSSVC", "LSSVR", "SparseLSSVC", "SparseLSSVR", "LowRankLSSVC", "LowRankLSSVR")
# From this size on, --cv auto uses leave-one-out in closed form: fitting folds takes long, and
# the choices by the same errors (C, a scale for each feature) hardly make the score too good.
_LOO_ROWS, _LOO_ROWS_PER_FEATURE = 1000, 50
LEAVE_ONE_OUT = "exact leave-one-out"
MANY_COPIES = 0.1  # share of the rows; leaving out more copies together lowers the scores
_KEPT_ERRORS = 1000  # for the intervals of predict


@dataclass
class Evaluation:
    """Predictions for rows that took no part in the model that made them.

    Parameters
    ----------
    method : str
        In words, such as "5-fold cross-validation".
    metric : str
        Name of the score, such as "accuracy", "R²" or "recall of yes".
    score : float
        Over all rows.
    folds : list of float
        Score of each fold; empty for leave-one-out.
    predicted : ndarray
        One prediction per row.
    probabilities : ndarray or None
        Of every row and class, if the model gives them.
    notes : list of str
        What a reader should know about the estimate.
    scores : dict
        All scores by name, such as "AUC" and "log-loss".
    baseline : dict
        The same scores for always predicting the most frequent class, or the mean.
    """

    method: str
    metric: str
    score: float
    folds: list[float]
    predicted: np.ndarray
    probabilities: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the folds' scores."""
        return float(np.std(self.folds)) if self.folds else None

    def errors(self, y: np.ndarray) -> list[float] | None:
        """Return the sorted absolute errors of a regression; if rows are many, 1,000 of them."""
        if "accuracy" in self.scores:  # of classes, whatever metric was asked for
            return None
        sizes = np.sort(np.abs(y - self.predicted))
        ranks = np.ceil(np.linspace(1, len(sizes), min(len(sizes), _KEPT_ERRORS))).astype(int)
        return [float(size) for size in sizes[ranks - 1]]

    def words(self) -> str:
        """Return the score as people write it."""
        return self.in_words(self.score, self.spread)

    def in_words(self, score: float, spread: float | None = None) -> str:
        """Return any score of this metric as people write it, with its spread over folds."""
        text = in_unit(self.metric, score)
        if spread is None:
            return text
        percent = text.endswith(" %")
        digits = text.removesuffix(" %").partition(".")[2]
        spread = 100 * spread if percent else spread
        return f"{text.removesuffix(' %')} ± {spread:,.{len(digits)}f}{' %' if percent else ''}"


def cross_validate(
    pipeline: Any,
    X: Any,
    y: np.ndarray,
    n_folds: int,
    seed: int,
    output: Printer,
    metric: str | None = None,
    positive: Any = None,
) -> Evaluation:
    """Predict every row with a model that was fitted without its fold."""
    classes = np.unique(y) if is_classifier(pipeline) else None
    predicted = np.empty_like(y) if classes is not None else np.empty(len(y))
    probabilities = None
    if classes is not None and hasattr(pipeline[-1], "predict_proba"):  # even if not fitted
        probabilities = np.zeros((len(y), len(classes)))
    splits, notes = splits_of(y, n_folds, seed, classes)
    with output.progress() as bars:
        for train, test in bars.track(splits, description="cross-validation"):
            model = wait_for(partial(clone(pipeline).fit, rows_of(X, train), y[train]))
            predicted[test] = model.predict(rows_of(X, test))
            if probabilities is not None and classes is not None:
                places = np.searchsorted(classes, model.classes_)
                probabilities[np.ix_(test, places)] = model.predict_proba(rows_of(X, test))
    method = f"{len(splits)}-fold cross-validation"
    found = _scored(method, y, predicted, probabilities, classes, metric, positive)
    for _, test in splits:
        claimed = None if probabilities is None else probabilities[test]
        scores = all_scores(y[test], predicted[test], claimed, classes, positive)
        if found.metric in scores:  # a fold without rows of a class has no AUC
            found.folds.append(scores[found.metric])
    found.notes += notes
    return found


def _scored(
    method: str,
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: np.ndarray | None,
    metric: str | None,
    positive: Any,
) -> Evaluation:
    """Return an evaluation with all scores, of accuracy or R² unless another one is asked for."""
    scores = all_scores(y, predicted, probabilities, classes, positive)
    name = "R²" if classes is None else "accuracy"
    if metric is not None:
        name = score_name(metric, scores)
    without = baseline(y, classes, positive)
    return Evaluation(method, name, scores[name], [], predicted, probabilities, [], scores, without)


def closed_form_is_enough(estimator: Any, n_rows: int, n_features: int) -> bool:
    """Return whether --cv auto means leave-one-out: the machine has it, and rows are many."""
    enough = n_rows >= max(_LOO_ROWS, _LOO_ROWS_PER_FEATURE * n_features)
    return enough and not type(estimator).__name__.startswith("LowRank") and has_left_out(estimator)


def has_left_out(estimator: Any) -> bool:
    """Return whether the machine's fit leaves residuals of left-out rows behind."""
    return type(estimator).__name__ in CLOSED_FORM and estimator.C == "loo"


def leave_one_out(
    pipeline: Any, y: np.ndarray, metric: str | None = None, positive: Any = None
) -> Evaluation:
    """Use the exact left-out residuals of a machine that was fitted with C="loo"."""
    model, classes, probabilities = pipeline[-1], None, None
    predicted = left_out_predictions(model, y, model.loo_residuals_)
    if is_classifier(pipeline):
        classes = model.classes_
        if model.calibrate:
            values = _left_out_values(model, y, model.loo_residuals_)
            probabilities = _calibrated(values, model.calibration_slopes_)
    found = _scored(LEAVE_ONE_OUT, y, predicted, probabilities, classes, metric, positive)
    found.notes.append(
        "the scores are slightly too good: each row is predicted by a model without it, but C, the "
        "kernel and the preprocessing were chosen with all rows (--cv 5 fits five times and is "
        "stricter)"
    )
    return found


def copies(run: TrainingRun) -> tuple[int, int]:
    """Return how many rows are copies of an earlier one, and how many disagree with one."""
    if not hasattr(run.data.X, "duplicated"):
        return 0, 0
    same = int(later_copies(run).sum())
    return same, int(run.data.X.duplicated().sum()) - same


def later_copies(run: TrainingRun) -> np.ndarray:
    """Return which rows equal an earlier row of a table, also in the target."""
    if not hasattr(run.data.X, "duplicated"):
        return np.zeros(len(run.y), dtype=bool)
    return run.data.X.assign(**{"\0target": run.y}).duplicated().to_numpy()


def left_out_predictions(model: Any, y: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Return what the model without each row predicts for it, from its left-out residuals."""
    if not is_classifier(model):
        return np.asarray(y - residuals)
    values = _left_out_values(model, y, residuals)
    number = values.argmax(axis=1) if values.ndim > 1 else (values > 0).astype(int)
    return np.asarray(model.classes_[number])


def _left_out_values(model: Any, y: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Return the decision values of a classifier at rows that were left out."""
    own = y[:, None] == model.classes_ if residuals.ndim > 1 else y == model.classes_[1]
    return np.asarray(np.where(own, 1.0, -1.0) - residuals)


def _calibrated(values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return p of every class, proportional to sigma of its log odds, as `predict_proba` does."""
    ends, z = [-np.inf, -0.9, -0.5, 0.0, 0.5, 0.9, np.inf], np.zeros_like(values)
    for slope, low, high in zip(slopes, ends, ends[1:], strict=False):
        z += slope * (np.clip(values, low, high) - np.clip(0.0, low, high))
    columns = z if z.ndim > 1 else np.column_stack([-z, z])
    return np.asarray(softmax(log_expit(columns), axis=1))


def prepare_leave_one_out(estimator: Any, settings: Sequence[str], grid: Sequence[str]) -> None:
    """Ask the machine for left-out residuals, or say why it has none."""
    name = type(estimator).__name__
    if name not in CLOSED_FORM:
        raise UsageError(f"--cv loo: {name} has no closed-form leave-one-out; use --cv 5")
    of_grid = any(item.startswith("C=") for item in grid)
    given = any(item.startswith("C=") for item in settings) and estimator.C not in ("loo", "gcv")
    if of_grid or given:
        option = "--grid" if of_grid else "--set"
        raise UsageError(f'--cv loo chooses C by leave-one-out; remove "{option} C=..."')
    estimator.set_params(C="loo")


def half_width(errors: Sequence[float], n_rows: int, level: float) -> float:
    """Return the error that a new row exceeds with a probability of at most 1 - `level`.

    It is the k-th smallest left-out error of n rows, k = ceil(level (n + 1)), or the next one kept.

    >>> half_width([1.0, 2.0, 3.0, 4.0], 4, 0.6)
    3.0
    """
    rank = math.ceil(level * (n_rows + 1) - 1e-9)
    if rank > n_rows:
        raise UsageError(
            f"--interval {level:g}: with {n_rows:,} training rows, it can be at most "
            f"{math.floor(1e4 * n_rows / (n_rows + 1)) / 1e4:g}"
        )
    ranks = np.ceil(np.linspace(1, n_rows, len(errors)))
    return float(errors[int(np.searchsorted(ranks, rank))])


def metric_of(pipeline: Any) -> tuple[str, Any]:
    """Return name and function of the default score of the task."""
    return ("accuracy", accuracy_score) if is_classifier(pipeline) else ("R²", r2_score)


def check_folds(n_folds: int, y: np.ndarray, classifies: bool) -> None:
    """Refuse more folds than the smallest class has rows."""
    most, why = len(y), f"there are {len(y):,} rows"
    if classifies:
        counts = np.unique(y, return_counts=True)[1]
        most = int(counts.min() if counts.min() > 1 else counts.max())
        why = f"the {'smallest' if counts.min() > 1 else 'largest'} class has {most:,} rows"
    if n_folds > most:
        raise UsageError(f"--cv {n_folds}: {why}, so there can be at most {most:,} folds")


def splits_of(
    y: np.ndarray, n_folds: int, seed: int, classes: np.ndarray | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[str]]:
    """Split by class if every class has at least two rows; use fewer folds if rows are few."""
    n = min(n_folds, len(y))
    notes: list[str] = []
    rows = np.zeros(len(y))
    if n < 2:
        raise CommandError(f"--cv {n_folds}: {len(y)} row(s) cannot be split; use --cv 0")
    if classes is None:
        return list(KFold(n, shuffle=True, random_state=seed).split(rows)), notes
    counts = [int(np.sum(y == value)) for value in classes]
    fewest = min(counts)
    if fewest < 2 and len(classes) == 2:
        name = str(classes[counts.index(fewest)])
        raise CommandError(f"class {name!r} has only one row; --cv 0 skips the estimate")
    if 2 <= fewest < n:
        n = fewest
        notes.append(f"the smallest class has {fewest} rows, so {n} folds are used")
    with warnings.catch_warnings():  # a class of one row is in one fold only
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        splitter = StratifiedKFold(n, shuffle=True, random_state=seed)
        return list(splitter.split(rows, y)), notes


def rows_of(X: Any, index: np.ndarray) -> Any:
    """Return rows of an array or a data frame."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]
