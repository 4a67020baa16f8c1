"""Loops of the prediction sets over pairs of new and training rows."""

from __future__ import annotations

from typing import Any

from leansvm._compile import compiled


@compiled()
def count_better(
    values: Any, shares: Any, residuals: Any, margins: Any, weight: Any, counts: Any
) -> None:
    """Add s_i to counts_xk where the margin of row i beats that of class k at x, both without i.

    The margin of class k is f_k minus the largest of the others; without row i the values at x
    are f_k - S_i(x) r_ik.
    """
    n_classes = values.shape[1]
    for x in range(values.shape[0]):
        for i in range(shares.shape[1]):
            first, second, winner = -1e308, -1e308, 0
            for k in range(n_classes):
                value = values[x, k] - shares[x, i] * residuals[i, k]
                if value > first:
                    first, second, winner = value, first, k
                elif value > second:
                    second = value
            for k in range(n_classes):
                value = values[x, k] - shares[x, i] * residuals[i, k]
                margin = value - (second if k == winner else first)
                if margins[i] > margin:
                    counts[x, k] += weight[i]
