"""Data of the benchmarks: real sets from the folder LEANSVM_DATA names, and generated ones."""

import os
from pathlib import Path

import numpy as np

from ._harness import SkipBenchmark

VARIABLE = "LEANSVM_DATA"


def ijcnn1(n_train: int, n_test: int = 0) -> tuple[np.ndarray, ...]:
    """Return the first rows of IJCNN1 (22 features, labels ±1).

    Parameters
    ----------
    n_train, n_test : int
        Rows of the training part (49,990) and of the test part (91,701).

    Returns
    -------
    tuple of ndarray
        X, y, X_test, y_test; features float64, labels int8.
    """
    path = _folder() / "ijcnn1" / "ijcnn1.npz"
    if not path.is_file():
        raise SkipBenchmark(f"the folder {VARIABLE} names has no ijcnn1/ijcnn1.npz")
    with np.load(path, allow_pickle=False) as file:
        parts = (("X_train", n_train), ("y_train", n_train), ("X_test", n_test), ("y_test", n_test))
        return tuple(np.ascontiguousarray(file[key][:rows]) for key, rows in parts)


def isotropic(n_rows: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return standard normal rows with labels ±1 from a smooth random function.

    The spectrum of their Gaussian kernel matrix decays slowly: no low-rank factor comes close.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features))
    # f(x) = sum_k a_k cos(w_k'x + c_k), a draw from a Gaussian process of unit length scale
    waves = rng.standard_normal((n_features, 20)) / np.sqrt(n_features)
    phases = rng.uniform(0.0, 2.0 * np.pi, 20)
    values = np.cos(X @ waves + phases) @ rng.standard_normal(20)
    return X, np.where(values > np.median(values), 1, -1)


def _folder() -> Path:
    name = os.environ.get(VARIABLE)
    if not name:
        raise SkipBenchmark(f"set {VARIABLE} to the folder that holds ijcnn1/ijcnn1.npz")
    return Path(name)
