"""Why this prediction: a baseline plus a contribution of each column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, check_random_state

from leansvm.inspection._shapley import by_orders, by_products, is_exact, is_product
from leansvm.inspection._view import (
    Array,
    Indices,
    View,
    as_lines,
    checked_view,
    classes_of,
    composed,
    grouped,
    parts_of,
    stacked,
)
from leansvm.rows import check_budget, resolve_cache_size
from leansvm.tables._values import is_missing

_TINY = np.finfo(np.float64).tiny


@dataclass(repr=False)
class Explanation:
    """Predictions as a baseline plus one contribution for each column.

    If a model has several outputs or more than two classes, every array has one more axis at its
    end, for the outputs.

    Attributes
    ----------
    names : list of str
        Columns, or groups of columns.
    baseline : float or ndarray of shape (n_outputs,)
        Mean prediction (classes: decision value) over the background.
    prediction : ndarray of shape (n_rows,)
        Prediction of every row.
    contributions : ndarray of shape (n_rows, n_columns)
        Contribution of each column. Baseline plus the sum over the columns is the prediction.
    errors : ndarray of shape (n_rows, n_columns)
        How far contributions may be off: 0 if they are exact, the standard error for "sampling",
        and for "gaussians" twice the error of the approximation by Gaussian kernels.
    method : {"exact", "gaussians", "sampling"}
        How they were computed.
    values : list of list
        The rows' values in every column; None for groups of several.
    classes : tuple
        Labels whose decision values these are: the second of two classes, or all of several.
        Empty for regressors.
    left_out : list of str
        Columns that the fit left out. Nothing depends on them.
    """

    names: list[str]
    baseline: Any
    prediction: Array
    contributions: Array
    errors: Array
    method: str
    values: list[list[Any]]
    classes: tuple[Any, ...] = ()
    left_out: list[str] = field(default_factory=list)

    def strongest(self, row: int = 0, count: int | None = None, output: int = 0) -> Indices:
        """Return positions of the columns with the largest contributions to a row.

        Parameters
        ----------
        row : int, default=0
            Number of the row.
        count : int, default=None
            Largest number of columns; None means all.
        output : int, default=0
            Which output, or which class if there are more than two.

        Returns
        -------
        ndarray
            Positions in ``names``, the largest contribution, up or down, first.
        """
        return np.argsort(-np.abs(self.of(row, output)[0]), kind="stable")[:count]

    def of(self, row: int = 0, output: int = 0) -> tuple[Array, float, float]:
        """Return contributions, baseline and prediction of one row and output.

        Parameters
        ----------
        row, output : int, default=0
            Which row, and which output.

        Returns
        -------
        contributions, baseline, prediction
            An array and two numbers.
        """
        at = (row,) if self.contributions.ndim == 2 else (row, ..., output)
        baseline = float(np.atleast_1d(self.baseline)[output])
        return self.contributions[at], baseline, float(np.atleast_1d(self.prediction[row])[output])

    def __repr__(self) -> str:
        found, baseline, prediction = self.of()
        what = f"decision value of {self.classes[0]!r} " if self.classes else ""
        what += f"{prediction:.4g}, baseline {baseline:.4g}"
        title = f"Row 0 of {len(self.prediction)}: {what} and:"
        labels = [self.label(g) for g in range(len(self.names))]
        cells = [f"{value:+.4g}" for value in found]
        return as_lines(title, self.names, cells, self.strongest(), self.left_out, labels)

    def label(self, column: int, row: int = 0) -> str:
        """Return a column's name with its value in a row.

        Parameters
        ----------
        column : int
            Position in ``names``.
        row : int, default=0
            Number of the row.

        Returns
        -------
        str
            Such as "age = 42", or "age is missing".
        """
        value = self.values[row][column]
        if value is None:
            return self.names[column]
        if is_missing(value):
            return f"{self.names[column]} is missing"
        number = isinstance(value, float | np.floating)
        return f"{self.names[column]} = {f'{value:.4g}' if number else value}"


def explain(
    model: Any,
    rows: Any,
    background: Any,
    *,
    groups: Mapping[str, Any] | None = None,
    method: str = "auto",
    max_background: int = 100,
    n_orders: int = 2,
    random_state: Any = 0,
) -> Explanation:
    """Explain predictions by interventional Shapley values of the columns.

    The contribution of a column is the change of the prediction if the column takes the value of
    the row instead of that of a background row. It is averaged over the background rows and over
    all orders in which the columns can be replaced.

    Parameters
    ----------
    model : estimator
        A fitted estimator of leansvm, or a pipeline that ends with one.
    rows : array-like, sparse matrix or data frame of shape (n_rows, n_columns)
        Rows to explain, with the columns that ``model.predict`` takes.
    background : array-like, sparse matrix or data frame of shape (n_background, n_columns)
        Rows to compare with, such as the training rows.
    groups : dict of str to list of columns, default=None
        Columns, by name or number, that count as one, such as the indicators of one category. A
        category or a date that the model or the pipeline encodes itself is one column already.
    method : {"auto", "sampling"}, default="auto"
        "auto" is exact for "rbf", "laplacian", "chi2" and "linear". For "matern32" and "matern52"
        it approximates the kernel by seven Gaussian kernels, with an error of about 1e-4 of the
        spread of predictions. For other kernels, and for pipelines that mix columns, it draws
        random orders of the columns. "sampling" always draws random orders.
    max_background : int, default=100
        Largest number of background rows; if there are more, a random sample is used.
    n_orders : int, default=2
        For "sampling": how many random orders of the columns, each also in reverse, are used for
        each row of the background.
    random_state : int, RandomState instance or None, default=0
        How the background and the orders are drawn.

    Returns
    -------
    Explanation
        Contributions, which add up to the prediction minus the baseline with every method.

    Notes
    -----
    Contributions describe the model, not causes: they do not say what happens if somebody changes a
    column in reality. If columns are correlated, some of the rows that are compared never occur.
    ``shap.Explainer(model.predict, background)`` computes the same values from many predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.inspection import explain
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = 2 * X[:, 0] + X[:, 1]
    >>> model = SparseLSSVR(kernel="linear", random_state=0).fit(X, y)
    >>> found = explain(model, [[1.0, 1.0, 1.0]], np.zeros((1, 3)))
    >>> found.contributions.round(1) + 0.0
    array([[2., 1., 0.]])
    """
    if method not in ("auto", "sampling"):
        raise ValueError(f"method must be 'auto' or 'sampling', got {method!r}.")
    for name, number, least in (("max_background", max_background, 1), ("n_orders", n_orders, 2)):
        if not isinstance(number, Integral) or number < least:
            raise ValueError(f"{name} must be a whole number >= {least}, got {number!r}.")
    view, other = checked_view(model, rows, "explain()"), View(model, background)
    if other.names != view.names:
        raise ValueError("rows and background must have the same columns.")
    if view.machine.kernel == "precomputed":
        raise ValueError("kernel='precomputed' has no columns: fit another kernel on the rows.")
    rng, n = check_random_state(random_state), view.X.shape[0]
    if other.X.shape[0] > max_background:
        drawn = np.sort(rng.permutation(other.X.shape[0])[:max_background])
        other.X = _safe_indexing(other.X, drawn)
    names, columns = grouped(view.names, groups)
    values = _values(view.X, columns)
    view.X = stacked(view.X, other.X)
    f = view.values(view.X)
    parts = parts_of(view.machine) if view.is_kernel_machine and method == "auto" else None
    owned = view.owned(columns) if is_product(parts) else None
    if parts is None or owned is None:
        steps = 2 * n_orders * (len(f) - n) * (len(columns) + 1)  # rows between x and background
        check_budget(
            32 * steps * len(view.names),
            resolve_cache_size(view.machine.cache_size),
            f"Explaining a row of {len(view.names)} columns with {len(f) - n} background rows",
            "Use a smaller max_background, or put columns into groups.",
        )
        found, errors = by_orders(
            lambda sources: view.values(composed(view.X, sources)),
            n,
            len(f) - n,
            columns,
            n_orders,
            rng,
        )
        method = "sampling"
    else:
        features = view.features(view.X)
        found, off = by_products(parts, features[:n], features[n:], owned, rng)
        method, errors = "exact", np.zeros_like(found)
        if not is_exact(parts):
            method = "gaussians"
            missing = f[:n] - f[n:].mean(axis=0) - found.sum(axis=1)
            # a contribution is a mean of differences between two values of the model
            errors += 2.0 * np.maximum(np.abs(missing).max(axis=0), off)
            size = np.abs(found)  # columns that the model does not use keep their 0
            found += missing[:, None] * size / np.maximum(size.sum(axis=1, keepdims=True), _TINY)
    one = f.shape[1] == 1
    baseline = f[n:].mean(axis=0)
    return Explanation(
        names,
        float(baseline[0]) if one else baseline,
        f[:n, 0] if one else f[:n],
        found[..., 0] if one else found,
        errors[..., 0] if one else errors,
        method,
        values,
        classes_of(view.machine, f.shape[1]),
        view.left_out(names),
    )


def _values(X: Any, columns: list[Indices]) -> list[list[Any]]:
    """Return the rows' values in every column, None for groups of several."""
    frame = hasattr(X, "columns")
    taken = [
        None
        if len(own) > 1
        else (X[X.columns[own[0]]].to_list() if frame else X[:, own[0]].tolist())
        for own in columns
    ]
    return [
        [None if own is None else np.nan if own[i] is None else own[i] for own in taken]
        for i in range(X.shape[0])
    ]
