"""One fit of every estimator with what it cannot avoid, for arrays of any library (0/1 labels)."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from leansvm import L2SVC, LSSVC, KernelBasis, LowRankLSSVC, ReducedSVC, SparseLSSVC

from . import _roofline as floors
from ._roofline import Work

FUNCTIONS, STEPS = 5, 20  # of LowRankLSSVC


class Case(NamedTuple):
    """A call to time, and the work behind it, which may depend on what the call returned."""

    name: str
    problem: str
    call: Callable[[], Any]
    work: Callable[[Any], Work]


def small_bases(X: Any, y: Any, r: int) -> list[Case]:
    """Machines on r points, functions that are learned, features and prediction."""
    m, d = X.shape
    given = {"kernel": "rbf", "gamma": 1 / d, "n_basis": r, "random_state": 0}
    problem = f"{m:,} × {d}, {r} points"
    fitted = SparseLSSVC(10.0, **given).fit(X, y)
    basis = KernelBasis(r, gamma=1 / d, basis="random", random_state=0).fit(X)
    given_functions = {"n_basis": FUNCTIONS, "max_iter": STEPS, "n_init": 1, "random_state": 0}
    low_rank = LowRankLSSVC(10.0, **given_functions)
    return [
        Case(
            "`SparseLSSVC`, C given",
            problem,
            lambda: SparseLSSVC(10.0, **given).fit(X, y),
            lambda model: floors.random_basis(m, d, model.n_support_),
        ),
        Case(
            '`SparseLSSVC`, `C="loo"`',
            problem,
            lambda: SparseLSSVC("loo", **given).fit(X, y),
            lambda model: floors.left_out_basis(m, d, model.n_support_),
        ),
        Case(
            "`SparseLSSVC`, pivots",
            problem,
            lambda: SparseLSSVC(10.0, basis="pivoted-cholesky", **given).fit(X, y),
            lambda model: floors.pivoted_basis(m, d, model.n_support_),
        ),
        Case(
            "`ReducedSVC`, C given",
            problem,
            lambda: ReducedSVC(10.0, loss="squared_hinge", **given).fit(X, y),
            lambda model: floors.newton_basis(
                m, d, model.n_support_, model.n_iter_, _inside_margin(model, X, y)
            ),
        ),
        Case(
            "`LowRankLSSVC`",
            f"{m:,} × {d}, {FUNCTIONS} functions",
            lambda: _without_warning(low_rank.fit, X, y),
            lambda model: floors.learned_functions(m, d, FUNCTIONS, model.n_iter_),
        ),
        Case(
            "`KernelBasis.transform`",
            problem,
            lambda: basis.transform(X),
            lambda _: floors.features_of(m, d, r),
        ),
        Case(
            "`SparseLSSVC.predict`",
            problem,
            lambda: fitted.predict(X),
            lambda _: floors.prediction(m, d, fitted.n_support_),
        ),
    ]


def dense_machines(X: Any, y: Any) -> list[Case]:
    """The exact least-squares machine, by a factor and by steps."""
    m, d = X.shape
    given, problem = {"gamma": 1 / d}, f"{m:,} × {d}"
    return [
        Case(
            "`LSSVC`, Cholesky",
            problem,
            lambda: LSSVC(10.0, solver="cholesky", **given).fit(X, y),
            lambda _: floors.dense_cholesky(m, d),
        ),
        Case(
            "`LSSVC`, conjugate gradients",
            problem,
            lambda: LSSVC(10.0, solver="cg", **given).fit(X, y),
            lambda model: floors.dense_cg(m, d, model.n_iter_),
        ),
    ]


def working_sets(X: Any, y: Any) -> list[Case]:
    """The machine whose support vectors are found on the way."""
    m, d = X.shape
    return [
        Case(
            "`L2SVC`",
            f"{m:,} × {d}",
            lambda: L2SVC(10.0, gamma=1 / d).fit(X, y),
            lambda model: floors.support_vectors(m, d, len(model.support_)),
        )
    ]


def _inside_margin(model: Any, X: Any, y: Any) -> float:
    """Rows whose squared hinge is curved at the solution."""
    return float(((2.0 * y - 1.0) * model.decision_function(X) < 1).sum())


def _without_warning(fit: Callable[..., Any], X: Any, y: Any) -> Any:
    """Fit with few steps: that they do not suffice is no news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(X, y)
