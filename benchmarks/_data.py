"""Data of the benchmarks: the papers' sets as the papers use them, and generated ones."""

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from leansvm.datasets import DatasetNotFoundError, LabelledData, load

from ._harness import SkipBenchmark


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
    X, y, X_test, y_test = _parts(_load("ijcnn1"))
    parts = (X[:n_train], y[:n_train], X_test[:n_test], y_test[:n_test])
    return tuple(part.copy() for part in parts)  # lets the rest of the file go


def random_ijcnn1(n_train: int, n_test: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return random rows of IJCNN1: its first thousands are not like the rest."""
    X, y, X_test, y_test = ijcnn1(49_990, 91_701)
    rng = np.random.default_rng(seed)
    train, test = rng.permutation(len(y))[:n_train], rng.permutation(len(y_test))[:n_test]
    return X[train], y[train], X_test[test], y_test[test]


def zhou2016(name: str) -> tuple[np.ndarray, ...]:
    """Return a set of zhou2016's Table I as the paper uses it: X, y, X_test, y_test, labels ±1."""
    if name == "IJCNN":
        return _parts(_load("ijcnn1"))
    if name == "ADULT":
        X, y, X_test, y_test = _parts(_load("a9a").against_rest(1))
        return X.toarray(), y, X_test.toarray(), y_test
    if name == "SHUTTLE":  # to [-1, 1] by the training part
        return _parts(_load("shuttle").scaled(-1, 1).against_rest(1))
    if name == "MNIST8":
        X, y, X_test, y_test = _parts(_load("mnist").against_rest(8))
        return X / 255, y, X_test / 255, y_test
    return _parts(_load({"USPS8": "usps"}[name]).against_rest(7))  # LIBSVM's label 8, the digit 7


def uci(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a set of joshi's Table 1: raw numbers, one-hot nominals, labels ±1, rows shuffled."""
    data = _load(f"uci-{name}").against_rest(1)
    order = np.random.default_rng(0).permutation(len(data.y_train))
    return data.X_train[order], data.y_train[order]


def standardised_covtype(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows of COVTYPE, standardised, class 2 against the rest."""
    X, y, _, _ = covtype(n_rows)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1), y


def covtype(n_train: int = 464_810, seed: int = 0, classes: int = 2) -> tuple[np.ndarray, ...]:
    """Return COVTYPE as zhou2016's Table III uses it: class 2 against the rest, in [0, 1].

    With ``classes=7`` labels stay as they are.
    """
    data = _load("covtype").scaled(0, 1)
    data = data.against_rest(2) if classes == 2 else data
    order = np.random.default_rng(seed).permutation(len(data.y_train))
    train, test = order[:n_train], order[464_810:]
    return data.X_train[train], data.y_train[train], data.X_train[test], data.y_train[test]


def peng2016(name: str) -> tuple[object, np.ndarray, int]:
    """Return a set of peng2016's Table 2: all rows (CSR where stored so), labels ±1, n_train."""
    data = _load(name).against_rest(1)
    if data.X_test is None:
        return data.X_train, data.y_train, 30
    X, y, X_test, y_test = _parts(data)
    stacked = csr_matrix(vstack([X, X_test])) if issparse(X) else np.vstack([X, X_test])
    return stacked, np.concatenate([y, y_test]), len(y)


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


def _load(name: str) -> LabelledData:
    try:
        return load(name)
    except DatasetNotFoundError as error:
        raise SkipBenchmark(str(error)) from error


def _parts(data: LabelledData) -> tuple[np.ndarray, ...]:
    return data.X_train, data.y_train, data.X_test, data.y_test
