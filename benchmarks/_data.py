"""Data of the benchmarks: real sets from the folder LEANSVM_DATA names, and generated ones."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, csr_matrix, vstack

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
    with np.load(_file(f"uci-{name}"), allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), np.where(file["y"] == 1, 1, -1)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def standardised_covtype(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows of COVTYPE, standardised, class 2 against the rest."""
    X, y, _, _ = covtype(n_rows)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1), y


def covtype(n_train: int = 464_810, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return COVTYPE as zhou2016's Table III uses it: class 2 against the rest, in [0, 1]."""
    with np.load(_file("covtype"), allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), np.where(file["y"] == 2, 1, -1)
    low = X.min(axis=0)
    X -= low
    X /= np.maximum(X.max(axis=0), 1.0)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:n_train], order[464_810:]
    return X[train], y[train], X[test], y[test]


def ripley() -> tuple[np.ndarray, ...]:
    """Return Ripley's synthetic data, 250 training and 1000 test rows: X, y, X_test, y_test."""
    with np.load(_file("synth"), allow_pickle=False) as file:
        parts = [file[key].astype(np.float64) for key in ("X_train", "X_test")]
        labels = [np.where(file[key] > 0, 1, -1) for key in ("y_train", "y_test")]
    return parts[0], labels[0], parts[1], labels[1]


def benchmark_splits(name: str, n_splits: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the first splits of one of Raetsch's benchmark sets: X, y, X_test, y_test."""
    with np.load(_file(f"ida-{name}"), allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), np.where(file["y"] > 0, 1, -1)
        train, test = file["train_index"], file["test_index"]
    for k in range(n_splits):
        yield X[train[k]], y[train[k]], X[test[k]], y[test[k]]


def _file(name: str) -> Path:
    path = _folder() / name / f"{name}.npz"
    if not path.is_file():
        raise SkipBenchmark(f"the folder {VARIABLE} names has no {name}/{name}.npz")
    return path


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


def peng2016(name: str) -> tuple[object, np.ndarray, int]:
    """Return a set of peng2016's Table 2: all rows (CSR where stored so), labels ±1, n_train."""
    path = _folder() / name / f"{name}.npz"
    if not path.is_file():
        raise SkipBenchmark(f"the folder {VARIABLE} names has no {name}/{name}.npz")
    with np.load(path, allow_pickle=False) as file:
        if "X" in file:
            X, y, n_train = file["X"].astype(np.float64), file["y"], 30
        elif "X_train" in file:
            X = np.vstack([file["X_train"], file["X_test"]]).astype(np.float64)
        else:
            X = csr_matrix(vstack([_csr(file, "train"), _csr(file, "test")]), dtype=np.float64)
        if "y_train" in file:
            y, n_train = np.concatenate([file["y_train"], file["y_test"]]), len(file["y_train"])
    return X, np.where(y > 0, 1, -1), n_train


def _csr(file: np.lib.npyio.NpzFile, part: str) -> csr_array:
    keys = (f"X_{part}_{key}" for key in ("data", "indices", "indptr", "shape"))
    data, indices, indptr, shape = (file[key] for key in keys)
    return csr_array((data, indices, indptr), shape=tuple(shape))
