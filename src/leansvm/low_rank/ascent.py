"""Algorithm 1 of fang2019: closed-form theta and b, then a step of the functions' parameters.

With the dual variables v = a o t and b held, y = Phi (Phi'v) + b and the objective
sum_n s_n psi(y_n) has the gradient (24)-(28), (31)-(35)

    sum_n (s_n q_n theta_j + v_n sigma_j) dphi_nj,  q = psi'(y),  theta = Phi'v,  sigma = Phi'S q,

two passes over the rows; K never appears. Each unit moves by the normalised step (29).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leansvm._array_api import like_rows, namespace
from leansvm.linalg import dense64
from leansvm.low_rank.functions import LearnedFeatures, LearnedValues
from leansvm.low_rank.variable_projection import (
    Array,
    Ascent,
    ClosedForm,
    FeatureUnits,
    LearningPath,
    LowRankProblem,
    Start,
    targets_and_weights,
)
from leansvm.rows import Block, declare

_HALVINGS = 20
AUTO_RATE = 0.15  # in units of the features' spread and the first shapes

# psi(y, t) and its derivative by y: (23), the targeted objective below it, (31)
OBJECTIVES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "abs": (lambda y, t: abs(y), lambda y, t: namespace(y).sign(y)),
    "target": (lambda y, t: t * y, lambda y, t: t),
    "squared": (lambda y, t: y * y, lambda y, t: 2.0 * y),
}


@dataclass
class SweepRows:
    """What a block keeps during a sweep, rows x outputs."""

    v: Any  # dual variables C S e, held
    y: Any  # outputs


def learn_by_steps(
    problem: LowRankProblem, how: Ascent, start: Start, units: FeatureUnits
) -> LearningPath:
    """Run ``max_iter`` rounds; end with the last basis or the one of least left-out error."""
    basis, path = start.basis, LearningPath(start.basis)
    rate, unit = how.learning_rate, (np.ones(1), np.ones(1))
    if isinstance(rate, str):
        rate, unit = AUTO_RATE, (units.spread, start.shape_unit)
    fitted: ClosedForm | None = None
    for iteration in range(problem.max_iter + 1):
        fitted = problem.solve(basis, start.C, fitted)
        path.note(problem, fitted, fitted.objective)
        if iteration == problem.max_iter:
            break
        tell = problem.on_iteration if iteration else None
        if tell is not None and tell(iteration, fitted.objective):
            break
        basis, criterion = sweep(problem, fitted, how, (rate * unit[0], rate * unit[1]))
        path.criterion.append(criterion)
    problem.blocks.map(_forget)
    return path


def sweep(
    problem: LowRankProblem, fitted: ClosedForm, how: Ascent, steps: tuple[Array, Array]
) -> tuple[LearnedFeatures, float]:
    """Move every unit once: all together, or one after the other with y brought up to date.

    Returns the functions where they are then, and the objective before. ``steps`` are the lengths
    of a step of the centres and of the shapes along each feature.
    """
    blocks, now = problem.blocks, fitted
    before, sigma = blocks.sum(hold_outputs, fitted, how.objective, True)
    criterion = before
    one_by_one = [slice(j, j + 1) for j in range(fitted.basis.size)]
    for units in one_by_one if how.sequential else [slice(0, fitted.basis.size)]:
        gradients = blocks.sum(gradients_of_block, now, how.objective, units, sigma)
        by_center, by_shape = map(_normalised, gradients, steps)
        for _ in range(_HALVINGS if how.backtracking else 1):
            trial = _moved(now.basis, units, by_center, by_shape)
            if not (how.sequential or how.backtracking):  # its outputs are not needed
                return trial, before
            there = replace(now, basis=trial, theta=blocks.sum(_weights_of_block, trial))
            reached, pulled = blocks.sum(hold_outputs, there, how.objective, False)
            if reached >= criterion or not how.backtracking:
                now, criterion, sigma = there, reached, pulled
                break
            by_center, by_shape = 0.5 * by_center, 0.5 * by_shape
        else:  # outputs go back to where the units have stayed
            blocks.sum(hold_outputs, now, how.objective, False)
    return now.basis, before


def _normalised(gradient: Array, unit: Array) -> Array:
    """Return the unit's step of ascent, of length one in the given units of measurement."""
    scaled = np.nan_to_num(gradient * unit)
    scaled /= np.maximum(np.abs(scaled).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(unit * scaled / np.where(length > 0, length, 1.0))


def _moved(
    basis: LearnedFeatures, units: slice, by_center: Array, by_shape: Array
) -> LearnedFeatures:
    centers, shapes = basis.centers.copy(), basis.shapes.copy()
    centers[units] += by_center
    shapes[units] = np.maximum(shapes[units] + by_shape, 0.0)
    return replace(basis, centers=centers, shapes=shapes)


# ---------------------------------------------------------------------------- passes over rows


@declare("X", "y", "weight", keeps=(LearnedValues, SweepRows))
def hold_outputs(block: Block, found: ClosedForm, objective: str, dual: bool) -> tuple[float, Any]:
    """Keep y of the block's rows, and with ``dual`` v = C S e; return its objective and Phi'S q."""
    (T, weight), values = targets_and_weights(block), found.basis.values(block)
    y = found.outputs(values)
    v = found.C * ((T - y) * weight) if dual else block.kept(SweepRows).v
    block.keep(SweepRows(v, y))
    value, pull = OBJECTIVES[objective]
    sigma = values.T @ (pull(y, T) * weight)
    return float(namespace(y).sum(value(y, T) * weight)), sigma


@declare("X", "y", "weight", keeps=LearnedValues)
def gradients_of_block(
    block: Block, found: ClosedForm, objective: str, units: slice, sigma: Array
) -> tuple[Array, Array]:
    """Return the part of the gradient by the centres and shapes of these units."""
    (T, weight), rows, basis = targets_and_weights(block), block.kept(SweepRows), found.basis
    pull = OBJECTIVES[objective][1](rows.y, T) * weight
    theta, sigma = (like_rows(a[units], pull) for a in (found.theta, sigma))
    weights = (theta @ pull.T + sigma @ rows.v.T).T
    X, values = dense64(block.X), basis.values(block)[:, units]
    return basis.function.gradients(X, basis.centers[units], basis.shapes[units], values, weights)


@declare("X", keeps=LearnedValues)
def _weights_of_block(block: Block, basis: LearnedFeatures) -> Any:
    """Return theta = Phi'v."""
    return basis.values(block).T @ block.kept(SweepRows).v


@declare(keeps=SweepRows)
def _forget(block: Block) -> None:
    block.state.pop(SweepRows, None)
