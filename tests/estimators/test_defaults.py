"""What a user's first call gives: `SparseLSSVC()` and `SparseLSSVR()` without any parameter."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy import sparse
from sklearn.datasets import load_iris, make_friedman1, make_moons
from sklearn.model_selection import train_test_split

from leansvm import LSSVC, SparseLSSVC, SparseLSSVR
from leansvm.kernels import Mixture
from leansvm.learning.learn import LEARNABLE
from leansvm.probabilities import mapped

MOONS = make_moons(200, noise=0.25, random_state=0)
FRIEDMAN = make_friedman1(220, n_features=6, noise=0.5, random_state=0)
PROBLEMS = {
    "classes": (SparseLSSVC, *MOONS),
    "several classes": (SparseLSSVC, *load_iris(return_X_y=True)),
    "numbers": (SparseLSSVR, *FRIEDMAN),
}


def values(model, X):
    return model.decision_function(X) if isinstance(model, SparseLSSVC) else model.predict(X)


@cache
def fitted(estimator, name):
    """The model of all rows of a problem, fitted once: tests only look at it."""
    return estimator(random_state=0).fit(*PROBLEMS[name][1:])


@pytest.fixture(params=PROBLEMS)
def problem(request):
    """Estimator, rows, targets, and the model that is fitted to them."""
    estimator, X, y = PROBLEMS[request.param]
    return estimator, X, y, fitted(estimator, request.param)


@pytest.mark.parametrize(("name", "least"), [("classes", 0.9), ("several classes", 0.9)])
def test_classes_of_new_rows_are_found(name, least):
    estimator, X, y = PROBLEMS[name]
    X, X_new, y, y_new = train_test_split(X, y, random_state=0, stratify=y)
    model = estimator(random_state=0).fit(X, y)
    assert model.score(X_new, y_new) >= least
    assert_array_equal(model.classes_, np.unique(y))
    assert model.decision_function(X_new).shape == (len(X_new), 3)[: 1 if name == "classes" else 2]


def test_numbers_of_new_rows_are_found():
    estimator, X, y = PROBLEMS["numbers"]
    X, X_new, y, y_new = train_test_split(X, y, random_state=0)
    model = estimator(random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.9
    assert model.feature_scales_[5] < 0.5 * model.feature_scales_.max()  # y does not depend on it


def test_the_fit_chooses_kernel_scales_and_C(problem):
    estimator, X, y, model = problem
    assert (model.kernel, model.gamma, model.C, model.n_basis) == ("auto", "learn", "loo", "auto")
    assert isinstance(model.kernel_, Mixture) or model.kernel_ in LEARNABLE
    assert isinstance(model.gamma_, dict) == isinstance(model.kernel_, Mixture)
    assert model.C_ > 0 and model.fit_report_["converged"]
    assert model.loo_residuals_.shape[0] == len(X)
    # what was learned, given as parameters, is the same kernel
    gamma = "learn" if isinstance(model.kernel_, Mixture) else model.gamma_
    again = estimator(model.C_, model.kernel_, gamma=gamma, basis=model.support_)
    clip = model.clip_ or (-np.inf, np.inf)
    if np.all((clip[0] <= X) & (clip[1] >= X)):  # else tails were clipped, which gamma cannot say
        found = values(again.fit(X, y), X)
        if not isinstance(model.kernel_, Mixture):  # the name of a kernel combines no classes
            found = mapped(found, getattr(model, "class_map_", None))
        assert_allclose(found, values(model, X), rtol=1e-5, atol=1e-3 * np.std(found))


@pytest.mark.parametrize("given", [{"kernel": "rbf"}, {"gamma": 0.1}, {"calibrate": False}])
def test_only_learned_mixtures_combine_the_functions_of_several_classes(given):
    _, X, y = PROBLEMS["several classes"]
    model = SparseLSSVC(10.0, basis="all", **given).fit(X, y)
    assert not hasattr(model, "class_map_")
    if "gamma" in given:
        exact = LSSVC(10.0, **given).fit(X, y)
        assert_allclose(model.decision_function(X), exact.decision_function(X), atol=1e-6)


def test_the_class_map_is_part_of_the_coefficients():
    _, X, y = PROBLEMS["several classes"]
    model = SparseLSSVC(random_state=0).fit(X, y)
    plain = SparseLSSVC(random_state=0, calibrate=False).fit(X, y)
    if model.support_.tolist() == plain.support_.tolist():
        expected = mapped(values(plain, X), model.class_map_)
        assert_allclose(values(model, X), expected, atol=1e-6)
    assert model.class_map_.shape == (4, 3)


def test_the_same_call_gives_the_same_model(problem):
    estimator, X, y, first = problem
    second = estimator(random_state=0).fit(X, y)
    assert_array_equal(first.dual_coef_, second.dual_coef_)
    assert first.kernel_ == second.kernel_
    assert_equal(first.gamma_, second.gamma_)


def test_weights_count_like_copies(problem):
    estimator, X, y, _ = problem
    counts = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = estimator(random_state=0).fit(X, y, sample_weight=counts)
    rows = np.repeat(np.arange(len(X)), counts)
    copies = estimator(random_state=0).fit(X[rows], y[rows])
    spread = values(copies, X).std()
    assert_allclose(values(weighted, X), values(copies, X), atol=1e-2 * spread)


def test_float32_rows_give_nearly_the_same_model(problem):
    estimator, X, y, double = problem
    single = estimator(random_state=0).fit(X.astype(np.float32), y)
    assert single.support_vectors_.dtype == np.float32
    assert values(single, X.astype(np.float32)).dtype == np.float32
    difference = values(single, X.astype(np.float32)) - values(double, X)
    assert np.abs(difference).max() < 0.05 * values(double, X).std()


def test_sparse_rows_are_taken(problem):
    estimator, X, y, _ = problem
    model = estimator(random_state=0).fit(sparse.csr_array(X), y)
    assert sparse.issparse(model.support_vectors_)
    assert_allclose(values(model, sparse.csr_array(X)), values(model, X), rtol=1e-8, atol=1e-8)
    assert model.score(sparse.csr_array(X), y) > 0.9


def test_thousands_of_rows_get_as_many_points_as_they_need():
    """Sizes of more than 5,000 rows are judged by some of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(6000, 2))
    y = np.sin(5 * X[:, 0]) * np.cos(5 * X[:, 1]) + 0.1 * rng.normal(size=6000)
    model = SparseLSSVR(kernel="rbf", gamma=4.0, random_state=0).fit(X[:5500], y[:5500])
    assert model.n_support_ > 150 and model.score(X[5500:], y[5500:]) > 0.95


@pytest.mark.parametrize(("rows", "columns"), [(8, 2), (8, 3), (12, 1)])
def test_a_straight_line_in_a_handful_of_rows_is_found(rows, columns):
    scores = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(rows + 300, columns))
        y = X @ rng.normal(size=columns)
        y += 0.05 * y.std() * rng.normal(size=len(y))
        model = SparseLSSVR(random_state=0).fit(X[:rows], y[:rows])
        scores.append(model.score(X[rows:], y[rows:]))
    assert np.median(scores) > 0.98
