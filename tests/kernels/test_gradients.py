"""Gradients and mixed second derivatives of every kernel against differences of its values."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from leansvm.kernels import KERNELS, Kernel, gradients, mixed_derivatives

NAMES = [name for name in KERNELS if name not in ("precomputed", "polynomial")]
PER_FEATURE = ("rbf", "matern12", "matern32", "matern52", "laplacian")


def problem(name, seed=0):
    rng = np.random.default_rng(seed)
    X, Z = rng.uniform(0.1, 1.5, size=(6, 4)), rng.uniform(0.1, 1.5, size=(9, 4))
    return X, Z, rng.normal(size=(9, 2))


def kernels(name):
    yield Kernel(name, gamma=0.7, degree=3, coef0=0.5)
    if name in PER_FEATURE:
        yield Kernel(name, gamma=[0.7, 0.0, 2.0, 0.3])
    if name == "poly":
        yield from (Kernel(name, gamma=0.7, degree=d, coef0=0.5) for d in (0, 1, 2, 2.5))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_limits_of_differences(name):
    X, Z, coef = problem(name)
    for kernel in kernels(name):
        found = gradients(kernel, X, Z, coef)
        for f in range(4):
            step = np.zeros(4)
            step[f] = 1e-5
            difference = kernel.block(X + step, Z) - kernel.block(X - step, Z)
            np.testing.assert_allclose(found[:, f], difference @ coef / 2e-5, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_mixed_derivatives_are_limits_of_differences(name):
    X, Z, coef = problem(name)
    pairs = np.array([[0, 2], [3, 1]])
    for kernel in kernels(name):
        found = mixed_derivatives(kernel, X, Z, coef, pairs)
        for p, (a, b) in enumerate(pairs):
            step = np.zeros(4)
            step[b] = 1e-5
            ahead, behind = (
                gradients(kernel, X + step, Z, coef),
                gradients(kernel, X - step, Z, coef),
            )
            difference = (ahead - behind)[:, a] / 2e-5
            np.testing.assert_allclose(found[:, p], difference, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_at_the_points_themselves_slopes_are_finite(name):
    _, Z, coef = problem(name)
    kernel = next(kernels(name))
    pairs = np.array([[0, 1]])
    assert np.isfinite(gradients(kernel, Z, Z, coef)).all()
    assert np.isfinite(mixed_derivatives(kernel, Z, Z, coef, pairs)).all()
    zero = np.zeros((1, 4))
    assert np.isfinite(gradients(kernel, zero, zero, coef[:1])).all()


def test_clipped_features_have_no_slope():
    X, Z, coef = problem("rbf")
    bounds = np.array([0.3, -np.inf, 0.3, -np.inf]), np.array([1.0, np.inf, 1.2, np.inf])
    kernel = Kernel("rbf", gamma=0.7, clip=bounds)
    found = gradients(kernel, X, Z, coef)
    outside = (bounds[0] > X) | (bounds[1] < X)
    assert outside.any() and not found[outside].any()
    plain = gradients(Kernel("rbf", gamma=0.7), np.clip(X, *bounds), np.clip(Z, *bounds), coef)
    np.testing.assert_allclose(found[~outside], plain[~outside])
    mixed = mixed_derivatives(kernel, X, Z, coef, np.array([[0, 2]]))
    either = outside[:, 0] | outside[:, 2]
    assert not mixed[either].any() and mixed[~either].all()


def test_sparse_rows_and_small_tiles_give_the_same(monkeypatch):
    from leansvm.kernels import _gradients

    X, Z, coef = problem("rbf")
    kernel = Kernel("rbf", gamma=0.7)
    expected = gradients(kernel, X, Z, coef)
    np.testing.assert_allclose(gradients(kernel, csr_matrix(X), csr_matrix(Z), coef), expected)
    monkeypatch.setattr(_gradients, "_TILE", 1)
    np.testing.assert_allclose(gradients(kernel, X, Z, coef), expected)


@pytest.mark.parametrize("name", ["precomputed", lambda X, Z: X @ Z.T])
def test_unknown_gradients_are_refused(name):
    X, Z, coef = problem("rbf")
    with pytest.raises(ValueError, match="no known gradient"):
        gradients(Kernel(name), X, Z, coef)
