"""Learn the functions on the regularised least-squares objective itself, by variable projection.

J(c, mu) = min over theta, b of 1/2 |theta|^2 + C/2 sum_n s_n e_n^2. At the inner optimum the
derivative of theta drops out (envelope theorem):

    dJ = -C sum_n s_n e_n theta_j dphi_nj,

so one evaluation is a closed-form solve and one more pass. L-BFGS moves c (in units of the
features' spread) and log mu.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from leansvm._array_api import like_rows, namespace
from leansvm.linalg import dense64
from leansvm.low_rank.closed_form import (
    Array,
    ClosedForm,
    LearningPath,
    LowRankProblem,
    Start,
    targets_and_weights,
)
from leansvm.low_rank.features import FeatureUnits, LearnedValues
from leansvm.rows import Block, declare

_LOG_SHAPE = (-12.0, 6.0)  # widths from 400 times less to 160,000 times more than at the start


class VariableProjection:
    """Minimises J with L-BFGS, as a function of x = (c / center_unit, log(mu / shape_unit)).

    Stops when J falls by less than ``tol`` times itself, when the left-out error has not fallen
    for ``patience`` iterations (``keep_best``), or when ``on_iteration`` says so. The anchor holds
    x where it starts.
    """

    def __init__(self, problem: LowRankProblem, start: Start, units: FeatureUnits) -> None:
        self.problem, self.C = problem, start.C
        self.center_unit, self.shape_unit = units.spread, start.shape_unit
        self.anchor = problem.anchor * start.C * (start.error if np.isfinite(start.error) else 1.0)
        limits = np.stack(units.bounds, axis=1) / self.center_unit[:, None]
        limits = np.tile(limits, (start.basis.size, 1))
        self.bounds = np.concatenate([limits, np.tile(_LOG_SHAPE, (len(limits), 1))])
        with np.errstate(divide="ignore"):
            logs = np.log(start.basis.shapes / self.shape_unit)
        x = np.concatenate([(start.basis.centers / self.center_unit).ravel(), logs.ravel()])
        self.start = np.clip(x, self.bounds[:, 0], self.bounds[:, 1])
        self.path = LearningPath(start.basis)
        self.fitted: ClosedForm | None = None  # the last solution; blocks keep its values
        self.x = self.start  # where it is

    def learn(self) -> LearningPath:
        """Minimise J from the start."""
        problem, path = self.problem, self.path
        value, _ = self.evaluate(self.start)
        self.note(OptimizeResult(x=self.start, fun=value))
        found = minimize(
            self.evaluate,
            self.start,
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds,
            callback=self.note,
            options={"maxiter": problem.max_iter, "ftol": problem.tol, "gtol": 0.0, "maxcor": 20},
        )
        path.message = path.message or str(found.message)
        path.converged = bool(path.n_iter < problem.max_iter)
        return path

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return J with the anchor's term, and its gradient."""
        centers, logs = x.reshape(2, *self.path.basis.centers.shape)
        shapes = self.shape_unit * np.exp(logs)
        basis = replace(self.path.basis, centers=centers * self.center_unit, shapes=shapes)
        self.fitted = self.problem.solve(basis, self.C, self.fitted)
        self.x = x.copy()
        value, by_center, by_shape = objective_and_gradient(self.problem, self.fitted)
        # dJ/d(c / unit) = unit dJ/dc, dJ/d(log mu) = mu dJ/dmu
        gradient = np.concatenate(
            [(by_center * self.center_unit).ravel(), (by_shape * shapes).ravel()]
        )
        away = x - self.start
        return value + 0.5 * self.anchor * float(away @ away), gradient + self.anchor * away

    def note(self, intermediate_result: OptimizeResult) -> None:
        """Note the start or an accepted iterate; stop L-BFGS where that is asked for."""
        problem, path, value = self.problem, self.path, float(intermediate_result.fun)
        if not np.array_equal(intermediate_result.x, self.x):
            self.evaluate(intermediate_result.x)
        assert self.fitted is not None
        path.note(problem, self.fitted, value)
        if path.n_iter - path.best_iter >= problem.patience:
            path.message = f"left-out error has not fallen for {problem.patience} iterations"
        tell = problem.on_iteration if path.n_iter > 0 else None
        if tell is not None and tell(path.n_iter, value):
            path.message = "stopped by a callback"
        if path.message:
            raise StopIteration


def objective_and_gradient(
    problem: LowRankProblem, fitted: ClosedForm
) -> tuple[float, Array, Array]:
    """Return J and its derivatives by the centres and the shapes."""
    squares, by_center, by_shape = problem.blocks.sum(_residuals_of_block, fitted)
    value = 0.5 * float(np.sum(fitted.theta**2)) + 0.5 * fitted.C * squares
    return value, np.nan_to_num(by_center), np.nan_to_num(by_shape)


@declare("X", "y", "weight", keeps=LearnedValues)
def _residuals_of_block(block: Block, fitted: ClosedForm) -> tuple[float, Array, Array]:
    """Return sum_n s_n e_n^2, and the part of the derivatives by the centres and the shapes."""
    T, weight = targets_and_weights(block)
    e = T - fitted.outputs(block)
    se = e * weight
    basis = fitted.basis
    weights = (like_rows(-fitted.C * basis.coefficients(fitted.theta), se) @ se.T).T
    by_center, by_shape = basis.function.gradients(
        dense64(block.X), basis.centers, basis.shapes, basis.values(block), weights
    )
    return float(namespace(e).sum(se * e)), by_center, by_shape
