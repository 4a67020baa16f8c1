"""Data of the benchmarks: real sets from the folder LEANSVM_DATA names, and generated ones."""

import os
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

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


def random_ijcnn1(n_train: int, n_test: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return random rows of IJCNN1: its first thousands are not like the rest."""
    X, y, X_test, y_test = ijcnn1(49_990, 91_701)
    rng = np.random.default_rng(seed)
    train, test = rng.permutation(len(y))[:n_train], rng.permutation(len(y_test))[:n_test]
    return X[train], y[train], X_test[test], y_test[test]


def zhou2016(name: str) -> tuple[np.ndarray, ...]:
    """Return a set of zhou2016's Table I as the paper uses it: X, y, X_test, y_test, labels ±1."""
    if name == "IJCNN":
        return ijcnn1(49_990, 91_701)
    folder = {"USPS8": "usps", "SHUTTLE": "shuttle", "MNIST8": "mnist", "ADULT": "a9a"}[name]
    path = _folder() / folder / f"{folder}.npz"
    if not path.is_file():
        raise SkipBenchmark(f"the folder {VARIABLE} names has no {folder}/{folder}.npz")
    with np.load(path, allow_pickle=False) as file:
        if name == "ADULT":
            X, X_test = (_dense(file, part) for part in ("train", "test"))
        else:
            X, X_test = (file[f"X_{part}"].astype(np.float64) for part in ("train", "test"))
        y, y_test = file["y_train"], file["y_test"]
    if name == "SHUTTLE":  # to [-1, 1] by the training part
        low, high = X.min(axis=0), X.max(axis=0)
        X, X_test = (2 * (part - low) / (high - low) - 1 for part in (X, X_test))
    elif name == "MNIST8":
        X, X_test = X / 255, X_test / 255
    # USPS8 is LIBSVM's label 8, the digit 7
    positive = {"USPS8": 8, "SHUTTLE": 1, "MNIST8": 8, "ADULT": 1}[name]
    if name == "USPS8" and y.min() == 0:
        positive = 7
    return X, np.where(y == positive, 1, -1), X_test, np.where(y_test == positive, 1, -1)


def uci(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a set of joshi's Table 1: raw numbers, one-hot nominals, labels ±1, rows shuffled."""
    path = _folder() / f"uci-{name}" / f"uci-{name}.npz"
    if not path.is_file():
        raise SkipBenchmark(f"the folder {VARIABLE} names has no uci-{name}/uci-{name}.npz")
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), np.where(file["y"] == 1, 1, -1)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def covtype(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows of covtype, standardised, class 2 against the rest."""
    path = _folder() / "covtype" / "covtype.npz"
    if not path.is_file():
        raise SkipBenchmark(f"the folder {VARIABLE} names has no covtype/covtype.npz")
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X"], file["y"]
    rows = np.random.default_rng(0).permutation(len(y))[:n_rows]
    X = X[rows].astype(np.float64)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1), np.where(y[rows] == 2, 1, -1)


def _dense(file: np.lib.npyio.NpzFile, part: str) -> np.ndarray:
    keys = (f"X_{part}_{key}" for key in ("data", "indices", "indptr", "shape"))
    data, indices, indptr, shape = (file[key] for key in keys)
    return csr_array((data, indices, indptr), shape=tuple(shape)).toarray().astype(np.float64)


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
