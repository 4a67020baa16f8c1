"""LSSVC and LSSVR by sequential solvers: the same models, options, reports and refusals."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from leansvm import LSSVC, LSSVR
from leansvm.dual import solvers
from tests.versions import needs_callbacks

SOLVERS = ("smo", "sumt", "substitution", "penalty-flow")
rng = np.random.default_rng(5)
X = rng.normal(size=(180, 4))
TARGET = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=180)
LABELS = np.where(X[:, 0] * X[:, 1] > 0.1, "up", "down")
WEIGHT = rng.uniform(0.2, 3.0, 180)
WEIGHT[::17] = 0.0


def assert_same_model(model, reference, data=X, atol=1e-6):
    expected = reference._decision_values(data)
    np.testing.assert_allclose(model._decision_values(data), expected, atol=atol)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-5)
    assert model.objective_ == pytest.approx(reference.objective_, rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("gamma, C", [(1.0, 1.0), (0.2, 20.0)])
def test_every_solver_gives_the_model_of_the_factorisation(solver, gamma, C):
    options = {"C": C, "gamma": gamma, "max_iter": 5000}
    model = LSSVC(solver=solver, **options).fit(X, LABELS, WEIGHT)
    assert_same_model(model, LSSVC(solver="cholesky", **options).fit(X, LABELS, WEIGHT))
    report = model.fit_report_
    assert report["solver"] == solver and report["converged"]
    assert report["residual"] <= 1e-8 and 0 <= report["gap"] <= 1e-10 * report["objective"]
    assert report["violation"] >= 0 and model.n_iter_ == report["iterations"] > 1


@pytest.mark.parametrize("options", [{"bias_penalty": 1e4}, {"bias_penalty": 0.01}, {}])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_smo_with_every_kind_of_bias(options, fit_intercept):
    options = {"fit_intercept": fit_intercept, "gamma": 0.7, **options}
    model = LSSVR(solver="smo", **options).fit(X, TARGET)
    assert_same_model(model, LSSVR(solver="cholesky", **options).fit(X, TARGET))


@pytest.mark.parametrize("solver", SOLVERS)
def test_several_classes_and_targets(solver):
    iris, labels = load_iris(return_X_y=True)
    model = LSSVC(solver=solver, max_iter=5000).fit(iris, labels)
    assert_same_model(model, LSSVC(solver="cholesky").fit(iris, labels), iris)
    targets = np.stack([TARGET, X[:, 1], np.ones(180)], axis=1)
    model = LSSVR(solver=solver, max_iter=5000).fit(X, targets)
    assert_same_model(model, LSSVR(solver="cholesky").fit(X, targets))


@pytest.mark.parametrize("solver", SOLVERS)
def test_less_memory_than_the_matrix_gives_the_same_model(solver):
    m = 400
    data = np.random.default_rng(0).normal(size=(m, 3))
    y = np.sign(data[:, 0])
    model = LSSVC(solver=solver, gamma=2.0, cache_size=0.6, max_iter=5000).fit(data, y)
    assert_same_model(model, LSSVC(solver="cholesky", gamma=2.0).fit(data, y), data)
    assert model.fit_report_["bytes"] <= 0.6 * 2**20
    if solver != "penalty-flow":
        assert model.fit_report_["cached_rows"] < m
        assert model.fit_report_["computed_rows"] > m


def test_a_cache_too_small_for_a_batch_of_rows_is_refused():
    with pytest.raises(MemoryError, match=r"cache of kernel rows .* needs .* bytes"):
        LSSVC(solver="smo", cache_size=0.01).fit(X, LABELS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "csr", "precomputed"])
def test_kinds_of_input(dtype, kind):
    data = X.astype(dtype)
    options = {"gamma": 0.8, "bias_penalty": 10.0}
    if kind == "csr":
        data = csr_array(data)
    elif kind == "precomputed":
        data = (X @ X.T).astype(dtype)
        options = {"kernel": "precomputed", "bias_penalty": 10.0}
    model = LSSVC(solver="smo", **options).fit(data, LABELS)
    reference = LSSVC(solver="cholesky", **options).fit(data, LABELS)
    assert_same_model(model, reference, data, atol=1e-4 if dtype == np.float32 else 1e-6)
    assert model.fit_report_["residual"] <= 1e-8


def test_classical_solvers_need_the_free_bias():
    for solver in SOLVERS[1:]:
        for options in ({"bias_penalty": 1.0}, {"fit_intercept": False}):
            with pytest.raises(ValueError, match=r"free bias.*bias_penalty=0"):
                LSSVC(solver=solver, **options).fit(X, LABELS)


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_needs_a_factorisation_is_refused(solver):
    with pytest.raises(ValueError, match="needs a factorisation"):
        LSSVC(solver=solver, C="loo").fit(X, LABELS)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_smooth_kernel_warns_with_advice(solver):
    model = LSSVC(solver=solver, C=1e7, gamma=1e-3, max_iter=2)
    with pytest.warns(ConvergenceWarning, match=r"too smooth.*solver='cg' or 'cholesky'"):
        model.fit(X, LABELS)
    assert not model.fit_report_["converged"]


@needs_callbacks
@pytest.mark.parametrize("solver", SOLVERS)
def test_callbacks_are_called_and_stop_the_fit(solver):
    from sklearn.callback import ProgressBar

    model = LSSVC(solver=solver, max_iter=5000)
    model.set_callbacks(ProgressBar())
    model.fit(X, LABELS)
    assert model.fit_report_["converged"]


def test_an_indefinite_kernel_is_refused():
    with pytest.raises(ValueError, match="not positive definite"):
        LSSVC(kernel=lambda A, B: -A @ B.T, solver="smo", C=1e3).fit(X, LABELS)


def test_the_path_of_sumt_is_reported():
    report = LSSVC(solver="sumt").fit(X, LABELS).fit_report_
    (path,) = report["path"]
    imbalances = [step["imbalance"] for step in path]
    assert imbalances == sorted(imbalances, reverse=True)
    assert path[0]["bias_penalty"] == 1e4


def test_duplicates_constants_and_one_row_a_class():
    data = np.repeat(np.array([[0.0, 7.0], [1.0, 7.0]]), [30, 1], axis=0)
    labels = np.repeat([0, 1], [30, 1])
    for solver in SOLVERS:
        for C, gamma in ((1e-6, 1.0), (1e3, 1e6), (10.0, 1e-9)):
            options = {"C": C, "gamma": gamma, "max_iter": 5000}
            model = LSSVC(solver=solver, **options).fit(data, labels)
            reference = LSSVC(solver="cholesky", **options).fit(data, labels)
            assert_same_model(model, reference, data)


def test_results_do_not_depend_on_threads():
    models = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            models.append(LSSVC(solver="smo", gamma=1.0, cache_size=0.3).fit(X, LABELS))
    np.testing.assert_array_equal(models[0].dual_coef_, models[1].dual_coef_)


# ---------------------------------------------------------------------------- solver="auto"


def _squares(data):
    return ((data[:, None] - data) ** 2).sum(axis=2)


@pytest.fixture
def few_rows(monkeypatch):
    """Let small problems count as large ones."""
    monkeypatch.setattr(solvers, "_ROWS_TO_FACTOR", 100)
    monkeypatch.setattr(solvers, "_SWEEP_FLOPS", 5.0)


def test_auto_takes_smo_for_a_kernel_close_to_diagonal(few_rows):
    data = np.random.default_rng(0).normal(size=(600, 8))
    y = np.sign(data[:, 0])
    model = LSSVC(gamma=2.0).fit(data, y)
    assert model.fit_report_["solver"] == "smo"
    assert_same_model(model, LSSVC(gamma=2.0, solver="cholesky").fit(data, y), data)
    precomputed = LSSVC(kernel="precomputed").fit(np.exp(-2 * _squares(data)), y)
    assert precomputed.fit_report_["solver"] == "smo"
    np.testing.assert_allclose(precomputed.dual_coef_, model.dual_coef_, atol=1e-6)
    # where the matrix does not fit, too
    small = LSSVC(gamma=2.0, cache_size=1.5).fit(data, y)
    assert small.fit_report_["solver"] == "smo" and small.fit_report_["cached_rows"] < 600
    assert_same_model(small, model, data)


def test_auto_leaves_smooth_kernels_to_the_others(few_rows):
    data = np.random.default_rng(0).normal(size=(600, 8))
    y = np.sign(data[:, 0])
    for options in ({"gamma": 0.01}, {"gamma": 0.05, "C": 100.0}):
        model = LSSVC(**options).fit(data, y)
        assert model.fit_report_["solver"] in ("cg", "cholesky")
        assert model.fit_report_["converged"]
    with pytest.raises(MemoryError):
        LSSVC(gamma=0.01, cache_size=1.5).fit(data, y)


def test_auto_gives_smo_up_where_it_stalls(few_rows):
    """Rows in tight pairs overlap little on average, but C makes the pairs ill-conditioned."""
    centres = np.random.default_rng(0).normal(size=(300, 8))
    data = np.repeat(centres, 2, axis=0) + 1e-3 * np.random.default_rng(1).normal(size=(600, 8))
    y = np.random.default_rng(2).choice([-1.0, 1.0], 600)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = LSSVC(gamma=3.0, C=1e6).fit(data, y)
    assert model.fit_report_["converged"]
