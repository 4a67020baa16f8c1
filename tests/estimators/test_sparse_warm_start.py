import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import rbf_kernel

from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

X, y = make_moons(200, noise=0.2, random_state=0)


@pytest.mark.parametrize("basis", ["random", "pivoted-cholesky", "backfitting"])
@pytest.mark.parametrize("rows", [X, sparse.csr_matrix(X)], ids=["dense", "csr"])
def test_a_grown_basis_keeps_its_points(basis, rows):
    model = PlainSparseLSSVC(
        10.0, gamma=1.0, n_basis=10, basis=basis, random_state=0, warm_start=True
    ).fit(rows, y)
    first = model.support_
    model.set_params(n_basis=25).fit(rows, y)
    assert_array_equal(model.support_[:10], first)
    assert model.n_support_ == len(np.unique(model.support_)) == 25
    anew = PlainSparseLSSVC(10.0, gamma=1.0, basis=model.support_).fit(rows, y)
    assert_allclose(model.decision_function(rows), anew.decision_function(rows), atol=1e-9)
    model.set_params(n_basis=7).fit(rows, y)
    assert_array_equal(model.support_, first[:7])


def test_other_rows_and_another_C_keep_the_points():
    model = PlainSparseLSSVC(10.0, gamma=1.0, n_basis=20, random_state=0, warm_start=True)
    points = model.fit(X[:100], y[:100]).support_vectors_
    model.set_params(C=3.0, random_state=5).fit(X[100:], y[100:])
    assert_array_equal(model.support_vectors_, points)
    expected = PlainSparseLSSVC(3.0, gamma=1.0, basis=points).fit(X[100:], y[100:])
    assert_allclose(model.decision_function(X), expected.decision_function(X), atol=1e-9)


def test_precomputed_and_auto():
    K = rbf_kernel(X)
    model = PlainSparseLSSVR(
        10.0, kernel="precomputed", n_basis=10, random_state=0, warm_start=True
    )
    first = model.fit(K, X[:, 0]).support_
    assert_array_equal(model.set_params(n_basis=12).fit(K, X[:, 0]).support_[:10], first)
    with pytest.raises(ValueError, match="warm_start=True: the kernel matrix"):
        model.set_params(n_basis=4).fit(K[:5, :5], X[:5, 0])
    auto = PlainSparseLSSVC(gamma=1.0, n_basis=60, random_state=0, warm_start=True).fit(X, y)
    assert auto.set_params(n_basis="auto").fit(X, y).n_support_ >= 60


def test_without_warm_start_nothing_is_kept():
    model = PlainSparseLSSVC(10.0, n_basis=10, random_state=0).fit(X, y)
    first = model.support_
    assert not np.array_equal(model.set_params(random_state=1).fit(X, y).support_, first)


def test_other_width_is_refused():
    model = PlainSparseLSSVC(10.0, n_basis=10, random_state=0, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="warm_start=True: X has 1 features"):
        model.fit(X[:, :1], y)


@pytest.mark.parametrize("rows", [X, sparse.csr_matrix(X)], ids=["dense", "csr"])
def test_numbers_of_rows_that_are_others_now_are_forgotten(rows):
    model = PlainSparseLSSVC("loo", gamma=1.0, n_basis=50, random_state=0, warm_start=True)
    numbers = model.fit(rows, y).support_
    points = X[numbers]
    model.fit(rows[:60], y[:60])  # nearly all rows are points: solved in the dual
    assert_array_equal(model.support_, np.where(numbers < 60, numbers, -1))
    assert_array_equal(model.loo_residuals_.shape, [60])
    model.fit(rows[100:], y[100:])  # numbers of before are those of unrelated rows
    assert_array_equal(model.support_, -1)
    given = PlainSparseLSSVC("loo", gamma=1.0, basis=points).fit(rows[100:], y[100:])
    assert_allclose(model.cv_curve_, given.cv_curve_, rtol=1e-6)
