"""TableEncoder: tables with text, categories, dates and missing values as rows of numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin, _fit_context
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from leansvm._sklearn import Documented, with_advice
from leansvm.tables._columns import CategoryColumn, check_column
from leansvm.tables._fit import FittedTable, fit_table, targets_of, training_rows
from leansvm.tables._frames import NamedColumns, is_frame, open_table
from leansvm.tables._rows import RowEncoder
from leansvm.tables._values import levels, meant

Array = NDArray[np.float64]
_NAMES = {
    "number": ("number", "numbers"),
    "category": ("category", "categories"),
    "date": ("date", "dates"),
    "time": ("time of day", "times of day"),
}


class TableEncoder(TransformerMixin, Documented):
    """Turn a table with text, dates and missing values into rows of numbers.

    Every estimator of leansvm does this itself and keeps its encoder as ``table_``. Numbers stay
    numbers; a missing value becomes the median, and an indicator marks it. Categories become
    one-hot features, such that two levels have distance 0 or 1. Dates become a number of days and
    points on the circles of day, week and year. Useless columns (constant, empty, ids) are left
    out.

    Parameters
    ----------
    standardize : bool, default=True
        Whether to standardise numbers, mean targets and days.

    Attributes
    ----------
    columns_ : ndarray of shape (n_features_out,)
        The column from which each feature was made.
    groups_ : ndarray of shape (n_features_out,)
        The number of the group of each feature. The features of a group, such as the levels of a
        category, belong together and should have one scale.
    numeric_ : ndarray of shape (n_features_out,)
        Whether a feature is a quantity, which may be standardised or clipped. False for levels,
        indicators of missing values, and cycles.
    kinds_ : dict
        Kind of every column that is used: "number", "category", "date" or "time".
    left_out_ : dict
        Why a column is not used.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators: of the table.

    Notes
    -----
    A level gets its own feature if it is among the 30 most frequent levels and has at least 10 rows
    (in a table of fewer than 1,000 rows, 1 % of the rows, but at least two). All other levels share
    one feature. A column with more than 30 levels also gets the mean target of each level. For
    training rows this mean comes from other folds, so that no row sees its own target; therefore
    ``fit_transform(X, y)`` differs from ``fit(X, y).transform(X)`` in this feature. A weight counts
    like copies of a row.

    Examples
    --------
    >>> import pandas as pd
    >>> from leansvm.tables import TableEncoder
    >>> table = pd.DataFrame(
    ...     {"age": [30, None, 50, 41], "city": ["Rome", "Oslo", "Rome", "Oslo"], "plan": "basic"}
    ... )
    >>> encoder = TableEncoder(standardize=False).fit(table)
    >>> print(encoder.describe())
    1 number (1 with missing values), 1 category; left out: plan (the same in all rows)
    >>> encoder.get_feature_names_out()
    array(['age', 'age:missing', 'city=Rome'], dtype=object)
    >>> encoder.transform(table)
    array([[30.,  0.,  1.],
           [41.,  1.,  0.],
           [50.,  0.,  1.],
           [41.,  0.,  0.]])
    """

    _documented_in = "leansvm.tables"
    _parameter_constraints: ClassVar[dict[str, Any]] = {"standardize": ["boolean"]}

    def __init__(self, standardize: bool = True) -> None:
        self.standardize = standardize

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TableEncoder:
        """Learn what the columns are.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_columns)
            Table with named columns, or an array.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Labels or numbers; without them, a column with many levels gets no mean target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of k counts like k copies of the row.

        Returns
        -------
        TableEncoder
            The fitted encoder.
        """
        self.fit_transform(X, y, sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Learn what the columns are; return the features of the training rows.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Features.
        """
        return self._learn(self._opened(X, reset=True), y, sample_weight)[1]

    def _learn(self, table: NamedColumns, y: Any, weight: Any) -> tuple[FittedTable, Array]:
        """Learn what the columns are; return the fitted table and the encoded training rows."""
        Y = None if y is None else targets_of(y, table.n_rows)
        weight = _check_sample_weight(
            weight, np.empty((table.n_rows, 0)), dtype=np.float64, ensure_non_negative=True
        )
        if not weight.any():
            raise ValueError("sample_weight must be positive for at least one row.")
        found, rows = fit_table(table, Y, weight, self.standardize)
        self._columns, self.left_out_ = found.columns, found.left_out
        self._set_features()
        return found, rows

    def fit_sample(self, table: NamedColumns, y: Any, sample_weight: Any) -> FittedTable:
        """Learn from a sample of rows; return the fitted table, which encodes blocks of rows."""
        self.n_features_in_ = len(table.names)
        self.feature_names_in_ = np.array(table.names, dtype=object)
        return self._learn(table, y, sample_weight)[0]

    def transform(self, X: Any) -> Array:
        """Return the features of rows.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_columns)
            Rows with the columns of training. Columns of a frame are found by their names.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Features. A level that did not occur in training counts as a rare one.
        """
        check_is_fitted(self)
        table = self._opened(X, reset=False)
        values = table.values({c.name: getattr(c, "zone", None) for c in self._columns})
        blocks = [column.encode(values[column.name]) for column in self._columns]
        return np.ascontiguousarray(np.hstack(blocks), dtype=np.float64)

    @property
    def has_means(self) -> bool:
        """Whether some features are mean targets: those of training rows leave out their own."""
        return any(isinstance(c, CategoryColumn) and c.means.shape[1] for c in self._columns)

    def training_rows(self, X: Any, Y: Array, sample_weight: Array) -> Array:
        """Return the features that the rows of the fit had in the fit; X may have other columns."""
        table = self._opened(X, reset=False)
        zones = dict.fromkeys(vars(self).get("feature_names_in_", table.names))
        zones |= {c.name: getattr(c, "zone", None) for c in self._columns}
        return training_rows(
            self._columns, table.values(zones), targets_of(Y, len(Y)), sample_weight
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return names of the features: "age", "age:missing", "city=Rome", "time:hour_sin".

        Parameters
        ----------
        input_features : array-like of str, default=None
            Only their number is checked; the names are those of training.

        Returns
        -------
        ndarray of str
            Names.
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return self._names.copy()

    def describe(self) -> str:
        """Return what was found in the table, in one line."""
        check_is_fitted(self)
        counts, found = Counter(self.kinds_.values()), []
        gaps = Counter(c.kind for c in self._columns if getattr(c, "gaps", False))
        for kind, count in ((kind, counts[kind]) for kind in _NAMES if counts[kind]):
            text = f"{count} {_NAMES[kind][count > 1]}"
            found.append(text + (f" ({gaps[kind]} with missing values)" if gaps[kind] else ""))
        reasons = ", ".join(f"{name} ({why})" for name, why in self.left_out_.items())
        return ", ".join(found) + (f"; left out: {reasons}" if reasons else "")

    @property
    def _n_features_out(self) -> int:
        return len(self.groups_)

    def unseen(self, X: Any) -> dict[str, list[str]]:
        """Return, by column, the levels of categories that training did not see.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_columns)
            Rows.

        Returns
        -------
        dict
            For each column with such levels, the levels.
        """
        check_is_fitted(self)
        columns = (c for c in self._columns if isinstance(c, CategoryColumn) and not c.truth)
        categories = {column.name: column for column in columns}
        values = self._opened(X, reset=False).values(dict.fromkeys(categories))
        found: dict[str, list[str]] = {}
        for name, column in categories.items():
            new = {text for text in levels(values[name], name) if text} - {*column.known}
            is_number = values[name].kind == "number"
            new = {t for t, level in meant(new, column.known, is_number).items() if level == t}
            found |= {name: sorted(new)} if new else {}
        return found

    def row_encoder(self) -> RowEncoder:
        """Return a function that turns one row, a dict or a sequence, into its features.

        It takes microseconds, while `transform` of one row takes milliseconds.
        """
        check_is_fitted(self)
        unnamed = [f"x{i}" for i in range(self.n_features_in_)]
        return RowEncoder(self._columns, list(getattr(self, "feature_names_in_", unnamed)))

    def _checked_width(self) -> int:
        """Return the number of features of an encoder from a file, after all checks."""
        for column in self._columns:
            check_column(column)
        self._set_features()
        return len(self._names)

    def _set_features(self) -> None:
        """Set the attributes that describe the features."""
        parts = [(i, part) for i, column in enumerate(self._columns) for part in column.parts()]
        self._names = np.array([part.name for _, part in parts], dtype=object)
        self.columns_ = np.array([self._columns[i].name for i, _ in parts], dtype=object)
        groups = [(i, part.group) for i, part in parts]
        self.groups_ = np.unique(groups, axis=0, return_inverse=True)[1].ravel()
        self.numeric_ = np.array([part.numeric for _, part in parts], dtype=bool)
        self.kinds_ = {column.name: column.kind for column in self._columns}

    def _opened(self, X: Any, *, reset: bool) -> NamedColumns:
        """Return the columns of validated rows; set or compare the number and the names."""
        if not is_frame(X):
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
            table, names = open_table(X), vars(self).get("feature_names_in_")
            return table if names is None else replace(table, names=list(names))  # by position
        table = open_table(X)
        if not reset:
            known, given = {*vars(self).get("feature_names_in_", ())}, {*table.names}
            bare = [name.strip() for name in table.names]  # a CSV file may have spaces after commas
            if not known <= given and known <= {*bare}:
                return replace(table, names=bare)
            if self.left_out_ or not set(self.kinds_.values()) <= {"number"}:
                return table
            if known and given > known:
                return table  # with the target, or others
        # as in all of scikit-learn: a frame of numbers must have the columns of training in order
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise with_advice(error) from None
        if not (table.n_rows and table.names):
            raise ValueError(
                f"Found array with {table.n_rows} sample(s) and {len(table.names)} feature(s) "
                f"(shape=({table.n_rows}, {len(table.names)})) while a minimum of 1 is required."
            )
        return table


def feature_names(model: Any) -> Any:
    """Return the names of the features that a fitted model sees, None if they have none.

    For a table, these are the names of the features that the encoder makes.
    """
    table = vars(model).get("table_")
    known = getattr(model, "feature_names_in_", None)
    return known if table is None else table.get_feature_names_out()
