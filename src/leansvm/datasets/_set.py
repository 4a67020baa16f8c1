"""What a loaded data set is, and the two transformations the papers apply to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse


@dataclass(frozen=True)
class LabelledData:
    """A data set, with its own split if it has one.

    Parameters
    ----------
    name : str
        Its name in the catalogue.
    X_train, y_train : {ndarray, CSR array}, ndarray
        Rows and labels for training; all rows if there is no split.
    X_test, y_test : {ndarray, CSR array} or None, ndarray or None
        Rows and labels for testing.
    splits : tuple of two integer arrays or None
        For sets with many published splits: row indices into `X_train` for training and for
        testing, one split per row of each array.
    feature_names, class_names : tuple of str or None
        Names of the columns; names of the classes in the order of the sorted labels.
    notes : str
        How the values are scaled and where they come from.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.datasets import LabelledData
    >>> data = LabelledData("tiny", np.array([[0.0], [2.0], [4.0]]), np.array([1, 2, 3]))
    >>> data.scaled(-1, 1).against_rest(3).y_train
    array([-1, -1,  1])
    """

    name: str
    X_train: Any
    y_train: np.ndarray
    X_test: Any = None
    y_test: np.ndarray | None = None
    splits: tuple[np.ndarray, np.ndarray] | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    notes: str = ""

    def __repr__(self) -> str:
        rows = f"{self.X_train.shape[0]:,}"
        if self.X_test is not None:
            rows += f" + {self.X_test.shape[0]:,}"
        splits = "" if self.splits is None else f", {len(self.splits[0])} splits"
        return f"<LabelledData {self.name}: {rows} rows x {self.X_train.shape[1]} features{splits}>"

    def split(self, k: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
        """Return the `k`-th published split.

        Parameters
        ----------
        k : int
            From 0; sets without splits of their own have none.

        Returns
        -------
        tuple
            X_train, y_train, X_test, y_test.
        """
        if self.splits is None:
            raise ValueError(f"{self.name} has no numbered splits; use X_train and X_test")
        train, test = self.splits[0][k], self.splits[1][k]
        return self.X_train[train], self.y_train[train], self.X_train[test], self.y_train[test]

    def against_rest(self, label: int) -> LabelledData:
        """Return the two-class problem of one label against all others, labels ±1.

        Parameters
        ----------
        label : int
            The label that becomes +1.

        Returns
        -------
        LabelledData
            The same rows with labels -1 and +1.
        """
        if not np.any(self.y_train == label):
            known = ", ".join(str(value) for value in np.unique(self.y_train))
            raise ValueError(f"{self.name} has no label {label}; it has {known}")
        y_test = None if self.y_test is None else _signs(self.y_test, label)
        return replace(self, y_train=_signs(self.y_train, label), y_test=y_test, class_names=None)

    def scaled(self, low: float, high: float) -> LabelledData:
        """Return the set with every feature mapped to [low, high] by its training rows.

        Parameters
        ----------
        low, high : float
            Ends of the interval; a constant feature becomes `low`. Test rows may lie outside.

        Returns
        -------
        LabelledData
            The same set, scaled.
        """
        if issparse(self.X_train):
            raise ValueError(f"{self.name} is sparse: scaling to an interval would make it dense")
        smallest, largest = self.X_train.min(axis=0), self.X_train.max(axis=0)
        span = np.where(largest > smallest, largest - smallest, 1.0)

        def scale(X: np.ndarray) -> np.ndarray:
            scaled = (X - smallest) / span
            scaled *= high - low
            scaled += low
            return scaled

        X_test = None if self.X_test is None else scale(self.X_test)
        notes = f"{self.notes} Scaled to [{low:g}, {high:g}] by the training rows.".lstrip()
        return replace(self, X_train=scale(self.X_train), X_test=X_test, notes=notes)


def _signs(y: np.ndarray, label: int) -> np.ndarray:
    return np.where(y == label, 1, -1)
