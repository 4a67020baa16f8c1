"""LowRankLSSVC and LowRankLSSVR: a handful of learned basis functions (fang2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm.basis.choose import resolve_n_basis
from leansvm.estimators.machine import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Machine, Run, stored
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.read import TrainingData, validate
from leansvm.linalg import dense64
from leansvm.low_rank import (
    FUNCTIONS,
    BasisFunction,
    ReadableModel,
    SeparableFunction,
    Simplex,
    get_function,
)
from leansvm.low_rank.functions import LearnedFeatures
from leansvm.low_rank.learn import (
    ORDERED_ROWS,
    learn_functions,
    reserve,
    sizes_to_try,
    tile_rows,
)
from leansvm.low_rank.start import given_centers
from leansvm.low_rank.variable_projection import Ascent, LowRankProblem
from leansvm.rows import resolve_cache_size, total_weight
from leansvm.solution import Solution

Array = NDArray[np.float64]


def _is_simplex(machine: Any) -> bool:
    if not isinstance(get_function(machine.function), Simplex):
        raise AttributeError(
            "local_linear_model needs function='simplex': other models are not piecewise linear"
        )
    return True


class FunctionPlan(NamedTuple):
    """Where functions start, and how many there may be."""

    given: Array | None  # centres
    init: str
    sizes: list[int]
    n_bytes: int
    ascent: Ascent | None


class LowRankMachine(ReadableModel, Machine):
    """Learn a handful of functions, and their weights in closed form.

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo"
        Regularisation: weight of the squared errors; a larger C means less regularisation. If there
        are several values, the best one is chosen twice: for the functions at the start, and for
        the learned functions. "gcv" or a list uses generalised cross-validation (in `SparseLSSVC`,
        a list uses leave-one-out), "loo" the exact leave-one-out squared error with fixed
        functions. The strings try ``numpy.logspace(-6, 7, 50)``.
    n_basis : int, float in (0, 1) or "auto"
        Number of functions, or their share of the rows. "auto" starts with five, or one for each
        class, and doubles the number as long as that lowers the error on left-out rows by 5 %, up
        to 40, or four for each class.
    function : {"robust-rbf", "simplex", "rbf"} or BasisFunction
        exp(-sum mu |x - c|), max(0, 1 - sum mu |x - c|), exp(-sum mu (x - c)^2), or an instance
        of a class derived from `leansvm.low_rank.BasisFunction`.
    init : {"auto", "medoids", "random"} or array-like of shape (n_basis, n_features)
        Where the centres start: at the medoids of the rows (at most 1000 of them), at random rows,
        or at given points. "auto" starts with few functions at the medoids of each class, and adds
        others where the error is largest; for the paper's objectives it means "medoids".
        Features should have comparable scales.
    shape_init : "auto" or float
        Shapes mu to start from. "auto" derives them from the spread of the features, times the one
        of four factors that has the smallest estimated error.
    n_init : int
        Number of starts; all but the first begin at random rows. The one with the smallest
        leave-one-out error is kept.
    anchor : float
        For ``objective="loss"``: weight of a quadratic penalty that keeps centres (in standard
        deviations of the features) and log shapes near their start, in multiples of ``C`` times the
        error at the start; 0 means no penalty. It prevents the functions from overfitting. A
        leave-one-out error with fixed functions does not show such overfitting.
    iterate : {"best", "last"}
        Which iteration becomes the model: the one with the smallest leave-one-out squared error, or
        the last one.
    max_iter : int
        Iterations of L-BFGS (at most), or rounds of the paper's algorithm.
    tol : float
        L-BFGS stops when the objective falls by less than this share of itself.
    n_iter_no_change : int
        L-BFGS with ``iterate="best"`` stops when the leave-one-out error has not fallen for this
        many iterations.

    Attributes
    ----------
    centers_, shapes_ : ndarray of shape (n_basis, n_features)
        Parameters of the functions.
    coef_ : ndarray of shape (n_outputs, n_basis)
        Weights of the functions, which all outputs share.
    function_ : BasisFunction
        The function used.
    cv_curve_ : ndarray of shape (n_candidates,)
        Criterion at every candidate of ``C`` for the learned functions; only when there are
        several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target (+-1 for classes) minus the prediction of the model whose weights are fitted without
        the row and its exact copies. Only with ``C="loo"``.
    objective_ : float
        1/2 |coef|^2 + 1/2 A b^2 + C/2 * squared errors, summed over the outputs.
    n_iter_ : int
        Iterations of the start that was kept.
    fit_report_ : dict
        ``curve`` has the objective, the leave-one-out error and the paper's objective at every
        iteration. Other entries: which iteration was kept, the ``sizes`` that were compared and
        their ``size_errors``, ``feature_spread``, rows, functions, bytes, and seconds by phase.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_basis": [StrOptions({"auto"}), COUNT, SHARE],
        "function": [StrOptions(set(FUNCTIONS)), BasisFunction],
        "init": [StrOptions({"auto", "medoids", "random"}), "array-like"],
        "shape_init": [StrOptions({"auto"}), POSITIVE],
        "n_init": [COUNT],
        "anchor": [NOT_NEGATIVE],
        "iterate": [StrOptions({"best", "last"})],
        "tol": [NOT_NEGATIVE],
        "n_iter_no_change": [COUNT],
        "objective": [StrOptions({"loss", "abs", "target", "squared"})],
        "learning_rate": [StrOptions({"auto"}), POSITIVE],
        "update": [StrOptions({"simultaneous", "sequential"})],
        "backtracking": ["boolean"],
    }
    objective: str = "loss"
    function_: BasisFunction
    centers_: Array
    shapes_: Array
    coef_: Array

    @property
    def _fits_where_rows_are(self) -> bool:  # type: ignore[override]
        return isinstance(get_function(self.function), SeparableFunction)  # others need NumPy

    def _arrange_rows(self, data: TrainingData, run: Run) -> TrainingData:
        if data.X.shape[0] <= ORDERED_ROWS:
            return data.sort_distinct()
        return data.merge_copies(0) if run.criterion.left_out else data

    def _learn_kernel(self, data: TrainingData, run: Run) -> None:
        return None

    def _grow(self, data: TrainingData, kernel: None, run: Run) -> FunctionPlan:
        """Choose where the functions start and the largest number of functions."""
        given = None if isinstance(self.init, str) else given_centers(self.init, data.X.shape[1])
        if given is not None:
            sizes = [len(given)]
        elif self.n_basis == "auto":
            sizes = sizes_to_try(data.n_positive, data.n_outputs)
        else:
            sizes = [resolve_n_basis(self.n_basis, data.n_positive)]
        init, ascent = "given" if given is not None else self.init, None
        if self.objective != "loss":
            options = {"sequential": self.update == "sequential", "backtracking": self.backtracking}
            ascent = Ascent(self.objective, self.learning_rate, **options)
            init = "medoids" if init == "auto" else init
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

    def _solve(self, data: TrainingData, basis: FunctionPlan, run: Run) -> Solution:
        criterion = run.criterion
        columns = 4 * (basis.sizes[-1] + data.n_outputs * np.size(criterion.C))
        blocks, count = data.blocks(tile_rows=tile_rows(data.X, columns)), data.count
        if not np.ndim(criterion.C):  # one C: GCV only compares starts, weights need not be copies
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

    def _basis_attributes(self, data: TrainingData, solution: Solution) -> dict[str, Any]:
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
        """Return the linear function that equals a simplex model around each row (fang2019, (9)).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        slopes : ndarray of shape (n_samples, n_features) or (n_samples, n_outputs, n_features)
            How f changes with each feature. At a kink, the function with the kink counts as flat.
        intercepts : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            f(x) = slopes @ x + intercept for x and all other points of its piece.
        """
        check_is_fitted(self)
        X = to_host(dense64(validate(self, X, reset=False)))
        assert isinstance(self.function_, Simplex)
        slopes, intercepts = self.function_.local_linear(X, self.centers_, self.shapes_, self.coef_)
        intercepts = intercepts + self.intercept_
        if self.coef_.shape[0] == 1:
            return slopes[:, 0], intercepts[:, 0]
        return slopes, intercepts


class LowRankLSSVC(Classifier, LowRankMachine):
    """Least-squares SVM on a few learned functions: a classifier that people can read.

    f(x) = sum_j coef_j phi(x; center_j, shape_j) + b. The weights solve the LS-SVM of the kernel
    sum_j phi_j(x) phi_j(z) in closed form; centres and shapes are learned. An iteration takes
    n_samples * n_basis * n_features operations.

    Parameters
    ----------
    objective : {"loss", "abs", "target", "squared"}, default="loss"
        What the functions minimise or maximise. "loss" minimises the regularised squared error
        itself, by L-BFGS with the weights projected out. The others are the paper's: sum |f(x)|,
        sum y f(x) and sum f(x)^2 are increased by normalised gradient steps with fixed dual
        variables.
    learning_rate : "auto" or float, default="auto"
        Length of the paper's steps, in the units of X and mu; "auto" is 0.15 in units of the
        features' spread and of the shapes at the start. Not used by "loss".
    update : {"simultaneous", "sequential"}, default="simultaneous"
        Whether the paper's steps move all functions at once, or one after the other with the
        outputs brought up to date in between. The paper's text allows both readings.
    backtracking : bool, default=False
        Halve the paper's steps until the objective, with fixed dual variables, does not fall.
        Without this, a step may lower it.

    See Also
    --------
    LowRankLSSVR : The same for regression.
    SparseLSSVC : Kernel functions at training rows, usually hundreds or more.
    leansvm.plotting.LowRankDisplay : Picture of the functions over two features.

    References
    ----------
    M. Fang, D. Xu, X. Hong, J. Gao, "Sparse least squares low rank kernel machines", 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import LowRankLSSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LowRankLSSVC(n_basis=3).fit(X, y)
    >>> model.centers_.shape, model.coef_.shape
    ((3, 4), (3, 3))
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    @stored
    def __init__(
        self,
        C: Any = 1.0,
        n_basis: float | str = "auto",
        *,
        function: Any = "robust-rbf",
        objective: str = "loss",
        init: Any = "auto",
        shape_init: float | str = "auto",
        n_init: int = 1,
        anchor: float = 1.0,
        learning_rate: float | str = "auto",
        update: str = "simultaneous",
        backtracking: bool = False,
        iterate: str = "best",
        max_iter: int = 200,
        tol: float = 1e-5,
        n_iter_no_change: int = 20,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        class_weight: dict[Any, float] | str | None = None,
        calibrate: bool = True,
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...


class LowRankLSSVR(Regressor, LowRankMachine):
    """Least-squares support vector regressor on a handful of learned functions.

    The functions minimise the regularised squared error itself, as in `LowRankLSSVC` with
    ``objective="loss"``. The paper's other objectives push outputs away from a decision boundary,
    which regression does not have. Several targets share the functions.

    See Also
    --------
    LowRankLSSVC : The same for classification.
    SparseLSSVR : Kernel functions at training rows, usually hundreds or more.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LowRankLSSVR
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = LowRankLSSVR(C=100.0, n_basis=4, function="rbf").fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    @stored
    def __init__(
        self,
        C: Any = 1.0,
        n_basis: float | str = "auto",
        *,
        function: Any = "robust-rbf",
        init: Any = "auto",
        shape_init: float | str = "auto",
        n_init: int = 1,
        anchor: float = 1.0,
        iterate: str = "best",
        max_iter: int = 200,
        tol: float = 1e-5,
        n_iter_no_change: int = 20,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        cache_size: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None: ...
