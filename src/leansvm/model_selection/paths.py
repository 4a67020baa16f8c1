"""Paths: what a smaller basis or another C would give, for little more than one fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, r2_score

from leansvm._array_api import to_host
from leansvm.basis import BasisSelector
from leansvm.basis.choose import resolve_basis
from leansvm.basis.features import KernelFeatures, whiten
from leansvm.estimators.kernel_machine import SparseMachine
from leansvm.estimators.read import TrainingData, read, validate
from leansvm.inspection._view import split_pipeline
from leansvm.ridge.criteria import left_out_errors
from leansvm.ridge.equations import NormalEquations, RidgeModels, models_of_sizes, normal_equations
from leansvm.ridge.sums import add_up, first_shift
from leansvm.rows import RowSource, resolve_cache_size, tiles_within

__all__ = [
    "BasisPath",
    "CPath",
    "basis_path",
    "c_path",
]

Array = NDArray[np.float64]

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
        Accuracy (classification), R^2 (regression) or ``scoring`` on the rows given for it.
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
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    X_score: Any = None,
    y_score: Any = None,
    scoring: Callable[[Any, Array], float] | None = None,
) -> BasisPath:
    """Fit once and return the errors for every number of basis points.

    Parameters
    ----------
    estimator : SparseLSSVC or SparseLSSVR
        With a nested selector and a number as ``n_basis``, or a pipeline that ends with one. It is
        cloned, not fitted.
    X, y, sample_weight
        Training data, as ``fit`` takes it; a data set in files brings its targets and weights.
    X_score, y_score : array-like, optional
        Rows on which every size is scored, in memory.
    scoring : callable, default=None
        Function ``scoring(y, values)`` of their targets and of the decision values or predictions,
        rows x outputs. None means accuracy or R^2.

    Returns
    -------
    BasisPath
        One entry for each size.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.model_selection import basis_path
    >>> X, y = load_digits(return_X_y=True)
    >>> path = basis_path(SparseLSSVC(gamma="scale", n_basis=50, basis="pivoted-cholesky"), X, y)
    >>> len(path.sizes), bool(path.loo[-1] < path.loo[0])
    (50, True)
    """
    if isinstance(X_score, RowSource):
        raise TypeError("X_score must be an array in memory, and y_score its targets.")
    before, estimator = split_pipeline(estimator)
    if before is not None:
        before = clone(before)
        X = before.fit_transform(X, y)
        X_score = None if X_score is None else before.transform(X_score)
    model, data = fitted_clone(estimator, X, y, sample_weight)
    _check_nested(model)
    with tiles_within(model.cache_size):
        # copies of a row are left out together
        data = data.merge_copies(resolve_cache_size(model.cache_size))
        penalty, order, kernel = model._bias_penalty(), model._selected, model._features.kernel
        blocks = data.blocks(3 * (len(order) + data.n_outputs + 1))
        rows = blocks.take(order)
        constant = model._features.constant
        features = whiten(kernel, rows, kernel.points(rows, order), constant=constant)
        rotation, kept = rotation_in_order(features, rows)
        sums = add_up(blocks, features, first_shift(blocks, features, penalty == 0), data.count)
        equations = normal_equations(sums, features, penalty == 0)
        models = models_of_turned_sizes(equations, model.C_, rotation)
        fitted = np.sum(models.z**2, axis=1) @ models.weights
        scores = None
        if X_score is not None:
            scores = _scores(model, X_score, y_score, scoring, features, models, equations)
        return BasisPath(
            np.arange(1, models.weights.shape[1] + 1),
            model.C_,
            0.5 * model.C_ * (equations.yy.sum() - fitted),
            models.gcv(equations),
            left_out_errors(blocks, equations, models),
            scores,
            order[kept],
            data.X.shape[0],
        )


def fitted_clone(
    estimator: SparseMachine, X: Any, y: Any, sample_weight: Any
) -> tuple[Any, TrainingData]:
    """Fit a clone; return it and the rows as it read them."""
    model = clone(estimator).fit(X, y, sample_weight=sample_weight)
    return model, read(model, X, y, sample_weight, reset=False)


@dataclass
class CPath:
    """Models for many values of C.

    Attributes
    ----------
    C : ndarray of shape (n_C,)
        Values of C, as given.
    models : list of estimators
        Fitted, one for each.
    objective, gap : ndarray of shape (n_C,)
        Objective, and duality gap as in the model's ``fit_report_``.
    n_support, n_iter : ndarray of shape (n_C,)
        Number of support vectors; number of iterations, starting from the previous solution.
    score : ndarray of shape (n_C,) or None
        Accuracy (classification) or R^2 (regression) on the rows given for it.
    """

    C: Array
    models: list[Any]
    objective: Array
    gap: Array
    n_support: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    score: Array | None


def c_path(
    estimator: Any,
    X: Any,
    y: Any,
    C: Any,
    *,
    sample_weight: Any = None,
    X_score: Any = None,
    y_score: Any = None,
) -> CPath:
    """Fit a model for every C, smallest first, each starting from the previous solution.

    The models equal those of `fit`, but take less time: what does not depend on C is computed only
    once (kernel rows for `L2SVC`; basis and kernel values for `ReducedSVC` and `ReducedSVR`).

    Parameters
    ----------
    estimator : L2SVC, ReducedSVC or ReducedSVR
        All parameters of the models except C; it is not changed. Reduced machines need a number as
        ``n_basis``, or a given basis; selectors that need a ``C`` take the estimator's.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training rows.
    y : array-like of shape (n_samples,)
        Labels or targets.
    C : array-like of shape (n_C,)
        Values of C.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    X_score, y_score : array-like, optional
        Rows on which every model is scored.

    Returns
    -------
    CPath
        Models and their numbers, in the order of ``C``.

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
    values = np.asarray(C, dtype=np.float64).ravel()
    if not values.size or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(f"C must hold finite numbers > 0, got {C!r}.")
    model = clone(estimator)
    if not hasattr(model, "_fit_path"):
        raise TypeError(
            f"{type(model).__name__} has no path of C: use L2SVC, ReducedSVC or ReducedSVR; "
            f"SparseLSSVC and LSSVC score a list of C in one fit."
        )
    model._validate_params()
    order = np.argsort(values, kind="stable")
    fitted = model._fit_path(X, y, values[order], sample_weight)
    models = [fitted[place] for place in np.argsort(order)]
    return CPath(
        values,
        models,
        np.array([model.objective_ for model in models]),
        np.array([model.fit_report_["gap"] for model in models]),
        np.array([model.n_support_ for model in models]),
        np.array([model.n_iter_ for model in models]),
        None if X_score is None else np.array([m.score(X_score, y_score) for m in models]),
    )


def rotation_in_order(features: KernelFeatures, rows: Any) -> tuple[Array, NDArray[np.intp]]:
    """Return Q such that the first k columns of Phi Q span the first k of ``rows``, the points.

    Cholesky in the given order would divide by tiny pivots; instead the rows' features under
    the pivoted factor are orthogonalised in order. Rows that depend on earlier ones are skipped:
    the second result is the positions of the others.
    """
    size = features.size
    values = to_host(features.phi(rows))
    floor = 10 * float(np.finfo(np.float64).eps) * float(np.square(values).sum(axis=1).max())
    Q = np.empty((size, size))
    kept: list[int] = []
    for t, row in enumerate(values):
        known = Q[:, : len(kept)]
        rest = row - known @ (known.T @ row)
        rest -= known @ (known.T @ rest)
        length = float(np.linalg.norm(rest))
        if length**2 > floor and len(kept) < size:
            Q[:, len(kept)] = rest / length
            kept.append(t)
    return Q[:, : len(kept)], np.asarray(kept, dtype=np.intp)


def models_of_turned_sizes(equations: NormalEquations, C: float, rotation: Array) -> RidgeModels:
    """Return the models on the first 1, 2, ... points.

    The orthonormal columns of the ``rotation`` (points x nested ones) turn Phi so that its first
    columns are those of the first points.
    """
    c, points, nested = equations.c, *rotation.shape
    wide = np.zeros((len(c), nested + int(equations.features.constant is not None)))
    wide[:points, :nested], wide[points:, nested:] = rotation, 1.0
    turned = replace(equations, gram=wide.T @ equations.matrix() @ wide, c=wide.T @ c, a=None)
    found = models_of_sizes(turned, C)
    return replace(found, turn=wide @ found.turn, upper=False)


def decisions(models: RidgeModels, Phi: Array, equations: NormalEquations) -> Array:
    """Return the decision values of every model at rows: rows x models x outputs."""
    W = (Phi - equations.mean_phi if equations.free_bias else Phi) @ models.turn
    values = np.stack([(W * z) @ models.weights for z in models.z.T], axis=2)
    return np.asarray(values + equations.mean_y if equations.free_bias else values)


def _check_nested(model: Any) -> None:
    shape = model.n_rows_seen_, model.support_vectors_.shape[1]
    selector, *_ = resolve_basis(model.basis, "auto", shape, False)
    if isinstance(selector, BasisSelector):
        if not selector.nested:
            raise ValueError(
                f"basis={model.basis!r} is not nested: its first k points are not those that it "
                f"chooses for n_basis=k. Use another selector, for example 'pivoted-cholesky'."
            )
    elif selector.ndim == 2:
        raise ValueError("basis: a path needs rows of X as basis points; pass their row numbers.")


def _scores(
    model: Any,
    X: Any,
    y: Any,
    scoring: Callable[[Any, Array], float] | None,
    features: KernelFeatures,
    models: RidgeModels,
    equations: NormalEquations,
) -> Array:
    X = validate(model, X, reset=False)
    parts = []
    for start in range(0, X.shape[0], _SCORE_ROWS):
        Phi = to_host(features.transform(X[start : start + _SCORE_ROWS]))
        values = decisions(models, Phi, equations)
        if scoring is not None or not is_classifier(model):
            parts.append(values)
        elif values.shape[2] == 1:
            parts.append(model.classes_[(values[:, :, 0] > 0).astype(np.intp)])
        else:
            parts.append(model.classes_[values.argmax(axis=2)])
    predicted = np.concatenate(parts)
    score = scoring or (accuracy_score if is_classifier(model) else r2_score)
    return np.array([score(y, predicted[:, k]) for k in range(predicted.shape[1])])
