"""The LS-SVM for every C from one eigen-decomposition, with GCV and exact leave-one-out.

With S^1/2 K S^1/2 = V diag(sigma) V', z = V' S^1/2 y, w = V' s^1/2 and lam = 1/C, the solution is
S^1/2 V (z - w b) / (sigma + lam), b = sum(w z / (sigma + lam)) / (A + sum(w^2 / (sigma + lam))),
and leaving row i out turns its residual into beta_i / (s_i T_ii),
T_ii = sum_j V_ij^2 / (sigma_j + lam) - u_i^2 / (A + sum(w^2 / (sigma + lam))).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, foreign_namespace, like_rows, namespace, to_host
from leansvm.basis.features import ColumnRows, FeatureMap, KernelFeatures
from leansvm.ridge._lapack import eigh_in_place
from leansvm.ridge.criteria import Criterion, at_best_scale, first_of_the_best, losses_of_classes
from leansvm.ridge.equations import MomentRows, NormalEquations, drop_rows_of_Z, gcv
from leansvm.rows import Block, RowBlocks, declare
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
    b: Array  # ridges x outputs

    def coordinates(self, ridge: int) -> Array:
        """Return (z - w b) / (sigma + lam) at one ridge, one column per output."""
        return np.asarray((self.z - np.outer(self.w, self.b[ridge])) * self.inverse[:, ridge, None])


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
    loss: str = "squared",
    eps: float = float(np.finfo(np.float64).eps),
) -> Solution:
    """Score every candidate C by ``criterion`` ("gcv" or "loo") and solve at the best.

    ``K`` (C-contiguous) is overwritten. The criterion is summed over outputs: GCV is
    n RSS / (n - tr)^2 with n = ``count`` (the sum of weights), leave-one-out is
    sum s (left-out residual)^2 / sum s, without ``basis_rows``.
    Negative eigenvalues that may come from rounding of the kernel values (``eps``) count as zero.
    The caller computes objective, residual and gap, if it still has the kernel.
    """
    ridges = 1.0 / np.asarray(candidates, dtype=np.float64)
    spectrum = _decompose(K, Y, weight, ridges, bias_penalty, eps)
    by_gcv = criterion == "gcv"
    curve = _gcv(spectrum, count) if by_gcv else _press(spectrum, basis_rows, Y, loss)
    if len(curve) > 1 and not np.isfinite(curve).any():
        raise ValueError(
            f"C={criterion!r} cannot score any value of C: the weights in sample_weight add up to "
            f"only {weight.sum():.3g}. Scale them up, or give C as a number."
        )
    best = first_of_the_best(curve)
    return Solution(
        "eigen",
        spectrum.root[:, None] * (spectrum.vectors @ spectrum.coordinates(best)),
        spectrum.b[best],
        float(candidates[best]),
        left_out=np.concatenate([part[:, best] for _, part in _left_out(spectrum)]),
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
    b = np.zeros((len(ridges), z.shape[1]))
    if np.isfinite(bias_penalty):
        b = (inverse.T @ (w[:, None] * z)) / total[:, None]
    return _KernelSpectrum(vectors, root, ridges, inverse, z, w, total, b)


def _gcv(spectrum: _KernelSpectrum, count: float | None) -> Array:
    """Return generalised cross-validation for every ridge."""
    n = float(np.sum(spectrum.root**2)) if count is None else count
    rss, trace = np.empty_like(spectrum.ridges), np.empty_like(spectrum.ridges)
    for j, lam in enumerate(spectrum.ridges):
        rss[j] = lam**2 * np.sum(spectrum.coordinates(j) ** 2)
        inverse = spectrum.inverse[:, j]
        trace[j] = inverse.sum() - np.sum((spectrum.w * inverse) ** 2) / spectrum.total[j]
    # n - tr(hat) = n - m + lam tr(T)
    return gcv(rss, (n - len(spectrum.root)) + spectrum.ridges * trace, n)


def _press(
    spectrum: _KernelSpectrum, basis_rows: NDArray[np.intp] | None, Y: Array, loss: str
) -> Array:
    """Weighted mean of the squared left-out residuals (or the loss) for every ridge."""
    total, weight = np.zeros(1), spectrum.root**2
    if basis_rows is not None:
        weight[basis_rows] = 0.0
    for rows, left_out in _left_out(spectrum):
        losses = np.sum(left_out**2, axis=2)
        if loss == "squared":
            total = total + weight[rows] @ losses
        else:
            values = (Y[rows][:, None, :] - left_out).transpose(2, 0, 1)
            total = total + losses_of_classes(loss, values, Y[rows], weight[rows]).sum(axis=0)
    errors = np.asarray(total / weight.sum())
    return at_best_scale(errors) if loss == "log_loss" else errors


def _left_out(spectrum: _KernelSpectrum) -> Iterator[tuple[slice, Array]]:
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
            result[:, :, o] = (v - u * spectrum.b[:, o]) / T
        yield rows, result


# ---------------------------------------------------------------------------- on features


def solve_in_dual(blocks: RowBlocks, equations: NormalEquations, criterion: Criterion) -> Solution:
    """Leave-one-out and GCV if the basis is nearly all rows.

    In the primal, cancellation would destroy both. The dual LS-SVM with the kernel Phi Phi' is the
    same model, without cancellation.
    """
    features = equations.features
    if isinstance(features, KernelFeatures):
        features = replace(features, single=False)
    size, bias_penalty = features.size, 0.0 if equations.free_bias else np.inf
    if features.constant is not None:  # its square 1/A may be so large that rounding hides K
        bias_penalty = 1.0 / features.constant**2
    Phi = blocks.concatenate(_all_features, features)[:, :size]
    Y, weight = blocks.targets_of(np.arange(blocks.n_rows))
    weight = np.ones(len(Y)) if weight is None else weight
    used = np.flatnonzero(weight > 0)
    basis_rows = criterion.basis_rows
    if basis_rows is not None:
        basis_rows = np.flatnonzero(np.isin(used, basis_rows))
    K, terms = Phi[used] @ Phi[used].T, (Y[used], weight[used], criterion.candidates, bias_penalty)
    options: Any = {"count": equations.count, "basis_rows": basis_rows, "loss": criterion.loss}
    every = solve_for_every_C(K, *terms, criterion.name, **options)
    left_out = np.full(Y.shape, np.nan)
    left_out[used] = every.left_out
    curve = every.curve if np.ndim(criterion.C) == 1 else None
    more: Any = {"left_out": left_out, "curve": curve, "error": every.error}
    theta = Phi[used].T @ every.coef
    if features.constant is not None:
        theta = np.vstack([theta, every.b / features.constant])
    found = equations.solution(theta, every.C, **more)
    return replace(found, b=every.b) if equations.free_bias else found


@declare("X", keeps=(MomentRows, ColumnRows))
def _all_features(block: Block, features: FeatureMap) -> Any:
    """Return the columns of a block's rows; it keeps nothing of them."""
    Phi = as_float64(features.of(block))
    drop_rows_of_Z(block)
    return Phi
