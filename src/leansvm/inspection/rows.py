"""Training rows that look wrong, unusual or harmful, and new rows unlike the training rows.

All numbers come from the models without each row: r = e / (1 - h), h (`leansvm.ridge.without_row`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm._sklearn import split_threshold
from leansvm.estimators.answers import KeepsRows
from leansvm.estimators.read import validate
from leansvm.probabilities import fit_slopes, log_probabilities
from leansvm.ridge.answers import Answers
from leansvm.ridge.jackknife import refuse_unknown, spreads_at
from leansvm.rows import class_numbers, tiles_within

Array = NDArray[np.float64]


@dataclass
class RowInspection:
    """What the model without a row says about that row; copies of a row have the same numbers.

    Attributes
    ----------
    residual : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target minus the prediction of the model without the row (and its copies).
    leverage : ndarray of shape (n_samples,)
        How much the row determines its own prediction, from 0 (not at all) to 1 (completely).
    influence : ndarray of shape (n_samples,)
        How much the row raises the mean squared leave-one-out error of the other rows. Above 0, the
        other rows are predicted better without it. Computed when it is first read: it looks at all
        pairs of rows.
    suspicion : ndarray of shape (n_samples,)
        How likely the label or target is wrong, from 0 to 1. Classes: how much more probable
        another label is than the given one, in the model without the row and compared with other
        rows of the same class, so that rows of a rare class are not suspicious for being rare.
        Numbers: share of the rows with a smaller residual, relative to its expected spread.
    novelty : ndarray of shape (n_samples,)
        Share of the rows that are at least as unusual; a small number means an unusual row.
    """

    residual: Array
    leverage: Array
    suspicion: Array
    novelty: Array
    _influence: Callable[[], Array] = field(repr=False)

    @cached_property
    def influence(self) -> Array:
        """How much each row raises the mean squared leave-one-out error of the other rows."""
        return self._influence()

    def __getstate__(self) -> dict[str, Any]:
        """Return the numbers alone; the models without each row stay here."""
        names = "residual", "leverage", "influence", "suspicion", "novelty"
        return {name: getattr(self, name) for name in names}

    def most_suspicious(self, count: int = 10) -> NDArray[np.intp]:
        """Return the numbers of the most suspicious rows, the most suspicious first.

        Parameters
        ----------
        count : int, default=10
            Largest number of rows.

        Returns
        -------
        ndarray of shape (count,)
            Row numbers.
        """
        return np.argsort(-self.suspicion, kind="stable")[:count]


def inspect_rows(model: Any, X: Any, y: Any = None, sample_weight: Any = None) -> RowInspection:
    """Compare every training row with the model without that row; no model is fitted again.

    On a small basis this takes one pass over the rows, which is less than half of the processor
    time of a default fit. ``influence`` takes more time, when it is first read.

    Parameters
    ----------
    model : SparseLSSVC, SparseLSSVR, LSSVC or LSSVR
        Fitted.
    X, y, sample_weight
        What it was fitted on; other rows are refused.

    Returns
    -------
    RowInspection
        One entry per row.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.inspection import inspect_rows
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> wrong = int(np.argmin(np.abs(X - [1, 0]).sum(axis=1)))
    >>> y[wrong] = 0
    >>> model = SparseLSSVC(kernel="rbf", gamma=0.5, n_basis=40, random_state=0).fit(X, y)
    >>> bool(inspect_rows(model, X, y).most_suspicious(1)[0] == wrong)
    True
    """
    model = split_threshold(model)[0]
    answers = _asked(model, X, y, sample_weight)
    with tiles_within(model.cache_size):
        found, place, unused = answers.left_out, answers.places, answers.unused
        residual, suspicion = answers.residuals(model._values), _suspicion(model, answers)[place]
        leverage = found.leverage[place]
        novelty = answers.novelty(found.left_out_variance())[place]
        if len(unused):
            rows = to_host(answers.data.blocks().take(unused))
            leverage[unused] = 0.0
            suspicion[unused] = np.nan
            novelty[unused] = answers.novelty(spreads_at(found, rows, answers.fitted.budget)[1])

    def influence() -> Array:
        with tiles_within(model.cache_size):
            every = answers.influence()[place]
        every[unused] = 0.0
        return every

    return RowInspection(model._in_shape(residual), leverage, suspicion, novelty, influence)


def novelty(model: Any, X: Any) -> Array:
    """Return how similar new rows are to the training rows, as a p-value; small means unusual.

    The variance of f(x) grows with the distance of x from the training rows. It is compared with
    the variances at the training rows, each in the model without that row.

    Parameters
    ----------
    model : SparseLSSVC, SparseLSSVR, LSSVC or LSSVR
        Fitted, with its training rows (see its method ``keep_rows``).
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        New rows, in memory.

    Returns
    -------
    ndarray of shape (n_samples,)
        Share of the training rows that are at least as unusual. For rows like the training rows it
        is spread evenly over (0, 1); for other rows it is small.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.inspection import novelty
    >>> X = np.random.default_rng(0).normal(size=(300, 1))
    >>> model = SparseLSSVR(kernel="poly", gamma=1, degree=2, coef0=1, n_basis=5, random_state=0)
    >>> p = novelty(model.fit(X, X[:, 0] ** 2), [[0.5], [9.0]])
    >>> bool(p[0] > 0.1), bool(p[1] < 0.01)
    (True, True)
    """
    model = split_threshold(model)[0]
    answers = _asked(model)
    rows = to_host(validate(model, X, reset=False))
    with tiles_within(model.cache_size):
        _, variance = spreads_at(answers.left_out, rows, answers.fitted.budget)
        refuse_unknown(variance, "novelty")
        return answers.novelty(variance)


def _asked(model: Any, *rows: Any) -> Answers:
    if not isinstance(model, KeepsRows):
        raise TypeError(
            f"This function takes SparseLSSVC, SparseLSSVR, LSSVC and LSSVR, got "
            f"{type(model).__name__}. For a pipeline, pass its last step and the rows that this "
            f"step gets: pipeline[-1], pipeline[:-1].transform(X)."
        )
    check_is_fitted(model)
    with warnings.catch_warnings():  # the fit has told it
        warnings.filterwarnings("ignore", "Column .* (is read as|has) ", UserWarning)
        return (model.keep_rows(*rows) if rows else model)._ask()


def _suspicion(model: Any, answers: Answers) -> Array:
    found = answers.left_out
    if is_classifier(model):
        labels, values = class_numbers(found.target), answers.left_out_values
        logs = log_probabilities(values, fit_slopes(values, labels, found.weight)[1])
        p, own = np.exp(logs), np.eye(logs.shape[1])[labels] * found.weight[:, None]
        usual = np.sum(own * p, axis=0) / np.maximum(own.sum(axis=0), np.finfo(np.float64).tiny)
        p /= np.maximum(usual, np.finfo(np.float64).tiny)
        return np.asarray(1.0 - p[np.arange(len(labels)), labels] / p.sum(axis=1))
    spread = np.sqrt(np.maximum(found.noise(), np.finfo(np.float64).tiny))
    size = np.abs(found.residual * np.sqrt(1.0 - found.leverage)[:, None] / spread).max(axis=1)
    order = np.argsort(size, kind="stable")
    share = np.empty(len(size))
    share[order] = (np.cumsum(found.weight[order]) - found.weight[order]) / found.weight.sum()
    return share
