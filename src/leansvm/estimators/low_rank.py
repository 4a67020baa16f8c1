"""LowRankLSSVC and LowRankLSSVR: a handful of learned basis functions (fang2019)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from leansvm.estimators.function_machine import LowRankMachine
from leansvm.estimators.predict import Classifier, Regressor
from leansvm.low_rank.closed_form import Ascent


class LowRankLSSVC(Classifier, LowRankMachine):
    """Least-squares SVM on a handful of learned functions: a classifier that a person can read.

    f(x) = sum_j coef_j phi(x; center_j, shape_j) + b. The weights solve the LS-SVM of the
    kernel sum_j phi_j(x) phi_j(z) in closed form; centres and shapes are learned. Training takes
    n_samples * n_basis * n_features operations an iteration.

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo", default=1.0
        Regularisation: weight of the squared errors. Of several candidates the best one is taken
        for the functions at the start, and again for the learned ones: of a list and "gcv" by
        generalised cross-validation, "loo" by the exact leave-one-out squared error with the
        functions kept. The strings try ``numpy.logspace(-6, 7, 50)``.
    n_basis : int, float in (0, 1) or "auto", default="auto"
        Number of functions, or their share of the rows. "auto" starts with five, or one for each
        class, and doubles as long as that lowers the error of rows on which the functions were
        not learned by a twentieth; at most 40, or four for each class.
    function : {"robust-rbf", "simplex", "rbf"} or BasisFunction, default="robust-rbf"
        exp(-sum mu |x - c|), max(0, 1 - sum mu |x - c|), exp(-sum mu (x - c)^2), or an instance
        of a class derived from `leansvm.low_rank.BasisFunction`.
    objective : {"loss", "abs", "target", "squared"}, default="loss"
        What the functions are learned on. "loss": the regularised squared error itself, by L-BFGS
        with the weights projected out. The others are the paper's: sum |f(x)|, sum y f(x) and
        sum f(x)^2, raised by normalised gradient steps with the dual variables held.
    init : {"auto", "medoids", "random"} or array-like of shape (n_basis, n_features), \
default="auto"
        Where the centres start: at the medoids of the rows (of 1000 of them if there are more),
        at random rows, or at given points. "auto" starts with few functions at the medoids of
        each class, and doubles them where the error is largest; the paper's objectives start at
        the medoids of all rows. Features should have comparable scales.
    shape_init : "auto" or float, default="auto"
        Shapes mu to start from. "auto" follows the spread of the features and takes, of four
        scales, the one with the least estimated error.
    n_init : int, default=1
        Starts; those after the first begin at random rows. The best by leave-one-out error is
        kept.
    anchor : float, default=1.0
        "loss" only: how strongly centres (in standard deviations of the features) and log shapes
        are held to their start, in multiples of ``C`` times the error at the start; 0 lets them
        go. Leave-one-out errors with the functions kept do not see that functions overfit; this
        prevents it.
    learning_rate : "auto" or float, default="auto"
        Length of the paper's steps, in the units of X and mu; "auto" is 0.15 in units of the
        features' spread and of the shapes at the start. Not used by "loss".
    update : {"simultaneous", "sequential"}, default="simultaneous"
        Whether the paper's steps move all functions at once, or one after the other with the
        outputs brought up to date in between, as in the paper's Algorithm 1.
    backtracking : bool, default=False
        Halve a step of the paper's until the objective, with the dual variables held, does not
        fall; the fixed step does not ensure that.
    iterate : {"best", "last"}, default="best"
        Which iterate is the model: the one of least leave-one-out squared error, or the last.
    max_iter : int, default=200
        Iterations of L-BFGS (at most), or rounds of the paper's algorithm.
    tol : float, default=1e-5
        "loss" stops when the objective falls by less than this share of itself.
    n_iter_no_change : int, default=20
        "loss" with ``iterate="best"`` stops when the leave-one-out error has not fallen for so
        many iterations.
    fit_intercept : bool, default=True
        Whether to have a bias b.
    bias_penalty : float, default=0.0
        A of the term A b^2 / 2; 0 leaves the bias free.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into ``sample_weight``.
    calibrate : bool, default=True
        Fit probabilities to leave-one-out decision values, for `predict_proba`.
    cache_size : float or "auto", default="auto"
        Megabytes that the functions' values at the rows may take; "auto" is 80 % of the memory
        that is available. A fit that needs more raises MemoryError before it allocates.
    random_state : int, RandomState instance or None, default=None
        Seed of sampled medoids and random rows.
    verbose : int, default=0
        1 prints a line for every phase: its seconds.
    time_limit : float or None, default=None
        Seconds after which learning ends with the best so far, a warning and a note in
        ``fit_report_``.

    Attributes
    ----------
    centers_, shapes_ : ndarray of shape (n_basis, n_features)
        Parameters of the functions.
    coef_ : ndarray of shape (1, n_basis) or (n_classes, n_basis)
        Weights of the functions, which all classes share.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias b.
    function_ : BasisFunction
        The function used.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    C_ : float
        Value used.
    cv_curve_ : ndarray of shape (n_candidates,)
        Criterion at every candidate of ``C`` for the learned functions; only when there are
        several.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Target +-1 less the decision value of the model whose weights are fitted without the row
        (and its exact copies); only with ``C="loo"``.
    objective_ : float
        1/2 |coef|^2 + 1/2 A b^2 + C/2 * squared errors, summed over the classes.
    n_iter_ : int
        Iterations of the start that was kept.
    fit_report_ : dict
        ``curve`` has the objective, the leave-one-out error and the paper's objective at every
        iteration; which iteration was kept, ``sizes`` that were compared with ``size_errors``,
        ``feature_spread``, rows, functions, bytes, seconds by phase.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

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
        **LowRankMachine._parameter_constraints,
        "objective": [StrOptions({"loss", "abs", "target", "squared"})],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "update": [StrOptions({"simultaneous", "sequential"})],
        "backtracking": ["boolean"],
        **Classifier._class_constraints,
    }

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
    ) -> None:
        self.C = C
        self.n_basis = n_basis
        self.function = function
        self.objective = objective
        self.init = init
        self.shape_init = shape_init
        self.n_init = n_init
        self.anchor = anchor
        self.learning_rate = learning_rate
        self.update = update
        self.backtracking = backtracking
        self.iterate = iterate
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.cache_size = cache_size
        self.random_state = random_state
        self.verbose = verbose
        self.time_limit = time_limit

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

    Parameters
    ----------
    C : float, array-like, "gcv" or "loo", default=1.0
        Regularisation: weight of the squared errors; see `LowRankLSSVC`.
    n_basis : int, float in (0, 1) or "auto", default="auto"
        Number of functions, or their share of the rows; see `LowRankLSSVC`.
    function, init, shape_init, n_init, anchor, iterate, max_iter, tol, n_iter_no_change, \
fit_intercept, bias_penalty, cache_size, random_state, verbose, time_limit
        As in `LowRankLSSVC`.
    target : {"log", "quantile"} or None, default=None
        Scale to learn on: log y, or normal scores of its quantiles, for targets with heavy tails.
        `predict`, intervals and quantiles are mapped back to units of y; `predict` is a median.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_basis)
        Weights of the functions.
    intercept_ : ndarray of shape (n_outputs,)
        Bias b.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Target less the prediction of the model whose weights are fitted without the row (and its
        exact copies); only with ``C="loo"``.
    centers_, shapes_, function_, C_, cv_curve_, objective_, n_iter_, fit_report_
        As in `LowRankLSSVC`.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LowRankMachine._parameter_constraints,
        **Regressor._target_constraints,
    }

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
    ) -> None:
        self.C = C
        self.n_basis = n_basis
        self.function = function
        self.init = init
        self.shape_init = shape_init
        self.n_init = n_init
        self.anchor = anchor
        self.iterate = iterate
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.fit_intercept = fit_intercept
        self.bias_penalty = bias_penalty
        self.cache_size = cache_size
        self.random_state = random_state
        self.verbose = verbose
        self.time_limit = time_limit
        self.target = target
