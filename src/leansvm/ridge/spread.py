"""Quantiles of a target at x, from left-out residuals in units of their local spread.

A new target minus f(x) has the spread sigma(x) sqrt(1 + v(x)): v is the variance of f(x) over that
of the noise (`leansvm.ridge.without_row`). log sigma is learned from log(|r_i| / sqrt(1 + v_i)): a
parabola in f, because errors often grow with the target, plus a ridge regression of the rest with
the model's kernel. Leave-one-out chooses its C, which is nearly zero if nothing is left to learn.
For every x, the quantiles are those of r_i divided by its spread in the model without row i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.basis import Basis
from leansvm.basis.features import KernelFeatures, evaluate
from leansvm.kernels import Kernel
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.primal import SparseProblem
from leansvm.ridge.without_row import LeftOut
from leansvm.rows import MemoryBlocks, RowBlocks

Array = NDArray[np.float64]
_ROWS, _POINTS = 10_000, 200  # training rows whose residuals are looked at; basis of the spread
_CANDIDATES = np.logspace(-4, 4, 17)  # of C of the spread
_INNER = 2.0  # standard deviations of f; the parabola is constant beyond, where rows are few
_LEAST_ERROR = 0.02  # of the median error: smaller errors count as this, or their logs would decide


@dataclass(frozen=True)
class Parabola:
    """The part of log sigma that follows f, for every output."""

    middle: Array  # of f
    unit: Array
    coef: Array  # outputs x 3

    @classmethod
    def fitted(cls, values: Array, logs: Array, weight: Array) -> Parabola:
        """Fit ``logs`` at rows with f(x) by weighted least squares."""
        middle = np.average(values, axis=0, weights=weight)
        unit = np.sqrt(np.average((values - middle) ** 2, axis=0, weights=weight))
        found = cls(middle, np.maximum(unit, np.finfo(np.float64).tiny), np.empty((0, 3)))
        root, powers = np.sqrt(weight)[:, None], found._powers(values)
        coef = [
            np.linalg.lstsq(root * powers[:, output], root * column[:, None], rcond=None)[0][:, 0]
            for output, column in enumerate(logs.T)
        ]
        return replace(found, coef=np.stack(coef))

    def at(self, values: Array) -> Array:
        """Return the parabolas at f(x), rows x outputs."""
        return np.asarray(np.sum(self._powers(values) * self.coef, axis=2))

    def _powers(self, values: Array) -> Array:
        """Return 1, v and v^2, rows x outputs x 3, of v = f(x) in units of its spread."""
        inner = np.clip((values - self.middle) / self.unit, -_INNER, _INNER)
        return np.stack([np.ones_like(inner), inner, inner**2], axis=2)


@dataclass(frozen=True)
class LocalSpread:
    """The spread of targets around f(x), and the distribution of errors in units of it."""

    parabola: Parabola
    features: KernelFeatures
    coef: Array
    b: Array
    errors: Array  # rows x outputs
    weight: Array

    def at(self, X: Any, values: Array, variance: Array) -> Array:
        """Return sigma(x) sqrt(1 + v(x)) where f(x) are the ``values``, rows x outputs."""
        logs = evaluate(self.features, self.coef, self.b, X) + self.parabola.at(values)
        return np.asarray(np.exp(logs) * np.sqrt(1.0 + variance)[:, None], np.float64)

    def quantiles(self, levels: Array) -> Array:
        """Return the quantiles of errors in units of their spread, outputs x levels.

        The level q is the q (n + 1)-th smallest of n errors, in between by interpolation; weights
        count as copies.
        """
        n = float(self.weight.sum())
        for level in levels.tolist():
            if not level * (n + 1) * (1 + 1e-12) >= 1 or not level * (n + 1) * (1 - 1e-12) <= n:
                raise ValueError(
                    f"quantiles: {level:g} needs at least "
                    f"{int(np.ceil(1 / min(level, 1 - level))) - 1} training rows (weights count "
                    f"as copies), got {n:g}: use a quantile closer to 0.5."
                )
        whole = np.floor(levels * (n + 1) * (1 + 1e-12))
        part = np.clip(levels * (n + 1) - whole, 0.0, 1.0)
        found = np.empty((self.errors.shape[1], len(levels)))
        for output, errors in enumerate(self.errors.T):
            order = np.argsort(errors)
            copies = np.cumsum(self.weight[order]) * (1 + 1e-12)
            below, above = (
                errors[order][np.minimum(np.searchsorted(copies, rank), len(order) - 1)]
                for rank in (whole, whole + 1)
            )
            found[output] = below + part * (above - below)
        return found


def local_spread(
    model: LeftOut, counted: NDArray[np.intp], blocks: RowBlocks, kernel: Kernel, budget: int
) -> LocalSpread:
    """Learn the spread from the left-out residuals of the ``counted`` rows, or of some of them."""
    # the same rows in every call: a fitted model must give the same intervals again
    some = np.random.default_rng(0).permutation(counted)[:_ROWS]
    X, weight = blocks.take(model.rows[some]), model.weight[some]
    errors = model.residual[some] / np.sqrt(1.0 + model.left_out_variance()[some])[:, None]
    least = np.maximum(_LEAST_ERROR * np.median(np.abs(errors), axis=0), np.finfo(np.float64).tiny)
    logs = np.log(np.maximum(np.abs(errors), least))
    values = model.target[some] - model.residual[some]
    parabola = Parabola.fitted(values, logs, weight)
    rest, criterion = logs - parabola.at(values), Criterion(_CANDIDATES, "loo", left_out=True)
    problem = SparseProblem(MemoryBlocks(X, rest, weight), kernel, 0.0, criterion, None, budget)
    points = np.arange(min(_POINTS, len(some)))
    found = problem.solve(problem.sum_size(lambda size: Basis(points, X[:size]), len(points)))
    assert found.left_out is not None
    errors = errors / np.exp(logs - found.left_out)  # in units of the spread without the row
    features = KernelFeatures(kernel, found.features.points)
    return LocalSpread(parabola, features, found.coef, found.b, errors, weight)
