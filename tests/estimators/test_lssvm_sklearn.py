"""LSSVC and LSSVR among scikit-learn's tools: searches, pipelines, frames, routing, callbacks."""

import json
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from leansvm import LSSVC, LSSVR
from tests.versions import needs_callbacks

rng = np.random.default_rng(8)
IRIS, SPECIES = load_iris(return_X_y=True)
X = rng.normal(size=(60, 3))
LABELS = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, "up", "down")
TARGET = np.sin(X[:, 0]) + X[:, 1]


# ---------------------------------------------------------------------------- as good as the peers


def test_accuracy_of_real_data_is_that_of_svc():
    for load in (load_iris, load_breast_cancer):
        data, y = load(return_X_y=True)
        ours = cross_val_score(make_pipeline(StandardScaler(), LSSVC(10.0)), data, y, cv=4)
        theirs = cross_val_score(make_pipeline(StandardScaler(), SVC(C=10.0)), data, y, cv=4)
        assert ours.mean() > theirs.mean() - 0.02


def test_chosen_C_is_better_than_bad_ones():
    data, y = load_diabetes(return_X_y=True)
    data, y = data[:200], y[:200]
    scores = {
        str(C): cross_val_score(make_pipeline(StandardScaler(), LSSVR(C)), data, y, cv=4).mean()
        for C in (1e-6, 1e6, "gcv", "loo")
    }
    assert min(scores["gcv"], scores["loo"]) > max(scores["1e-06"], scores["1000000.0"]) + 0.1


# ---------------------------------------------------------------------------- tools


def test_pipeline_with_a_search_in_two_processes():
    pipeline = make_pipeline(StandardScaler(), LSSVC())
    grid = {"lssvc__C": [0.1, 10.0, "loo"], "lssvc__gamma": [0.1, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=3, n_jobs=2).fit(IRIS, SPECIES)
    alone = GridSearchCV(pipeline, grid, cv=3, n_jobs=1).fit(IRIS, SPECIES)
    assert_allclose(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    assert search.best_params_ == alone.best_params_
    assert search.best_score_ > 0.94
    assert_array_equal(search.predict(IRIS), alone.predict(IRIS))


def test_search_over_a_precomputed_kernel_cuts_rows_and_columns():
    K = rbf_kernel(IRIS, gamma=0.25)
    grid = {"C": [0.1, 10.0]}
    by_matrix = GridSearchCV(LSSVC(kernel="precomputed"), grid, cv=3).fit(K, SPECIES)
    by_rows = GridSearchCV(LSSVC(gamma=0.25), grid, cv=3).fit(IRIS, SPECIES)
    assert_allclose(
        by_matrix.cv_results_["mean_test_score"], by_rows.cv_results_["mean_test_score"]
    )
    regression = cross_val_predict(LSSVR(kernel="precomputed"), K, IRIS[:, 0], cv=3)
    assert_allclose(regression, cross_val_predict(LSSVR(gamma=0.25), IRIS, IRIS[:, 0], cv=3))


@pytest.mark.parametrize("ensemble", [True, False])
def test_calibration_by_cross_validation(ensemble):
    model = CalibratedClassifierCV(LSSVC(10.0), ensemble=ensemble, cv=3).fit(
        IRIS[::2], SPECIES[::2]
    )
    p = model.predict_proba(IRIS[1::2])
    assert_allclose(p.sum(axis=1), 1.0)
    assert log_loss(SPECIES[1::2], p) < 0.35


def test_meta_estimators():
    bagging = BaggingClassifier(LSSVC(10.0), n_estimators=3, random_state=0).fit(IRIS, SPECIES)
    assert bagging.score(IRIS, SPECIES) > 0.9
    two = np.column_stack([SPECIES, SPECIES == 1])
    assert MultiOutputClassifier(LSSVC(10.0)).fit(IRIS, two).predict(IRIS).shape == two.shape


@pytest.mark.parametrize(
    "model",
    [LSSVC(), LSSVC("loo", calibrate=True), LSSVC(kernel="precomputed"), LSSVR([1.0, 2.0])],
    ids=str,
)
def test_pickle_and_clone(model):
    data = rbf_kernel(X) if model.kernel == "precomputed" else X
    y = TARGET if isinstance(model, LSSVR) else LABELS
    fitted = clone(model).fit(data, y)
    back = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(back.predict(data), fitted.predict(data))
    assert back.fit_report_ == fitted.fit_report_
    fresh = clone(fitted)
    assert not hasattr(fresh, "dual_coef_")
    assert fresh.get_params() == model.get_params()


def test_fits_in_several_threads_at_once():
    rows = np.random.default_rng(1).normal(size=(600, 3))
    jobs = [(C, kernel) for C in (0.1, 1.0, 10.0) for kernel in ("rbf", "laplacian", "linear")]

    def run(job):
        return LSSVR(*job).fit(rows, rows[:, 0]).predict(rows[:50])

    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, jobs))
    assert_allclose(together, alone, rtol=1e-9, atol=1e-9)


def test_report_can_be_written_as_json():
    for options in ({}, {"solver": "cg"}, {"C": "loo"}):
        report = LSSVC(**options).fit(X, LABELS).fit_report_
        assert json.loads(json.dumps(report)) == report


def test_set_params_takes_effect_and_fit_changes_no_parameter():
    model = LSSVC(C="gcv", class_weight="balanced")
    before = dict(model.get_params())
    model.fit(X, LABELS)
    assert model.get_params() == before
    model.set_params(C=3.0, gamma=0.7, kernel="laplacian", class_weight=None).fit(X, LABELS)
    expected = LSSVC(3.0, "laplacian", gamma=0.7).fit(X, LABELS)
    assert_array_equal(model.dual_coef_, expected.dual_coef_)


def test_parameters_changed_after_the_fit_do_not_change_gamma():
    model = LSSVC(gamma=0.5).fit(X, LABELS)
    before = model.decision_function(X)
    model.set_params(gamma=100.0, C=1e-3)
    assert_array_equal(model.decision_function(X), before)


# ---------------------------------------------------------------------------- frames and labels


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(frame):
    columns = ["length", "width", "height"]
    table = frame({name: X[:, j] for j, name in enumerate(columns)})
    if not hasattr(Ridge().fit(table, TARGET), "feature_names_in_"):
        pytest.skip("this scikit-learn does not know the names of these frames")
    for model, y in [(LSSVC("loo", calibrate=True), LABELS), (LSSVR(), TARGET)]:
        plain = clone(model).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            named = clone(model).fit(table, y)
            predicted = named.predict(table)
        assert_array_equal(named.feature_names_in_, columns)
        assert not hasattr(plain, "feature_names_in_")
        assert_array_equal(predicted, plain.predict(X))
        with pytest.warns(UserWarning, match="feature names"):
            named.predict(X)


def test_targets_in_series():
    expected = LSSVC().fit(X, LABELS).dual_coef_
    for series in (pd.Series(LABELS), pl.Series(LABELS), LABELS.tolist(), LABELS.astype(object)):
        assert_array_equal(LSSVC().fit(X, series).dual_coef_, expected)
    categories = pd.Series(LABELS, dtype="category")
    assert_array_equal(LSSVC().fit(X, categories).predict(X), LSSVC().fit(X, LABELS).predict(X))
    two = pd.DataFrame({"a": TARGET, "b": -TARGET})
    assert_allclose(LSSVR().fit(X, two).predict(X)[:, 1], -LSSVR().fit(X, TARGET).predict(X))


@pytest.mark.parametrize(
    "names", [("no", "yes"), (False, True), (-1, 1), (5, 3), (0.0, 2.0), ("b", "a")], ids=str
)
def test_labels_of_any_kind(names):
    y = np.where(LABELS == "up", names[1], names[0])
    model = LSSVC(10.0).fit(X, y)
    assert_array_equal(model.classes_, np.unique(y))
    assert model.predict(X).dtype == y.dtype
    assert model.score(X, y) > 0.9
    # the sign of the decision belongs to the second of the sorted classes
    assert_array_equal(model.predict(X) == model.classes_[1], model.decision_function(X) > 0)


def test_integer_and_list_input():
    grid = np.array([[i, j] for i in range(6) for j in range(6)])
    y = (grid.sum(axis=1) > 5).astype(int)
    expected = LSSVC().fit(grid.astype(float), y).decision_function(grid.astype(float))
    for rows in (grid, grid.tolist(), grid.astype(np.int8), grid.astype(np.float16)):
        assert_allclose(LSSVC().fit(rows, y).decision_function(rows), expected, rtol=1e-4)
    assert_allclose(LSSVC().fit(np.asfortranarray(grid), y).decision_function(grid), expected)


def test_memory_map(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert_array_equal(LSSVC().fit(mapped, LABELS).dual_coef_, LSSVC().fit(X, LABELS).dual_coef_)


# ---------------------------------------------------------------------------- routing of weights


@sklearn.config_context(enable_metadata_routing=True)
def test_sample_weight_is_routed():
    weight = np.random.default_rng(1).uniform(0, 2, size=60)
    weight[:20] = 0
    model = LSSVR().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    direct = LSSVR().fit(X, TARGET, weight).predict(X)
    nothing = StandardScaler(with_mean=False, with_std=False).set_fit_request(sample_weight=False)
    piped = make_pipeline(nothing, model)
    assert_allclose(piped.fit(X, TARGET, sample_weight=weight).predict(X), direct)
    search = GridSearchCV(model, {"C": [1.0]}, cv=2).fit(X, TARGET, sample_weight=weight)
    assert_allclose(search.predict(X), direct)
    ignored = GridSearchCV(LSSVR().set_fit_request(sample_weight=False), {"C": [1.0]}, cv=2)
    assert not np.allclose(ignored.fit(X, TARGET).predict(X), direct)


def test_weights_reach_a_pipeline_without_routing():
    weight = np.random.default_rng(1).uniform(0, 2, size=60)
    piped = make_pipeline(StandardScaler(), LSSVC()).fit(X, LABELS, lssvc__sample_weight=weight)
    scaled = StandardScaler().fit_transform(X)
    expected = LSSVC().fit(scaled, LABELS, weight).decision_function(scaled)
    assert_allclose(piped.decision_function(X), expected)


# ---------------------------------------------------------------------------- solvers


@pytest.mark.parametrize("y", [LABELS, np.arange(60) % 4], ids=["two", "four"])
@pytest.mark.parametrize("bias", [{}, {"bias_penalty": 0.5}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("C", [0.1, 1e3])
def test_solvers_agree(y, bias, C):
    weight = np.random.default_rng(1).uniform(0.5, 2.0, size=60)
    options = [
        {"C": C, "solver": "cholesky"},
        {"C": C, "solver": "auto"},
        {"C": [C]},
        {"C": C, "solver": "cg"},
    ]
    models = [LSSVC(gamma=0.3, **o, **bias).fit(X, y, weight) for o in options]
    assert [m.fit_report_["solver"] for m in models] == ["cholesky", "cholesky", "eigen", "cg"]
    for model in models[1:]:
        assert_allclose(model.decision_function(X), models[0].decision_function(X), atol=1e-6)
        assert_allclose(model.objective_, models[0].objective_, rtol=1e-6)
    assert models[3].n_iter_ >= 1


def test_cg_that_recomputes_its_matrix_agrees():
    rows = np.random.default_rng(1).normal(size=(400, 3))
    y = rows[:, 0] > 0
    with threadpool_limits(1):  # each thread has tiles of its own
        stored = LSSVC(10.0, gamma=0.3, solver="cg").fit(rows, y)
        less = (stored.fit_report_["bytes"] - 1) / 2**20
        with sklearn.config_context(working_memory=0.2):
            recomputed = LSSVC(10.0, gamma=0.3, solver="cg", cache_size=less).fit(rows, y)
    assert recomputed.fit_report_["bytes"] < stored.fit_report_["bytes"]
    assert_allclose(recomputed.decision_function(rows), stored.decision_function(rows), atol=1e-6)


def test_prediction_by_tiles_agrees():
    for model, y in [(LSSVC("loo", calibrate=True), LABELS), (LSSVR(), TARGET)]:
        model.fit(X, y)
        expected = model.predict(X)
        with sklearn.config_context(working_memory=0.001):
            again = model.predict(X)
        if isinstance(model, LSSVR):
            assert_allclose(again, expected, rtol=1e-10, atol=1e-12)
        else:
            assert_array_equal(again, expected)


def test_an_unfinished_run_warns_and_is_reported():
    for model, y in [(LSSVC, LABELS), (LSSVR, TARGET)]:
        with pytest.warns(ConvergenceWarning, match=rf"{model.__name__}.*after 1 iterations.*tol"):
            fitted = model(1e4, gamma=0.3, solver="cg", max_iter=1, tol=1e-12).fit(X, y)
        assert fitted.n_iter_ == 1
        assert not fitted.fit_report_["converged"]
    with pytest.warns(ConvergenceWarning) as caught:
        LSSVR(1e4, gamma=0.3, solver="cg", max_iter=1, tol=1e-12).fit(X, TARGET)
    assert caught[0].filename == __file__  # points at the caller


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 2, 4])
@pytest.mark.parametrize("bias", [{}, {"bias_penalty": 0.5}, {"fit_intercept": False}], ids=str)
def test_objective_and_gap_of_an_unfinished_run(max_iter, bias):
    K = rbf_kernel(X, gamma=0.3)
    model = LSSVR(1e4, gamma=0.3, solver="cg", max_iter=max_iter, tol=1e-14, **bias).fit(X, TARGET)
    beta, b = model.dual_coef_[0], model.intercept_[0]
    direct = 0.5 * beta @ K @ beta + 0.5 * model.bias_penalty * b**2
    direct += 0.5e4 * np.sum((TARGET - K @ beta - b) ** 2)
    assert_allclose(model.objective_, direct, rtol=1e-6)
    best = LSSVR(1e4, gamma=0.3, **bias).fit(X, TARGET).objective_
    assert -1e-9 * best <= model.objective_ - best <= model.fit_report_["gap"] * (1 + 1e-6)


# ---------------------------------------------------------------------------- callbacks


class Recorder:
    """Write down every call; ask to stop after some iterations."""

    def __init__(self, stop_after=None):
        self.calls = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        self.calls.append(("setup", context.task_name))

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.calls.append(("end", context.task_name))
        return self.stop_after is not None and self.iterations() >= self.stop_after

    def iterations(self):
        return sum(call == "end" and task != "fit" for call, task in self.calls)


EVERY_WAY = [
    {"solver": "cholesky"},
    {"solver": "auto"},
    {"solver": "cg"},
    {"C": "loo"},
    {"C": "gcv"},
]


@needs_callbacks
@pytest.mark.parametrize("options", EVERY_WAY, ids=str)
def test_callbacks_frame_the_fit(options):
    recorder = Recorder()
    model = LSSVC(**options).set_callbacks(recorder).fit(X, LABELS)
    assert recorder.calls[:2] == [("setup", "fit"), ("begin", "fit")]
    assert recorder.calls[-2:] == [("end", "fit"), ("teardown", "fit")]
    assert recorder.iterations() == (model.n_iter_ if options.get("solver") == "cg" else 0)
    plain = LSSVC(**options).fit(X, LABELS)
    assert_array_equal(model.dual_coef_, plain.dual_coef_)


@needs_callbacks
@pytest.mark.parametrize("options", EVERY_WAY, ids=str)
def test_progress_bar(options, capsys):
    from sklearn.callback import ProgressBar

    pytest.importorskip("rich")
    for model, y in [(LSSVC(**options), LABELS), (LSSVR(**options), TARGET)]:
        model.set_callbacks(ProgressBar()).fit(X, y)
        assert model.predict(X).shape == (60,)


@needs_callbacks
def test_callback_stops_conjugate_gradients():
    recorder = Recorder(stop_after=3)
    model = LSSVR(1e4, gamma=0.3, solver="cg", tol=1e-14).set_callbacks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, TARGET)
    assert model.n_iter_ == 3
    assert recorder.iterations() == 3
    assert np.isfinite(model.predict(X)).all()


@needs_callbacks
def test_callbacks_are_torn_down_when_the_fit_fails():
    recorder = Recorder()
    model = LSSVR(cache_size=1e-3).set_callbacks(recorder)
    with pytest.raises(MemoryError):
        model.fit(X, TARGET)
    assert recorder.calls[-1] == ("teardown", "fit")


@needs_callbacks
@pytest.mark.parametrize("options", EVERY_WAY, ids=str)
def test_scores_can_be_monitored(options):
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    model = LSSVC(**options).set_callbacks(monitor).fit(X, LABELS)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "fit"]
    assert rows[-1]["accuracy"] == model.score(X, LABELS)


@needs_callbacks
def test_probabilities_can_be_monitored():
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="neg_log_loss")
    model = LSSVC(calibrate=True).set_callbacks(monitor).fit(X, LABELS)
    row = monitor.get_logs().data[-1]
    assert_allclose(row["neg_log_loss"], -log_loss(LABELS, model.predict_proba(X)))


@needs_callbacks
def test_callbacks_reach_the_fits_of_a_search():
    class Everywhere(Recorder):
        max_propagation_depth = None

    recorder = Everywhere()
    search = GridSearchCV(LSSVC(solver="cg"), {"C": [0.1, 1.0]}, cv=2)
    search.set_callbacks(recorder).fit(X, LABELS)
    iterations = sum(task == "cg-iteration" for call, task in recorder.calls if call == "end")
    assert iterations >= 5 + search.best_estimator_.n_iter_ - 1  # five fits
    assert recorder.calls[-1][0] == "teardown"
