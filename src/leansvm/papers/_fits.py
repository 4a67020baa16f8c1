"""What the experiments share: data as a paper uses them, a timed fit, errors in percent."""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning

from leansvm.datasets import LabelledData, load


class Split(NamedTuple):
    """Training and test rows with labels ±1."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


@lru_cache(maxsize=1)
def cached(name: str) -> LabelledData:
    """Load a data set and keep it: the next row of a table often uses the same one."""
    return load(name)


def published_split(data: LabelledData) -> Split:
    """Return the set's own split, dense, labels ±1."""
    if data.y_test is None:
        raise ValueError(f"{data.name} has no split of its own.")
    X, X_test = (x.toarray() if issparse(x) else x for x in (data.X_train, data.X_test))
    return Split(X, signs(data.y_train), X_test, signs(data.y_test))


#: The first model that `fit` got for a row, written as a call; the runner empties the list.
called: list[str] = []


def fit(model: Any, X: Any, y: np.ndarray) -> float:
    """Fit in place, without probabilities, and return the seconds.

    Warnings that the iterations of a paper are too few are off.
    """
    if "calibrate" in model.get_params(deep=False):
        model.set_params(calibrate=False)
    if not called:
        called.append(" ".join(repr(model).split()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        model.fit(X, y)
        return time.perf_counter() - start


def accuracy(model: Any, X: Any, y: np.ndarray) -> float:
    """Return the percentage of rows that are classified correctly."""
    return 100.0 * float(np.mean(model.predict(X) == y))


def signs(y: np.ndarray) -> np.ndarray:
    """Return two-class labels as ±1, the larger one +1."""
    return np.where(y == y.max(), 1, -1)


class Trials:
    """Collects figures by metric, one number per trial."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, **figures: float) -> None:
        """Add one trial."""
        for name, value in figures.items():
            self.values.setdefault(name, []).append(float(value))
