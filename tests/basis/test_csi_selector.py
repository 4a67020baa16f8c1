"""CSI as a selector: when it stops, hard kernels, kinds of rows, parameters."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from leansvm.basis import Fit
from leansvm.basis.cholesky import FactorRows
from leansvm.basis.csi import CSI
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

KERNEL = Kernel("rbf", gamma=0.3)


def data(m=60, d=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, d))
    return X, np.sign(rng.normal(size=(m, 1)) + 2 * X[:, :1] * X[:, 1:2])


def select(X, Y, n_basis=20, **options):
    return CSI(**{"tol": 0.0, **options}).select(MemoryBlocks(X, Y), KERNEL, n_basis, fit=Fit(1.0))


# ---------------------------------------------------------------------------- ends


def test_stops_when_the_last_rows_gained_little():
    X, Y = data(200, 2)
    gains = select(X, Y, n_basis=80, tol=0.0).report["gains"]
    stopped = select(X, Y, n_basis=80, tol=4e-3).report["gains"]
    means = np.convolve(gains, np.full(20, 1 / 20), "valid")
    assert 20 < len(stopped) == 20 + np.argmax(means < 4e-3) < 80


def test_stops_when_asked():
    X, Y = data()
    seen = []
    blocks = MemoryBlocks(X, Y)
    chosen = CSI(tol=0.0).select(
        blocks,
        KERNEL,
        20,
        fit=Fit(1.0),
        on_step=lambda k: seen.append(k) or k == 4,
    )
    assert seen == [1, 2, 3, 4]
    assert len(chosen.indices) == len(chosen.L) == 4


def test_constant_targets_leave_the_kernel_matrix_to_decide():
    X, _ = data()
    chosen = select(X, np.ones((len(X), 1)))
    assert len(chosen.indices) == 20
    assert np.isfinite(chosen.report["gains"]).all()


def test_more_basis_rows_than_rows_chooses_all():
    X, Y = data(30)
    chosen = select(X, Y, n_basis=99)
    assert_array_equal(np.sort(chosen.indices), np.arange(30))


@pytest.mark.parametrize("gamma", [1e-3, 1e-5])
def test_smooth_kernels_stay_finite(gamma):
    X, Y = data(200, 2)
    kernel = Kernel("rbf", gamma=gamma)
    blocks = MemoryBlocks(X, Y, tile_rows=64)
    chosen = CSI(tol=0.0).select(blocks, kernel, 100, fit=Fit(1.0))
    K = kernel.block(X, X)
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P)
    assert np.isfinite(chosen.report["gains"]).all()
    assert len(np.unique(chosen.indices)) == len(chosen.indices) < 100
    assert_allclose(P @ chosen.L.T, K[:, chosen.indices], atol=1e-12)


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-8, 1e-7, 1e-5])
def test_near_copies_leave_the_factor_accurate(distance):
    """A near copy of a window row must not be represented by the window."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    X = np.vstack([X, X + distance * rng.normal(size=X.shape)])
    Y = np.sign(rng.normal(size=(200, 1)))
    kernel = Kernel("rbf", gamma=1.0)
    blocks = MemoryBlocks(X, Y, tile_rows=50)
    chosen = CSI(tol=0.0, look_ahead=20).select(blocks, kernel, 60, fit=Fit(1.0))
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P)
    assert_allclose(P @ chosen.L.T, kernel.block(X, X)[:, chosen.indices], atol=1e-13)
    assert len(np.unique(chosen.indices)) == 60


# ---------------------------------------------------------------------------- interface


def test_precomputed_sparse_and_float32_rows_give_the_same_choice():
    from scipy import sparse

    X, Y = data(80, 4)
    X = X.astype(np.float32).astype(np.float64)
    expected = select(X, Y).indices
    K = KERNEL.block(X, X)
    options = {"fit": Fit(1.0)}
    for rows, kernel in (
        (K, Kernel("precomputed")),
        (sparse.csr_matrix(X), KERNEL),
        (X.astype(np.float32), KERNEL),
    ):
        blocks = MemoryBlocks(rows, Y, tile_rows=30)
        assert_array_equal(CSI(tol=0.0).select(blocks, kernel, 20, **options).indices, expected)


def test_block_functions_travel():
    from leansvm.basis.csi import in_block as functions

    for name in ("begin", "centre_targets", "grow", "orthogonalise", "normalise", "extract"):
        assert pickle.loads(pickle.dumps(getattr(functions, name))) is getattr(functions, name)


def test_parameters_are_checked():
    X, Y = data()
    blocks = MemoryBlocks(X, Y)
    with pytest.raises(ValueError, match="fit=Fit"):
        CSI().select(blocks, KERNEL, 5)
    with pytest.raises(ValueError, match="no y"):
        CSI().select(MemoryBlocks(X), KERNEL, 5, fit=Fit(1.0))
    for wrong in ({"trade_off": 1.5}, {"look_ahead": -1}, {"look_ahead": 1.5}, {"tol": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            CSI(**wrong).select(blocks, KERNEL, 5, fit=Fit(1.0))


def test_is_a_scikit_learn_object_that_keeps_no_data():
    selector = CSI(trade_off=0.5, look_ahead=7, tol=0.1)
    X, Y = data()
    before = dict(vars(selector))
    selector.select(MemoryBlocks(X, Y), KERNEL, 5, fit=Fit(1.0))
    assert vars(selector) == before == clone(selector).get_params()
    assert selector.uses_targets
