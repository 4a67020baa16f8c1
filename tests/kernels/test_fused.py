"""Fused kernel products on a CUDA device against blocks in float64."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm.dual.kernel_matrix import KernelMatrix
from leansvm.kernels import Kernel

SCALES = np.array([0.5, 0.0, 2.0, 0.1, 1.0])


def test_other_rows_have_no_fused_form():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    X = torch.asarray(rng.normal(size=(9, 5)).astype(np.float32))
    assert Kernel("rbf").fused_times(X, X) is None  # on the host


@pytest.mark.parametrize("columns", [1, 2, 19])
@pytest.mark.parametrize("gamma", [0.3, SCALES], ids=["one", "each"])
@pytest.mark.parametrize("name", ["rbf", "matern32", "matern52"])
def test_products_are_those_of_blocks(name, gamma, columns):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("triton")
    rng = np.random.default_rng(1)
    X, V = rng.normal(size=(20_011, 5)) + 3.0, rng.normal(size=(20_011, columns))
    rows = torch.asarray(X.astype(np.float32), device="cuda")
    kernel, some = Kernel(name, gamma=gamma), np.arange(0, 20_011, 1001)
    assert kernel.fused_times(rows, rows[:, :1]) is not None
    X = X.astype(np.float32).astype(np.float64)
    expected = kernel.block(X[some], X) @ V
    for product, tol in (("quick_product", 2e-5), ("product", 1e-10)):
        found = getattr(KernelMatrix(rows, kernel), product)(V)
        assert_allclose(found[some], expected, rtol=0, atol=tol * np.abs(expected).max())
