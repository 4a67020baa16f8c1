"""The fit, the decision values and the description that LowRankLSSVC and LowRankLSSVR share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host
from leansvm.basis.choose import resolve_n_basis
from leansvm.blocks import (
    Block,
    MemoryBlocks,
    check_budget,
    declare,
    resolve_cache_size,
)
from leansvm.blocks._memory import tile_rows_for
from leansvm.estimators._base import (
    Array,
    KernelMachine,
    Phases,
    iteration_hook,
)
from leansvm.estimators._low_rank_fit import (
    ORDERED_ROWS,
    Learned,
    Learner,
    Start,
    TrainingRows,
    initial_centers,
    medoid_rows,
)
from leansvm.estimators._rows import count_positive
from leansvm.estimators._sparse_fit import PrimalSolution
from leansvm.functions import FUNCTIONS, BasisFunction, Simplex, get_function
from leansvm.functions._separable import SeparableFunction
from leansvm.linalg import dense64
from leansvm.solvers._feature_units import feature_units
from leansvm.solvers._learned import LearnedBasis

_TILE_VALUES = 2**17  # numbers of X in a tile: one megabyte, within a core's cache


def _is_simplex(machine: Any) -> bool:
    if not isinstance(get_function(machine.function), Simplex):
        raise AttributeError("only models of simplex functions are piecewise linear")
    return True


class LowRankMachine(KernelMachine):
    """Learn a handful of functions, and their weights in closed form."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: KernelMachine._parameter_constraints[name]
            for name in ("C", "fit_intercept", "bias_penalty", "max_iter", "cache_size")
        },
        "n_basis": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
        "function": [StrOptions(set(FUNCTIONS)), BasisFunction],
        "init": [StrOptions({"medoids", "random"}), "array-like"],
        "shape_init": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "anchor": [Interval(Real, 0, None, closed="left")],
        "iterate": [StrOptions({"best", "last"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    kernel: ClassVar[str] = "learned"  # no parameter: k(x, z) = sum_j phi_j(x) phi_j(z), eq. (13)

    _fits_where_rows_are = True
    objective: str = "loss"
    function_: BasisFunction
    centers_: Array
    shapes_: Array
    coef_: Array
    fit_report_: dict[str, Any]

    # ------------------------------------------------------------------ fit

    def _fit_low_rank(
        self,
        X: Any,
        y: Any,
        Y: Array,
        weight: Array,
        finish: Callable[[Any, Any], None],
        *,
        count: float | None = None,
        calibrate: bool = False,
    ) -> None:
        """Fit on all rows; ``finish`` gets the merged rows and left-out residuals (or None)."""
        self._forget("cv_curve_", "loo_residuals_", "calibration_scale_")
        if not isinstance(get_function(self.function), SeparableFunction):
            X, Y, weight = to_host((X, Y, weight))  # a user's own function knows NumPy
        candidates, criterion = self._candidates_of_C()
        by_loo = candidates is not None and criterion == "loo"
        rows = TrainingRows.of(X, Y, weight, leave_out=by_loo or calibrate)
        n_rows = count_positive(rows.weight)
        if candidates is not None and n_rows < 2:
            raise ValueError(
                f"C={self.C!r} needs two distinct rows of positive weight, got n_samples={n_rows}; "
                f"give C as a number."
            )
        keep_best = self.iterate == "best" and n_rows > 1
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        given = self._given_centers(X)
        n_basis = len(given) if given is not None else resolve_n_basis(self.n_basis, n_rows)
        n_bytes = self._reserve(X, Y, n_basis)
        blocks = rows.blocks(_tile_rows(X, 4 * (n_basis + Y.shape[1])))
        phases = Phases()
        with phases("scan"):
            units = feature_units(blocks)
        learner = Learner(
            blocks,
            get_function(self.function),
            units,
            self._bias_penalty(),
            float(self.C) if candidates is None else candidates,
            criterion,
            count,
            keep_best,
            self.max_iter,
            self.tol,
            self.n_iter_no_change,
            float(self.anchor),
            iteration_hook(self, context, "iteration"),
        )
        learned = self._learn(learner, phases, given, n_basis)
        with phases("solve"):
            solution = learner.solve(learned.path.basis, C=learner.C, loo=by_loo or calibrate)
        self._set_learned(learner, learned, solution)
        self._report(learner, learned, solution, phases, n_bytes)
        finish(rows.merged, rows.in_place(solution.loo))
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        if not learned.path.converged:
            warnings.warn(
                f"{type(self).__name__}: the functions still improve after {self.max_iter} "
                f"iterations. Increase max_iter, tol or anchor.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _given_centers(self, X: Any) -> Array | None:
        if isinstance(self.init, str):
            return None
        points = check_array(self.init, dtype=np.float64, input_name="init")
        if points.shape[1] != X.shape[1]:
            raise ValueError(f"init: points have {points.shape[1]} features, X has {X.shape[1]}.")
        return np.ascontiguousarray(points)

    def _reserve(self, X: Any, Y: Array, n_basis: int) -> int:
        """Refuse a fit that does not fit in the budget; return its bytes."""
        per_row = n_basis + 3 * Y.shape[1] + n_basis * (self.objective != "loss")
        needed = 8 * X.shape[0] * per_row
        if X.shape[0] <= ORDERED_ROWS:  # a copy of the rows
            needed += 2 * X.data.nbytes if sparse.issparse(X) else 8 * X.shape[0] * X.shape[1]
        if isinstance(self.init, str) and self.init == "medoids":  # distances and changes
            needed += 4 * 8 * min(X.shape[0], medoid_rows(n_basis)) ** 2
        check_budget(
            needed,
            resolve_cache_size(self.cache_size, X),
            f"{type(self).__name__} with {n_basis} functions on {X.shape[0]:,} rows",
            "Use fewer functions (n_basis), fewer rows, or a larger cache_size.",
        )
        return needed

    def _learn(
        self, learner: Learner, phases: Phases, given: Array | None, n_basis: int
    ) -> Learned:
        """Learn from every start; return the best."""
        rng = check_random_state(self.random_state)
        best: Learned | None = None
        for number in range(self.n_init if given is None else 1):
            with phases("start"):
                init = self.init if number == 0 else "random"
                centers = (
                    initial_centers(learner.blocks, init, n_basis, rng) if given is None else given
                )
                start = learner.start(centers, self.shape_init)
            with phases("learn"):
                learned = self._run(learner, start)
            if best is None or learned.score < best.score:
                best = learned
        assert best is not None
        return best

    def _run(self, learner: Learner, start: Start) -> Learned:
        return learner.by_projection(start)

    # ------------------------------------------------------------------ fitted attributes

    def _set_learned(self, learner: Learner, learned: Learned, solution: PrimalSolution) -> None:
        basis = learned.path.basis
        self.function_, self.centers_, self.shapes_ = basis.function, basis.centers, basis.shapes
        self.coef_ = np.ascontiguousarray(solution.alpha.T)
        self.intercept_ = solution.b
        self.C_ = solution.C
        self.objective_ = solution.objective
        self.n_iter_ = learned.path.n_iter
        if solution.curve is not None and not isinstance(self.C, Real):
            self.cv_curve_ = solution.curve

    def _report(
        self,
        learner: Learner,
        learned: Learned,
        solution: PrimalSolution,
        phases: Phases,
        n_bytes: int,
    ) -> None:
        path = learned.path
        curve = {"objective": path.objective, "loo": path.loo, "criterion": path.criterion}
        self.fit_report_ = {
            "solver": "variable-projection" if self.objective == "loss" else "steps",
            "objective": solution.objective,
            "residual": solution.residual,
            "iterations": path.n_iter,
            "best_iteration": path.best_iter,
            "converged": path.converged,
            "message": path.message,
            "curve": {name: np.array(values) for name, values in curve.items() if values},
            "rows": learner.blocks.n_rows,
            "basis": path.basis.size,
            "outputs": self.coef_.shape[0],
            "bytes": n_bytes,
            "seconds": phases.seconds,
        }

    # ------------------------------------------------------------------ values

    def _values(self, X: Any) -> Any:
        basis = LearnedBasis(self.function_, self.centers_, self.shapes_)
        blocks = MemoryBlocks(X, tile_rows=_tile_rows(X, 2 * len(self.centers_)))
        values = blocks.stack(_tile_values, basis, self.coef_.T) + like_rows(self.intercept_, X)
        return namespace(values).asarray(values, dtype=X.dtype)

    def _names(self, feature_names: Any) -> list[str]:
        names = feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{i}" for i in range(self.n_features_in_)]
        if len(names) != self.n_features_in_:
            raise ValueError(
                f"feature_names has {len(names)} names, the model has {self.n_features_in_} "
                f"features."
            )
        return [str(name) for name in names]

    def describe(self, feature_names: Any = None) -> str:
        """Write the model down: every function's weight, centre and width by feature.

        Parameters
        ----------
        feature_names : sequence of str, default=None
            Names; default: those seen in `fit`, else x0, x1, ...

        Returns
        -------
        str
            One block of lines a function, largest weight first. A width is how far the function
            reaches along the feature, in the feature's unit; features that hardly change the
            function (wider than a thousand times their usual reach) are left out.
        """
        check_is_fitted(self)
        names = self._names(feature_names)
        widths = self.function_.widths(self.shapes_)
        lines = [
            f"f(x) = {_numbers(self.intercept_)} + sum of {len(self.centers_)} "
            f"{type(self.function_).__name__} functions"
        ]
        for j in np.argsort(-np.abs(self.coef_).max(axis=0), kind="stable"):
            lines.append(f"{_numbers(self.coef_[:, j], sign=True)} x function {j}")
            shown = np.flatnonzero(widths[j] < 1e3 * widths[j].min())
            longest = max((len(names[i]) for i in shown), default=0)
            lines += [
                f"    {names[i]:<{longest}}  centre {self.centers_[j, i]:>10.4g}  "
                f"width {widths[j, i]:>10.4g}"
                for i in shown
            ]
        return "\n".join(lines)

    @available_if(_is_simplex)
    def local_linear_model(self, X: Any) -> tuple[Array, Array]:
        """Return the linear model that a simplex model is around every row; eq. (9) of fang2019.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        slopes : ndarray of shape (n_samples, n_features) or (n_samples, n_outputs, n_features)
            How f changes with each feature; zero contribution from a kink that x sits on.
        intercepts : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            f(x) = slopes @ x + intercept, and so for all points of the same piece.
        """
        check_is_fitted(self)
        X = to_host(dense64(self._validate_rows(X, reset=False)))
        inside = self.function_.values(X, self.centers_, self.shapes_) > 0
        # mu sign(c - x), rows x functions x features
        tilt = self.shapes_ * np.sign(self.centers_ - X[:, None, :])
        weights = self.coef_ * inside[:, None, :]  # rows x outputs x functions
        slopes = np.einsum("noj,nji->noi", weights, tilt)
        heights = 1.0 - np.einsum("nji,ji->nj", tilt, self.centers_)
        intercepts = np.einsum("noj,nj->no", weights, heights) + self.intercept_
        if self.coef_.shape[0] == 1:
            return slopes[:, 0], intercepts[:, 0]
        return slopes, intercepts


def _tile_rows(X: Any, columns: int) -> int:
    """Rows of a tile: few enough for the cache, enough to be worth a call, within the budget."""
    n_features = X.shape[1]
    within = tile_rows_for(8 * (3 * n_features + columns), X)
    if foreign_namespace(X) is not None:
        return within
    return min(max(1024, min(2**14, _TILE_VALUES // n_features)), within)


@declare("X")
def _tile_values(block: Block, basis: LearnedBasis, coef: Array) -> Any:
    values = basis.transform(block.X)
    return values @ like_rows(coef, values)


def _numbers(values: Array, *, sign: bool = False) -> str:
    texts = [f"{value:+.4g}" if sign else f"{value:.4g}" for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
