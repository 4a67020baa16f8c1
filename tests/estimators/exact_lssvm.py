"""Data and reference solutions for the tests of `LSSVC` and `LSSVR`."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, polynomial_kernel, rbf_kernel

rng = np.random.default_rng(7)
M = 36
X = rng.normal(size=(M, 3))
Z = rng.normal(size=(15, 3))
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=M)
TARGETS = np.column_stack([TARGET, X[:, 2] - 3, 100 * rng.normal(size=M)])
BINARY = np.where(X[:, 0] + 0.5 * rng.normal(size=M) > 0, 1.0, -1.0)
THREE = np.digitize(X[:, 0] + 0.5 * rng.normal(size=M), [-0.5, 0.5])
WEIGHT = rng.uniform(0.2, 3.0, size=M)

BIASES = {
    "free": {},
    "penalised": {"bias_penalty": 0.7},
    "absent": {"fit_intercept": False},
}
every_bias = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)


def sobolev(A, B):
    """The kernel of a callable: Matérn 3/2."""
    distance = np.sqrt(np.maximum(((A[:, None] - B[None]) ** 2).sum(axis=2), 0.0))
    return (1 + distance) * np.exp(-distance)


# kernel -> parameters here, the same kernel of scikit-learn
KERNELS = {
    "linear": ({"kernel": "linear"}, linear_kernel),
    "rbf": ({"kernel": "rbf", "gamma": 0.4}, lambda A, B: rbf_kernel(A, B, gamma=0.4)),
    "laplacian": (
        {"kernel": "laplacian", "gamma": 0.3},
        lambda A, B: laplacian_kernel(A, B, gamma=0.3),
    ),
    "poly": (
        {"kernel": "poly", "gamma": 0.5, "coef0": 0.7, "degree": 2},
        lambda A, B: polynomial_kernel(A, B, gamma=0.5, coef0=0.7, degree=2),
    ),
    "callable": ({"kernel": sobolev}, sobolev),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def penalty_of(bias):
    return bias.get("bias_penalty", 0.0) if bias.get("fit_intercept", True) else np.inf


def bordered(K, Y, C, weight=None, A=0.0):
    """Solve [K + diag(1/(C s)), 1; 1', -A] [beta; b] = [Y; 0] (zhou2016, eq. (5))."""
    Y = np.asarray(Y, dtype=float)
    m = len(K)
    weight = np.ones(m) if weight is None else weight
    G = K + np.diag(1.0 / (C * weight))
    if np.isinf(A):
        return np.linalg.solve(G, Y), np.zeros(Y.shape[1:])
    system = np.block([[G, np.ones((m, 1))], [np.ones((1, m)), np.full((1, 1), -A)]])
    solved = np.linalg.solve(system, np.concatenate([Y, np.zeros((1, *Y.shape[1:]))]))
    return solved[:-1], solved[-1]


def one_vs_rest(labels):
    return np.where(np.asarray(labels)[:, None] == np.unique(labels), 1.0, -1.0)
