"""The threshold of a fitted classifier, chosen on its left-out decision values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from leansvm.estimators.predict import Classifier
from leansvm.rows import class_numbers

Array = NDArray[np.float64]
_TRIED = 200  # thresholds, spread evenly over all rows and over those of the second class


def tune_threshold(
    model: Any, metric: str | Callable[..., float] = "balanced_accuracy", *, pos_label: Any = None
) -> FixedThresholdClassifier:
    """Choose the decision threshold of a fitted classifier with two classes, without another fit.

    The metric is computed from the leave-one-out decision values of the training rows. `fit` keeps
    those of the last 100,000 rows. A model from a file needs ``keep_rows(X, y)`` first, with its
    training rows.

    Parameters
    ----------
    model : classifier of this library, or a pipeline that ends in one
        Fitted, with two classes and ``calibrate=True``.
    metric : str or callable, default="balanced_accuracy"
        Name of a scikit-learn scorer of predicted labels, such as "f1", "balanced_accuracy",
        "recall" or "accuracy"; or a function ``metric(y_true, y_pred)`` of labels, where higher is
        better. Scorers get the sample weights of the fit.
    pos_label : label, default=None
        The positive class of scorers such as "f1" and "recall"; None: the rarer class.

    Returns
    -------
    sklearn.model_selection.FixedThresholdClassifier
        Holds the frozen model and is ready to predict; ``threshold`` is the chosen one.

    See Also
    --------
    sklearn.model_selection.TunedThresholdClassifierCV : The same by fits on folds.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.model_selection import tune_threshold
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.05).astype(int)
    >>> X = rng.normal(size=(2000, 2)) + 1.5 * y[:, None]
    >>> model = SparseLSSVC(kernel="rbf", gamma=0.3, n_basis=50, random_state=0).fit(X, y)
    >>> tuned = tune_threshold(model, "f1")
    >>> bool(np.sum(tuned.predict(X)) > np.sum(model.predict(X)))
    True
    """
    machine = model[-1] if isinstance(model, Pipeline) else model
    if not isinstance(machine, Classifier):
        raise TypeError(
            f"tune_threshold takes a classifier of leansvm or a pipeline that ends with one, got "
            f"{type(machine).__name__}. For other classifiers use "
            f"sklearn.model_selection.TunedThresholdClassifierCV."
        )
    check_is_fitted(machine)
    if len(machine.classes_) != 2:
        raise ValueError(f"model: a threshold needs two classes, got {len(machine.classes_)}.")
    known = _left_out_of(machine)
    if known is None:
        raise ValueError(
            "model: it has no left-out decision values. If it was loaded from a file, call "
            "keep_rows(X, y) with its training rows (or save it with keep_state=True). Otherwise "
            "fit it with calibrate=True."
        )
    values, labels, weight = known[:, 0], known[:, -3].astype(np.intp), known[:, -1]
    thresholds, score = _candidates(values, labels), _score_of(metric, machine.classes_)
    positive = int(2 * (weight @ labels) <= weight.sum())  # the rarer class
    if pos_label is not None:
        if pos_label not in machine.classes_:
            raise ValueError(f"pos_label={pos_label!r} is not one of {list(machine.classes_)}.")
        positive = int(pos_label == machine.classes_[1])
    flip = 0 if positive or callable(metric) else 1  # scorers take 1 for the positive class
    called = [(values >= t).astype(np.intp) ^ flip for t in thresholds]
    scores = [score(labels ^ flip, one, weight) for one in called]
    best = float(thresholds[_middle_of_the_best(np.asarray(scores, dtype=np.float64))])
    return FixedThresholdClassifier(
        FrozenEstimator(model), threshold=best, response_method="decision_function"
    )


def _left_out_of(machine: Any) -> Array | None:
    """Return decision values, class and weights of left-out rows; None if they are not known.

    The fit keeps them. A model from a file has none until `keep_rows` gives it its training rows.
    """
    known = vars(machine).get("_left_out")
    if known is not None or vars(machine).get("_rows") is None or not machine.calibrate:
        return known
    answers = machine._ask()
    found, by_class = answers.left_out, answers.data.class_weight
    labels = class_numbers(found.target)
    weight = np.ones(len(labels)) if found.weight is None else np.asarray(found.weight)
    own = weight if by_class is None else weight / by_class[labels]
    return np.column_stack([answers.left_out_values, labels, weight, own])


def _candidates(values: Array, labels: NDArray[np.intp]) -> Array:
    """Return numbers between neighbouring decision values, and one beyond each end."""
    every = np.unique(values)
    between = np.concatenate([[every[0] - 1.0], (every[1:] + every[:-1]) / 2.0, [every[-1] + 1.0]])
    places = []
    for rows in (values, values[labels == 1]):
        ranks = np.linspace(0, len(rows) - 1, min(len(rows), _TRIED)).astype(np.intp)
        places.append(np.searchsorted(every, np.sort(rows)[ranks]))
    chosen = np.unique(np.concatenate([*places, [len(every)]]))
    return np.asarray(between[chosen])


def _middle_of_the_best(scores: Array) -> int:
    """Return the middle of the first run of thresholds that are as good as any."""
    best = int(np.nanargmax(scores))
    equal = scores[best:] == scores[best]
    length = len(equal) if equal.all() else int(np.argmin(equal))
    return best + (length - 1) // 2


def _score_of(metric: Any, classes: NDArray[Any]) -> Callable[..., float]:
    if callable(metric):
        return lambda y, predicted, weight: float(metric(classes[y], classes[predicted]))
    try:
        scorer = get_scorer(metric)
    except (ValueError, TypeError, AttributeError):
        scorer = None
    if scorer is None or getattr(scorer, "_response_method", "predict") != "predict":
        raise ValueError(
            f"metric={metric!r}: give the name of a scorer of predicted labels, such as 'f1', "
            f"'balanced_accuracy', 'recall' or 'accuracy', or a function metric(y_true, y_pred)."
        )
    sign, kwargs = scorer._sign, scorer._kwargs

    def score(y: Any, predicted: Any, weight: Array) -> float:
        return float(sign * scorer._score_func(y, predicted, sample_weight=weight, **kwargs))

    return score
