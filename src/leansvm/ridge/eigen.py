"""The LS-SVM for every C from one eigen-decomposition, with GCV and exact leave-one-out.

With S^1/2 K S^1/2 = V diag(sigma) V', z = V' S^1/2 y, w = V' s^1/2 and lam = 1/C, the solution is
S^1/2 V (z - w b) / (sigma + lam), b = sum(w z / (sigma + lam)) / (A + sum(w^2 / (sigma + lam))),
and leaving row i out turns its residual into beta_i / (s_i T_ii),
T_ii = sum_j V_ij^2 / (sigma_j + lam) - u_i^2 / (A + sum(w^2 / (sigma + lam))).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host
from leansvm.ridge._lapack import eigh_in_place
from leansvm.ridge.criteria import (
    add_up_squares,
    first_of_the_best,
    losses_of_classes,
    mean_errors,
)
from leansvm.ridge.factor import gcv
from leansvm.rows import Block
from leansvm.solution import Solution

Array = NDArray[np.float64]
TILE = 512  # rows of left-out residuals at a time


@dataclass
class _KernelSpectrum:
    """Eigenvectors V, and for every ridge (column) the coordinates of what is needed in them."""

    vectors: Array
    root: Array  # s^1/2
    ridges: Array
    inverse: Array  # 1 / (sigma + lam), one column per ridge
    z: Array  # V' S^1/2 y, one column per output
    w: Array  # V' s^1/2
    total: Array  # A + sum(w^2 / (sigma + lam)) for every ridge; inf without a bias

    def bias(self) -> Array:
        """Return b, ridges x outputs."""
        if np.isinf(self.total).all():
            return np.zeros((len(self.ridges), self.z.shape[1]))
        return np.asarray((self.inverse.T @ (self.w[:, None] * self.z)) / self.total[:, None])

    def coordinates(self, ridge: int, b: Array) -> Array:
        """Return (z - w b) / (sigma + lam) at one ridge, one column per output."""
        return np.asarray((self.z - np.outer(self.w, b)) * self.inverse[:, ridge, None])


def solve_for_every_C(
    K: Any,
    Y: Array,
    weight: Array,
    candidates: Array,
    bias_penalty: float,
    criterion: str,
    *,
    count: float | None = None,
    basis_rows: NDArray[np.intp] | None = None,
    judge: str = "squared",
    eps: float = float(np.finfo(np.float64).eps),
) -> Solution:
    """Score every candidate C by ``criterion`` ("gcv" or "loo") and solve at the best.

    ``K`` (C-contiguous) is overwritten. The criterion is summed over outputs: GCV is
    n RSS / (n - tr)^2 with n = ``count`` (the sum of weights), leave-one-out is
    sum s (left-out residual)^2 / sum s, without ``basis_rows`` where the others are enough.
    Negative eigenvalues that rounding of the kernel values (``eps``) explains count as zero.
    Objective, residual and gap are left to the caller, who may still have the kernel.
    """
    ridges = 1.0 / np.asarray(candidates, dtype=np.float64)
    spectrum = _decompose(K, Y, weight, ridges, bias_penalty, eps)
    b = spectrum.bias()
    by_gcv = criterion == "gcv"
    curve = _gcv(spectrum, b, count) if by_gcv else _press(spectrum, b, basis_rows, Y, judge)
    if len(curve) > 1 and not np.isfinite(curve).any():
        raise ValueError(
            f"C={criterion!r} cannot score any value of C: the weights in sample_weight add up to "
            f"only {weight.sum():.3g}. Scale them up, or give C as a number."
        )
    best = first_of_the_best(curve)
    coordinates = spectrum.coordinates(best, b[best])
    return Solution(
        "eigen",
        spectrum.root[:, None] * (spectrum.vectors @ coordinates),
        b[best],
        float(candidates[best]),
        left_out=np.concatenate([part[:, best] for _, part in _left_out(spectrum, b)]),
        curve=curve,
        error=float(curve[best]),
    )


def _decompose(
    K: Any, Y: Array, weight: Array, ridges: Array, bias_penalty: float, eps: float
) -> _KernelSpectrum:
    root = np.sqrt(weight)
    K *= like_rows(root, K)
    K *= like_rows(root[:, None], K)
    if foreign_namespace(K) is None:
        sigma, vectors = eigh_in_place(K)
    else:
        sigma, vectors = to_host(tuple(namespace(K).linalg.eigh(K)))
    # a semidefinite kernel has no negative eigenvalues but for rounding
    noise = 10 * len(root) * eps * np.abs(sigma).max(initial=0.0)
    sigma = np.where(np.abs(sigma) <= noise, np.maximum(sigma, 0.0), sigma)
    if not sigma.min() + ridges.min() > 0:
        raise np.linalg.LinAlgError(f"smallest eigenvalue {sigma.min():.3g}")
    inverse, w = 1.0 / (sigma[:, None] + ridges), vectors.T @ root
    z, total = vectors.T @ (root[:, None] * Y), bias_penalty + (w**2) @ inverse
    return _KernelSpectrum(vectors, root, ridges, inverse, z, w, total)


def _gcv(spectrum: _KernelSpectrum, b: Array, count: float | None) -> Array:
    """Return generalised cross-validation for every ridge."""
    n = float(np.sum(spectrum.root**2)) if count is None else count
    rss, trace = np.empty(len(b)), np.empty(len(b))
    for j, lam in enumerate(spectrum.ridges):
        rss[j] = lam**2 * np.sum(spectrum.coordinates(j, b[j]) ** 2)
        inverse = spectrum.inverse[:, j]
        trace[j] = inverse.sum() - np.sum((spectrum.w * inverse) ** 2) / spectrum.total[j]
    # n - tr(hat) = n - m + lam tr(T)
    return gcv(rss, (n - len(spectrum.root)) + spectrum.ridges * trace, n)


def _press(
    spectrum: _KernelSpectrum, b: Array, basis_rows: NDArray[np.intp] | None, Y: Array, judge: str
) -> Array:
    """Weighted mean of the squared left-out residuals (or the loss) for every ridge."""
    total: Any = 0.0
    for rows, left_out in _left_out(spectrum, b):
        block, root = Block(rows.start, rows.stop, None, None, None), spectrum.root[rows]
        squares = root[:, None] ** 2 * np.sum(left_out**2, axis=2)
        if judge != "squared":
            values = (Y[rows][:, None, :] - left_out).transpose(2, 0, 1)
            squares = losses_of_classes(judge, values, Y[rows], root**2)
        total += add_up_squares(block, squares, root, basis_rows)
    return mean_errors(total, judge)


def _left_out(spectrum: _KernelSpectrum, b: Array) -> Iterator[tuple[slice, Array]]:
    """Yield left-out residuals (rows x ridges x outputs) by tiles of rows."""
    m, n_outputs = len(spectrum.root), spectrum.z.shape[1]
    for start in range(0, m, TILE):
        rows = slice(start, min(start + TILE, m))
        V = spectrum.vectors[rows]
        u = V @ (spectrum.w[:, None] * spectrum.inverse)
        T = (V**2) @ spectrum.inverse - u**2 / spectrum.total
        T *= spectrum.root[rows, None]
        result = np.empty((len(V), len(spectrum.ridges), n_outputs))
        for o in range(n_outputs):
            v = V @ (spectrum.z[:, o, None] * spectrum.inverse)
            result[:, :, o] = (v - u * b[:, o]) / T
        yield rows, result
