"""Small numbers, few numbers, and fits that are stopped on the way."""

from itertools import product

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from leansvm import L2SVC, LSSVR, LowRankLSSVC
from leansvm.dual.active_set import ActiveSet
from leansvm.losses import Huber
from tests.loops import case
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = (X[:, 0] + 0.3 * RNG.normal(size=120) > 0).astype(int)
ZERO, HALVES = np.zeros((40, 3)), np.array([0, 1] * 20)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_float32_predictions_are_exact_relative_to_the_targets(size):
    rows = np.random.default_rng(1).uniform(-2, 2, size=(300, 1)).astype(np.float32)
    target = size * np.sin(3 * rows[:, 0]).astype(np.float64)
    model = PlainSparseLSSVR(C=1e7, n_basis=80, gamma=0.3, random_state=0).fit(rows, target)
    single, double = model.predict(rows), model.predict(rows.astype(np.float64))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-3 * target.std())


def test_calibration_at_one_C_asks_for_no_degrees_of_freedom():
    weight = np.full(len(X), 1 / len(X))
    model = PlainSparseLSSVC(C=10.0, calibrate=True, n_basis=100, random_state=0)
    shares = model.fit(X, Y, sample_weight=weight).predict_proba(X)
    assert np.mean(shares.argmax(axis=1) == Y) > 0.8


@pytest.mark.parametrize("basis", ["all", "random", "pivoted-cholesky", "forward"])
@pytest.mark.parametrize("kind", [PlainSparseLSSVC, PlainReducedSVC])
def test_rows_of_zeros_give_a_constant_model(kind, basis):
    y = (np.arange(40) % 4 == 0).astype(int)
    for intercept, dtype in product([True, False], [np.float32, np.float64]):
        with case(intercept=intercept, dtype=dtype):
            model = kind(1.0, "linear", basis=basis, n_basis=2, calibrate=True)
            model.set_params(fit_intercept=intercept).fit(ZERO.astype(dtype), y)
            # three quarters of the rows are -1
            expected, values = -0.5 * intercept, model.decision_function(ZERO)
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("basis", ["entropy", "medoids"])
def test_rows_of_zeros_leave_no_basis_to_grow(basis):
    values = (
        PlainSparseLSSVC(kernel="linear", basis=basis).fit(ZERO, HALVES).decision_function(ZERO)
    )
    np.testing.assert_allclose(values, 0.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("max_iter", [1, 3, 6])
def test_newton_stopped_early_certifies_the_loss_that_was_asked_for(max_iter):
    y = np.where(X[:, 0] * X[:, 1] + 0.5 * np.random.default_rng(1).normal(size=len(X)) > 0, 1, -1)
    model = PlainReducedSVC(
        C=1e3, loss="huber", delta=0.5, n_basis=40, max_iter=max_iter, random_state=0
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    slack = Huber(0.5).value(1 - y * model.decision_function(X))
    points = model.support_vectors_
    squared = np.square(points[:, None] - points[None]).sum(axis=2)
    norm = model.dual_coef_[0] @ np.exp(-model.gamma_ * squared) @ model.dual_coef_[0]
    assert model.objective_ == pytest.approx(0.5 * norm + 1e3 * slack.sum(), rel=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_support_set_stopped_at_any_step_reports_its_violation():
    y = np.where(X[:, 0] + 0.2 * X[:, 1] * X[:, 2] > 0, 1, -1)
    for max_iter in (1, 16, 17, 18, 40):
        model = L2SVC(C=1e9, gamma=0.01, max_iter=max_iter, solver="active-set").fit(X, y)
        report = model.fit_report_
        assert np.isfinite(report["violation"])
        assert report["converged"] == (report["violation"] <= 1e-8)


@pytest.mark.parametrize("kind", [PlainSparseLSSVC, PlainSparseLSSVR, L2SVC])
@pytest.mark.parametrize(
    "change",
    [{"bias_penalty": 5}, {"fit_intercept": False}, {"gamma": 0.1}, {"kernel": "laplacian"}],
)
def test_batches_refuse_a_changed_parameter_by_name(kind, change):
    model = kind(C=1.0).partial_fit(X[:60], Y[:60]).set_params(**change)
    with pytest.raises(ValueError, match=f"partial_fit: {next(iter(change))}="):
        model.partial_fit(X[60:], Y[60:])
    for name in change:
        model.set_params(**{name: kind().get_params()[name]})
    model.partial_fit(X[60:], Y[60:])


def test_batches_take_an_equal_gamma_for_the_same():
    model = PlainSparseLSSVC(C=1.0, gamma=[0.1, 0.2, 0.3]).partial_fit(X[:60], Y[:60])
    model.set_params(gamma=np.array([0.1, 0.2, 0.3])).partial_fit(X[60:], Y[60:])
    assert model.n_rows_seen_ == 120


def test_a_left_out_loss_that_is_not_a_number_is_never_the_best(monkeypatch):
    solve = ActiveSet.solve

    def spoiled(self, C, **options):
        solution = solve(self, C, **options)
        if C < 1:
            solution.left_out[:] = np.nan
        return solution

    monkeypatch.setattr(ActiveSet, "solve", spoiled)
    assert L2SVC([0.1, 10.0, 0.01]).fit(X, Y).C_ == 10.0


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-8), (np.float32, 1e-5)])
def test_gcv_with_all_rows_as_basis_is_that_of_the_exact_machine(dtype, rtol):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 5)).astype(dtype)
    target = np.sin(2 * rows[:, 0]) + 0.5 * rng.normal(size=60)
    expected = LSSVR(C="gcv", gamma=5.0).fit(rows, target)
    found = PlainSparseLSSVR(C="gcv", gamma=5.0, basis="all").fit(rows, target)
    np.testing.assert_allclose(found.cv_curve_, expected.cv_curve_, rtol=rtol)
    assert found.C_ == expected.C_


def test_gcv_of_batches_as_small_as_the_basis_counts_earlier_rows():
    options = {"C": "gcv", "gamma": 0.3}
    batches = PlainSparseLSSVC(n_basis=50, random_state=0, **options)
    batches.partial_fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])
    whole = PlainSparseLSSVC(basis=batches.support_vectors_, **options).fit(X, Y)
    np.testing.assert_allclose(batches.cv_curve_, whole.cv_curve_, rtol=1e-6)


@pytest.mark.parametrize("kind", [LowRankLSSVC, PlainSparseLSSVC])
def test_the_smallest_C_there_is_gives_a_constant_model(kind):
    model = kind(1e-300, n_basis=3, bias_penalty=1.0, random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), 0.0, rtol=0, atol=1e-200)
