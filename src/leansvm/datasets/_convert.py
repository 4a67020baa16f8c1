"""From the files of the original sources to :class:`LabelledData`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from leansvm.datasets._set import LabelledData

Converter = Callable[[str, list[bytes]], LabelledData]


def svmlight(
    n_features: int, *, n_train: int = 1, sparse: bool = False, label_shift: int = 0
) -> Converter:
    """Read LIBSVM text: the first `n_train` files train, the others test."""

    def convert(name: str, contents: list[bytes]) -> LabelledData:
        parts = [contents[:n_train], contents[n_train:]]
        X_train, y_train = _svmlight_part(parts[0], n_features, sparse, label_shift)
        if not parts[1]:
            return LabelledData(name, X_train, y_train)
        X_test, y_test = _svmlight_part(parts[1], n_features, sparse, label_shift)
        return LabelledData(name, X_train, y_train, X_test, y_test)

    return convert


def _svmlight_part(
    contents: Sequence[bytes], n_features: int, sparse: bool, label_shift: int
) -> tuple[Any, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    parts = [load_svmlight_file(io.BytesIO(text), n_features=n_features) for text in contents]
    X = csr_array(vstack([X for X, _ in parts]))
    dense, text = X.shape[0] * n_features, sum(map(len, contents))
    if not sparse and dense > 2**20 + 8 * text:  # lines of a label alone, with thousands of zeros
        raise ValueError(f"{X.shape[0]:,} rows of {n_features:,} features in {text:,} bytes")
    y = np.concatenate([y for _, y in parts]) + label_shift
    return X if sparse else compact(X.toarray()), y.astype(np.int8)


def idx(name: str, contents: list[bytes]) -> LabelledData:
    """Read MNIST's four files: images and labels to train, images and labels to test."""
    arrays = []
    for content in contents:
        n_dimensions = content[3]
        shape = np.frombuffer(content, ">u4", n_dimensions, offset=4)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * n_dimensions)
        arrays.append(values.reshape(int(shape[0]), -1))
    X_train, y_train, X_test, y_test = arrays
    return LabelledData(name, X_train, y_train[:, 0], X_test, y_test[:, 0])


def text_table(
    *, skip_rows: int = 0, names: Sequence[str] | None = None, classes: Sequence[str] | None = None
) -> Converter:
    """Read two tables of numbers, to train and to test, with the label in the last column."""

    def convert(name: str, contents: list[bytes]) -> LabelledData:
        train, test = (np.loadtxt(io.BytesIO(text), skiprows=skip_rows) for text in contents)
        return LabelledData(
            name,
            compact(train[:, :-1]),
            train[:, -1].astype(np.uint8),
            compact(test[:, :-1]),
            test[:, -1].astype(np.uint8),
            feature_names=None if names is None else tuple(names),
            class_names=None if classes is None else tuple(classes),
        )

    return convert


def raetsch(name: str, contents: list[bytes]) -> LabelledData:
    """Read one of Raetsch's sets, with its splits, from the file that has them all."""
    from scipy.io import loadmat

    record = loadmat(io.BytesIO(contents[0]))[name.removeprefix("ida-")][0, 0]
    X, y = record["x"], record["t"].ravel().astype(np.int8)
    train, test = (record[key].astype(np.intp) - 1 for key in ("train", "test"))
    kind = np.uint8 if len(X) < 256 else np.uint16
    return LabelledData(name, X, y, splits=(train.astype(kind), test.astype(kind)))


def attributes(
    name: str,
    X: np.ndarray,
    feature_names: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    y: np.ndarray,
    class_names: Sequence[str],
) -> LabelledData:
    """Turn Weka's attributes into numbers.

    Nominal attributes, given as codes, become indicators of the values that occur, one alone
    if there are two; missing values become the mean or the most frequent value; attributes
    with less than two values are left out.
    """
    columns: list[np.ndarray] = []
    names: list[str] = []
    for j, attribute in enumerate(feature_names):
        values = X[:, j].astype(np.float64)
        known = values[~np.isnan(values)]
        occurring, counts = np.unique(known, return_counts=True)
        if len(occurring) < 2:
            continue
        if attribute not in categories:
            columns.append(np.where(np.isnan(values), known.mean(), values))
            names.append(attribute)
            continue
        values = np.where(np.isnan(values), occurring[np.argmax(counts)], values)
        shown = occurring[1:] if len(occurring) == 2 else occurring
        columns += [(values == code).astype(np.float64) for code in shown]
        names += [f"{attribute}={categories[attribute][int(code)]}" for code in shown]
    present = [value for value in class_names if np.any(y == value)]
    labels = np.array([present.index(value) for value in y], dtype=np.uint8)
    return LabelledData(
        name,
        compact(np.column_stack(columns)),
        labels,
        feature_names=tuple(names),
        class_names=tuple(present),
    )


def compact(X: np.ndarray) -> np.ndarray:
    """Return small integers if they hold all values exactly."""
    for kind in (np.uint8, np.int16):
        limits = np.iinfo(kind)
        if X.min() >= limits.min and X.max() <= limits.max and np.all(np.round(X) == X):
            return X.astype(kind)
    return X
