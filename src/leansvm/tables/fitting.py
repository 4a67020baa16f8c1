"""Tables as the rows of a fit: they are checked first, then encoded with the help of targets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_X_y
from sklearn.utils.validation import validate_data

from leansvm.tables._fit import FittedTable, targets_of
from leansvm.tables._frames import is_frame, join_tables, open_table
from leansvm.tables._values import is_missing
from leansvm.tables.encoder import TableEncoder

Array = NDArray[np.float64]
SAMPLE_ROWS = 100_000  # of a file or a Dask collection that an encoder learns from


@dataclass(frozen=True)
class TableRows:
    """Rows of a table before they are numbers."""

    X: Any
    shape: tuple[int, int]


def validate_table(estimator: Any, X: Any, y: Any, **kwargs: Any) -> Any:
    """Check targets beside a table; set the number and the names of its columns."""
    _refuse_numbers_alone(estimator, X)
    X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    validate_data(estimator, X, reset=True, skip_check_array=True)
    rows = TableRows(X, X.shape)
    if isinstance(y, str):
        return rows
    return rows, check_X_y(np.zeros((X.shape[0], 1)), y, estimator=estimator, **kwargs)[1]


def transformed(estimator: Any, X: Any, y: Any, **kwargs: Any) -> Any:
    """Return later rows as the features of the fit, with checked targets unless y is a text."""
    rows = _in_type_of(X, features_by_name(estimator.table_, X))
    return rows if isinstance(y, str) else check_X_y(rows, y, estimator=estimator, **kwargs)


def has_means(estimator: Any) -> bool:
    """Whether some features are mean targets, which training rows see without their own."""
    return "table_" in vars(estimator) and estimator.table_.has_means


def count_missing(y: Any) -> tuple[int, int]:
    """Return the number of rows with a missing target (None, NaN, pandas.NA), and of all rows."""
    given = np.asarray(y, dtype=object)
    gone = np.array([is_missing(v) and not isinstance(v, str) for v in given.ravel()], bool)
    count = int(gone.reshape(len(given), -1).any(axis=1).sum()) if given.size else 0
    return count, len(given) if given.ndim else 0


def where_no_numbers(X: Any) -> str:
    """Return the names of a frame's columns that are no numbers or have missing values."""
    if not is_frame(X):
        return ""
    table, found = open_table(X), []
    for i, name in enumerate(table.names):
        values = table.column(i, None)
        if values.kind not in ("number", "truth") or np.isnan(values.data).any():
            found.append(repr(name))
    return f" (in {', '.join(found[:5])}{', …' if len(found) > 5 else ''})"


def features_by_name(table: TableEncoder, X: Any, y: Any = None) -> Array:
    """Return later rows as features; columns of a frame may have another order than in training.

    An encoder of numbers alone refuses such frames, as all of scikit-learn does. y is not used.
    """
    known = list(getattr(table, "feature_names_in_", ()))
    if known and is_frame(X):
        names = list(getattr(X, "column_names", X.columns))
        if names != known and {*names} == {*known} and len(names) == len(known):
            import narwhals as nw

            X = nw.from_native(X, eager_only=True).select(*known).to_native()
    return table.transform(X)


def encoded(estimator: Any, rows: TableRows, Y: Any, weight: Any) -> Array:
    """Return the rows of a table as numbers, and set ``table_``."""
    estimator.table_ = TableEncoder(standardize=estimator._has_one_scale)
    return _in_type_of(rows.X, estimator.table_.fit_transform(rows.X, Y, weight))


def _in_type_of(X: Any, rows: Array) -> Any:
    return rows.astype(np.float32) if getattr(X, "dtype", None) == np.float32 else rows


def _refuse_numbers_alone(estimator: Any, X: Any) -> None:
    """Refuse a table if sparse rows or the kernel allow only numbers."""
    if sparse.issparse(X) or estimator.kernel == "precomputed" or callable(estimator.kernel):
        what = "A sparse matrix" if sparse.issparse(X) else f"kernel={estimator.kernel!r}"
        raise ValueError(
            f"Input X contains NaN, text or dates. {what} takes only numbers: use "
            f"leansvm.tables.TableEncoder before it, or fill missing values."
        )


# ---------------------------------------------------------------------------- files and clusters


def encoded_source(estimator: Any, source: Any, targets: Any = None, *, reset: bool) -> Any:
    """Return the rows of a `RowSource` as numbers, block by block; a fit sets ``table_``.

    The encoder learns from a sample of the rows, or from all if they are few. ``targets`` says
    how the targets of a batch become numbers, in a fit.
    """
    if reset:
        vars(estimator).pop("table_", None)
    learns = reset and (source.is_table or source.has_gaps())
    if not learns and "table_" not in vars(estimator):
        if source.is_table:
            raise ValueError(
                f"X has text, dates or categories, but {type(estimator).__name__} was fitted on "
                f"numbers: pass only the columns of training, or fit again."
            )
        return source
    _refuse_numbers_alone(estimator, source)
    source = source.as_table()
    if learns:
        estimator.table_ = TableEncoder(standardize=estimator._has_one_scale)
        fitted = _learned(estimator.table_, source, targets)
        encode, from_targets = partial(_training_block, fitted, targets), bool(fitted.means)
    else:
        encode, from_targets = partial(features_by_name, estimator.table_), False
    return source.encoded(encode, estimator.table_._n_features_out, from_targets)


def _learned(encoder: TableEncoder, source: Any, targets: Any) -> FittedTable:
    """Fit an encoder on a sample of the rows."""
    rows = np.arange(source.n_rows)
    if len(rows) > SAMPLE_ROWS:
        # the same rows whenever a file is read again: the encoder must come out the same
        rows = np.sort(np.random.default_rng(0).choice(rows, SAMPLE_ROWS, replace=False))
    pieces = source.pieces(rows)
    Y = np.concatenate([targets(piece.y, None)[0] for piece in pieces])
    weight = None
    if source.has_weight:
        weight = np.concatenate([piece.sample_weight for piece in pieces])
    return encoder.fit_sample(join_tables([open_table(piece.X) for piece in pieces]), Y, weight)


def _training_block(fitted: FittedTable, targets: Any, X: Any, y: Any) -> Array:
    """Return the features of training rows: means of the target are those of other folds."""
    Y = targets_of(targets(y, None)[0], len(y)) if fitted.means else None
    return fitted.encode(open_table(X), Y)


def check_features(estimator: Any, n_features: int, names: list[str] | None) -> None:
    """Compare number and names of the features with those of the fit."""
    if "table_" in vars(estimator):
        return  # the encoder finds its columns by their names
    if n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    known = getattr(estimator, "feature_names_in_", None)
    if names is not None and known is not None and list(known) != list(names):
        raise ValueError(
            f"The feature names should match those that were passed during fit: {list(known)}, "
            f"got {list(names)}."
        )
