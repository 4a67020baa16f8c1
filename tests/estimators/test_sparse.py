"""SparseLSSVC and SparseLSSVR: bases, data sources, partial_fit and scikit-learn's tools."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm.basis import (
    CSI,
    Backfitting,
    KMedoids,
    PivotedCholesky,
    RandomBasis,
    RandomPivotedCholesky,
    RenyiEntropy,
    SparseGreedy,
)
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR
from tests.versions import needs_callbacks

rng = np.random.default_rng(3)
M = 150
X = rng.normal(size=(M, 4))
Z = rng.normal(size=(25, 4))
TWO = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=M) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.4 * rng.normal(size=M), [-0.5, 0.5])
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=M)
TARGETS = np.column_stack([TARGET, X[:, 2] - 30])
WEIGHT = rng.uniform(0.2, 3.0, size=M)
ROWS = np.arange(2, M, 9)
NAMES = [
    "random",
    "pivoted-cholesky",
    "random-pivoted-cholesky",
    "backfitting",
    "csi",
    "sparse-greedy",
    "entropy",
    "medoids",
]
CASES = {
    "two": (PlainSparseLSSVC, TWO),
    "three": (PlainSparseLSSVC, THREE),
    "one target": (PlainSparseLSSVR, TARGET),
    "two targets": (PlainSparseLSSVR, TARGETS),
}
every_name = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize(("estimator", "y"), CASES.values(), ids=CASES)


def values_of(model, Z=Z):
    return getattr(model, "decision_function", model.predict)(Z)


def assert_same_model(a, b, rtol=1e-8, *, support=True):
    if support:
        assert_array_equal(np.sort(a.support_), np.sort(b.support_))
    assert_allclose(a.gamma_, b.gamma_, rtol=1e-12)
    assert_allclose(a.C_, b.C_, rtol=1e-12)
    assert_allclose(values_of(a), values_of(b), rtol=rtol, atol=rtol)
    assert_allclose(a.objective_, b.objective_, rtol=rtol)
    if hasattr(a, "cv_curve_"):
        assert_allclose(a.cv_curve_, b.cv_curve_, rtol=1e-6)


# ---------------------------------------------------------------------------- every basis


@every_name
def test_every_name_is_a_basis(name):
    for estimator, y in CASES.values():
        check_basis(name, estimator, y)


def check_basis(name, estimator, y):
    model = estimator(basis=name, n_basis=12, random_state=0).fit(X, y)
    again = estimator(basis=name, n_basis=12, random_state=0).fit(X, y)
    assert 1 <= model.n_support_ <= 12
    assert model.support_.shape == (model.n_support_,)
    assert len(np.unique(model.support_)) == model.n_support_
    assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.dual_coef_.shape[1] == model.n_support_
    assert model.intercept_.shape == (len(model.dual_coef_),)
    assert_array_equal(model.support_, again.support_)
    assert_array_equal(model.dual_coef_, again.dual_coef_)
    # the model is the one on those rows, whoever chose them
    given = estimator(model.C_, basis=model.support_).fit(X, y)
    assert_allclose(values_of(given), values_of(model), rtol=1e-7, atol=1e-8)
    direct = rbf_kernel(Z, X[model.support_], gamma=model.gamma_) @ model.dual_coef_.T
    assert_allclose(values_of(model).reshape(len(Z), -1), direct + model.intercept_, atol=1e-10)
    assert {"objective", "residual", "rows", "basis", "dropped", "seconds"} <= set(
        model.fit_report_
    )
    assert model.fit_report_["residual"] < 1e-8
    assert model.n_iter_ == 1


@every_name
def test_rows_of_no_weight_are_no_basis_points(name):
    weight = np.where(np.arange(M) % 3 == 0, WEIGHT, 0.0)
    for seed in range(3):
        for y, estimator in ((TWO, PlainSparseLSSVC), (TARGET, PlainSparseLSSVR)):
            model = estimator(1.0, basis=name, n_basis=20, random_state=seed)
            model.fit(X, y, sample_weight=weight)
            assert (weight[model.support_] > 0).all()
    # not even when all the others are asked for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = PlainSparseLSSVR(1.0, basis=name, n_basis=100, gamma=5.0, random_state=0)
        model.fit(X, TARGET, sample_weight=weight)
    assert model.n_support_ <= 50
    assert (weight[model.support_] > 0).all()


def test_selectors_hold_nothing_of_the_model():
    for selector in (
        RandomBasis(),
        PivotedCholesky(),
        RandomPivotedCholesky(),
        Backfitting(n_candidates=22),
        CSI(),
        SparseGreedy(),
        RenyiEntropy(),
        KMedoids(),
    ):
        before = dict(vars(selector))
        model = PlainSparseLSSVC(n_basis=5, basis=selector, random_state=0).fit(X, TWO)
        assert vars(selector) == before
        assert model.basis is selector
        assert_same_model(clone(model).fit(X, TWO), model)


@every_case
def test_row_numbers_and_points_are_the_same_basis(estimator, y):
    rows = estimator(basis=ROWS).fit(X, y)
    points = estimator(basis=X[ROWS]).fit(X, y)
    assert_array_equal(np.sort(rows.support_), ROWS)
    assert_array_equal(points.support_, -1)
    assert points.support_vectors_.shape == (len(ROWS), 4)
    assert_same_model(rows, points, support=False)
    assert_same_model(estimator(basis=ROWS.tolist()).fit(X, y), rows)
    assert_same_model(estimator(basis=np.repeat(ROWS, 2)).fit(X, y), rows)


@pytest.mark.parametrize("C", [1.0, "loo"])
def test_given_points_beyond_the_budget_are_refused_however_few_the_rows(C):
    with pytest.raises(MemoryError, match="A basis of 400 points"):
        PlainSparseLSSVR(C, basis=rng.normal(size=(400, 4)), cache_size=8).fit(X[:50], TARGET[:50])


def test_dependent_points_are_dropped_and_reported():
    model = PlainSparseLSSVC(1.0, basis=np.vstack([X[ROWS], X[ROWS[:4]]])).fit(X, TWO)
    assert model.n_support_ == len(ROWS)
    assert model.fit_report_["dropped"] == 4
    assert model.fit_report_["basis"] == len(ROWS)
    assert_same_model(PlainSparseLSSVC(1.0, basis=X[ROWS]).fit(X, TWO), model)


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        ("nonsense", "basis must be one of"),
        (RandomBasis, "basis"),
        (np.array([], dtype=int), "empty"),
        ([-1, 3], "row numbers"),
        (np.ones(M, dtype=bool), "row numbers"),
        (X[:5, :3], "3 features, X has 4"),
        (np.empty((0, 4)), "non-empty"),
        (np.full((2, 4), np.nan), "finite"),
        (np.zeros((2, 4, 1)), "2-D"),
        ([["a", "b", "c", "d"]], "basis"),
        (None, "basis"),
    ],
    ids=range(11),
)
def test_a_wrong_basis_is_explained(basis, message):
    for estimator, y in ((PlainSparseLSSVC, TWO), (PlainSparseLSSVR, TARGET)):
        with pytest.raises(ValueError, match=message):
            estimator(basis=basis).fit(X, y)


def test_wrong_parameters_are_named():
    for parameters in (
        {"n_basis": 0},
        {"n_basis": -3},
        {"n_basis": 1.5},
        {"n_basis": "many"},
        {"select_on": 0},
        {"select_on": 1.0},
        {"select_on": "some"},
        {"C": 0},
        {"C": [1, -1]},
        {"C": "best"},
        {"bias_penalty": -1},
        {"cache_size": 0},
        {"kernel": "nothing"},
    ):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            PlainSparseLSSVC(**parameters).fit(X, TWO)


# ---------------------------------------------------------------------------- how many


def test_number_of_points():
    assert PlainSparseLSSVC(n_basis=7).fit(X, TWO).n_support_ == 7
    assert PlainSparseLSSVC(n_basis=np.int64(7)).fit(X, TWO).n_support_ == 7
    assert PlainSparseLSSVC(n_basis=0.1).fit(X, TWO).n_support_ == 15
    assert PlainSparseLSSVC(n_basis=1e-9).fit(X, TWO).n_support_ == 1
    assert PlainSparseLSSVC(n_basis=M).fit(X, TWO).n_support_ == M
    with pytest.warns(UserWarning, match="n_basis=151 is more than the 150 rows"):
        model = PlainSparseLSSVC(n_basis=M + 1).fit(X, TWO)
    assert model.n_support_ == M


@pytest.mark.parametrize("C", ["gcv", "loo", 1.0], ids=str)
def test_automatic_number_of_points(C):
    for estimator, y, basis in (
        (PlainSparseLSSVC, TWO, "random"),
        (PlainSparseLSSVR, TARGET, "pivoted-cholesky"),
        (PlainSparseLSSVR, TARGET, "sparse-greedy"),
    ):
        model = estimator(C, basis=basis, random_state=0).fit(X, y)
        assert 50 <= model.n_support_ <= 150
        given = estimator(C, basis=model.support_).fit(X, y)
        assert_same_model(model, given)
        assert hasattr(model, "cv_curve_") == (C != 1.0)


@pytest.mark.parametrize(("C", "weight"), [(1.0, 1 / M), (1e14, 1.0)])
def test_automatic_number_of_points_at_a_given_C_never_asks_for_another(C, weight):
    # GCV has no value when weights do not exceed the degrees of freedom; C is given all the same
    model = PlainSparseLSSVR(C, gamma=20.0, random_state=0)
    model.fit(X[:40], TARGET[:40], sample_weight=np.full(40, weight))
    assert model.C_ == C
    assert np.isfinite(model.predict(Z)).all()


def test_one_row_at_a_given_C():
    assert_allclose(PlainSparseLSSVR(1.0).fit(X[:1], [3.0]).predict(Z), 3.0)


def test_gcv_without_room_says_what_to_do():
    with pytest.raises(ValueError, match="sample_weight"):
        PlainSparseLSSVC(n_basis=20).fit(X, TWO, sample_weight=np.full(M, 1e-6))


@pytest.mark.parametrize("basis", ["backfitting", "csi"])
def test_small_weights_and_large_C_are_the_same_for_selectors_that_need_a_C(basis):
    C = np.array([0.1, 1.0, 10.0, 100.0])
    model = PlainSparseLSSVR(C, gamma=0.3, basis=basis, n_basis=10, random_state=0).fit(X, TARGET)
    scaled = PlainSparseLSSVR(C * M, gamma=0.3, basis=basis, n_basis=10, random_state=0)
    scaled.fit(X, TARGET, sample_weight=np.full(M, 1 / M))  # in all fewer than the points
    assert_array_equal(scaled.support_, model.support_)
    assert_allclose(scaled.predict(Z), model.predict(Z), rtol=1e-7)


def test_gcv_skips_candidates_without_room_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PlainSparseLSSVC(n_basis=100, gamma=2.0, random_state=0)
        model.fit(X, TWO, sample_weight=np.full(M, 0.3))
    assert np.isfinite(model.cv_curve_).any()
    assert np.isfinite(model.cv_curve_[np.argmin(model.cv_curve_)])


@pytest.mark.parametrize("basis", ["pivoted-cholesky", "backfitting", "csi", "sparse-greedy"])
def test_selecting_on_a_sample(basis):
    weight = np.where(np.arange(M) % 2 == 0, WEIGHT, 0.0)
    for estimator, y, select_on in ((PlainSparseLSSVC, THREE, 40), (PlainSparseLSSVR, TARGET, 0.3)):
        model = estimator(1.0, basis=basis, n_basis=10, select_on=select_on, random_state=1)
        model.fit(X, y)
        assert model.fit_report_["selection"]["selected_on"] == (40 if select_on == 40 else 45)
        assert model.fit_report_["rows"] == M
        assert_same_model(estimator(1.0, basis=model.support_).fit(X, y), model)
        model.fit(X, y, sample_weight=weight)
        assert (weight[model.support_] > 0).all()


def test_selecting_on_a_fraction_of_any_type():
    model = PlainSparseLSSVC(1.0, basis="csi", n_basis=10, select_on=np.float32(0.5)).fit(X, TWO)
    assert model.fit_report_["selection"]["selected_on"] == M / 2


def test_selecting_on_what_fits_the_cache():
    model = PlainSparseLSSVC(
        1.0, basis="pivoted-cholesky", n_basis=10, cache_size=8 * 60 * 40 / 2**20
    )
    model.fit(X, TWO)
    assert 40 <= model.fit_report_["selection"]["selected_on"] < M
    model.set_params(select_on="all").fit(X, TWO)
    assert "selected_on" not in model.fit_report_["selection"]
    model.set_params(select_on="auto", cache_size="auto").fit(X, TWO)
    assert "selected_on" not in model.fit_report_["selection"]
    assert "selected_on" not in PlainSparseLSSVC(select_on=M).fit(X, TWO).fit_report_["selection"]


# ---------------------------------------------------------------------------- partial_fit


def batches(order, sizes=(1, 40, 7)):
    cuts = np.cumsum(sizes)
    return np.split(order, [*cuts, len(order) - 20])


@every_case
def test_partial_fit_is_fit_on_all_rows(estimator, y):
    for C in ("gcv", 3.0, "kfold"):
        check_partial_fit(estimator, y, C)


def check_partial_fit(estimator, y, C):
    weight = None if C == "gcv" and y.ndim == 1 else WEIGHT
    parameters = {"basis": X[ROWS], "gamma": 0.3}
    whole = estimator(C, **parameters).fit(X, y, sample_weight=weight)
    model = estimator(C, **parameters)
    classes = {"classes": np.unique(y)} if estimator is PlainSparseLSSVC else {}
    # rows of one class come first; one candidate after another needs two rows
    order = np.argsort(TARGET if y.ndim == 2 else y, kind="stable")
    for number, rows in enumerate(batches(order, (2, 40, 1, 7))):
        s = None if weight is None else weight[rows]
        model.partial_fit(X[rows], y[rows], sample_weight=s, **({} if number else classes))
        assert model.n_rows_seen_ == model.fit_report_["rows"]
    assert model.n_rows_seen_ == M
    assert_same_model(model, whole)


@pytest.mark.parametrize("bias", [{"bias_penalty": 0.5}, {"fit_intercept": False}], ids=str)
def test_partial_fit_with_every_bias(bias):
    parameters = {"basis": X[ROWS], "gamma": 0.3, **bias}
    model = PlainSparseLSSVR(2.0, **parameters)
    for rows in np.array_split(np.arange(M), 4):
        model.partial_fit(X[rows], TARGETS[rows])
    assert_same_model(model, PlainSparseLSSVR(2.0, **parameters).fit(X, TARGETS))


def test_partial_fit_takes_basis_and_gamma_of_the_first_batch():
    model = PlainSparseLSSVC(n_basis=20, random_state=0).partial_fit(X[:60], TWO[:60])
    first = clone(model).fit(X[:60], TWO[:60])
    assert_same_model(model, first)
    model.partial_fit(X[60:], TWO[60:])
    whole = PlainSparseLSSVC(basis=first.support_, gamma=first.gamma_).fit(X, TWO)
    assert_same_model(model, whole)


def test_partial_fit_goes_on_after_fit_and_fit_starts_anew():
    model = PlainSparseLSSVC(1.0, basis=X[ROWS], gamma=0.3, class_weight={0: 3.0})
    model.fit(X[:90], THREE[:90]).partial_fit(X[90:], THREE[90:])
    whole = clone(model).fit(X, THREE)
    assert_same_model(model, whole)
    model.fit(X[:50], THREE[:50])
    assert model.n_rows_seen_ == 50
    assert_same_model(model, clone(model).fit(X[:50], THREE[:50]))


def test_partial_fit_forgets_what_is_no_longer_true():
    model = PlainSparseLSSVR("gcv", basis=X[ROWS]).partial_fit(X, TARGET)
    model.set_params(C=1.0).partial_fit(X, TARGET)
    assert not hasattr(model, "cv_curve_")
    model = PlainSparseLSSVR("loo", basis=X[ROWS]).fit(X, TARGET)
    model.set_params(C="gcv").partial_fit(X, TARGET)
    assert not hasattr(model, "loo_residuals_")


def test_partial_fit_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="partial_fit"):
        PlainSparseLSSVC(1.0, n_basis=5, class_weight="balanced").partial_fit(X, TWO)
    model = PlainSparseLSSVC(1.0, n_basis=5).partial_fit(X, THREE)
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X[:2], [1, 7])
    with pytest.raises(ValueError, match=r"classes=\[0, 1, 2, 3\], but .* \[0, 1, 2\]"):
        model.partial_fit(X[:2], [0, 1], classes=[0, 1, 2, 3])
    model.partial_fit(X[:2], [0, 1], classes=[2, 1, 0])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], THREE)
    with pytest.raises(ValueError, match="classes"):
        PlainSparseLSSVC(1.0, n_basis=5).partial_fit(X, THREE, classes=[0, 1])
    with pytest.raises(ValueError, match="class"):
        PlainSparseLSSVC(1.0, n_basis=5).partial_fit(X[:9], np.zeros(9))


def test_a_batch_that_ends_in_an_error_is_in_no_sum():
    model = PlainSparseLSSVR(1.0, basis=X[ROWS]).partial_fit(X[:60], TARGET[:60])
    model.set_params(C=1e20)  # of the objective; the sums are finite
    with pytest.raises(ValueError, match="not finite"), np.errstate(all="ignore"):
        model.partial_fit(X[[0, 0]], [1e139, -1e139], sample_weight=[1e18, 1e18])
    model.set_params(C=1.0)
    assert model.n_rows_seen_ == 60
    model.partial_fit(X[60:], TARGET[60:])
    whole = PlainSparseLSSVR(1.0, basis=X[ROWS], gamma=model.gamma_).fit(X, TARGET)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-9)


def test_partial_fit_refuses_another_number_of_targets():
    model = PlainSparseLSSVR(1.0, n_basis=5, random_state=0).partial_fit(X, TARGET)
    before = model.predict(Z)
    with pytest.raises(ValueError, match=r"(?i)output|target|column"):
        model.partial_fit(X, TARGETS)
    assert_array_equal(model.predict(Z), before)  # and is what it was
    with pytest.raises(ValueError, match=r"(?i)output|target|column"):
        PlainSparseLSSVR(1.0, n_basis=5).partial_fit(X, TARGETS).partial_fit(X, TARGET)


# ---------------------------------------------------------------------------- where the rows are


def working_memory_for(blocks, columns):
    """MB that cut M rows into about this many blocks."""
    from leansvm._parallel import blas_threads

    return -(-M // blocks) * 8 * (columns + 4) * blas_threads() / 2**20


@pytest.mark.parametrize(
    "basis", ["random", "pivoted-cholesky", "backfitting", "csi", ROWS], ids=range(5)
)
def test_the_number_of_blocks_changes_nothing(basis):
    slow = isinstance(basis, str) and basis in ("backfitting", "csi")
    for C in ("gcv", "loo"):
        for estimator, y in ((PlainSparseLSSVC, THREE), (PlainSparseLSSVR, TARGET))[slow:]:
            if slow and C == "loo":
                continue
            model = estimator(C, basis=basis, n_basis=10, random_state=0)
            once = clone(model).fit(X, y, sample_weight=WEIGHT)
            for blocks in (3, 50):
                columns = 3 * (once.n_support_ + len(once.intercept_) + 1)
                with sklearn.config_context(working_memory=working_memory_for(blocks, columns)):
                    again = clone(model).fit(X, y, sample_weight=WEIGHT)
                    assert_same_model(again, once)
                if C == "loo":
                    assert_allclose(again.loo_residuals_, once.loo_residuals_, atol=1e-8)


@pytest.mark.parametrize("basis", ["random", "pivoted-cholesky", "backfitting"])
def test_memory_maps(basis, tmp_path):
    for dtype in (np.float64, np.float32):
        path = tmp_path / "rows"
        np.asarray(X, dtype=dtype).tofile(path)
        mapped = np.memmap(path, dtype=dtype, mode="r", shape=X.shape)
        model = PlainSparseLSSVC("loo", basis=basis, n_basis=10, random_state=0)
        a, b = clone(model).fit(mapped, TWO), clone(model).fit(np.array(mapped), TWO)
        assert_same_model(a, b, rtol=1e-12)
        assert not isinstance(a.support_vectors_, np.memmap)
        assert_array_equal(a.decision_function(mapped), b.decision_function(np.array(mapped)))
        pickle.dumps(a)


@pytest.mark.parametrize("basis", [*NAMES, X[ROWS]], ids=[*NAMES, "points"])
def test_sparse_rows(basis):
    holes = np.where(np.abs(X) < 0.7, 0.0, X)
    model = PlainSparseLSSVC("loo", gamma=0.4, basis=basis, n_basis=10, random_state=0)
    dense = clone(model).fit(holes, THREE, sample_weight=WEIGHT)
    for kind in (sparse.csr_array, sparse.csc_matrix):
        other = clone(model).fit(kind(holes), THREE, sample_weight=WEIGHT)
        assert_same_model(other, dense)
        assert_allclose(other.loo_residuals_, dense.loo_residuals_, atol=1e-8)
        assert_allclose(other.decision_function(kind(Z)), dense.decision_function(Z), atol=1e-8)


@pytest.mark.parametrize("basis", ["random", "pivoted-cholesky", "csi", "entropy"])
def test_single_precision(basis):
    for estimator, y in ((PlainSparseLSSVC, TWO), (PlainSparseLSSVR, TARGET)):
        double = estimator(1.0, gamma=0.4, basis=basis, n_basis=10, random_state=0)
        single = clone(double).fit(X.astype(np.float32), y)
        double.fit(X.astype(np.float32).astype(float), y)
        assert single.support_vectors_.dtype == np.float32
        assert values_of(single, Z.astype(np.float32)).dtype == np.float32
        assert_allclose(values_of(single, Z.astype(np.float32)), values_of(double), atol=1e-4)


BASES = {name: name for name in ("random", "pivoted-cholesky", "csi", "medoids")} | {"rows": ROWS}


@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_precomputed_kernel(basis):
    for C in ("gcv", "loo", 1.0):
        check_precomputed(basis, C)


def check_precomputed(basis, C):
    K, at = rbf_kernel(X, gamma=0.4), rbf_kernel(Z, X, gamma=0.4)
    usual = PlainSparseLSSVC(C, gamma=0.4, basis=basis, n_basis=10, random_state=0)
    usual.fit(X, THREE, sample_weight=WEIGHT)
    model = PlainSparseLSSVC(C, "precomputed", basis=basis, n_basis=10, random_state=0)
    model.fit(K, THREE, sample_weight=WEIGHT)
    # clusters of rows of K, not X; rows drawn by their places, which K has, or by their values
    if not (isinstance(basis, str) and basis in ("medoids", "random")):
        assert_array_equal(np.sort(model.support_), np.sort(usual.support_))
    else:
        usual = PlainSparseLSSVC(C, gamma=0.4, basis=model.support_)
        usual.fit(X, THREE, sample_weight=WEIGHT)
    assert model.support_vectors_.size == 0
    assert_allclose(model.decision_function(at), usual.decision_function(Z), atol=1e-8)
    if C == 1.0:
        model.partial_fit(K[:9], THREE[:9])
        usual.partial_fit(X[:9], THREE[:9])
        assert_allclose(model.decision_function(at), usual.decision_function(Z), atol=1e-8)


def test_precomputed_kernel_that_is_none_is_refused():
    with pytest.raises(ValueError, match="basis: points"):
        PlainSparseLSSVC(kernel="precomputed", basis=X[:5]).fit(rbf_kernel(X), TWO)
    for basis in ("random", ROWS, "pivoted-cholesky"):
        with pytest.raises(ValueError, match=r"square|precomputed"):
            PlainSparseLSSVC(1.0, "precomputed", basis=basis, n_basis=10).fit(X, TWO)


def test_precomputed_kernel_that_is_not_symmetric_is_refused():
    with pytest.raises(ValueError, match="symmetric"):
        PlainSparseLSSVC(1.0, "precomputed", n_basis=10).fit(
            np.random.default_rng(0).normal(size=(M, M)), TWO
        )


def test_rows_without_any_kernel_value_leave_the_bias():
    nothing = np.zeros((M, 3))
    for C in (1.0, "gcv", "loo"):
        for basis in ("random", "pivoted-cholesky", "all"):
            model = PlainSparseLSSVR(C, "linear", basis=basis, n_basis=5).fit(nothing, TARGET)
            assert_allclose(model.predict(nothing), TARGET.mean())


def test_constant_rows():
    for name in NAMES:
        model = PlainSparseLSSVR(1.0, basis=name, n_basis=5, random_state=0)
        model.fit(np.full((M, 3), 2.0), TARGET)
        assert model.n_support_ == 1
        assert_allclose(model.predict(np.full((1, 3), 2.0)), TARGET.mean())


# ---------------------------------------------------------------------------- scikit-learn


def test_refitting_forgets():
    model = PlainSparseLSSVC("loo", n_basis=10, calibrate=True, random_state=0).fit(X, THREE)
    assert {"cv_curve_", "loo_residuals_", "calibration_scale_"} <= set(vars(model))
    model.set_params(C=1.0, calibrate=False, n_basis=6).fit(X[:, :2], TWO)
    assert not {"cv_curve_", "loo_residuals_", "calibration_scale_"} & set(vars(model))
    fresh = clone(model).fit(X[:, :2], TWO)
    assert set(vars(model)) == set(vars(fresh))
    assert_array_equal(model.decision_function(Z[:, :2]), fresh.decision_function(Z[:, :2]))


@pytest.mark.parametrize("basis", ["random", PivotedCholesky(), ROWS, X[ROWS]], ids=range(4))
def test_clones_and_pickles(basis):
    model = PlainSparseLSSVC(
        basis=basis, n_basis=10, calibrate=True, keep_state=True, random_state=0
    )
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, THREE)
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict_proba(Z), model.predict_proba(Z))
    copy.set_params(calibrate=False).partial_fit(X, THREE)  # goes on
    assert_array_equal(clone(model).fit(X, THREE).dual_coef_, model.dual_coef_)


def test_models_do_not_hold_the_rows():
    big = np.random.default_rng(0).normal(size=(20_000, 4))
    model = PlainSparseLSSVR(1.0, n_basis=10, basis="pivoted-cholesky").fit(big, big[:, 0])
    assert len(pickle.dumps(model)) < 20_000


def test_searching_parameters_of_the_selector():
    model = PlainSparseLSSVC(1.0, basis=Backfitting(), n_basis=5, random_state=0)
    grid = {"basis__n_candidates": [1, 22], "n_basis": [5, 10], "gamma": [0.1, 1.0]}
    search = GridSearchCV(model, grid, cv=2).fit(X, TWO)
    assert search.best_params_.keys() == grid.keys()
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert model.set_params(basis__n_candidates=3).basis.n_candidates == 3
    pipe = make_pipeline(StandardScaler(), PlainSparseLSSVC(n_basis=60, random_state=0)).fit(X, TWO)
    assert pipe.score(X, TWO) > 0.75


def test_probabilities_agree_with_predictions():
    for y in (TWO, THREE):
        model = PlainSparseLSSVC(n_basis=30, random_state=0).fit(X, y)
        p = model.predict_proba(Z)
        assert_allclose(p.sum(axis=1), 1)
        assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(Z))
        assert_allclose(np.log(p), model.predict_log_proba(Z))
    assert not hasattr(PlainSparseLSSVC(calibrate=False), "predict_proba")


class Recorder:
    """Count tasks; ask to stop after some basis points."""

    def __init__(self, stop_after=None):
        self.ended = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.ended.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.ended.append(context.task_name)
        return self.stop_after is not None and len(self.ended) >= self.stop_after


@needs_callbacks
@every_name
def test_callbacks(name, capsys):
    from sklearn.callback import ProgressBar

    parameters = {"C": 1.0, "basis": name, "n_basis": 10, "random_state": 0}
    recorder = Recorder()
    model = PlainSparseLSSVC(**parameters).set_callbacks(recorder).fit(X, TWO)
    assert recorder.ended[-2:] == ["fit", "teardown"]
    assert set(recorder.ended[:-2]) <= {"basis-point", "percent", "steps"}
    assert_same_model(model, PlainSparseLSSVC(**parameters).fit(X, TWO))
    stopped = PlainSparseLSSVC(**parameters).set_callbacks(Recorder(stop_after=1)).fit(X, TWO)
    assert 1 <= stopped.n_support_ <= 10
    assert np.isfinite(stopped.decision_function(Z)).all()
    pytest.importorskip("rich")
    PlainSparseLSSVC(**parameters).set_callbacks(ProgressBar()).fit(X, TWO)


@needs_callbacks
def test_a_callback_can_stop_the_selection():
    for name in ("pivoted-cholesky", "backfitting", "csi", "sparse-greedy"):
        model = PlainSparseLSSVR(1.0, basis=name, n_basis=40, gamma=2.0, random_state=0)
        model.set_callbacks(Recorder(stop_after=1)).fit(X, TARGET)
        assert model.n_support_ < 40, name


def test_rows_of_columns_that_no_longer_fit_are_computed_again():
    # 60 columns of 1,000 rows fit into three megabytes, the 120 that come next do not
    rows = np.random.default_rng(0).normal(size=(1000, 3))
    target = np.sin(4 * rows).sum(axis=1)
    model = PlainSparseLSSVR("loo", gamma=1.0, cache_size=3, random_state=0).fit(rows, target)
    assert model.n_support_ > 60
    assert model.score(rows, target) > 0.9
