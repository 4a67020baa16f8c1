"""Random models and data: parameters over their whole range, data of the awkward kinds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

import leansvm
from leansvm.basis.choose import SELECTORS

_C = (1.0, 10.0, 1e-6, 1e-3, 1e3, 1e7, 1e12, 1e30, 1e-30, 1e-290, 1e300)
_KERNEL: dict[str, tuple[Any, ...]] = {
    "kernel": ("rbf", "linear", "poly", "sigmoid", "laplacian", "matern32", "matern12", "cosine"),
    "gamma": ("scale", "auto", 1.0, 1e-3, 1e3, 1e-12, 1e12, 1e-300, 1e300, 0.0),
    "degree": (3, 2, 1, 0, 0.5, 10, 80),
    "coef0": (0.0, 1.0, -1.0, 1e6),
}
_BIAS = {"fit_intercept": (True, True, False), "bias_penalty": (0.0, 0.0, 1.0, 1e-12, 1e12)}
_STOP = {"tol": (1e-8, 1e-3), "max_iter": (30, 3, 1), "cache_size": ("auto", 1.0, 1e-3)}
_BASES = (*SELECTORS, "all")
_BASIS = {"basis": _BASES, "n_basis": (3, 1, "auto", 0.5, 50), "select_on": ("auto", "all", 4)}
_SPARSE = {"C": (*_C, "gcv", "loo", "kfold", [0.1, 10.0, 1e6]), **_KERNEL, **_BIAS, **_BASIS}
_SPARSE |= {"cache_size": _STOP["cache_size"]}
_LSSVM = {"C": (*_C, "gcv", "loo", [0.1, 10.0, 1e6]), **_KERNEL, **_BIAS, **_STOP}
_LSSVM |= {"solver": ("auto", "cholesky", "cg", "smo", "sumt", "penalty-flow", "substitution")}
_REDUCED = {"C": _C, **_KERNEL, **_BIAS, **_BASIS, **_STOP, "regularizer": ("rkhs", "coef")}
_LOW_RANK = {"C": _C, **_BIAS, "n_basis": (2, 1, 5, "auto"), "max_iter": (4, 1)}
_LOW_RANK |= {"tol": (1e-5, 1e-2), "init": ("auto", "medoids", "random")}
_LOW_RANK |= {"function": ("robust-rbf", "rbf", "simplex"), "cache_size": _STOP["cache_size"]}
_LOW_RANK |= {"iterate": ("best", "last")}
_LABELS = {"class_weight": (None, None, "balanced"), "calibrate": (False, False, True)}

PARAMETERS: dict[str, dict[str, tuple[Any, ...]]] = {
    "LSSVC": {**_LSSVM, **_LABELS},
    "LSSVR": _LSSVM,
    "L2SVC": {
        "C": (*_C, [0.1, 10.0, 1e6]),
        **_KERNEL,
        **_BIAS,
        **_STOP,
        **_LABELS,
        "solver": ("auto", "active-set", "newton", "smo"),
        "max_support": ("auto", "auto", 2),
    },
    "SparseLSSVC": {**_SPARSE, **_LABELS},
    "SparseLSSVR": _SPARSE,
    "ReducedSVC": {
        **_REDUCED,
        **_LABELS,
        "loss": ("squared_hinge", "squared", "huber", "logistic"),
        "delta": (None, 1.0, 1e-6),
        "p": (None, 1.0, 1e8),
    },
    "ReducedSVR": {**_REDUCED, "loss": ("huber", "squared"), "delta": (None, 1.0, 1e-6)},
    "LowRankLSSVC": {
        **_LOW_RANK,
        **_LABELS,
        "objective": ("loss", "target", "abs", "squared"),
        "update": ("simultaneous", "sequential"),
    },
    "LowRankLSSVR": _LOW_RANK,
}
# Settings of every model that make it cheap; what is drawn replaces them.
_CHEAP: dict[str, dict[str, Any]] = {
    "LSSVC": {"max_iter": 30},
    "L2SVC": {"max_iter": 30},
    "SparseLSSVC": {"C": 1.0, "kernel": "rbf", "gamma": "scale"},
    "ReducedSVC": {"kernel": "rbf", "gamma": "scale", "n_basis": 3, "max_iter": 10},
    "LowRankLSSVC": {"n_basis": 2, "max_iter": 3},
}
_CHEAP |= {name.replace("SVC", "SVR"): params for name, params in _CHEAP.items()}


@dataclass
class Case:
    """One model and its data, printed by hypothesis when it fails."""

    estimator: str
    params: dict[str, Any]
    data: dict[str, Any]
    save: bool

    def model(self) -> Any:
        """Return the model, not fitted."""
        return getattr(leansvm, self.estimator)(**self.params)


@st.composite
def cases(draw: Any, estimator: str) -> Case:
    """Draw a few parameters that are not the defaults, and what the data are made of."""
    choices = PARAMETERS[estimator]
    names = draw(st.lists(st.sampled_from(sorted(choices)), max_size=5, unique=True))
    params = dict(_CHEAP[estimator])
    params |= {name: draw(st.sampled_from(choices[name])) for name in names}
    if "random_state" in getattr(leansvm, estimator)().get_params():
        params["random_state"] = 0
    data = {
        "seed": draw(st.integers(0, 99)),
        "rows": draw(st.sampled_from((12, 8, 5, 3, 2, 1, 20))),
        "columns": draw(st.sampled_from((2, 1, 4))),
        "X": draw(st.sampled_from(list(_ROWS))),
        "unit": draw(st.sampled_from((1.0, 1.0, 1e-3, 1e6, 1e-30, 1e30, 1e-200, 1e200))),
        "dtype": draw(st.sampled_from(("f8", "f8", "f4"))),
        "csr": draw(st.sampled_from((False, False, True))),
        "y": draw(st.sampled_from(list(_TARGETS if estimator.endswith("R") else _LABELLED))),
        "weight": draw(st.sampled_from(list(_WEIGHTS))),
    }
    return Case(estimator, params, data, draw(st.integers(0, 99)) == 99)


# ---------------------------------------------------------------------------- data

_ROWS = {
    "normal": lambda rng, m, d: rng.normal(size=(m, d)),
    "duplicated rows": lambda rng, m, d: rng.normal(size=(m, d))[rng.integers(0, -(-m // 3), m)],
    "constant column": lambda rng, m, d: np.c_[np.ones((m, 1)), rng.normal(size=(m, d))],
    "all rows equal": lambda rng, m, d: np.ones((m, d)),
    "zeros": lambda rng, m, d: np.zeros((m, d)),
    "integers": lambda rng, m, d: rng.integers(-2, 3, size=(m, d)).astype(float),
    "far from zero": lambda rng, m, d: 1e8 + rng.normal(size=(m, d)),
    "an outlier": lambda rng, m, d: np.r_[rng.normal(size=(m - 1, d)), np.full((1, d), 1e6)],
    "heavy tails": lambda rng, m, d: rng.standard_cauchy(size=(m, d)) ** 3,
}
_LABELLED = {
    "two": lambda rng, m: np.arange(m) % 2,
    "three": lambda rng, m: np.arange(m) % 3,
    "strings": lambda rng, m: np.array(["no", "yes, it is"])[rng.integers(0, 2, m)],
    "objects": lambda rng, m: np.array(["a", "b", "c"], dtype=object)[np.arange(m) % 3],
    "booleans": lambda rng, m: np.arange(m) % 2 == 0,
    "one row of a class": lambda rng, m: (np.arange(m) == 0).astype(int),
    "every row a class": lambda rng, m: np.arange(m),
    "one class": lambda rng, m: np.ones(m, int),
}
_TARGETS = {
    "normal": lambda rng, m: rng.normal(size=m),
    "two outputs": lambda rng, m: rng.normal(size=(m, 2)),
    "constant": lambda rng, m: np.full(m, 7.0),
    "zeros": lambda rng, m: np.zeros(m),
    "small": lambda rng, m: 1e-30 * rng.normal(size=m),
    "large": lambda rng, m: 1e30 * rng.normal(size=m),
    "far from zero": lambda rng, m: 1e8 + rng.normal(size=m),
    "float32": lambda rng, m: rng.normal(size=m).astype(np.float32),
}
_WEIGHTS = {
    "none": lambda rng, m: None,
    "ones": lambda rng, m: np.ones(m),
    "counts": lambda rng, m: rng.integers(0, 4, m).astype(float),
    "more counts": lambda rng, m: rng.integers(0, 4, m).astype(float),
    "fractions": lambda rng, m: rng.uniform(size=m),
    "tiny": lambda rng, m: 1e-12 * rng.uniform(size=m),
    "huge": lambda rng, m: 1e12 * rng.uniform(size=m),
    "all zero": lambda rng, m: np.zeros(m),
    "over many decades": lambda rng, m: 10.0 ** rng.integers(-12, 13, m),
}


def rows_targets_weights(data: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return X, y, weights and rows to predict, from what was drawn."""
    rng, m = np.random.default_rng(data["seed"]), data["rows"]
    X = _ROWS[data["X"]](rng, m, data["columns"])
    new = np.vstack([X, rng.normal(size=(2, X.shape[1]))]) * data["unit"]
    with np.errstate(over="ignore"):  # float32 has no 1e200: infinite rows are refused
        new = new.astype(data["dtype"])
    if data["csr"]:
        new = sparse.csr_array(new)
    y = {**_LABELLED, **_TARGETS}[data["y"]](rng, m)
    return new[:m], y, _WEIGHTS[data["weight"]](rng, m), new
