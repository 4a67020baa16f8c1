"""KernelBasis: the whitened features Phi = k(X, B) L^-T of any basis, as a transformer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import namespace, to_host
from leansvm.basis import BasisSelector, Fit
from leansvm.basis.choose import resolve_basis
from leansvm.basis.features import inverse_transpose, transform_rows, whiten
from leansvm.dual.problem import check_kernel_matrix
from leansvm.estimators.kernel_machine import BasisData, BasisMachine
from leansvm.estimators.machine import COUNT, POSITIVE, SHARE, running, stored
from leansvm.estimators.publish import publish_kernel
from leansvm.estimators.read import validate
from leansvm.estimators.targets import any_targets
from leansvm.newton.refit import refit
from leansvm.rows import MemoryBlocks, check_points, resolve_cache_size, tiles_within
from leansvm.tables.fitting import TableRows, encoded

_MATRICES = 4  # of the size of the basis in memory at once: K_BB, its factor, the inverse, ...


class KernelBasis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BasisMachine):
    """Map rows to features whose inner products are the kernel on a small basis.

    Like `sklearn.kernel_approximation.Nystroem`, but with any way to choose the basis points. Inner
    products of the features are the kernel's Nystrom approximation K_MB K_BB^-1 K_BM. A linear
    model on them is a kernel machine on the basis.

    Parameters
    ----------
    n_basis : int or float in (0, 1), default=100
        Number of basis points, or their share of the rows.
    basis : str, selector, 1-D integer array or 2-D array, default="random-pivoted-cholesky"
        As in `SparseLSSVC`; selectors that look at the targets need ``y`` in `fit`.
    C : float, default=1.0
        Only for selectors that look at the targets.

    Attributes
    ----------
    support_ : ndarray of shape (n_components,)
        Row numbers of the basis points; -1 for points that you gave.
    support_vectors_ : ndarray or CSR matrix of shape (n_components, n_features)
        Basis points.
    normalization_ : ndarray of shape (n_components, n_components)
        L^-T, so that ``transform(X) = kernel(X, support_vectors_) @ normalization_``.
    gamma_ : float
        Value used.
    kernel_, clip_
        As in `SparseLSSVC`.
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

    _fits_sources = False
    _shared_sections = ("Parameters",)
    _scales_suit_C = False  # only selectors use C
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [POSITIVE],
        "n_basis": [COUNT, SHARE],
    }

    @stored
    def __init__(
        self,
        n_basis: float = 100,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        basis: Any = "random-pivoted-cholesky",
        C: float = 1.0,
        select_on: float | str = "auto",
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None: ...

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
        with running(self, X, y) as run:
            X = validate(self, X, reset=True)
            self.__dict__.pop("table_", None)
            Y = None if y is None else any_targets(X, y)
            if isinstance(X, TableRows):
                X = encoded(self, X, Y, None)
            pairwise = self.kernel == "precomputed"
            if pairwise:
                check_kernel_matrix(X)
            selector, size, _ = resolve_basis(self.basis, self.n_basis, X.shape, pairwise)
            looks = isinstance(selector, BasisSelector) and selector.uses_targets
            if y is None and (looks or self._learns_scales):
                what = f"basis: {type(selector).__name__}" if looks else "gamma='learn'"
                raise ValueError(f"{what} needs the targets: pass y to fit.")
            Y = Y if looks or self._learns_scales else None
            budget = resolve_cache_size(self.cache_size, X)
            check_points(size, budget, _MATRICES)
            data = BasisData(
                X,
                Y,
                None,
                0 if Y is None else Y.shape[1],
                X.shape[0],
                attributes={"table_": vars(self).get("table_")},
                rows=MemoryBlocks(X, Y, columns=3 * size),
                selector=selector,
                size=size,
                auto=False,
                budget=budget,
            )
            fitted = self._learn_kernel(data, run)
            fit = Fit(float(self.C), refit=refit) if looks else None
            basis = self._chooser(data, fitted.kernel, run, fit=fit)(size)
            features = whiten(fitted.kernel, basis.rows, basis.points(fitted.kernel), basis.L)
            features, kept = replace(features, L=to_host(features.L)), features.kept
            publish_kernel(self, fitted)
            chosen = basis.indices
            self.support_ = np.full(features.size, -1) if chosen is None else chosen[kept]
            self.support_vectors_ = np.empty((0, 0), X.dtype) if pairwise else features.points
            self.normalization_ = inverse_transpose(features.L)
            self._features = features
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
        X = validate(self, X, reset=False)
        with tiles_within(self.cache_size):
            values = transform_rows(self._features, X)
        return namespace(values).asarray(values, dtype=X.dtype)

    @property
    def _n_features_out(self) -> int:
        return self._features.size
