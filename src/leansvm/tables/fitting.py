"""Tables as the rows of a fit: they are checked first, and become numbers beside their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_X_y
from sklearn.utils.validation import validate_data

from leansvm.tables.encoder import TableEncoder

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TableRows:
    """Rows of a table before they are numbers."""

    X: Any
    shape: tuple[int, int]


def validate_table(estimator: Any, X: Any, y: Any, **kwargs: Any) -> Any:
    """Check targets beside a table; set the number and the names of its columns."""
    if sparse.issparse(X) or estimator.kernel == "precomputed" or callable(estimator.kernel):
        what = "A sparse matrix" if sparse.issparse(X) else f"kernel={estimator.kernel!r}"
        raise ValueError(
            f"Input X contains NaN, text or dates. {what} takes numbers alone: use "
            f"leansvm.tables.TableEncoder before it, or fill what is missing."
        )
    X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    validate_data(estimator, X, reset=True, skip_check_array=True)
    rows = TableRows(X, X.shape)
    if isinstance(y, str):
        return rows
    return rows, check_X_y(np.zeros((X.shape[0], 1)), y, estimator=estimator, **kwargs)[1]


def transformed(estimator: Any, X: Any, y: Any, **kwargs: Any) -> Any:
    """Return later rows as the features of the fit, with checked targets unless y is a text."""
    rows = _in_type_of(X, estimator.table_.transform(X))
    return rows if isinstance(y, str) else check_X_y(rows, y, estimator=estimator, **kwargs)


def encoded(estimator: Any, X: Any, Y: Any, weight: Any, *, reset: bool = True) -> Any:
    """Return validated rows as numbers; sets ``table_`` where they are a table."""
    if reset:
        vars(estimator).pop("table_", None)
    if not isinstance(X, TableRows):
        return X
    estimator.table_ = TableEncoder(standardize=estimator._has_one_scale)
    return _in_type_of(X.X, estimator.table_.fit_transform(X.X, Y, weight))


def _in_type_of(X: Any, rows: Array) -> Any:
    return rows.astype(np.float32) if getattr(X, "dtype", None) == np.float32 else rows
