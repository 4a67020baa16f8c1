"""Paths: what a smaller basis or another C would give, for little more than one fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, r2_score

from leansvm.basis import BasisSelector
from leansvm.basis._resolve import resolve_basis
from leansvm.blocks import MemoryBlocks, merge_equal_rows
from leansvm.estimators._base import Array
from leansvm.estimators._l2svc import L2SVC, fit_path
from leansvm.estimators._sparse_machine import SparseMachine, add_up_blocks
from leansvm.solvers import path, primal

_SCORE_ROWS = 2048


@dataclass
class BasisPath:
    """Models on the first 1, 2, ... points of a nested basis.

    Attributes
    ----------
    sizes : ndarray of shape (n_sizes,)
        Numbers of basis points.
    C : float
        Regularisation of all of them.
    objective, gcv, loo : ndarray of shape (n_sizes,)
        Objective; generalised cross-validation; leave-one-out squared error.
    score : ndarray of shape (n_sizes,) or None
        Accuracy (classification) or R^2 (regression) on the rows given for it.
    support : ndarray of shape (n_sizes,)
        Rows in the order in which they join.
    n_rows : int
        Training rows, for the sparsity level 100 * sizes / n_rows.
    """

    sizes: NDArray[np.intp]
    C: float
    objective: Array
    gcv: Array
    loo: Array
    score: Array | None
    support: NDArray[np.intp]
    n_rows: int


def basis_path(
    estimator: SparseMachine,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    X_score: Any = None,
    y_score: Any = None,
) -> BasisPath:
    """Fit once and return the errors of every prefix of the basis.

    Parameters
    ----------
    estimator : SparseLSSVC or SparseLSSVR
        With a nested selector and a number as ``n_basis``. It is cloned, not fitted.
    X, y, sample_weight
        Training data.
    X_score, y_score : array-like, optional
        Rows on which every size is scored.

    Returns
    -------
    BasisPath
        One entry a size.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.model_selection import basis_path
    >>> X, y = load_digits(return_X_y=True)
    >>> path = basis_path(SparseLSSVC(n_basis=50, basis="pivoted-cholesky"), X, y)
    >>> len(path.sizes), bool(path.loo[-1] < path.loo[0])
    (50, True)
    """
    model = clone(estimator).fit(X, y, sample_weight=sample_weight)
    _check_nested(model)
    X, Y, weight, count = model._rows_and_targets(X, y, sample_weight)
    merged = merge_equal_rows(X, Y, weight)  # copies of a row are left out together
    weight = np.zeros_like(weight)
    weight[merged.first] = merged.weight
    penalty = model._bias_penalty()
    kernel = model._kernel()
    order = model._selected
    blocks = MemoryBlocks(X, Y, weight, columns=3 * (len(order) + Y.shape[1] + 1))
    rows = blocks.take(order)
    basis = primal.nested(primal.whiten(kernel, rows, kernel.points(rows, order), penalty), rows)
    sums = add_up_blocks(blocks, basis, penalty == 0, count)
    equations = primal.normal_equations(sums, basis, penalty == 0)
    factor = path.factor_prefixes(equations, model.C_)
    score = None
    if X_score is not None:
        score = _scores(model, X_score, y_score, basis, factor)
    return BasisPath(
        np.arange(1, basis.size + 1),
        model.C_,
        factor.objective(),
        factor.gcv(),
        path.left_out_errors(blocks, basis, factor),
        score,
        order[basis.kept],
        X.shape[0],
    )


def _check_nested(model: Any) -> None:
    selector = resolve_basis(model.basis, model.n_features_in_, model.n_rows_seen_, False)
    if isinstance(selector, BasisSelector):
        if not selector.nested:
            raise ValueError(
                f"basis={model.basis!r} is not nested: its first k points are not its choice of k. "
                f"Use another selector, for example 'pivoted-cholesky'."
            )
    elif selector.ndim == 2:
        raise ValueError("basis: a path needs rows of X as basis; give their numbers.")


def _scores(
    model: Any, X: Any, y: Any, basis: primal.WhitenedBasis, factor: path.PrefixFactor
) -> Array:
    X = model._validate_rows(X, reset=False)
    parts = []
    for start in range(0, X.shape[0], _SCORE_ROWS):
        values = path.decisions(X[start : start + _SCORE_ROWS], basis, factor)
        if not is_classifier(model):
            parts.append(values)
        elif values.shape[2] == 1:
            parts.append(model.classes_[(values[:, :, 0] > 0).astype(np.intp)])
        else:
            parts.append(model.classes_[values.argmax(axis=2)])
    predicted = np.concatenate(parts)
    score = accuracy_score if is_classifier(model) else r2_score
    return np.array([score(y, predicted[:, k]) for k in range(predicted.shape[1])])


@dataclass
class CPath:
    """Solutions of the squared-hinge SVM for many values of C.

    Attributes
    ----------
    C : ndarray of shape (n_C,)
        Values of C, as given.
    models : list of L2SVC
        Fitted estimators, one for each.
    objective, n_support, n_iter : ndarray of shape (n_C,)
        Objective, number of support vectors and linear solves of each.
    score : ndarray of shape (n_C,) or None
        Accuracy on the rows given for it.
    """

    C: Array
    models: list[L2SVC]
    objective: Array
    n_support: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    score: Array | None


def c_path(
    estimator: L2SVC,
    X: Any,
    y: Any,
    C: Any,
    *,
    sample_weight: Any = None,
    X_score: Any = None,
    y_score: Any = None,
) -> CPath:
    """Fit an `L2SVC` for every C, smallest first, each from the support set of the one before.

    Kernel rows are computed once for all of them. The models are those that `fit` would give.

    Parameters
    ----------
    estimator : L2SVC
        Parameters of the models, but C; it is not changed.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training rows.
    y : array-like of shape (n_samples,)
        Labels.
    C : array-like of shape (n_C,)
        Values of C.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    X_score, y_score : default=None
        Rows to score every model on.

    Returns
    -------
    CPath
        Models and figures, in the order of ``C``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from leansvm import L2SVC
    >>> from leansvm.model_selection import c_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = c_path(L2SVC(), scale(X), y, [0.1, 1, 10, 100])
    >>> bool((found.n_support[:-1] > found.n_support[1:]).all())
    True
    """
    models = fit_path(estimator, X, y, C, sample_weight)
    score = None
    if X_score is not None:
        score = np.array([model.score(X_score, y_score) for model in models])
    return CPath(
        np.asarray(C, dtype=np.float64),
        models,
        np.array([model.objective_ for model in models]),
        np.array([len(model.support_) for model in models]),
        np.array([model.n_iter_ for model in models]),
        score,
    )
