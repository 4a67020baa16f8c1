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
from numpy.typing import NDArray

from leansvm._accelerated import put_rows
from leansvm._array_api import foreign_namespace, like_rows, namespace, rows_at
from leansvm.linalg import dense64
from leansvm.low_rank.closed_form import (
    ClosedForm,
    LearningPath,
    LowRankProblem,
    targets_and_weights,
)
from leansvm.low_rank.features import LearnedFeatures, LearnedValues
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
_HALVINGS = 20
AUTO_RATE = 0.15  # in units of the features' spread and the first shapes

# psi(y, t) and its derivative by y: (23), the targeted objective below it, (31)
OBJECTIVES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "abs": (lambda y, t: abs(y), lambda y, t: namespace(y).sign(y)),
    "target": (lambda y, t: t * y, lambda y, t: t),
    "squared": (lambda y, t: y * y, lambda y, t: 2.0 * y),
}


@dataclass(frozen=True)
class Ascent:
    """How the parameters move; steps are measured in units, one number per feature."""

    objective: str  # a name of `OBJECTIVES`
    learning_rate: float | str  # "auto": `AUTO_RATE`, in units of the data
    center_unit: Array | float = 1.0
    shape_unit: Array | float = 1.0
    sequential: bool = False  # one function at a time instead of all together
    backtracking: bool = False

    def in_units(self, center_unit: Array, shape_unit: Array) -> Ascent:
        """Return these steps with a rate that is a number: "auto" is measured in these units."""
        if self.learning_rate != "auto":
            return self
        return replace(
            self, learning_rate=AUTO_RATE, center_unit=center_unit, shape_unit=shape_unit
        )


@dataclass
class SweepRows:
    """What a block keeps during a sweep; v and outputs are rows x outputs."""

    v: Any  # dual variables C S e
    y: Any  # outputs
    trial: Any = None  # values of the units that may move, where they would be
    trial_y: Any = None  # outputs then


def learn_by_steps(
    problem: LowRankProblem,
    basis: LearnedFeatures,
    steps: Ascent,
    *,
    max_iter: int,
    keep_best: bool,
    on_iteration: Callable[[int, float], bool] | None = None,
) -> LearningPath:
    """Run ``max_iter`` rounds; end with the last basis or the one of least left-out error."""
    path = LearningPath(basis)
    fitted: ClosedForm | None = None
    for iteration in range(max_iter + 1):
        fitted = problem.solve(basis, fitted)
        objective = fitted.spectrum.equations.describe(fitted.theta, fitted.C)["objective"]
        path.note(basis, objective, problem.left_out_error(fitted) if keep_best else None)
        if iteration == max_iter or (
            on_iteration is not None and iteration and on_iteration(iteration, path.objective[-1])
        ):
            break
        path.criterion.append(problem.blocks.sum(hold_dual, fitted, steps.objective))
        basis = sweep(problem, basis, steps, path.criterion[-1])
    problem.blocks.map(_forget_dual)
    return path


def sweep(
    problem: LowRankProblem, basis: LearnedFeatures, steps: Ascent, criterion: float
) -> LearnedFeatures:
    """Move every unit once: all together, or one after the other with y brought up to date."""
    everything = np.arange(basis.size)
    groups = [everything[j : j + 1] for j in everything] if steps.sequential else [everything]
    for units in groups:
        theta, gradients = ascent(problem, basis, steps.objective, units)
        moves = [
            _normalised(gradient, unit) * float(steps.learning_rate)
            for gradient, unit in zip(gradients, (steps.center_unit, steps.shape_unit), strict=True)
        ]
        for _ in range(_HALVINGS if steps.backtracking else 1):
            trial = _moved(basis, units, *moves)
            if not steps.sequential and not steps.backtracking:
                basis = trial
                break
            change = problem.blocks.sum(_weights_of_trial, trial, units)
            reached = problem.blocks.sum(
                _outputs_of_trial, basis, steps.objective, units, theta, change
            )
            if not steps.backtracking or reached >= criterion:
                problem.blocks.map(_accept_trial, basis, trial, units)
                basis, criterion = trial, reached
                break
            moves = [0.5 * move for move in moves]
    return basis


def ascent(
    problem: LowRankProblem, basis: LearnedFeatures, objective: str, units: NDArray[np.intp]
) -> tuple[Array, tuple[Array, Array]]:
    """Return theta of the units, and the gradient by their centres and shapes.

    The blocks hold v and y.
    """
    theta, sigma = problem.blocks.sum(_sums_of_block, basis, objective, units)
    gradient = problem.blocks.sum(_gradients_of_block, basis, objective, units, theta, sigma)
    return theta, gradient


def _normalised(gradient: Array, unit: Array | float) -> Array:
    """Return the unit's direction of ascent, of length one in the given units of measurement."""
    scaled = np.nan_to_num(gradient * unit)
    scaled /= np.maximum(np.abs(scaled).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(unit * scaled / np.where(length > 0, length, 1.0))


def _moved(
    basis: LearnedFeatures, units: NDArray[np.intp], by_center: Array, by_shape: Array
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


def columns_at(values: Any, units: NDArray[np.intp]) -> Any:
    """Return some of the functions' values."""
    return values[:, units] if foreign_namespace(values) is None else rows_at(values.T, units).T


def put_columns(values: Any, units: NDArray[np.intp], new: Any) -> None:
    """Replace some of the functions' values."""
    if foreign_namespace(values) is None:
        values[:, units] = new
    else:
        put_rows(values.T, units, new.T)


@declare(keeps=SweepRows)
def _forget_dual(block: Block) -> None:
    block.drop(SweepRows)


def _pull(block: Block, objective: str) -> Any:
    """Return S q."""
    T, weight = targets_and_weights(block)
    return OBJECTIVES[objective][1](block.kept(SweepRows).y, T) * weight


@declare("X", "y", "weight", keeps=LearnedValues)
def _sums_of_block(
    block: Block, basis: LearnedFeatures, objective: str, units: NDArray[np.intp]
) -> tuple[Any, Any]:
    """Return theta = Phi'v and sigma = Phi'S q of these units."""
    phi = columns_at(basis.values(block), units).T
    return phi @ block.kept(SweepRows).v, phi @ _pull(block, objective)


@declare("X", "y", "weight", keeps=LearnedValues)
def _gradients_of_block(
    block: Block,
    basis: LearnedFeatures,
    objective: str,
    units: NDArray[np.intp],
    theta: Array,
    sigma: Array,
) -> tuple[Array, Array]:
    v = block.kept(SweepRows).v
    weights = like_rows(theta, v) @ _pull(block, objective).T + like_rows(sigma, v) @ v.T
    return basis.function.gradients(
        dense64(block.X),
        basis.centers[units],
        basis.shapes[units],
        columns_at(basis.values(block), units),
        weights.T,
    )


@declare("X", keeps=SweepRows)
def _weights_of_trial(block: Block, trial: LearnedFeatures, units: NDArray[np.intp]) -> Any:
    """Keep the moved units' values; return their theta."""
    phi = trial.function.values(dense64(block.X), trial.centers[units], trial.shapes[units])
    rows = block.kept(SweepRows)
    rows.trial = phi
    return phi.T @ rows.v


@declare("X", "y", "weight", keeps=(LearnedValues, SweepRows))
def _outputs_of_trial(
    block: Block,
    basis: LearnedFeatures,
    objective: str,
    units: NDArray[np.intp],
    theta: Array,
    moved_theta: Array,
) -> float:
    """Keep y after the move; return the block's part of the objective."""
    values, rows = columns_at(basis.values(block), units), block.kept(SweepRows)
    y = rows.y - (like_rows(theta.T, values) @ values.T).T
    y += (like_rows(moved_theta.T, values) @ rows.trial.T).T
    rows.trial_y = y
    T, weight = targets_and_weights(block)
    return float(namespace(y).sum(OBJECTIVES[objective][0](y, T) * weight))


@declare("X", keeps=(LearnedValues, SweepRows), changes=("values",))
def _accept_trial(
    block: Block, basis: LearnedFeatures, trial: LearnedFeatures, units: NDArray[np.intp]
) -> None:
    values, rows = basis.values(block), block.kept(SweepRows)
    put_columns(values, units, rows.trial)
    block.keep(LearnedValues(trial, values))
    rows.y = rows.trial_y
