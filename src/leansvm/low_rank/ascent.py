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
from leansvm.low_rank.closed_form import (
    Array,
    Ascent,
    ClosedForm,
    LearningPath,
    LowRankProblem,
    Start,
    targets_and_weights,
)
from leansvm.low_rank.features import FeatureUnits, LearnedFeatures, LearnedValues
from leansvm.rows import Block, declare

_HALVINGS = 20
AUTO_RATE = 0.15  # in units of the features' spread and the first shapes
Steps = tuple[Array, Array]  # largest moves of the centres and the shapes along each feature

# psi(y, t) and its derivative by y: (23), the targeted objective below it, (31)
OBJECTIVES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "abs": (lambda y, t: abs(y), lambda y, t: namespace(y).sign(y)),
    "target": (lambda y, t: t * y, lambda y, t: t),
    "squared": (lambda y, t: y * y, lambda y, t: 2.0 * y),
}


@dataclass
class SweepRows:
    """What a block keeps during a sweep; v and outputs are rows x outputs."""

    v: Any  # dual variables C S e
    y: Any  # outputs
    trial: Any = None  # values of the units that may move, where they would be
    trial_y: Any = None  # outputs then


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
        tell = problem.on_iteration if iteration else None
        if iteration == problem.max_iter or (
            tell is not None and tell(iteration, fitted.objective)
        ):
            break
        path.criterion.append(problem.blocks.sum(hold_dual, fitted, how.objective))
        basis = sweep(problem, basis, how, (rate * unit[0], rate * unit[1]), path.criterion[-1])
    problem.blocks.map(_forget_dual)
    return path


def sweep(
    problem: LowRankProblem, basis: LearnedFeatures, how: Ascent, steps: Steps, criterion: float
) -> LearnedFeatures:
    """Move every unit once: all together, or one after the other with y brought up to date."""
    one_by_one = [slice(j, j + 1) for j in range(basis.size)]
    for units in one_by_one if how.sequential else [slice(0, basis.size)]:
        theta, gradients = ascent(problem, basis, how.objective, units)
        by_center, by_shape = map(_normalised, gradients, steps)
        for _ in range(_HALVINGS if how.backtracking else 1):
            trial = _moved(basis, units, by_center, by_shape)
            if not how.sequential and not how.backtracking:
                basis = trial
                break
            change = problem.blocks.sum(_weights_of_trial, trial, units)
            reached = problem.blocks.sum(
                _outputs_of_trial, basis, how.objective, units, theta, change
            )
            if not how.backtracking or reached >= criterion:
                problem.blocks.map(_accept_trial, basis, trial, units)
                basis, criterion = trial, reached
                break
            by_center, by_shape = 0.5 * by_center, 0.5 * by_shape
    return basis


def ascent(
    problem: LowRankProblem, basis: LearnedFeatures, objective: str, units: slice
) -> tuple[Array, tuple[Array, Array]]:
    """Return theta of the units, and the gradient by their centres and shapes.

    The blocks hold v and y.
    """
    theta, sigma = problem.blocks.sum(_sums_of_block, basis, objective, units)
    gradient = problem.blocks.sum(_gradients_of_block, basis, objective, units, theta, sigma)
    return theta, gradient


def _normalised(gradient: Array, unit: Array) -> Array:
    """Return the unit's direction of ascent, of length one in the given units of measurement."""
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
def hold_dual(block: Block, fitted: ClosedForm, objective: str) -> float:
    """Keep v = C S e and y of the block's rows; return its part of the objective."""
    T, weight = targets_and_weights(block)
    y = fitted.outputs(block)
    block.keep(SweepRows(fitted.C * ((T - y) * weight), y))
    return float(namespace(y).sum(OBJECTIVES[objective][0](y, T) * weight))


@declare(keeps=SweepRows)
def _forget_dual(block: Block) -> None:
    block.drop(SweepRows)


def _pull(block: Block, objective: str) -> Any:
    """Return S q."""
    T, weight = targets_and_weights(block)
    return OBJECTIVES[objective][1](block.kept(SweepRows).y, T) * weight


@declare("X", "y", "weight", keeps=LearnedValues)
def _sums_of_block(
    block: Block, basis: LearnedFeatures, objective: str, units: slice
) -> tuple[Any, Any]:
    """Return theta = Phi'v and sigma = Phi'S q of these units."""
    phi = basis.values(block)[:, units].T
    return phi @ block.kept(SweepRows).v, phi @ _pull(block, objective)


@declare("X", "y", "weight", keeps=LearnedValues)
def _gradients_of_block(
    block: Block, basis: LearnedFeatures, objective: str, units: slice, theta: Array, sigma: Array
) -> tuple[Array, Array]:
    v = block.kept(SweepRows).v
    weights = like_rows(theta, v) @ _pull(block, objective).T + like_rows(sigma, v) @ v.T
    values = basis.values(block)[:, units]
    X, centers, shapes = dense64(block.X), basis.centers[units], basis.shapes[units]
    return basis.function.gradients(X, centers, shapes, values, weights.T)


@declare("X", keeps=SweepRows)
def _weights_of_trial(block: Block, trial: LearnedFeatures, units: slice) -> Any:
    """Keep the moved units' values; return their theta."""
    rows = block.kept(SweepRows)
    X, centers, shapes = dense64(block.X), trial.centers[units], trial.shapes[units]
    rows.trial = trial.function.values(X, centers, shapes)
    return rows.trial.T @ rows.v


@declare("X", "y", "weight", keeps=(LearnedValues, SweepRows))
def _outputs_of_trial(
    block: Block,
    basis: LearnedFeatures,
    objective: str,
    units: slice,
    theta: Array,
    moved_theta: Array,
) -> float:
    """Keep y after the move; return the block's part of the objective."""
    values, rows = basis.values(block)[:, units], block.kept(SweepRows)
    y = rows.y - (like_rows(theta.T, values) @ values.T).T
    y += (like_rows(moved_theta.T, values) @ rows.trial.T).T
    rows.trial_y = y
    T, weight = targets_and_weights(block)
    return float(namespace(y).sum(OBJECTIVES[objective][0](y, T) * weight))


@declare("X", keeps=(LearnedValues, SweepRows), changes=("values",))
def _accept_trial(
    block: Block, basis: LearnedFeatures, trial: LearnedFeatures, units: slice
) -> None:
    values, rows = basis.values(block), block.kept(SweepRows)
    values[:, units] = rows.trial
    block.keep(LearnedValues(trial, values))
    rows.y = rows.trial_y
