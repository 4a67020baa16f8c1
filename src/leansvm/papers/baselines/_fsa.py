"""FSA- and PFSA-LSSVM: a sparse dual LS-SVM, row by row (Jiao, Bo and Wang 2007)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from leansvm._phases import Phases
from leansvm.papers.baselines._base import DualBaseline, LabelledRows
from leansvm.papers.baselines._growing_dual import AllRows, GrowingDual, RowSearch, SomeRows
from leansvm.rows import check_budget, resolve_cache_size


class FSALSSVC(DualBaseline):
    """Least-squares SVM grown row by row on its dual: FSA-LSSVM and PFSA-LSSVM.

    Each step looks at all rows, or at a few random ones, adds the row with the largest error
    (relative to its diagonal entry), and solves the LS-SVM on the rows chosen so far. The other
    rows are never in the loss. A baseline: `SparseLSSVC` needs far fewer rows on noisy data.

    Parameters
    ----------
    C : float, default=1.0
        Regularisation: weight of the squared errors.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or callable, \
default="rbf"
        Kernel, or a vectorised function ``f(X, Z)``.
    n_basis : int or float, default=100
        Most rows to choose, or a fraction of the rows.
    n_candidates : int or None, default=None
        Rows looked at in a step: all (None, FSA) or this many random ones (PFSA; 146 contain
        one of the best 2.5 % with probability 0.975).
    tol : float, default=1e-3
        Stop when no row that was looked at has an absolute error above this.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel coefficient of "rbf", "poly", "sigmoid" and "laplacian".
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``.
    random_state : int, RandomState instance or None, default=None
        Draws the candidates; not used without ``n_candidates``.
    cache_size : float or "auto", default="auto"
        Megabytes that the columns of the chosen rows (without ``n_candidates``) may take; "auto"
        is 80 % of the memory that is available.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows chosen, in the order of choice.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        Their values; empty for ``kernel="precomputed"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients beta of the kernel functions.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias b.
    n_support_ : int
        Number of support vectors.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_, gamma_ : float
        Values used.
    kernel_, clip_
        As in `SparseLSSVC`.
    objective_ : float
        Objective of the LS-SVM on the chosen rows, summed over the classes: a lower bound of the
        objective on all rows.
    n_iter_ : int
        Steps.
    fit_report_ : dict
        Objective after each step ("objectives"), largest error seen last, rows, seconds.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    RandomReducedDualLSSVC : The same system on random rows.
    PrunedLSSVC : Goes the other way, from all rows to fewer.

    References
    ----------
    L. Jiao, L. Bo and L. Wang, "Fast sparse approximation for least squares support vector
    machine", IEEE Transactions on Neural Networks 18 (2007).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from leansvm.papers.baselines import FSALSSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = FSALSSVC(n_basis=100, n_candidates=146, random_state=0).fit(scale(X), y)
    >>> len(model.support_), bool(model.score(scale(X), y) > 0.9)
    (100, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DualBaseline._parameter_constraints,
        "n_candidates": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        C: float = 1.0,
        kernel: Any = "rbf",
        *,
        n_basis: Any = 100,
        n_candidates: int | None = None,
        tol: float = 1e-3,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        class_weight: Any = None,
        random_state: Any = None,
        cache_size: Any = "auto",
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.n_basis = n_basis
        self.n_candidates = n_candidates
        self.tol = tol
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.random_state = random_state
        self.cache_size = cache_size

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FSALSSVC:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; those of zero weight are never chosen.

        Returns
        -------
        FSALSSVC
            The fitted estimator.
        """
        data = self._read(X, y, sample_weight)
        count = self._count(int(np.count_nonzero(data.weight)))
        context = self._init_callback_context(max_subtasks=count)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        stopped = self._hook(context, "row")
        phases = Phases()
        model = GrowingDual(count, data.Y.shape[1])
        largest = np.inf
        with phases("select"), self._positive_definite():
            search = self._search(data, count)
            while model.size < count and (row := search.best(model)) is not None:
                largest = row.largest
                # rows of one class have beta = 0 and no errors among themselves
                if largest <= self.tol and len(np.unique(data.labels[model.rows])) > 1:
                    break
                model.append(row)
                if stopped():
                    break
        rows = np.array(model.rows, dtype=np.intp)
        self._set_model(data.X, rows, model.beta, model.b)
        self.n_iter_ = model.size
        self._set_report(
            "forward",
            data.X.shape[0],
            model.objectives[-1],
            phases,
            objectives=np.array(model.objectives),
            largest_error=largest,
        )
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self

    def _search(self, data: LabelledRows, count: int) -> RowSearch:
        X, terms = data.X, (data.Y, data.weight, data.kernel, self.C_)
        if self.n_candidates is not None:
            rng = check_random_state(self.random_state)
            return SomeRows(X, *terms, self.n_candidates, rng)
        check_budget(
            8 * X.shape[0] * count,
            resolve_cache_size(self.cache_size),
            f"The kernel matrix between {X.shape[0]:,} rows and {count:,} basis points",
            "Set n_candidates=146 (no columns are kept), or lower n_basis.",
        )
        return AllRows(X, *terms, count)
