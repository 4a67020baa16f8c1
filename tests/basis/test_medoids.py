"""k-medoids as basis points; most tests need the optional package kmedoids."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone

from leansvm.basis.choose import choose as choose_basis
from leansvm.basis.medoids import KMedoids
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

RBF = Kernel("rbf", gamma=0.5)


def choose(X, n, *, kernel=RBF, weight=None, tile=None, seed=0, **options):
    rows = MemoryBlocks(X, weight=weight, tile_rows=tile)
    return KMedoids(random_state=seed, **options).select(rows, kernel, n)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(300, 3))


def test_without_the_package_the_extra_is_named(X, monkeypatch):
    monkeypatch.setitem(sys.modules, "kmedoids", None)
    with pytest.raises(ImportError, match=r"needs kmedoids: run `pip install '\.\[medoids\]'`"):
        choose(X, 5)


def test_interface(X):
    selector = clone(KMedoids(metric="euclidean"))
    assert selector.get_params()["metric"] == "euclidean"
    assert not selector.nested and selector.state_columns(25) == 0
    for wrong in ({"metric": "cosine"}, {"sample_size": 0}, {"max_iter": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            choose(X, 5, **wrong)


def test_a_sample_whose_pairs_exceed_the_budget_is_refused_before_anything_is_allocated():
    X = np.random.default_rng(0).normal(size=(1200, 2))
    options = {"select_on": "auto", "budget": 2**23, "random_state": 0}
    # 8 * 1100**2 bytes are more than 8 MiB; four rows for each of 275 points likewise
    for selector, n_basis in ((KMedoids(sample_size=1100), 5), (KMedoids(sample_size=9), 275)):
        with pytest.raises(MemoryError, match=r"KMedoids on a sample of 1,100 rows .*sample_size"):
            choose_basis(MemoryBlocks(X), RBF, selector, n_basis, **options)
    with pytest.raises(ValueError, match="sample_size"):
        choose_basis(MemoryBlocks(X), RBF, KMedoids(sample_size="all"), 5, **options)


class TestWithThePackage:
    @pytest.fixture(autouse=True)
    def package(self):
        pytest.importorskip("kmedoids")

    @pytest.mark.parametrize("metric", ["kernel", "euclidean"])
    def test_the_centres_of_clusters(self, metric):
        rows = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [9.0]])
        assert_array_equal(np.sort(choose(rows, 3, metric=metric).indices), [1, 4, 6])

    @pytest.mark.parametrize("metric", ["kernel", "euclidean"])
    def test_no_single_swap_is_better(self, X, metric):
        K = RBF.block(X, X)
        D2 = 2 - 2 * K if metric == "kernel" else ((X[:, None] - X[None]) ** 2).sum(axis=2)
        selection = choose(X, 8, metric=metric)
        loss = D2[:, selection.indices].min(axis=1).sum()
        assert np.isclose(loss, selection.report["loss"])
        for a in range(8):
            others = np.delete(selection.indices, a)
            left = D2[:, others].min(axis=1)
            assert np.minimum(left[:, None], D2).sum(axis=0).min() >= loss * (1 - 1e-12)

    def test_the_loss_bounds_the_trace(self, X):
        selection = choose(X, 20)
        B, K = selection.indices, RBF.block(X, X)
        missed = np.trace(K - K[:, B] @ np.linalg.solve(K[np.ix_(B, B)], K[B]))
        assert missed <= selection.report["loss"]

    def test_a_sample_of_many_rows(self, X):
        selection = choose(X, 10, sample_size=100)
        assert selection.report["sample"] == 100
        assert len(np.unique(selection.indices)) == 10
        assert choose(X, 40, sample_size=100).report["sample"] == 160

    def test_no_more_rows_than_there_are_count_for_the_budget(self, X):
        options = {"select_on": "auto", "budget": 2**22, "random_state": 0}
        selector = KMedoids(sample_size=10**9)
        found = choose_basis(MemoryBlocks(X), RBF, selector, 10, **options)
        assert found.report["sample"] == 300

    def test_the_same_whatever_the_blocks(self, X):
        one = choose(X, 10, sample_size=100).indices
        for tile in (100, 6):
            assert_array_equal(choose(X, 10, sample_size=100, tile=tile).indices, one)
        assert not np.array_equal(choose(X, 10, sample_size=100, seed=1).indices, one)

    def test_weights(self, X):
        weight = np.random.default_rng(1).integers(0, 2, size=300)
        assert weight[choose(X, 30, weight=weight).indices].all()

    def test_copies_are_dropped(self, X):
        copies = X[np.random.default_rng(1).integers(12, size=300)]
        assert len(choose(copies, 40).indices) == 12

    def test_kinds_of_rows(self, X):
        expected = np.sort(choose(X, 10).indices)
        assert_array_equal(np.sort(choose(sparse.csr_array(X), 10).indices), expected)
        K = RBF.block(X, X)
        assert_array_equal(np.sort(choose(K, 10, kernel=Kernel("precomputed")).indices), expected)
        with pytest.raises(ValueError, match="metric"):
            choose(K, 10, kernel=Kernel("precomputed"), metric="euclidean")
        xp = pytest.importorskip("array_api_strict")
        for metric in ("kernel", "euclidean"):
            foreign = choose(xp.asarray(X), 10, metric=metric, tile=70).indices
            assert_array_equal(np.sort(foreign), np.sort(choose(X, 10, metric=metric).indices))

    def test_all_rows(self, X):
        assert_array_equal(np.sort(choose(X[:20], 20).indices), np.arange(20))
