"""The pruned LS-SVM (Suykens, Lukas and Vandewalle 2000).

Train on all rows, drop those with the smallest coefficients, train again on the rest, and so on
while the error stays acceptable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._phases import Phases
from leansvm.papers.baselines._base import (
    Array,
    DualBaseline,
    DualSolution,
    LabelledRows,
    Rows,
    solve_dual,
)
from leansvm.rows import MemoryBlocks, MergedRows, merge_equal_rows

_FEWEST = 5  # rows that always stay


@dataclass
class _Pruner:
    """The rounds: all distinct rows with their kernel matrix, and which of them are left."""

    K: Array
    Y: Array
    labels: NDArray[np.intp]
    weight: Array
    C: float
    index: str
    validation: Rows  # rows held out, for index="validation"

    def train(self, kept: Rows) -> DualSolution:
        """Solve the LS-SVM on these rows alone."""
        K = np.ascontiguousarray(self.K[np.ix_(kept, kept)])
        left_out = self.index == "loo"
        return solve_dual(K, self.Y[kept], self.weight[kept], self.C, left_out=left_out)

    def error(self, kept: Rows, solution: DualSolution) -> float:
        """Weighted part of the judging rows that are misclassified."""
        rows = self.validation if self.index == "validation" else slice(None)
        beta = np.zeros_like(self.Y)
        beta[kept] = solution.beta
        values = self.K[rows] @ beta + solution.b
        if solution.left_out is not None:  # rows that are left are judged by a model without them
            values[kept] = self.Y[kept] - solution.left_out
        one = values.shape[1] == 1
        winners = (values[:, 0] > 0).astype(np.intp) if one else values.argmax(axis=1)
        weight = self.weight[rows]
        return float(weight @ (winners != self.labels[rows]) / weight.sum())

    def without_smallest(self, kept: Rows, solution: DualSolution, count: int) -> Rows:
        """Drop the rows whose coefficients are smallest, for their weight."""
        spectrum = np.linalg.norm(solution.beta, axis=1) / self.weight[kept]
        order = np.argsort(spectrum, kind="stable")
        return kept[np.sort(order[count:])]


class PrunedLSSVC(DualBaseline):
    """Least-squares SVM on all rows that is pruned to fewer rows (Suykens).

    Trains on all rows, drops a share ``step`` of them, those with the smallest coefficients, and
    trains again on the others. It stops when the error grows too much (``trade_off``) and keeps the
    last model before that. Dropped rows are neither in the basis nor in the loss. Takes 16 m^2
    bytes and about 2.3 m^3 flops for ``step=0.05``. A baseline.

    Parameters
    ----------
    C : float, default=1.0
        Regularisation: weight of the squared errors.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or callable, \
default="rbf"
        Kernel, or a vectorised function ``f(X, Z)``.
    step : float, default=0.05
        Part of the remaining rows that a round drops (one at least).
    trade_off : float, default=0.75
        Pruning goes on while ``trade_off`` times the error is at most the error of the first model.
        With 1, the error must not grow.
    index : {"train", "loo", "validation"}, default="train"
        The error that is watched: of all training rows ("train"), of all training rows in the model
        without the row ("loo", exact leave-one-out), or of rows held out for it ("validation").
    validation_fraction : float, default=0.2
        Part of each class that ``index="validation"`` holds out.
    n_basis : int, float or None, default=None
        Fewest rows to keep, or a fraction of the rows; None prunes as far as ``index`` allows, but
        keeps at least 5 rows.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel coefficient of "rbf", "poly", "sigmoid" and "laplacian".
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Independent term of "poly" and "sigmoid".
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``.
    random_state : int, RandomState instance or None, default=None
        Draws the rows that ``index="validation"`` holds out.
    cache_size : float or "auto", default="auto"
        Megabytes that kernel values and factors may take; "auto" is 80 % of the memory that is
        available.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows that are left, in order; with a row its exact copies.
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
        Objective of the LS-SVM on the rows that are left, summed over the classes.
    n_iter_ : int
        Models trained.
    fit_report_ : dict
        Size and error of every model trained ("sizes", "errors"; the last may be one that the
        index refused), residual, rows, bytes, seconds by phase.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

    See Also
    --------
    FSALSSVC : Grows from no rows.
    leansvm.LSSVC : The first model.

    References
    ----------
    J. A. K. Suykens, L. Lukas and J. Vandewalle, "Sparse approximation using least squares
    support vector machines", ISCAS 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from leansvm.papers.baselines import PrunedLSSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrunedLSSVC().fit(scale(X), y)
    >>> bool(len(model.support_) < len(X) / 4), bool(model.score(scale(X), y) > 0.97)
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DualBaseline._parameter_constraints,
        "n_basis": [*DualBaseline._parameter_constraints["n_basis"], None],
        "step": [Interval(Real, 0, 1, closed="neither")],
        "trade_off": [Interval(Real, 0, None, closed="neither")],
        "index": [StrOptions({"train", "loo", "validation"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        C: float = 1.0,
        kernel: Any = "rbf",
        *,
        step: float = 0.05,
        trade_off: float = 0.75,
        index: str = "train",
        validation_fraction: float = 0.2,
        n_basis: Any = None,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        class_weight: Any = None,
        random_state: Any = None,
        cache_size: Any = "auto",
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.step = step
        self.trade_off = trade_off
        self.index = index
        self.validation_fraction = validation_fraction
        self.n_basis = n_basis
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.random_state = random_state
        self.cache_size = cache_size

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PrunedLSSVC:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the (n_samples, n_samples) kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of k counts like k copies of the row.

        Returns
        -------
        PrunedLSSVC
            The fitted estimator.
        """
        data = self._read(X, y, sample_weight)
        rows = merge_equal_rows(MemoryBlocks(data.X, data.Y, data.weight))
        first = rows.first
        fewest = min(_FEWEST, len(first)) if self.n_basis is None else self._count(len(first))
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        phases = Phases()
        with phases("gram"):
            K, n_bytes = self._kernel_matrix(data, first, matrices=2)  # and one factor
        labels = data.labels[first]
        held_out = self._held_out(labels)
        pruner = _Pruner(K, data.Y[first], labels, rows.weight, self.C_, self.index, held_out)
        with phases("solve"), self._positive_definite():
            kept, solution, sizes, errors = self._prune(
                pruner, fewest, self._hook(context, "model")
            )
        self._take_over(data, rows, kept, solution)
        self.n_iter_ = len(sizes)
        self._set_report(
            "cholesky",
            len(first),
            0.5 * float(np.sum(solution.beta * pruner.Y[kept])),
            phases,
            residual=solution.residual,
            sizes=sizes,
            errors=errors,
            bytes=n_bytes,
        )
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self

    def _held_out(self, labels: NDArray[np.intp]) -> Rows:
        """Draw the validation rows, the same part of every class."""
        if self.index != "validation":
            return np.empty(0, dtype=np.intp)
        rng = check_random_state(self.random_state)
        parts = []
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            parts.append(members[: int(self.validation_fraction * len(members))])
        held_out = np.sort(np.concatenate(parts))
        if len(held_out) == 0:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} holds out no row of "
                f"{len(labels)}: increase it, or use index='loo'."
            )
        return held_out

    def _prune(
        self, pruner: _Pruner, fewest: int, stopped: Callable[[], bool]
    ) -> tuple[Rows, DualSolution, list[int], list[float]]:
        """Return the last good rows with their model, and all sizes and errors."""
        kept = np.setdiff1d(np.arange(len(pruner.Y)), pruner.validation)
        solution = pruner.train(kept)
        sizes, errors = [len(kept)], [pruner.error(kept, solution)]
        while not stopped():
            count = min(max(1, int(self.step * len(kept))), len(kept) - fewest)
            if count <= 0:
                break
            fewer = pruner.without_smallest(kept, solution, count)
            pruned = pruner.train(fewer)
            sizes.append(len(fewer))
            errors.append(pruner.error(fewer, pruned))
            if self.trade_off * errors[-1] > errors[0] + 1e-12:
                break
            kept, solution = fewer, pruned
        return kept, solution, sizes, errors

    def _take_over(
        self, data: LabelledRows, rows: MergedRows, kept: Rows, solution: DualSolution
    ) -> None:
        """Copies of a row share its coefficient in proportion to their weights."""
        place = np.full(len(rows.first) + 1, -1)  # the last one for rows of zero weight
        place[kept] = np.arange(len(kept))
        mine = place[rows.group]
        support = np.flatnonzero(mine >= 0)
        share = data.weight[support] / rows.weight[rows.group[support]]
        beta = solution.beta[mine[support]] * share[:, None]
        self._set_model(data.X, support, beta, solution.b)
