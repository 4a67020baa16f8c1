"""Small fitted models of every kind, and the rows that exported ones are tried on."""

from functools import cache

import numpy as np

from leansvm import (
    L2SVC,
    LSSVC,
    LSSVR,
    KernelBasis,
    LowRankLSSVC,
    LowRankLSSVR,
    ReducedSVC,
    ReducedSVR,
)
from leansvm.kernels import Mixture
from tests import plain

KERNELS = {
    "linear": {},
    "rbf": {"gamma": 0.3},
    "matern12": {"gamma": [0.5, 0.1, 0.0, 1.0]},
    "matern32": {"gamma": 0.3},
    "matern52": {"gamma": [0.5, 0.1, 0.2, 1.0]},
    "laplacian": {"gamma": [0.5, 0.1, 0.0, 1.0]},
    "poly": {"gamma": 0.2, "coef0": 1.0, "degree": 2},
    "sigmoid": {"gamma": 0.02, "coef0": 0.1},
    "chi2": {"gamma": 0.4},
    "cosine": {},
    "mixture": {},
}
_SCALES = np.array([0.5, 0.1, 0.0, 1.0, 0.3, 0.2])
MIXTURE = Mixture(
    [
        (0.4, "rbf", _SCALES),
        (0.0, "matern12", _SCALES),
        (0.3, "matern32", 2 * _SCALES[::-1]),
        (0.1, "matern52", 0 * _SCALES),
        (0.2, "laplacian", _SCALES),
        (0.1, "linear", _SCALES[:4]),
    ],
    clip=(np.zeros(4), np.array([2.0, 2.0, np.inf, 1.0])),
    linear_clip=(np.zeros(4), np.full(4, 8.0)),
    origin=np.array([0.5, 1.0, 3.0, 0.25]),
    knots=[(0, [0.0, 0.5, 0.75, 3.0], [-1.0, 0.5, 0.6, 2.0]), (2, [2.5, 3.5], [0.0, 1.0])],
)
FUNCTIONS = ("simplex", "robust-rbf", "rbf")
_SMALL = {"n_basis": 12, "random_state": 0, "basis": "random"}


def data():
    """Return rows >= 0 (for chi2) around a mean that is not 0, and four targets."""
    rng = np.random.default_rng(7)
    X = np.abs(rng.normal(size=(48, 4))) + np.array([0.0, 0.5, 3.0, 0.0])
    signal = np.sin(2 * X[:, 0]) + X[:, 1]
    X = X.astype(np.float32).astype(np.float64)  # so that rows in float32 can be points
    return X, {
        "binary": np.where(signal > np.median(signal), "yes", "no"),
        "classes": np.digitize(signal, np.quantile(signal, [0.3, 0.7])) * 10 - 5,
        "number": signal,
        "numbers": np.column_stack([signal, X[:, 3] ** 2]),
    }


def _classifiers(kernel, params):
    yield LSSVC(C=2.0, kernel=kernel, calibrate=False, **params)
    shared = {"kernel": kernel, "calibrate": True, **params}
    yield LSSVC(C=2.0, **shared)
    yield L2SVC(C=2.0, **shared)
    yield plain.SparseLSSVC(C=2.0, **_SMALL, **shared)
    yield ReducedSVC(C=2.0, **_SMALL, **shared)


def _regressors(kernel, params):
    yield LSSVR(C=2.0, kernel=kernel, **params)
    yield plain.SparseLSSVR(C=2.0, kernel=kernel, **_SMALL, **params)
    yield ReducedSVR(C=2.0, kernel=kernel, **_SMALL, **params)


def _all():
    """Return every estimator with every kernel, not fitted, and its target, by name."""
    models = {}
    for name, params in KERNELS.items():
        kernel = MIXTURE if name == "mixture" else name
        for kind in ("binary", "classes"):
            for model in _classifiers(kernel, params):
                how = "calibrated" if model.calibrate else "plain"
                models[f"{type(model).__name__}_{name}_{kind}_{how}"] = (model, kind)
        for model in _regressors(kernel, params):
            models[f"{type(model).__name__}_{name}_number"] = (model, "number")
        several = LSSVR(C=2.0, kernel=kernel, **params)
        models[f"LSSVR_{name}_numbers"] = (several, "numbers")
        basis = KernelBasis(8, kernel=kernel, basis="random", random_state=0, **params)
        models[f"KernelBasis_{name}"] = (basis, None)
    for function in FUNCTIONS:
        shared = {"function": function, "tol": 10.0, "random_state": 0}
        safe = function.replace("-", "_")
        for kind in ("binary", "classes"):
            model = LowRankLSSVC(4, calibrate=True, **shared)
            models[f"LowRankLSSVC_{safe}_{kind}"] = (model, kind)
        models[f"LowRankLSSVR_{safe}_numbers"] = (LowRankLSSVR(4, **shared), "numbers")
    return models


_MODELS = _all()
NAMES = (*_MODELS, "clipped")
# calibrated LSSVC and LSSVR with every kernel, all others with one of them
FEW = tuple(
    name
    for name in NAMES
    if "_rbf" in name
    or (name.startswith("LSSV") and not name.endswith(("_plain", "_number")))
    or not any(kernel in name for kernel in KERNELS)
)


@cache
def fitted(name):
    """Return a fitted model."""
    if name == "clipped":
        return clipped()
    X, targets = data()
    model, kind = _MODELS[name]
    return model.fit(X, None if kind is None else targets[kind])


def clipped():
    """Return a model of learned scales whose rows are moved between bounds first."""
    X, targets = data()
    model = LSSVC(C=2.0, kernel="rbf", gamma=np.array([0.5, 0.1, 0.0, 1.0]), calibrate=True)
    model.fit(X, targets["classes"])
    model.clip_ = (np.quantile(X, 0.1, axis=0), np.quantile(X, 0.9, axis=0))
    return model


@cache
def rows():
    """Return points of the models, rows near and far from them, a row of zeros and a huge one."""
    X, _ = data()
    rng = np.random.default_rng(8)
    near = X[:10] + 0.02 * rng.random((10, 4))
    around = np.abs(X[:10] + rng.normal(size=(10, 4)))
    far = np.array([[0.0] * 4, [50.0] * 4, [0.0, 0.0, 1e4, 0.0]])
    knots = np.outer([0.5, 0.75, 2.5, 3.0, 3.5], np.ones(4))  # of `MIXTURE`
    # numbers that float32 has: both types of graphs see the same rows
    return np.vstack([X, near, around, far, knots]).astype(np.float32).astype(np.float64)
