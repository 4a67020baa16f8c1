"""Rows to predict that lie beyond all training rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.estimators.run import warn

_FEWEST, _MOST = 20, 0.5  # rows from which on it is told, and their share beyond one range


def warn_beyond(estimator: Any, X: Any) -> None:
    """Say that most rows lie beyond the training rows in a feature: what is said there is a guess.

    ``estimator._seen`` has the least and the largest value of every feature that the kernel looks
    at in the rows it was learned on; None: nothing was learned.
    """
    if estimator._seen is None or type(X) is not np.ndarray or len(X) < _FEWEST:
        return
    least, most = estimator._seen
    shares = np.mean((least > X) | (most < X), axis=0)
    feature = int(shares.argmax())
    if shares[feature] <= _MOST:
        return
    warn(
        estimator,
        f": {shares[feature]:.0%} of these rows lie beyond all training rows in "
        f"{_name(estimator, feature)}. A kernel model does not know how the target goes on there: "
        f"do not trust these predictions.",
    )


def _name(estimator: Any, feature: int) -> str:
    table = getattr(estimator, "table_", None)
    names = getattr(estimator, "feature_names_in_", None)
    if table is not None:
        names = table.get_feature_names_out()
    return f"feature {feature}" if names is None else f"{names[feature]!r}"
