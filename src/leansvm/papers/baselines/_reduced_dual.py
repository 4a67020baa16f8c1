"""RRD-LSSVM: the dual LS-SVM on rows drawn at random (zhou2016, eq. (13))."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state

from leansvm._phases import Phases
from leansvm.papers.baselines._base import DualBaseline, solve_dual


class RandomReducedDualLSSVC(DualBaseline):
    """Least-squares SVM trained on a few random rows: the random reduced dual (RRD-LSSVM).

    The other rows are neither in the basis nor in the loss. This is a baseline for `SparseLSSVC`
    with a random basis, which fits all rows with the same number of basis functions.

    Parameters
    ----------
    C : float, default=1.0
        Regularisation: weight of the squared errors.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or callable, \
default="rbf"
        Kernel, or a vectorised function ``f(X, Z)``.
    n_basis : int or float, default=100
        Number of rows to draw, or a fraction of the rows.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel coefficient of "rbf", "poly", "sigmoid" and "laplacian".
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``.
    random_state : int, RandomState instance or None, default=None
        Draws the rows.
    cache_size : float or "auto", default="auto"
        Megabytes that the kernel matrix of the drawn rows may take; "auto" is 80 % of the memory
        that is available.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows drawn, in the order of drawing.
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
        Objective of the LS-SVM on the drawn rows, summed over the classes: a lower bound of the
        objective on all rows.
    n_iter_ : int
        1: the solver is direct.
    fit_report_ : dict
        Objective, residual, rows, bytes, seconds by phase.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    FSALSSVC : The same system on rows chosen greedily.
    leansvm.LSSVC : The system on all rows.

    References
    ----------
    S. Zhou, "Sparse LSSVM in primal using Cholesky factorization for large-scale problems",
    IEEE Transactions on Neural Networks and Learning Systems 27 (2016).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from leansvm.papers.baselines import RandomReducedDualLSSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = RandomReducedDualLSSVC(n_basis=50, random_state=0).fit(scale(X), y)
    >>> model.support_vectors_.shape, bool(model.score(scale(X), y) > 0.9)
    ((50, 30), True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = DualBaseline._parameter_constraints

    def __init__(
        self,
        C: float = 1.0,
        kernel: Any = "rbf",
        *,
        n_basis: Any = 100,
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
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.random_state = random_state
        self.cache_size = cache_size

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RandomReducedDualLSSVC:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; those of zero weight are never drawn.

        Returns
        -------
        RandomReducedDualLSSVC
            The fitted estimator.
        """
        data = self._read(X, y, sample_weight)
        usable = np.flatnonzero(data.weight > 0)
        count = self._count(len(usable))
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        phases = Phases()
        rows = check_random_state(self.random_state).permutation(usable)[:count]
        with phases("gram"):
            K, n_bytes = self._kernel_matrix(data, rows, matrices=1)
        with phases("solve"), self._positive_definite():
            solution = solve_dual(K, data.Y[rows], data.weight[rows], self.C_)
        self._set_model(data.X, rows, solution.beta, solution.b)
        self.n_iter_ = 1
        # at the optimum the objective is half the inner product of coefficients and targets
        objective = 0.5 * float(np.sum(solution.beta * data.Y[rows]))
        self._set_report(
            "cholesky",
            data.X.shape[0],
            objective,
            phases,
            residual=solution.residual,
            bytes=n_bytes,
        )
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self
