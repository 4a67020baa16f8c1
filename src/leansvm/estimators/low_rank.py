"""LowRankLSSVC and LowRankLSSVR: a handful of learned basis functions (fang2019)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from leansvm.estimators.function_machine import LowRankMachine
from leansvm.estimators.parameters import stored
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.low_rank.ascent import Ascent


class LowRankLSSVC(Classifier, LowRankMachine):
    """Least-squares SVM on a handful of learned functions: a classifier that a person can read.

    f(x) = sum_j coef_j phi(x; center_j, shape_j) + b. The weights solve the LS-SVM of the
    kernel sum_j phi_j(x) phi_j(z) in closed form; centres and shapes are learned. Training takes
    n_samples * n_basis * n_features operations an iteration.

    Parameters
    ----------
    objective : {"loss", "abs", "target", "squared"}, default="loss"
        What the functions are learned on. "loss": the regularised squared error itself, by L-BFGS
        with the weights projected out. The others are the paper's: sum |f(x)|, sum y f(x) and
        sum f(x)^2, raised by normalised gradient steps with the dual variables held.
    learning_rate : "auto" or float, default="auto"
        Length of the paper's steps, in the units of X and mu; "auto" is 0.15 in units of the
        features' spread and of the shapes at the start. Not used by "loss".
    update : {"simultaneous", "sequential"}, default="simultaneous"
        Whether the paper's steps move all functions at once, or one after the other with the
        outputs brought up to date in between, as in the paper's Algorithm 1.
    backtracking : bool, default=False
        Halve a step of the paper's until the objective, with the dual variables held, does not
        fall; the fixed step does not ensure that.

    See Also
    --------
    LowRankLSSVR : The same for regression.
    SparseLSSVC : Tens to hundreds of kernel functions at training rows.
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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "objective": [StrOptions({"loss", "abs", "target", "squared"})],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "update": [StrOptions({"simultaneous", "sequential"})],
        "backtracking": ["boolean"],
    }

    @stored
    def __init__(
        self,
        C: Any = 1.0,
        n_basis: Any = "auto",
        *,
        function: Any = "robust-rbf",
        objective: str = "loss",
        init: Any = "auto",
        shape_init: Any = "auto",
        n_init: int = 1,
        anchor: float = 1.0,
        learning_rate: Any = "auto",
        update: str = "simultaneous",
        backtracking: bool = False,
        iterate: str = "best",
        max_iter: int = 200,
        tol: float = 1e-5,
        n_iter_no_change: int = 20,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        class_weight: Any = None,
        calibrate: bool = True,
        cache_size: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
        time_limit: float | None = None,
    ) -> None: ...

    def _ascent(self) -> Ascent | None:
        if self.objective == "loss":
            return None
        return Ascent(
            self.objective,
            self.learning_rate,
            sequential=self.update == "sequential",
            backtracking=self.backtracking,
        )


class LowRankLSSVR(Regressor, LowRankMachine):
    """Least-squares support vector regressor on a handful of learned functions.

    The functions are learned on the regularised squared error itself (`LowRankLSSVC` with
    ``objective="loss"``); the paper's objectives push outputs away from a decision boundary, which
    regression does not have. Several targets share the functions.

    See Also
    --------
    LowRankLSSVC : The same for classification.
    SparseLSSVR : Tens to hundreds of kernel functions at training rows.

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
        n_basis: Any = "auto",
        *,
        function: Any = "robust-rbf",
        init: Any = "auto",
        shape_init: Any = "auto",
        n_init: int = 1,
        anchor: float = 1.0,
        iterate: str = "best",
        max_iter: int = 200,
        tol: float = 1e-5,
        n_iter_no_change: int = 20,
        fit_intercept: bool = True,
        bias_penalty: float = 0.0,
        cache_size: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
        time_limit: float | None = None,
        target: str | None = None,
    ) -> None: ...
