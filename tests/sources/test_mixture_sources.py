"""A mixture of kernels gives the same model wherever the rows are."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn import config_context

from leansvm import LSSVR, SparseLSSVR
from leansvm.kernels import Mixture

_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(120, 3)) * 1.5
Y = np.sin(2 * X[:, 0]) + X[:, 2]
_G = np.array([0.5, 0.0, 0.3, 0.2, 0.1])
MIXTURE = Mixture(
    [(0.5, "rbf", _G), (0.3, "matern32", 2 * _G), (0.2, "laplacian", _G), (0.1, "linear", _G[:3])],
    clip=(np.full(3, -2.0), np.full(3, 2.0)),
    linear_clip=(np.full(3, -9.0), np.full(3, 9.0)),
    origin=np.array([0.1, 0.0, -0.2]),
    knots=[(0, np.linspace(-2, 2, 7), np.linspace(-1, 1, 7) ** 3), (2, [-1.0, 1.0], [-1.0, 1.0])],
)


def machine():
    return SparseLSSVR(kernel=MIXTURE, n_basis=20, basis="random", C=10.0, random_state=0)


@cache
def in_memory():
    with config_context(array_api_dispatch=False, working_memory=1024):  # scikit-learn's own
        model = machine().fit(X, Y)
        return model, model.predict(X)


def test_the_same_model(source):
    expected, values = in_memory()
    model = source.fit(machine(), X, Y)
    assert model.kernel_ == MIXTURE
    assert_allclose(source.apply(model, "predict", X), values, rtol=1e-6, atol=1e-8)
    assert model.n_support_ == expected.n_support_


@pytest.mark.parametrize("model", [machine(), LSSVR(kernel=MIXTURE, C=10.0)])
def test_csr_rows(model):
    rows = np.where(np.abs(X) > 1, X, 0.0)
    expected = model.fit(rows, Y).predict(rows)
    found = model.fit(sparse.csr_array(rows), Y).predict(sparse.csr_array(rows))
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
