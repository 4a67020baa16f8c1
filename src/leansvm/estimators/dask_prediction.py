"""Predictions for Dask collections: lazy, one task per partition."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from leansvm.estimators.read import check_features
from leansvm.rows import partitions_of


def predict_later(model: Any, name: str, X: Any) -> Any:
    """Return ``model.name(X)`` as a Dask array with the chunks of X."""
    import dask
    import dask.array as da

    check_is_fitted(model)
    rows = partitions_of(X)
    check_features(model, rows.n_features, rows.feature_names)
    columns = rows.feature_names
    if rows.is_table and "table_" not in vars(model):
        raise ValueError(
            f"X has text, dates or categories, and {type(model).__name__} was fitted on numbers."
        )
    blank = np.zeros((1, rows.n_features), rows.dtype)
    like = _call(model, name, _frame(_row(model, blank), columns))
    sizes = [np.nan] * len(rows) if rows.sizes is None else rows.sizes
    prefix, shared = f"leansvm-{name}-{uuid.uuid4().hex}", dask.delayed(model, pure=False)
    call = dask.delayed(_call, pure=False)
    parts = [
        da.from_delayed(
            call(shared, name, part, dask_key_name=f"{prefix}-{i}"),
            shape=(size, *like.shape[1:]),
            meta=like[:0],
        )
        for i, (part, size) in enumerate(zip(rows.X, sizes, strict=True))
    ]
    return da.concatenate(parts)


def _call(model: Any, name: str, X: Any) -> Any:
    if len(X) == 0:  # an empty partition, which scikit-learn would refuse
        blank = np.zeros((1, X.shape[1]), getattr(X, "dtype", np.float64))
        return _call(model, name, _frame(_row(model, blank), getattr(X, "columns", None)))[:0]
    return getattr(model, name)(X)


def _row(model: Any, zeros: Any) -> Any:
    """Return a row that the model takes: zeros, or one of a table that misses everything."""
    return np.full(zeros.shape, None) if "table_" in vars(model) else zeros


def _frame(X: Any, columns: Any) -> Any:
    if columns is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(columns))
