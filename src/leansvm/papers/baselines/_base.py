"""What the baselines share: an LS-SVM in its dual whose coefficients are zero off a few rows.

With beta zero off B, the dual's solution is that of the LS-SVM on the rows B alone (zhou2016,
eq. (13)):  (K_BB + diag(1 / (C s))) beta + b = y_B,  1'beta = 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.utils import Tags, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from leansvm import LSSVC
from leansvm._phases import Phases
from leansvm.kernels import Kernel, resolve_gamma
from leansvm.linalg import (
    canonical_csr,
    cholesky_in_place,
    cholesky_solve,
    inverse_diagonal,
    symmetric_matmul,
)
from leansvm.rows import MemoryBlocks, check_budget, one_vs_rest, resolve_cache_size

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_TILE = 256  # rows of a kernel matrix that are looked at together
_SHARED = ("kernel", "gamma", "degree", "coef0", "cache_size")


@dataclass(frozen=True)
class LabelledRows:
    """The input of `fit`, checked."""

    X: Any
    labels: NDArray[np.intp]  # class numbers
    Y: Array  # targets +-1, one column per class (two classes: one column)
    weight: Array  # of the rows times that of their class
    kernel: Kernel


class DualBaseline(LSSVC):
    """Parameters, input checks and fitted attributes of the baselines; predicts as `LSSVC`."""

    _documented_in = "leansvm.papers.baselines"

    _shared_sections = ("Parameters",)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = False  # rows of numbers alone
        tags.input_tags.string = False
        return tags

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{name: LSSVC._parameter_constraints[name] for name in _SHARED},
        "C": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "n_basis": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
    }

    def _read(self, X: Any, y: Any, sample_weight: Any) -> LabelledRows:
        """Check the input, encode the labels and find gamma."""
        pairwise = self.kernel == "precomputed"
        with config_context(array_api_dispatch=False):
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse=False if pairwise else "csr",
                dtype=[np.float64, np.float32],
                order="C",
            )
        X = canonical_csr(X) if sparse.issparse(X) else X
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {n_classes} class."
            )
        weight = self._weights(X, labels, sample_weight)
        if pairwise:
            _check_square(X)
        self.C_ = float(self.C)
        self.kernel_, self.clip_ = self.kernel, None
        variance = MemoryBlocks(X, weight=weight).variance
        self.gamma_ = resolve_gamma(self.gamma, self.kernel, X.shape[1], variance)
        kernel = Kernel(self.kernel, gamma=self.gamma_, degree=self.degree, coef0=self.coef0)
        return LabelledRows(X, labels, one_vs_rest(labels, n_classes), weight, kernel)

    def _weights(self, X: Any, labels: NDArray[np.intp], sample_weight: Any) -> Array:
        """Return the weights of the rows times those of their classes."""
        weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
        )
        by_class = np.bincount(labels, weights=weight)
        if self.class_weight == "balanced":
            present = by_class > 0
            factor = np.zeros(len(by_class))
            factor[present] = by_class.sum() / (present.sum() * by_class[present])
        else:
            factor = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if np.count_nonzero(by_class * factor) < 2:
            raise ValueError("At least two classes must have rows of positive weight.")
        return np.asarray(weight * factor[labels], dtype=np.float64)

    def _count(self, n_rows: int) -> int:
        """Return the number of rows that ``n_basis`` asks for."""
        if not isinstance(self.n_basis, Integral):
            return max(1, int(np.ceil(float(self.n_basis) * n_rows)))
        if int(self.n_basis) > n_rows:
            warnings.warn(
                f"n_basis={self.n_basis} is more than the {n_rows} rows of positive weight; "
                f"using all of them.",
                UserWarning,
                stacklevel=4,
            )
        return min(int(self.n_basis), n_rows)

    def _kernel_matrix(self, data: LabelledRows, rows: Rows, matrices: int) -> tuple[Array, int]:
        """Return K between these rows; check that some matrices of its size fit into memory."""
        m = len(rows)
        n_bytes = matrices * 8 * m * m
        check_budget(
            n_bytes,
            resolve_cache_size(self.cache_size),
            f"The kernel matrix of {m:,} rows",
            "Use SparseLSSVC (a small basis, no m x m matrix), fewer rows, or a larger cache_size.",
        )
        if data.kernel.precomputed:
            return np.ascontiguousarray(data.X[np.ix_(rows, rows)], dtype=np.float64), n_bytes
        part = data.X[rows]
        K = np.ascontiguousarray(data.kernel.block(part, part, dtype=np.float64))
        if callable(self.kernel):
            _check_symmetric(K, "the callable kernel")
        return K, n_bytes

    @contextmanager
    def _positive_definite(self) -> Iterator[None]:
        """Name the parameters when a system has no Cholesky factor."""
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"kernel={self.kernel!r}: the kernel matrix plus 1/C on its diagonal is not "
                f"positive definite ({error}). Use a positive semidefinite kernel or a smaller C."
            ) from None

    def _set_model(self, X: Any, support: Rows, beta: Array, b: Array) -> None:
        """Set the fitted attributes that predictions use; ``beta`` is rows x outputs."""
        self.support_ = support
        self.dual_coef_ = np.ascontiguousarray(beta.T)
        self.intercept_ = np.asarray(b)
        pairwise = self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0), X.dtype) if pairwise else X[support]
        self.n_support_ = len(support)

    def _set_report(
        self, solver: str, n_rows: int, objective: float, phases: Phases, **others: Any
    ) -> None:
        self.objective_ = objective
        self.fit_report_ = {
            "solver": solver,
            "objective": objective,
            "iterations": self.n_iter_,
            "converged": True,
            "rows": n_rows,
            "basis": len(self.support_),
            "outputs": len(self.intercept_),
            **others,
            "seconds": phases.seconds,
        }

    def _hook(self, context: Any, name: str) -> Callable[[], bool]:
        """Return a function that tells callbacks of a step; True when one of them asks to stop."""
        if not getattr(self, "_skl_callbacks", None):
            return lambda: False

        def hook() -> bool:
            task = context.subcontext(task_name=name)
            task.call_on_fit_task_begin(estimator=self)
            return bool(task.call_on_fit_task_end(estimator=self))

        return hook


def _check_square(K: NDArray[Any]) -> None:
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"kernel='precomputed': fit needs a square kernel matrix between the training rows, "
            f"got shape {K.shape}."
        )
    _check_symmetric(K, "kernel='precomputed': the kernel matrix")


def _check_symmetric(K: NDArray[Any], what: str) -> None:
    """Refuse a kernel matrix that is not symmetric beyond rounding."""
    largest = float(np.abs(K.diagonal()).max(initial=0.0))
    for start in range(0, len(K), _TILE):
        rows = slice(start, start + _TILE)
        worst = float(np.abs(K[rows] - K[:, rows].T).max(initial=0.0))
        if worst > 1e-6 * max(largest, float(np.abs(K[rows]).max(initial=0.0))):
            raise ValueError(
                f"{what} is not symmetric: entries (i, j) and (j, i) differ by {worst:.2g}."
            )


# ---------------------------------------------------------------------------- the system


@dataclass(frozen=True)
class DualSolution:
    """Coefficients of the rows, the bias, and the largest error of the equations."""

    beta: Array  # rows x outputs
    b: Array  # outputs
    residual: float  # relative to the targets
    left_out: Array | None  # y - f of the model without the row, rows x outputs


def solve_dual(
    K: Array, Y: Array, weight: Array, C: float, *, left_out: bool = False
) -> DualSolution:
    """Solve (K + diag(1 / (C s))) beta + b = Y, 1'beta = 0; ``K`` is overwritten.

    With G = K + diag(1 / (C s)), u = G^-1 1 and V = G^-1 Y:  b = 1'V / 1'u,  beta = V - u b. The
    residual of a row that is left out is beta_i / T_ii with T = G^-1 - uu' / 1'u.
    """
    diagonal = K.diagonal() + 1.0 / (C * weight)
    K.flat[:: len(K) + 1] = diagonal
    factor = cholesky_in_place(K)  # in the lower triangle; the upper one still has K
    u = cholesky_solve(factor, np.ones((len(Y), 1)))
    beta, b, error = np.zeros_like(Y), np.zeros((1, Y.shape[1])), Y
    for _ in range(2):  # the second round is one step of refinement
        V = cholesky_solve(factor, error)
        db = (V + beta).sum(axis=0, keepdims=True) / u.sum()
        beta, b = beta + V - u * db, b + db
        error = Y - symmetric_matmul(factor, diagonal, beta) - b
    residuals = None
    if left_out:
        residuals = beta / (inverse_diagonal(factor)[:, None] - u**2 / u.sum())
    residual = float(np.abs(error).max() / np.abs(Y).max())
    return DualSolution(beta, b[0], residual, residuals)
