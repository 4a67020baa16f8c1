"""ReducedSVC and ReducedSVR: identities with other models, extreme input, messages, the paper."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from leansvm import ReducedSVC, ReducedSVR
from leansvm.datasets import make_checkerboard
from leansvm.kernels import Kernel
from leansvm.losses import SquaredHinge, SymmetricHuber
from leansvm.model_selection import c_path
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR
from tests.versions import needs_callbacks

SELECTORS = ["random", "pivoted-cholesky", "random-pivoted-cholesky", "backfitting", "forward"]
SELECTORS += ["csi", "sparse-greedy", "entropy"]


@pytest.fixture(scope="module")
def moons():
    return make_moons(300, noise=0.15, random_state=0)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:500], y[:500]


# ---------------------------------------------------------------------------- identities


@pytest.mark.parametrize("bias", [{}, {"bias_penalty": 2.0}, {"fit_intercept": False}])
def test_squared_loss_is_the_sparse_lssvm(moons, bias):
    X, y = moons
    rows = np.arange(0, 300, 10)
    weight = np.linspace(0.5, 2.0, 300)
    sparse_model = PlainSparseLSSVC(10.0, basis=rows, **bias).fit(X, y, sample_weight=weight)
    reduced = PlainReducedSVC(10.0, loss="squared", basis=rows, **bias)
    reduced.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        reduced.decision_function(X), sparse_model.decision_function(X), atol=1e-8
    )
    assert reduced.objective_ == pytest.approx(sparse_model.objective_, rel=1e-9)
    target = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1)
    one = PlainSparseLSSVR(10.0, basis=rows, **bias).fit(X, target)
    other = ReducedSVR(10.0, loss="squared", basis=rows, **bias).fit(X, target)
    np.testing.assert_allclose(other.predict(X), one.predict(X), atol=1e-8)


def test_all_rows_and_coefficient_norm_are_the_proximal_svm(moons):
    X, y = moons
    C, K = 3.0, Kernel("rbf", gamma=1.0).block(X, X)
    model = PlainReducedSVC(
        C, loss="squared", regularizer="coef", basis="all", gamma=1.0, fit_intercept=False
    ).fit(X, y)
    # zhou2013, (12), (13)
    beta = np.linalg.solve(K @ K + np.eye(300) / C, K @ np.where(y == 1, 1.0, -1.0))
    np.testing.assert_allclose(model.decision_function(X), K @ beta, atol=1e-8)


def test_logistic_loss_is_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X @ [1.0, -2.0, 0.5] + rng.logistic(size=200) > 0).astype(int)
    ours = ReducedSVC(1.0, "linear", basis="all", tol=1e-10, calibrate=False).fit(X, y)
    theirs = LogisticRegression(C=1.0, tol=1e-10).fit(X, y)
    for method in ("decision_function", "predict_proba"):
        expected = getattr(theirs, method)(X)
        np.testing.assert_allclose(getattr(ours, method)(X), expected, atol=1e-6)
    # a number p gives the smooth hinge of the paper: slack 1 - y f instead of -y f
    hinge = ReducedSVC(1.0, "linear", p=1.0, basis="all").fit(X, y)
    cosine = np.corrcoef(hinge.decision_function(X), theirs.decision_function(X))[0, 1]
    assert 0.999 < cosine < 1.0 - 1e-6


def test_classes_share_everything_but_the_solution(digits):
    X, y = digits
    rows = np.arange(0, 500, 10)
    together = PlainReducedSVC(10.0, basis=rows).fit(X, y)
    assert together.dual_coef_.shape == (10, 50) and together.intercept_.shape == (10,)
    for k in (0, 7):
        alone = PlainReducedSVC(10.0, basis=rows).fit(X, y == k)
        np.testing.assert_allclose(
            together.decision_function(X)[:, k], alone.decision_function(X), atol=1e-6
        )
    few = PlainReducedSVC(10.0, basis=rows, cache_size=0.15).fit(X, y)  # groups, kernel recomputed
    assert not few.fit_report_["kernel_kept"]
    np.testing.assert_allclose(few.decision_function(X), together.decision_function(X), atol=1e-6)


def test_precomputed_kernel_is_the_kernel(moons):
    X, y = moons
    K = Kernel("rbf", gamma=2.0).block(X, X)
    for regularizer in ("rkhs", "coef"):
        for basis in ("random", "forward"):
            options = {"regularizer": regularizer, "basis": basis, "n_basis": 20}
            other = PlainReducedSVC(5.0, "precomputed", random_state=0, **options).fit(K, y)
            if basis == "random":  # drawn by their places, which K has, or by their values
                options["basis"] = other.support_
            one = PlainReducedSVC(5.0, gamma=2.0, random_state=0, **options).fit(X, y)
            assert set(one.support_) == set(other.support_)
            np.testing.assert_allclose(
                other.decision_function(K), one.decision_function(X), atol=1e-6
            )
    assert other.support_vectors_.size == 0


@pytest.mark.parametrize("basis", SELECTORS)
@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
def test_every_selector_works(moons, basis, regularizer):
    X, y = moons
    model = PlainReducedSVC(10.0, basis=basis, regularizer=regularizer, n_basis=25, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) > 0.93 and model.n_support_ == len(model.support_) <= 25
    given = PlainReducedSVC(10.0, basis=model.support_, regularizer=regularizer).fit(X, y)
    np.testing.assert_allclose(given.decision_function(X), model.decision_function(X), atol=1e-5)


def test_points_as_basis(moons):
    X, y = moons
    by_rows = PlainReducedSVC(basis=np.arange(20)).fit(X, y)
    by_points = PlainReducedSVC(basis=X[:20]).fit(X, y)
    np.testing.assert_allclose(by_rows.dual_coef_, by_points.dual_coef_)
    assert np.all(by_points.support_ == -1)


# ---------------------------------------------------------------------------- input


@pytest.mark.parametrize("loss", ["squared_hinge", "huber", "logistic"])
@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
def test_extreme_input(loss, regularizer):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(40, 3)), 3, axis=0)
    X[:, 2] = 7.0
    y = np.repeat(rng.integers(0, 2, 40), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for C in (1e-6, 1e6):
            for gamma in (1e-8, 1e8):
                model = PlainReducedSVC(
                    C, gamma=gamma, loss=loss, regularizer=regularizer, n_basis=60, random_state=0
                ).fit(X, y)
                assert np.isfinite(model.decision_function(X)).all()
                assert model.fit_report_["gap"] < 1e-5


def test_one_sample_per_class():
    model = PlainReducedSVC(n_basis=2).fit([[0.0], [1.0]], ["a", "b"])
    assert list(model.predict([[0.1], [0.9]])) == ["a", "b"]


@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
def test_sparse_and_float32_rows(digits, regularizer):
    X, y = digits
    options = {"n_basis": 40, "random_state": 0, "regularizer": regularizer}
    dense = PlainReducedSVC(10.0, **options).fit(X, y)
    csr = PlainReducedSVC(10.0, **options).fit(sparse.csr_matrix(X), y)
    single = PlainReducedSVC(10.0, **options).fit(X.astype(np.float32), y)
    values = dense.decision_function(X)
    np.testing.assert_allclose(csr.decision_function(sparse.csr_matrix(X)), values, atol=1e-6)
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.decision_function(X.astype(np.float32)), values, atol=5e-3)


def test_weights_are_repetitions_and_classes_can_be_balanced(moons):
    X, y = moons
    counts = np.random.default_rng(0).integers(0, 3, size=300)
    rows = np.repeat(np.arange(300), counts)
    basis = X[:25]
    one = PlainReducedSVC(gamma=1.0, basis=basis).fit(X, y, sample_weight=counts)
    other = PlainReducedSVC(gamma=1.0, basis=basis).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-7)
    X, y = X[:180], np.where(np.arange(180) < 150, 0, y[:180])
    share = [PlainReducedSVC(class_weight=w, basis=X[:20]).fit(X, y).predict(X).mean()
             for w in (None, "balanced")]  # fmt: skip
    assert share[0] < share[1]


@pytest.mark.parametrize("C", [3.0, "loo"])
def test_rows_of_no_weight_are_no_functions_of_all_rows(moons, C):
    X, y = moons
    weight = np.arange(300) % 4 * 1.0
    model = PlainReducedSVC(C, loss="squared", regularizer="coef", basis="all", gamma=1.0)
    one = clone(model).fit(X, y, sample_weight=weight)
    other = model.fit(X[weight > 0], y[weight > 0], sample_weight=weight[weight > 0])
    assert one.n_support_ == 225
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-7)


# ---------------------------------------------------------------------------- what comes with it


def test_automatic_size_stops_where_the_left_out_loss_is_flat():
    X, y = make_moons(1500, noise=0.2, random_state=0)
    model = PlainReducedSVC(10.0, random_state=0).fit(X, y)
    assert 50 <= model.n_support_ <= 400 and model.score(X, y) > 0.95


@pytest.mark.parametrize("C", [10.0, [10.0]])
def test_automatic_size_stops_for_selectors_that_choose_anew_at_every_size(C):
    X, y = make_moons(1600, noise=0.3, random_state=0)
    model = PlainReducedSVC(C, basis="pivoted-cholesky", n_basis="auto").fit(X, y)
    assert model.n_support_ <= 100  # of 1600, as with points drawn at random
    nested = PlainReducedSVC(C, n_basis="auto", random_state=0).fit(X, y)
    assert nested.n_support_ <= 100


def test_probabilities_rest_on_left_out_decisions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] + rng.logistic(size=400) > 0).astype(int)
    model = PlainReducedSVC(1e3, gamma=0.5, n_basis=150, calibrate=True, random_state=0).fit(
        X[:300], y[:300]
    )
    p = model.predict_proba(X[300:])
    assert np.array_equal(model.classes_[p.argmax(axis=1)], model.predict(X[300:]))
    # an overfitted machine is not sure of itself
    log_loss = -np.mean(np.log(p[np.arange(100), y[300:]]))
    plain = 1 / (1 + np.exp(-2 * model.decision_function(X[300:]) * (2 * y[300:] - 1)))
    assert log_loss < -np.mean(np.log(plain))
    with pytest.raises(AttributeError, match="predict_proba needs calibrate=True"):
        PlainReducedSVC(calibrate=False).fit(X, y).predict_proba  # noqa: B018


def test_logistic_loss_gives_probabilities_by_itself():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    truth = 1 / (1 + np.exp(-2 * X[:, 0]))
    y = (rng.random(1500) < truth).astype(int)
    model = PlainReducedSVC(loss="logistic", n_basis=40, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.abs(p[:, 1] - truth).mean() < 0.05
    assert np.array_equal(p.argmax(axis=1), model.predict(X))
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(p), atol=1e-9)
    three = PlainReducedSVC(loss="logistic", n_basis=40, random_state=0).fit(X, y + (X[:, 1] > 1))
    p = three.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(p.argmax(axis=1), three.predict(X))
    hinge = PlainReducedSVC(calibrate=False, loss="squared_hinge").fit(X[:50], y[:50])
    assert not hasattr(hinge, "predict_proba")


def test_C_is_chosen_where_left_out_rows_lose_least(moons):
    X, y = moons
    model = PlainReducedSVC(n_basis=40, random_state=0).fit(X, y)
    candidates = np.logspace(-6, 7, 27)
    assert model.cv_curve_.shape == (27,) and 3 <= np.isfinite(model.cv_curve_).sum() < 27
    at = np.flatnonzero(candidates == model.C_)[0]  # the first that is not clearly worse
    assert model.cv_curve_[at] <= 1.002 * np.nanmin(model.cv_curve_)
    same = PlainReducedSVC(model.C_, n_basis=40, random_state=0).fit(X, y)
    np.testing.assert_allclose(same.decision_function(X), model.decision_function(X), atol=1e-5)
    assert not hasattr(same, "cv_curve_") and model.loo_residuals_.shape == (300,)
    # a list in any order, all of whose members are near the best
    some = PlainReducedSVC([10.0, 0.1, 1.0], n_basis=40, random_state=0).fit(X, y)
    assert some.cv_curve_[[10.0, 0.1, 1.0].index(some.C_)] <= 1.002 * np.nanmin(some.cv_curve_)
    assert not hasattr(some, "loo_residuals_")


def test_chosen_C_is_as_good_as_the_best():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = X[:900], X[900:], y[:900], y[900:]
    chosen = PlainReducedSVC(n_basis=150, random_state=0).fit(X, y).score(X_test, y_test)
    scores = [
        PlainReducedSVC(C, n_basis=150, random_state=0).fit(X, y).score(X_test, y_test)
        for C in (0.1, 1.0, 10.0, 100.0)
    ]
    assert chosen > max(scores) - 0.01


def test_one_row_cannot_be_left_out():
    with pytest.raises(ValueError, match="give C as a number"):
        ReducedSVR().fit([[1.0], [1.0]], [2.0, 2.0])


def test_path_of_C_equals_single_fits(moons):
    X, y = moons
    estimator = PlainReducedSVC(basis="random", n_basis=30, random_state=0)
    path = c_path(estimator, X, y, [10.0, 0.1, 100.0], X_score=X, y_score=y)
    assert list(path.C) == [10.0, 0.1, 100.0] == [model.C for model in path.models]
    for C, model, objective, score in zip(
        path.C, path.models, path.objective, path.score, strict=True
    ):
        single = clone(estimator).set_params(C=C).fit(X, y)
        assert objective == pytest.approx(single.objective_, rel=1e-7)
        np.testing.assert_allclose(model.dual_coef_, single.dual_coef_, rtol=1e-3, atol=1e-6)
        assert score == model.score(X, y) == single.score(X, y)
    assert not hasattr(estimator, "support_")
    regressors = c_path(ReducedSVR(n_basis=20, random_state=0), X, X[:, 0], [1.0, 10.0])
    assert regressors.score is None and np.all(regressors.gap < 1e-6)


@needs_callbacks
def test_progress_bar(moons, capsys):
    from sklearn.callback import ProgressBar

    model = PlainReducedSVC(1.0, loss="huber", n_basis=20, random_state=0)
    model.set_callbacks(ProgressBar()).fit(*moons)
    assert "ReducedSVC - fit" in capsys.readouterr().out


def test_report_and_pickle(moons):
    X, y = moons
    model = PlainReducedSVC(1.0, loss="huber", n_basis=20, random_state=0).fit(X, y)
    report = model.fit_report_
    assert report["converged"] and report["iterations"] == model.n_iter_ and report["bytes"] > 0
    (history,) = report["history"]
    assert {len(values) for values in history.values()} == {model.n_iter_}
    assert history["objective"][-1] == pytest.approx(model.objective_)
    again = pickle.loads(pickle.dumps(PlainReducedSVC(n_basis=20, random_state=0).fit(X, y)))
    assert again.score(X, y) > 0.9


def test_search_reaches_selector_parameters(moons):
    X, y = moons
    from leansvm.basis import ForwardSelection

    grid = {"basis__n_candidates": [5, 20], "regularizer": ["rkhs", "coef"]}
    machine = PlainReducedSVC(basis=ForwardSelection(), n_basis=8)
    search = GridSearchCV(machine, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.8


def test_own_loss_object(moons):
    X, y = moons

    class Softer(SquaredHinge):
        """Half of the squared hinge."""

        max_curvature = 0.5

        def value(self, u):
            return 0.5 * super().value(u)

        def derivative(self, u):
            return 0.5 * super().derivative(u)

        def second_derivative(self, u):
            return 0.5 * super().second_derivative(u)

        def conjugate(self, v):
            return v * v

    one = PlainReducedSVC(2.0, loss=Softer(), n_basis=20, random_state=0).fit(X, y)
    other = PlainReducedSVC(1.0, n_basis=20, random_state=0).fit(X, y)
    np.testing.assert_allclose(one.dual_coef_, other.dual_coef_, rtol=1e-6)
    assert one.fit_report_["gap"] < 1e-6


# ---------------------------------------------------------------------------- messages


class NoCurvature:
    def value(self, u):
        return np.abs(u)

    def derivative(self, u):
        return np.sign(u)


class WrongDomain(SquaredHinge):
    """Its domain is the default, (0, 1), but its derivative grows without limit."""

    domain = (0.0, 1.0)

    def derivative(self, u):
        return np.clip(u, 0, None)

    def value(self, u):
        return 0.5 * np.clip(u, 0, None) ** 2

    def second_derivative(self, u):
        return np.where(u > 0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "hinge"}, "lacks a second derivative. Use 'huber'"),
        ({"loss": NoCurvature()}, "lacks second_derivative, conjugate"),
        ({"loss": "cubic"}, "loss must be one of 'squared_hinge'"),
        ({"loss": SquaredHinge}, "got the class SquaredHinge: add ()"),
        ({"loss": WrongDomain()}, "WrongDomain: the derivative is 5 at u = 5, outside domain"),
        ({"C": 0.0}, "'C' parameter"),
        ({"C": -1.0}, "'C' parameter"),
        ({"C": np.inf}, "'C' parameter"),
        ({"C": 1e-310}, "so must 1 / C"),
        ({"C": [1.0, -2.0]}, "C must be a number > 0, a list of them or 'loo', got"),
        ({"C": "kfold"}, "'C' parameter"),
        ({"regularizer": "l1"}, "'regularizer' parameter"),
        ({"loss": "huber", "delta": -1.0}, "'delta' parameter"),
        ({"basis": "best"}, "basis must be one of"),
        (
            {"kernel": "precomputed", "basis": np.zeros((2, 300))},
            "precomputed.*row numbers instead",
        ),
    ],
)
def test_bad_combinations_say_what_is_missing(parameters, message):
    rng = np.random.default_rng(0)
    K = np.exp(-np.square(rng.normal(size=300)[:, None] - rng.normal(size=300)) * 0)
    X = K if parameters.get("kernel") == "precomputed" else rng.normal(size=(300, 2))
    y = rng.integers(0, 2, 300)
    with pytest.raises(ValueError, match=message):
        PlainReducedSVC(**parameters).fit(X, y)


def test_regression_wants_a_symmetric_loss(moons):
    X, y = moons
    with pytest.raises(ValueError, match="SquaredHinge has symmetric = False"):
        ReducedSVR(loss=SquaredHinge()).fit(X, y)
    with pytest.raises(ValueError, match="one of 'huber', 'squared'"):
        ReducedSVR(loss="logistic").fit(X, y)
    assert ReducedSVR(loss=SymmetricHuber(0.1), n_basis=20).fit(X, X[:, 0]).score(X, X[:, 0]) > 0.5


def test_path_says_what_it_needs(moons):
    X, y = moons
    with pytest.raises(ValueError, match="set it to a number"):
        c_path(PlainReducedSVC(), X, y, [1.0])
    with pytest.raises(ValueError, match="C must hold finite numbers"):
        c_path(PlainReducedSVC(n_basis=10), X, y, [1.0, 0.0])
    for model in c_path(PlainReducedSVC(n_basis=10), X, y, [1.0]).models:
        assert not hasattr(model, "predict_proba")


def test_budget_and_convergence(moons):
    X, y = moons
    with pytest.raises(
        MemoryError, match=r"A basis of 300 points .* needs .* n_basis=\d+ or fewer"
    ):
        PlainReducedSVC(basis="all", regularizer="coef", cache_size=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="Newton's method ended after 1 iterations"):
        PlainReducedSVC(100.0, n_basis=50, max_iter=1, random_state=0).fit(X, y)


# ---------------------------------------------------------------------------- the paper


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regularizer", "error", "low"), [("rkhs", (0.08, 0.04), 2398), ("coef", (0.03, 0.02), 1316)]
)
def test_checkerboard(regularizer, error, low):
    """zhou2013, Table 2: m = 25,000, r = 1,000, lambda = 0.1, squared hinge."""
    X, y = make_checkerboard()
    order = np.random.default_rng(1).permutation(40_000)
    train, test = order[:25_000], order[25_000:]
    model = PlainReducedSVC(
        10.0, regularizer=regularizer, gamma=0.001, fit_intercept=False, n_basis=1000,
        random_state=0,
    ).fit(X[train], y[train])  # fmt: skip
    mean, std = error
    assert 100 * (1 - model.score(X[test], y[test])) <= mean + 2 * std
    assert 12 <= model.n_iter_ <= 18
    confident = y[train] * model.decision_function(X[train])
    assert np.sum(confident < 1) == pytest.approx(low, rel=0.08)
