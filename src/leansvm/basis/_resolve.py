"""What users may write as ``basis=`` and ``n_basis=``, resolved in one place."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from leansvm.basis._base import BasisSelector


def selectors() -> dict[str, type[BasisSelector]]:
    """Return the selectors by the names that ``basis=`` takes."""
    from leansvm import basis

    return {
        "random": basis.RandomBasis,
        "pivoted-cholesky": basis.PivotedCholesky,
        "random-pivoted-cholesky": basis.RandomPivotedCholesky,
        "backfitting": basis.Backfitting,
        "forward": basis.ForwardSelection,
        "csi": basis.CSI,
        "sparse-greedy": basis.SparseGreedy,
        "entropy": basis.RenyiEntropy,
        "medoids": basis.KMedoids,
    }


def resolve_basis(basis: Any, n_features: int, n_rows: int, precomputed: bool) -> Any:
    """Return a selector, a 1-D array of row numbers or a 2-D array of points.

    "all" becomes the numbers of all rows.
    """
    if isinstance(basis, BasisSelector):
        return clone(basis)
    if isinstance(basis, str):
        if basis == "all":
            return np.arange(n_rows)
        known = selectors()
        if basis not in known:
            names = ", ".join([*known, "all"])
            raise ValueError(
                f"basis must be one of {names}, a selector or an array, got {basis!r}."
            )
        return known[basis]()
    if isinstance(basis, type):
        raise ValueError(
            f"basis must be a selector instance, got the class {basis.__name__}: add ()."
        )
    array = np.asarray(basis)
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        return _checked_rows(array, n_rows)
    if array.ndim == 2 and np.issubdtype(array.dtype, np.number):
        return _checked_points(array, n_features, precomputed)
    raise ValueError(
        "basis must be a name, a selector, a 1-D integer array of row numbers or a 2-D array of "
        f"points, got {basis!r}."
    )


def _checked_rows(rows: Any, n_rows: int) -> Any:
    if rows.size == 0:
        raise ValueError("basis: the array of row numbers is empty.")
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"basis: row numbers must lie in 0..{n_rows - 1}.")
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)].astype(np.intp)


def _checked_points(points: Any, n_features: int, precomputed: bool) -> Any:
    if precomputed:
        raise ValueError(
            "basis: points make no sense with kernel='precomputed'; give row numbers instead."
        )
    if points.shape[1] != n_features:
        raise ValueError(f"basis: points have {points.shape[1]} features, X has {n_features}.")
    if points.shape[0] == 0 or not np.isfinite(points).all():
        raise ValueError("basis: points must be a non-empty array of finite numbers.")
    return points


def resolve_n_basis(n_basis: Any, n_rows: int) -> int:
    """Turn a count or a fraction into a number of rows; more than there are: warn, use all."""
    if isinstance(n_basis, Integral):
        count = int(n_basis)
    else:
        count = max(1, int(np.ceil(float(n_basis) * n_rows)))
    if count > n_rows:
        warnings.warn(
            f"n_basis={n_basis} is more than the {n_rows} rows there are; using all rows.",
            UserWarning,
            stacklevel=4,
        )
        count = n_rows
    return count
