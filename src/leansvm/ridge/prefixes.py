"""Every size of a nested basis at once, at one C (prefixes of the whitened basis).

With R'R = I/C + Phi_c' S Phi_c, R upper, tau = R^-T Phi_c' S y_c and W = Phi_c R^-1, the model on
the first k points fits ybar + sum_{j<=k} w_j tau_j and has leverages s (1/n + sum_{j<=k} w_ij^2):
cumulative sums over columns give objective, GCV, leave-one-out and predictions of every size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from leansvm._array_api import to_host
from leansvm.basis.features import KernelFeatures
from leansvm.ridge.sums import NormalEquations
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]


@dataclass
class PrefixFactor:
    """R^-1 and tau, from which the model of every size follows."""

    equations: NormalEquations
    C: float
    order: NDArray[np.intp]  # columns of Phi; that of a penalised bias comes first
    inverse: Array  # R^-1, upper, in that order
    tau: Array  # columns of the basis x outputs

    @property
    def first(self) -> int:
        """Position of the first model: a penalised bias belongs to every size."""
        return int(self.equations.constant is not None)

    def thetas(self, output: int) -> Array:
        """Return theta of every size, one column per size, for one output."""
        return np.cumsum(self.inverse * self.tau[:, output], axis=1)

    def objective(self) -> Array:
        """Objective of every size, summed over outputs."""
        fitted = np.cumsum(np.sum(self.tau**2, axis=1))
        return np.asarray(0.5 * self.C * (self.equations.yy.sum() - fitted))[self.first :]

    def gcv(self) -> Array:
        """Generalised cross-validation of every size, without a further look at the rows.

        Infinite where no degrees of freedom are left.
        """
        eq, lam = self.equations, 1.0 / self.C
        norms = sum(np.sum(self.thetas(o) ** 2, axis=0) for o in range(self.tau.shape[1]))
        rss = eq.yy.sum() - np.cumsum(np.sum(self.tau**2, axis=1)) - lam * norms
        trace = float(eq.free_bias) + np.cumsum(1 - lam * np.sum(self.inverse**2, axis=0))
        room = eq.count - trace
        enough = room > 1e-10 * eq.count
        scores = eq.count * np.maximum(rss, 0.0) / np.where(enough, room, 1.0) ** 2
        return np.where(enough, scores, np.inf)[self.first :]


def factor_prefixes(equations: NormalEquations, C: float) -> PrefixFactor:
    """Factor I/C + M in the order of the basis."""
    order = np.arange(len(equations.M))
    if equations.constant is not None:
        order = np.roll(order, 1)
    A = equations.M[np.ix_(order, order)]
    A.flat[:: len(A) + 1] += 1.0 / C
    R = cholesky(A, lower=False, overwrite_a=True)
    inverse = solve_triangular(R, np.eye(len(R)))
    return PrefixFactor(equations, C, order, inverse, inverse.T @ equations.c[order])


def left_out_errors(blocks: RowBlocks, basis: KernelFeatures, factor: PrefixFactor) -> Array:
    """Mean squared leave-one-out error of every size, summed over outputs; one pass."""
    total = np.asarray(blocks.sum(_left_out, basis, factor))
    return total[factor.first :] / factor.equations.n


def _columns(Phi: Array, factor: PrefixFactor) -> Array:
    eq = factor.equations
    centred = Phi - eq.mean_phi if eq.free_bias else Phi
    return np.asarray(centred[:, factor.order] @ factor.inverse)


@declare("X", "y", "weight")
def _left_out(block: Block, basis: KernelFeatures, factor: PrefixFactor) -> Array:
    eq = factor.equations
    W = _columns(to_host(basis.of(block)), factor)
    Y = np.asarray(to_host(block.y), dtype=np.float64)
    weight = np.ones(len(Y))
    if block.weight is not None:
        weight = np.asarray(to_host(block.weight), dtype=np.float64)
    leverage = np.cumsum(W**2, axis=1)
    if eq.free_bias:
        leverage += 1.0 / eq.n
        Y = Y - eq.mean_y
    room = np.maximum(1.0 - weight[:, None] * leverage, 1e-12)
    total = np.zeros(W.shape[1])
    for o in range(Y.shape[1]):
        residual = (Y[:, o, None] - np.cumsum(W * factor.tau[:, o], axis=1)) / room
        total += weight @ residual**2
    return total


def decisions(X: Any, basis: KernelFeatures, factor: PrefixFactor) -> Array:
    """Decision values of every size: rows x sizes x outputs."""
    eq = factor.equations
    W = _columns(to_host(basis.transform(X)), factor)
    values = np.stack([np.cumsum(W * t, axis=1) for t in factor.tau.T], axis=2)
    values = values[:, factor.first :]
    return np.asarray(values + eq.mean_y if eq.free_bias else values)
