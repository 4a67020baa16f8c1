"""LSSVC and LSSVR at the edges: extreme C and gamma, copies, constants, a handful of rows.

The reference is the same objective minimised in 60 decimal digits.
"""

import warnings
from decimal import Decimal, localcontext
from functools import cache
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from leansvm import LSSVC, LSSVR
from tests.loops import case

rng = np.random.default_rng(9)
M = 30
PLAIN = rng.normal(size=(M, 3))
LABELS = np.where(PLAIN[:, 0] + 0.7 * rng.normal(size=M) > 0, 1, -1)
COPIED = np.arange(M) // 2
DATA = {
    "plain": (PLAIN, LABELS),
    "rows twice": (PLAIN[COPIED], LABELS[COPIED]),
    "rows twice, labels not": (PLAIN[COPIED], LABELS),
    "constant columns": (np.column_stack([PLAIN, np.full(M, 7.0), np.zeros(M)]), LABELS),
    "far from the origin": (PLAIN + 1000, LABELS),
}
KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.5},
    "smooth rbf": {"kernel": "rbf", "gamma": 1e-3},
    "laplacian": {"kernel": "laplacian", "gamma": 0.2},
    "linear": {"kernel": "linear"},
}
CASES = [(data, kernel) for data in DATA for kernel in KERNELS]
CASES.remove(("far from the origin", "linear"))  # features on their raw scale: further down
SOLVERS = {
    "cholesky": lambda C: {"C": C, "solver": "cholesky"},
    "eigen": lambda C: {"C": [C]},
    "cg": lambda C: {"C": C, "solver": "cg", "tol": 1e-10},
}


def exact(values):
    return np.vectorize(Decimal, otypes=[object])(np.asarray(values, dtype=float))


def digits(function):
    """Run a function in 60 decimal digits."""

    def wrapped(*args):
        with localcontext() as context:
            context.prec = 60
            return function(*args)

    return wrapped


@cache
@digits
def exact_kernel(data, kernel):
    X = exact(DATA[data][0])
    parameters = KERNELS[kernel]
    if kernel == "linear":
        return X @ X.T
    difference = X[:, None] - X[None]
    power = np.abs(difference) if kernel == "laplacian" else difference**2
    gamma = Decimal(parameters["gamma"])
    return np.vectorize(lambda t: (-gamma * t).exp(), otypes=[object])(power.sum(axis=2))


@digits
def exact_objective(K, beta, b, y, C):
    beta, b, y, C = exact(beta), Decimal(float(b)), exact(y), Decimal(C)
    fitted = K @ beta
    return (beta @ fitted + C * np.sum((y - fitted - b) ** 2)) / 2


@cache
@digits
def exact_minimum(data, kernel, C):
    """½ beta'y with beta from the Cholesky factor of K + I/C, and a free bias."""
    K, y = exact_kernel(data, kernel), exact(DATA[data][1])
    G = K + np.diag(exact(np.ones(M))) / Decimal(C)
    L = exact(np.zeros((M, M)))
    for j in range(M):
        L[j, j] = (G[j, j] - L[j, :j] @ L[j, :j]).sqrt() if j else G[0, 0].sqrt()
        for i in range(j + 1, M):
            L[i, j] = (G[i, j] - (L[i, :j] @ L[j, :j] if j else 0)) / L[j, j]
    solved = np.column_stack([exact(np.ones(M)), y])
    for i in range(M):
        solved[i] = (solved[i] - (L[i, :i] @ solved[:i] if i else 0)) / L[i, i]
    for i in reversed(range(M)):
        solved[i] = (solved[i] - (L[i + 1 :, i] @ solved[i + 1 :] if i < M - 1 else 0)) / L[i, i]
    u, v = solved.T
    beta = v - u * (v.sum() / u.sum())
    return beta @ y / 2


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)  # tol is below rounding
@pytest.mark.parametrize(("data", "kernel"), CASES)
def test_objective_against_sixty_digits(data, kernel):
    X, y = DATA[data]
    K = exact_kernel(data, kernel)
    for C, solver in product([1e-6, 1e-2, 1.0, 1e3, 1e7], SOLVERS):
        with case(C=C, solver=solver):
            model = LSSVC(**SOLVERS[solver](C), **KERNELS[kernel]).fit(X, y)
            minimum = exact_minimum(data, kernel, C)
            reached = exact_objective(K, model.dual_coef_[0], model.intercept_[0], y, C)
            assert float((reached - minimum) / minimum) <= 1e-6
            assert_allclose(model.objective_, float(minimum), rtol=1e-6)
            bound = 1.01 * model.fit_report_["gap"] + 1e-12 * float(minimum)
            assert float(reached - minimum) <= bound


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)  # tol is below rounding
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("A", [1e-8, 1.0])
def test_penalised_bias_at_a_large_C(kernel, A):
    X, y = DATA["rows twice, labels not"]
    K = np.array(exact_kernel("rows twice, labels not", kernel), dtype=float)
    for options in SOLVERS.values():
        model = LSSVC(**options(1e7), bias_penalty=A, **KERNELS[kernel]).fit(X, y)
        beta, b = model.dual_coef_[0], model.intercept_[0]
        # stationary in b: A b = C sum(residual) = sum(beta), and in every coefficient
        assert_allclose(beta.sum(), A * b, atol=1e-8 * np.abs(beta).sum())
        assert_allclose(K @ beta + b + beta / 1e7, y, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [{"C": "gcv"}, {"C": "loo"}, {"C": 1e7}, {"C": 1e7, "solver": "cg"}, {"C": [1e7]}],
    ids=str,
)
def test_features_on_their_raw_scale_are_solved_or_warned_about(options):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:150], np.where(y[:150] == 1, 1.0, -1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LSSVC(kernel="linear", **options).fit(X, y)
    # the primal has 31 unknowns: solve it in the coordinates of the singular vectors
    U, sigma, _ = np.linalg.svd(X, full_matrices=False)
    Phi = np.column_stack([U, np.ones(len(y))])
    R = np.diag(np.append(sigma**-2.0, 0.0)) / model.C_
    w = np.linalg.solve(Phi.T @ Phi + R, Phi.T @ y)
    minimum = 0.5 * model.C_ * (np.sum((y - Phi @ w) ** 2) + w @ R @ w)
    accurate = np.abs(model.decision_function(X) - Phi @ w).max() < 1e-2
    assert accurate or any(w.category is ConvergenceWarning for w in caught)
    assert abs(model.objective_ - minimum) <= 2 * model.fit_report_["gap"] + 1e-5 * minimum


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("options", [{}, {"solver": "cg"}], ids=str)
def test_absurd_C_is_finite_or_refused(options):
    for C in (1e-300, 1e100):
        model = LSSVR(C, gamma=0.5, **options).fit(PLAIN, LABELS)
        assert np.isfinite(model.predict(PLAIN)).all(), C
        assert np.isfinite(model.objective_), C
    with pytest.raises(ValueError, match=r"^C=1e-310: it must be finite .* and so must 1 / C"):
        LSSVR(1e-310, gamma=0.5, **options).fit(PLAIN, LABELS)


# ---------------------------------------------------------------------------- kernels, rows


@pytest.mark.parametrize("options", [{"C": 5.0}, {"C": 5.0, "solver": "cg"}, {"C": [5.0]}], ids=str)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_huge_gamma_is_the_identity(kernel, options):
    model = LSSVR(kernel=kernel, gamma=1e12, **options).fit(PLAIN, LABELS)
    mean = LABELS.mean()
    assert_allclose(model.intercept_, mean, atol=1e-7)
    assert_allclose(model.predict(PLAIN), mean + (LABELS - mean) * 5 / 6, atol=1e-7)
    assert_allclose(model.predict(PLAIN + 0.01), mean, atol=1e-7)


@pytest.mark.parametrize("options", [{"C": 5.0}, {"C": 5.0, "solver": "cg"}, {"C": [5.0]}], ids=str)
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1e-15])
def test_tiny_gamma_is_constant(gamma, options):
    model = LSSVR(gamma=gamma, **options).fit(PLAIN, LABELS)
    assert_allclose(model.predict(PLAIN), LABELS.mean(), atol=1e-6)


# 1e8 with "linear" and "poly" further down: there 1 / C is below the rounding of k(x, x)
EQUAL_ROWS = [*product(["rbf", "linear", "laplacian", "poly"], [0.0, 0.1])]
EQUAL_ROWS += [("rbf", 1e8), ("laplacian", 1e8)]


@pytest.mark.parametrize(("kernel", "value"), EQUAL_ROWS)
def test_rows_that_are_all_equal(kernel, value):
    X = np.full((12, 3), value)
    y = np.arange(12) % 3 == 0
    for options in ({"C": 0.1}, {"C": 0.1, "solver": "cg"}, {"C": [0.1]}):
        model = LSSVR(kernel=kernel, **options).fit(X, y)
        assert_allclose(model.predict(X), 1 / 3, atol=1e-6)
        assert LSSVC(kernel=kernel, **options).fit(X, y).predict(X[:1]) == [False]


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_equal_rows_too_large_for_C_are_warned_about_or_refused(kernel):
    for options in ({"C": 0.1}, {"C": 0.1, "solver": "cg"}, {"C": [0.1]}):
        noticed = pytest.raises((ValueError, ConvergenceWarning), match=r"[Ss]cale X")
        with case(options=options), noticed:
            LSSVR(kernel=kernel, **options).fit(np.full((12, 3), 1e8), np.arange(12) % 3 == 0)


@pytest.mark.parametrize("options", [{}, {"solver": "cg"}, {"C": "gcv"}, {"C": "loo"}], ids=str)
@pytest.mark.parametrize("value", [0.0, -3.5, 1e9])
def test_constant_targets(options, value):
    model = LSSVR(**options).fit(PLAIN, np.full(M, value))
    assert_allclose(model.predict(PLAIN), value, rtol=1e-8, atol=1e-12)
    assert abs(model.objective_) <= 1e-6 * max(value**2, 1e-6)
    assert np.isfinite(model.fit_report_["gap"])


@pytest.mark.parametrize(
    "options", [{}, {"solver": "cg"}, {"C": "loo"}, {"calibrate": True}], ids=str
)
def test_one_row_of_each_class(options):
    for k in (2, 3, 5):
        X, y = PLAIN[:k], np.arange(k)
        model = LSSVC(gamma=1.0, **options).fit(X, y)
        assert np.isfinite(model.decision_function(PLAIN)).all()
        assert model.n_support_ == k
        if options.get("C") != "loo":
            assert_array_equal(model.predict(X), y)


def test_two_rows_by_hand():
    # G = [[1 + 1/C, k], [k, 1 + 1/C]], y = (-1, 1): b = 0, beta = y / (1 + 1/C - k)
    X = np.array([[0.0], [1.0]])
    k = np.exp(-0.5)
    for options in ({"C": 4.0}, {"C": 4.0, "solver": "cg"}, {"C": [4.0]}):
        model = LSSVC(gamma=0.5, **options).fit(X, ["a", "b"])
        beta = 1 / (1.25 - k)
        assert_allclose(model.dual_coef_, [[-beta, beta]])
        assert_allclose(model.intercept_, 0.0, atol=1e-12)
        assert_allclose(model.decision_function(X), [-beta * (1 - k), beta * (1 - k)])
        assert_allclose(model.objective_, beta)
    # without the other row the model is that row's label: residuals are +-2
    left_out = LSSVC("loo", gamma=0.5).fit(X, ["a", "b"])
    assert_allclose(left_out.loo_residuals_, [-2.0, 2.0])


def test_many_classes_of_two_rows():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) // 2
    model = LSSVC(100.0, gamma=1e3, calibrate=True).fit(X, y)
    assert model.dual_coef_.shape == (20, 40)
    assert model.score(X, y) == 1.0
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("options", [{}, {"solver": "cg"}, {"C": [1.0]}], ids=str)
def test_weights_of_very_different_size(options):
    weight = 10.0 ** np.random.default_rng(0).uniform(-8, 4, size=M)
    model = LSSVR(gamma=0.5, **options).fit(PLAIN, LABELS, weight)
    K = np.exp(-0.5 * ((PLAIN[:, None] - PLAIN[None]) ** 2).sum(axis=2))
    beta, b = model.dual_coef_[0], model.intercept_[0]
    # C s (y - f) = beta: in residuals, which is what the weights weigh
    gap = 0.5 * np.sum(weight * (LABELS - K @ beta - b - beta / weight) ** 2)
    assert gap <= 1e-9 * model.objective_
    assert abs(beta.sum()) <= 1e-9 * np.abs(beta).sum()


def test_cg_with_numbers_that_overflow_says_what_to_do():
    rows = np.random.default_rng(0).normal(size=(12, 2))
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="a smaller C"):
        LSSVR(C=1e300, solver="cg", max_iter=30).fit(rows, 1e100 * rows[:, 0])
