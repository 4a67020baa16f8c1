"""Every kernel, type and storage of rows and points, with references to compare with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics import pairwise


def matern(nu):
    """scikit-learn's kernel of |x - z| / length: r^2 = 2 nu |x - z|^2 / length^2."""

    def values(X, Z, p):
        return Matern(length_scale=p["gamma"] ** -0.5, nu=nu)(X, Z)

    return values


THEIRS = {
    "linear": lambda X, Z, p: pairwise.linear_kernel(X, Z),
    "rbf": lambda X, Z, p: pairwise.rbf_kernel(X, Z, gamma=p["gamma"]),
    "matern12": matern(0.5),
    "matern32": matern(1.5),
    "matern52": matern(2.5),
    "poly": lambda X, Z, p: pairwise.polynomial_kernel(X, Z, **p),
    "sigmoid": lambda X, Z, p: pairwise.sigmoid_kernel(X, Z, gamma=p["gamma"], coef0=p["coef0"]),
    "laplacian": lambda X, Z, p: pairwise.laplacian_kernel(X, Z, gamma=p["gamma"]),
    "chi2": lambda X, Z, p: pairwise.chi2_kernel(X, Z, gamma=p["gamma"]),
    "cosine": lambda X, Z, p: pairwise.cosine_similarity(X, Z),
}
STORAGE = {
    "dense-dense": (np.asarray, np.asarray),
    "dense-csr": (np.asarray, sparse.csr_array),
    "csr-dense": (sparse.csr_array, np.asarray),
    "csr-csr": (sparse.csr_array, sparse.csr_array),
}


@pytest.fixture(params=THEIRS)
def name(request):
    """Every kernel with a name."""
    return request.param


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    """Both types of rows."""
    return request.param


@pytest.fixture(params=STORAGE, scope="session")
def storage(request):
    """Functions that store rows and points, dense or as CSR."""
    return STORAGE[request.param]


@pytest.fixture(scope="session")
def every_storage():
    """Return all of them at once, by their names."""
    return STORAGE


@pytest.fixture
def theirs(name):
    """scikit-learn's values of the kernel: f(X, Z, parameters)."""
    return THEIRS[name]


@pytest.fixture
def make(name):
    """Return the kernel with parameters that suit d features, and these parameters."""

    def kernel(d, **params):
        from leansvm.kernels import Kernel

        params = {"gamma": 0.7 / d, "degree": 3, "coef0": 0.5} | params
        return Kernel(name, **params), params

    return kernel


@pytest.fixture
def points(request):
    """Normal rows; their absolute values where the kernel is chi2."""
    call = getattr(request.node, "callspec", None)
    non_negative = call is not None and call.params.get("name") == "chi2"

    def rows(n, d, *, mean=0.0, seed=0, dtype=np.float64):
        X = np.random.default_rng(seed).normal(mean, 1.0, size=(n, d)).astype(dtype)
        return np.abs(X) if non_negative else X

    return rows


@pytest.fixture(scope="session")
def direct():
    """Return the kernel in extended precision, from differences of coordinates."""

    def values(name, X, Z, gamma):
        X, Z = np.asarray(X, np.longdouble), np.asarray(Z, np.longdouble)
        difference = np.abs(X[:, None, :] - Z[None, :, :])
        gamma = np.asarray(gamma, np.longdouble)
        if name == "laplacian":
            return np.exp(-(gamma * difference).sum(axis=2)).astype(np.float64)
        D = (gamma * difference**2).sum(axis=2)
        if name == "rbf":
            return np.exp(-D).astype(np.float64)
        r = np.sqrt({"matern12": 1, "matern32": 3, "matern52": 5}[name] * D)
        r = np.minimum(r, 1e4)
        polynomial = {"matern12": 1, "matern32": 1 + r, "matern52": 1 + r + r**2 / 3}[name]
        return (polynomial * np.exp(-r)).astype(np.float64)

    return values
