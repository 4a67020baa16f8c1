"""LSSVC and LSSVR: the exact least-squares SVM for classification and regression.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2,  f(x) = <w, k(x, .)> + b
(zhou2016, eqs. (3)-(6)). All rows are support vectors; one factorisation serves all classes,
outputs and leave-one-out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from leansvm._array_api import rows_at
from leansvm._phases import Phases
from leansvm.basis import Basis
from leansvm.dual import solvers
from leansvm.dual.problem import DualProblem
from leansvm.estimators.answers import PredictsIntervals, PredictsSets
from leansvm.estimators.kernel_machine import KernelMachine
from leansvm.estimators.machine import Run, stored
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.estimators.read import TrainingData
from leansvm.learning.learn import FittedKernel
from leansvm.rows import resolve_cache_size
from leansvm.solution import Solution


class DualMachine(KernelMachine):
    """Solve the dual problem of all rows, by a solver of the estimator's ``_family``.

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo"
        Regularisation: weight of the squared errors; a larger C means less regularisation. "loo"
        chooses the value with the smallest leave-one-out squared error. "gcv" or a list of values
        chooses by generalised cross-validation (in `SparseLSSVC`, a list chooses by leave-one-out).
        The strings try ``numpy.logspace(-6, 7, 50)``; all values together need one
        eigen-decomposition.
    solver : {"auto", "cholesky", "cg", "smo", "sumt", "substitution", "penalty-flow"}
        "cholesky" factors the kernel matrix in place. "cg" runs conjugate gradients with a
        pivoted-Cholesky preconditioner, and recomputes kernel rows if the matrix exceeds
        ``cache_size``. "smo" updates a few dual coefficients at a time, with the matrix or a cache
        of its rows; it is fastest if the kernel matrix is close to diagonal. "substitution" is
        another name for "smo" with a free bias; "sumt" and "penalty-flow" are other methods for a
        free bias. On large problems "auto" starts with "smo" (if the matrix is close to diagonal)
        or "cg", and switches to "cholesky" if that will be faster.
    tol : float
        Relative residual of the optimality conditions at which iterative solvers stop.
    max_iter : int
        Largest number of iterations ("cg", "penalty-flow") or sweeps (other iterative solvers). A
        sweep has as many updates as there are rows.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Rows of positive weight.
    n_support_ : int
        Number of support vectors.
    """

    _family: ClassVar[str] = "lssvm"
    _merges_for_choice: ClassVar[bool] = False  # whether left-out rows compare values of C
    max_support: Any = "auto"  # most support vectors; "auto": as many as are needed
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "solver": [StrOptions(set(solvers.SOLVERS["lssvm"]))],
    }

    @property
    def _fits_where_rows_are(self) -> bool:  # type: ignore[override]
        return not solvers.SOLVERS[self._family][self.solver].on_host

    @property
    def _is_direct(self) -> bool:  # type: ignore[override]
        return self.solver == "cholesky"

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        plan = super()._planned(n_rows, n_features)
        return plan | {"solve": 1e-9 * n_rows**3} if plan else {}

    def _arrange_rows(self, data: TrainingData, run: Run) -> TrainingData:
        several = np.ndim(run.criterion.C) == 1
        return data.take_positive(run.criterion.left_out or (several and self._merges_for_choice))

    def _grow(self, data: TrainingData, kernel: FittedKernel, run: Run) -> DualProblem:
        """Set up the problem of the rows from `_arrange_rows`; all of them are basis points."""
        assert data.merged is not None
        first, X = data.merged.first, data.X
        name = "cg" if self.solver == "auto" else self.solver
        return DualProblem(
            X,
            kernel.kernel,
            data.Y[first],
            data.merged.weight,
            self._bias_penalty(),
            resolve_cache_size(self.cache_size, X),
            Phases(),
            run.hook(f"{name}-iteration"),
            rows=None if len(first) == X.shape[0] else first,
            count=data.count,
        )

    def _solve(self, data: TrainingData, basis: DualProblem, run: Run) -> Solution:
        criterion = run.criterion
        solution = solvers.solve_dual(
            self._family,
            self.solver,
            basis,
            criterion.C,
            criterion=criterion.name,
            left_out=criterion.left_out,
            tol=self.tol,
            max_iter=self.max_iter,
            max_support=None if self.max_support == "auto" else int(self.max_support),
        )
        return self._with_support(basis, data, solution)

    def _with_support(
        self, problem: DualProblem, data: TrainingData, solution: Solution
    ) -> Solution:
        """Return the solution with its support: the rows that have coefficients.

        With the squared loss these are all rows. Copies of a row share its coefficient in
        proportion to their weights.
        """
        merged = data.merged
        assert merged is not None
        carries = np.any(solution.coef != 0, axis=1) | (self._family == "lssvm")
        indices = np.flatnonzero((merged.group >= 0) & carries[merged.group])
        group = merged.group[indices]
        share = data.weight[indices] / merged.weight[group]
        rows = group if problem.rows is None else problem.rows[group]
        points = rows if problem.kernel.precomputed else rows_at(problem.X, rows)
        coef, basis = solution.coef[group] * share[:, None], Basis(indices, points)
        return replace(solution, coef=coef, basis=basis, seconds=problem.phases.seconds)


class LSSVC(PredictsSets, Classifier, DualMachine):
    """Least-squares support vector classifier, solved exactly.

    Use it for up to about ten thousand rows. Every training row becomes a support vector: a fit
    needs the whole m x m kernel matrix (8 m^2 bytes) and, with ``solver="cholesky"``, m^3 / 3
    flops. All classes, the leave-one-out errors and the choice of ``C`` share one factorisation.

    See Also
    --------
    LSSVR : The same for regression.
    sklearn.svm.SVC : Hinge loss, sparse in the support vectors.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import LSSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LSSVC(C="loo", gamma=0.5).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    >>> model.decision_function(X[:1]).shape
    (1, 3)
    """

    @stored
    def __init__(
        self,
        C: Any = 1.0,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        solver: str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        calibrate: bool = True,
        tol: float = 1e-8,
        max_iter: int = 1000,
        cache_size: float | str = "auto",
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...


class LSSVR(PredictsIntervals, Regressor, DualMachine):
    """Least-squares support vector regressor, solved exactly.

    Use it for up to about ten thousand rows. Without a bias this is kernel ridge regression with
    ``alpha = 1 / C``. The bias is free (``bias_penalty=0``) or penalised. Several targets share one
    factorisation.

    See Also
    --------
    LSSVC : The same for classification.
    sklearn.kernel_ridge.KernelRidge : The model without a bias.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = LSSVR(C="loo", gamma=0.5).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 1e-3)
    True
    """

    @stored
    def __init__(
        self,
        C: Any = 1.0,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        solver: str = "auto",
        tol: float = 1e-8,
        max_iter: int = 1000,
        cache_size: float | str = "auto",
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None: ...
