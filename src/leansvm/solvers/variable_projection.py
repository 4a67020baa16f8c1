"""Learn the functions on the regularised least-squares objective itself, by variable projection.

J(c, mu) = min over theta, b of 1/2 |theta|^2 + C/2 sum_n s_n e_n^2. At the inner optimum the
derivative of theta drops out (envelope theorem):

    dJ = -C sum_n s_n e_n theta_j dphi_nj,

so one evaluation is a closed-form solve and one more pass. L-BFGS moves c (in units of the
features' spread) and log mu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from leansvm._array_api import like_rows, namespace
from leansvm.blocks import Block, declare
from leansvm.linalg import dense64
from leansvm.solvers.closed_form import (
    Array,
    ClosedForm,
    LearningPath,
    LowRankProblem,
    targets_and_weights,
    weighted,
)
from leansvm.solvers.features import LearnedFeatures

_LOG_SHAPE = (-12.0, 6.0)  # widths from 400 times less to 160,000 times more than at the start


def learn_by_projection(
    problem: LowRankProblem,
    basis: LearnedFeatures,
    *,
    center_unit: Array,
    center_range: tuple[Array, Array],
    shape_unit: Array,
    max_iter: int,
    tol: float,
    patience: int,
    anchor: float,
    keep_best: bool,
    on_iteration: Callable[[int, float], bool] | None = None,
) -> LearningPath:
    """Minimise J from the given basis.

    Stops when J falls by less than ``tol`` times itself, when the left-out error has not fallen
    for ``patience`` iterations (``keep_best``), or when ``on_iteration`` says so.
    """
    shape = basis.centers.shape
    path = LearningPath(basis)
    last: list[tuple[Array, ClosedForm]] = []  # where J was evaluated last: blocks know its values

    def unpack(x: Array) -> LearnedFeatures:
        centers, logs = x.reshape(2, *shape)
        return replace(basis, centers=centers * center_unit, shapes=shape_unit * np.exp(logs))

    def evaluate(x: Array) -> tuple[float, Array]:
        fitted = problem.solve(unpack(x), last[0][1] if last else None)
        last[:] = [(x.copy(), fitted)]
        value, by_center, by_shape = objective_and_gradient(problem, fitted)
        gradient = np.concatenate(
            [(by_center * center_unit).ravel(), (by_shape * fitted.basis.shapes).ravel()]
        )
        away = x - start
        return value + 0.5 * anchor * float(away @ away), gradient + anchor * away

    def record(x: Array, value: float) -> bool:
        """Note an accepted iterate; return whether to stop."""
        fitted = last[0][1] if np.array_equal(x, last[0][0]) else problem.solve(unpack(x))
        path.objective.append(value)
        if not keep_best:
            path.basis, path.best_iter = fitted.basis, path.n_iter
            return False
        path.loo.append(problem.left_out_error(fitted))
        if path.loo[-1] <= min(path.loo):
            path.basis, path.best_iter = fitted.basis, path.n_iter
        return path.n_iter - path.best_iter >= patience

    def callback(intermediate_result: object) -> None:
        x, value = intermediate_result.x, float(intermediate_result.fun)  # type: ignore[attr-defined]
        path.n_iter += 1
        stop = record(x, value)
        if stop:
            path.message = f"left-out error has not fallen for {patience} iterations"
        if on_iteration is not None and on_iteration(path.n_iter, value):
            path.message, stop = "stopped by a callback", True
        if stop:
            raise StopIteration

    low, high = (np.broadcast_to(bound / center_unit, shape) for bound in center_range)
    bounds = np.concatenate(
        [
            np.stack([low.ravel(), high.ravel()], axis=1),
            np.tile(_LOG_SHAPE, (low.size, 1)),
        ]
    )
    with np.errstate(divide="ignore"):
        logs = np.log(basis.shapes / shape_unit)
    start = np.clip(
        np.concatenate([(basis.centers / center_unit).ravel(), logs.ravel()]),
        bounds[:, 0],
        bounds[:, 1],
    )
    record(start, evaluate(start)[0])
    found = minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=callback,
        options={"maxiter": max_iter, "ftol": tol, "gtol": 0.0, "maxcor": 20},
    )
    path.message = path.message or str(found.message)
    path.converged = bool(path.n_iter < max_iter)
    return path


def objective_and_gradient(
    problem: LowRankProblem, fitted: ClosedForm
) -> tuple[float, Array, Array]:
    """Return J and its derivatives by the centres and the shapes."""
    squares, by_center, by_shape = problem.blocks.sum(_residuals_of_block, fitted)
    value = 0.5 * float(np.sum(fitted.theta**2)) + 0.5 * fitted.C * squares
    return value, np.nan_to_num(by_center), np.nan_to_num(by_shape)


@declare("X", "y", "weight", sets=("learned",))
def _residuals_of_block(block: Block, fitted: ClosedForm) -> tuple[float, Array, Array]:
    T, weight = targets_and_weights(block)
    e = T - fitted.outputs(block)
    se = weighted(e, weight)
    basis = fitted.basis
    weights = (like_rows(-fitted.C * basis.coefficients(fitted.theta), se) @ se.T).T
    by_center, by_shape = basis.function.gradients(
        dense64(block.X), basis.centers, basis.shapes, basis.values(block), weights
    )
    return float(namespace(e).sum(se * e)), by_center, by_shape
