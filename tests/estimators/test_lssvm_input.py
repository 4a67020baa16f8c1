"""Bad input of LSSVC and LSSVR: a clear ValueError each, that names what is wrong."""

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR
from tests.loops import case

rng = np.random.default_rng(3)
M = 24
X = rng.normal(size=(M, 3))
LABELS = np.arange(M) % 2
THREE = np.arange(M) % 3
K = rbf_kernel(X, gamma=0.5)
BOTH = pytest.mark.parametrize("machine", [LSSVC, LSSVR])
SOLVERS = pytest.mark.parametrize("solver", ["auto", "cholesky", "cg"])


def changed(values, position, value):
    result = np.array(values, dtype=float)
    result[position] = value
    return result


# ---------------------------------------------------------------------------- rows and targets


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_in_rows(machine, value):
    with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
        machine(kernel="precomputed").fit(changed(K, (2, 1), value), LABELS)
    with pytest.raises(ValueError, match="infinity"):
        machine().fit(changed(X, (2, 1), np.inf), LABELS)
    model = machine().fit(X, LABELS)
    with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
        model.predict(changed(X, (2, 1), value))


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_in_targets(machine, value):
    with pytest.raises(ValueError, match=r"y contains (NaN|infinity)"):
        machine().fit(X, changed(LABELS, 3, value))


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_in_a_kernel_matrix(machine, value):
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        machine(kernel="precomputed").fit(changed(K, (1, 1), value), LABELS)


@pytest.mark.parametrize("labels", [np.zeros(M), ["same"] * M])
def test_one_class(labels):
    with pytest.raises(ValueError, match="at least two classes"):
        LSSVC().fit(X, labels)


def test_labels_that_are_numbers_to_regress():
    with pytest.raises(ValueError, match="Unknown label type"):
        LSSVC().fit(X, X[:, 0])


def test_several_columns_of_labels():
    with pytest.raises(ValueError, match=r"y should be a 1d array.*shape \(24, 2\)"):
        LSSVC().fit(X, np.column_stack([LABELS, LABELS]))


@BOTH
def test_not_numeric(machine):
    words = np.full((M, 2), "word", dtype=object)
    with pytest.raises(ValueError, match=r"no usable column.*the same in all rows"):
        machine().fit(words, LABELS)
    with pytest.raises(ValueError, match=r"y contains text, such as .word., but LSSVR"):
        LSSVR().fit(X, np.array(["word"] * M))
    with pytest.raises(ValueError, match=r"[Cc]omplex"):
        machine().fit(X + 1j, LABELS)


@BOTH
def test_empty(machine):
    with pytest.raises(ValueError, match="0 sample"):
        machine().fit(np.empty((0, 3)), np.empty(0))
    with pytest.raises(ValueError, match="0 feature"):
        machine().fit(np.empty((M, 0)), LABELS)
    with pytest.raises(ValueError, match="0 sample"):
        machine().fit(X, LABELS).predict(np.empty((0, 3)))


@BOTH
def test_shapes_that_do_not_match(machine):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        machine().fit(X, LABELS[:-1])
    with pytest.raises(ValueError, match="1D array"):
        machine().fit(X[:, 0], LABELS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        machine().fit(X, None)


@BOTH
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_wrong_width_at_predict(machine, kind):
    model = machine().fit(kind(X), LABELS)
    with pytest.raises(ValueError, match=r"X has 2 features.*expecting 3 features"):
        model.predict(kind(X[:, :2]))
    model = machine(kernel="precomputed").fit(K, LABELS)
    with pytest.raises(ValueError, match=f"X has {M - 1} features.*expecting {M} features"):
        model.predict(K[:, :-1])


@BOTH
def test_predict_before_fit(machine):
    with pytest.raises(NotFittedError):
        machine().predict(X)


def test_other_feature_names_at_predict():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LSSVC().fit(frame, LABELS)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


# ---------------------------------------------------------------------------- parameters


@BOTH
def test_bad_C(machine):
    for C in (0, 0.0, -1.0, np.nan, np.inf, "best", None):
        with case(C=C), pytest.raises(ValueError, match="'C' parameter"):
            machine(C=C).fit(X, LABELS)


BAD_CANDIDATES = [
    [],
    [1.0, 0.0],
    [1.0, -2.0],
    [1.0, np.nan],
    [np.inf],
    ["a"],
    [1.0, "gcv"],
    [None],
    [[1.0, 2.0], [3.0]],
    {"a": 1},
    {1.0, 2.0},
]


@BOTH
def test_bad_candidates_of_C(machine):
    for C in BAD_CANDIDATES:
        with case(C=C), pytest.raises(ValueError, match=r"^C\b|'C'"):
            machine(C=C).fit(X, LABELS)


@BOTH
def test_candidates_of_C_in_any_sequence(machine):
    for C in ((1, 10), np.array([1, 10]), pd.Series([1.0, 10.0]), range(1, 3)):
        with case(C=C):
            model = machine(C=C).fit(X, LABELS)
            assert model.cv_curve_.shape == (2,)
            assert model.C_ in list(C)
            assert isinstance(model.C_, float)


BAD_PARAMETERS = [
    ("kernel", "gaussian"),
    ("kernel", None),
    ("gamma", -0.1),
    ("gamma", np.inf),
    ("gamma", np.nan),
    ("gamma", "wide"),
    ("degree", -1),
    ("coef0", np.inf),
    ("bias_penalty", -1.0),
    ("bias_penalty", np.inf),
    ("fit_intercept", "yes"),
    ("solver", "svd"),
    ("tol", 0.0),
    ("tol", -1e-3),
    ("max_iter", 0),
    ("max_iter", 2.5),
    ("cache_size", 0),
    ("cache_size", "huge"),
]


@BOTH
def test_bad_parameters(machine):
    for name, value in BAD_PARAMETERS:
        refused = pytest.raises(ValueError, match=f"'{name}' parameter of {machine.__name__}")
        with case(name=name, value=value), refused:
            machine(**{name: value}).fit(X, LABELS)


@pytest.mark.parametrize(
    ("name", "value"), [("class_weight", "even"), ("class_weight", [1, 2]), ("calibrate", "yes")]
)
def test_bad_parameters_of_the_classifier(name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of LSSVC"):
        LSSVC(**{name: value}).fit(X, LABELS)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_class_weights_must_be_finite_and_not_negative(value):
    with pytest.raises(ValueError, match="class_weight"):
        LSSVC(class_weight={0: value, 1: 1.0}).fit(X, THREE)


def test_class_weight_of_an_unknown_class():
    with pytest.raises(ValueError, match="class"):
        LSSVC(class_weight={0: 1.0, 7: 2.0}).fit(X, LABELS)


@BOTH
@pytest.mark.parametrize("C", ["loo", "gcv", [1.0, 2.0]], ids=str)
def test_choosing_C_needs_a_factorisation(machine, C):
    with pytest.raises(ValueError, match=r"C=.*solver='cg'"):
        machine(C=C, solver="cg").fit(X, LABELS)


def test_probabilities_exist_unless_they_are_switched_off():
    plain = LSSVC(calibrate=False)
    assert not hasattr(plain, "predict_proba")
    assert not hasattr(plain.fit(X, LABELS), "predict_log_proba")
    assert hasattr(LSSVC(), "predict_proba")
    assert not hasattr(LSSVR(), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba needs calibrate=True"):
        plain.predict_proba(X)


def test_calibrate_switched_on_after_fit():
    model = LSSVC(calibrate=False).fit(X, LABELS).set_params(calibrate=True)
    with pytest.raises(NotFittedError, match="fitted with calibrate=False"):
        model.predict_proba(X)
    expected = LSSVC().fit(X, LABELS).predict_proba(X)
    np.testing.assert_allclose(model.keep_rows(X, LABELS).predict_proba(X), expected, rtol=1e-6)


# ---------------------------------------------------------------------------- sample weights


@BOTH
@pytest.mark.parametrize("solver", ["auto", "cg"])
def test_bad_sample_weights(machine, solver):
    model = machine(solver=solver)
    with pytest.raises(ValueError, match=r"Negative values.*sample_weight"):
        model.fit(X, LABELS, changed(np.ones(M), 4, -0.5))
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        model.fit(X, LABELS, np.zeros(M))
    with pytest.raises(ValueError, match=r"sample_weight contains (NaN|infinity)"):
        model.fit(X, LABELS, changed(np.ones(M), 4, np.nan))
    with pytest.raises(ValueError, match=r"sample_weight contains (NaN|infinity)"):
        model.fit(X, LABELS, changed(np.ones(M), 4, np.inf))
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, LABELS, np.ones(M - 1))
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        model.fit(X, LABELS, np.ones((M, 2)))


def test_weights_that_leave_one_class():
    with pytest.raises(ValueError, match=r"sample_weight.*two classes"):
        LSSVC().fit(X, LABELS, LABELS)
    with pytest.raises(ValueError, match=r"class_weight.*two classes"):
        LSSVC(class_weight={0: 0.0}).fit(X, LABELS)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 1.0}], ids=str)
@pytest.mark.parametrize("C", [1.0, "loo", "gcv"])
def test_a_class_without_weight_is_never_predicted(class_weight, C):
    weight = np.where(THREE == 2, 0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LSSVC(C, class_weight=class_weight, calibrate=True).fit(X, THREE, weight)
    kept = THREE < 2
    assert_allclose(model.gamma_, 1 / (3 * X[kept].var()))
    assert_array_equal(model.classes_, [0, 1, 2])
    assert not np.isin(model.support_, np.flatnonzero(THREE == 2)).any()
    assert np.isfinite(model.predict_proba(X)).all()
    assert set(model.predict(X)) == {0, 1}
    values = LSSVC(model.C_, gamma=model.gamma_).fit(X[kept], THREE[kept]).decision_function(X)
    assert_allclose(model.decision_function(X)[:, 1], values, atol=1e-7)


def test_weights_in_any_form():
    expected = LSSVR().fit(X, LABELS, np.arange(M) + 1.0).dual_coef_
    for weight in (list(range(1, M + 1)), pd.Series(np.arange(M) + 1), np.arange(M) + 1):
        assert_array_equal(LSSVR().fit(X, LABELS, weight).dual_coef_, expected)
    doubled = LSSVR(C=0.5).fit(X, LABELS, 2.0)
    assert_allclose(doubled.dual_coef_, LSSVR().fit(X, LABELS).dual_coef_)


def test_a_weight_too_small_to_matter():
    for C in (1.0, [1.0]):
        for tiny in (1e-30, 1e-200, 1e-300):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = LSSVR(C, gamma=0.5).fit(X, LABELS, changed(np.ones(M), 3, tiny))
            rest = np.delete(np.arange(M), 3)
            expected = LSSVR(C, gamma=0.5).fit(X[rest], LABELS[rest]).predict(X)
            assert_allclose(model.predict(X), expected, atol=1e-8)
            assert np.isfinite(list(model.fit_report_[key] for key in ("residual", "gap"))).all()


# ---------------------------------------------------------------------------- kernels


@BOTH
@SOLVERS
def test_kernel_matrix_not_square(machine, solver):
    with pytest.raises(ValueError, match=r"precomputed.*square"):
        machine(kernel="precomputed", solver=solver).fit(K[:, :-1], LABELS)


@BOTH
@SOLVERS
def test_kernel_matrix_not_symmetric(machine, solver):
    with pytest.raises(ValueError, match=r"precomputed.*not symmetric"):
        machine(kernel="precomputed", solver=solver).fit(changed(K, (0, 5), 0.9), LABELS)


def test_kernel_matrix_symmetric_but_for_rounding():
    noisy = K * (1 + 1e-12 * np.random.default_rng(0).normal(size=K.shape))
    expected = LSSVC(kernel="precomputed").fit(K, LABELS).decision_function(K)
    found = LSSVC(kernel="precomputed").fit(noisy, LABELS).decision_function(K)
    assert_allclose(found, expected, atol=1e-9)


@BOTH
@SOLVERS
def test_kernel_matrix_not_positive_definite(machine, solver):
    indefinite = K - 5 * np.outer(X[:, 0], X[:, 0])
    with pytest.raises(ValueError, match=r"precomputed.*not positive definite"):
        machine(kernel="precomputed", solver=solver).fit(indefinite, LABELS)
    for C in ("loo", "gcv", [1.0, 10.0]):
        with pytest.raises(ValueError, match=r"precomputed.*not positive definite"):
            machine(C, kernel="precomputed").fit(indefinite, LABELS)
    # but a small enough C makes the sum definite
    machine(1e-3, kernel="precomputed", solver=solver).fit(indefinite, LABELS)


@BOTH
@SOLVERS
def test_negative_definite_kernel_matrix(machine, solver):
    with pytest.raises(ValueError, match=r"precomputed.*not positive definite"):
        machine(100.0, kernel="precomputed", solver=solver).fit(-K, LABELS)


@BOTH
@SOLVERS
def test_sigmoid_that_is_not_positive_definite(machine, solver):
    with pytest.raises(ValueError, match=r"sigmoid.*not positive definite.*smaller C"):
        machine(1e4, kernel="sigmoid", gamma=1.0, coef0=-1.0, solver=solver).fit(X, LABELS)


@BOTH
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernel_values_that_are_not_finite(machine):
    root = {"kernel": "poly", "degree": 2.5}, 1.0  # of a negative number
    overflow = {"kernel": "poly", "gamma": 1.0}, 1e150
    every_way = {}, {"solver": "cg"}, {"C": "gcv"}, {"C": "loo"}
    for options, (kernel, scale) in product(every_way, [root, overflow]):
        refused = pytest.raises(ValueError, match=r"kernel.*(NaN|infinit|finite)")
        with case(options=options, kernel=kernel), refused:
            machine(**options, **kernel).fit(scale * X, LABELS)


@BOTH
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_too_large_for_a_dot_product(machine):
    with pytest.raises(ValueError, match=r"kernel.*(NaN|infinit|finite)"):
        machine(kernel="linear").fit(1e200 * X, LABELS)


def test_rows_whose_squares_overflow_have_a_gaussian_kernel():
    small, large = LSSVC(gamma="scale").fit(X, LABELS), LSSVC(gamma=0.5).fit(1e160 * X, LABELS)
    assert np.isfinite(large.decision_function(1e160 * X)).all()
    assert_allclose(large.gamma_, 0.5)
    assert small.gamma_ > 0


@BOTH
def test_callable_kernels_that_return_nonsense(machine):
    with pytest.raises(ValueError, match=r"kernel function.*expected shape"):
        machine(kernel=lambda A, B: 1.0).fit(X, LABELS)
    with pytest.raises(ValueError, match=r"callable.*NaN"):
        machine(kernel=lambda A, B: np.full((len(A), len(B)), np.nan)).fit(X, LABELS)
    with pytest.raises(ValueError, match=r"not positive definite"):
        machine(kernel=lambda A, B: -5 * A @ B.T).fit(X, LABELS)


@BOTH
@pytest.mark.parametrize("options", [{}, {"solver": "cg"}, {"C": [1.0]}], ids=str)
def test_callable_kernel_that_is_not_symmetric_does_not_pass_in_silence(machine, options):
    def lopsided(A, B):
        return rbf_kernel(A, B) + 0.3 * (A[:, :1] > B[:, 0])

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises((ValueError, ConvergenceWarning)):
            machine(kernel=lopsided, **options).fit(X, LABELS)


@BOTH
def test_sparse_kernel_matrix(machine):
    with pytest.raises((TypeError, ValueError), match=r"[Ss]parse"):
        machine(kernel="precomputed").fit(sparse.csr_array(K), LABELS)


def test_sparse_targets():
    with pytest.raises((TypeError, ValueError), match=r"[Ss]parse|dense"):
        LSSVR().fit(X, sparse.csr_array(LABELS[:, None]))


# ---------------------------------------------------------------------------- too little data


def test_one_row():
    model = LSSVR().fit(X[:1], [3.0])
    assert_allclose(model.predict(X), 3.0)
    assert_allclose(model.dual_coef_, 0.0, atol=1e-15)
    half = LSSVR(fit_intercept=False).fit(X[:1], [3.0])
    assert_allclose(half.predict(X[:1]), 1.5)
    assert_allclose(LSSVR(solver="cg").fit(X[:1], [3.0]).predict(X), 3.0)
    with pytest.raises(ValueError, match="classes"):
        LSSVC().fit(X[:1], [1])


@pytest.mark.parametrize("C", ["loo", "gcv", [1.0, 2.0]], ids=str)
def test_one_row_cannot_choose_C(C):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"(1 sample|n_samples ?= ?1)"):
            LSSVR(C).fit(X[:1], [3.0])


def test_leave_one_out_needs_two_distinct_rows():
    with pytest.raises(ValueError, match=r"C='loo'.*two distinct rows"):
        LSSVR("loo").fit(X[[0, 0, 0]], [3.0, 3.0, 3.0])


def test_gcv_with_weights_that_sum_to_little():
    with pytest.raises(ValueError, match="sample_weight"):
        LSSVR("gcv").fit(X, X[:, 0], np.full(M, 0.5 / M))


def test_frame_with_rows_of_zero_weight_warns_of_nothing():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LSSVC("loo").fit(frame, LABELS, changed(np.ones(M), 3, 0.0))
    assert model.loo_residuals_.shape == (M,)
