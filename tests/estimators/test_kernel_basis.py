"""KernelBasis: features whose inner products are the Nyström approximation."""

import pickle

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from leansvm import KernelBasis
from leansvm.basis import Backfitting, PivotedCholesky, RandomBasis
from leansvm.estimators.targets import any_targets
from tests.plain import PlainSparseLSSVR

rng = np.random.default_rng(4)
M = 120
X = rng.normal(size=(M, 3))
Z = rng.normal(size=(20, 3))
TWO = np.where(X[:, 0] + 0.3 * rng.normal(size=M) > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
TARGET = np.sin(2 * X[:, 0]) + X[:, 1]
ROWS = np.arange(1, M, 10)
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


def nystrom(A, B, points, kernel):
    return kernel(A, points) @ np.linalg.solve(kernel(points, points), kernel(points, B))


def rbf(A, B):
    return rbf_kernel(A, B, gamma=0.5)


@pytest.mark.parametrize("name", NAMES)
def test_inner_products_are_the_nystrom_approximation(name):
    for y in (TWO, THREE, TARGET, np.column_stack([TARGET, X[:, 2]])):
        features = KernelBasis(12, gamma=0.5, basis=name, random_state=0).fit(X, y)
        F, G = features.transform(X), features.transform(Z)
        assert F.shape == (M, 12)
        points = features.support_vectors_
        assert_array_equal(points, X[features.support_])
        assert_allclose(F @ F.T, nystrom(X, X, points, rbf), atol=1e-8)
        assert_allclose(G @ F.T, nystrom(Z, X, points, rbf), atol=1e-8)
        assert_allclose(G, rbf(Z, points) @ features.normalization_, atol=1e-10)
        again = KernelBasis(12, gamma=0.5, basis=name, random_state=0).fit_transform(X, y)
        assert_array_equal(again, F)


@pytest.mark.parametrize("basis", [ROWS, X[ROWS], "all"], ids=["rows", "points", "all"])
def test_given_basis(basis):
    features = KernelBasis(gamma=0.5, basis=basis).fit(X)
    points = X if isinstance(basis, str) else X[ROWS]
    F = features.transform(X)
    assert F.shape == (M, len(points))
    tolerance = 1e-5 if isinstance(basis, str) else 1e-8
    assert_allclose(F @ F.T, nystrom(X, X, points, rbf), atol=tolerance)
    assert (features.support_ >= 0).all() == (np.ndim(basis) != 2)
    if isinstance(basis, str):
        assert_allclose(F @ F.T, rbf(X, X), atol=1e-10)


def test_blocks_change_nothing():
    features = KernelBasis(10, random_state=0).fit(X)
    F = features.transform(X)
    for blocks in (3, 50):
        with sklearn.config_context(working_memory=M / blocks * 8 * 23 / 2**20):
            assert_allclose(features.transform(X), F, atol=1e-12)
            assert_allclose(clone(features).fit_transform(X), F, atol=1e-10)


def test_other_kernels_and_data():
    holes = np.where(np.abs(X) < 0.5, 0.0, X)
    dense = KernelBasis(10, random_state=0).fit(holes)
    csr = KernelBasis(10, random_state=0).fit(sparse.csr_array(holes))
    assert_allclose(csr.transform(sparse.csr_array(Z)), dense.transform(Z), atol=1e-10)
    single = KernelBasis(10, gamma=0.5, basis=ROWS).fit(X.astype(np.float32))
    assert single.transform(Z.astype(np.float32)).dtype == np.float32
    double = KernelBasis(10, gamma=0.5, basis=ROWS).fit(X.astype(np.float32).astype(float))
    order = np.argsort(single.support_), np.argsort(double.support_)
    assert_array_equal(single.support_[order[0]], double.support_[order[1]])
    F, G = single.transform(Z.astype(np.float32)), double.transform(Z.astype(np.float32))
    assert_allclose(F @ F.T, G @ G.T, atol=1e-4)
    K = rbf(X, X)
    for basis in ("random-pivoted-cholesky", ROWS):
        given = KernelBasis(10, "precomputed", basis=basis, random_state=0).fit(K)
        usual = KernelBasis(10, gamma=0.5, basis=basis, random_state=0).fit(X)
        F, G = given.transform(rbf(Z, X)), usual.transform(Z)
        assert_allclose(F @ F.T, G @ G.T, atol=1e-8)
        assert given.support_vectors_.size == 0
    laplacian = KernelBasis(8, "laplacian", gamma=0.3, basis="pivoted-cholesky").fit(X)
    points = laplacian.support_vectors_
    F = laplacian.transform(X)
    expected = nystrom(X, X, points, lambda A, B: laplacian_kernel(A, B, gamma=0.3))
    assert_allclose(F @ F.T, expected, atol=1e-8)


def test_dependent_points_give_fewer_features():
    features = KernelBasis(30, "linear", random_state=0).fit(X)
    F = features.transform(X)
    assert F.shape == (M, 3)
    assert features.normalization_.shape == (3, 3)
    assert_allclose(F @ F.T, X @ X.T, atol=1e-9)
    assert len(features.get_feature_names_out()) == 3


def test_names_and_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(M) + 7)
    features = KernelBasis(4, random_state=0).set_output(transform="pandas").fit(frame)
    out = features.transform(frame)
    assert list(out.columns) == [f"kernelbasis{i}" for i in range(4)]
    assert_array_equal(out.index, frame.index)
    assert_array_equal(features.get_feature_names_out(), out.columns)
    assert_array_equal(features.feature_names_in_, frame.columns)


def test_pipelines_searches_and_pickles():
    model = make_pipeline(
        KernelBasis(40, gamma=0.5, basis=Backfitting(), random_state=0), LogisticRegression(C=100)
    )
    assert model.fit(X, TWO).score(X, TWO) > 0.85
    grid = {"kernelbasis__basis__n_candidates": [1, 20], "kernelbasis__n_basis": [5, 0.3]}
    search = GridSearchCV(model, grid, cv=2).fit(X, TWO)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict_proba(Z), model.predict_proba(Z))
    big = np.random.default_rng(1).normal(size=(20_000, 3))
    assert len(pickle.dumps(KernelBasis(5, basis="pivoted-cholesky").fit(big))) < 10_000


def test_ridge_on_the_features_is_the_sparse_model():
    model = make_pipeline(KernelBasis(gamma=0.5, basis=ROWS), Ridge(alpha=0.1)).fit(X, TARGET)
    same = PlainSparseLSSVR(10.0, gamma=0.5, basis=ROWS).fit(X, TARGET)
    assert_allclose(model.predict(Z), same.predict(Z), atol=1e-8)


def test_number_of_features():
    assert KernelBasis(0.1).fit_transform(X).shape == (M, 12)
    with pytest.warns(UserWarning, match="n_basis=1000"):
        assert KernelBasis(1000, gamma=5.0).fit_transform(X).shape[1] <= M
    small = KernelBasis(10, basis="csi", select_on=50, random_state=0).fit(X, TARGET)
    assert small.transform(X).shape == (M, 10)
    for basis in ("pivoted-cholesky", "sparse-greedy"):
        assert KernelBasis(10, basis=basis, select_on=50).fit_transform(X).shape == (M, 10)


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"basis": "backfitting"}, None, "pass y"),
        ({"basis": RandomBasis}, None, "basis"),
        ({"basis": "nothing"}, None, "basis must be one of"),
        ({"basis": X[:3, :2]}, None, "features"),
        ({"basis": [M]}, None, "row numbers"),
        ({"n_basis": 0}, None, "n_basis"),
        ({"n_basis": "auto"}, None, "n_basis"),
        ({"basis": "csi", "C": "gcv"}, TWO, "C"),
        ({"basis": "csi", "C": [1.0, 2.0]}, TWO, "C"),
        ({"basis": "csi"}, TARGET[:10], "inconsistent numbers of samples"),
        ({"basis": "csi"}, np.full(M, np.nan), "NaN"),
        ({"basis": PivotedCholesky(), "kernel": "precomputed"}, None, r"square|precomputed"),
    ],
    ids=range(12),
)
def test_wrong_parameters_are_explained(parameters, y, message):
    with pytest.raises(ValueError, match=rf"\b({message})"):
        KernelBasis(**{"n_basis": 5, **parameters}).fit(X, y)


def test_targets_in_a_series():
    series = pytest.importorskip("pandas").Series
    for y in (TWO, THREE, TARGET):
        options = {"basis": "csi", "gamma": 0.5, "random_state": 0}
        expected = KernelBasis(6, **options).fit(X, y).support_
        assert_array_equal(KernelBasis(6, **options).fit(X, series(y)).support_, expected)


def test_many_whole_numbers_are_no_classes():
    whole = np.round(100 * TARGET)
    assert len(np.unique(whole)) > 60
    for y in (whole, whole.astype(int)):
        assert_array_equal(any_targets(X, y), whole[:, None])
    for y in (THREE, THREE.astype(float), THREE.astype(str)):
        assert any_targets(X, y).shape == (M, 3)
    assert any_targets(X, [f"row {i}" for i in range(M)]).shape == (M, M)
