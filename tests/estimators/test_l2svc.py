"""L2SVC: the solution, against closed forms, other solvers and a quadratic program."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import brentq, minimize, nnls
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.svm import LinearSVC

from leansvm import L2SVC
from leansvm._parallel import limited_blas
from leansvm.dual import active_set
from leansvm.dual.active_set import ActiveSet
from leansvm.kernels import Kernel
from leansvm.model_selection import c_path
from tests.loops import case

FOUR = np.array([[1.1, 1.0], [1.0, 1.0], [0.0, 0.0], [-0.1, 0.0]])
FOUR_Y = np.array([1, 1, -1, -1])


def noisy(seed=0, m=60, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    X[1], X[5:8] = X[0], X[4]  # equal rows
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=m) > 0, 1, -1)
    y[:2] = 1, -1
    return X, y, rng.integers(1, 4, size=m).astype(float)


def breast():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


# ---------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("solver", ["active-set", "newton"])
def test_table_1_of_peng2016(solver):
    model = L2SVC(C=1e4, kernel="linear", solver=solver).fit(FOUR, FOUR_Y)
    assert_array_equal(model.support_ + 1, [2, 3])
    assert_allclose(model.dual_coef_[0], [0.9999, -0.9999], atol=5e-5)
    assert_allclose(model.intercept_, -0.9999, atol=5e-5)
    assert model.coef_[0] @ model.coef_[0] == pytest.approx(1.9996, abs=5e-5)
    errors = 1 - FOUR_Y * model.decision_function(FOUR)
    assert_allclose(errors, [-9.9890e-2, 9.9990e-5, 9.9990e-5, -9.9890e-2], rtol=5e-5)


@pytest.mark.parametrize("C", 10.0 ** np.arange(0, 9))
def test_the_closed_form_of_the_four_points(C):
    model = L2SVC(C=C, kernel="linear").fit(FOUR, FOUR_Y)
    if C < 10:  # below, the outer points are support vectors too
        assert len(model.support_) == 4
        return
    theta = C / (C + 1)
    assert_allclose(model.dual_coef_[0], [theta, -theta], rtol=1e-7)
    assert_allclose(model.intercept_, -theta, rtol=1e-12)
    assert_allclose(model.coef_[0], [theta, theta], rtol=1e-12)
    assert model.objective_ == pytest.approx(theta, rel=1e-9)
    outer, inner = 1 - 1.1 * theta, 1 - theta
    errors = 1 - FOUR_Y * model.decision_function(FOUR)
    assert_allclose(errors, [outer, inner, inner, outer], atol=1e-12)


# ---------------------------------------------------------------------------- properties


@given(
    st.integers(0, 10_000),
    st.sampled_from(["linear", "rbf", "laplacian", "poly"]),
    st.floats(-3, 4),
    st.sampled_from([0.0, 2.0, None]),
)
@settings(max_examples=60, deadline=None)
def test_properties_51_to_56(seed, kernel, log_C, A):
    X, y, weight = noisy(seed, m=40)
    C = 10.0**log_C
    model = L2SVC(
        C,
        kernel,
        gamma=0.4,
        coef0=1.0,
        degree=2,
        fit_intercept=A is not None,
        bias_penalty=A or 0.0,
    ).fit(X, y, weight)
    theta = model.dual_coef_[0] * y[model.support_]
    largest = theta.max()
    e = 1 - y * model.decision_function(X)
    assert np.all(theta > 0)
    assert_allclose(theta, C * weight[model.support_] * e[model.support_], atol=1e-8 * largest)
    outside = np.delete(np.arange(len(y)), model.support_)
    assert np.all(C * weight[outside] * e[outside] <= 1e-8 * largest)
    expected = 0.0 if A is None else A * model.intercept_[0]
    if A is not None:
        assert model.dual_coef_.sum() == pytest.approx(expected, abs=1e-8 * np.abs(theta).sum())
    assert model.objective_ == pytest.approx(0.5 * theta.sum(), rel=1e-8)
    assert model.fit_report_["gap"] <= 1e-8 * model.objective_
    assert model.fit_report_["converged"]


# ---------------------------------------------------------------------------- references


def by_nnls(K, y, cost, A):
    """Solve the dual as non-negative least squares; a free bias is where sum y theta = 0."""
    shared = 1.0 / A if 0 < A < np.inf else 0.0
    L = np.linalg.cholesky(np.outer(y, y) * (K + shared) + np.diag(1 / cost))

    def theta(b):
        return nnls(L.T, np.linalg.solve(L, 1 - b * y), maxiter=10_000)[0]

    b = brentq(lambda b: y @ theta(b), -1e3, 1e3, xtol=1e-15) if A == 0 else 0.0
    beta = y * theta(b)
    return K @ beta + b + shared * beta.sum()


def by_slsqp(K, y, cost):
    """Solve the dual with a free bias as a quadratic program."""
    Q = np.outer(y, y) * K + np.diag(1 / cost)
    found = minimize(
        lambda t: 0.5 * t @ Q @ t - t.sum(),
        np.full(len(y), 0.1),
        jac=lambda t: Q @ t - 1,
        bounds=[(0, None)] * len(y),
        constraints=[{"type": "eq", "fun": lambda t: y @ t, "jac": lambda t: y}],
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    beta = y * found.x
    inside = found.x > 1e-6 * found.x.max()
    return K @ beta + np.mean((y - K @ beta - beta / cost)[inside])


@pytest.mark.parametrize(
    "kernel, gamma", [("linear", 1.0), ("rbf", 0.5), ("rbf", 20.0), ("rbf", 1e-3)]
)
@pytest.mark.parametrize("A", [0.0, 2.0, np.inf])
def test_the_solution_is_that_of_newton_and_of_a_quadratic_program(kernel, gamma, A):
    X, y, weight = noisy(3)  # linear: K has rank 3 of 60
    K = Kernel(kernel, gamma=gamma).block(X, X)
    options = {"fit_intercept": not np.isinf(A), "bias_penalty": 0.0 if np.isinf(A) else A}
    for C in (1e-2, 1.0, 1e2, 1e4):
        with case(C=C):
            model = L2SVC(C, kernel, gamma=gamma, **options).fit(X, y, weight)
            newton = clone(model).set_params(solver="newton").fit(X, y, weight)
            values = model.decision_function(X)
            assert_allclose(values, newton.decision_function(X), atol=1e-7)
            assert_allclose(values, by_nnls(K, y, C * weight, A), atol=1e-6)
            if A == 0 and C <= 1:
                assert_allclose(values, by_slsqp(K, y, C * weight), atol=1e-6)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_linear_svc_is_the_case_of_a_penalised_bias(C):
    X, y = breast()
    model = L2SVC(C, "linear", bias_penalty=1.0).fit(X, y)
    theirs = LinearSVC(C=C / 2, tol=1e-10, max_iter=200_000, dual=True).fit(X, y)
    assert_allclose(model.decision_function(X), theirs.decision_function(X), atol=1e-4)


def test_the_two_forms_of_the_linear_system_agree():
    # 569 x 30: the n x n form; the same kernel as a function: the form of the support vectors
    X, y = breast()
    model = L2SVC(1.0, "linear").fit(X, y)
    other = L2SVC(1.0, lambda A, B: A @ B.T, solver="active-set").fit(X, y)
    assert_allclose(model.decision_function(X), other.decision_function(X), atol=1e-8)
    assert_array_equal(model.support_, other.support_)
    assert model.fit_report_["factor"]["appended"] == 0 < other.fit_report_["factor"]["appended"]


def test_sparse_rows_float32_and_precomputed_give_the_same():
    X, y = breast()
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    for kernel in ("linear", "rbf"):
        model = L2SVC(2.0, kernel, gamma=0.05).fit(X, y)
        values = model.decision_function(X)
        by_rows = clone(model).fit(sparse.csr_matrix(X), y)
        assert_allclose(by_rows.decision_function(sparse.csr_matrix(X)), values, atol=1e-8)
        single = clone(model).fit(X.astype(np.float32), y)
        assert single.decision_function(X.astype(np.float32)).dtype == np.float32
        assert_allclose(single.decision_function(X), values, atol=1e-3)
        K = Kernel(kernel, gamma=0.05).block(X, X)
        given_K = L2SVC(2.0, "precomputed").fit(K, y)
        assert_allclose(given_K.decision_function(K), values, atol=1e-8)


# ---------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("C", [1e-12, 1e-4, 1e8])
def test_extreme_C_on_equal_rows_and_constant_columns(kernel, C):
    X, y, weight = noisy(1)
    X = np.hstack([X, np.full((len(X), 2), 1e3)])
    X[10:20] = X[9]
    model = L2SVC(C, kernel, gamma=0.5).fit(X, y, weight)
    assert model.fit_report_["converged"]
    assert model.fit_report_["gap"] <= 1e-6 * model.objective_


@pytest.mark.parametrize("gamma", [1e-12, 1e12])
def test_extreme_gamma(gamma):
    X, y, _ = noisy(2)
    model = L2SVC(1.0, gamma=gamma).fit(X, y)
    assert model.fit_report_["converged"]
    assert np.isfinite(model.decision_function(X)).all()


def test_one_sample_a_class():
    model = L2SVC(10.0, "linear").fit([[0.0], [2.0]], ["a", "b"])
    assert_array_equal(model.predict([[0.0], [2.0]]), ["a", "b"])
    assert model.decision_function([[1.0]])[0] == pytest.approx(0.0, abs=1e-12)


def test_separable_classes_and_huge_costs_end_by_continuation():
    X, y = breast()
    model = L2SVC(1e6, "linear").fit(X, y)
    assert model.fit_report_["converged"]
    assert model.n_iter_ < 200


# ---------------------------------------------------------------------------- weights, classes


def test_weights_are_repetitions():
    X, y, weight = noisy(4)
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    for options in ({}, {"calibrate": True}, {"C": [0.1, 1.0, 10.0]}):
        weighted = L2SVC(gamma=0.5, **options).fit(X, y, weight)
        copies = L2SVC(gamma=0.5, **options).fit(X[repeated], y[repeated])
        assert_allclose(weighted.decision_function(X), copies.decision_function(X), atol=1e-8)
        assert weighted.C_ == copies.C_
        if "calibrate" in options:
            assert weighted.calibration_scale_ == pytest.approx(copies.calibration_scale_, rel=1e-6)


def test_rows_of_no_weight_and_their_numbers():
    X, y, weight = noisy(4)
    weight[::3] = 0
    kept = np.flatnonzero(weight)
    model = L2SVC(gamma=0.5).fit(X, y, weight)
    alone = L2SVC(gamma=0.5).fit(X[kept], y[kept], weight[kept])
    assert_array_equal(model.support_, kept[alone.support_])
    assert_array_equal(model.support_vectors_, X[model.support_])
    assert_allclose(model.decision_function(X), alone.decision_function(X), atol=1e-10)


def test_several_classes_are_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    model = L2SVC(5.0, gamma=0.5, class_weight={0: 2.0}).fit(X, y)
    for k in range(3):
        single = L2SVC(5.0, gamma=0.5).fit(X, y == k, np.where(y == 0, 2.0, 1.0))
        assert_allclose(model.decision_function(X)[:, k], single.decision_function(X), atol=1e-7)
    assert model.n_support_ == len(model.support_) < len(X)
    assert model.dual_coef_.shape == (3, len(model.support_))


def test_permuting_rows_changes_nothing():
    X, y, weight = noisy(6)
    order = np.random.default_rng(0).permutation(len(y))
    model = L2SVC(gamma=0.5).fit(X, y, weight)
    other = L2SVC(gamma=0.5).fit(X[order], y[order], weight[order])
    assert_allclose(model.decision_function(X), other.decision_function(X), atol=1e-10)


# ---------------------------------------------------------------------------- leave-one-out


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_left_out_values_are_those_of_refitting_where_the_support_set_stays(kernel):
    from contextlib import nullcontext

    from leansvm.dual import DualProblem
    from leansvm.dual.active_set import ActiveSet

    X, y, weight = noisy(8, m=40)
    Y = y[:, None].astype(float)
    problem = DualProblem(
        X, Kernel(kernel, gamma=0.5), Y, weight, 0.0, 10**9, lambda name: nullcontext()
    )
    found = ActiveSet(problem).solve(1.0, tol=1e-10, max_iter=100, left_out=True)
    support = np.flatnonzero(found.coef)
    same = 0
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        model = L2SVC(1.0, kernel, gamma=0.5).fit(X[rest], y[rest], weight[rest])
        if set(rest[model.support_]) == set(support) - {i}:
            same += 1
            assert y[i] - model.decision_function(X[[i]])[0] == pytest.approx(
                found.left_out[i, 0], abs=1e-8
            )
    assert same > 15


def test_probabilities_follow_predict():
    X, y = load_iris(return_X_y=True)
    model = L2SVC(gamma=0.5).fit(X, y)
    assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))
    assert not hasattr(L2SVC(calibrate=False).fit(X, y), "predict_proba")


# ---------------------------------------------------------------------------- max_support


def crowd(m=3000, flip=0.05):
    return make_classification(m, 8, n_informative=5, flip_y=flip, random_state=0)


@pytest.mark.parametrize("solver", ["active-set", "auto"])
def test_a_large_problem_starts_from_a_part_and_ends_at_the_solution(solver):
    X, y = crowd()
    model = L2SVC(1.0, gamma=0.1, solver=solver).fit(X, y)
    e = 1 - np.where(y == 1, 1, -1) * model.decision_function(X)
    assert_array_equal(np.flatnonzero(e > 1e-9), model.support_)
    assert model.fit_report_["gap"] <= 1e-9 * model.objective_


def test_max_support_large_enough_gives_the_solution():
    X, y = crowd()
    free = L2SVC(1.0, gamma=0.1).fit(X, y)
    bounded = L2SVC(1.0, gamma=0.1, max_support=len(free.support_) + 200).fit(X, y)
    assert_array_equal(bounded.support_, free.support_)
    assert_allclose(bounded.decision_function(X), free.decision_function(X), atol=1e-7)


def test_max_support_too_small_says_so():
    X, y = crowd()
    with pytest.warns(ConvergenceWarning, match="max_support=100 is not enough"):
        model = L2SVC(1.0, gamma=0.1, max_support=100).fit(X, y)
    assert len(model.support_) <= 100
    assert not model.fit_report_["converged"]
    assert model.fit_report_["rows_kept_out"] > 0
    assert model.fit_report_["gap"] > 0
    assert model.score(X, y) > 0.7


def test_too_few_iterations_say_so():
    X, y = breast()
    with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations"):
        L2SVC(10.0, "linear", max_iter=1).fit(X, y)


# ---------------------------------------------------------------------------- memory


def test_a_factor_that_does_not_fit_is_refused_before_it_is_made():
    X, y = crowd()
    with pytest.raises(MemoryError, match=r"support vectors needs .* bytes.*max_support"):
        L2SVC(1.0, gamma=0.1, cache_size=2).fit(X, y)


def test_kernel_rows_that_do_not_fit_are_computed_again():
    X, y = crowd(1200)
    options = {"gamma": 0.1, "solver": "active-set"}
    free = L2SVC(1.0, **options).fit(X, y)
    k = len(free.support_)
    tight = L2SVC(1.0, cache_size=(16 * (1.2 * k) ** 2 + 5e6) / 2**20, **options).fit(X, y)
    assert_allclose(tight.decision_function(X), free.decision_function(X), atol=1e-9)


# ---------------------------------------------------------------------------- paths and batches


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_path_gives_the_models_of_single_fits_in_fewer_solves(kernel):
    X, y = breast()
    values = [100.0, 0.1, 1.0, 10.0]
    found = c_path(L2SVC(kernel=kernel, gamma=0.05), X, y, values, X_score=X, y_score=y)
    single = [L2SVC(C, kernel, gamma=0.05, solver="active-set").fit(X, y) for C in values]
    for ours, model in zip(found.models, single, strict=True):
        assert ours.C_ == model.C_
        assert_allclose(ours.decision_function(X), model.decision_function(X), atol=1e-7)
    assert found.n_iter.sum() <= sum(model.n_iter_ for model in single)
    assert_allclose(found.score, [model.score(X, y) for model in single])


def test_the_best_of_several_C_has_the_least_left_out_loss():
    X, y = breast()
    model = L2SVC([10.0, 0.1, 1.0], gamma=0.05).fit(X, y)
    best = int(np.argmin(model.cv_curve_))
    assert [10.0, 0.1, 1.0][best] == model.C_
    single = L2SVC(model.C_, gamma=0.05).fit(X, y)
    assert_allclose(model.decision_function(X), single.decision_function(X), atol=1e-7)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_c_by_leave_one_out(kernel):
    X, y = load_iris(return_X_y=True)
    X = np.vstack([X, X[:9]])  # rows that come twice are left out together
    y = np.append(y, y[:9])
    model = L2SVC(C="loo", kernel=kernel, gamma=0.3).fit(X, y)
    grid = np.logspace(-3, 4, 15)
    assert model.cv_curve_.shape == (15,)
    assert grid[np.argmin(model.cv_curve_)] == model.C_
    listed = L2SVC(C=grid, kernel=kernel, gamma=0.3, solver="active-set").fit(X, y)
    assert_allclose(model.cv_curve_, listed.cv_curve_, rtol=1e-4)
    single = L2SVC(C=model.C_, kernel=kernel, gamma=0.3).fit(X, y)
    assert_allclose(model.decision_function(X), single.decision_function(X), atol=1e-6)
    assert not hasattr(single, "cv_curve_") and not hasattr(single, "loo_residuals_")
    slack = np.maximum(np.where(y[:, None] == model.classes_, 1, -1) * model.loo_residuals_, 0)
    assert np.mean(np.sum(slack**2, axis=1)) == pytest.approx(model.cv_curve_.min(), rel=1e-6)
    assert_allclose(model.loo_residuals_[:9], model.loo_residuals_[-9:])


@pytest.mark.parametrize("solver", ["auto", "active-set"])
def test_a_curve_that_levels_out_gives_its_first_C(solver):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(30, 2)) + 3, rng.normal(size=(30, 2)) - 3])
    model = L2SVC([1e7, 1e8, 1e9], gamma=0.1, solver=solver).fit(X, np.repeat([0, 1], 30))
    assert np.ptp(model.cv_curve_) < 1e-6 * model.cv_curve_.min()  # rounding could choose
    assert model.C_ == 1e7


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_batches_give_the_model_of_all_rows(kernel, form):
    X, y = breast()
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    model = L2SVC(2.0, kernel, gamma=0.05)
    for rows in np.array_split(np.arange(len(y)), 5):
        model.partial_fit(form(X[rows]), y[rows], classes=[0, 1], sample_weight=weight[rows])
        model = pickle.loads(pickle.dumps(model))
    whole = L2SVC(2.0, kernel, gamma=0.05).fit(X, y, weight)
    assert_array_equal(model.support_, whole.support_)
    assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-7)
    assert model.n_iter_ <= whole.n_iter_ + 2


def test_a_few_more_rows_change_the_factor_a_little():
    X, y = crowd(2000)
    model = L2SVC(1.0, gamma=0.1).partial_fit(X[:-5], y[:-5])
    before = model.fit_report_["factor"]["appended"]
    model.partial_fit(X[-5:], y[-5:])
    assert model.fit_report_["factor"]["appended"] - before < 0.2 * len(model.support_)
    whole = L2SVC(1.0, gamma=0.1).fit(X, y)
    assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-7)


def test_several_classes_in_batches_and_a_class_that_comes_late():
    X, y = load_iris(return_X_y=True)  # sorted by class
    model = L2SVC(gamma=0.5)
    for rows in (slice(0, 70), slice(70, 150)):
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    whole = L2SVC(gamma=0.5).fit(X, y)
    assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-7)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("forms", [(np.asarray, sparse.csr_array), (sparse.csr_array, np.asarray)])
def test_batches_may_be_dense_or_sparse(kernel, forms):
    X, y = make_classification(80, 5, random_state=0)
    model, expected = (L2SVC(kernel=kernel, gamma=0.1) for _ in range(2))
    for rows, form in ((slice(0, 50), forms[0]), (slice(50, 80), forms[1])):
        model.partial_fit(form(X[rows]), y[rows], classes=[0, 1])
        expected.partial_fit(X[rows], y[rows], classes=[0, 1])
    assert_allclose(model.decision_function(X), expected.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("place", ["solve", "extend"])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_batch_that_ends_in_an_error_has_not_come(kernel, place, error, monkeypatch):
    X, y, weight = noisy(m=90)
    batches = np.array_split(np.arange(90), 3)
    model = L2SVC(2.0, kernel, gamma=0.3)
    model.partial_fit(X[batches[0]], y[batches[0]], [-1, 1], weight[batches[0]])
    before = model.decision_function(X)

    def fails(self, *args, **options):
        monkeypatch.undo()
        getattr(type(self), place)(self, *args, **options)
        raise error

    monkeypatch.setattr(ActiveSet, place, fails)
    with pytest.raises(error):
        model.partial_fit(X[batches[1]], y[batches[1]], sample_weight=weight[batches[1]])
    assert_array_equal(model.decision_function(X), before)
    for rows in batches[1:]:  # it comes again, and another one
        model.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
    whole = L2SVC(2.0, kernel, gamma=0.3).fit(X, y, weight)
    assert_array_equal(model.support_, whole.support_)
    assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-7)


def test_partial_fit_says_what_it_cannot_do():
    X, y, _ = noisy()
    with pytest.warns(UserWarning, match="partial_fit starts a new model"):
        model = L2SVC().fit(X, y).partial_fit(X[::2], y[::2])
    assert_allclose(model.dual_coef_, L2SVC().fit(X[::2], y[::2]).dual_coef_, atol=1e-10)
    with pytest.raises(ValueError, match=r"classes=\[5, 6\], but"):
        model.partial_fit(X, y, classes=[5, 6])
    for options in ({"C": [1, 2]}, {"class_weight": "balanced"}):
        with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as caught:
            L2SVC(**options).partial_fit(X, y)
        assert "call fit" in str(caught.value.__cause__)
    assert not hasattr(L2SVC(kernel="precomputed"), "partial_fit")


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "options, match",
    [
        ({"solver": "newton", "max_support": 9}, "solver='newton' is for one C"),
        ({"C": [1.0, -1.0]}, "C must be"),
        ({"max_support": 1}, "max_support"),
        ({"solver": "cg"}, "solver"),
    ],
)
def test_bad_options_are_named(options, match):
    X, y, _ = noisy()
    with pytest.raises(ValueError, match=match):
        L2SVC(**options).fit(X, y)


def test_a_kernel_that_is_not_positive_definite_is_refused():
    X, y, _ = noisy()
    for solver in ("active-set",):
        with pytest.raises(ValueError, match="not positive definite"):
            L2SVC(1e3, lambda A, B: -(A @ B.T), solver=solver).fit(X, y)
    with pytest.raises(ValueError, match="not symmetric"):
        L2SVC(1.0, lambda A, B: A @ (B * [1, 2, 3]).T + A[:, :1]).fit(X, y)


def test_no_warnings_on_an_ordinary_fit():
    X, y = breast()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        L2SVC().fit(X, y)


@pytest.mark.parametrize("rows", [np.ones((6, 2)), np.zeros((6, 2))], ids=["ones", "zeros"])
def test_equal_rows_of_a_linear_kernel_have_a_bias(rows):
    labels = np.array([0, 1, 0, 0, 0, 1])
    model = L2SVC(kernel="linear", solver="active-set").fit(rows, labels)
    assert_allclose(model.intercept_, -1 / 3)  # the mean of the codes -1 and 1
    assert_allclose(model.objective_, 8 / 3)


def test_threads_of_blas_follow_the_matrix_that_is_factored(monkeypatch):
    # with 3,000 rows of 4 features they only wait for each other
    asked = []

    def one_thread(size, small):
        asked.append(size)
        return limited_blas()

    monkeypatch.setattr(active_set, "limited_blas", one_thread)
    X = np.random.default_rng(0).normal(size=(3000, 4))
    L2SVC(kernel="linear", solver="active-set").fit(X, X[:, 0] > 0)
    L2SVC(gamma=0.1, solver="active-set").fit(X[:100], X[:100, 0] > 0)
    assert asked == [4, 100]
