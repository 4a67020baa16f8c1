"""Paths: what a smaller basis or another gamma would give, for little more than one fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, r2_score

from leansvm.basis import BasisSelector
from leansvm.basis.choose import resolve_basis
from leansvm.blocks import MemoryBlocks, merge_equal_rows
from leansvm.estimators._base import Array
from leansvm.estimators._l2svc import L2SVC, fit_path
from leansvm.estimators._reduced_machine import ReducedMachine
from leansvm.estimators._sparse_machine import SparseMachine, add_up_blocks, first_shift
from leansvm.kernels import Kernel
from leansvm.solvers import gammas as gammas_solver
from leansvm.solvers import path, primal

_SCORE_ROWS = 2048
_GRAM_BYTES = 2**27  # of the sums of all gammas that share a pass


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


@dataclass
class GammaPath:
    """Models that differ in gamma, each at its best C.

    Attributes
    ----------
    gammas : ndarray of shape (n_gammas,)
        Candidates.
    gcv : ndarray of shape (n_gammas,)
        Generalised cross-validation of each at its best C.
    C : ndarray of shape (n_gammas,)
        Those C.
    best_gamma, best_C : float
        The pair with the smallest error.
    """

    gammas: Array
    gcv: Array
    C: Array
    best_gamma: float
    best_C: float


def gamma_path(
    estimator: SparseMachine, X: Any, y: Any, *, gammas: Any = None, sample_weight: Any = None
) -> GammaPath:
    """Estimate the error of several gamma, each at its best C, on one basis of points.

    The basis is chosen once, at the estimator's gamma, and rows and points are compared once:
    for the Gaussian kernel a further gamma costs an exponential and two small products a row.

    Parameters
    ----------
    estimator : SparseLSSVC or SparseLSSVR
        It is cloned, not fitted. With a number as ``C`` every gamma is scored at that C, else at
        the best of its candidates by generalised cross-validation.
    X, y, sample_weight
        Training data.
    gammas : array-like, optional
        Candidates; by default the estimator's gamma times 4^-4 ... 4^4.

    Returns
    -------
    GammaPath
        One entry a gamma.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.model_selection import gamma_path
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SparseLSSVC(n_basis=100, random_state=0)
    >>> found = gamma_path(model, X, y)
    >>> model = model.set_params(gamma=found.best_gamma).fit(X, y)
    >>> len(found.gammas)
    9
    """
    if callable(estimator.kernel) or estimator.kernel in ("linear", "precomputed"):
        raise ValueError(f"kernel={estimator.kernel!r} has no gamma to search.")
    model = clone(estimator).fit(X, y, sample_weight=sample_weight)
    X, Y, weight, count = model._rows_and_targets(X, y, sample_weight)
    if gammas is None:
        gammas = model.gamma_ * 4.0 ** np.arange(-4, 5)
    gammas = np.asarray(gammas, dtype=np.float64)
    if gammas.ndim != 1 or not gammas.size or not np.all((gammas >= 0) & np.isfinite(gammas)):
        raise ValueError("gammas must be a list of finite numbers >= 0.")
    candidates, _ = model._candidates_of_C()
    candidates = np.array([float(model.C)]) if candidates is None else candidates
    points, penalty = model.support_vectors_, model._bias_penalty()
    blocks = MemoryBlocks(X, Y, weight, columns=4 * (points.shape[0] + Y.shape[1] + 1))
    gcv, C = np.empty(len(gammas)), np.empty(len(gammas))
    group = max(1, _GRAM_BYTES // (8 * points.shape[0] ** 2))
    for start in range(0, len(gammas), group):
        some = slice(start, start + group)
        kernels = [_with_gamma(model, gamma) for gamma in gammas[some]]
        bases = [primal.whiten(kernel, points, points, penalty) for kernel in kernels]
        shifts = [first_shift(blocks, basis, penalty == 0) for basis in bases]
        grams = gammas_solver.add_up_together(blocks, points, bases, shifts)
        for k, (basis, shift, gram) in enumerate(zip(bases, shifts, grams, strict=True), start):
            n = float(gram[-1, -1]) if count is None else count
            sums = primal.Sums(shift, gram, Y.shape[1], n)
            equations = primal.normal_equations(sums, basis, penalty == 0)
            curve = primal.decompose(equations).gcv(candidates)
            gcv[k], C[k] = curve.min(), candidates[curve.argmin()]
    best = int(gcv.argmin())
    return GammaPath(gammas, gcv, C, float(gammas[best]), float(C[best]))


def _with_gamma(model: Any, gamma: float) -> Kernel:
    kernel = model._kernel()
    return Kernel(kernel.name, gamma=float(gamma), degree=kernel.degree, coef0=kernel.coef0)


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
class ReducedPath:
    """Reduced machines on one basis along a path of C.

    Attributes
    ----------
    C : ndarray of shape (n_C,)
        Regularisation, increasing.
    models : list of ReducedSVC or ReducedSVR
        The fitted estimator at every C.
    objective, gap : ndarray of shape (n_C,)
        Objective and relative duality gap.
    n_iter : ndarray of shape (n_C,)
        Newton steps from the solution before.
    score : ndarray of shape (n_C,) or None
        Accuracy (classification) or R^2 (regression) on the rows given for it.
    """

    C: Array
    models: list[Any]
    objective: Array
    gap: Array
    n_iter: NDArray[np.intp]
    score: Array | None


def reduced_path(
    estimator: ReducedMachine,
    X: Any,
    y: Any,
    C: Any,
    *,
    sample_weight: Any = None,
    X_score: Any = None,
    y_score: Any = None,
) -> ReducedPath:
    """Choose a basis once and solve for every C, each from the solution at the one before.

    Kernel values, and Hessians where the loss is piecewise quadratic, are shared by all of them.

    Parameters
    ----------
    estimator : ReducedSVC or ReducedSVR
        With a number (or a given basis) as ``n_basis``. It is cloned, not fitted. Selectors that
        need a ``C`` take the estimator's.
    X, y, sample_weight
        Training data.
    C : array-like of shape (n_C,)
        Values of C; solved in increasing order.
    X_score, y_score : array-like, optional
        Rows on which every model is scored.

    Returns
    -------
    ReducedPath
        One entry a value of C.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import ReducedSVC
    >>> from leansvm.model_selection import reduced_path
    >>> X, y = load_digits(return_X_y=True)
    >>> path = reduced_path(ReducedSVC(n_basis=50, random_state=0), X, y, [0.1, 1, 10])
    >>> len(path.models), bool(path.objective[0] < path.objective[-1])
    (3, True)
    """
    values = np.sort(np.asarray(C, dtype=np.float64).ravel())
    if not values.size or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(f"C must hold finite numbers > 0, got {C!r}.")
    models = clone(estimator)._fit_path(X, y, values, sample_weight)
    return ReducedPath(
        values,
        models,
        np.array([model.objective_ for model in models]),
        np.array([model.fit_report_["gap"] for model in models]),
        np.array([model.n_iter_ for model in models]),
        None if X_score is None else np.array([m.score(X_score, y_score) for m in models]),
    )
