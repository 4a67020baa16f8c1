"""KernelBasis: the whitened features Phi = k(X, B) L^-T of any basis, as a transformer."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import foreign_namespace, namespace, to_host
from leansvm.basis import BasisSelector, Fit
from leansvm.basis.choose import resolve_basis, resolve_n_basis
from leansvm.blocks import Block, MemoryBlocks, declare, resolve_cache_size
from leansvm.estimators._base import Array, KernelMachine
from leansvm.estimators._dual import check_kernel_matrix
from leansvm.estimators._sparse_fit import Chooser
from leansvm.estimators._sparse_machine import SparseMachine
from leansvm.solvers import primal
from leansvm.solvers.refit import refit


class KernelBasis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):
    """Map rows to features whose inner products are the kernel on a small basis.

    Like `sklearn.kernel_approximation.Nystroem` with any way to choose the basis: inner products
    of the features are the kernel's Nystrom approximation K_MB K_BB^-1 K_BM. A linear model on
    them is a kernel machine on the basis.

    Parameters
    ----------
    n_basis : int or float in (0, 1), default=100
        Number of basis points, or their share of the rows.
    kernel, gamma, degree, coef0
        As in `SparseLSSVC`.
    basis : str, selector, 1-D integer array or 2-D array, default="random-pivoted-cholesky"
        As in `SparseLSSVC`; selectors that look at the targets need ``y`` in `fit`.
    C : float, default=1.0
        For selectors that look at the targets alone.
    select_on, cache_size, random_state
        As in `SparseLSSVC`.

    Attributes
    ----------
    support_ : ndarray of shape (n_components,)
        Rows chosen, -1 where points were given.
    support_vectors_ : ndarray or CSR matrix of shape (n_components, n_features)
        Basis points.
    normalization_ : ndarray of shape (n_components, n_components)
        L^-T, so that ``transform(X) = kernel(X, support_vectors_) @ normalization_``.
    gamma_ : float
        Value used.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from leansvm import KernelBasis
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(KernelBasis(60, random_state=0), LogisticRegression(C=100))
    >>> bool(model.fit(X, y).score(X, y) > 0.95)
    True
    """

    _fits_where_rows_are = True

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: rule
            for name, rule in SparseMachine._parameter_constraints.items()
            if name not in ("fit_intercept", "bias_penalty")
        },
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_basis": SparseMachine._parameter_constraints["n_basis"][:2],
    }

    def __init__(
        self,
        n_basis: Any = 100,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        basis: Any = "random-pivoted-cholesky",
        C: float = 1.0,
        select_on: Any = "auto",
        cache_size: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_basis = n_basis
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.basis = basis
        self.C = C
        self.select_on = select_on
        self.cache_size = cache_size
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> KernelBasis:
        """Choose the basis.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Targets, for selectors that look at them.

        Returns
        -------
        KernelBasis
            The fitted transformer.
        """
        X = self._validate_rows(X, reset=True)
        if self.kernel == "precomputed":
            check_kernel_matrix(X)
        selector = resolve_basis(self.basis, X.shape[1], X.shape[0], self.kernel == "precomputed")
        Y, fit, size = None, None, len(selector) if not isinstance(selector, BasisSelector) else 0
        if isinstance(selector, BasisSelector):
            size = resolve_n_basis(self.n_basis, X.shape[0])
            if selector.uses_targets:
                Y, fit = _targets(X, y, type(selector).__name__), Fit(float(self.C), refit=refit)
        blocks = MemoryBlocks(X, Y, columns=3 * size)
        kernel = self._resolve_kernel(blocks)
        budget = resolve_cache_size(self.cache_size, X)
        chooser = Chooser(kernel, self.select_on, budget, self.random_state, fit)
        chosen = chooser(blocks, selector, size)
        basis = chosen.whitened(kernel, np.inf)
        basis.in_state = False
        self.support_ = chosen.support(basis)
        pairwise = self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0), X.dtype) if pairwise else basis.points
        self.normalization_ = primal.inverse_transpose(basis.L)
        self._basis = basis
        return self

    def transform(self, X: Any) -> Any:
        """Evaluate the features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows; for ``kernel="precomputed"`` of shape (n_samples, n_samples_fit).

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Whitened features, in the type of X.
        """
        check_is_fitted(self)
        X = self._validate_rows(X, reset=False)
        blocks = MemoryBlocks(X, columns=2 * self._basis.size)
        if foreign_namespace(X) is not None:
            return namespace(X).asarray(blocks.stack(_features, self._basis), dtype=X.dtype)
        features = blocks.concatenate(_features, self._basis)
        return features.astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return self._basis.size


@declare("X")
def _features(block: Block, basis: primal.WhitenedBasis) -> Any:
    return basis.transform(block.X)


def _targets(X: Any, y: Any, selector: str) -> Array:
    """Return classes as +-1 columns, numbers as they are."""
    if y is None:
        raise ValueError(f"basis: {selector} looks at the targets; pass y to fit.")
    y = check_array(to_host(y), ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(X, y)
    if type_of_target(y) in ("binary", "multiclass"):
        classes, labels = np.unique(y, return_inverse=True)
        Y = np.where(labels[:, None] == np.arange(len(classes)), 1.0, -1.0)
        return Y[:, 1:] if len(classes) == 2 else Y
    return y.astype(np.float64).reshape(len(y), -1)
