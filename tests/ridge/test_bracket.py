"""C and sizes by some rows that stand for all, against refitting and against all rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm import SparseLSSVC, SparseLSSVR
from leansvm.ridge import bracket, criteria, nested, primal
from leansvm.rows import draw_for_all

rng = np.random.default_rng(0)
N = 400
X = rng.normal(size=(N, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=N)
PARAMS = {"kernel": "rbf", "gamma": 0.5, "random_state": 0}


@pytest.fixture
def few_judges(monkeypatch):
    monkeypatch.setattr(criteria, "_MANY_POINTS", 20)
    monkeypatch.setattr(criteria, "_EVALUATION_ROWS", 100)
    monkeypatch.setattr(bracket, "_FIRST", 10)


@pytest.fixture
def sizes_on_a_sample(monkeypatch):
    monkeypatch.setattr(primal, "_ROWS_COMPARED_WHOLE", 150)
    monkeypatch.setattr(primal, "_ROWS_COMPARED", 150)


@pytest.mark.parametrize("start", [0, 7, 30, 49])
def test_the_bracket_closes_around_the_minimum(start):
    tried = bracket.bracket(lambda k: abs(k - 31.3), start, 50)
    assert min(tried, key=tried.get) == 31
    assert {30, 32} <= set(tried) and len(tried) <= 6 + abs(start - 31) // 2


@pytest.mark.parametrize("bias", [{}, {"bias_penalty": 0.5}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_of_some_rows_are_those_of_refitting(few_judges, bias, weighted):
    weight = rng.uniform(0.5, 2.0, N) if weighted else None
    model = SparseLSSVR(n_basis=40, **PARAMS, **bias).fit(X, Y, sample_weight=weight)
    assert model.fit_report_["left_out_on"] <= 100
    assert "of 400 rows" in model.fit_report_["notes"][-1]
    tried = np.flatnonzero(np.isfinite(model.cv_curve_))
    grid = np.logspace(-6, 7, 50)
    assert 3 <= len(tried) <= 15
    assert grid[tried[np.argmin(model.cv_curve_[tried])]] == model.C_
    # left out of the fit, one after the other
    s = np.ones(N) if weight is None else weight
    points = X[model.support_]
    for i in range(3):
        other = np.arange(N) != i
        again = SparseLSSVR(model.C_, basis=points, **PARAMS, **bias)
        again.fit(X[other], Y[other], sample_weight=s[other])
        expected = Y[i] - again.predict(X[i : i + 1])[0]
        assert_allclose(model.loo_residuals_[i], expected, rtol=1e-6)


def test_all_rows_choose_about_the_same_C(few_judges, monkeypatch):
    some = SparseLSSVR(n_basis=40, **PARAMS).fit(X, Y)
    monkeypatch.undo()
    every = SparseLSSVR(n_basis=40, **PARAMS).fit(X, Y)
    assert np.isfinite(every.cv_curve_).all()
    curve, grid = every.cv_curve_, np.logspace(-6, 7, 50)
    assert curve[grid == some.C_][0] < 1.1 * curve.min()  # judged by 100 rows
    again = SparseLSSVR(every.C_, n_basis=40, **PARAMS).fit(X, Y)
    assert_allclose(again.predict(X), every.predict(X))


def test_a_list_of_candidates_keeps_its_order(few_judges):
    model = SparseLSSVR([100.0, 0.01, 1.0, 1e4], n_basis=40, **PARAMS).fit(X, Y)
    assert model.C_ in (1.0, 100.0) and model.cv_curve_.shape == (4,)
    assert model.cv_curve_[[100.0, 0.01, 1.0, 1e4].index(model.C_)] == np.nanmin(model.cv_curve_)


@pytest.mark.parametrize("C", ["loo", "gcv"])
def test_weights_are_repetitions_on_a_sample(few_judges, sizes_on_a_sample, monkeypatch, C):
    monkeypatch.setattr(criteria, "_CALIBRATION_ROWS", 150)
    times = rng.integers(0, 3, N)
    labels = np.where(Y > 1.0, "rare", "other")
    a = SparseLSSVC(C, calibrate=True, **PARAMS).fit(X, labels, sample_weight=times)
    rows = np.repeat(np.arange(N), times)
    b = SparseLSSVC(C, calibrate=True, **PARAMS).fit(X[rows], labels[rows])
    assert a.fit_report_["left_out_on"] == b.fit_report_["left_out_on"] <= 150
    assert a.fit_report_["sizes"]["rows"] < N and a.C_ == b.C_ and a.n_support_ == b.n_support_
    assert_allclose(a.decision_function(X), b.decision_function(X), rtol=1e-6, atol=1e-8)
    assert_allclose(a.calibration_scale_, b.calibration_scale_, rtol=1e-5)


def test_gcv_chooses_C_from_all_rows_and_calibrates_on_some(few_judges, monkeypatch):
    labels = np.digitize(Y, [-1.0, 1.0])
    monkeypatch.setattr(criteria, "_CALIBRATION_ROWS", 200)
    some = SparseLSSVC("gcv", n_basis=40, **PARAMS).fit(X, labels)
    assert 100 < some.fit_report_["left_out_on"] == len(some._left_out) <= 200
    assert "Calibrated on" in some.fit_report_["notes"][-1] and not hasattr(some, "loo_residuals_")
    monkeypatch.undo()
    every = SparseLSSVC("gcv", n_basis=40, **PARAMS).fit(X, labels)
    assert "left_out_on" not in every.fit_report_ and len(every._left_out) == N
    assert some.C_ == every.C_
    assert_array_equal(some.cv_curve_, every.cv_curve_)
    assert_allclose(some.dual_coef_, every.dual_coef_, rtol=1e-10)
    # the left-out values of the drawn rows are those that all rows have
    known = every._left_out[:, :3]
    for values in some._left_out[:, :3]:
        assert np.abs(known - values).max(axis=1).min() < 1e-8
    assert_allclose(some._left_out[:, -1].sum(), N, rtol=0.1)  # weights: each stands for some
    assert np.abs(some.predict_proba(X) - every.predict_proba(X)).mean() < 0.01


def test_gcv_leaves_out_more_rows_than_a_search_where_they_cost_no_more(monkeypatch):
    labels = Y > 0.0
    monkeypatch.setattr(criteria, "_MANY_POINTS", 20)
    monkeypatch.setattr(criteria, "_EVALUATION_ROWS", 100)
    for work, rows in ((40**2 * 50, 100), (41**2 * 150, 150), (1e10, 250)):
        monkeypatch.setattr(criteria, "_WORK_OF_ALL_ROWS", work)
        monkeypatch.setattr(criteria, "_CALIBRATION_ROWS", 250)
        model = SparseLSSVC("gcv", n_basis=40, **PARAMS).fit(X, labels)
        assert 0.9 * rows <= model.fit_report_["left_out_on"] <= rows


@pytest.mark.parametrize("C", ["loo", "gcv"])
def test_only_loo_has_residuals_after_a_large_fit(few_judges, C):
    model = SparseLSSVC(C, n_basis=40, **PARAMS).fit(X, Y > 0.0)
    assert "left_out_on" in model.fit_report_ and hasattr(model, "loo_residuals_") == (C == "loo")
    single = SparseLSSVC(1.0, n_basis=40, **PARAMS).fit(X, Y > 0.0)
    assert "left_out_on" in single.fit_report_ and not hasattr(single, "loo_residuals_")


@pytest.mark.parametrize("C", [1.0, "kfold", "gcv", "loo"], ids=str)
def test_large_batches_calibrate_on_some_of_their_rows(few_judges, monkeypatch, C):
    monkeypatch.setattr(criteria, "_CALIBRATION_ROWS", 100)
    labels, half = Y > 0.0, N // 2
    model = SparseLSSVC(C, n_basis=40, **PARAMS)
    model.partial_fit(X[:half], labels[:half]).partial_fit(X[half:], labels[half:])
    assert len(model._left_out) <= 200
    assert_allclose(model._left_out[:, -1].sum(), N, rtol=0.2)
    monkeypatch.undo()
    every = SparseLSSVC(C, n_basis=40, **PARAMS)
    every.partial_fit(X[:half], labels[:half]).partial_fit(X[half:], labels[half:])
    assert len(every._left_out) == N
    assert np.abs(model.predict_proba(X) - every.predict_proba(X)).mean() < 0.02


def test_after_the_sizes_one_pass_gives_the_fit_on_those_points(sizes_on_a_sample):
    model = SparseLSSVR(**PARAMS).fit(X, Y)
    assert 100 < model.fit_report_["sizes"]["rows"] <= 150
    assert "of 400 rows" in model.fit_report_["notes"][0]
    given = SparseLSSVR(basis=model.support_, **PARAMS).fit(X, Y)
    assert_allclose(model.predict(X), given.predict(X), rtol=1e-7)
    assert_allclose(model.cv_curve_, given.cv_curve_, rtol=1e-6)


def test_a_cluster_gives_the_same_model(few_judges, sizes_on_a_sample):
    dask = pytest.importorskip("dask.array")
    expected = SparseLSSVR(**PARAMS).fit(X, Y)
    rows, targets = dask.from_array(X, chunks=(90, 3)), dask.from_array(Y, chunks=90)
    found = SparseLSSVR(**PARAMS).fit(rows, targets)
    assert_array_equal(found.support_, expected.support_)
    assert found.C_ == expected.C_
    assert_allclose(found.predict(X), expected.predict(X), rtol=1e-10, atol=1e-10)
    assert_allclose(found.loo_residuals_, expected.loo_residuals_, rtol=1e-8, atol=1e-10)


# ------------------------------------------------------------------ which rows judge


def drawn_rows(monkeypatch, random_state):
    """Fit, and return the rows that were drawn to compare sizes and C."""
    found = []

    def draw(*args):
        found.append(draw_for_all(*args))
        return found[-1]

    for module in (criteria, primal):
        monkeypatch.setattr(module, "draw_for_all", draw)
    monkeypatch.setattr(criteria, "_EVALUATION_ROWS", 50)
    monkeypatch.setattr(nested, "_ROWS_ALL_LEFT_OUT", 100)
    monkeypatch.setattr(primal, "_ROWS_COMPARED_WHOLE", 300)
    monkeypatch.setattr(primal, "_ROWS_COMPARED", 200)
    model = SparseLSSVR(kernel="rbf", gamma=0.5, random_state=random_state).fit(X, Y)
    return [drawn.rows.tolist() for drawn in found], model


def test_the_rows_that_judge_follow_the_seed(monkeypatch):
    first, one = drawn_rows(monkeypatch, 3)
    again, two = drawn_rows(monkeypatch, 3)
    other, _ = drawn_rows(monkeypatch, 4)
    assert first == again and [len(rows) for rows in first] == [200, 50]
    assert first[0] != other[0] and first[-1] != other[-1]
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)


def test_without_a_seed_the_same_rows_judge(monkeypatch):
    expected, _ = drawn_rows(monkeypatch, 0)
    for random_state in (None, np.random.RandomState(5)):
        assert drawn_rows(monkeypatch, random_state)[0][0] == expected[0]
