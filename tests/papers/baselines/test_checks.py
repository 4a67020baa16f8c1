"""scikit-learn's own checks of the baselines, and what they have in common."""

import inspect
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris, make_moons

from leansvm import LSSVC
from leansvm.kernels import Kernel
from leansvm.papers import baselines
from leansvm.papers.baselines import FSALSSVC, PrunedLSSVC, RandomReducedDualLSSVC
from tests.checks import names, run_checks
from tests.versions import needs_callbacks

PUBLIC = [getattr(baselines, name) for name in baselines.__all__]
ESTIMATORS = [
    RandomReducedDualLSSVC(n_basis=60, random_state=0),
    FSALSSVC(n_basis=60),
    FSALSSVC(n_basis=60, n_candidates=20, random_state=0),
    PrunedLSSVC(),
    PrunedLSSVC(index="loo"),
    PrunedLSSVC(index="validation", random_state=0),
]
# enough of a ridge makes the matrices that are no kernel, which the checks also pass, definite
CONFIGURED = [
    FSALSSVC(n_candidates=146),
    FSALSSVC(kernel="precomputed", C=1e-4, n_basis=300),
    FSALSSVC(class_weight="balanced"),
    RandomReducedDualLSSVC(kernel="precomputed", C=1e-4, n_basis=300),
    RandomReducedDualLSSVC(kernel="linear"),
    PrunedLSSVC(kernel="precomputed", C=1e-4),
    PrunedLSSVC(index="loo", step=0.5),
    PrunedLSSVC(step=0.2, n_basis=20),
]


# Many checks use fewer rows than n_basis: the warning about it is meant.
@pytest.mark.filterwarnings("ignore:n_basis=\\d+ is more than")
@pytest.mark.parametrize("estimator", [estimator() for estimator in PUBLIC], ids=names)
def test_scikit_learn_checks(estimator):
    run_checks(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:n_basis=\\d+ is more than")
@pytest.mark.parametrize("estimator", CONFIGURED, ids=names)
def test_scikit_learn_checks_of_settings(estimator):
    run_checks(estimator)


@pytest.mark.parametrize("estimator", PUBLIC)
def test_parameters_have_constraints_and_documentation(estimator):
    parameters = set(inspect.signature(estimator).parameters)
    assert parameters == set(estimator._parameter_constraints)
    text = inspect.getdoc(estimator)
    documented = text.partition("Parameters\n")[2].partition("Attributes\n")[0]
    assert not {name for name in parameters if name not in documented}
    assert ">>> " in text


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_fitted_attributes_are_documented(estimator):
    X, y = make_moons(120, noise=0.2, random_state=0)
    model = estimator.fit(X, y)
    attributes = inspect.getdoc(type(model)).partition("Attributes\n")[2]
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert not {name for name in fitted if name not in attributes}
    assert {"objective", "rows", "basis", "seconds", "iterations"} <= set(model.fit_report_)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
@pytest.mark.parametrize("classes", [2, 3])
def test_model_solves_the_system_of_its_rows(estimator, classes):
    """Eq. (13): (K_BB + 1 / (C s)) beta + b = y_B and 1'beta = 0, also multiclass and weighted."""
    X, y = load_iris(return_X_y=True)
    X, y = (X[50:], y[50:]) if classes == 2 else (X, y)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    model = estimator.set_params(C=3.0, gamma=0.5).fit(X, y, sample_weight=weight)
    B = model.support_
    outputs = 1 if classes == 2 else 3
    Y = np.where(y[B, None] == model.classes_[-outputs:], 1.0, -1.0)
    K = Kernel("rbf", gamma=0.5).block(X[B], X[B])
    beta = model.dual_coef_.T
    fitted = K @ beta + model.intercept_
    assert_allclose(fitted + beta / (3.0 * weight[B, None]), Y, atol=1e-11)
    assert_allclose(beta.sum(axis=0), 0.0, atol=1e-11)
    assert_allclose(model.objective_, 0.5 * np.sum(beta * Y), rtol=1e-11)
    assert model.n_support_ == len(B)
    assert_allclose(model.decision_function(X[B]).reshape(fitted.shape), fitted, atol=1e-11)
    assert model.score(X, y) > 0.9
    estimator.set_params(C=1.0, gamma="scale")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_precomputed_sparse_and_float32_rows_give_the_same_model(estimator):
    X, y = make_moons(120, noise=0.2, random_state=0)
    X = X.astype(np.float32).astype(np.float64)
    settings = {**estimator.get_params(), "gamma": 2.0}
    model = type(estimator)(**settings).fit(X, y)
    expected = model.decision_function(X)
    K = Kernel("rbf", gamma=2.0).block(X, X)
    by_matrix = type(estimator)(**{**settings, "kernel": "precomputed"}).fit(K, y)
    assert_array_equal(by_matrix.support_, model.support_)
    assert_allclose(by_matrix.decision_function(K), expected, atol=1e-9)
    assert by_matrix.support_vectors_.shape == (0, 0)
    by_sparse = type(estimator)(**settings).fit(sparse.csr_matrix(X), y)
    assert_allclose(by_sparse.decision_function(X), expected, atol=1e-9)
    assert sparse.issparse(by_sparse.support_vectors_)
    by_single = type(estimator)(**settings).fit(X.astype(np.float32), y)
    assert by_single.support_vectors_.dtype == np.float32
    assert_allclose(by_single.decision_function(X), expected, atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_rows_of_zero_weight_are_never_support_vectors(estimator):
    X, y = make_moons(150, noise=0.3, random_state=0)
    weight = np.ones(len(X))
    weight[::3] = 0.0
    model = estimator.fit(X, y, sample_weight=weight)
    assert np.all(weight[model.support_] > 0)


@pytest.mark.parametrize("estimator", [FSALSSVC(n_basis=40), PrunedLSSVC()], ids=names)
def test_dropping_rows_of_zero_weight_changes_nothing(estimator):
    X, y = make_moons(150, noise=0.3, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    weight[::3] = 0.0
    kept = np.flatnonzero(weight)
    expected = estimator.fit(X[kept], y[kept], sample_weight=weight[kept]).decision_function(X)
    assert_allclose(estimator.fit(X, y, sample_weight=weight).decision_function(X), expected)


class Recorder:
    """Write down the tasks that end; ask to stop after some."""

    def __init__(self, stop_after=None):
        self.tasks = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.tasks.append(context.task_name)
        return len(self.tasks) == self.stop_after


@needs_callbacks
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_callbacks_follow_the_fit(estimator):
    X, y = make_moons(80, noise=0.3, random_state=0)
    expected = estimator.fit(X, y).decision_function(X)
    recorder = Recorder()
    watched = type(estimator)(**estimator.get_params()).set_callbacks(recorder).fit(X, y)
    assert_array_equal(watched.decision_function(X), expected)
    assert recorder.tasks[-1] == "fit"
    if not isinstance(estimator, RandomReducedDualLSSVC):
        assert len(recorder.tasks) > 3


@needs_callbacks
@pytest.mark.parametrize("estimator", ESTIMATORS[1:], ids=names)
def test_callbacks_can_stop(estimator):
    X, y = make_moons(80, noise=0.3, random_state=0)
    stopped = type(estimator)(**estimator.get_params()).set_callbacks(Recorder(4)).fit(X, y)
    assert stopped.n_iter_ == 4
    assert np.isfinite(stopped.decision_function(X)).all()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_same_seed_same_model_and_models_travel(estimator):
    X, y = make_moons(120, noise=0.3, random_state=0)
    first = estimator.fit(X, y)
    again = pickle.loads(pickle.dumps(first))
    second = type(estimator)(**estimator.get_params()).fit(X, y)
    assert_array_equal(first.support_, second.support_)
    assert_array_equal(first.decision_function(X), again.decision_function(X))


@pytest.mark.parametrize("estimator", PUBLIC)
def test_a_matrix_that_is_no_kernel_is_refused(estimator):
    X, y = make_moons(40, random_state=0)
    K = -Kernel("rbf", gamma=1.0).block(X, X)
    with pytest.raises(ValueError, match="not positive definite"):
        estimator(kernel="precomputed", C=10.0, n_basis=40).fit(K, y)
    K[0, 1] = 5.0
    with pytest.raises(ValueError, match="not symmetric"):
        estimator(kernel="precomputed").fit(K, y)


@pytest.mark.parametrize("estimator", [PrunedLSSVC, FSALSSVC, RandomReducedDualLSSVC])
def test_memory_is_checked_first(estimator):
    X, y = make_moons(400, random_state=0)
    with pytest.raises(MemoryError, match="cache_size"):
        estimator(n_basis=300, cache_size=0.5).fit(X, y)


@pytest.mark.parametrize("estimator", [FSALSSVC, RandomReducedDualLSSVC])
def test_more_basis_rows_than_rows_warns_and_gives_the_dense_model(estimator):
    X, y = make_moons(60, noise=0.3, random_state=0)
    with pytest.warns(UserWarning, match="n_basis=100 is more than the 60 rows"):
        model = estimator(gamma=1.0).fit(X, y)
    dense = LSSVC(gamma=1.0).fit(X, y)
    assert len(model.support_) == 60
    assert_allclose(model.decision_function(X), dense.decision_function(X), atol=1e-11)
    assert_allclose(model.objective_, dense.objective_, rtol=1e-11)
