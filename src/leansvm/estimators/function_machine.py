"""Machines of learned functions: where they start, how many there are, and what is published."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm.basis.choose import resolve_n_basis
from leansvm.estimators.machine import Machine, Run
from leansvm.estimators.read import validate
from leansvm.estimators.training_data import TrainingData
from leansvm.linalg import dense64
from leansvm.low_rank import (
    FUNCTIONS,
    BasisFunction,
    ReadableModel,
    SeparableFunction,
    Simplex,
    get_function,
)
from leansvm.low_rank.closed_form import Ascent, LowRankProblem
from leansvm.low_rank.features import LearnedFeatures
from leansvm.low_rank.problem import (
    ORDERED_ROWS,
    learn_functions,
    reserve,
    sizes_to_try,
    tile_rows,
)
from leansvm.low_rank.start import given_centers
from leansvm.rows import resolve_cache_size, total_weight
from leansvm.solution import Solution

Array = NDArray[np.float64]


def _is_simplex(machine: Any) -> bool:
    if not isinstance(get_function(machine.function), Simplex):
        raise AttributeError("only models of simplex functions are piecewise linear")
    return True


class FunctionPlan(NamedTuple):
    """Where functions start, and how many there may be."""

    given: Array | None  # centres
    init: str
    sizes: list[int]
    n_bytes: int
    ascent: Ascent | None


class LowRankMachine(ReadableModel, Machine):
    """Learn a handful of functions, and their weights in closed form."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Machine._parameter_constraints,
        "n_basis": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
        "function": [StrOptions(set(FUNCTIONS)), BasisFunction],
        "init": [StrOptions({"auto", "medoids", "random"}), "array-like"],
        "shape_init": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "anchor": [Interval(Real, 0, None, closed="left")],
        "iterate": [StrOptions({"best", "last"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    function_: BasisFunction
    centers_: Array
    shapes_: Array
    coef_: Array

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _fits_where_rows_are(self) -> bool:  # type: ignore[override]
        return isinstance(get_function(self.function), SeparableFunction)  # others know NumPy

    def _counted(self, data: TrainingData, run: Run) -> TrainingData:
        criterion = run.criterion
        if data.X.shape[0] <= ORDERED_ROWS:
            data = data.distinct()
        elif criterion.left_out:
            data = data.leave_out(0)
        if (np.ndim(criterion.C) or criterion.left_out) and data.n_positive < 2:
            self._refuse_one_row(data)
        return data

    def _grow(self, data: TrainingData, kernel: None, run: Run) -> FunctionPlan:
        """Decide where the functions start and how many there may be."""
        given = None if isinstance(self.init, str) else given_centers(self.init, data.X.shape[1])
        if given is not None:
            sizes = [len(given)]
        elif self.n_basis == "auto":
            sizes = sizes_to_try(data.n_positive, data.n_outputs)
        else:
            sizes = [resolve_n_basis(self.n_basis, data.n_positive)]
        init, ascent = "given" if given is not None else self.init, self._ascent()
        if ascent is not None and init == "auto":
            init = "medoids"
        sizes, n_bytes = reserve(
            type(self).__name__,
            data.X,
            data.n_outputs,
            sizes,
            init,
            1 + (ascent is not None),
            resolve_cache_size(self.cache_size, data.X),
        )
        return FunctionPlan(given, init, sizes, n_bytes, ascent)

    def _ascent(self) -> Ascent | None:
        """Return the paper's steps; None where the loss itself is minimised."""
        return None

    def _solve(self, data: TrainingData, basis: FunctionPlan, run: Run) -> Solution:
        criterion = run.criterion
        columns = 4 * (basis.sizes[-1] + data.n_outputs * np.size(criterion.C))
        blocks, count = data.blocks(tile_rows=tile_rows(data.X, columns)), data.count
        if not np.ndim(criterion.C):  # GCV compares starts alone: weights may be no copies
            total = total_weight(blocks) if count is None else count
            count = float(data.n_positive) if total < data.n_positive else count
        problem = LowRankProblem(
            blocks,
            get_function(self.function),
            criterion,
            self._bias_penalty(),
            count,
            self.shape_init,
            self.iterate == "best" and data.n_positive > 1,
            self.max_iter,
            self.tol,
            self.n_iter_no_change,
            float(self.anchor),
            basis.ascent,
            run.hook("iteration", 1.0),
        )
        rng = check_random_state(self.random_state)
        functions, solution = learn_functions(
            problem, basis.given, basis.init, basis.sizes, self.n_init, rng
        )
        return replace(solution, features=functions, bytes=basis.n_bytes)

    def _basis_attributes(
        self, data: TrainingData, basis: FunctionPlan, solution: Solution
    ) -> dict[str, Any]:
        learned: LearnedFeatures = solution.features
        return {
            "function_": learned.function,
            "centers_": learned.centers,
            "shapes_": learned.shapes,
            "coef_": np.ascontiguousarray(solution.coef.T),
        }

    def _model(self) -> tuple[LearnedFeatures, Array]:
        return LearnedFeatures(self.function_, self.centers_, self.shapes_), self.coef_.T

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
        X = to_host(dense64(validate(self, X, reset=False)))
        assert isinstance(self.function_, Simplex)
        slopes, intercepts = self.function_.local_linear(X, self.centers_, self.shapes_, self.coef_)
        intercepts = intercepts + self.intercept_
        if self.coef_.shape[0] == 1:
            return slopes[:, 0], intercepts[:, 0]
        return slopes, intercepts
