"""Loops of the gradients of kernels that are no functions of a product; see `_gradients`."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._compile import compiled

_OPTIONS = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


@compiled(**_OPTIONS)
def sign_sums(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Set out_if = sum_j V_ij sign(x_if - z_fj)."""
    for i in range(rows.shape[0]):
        v = V[i]
        for f in range(rows.shape[1]):
            x, z, total = rows[i, f], Zt[f], 0.0
            for j in range(v.shape[0]):
                total += v[j] * (np.float64(x > z[j]) - np.float64(x < z[j]))
            out[i, f] = total


@compiled(**_OPTIONS)
def chi2_sums(V: Any, rows: Any, Zt: Any, out: Any) -> None:
    """Set out_if = sum_j V_ij (x - z)(x + 3 z) / (x + z)^2, the ratio 1 at x = z = 0."""
    for i in range(rows.shape[0]):
        v = V[i]
        for f in range(rows.shape[1]):
            x, z, total = rows[i, f], Zt[f], 0.0
            for j in range(v.shape[0]):
                sum_ = x + z[j]
                slope = (x - z[j]) * (x + 3.0 * z[j]) / (sum_ * sum_)
                total += v[j] * (slope if sum_ > 0.0 else 1.0)
            out[i, f] = total
