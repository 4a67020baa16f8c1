"""Rows of other array libraries."""

from __future__ import annotations

from itertools import product

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.kernels import Kernel

FLOATS = (np.float32, np.float64)
DEVICES = ("CPU_DEVICE", "device1")


def to_numpy(array):
    host = array_api_strict.Device("CPU_DEVICE")
    return np.asarray(array_api_strict.asarray(array.to_device(host)))


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def strict(A, device="CPU_DEVICE"):
    return array_api_strict.asarray(A, device=array_api_strict.Device(device))


def test_array_api_equals_numpy(name, points, make):
    kernel, _ = make(6, gamma=1e-6 if name == "sigmoid" else 0.1)
    for mean, dtype in product([0.0, 300.0], FLOATS):
        X, Z = points(50, 6, mean=mean, dtype=dtype), points(20, 6, mean=mean, seed=1, dtype=dtype)
        expected = kernel.block(X, Z)
        tol = (1e-10 if dtype == np.float64 else 1e-5) * np.abs(expected).max()
        for device in DEVICES:
            K = kernel.block(strict(X, device), strict(Z, device))
            message = f"mean {mean}, {dtype}, {device}"
            assert K.device == array_api_strict.Device(device), message
            assert K.dtype == strict(X).dtype, message
            assert_allclose(to_numpy(K), expected, rtol=0, atol=tol, err_msg=message)


def test_values_in_another_type_are_computed_in_it(name, points, make, device):
    kernel, _ = make(6)
    X, Z = points(50, 6, dtype=np.float32), points(20, 6, seed=1, dtype=np.float32)
    K = kernel.block(strict(X, device), strict(Z, device), dtype=np.float64)
    expected = kernel.block(X.astype(np.float64), Z.astype(np.float64))
    assert K.dtype == array_api_strict.float64 and K.device == array_api_strict.Device(device)
    assert_allclose(to_numpy(K), expected, rtol=1e-9, atol=1e-9)


def test_array_api_diag(name, points, make):
    kernel, _ = make(6)
    for dtype, device in product(FLOATS, DEVICES):
        X = points(50, 6, dtype=dtype)
        diagonal = kernel.diag(strict(X, device))
        message = f"{dtype}, {device}"
        assert_allclose(to_numpy(diagonal), kernel.diag(X), rtol=1e-5, err_msg=message)
        assert diagonal.device == array_api_strict.Device(device), message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_array_api_extreme_gamma(name, points, direct):
    for dtype, gamma in product(FLOATS, [0.0, 1e-300, 1e6, 1e12, 1e300]):
        X = points(100, 3, mean=1, dtype=dtype)
        Z = np.concatenate([X[:50], points(4, 3, seed=1, dtype=dtype)])
        K = to_numpy(Kernel(name, gamma=gamma).block(strict(X), strict(Z)))
        tol = 1e-4 if dtype == np.float32 else 1e-7 if name == "matern12" else 1e-8
        message = f"gamma {gamma}, {dtype}"
        assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=tol, err_msg=message)


@pytest.mark.filterwarnings("error")
def test_array_api_empty(name, points, make):
    kernel, _ = make(3)
    for shape in ((0, 4), (4, 0)):
        X, Z = strict(points(shape[0], 3)), strict(points(shape[1], 3))
        assert kernel.block(X, Z).shape == shape


def test_array_api_precomputed(device, points):
    K = points(20, 20)
    kernel = Kernel("precomputed")
    columns = np.array([3, 1, 19])
    taken = kernel.block(strict(K, device), kernel.points(None, columns))
    assert_array_equal(to_numpy(taken), K[:, columns])
    assert_array_equal(to_numpy(kernel.diag(strict(K[4:9], device), 4)), K.diagonal()[4:9])


def test_array_api_callable(device, points):
    X, Z = points(40, 3), points(9, 3, seed=1)
    kernel = Kernel(lambda A, B: (A @ B.T + 1.0) ** 2)
    A, B = strict(X, device), strict(Z, device)
    assert_allclose(to_numpy(kernel.block(A, B)), (X @ Z.T + 1) ** 2)
    assert_allclose(to_numpy(kernel.diag(A)), ((X**2).sum(axis=1) + 1) ** 2)
    with pytest.raises(ValueError, match="all pairs"):
        Kernel(lambda A, B: A @ A.T).block(A, B)
    with pytest.raises(ValueError, match="NaN or infinity"):
        Kernel(lambda A, B: A @ B.T * float("nan")).block(A, B)


# ------------------------------------------------------------------ one gamma for each feature

DISTANCES = ["rbf", "matern12", "matern32", "matern52", "laplacian"]


@pytest.fixture(params=["strict", "torch"])
def library(request):
    """Functions that bring rows to another library, and results back."""
    if request.param == "strict":
        return strict, to_numpy
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.asarray, np.asarray


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", DISTANCES)
def test_one_gamma_for_each_feature(name, library, points, direct):
    there, back = library
    gammas = [0.3, 0.0, 0.02, 0.5], [1e-300, 1e300, 1e6, 1.0], [0.0] * 4
    for mean, dtype, gamma in product([0.0, 300.0], FLOATS, gammas):
        X = points(60, 4, mean=mean, dtype=dtype)
        Z = np.concatenate([X[:10], points(20, 4, mean=mean, seed=1, dtype=dtype)])
        K = back(Kernel(name, gamma=gamma).block(there(X), there(Z)))
        message = f"mean {mean}, {dtype}, gamma {gamma}"
        assert K.dtype == dtype, message
        tol = 5e-5 if dtype == np.float32 else 1e-7 if name == "matern12" else 1e-9
        assert_allclose(K, direct(name, X, Z, gamma), rtol=0, atol=tol, err_msg=message)


def test_torch_equals_numpy(name, points, make):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    kernel, _ = make(6)
    for dtype in FLOATS:
        X, Z = points(50, 6, dtype=dtype), points(20, 6, seed=1, dtype=dtype)
        expected = kernel.block(X, Z)
        K = kernel.block(torch.asarray(X), torch.asarray(Z)).numpy()
        assert K.dtype == dtype
        tol = (1e-10 if dtype == np.float64 else 5e-5) * np.abs(expected).max()
        assert_allclose(K, expected, rtol=0, atol=tol, err_msg=str(dtype))
        diagonal = kernel.diag(torch.asarray(X)).numpy()
        assert_allclose(diagonal, kernel.diag(X), rtol=1e-5, err_msg=str(dtype))


def test_nearly_equal_rows(library, points, direct):
    there, back = library
    for dtype, copies, gamma in product(FLOATS, [1, 3000], [0.4, [0.3, 0.1, 0.02]]):
        Z = np.concatenate([points(30, 3, dtype=dtype), np.ones((2, 3), dtype)])
        X = np.concatenate([Z[:30] + dtype(1e-9), Z[:30], np.ones((copies, 3), dtype)])
        K = back(Kernel("matern12", gamma=gamma).block(there(X), there(Z)))
        message = f"{dtype}, {copies} copies, gamma {gamma}"
        tol = 5e-5 if dtype == np.float32 else 1e-7
        assert_allclose(K, direct("matern12", X, Z, gamma), rtol=0, atol=tol, err_msg=message)
        assert_array_equal(K[30:60, :30].diagonal(), 1.0, err_msg=message)


@pytest.mark.parametrize("name", DISTANCES)
def test_columns_one_after_the_other(name, library, points, direct):
    there, back = library
    X = points(40, 3)
    X[11] = X[7]
    for gamma in (0.4, [0.3, 0.1, 0.02], 1e12):
        column = Kernel(name, gamma=gamma).columns(there(X))
        expected = direct(name, X, X, gamma)
        for t in (0, 7, 39):
            message = f"column {t}, gamma {gamma}"
            assert_allclose(back(column(t)), expected[:, t], rtol=0, atol=1e-7, err_msg=message)


def test_the_rows_of_another_library_are_left_alone(name, library, points, make):
    there, back = library
    X = points(20, 3)
    rows = there(X.copy())
    kernel, _ = make(3)
    kernel.block(rows, rows)
    kernel.columns(rows)(3)
    assert_array_equal(back(rows), X)
