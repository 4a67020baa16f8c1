"""SparseLSSVC and SparseLSSVR: the least-squares SVM on a small basis (P-LSSVM)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from leansvm.estimators.answers import PredictsIntervals, PredictsSets
from leansvm.estimators.kernel_machine import SparseMachine
from leansvm.estimators.machine import stored
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.kernels import Mixture
from leansvm.ridge.criteria import LOO_LOSSES

Array = NDArray[np.float64]


class SparseLSSVC(PredictsSets, Classifier, SparseMachine):
    """Least-squares support vector classifier on a small basis.

    The default estimator for classification. The model is a sum of kernel functions at a few
    training rows, the basis points; all rows count in the loss. By default, a fit learns the kernel
    with a scale for every feature, and chooses ``C`` and the number of basis points by
    leave-one-out. The whole kernel matrix is stored only if nearly all rows become points.

    Parameters
    ----------
    criterion : {"squared", "accuracy", "log_loss"}, default="squared"
        Leave-one-out error that chooses C. The kernel and the number of basis points are always
        chosen by the squared error.

    Attributes
    ----------
    class_map_ : ndarray of shape (n_classes + 1, n_classes)
        Matrix B by which a learned mixture with probabilities combines the functions of three
        classes or more: decision values are [f, 1] B. ``dual_coef_`` and ``intercept_`` contain it;
        ``objective_`` and ``cv_curve_`` are those of f; ``loo_residuals_`` take B as fixed.

    See Also
    --------
    LSSVC : The model with all rows as basis.
    leansvm.basis : The selectors.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import SparseLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SparseLSSVC(n_basis=100, random_state=0).fit(X, y)
    >>> model.support_vectors_.shape
    (100, 64)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"criterion": [StrOptions(set(LOO_LOSSES))]}
    class_map_: Array

    @property
    def _maps_classes(self) -> bool:  # type: ignore[override]
        """Whether the kernel is a mixture, learned now or before; others keep the paper's model."""
        mixed = self.kernel == "auto" and self._learns_scales
        return mixed or isinstance(self.kernel, Mixture)

    @stored
    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "auto",
        *,
        gamma: Any = "learn",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        basis: Any = "random",
        n_basis: float | str = "auto",
        select_on: float | str = "auto",
        criterion: str = "squared",
        class_weight: dict[Any, float] | str | None = None,
        calibrate: bool = True,
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        keep_state: bool | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> SparseLSSVC:
        """Add a batch of rows to the model.

        Basis points and gamma come from the first batch, or from an earlier `fit`. The result
        equals `fit` on all rows with that basis. Memory does not grow with the number of rows.
        Probabilities are calibrated on the leave-one-out values of the last 100,000 rows (for
        large batches, of a sample of their rows).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of this batch.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will occur; needed in the first call unless the batch has all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        SparseLSSVC
            The estimator.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "partial_fit: class_weight='balanced' needs all rows. Give the weights as a "
                "dictionary."
            )
        classes = self._same_classes(classes) if "_sums" in vars(self) else classes
        return self._add_batch(X, y, sample_weight, classes)


class SparseLSSVR(PredictsIntervals, Regressor, SparseMachine):
    """Least-squares support vector regressor on a small basis.

    The default estimator for regression. The model is a sum of kernel functions at a few training
    rows, the basis points; all rows count in the loss. By default, a fit learns the kernel with a
    scale for every feature, and chooses ``C`` and the number of basis points by leave-one-out.

    See Also
    --------
    SparseLSSVC : The same for classification.
    LSSVR : The model with all rows as basis.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> X = np.linspace(0, 6, 400)[:, None]
    >>> model = SparseLSSVR(n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    @stored
    def __init__(
        self,
        C: Any = "loo",
        kernel: Any = "auto",
        *,
        gamma: Any = "learn",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        basis: Any = "random",
        n_basis: float | str = "auto",
        select_on: float | str = "auto",
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        keep_state: bool | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None: ...

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseLSSVR:
        """Add a batch of rows to the model.

        Basis points and gamma come from the first batch, or from an earlier `fit`. The result
        equals `fit` on all rows with that basis. Memory does not grow with the number of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of this batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        SparseLSSVR
            The estimator.
        """
        return self._add_batch(X, y, sample_weight)
