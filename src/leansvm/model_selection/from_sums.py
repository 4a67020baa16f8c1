"""Validation from sums: errors on folds or groups left out, and learning curves, for every C.

With Z'Z of every fold kept apart, models without a fold and their squared errors on it come from
small matrices (see `leansvm.ridge.kfold`): no row is read again, and no model is refitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from leansvm._parallel import blas_threads
from leansvm.estimators.machine import C_GRID
from leansvm.model_selection.paths import fitted_clone
from leansvm.ridge.criteria import first_of_the_best
from leansvm.ridge.kfold import (
    FoldSums,
    KFoldSums,
    add_up_folds,
    errors_of_folds,
    learning_errors,
)
from leansvm.ridge.state import FitState
from leansvm.ridge.sums import check_memory
from leansvm.rows import check_budget, resolve_cache_size, tiles_within

Array = NDArray[np.float64]
_FRACTIONS = (0.1, 0.325, 0.55, 0.775, 1.0)  # as scikit-learn's learning_curve has them


@dataclass
class FoldErrors:
    """Squared errors on folds (or groups) that were left out, for every C.

    Attributes
    ----------
    C : ndarray of shape (n_C,)
        Candidates.
    errors : ndarray of shape (n_folds, n_C)
        Mean squared error on every fold of the model fitted on all other rows, summed over
        outputs. The targets of classifiers are +-1. NaN for a fold without rows.
    by_output : ndarray of shape (n_folds, n_outputs, n_C)
        The same for every output.
    weight : ndarray of shape (n_folds,)
        Sum of the weights of each fold.
    mean : ndarray of shape (n_C,)
        Mean squared error over all rows, as ``cv_curve_``.
    best_C : float
        Candidate with the smallest mean.
    names : list of str
        Name of every fold: that of its groups, or its number.
    """

    C: Array
    errors: Array
    by_output: Array
    weight: Array
    mean: Array
    best_C: float
    names: list[str]


def cross_val_from_sums(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    folds: KFoldSums | None = None,
    C: Any = None,
    sample_weight: Any = None,
) -> FoldErrors:
    """Return the exact errors on left-out folds or groups, for every C, without refitting.

    Up to rounding, they equal the errors of fits without each fold, with the same basis and gamma.

    Parameters
    ----------
    model : SparseLSSVC, SparseLSSVR or FitState
        Without X: a model fitted with ``C="kfold"`` or ``C=KFoldSums(...)``, or a state that has
        folds; no row is read. With X: an estimator that is cloned and fitted once; the sums of the
        folds are added up in one more pass.
    X, y, sample_weight
        Rows as `fit` takes them: arrays, a data set in files or a Dask collection.
    folds : KFoldSums, default=None
        The folds: ``KFoldSums(None, groups)`` leaves out one group at a time; None is
        ``KFoldSums()``, five folds. Only with X.
    C : array-like of shape (n_C,), default=None
        Candidates; None: those of the model.

    Returns
    -------
    FoldErrors
        One row for each fold.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.model_selection import KFoldSums, cross_val_from_sums
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SparseLSSVR(kernel="rbf", gamma="scale", n_basis=30, random_state=0)
    >>> clinic = np.repeat(["north", "south", "west"], [150, 150, 142])
    >>> found = cross_val_from_sums(model, X, y, folds=KFoldSums(None, groups=clinic))
    >>> found.names, found.errors.shape
    (['north', 'south', 'west'], (3, 50))
    """
    if X is None:
        if folds is not None:
            raise ValueError(
                "folds: the sums of a fitted model already have folds. To use other folds, pass X "
                "and y."
            )
        sums, features, free_bias, candidates, names = _known(model)
    else:
        folds = KFoldSums() if folds is None else folds
        sums, features, free_bias, candidates, names = _added_up(model, X, y, sample_weight, folds)
    candidates = candidates if C is None else _checked(C)
    total, weight = errors_of_folds(sums, features, free_bias, candidates)
    used = weight > 0
    by_output = np.full_like(total, np.nan)
    by_output[used] = total[used] / weight[used, None, None]
    mean = total.sum(axis=(0, 1)) / weight.sum()
    best = float(candidates[first_of_the_best(mean)])
    return FoldErrors(candidates, by_output.sum(axis=1), by_output, weight, mean, best, names)


def _known(model: Any) -> tuple[FoldSums, Any, bool, Array, list[str]]:
    """Return the folds of a fitted model or a state, with its candidates of C."""
    state, candidates = model, C_GRID
    if not isinstance(model, FitState):
        check_is_fitted(model)
        state, candidates = model.state(), np.atleast_1d(model._criterion().C)
    if not isinstance(state.sums, FoldSums):
        raise ValueError(
            "The sums have no folds: fit with C='kfold' or C=KFoldSums(...), or pass X and y."
        )
    names = [str(fold) for fold in range(state.n_folds)]
    given = getattr(model, "C", None)
    if isinstance(given, KFoldSums) and given.groups is not None:
        names = given.names(len(given.groups))
    return state.sums, state.features, state.bias_penalty == 0, candidates, names


def _added_up(
    estimator: Any, X: Any, y: Any, sample_weight: Any, folds: KFoldSums
) -> tuple[FoldSums, Any, bool, Array, list[str]]:
    """Fit a clone and add up the folds of its rows on its basis."""
    model, data = fitted_clone(estimator, X, y, sample_weight)
    n_rows, features = data.X.shape[0], model._features
    check_memory(features.width, resolve_cache_size(model.cache_size), folds.count(n_rows))
    with tiles_within(model.cache_size):
        blocks = data.blocks(3 * (features.width + data.n_outputs + 1))
        sums = add_up_folds(blocks, features, model._sums.shift, data.count, folds)
    candidates = np.atleast_1d(model._criterion().C)
    return sums, features, model._bias_penalty() == 0, candidates, folds.names(n_rows)


def _checked(C: Any) -> Array:
    values = np.atleast_1d(np.asarray(C, dtype=np.float64))
    if values.ndim != 1 or not values.size or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(f"C must hold finite numbers > 0, got {C!r}.")
    return values


# ---------------------------------------------------------------------------- learning curves


@dataclass
class LearningCurve:
    """Errors of models on growing parts of the rows.

    Attributes
    ----------
    fractions : ndarray of shape (n_sizes,)
        Shares of the rows outside of the fold.
    train_sizes : ndarray of shape (n_sizes,)
        Sums of the weights of these rows, the mean over folds.
    train_errors, test_errors : ndarray of shape (n_sizes, n_folds)
        Mean squared errors, summed over outputs, on the rows of the fit and on the fold left out;
        the targets of classifiers are +-1.
    C : ndarray of shape (n_sizes,)
        For every size the candidate with the smallest mean error on the folds.
    """

    fractions: Array
    train_sizes: Array
    train_errors: Array
    test_errors: Array
    C: Array


def learning_curve_from_sums(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    fractions: Any = _FRACTIONS,
    folds: KFoldSums | None = None,
    C: Any = None,
    sample_weight: Any = None,
) -> LearningCurve:
    """Return the errors of models on growing parts of the rows, from one pass over the rows.

    The estimator is fitted once, on all rows; its basis points and gamma are used for all sizes. So
    the curve shows how more rows improve the coefficients. Copies of a row stay in the same fold
    and part. Up to rounding, the errors equal those of separate fits with the same basis.

    Parameters
    ----------
    estimator : SparseLSSVC or SparseLSSVR
        It is cloned, not fitted.
    X, y, sample_weight
        Rows as `fit` takes them: arrays, a data set in files or a Dask collection.
    fractions : array-like of shape (n_sizes,), default=(0.1, 0.325, 0.55, 0.775, 1.0)
        Shares of the rows to fit on, increasing, in (0, 1].
    folds : KFoldSums, default=None
        Folds to be left out; None is ``KFoldSums()``, five folds.
    C : array-like of shape (n_C,), default=None
        Candidates; every size takes its best one. None: those of the estimator.

    Returns
    -------
    LearningCurve
        One row for each size.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.model_selection import learning_curve_from_sums
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SparseLSSVR(kernel="rbf", gamma="scale", n_basis=30, random_state=0)
    >>> curve = learning_curve_from_sums(model, X, y)
    >>> mean = curve.test_errors.mean(axis=1)
    >>> bool(mean[-1] < mean[0]), curve.test_errors.shape
    (True, (5, 5))
    """
    shares = np.asarray(fractions, dtype=np.float64)
    increasing = shares.ndim == 1 and shares.size and np.all(np.diff(shares) > 0)
    if not increasing or shares[0] <= 0 or shares[-1] > 1:
        raise ValueError(f"fractions must be increasing numbers in (0, 1], got {fractions!r}.")
    folds = KFoldSums() if folds is None else folds
    model, data = fitted_clone(estimator, X, y, sample_weight)
    candidates = np.atleast_1d(model._criterion().C) if C is None else _checked(C)
    features, n_folds = model._features, folds.count(data.X.shape[0])
    n_parts = len(shares) + (shares[-1] < 1)
    _check_cells(features.width + data.n_outputs + 1, n_folds * n_parts, model)
    with tiles_within(model.cache_size):
        blocks = data.blocks(3 * (features.width + data.n_outputs + 1))
        found = learning_errors(
            blocks,
            features,
            model._sums.shift,
            model._bias_penalty() == 0,
            folds,
            shares,
            candidates,
        )
    used = found.test_weight > 0
    test = found.test[:, used] / found.test_weight[used, None]
    train = found.train[:, used] / found.train_weight[:, used, None]
    mean = found.test[:, used].sum(axis=1) / found.test_weight[used].sum()
    best = [first_of_the_best(errors) for errors in mean]
    sizes = np.arange(len(shares))
    return LearningCurve(
        shares,
        found.train_weight[:, used].mean(axis=1),
        train[sizes, :, best],
        test[sizes, :, best],
        candidates[best],
    )


def _check_cells(columns: int, cells: int, model: Any) -> None:
    """Refuse sums of folds x sizes that exceed the budget; every thread holds a copy."""
    check_budget(
        8 * columns**2 * cells * (blas_threads() + 5),
        resolve_cache_size(model.cache_size),
        f"A learning curve with {cells:,} sums of {columns:,} columns",
        "Use fewer fractions, folds or basis points, or raise cache_size.",
    )
