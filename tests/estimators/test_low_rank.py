"""LowRankLSSVC and LowRankLSSVR: invariants, extreme input, readable models, tools."""

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    make_blobs,
    make_moons,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from leansvm import LowRankLSSVC, LowRankLSSVR
from leansvm.estimators import low_rank as estimators
from leansvm.low_rank import BasisFunction
from leansvm.low_rank import start as low_rank_start
from tests.loops import case
from tests.versions import needs_callbacks

rng = np.random.default_rng(4)
X = rng.normal(size=(120, 3))
LABELS = np.where(X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=120) > 0, "up", "down")
THREE = np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])
TARGET = np.sin(2 * X[:, 0]) + np.abs(X[:, 1])
FUNCTIONS = ["robust-rbf", "simplex", "rbf"]
UNCONVERGED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
OBJECTIVES = ["loss", "abs", "target", "squared"]


# ---------------------------------------------------------------------------- as good as the peers


def test_accuracy_of_real_data_is_near_that_of_svc():
    for load in (load_iris, load_breast_cancer):
        data, y = load(return_X_y=True)
        ours = cross_val_score(
            make_pipeline(StandardScaler(), LowRankLSSVC(n_basis=5)), data, y, cv=4
        )
        theirs = cross_val_score(make_pipeline(StandardScaler(), SVC()), data, y, cv=4)
        assert ours.mean() > theirs.mean() - 0.03


def test_regression_beats_the_functions_at_their_start():
    data, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    learned, held = (
        cross_val_score(
            make_pipeline(StandardScaler(), LowRankLSSVR(n_basis=5, anchor=anchor)), data, y, cv=4
        )
        for anchor in (1.0, 1e9)
    )
    assert learned.mean() > max(0.42, held.mean() + 0.1)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_defaults_learn_a_problem_that_no_line_solves(objective):
    model = LowRankLSSVC(objective=objective, n_basis=6).fit(X, LABELS)
    assert LinearSVC().fit(X, LABELS).score(X, LABELS) < 0.65
    assert model.score(X, LABELS) > 0.8
    assert set(model.fit_report_["curve"]) == (
        {"objective", "loo"} if objective == "loss" else {"objective", "loo", "criterion"}
    )
    assert len(model.fit_report_["curve"]["objective"]) == model.n_iter_ + 1


# ---------------------------------------------------------------------------- invariants


@UNCONVERGED
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("iterate", ["best", "last"])
def test_weights_are_repetitions(objective, iterate):
    copies = np.random.default_rng(0).integers(0, 3, size=120)
    model = LowRankLSSVC(n_basis=5, objective=objective, iterate=iterate, max_iter=20, tol=0.0)
    weighted = clone(model).fit(X, LABELS, sample_weight=copies)
    repeated = clone(model).fit(np.repeat(X, copies, axis=0), np.repeat(LABELS, copies))
    assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), rtol=1e-9, atol=1e-9
    )


@UNCONVERGED
def test_small_weights_and_a_large_C_change_nothing():
    x, small = np.sort(X, axis=0)[:, :1], np.full(len(X), 2.0**-10)  # in all less than one row
    for machine, y in ((LowRankLSSVR, np.sin(5 * x[:, 0])), (LowRankLSSVC, LABELS)):
        model = machine(10.0, 6, max_iter=30, tol=1e-3).fit(x, y)
        scaled = machine(10.0 * 2**10, 6, max_iter=30, tol=1e-3).fit(x, y, sample_weight=small)
        assert_allclose(scaled.shapes_, model.shapes_, rtol=1e-6)
        assert_allclose(scaled.coef_, model.coef_, rtol=1e-6)


@UNCONVERGED
@pytest.mark.parametrize("objective", ["loss", "abs"])
@pytest.mark.parametrize("loo", [False, True])
def test_many_rows_are_left_in_place_with_the_same_result(monkeypatch, objective, loo):
    twice, labels = np.vstack([X, X]), np.concatenate([LABELS, LABELS])
    model = LowRankLSSVC("loo" if loo else 1.0, 5, objective=objective, function="rbf", max_iter=5)
    copied = clone(model).fit(twice, labels)
    monkeypatch.setattr(estimators, "ORDERED_ROWS", 10)
    in_place = clone(model).fit(twice, labels)
    assert_allclose(copied.decision_function(X), in_place.decision_function(X), atol=1e-6)
    if loo:
        assert_allclose(copied.loo_residuals_, in_place.loo_residuals_, atol=1e-6)


def test_order_of_rows_and_threads_change_nothing():
    order = np.random.default_rng(1).permutation(120)
    model = LowRankLSSVC().fit(X, LABELS)
    shuffled = LowRankLSSVC().fit(X[order], LABELS[order])
    assert_allclose(model.decision_function(X), shuffled.decision_function(X), atol=1e-12)
    many = np.random.default_rng(1).normal(size=(4000, 40))  # more than one tile
    y = many[:, 0] > np.abs(many[:, 1])
    values = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            fitted = LowRankLSSVC(n_basis=10, max_iter=5, tol=0.1, random_state=0).fit(many, y)
        values.append(fitted.decision_function(many))
    assert_array_equal(*values)


@UNCONVERGED
@pytest.mark.parametrize("function", FUNCTIONS)
def test_units_of_features_change_nothing_given_the_centres(function):
    units, start = 2.0 ** np.array([-13, 0, 17]), X[:4] + 0.013  # away from kinks
    model = LowRankLSSVC(function=function, init=start, max_iter=5)
    scaled = LowRankLSSVC(function=function, init=start * units, max_iter=5)
    first = model.fit(X, LABELS).decision_function(X)
    assert_allclose(scaled.fit(X * units, LABELS).decision_function(X * units), first, atol=1e-6)


@UNCONVERGED
def test_csr_and_float32_agree_with_dense_float64():
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((200, 5)) < 0.5, 0.0, rng.normal(size=(200, 5)))
    y = rows[:, 0] > rows[:, 1]
    dense = LowRankLSSVC(n_basis=5, max_iter=5, tol=1e-2).fit(rows, y)
    csr = LowRankLSSVC(n_basis=5, max_iter=5, tol=1e-2).fit(sparse.csr_matrix(rows), y)
    assert_allclose(
        csr.decision_function(sparse.csr_matrix(rows)), dense.decision_function(rows), atol=1e-9
    )
    single = LowRankLSSVC(n_basis=5, max_iter=5, tol=1e-2).fit(rows.astype(np.float32), y)
    values = single.decision_function(rows.astype(np.float32))
    assert values.dtype == np.float32 and single.coef_.dtype == np.float64
    assert np.mean(single.predict(rows.astype(np.float32)) == dense.predict(rows)) > 0.97


def test_multiclass_and_many_targets_share_the_functions():
    model = LowRankLSSVC(n_basis=4).fit(X, THREE)
    assert model.coef_.shape == (3, 4) and model.decision_function(X).shape == (120, 3)
    assert_allclose(model.decision_function(X).sum(axis=1), -1.0, atol=1e-8)  # targets add to -1
    assert model.score(X, THREE) > 0.8
    regressor = LowRankLSSVR(n_basis=4).fit(X, np.stack([TARGET, -TARGET], axis=1))
    assert_allclose(regressor.predict(X).sum(axis=1), 0.0, atol=1e-9)


def test_one_output_of_a_regressor_is_a_classifier_with_targets_of_one():
    signs = np.where(LABELS == "up", 1.0, -1.0)
    classifier = LowRankLSSVC().fit(X, LABELS)
    assert_allclose(
        LowRankLSSVR().fit(X, signs).predict(X), classifier.decision_function(X), atol=1e-10
    )


def test_given_functions_and_no_learning_is_ridge_on_them():
    model = LowRankLSSVC(3.0, init=X[:5], shape_init=0.3, anchor=1e12, iterate="last")
    model.fit(X, LABELS)
    assert_allclose(model.centers_, X[:5], atol=1e-9)
    Phi = np.exp(-0.3 * np.abs(X[:, None] - X[:5]).sum(axis=2))
    e = np.where(LABELS == "up", 1.0, -1.0) - Phi @ model.coef_[0] - model.intercept_[0]
    assert_allclose(model.coef_[0], 3.0 * Phi.T @ e, atol=1e-6)
    assert_allclose(e.sum(), 0.0, atol=1e-9)
    assert_allclose(model.objective_, 0.5 * np.sum(model.coef_**2) + 1.5 * np.sum(e**2))


@pytest.mark.parametrize("C", ["gcv", "loo", [0.1, 10.0]])
def test_C_is_chosen(C):
    model = LowRankLSSVC(C, 5).fit(X, LABELS)
    candidates = np.logspace(-6, 7, 50) if isinstance(C, str) else C
    assert candidates[int(np.argmin(model.cv_curve_))] == model.C_
    assert hasattr(model, "loo_residuals_") == (C == "loo")


def test_left_out_residuals_are_those_of_refitted_weights():
    model = LowRankLSSVC("loo", 4).fit(X, LABELS)
    signs = np.where(LABELS == "up", 1.0, -1.0)
    for i in (0, 17, 63):
        others = np.arange(120) != i
        Phi = model.function_.values(X, model.centers_, model.shapes_)
        A = np.column_stack([Phi[others], np.ones(119)])
        ridge = np.diag([1.0 / model.C_] * 4 + [0.0])
        solution = np.linalg.solve(A.T @ A + ridge, A.T @ signs[others])
        left_out = signs[i] - np.append(Phi[i], 1.0) @ solution
        assert_allclose(model.loo_residuals_[i], left_out, rtol=1e-6)


def test_more_starts_do_not_raise_the_left_out_error():
    one = LowRankLSSVC(n_basis=5, random_state=0).fit(X, LABELS)
    many = LowRankLSSVC(n_basis=5, n_init=5, random_state=0).fit(X, LABELS)
    assert many.fit_report_["curve"]["loo"].min() <= one.fit_report_["curve"]["loo"].min()


# ---------------------------------------------------------------------------- how many functions


def test_the_number_of_functions_follows_the_classes_and_the_error():
    blobs, labels = make_blobs(600, centers=8, cluster_std=0.4, random_state=0)
    model = LowRankLSSVC(random_state=0).fit(blobs, labels)
    sizes, errors = (model.fit_report_[name] for name in ("sizes", "size_errors"))
    assert sizes[0] == 8 and len(model.centers_) in sizes and len(sizes) == len(errors)
    assert model.score(blobs, labels) > 0.97
    waves = np.linspace(-3, 3, 300)[:, None]
    few = LowRankLSSVR().fit(waves, np.exp(-np.abs(waves[:, 0])))
    many = LowRankLSSVR().fit(waves, np.sin(6 * waves[:, 0]))
    assert len(few.centers_) == 5 and len(many.centers_) >= 20


def test_noise_is_not_given_more_functions():
    noise = np.random.default_rng(1).integers(0, 2, size=400)
    model = LowRankLSSVC().fit(np.random.default_rng(0).normal(size=(400, 3)), noise)
    assert len(model.centers_) == 5


@UNCONVERGED
@pytest.mark.parametrize(("cache_size", "largest"), [(33, 5), (38, 10)])
def test_sizes_that_do_not_fit_in_the_budget_are_not_tried(cache_size, largest):
    rows = np.random.default_rng(0).normal(size=(3000, 2))
    model = LowRankLSSVC(max_iter=3, cache_size=cache_size, tol=0.1)
    model.fit(rows, rows[:, 0] * rows[:, 1] > 0)
    assert max(model.fit_report_.get("sizes", [5])) == largest
    assert model.fit_report_["bytes"] <= 2**20 * cache_size


@UNCONVERGED
def test_growing_beats_a_start_at_the_medoids():
    rows = np.random.default_rng(0).normal(size=(600, 6))
    y = np.sin(2 * rows[:, 0]) + rows[:, 1] * rows[:, 2]
    errors = [
        LowRankLSSVR(n_basis=20, init=init, max_iter=60, tol=1e-4, random_state=0)
        .fit(rows, y)
        .fit_report_["curve"]["loo"]
        .min()
        for init in ("auto", "medoids")
    ]
    assert errors[0] < 0.7 * errors[1]


# ---------------------------------------------------------------------------- extreme input


@pytest.mark.parametrize("objective", OBJECTIVES)
@UNCONVERGED
def test_extreme_C(objective):
    for function, C in product(FUNCTIONS, [1e-6, 1e7, 1e15]):
        with case(function=function, C=C):
            model = LowRankLSSVC(C, 5, objective=objective, function=function, max_iter=15)
            assert np.isfinite(model.fit(X, LABELS).decision_function(X)).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("shape", [1e-9, 1e9])
@UNCONVERGED
def test_extreme_shapes(objective, shape):
    for function in FUNCTIONS:
        model = LowRankLSSVC(
            n_basis=5, objective=objective, function=function, shape_init=shape, max_iter=10
        ).fit(X, LABELS)
        assert np.isfinite(model.decision_function(X)).all()


@UNCONVERGED
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_tiny_and_huge_features(scale):
    for function in FUNCTIONS:
        model = LowRankLSSVC(function=function, max_iter=10, tol=1e-2).fit(X * scale, LABELS)
        assert np.isfinite(model.decision_function(X * scale)).all()


def test_constant_columns_duplicates_and_one_sample_a_class():
    rows = np.column_stack([X, np.full(120, 7.0), np.zeros(120)])
    rows = np.vstack([rows, rows, rows])
    labels = np.tile(LABELS, 3)
    model = LowRankLSSVC(n_basis=8).fit(rows, labels)
    assert model.score(rows, labels) > 0.8
    pair = LowRankLSSVC(n_basis=2).fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    assert_array_equal(pair.predict([[0.0, 1.0], [1.0, 0.0]]), ["a", "b"])
    same = LowRankLSSVC(n_basis=2).fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])
    assert_allclose(same.decision_function(np.ones((1, 2))), 0.0, atol=1e-9)
    with pytest.warns(UserWarning, match="n_basis=5 is more than the 3 rows"):
        LowRankLSSVR(n_basis=5).fit(X[:3], TARGET[:3])
    assert LowRankLSSVR().fit(X[:3], TARGET[:3]).coef_.shape == (1, 3)


@UNCONVERGED
def test_many_functions_from_a_sample_of_rows(monkeypatch):
    monkeypatch.setattr(low_rank_start, "_MEDOID_ROWS", 20)
    rows = np.random.default_rng(1).normal(size=(300, 2))
    for init in ("auto", "medoids", "random"):
        model = LowRankLSSVC(n_basis=50, init=init, max_iter=1, random_state=0)
        model.fit(rows, rows[:, 0] > 0)
        assert model.centers_.shape == (50, 2)
        again = clone(model).fit(rows, rows[:, 0] > 0)
        assert_array_equal(model.centers_, again.centers_)


def test_every_bias():
    free, none = (
        LowRankLSSVR(n_basis=5, fit_intercept=intercept).fit(X, TARGET + 100.0)
        for intercept in (True, False)
    )
    penalised = LowRankLSSVR(n_basis=5, bias_penalty=1e8).fit(X, TARGET + 100.0)
    assert free.intercept_[0] > 50 and none.intercept_[0] == 0.0
    assert abs(penalised.intercept_[0]) < 1.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": np.zeros((2, 5))}, "init: points have 5 features, X has 3"),
        ({"C": -1.0}, "C"),
        ({"function": "cosine"}, "function"),
        ({"objective": "hinge"}, "objective"),
        ({"shape_init": 0.0}, "shape_init"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"init": [[np.nan, 0.0, 0.0]]}, "init"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        LowRankLSSVC(**parameters).fit(X, LABELS)


def test_a_fit_beyond_the_budget_is_refused_with_a_way_out():
    rows = np.zeros((50_000, 2))
    rows[:, 0] = np.arange(50_000)
    with pytest.raises(MemoryError, match=r"needs \d+\.\d MB .* fewer functions"):
        LowRankLSSVC(n_basis=8, cache_size=1).fit(rows, rows[:, 0] > 7)


def test_not_converged_warns():
    with pytest.warns(ConvergenceWarning, match="after 2 iterations"):
        model = LowRankLSSVC(n_basis=5, max_iter=2, tol=0.0).fit(X, LABELS)
    assert not model.fit_report_["converged"]


# ---------------------------------------------------------------------------- readable models


def test_describe_knows_names_classes_and_the_scaler():
    frame = pd.DataFrame(100.0 * X + 7.0, columns=["age", "height", "weight"])
    scaler = StandardScaler().fit(frame)
    model = LowRankLSSVC(n_basis=2).fit(scaler.transform(frame), LABELS)
    text = model.describe(scaler=scaler, max_features=None)
    assert "f > 0 means up, f < 0 means down" in text.splitlines()[0]
    assert all(name in text for name in frame.columns)
    strongest = int(np.abs(model.coef_[0]).argmax())
    for number in scaler.inverse_transform(model.centers_)[strongest]:
        assert f"= {number:.3g} (reach " in " ".join(text.split())
    assert "x0" in LowRankLSSVR(n_basis=2).fit(X, TARGET).describe()
    assert "age" in LowRankLSSVC(n_basis=2).fit(frame, LABELS).describe()
    with pytest.raises(ValueError, match="feature_names has 1 names"):
        model.describe(["a"])


def test_features_that_are_switched_off_are_not_listed():
    model = LowRankLSSVC(n_basis=2).fit(X, LABELS)
    model.shapes_[:, 2] = 0.0
    assert "x2" not in model.describe() and "x1" in model.describe()


def test_local_linear_model_is_the_model_around_every_row():
    model = LowRankLSSVC(n_basis=4, function="simplex").fit(X, LABELS)
    slopes, intercepts = model.local_linear_model(X)
    assert_allclose(np.sum(slopes * X, axis=1) + intercepts, model.decision_function(X), atol=1e-12)
    near = X + 1e-7 * np.random.default_rng(1).normal(size=X.shape)
    assert_allclose(
        np.sum(slopes * near, axis=1) + intercepts, model.decision_function(near), atol=1e-12
    )
    # one linear piece between two rows that share slopes and the offset
    many = LowRankLSSVC(n_basis=4, function="simplex").fit(X, THREE)
    slopes, intercepts = many.local_linear_model(X)
    assert slopes.shape == (120, 3, 3) and intercepts.shape == (120, 3)
    values = np.einsum("noi,ni->no", slopes, X) + intercepts
    assert_allclose(values, many.decision_function(X), atol=1e-12)
    at_centre = model.centers_.copy()
    slopes, intercepts = model.local_linear_model(at_centre)
    assert_allclose(
        np.sum(slopes * at_centre, axis=1) + intercepts, model.decision_function(at_centre)
    )


def test_only_simplex_models_have_local_linear_models():
    assert not hasattr(LowRankLSSVC(), "local_linear_model")
    assert hasattr(LowRankLSSVC(function="simplex"), "local_linear_model")


class Cauchy(BasisFunction):
    """phi = 1 / (1 + sum_i mu_i (x_i - c_i)^2), as a user would write it."""

    def values(self, X, centers, shapes):
        return 1.0 / (1.0 + np.sum(shapes * (X[:, None] - centers) ** 2, axis=2))

    def gradients(self, X, centers, shapes, values, weights):
        d = X[:, None] - centers
        slope = -weights * values**2  # d phi / d z
        by_center = np.einsum("nj,nji->ji", slope, -2.0 * shapes * d)
        return by_center, np.einsum("nj,nji->ji", slope, d**2)


@UNCONVERGED
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("update", ["simultaneous", "sequential"])
def test_a_function_of_the_users_own(objective, update):
    model = LowRankLSSVC(
        function=Cauchy(), objective=objective, update=update, n_basis=6, max_iter=60
    )
    assert model.fit(X, LABELS).score(X, LABELS) > 0.8
    assert "Cauchy" in model.describe()
    assert clone(model).fit(X, LABELS).coef_.shape == model.coef_.shape


# ---------------------------------------------------------------------------- scikit-learn's tools


class Recorder:
    """Count iterations; ask to stop after some."""

    def __init__(self, stop_after):
        self.iterations, self.stop_after = 0, stop_after

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.iterations += context.task_name == "iteration"
        return context.task_name == "iteration" and self.iterations >= self.stop_after


@needs_callbacks
@pytest.mark.parametrize("objective", ["loss", "abs"])
def test_callbacks_run_every_iteration_and_may_stop_the_fit(objective):
    from sklearn.callback import ScoringMonitor

    recorder = Recorder(stop_after=4)
    model = LowRankLSSVC(n_basis=10, objective=objective).set_callbacks(recorder).fit(X, LABELS)
    assert model.n_iter_ == recorder.iterations == 4
    monitor = ScoringMonitor(scoring="accuracy")
    model = LowRankLSSVC(n_basis=3, objective=objective).set_callbacks(monitor).fit(X, LABELS)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "fit"]
    assert rows[-1]["accuracy"] == model.score(X, LABELS)


def test_calibrated_probabilities():
    model = LowRankLSSVC().fit(X, THREE)
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)
    assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    assert not hasattr(LowRankLSSVC(calibrate=False), "predict_proba")


def test_pickle_and_class_weight():
    model = LowRankLSSVC(function="simplex", class_weight={"up": 20.0, "down": 1.0})
    model.fit(X, LABELS)
    assert np.mean(model.predict(X) == "up") > np.mean(LABELS == "up")
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("function", ["robust-rbf", "simplex"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_decisions_do_not_depend_on_the_working_memory(function):
    rows, labels = make_moons(400, noise=0.25, random_state=0)
    models = []
    for megabytes in (1024, 0.02):
        with config_context(working_memory=megabytes):
            model = LowRankLSSVC(n_basis=10, function=function, max_iter=30, random_state=0)
            models.append(model.fit(rows, labels).decision_function(rows))
    assert_allclose(*models, rtol=0, atol=1e-12)
