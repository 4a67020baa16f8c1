"""Numbers that overflow or do not exist become clear errors, never labels or endless loops."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from leansvm import (
    L2SVC,
    LSSVC,
    LSSVR,
    KernelBasis,
    LowRankLSSVC,
    LowRankLSSVR,
    ReducedSVR,
    SparseLSSVC,
)
from leansvm.kernels import Kernel
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = (X[:, 0] + 0.3 * RNG.normal(size=120) > 0).astype(int)
CLASSIFIERS = [
    LSSVC(C=1.0),
    L2SVC(),
    PlainSparseLSSVC(C=1.0, n_basis=10, random_state=0),
    PlainReducedSVC(n_basis=10, random_state=0),
    PlainReducedSVC(n_basis=10, regularizer="coef", random_state=0),
]
REGRESSORS = [LSSVR(), PlainSparseLSSVR(), ReducedSVR(), LowRankLSSVR(n_basis=3)]


@pytest.mark.parametrize("X", [X, X.astype(np.float32), sparse.csr_matrix(X)])
@pytest.mark.parametrize(
    "kernel",
    [Kernel("poly", degree=0.5), Kernel("poly", degree=80, gamma=1e9), Kernel("linear")],
)
def test_kernel_values_that_are_not_finite_are_refused(kernel, X):
    far = X * (X.dtype.type(1e30 if X.dtype == np.float32 else 1e200))
    with pytest.raises(ValueError, match="not finite: scale X"):
        kernel.block(far, far)
    if kernel.degree != 0.5:  # x'x is never negative
        with pytest.raises(ValueError, match="not finite: scale X"):
            kernel.diag(far)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_a_power_that_does_not_exist_gives_no_label(model):
    model = clone(model).set_params(kernel="poly", degree=0.5, gamma=1.0)
    with pytest.raises(ValueError, match="kernel='poly' gives values that are not finite"):
        model.fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the root is no kernel
        model.fit(np.abs(X[:60]), Y[:60])
    with pytest.raises(ValueError, match="kernel='poly' gives values that are not finite"):
        model.predict(X)


@pytest.mark.parametrize("size", [1e4, 1e2])  # values overflow, or their squares do
@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
def test_newton_ends_where_its_matrix_overflows(regularizer, size):
    model = PlainReducedSVC(kernel="poly", degree=80, gamma=1.0, regularizer=regularizer)
    with pytest.raises(ValueError, match="not finite"):
        model.fit(size * X, Y)


def test_values_too_large_for_the_type_of_the_rows_are_refused():
    model = LSSVR(C=1.0).fit(X, 1e100 * X[:, 0])
    with pytest.raises(ValueError, match="too large for float32"):
        model.predict(X.astype(np.float32))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("model", [*CLASSIFIERS, LowRankLSSVC(n_basis=3)], ids=str)
def test_a_C_whose_products_overflow_is_named(model):
    with pytest.raises(ValueError, match="C=1e\\+308: it must be finite and at most 1e300"):
        clone(model).set_params(C=1e308).fit(X, Y)


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)
def test_targets_that_are_no_numbers_are_refused(model):
    with pytest.raises(ValueError, match="Input y contains NaN"):
        clone(model).fit(X, np.array([None, 1.0] * 60, dtype=object))
    with pytest.raises(ValueError, match="y has values beyond"):
        clone(model).fit(X, np.array([-1e200, 1e200] * 60))


def test_a_supervised_basis_refuses_targets_that_are_no_numbers():
    with pytest.raises(ValueError, match="Input y contains NaN"):
        KernelBasis(5, basis="csi").fit(X, np.array([None, 1.5, 2.0] * 40, dtype=object))


@pytest.mark.parametrize("rows", [1e200 * X, sparse.csr_matrix(1e200 * X)], ids=["dense", "csr"])
def test_a_variance_that_overflows_is_named(rows):
    for model in (LSSVC(), PlainSparseLSSVC(), PlainReducedSVC()):
        with pytest.raises(ValueError, match="gamma='scale': the variance of X is too large"):
            model.fit(rows, Y)


def test_a_variance_too_small_to_divide_by_is_named():
    for unit in (1e-156, 1e-170, 1e-300):
        for rows in (unit * X, sparse.csr_matrix(unit * X)):
            with pytest.raises(ValueError, match="too small to divide by"):
                LSSVC().fit(rows, Y)
    assert LSSVC().fit(0 * X, Y).gamma_ == 1.0


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e200, 1e300])
def test_no_default_gives_constant_predictions_in_silence(unit):
    for kernel in ("auto", "rbf"):
        try:  # "auto" may take "laplacian", which has no squares
            model = SparseLSSVC(kernel=kernel, random_state=0).fit(unit * X, Y)
            assert model.score(unit * X, Y) > 0.8
        except ValueError as error:
            assert "Scale X" in str(error)
    for model in (LSSVC(), L2SVC(), PlainReducedSVC(), LowRankLSSVC()):
        with pytest.raises(ValueError, match=r"(?i)scale X"):
            model.fit(unit * X, Y)


@pytest.mark.parametrize("C", [1e30, 1e100])
@pytest.mark.parametrize(
    ("model", "m"),
    [
        (PlainSparseLSSVC(basis="all"), 120),
        (PlainReducedSVC(regularizer="coef", n_basis=20, random_state=0), 60),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_C_beyond_rounding_still_has_a_model(model, m, C):
    values = clone(model).set_params(C=C).fit(X[:m], Y[:m]).decision_function(X)
    assert np.isfinite(values).all()


def test_what_no_solver_foresaw_is_explained():
    class Fails(LSSVC):
        def _solve(self, data, basis, run):
            raise np.linalg.LinAlgError("leading minor")

    with pytest.raises(ValueError, match="for float64: lower C"):
        Fails().fit(X, Y)


def test_a_cache_size_beyond_all_numbers_is_named():
    with pytest.raises(ValueError, match="'cache_size' parameter"):
        LSSVC(cache_size=1e308).fit(X, Y)


@pytest.mark.parametrize("model", [LSSVC(solver="cg"), LSSVC(), L2SVC()], ids=str)
@pytest.mark.parametrize(("C", "weight"), [(1e-250, 1e-80), (1e250, 1e80)])
def test_products_of_C_and_weights_that_are_no_numbers_are_named(model, C, weight):
    model = clone(model).set_params(C=C)
    with pytest.raises(ValueError, match="C times sample_weight"):
        model.fit(X, Y, sample_weight=np.full(len(X), weight))


def test_features_whose_squares_overflow_are_refused():
    rows = np.random.default_rng(0).normal(size=(12, 2))
    for unit in (1e-170, 1e155, 1e200):
        with pytest.raises(ValueError, match="scale X"):
            LowRankLSSVR(n_basis=2, max_iter=3).fit(unit * rows, rows[:, 0])


LABELS = np.array(["a", "b"] * 20, dtype=object)
MISSING = {
    "None": np.where(np.arange(40) < 3, None, LABELS),
    "NaN": pd.Series(LABELS).where(np.arange(40) >= 3),
    "number": np.where(np.arange(40) < 3, np.nan, np.arange(40) % 2),
    "NA": pd.Series(np.where(np.arange(40) < 3, None, LABELS), dtype="string"),
    "category": pd.Series(np.where(np.arange(40) < 3, None, LABELS), dtype="category"),
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("table", [False, True])
def test_missing_labels_are_counted(name, table):
    rows = np.arange(40.0)[:, None]
    X = pd.DataFrame({"x": rows[:, 0], "c": list("uv") * 20}) if table else rows
    message = "Input y contains NaN or None: 3 of 40 labels are missing. Leave these rows out"
    for model in (LSSVC(), SparseLSSVC(n_basis=5)):
        with pytest.raises(ValueError, match=message):
            model.fit(X, MISSING[name])
    with pytest.raises(ValueError, match=message):
        SparseLSSVC(n_basis=5).partial_fit(rows, MISSING[name], classes=["a", "b"])


def test_missing_targets_are_counted():
    for y in ([None, 1.0, 2.0, 3.0], [np.nan, 1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="1 of 4 targets are missing"):
            LSSVR().fit(np.eye(4), y)
