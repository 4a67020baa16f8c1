"""How much each column matters: what the score loses when the column is shuffled among the rows.

Shuffling keeps the other columns of each row and the values of this column, but removes every
relation between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state

from leansvm.inspection._moved import can_move, moved_values
from leansvm.inspection._view import (
    Array,
    Indices,
    View,
    as_lines,
    grouped,
    parts_of,
    with_columns_of,
)

_RARE = 0.4  # of an equal share of the rows: a class with fewer is rare


@dataclass(repr=False)
class Importance:
    """How much the score of a model falls if a column is shuffled.

    Attributes
    ----------
    names : list of str
        Columns, or groups of columns.
    mean : ndarray of shape (n_columns,)
        How much the score falls if the column is shuffled, mean over repeats. About 0 means that
        the model does not need the column.
    std : ndarray of shape (n_columns,)
        Standard deviation over repeats.
    losses : ndarray of shape (n_columns, n_repeats)
        Loss of every repeat.
    score : float
        Score with all columns as they are.
    scoring : str
        What the score is.
    left_out : list of str
        Columns that the fit left out. Nothing depends on them.
    """

    names: list[str]
    mean: Array
    std: Array
    losses: Array
    score: float
    scoring: str
    left_out: list[str] = field(default_factory=list)

    def strongest(self, count: int | None = None) -> Indices:
        """Return positions of the most important columns, the most important first.

        Parameters
        ----------
        count : int, default=None
            Largest number of columns; None means all.

        Returns
        -------
        ndarray
            Positions in ``names``.
        """
        return np.argsort(-self.mean, kind="stable")[:count]

    def __repr__(self) -> str:
        title = f"Loss of {self.scoring} ({self.score:.4g}) when a column is shuffled:"
        cells = [f"{m:8.4f} ± {s:.4f}" for m, s in zip(self.mean, self.std, strict=True)]
        return as_lines(title, self.names, cells, self.strongest(), self.left_out)


def importance(
    model: Any,
    X: Any,
    y: Any,
    *,
    scoring: Any = None,
    sample_weight: Any = None,
    groups: Mapping[str, Any] | None = None,
    n_repeats: int = 5,
    max_rows: int | None = 5000,
    random_state: Any = 0,
) -> Importance:
    """Return how much the score of a fitted model falls if a column is shuffled.

    Parameters
    ----------
    model : estimator
        A fitted estimator of leansvm, or a pipeline that ends with one. Other fitted models work,
        too, but take longer.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_columns)
        Rows with the columns that ``model.predict`` takes. Test rows show which columns help to
        predict new rows; training rows show which columns the model uses.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.
    scoring : str or callable, default=None
        Any of scikit-learn's scores. None means ``model.score``: R^2, or accuracy. If a class is
        rare, accuracy says little about it, and None means "roc_auc" ("roc_auc_ovr" for several
        classes), or "balanced_accuracy" for a model that cannot rank rows.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the score.
    groups : dict of str to list of columns, default=None
        Columns, by name or number, that are shuffled together, such as the indicators of one
        category; all other columns are shuffled alone. A category or a date that the model or the
        pipeline encodes itself is one column already.
    n_repeats : int, default=5
        How often each column is shuffled.
    max_rows : int or None, default=5000
        Largest number of rows; if there are more, a random sample is used. None means all.
    random_state : int, RandomState instance or None, default=0
        How rows are drawn and shuffled.

    Returns
    -------
    Importance
        Mean and spread for every column, in units of the score.

    Notes
    -----
    Importance describes the model, not causes. Columns with the same information share their
    importance: shuffle them together with ``groups``.

    A class is rare if it has less than 40 % of the rows that it would have if all classes were
    equally frequent. Of two classes, that is less than 20 % of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.inspection import importance
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> y = 2 * X[:, 0] + np.sin(2 * X[:, 2])
    >>> model = SparseLSSVR(kernel="rbf", gamma=0.2, n_basis=80, random_state=0)
    >>> found = importance(model.fit(X[:200], y[:200]), X[200:], y[200:])
    >>> [found.names[i] for i in found.strongest()]
    ['x0', 'x2', 'x1']
    """
    if not isinstance(n_repeats, Integral) or n_repeats < 1:
        raise ValueError(f"n_repeats must be a whole number >= 1, got {n_repeats!r}.")
    if max_rows is not None and max_rows < 2:
        raise ValueError(f"max_rows must be at least 2, or None for all rows, got {max_rows!r}.")
    view, rng = View(model, X), check_random_state(random_state)
    check_consistent_length(view.X, y, sample_weight)
    rows = np.arange(view.X.shape[0])
    if max_rows is not None and len(rows) > max_rows:
        rows = np.sort(rng.permutation(len(rows))[:max_rows])
        view.X, y = _safe_indexing(view.X, rows), _safe_indexing(y, rows)
        sample_weight = None if sample_weight is None else _safe_indexing(sample_weight, rows)
    orders = [rng.permutation(len(rows)) for _ in range(n_repeats)]
    names, columns = grouped(view.names, groups)
    options = {} if sample_weight is None else {"sample_weight": sample_weight}
    scoring = _fair_scoring(model, y) if scoring is None else scoring
    scorer = check_scoring(model, scoring)

    def scored(model: Any, rows: Any) -> float:
        return float(scorer(model, rows, y, **options))

    score = scored(model, view.X)
    scores = _by_values(view, columns, orders, scored, score)
    if scores is None:
        moved = ([with_columns_of(view.X, c, order) for order in orders] for c in columns)
        scores = np.array([[scored(model, rows) for rows in repeats] for repeats in moved])
    losses = score - scores
    if scoring is None:
        scoring = "accuracy" if is_classifier(model) else "R²"
    what = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "the score")
    found = losses.mean(axis=1), losses.std(axis=1), losses
    return Importance(names, *found, score, what, view.left_out(names))


def _fair_scoring(model: Any, y: Any) -> str | None:
    """Return a score that sees rare classes; None, which is accuracy or R^2, if no class is rare.

    A model that takes all rows for the frequent class has the same accuracy without any column.
    """
    if not is_classifier(model):
        return None
    classes, counts = np.unique(np.asarray(y), return_counts=True)
    if len(classes) < 2 or counts.min() * len(classes) >= _RARE * counts.sum():
        return None
    two, all_there = len(classes) == 2, len(classes) == len(getattr(model, "classes_", ()))
    ranks = hasattr(model, "predict_proba") or (two and hasattr(model, "decision_function"))
    if not (ranks and all_there):
        return "balanced_accuracy"
    return "roc_auc" if two else "roc_auc_ovr"


def _by_values(
    view: View, columns: list[Indices], orders: list[Indices], score: Any, unmoved: float
) -> Array | None:
    """Return scores, columns x orders, without predicting shuffled rows; None if impossible."""
    parts = parts_of(view.machine) if view.is_kernel_machine else None
    owned = view.owned(columns) if can_move(parts) else None
    if parts is None or owned is None:
        return None
    rows, b = view.features(view.X), np.asarray(view.machine.intercept_)
    result = np.full((len(columns), len(orders)), unmoved)
    used = [c for c, own in enumerate(owned) if any(len(part.columns_of(own)) for part in parts)]
    for c, repeats in zip(
        used, moved_values(parts, rows, [owned[c] for c in used], orders, b), strict=True
    ):
        result[c] = [score(_answering(view, values), rows) for values in repeats]
    return result


def _answering(view: View, values: Array) -> Any:
    """Return a copy of the machine that answers with these decision values."""
    machine = copy(view.machine)
    machine._decision_values = lambda X: values
    if view.threshold is None:
        return machine
    return FixedThresholdClassifier(
        machine, threshold=view.threshold, response_method="decision_function"
    )
