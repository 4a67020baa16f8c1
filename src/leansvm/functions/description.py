"""A model of few functions, written down for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.functions._base import BasisFunction

Array = NDArray[np.float64]


def describe(
    function: BasisFunction,
    centers: Array,
    shapes: Array,
    coef: Array,
    intercept: Array,
    names: Sequence[Any] | None = None,
) -> str:
    """Return one block of lines per function: weight, then centre and width by feature.

    Parameters
    ----------
    function, centers, shapes
        The functions.
    coef, intercept : ndarray of shape (n_outputs, n_functions) and (n_outputs,)
        Their weights and the bias.
    names : sequence of str, optional
        Names of the features; x0, x1, ... without any.
    """
    names = names_of_features(names, centers.shape[1])
    widths = function.widths(shapes)
    kind = type(function).__name__
    lines = [f"f(x) = {_numbers(intercept)} + sum of {len(centers)} {kind} functions"]
    for j in np.argsort(-np.abs(coef).max(axis=0), kind="stable"):
        lines.append(f"{_numbers(coef[:, j], sign=True)} x function {j}")
        shown = np.flatnonzero(widths[j] < 1e3 * widths[j].min())
        longest = max((len(names[i]) for i in shown), default=0)
        lines += [
            f"    {names[i]:<{longest}}  centre {centers[j, i]:>10.4g}  width {widths[j, i]:>10.4g}"
            for i in shown
        ]
    return "\n".join(lines)


def names_of_features(names: Sequence[Any] | None, n_features: int) -> list[str]:
    """Return names as text, one per feature; x0, x1, ... without any."""
    if names is None:
        return [f"x{i}" for i in range(n_features)]
    if len(names) != n_features:
        raise ValueError(
            f"feature_names has {len(names)} names, the model has {n_features} features."
        )
    return [str(name) for name in names]


def _numbers(values: Array, *, sign: bool = False) -> str:
    texts = [f"{value:+.4g}" if sign else f"{value:.4g}" for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
