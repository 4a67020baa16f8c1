"""From the parameters of the basis to points: names, arrays, samples, sizes, points of before."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from leansvm import KernelBasis, ReducedSVC, SparseLSSVC, SparseLSSVR
from leansvm.basis import (
    Backfitting,
    BasisSelector,
    Fit,
    PivotedCholesky,
    RandomBasis,
    SparseGreedy,
)
from leansvm.basis.cholesky import FactorRows
from leansvm.basis.choose import LAST_SIZE, SELECTORS, Basis, choose, resolve_basis
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

KERNEL = Kernel("rbf", gamma=0.5)
X = np.random.default_rng(0).normal(size=(200, 3))
Y = np.where(X[:, :1] > 1.0, 1.0, -1.0)


def run(basis, n_basis=10, blocks=None, **options):
    blocks = MemoryBlocks(X, Y) if blocks is None else blocks
    options = {"select_on": "all", "budget": 0, "random_state": 0, **options}
    return choose(blocks, KERNEL, basis, n_basis, **options)


def test_a_selector_runs_on_all_rows_and_leaves_its_factor():
    blocks = MemoryBlocks(X, Y, tile_rows=60)
    found = run(PivotedCholesky(), blocks=blocks)
    assert_array_equal(found.indices, PivotedCholesky().select(blocks, KERNEL, 10).indices)
    assert_array_equal(found.rows, X[found.indices])
    np.testing.assert_allclose(found.L @ found.L.T, KERNEL.block(found.rows, found.rows))
    assert FactorRows in blocks.map(lambda block: block.state)[0]


def test_given_rows_and_points():
    rows = run(np.array([7, 3]))
    assert_array_equal(rows.rows, X[[7, 3]])
    points = run(np.zeros((2, 3)), blocks=MemoryBlocks(X.astype(np.float32)))
    assert points.indices is None and points.rows.dtype == np.float32
    assert points.points(KERNEL) is points.rows
    assert_array_equal(rows.points(Kernel("precomputed")), [7, 3])
    assert rows.L is None and rows.report == {}


@pytest.mark.parametrize("select_on, count", [(50, 50), (0.3, 60), (4, 10), ("auto", 40)])
def test_a_sample_has_all_classes_in_proportion(select_on, count):
    seen = []

    class Watched(PivotedCholesky):
        def select(self, blocks, *args, **options):
            seen.append(blocks)
            return super().select(blocks, *args, **options)

    found = run(Watched(), select_on=select_on, budget=1000)
    assert found.report["selected_on"] == seen[0].n_rows == count
    assert found.L is None  # of the sample's rows, not of all
    shares = [np.mean(part > 0) for part in (seen[0].targets_of(np.arange(count))[0], Y)]
    assert abs(shares[0] - shares[1]) <= 1 / count
    assert_array_equal(found.rows, X[found.indices])


def test_C_on_a_sample_weighs_as_much_as_on_all_rows():
    seen = []

    class Watched(Backfitting):
        def select(self, blocks, *args, fit, **options):
            seen.append(fit.C * (blocks.targets_of(np.arange(blocks.n_rows))[1]).sum())
            return super().select(blocks, *args, fit=fit, **options)

    weight = np.random.default_rng(1).uniform(size=200)
    for select_on in (50, "all"):
        run(Watched(), 5, MemoryBlocks(X, Y, weight), select_on=select_on, fit=Fit(3.0))
    np.testing.assert_allclose(seen, 3.0 * weight.sum())


def test_without_state_all_rows_compete():
    assert "selected_on" not in run(RandomBasis(), select_on=20).report


def test_points_of_before_stay():
    first = run(RandomBasis(), 6)
    fewer = run(RandomBasis(), 4, earlier=first)
    assert_array_equal(fewer.indices, first.indices[:4])
    more = run(PivotedCholesky(), 15, earlier=first)
    assert_array_equal(more.indices[:6], first.indices)
    assert len(np.unique(more.indices)) == 15
    assert_array_equal(more.rows, X[more.indices])
    assert more.L is None
    as_csr = Basis(first.indices, sparse.csr_array(first.rows))
    stacked = run(PivotedCholesky(), 15, blocks=MemoryBlocks(sparse.csr_array(X)), earlier=as_csr)
    assert_array_equal(stacked.rows.toarray(), X[stacked.indices])


def test_selectors_of_numpy_get_rows_on_the_host():
    xp = pytest.importorskip("array_api_strict")
    blocks = MemoryBlocks(xp.asarray(X), xp.asarray(Y))
    found = run(SparseGreedy(12), blocks=blocks)
    assert_array_equal(found.indices, run(SparseGreedy(12)).indices)
    assert type(found.rows) is type(xp.asarray(X)) and found.L is None
    stays, fit = Backfitting(12, keep_pool=False), Fit(1.0)
    found = run(stays, blocks=blocks, fit=fit)
    assert_array_equal(found.indices, run(stays, fit=fit).indices)
    assert type(found.rows) is type(xp.asarray(X)) and found.L is not None
    assert type(run(np.zeros((2, 3)), blocks=blocks).rows) is type(xp.asarray(X))


def test_names_and_sizes():
    def resolved(basis, n_basis, n_rows=200):
        return resolve_basis(basis, n_basis, (n_rows, 3), False)

    for name, kind in SELECTORS.items():
        assert type(resolved(name, 10)[0]) is kind
    for n_basis in (10, "auto"):
        everything, *size = resolved("all", n_basis)
        assert_array_equal(everything, np.arange(200))
        assert size == [200, False]
    assert resolved(RandomBasis(), 0.1)[1:] == (20, False)
    assert resolved(RandomBasis(), "auto")[1:] == (200, True)
    assert resolved(RandomBasis(), "auto", 10**6)[1:] == (LAST_SIZE, True)
    with pytest.warns(UserWarning, match="all rows are used"):
        assert resolved(RandomBasis(), 300)[1:] == (200, False)
    with pytest.raises(ValueError, match="basis must be one of random"):
        resolved("best", 10)


@pytest.mark.parametrize("rows", [[1, 1], [-1, 2], [0, 200], [True, False], [0.0, 2.0], range(11)])
def test_what_an_own_selector_chooses_is_checked(rows):
    class Own(BasisSelector):
        def _choose(self, blocks, kernel, n_basis, rng, fit, on_step):
            return Basis(np.asarray(rows))

    with pytest.raises(ValueError, match="Own must choose a Basis with at most 10 different row"):
        run(Own())


def test_a_warning_names_the_line_of_the_user():
    with pytest.warns(UserWarning, match="more than the 20 rows") as caught:
        KernelBasis(n_basis=30).fit(X[:20])
    assert caught[0].filename == __file__


# ---------------------------------------------------------------------- indefinite kernels


def _saddle(A, B):
    return A[:, :1] @ B[:, :1].T - A[:, 1:] @ B[:, 1:].T


@pytest.mark.parametrize("basis", ["random", "pivoted-cholesky", "backfitting"])
@pytest.mark.parametrize("kernel", ["sigmoid", "precomputed", _saddle])
@pytest.mark.parametrize("estimator", [SparseLSSVC, ReducedSVC])
def test_an_indefinite_kernel_gives_one_warning(estimator, kernel, basis):
    model = estimator(kernel=kernel, basis=basis, n_basis=20, gamma=2.0, coef0=-1.0, C=1.0)
    rows = _saddle(X, X) if kernel == "precomputed" else X
    with pytest.warns(UserWarning, match="is not positive semidefinite") as seen:
        model.set_params(calibrate=False, random_state=0).fit(rows, Y[:, 0])
    assert len([one for one in seen if "semidefinite" in str(one.message)]) == 1


def test_a_kernel_without_positive_values_is_refused():
    with pytest.raises(ValueError, match=r"'_negative' is not .* no basis point is left"):
        SparseLSSVR(kernel=_negative).fit(X, X[:, 0])


def _negative(A, B):
    return -A @ B.T


def _linear(A, B):
    return A @ B.T


@pytest.mark.parametrize("kernel", ["poly", "linear", "rbf", "precomputed", _linear])
def test_dropped_points_of_a_semidefinite_kernel_give_no_warning(kernel):
    copies = np.tile(X[:40], (3, 1)).astype(np.float32)  # a matrix of low rank, in float32
    rows = _linear(copies, copies) if kernel == "precomputed" else copies
    SparseLSSVR(kernel=kernel, gamma=1.0, n_basis=60, C=1.0).fit(rows, copies[:, 0])


def test_the_norm_of_the_coefficients_needs_no_definite_kernel():
    ReducedSVC(kernel=_saddle, regularizer="coef", n_basis=20, C=1.0).fit(X, Y[:, 0])


def test_a_selector_must_choose_a_row():
    class Nothing(BasisSelector):
        def _choose(self, blocks, kernel, n_basis, rng, fit, on_step):
            return Basis(np.arange(0))

    with pytest.raises(ValueError, match="Nothing chose no row"):
        SparseLSSVC(basis=Nothing()).fit(X, Y[:, 0])
